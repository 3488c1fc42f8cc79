/* Tests tdict_pool_help(): a waiting thread runs queued tasks that never wait, and tasks that may wait if it owns them.
 * Also tests the pointer that each thread can store. */
#include "support/test.h"

#include "core/sched/gate.h"

static tdict_pool *open_pool(int num_threads) { return td_made(pool, tdict_pool_create(num_threads, &made, err)); }

CASE(pool_help_runs_tasks_that_never_wait) {
  enum { COUNT = 6 };
  tdict_pool *pool = open_pool(1);
  pool_gate gate;
  noted tasks[COUNT];
  atomic_int next;
  int me = 0;
  atomic_init(&next, 0);
  assert_false(tdict_pool_help(pool, NULL)); /* nothing is queued */
  pool_gate_close(pool, &gate);
  for (int i = 0; i < COUNT; i++) { /* tasks 0, 2 and 4 may wait, and task 2 belongs to `me` */
    tasks[i] = (noted){
        .task = {.run = noted_run, .may_wait = i % 2 == 0, .owner = i == 2 ? &me : NULL}, .next = &next, .order = -1};
    tdict_pool_submit(pool, &tasks[i].task);
  }
  assert_true(tdict_pool_help(pool, NULL));
  assert_int_equal(tasks[1].order, 0); /* the first task that never waits */
  assert_true(tdict_pool_help(pool, &next));
  assert_int_equal(tasks[3].order, 1);
  assert_true(tdict_pool_help(pool, &me));
  assert_int_equal(tasks[2].order, 2);
  assert_true(tdict_pool_help(pool, &me));
  assert_int_equal(tasks[5].order, 3);
  assert_false(tdict_pool_help(pool, &me)); /* tasks 0 and 4 may wait and have no owner, so only the pool runs them */
  assert_false(tdict_pool_help(pool, NULL));
  assert_int_equal(tasks[0].order, -1);
  assert_int_equal(tasks[4].order, -1);
  pool_gate_open(&gate);
  tdict_pool_destroy(pool); /* the pool thread runs the other tasks in order */
  assert_int_equal(tasks[0].order, 4);
  assert_int_equal(tasks[4].order, 5);
}

/* A task that tdict_pool_help() has run is no longer in the queue. */
CASE(pool_help_dequeues_its_task) {
  tdict_pool *pool = open_pool(1);
  pool_gate gate;
  noted one, two;
  atomic_int next;
  atomic_init(&next, 0);
  pool_gate_close(pool, &gate);
  noted_submit(pool, &one, &next);
  noted_submit(pool, &two, &next);
  assert_true(tdict_pool_help(pool, NULL));
  assert_false(tdict_pool_remove(pool, &one.task));
  assert_true(tdict_pool_remove(pool, &two.task));
  assert_false(tdict_pool_help(pool, NULL));
  noted_submit(pool, &two, &next);
  pool_gate_open(&gate);
  tdict_pool_destroy(pool);
  assert_int_equal(one.order, 0);
  assert_int_equal(two.order, 1);
}

typedef struct note_task {
  tdict_task task; /* first */
  void *before, *after;
} note_task;
static void set_note(tdict_task *task) {
  note_task *n = (note_task *)task;
  n->before = tdict_pool_thread_data();
  tdict_pool_set_thread_data(n);
  n->after = tdict_pool_thread_data();
}
CASE(pool_thread_data_is_per_thread) {
  tdict_pool *pool = open_pool(1);
  note_task one = {.task = {.run = set_note}}, two = one;
  int mine;
  assert_null(tdict_pool_thread_data());
  tdict_pool_set_thread_data(&mine);
  tdict_pool_submit(pool, &one.task);
  tdict_pool_submit(pool, &two.task);
  tdict_pool_destroy(pool);
  assert_null(one.before);
  assert_ptr_equal(one.after, &one);
  assert_ptr_equal(two.before, &one); /* both tasks run on the same thread */
  assert_ptr_equal(tdict_pool_thread_data(), &mine);
  tdict_pool_set_thread_data(NULL);
  assert_null(tdict_pool_thread_data());
}
