/* Tests fork() in a process with a context. In the child, calls that need threads or a driver fail with TDICT_EFORKED,
 * and calls that free something neither hang nor crash. The parent is not affected. */
#include "pair.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include "core/ops/visit.h"
#include "device/sim/queue.h"
#include "engine/transfer.h"
#include "support/threads.h"

/* An assert for the child: if the condition is false, prints a message and exits with status 1. cmocka's asserts work
 * only in the parent. */
#define CHILD(true_one)                                                              \
  do {                                                                               \
    if (!(true_one)) {                                                               \
      fprintf(stderr, "in the child, line %d: not true: %s\n", __LINE__, #true_one); \
      _exit(1);                                                                      \
    }                                                                                \
  } while (0)

typedef struct family {
  place w;
  tdict_tree *host, *dev, *pinned, *dst; /* dst: on the device, the destination of `pending` */
  tdict_future *pending, *done;
  tdict_stream s;
  void *cached; /* memory of the parent's pinned pool, not mapped in the child */
} family;
enum { CACHED_BYTES = 4 << 20 };

static void refuse_transfers(family *f) {
  tdict_error err = {0};
  tdict_tree *out = NULL;
  tdict_future *future = NULL;
  tdict_context *c = f->w.c;
  CHILD(tdict_to_device(c, f->host, f->w.device, NULL, &out, &err) == TDICT_EFORKED);
  CHILD(err.status == TDICT_EFORKED && strstr(err.message, "fork"));
  CHILD(tdict_to_device_async(c, f->host, f->w.device, NULL, &future, NULL) == TDICT_EFORKED);
  CHILD(tdict_to_device(c, f->dev, tdict_cpu(), NULL, &out, NULL) == TDICT_EFORKED);
  CHILD(tdict_transfer_into(c, f->dst, f->host, NULL, NULL) == TDICT_EFORKED);
  CHILD(tdict_transfer_into_async(c, f->dst, f->host, NULL, &future, NULL) == TDICT_EFORKED);
  CHILD(tdict_pin_memory(c, f->host, NULL, &out, NULL) == TDICT_EFORKED);
  CHILD(tdict_record_stream(f->dev, f->s, NULL) == TDICT_EFORKED);
  probe p = {0};
  pair x = {.p = &p};
  void *object = NULL;
  CHILD(tdict_pin_object(c, &pair_hooked, &x, NULL, &object, NULL) == TDICT_EFORKED);
  CHILD(!out && !future && !object);
}
static void refuse_waits(family *f) {
  tdict_error err = {0};
  scoped_tree out = NULL;
  if (f->pending) {
    CHILD(tdict_future_wait(f->pending, &out, &err) == TDICT_EFORKED);
    CHILD(strstr(err.message, "fork") != NULL);
    CHILD(tdict_future_wait_for(f->pending, (int64_t)3600 * 1000000000, &out, NULL) == TDICT_EFORKED);
    CHILD(tdict_future_wait_on_stream(f->pending, f->s, &out, NULL) == TDICT_EFORKED);
    CHILD(tdict_future_wait_source(f->pending, NULL) == TDICT_EFORKED);
    CHILD(!tdict_future_is_ready(f->pending));
    tdict_future_cancel(f->pending);
    (void)tdict_const_data(f->dst, "a"); /* no thread in the child will end the transfer, so the calls must not wait */
    (void)tdict_data(f->dst, "a");
  }
  CHILD(!out);
  CHILD(tdict_future_wait(f->done, &out, NULL) == TDICT_OK); /* the transfer ended before the fork */
}
static void refuse_memory(family *f) {
  tdict_tensor *t = NULL;
  tdict_stream s = {0};
  tdict_device_counts counts;
  tdict_context *c = f->w.c;
  const int64_t count = 100, cached = CACHED_BYTES;
  CHILD(tdict_tensor_empty(TDICT_U8, 1, &cached, f->w.pinned, &t, NULL) == TDICT_EFORKED); /* cached by the parent */
  CHILD(tdict_tensor_empty(TDICT_U8, 1, &count, f->w.pinned, &t, NULL) == TDICT_EFORKED);
  CHILD(tdict_tensor_empty(TDICT_U8, 1, &count, f->w.memory, &t, NULL) == TDICT_EFORKED);
  CHILD(tdict_tensor_zeros(TDICT_U8, 1, &count, tdict_device_memory(c, f->w.device), &t, NULL) == TDICT_EFORKED);
  CHILD(tdict_tensor_clone(td_leaf(f->dev, "a"), NULL, &t, NULL) == TDICT_EFORKED); /* would copy from the device */
  CHILD(tdict_stream_create(c, f->w.device, &s, NULL) == TDICT_EFORKED);
  CHILD(tdict_context_get_counts(c, f->w.device, &counts, NULL) == TDICT_EFORKED);
  CHILD(!t && !s.handle);
}
/* Checks that the child can read and use ordinary memory. */
static void use_host(family *f) {
  unsigned char want[16];
  scoped_tree td = NULL;
  scoped_tensor t = NULL;
  td_fill_random(want, sizeof want, number_of_leaf(1, 0));
  const unsigned char *a = tdict_const_data(f->host, "a");
  CHILD(a && memcmp(a, want, sizeof want) == 0);
  CHILD(tdict_create(0, NULL, &td, NULL) == TDICT_OK);
  CHILD(tdict_tensor_clone(td_leaf(f->host, "a"), NULL, &t, NULL) == TDICT_OK);
  CHILD(tdict_set(td, "a", t, NULL) == TDICT_OK);
}
/* The child may map its own pages at the address of the parent's pinned pages. The library must not free them. */
static void keep_own_pages(family *f) {
  unsigned char *own =
      mmap(f->cached, CACHED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  bool hole = own == f->cached; /* false: other pages are mapped there */
  if (hole) memset(own, 7, CACHED_BYTES);
  tdict_context_trim(f->w.c, tdict_cpu(), 0);
  for (size_t i = 0; hole && i < CACHED_BYTES; i += 4096) CHILD(own[i] == 7);
}
static void let_all_go(family *f) {
  keep_own_pages(f);
  tdict_context_trim(f->w.c, f->w.device, 0);
  tdict_stream_destroy(f->w.c, f->s);
  td_release(f->pending, f->done, f->host, f->dev, f->pinned, f->dst, f->w.c);
}
static void live_as_child(family *f) {
  alarm(30); /* kills a child that hangs; the parent then sees the signal */
  refuse_transfers(f);
  refuse_waits(f);
  refuse_memory(f);
  use_host(f);
  let_all_go(f);
  _exit(0);
}

static family begin_family(void) {
  family f = {.w = place_open(4)};
  bool sim = f.w.device.type == TDICT_DEVICE_SIM;
  f.host = numbered_tree(&f.w, NULL, 1);
  f.dev = moved(&f.w, f.host, f.w.device);
  f.dst = numbered_tree(&f.w, NULL, 0);
  td_ok(tdict_pin_memory(f.w.c, f.host, NULL, &f.pinned, err));
  tdict_release(f.pinned); /* leaves a cached block */
  td_ok(tdict_pin_memory(f.w.c, f.host, NULL, &f.pinned, err));
  tdict_tensor *big = new_bytes(CACHED_BYTES, f.w.pinned);
  f.cached = big->data;
  tdict_tensor_release(big);
  f.s = new_stream(&f.w);
  f.done = move_async(&f.w, f.host, f.w.device, NULL);
  td_ok(tdict_future_wait(f.done, NULL, err));
  td_rest(); /* until the context's threads sleep */
  if (sim) {
    hold(&f.w);
    f.pending = copy_async(&f.w, f.dev, f.dst, NULL);
    check_pending(f.pending);
  }
  return f;
}
static void end_family(family *f) {
  if (f->pending) {
    resume(&f->w);
    finish_copy(f->pending);
    check_tree_number(&f->w, f->dst, 1);
  }
  tdict_future_release(f->done);
  tdict_tree *again = moved(&f->w, f->host, f->w.device);
  check_tree_number(&f->w, again, 1);
  check_tree_number(&f->w, f->dev, 1);
  check_tree_number(&f->w, f->pinned, 1);
  td_release(again, f->host, f->dev, f->pinned, f->dst);
  tdict_stream_destroy(f->w.c, f->s);
  place_close(&f->w);
}
#define scoped_family TD_SCOPED(end_family, family)

/* Waits until the child has ended, without a failed check. */
static void expect_good_end(pid_t child) {
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) fail_msg("the child was killed by signal %d", WTERMSIG(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

GPU_CASE(fork_is_refused) {
  for (int i = 0; i < 3; i++) {
    scoped_family f = begin_family();
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) live_as_child(&f);
    expect_good_end(child);
  }
}

/* Other threads may hold locks at the fork. In the child, no thread unlocks them, so calls must not take them. */
GPU_CASE(fork_ignores_locks_of_other_threads) {
  scoped_family f = begin_family();
  tdict_future *futures[] = {f.done, f.pending};
  for (int i = 0; i < 2 && futures[i]; i++) {
    pthread_mutex_lock(&futures[i]->ended.lock);
    pthread_mutex_lock(&((tdict_transfer *)futures[i])->queued.lock);
    pthread_mutex_lock(&futures[i]->error_lock);
  }
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    tdict_transfer_stats stats = tdict_transfer_stats_default();
    tdict_tree *out = NULL;
    alarm(30);
    CHILD(tdict_future_state(f.done) == TDICT_FUTURE_DONE);
    CHILD(tdict_future_is_ready(f.done));
    CHILD(tdict_future_get_stats(f.done, &stats, NULL) == TDICT_OK);
    CHILD(tdict_future_wait_for(f.done, 0, NULL, NULL) == TDICT_OK);
    CHILD(tdict_future_wait_on_stream(f.done, f.s, &out, NULL) == TDICT_OK && out);
    if (f.pending) refuse_waits(&f);
    if (f.pending) CHILD(tdict_future_state(f.pending) == TDICT_FUTURE_PENDING);
    tdict_future_cancel(f.pending);
    td_release(f.pending, f.done);
    _exit(0);
  }
  for (int i = 0; i < 2 && futures[i]; i++) {
    pthread_mutex_unlock(&futures[i]->ended.lock);
    pthread_mutex_unlock(&((tdict_transfer *)futures[i])->queued.lock);
    pthread_mutex_unlock(&futures[i]->error_lock);
  }
  expect_good_end(child);
}

/* Locks or unlocks all locks that calls can take, as if other threads of the parent were inside calls. */
static void lock_all(family *f, bool locks) {
  tdict_engine *e = tdict_context_engine(f->w.c);
  int (*fn)(pthread_mutex_t * lock) = locks ? pthread_mutex_lock : pthread_mutex_unlock;
  pthread_mutex_t *all[] = {&e->lock,        &e->rings.list_lock,  &e->used_plan.lock,     &e->tracer.lock,
                            &f->w.gpu->lock, &f->w.gpu->kept.lock, &f->w.gpu->bounce_lock, &f->w.gpu->queue_lock};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) assert_int_equal(fn(all[i]), 0);
  if (f->w.device.type != TDICT_DEVICE_SIM) return;
  assert_int_equal(fn(&tdict_sim_driver_of(tdict_driver_innermost(f->w.d))->lock), 0);
}
static void nothing(void *user) { (void)user; }
static tdict_status see_leaf(void *user, const tdict_leaves *at, tdict_error *err) {
  (void)err;
  *(size_t *)user += at->count;
  return TDICT_OK;
}
static void refuse_streams(family *f) {
  tdict_context *c = f->w.c;
  tdict_device_counts counts;
  tdict_memory_counts memory;
  tdict_stream s;
  CHILD(tdict_stream_synchronize(c, f->s, NULL) == TDICT_EFORKED);
  CHILD(tdict_stream_create(c, f->w.device, &s, NULL) == TDICT_EFORKED);
  CHILD(tdict_record_stream(f->dev, f->s, NULL) == TDICT_EFORKED);
  CHILD(tdict_context_get_counts(c, f->w.device, &counts, NULL) == TDICT_EFORKED);
  tdict_memory_get_counts(f->w.memory, &memory);
  tdict_memory_get_counts(f->w.pinned, &memory);
  CHILD(tdict_device_memory(c, f->w.device) == f->w.memory);
  CHILD(tdict_device_memory(c, tdict_cuda(77)) != NULL);
  CHILD(tdict_context_num_threads(c) > 0);
  CHILD(tdict_device_equal(tdict_context_device(c, NULL), f->w.device));
  tdict_context_trim(c, f->w.device, 0);
  tdict_context_trim(c, tdict_cpu(), 0);
  tdict_stream_destroy(c, f->s);
  if (f->w.device.type != TDICT_DEVICE_SIM) return;
  CHILD(tdict_sim_hold(c, NULL) == TDICT_EFORKED);
  CHILD(tdict_sim_step(c, 1, NULL) == TDICT_EFORKED);
  CHILD(tdict_sim_resume(c, NULL) == TDICT_EFORKED);
  CHILD(tdict_sim_launch(f->s, nothing, NULL, NULL) == TDICT_EFORKED);
  CHILD(tdict_sim_host_pointer(f->s, td_leaf(f->dev, "a")->data) == NULL);
}
/* Checks that tdict_visit() visits all leaves on the caller, because the pool has no threads in the child. */
static void visit_alone(family *f) {
  size_t seen = 0;
  const tdict_tree *one = f->host;
  CHILD(tdict_visit(f->w.c, &one, 1, see_leaf, &seen, NULL, NULL) == TDICT_OK);
  CHILD(seen == NUM_NUMBERED);
  CHILD(tdict_context_pool(f->w.c) == NULL); /* a thread of the parent may hold the pool's lock */
}

GPU_CASE(fork_holds_all_locks) {
  scoped_family f = begin_family();
  lock_all(&f, true);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    alarm(30);
    refuse_streams(&f);
    refuse_transfers(&f);
    refuse_waits(&f);
    visit_alone(&f);
    CHILD(tdict_trace_start(f.w.c, NULL, NULL) == TDICT_EFORKED);
    tdict_trace_stop(f.w.c);
    CHILD(tdict_trace_write(f.w.c, "/dev/null", NULL) == TDICT_EFORKED);
    let_all_go(&f);
    _exit(0);
  }
  lock_all(&f, false);
  assert_true(child >= 0);
  expect_good_end(child);
}

typedef struct mover {
  place *w;
  const tdict_tree *src;
  atomic_bool stops, fails;
} mover;
static void *move_often(void *user) {
  mover *m = user;
  while (!atomic_load(&m->stops) && !atomic_load(&m->fails)) {
    tdict_future *f[3] = {NULL};
    for (int i = 0; i < 3; i++)
      if (tdict_to_device_async(m->w->c, m->src, m->w->device, NULL, &f[i], NULL) != TDICT_OK)
        atomic_store(&m->fails, true);
    for (int i = 0; i < 3; i++) {
      if (f[i] && tdict_future_wait(f[i], NULL, NULL) != TDICT_OK) atomic_store(&m->fails, true);
      tdict_future_release(f[i]);
    }
  }
  return NULL;
}

/* Forks while another thread moves trees. In the child, accessors of the parent's trees must not wait. */
SIM_CASE(fork_while_pointers_are_requested) {
  enum { FORKS = 100 };
  scoped_place w = place_open(3);
  scoped_tree src = numbered_tree(&w, NULL, 1);
  mover m = {.w = &w, .src = src};
  pthread_t thread = td_start(move_often, &m);
  fflush(NULL);
  for (int i = 0; i < FORKS; i++) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      alarm(30);
      CHILD(tdict_const_data(src, "a") != NULL);
      CHILD(tdict_data(src, "a") != NULL);
      _exit(0);
    }
    expect_good_end(child);
  }
  atomic_store(&m.stops, true);
  pthread_join(thread, NULL);
  assert_false(atomic_load(&m.fails));
}

/* The child can create its own context and use it. */
SIM_CASE(fork_makes_a_context_of_its_own) {
  if (THREAD_SANITIZED) td_skip("ThreadSanitizer allows no new threads after a fork");
  scoped_family f = begin_family();
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    tdict_context_options o = place_options(2);
    tdict_context *c = NULL;
    tdict_tree *out = NULL, *back = NULL;
    unsigned char want[16];
    alarm(30);
    o.device = tdict_sim(0);
    CHILD(tdict_context_create(&o, &c, NULL) == TDICT_OK);
    CHILD(tdict_to_device(c, f.host, tdict_sim(0), NULL, &out, NULL) == TDICT_OK);
    CHILD(tdict_to_device(c, out, tdict_cpu(), NULL, &back, NULL) == TDICT_OK);
    td_fill_random(want, sizeof want, number_of_leaf(1, 0));
    CHILD(memcmp(tdict_const_data(back, "a"), want, sizeof want) == 0);
    td_release(out, back, c);
    _exit(0);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}
