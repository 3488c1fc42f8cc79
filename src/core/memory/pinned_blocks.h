/* Declares the blocks of pinned memory. A run of pages is split into blocks of exact sizes, and free neighbours are
 * merged again. pinned_pool.c counts, locks and polls fences. Thread rule: call all but tdict_blocks_new() and
 * tdict_blocks_drop() under the lock of the pool that owns the list. */
#ifndef TDICT_CORE_MEMORY_PINNED_BLOCKS_H
#define TDICT_CORE_MEMORY_PINNED_BLOCKS_H

#include "core/memory/fence.h"
#include "core/memory/pinned_pages.h"

/* The fences that a freed block waits for. Owned by the block. */
typedef struct tdict_fence_list {
  struct tdict_fence_list *next; /* next list, used while the pool collects lists whose fences will be released */
  int count;
  tdict_fence *fences[]; /* retained */
} tdict_fence_list;

typedef struct tdict_pinned_block tdict_pinned_block;
struct tdict_pinned_block {
  tdict_pinned_pages *run; /* pages that were pinned together; freed only when one block covers all of them */
  char *data;
  size_t bytes;                      /* a multiple of 4096 */
  tdict_pinned_block *left, *right;  /* neighbours in the run */
  tdict_pinned_block *older, *newer; /* neighbours in the list that holds the block */
  tdict_fence_list *waits;
  bool free; /* true if the block is in the list of free blocks */
};
/* A list of blocks in the order in which the blocks were added. */
typedef struct tdict_block_list {
  tdict_pinned_block *oldest, *newest;
} tdict_block_list;

/* Creates a run without pages and its only block, in no list. Returns NULL if host memory is exhausted. */
tdict_pinned_block *tdict_blocks_new(void);
/* Frees the record of a block that covers its whole run, and the record of the run. The caller frees the pages. */
void tdict_blocks_drop(tdict_pinned_block *block);
static inline bool tdict_block_is_whole(const tdict_pinned_block *b) { return !b->left && !b->right; }

void tdict_blocks_append(tdict_block_list *list, tdict_pinned_block *block);
void tdict_blocks_remove(tdict_block_list *list, tdict_pinned_block *block);
/* Value of `node` that allows runs of every NUMA node. */
enum { TDICT_ANY_NODE = -2 };
/* Takes a block of `bytes` bytes out of the smallest free block that fits, of equal ones the newest. The rest stays
 * free. Skips blocks of more than `max_block_bytes`, and runs for another NUMA node. The block crosses no border of
 * pieces if its bytes fit into one. Returns NULL if no block fits, or without memory for the records. */
tdict_pinned_block *tdict_blocks_take(tdict_block_list *list, size_t bytes, size_t max_block_bytes, int node);
/* Merges the block with the neighbours that are free, and adds the merged block to the list of free blocks. */
void tdict_blocks_give(tdict_block_list *list, tdict_pinned_block *b);

#endif
