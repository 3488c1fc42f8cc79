/* The engine: what lives as long as a context's transfers. It holds the staging rings, the recordings, the tuning table
 * and the lock under which transfers are ordered. See order.h for the order and job.h for a transfer.
 * Thread rule: safe from any thread. */
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
  tdict_devices *devices; /* borrowed, like the pool */
  tdict_pool *pool;
  size_t staging_bytes;
  tdict_forkmark *mark; /* retained, like the log */
  tdict_log *log;
  const tdict_tuning *tuning; /* copied; NULL: the built-in one */
} tdict_engine_config;

typedef struct tdict_engine {
  tdict_engine_config config;
  tdict_tuning tuning; /* changed by programs that measure, while no transfer is started or under way */
  size_t slot_bytes;   /* of each ring */
  size_t num_slots;
  tdict_stream_kind best_stores; /* of this processor, for copies that pass by the cache */
  pthread_mutex_t lock;          /* guards what follows, and pending, dependents and finished of every transfer */
  pthread_cond_t idle;
  int64_t num_live;
  tdict_plan spare; /* the memory of a plan that has ended: new pages for each would cost more than filling them */
  pthread_mutex_t ring_lock; /* guards: rings; held while one is made */
  tdict_ring *rings[TDICT_MAX_RINGS];
  int num_rings;
  tdict_tracer tracer;
  _Atomic(int32_t) last_helpers; /* relaxed, a hint: the pool's threads that the last transfer was given */
} tdict_engine;

tdict_status tdict_engine_create(const tdict_engine_config *config, tdict_engine **out, tdict_error *err);
void tdict_engine_wait(tdict_engine *engine);    /* until no transfer is under way */
void tdict_engine_destroy(tdict_engine *engine); /* after the last wait; NULL is allowed */
/* Returns the ring of a gpu, borrowed; makes it on the first call. Inside a scope of the gpu. */
tdict_status tdict_engine_ring(tdict_engine *engine, tdict_gpu *gpu, tdict_ring **out, tdict_error *err);
/* How the memory of a gpu's ring was obtained: a tdict_pinned_way, -1 when it is not pinned, 0 when there is no ring. */
int tdict_engine_ring_way(tdict_engine *engine, const tdict_gpu *gpu);
/* Takes the memory of an ended plan, which may be none; and gives such memory back, to be kept unless it is too much. */
void tdict_engine_take_plan(tdict_engine *engine, tdict_plan *out);
void tdict_engine_give_plan(tdict_engine *engine, tdict_plan *plan);
/* This layer's piece of a context; the composition root defines it. */
tdict_engine *tdict_context_engine(const tdict_context *context);

#endif
