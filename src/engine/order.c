/* Orders transfers. Each transfer attaches marks to the storages that the transfer reads and writes. A transfer that
 * finds conflicting marks of earlier transfers waits until these transfers have ended. See order.h for ownership and
 * threads. */
#include "engine/order.h"

#include <stdlib.h>

#include "core/base/array.h"
#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "engine/options/check_sources.h"
#include "engine/options/stream_waits.h"
#include "engine/plan/result.h"

enum { FOREIGN_WAIT_NS = 1000000 };

/* Returns the number of the first leaf of a consolidated source whose bytes are lost. Returns UINT32_MAX if there is no
 * such leaf, or if the source is unloaded. Ignores lost bytes between leaves, because no program reads these bytes. */
static uint32_t find_lost_inside(const tdict_consolidated *block) {
  tdict_storage *storage = block->bytes->storage;
  if (tdict_storage_is_unloaded(storage)) return UINT32_MAX;
  for (uint32_t i = 0; i < block->layout->num_leaves && tdict_storage_has_lost(storage); i++) {
    const tdict_leaf_span *span = &block->layout->leaves[i];
    const tdict_extent leaf = tdict_extent_all(span->begin, span->begin + span->bytes);
    if (tdict_storage_is_lost(storage, &leaf)) return i;
  }
  return UINT32_MAX;
}
/* Returns true if a transfer cannot read the source, because the source's bytes are lost. All bytes of an unloaded
 * storage count as lost. A transfer can read these bytes nevertheless, unless the storage is a sink. */
static bool is_lost_source(const tdict_tensor *src) {
  const bool can_be_read = tdict_storage_is_unloaded(src->storage) && !tdict_storage_is_sink(src->storage);
  return !can_be_read && tdict_tensor_is_lost(src);
}
/* Returns the first leaf with lost bytes, else UINT32_MAX. No earlier transfer may still write the sources. */
static uint32_t find_lost(const tdict_transfer *t) {
  if (t->plan.block) return find_lost_inside(t->plan.block);
  for (uint32_t i = 0; i < t->plan.num_items; i++)
    if (t->plan.items[i].src && is_lost_source(t->plan.items[i].src)) return t->plan.items[i].leaf;
  return UINT32_MAX;
}
/* Adds the path of a leaf to the error. If the result is not built yet, looks the path up in `source`. */
static tdict_status name_leaf(const tdict_transfer *t, const tdict_tree *source, uint32_t leaf, tdict_status status,
                              tdict_error *err) {
  const tdict_tree *tree = t->named ? t->named : t->future.result ? t->future.result : source;
  char path[sizeof err->path] = "";
  if (tree) tdict_leaf_path(tree, leaf, path, sizeof path);
  return path[0] ? tdict_error_at(err, status, path) : status;
}
static tdict_status refuse_lost(tdict_error *err) {
  return tdict_fail(err, TDICT_EINVAL, "transfer: the source bytes are lost, because a transfer into them failed");
}

void tdict_transfer_launch(tdict_transfer *t) {
  TDICT_ASSERT(t->num_pending == 0 && !t->finished);
  /* if the transfer waited for no other transfer, mark_and_order() has already checked the sources */
  uint32_t lost = t->num_edges ? find_lost(t) : UINT32_MAX;
  tdict_error err = {0};
  if (lost != UINT32_MAX) {
    (void)!refuse_lost(&err);
    tdict_future_fail(&t->future, lost, "", &err);
  }
  if (t->hashes) tdict_check_sources_before(t);
  tdict_pool *pool = t->future.engine->config.pool;
  const bool on_caller = t->how.on_caller;
  tdict_task *tasks = NULL;
  for (int i = t->how.num_workers; i-- > (on_caller ? 1 : 0);) {
    t->workers[i].task.next = tasks;
    tasks = &t->workers[i].task;
  }
  if (tasks) tdict_pool_submit_list(pool, tasks); /* the transfer may be freed from now on, unless on_caller is true */
  if (on_caller && t->num_edges) tdict_latch_down(&t->may_start); /* else the starting thread does not wait */
}

/* Prepares marks, one for consecutive destinations in a storage. Those on sources are in the plan. */
static tdict_status make_marks(tdict_transfer *t, tdict_error *err) {
  tdict_plan *p = &t->plan;
  t->writes = malloc((t->num_targets + (p->writes_existing ? p->num_items : 0)) * sizeof *t->writes);
  if (!t->writes) return tdict_fail_memory(err, "transfer", NULL, "its marks");
  const tdict_storage *last = NULL;
  t->num_writes = 0;
  for (uint32_t i = 0; i < p->num_items && p->writes_existing; i++) {
    tdict_storage *dst = p->items[i].dst->storage;
    if (dst == last) continue;
    t->writes[t->num_writes++] = (tdict_fence_node){.storage = dst, .fence = &t->future.fence, .writes = true};
    last = dst;
  }
  for (size_t i = 0; i < t->num_targets; i++)
    if (t->targets[i].storage)
      t->writes[t->num_writes++] =
          (tdict_fence_node){.storage = t->targets[i].storage, .fence = &t->future.fence, .writes = true};
  return TDICT_OK;
}

/* Collects what the transfer waits for. */
typedef struct search {
  tdict_transfer *self;
  size_t cap_edges;
  bool no_memory;
  bool lost;            /* true: a source's storage has lost bytes */
  tdict_fence *foreign; /* retained; the first transfer of another context; NULL: none */
} search;

/* Adds an edge from a transfer of this engine, if that transfer has not ended. */
static void add_edge(search *s, tdict_transfer *awaited) {
  tdict_transfer *t = s->self;
  if (awaited->finished || s->no_memory) return;
  for (uint32_t i = 0; i < t->num_edges; i++)
    if (t->edges[i].awaited == awaited) return;
  s->no_memory = !TDICT_RESERVE(t->edges, s->cap_edges, (size_t)t->num_edges + 1);
  if (s->no_memory) return;
  t->edges[t->num_edges++] = (tdict_edge){.waiting = t, .awaited = awaited};
}

/* Notes a fence that must be done before the copies: stream work, a transfer of another context, or a transfer of this
 * engine. Parts of one promise name the parts that they wait for, so their marks do not count. A part whose part_of is
 * NULL has set `finished` before, under the engine's lock, so add_edge() skips the part. */
static void note_earlier(void *user, tdict_fence *fence) {
  search *s = user;
  tdict_transfer *t = s->self, *other = (tdict_transfer *)fence;
  if (fence->ops != t->future.fence.ops) {
    s->no_memory |= !tdict_stream_waits_add(t, fence);
  } else if (other->future.engine != t->future.engine) {
    if (s->foreign) return;
    fence->ops->retain(fence);
    s->foreign = fence;
  } else if (other != t) {
    const tdict_future *promise = atomic_load_explicit(&t->future.part_of, memory_order_relaxed);
    if (!promise || atomic_load_explicit(&other->future.part_of, memory_order_relaxed) != promise) add_edge(s, other);
  }
}

/* Waits for the fence, at most FOREIGN_WAIT_NS. The time is limited, because the transfer of the other engine may wait
 * for this transfer meanwhile. On a pool thread, runs a queued task instead, if the pool has a task. Releases the
 * fence. */
static void wait_for_foreign(const tdict_transfer *t, tdict_fence *foreign) {
  if (!tdict_pool_is_worker(t->future.pool) || !tdict_pool_help(t->future.pool, NULL))
    foreign->ops->wait(foreign, tdict_deadline_ns(FOREIGN_WAIT_NS));
  foreign->ops->release(foreign);
}

/* Marks a storage that may have other marks and uses, and notes these. Looks for other marks after attaching the mark.
 * If two engines mark a storage at the same time, at least one engine then sees the mark of the other engine. */
static void mark_busy(tdict_fence_node *node, search *s) {
  tdict_storage_attach(node);
  tdict_storage_each_before(node->storage, node->writes, note_earlier, s);
}

enum { MARKS_AHEAD = 16, PARALLEL_MARKS = 8192, STRETCH_MARKS = 1024 };

/* The state of threads that mark sources in parallel. If a source's storage is not idle, these threads skip the source
 * and leave the fence of the source's node NULL. Then mark_sources() marks the skipped sources. */
typedef struct marking {
  tdict_transfer *self;
  bool places_items;
  _Atomic(bool) skipped, lost; /* relaxed: the end of the parallel loop makes the stores visible */
} marking;

static void mark_stretch(void *user, long n) {
  marking *m = user;
  tdict_fence *fence = &m->self->future.fence;
  const tdict_plan *p = &m->self->plan;
  const uint32_t first = (uint32_t)n * STRETCH_MARKS;
  const uint32_t end = p->num_items - first < STRETCH_MARKS ? p->num_items : first + STRETCH_MARKS;
  bool skipped = false, lost = false;
  for (uint32_t i = first; i < end && m->places_items; i++)
    p->items[i].dst_data = (char *)m->self->targets[0].storage->data + p->items[i].offset;
  for (uint32_t i = first; i < end; i++) {
    tdict_fence_node *node = &p->nodes[i];
    if (i + MARKS_AHEAD < end) __builtin_prefetch(p->nodes[i + MARKS_AHEAD].storage, 1);
    if (!node->storage) continue;
    node->fence = fence;
    if (tdict_storage_attach_if_idle(node)) {
      /* read after attaching the mark: an earlier writer records lost bytes before removing its own mark */
      lost |= tdict_storage_has_lost(node->storage);
      continue;
    }
    node->fence = NULL;
    skipped = true;
  }
  if (skipped) atomic_store_explicit(&m->skipped, true, memory_order_relaxed);
  if (lost) atomic_store_explicit(&m->lost, true, memory_order_relaxed);
}

static void mark_sources(tdict_transfer *t, const tdict_beginning *from, search *s) {
  const tdict_plan *p = &t->plan;
  marking m = {.self = t, .places_items = from->places_items};
  long stretches = ((long)p->num_items + STRETCH_MARKS - 1) / STRETCH_MARKS;
  if (p->num_items < PARALLEL_MARKS)
    for (long n = 0; n < stretches; n++) mark_stretch(&m, n);
  else
    tdict_parallel_for(t->future.pool, from->num_helpers, stretches, mark_stretch, &m);
  s->lost = atomic_load_explicit(&m.lost, memory_order_relaxed);
  if (!atomic_load_explicit(&m.skipped, memory_order_relaxed)) return;
  for (uint32_t i = 0; i < p->num_items && !s->no_memory && !s->foreign; i++) {
    tdict_fence_node *node = &p->nodes[i];
    if (!node->storage || node->fence) continue;
    node->fence = &t->future.fence;
    mark_busy(node, s);
    s->lost |=
        tdict_storage_has_lost(node->storage); /* mark_stretch() reads this flag only for sources that it marks */
  }
}

/* Removes the marks on sources and the first num_writes others, so that all can be attached again. */
static void unmark(tdict_transfer *t, uint32_t num_writes) {
  for (uint32_t i = 0; i < t->plan.num_items; i++) {
    tdict_fence_node *node = &t->plan.nodes[i];
    if (node->storage && node->fence) tdict_storage_detach(node);
    node->fence = NULL;
  }
  for (uint32_t i = 0; i < num_writes; i++) tdict_storage_detach(&t->writes[i]);
}

/* Attaches the marks, and makes the edges. The caller holds the engine's lock. Pool threads that help to mark sources
 * do not take this lock. The order cannot include transfers of other contexts. If a transfer of another context
 * conflicts, removes all marks and returns a new reference to that transfer's fence in *foreign. The caller then waits
 * for the fence and tries again. Returns TDICT_EINVAL if a source's bytes are lost and no earlier transfer can still
 * write these bytes. Returns TDICT_ENOMEM if host memory is exhausted. */
static tdict_status mark_and_order(tdict_transfer *t, const tdict_beginning *from, tdict_fence **foreign,
                                   tdict_error *err) {
  TDICT_ASSERT(tdict_lock_is_held(&t->future.engine->lock));
  search s = {.self = t};
  t->num_edges = 0;
  uint32_t writes = 0;
  mark_sources(t, from, &s);
  for (size_t i = 0; i < from->num_awaits; i++) add_edge(&s, (tdict_transfer *)from->awaits[i]);
  uint32_t lost = s.lost && !t->num_edges && !s.foreign ? find_lost(t) : UINT32_MAX;
  for (; writes < t->num_writes && !s.no_memory && !s.foreign && lost == UINT32_MAX; writes++)
    if (!tdict_storage_attach_if_idle(&t->writes[writes])) mark_busy(&t->writes[writes], &s);
  /* Remove the marks after a failure or a conflict with another context. */
  if (s.no_memory || s.foreign || lost != UINT32_MAX) unmark(t, writes);
  *foreign = s.foreign;
  if (s.foreign) return TDICT_OK;
  if (s.no_memory) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory to wait for others");
  if (lost != UINT32_MAX) return name_leaf(t, from->source, lost, refuse_lost(err), err);
  /* Register with the transfers to wait for. */
  for (uint32_t i = 0; i < t->num_edges; i++) {
    tdict_edge *edge = &t->edges[i];
    edge->next = edge->awaited->waiters;
    edge->awaited->waiters = edge;
  }
  t->num_pending = t->num_edges;
  return TDICT_OK;
}

tdict_status tdict_transfer_begin(tdict_transfer *t, const tdict_beginning *from, tdict_error *err) {
  tdict_engine *e = t->future.engine;
  tdict_status status = make_marks(t, err);
  if (status != TDICT_OK) return status;
  if (t->future.begin_ns) t->future.stats.plan_seconds = 1e-9 * (double)(tdict_now_ns() - t->future.begin_ns);
  for (;;) {
    tdict_fence *foreign = NULL;
    pthread_mutex_lock(&e->lock);
    status = mark_and_order(t, from, &foreign, err);
    bool begins = status == TDICT_OK && !foreign;
    bool ready = begins && t->num_pending == 0;
    if (begins && !ready && from->on_caller_if_ready)
      t->how.on_caller = false; /* the thread that launches the transfer reads on_caller after taking the lock */
    if (begins && !t->hooks) tdict_future_count_live(&t->future);
    pthread_mutex_unlock(&e->lock);
    if (ready) tdict_transfer_launch(t);
    if (!foreign) break;
    wait_for_foreign(t, foreign);
  }
  if (status == TDICT_OK) return status; /* the transfer may be freed already */
  free(t->writes);
  t->writes = NULL;
  /* other threads may have seen the marks of this transfer and may wait until this transfer has ended */
  if (!t->hooks) tdict_latch_open(&t->future.ended);
  return status;
}
