/* Creates and destroys the engine of a context, and counts its jobs. See engine.h for ownership and threads. */
#include "engine/engine.h"

#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/thread.h"

tdict_status tdict_engine_create(const tdict_engine_config *config, tdict_engine **out, tdict_error *err) {
  tdict_engine *e = calloc(1, sizeof *e);
  if (!e) return tdict_fail_memory(err, "context", NULL, "its engine");
  if (tdict_host_cache_create(&e->host_cache, err) != TDICT_OK) {
    free(e);
    return TDICT_ENOMEM;
  }
  e->config = *config;
  e->tuning = config->tuning ? *config->tuning : tdict_tuning_default();
  e->best_stores = tdict_stream_best();
  tdict_forkmark_retain(config->mark);
  pthread_mutex_init(&e->lock, NULL);
  pthread_mutex_init(&e->used_plan.lock, NULL);
  tdict_rings_init(&e->rings, config->pool, config->staging_bytes);
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
  tdict_rings_reset(&e->rings);
  tdict_host_cache_close(e->host_cache);
  tdict_plan_reset(&e->used_plan.plan);
  pthread_cond_destroy(&e->idle);
  pthread_mutex_destroy(&e->used_plan.lock);
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
  pthread_cond_broadcast(&e->idle);
  pthread_mutex_unlock(&e->lock);
}
