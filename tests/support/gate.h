/* A gate at which a function on a simulated stream waits until the test opens the gate. Safe from any thread. */
#ifndef TDICT_TESTS_SUPPORT_GATE_H
#define TDICT_TESTS_SUPPORT_GATE_H

#include <stdatomic.h>
#include <unistd.h>

#include "support/test.h"

typedef struct gate {
  atomic_bool entered, open, left;
} gate;
/* A function for tdict_sim_launch(): waits until the gate is open, but for at most 20 seconds. */
static inline void pass_gate(void *user) {
  gate *g = user;
  atomic_store(&g->entered, true);
  for (int i = 0; i < 200000 && !atomic_load(&g->open); i++) usleep(100);
  atomic_store(&g->left, true);
}
static inline void open_gate(gate *g) { atomic_store(&g->open, true); }
/* A thread function: opens the gate when all other threads sleep. */
static inline void *open_gate_at_rest(void *user) {
  td_rest();
  open_gate(user);
  return NULL;
}

#endif
