/* Chooses threads and chunks, from options, plan and tuning table. Keeps no state; thread-safe. */
#ifndef TDICT_ENGINE_PLAN_CHOOSE_H
#define TDICT_ENGINE_PLAN_CHOOSE_H

#include "core/base/stream_copy.h"
#include "core/sched/pool.h"
#include "engine/plan/plan.h"
#include "engine/plan/tuning.h"

typedef struct tdict_choice_request {
  const tdict_plan *plan;
  const tdict_pool *pool;
  const tdict_tuning *tuning;
  size_t slot_bytes; /* bytes of a slot in a staging ring */
  size_t num_slots;
  int32_t num_threads;           /* value of the option num_threads; -1: the tuning table determines the number */
  int32_t mode;                  /* never TDICT_MODE_AUTO */
  bool caller_waits;             /* true: the public call blocks until the transfer has ended */
  bool reads_files;              /* true: the threads read the source from files instead of memory */
  bool reuses_memory;            /* true: a new host result takes memory whose pages exist, see host_cache.h */
  size_t max_copy_bytes;         /* maximum bytes of a chunk, a multiple of 256; 0: no limit */
  int max_workers;               /* maximum number of threads of a transfer with a pace; 0: the transfer has no pace */
  tdict_stream_kind best_stores; /* stores that bypass the cache */
  const tdict_source_rows *rows; /* NULL: the transfer copies the whole source; see tdict_start */
} tdict_choice_request;
/* How a transfer runs. These fields do not change after the transfer has begun. */
typedef struct tdict_how {
  int32_t mode; /* never TDICT_MODE_AUTO */
  int num_workers;
  int max_slots;            /* maximum number of slots that a worker holds, see tdict_tuning_row */
  tdict_stream_kind stores; /* store instructions with which host threads copy */
  int64_t spin_ns;          /* a thread that waits for the transfer's end spins for this time before it sleeps */
  /* true: the starting thread is the first worker, beside pool threads. The begin may make it false */
  bool on_caller;
  bool caller_waits; /* the starting call blocks until the transfer has ended, so no stream can wait for the transfer */
} tdict_how;

typedef struct tdict_choice {
  tdict_how how;
  tdict_tuning_row row; /* chunk sizes, threads and slots. If the transfer uses slots, chunk_bytes is at most the slot
                         * size */
  uint32_t num_strips;  /* maximum number of strips of a chunk; threads fill the strips in parallel */
  /* true: on_caller becomes false if copies cannot be queued at once, or another transfer comes first */
  bool on_caller_if_ready;
  /* true: the caller wakes one thread only, to return soon from a call for a long transfer */
  bool wakes_in_chain;
} tdict_choice;

/* Below this size, handing out a strip of a chunk costs more than filling the strip. */
#define TDICT_STRIP_BYTES ((size_t)32 << 10)
/* Returns the number of strips of a chunk of `bytes` bytes: one strip for each 32 KiB, rounded, from 1 to 8. */
static inline uint32_t tdict_strips_of_bytes(size_t bytes) {
  enum { MOST = 8 };
  const size_t count = (bytes + TDICT_STRIP_BYTES / 2) / TDICT_STRIP_BYTES;
  return count < 1 ? 1 : count < MOST ? (uint32_t)count : MOST;
}

/* Returns the row for a transfer of `bytes` bytes, from a table that was checked. */
const tdict_tuning_row *tdict_choose_row(const tdict_tuning *tuning, tdict_tuning_direction direction, size_t bytes);
tdict_choice tdict_choose(const tdict_choice_request *request);

#endif
