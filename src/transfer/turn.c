/* The life of one transfer: its marks on storages, its turn among others, its end. See engine.h for ownership and threads. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "transfer/check_sources.h"
#include "transfer/engine_state.h"
#include "transfer/fence.h"
#include "transfer/hooks.h"
#include "transfer/run/chunk_parts.h"
#include "transfer/run/worker.h"

tdict_status tdict_transfer_create(tdict_engine *engine, int num_workers, tdict_future **out, tdict_error *err) {
  tdict_future *t = calloc(1, sizeof *t + (size_t)num_workers * sizeof t->workers[0]);
  if (!t) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its record");
  t->fence.ops = tdict_transfer_fence_ops();
  atomic_init(&t->refs, 1);
  atomic_init(&t->handles, 1);
  t->engine = engine;
  t->pool = engine->config.pool;
  t->num_workers = num_workers;
  t->num_parts = 1;
  atomic_init(&t->workers_left, num_workers);
  t->error_item = UINT32_MAX;
  pthread_mutex_init(&t->error_lock, NULL);
  tdict_latch_init(&t->ended, 1);
  tdict_latch_init(&t->may_start, 1);
  tdict_latch_init(&t->queued, num_workers);
  t->mark = tdict_forkmark_retain(engine->config.mark);
  t->log = tdict_log_retain(engine->config.log);
  t->streams = tdict_devices_streams(engine->config.devices);
  t->stats.struct_size = sizeof t->stats;
  *out = t;
  return TDICT_OK;
}

enum { STRANGER_NS = 1000000 };

static void run_worker(tdict_task *task) { tdict_work((tdict_worker *)task); }

/* What is to be read and never came, since the transfer that was to write it failed: the first leaf, else UINT32_MAX. To
 * be asked when nobody is about to write it. */
static uint32_t find_lost(const tdict_future *t) {
  for (uint32_t i = 0; i < t->plan.num_items; i++)
    if (t->plan.items[i].src && tdict_tensor_is_lost(t->plan.items[i].src)) return i;
  return UINT32_MAX;
}
static tdict_status blame(const tdict_future *t, uint32_t item, tdict_status status, tdict_error *err) {
  const tdict_tree *tree = t->mirror ? t->mirror : t->result ? t->result : t->source;
  char path[sizeof err->path] = "";
  if (tree) tdict_leaf_path(tree, t->plan.items[item].leaf, path, sizeof path);
  return path[0] ? tdict_error_at(err, status, path) : status;
}
static tdict_status refuse_lost(tdict_error *err) {
  return tdict_fail(err, TDICT_EINVAL, "transfer: its bytes never came, a transfer into them failed");
}

/* Nothing stands in the transfer's way any more. */
static void launch(tdict_future *t) {
  uint32_t lost = t->num_waits_for ? find_lost(t) : UINT32_MAX; /* else it was seen when the marks were put */
  tdict_error err = {0};
  if (lost != UINT32_MAX) {
    (void)!refuse_lost(&err);
    tdict_transfer_fail(t, lost, &err);
  }
  tdict_check_sources_before(t);
  tdict_pool *pool = t->engine->config.pool;
  const int count = t->num_workers; /* from the last task on the transfer may be gone */
  const bool on_caller = t->on_caller;
  for (int i = on_caller ? 1 : 0; i < count; i++) tdict_pool_submit(pool, &t->workers[i].task);
  if (on_caller) tdict_latch_down(&t->may_start);
}

/* Marks on what is written: one for neighbours that share a storage. Those on sources lie in the plan. */
static tdict_status make_marks(tdict_future *t, tdict_error *err) {
  tdict_plan *p = &t->plan;
  const uint32_t most = p->writes_old ? p->num_items : 1;
  t->writes = malloc(((size_t)most + 1) * sizeof *t->writes);
  if (!t->writes) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its marks");
  const tdict_storage *last = NULL;
  t->num_writes = 0;
  for (uint32_t i = 0; i < p->num_items && (p->writes_old || i == 0); i++) {
    tdict_storage *dst = p->items[i].dst ? p->items[i].dst->storage : t->arena;
    if (dst == last) continue;
    t->writes[t->num_writes++] = (tdict_fence_node){.storage = dst, .fence = &t->fence, .writes = true};
    last = dst;
  }
  return TDICT_OK;
}

typedef struct gathering {
  tdict_future *self;
  uint32_t cap;
  bool no_memory;
  bool lost; /* bytes of some source's storage never came */
  tdict_fence *stranger;
} gathering;

/* What a program has queued on bytes that this transfer writes. */
static void gather_use(void *user, tdict_fence *use) {
  gathering *g = user;
  tdict_future *t = g->self;
  if (g->no_memory || (t->num_uses && t->uses[t->num_uses - 1] == use)) return;
  if (t->num_uses == g->cap) {
    uint32_t cap = g->cap ? 2 * g->cap : 8;
    tdict_fence **grown = realloc(t->uses, cap * sizeof *grown);
    g->no_memory = grown == NULL;
    if (!grown) return;
    t->uses = grown;
    g->cap = cap;
  }
  use->ops->retain(use);
  t->uses[t->num_uses++] = use;
}

static tdict_status gather_uses(tdict_future *t, tdict_error *err) {
  gathering g = {.self = t};
  for (uint32_t i = 0; i < t->num_writes; i++) tdict_storage_each_use(t->writes[i].storage, gather_use, &g);
  return g.no_memory ? tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for the uses it waits for") : TDICT_OK;
}

static void gather_conflict(void *user, tdict_fence *fence) {
  gathering *g = user;
  tdict_future *t = g->self, *on = (tdict_future *)fence;
  if (fence->ops != t->fence.ops || on == t || on->engine != t->engine || on->finished || g->no_memory) return;
  for (uint32_t i = 0; i < t->num_waits_for; i++)
    if (t->waits_for[i].on == on) return;
  if (t->num_waits_for == g->cap) {
    uint32_t cap = g->cap ? 2 * g->cap : 8;
    tdict_dependent *grown = realloc(t->waits_for, cap * sizeof *grown);
    if (!grown) {
      g->no_memory = true;
      return;
    }
    t->waits_for = grown;
    g->cap = cap;
  }
  t->waits_for[t->num_waits_for++] = (tdict_dependent){.waiting = t, .on = on};
}

/* The first fence that is not of this engine. */
static void find_stranger(void *user, tdict_fence *fence) {
  gathering *g = user;
  bool stranger = fence->ops != g->self->fence.ops || ((tdict_future *)fence)->engine != g->self->engine;
  if (!stranger || g->stranger) return;
  fence->ops->retain(fence);
  g->stranger = fence;
}

/* Waits a while only: the stranger may be taking its marks off again, because it has seen those of this transfer. */
static void wait_for_stranger(const tdict_future *t, tdict_fence *stranger) {
  if (!tdict_pool_is_worker(t->pool) || !tdict_pool_help(t->pool, NULL))
    stranger->ops->wait(stranger, tdict_deadline_ns(STRANGER_NS));
  stranger->ops->release(stranger);
}

/* One mark, where others are: who of them is before this transfer, and whether one is a stranger. The mark is put first
 * and strangers looked for then, so that of two at once one at least sees the other. */
static void mark_beside_others(tdict_fence_node *node, gathering *g) {
  tdict_storage_each_conflict(node->storage, node->writes, gather_conflict, g);
  tdict_storage_attach(node);
  if (!g->stranger) tdict_storage_each_conflict(node->storage, node->writes, find_stranger, g);
}

enum { MARKS_AHEAD = 16, PARALLEL_MARKS = 8192, STRETCH_MARKS = 1024 };

/* The marks on sources. One that found others there is left for its thread to see to: it has a storage and no fence. */
typedef struct marking {
  tdict_future *self;
  _Atomic(bool) left, lost; /* relaxed: the loop's end orders them */
} marking;

static void mark_stretch(void *user, long n) {
  marking *m = user;
  tdict_fence *fence = &m->self->fence;
  const tdict_plan *p = &m->self->plan;
  const uint32_t first = (uint32_t)n * STRETCH_MARKS;
  const uint32_t end = p->num_items - first < STRETCH_MARKS ? p->num_items : first + STRETCH_MARKS;
  bool left = false, lost = false;
  for (uint32_t i = first; i < end && m->self->places_late; i++)
    p->items[i].dst_data = (char *)m->self->arena->data + p->items[i].offset;
  for (uint32_t i = first; i < end; i++) {
    tdict_fence_node *node = &p->nodes[i];
    if (i + MARKS_AHEAD < end) __builtin_prefetch(p->nodes[i + MARKS_AHEAD].storage, 1);
    if (!node->storage) continue;
    node->fence = fence;
    if (tdict_storage_attach_first(node)) {
      lost |= tdict_storage_has_lost(node->storage); /* now: who took its mark off has told before */
      continue;
    }
    node->fence = NULL;
    left = true;
  }
  if (left) atomic_store_explicit(&m->left, true, memory_order_relaxed);
  if (lost) atomic_store_explicit(&m->lost, true, memory_order_relaxed);
}

static void mark_sources(tdict_future *t, gathering *g) {
  const tdict_plan *p = &t->plan;
  marking m = {.self = t};
  long stretches = ((long)p->num_items + STRETCH_MARKS - 1) / STRETCH_MARKS;
  tdict_parallel_for(p->num_items < PARALLEL_MARKS ? NULL : t->pool, t->num_helpers, stretches, mark_stretch, &m);
  g->lost = atomic_load_explicit(&m.lost, memory_order_relaxed);
  if (!atomic_load_explicit(&m.left, memory_order_relaxed)) return;
  for (uint32_t i = 0; i < p->num_items && !g->no_memory && !g->stranger; i++) {
    tdict_fence_node *node = &p->nodes[i];
    if (!node->storage || node->fence) continue;
    node->fence = &t->fence;
    mark_beside_others(node, g);
    g->lost |= tdict_storage_has_lost(node->storage); /* who was to write it may have failed meanwhile */
  }
}

static void take_marks_off(tdict_future *t, uint32_t writes) {
  for (uint32_t i = 0; i < t->plan.num_items && !t->marked; i++) {
    tdict_fence_node *node = &t->plan.nodes[i];
    if (node->storage && node->fence) tdict_storage_detach(node);
    node->fence = NULL;
  }
  for (uint32_t i = 0; i < writes; i++) tdict_storage_detach(&t->writes[i]);
}

/* Under the engine's lock, which no task of the pool that helps here takes: who is before this transfer on any of its
 * bytes, and the transfer's own marks. Transfers of other contexts cannot be queued behind: if there is one (*stranger,
 * counted), no mark is left, and it is to be waited for. A source whose bytes never came is an error. */
static tdict_status take_turn(tdict_future *t, tdict_fence **stranger, tdict_error *err) {
  gathering g = {.self = t};
  t->num_waits_for = 0;
  uint32_t writes = 0;
  mark_sources(t, &g);
  uint32_t lost = g.lost && !t->num_waits_for && !g.stranger ? find_lost(t) : UINT32_MAX;
  for (; writes < t->num_writes && !g.no_memory && !g.stranger && lost == UINT32_MAX; writes++)
    if (!tdict_storage_attach_first(&t->writes[writes])) mark_beside_others(&t->writes[writes], &g);
  *stranger = g.stranger;
  if (g.no_memory || g.stranger || lost != UINT32_MAX) take_marks_off(t, writes);
  if (g.no_memory) {
    if (g.stranger) g.stranger->ops->release(g.stranger);
    *stranger = NULL;
    return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory to wait for others");
  }
  if (g.stranger) return TDICT_OK;
  if (lost != UINT32_MAX) return blame(t, lost, refuse_lost(err), err);
  t->marked = true;
  for (uint32_t i = 0; i < t->num_waits_for; i++) {
    tdict_dependent *d = &t->waits_for[i];
    d->next = d->on->dependents;
    d->on->dependents = d;
  }
  t->pending = t->num_waits_for;
  return TDICT_OK;
}

/* Under the engine's lock: the work holds the transfer, and the engine waits for it. */
static void come_alive(tdict_future *t) {
  atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
  t->engine->num_live++;
}

tdict_status tdict_transfer_begin(tdict_future *t, tdict_error *err) {
  tdict_engine *e = t->engine;
  tdict_status status = make_marks(t, err);
  if (status != TDICT_OK) return status;
  for (int i = 0; i < t->num_workers; i++) {
    t->workers[i].transfer = t;
    t->workers[i].task.run = run_worker;
  }
  t->stats.plan_seconds = 1e-9 * (double)(tdict_now_ns() - t->begin_ns);
  status = gather_uses(t, err);
  if (status != TDICT_OK) return status;
  for (;;) {
    tdict_fence *stranger = NULL;
    pthread_mutex_lock(&e->lock);
    status = take_turn(t, &stranger, err);
    bool begins = status == TDICT_OK && !stranger;
    bool ready = begins && t->pending == 0;
    if (begins && !ready && t->if_free) t->on_caller = false; /* whoever launches it reads that behind the lock */
    if (begins && !t->hooks) come_alive(t);
    pthread_mutex_unlock(&e->lock);
    if (ready) launch(t);
    if (!stranger) break;
    wait_for_stranger(t, stranger);
  }
  if (status != TDICT_OK && !t->hooks) tdict_latch_open(&t->ended); /* who met its marks meanwhile may wait for it */
  return status;
}

static void note_failure(tdict_future *t, uint32_t item, const char *path, const tdict_error *error) {
  pthread_mutex_lock(&t->error_lock);
  if (!t->error.status && !t->decided) {
    t->error = *error;
    t->error_item = item;
    if (path[0]) tdict_error_at(&t->error, TDICT_OK, path);
  }
  pthread_mutex_unlock(&t->error_lock);
  atomic_store_explicit(&t->failed, true, memory_order_relaxed);
}

/* The leaf gets its name at the end: the tree that has its path may still be being made. */
void tdict_transfer_fail(tdict_future *t, uint32_t item, const tdict_error *error) { note_failure(t, item, "", error); }

void tdict_transfer_fail_at(tdict_future *t, const char *path, const tdict_error *error) {
  note_failure(t, UINT32_MAX, path, error);
}

static void name_failure(tdict_future *t) {
  const tdict_tree *tree = t->mirror || t->shown ? t->mirror : t->result;
  char path[sizeof t->error.path];
  if (!t->error.status || t->error_item >= t->plan.num_items || !tree) return;
  tdict_leaf_path(tree, t->plan.items[t->error_item].leaf, path, sizeof path);
  if (path[0]) tdict_error_at(&t->error, TDICT_OK, path);
}

static void give_gates(tdict_future *t) {
  for (int i = 0; i < t->num_gates; i++) tdict_gpu_give_event(t->gates[i].gpu, t->gates[i].event);
  t->num_gates = 0;
}

static void fill_stats(tdict_future *t) {
  tdict_transfer_stats *s = &t->stats;
  const tdict_plan *p = &t->plan;
  if (t->uncounted) return;
  s->num_leaves = p->num_leaves;
  s->num_shared_leaves = p->num_shared;
  s->total_bytes = p->total_bytes;
  s->direct_bytes = p->way_bytes[TDICT_WAY_DIRECT];
  s->staged_bytes = p->way_bytes[TDICT_WAY_STAGE_IN] + p->way_bytes[TDICT_WAY_STAGE_OUT];
  s->pageable_bytes = p->way_bytes[TDICT_WAY_PAGEABLE_IN];
  s->host_bytes = p->way_bytes[TDICT_WAY_HOST];
  s->num_chunks = p->num_chunks;
  s->num_objects = p->num_objects;
  s->num_objects_untouched = p->num_untouched;
  for (uint32_t i = 0; i < p->num_objects; i++)
    s->num_objects_pinned += p->objects[i].pin || (t->pins && p->objects[i].action == TDICT_OBJECT_FLAT);
  s->mode = t->mode;
  for (int i = 0; i < t->num_workers; i++) {
    const tdict_worker *w = &t->workers[i];
    s->num_threads += w->worked;
    s->copy_seconds += 1e-9 * (double)w->copy_ns;
    s->wait_seconds += 1e-9 * (double)w->wait_ns;
    s->cpu_seconds += 1e-9 * (double)w->cpu_ns;
  }
  s->peak_staging_bytes =
      (size_t)atomic_load_explicit(&t->peak_slots, memory_order_relaxed) * tdict_engine_slot_bytes(t->engine);
  tdict_memory_counts pinned;
  tdict_memory_get_counts(tdict_devices_pinned(t->engine->config.devices), &pinned);
  s->peak_pinned_bytes = pinned.peak_bytes;
  s->pin_path = tdict_transfer_pin_path(t);
  s->total_seconds = 1e-9 * (double)(tdict_now_ns() - t->begin_ns);
}

/* Under the error's lock: streams that waited have what they wait for, and nobody else needs to. */
static void give_tails(tdict_future *t) {
  for (int i = 0; i < t->num_workers; i++) {
    tdict_worker *w = &t->workers[i];
    if (!w->tail_gpu) continue;
    tdict_gpu_give_event(w->tail_gpu, w->tail);
    tdict_gpu_release(w->tail_gpu);
    w->tail_gpu = NULL;
  }
}

/* Bytes of a failed transfer never came; those of a good one have, whatever was lost before. */
static void tell_destinations(const tdict_future *t) {
  const bool lost = t->error.status != 0;
  bool tells = lost;
  for (uint32_t i = 0; i < t->num_writes && !tells; i++) tells = tdict_storage_has_lost(t->writes[i].storage);
  if (lost && t->arena) tdict_storage_lose_all(t->arena);
  for (uint32_t i = 0; i < t->plan.num_items && tells; i++) {
    const tdict_tensor *dst = t->plan.items[i].dst;
    if (dst && lost) tdict_tensor_lose(dst);
    if (dst && !lost) tdict_tensor_regain(dst);
  }
}

/* Tensors of one slab that follow one another are released with one count. */
typedef struct releasing {
  tdict_slab *slab;
  int64_t count;
} releasing;
static void release_slab(releasing *r) {
  if (r->count) tdict_slab_release(r->slab, r->count);
  r->count = 0;
}

/* The source has been read, or never will be: takes its mark off and releases it. Early, the program's own memory is
 * kept: its release callback is nothing for the middle of a transfer. False when it was. */
static inline bool leave_source(tdict_plan *p, uint32_t i, bool early, releasing *r) {
  tdict_fence_node *node = &p->nodes[i];
  tdict_tensor *src = p->items[i].src;
  if (node->storage) tdict_storage_detach(node);
  node->storage = NULL;
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

/* A mark that stands for the items behind it, too, goes with the last of them, at the end. */
void tdict_transfer_chunk_read(tdict_future *t, const tdict_chunk *chunk) {
  tdict_plan *p = &t->plan;
  if (t->hashes) return; /* they are read once more */
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
    all &= leave_source(p, i, true, &r);
  }
  release_slab(&r);
  tdict_chunk *own = &p->chunks[chunk - p->chunks];
  own->end_inside = end;
  own->was_read = all;
}

/* What no chunk has left: those of chunks that were are passed, but for the items at their borders. */
static void leave_sources(tdict_future *t) {
  tdict_plan *p = &t->plan;
  releasing r = {0};
  uint32_t i = 0;
  for (uint32_t k = 0; k < p->num_chunks; k++) {
    const tdict_chunk *c = &p->chunks[k];
    if (!c->was_read) continue;
    for (; i < p->num_items && (i <= c->first || p->items[i].offset < c->begin); i++) leave_source(p, i, false, &r);
    if (c->end_inside > i) i = c->end_inside;
  }
  for (; i < p->num_items; i++) leave_source(p, i, false, &r);
  release_slab(&r);
  p->borrows = true; /* nothing of them is counted any more */
}

/* Lets go of everything but the result. Releases may call the program back: no lock is held. */
static void let_go(tdict_future *t) {
  if (t->traced.recording) tdict_trace_leave(&t->traced, t->begin_ns, t->plan.total_bytes);
  give_gates(t);
  if (t->marked) {
    leave_sources(t);
    take_marks_off(t, t->num_writes);
    t->marked = false;
  }
  for (uint32_t i = 0; i < t->num_uses; i++) t->uses[i]->ops->release(t->uses[i]);
  t->num_uses = 0;
  tdict_hooks_let_go(t);
  tdict_engine_give_plan(t->engine, &t->plan);
  tdict_release(t->mirror);
  t->mirror = NULL;
  tdict_storage_release(t->arena);
  t->arena = NULL; /* the result stays, lost or not: wait_on_stream may be handing it out */
}

void tdict_transfer_finish(tdict_future *t) {
  tdict_engine *e = t->engine;
  tdict_shares_close(t);
  tdict_check_sources_after(t);
  pthread_mutex_lock(&t->error_lock);
  t->decided = true;
  name_failure(t);
  give_tails(t);
  pthread_mutex_unlock(&t->error_lock);
  fill_stats(t);
  if (t->marked) tell_destinations(t); /* before others see that it is finished, and take what is lost for good */
  pthread_mutex_lock(&e->lock);
  t->finished = true;
  tdict_dependent *next = t->dependents;
  t->dependents = NULL;
  pthread_mutex_unlock(&e->lock);
  let_go(t);
  tdict_latch_open(&t->queued);
  tdict_latch_open(&t->ended);
  while (next) {
    tdict_dependent *d = next;
    next = d->next;
    tdict_future *waiting = d->waiting;
    pthread_mutex_lock(&e->lock);
    bool ready = --waiting->pending == 0;
    pthread_mutex_unlock(&e->lock);
    if (ready) launch(waiting); /* d may be gone from here on */
  }
  tdict_transfer_release(t);
  pthread_mutex_lock(&e->lock);
  if (--e->num_live == 0) pthread_cond_broadcast(&e->idle);
  pthread_mutex_unlock(&e->lock);
}

void tdict_transfer_will_build(tdict_future *t) {
  atomic_store_explicit(&t->workers_left, t->num_workers + 1, memory_order_relaxed);
}

void tdict_transfer_built(tdict_future *t) {
  if (atomic_fetch_sub_explicit(&t->workers_left, 1, memory_order_acq_rel) == 1) tdict_transfer_finish(t);
}

void tdict_transfer_end_at_once(tdict_future *t) {
  fill_stats(t);
  t->finished = true;
  let_go(t);
  tdict_latch_open(&t->queued);
  tdict_latch_open(&t->ended);
}

void tdict_transfer_begin_hooks(tdict_future *t) {
  pthread_mutex_lock(&t->engine->lock);
  come_alive(t);
  pthread_mutex_unlock(&t->engine->lock);
  tdict_hooks_run(t);
}

void tdict_transfer_abort(tdict_future *t) { tdict_transfer_finish(t); }
