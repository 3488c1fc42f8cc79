/* Declares the engine, which is the state that all transfers of a context share. The engine owns the staging rings, the
 * recordings, the tuning table and the lock under which transfers are ordered. See order.h for the order and job.h for
 * a transfer. Thread rule: safe from any thread. */
#ifndef TDICT_TRANSFER_ENGINE_H
#define TDICT_TRANSFER_ENGINE_H

#include "base/forkmark.h"
#include "base/log.h"
#include "base/stream_copy.h"
#include "transfer/plan/plan.h"
#include "transfer/plan/tuning.h"
#include "transfer/run/ring.h"
#include "transfer/trace/trace.h"

enum { TDICT_MAX_RINGS = 64 };

typedef struct tdict_engine_config {
  tdict_devices *devices; /* devices and pool: borrowed */
  tdict_pool *pool;
  size_t staging_bytes;
  tdict_forkmark *mark; /* mark and log: retained */
  tdict_log *log;
  const tdict_tuning *tuning; /* copied; NULL: the engine uses the built-in table */
} tdict_engine_config;

typedef struct tdict_engine {
  tdict_engine_config config;
  tdict_tuning tuning; /* measuring programs may change the table while no transfer starts or runs */
  size_t slot_bytes;   /* bytes of a slot in each ring */
  size_t num_slots;
  tdict_stream_kind best_stores; /* the result of tdict_stream_best() */
  /* guards num_live and spare_plan. Also guards num_pending, dependents and finished of every transfer */
  pthread_mutex_t lock;
  pthread_cond_t idle;
  int64_t num_live;
  tdict_plan
      spare_plan; /* memory of an ended transfer's plan, for reuse: touching new pages costs more than filling them */
  pthread_mutex_t ring_lock; /* guards: rings, num_rings. Held while a ring is created */
  tdict_ring *rings[TDICT_MAX_RINGS];
  int num_rings;
  tdict_tracer tracer;
  _Atomic(int32_t) last_helpers; /* relaxed: number of pool threads that the last transfer used, a hint only */
} tdict_engine;

tdict_status tdict_engine_create(const tdict_engine_config *config, tdict_engine **out, tdict_error *err);
void tdict_engine_wait(tdict_engine *engine);    /* returns after all running transfers have ended */
void tdict_engine_destroy(tdict_engine *engine); /* call tdict_engine_wait() first; NULL is allowed */
/* Returns the ring of a GPU, borrowed. The first call for a GPU creates the ring. Call inside a scope of the GPU.
 * TDICT_ENOMEM, TDICT_EDEVICE. */
tdict_status tdict_engine_ring(tdict_engine *engine, tdict_gpu *gpu, tdict_ring **out, tdict_error *err);
/* Returns how the memory of a GPU's ring was obtained: a tdict_pinned_way, -1 if the memory is not pinned, 0 if the GPU
 * has no ring. */
int tdict_engine_pin_way(tdict_engine *engine, const tdict_gpu *gpu);
/* tdict_engine_take_plan() moves the spare plan memory into *out, which may be empty. tdict_engine_give_plan()
 * clears a plan and keeps the plan's memory for the next transfer. If the memory is too large, frees the memory. */
void tdict_engine_take_plan(tdict_engine *engine, tdict_plan *out);
void tdict_engine_give_plan(tdict_engine *engine, tdict_plan *plan);
/* Returns the context's engine. src/context.c defines this function. */
tdict_engine *tdict_context_engine(const tdict_context *context);

#endif
