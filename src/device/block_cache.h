/* A list of freed device blocks, which a gpu owns and keeps for allocations of about the same size. Taking a block only
 * queries events of the driver. Thread rule: safe from any thread, except init and reset. */
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
/* Takes the smallest block of `bytes` to 9/8 * `bytes` bytes without a pending use. The caller then owns *out and its
 * event. Returns false if there is none. */
bool tdict_block_cache_take(tdict_block_cache *cache, tdict_driver *driver, size_t bytes, tdict_kept_block *out);
/* Adds the block. Returns false if the list is full, or would have more than most_bytes. */
bool tdict_block_cache_put(tdict_block_cache *cache, const tdict_kept_block *block, size_t most_bytes);
/* Removes the block that was freed longest ago. Returns false if at most keep_count blocks and keep_bytes bytes are
 * left. */
bool tdict_block_cache_pop(tdict_block_cache *cache, size_t keep_bytes, int keep_count, tdict_kept_block *out);

#endif
