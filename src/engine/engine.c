/* Creates and destroys the engine of a context, keeps one spare plan, and creates rings on demand. See engine.h
 * for ownership and threads. */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/thread.h"

tdict_status tdict_engine_create(const tdict_engine_config *config, tdict_engine **out, tdict_error *err) {
  tdict_engine *e = calloc(1, sizeof *e);
  if (!e) return tdict_fail(err, TDICT_ENOMEM, "context: no host memory for its engine");
  e->config = *config;
  e->tuning = config->tuning ? *config->tuning : tdict_tuning_default();
  e->slot_bytes = tdict_ring_slot_bytes(config->staging_bytes);
  e->num_slots = config->staging_bytes / e->slot_bytes;
  e->best_stores = tdict_stream_best();
  tdict_forkmark_retain(config->mark);
  pthread_mutex_init(&e->lock, NULL);
  pthread_mutex_init(&e->ring_lock, NULL);
  pthread_cond_init(&e->idle, NULL);
  tdict_tracer_init(&e->tracer, e->config.mark, e->config.pool);
  *out = e;
  return TDICT_OK;
}

void tdict_engine_wait(tdict_engine *e) {
  pthread_mutex_lock(&e->lock);
  while (e->num_live > 0) tdict_cond_wait(&e->idle, &e->lock);
  pthread_mutex_unlock(&e->lock);
}

void tdict_engine_destroy(tdict_engine *e) {
  if (!e) return;
  tdict_tracer_reset(&e->tracer);
  for (int i = 0; i < e->num_rings; i++) {
    /* Destroying a ring calls the driver, so the GPU's context must be current. If the device is lost, entering the
     * context may fail, and the ring is destroyed nevertheless. */
    tdict_gpu *gpu = e->rings[i]->gpu;
    tdict_gpu_scope scope;
    (void)!tdict_gpu_enter(gpu, &scope, NULL);
    tdict_ring_destroy(e->rings[i]);
    tdict_gpu_leave(gpu, &scope);
  }
  tdict_plan_reset(&e->spare_plan);
  pthread_cond_destroy(&e->idle);
  pthread_mutex_destroy(&e->ring_lock);
  pthread_mutex_destroy(&e->lock);
  tdict_forkmark_release(e->config.mark);
  free(e);
}

void tdict_engine_begin_job(tdict_engine *e, tdict_engine_job *job) {
  tdict_engine_job **end = &e->jobs;
  job->next = NULL;
  pthread_mutex_lock(&e->lock);
  while (*end) end = &(*end)->next;
  *end = job;
  e->num_live++;
  pthread_mutex_unlock(&e->lock);
}

void tdict_engine_await_turn(tdict_engine *e, const tdict_engine_job *job) {
  pthread_mutex_lock(&e->lock);
  while (e->jobs != job) tdict_cond_wait(&e->idle, &e->lock);
  pthread_mutex_unlock(&e->lock);
}

void tdict_engine_end_job(tdict_engine *e, tdict_engine_job *job) {
  tdict_engine_job **at = &e->jobs;
  pthread_mutex_lock(&e->lock);
  while (*at != job) at = &(*at)->next;
  *at = job->next;
  e->num_live--;
  pthread_cond_broadcast(&e->idle);
  pthread_mutex_unlock(&e->lock);
}

#define MAX_SPARE_BYTES ((size_t)32 << 20) /* enough for about 350,000 leaves; a larger plan is freed */

void tdict_engine_take_plan(tdict_engine *e, tdict_plan *out) {
  pthread_mutex_lock(&e->lock);
  *out = e->spare_plan;
  memset(&e->spare_plan, 0, sizeof e->spare_plan);
  pthread_mutex_unlock(&e->lock);
}

void tdict_engine_give_plan(tdict_engine *e, tdict_plan *plan) {
  tdict_plan_clear(plan);
  pthread_mutex_lock(&e->lock);
  size_t bytes = plan->cap * (sizeof *plan->items + sizeof *plan->nodes);
  if (bytes <= MAX_SPARE_BYTES && plan->cap > e->spare_plan.cap) {
    /* Keep the larger plan. The smaller plan is freed after the unlock. */
    tdict_plan kept = e->spare_plan;
    e->spare_plan = *plan;
    *plan = kept;
  }
  pthread_mutex_unlock(&e->lock);
  if (plan->items || plan->item_of_leaf || plan->chunks) tdict_plan_reset(plan);
}

/* The caller holds ring_lock. Returns NULL if the GPU has no ring. */
static tdict_ring *find_ring(const tdict_engine *e, const tdict_gpu *gpu) {
  for (int i = 0; i < e->num_rings; i++)
    if (e->rings[i]->gpu == gpu) return e->rings[i];
  return NULL;
}

tdict_status tdict_engine_ring(tdict_engine *e, tdict_gpu *gpu, tdict_ring **out, tdict_error *err) {
  /* Hold the lock while a ring is created, so that two workers do not create two rings of one GPU. */
  tdict_status status = TDICT_OK;
  pthread_mutex_lock(&e->ring_lock);
  tdict_ring *ring = find_ring(e, gpu);
  if (!ring) {
    status = e->num_rings == TDICT_MAX_RINGS
                 ? tdict_fail(err, TDICT_ENOMEM, "staging: rings for at most %d devices", TDICT_MAX_RINGS)
                 : tdict_ring_create(gpu, e->config.pool, e->config.staging_bytes, &ring, err);
    if (status == TDICT_OK) e->rings[e->num_rings++] = ring;
  }
  pthread_mutex_unlock(&e->ring_lock);
  if (status == TDICT_OK) *out = ring;
  return status;
}

int tdict_engine_pin_way(tdict_engine *e, const tdict_gpu *gpu) {
  pthread_mutex_lock(&e->ring_lock);
  const tdict_ring *ring = find_ring(e, gpu);
  const int way = !ring ? 0 : ring->pages.data ? (int)ring->pages.way : -1;
  pthread_mutex_unlock(&e->ring_lock);
  return way;
}
