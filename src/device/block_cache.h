/* A list of freed blocks of one gpu, kept for allocations of about their size. An allocation from the list needs no call
 * of the driver. The list lies in its gpu, which frees the blocks and reuses their events. Thread rule: safe from any
 * thread. */
#ifndef TDICT_DEVICE_BLOCK_CACHE_H
#define TDICT_DEVICE_BLOCK_CACHE_H

#include <pthread.h>
#include <stdbool.h>

#include "device/driver.h"

enum { TDICT_KEPT_BLOCKS = 32 };
typedef struct tdict_kept_block {
  void *data;
  size_t bytes;
  tdict_cu_event event; /* recorded after every use on the gpu's stream for freeing; NULL: all of them are done */
  bool done;            /* the event was seen done */
} tdict_kept_block;
typedef struct tdict_block_cache {
  pthread_mutex_t lock; /* guards what follows */
  size_t bytes;
  int count;
  tdict_kept_block blocks[TDICT_KEPT_BLOCKS]; /* freed longest ago first */
} tdict_block_cache;

void tdict_block_cache_init(tdict_block_cache *cache);
void tdict_block_cache_reset(tdict_block_cache *cache); /* the list is empty */
/* Removes the smallest block for `bytes` that is unused now and at most an eighth too large. The block's event is the
 * caller's. Returns false if there is no such block. */
bool tdict_block_cache_take(tdict_block_cache *cache, tdict_driver *driver, size_t bytes, tdict_kept_block *out);
/* Adds the block. Returns false if the list is full, or would hold more than most_bytes. */
bool tdict_block_cache_put(tdict_block_cache *cache, const tdict_kept_block *block, size_t most_bytes);
/* Removes the block that was freed longest ago. Returns false if no more than keep_bytes in keep_count blocks are left. */
bool tdict_block_cache_pop(tdict_block_cache *cache, size_t keep_bytes, int keep_count, tdict_kept_block *out);

#endif
