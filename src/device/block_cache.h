/* Freed blocks of one gpu that are kept for allocations of about their size, so that these need no call of the driver.
 * A block is handed out only when all that was queued on it is done. Lies in its gpu, which owns what is kept.
 * Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_BLOCK_CACHE_H
#define TDICT_DEVICE_BLOCK_CACHE_H

#include <pthread.h>
#include <stdbool.h>

#include "device/driver.h"
#include "memory/memory.h"

enum { TDICT_KEPT_BLOCKS = 32 };
typedef struct tdict_kept_block {
  void *data;
  size_t bytes;
  tdict_cu_event event; /* recorded behind every use on the gpu's stream for freeing; NULL: all of them are done */
} tdict_kept_block;
typedef struct tdict_block_cache {
  pthread_mutex_t lock; /* guards what follows */
  size_t bytes;
  int count;
  tdict_kept_block blocks[TDICT_KEPT_BLOCKS]; /* freed longest ago first */
} tdict_block_cache;

typedef struct tdict_gpu tdict_gpu;
void tdict_block_cache_init(tdict_block_cache *cache);
void tdict_block_cache_reset(tdict_block_cache *cache); /* nothing is kept any more */
/* The smallest kept block for `bytes` that is ready now and at most an eighth too large; false: there is none. */
bool tdict_block_cache_take(tdict_gpu *gpu, size_t bytes, tdict_kept_block *out);
/* Keeps the block, of the gpu's driver pool, and lets those that were freed longest ago go until no more than most_bytes
 * are kept. */
void tdict_block_cache_give(tdict_gpu *gpu, tdict_kept_block block, size_t most_bytes);
/* Gives blocks back to the driver, behind their uses, until no more than keep_bytes are kept. */
void tdict_block_cache_shrink(tdict_gpu *gpu, size_t keep_bytes);

#endif
