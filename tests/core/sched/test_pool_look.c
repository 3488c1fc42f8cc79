/* Tests pool threads that spin before they sleep, or that are woken to spin. No task may be missed, and spinning must
 * end. The cases set how many threads may spin, because the default is none on two CPUs. */
#include "support/test.h"

#include <time.h>

#include "core/sched/gate.h"
#include "support/threads.h"

enum { ROUNDS = 400, SUBMITTERS = 3 };

static tdict_pool *open_pool(int num_threads, int looking) {
  tdict_pool *pool = td_made(pool, tdict_pool_create(num_threads, &made, err));
  tdict_pool_set_max_spinning(pool, looking);
  return pool;
}

typedef struct submitter {
  tdict_pool *pool;
  atomic_int runs;
  noted tasks[ROUNDS];
} submitter;

/* Submits tasks and waits for them. Sometimes sleeps first, so that pool threads fall asleep. Never returns if a task
 * is missed. */
static void *submit_and_wait(void *user) {
  submitter *s = user;
  for (int i = 0; i < ROUNDS; i++) {
    if (i % 16 == 0) usleep(300);
    if (i % 3) tdict_pool_wake(s->pool, i % 5);
    if (i % 7 == 0) usleep(50);
    noted_submit(s->pool, &s->tasks[i], &s->runs);
    if (i % 4 == 0) continue; /* waits only after several tasks have been submitted */
    while (atomic_load(&s->runs) <= i) sched_yield();
  }
  while (atomic_load(&s->runs) < ROUNDS) sched_yield();
  return NULL;
}

CASE(pool_spinning_misses_no_task) {
  static submitter submitters[SUBMITTERS];
  for (int looking = 0; looking <= 4; looking += 2) {
    scoped_pool pool = open_pool(3, looking);
    pthread_t threads[SUBMITTERS];
    for (int i = 0; i < SUBMITTERS; i++) {
      submitters[i].pool = pool;
      atomic_init(&submitters[i].runs, 0);
      threads[i] = td_start(submit_and_wait, &submitters[i]);
    }
    for (int i = 0; i < SUBMITTERS; i++) pthread_join(threads[i], NULL);
  }
}

static double cpu_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

CASE(pool_spinning_ends) {
  scoped_pool pool = open_pool(4, 4);
  usleep(20000);
  tdict_pool_wake(pool, 4);
  tdict_pool_wake(pool, 100);
  tdict_pool_wake(pool, 0);
  tdict_pool_wake(pool, -1);
  usleep(20000);
  const double before = cpu_seconds();
  usleep(200000);
  assert_true(cpu_seconds() - before < 0.1); /* four spinning threads would use 0.8 s, or 0.4 s on two CPUs */
}

CASE(pool_spinning_ends_with_the_pool) {
  for (int i = 0; i < 50; i++) {
    scoped_pool pool = open_pool(4, 4);
    if (i % 2) usleep(100);
    tdict_pool_wake(pool, 1 + i % 4);
  }
}
