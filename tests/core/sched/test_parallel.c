/* Tests the parallel loop: each index is visited once, only the expected threads take part, and the loop does not wait
 * for busy threads. */
#include "support/test.h"

#include <limits.h>

#include "core/sched/gate.h"
#include "core/sched/latch.h"
#include "support/threads.h"

static tdict_pool *open_pool(int num_threads) { return td_made(pool, tdict_pool_create(num_threads, &made, err)); }

enum { MOST = 2000 };
typedef struct tally {
  atomic_int seen[MOST];
  atomic_int calls, elsewhere;
  pthread_t caller;
} tally;
static void visit(void *user, long i) {
  tally *t = user;
  atomic_fetch_add(&t->seen[i], 1);
  atomic_fetch_add(&t->calls, 1);
  if (!pthread_equal(pthread_self(), t->caller)) atomic_fetch_add(&t->elsewhere, 1);
}
static void begin(tally *t) {
  memset((void *)t, 0, sizeof *t);
  t->caller = pthread_self();
}
static void check_once(tally *t, long count) {
  for (long i = 0; i < count; i++) assert_int_equal(atomic_load(&t->seen[i]), 1);
  assert_int_equal(atomic_load(&t->calls), count > 0 ? count : 0);
}

CASE(parallel_for_visits_each_index_once) {
  static const int helpers[] = {0, 1, 2, 3, 100, INT_MAX, -1};
  static const long counts[] = {-1, 0, 1, 2, 3, 4, MOST};
  static tally t;
  scoped_pool pool = open_pool(3);
  for (size_t h = 0; h < sizeof helpers / sizeof *helpers; h++)
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
      begin(&t);
      tdict_parallel_for(pool, helpers[h], counts[c], visit, &t);
      check_once(&t, counts[c]);
    }
}

CASE(parallel_for_without_pool_runs_on_the_caller) {
  static tally t;
  scoped_pool pool = open_pool(2);
  begin(&t);
  tdict_parallel_for(NULL, 8, 100, visit, &t);
  check_once(&t, 100);
  assert_int_equal(atomic_load(&t.elsewhere), 0);
  begin(&t);
  tdict_parallel_for(pool, 0, 100, visit, &t);
  check_once(&t, 100);
  assert_int_equal(atomic_load(&t.elsewhere), 0);
}

static void meet(void *user, long i) {
  (void)i;
  pthread_barrier_wait(user);
}

CASE(parallel_for_threads_run_concurrently) {
  pthread_barrier_t all;
  scoped_pool pool = open_pool(3);
  pthread_barrier_init(&all, NULL, 4);
  tdict_parallel_for(pool, 3, 4, meet, &all); /* returns only if four threads are in meet() at the same time */
  pthread_barrier_destroy(&all);
}

CASE(parallel_for_does_not_wait_for_a_busy_pool) {
  static tally t;
  pool_gate gate;
  scoped_pool pool = open_pool(1);
  pool_gate_close(pool, &gate);
  begin(&t);
  tdict_parallel_for(pool, 1, 100, visit, &t);
  check_once(&t, 100);
  assert_int_equal(atomic_load(&t.elsewhere), 0);
  pool_gate_open(&gate);
}

typedef struct inside {
  tdict_task task; /* first */
  tdict_pool *pool;
  tally *tally;
  tdict_latch done;
} inside;
static void visit_slowly(void *user, long i) {
  td_rest(); /* gives idle threads time to join in, so that the case would notice them */
  visit(user, i);
}
static void loop_inside(tdict_task *task) {
  inside *in = (inside *)task;
  in->tally->caller = pthread_self();
  tdict_parallel_for(in->pool, 4, 100, visit_slowly, in->tally);
  tdict_latch_down(&in->done);
}

CASE(parallel_for_is_inline_on_a_pool_thread) {
  static tally t;
  tdict_pool *pool = open_pool(4);
  inside in = {.task = {.run = loop_inside}, .pool = pool, .tally = &t};
  begin(&t);
  tdict_latch_init(&in.done, 1);
  tdict_pool_submit(pool, &in.task);
  tdict_latch_wait(&in.done, INT64_MAX);
  tdict_pool_destroy(pool);
  tdict_latch_destroy(&in.done);
  check_once(&t, 100);
  assert_int_equal(atomic_load(&t.elsewhere), 0);
}

typedef struct nest {
  tdict_pool *pool;
  atomic_int calls;
} nest;
static void inner(void *user, long i) {
  (void)i;
  atomic_fetch_add(&((nest *)user)->calls, 1);
}
static void outer(void *user, long i) {
  (void)i;
  tdict_parallel_for(((nest *)user)->pool, 8, 20, inner, user);
}

CASE(parallel_for_nests) {
  nest n = {.pool = open_pool(2)};
  atomic_init(&n.calls, 0);
  tdict_parallel_for(n.pool, 2, 20, outer, &n);
  assert_int_equal(atomic_load(&n.calls), 400);
  tdict_pool_destroy(n.pool);
}

static void *loop_often(void *user) {
  static _Thread_local tally t;
  for (int i = 0; i < 50; i++) {
    begin(&t);
    tdict_parallel_for(user, 3, 64, visit, &t);
    for (long k = 0; k < 64; k++)
      if (atomic_load(&t.seen[k]) != 1) return user;
  }
  return NULL;
}

CASE(parallel_for_from_many_threads) {
  scoped_pool pool = open_pool(3);
  assert_null(td_in_threads(4, loop_often, pool, 0));
}
