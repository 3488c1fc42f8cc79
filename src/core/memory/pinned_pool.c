/* Implements the pool of pinned memory: counts bytes, enforces the limit and polls fences. pinned_blocks.c splits and
 * merges blocks. The pool owns its runs until its last release. Thread rule: see pinned_pool.h. */
#include "core/memory/pinned_pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/assert.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/memory/pinned_blocks.h"
#include "tdict/memory.h"

enum { PAGE_BYTES = 4096 };
#define MIN_CACHE ((size_t)64 << 20)
/* A block is split only if its size is at most this many times the requested size, or if no more bytes can be pinned.
 * Without this limit, a small block with a long life would keep a large run from being unpinned or reused. */
enum { MAX_CUT_RATIO = 16 };

typedef struct pool {
  tdict_memory memory; /* the first member, because a pointer to a pool is also a pointer to its memory */
  _Atomic(int64_t) refs;
  tdict_pinner pinner;
  atomic_int logged_ways; /* see tdict_pinner */
  size_t limit_bytes;
  pthread_mutex_t lock;    /* guards all following fields and every block */
  pthread_cond_t unpinned; /* signalled when unpinning_bytes or reserved_bytes decreases */
  tdict_block_list free_blocks;
  tdict_block_list waiting_blocks; /* freed blocks with fences that are not known to be done */
  size_t peak_live_bytes;
  size_t reserved_bytes;  /* bytes being pinned now; count against the limit */
  size_t unpinning_bytes; /* bytes being unpinned now; count against the limit */
  tdict_memory_counts counts;
} pool;

static bool is_forked(const pool *p) { return p->pinner.ops->is_forked && p->pinner.ops->is_forked(p->pinner.self); }

static bool are_fences_done(const tdict_pinned_block *b) {
  for (int i = 0; b->waits && i < b->waits->count; i++)
    if (!b->waits->fences[i]->ops->poll(b->waits->fences[i])) return false;
  return true;
}

/* Frees waiting blocks whose fences are done, and adds their fence lists to *done. Call under the lock, but release the
 * fences later, because that can free storages of this pool. */
static void free_idle_blocks(pool *p, tdict_fence_list **done) {
  for (tdict_pinned_block *b = p->waiting_blocks.oldest, *next; b; b = next) {
    next = b->newer;
    if (!are_fences_done(b)) continue;
    b->waits->next = *done;
    *done = b->waits;
    b->waits = NULL;
    tdict_blocks_remove(&p->waiting_blocks, b);
    tdict_blocks_give(&p->free_blocks, b);
  }
}

static void release_fence_lists(tdict_fence_list *done) {
  while (done) {
    tdict_fence_list *next = done->next;
    for (int i = 0; i < done->count; i++) done->fences[i]->ops->release(done->fences[i]);
    free(done);
    done = next;
  }
}

/* Removes free runs, oldest first, while more than keep_bytes are cached. Returns their blocks, linked by `newer`. Call
 * under the lock, but unpin later, since that waits for the device. */
static tdict_pinned_block *remove_surplus(pool *p, size_t keep_bytes) {
  tdict_pinned_block *taken = NULL;
  for (tdict_pinned_block *b = p->free_blocks.oldest, *next; b && p->counts.cached_bytes > keep_bytes; b = next) {
    next = b->newer;
    if (!tdict_block_is_whole(b)) continue;
    tdict_blocks_remove(&p->free_blocks, b);
    TDICT_ASSERT(p->counts.cached_bytes >= b->bytes);
    p->counts.cached_bytes -= b->bytes;
    p->unpinning_bytes += b->bytes;
    b->newer = taken;
    taken = b;
  }
  return taken;
}

/* Unpins and frees the runs that remove_surplus() returned. Call without the lock. */
static void unpin_surplus(pool *p, tdict_pinned_block *taken) {
  while (taken) {
    tdict_pinned_block *next = taken->newer;
    size_t bytes = taken->bytes;
    tdict_pinned_pages_put(&p->pinner, taken->run);
    tdict_blocks_drop(taken);
    pthread_mutex_lock(&p->lock);
    TDICT_ASSERT(p->unpinning_bytes >= bytes);
    p->unpinning_bytes -= bytes;
    pthread_cond_broadcast(&p->unpinned);
    pthread_mutex_unlock(&p->lock);
    taken = next;
  }
}

/* Adds an allocation to the counts. Call under the lock. */
static void count_live(pool *p, size_t bytes) {
  TDICT_ASSERT(tdict_lock_is_held(&p->lock));
  p->counts.live_bytes += bytes;
  p->counts.num_allocations++;
  if (p->counts.live_bytes > p->peak_live_bytes) p->peak_live_bytes = p->counts.live_bytes;
  size_t all = p->counts.live_bytes + p->counts.cached_bytes;
  if (all > p->counts.peak_bytes) p->counts.peak_bytes = all;
}

/* Takes a free block and counts it as live. Returns NULL without a fit or host memory. Call under the lock. */
static tdict_pinned_block *take_free_block(pool *p, size_t bytes, size_t at_most, int node) {
  tdict_pinned_block *b = tdict_blocks_take(&p->free_blocks, bytes, at_most, node);
  if (!b) return NULL;
  TDICT_ASSERT(b->bytes == bytes && p->counts.cached_bytes >= bytes);
  p->counts.cached_bytes -= bytes;
  p->counts.num_reused++;
  count_live(p, bytes);
  return b;
}

/* Takes any free block that fits, however large or far, when no more can be pinned. Call under the lock. */
static tdict_pinned_block *take_any_block(pool *p, size_t bytes, int node) {
  tdict_pinned_block *b = take_free_block(p, bytes, SIZE_MAX, node);
  return b ? b : take_free_block(p, bytes, SIZE_MAX, TDICT_ANY_NODE);
}

/* Returns the number of bytes that may still be pinned under the limit. Call under the lock. */
static size_t count_room(const pool *p) {
  size_t room = p->limit_bytes ? p->limit_bytes : SIZE_MAX / 2;
  size_t taken = p->counts.live_bytes + p->counts.cached_bytes + p->reserved_bytes + p->unpinning_bytes;
  return taken < room ? room - taken : 0;
}

/* Fills the error of an allocation that does not fit the limit. Call under the lock. */
static tdict_status fail_over_limit(const pool *p, size_t bytes, tdict_error *err) {
  size_t room = p->limit_bytes ? p->limit_bytes : SIZE_MAX / 2;
  size_t taken = p->counts.live_bytes + p->reserved_bytes;
  if (bytes > room || taken > room - bytes)
    return tdict_fail(err, TDICT_ENOMEM, "pinned memory: %zu bytes on top of %zu live ones pass pinned_bytes, %zu",
                      bytes, taken, room);
  return tdict_fail(
      err, TDICT_ENOMEM,
      "pinned memory: %zu bytes of pinned_bytes, %zu, are freed but still in use, or lie between live ones",
      p->counts.cached_bytes, room);
}

/* Sets *out to a free block, or to NULL after reserving `bytes`, so that several threads that pin do not exceed the
 * limit together. If the limit leaves too few bytes, takes any free block, unpins cached runs or waits for a thread
 * that does. Call under the lock, which is released meanwhile. Returns TDICT_ENOMEM at the limit. */
static tdict_status take_or_reserve(pool *p, size_t bytes, int node, tdict_pinned_block **out, tdict_error *err) {
  TDICT_ASSERT(tdict_lock_is_held(&p->lock));
  *out = take_free_block(p, bytes, bytes > SIZE_MAX / MAX_CUT_RATIO ? SIZE_MAX : bytes * MAX_CUT_RATIO, node);
  size_t limit = p->limit_bytes ? p->limit_bytes : SIZE_MAX / 2;
  while (!*out && count_room(p) < bytes) {
    *out = take_any_block(p, bytes, node);
    if (*out) break;
    size_t held = p->counts.live_bytes + p->reserved_bytes; /* bytes that cannot be unpinned */
    if (bytes > limit || held > limit - bytes) return fail_over_limit(p, bytes, err);
    tdict_pinned_block *surplus = NULL;
    if (held + p->counts.cached_bytes > limit - bytes) surplus = remove_surplus(p, limit - bytes - held);
    if (!surplus && !p->unpinning_bytes) return fail_over_limit(p, bytes, err);
    if (!surplus) { /* Another thread is unpinning. That thread does not wait for this thread, so waiting is safe. */
      tdict_cond_wait(&p->unpinned, &p->lock);
      continue;
    }
    pthread_mutex_unlock(&p->lock);
    unpin_surplus(p, surplus);
    pthread_mutex_lock(&p->lock);
  }
  if (!*out) p->reserved_bytes += bytes;
  return TDICT_OK;
}

/* Unpins all free runs. Returns false if no run was free. */
static bool drop_cache(pool *p) {
  pthread_mutex_lock(&p->lock);
  tdict_pinned_block *surplus = remove_surplus(p, 0);
  pthread_mutex_unlock(&p->lock);
  bool dropped = surplus != NULL;
  unpin_surplus(p, surplus);
  return dropped;
}

static tdict_status pin_pages(pool *p, size_t bytes, int node, tdict_pinned_pages *out, tdict_error *err) {
  tdict_pinner pinner = p->pinner;
  pinner.node = node;
  return tdict_pinned_pages_get(&pinner, bytes, out, err);
}

/* Pins a new block of bytes that the caller has reserved, and ends the reservation. If pinning fails, unpins the cached
 * runs and tries again. If pinning fails again, falls back to any free block that fits. */
static tdict_status make_block(pool *p, size_t bytes, int node, tdict_pinned_block **out, tdict_error *err) {
  tdict_error cause;
  tdict_pinned_pages pages = {0};
  tdict_pinned_block *b = tdict_blocks_new(), *other = NULL;
  tdict_status status = b ? pin_pages(p, bytes, node, &pages, &cause)
                          : tdict_fail_memory(&cause, "pinned memory", NULL, "a block's record");
  if (status != TDICT_OK && b && drop_cache(p)) /* unpin the cached pages, which the system may need, and try again */
    status = pin_pages(p, bytes, node, &pages, &cause);
  /* End the reservation, and count the block if a block was obtained. */
  pthread_mutex_lock(&p->lock);
  TDICT_ASSERT(p->reserved_bytes >= bytes);
  p->reserved_bytes -= bytes;
  if (status == TDICT_OK)
    count_live(p, bytes);
  else if (b)
    other = take_any_block(p, bytes, node);
  pthread_cond_broadcast(&p->unpinned);
  pthread_mutex_unlock(&p->lock);
  if (status == TDICT_OK) {
    *b->run = pages;
    b->data = pages.data;
    b->bytes = bytes;
    *out = b;
    return TDICT_OK;
  }
  if (b) tdict_blocks_drop(b);
  if (other) {
    *out = other;
    return TDICT_OK;
  }
  if (err) *err = cause;
  return status;
}

static tdict_status allocate_on(pool *p, size_t requested, int node, tdict_block *out, tdict_error *err) {
  size_t bytes;
  if (is_forked(p))
    return tdict_fail(err, TDICT_EFORKED,
                      "pinned memory: this process is a fork of the process that created the context");
  if (!tdict_round_up(requested ? requested : 1, PAGE_BYTES, &bytes))
    return tdict_fail(err, TDICT_EOVERFLOW, "pinned memory: %zu bytes do not fit the address space", requested);
  tdict_fence_list *done = NULL;
  tdict_pinned_block *b = NULL;
  pthread_mutex_lock(&p->lock);
  free_idle_blocks(p, &done);
  tdict_status status = take_or_reserve(p, bytes, node, &b, err);
  pthread_mutex_unlock(&p->lock);
  release_fence_lists(done);
  if (status == TDICT_OK && !b) status = make_block(p, bytes, node, &b, err);
  if (status != TDICT_OK) return status;
  *out = (tdict_block){b->data, bytes, b};
  return TDICT_OK;
}

static tdict_status pool_allocate_near(tdict_memory *m, size_t requested, int node, tdict_block *out,
                                       tdict_error *err) {
  pool *p = (pool *)m;
  return allocate_on(p, requested, node < 0 ? p->pinner.node : node, out, err);
}

static tdict_status pool_allocate(tdict_memory *m, size_t requested, tdict_block *out, tdict_error *err) {
  return pool_allocate_near(m, requested, -1, out, err);
}

/* Records the fences of a freed block. If memory for the record is exhausted, waits for them here. Returns NULL if
 * there is no fence left to wait for. */
static tdict_fence_list *record_fences(tdict_fence **fences, int num_fences) {
  if (num_fences == 0) return NULL;
  tdict_fence_list *w = malloc(sizeof *w + (size_t)num_fences * sizeof w->fences[0]);
  if (!w) {
    tdict_fence_finish_all(fences, num_fences);
    return NULL;
  }
  memcpy(w->fences, fences, (size_t)num_fences * sizeof w->fences[0]);
  w->count = num_fences;
  return w;
}

static void pool_free(tdict_memory *m, tdict_block *given, tdict_fence **fences, int num_fences) {
  pool *p = (pool *)m;
  tdict_pinned_block *b = given->cookie;
  if (is_forked(p)) return;
  tdict_fence_list *waits = record_fences(fences, num_fences), *done = NULL;
  pthread_mutex_lock(&p->lock);
  TDICT_ASSERT(!b->free && !b->waits && p->counts.live_bytes >= b->bytes);
  p->counts.live_bytes -= b->bytes;
  p->counts.cached_bytes += b->bytes;
  b->waits = waits;
  if (waits)
    tdict_blocks_append(&p->waiting_blocks, b);
  else
    tdict_blocks_give(&p->free_blocks, b);
  /* The cache may hold peak_live_bytes or MIN_CACHE, whichever is larger. */
  tdict_pinned_block *surplus = NULL;
  size_t keep = p->peak_live_bytes > MIN_CACHE ? p->peak_live_bytes : MIN_CACHE;
  if (p->counts.cached_bytes > keep) {
    free_idle_blocks(p, &done);
    surplus = remove_surplus(p, keep);
  }
  pthread_mutex_unlock(&p->lock);
  release_fence_lists(done);
  unpin_surplus(p, surplus);
}

static void pool_counts(const tdict_memory *m, tdict_memory_counts *out) {
  pool *p = (pool *)(uintptr_t)m;
  *out = (tdict_memory_counts){0};
  if (is_forked(p)) return; /* A thread of the parent process might have held the lock at the fork. */
  pthread_mutex_lock(&p->lock);
  *out = p->counts;
  pthread_mutex_unlock(&p->lock);
}

static void pool_retain(tdict_memory *m) { atomic_fetch_add_explicit(&((pool *)m)->refs, 1, memory_order_relaxed); }

/* Releases a reference. The last release waits for all fences, because no later call will poll the fences. */
static void pool_release(tdict_memory *m) {
  pool *p = (pool *)m;
  if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1 || is_forked(p)) return;
  for (tdict_pinned_block *b = p->waiting_blocks.oldest; b; b = b->newer)
    for (int i = 0; i < b->waits->count; i++) b->waits->fences[i]->ops->wait(b->waits->fences[i], INT64_MAX);
  tdict_fence_list *done = NULL;
  free_idle_blocks(p, &done);
  release_fence_lists(done);
  TDICT_ASSERT(p->counts.live_bytes == 0 && p->reserved_bytes == 0 && !p->waiting_blocks.oldest);
  unpin_surplus(p, remove_surplus(p, 0));
  TDICT_ASSERT(p->counts.cached_bytes == 0 && p->unpinning_bytes == 0);
  pthread_cond_destroy(&p->unpinned);
  pthread_mutex_destroy(&p->lock);
  p->pinner.ops->release(p->pinner.self);
  free(p);
}

static const tdict_memory_ops pool_ops = {.allocate = pool_allocate,
                                          .allocate_near = pool_allocate_near,
                                          .free = pool_free,
                                          .counts = pool_counts,
                                          .retain = pool_retain,
                                          .release = pool_release};

tdict_status tdict_pinned_pool_create(const tdict_pinner *pinner, size_t limit_bytes, tdict_memory **out,
                                      tdict_error *err) {
  pool *p = calloc(1, sizeof *p);
  if (!p) return tdict_fail_memory(err, "pinned memory", NULL, "the pool");
  p->memory.ops = &pool_ops;
  p->memory.device = tdict_cpu();
  p->memory.pinned = true;
  atomic_init(&p->refs, 1);
  atomic_init(&p->logged_ways, 0);
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->unpinned, NULL);
  p->pinner = *pinner;
  p->pinner.logged_ways = &p->logged_ways;
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
  if (is_forked(p)) return; /* In a forked child the pages are not mapped, and other data can be at their addresses. */
  tdict_fence_list *done = NULL;
  pthread_mutex_lock(&p->lock);
  free_idle_blocks(p, &done);
  tdict_pinned_block *surplus = remove_surplus(p, keep_bytes);
  pthread_mutex_unlock(&p->lock);
  release_fence_lists(done);
  unpin_surplus(p, surplus);
}

int tdict_pinned_pool_way(const tdict_memory *memory, const tdict_storage *storage) {
  if (!memory || memory->ops != &pool_ops || storage->memory != memory) return 0;
  return (int)((const tdict_pinned_block *)storage->block.cookie)->run->way;
}

void *tdict_pinned_pool_pinner_self(const tdict_memory *memory) {
  return memory && memory->ops == &pool_ops ? ((const pool *)memory)->pinner.self : NULL;
}
