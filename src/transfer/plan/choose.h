/* Who works on a transfer, and in chunks of how many bytes: from what was asked, the plan and the tuning table. Pure. */
#ifndef TDICT_TRANSFER_PLAN_CHOOSE_H
#define TDICT_TRANSFER_PLAN_CHOOSE_H

#include "transfer/engine.h"

typedef struct tdict_choice_request {
  const tdict_engine *engine;
  const tdict_plan *plan;
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

tdict_choice tdict_choose(const tdict_choice_request *request);

#endif
