/* The life of one transfer: its marks on storages, its turn among others, its end. See engine.h for ownership and threads. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "transfer/check.h"
#include "transfer/engine_state.h"
#include "transfer/fence.h"
#include "transfer/hooks.h"
#include "transfer/work.h"

tdict_status tdict_transfer_create(tdict_engine *engine, int num_workers, tdict_future **out, tdict_error *err) {
  tdict_future *t = calloc(1, sizeof *t + (size_t)num_workers * sizeof t->workers[0]);
  if (!t) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its record");
  t->fence.ops = tdict_transfer_fence_ops();
  atomic_init(&t->refs, 1);
  atomic_init(&t->handles, 1);
  t->engine = engine;
  t->pool = engine->config.pool;
  t->num_workers = num_workers;
  atomic_init(&t->workers_left, num_workers);
  pthread_mutex_init(&t->error_lock, NULL);
  tdict_latch_init(&t->ended, 1);
  tdict_latch_init(&t->may_start, 1);
  tdict_latch_init(&t->queued, num_workers);
  t->mark = tdict_forkmark_retain(engine->config.mark);
  t->log = tdict_log_retain(engine->config.log);
  t->begin_ns = tdict_now_ns();
  t->stats.struct_size = sizeof t->stats;
  *out = t;
  return TDICT_OK;
}

enum { STRANGER_NS = 1000000 };

static void run_worker(tdict_task *task) { tdict_work((tdict_worker *)task); }

/* Nothing stands in the transfer's way any more. */
static void launch(tdict_future *t) {
  tdict_check_sources_before(t);
  tdict_pool *pool = t->engine->config.pool;
  const int count = t->num_workers; /* from the last task on the transfer may be gone */
  const bool on_caller = t->on_caller;
  for (int i = on_caller ? 1 : 0; i < count; i++) tdict_pool_submit(pool, &t->workers[i].task);
  if (on_caller) tdict_latch_down(&t->may_start);
}

/* The storages that the plan uses, one mark for neighbours that share one. */
static tdict_status make_marks(tdict_future *t, tdict_error *err) {
  const tdict_plan *p = &t->plan;
  t->nodes = calloc(2 * (size_t)p->num_items + 1, sizeof *t->nodes);
  if (!t->nodes) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its marks");
  const tdict_storage *last_src = NULL, *last_dst = NULL;
  for (uint32_t i = 0; i < p->num_items; i++) {
    tdict_storage *src = p->items[i].src->storage, *dst = p->items[i].dst ? p->items[i].dst->storage : t->arena;
    if (src != last_src) t->nodes[t->num_nodes++] = (tdict_fence_node){.storage = src, .fence = &t->fence};
    if (dst != last_dst)
      t->nodes[t->num_nodes++] = (tdict_fence_node){.storage = dst, .fence = &t->fence, .writes = true};
    last_src = src;
    last_dst = dst;
  }
  return TDICT_OK;
}

typedef struct gathering {
  tdict_future *self;
  uint32_t cap;
  bool no_memory;
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
  for (uint32_t i = 0; i < t->num_nodes; i++)
    if (t->nodes[i].writes) tdict_storage_each_use(t->nodes[i].storage, gather_use, &g);
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

/* Under the engine's lock: who is before this transfer on any of its bytes, and the transfer's own marks. Transfers of
 * other contexts cannot be queued behind: if there is one (*stranger, counted), no mark is left, and it is to be waited
 * for. Marks are put first and strangers looked for then, so that of two at once one at least sees the other. */
static tdict_status take_turn(tdict_future *t, tdict_fence **stranger, tdict_error *err) {
  gathering g = {.self = t};
  t->num_waits_for = 0;
  for (uint32_t i = 0; i < t->num_nodes; i++)
    tdict_storage_each_conflict(t->nodes[i].storage, t->nodes[i].writes, gather_conflict, &g);
  if (g.no_memory) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory to wait for others");
  for (uint32_t i = 0; i < t->num_nodes; i++) tdict_storage_attach(&t->nodes[i]);
  for (uint32_t i = 0; i < t->num_nodes && !g.stranger; i++)
    tdict_storage_each_conflict(t->nodes[i].storage, t->nodes[i].writes, find_stranger, &g);
  *stranger = g.stranger;
  if (g.stranger) {
    for (uint32_t i = 0; i < t->num_nodes; i++) tdict_storage_detach(&t->nodes[i]);
    return TDICT_OK;
  }
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
    if (begins && !t->hooks) come_alive(t);
    pthread_mutex_unlock(&e->lock);
    if (ready) launch(t);
    if (!stranger) break;
    wait_for_stranger(t, stranger);
  }
  if (status != TDICT_OK && !t->hooks) tdict_latch_open(&t->ended); /* who met its marks meanwhile may wait for it */
  return status;
}

void tdict_transfer_fail(tdict_future *t, uint32_t item, const tdict_error *error) {
  char path[sizeof error->path] = "";
  if (item != UINT32_MAX && item < t->plan.num_items)
    tdict_leaf_path(t->mirror ? t->mirror : t->result, t->plan.items[item].leaf, path, sizeof path);
  tdict_transfer_fail_at(t, path, error);
}

void tdict_transfer_fail_at(tdict_future *t, const char *path, const tdict_error *error) {
  pthread_mutex_lock(&t->error_lock);
  if (!t->error.status && !t->decided) {
    t->error = *error;
    if (path[0]) tdict_at(&t->error, TDICT_OK, path);
  }
  pthread_mutex_unlock(&t->error_lock);
  atomic_store_explicit(&t->failed, true, memory_order_relaxed);
}

static void give_gates(tdict_future *t) {
  for (int i = 0; i < t->num_gates; i++) tdict_gpu_give_event(t->gates[i].gpu, t->gates[i].event);
  t->num_gates = 0;
}

static void fill_stats(tdict_future *t) {
  tdict_transfer_stats *s = &t->stats;
  const tdict_plan *p = &t->plan;
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
static void tell_destinations(tdict_future *t) {
  bool lost = t->error.status != 0;
  for (uint32_t i = 0; i < t->num_nodes; i++)
    if (t->nodes[i].writes) tdict_storage_set_lost(t->nodes[i].storage, lost);
}

/* Lets go of everything but the result. Releases may call the program back: no lock is held. */
static void let_go(tdict_future *t) {
  give_gates(t);
  tell_destinations(t);
  for (uint32_t i = 0; i < t->num_nodes; i++) tdict_storage_detach(&t->nodes[i]);
  t->num_nodes = 0;
  for (uint32_t i = 0; i < t->num_uses; i++) t->uses[i]->ops->release(t->uses[i]);
  t->num_uses = 0;
  tdict_hooks_let_go(t);
  tdict_plan_reset(&t->plan);
  tdict_release(t->mirror);
  t->mirror = NULL;
  tdict_storage_release(t->arena);
  t->arena = NULL; /* the result stays, lost or not: wait_on_stream may be handing it out */
}

void tdict_transfer_finish(tdict_future *t) {
  tdict_engine *e = t->engine;
  tdict_check_sources_after(t);
  pthread_mutex_lock(&t->error_lock);
  t->decided = true;
  give_tails(t);
  pthread_mutex_unlock(&t->error_lock);
  fill_stats(t);
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
