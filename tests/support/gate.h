/* A gate at which a function of a simulated stream waits until the test opens it. Safe from any thread. */
#ifndef TDICT_TESTS_SUPPORT_GATE_H
#define TDICT_TESTS_SUPPORT_GATE_H

#include <stdatomic.h>
#include <unistd.h>

#include "support/test.h"

typedef struct gate {
  atomic_bool entered, open, left;
} gate;
/* For tdict_sim_launch(). Waits for at most 20 seconds. */
static inline void pass_gate(void *user) {
  gate *g = user;
  atomic_store(&g->entered, true);
  for (int i = 0; i < 200000 && !atomic_load(&g->open); i++) usleep(100);
  atomic_store(&g->left, true);
}
static inline void open_gate(gate *g) { atomic_store(&g->open, true); }
/* For a thread: opens the gate when all other threads wait. */
static inline void *open_gate_at_rest(void *user) {
  td_rest();
  open_gate(user);
  return NULL;
}

#endif
