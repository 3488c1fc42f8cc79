/* Tests the thread pool: the order and removal of tasks, the destruction of the pool, and threads that cannot start. */
#include "support/test.h"
#include "support/thread_name.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>

#include "core/sched/gate.h"
#include "support/cpus.h"
#include "support/threads.h"

/* The number of calls to pthread_create() that will still succeed. Negative: no limit. */
static int starts_left = -1;
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user) {
  if (starts_left == 0) return EAGAIN;
  if (starts_left > 0) starts_left--;
  return __real_pthread_create(thread, attributes, fn, user);
}

static tdict_pool *open_pool(int num_threads) {
  tdict_pool *pool = td_made(pool, tdict_pool_create(num_threads, &made, err));
  assert_int_equal(tdict_pool_size(pool), num_threads);
  return pool;
}

/* The set may name processors that this machine lacks, because the pool does not check it. */
CASE(pool_leaves_reserved_cpus_free) {
  static const int cpus[] = {1, 2, 3, 4, 8, 16}, one_left[] = {1, 2, 3, 3, 7, 15}, two_left[] = {1, 2, 3, 2, 6, 14};
  scoped_pool pool = open_pool(2);
  for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++) {
    const tdict_cpus set = td_cpus(0, cpus[i] - 1);
    (void)tdict_pool_set_cpus(pool, &set);
    assert_int_equal(tdict_pool_num_cpus(pool), cpus[i]);
    assert_int_equal(tdict_pool_max_working(pool, 0), cpus[i]);
    assert_int_equal(tdict_pool_max_working(pool, 1), one_left[i]);
    assert_int_equal(tdict_pool_max_working(pool, 2), two_left[i]);
  }
}

CASE(pool_first_come_first_served) {
  enum { COUNT = 200 };
  tdict_pool *pool = open_pool(1);
  pool_gate gate;
  atomic_int next;
  noted tasks[COUNT];
  atomic_init(&next, 0);
  pool_gate_close(pool, &gate);
  for (int i = 0; i < COUNT; i++) noted_submit(pool, &tasks[i], &next);
  assert_int_equal(atomic_load(&next), 0);
  pool_gate_open(&gate);
  tdict_pool_destroy(pool);
  for (int i = 0; i < COUNT; i++) assert_int_equal(tasks[i].order, i);
}

/* A task that stores the signal mask of its thread. */
typedef struct masked {
  tdict_task task; /* first */
  sigset_t mask;
} masked;
static void look_at_mask(tdict_task *task) { pthread_sigmask(SIG_SETMASK, NULL, &((masked *)task)->mask); }

CASE(pool_threads_take_no_signals) {
  static const int programs[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD, SIGPROF, SIGPIPE},
                   own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  sigset_t before, after;
  masked m = {.task = {.run = look_at_mask}};
  pthread_sigmask(SIG_SETMASK, NULL, &before);
  tdict_pool *pool = open_pool(2);
  tdict_pool_submit(pool, &m.task);
  tdict_pool_destroy(pool);
  starts_left = 1;
  td_fails(TDICT_ENOMEM, "thread 2 of 3", tdict_pool_create(3, &pool, err));
  starts_left = -1;
  pthread_sigmask(SIG_SETMASK, NULL, &after);
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    if (!sigismember(&m.mask, programs[i])) fail_msg("signal %d is open", programs[i]);
    assert_int_equal(sigismember(&after, programs[i]), sigismember(&before, programs[i])); /* not changed */
  }
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) assert_false(sigismember(&m.mask, own[i]));
}

CASE(pool_remove_returns_unstarted_tasks) {
  enum { COUNT = 7 };
  static const int taken[] = {3, 0, 6, 1, 5}; /* a task in the middle, the first, the last, and their neighbors */
  tdict_pool *pool = open_pool(1);
  pool_gate gate;
  atomic_int next;
  noted tasks[COUNT];
  atomic_init(&next, 0);
  pool_gate_close(pool, &gate);
  for (int i = 0; i < COUNT; i++) noted_submit(pool, &tasks[i], &next);
  assert_false(tdict_pool_remove(pool, &gate.task));
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
    assert_true(tdict_pool_remove(pool, &tasks[taken[i]].task));
    assert_false(tdict_pool_remove(pool, &tasks[taken[i]].task));
  }
  noted_submit(pool, &tasks[0], &next); /* a removed task may be queued again */
  pool_gate_open(&gate);
  tdict_pool_destroy(pool);
  static const int order[COUNT] = {2, -1, 0, -1, 1, -1, -1};
  for (int i = 0; i < COUNT; i++) assert_int_equal(tasks[i].order, order[i]);
}

CASE(pool_remove_of_all_leaves_a_working_queue) {
  tdict_pool *pool = open_pool(1);
  pool_gate gate;
  atomic_int next;
  noted one, two;
  atomic_init(&next, 0);
  pool_gate_close(pool, &gate);
  noted_submit(pool, &one, &next);
  assert_true(tdict_pool_remove(pool, &one.task));
  noted_submit(pool, &two, &next);
  pool_gate_open(&gate);
  tdict_pool_destroy(pool);
  assert_int_equal(one.order, -1);
  assert_int_equal(two.order, 0);
}

static void *open_both(void *user) {
  pool_gate *gates = user;
  td_rest(); /* returns when tdict_pool_destroy() waits */
  for (int i = 0; i < 2; i++) pool_gate_open(&gates[i]);
  return NULL;
}

CASE(pool_destroy_runs_queued_tasks) {
  enum { COUNT = 50 };
  tdict_pool *pool = open_pool(2);
  pool_gate gates[2];
  atomic_int next;
  noted tasks[COUNT];
  atomic_init(&next, 0);
  for (int i = 0; i < 2; i++) pool_gate_close(pool, &gates[i]);
  for (int i = 0; i < COUNT; i++) noted_submit(pool, &tasks[i], &next);
  pthread_t thread = td_start(open_both, gates);
  tdict_pool_destroy(pool);
  assert_int_equal(atomic_load(&next), COUNT);
  pthread_join(thread, NULL);
  tdict_pool_destroy(NULL);
}

typedef struct chain {
  tdict_task task; /* first */
  tdict_pool *pool;
  atomic_int *runs;
  int left;
} chain;
static void run_chain(tdict_task *task) {
  chain *c = (chain *)task;
  atomic_fetch_add(c->runs, 1);
  chain *next = c->left > 0 ? malloc(sizeof *next) : NULL;
  if (next) {
    *next = (chain){{.run = run_chain}, c->pool, c->runs, c->left - 1};
    tdict_pool_submit(c->pool, &next->task);
  }
  free(c);
}

CASE(pool_task_may_submit_and_free_itself) {
  tdict_pool *pool = open_pool(3);
  atomic_int runs;
  atomic_init(&runs, 0);
  for (int i = 0; i < 10; i++) {
    chain *c = td_alloc(sizeof *c);
    *c = (chain){{.run = run_chain}, pool, &runs, 20};
    tdict_pool_submit(pool, &c->task);
  }
  tdict_pool_destroy(pool); /* returns only after the last task of each chain */
  assert_int_equal(atomic_load(&runs), 210);
}

typedef struct ask {
  tdict_task task; /* first */
  const tdict_pool *own, *other;
  bool is_own, is_other;
} ask;
static void run_ask(tdict_task *task) {
  ask *a = (ask *)task;
  a->is_own = tdict_pool_is_worker(a->own);
  a->is_other = tdict_pool_is_worker(a->other);
}

CASE(pool_knows_its_threads) {
  scoped_pool pool = open_pool(1), other = open_pool(1);
  ask a = {{.run = run_ask}, pool, other, false, true};
  assert_false(tdict_pool_is_worker(pool));
  tdict_pool_submit(pool, &a.task);
  td_release(pool);
  assert_true(a.is_own);
  assert_false(a.is_other);
  assert_false(tdict_pool_is_worker(other));
}

CASE(pool_threads_run_concurrently) {
  enum { THREADS = 5 };
  pool_gate gates[THREADS];
  scoped_pool pool = open_pool(THREADS); /* declared after the gates, so that the pool is destroyed before them */
  for (int i = 0; i < THREADS; i++) pool_gate_close(pool, &gates[i]); /* each gate needs its own thread */
  for (int i = 0; i < THREADS; i++) pool_gate_open(&gates[i]);
}

/* The quota limits the number of processors, not that of threads. It still applies if the set changes later. */
CASE(pool_uses_as_many_cpus_as_the_quota) {
  scoped_pool pool = open_pool(4);
  tdict_cpus set = td_cpus(0, 15);
  (void)tdict_pool_set_cpus(pool, &set);
  tdict_pool_set_quota(pool, 0);
  assert_int_equal(tdict_pool_num_cpus(pool), 16);
  tdict_pool_set_quota(pool, 5);
  assert_int_equal(tdict_pool_num_cpus(pool), 5);
  assert_int_equal(tdict_pool_max_working(pool, 1), 4);
  (void)tdict_pool_set_cpus(pool, &set);
  assert_int_equal(tdict_pool_num_cpus(pool), 5);
  set = td_cpus(0, 2);
  (void)tdict_pool_set_cpus(pool, &set);
  assert_int_equal(tdict_pool_num_cpus(pool), 3);
  assert_int_equal(tdict_pool_size(pool), 4);
}

CASE(pool_create_survives_enomem) {
  tdict_pool *pool = NULL;
  td_fail_alloc(0, true);
  td_fails(TDICT_ENOMEM, "4 threads", tdict_pool_create(4, &pool, err));
  assert_true(td_fail_alloc_stop());
  assert_null(pool);
}

static int count_threads(void) {
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");
  assert_non_null(tasks);
  for (const struct dirent *e; (e = readdir(tasks)) != NULL;) count += e->d_name[0] != '.';
  closedir(tasks);
  return count;
}

CASE(pool_create_leaves_no_thread_behind) {
  tdict_pool *pool = open_pool(1); /* a sanitizer may start its own thread together with the first one */
  td_release(pool);
  int before = count_threads();
  for (int n = 0; n < 4; n++) {
    const char *text = td_text("thread %d of 4", n + 1);
    starts_left = n;
    td_fails(TDICT_ENOMEM, text, tdict_pool_create(4, &pool, err));
    starts_left = -1;
    assert_int_equal(td_last_error.native, EAGAIN);
    assert_null(pool);
  }
  for (int i = 0; i < 2000 && count_threads() > before; i++)
    usleep(1000); /* a joined thread may stay in /proc for a while, so `before` may be one too high */
  assert_in_range(count_threads(), 1, before);
}

enum { ROUNDS = 400, SUBMITTERS = 3 };
typedef struct submitter {
  tdict_pool *pool;
  atomic_int runs;
  int removed;
  noted tasks[ROUNDS];
} submitter;
static void *submit_and_remove(void *user) {
  submitter *s = user;
  for (int i = 0; i < ROUNDS; i++) {
    noted_submit(s->pool, &s->tasks[i], &s->runs);
    if (i % 3 == 0) s->removed += tdict_pool_remove(s->pool, &s->tasks[i / 2].task);
  }
  return NULL;
}

CASE(pool_runs_or_removes_each_once) {
  tdict_pool *pool = open_pool(3);
  static submitter submitters[SUBMITTERS];
  pthread_t threads[SUBMITTERS];
  for (int i = 0; i < SUBMITTERS; i++) {
    submitters[i].pool = pool;
    submitters[i].removed = 0;
    atomic_init(&submitters[i].runs, 0);
    threads[i] = td_start(submit_and_remove, &submitters[i]);
  }
  for (int i = 0; i < SUBMITTERS; i++) pthread_join(threads[i], NULL);
  tdict_pool_destroy(pool);
  for (int i = 0; i < SUBMITTERS; i++)
    assert_int_equal(atomic_load(&submitters[i].runs) + submitters[i].removed, ROUNDS);
}

typedef struct whose {
  tdict_task task; /* first */
  pthread_t thread;
  atomic_bool done;
} whose;
static void note_thread(tdict_task *task) {
  whose *w = (whose *)task;
  w->thread = pthread_self();
  atomic_store(&w->done, true);
}

/* If tasks come one at a time, the thread that went to sleep last nearly always runs the next task. On a busy machine,
 * another thread may be faster. A pool that wakes its threads in turn would fail this case. */
CASE(pool_wakes_the_last_sleeper) {
  enum { THREADS = 12, TASKS = 120 };
  scoped_pool pool = open_pool(THREADS);
  tdict_pool_set_max_spinning(pool, 0);
  pthread_t last = pthread_self();
  int same = 0;
  for (int i = 0; i < TASKS; i++) {
    whose w = {.task = {.run = note_thread}};
    usleep(1000);
    tdict_pool_submit(pool, &w.task);
    while (!atomic_load(&w.done)) usleep(50);
    same += pthread_equal(w.thread, last) != 0;
    last = w.thread;
  }
  if (same < TASKS / 3) fail_msg("only %d of %d tasks ran on the thread of the previous task", same, TASKS);
}

/* Counts the calls to pthread_cond_signal() by one thread. */
static pthread_t counted_thread;
static atomic_int num_signals;
static atomic_bool is_counting;
int __real_pthread_cond_signal(pthread_cond_t *condition);
int __wrap_pthread_cond_signal(pthread_cond_t *condition);
int __wrap_pthread_cond_signal(pthread_cond_t *condition) {
  if (atomic_load(&is_counting) && pthread_equal(pthread_self(), counted_thread)) atomic_fetch_add(&num_signals, 1);
  return __real_pthread_cond_signal(condition);
}

/* A task that runs until `count` tasks are running at the same time. */
typedef struct meeting {
  tdict_task task; /* first */
  atomic_int *arrived;
  int count;
} meeting;
static void meet(tdict_task *task) {
  const meeting *m = (const meeting *)task;
  const int count = m->count;
  atomic_int *arrived = m->arrived;
  atomic_fetch_add(arrived, 1);
  while (atomic_load(arrived) < count) usleep(50);
  atomic_fetch_add(arrived, 1);
}

/* The threads wake each other in a chain, so each call signals at most one thread. */
CASE(pool_wakes_a_chain) {
  enum { THREADS = 14, ROUNDS_OF_TASKS = 60 };
  scoped_pool pool = open_pool(THREADS);
  counted_thread = pthread_self();
  for (int round = 0; round < ROUNDS_OF_TASKS; round++) {
    unsigned char random;
    td_fill_random(&random, 1, (uint64_t)round);
    const int count = 1 + random % THREADS;
    meeting meetings[THREADS];
    atomic_int arrived = 0;
    usleep(round % 3 ? 1000 : 0); /* after 1 ms, most threads sleep; without the pause, some still spin */
    tdict_pool_set_max_spinning(pool, THREADS);
    for (int i = 0; i < count; i++) {
      meetings[i] = (meeting){.task = {.run = meet}, .arrived = &arrived, .count = count};
      meetings[i].task.next = i + 1 < count ? &meetings[i + 1].task : NULL;
    }
    atomic_store(&num_signals, 0);
    atomic_store(&is_counting, true);
    if (round % 2) tdict_pool_wake_chain(pool, count);
    tdict_pool_submit_list(pool, &meetings[0].task);
    atomic_store(&is_counting, false);
    assert_true(atomic_load(&num_signals) <= 1 + round % 2);
    while (atomic_load(&arrived) < 2 * count) usleep(50);
  }
  /* threads that are woken without a task do not delay the destruction of the pool */
  tdict_pool_wake_chain(pool, THREADS);
}

CASE(pool_threads_have_names) {
  enum { THREADS = 4 };
  scoped_pool pool = open_pool(THREADS);
  td_rest(); /* a thread sets its name before it sleeps */
  for (int i = 0; i < THREADS; i++) assert_int_equal(td_threads_named(td_text("tdict-pool-%d", i)), 1);
  assert_int_equal(td_threads_named("tdict-*"), THREADS);
}
