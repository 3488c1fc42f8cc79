/* Declares the engine, which is the state that all transfers of a context share. The engine owns the staging rings, the
 * recordings, the tuning table and the lock under which transfers are ordered. See order.h for the order and transfer.h
 * for a transfer. Thread rule: safe from any thread. */
#ifndef TDICT_ENGINE_ENGINE_H
#define TDICT_ENGINE_ENGINE_H

#include "core/base/forkmark.h"
#include "core/base/stream_copy.h"
#include "core/memory/host_cache.h"
#include "engine/options/trace/trace.h"
#include "engine/plan/plan.h"
#include "engine/plan/tuning.h"
#include "engine/ring.h"

typedef struct tdict_engine_config {
  tdict_devices *devices; /* devices and pool: borrowed */
  tdict_pool *pool;
  size_t staging_bytes;
  tdict_forkmark *mark;       /* retained */
  const tdict_tuning *tuning; /* copied; NULL: the engine uses the built-in table */
} tdict_engine_config;

/* A job: work that an upper layer does with the context on a thread of its own. Jobs can take turns. The future of the
 * work makes tdict_engine_wait() wait for the job. */
typedef struct tdict_engine_job {
  struct tdict_engine_job *next;
} tdict_engine_job;

typedef struct tdict_engine {
  tdict_engine_config config;
  tdict_tuning tuning; /* a program that measures tables may change this field while no transfer starts or runs */
  tdict_stream_kind best_stores; /* the result of tdict_stream_best() */
  /* guards num_live and jobs, and the fields num_pending, waiters and finished of every transfer */
  pthread_mutex_t lock;
  pthread_cond_t idle;
  int64_t num_live;       /* futures that have not ended */
  tdict_engine_job *jobs; /* in the order in which the jobs began */
  tdict_used_plan used_plan;
  tdict_rings rings;
  tdict_host_cache *host_cache; /* of large results in ordinary host memory */
  tdict_tracer tracer;
  _Atomic(int32_t) last_helpers; /* relaxed: number of pool threads that the last transfer used, a hint only */
} tdict_engine;

tdict_status tdict_engine_create(const tdict_engine_config *config, tdict_engine **out, tdict_error *err);
void tdict_engine_wait(tdict_engine *engine);    /* waits until all futures have ended */
void tdict_engine_destroy(tdict_engine *engine); /* call tdict_engine_wait() first; NULL is allowed */
/* Adds a job. The struct must stay valid until tdict_engine_end_job(). */
void tdict_engine_begin_job(tdict_engine *engine, tdict_engine_job *job);
/* Waits until all earlier jobs have ended. */
void tdict_engine_await_turn(tdict_engine *engine, const tdict_engine_job *job);
/* Ends a job, so that the next job has its turn. */
void tdict_engine_end_job(tdict_engine *engine, tdict_engine_job *job);
/* Returns the context's engine. src/context.c defines this function. */
tdict_engine *tdict_context_engine(const tdict_context *context);

#endif
