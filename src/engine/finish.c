/* Creates, ends and frees transfers. The end fills in the statistics, releases sources, marks, waits and the targets'
 * storages, and launches the transfers that wait. tdict_transfer_free() releases all else, and all of a transfer that
 * never began. See finish.h for threads. */
#include "engine/finish.h"

#include <stdlib.h>

#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/memory/pinned_pool.h"
#include "engine/options/burst.h"
#include "engine/options/check_sources.h"
#include "engine/options/pace.h"
#include "engine/options/queue_limit.h"
#include "engine/options/stream_waits.h"
#include "engine/options/strips.h"
#include "engine/order.h"
#include "engine/plan/result.h"
#include "tdict/memory.h"

tdict_status tdict_transfer_create(tdict_engine *engine, int num_workers, size_t num_targets, tdict_transfer **out,
                                   tdict_error *err) {
  const size_t bytes = sizeof(tdict_transfer) + (size_t)num_workers * sizeof(tdict_worker);
  tdict_transfer *t = calloc(1, bytes + num_targets * sizeof t->targets[0]);
  if (!t) return tdict_fail_memory(err, "transfer", NULL, "its record");
  tdict_future_init(&t->future, engine, &tdict_transfer_kind);
  t->how.num_workers = num_workers;
  t->targets = (tdict_target *)(void *)((char *)t + bytes);
  t->num_targets = num_targets;
  atomic_init(&t->workers_left, num_workers);
  for (int i = 0; i < num_workers; i++) t->workers[i].transfer = t;
  tdict_latch_init(&t->may_start, 1);
  tdict_latch_init(&t->queued, num_workers);
  *out = t;
  return TDICT_OK;
}

/* Adds the failed leaf's path. If the program has the result, only the tree `named` is safe to read. */
static void add_error_path(tdict_transfer *t) {
  const tdict_tree *tree = t->named || t->future.result_was_returned ? t->named : t->future.result;
  char path[sizeof t->future.error.path];
  if (!tree) return;
  tdict_leaf_path(tree, t->future.error_leaf, path, sizeof path);
  if (path[0]) tdict_error_at(&t->future.error, TDICT_OK, path);
}

/* Returns a tdict_pin_path: how the pinned memory of this transfer was obtained. */
static int32_t pin_path(const tdict_transfer *t) {
  const tdict_plan *p = &t->plan;
  const tdict_storage *target = t->targets[0].storage;
  int way = target ? tdict_pinned_pool_way(target->memory, target) : 0;
  if (!way && (p->way_bytes[TDICT_WAY_STAGE_IN] || p->way_bytes[TDICT_WAY_STAGE_OUT]))
    for (uint32_t i = 0; i < p->num_items && !way; i++)
      if (tdict_item_uses_slot(&p->items[i])) way = tdict_rings_pin_way(&t->future.engine->rings, p->items[i].gpu);
  return way == TDICT_PINNED_REGISTERED ? TDICT_PIN_REGISTER
         : way == TDICT_PINNED_SMALL    ? TDICT_PIN_SMALL_PIECES
         : way == TDICT_PINNED_DRIVER   ? TDICT_PIN_DRIVER
         : way < 0                      ? TDICT_PIN_PAGEABLE
                                        : TDICT_PIN_NONE;
}

/* Returns the bytes that driver copies move, after conversions and packing. */
static size_t wire_bytes(const tdict_transfer *t) {
  const tdict_plan *p = &t->plan;
  size_t bytes = tdict_plan_bytes(p) - p->way_bytes[TDICT_WAY_HOST];
  for (int i = 0; i < t->how.num_workers; i++) bytes += t->workers[i].packed_bytes;
  for (uint32_t i = 0; i < p->num_items && p->wire; i++) {
    const tdict_item_cast *c = tdict_plan_cast(p, i);
    if (c && c->is_packed)
      bytes -= p->items[i].bytes;
    else if (c && p->items[i].way != TDICT_WAY_HOST)
      bytes += p->items[i].bytes / tdict_dtype_bytes(c->cast.to) * tdict_dtype_bytes(c->wire) - p->items[i].bytes;
  }
  return bytes;
}

static void fill_stats(tdict_transfer *t) {
  tdict_transfer_stats *s = &t->future.stats;
  const tdict_plan *p = &t->plan;
  s->num_leaves = p->num_leaves;
  s->num_shared_leaves = tdict_plan_num_shared(p);
  s->total_bytes = tdict_plan_bytes(p);
  s->direct_bytes = p->way_bytes[TDICT_WAY_DIRECT];
  s->staged_bytes = p->way_bytes[TDICT_WAY_STAGE_IN] + p->way_bytes[TDICT_WAY_STAGE_OUT];
  s->pageable_bytes = p->way_bytes[TDICT_WAY_PAGEABLE_IN];
  s->host_bytes = p->way_bytes[TDICT_WAY_HOST];
  s->wire_bytes = wire_bytes(t);
  const size_t repeated_bytes = (t->num_targets - 1) * tdict_plan_bytes(p);
  s->total_bytes += repeated_bytes;
  s->peer_bytes += repeated_bytes;
  s->wire_bytes += repeated_bytes;
  s->num_chunks = p->num_chunks;
  s->mode = t->how.mode;
  for (int i = 0; i < t->how.num_workers; i++) {
    const tdict_worker *w = &t->workers[i];
    s->num_threads += w->worked;
    s->copy_seconds += 1e-9 * (double)w->copy_ns;
    s->wait_seconds += 1e-9 * (double)w->wait_ns;
    s->cpu_seconds += 1e-9 * (double)w->cpu_ns;
  }
  s->peak_staging_bytes =
      (size_t)atomic_load_explicit(&t->peak_slots, memory_order_relaxed) * t->future.engine->rings.slot_bytes;
  s->peak_queued_bytes = t->queue_limit ? t->queue_limit->peak_bytes : 0;
  tdict_memory_counts pinned;
  tdict_memory_get_counts(tdict_devices_pinned(t->future.engine->config.devices), &pinned);
  s->peak_pinned_bytes = pinned.peak_bytes;
  s->pin_path = pin_path(t);
  s->total_seconds = 1e-9 * (double)(tdict_now_ns() - t->future.begin_ns);
}

/* Returns the tail events to their GPUs. The caller holds error_lock, so no thread queues a wait for these events now.
 * The copies have ended, so no later waiter needs the events. */
static void give_tails(tdict_transfer *t) {
  TDICT_ASSERT(tdict_lock_is_held(&t->future.error_lock));
  for (int i = 0; i < t->how.num_workers; i++) {
    tdict_worker *w = &t->workers[i];
    if (!w->tail_gpu) continue;
    tdict_gpu_give_event(w->tail_gpu, w->tail);
    tdict_gpu_release(w->tail_gpu);
    w->tail_gpu = NULL;
  }
}

/* Marks the destinations' bytes as lost after a failure, and as no longer lost after a success. */
static void update_lost_bytes(const tdict_transfer *t) {
  const bool lost = t->future.error.status != 0;
  bool has_lost_bytes = lost;
  for (uint32_t i = 0; i < t->num_writes && !has_lost_bytes; i++)
    has_lost_bytes = tdict_storage_has_lost(t->writes[i].storage);
  for (size_t i = 0; lost && i < t->num_targets; i++)
    if (t->targets[i].storage) tdict_storage_lose_all(t->targets[i].storage);
  for (uint32_t i = 0; i < t->plan.num_items && has_lost_bytes; i++) {
    const tdict_tensor *dst = t->plan.items[i].dst;
    if (dst && lost) tdict_tensor_lose(dst);
    if (dst && !lost) tdict_tensor_regain(dst);
  }
}

/* Consecutive sources that were allocated in one slab. One atomic operation releases all `count` tensors. */
typedef struct releasing {
  tdict_slab *slab;
  int64_t count;
} releasing;
static void release_slab(releasing *r) {
  if (r->count) tdict_slab_release(r->slab, r->count);
  r->count = 0;
}

/* Removes the mark of a source and releases it. While the transfer runs (`early`), keeps one in memory of the program,
 * whose release callback must not be called yet, and returns false. */
static inline bool release_source(tdict_plan *p, uint32_t i, bool early, releasing *r) {
  tdict_fence_node *node = &p->nodes[i];
  tdict_tensor *src = p->items[i].src;
  if (node->storage && !node->was_detached) tdict_storage_detach(node);
  node->was_detached = true;
  if (p->borrows || !src) return true;
  if (early && src->storage->flags & TDICT_STORAGE_FOREIGN) return false;
  p->items[i].src = NULL;
  if (!src->slab) {
    tdict_tensor_release(src);
    return true;
  }
  if (r->slab != src->slab) release_slab(r);
  r->slab = src->slab;
  r->count++;
  return true;
}

/* If consecutive items have one storage, only the first of these items has a mark. The nodes of the other items have no
 * fence. A mark that protects several items is removed when the transfer ends. */
void tdict_transfer_chunk_read(tdict_transfer *t, const tdict_chunk *chunk) {
  tdict_plan *p = &t->plan;
  if (t->hashes) return; /* check_sources is set: the sources are hashed again when the transfer ends */
  uint32_t begin = chunk->first, end;
  while (begin < p->num_items && p->items[begin].offset < chunk->begin) begin++;
  for (end = begin; end < p->num_items && p->items[end].offset < chunk->end; end++)
    if (p->items[end].offset + p->items[end].bytes > chunk->end) break;
  for (uint32_t i = begin; i < end; i++)
    if (!p->nodes[i].fence || (i + 1 < p->num_items && !p->nodes[i + 1].fence)) return;
  releasing r = {0};
  bool all = true;
  enum { AHEAD = 16 };
  for (uint32_t i = begin; i < end; i++) {
    if (i + AHEAD < end) {
      __builtin_prefetch(p->nodes[i + AHEAD].storage, 1);
      if (!p->borrows) __builtin_prefetch(p->items[i + AHEAD].src, 1);
    }
    all &= release_source(p, i, true, &r);
  }
  release_slab(&r);
  if (all) p->chunks[chunk - p->chunks].read_end = end;
}

/* Releases the sources that were not released early. Skips items that lie completely in a chunk whose read_end is set:
 * their sources are released already. */
static void release_sources(tdict_transfer *t) {
  tdict_plan *p = &t->plan;
  releasing r = {0};
  uint32_t i = 0;
  for (uint32_t k = 0; k < p->num_chunks; k++) {
    const tdict_chunk *c = &p->chunks[k];
    if (!c->read_end) continue;
    for (; i < p->num_items && (i <= c->first || p->items[i].offset < c->begin); i++) release_source(p, i, false, &r);
    if (c->read_end > i) i = c->read_end;
  }
  for (; i < p->num_items; i++) release_source(p, i, false, &r);
  release_slab(&r);
  p->borrows = true; /* the plan retains no source any more */
}

/* Releases sources, marks, waits, plan and targets, which may call functions of the program: no lock is held. */
static void release_all(tdict_transfer *t) {
  if (t->traced.recording) tdict_trace_leave(&t->traced, t->future.begin_ns, tdict_plan_bytes(&t->plan));
  if (t->writes) {
    release_sources(t);
    for (uint32_t i = 0; i < t->num_writes; i++) tdict_storage_detach(&t->writes[i]);
    free(t->writes);
    t->writes = NULL;
  }
  if (t->stream_waits) tdict_stream_waits_free(t->stream_waits);
  t->stream_waits = NULL;
  if (t->workers[0].out_stream) tdict_gpu_give_stream(t->gpu, t->workers[0].out_stream);
  free(t->hooks);
  t->hooks = NULL;
  tdict_plan_give_used(&t->future.engine->used_plan, &t->plan);
  if (t->named) tdict_release(t->named);
  t->named = NULL;
  /* the results are kept even after a failure, because tdict_future_wait_on_stream() may be returning them */
  for (size_t i = 0; i < t->num_targets; i++) {
    if (t->targets[i].storage) tdict_storage_release(t->targets[i].storage);
    t->targets[i].storage = NULL;
  }
}

void tdict_transfer_finish(tdict_transfer *t) {
  tdict_engine *e = t->future.engine;
  TDICT_ASSERT(!tdict_latch_is_zero(&t->future.ended) && t->num_pending == 0);
  /* Make the transfer's outcome final. */
  if (t->strips) tdict_strips_close(t);
  if (t->hashes) tdict_check_sources_after(t);
  pthread_mutex_lock(&t->future.error_lock);
  t->future.outcome_is_final = true;
  if (t->future.error.status && t->future.error_leaf != UINT32_MAX) add_error_path(t);
  if (!t->how.caller_waits) give_tails(t);
  pthread_mutex_unlock(&t->future.error_lock);
  if (t->future.begin_ns) fill_stats(t);
  /* Mark lost bytes before setting `finished`, because a transfer that sees `finished` reads which bytes are lost. */
  if (t->writes) update_lost_bytes(t);
  /* Collect the transfers that wait for this transfer. */
  pthread_mutex_lock(&e->lock);
  t->finished = true;
  tdict_edge *next = t->waiters;
  t->waiters = NULL;
  pthread_mutex_unlock(&e->lock);
  /* Release the sources before waking the waiting threads, because these threads may reuse the bytes. */
  release_all(t);
  tdict_latch_open(&t->queued);
  tdict_latch_open(&t->future.ended);
  if (atomic_load_explicit(&t->future.part_of, memory_order_relaxed))
    tdict_future_end_part(&t->future); /* before a transfer that waits for this transfer can also fail */
  while (next) {
    tdict_transfer *waiting = next->waiting;
    next = next->next;
    pthread_mutex_lock(&e->lock);
    TDICT_ASSERT(waiting->num_pending > 0);
    bool ready = --waiting->num_pending == 0;
    pthread_mutex_unlock(&e->lock);
    if (ready) tdict_transfer_launch(waiting); /* this call may free `waiting`, which owns the edge */
  }
  tdict_future_end_live(&t->future);
}

void tdict_transfer_will_build(tdict_transfer *t) {
  atomic_store_explicit(&t->workers_left, t->how.num_workers + 1, memory_order_relaxed);
}

void tdict_transfer_built(tdict_transfer *t) {
  if (atomic_fetch_sub_explicit(&t->workers_left, 1, memory_order_acq_rel) == 1) tdict_transfer_finish(t);
}

void tdict_transfer_end_at_once(tdict_transfer *t) {
  if (t->future.begin_ns) fill_stats(t);
  t->finished = true;
  release_all(t);
  tdict_latch_open(&t->queued);
  tdict_latch_open(&t->future.ended);
  if (atomic_load_explicit(&t->future.part_of, memory_order_relaxed)) tdict_future_end_part(&t->future);
}

void tdict_transfer_free(tdict_future *future) {
  tdict_transfer *t = (tdict_transfer *)future;
  TDICT_ASSERT(!t->writes);
  if (t->traced.recording) tdict_trace_leave(&t->traced, future->begin_ns, tdict_plan_bytes(&t->plan));
  /* if the plan has none of these, the engine has taken the plan's memory */
  if (t->plan.cap || t->plan.objects || t->plan.wire) tdict_plan_reset(&t->plan);
  if (t->stream_waits) tdict_stream_waits_free(t->stream_waits);
  tdict_gpu_release(t->gpu);
  for (size_t i = 0; i < t->num_targets; i++) {
    if (t->targets[i].storage) tdict_storage_release(t->targets[i].storage);
    if (t->targets[i].tree) tdict_release(t->targets[i].tree);
  }
  if (t->named) tdict_release(t->named);
  free(t->deferred_tail);
  free(t->strips);
  if (t->burst) tdict_burst_free(t->burst);
  if (t->queue_limit) tdict_queue_limit_free(t->queue_limit);
  if (t->pace) tdict_pace_free(t->pace);
  free(t->edges);
  free(t->hashes);
  free(t->hooks);
  tdict_latch_destroy(&t->queued);
  tdict_latch_destroy(&t->may_start);
}
