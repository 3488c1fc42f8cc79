/* A task that blocks a pool thread until the test opens a gate, and tasks that record their order of execution. */
#ifndef TDICT_TESTS_CORE_SCHED_GATE_H
#define TDICT_TESTS_CORE_SCHED_GATE_H

#include <stdatomic.h>
#include <unistd.h>

#include "core/sched/pool.h"

typedef struct pool_gate {
  tdict_task task; /* first */
  atomic_bool entered, open;
} pool_gate;
static inline void pool_gate_run(tdict_task *task) {
  pool_gate *g = (pool_gate *)task;
  atomic_store(&g->entered, true);
  while (!atomic_load(&g->open)) usleep(100);
}
/* Submits a task that blocks one pool thread until pool_gate_open(). Returns when the thread is blocked. */
static inline void pool_gate_close(tdict_pool *pool, pool_gate *g) {
  g->task.run = pool_gate_run;
  atomic_init(&g->entered, false);
  atomic_init(&g->open, false);
  tdict_pool_submit(pool, &g->task);
  while (!atomic_load(&g->entered)) usleep(100);
}
static inline void pool_gate_open(pool_gate *g) { atomic_store(&g->open, true); }

typedef struct noted {
  tdict_task task; /* first */
  atomic_int *next;
  int order; /* -1: the task has not run */
} noted;
static inline void noted_run(tdict_task *task) {
  noted *n = (noted *)task;
  n->order = atomic_fetch_add(n->next, 1);
}
static inline void noted_submit(tdict_pool *pool, noted *n, atomic_int *next) {
  *n = (noted){.task = {.run = noted_run}, .next = next, .order = -1};
  tdict_pool_submit(pool, &n->task);
}

#endif
