/* The engine's state, for the files that share it. */
#ifndef TDICT_TRANSFER_ENGINE_STATE_H
#define TDICT_TRANSFER_ENGINE_STATE_H

#include "transfer/engine.h"

enum { TDICT_MAX_RINGS = 64 };

struct tdict_engine {
  tdict_engine_config config;
  tdict_tuning tuning;
  pthread_mutex_t lock; /* guards what follows, and pending, dependents and finished of every transfer */
  pthread_cond_t idle;
  int64_t num_live;
  tdict_plan spare; /* the memory of a plan that has ended: new pages for each would cost more than filling them */
  pthread_mutex_t ring_lock; /* guards: rings; held while one is made */
  tdict_ring *rings[TDICT_MAX_RINGS];
  int num_rings;
  tdict_tracer tracer;
  _Atomic(int32_t) last_helpers; /* relaxed, a hint: the pool's threads that the last transfer was given */
};

#endif
