/* Makes the batch that several listings use: batch size [4],
 * the leaves obs.state (float32, 3) and reward (float32). */
#ifndef LISTINGS_BATCH_H
#define LISTINGS_BATCH_H

#include <tdict/tdict.h>
#include <tdict/try.h>

static inline tdict_tree *make_batch(void) {
  static const tdict_field fields[] = {TDICT_FIELD("obs.state", TDICT_F32, 3),
                                       TDICT_FIELD("reward", TDICT_F32)};
  tdict_tree *batch = NULL;
  float *reward;
  if (tdict_create_from(fields, 2, TDICT_SHAPE(4), NULL, &batch, NULL) != TDICT_OK)
    return NULL;
  reward = tdict_data(batch, "reward");
  for (int i = 0; i < 4; i++) reward[i] = (float)i;
  return batch;
}

/* Runs a function of a listing on a new batch. Returns 1 if the function fails. */
static inline int run_on_batch(int (*function)(tdict_tree *batch)) {
  tdict_tree *batch = make_batch();
  const int failed = !batch || function(batch) != 0;
  tdict_release(batch);
  return failed;
}

#endif
