/* The engine: rings, the numbering of transfers, their beginning and their end. See engine.h for ownership and threads. */
#include "transfer/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "transfer/fence.h"
#include "transfer/work.h"

enum { MAX_RINGS = 64 };

struct tdict_engine {
  tdict_engine_config config;
  pthread_mutex_t lock; /* guards what follows, and pending, dependents and finished of every transfer */
  pthread_cond_t idle;
  int64_t num_live;
  pthread_mutex_t ring_lock; /* guards: rings; held while one is made */
  tdict_ring *rings[MAX_RINGS];
  int num_rings;
};

tdict_status tdict_engine_create(const tdict_engine_config *config, tdict_engine **out, tdict_error *err) {
  tdict_engine *e = calloc(1, sizeof *e);
  if (!e) return tdict_fail(err, TDICT_ENOMEM, "context: no host memory for its engine");
  e->config = *config;
  pthread_mutex_init(&e->lock, NULL);
  pthread_mutex_init(&e->ring_lock, NULL);
  pthread_cond_init(&e->idle, NULL);
  *out = e;
  return TDICT_OK;
}

void tdict_engine_wait(tdict_engine *e) {
  pthread_mutex_lock(&e->lock);
  while (e->num_live > 0) pthread_cond_wait(&e->idle, &e->lock);
  pthread_mutex_unlock(&e->lock);
}

void tdict_engine_destroy(tdict_engine *e) {
  if (!e) return;
  for (int i = 0; i < e->num_rings; i++) {
    tdict_gpu *gpu = e->rings[i]->gpu;
    tdict_gpu_scope scope;
    (void)!tdict_gpu_enter(gpu, &scope, NULL);
    tdict_ring_destroy(e->rings[i]);
    tdict_gpu_leave(gpu, &scope);
  }
  pthread_cond_destroy(&e->idle);
  pthread_mutex_destroy(&e->ring_lock);
  pthread_mutex_destroy(&e->lock);
  free(e);
}

tdict_devices *tdict_engine_devices(const tdict_engine *e) { return e->config.devices; }
tdict_pool *tdict_engine_pool(const tdict_engine *e) { return e->config.pool; }
size_t tdict_engine_slot_bytes(const tdict_engine *e) { return tdict_ring_slot_bytes(e->config.staging_bytes); }

tdict_status tdict_engine_ring(tdict_engine *e, tdict_gpu *gpu, tdict_ring **out, tdict_error *err) {
  tdict_ring *ring = NULL;
  tdict_status status = TDICT_OK;
  pthread_mutex_lock(&e->ring_lock);
  for (int i = 0; i < e->num_rings && !ring; i++)
    if (e->rings[i]->gpu == gpu) ring = e->rings[i];
  if (!ring) {
    status = e->num_rings == MAX_RINGS ? tdict_fail(err, TDICT_ENOMEM, "staging: rings for at most %d devices", MAX_RINGS)
                                       : tdict_ring_create(gpu, e->config.pool, e->config.staging_bytes, &ring, err);
    if (status == TDICT_OK) e->rings[e->num_rings++] = ring;
  }
  pthread_mutex_unlock(&e->ring_lock);
  if (status == TDICT_OK) *out = ring;
  return status;
}

int tdict_engine_ring_way(tdict_engine *e, const tdict_gpu *gpu) {
  int way = 0;
  pthread_mutex_lock(&e->ring_lock);
  for (int i = 0; i < e->num_rings; i++)
    if (e->rings[i]->gpu == gpu) way = e->rings[i]->pages.data ? (int)e->rings[i]->pages.way : -1;
  pthread_mutex_unlock(&e->ring_lock);
  return way;
}

tdict_status tdict_transfer_create(tdict_engine *engine, int num_workers, tdict_future **out, tdict_error *err) {
  tdict_future *t = calloc(1, sizeof *t + (size_t)num_workers * sizeof t->workers[0]);
  if (!t) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its record");
  t->fence.ops = tdict_transfer_fence_ops();
  atomic_init(&t->refs, 1);
  atomic_init(&t->handles, 1);
  t->engine = engine;
  t->num_workers = num_workers;
  atomic_init(&t->workers_left, num_workers);
  pthread_mutex_init(&t->error_lock, NULL);
  tdict_latch_init(&t->ended, 1);
  tdict_latch_init(&t->may_start, 1);
  t->begin_ns = tdict_now_ns();
  t->stats.struct_size = sizeof t->stats;
  *out = t;
  return TDICT_OK;
}

static void run_worker(tdict_task *task) { tdict_work((tdict_worker *)task); }

/* Nothing stands in the transfer's way any more. With its last worker's start it may end and be gone. */
static void launch(tdict_future *t) {
  if (t->on_caller) {
    tdict_latch_down(&t->may_start);
    return;
  }
  tdict_pool *pool = t->engine->config.pool;
  tdict_worker *workers = t->workers;
  for (int i = 0, count = t->num_workers; i < count; i++) tdict_pool_submit(pool, &workers[i].task);
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
    if (dst != last_dst) t->nodes[t->num_nodes++] = (tdict_fence_node){.storage = dst, .fence = &t->fence, .writes = true};
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

/* Transfers of other contexts on the same bytes cannot be queued behind; they are waited for. */
static void wait_for_strangers(tdict_future *t) {
  for (uint32_t i = 0; i < t->num_nodes; i++)
    for (;;) {
      gathering g = {.self = t};
      tdict_storage_each_conflict(t->nodes[i].storage, t->nodes[i].writes, find_stranger, &g);
      if (!g.stranger) break;
      g.stranger->ops->wait(g.stranger, INT64_MAX);
      g.stranger->ops->release(g.stranger);
    }
}

/* Under the engine's lock: who is before this transfer on any of its bytes, and the transfer's own marks. */
static tdict_status take_turn(tdict_future *t, tdict_error *err) {
  gathering g = {.self = t};
  for (uint32_t i = 0; i < t->num_nodes; i++)
    tdict_storage_each_conflict(t->nodes[i].storage, t->nodes[i].writes, gather_conflict, &g);
  if (g.no_memory) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory to wait for others");
  for (uint32_t i = 0; i < t->num_nodes; i++) tdict_storage_attach(&t->nodes[i]);
  for (uint32_t i = 0; i < t->num_waits_for; i++) {
    tdict_dependent *d = &t->waits_for[i];
    d->next = d->on->dependents;
    d->on->dependents = d;
  }
  t->pending = t->num_waits_for;
  t->engine->num_live++;
  return TDICT_OK;
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
  wait_for_strangers(t);
  pthread_mutex_lock(&e->lock);
  status = take_turn(t, err);
  bool ready = status == TDICT_OK && t->pending == 0;
  if (status == TDICT_OK) atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed); /* the work's own */
  pthread_mutex_unlock(&e->lock);
  if (ready) launch(t);
  return status;
}

void tdict_transfer_fail(tdict_future *t, uint32_t item, const tdict_error *error) {
  char path[sizeof error->path] = "";
  if (item != UINT32_MAX && item < t->plan.num_items)
    tdict_leaf_path(t->mirror ? t->mirror : t->result, t->plan.items[item].leaf, path, sizeof path);
  pthread_mutex_lock(&t->error_lock);
  if (!t->error.status) {
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

/* Lets go of everything but the result. Releases may call the program back: no lock is held. */
static void let_go(tdict_future *t) {
  give_gates(t);
  for (uint32_t i = 0; i < t->num_nodes; i++) tdict_storage_detach(&t->nodes[i]);
  t->num_nodes = 0;
  tdict_plan_reset(&t->plan);
  tdict_release(t->mirror);
  t->mirror = NULL;
  tdict_storage_release(t->arena);
  t->arena = NULL;
  if (t->error.status) {
    tdict_release(t->result);
    t->result = NULL;
  }
}

void tdict_transfer_finish(tdict_future *t) {
  tdict_engine *e = t->engine;
  fill_stats(t);
  pthread_mutex_lock(&e->lock);
  t->finished = true;
  tdict_dependent *next = t->dependents;
  t->dependents = NULL;
  pthread_mutex_unlock(&e->lock);
  let_go(t);
  tdict_latch_down(&t->ended);
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
  tdict_latch_down(&t->ended);
}
