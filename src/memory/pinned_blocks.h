/* Blocks of pinned memory. Runs of pages are split into blocks of exact sizes; free neighbours are merged again.
 * The pool counts the bytes, takes the lock and polls the fences. This file does none of these.
 * Thread rule: call under the lock of the pool that owns the list. Only tdict_blocks_new() needs no lock. */
#ifndef TDICT_MEMORY_PINNED_BLOCKS_H
#define TDICT_MEMORY_PINNED_BLOCKS_H

#include "memory/fence.h"
#include "memory/pinned_pages.h"

/* A run of pages that were pinned together. The run is freed with its last block. */
typedef struct tdict_run {
  tdict_pinned_pages pages;
} tdict_run;

/* The fences that a freed block waits for. Owned by the block. */
typedef struct tdict_fence_list {
  struct tdict_fence_list *next; /* links lists that were removed from their blocks */
  int count;
  tdict_fence *fences[]; /* retained */
} tdict_fence_list;

typedef struct tdict_pinned_block tdict_pinned_block;
struct tdict_pinned_block {
  tdict_run *run;
  char *data;
  size_t bytes;                      /* a multiple of 4096 */
  tdict_pinned_block *left, *right;  /* neighbours in the run */
  tdict_pinned_block *older, *newer; /* neighbours in the list that holds the block */
  tdict_fence_list *waits;
  bool free; /* true if in the list of free blocks */
};
/* A list of blocks in the order in which they were added. */
typedef struct tdict_block_list {
  tdict_pinned_block *oldest, *newest;
} tdict_block_list;

/* Creates a run that has no pages yet, and a block that covers the run. The block is in no list. Returns NULL if host
 * memory is exhausted. */
tdict_pinned_block *tdict_blocks_new(void);
/* Frees the records of a block that covers its run. The caller frees the pages. */
void tdict_blocks_drop(tdict_pinned_block *block);
/* Returns true if the block covers its whole run. */
static inline bool tdict_block_is_whole(const tdict_pinned_block *b) { return !b->left && !b->right; }

/* Appends a block as the newest of a list. */
void tdict_blocks_append(tdict_block_list *list, tdict_pinned_block *block);
void tdict_blocks_remove(tdict_block_list *list, tdict_pinned_block *block);
/* Removes a free block of at least `bytes` bytes from the list and splits off the rest. Chooses the smallest block that
 * fits, and the newest of equal blocks. Returns NULL if no block fits.
 * Skips blocks larger than `max_block_bytes` and runs pinned for another NUMA node. Bytes that fit into one piece do
 * not cross a border of pieces. */
enum { TDICT_ANY_NODE = -2 };
tdict_pinned_block *tdict_blocks_take(tdict_block_list *list, size_t bytes, size_t max_block_bytes, int node);
/* Adds a block to the free list, merged with neighbours that are free. */
void tdict_blocks_give(tdict_block_list *list, tdict_pinned_block *b);

#endif
