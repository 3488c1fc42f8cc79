/* Blocks of pinned memory: runs of pages are cut into blocks of exact sizes and put together again when neighbours are
 * free. Nothing is counted here, nothing is locked and no fence is asked.
 * Thread rule: under the lock of the pool that owns the list; only tdict_blocks_new() needs none. */
#ifndef TDICT_MEMORY_PINNED_BLOCKS_H
#define TDICT_MEMORY_PINNED_BLOCKS_H

#include "memory/fence.h"
#include "memory/pinned_pages.h"

/* A run of pages; it ends with its last block. */
typedef struct tdict_run {
  tdict_pinned_pages pages;
} tdict_run;

/* Fences that a freed block waits for; owned by the block. */
typedef struct tdict_fence_list {
  struct tdict_fence_list *next; /* for whoever has taken it from its block */
  int count;
  tdict_fence *fences[]; /* counted */
} tdict_fence_list;

typedef struct tdict_pinned_block tdict_pinned_block;
struct tdict_pinned_block {
  tdict_run *run;
  char *data;
  size_t bytes;                      /* a multiple of 4096 */
  tdict_pinned_block *left, *right;  /* neighbours in the run */
  tdict_pinned_block *older, *newer; /* in the list it stands in */
  tdict_fence_list *waits;
  bool free; /* stands in the list of free blocks */
};
/* Oldest first. */
typedef struct tdict_block_list {
  tdict_pinned_block *oldest, *newest;
} tdict_block_list;

/* A block that is all of a new run without pages, in no list; NULL without host memory. */
tdict_pinned_block *tdict_blocks_new(void);
void tdict_blocks_drop(tdict_pinned_block *block); /* the record of a whole run; the pages are the caller's */
static inline bool tdict_block_is_whole(const tdict_pinned_block *b) { return !b->left && !b->right; }

void tdict_blocks_append(tdict_block_list *list, tdict_pinned_block *block);
void tdict_blocks_remove(tdict_block_list *list, tdict_pinned_block *block);
/* Takes the smallest of the free blocks that has `bytes`, of those the newest, and cuts off what is too much; NULL when
 * there is none. Blocks of more than `at_most` bytes, and of runs for another memory node, are left alone. What fits a
 * piece goes over no border. */
enum { TDICT_ANY_NODE = -2 };
tdict_pinned_block *tdict_blocks_take(tdict_block_list *list, size_t bytes, size_t max_block_bytes, int node);
/* Puts a block among the free ones, together with neighbours that are. */
void tdict_blocks_give(tdict_block_list *list, tdict_pinned_block *b);

#endif
