/* Kept blocks: a short list, looked through under a lock. See block_cache.h for ownership and threads. */
#include "device/block_cache.h"

#include <string.h>

#include "device/gpu.h"

void tdict_block_cache_init(tdict_block_cache *cache) { pthread_mutex_init(&cache->lock, NULL); }
void tdict_block_cache_reset(tdict_block_cache *cache) { pthread_mutex_destroy(&cache->lock); }

/* Under the lock. */
static tdict_kept_block take_out(tdict_block_cache *c, int i) {
  tdict_kept_block block = c->blocks[i];
  memmove(&c->blocks[i], &c->blocks[i + 1], (size_t)(--c->count - i) * sizeof block);
  c->bytes -= block.bytes;
  return block;
}

/* Behind what is queued on the stream for freeing, which is all that its event stands for. */
static void let_go(tdict_gpu *gpu, const tdict_kept_block *block) {
  gpu->driver->ops->mem_free_async(gpu->driver, block->data, gpu->free_stream);
  if (block->event) tdict_gpu_give_event(gpu, block->event);
}

static void let_oldest_go(tdict_gpu *gpu, size_t keep_bytes, int keep_count) {
  tdict_block_cache *c = &gpu->kept;
  for (;;) {
    pthread_mutex_lock(&c->lock);
    bool found = c->count > keep_count || (c->count > 0 && c->bytes > keep_bytes);
    tdict_kept_block oldest = {0};
    if (found) oldest = take_out(c, 0);
    pthread_mutex_unlock(&c->lock);
    if (!found) return;
    let_go(gpu, &oldest);
  }
}

static bool is_ready(tdict_gpu *gpu, tdict_kept_block *block) {
  if (!block->event) return true;
  if (gpu->driver->ops->event_query(gpu->driver, block->event) != TDICT_CU_SUCCESS) return false;
  tdict_gpu_give_event(gpu, block->event);
  block->event = NULL;
  return true;
}

bool tdict_block_cache_take(tdict_gpu *gpu, size_t bytes, tdict_kept_block *out) {
  tdict_block_cache *c = &gpu->kept;
  const size_t spare = bytes / 8;
  int best = -1;
  pthread_mutex_lock(&c->lock);
  for (int i = c->count - 1; i >= 0; i--) { /* of equals the one freed last */
    tdict_kept_block *block = &c->blocks[i];
    if (block->bytes < bytes || block->bytes - bytes > spare) continue;
    if (best >= 0 && block->bytes >= c->blocks[best].bytes) continue;
    if (is_ready(gpu, block)) best = i;
  }
  if (best >= 0) *out = take_out(c, best);
  pthread_mutex_unlock(&c->lock);
  return best >= 0;
}

void tdict_block_cache_give(tdict_gpu *gpu, tdict_kept_block block, size_t most_bytes) {
  tdict_block_cache *c = &gpu->kept;
  bool keeps = block.bytes <= most_bytes;
  while (keeps) {
    let_oldest_go(gpu, most_bytes - block.bytes, TDICT_KEPT_BLOCKS - 1);
    pthread_mutex_lock(&c->lock);
    bool room = c->count < TDICT_KEPT_BLOCKS && c->bytes <= most_bytes - block.bytes; /* another may have taken it */
    if (room) c->blocks[c->count++] = block;
    if (room) c->bytes += block.bytes;
    pthread_mutex_unlock(&c->lock);
    if (room) return;
  }
  let_go(gpu, &block);
}

void tdict_block_cache_shrink(tdict_gpu *gpu, size_t keep_bytes) { let_oldest_go(gpu, keep_bytes, TDICT_KEPT_BLOCKS); }
