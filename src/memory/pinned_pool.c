/* The pinned pool: see pinned_pool.h. Blocks that are freed stand in one list, oldest first. */
#include "memory/pinned_pool.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"

enum { PAGE = 4096 };
#define MIN_CACHE ((size_t)64 << 20)

typedef struct block block;
struct block {
  tdict_pinned_pages pages;
  block *next, *previous; /* in the list of freed blocks */
  tdict_fence **fences;   /* that the bytes still wait for; counted */
  int num_fences;
};
typedef struct pool {
  tdict_memory memory; /* first: a pool is a memory */
  _Atomic(int64_t) refs;
  tdict_pinner pinner;
  size_t limit_bytes;
  pthread_mutex_t lock; /* guards what follows, and every block's links and fences */
  block *oldest, *newest;
  size_t most_live;
  size_t reserved; /* bytes of allocations under way: within the limit, and counted once they are there */
  tdict_memory_counts counts;
} pool;

static bool is_gone(const pool *p) { return p->pinner.ops->is_gone && p->pinner.ops->is_gone(p->pinner.self); }

static void unlink_block(pool *p, block *b) {
  if (b->previous)
    b->previous->next = b->next;
  else
    p->oldest = b->next;
  if (b->next)
    b->next->previous = b->previous;
  else
    p->newest = b->previous;
  p->counts.cached_bytes -= b->pages.bytes;
}

static bool is_idle(const block *b) {
  for (int i = 0; i < b->num_fences; i++)
    if (!b->fences[i]->ops->poll(b->fences[i])) return false;
  return true;
}

/* Without the lock: the end of a fence may free storages of this very pool. */
static void release_fences(block *b) {
  for (int i = 0; i < b->num_fences; i++) b->fences[i]->ops->release(b->fences[i]);
  free(b->fences);
  b->fences = NULL;
  b->num_fences = 0;
}

static void dispose(pool *p, block *b) {
  release_fences(b);
  tdict_pinned_pages_put(&p->pinner, &b->pages);
  free(b);
}

/* Takes idle blocks off the list, oldest first, while more than keep_bytes are cached; the caller disposes of them once
 * it has let the lock go, since unpinning waits for the device. */
static block *take_surplus(pool *p, size_t keep_bytes) {
  block *taken = NULL;
  for (block *b = p->oldest, *next; b && p->counts.cached_bytes > keep_bytes; b = next) {
    next = b->next;
    if (!is_idle(b)) continue;
    unlink_block(p, b);
    b->next = taken;
    taken = b;
  }
  return taken;
}

static void dispose_all(pool *p, block *taken) {
  while (taken) {
    block *next = taken->next;
    dispose(p, taken);
    taken = next;
  }
}

static block *take_cached(pool *p, size_t bytes) {
  for (block *b = p->newest; b; b = b->previous) {
    if (b->pages.bytes != bytes || !is_idle(b)) continue;
    unlink_block(p, b);
    p->counts.num_reused++;
    return b;
  }
  return NULL;
}

/* Claims `bytes` before they are there, so that the limit holds while several threads allocate. */
static tdict_status reserve(pool *p, size_t bytes, block **surplus, tdict_error *err) {
  size_t room = p->limit_bytes ? p->limit_bytes : SIZE_MAX / 2;
  size_t taken = p->counts.live_bytes + p->reserved;
  if (bytes > room || taken > room - bytes)
    return tdict_fail(err, TDICT_ENOMEM, "pinned memory: %zu bytes on top of %zu live ones pass pinned_bytes, %zu",
                      bytes, taken, room);
  size_t keep = room - bytes - taken;
  *surplus = p->counts.cached_bytes > keep ? take_surplus(p, keep) : NULL;
  if (p->counts.cached_bytes > keep)
    return tdict_fail(err, TDICT_ENOMEM, "pinned memory: %zu bytes of pinned_bytes, %zu, are freed but still in use",
                      p->counts.cached_bytes, room);
  p->reserved += bytes;
  return TDICT_OK;
}

static void count_live(pool *p, size_t bytes) {
  p->counts.live_bytes += bytes;
  p->counts.num_allocations++;
  if (p->counts.live_bytes > p->most_live) p->most_live = p->counts.live_bytes;
  size_t all = p->counts.live_bytes + p->counts.cached_bytes;
  if (all > p->counts.peak_bytes) p->counts.peak_bytes = all;
}

static bool drop_cache(pool *p) {
  pthread_mutex_lock(&p->lock);
  block *surplus = take_surplus(p, 0);
  pthread_mutex_unlock(&p->lock);
  bool dropped = surplus != NULL;
  dispose_all(p, surplus);
  return dropped;
}

/* A block for bytes that are reserved. */
static tdict_status make_block(pool *p, size_t bytes, block **out, tdict_error *err) {
  tdict_error why;
  block *b = calloc(1, sizeof *b);
  tdict_status status = b ? tdict_pinned_pages_get(&p->pinner, bytes, &b->pages, &why)
                          : tdict_fail(&why, TDICT_ENOMEM, "pinned memory: no host memory for a block's record");
  if (status != TDICT_OK && b && drop_cache(p)) /* what is cached may be what is missing */
    status = tdict_pinned_pages_get(&p->pinner, bytes, &b->pages, &why);
  pthread_mutex_lock(&p->lock);
  p->reserved -= bytes;
  if (status == TDICT_OK) count_live(p, bytes);
  pthread_mutex_unlock(&p->lock);
  if (status == TDICT_OK) {
    *out = b;
    return TDICT_OK;
  }
  free(b);
  if (err) *err = why;
  return status;
}

static tdict_status pool_allocate(tdict_memory *m, size_t asked, tdict_block *out, tdict_error *err) {
  pool *p = (pool *)m;
  size_t bytes;
  if (is_gone(p))
    return tdict_fail(err, TDICT_EFORKED, "pinned memory: this process is a fork of the one that made the context");
  if (!tdict_round_up(asked ? asked : 1, PAGE, &bytes))
    return tdict_fail(err, TDICT_EOVERFLOW, "pinned memory: %zu bytes do not fit the address space", asked);
  block *surplus = NULL;
  tdict_status status = TDICT_OK;
  pthread_mutex_lock(&p->lock);
  block *b = take_cached(p, bytes);
  if (b)
    count_live(p, bytes);
  else
    status = reserve(p, bytes, &surplus, err);
  pthread_mutex_unlock(&p->lock);
  dispose_all(p, surplus);
  if (status == TDICT_OK && !b)
    status = make_block(p, bytes, &b, err);
  else if (b)
    release_fences(b);
  if (status != TDICT_OK) return status;
  *out = (tdict_block){b->pages.data, bytes, b};
  return TDICT_OK;
}

static void pool_free(tdict_memory *m, tdict_block *given, tdict_fence **fences, int num_fences) {
  pool *p = (pool *)m;
  block *b = given->cookie; /* without fences while it is live */
  if (is_gone(p)) return;
  if (num_fences > 0) {
    b->fences = malloc((size_t)num_fences * sizeof *fences);
    for (int i = 0; i < num_fences; i++) {
      if (b->fences) {
        b->fences[b->num_fences++] = fences[i];
      } else { /* nowhere to keep it: wait now */
        fences[i]->ops->wait(fences[i], INT64_MAX);
        fences[i]->ops->release(fences[i]);
      }
    }
  }
  pthread_mutex_lock(&p->lock);
  p->counts.live_bytes -= b->pages.bytes;
  p->counts.cached_bytes += b->pages.bytes;
  b->next = NULL;
  b->previous = p->newest;
  if (p->newest)
    p->newest->next = b;
  else
    p->oldest = b;
  p->newest = b;
  block *surplus = take_surplus(p, p->most_live > MIN_CACHE ? p->most_live : MIN_CACHE);
  pthread_mutex_unlock(&p->lock);
  dispose_all(p, surplus);
}

static void pool_counts(const tdict_memory *m, tdict_memory_counts *out) {
  pool *p = (pool *)(uintptr_t)m;
  pthread_mutex_lock(&p->lock);
  *out = p->counts;
  pthread_mutex_unlock(&p->lock);
}

static void pool_retain(tdict_memory *m) { atomic_fetch_add_explicit(&((pool *)m)->refs, 1, memory_order_relaxed); }

/* At the end nobody can ask for the bytes again, so whatever still waits for a fence is waited for. */
static void pool_release(tdict_memory *m) {
  pool *p = (pool *)m;
  if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1 || is_gone(p)) return;
  while (p->oldest) {
    block *b = p->oldest;
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the oldest block has none before it, so unlinking it moves p->oldest */
    for (int i = 0; i < b->num_fences; i++) b->fences[i]->ops->wait(b->fences[i], INT64_MAX);
    unlink_block(p, b);
    dispose(p, b);
  }
  pthread_mutex_destroy(&p->lock);
  p->pinner.ops->release(p->pinner.self);
  free(p);
}

static const tdict_memory_ops pool_ops = {pool_allocate, pool_free, NULL, NULL, pool_counts, pool_retain, pool_release};

tdict_status tdict_pinned_pool_create(const tdict_pinner *pinner, size_t limit_bytes, tdict_memory **out,
                                      tdict_error *err) {
  pool *p = calloc(1, sizeof *p);
  if (!p) return tdict_fail(err, TDICT_ENOMEM, "pinned memory: no host memory for the pool");
  p->memory.ops = &pool_ops;
  p->memory.device = tdict_cpu();
  p->memory.pinned = true;
  atomic_init(&p->refs, 1);
  pthread_mutex_init(&p->lock, NULL);
  p->pinner = *pinner;
  p->limit_bytes = limit_bytes;
  pinner->ops->retain(pinner->self);
  *out = &p->memory;
  return TDICT_OK;
}

void tdict_pinned_pool_forget_threads(tdict_memory *memory) {
  if (memory->ops == &pool_ops) ((pool *)memory)->pinner.pool = NULL;
}

void tdict_pinned_pool_trim(tdict_memory *memory, size_t keep_bytes) {
  if (memory->ops != &pool_ops) return;
  pool *p = (pool *)memory;
  if (is_gone(p)) return; /* where the pages were, something else may lie by now */
  pthread_mutex_lock(&p->lock);
  block *surplus = take_surplus(p, keep_bytes);
  pthread_mutex_unlock(&p->lock);
  dispose_all(p, surplus);
}

int tdict_pinned_pool_way(const tdict_memory *memory, const tdict_storage *storage) {
  if (!memory || memory->ops != &pool_ops || storage->memory != memory) return 0;
  return (int)((const block *)storage->block.cookie)->pages.way;
}

void *tdict_pinned_pool_self(const tdict_memory *memory) {
  return memory && memory->ops == &pool_ops ? ((const pool *)memory)->pinner.self : NULL;
}
