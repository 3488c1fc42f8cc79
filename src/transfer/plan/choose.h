/* Who works on a transfer, and in chunks of how many bytes: from what was asked, the plan and the tuning table. Pure. */
#ifndef TDICT_TRANSFER_PLAN_CHOOSE_H
#define TDICT_TRANSFER_PLAN_CHOOSE_H

#include "sched/pool.h"
#include "transfer/plan/plan.h"
#include "transfer/plan/tuning.h"

typedef struct tdict_choice_request {
  const tdict_plan *plan;
  const tdict_pool *pool;
  const tdict_tuning *tuning;
  size_t slot_bytes; /* of a staging ring */
  size_t num_slots;
  int32_t asked; /* num_threads: -1 leaves it to the table */
  int32_t mode;  /* no TDICT_MODE_AUTO */
  bool waits;    /* the call waits for the end */
} tdict_choice_request;
typedef struct tdict_choice {
  tdict_tuning_row row; /* slots of the engine are large enough for its chunks */
  int num_workers;
  uint32_t num_parts; /* that several threads fill of one slot */
  bool on_caller;     /* the calling thread is the first of them */
  bool if_free;       /* but only if it can queue all there is, and the transfer need wait for no other */
  int64_t spin_ns;
} tdict_choice;

/* Below this a part of a chunk costs more to hand out than to fill. */
#define TDICT_PART_BYTES ((size_t)32 << 10)
/* The parts that so many bytes are worth cutting into: about 32 KiB each, or more. */
static inline uint32_t tdict_parts_of_bytes(size_t bytes) {
  enum { MOST = 8 };
  const size_t count = (bytes + TDICT_PART_BYTES / 2) / TDICT_PART_BYTES;
  return count < 1 ? 1 : count < MOST ? (uint32_t)count : MOST;
}

tdict_choice tdict_choose(const tdict_choice_request *request);

#endif
