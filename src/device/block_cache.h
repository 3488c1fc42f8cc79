/* Declares the list of freed device blocks that a gpu keeps for later allocations of about the same size. Taking a
 * block from the list makes no driver call except queries of events. The gpu owns the list, frees the blocks and reuses
 * the events of the blocks. Thread rule: safe from any thread, except init and reset. */
#ifndef TDICT_DEVICE_BLOCK_CACHE_H
#define TDICT_DEVICE_BLOCK_CACHE_H

#include <pthread.h>
#include <stdbool.h>

#include "device/driver.h"

enum { TDICT_KEPT_BLOCKS = 32 };
typedef struct tdict_kept_block {
  void *data;
  size_t bytes;
  tdict_cu_event event; /* recorded on free_stream after the block's last use; NULL: no stream uses the block */
  bool done;            /* true: a query has shown that the event is done */
} tdict_kept_block;
typedef struct tdict_block_cache {
  pthread_mutex_t lock; /* guards: bytes, count, blocks */
  size_t bytes;
  int count;
  tdict_kept_block blocks[TDICT_KEPT_BLOCKS]; /* sorted by the time of the free, oldest first */
} tdict_block_cache;

void tdict_block_cache_init(tdict_block_cache *cache);
void tdict_block_cache_reset(tdict_block_cache *cache); /* the list must be empty */
/* Finds the blocks whose size is from `bytes` to 9/8 * `bytes` and that have no pending use. Removes the smallest of
 * these blocks, and writes the block to *out. The caller then owns the block and the event of the block. Returns false
 * if there is no such block. */
bool tdict_block_cache_take(tdict_block_cache *cache, tdict_driver *driver, size_t bytes, tdict_kept_block *out);
/* Adds the block. If the list is full, or if the bytes of all blocks together would exceed most_bytes, returns false
 * and does not add the block. */
bool tdict_block_cache_put(tdict_block_cache *cache, const tdict_kept_block *block, size_t most_bytes);
/* Removes the block that was freed longest ago. Returns false if the list holds at most keep_count blocks and at most
 * keep_bytes bytes. */
bool tdict_block_cache_pop(tdict_block_cache *cache, size_t keep_bytes, int keep_count, tdict_kept_block *out);

#endif
