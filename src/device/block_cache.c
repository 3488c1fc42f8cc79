/* A list of freed device blocks, short enough for a linear search under the lock. See block_cache.h for ownership. */
#include "device/block_cache.h"

#include <string.h>

void tdict_block_cache_init(tdict_block_cache *cache) { pthread_mutex_init(&cache->lock, NULL); }
void tdict_block_cache_reset(tdict_block_cache *cache) { pthread_mutex_destroy(&cache->lock); }

/* Removes the block at index i. The caller holds the lock. */
static tdict_kept_block remove_at(tdict_block_cache *c, int i) {
  tdict_kept_block block = c->blocks[i];
  memmove(&c->blocks[i], &c->blocks[i + 1], (size_t)(--c->count - i) * sizeof block);
  c->bytes -= block.bytes;
  return block;
}

bool tdict_block_cache_pop(tdict_block_cache *c, size_t keep_bytes, int keep_count, tdict_kept_block *out) {
  pthread_mutex_lock(&c->lock);
  bool found = c->count > keep_count || (c->count > 0 && c->bytes > keep_bytes);
  if (found) *out = remove_at(c, 0);
  pthread_mutex_unlock(&c->lock);
  return found;
}

/* Returns true if all uses of the block are done, and notes it, so that the event is not queried again. */
static bool is_unused(tdict_driver *driver, tdict_kept_block *block) {
  if (!block->event || block->done) return true;
  if (driver->ops->event_query(driver, block->event) != TDICT_CU_SUCCESS) return false;
  block->done = true;
  return true;
}

bool tdict_block_cache_take(tdict_block_cache *c, tdict_driver *driver, size_t bytes, tdict_kept_block *out) {
  const size_t max_excess = bytes / 8; /* a much larger block would waste memory */
  int best = -1;
  pthread_mutex_lock(&c->lock);
  for (int i = c->count - 1; i >= 0; i--) { /* newest first, so that the newest of several blocks of one size is
                                             * taken */
    tdict_kept_block *block = &c->blocks[i];
    if (block->bytes < bytes || block->bytes - bytes > max_excess) continue;
    if (best >= 0 && block->bytes >= c->blocks[best].bytes) continue;
    if (is_unused(driver, block)) best = i;
  }
  if (best >= 0) *out = remove_at(c, best);
  pthread_mutex_unlock(&c->lock);
  return best >= 0;
}

bool tdict_block_cache_put(tdict_block_cache *c, const tdict_kept_block *block, size_t most_bytes) {
  pthread_mutex_lock(&c->lock);
  bool fits = c->count < TDICT_KEPT_BLOCKS && block->bytes <= most_bytes && c->bytes <= most_bytes - block->bytes;
  if (fits) c->blocks[c->count++] = *block;
  if (fits) c->bytes += block->bytes;
  pthread_mutex_unlock(&c->lock);
  return fits;
}
