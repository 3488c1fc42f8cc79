/* Tests tdict_save_async(): snapshots, order, cancellation, errors, and the lifetime of the context. A test can stop
 * the library's pwrite() at a gate. */
#include <errno.h>
#include <sys/wait.h>

#include "random_tree.h"
#include "support/thread_name.h"
#include "support/threads.h"
#include "tdict/io.h"

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER; /* guards: is_closed, num_waiting, num_passed */
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static bool is_closed;
static int num_waiting, num_passed;
ssize_t __real_pwrite(int fd, const void *bytes, size_t count, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t count, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t count, off_t offset) { /* __wrap_pwrite */
  pthread_mutex_lock(&gate_lock);
  num_waiting++;
  pthread_cond_broadcast(&gate_changed);
  while (is_closed) pthread_cond_wait(&gate_changed, &gate_lock);
  num_waiting--;
  num_passed++;
  pthread_mutex_unlock(&gate_lock);
  return __real_pwrite(fd, bytes, count, offset);
}
static void set_gate(bool closed) {
  pthread_mutex_lock(&gate_lock);
  is_closed = closed;
  pthread_cond_broadcast(&gate_changed);
  pthread_mutex_unlock(&gate_lock);
}
static void await_writer(void) {
  pthread_mutex_lock(&gate_lock);
  while (!num_waiting) pthread_cond_wait(&gate_changed, &gate_lock);
  pthread_mutex_unlock(&gate_lock);
}

/* The save that __wrap_renameat() cancels after the new file has its name. */
static tdict_future *to_cancel;
int __real_renameat(int old_folder, const char *old_name, int folder, const char *name);
int __wrap_renameat(int old_folder, const char *old_name, int new_folder, const char *name);
int __wrap_renameat(int old_folder, const char *old_name, int new_folder, const char *name) {
  const int code = __real_renameat(old_folder, old_name, new_folder, name); /* __wrap_renameat */
  tdict_future_cancel(to_cancel);
  return code;
}
static bool refuses_threads;
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user) {
  return refuses_threads ? EAGAIN : __real_pthread_create(thread, attributes, fn, user); /* __wrap_pthread_create */
}

static tdict_tree *tree_of(float first) {
  scoped_tensor t = NULL;
  float values[3000];
  for (int i = 0; i < 3000; i++) values[i] = first + (float)i;
  tdict_tree *tree = td_made(tree, tdict_create(0, NULL, &made, err));
  td_ok(tdict_tensor_from_array(TDICT_F32, TDICT_SHAPE(30, 100), values, &t, err));
  td_ok(tdict_set(tree, "a.b", t, err));
  td_ok(tdict_set_text(tree, "text", "words", err));
  return tree;
}
/* Returns the tree without its text, for formats that hold only tensors. */
static tdict_tree *tensors_of(const tdict_tree *tree) {
  tdict_tree *out = td_made(tree, tdict_clone(tree, &made, err));
  td_ok(tdict_delete(out, "text", err));
  return out;
}
static void check_file(const char *path, const tdict_tree *wanted) {
  scoped_tree found = td_made(tree, tdict_open(path, NULL, &made, err));
  same_trees(found, wanted);
}
static tdict_context *sim_context(size_t memory_bytes) {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context *c = NULL;
  if (memory_bytes) sim.memory_bytes = memory_bytes;
  td_ok(tdict_context_create(td_options(tdict_context_options, device = tdict_sim(0), sim = &sim), &c, err));
  return c;
}
static tdict_tree *move_to(tdict_context *c, const tdict_tree *tree, tdict_device device) {
  return td_made(tree, tdict_to_device(c, tree, device, NULL, &made, err));
}
static tdict_future *begin(tdict_context *c, const char *path, const tdict_tree *tree, tdict_snapshot snapshot) {
  tdict_future *s = NULL;
  td_ok(tdict_save_async(c, path, tree, td_options(tdict_save_options, snapshot = (int32_t)snapshot), &s, err));
  return s;
}
static void end(tdict_future *s) {
  td_ok(tdict_future_wait(s, NULL, err));
  assert_true(tdict_future_is_ready(s));
  td_ok(tdict_future_wait_source(s, err));
  tdict_future_release(s);
}

/* Saves random trees on the host, in pinned memory and on a device, with snapshots of kind AUTO and HOST. After
 * tdict_future_wait_source(), the source is overwritten and gets a new key. */
DEVICE_CASE(saving_writes_what_the_tree_was) {
  scoped_context c = td_context(NULL);
  scoped_folder f = folder_create();
  for (uint64_t seed = 0; seed < 60; seed++) {
    dice d = {seed};
    int64_t batch[2] = {(int64_t)roll(&d, 4), (int64_t)roll(&d, 3)};
    scoped_tree tree = random_tree(&d, (int)roll(&d, 3), batch, 0), source = NULL, wanted = NULL;
    td_ok(tdict_clone_deep(tree, NULL, &wanted, err));
    if (seed % 4 == 3 && td_device().type != TDICT_DEVICE_CPU)
      td_ok(tdict_pin_memory(c, tree, NULL, &source, err));
    else
      source = move_to(c, tree, td_device());
    td_release(tree);
    set_gate(true);
    tdict_future *s = begin(c, in(&f, "t.safetensors"), source, seed % 3 ? TDICT_SNAPSHOT_AUTO : TDICT_SNAPSHOT_HOST);
    td_ok(tdict_future_wait_source(s, err));
    assert_false(tdict_future_is_ready(s));
    (void)!tdict_fill(source, NULL, 0, NULL, NULL);
    (void)!tdict_set_text(source, "more", "words", NULL);
    td_release(source);
    set_gate(false);
    end(s);
    check_file(in(&f, "t.safetensors"), wanted);
  }
}

/* The call returns while the device is held. After the copies, the program may overwrite the source, even before the
 * file is written. */
CASE(saving_returns_before_the_device_has_copied) {
  scoped_context c = sim_context(0);
  scoped_folder f = folder_create();
  for (tdict_snapshot kind = TDICT_SNAPSHOT_AUTO; kind <= TDICT_SNAPSHOT_HOST; kind++) {
    scoped_tree tree = tree_of((float)kind), source = move_to(c, tree, tdict_sim(0));
    td_ok(tdict_sim_hold(c, err));
    set_gate(true);
    tdict_future *s = begin(c, in(&f, "t"), source, kind);
    td_rest();
    assert_false(tdict_future_is_ready(s));
    assert_int_equal(num_waiting, 0);
    assert_int_equal(folder_count(&f, NULL), kind ? 1 : 0);
    td_ok(tdict_sim_resume(c, err));
    td_ok(tdict_future_wait_source(s, err));
    td_ok(tdict_fill(source, NULL, 0, NULL, err));
    await_writer();
    assert_false(tdict_future_is_ready(s));
    set_gate(false);
    end(s);
    check_file(in(&f, "t"), tree);
  }
}

/* A stream that waits for the snapshot may overwrite the source. */
CASE(saving_orders_a_stream_after_the_snapshot) {
  scoped_context c = sim_context(0);
  scoped_folder f = folder_create();
  scoped_tree tree = tree_of(5), source = move_to(c, tree, tdict_sim(0)), other = tree_of(6);
  TD_STREAM(stream, c, tdict_sim(0));
  td_ok(tdict_sim_hold(c, err));
  tdict_future *s = begin(c, in(&f, "t"), source, TDICT_SNAPSHOT_DEVICE);
  td_ok(tdict_future_wait_on_stream(s, stream, NULL, err));
  tdict_future *later = NULL;
  td_ok(tdict_transfer_into_async(c, source, other, td_options(tdict_transfer_options, after = stream), &later, err));
  td_rest();
  assert_false(tdict_future_is_ready(s));
  td_ok(tdict_sim_resume(c, err));
  td_ok(tdict_future_wait(later, NULL, err));
  tdict_future_release(later);
  td_ok(tdict_future_wait(s, NULL, err));
  td_ok(tdict_future_wait_on_stream(s, stream, NULL, err)); /* the save has finished, so there is nothing to wait for */
  end(s);
  check_file(in(&f, "t"), tree);
}

/* If the device has no room, the snapshot is made in host memory, or the call fails if it must be on the device. */
CASE(saving_needs_no_room_on_the_device) {
  enum { FLOATS = 1 << 20 };
  scoped_context c = sim_context((size_t)7 << 20);
  scoped_folder f = folder_create();
  scoped_tree tree = NULL, source = NULL;
  tdict_memory_counts before, after;
  td_ok(tdict_create(0, NULL, &tree, err));
  tdict_tensor *t = td_made(tensor, tdict_tensor_empty(TDICT_F32, TDICT_SHAPE(FLOATS), NULL, &made, err));
  td_fill_random(tdict_tensor_data(t), 4 * FLOATS, 3);
  td_put(tree, "x", t);
  source = move_to(c, tree, tdict_sim(0));
  tdict_future *s = NULL;
  tdict_save_options o = td_with(tdict_save_options, snapshot = TDICT_SNAPSHOT_DEVICE);
  td_fails(TDICT_ENOMEM, "", tdict_save_async(c, in(&f, "t"), source, &o, &s, err));
  assert_null(s);
  /* later saves reuse the pinned memory of the first */
  for (int round = 0; round < 3; round++) {
    before = td_memory_counts(tdict_pinned_memory(c));
    end(begin(c, in(&f, "t"), source, TDICT_SNAPSHOT_AUTO));
    after = td_memory_counts(tdict_pinned_memory(c));
    assert_int_equal(after.live_bytes, before.live_bytes);
    assert_true(after.cached_bytes >= 4 * FLOATS);
    if (round) assert_int_equal(after.num_reused - before.num_reused, 1);
    if (round) assert_int_equal(after.peak_bytes, before.peak_bytes);
  }
  check_file(in(&f, "t"), tree);
  tdict_context_trim(c, tdict_cpu(), 0);
  after = td_memory_counts(tdict_pinned_memory(c));
  assert_int_equal(after.cached_bytes, 0);
}

/* Starts a save that succeeds. If an attempt within the call fails, the call must not write `err`. */
static void check_no_error(tdict_context *c, const char *path, const tdict_tree *tree) {
  tdict_error err, unwritten;
  tdict_future *s = NULL;
  memset(&err, 0x5a, sizeof err);
  unwritten = err;
  assert_int_equal(tdict_save_async(c, path, tree, NULL, &s, &err), TDICT_OK);
  assert_memory_equal(&err, &unwritten, sizeof err);
  end(s);
}

CASE(saving_that_falls_back_writes_no_error) {
  tdict_context_options o = tdict_context_options_default();
  scoped_folder f = folder_create();
  scoped_context c = NULL;
  scoped_tree tree = tree_of(3), source = NULL;
  o.device = tdict_cpu(); /* no pinned memory */
  td_ok(tdict_context_create(&o, &c, err));
  check_no_error(c, in(&f, "a"), tree);
  td_release(c, tree);
  /* no room on the device */
  c = sim_context((size_t)7 << 20);
  td_ok(tdict_create(0, NULL, &tree, err));
  td_put(tree, "x", td_made(tensor, tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(1 << 20), NULL, &made, err)));
  source = move_to(c, tree, tdict_sim(0));
  check_no_error(c, in(&f, "b"), source);
}

CASE(savings_write_in_the_order_of_their_calls) {
  scoped_context c = sim_context(0);
  scoped_folder f = folder_create();
  tdict_tree *trees[4];
  tdict_future *savings[4];
  set_gate(true);
  for (int i = 0; i < 4; i++) {
    trees[i] = tree_of((float)i);
    savings[i] = begin(c, in(&f, "t"), trees[i], TDICT_SNAPSHOT_AUTO);
    if (i == 0) await_writer();
  }
  for (int i = 0; i < 4; i++) td_ok(tdict_future_wait_source(savings[i], err));
  td_rest();
  assert_int_equal(num_waiting, 1);
  assert_int_equal(folder_count(&f, NULL), 1);
  tdict_future_cancel(savings[2]);
  set_gate(false);
  td_ok(tdict_future_wait(savings[3], NULL, err));
  for (int i = 0; i < 3; i++) assert_true(tdict_future_is_ready(savings[i]));
  check_file(in(&f, "t"), trees[3]);
  for (int i = 0; i < 4; i++) {
    if (i == 2)
      td_fails(TDICT_ECANCELLED, "cancelled", tdict_future_wait(savings[i], NULL, err));
    else
      td_ok(tdict_future_wait(savings[i], NULL, err));
    td_release(savings[i], trees[i]);
  }
}

/* Cancels a save before the copies, while the file is written, and after its completion. */
CASE(saving_is_cancelled) {
  scoped_context c = sim_context(0);
  scoped_folder f = folder_create();
  scoped_tree old = tree_of(1), new = tree_of(2), source = move_to(c, new, tdict_sim(0));
  td_ok(tdict_save(c, in(&f, "t"), old, NULL, err));
  td_ok(tdict_sim_hold(c, err));
  tdict_future *s = begin(c, in(&f, "t"), source, TDICT_SNAPSHOT_HOST);
  tdict_future_cancel(s);
  td_ok(tdict_sim_resume(c, err));
  td_fails(TDICT_ECANCELLED, "cancelled", tdict_future_wait(s, NULL, err));
  td_fails(TDICT_ECANCELLED, "cancelled", tdict_future_wait_source(s, err));
  tdict_future_release(s);
  static const tdict_file_format formats[] = {TDICT_FORMAT_SAFETENSORS, TDICT_FORMAT_NPZ};
  for (int i = 0; i < 2; i++) {
    tdict_tree *numbers = i ? tensors_of(source) : tdict_retain(source);
    tdict_save_options o = td_with(tdict_save_options, format = (int32_t)formats[i]);
    set_gate(true);
    td_ok(tdict_save_async(c, in(&f, "t"), numbers, &o, &s, err));
    tdict_release(numbers);
    await_writer();
    assert_int_equal(folder_count(&f, NULL), 2);
    tdict_future_cancel(s);
    set_gate(false);
    td_fails_at(TDICT_ECANCELLED, "cancelled", in(&f, "t"), tdict_future_wait(s, NULL, err));
    td_ok(tdict_future_wait_source(s, err));
    tdict_future_release(s);
    check_file(in(&f, "t"), old);
    assert_int_equal(folder_count(&f, NULL), 1);
  }
  s = begin(c, in(&f, "t"), source, TDICT_SNAPSHOT_AUTO);
  td_ok(tdict_future_wait(s, NULL, err));
  tdict_future_cancel(s);
  end(s);
  check_file(in(&f, "t"), new);
  tdict_future_cancel(NULL);
  tdict_future_release(NULL);
}

/* Cancels a save when the new file is already in place. */
CASE(saving_may_be_cancelled_too_late) {
  scoped_context c = sim_context(0);
  scoped_folder f = folder_create();
  tdict_tree *tree = tree_of(1), *out = NULL;
  set_gate(true);
  tdict_future *s = begin(c, in(&f, "t"), tree, TDICT_SNAPSHOT_AUTO);
  await_writer();
  to_cancel = s;
  set_gate(false);
  td_ok(tdict_future_wait_for(s, INT64_MAX, &out, err));
  to_cancel = NULL;
  assert_null(out); /* a save has no result */
  assert_int_equal(tdict_future_state(s), TDICT_FUTURE_DONE);
  end(s);
  check_file(in(&f, "t"), tree);
  tdict_release(tree);
}

CASE(saving_has_the_statistics_of_its_snapshot) {
  scoped_context c = sim_context(0);
  scoped_folder f = folder_create();
  scoped_tree tree = tree_of(1), source = move_to(c, tree, tdict_sim(0));
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  set_gate(true);
  tdict_future *s = begin(c, in(&f, "t"), source, TDICT_SNAPSHOT_HOST);
  td_ok(tdict_future_wait_source(s, err));
  td_fails(TDICT_EINVAL, "the save has not ended", tdict_future_get_stats(s, &stats, err));
  set_gate(false);
  td_ok(tdict_future_wait(s, NULL, err));
  td_ok(tdict_future_get_stats(s, &stats, err));
  assert_int_equal(stats.num_leaves, 1);
  assert_int_equal(stats.total_bytes, 12000);
  assert_int_equal(stats.direct_bytes, 12000); /* copied from the device to pinned memory */
  assert_true(stats.total_seconds > 0 && stats.total_seconds >= stats.plan_seconds);
  end(s);
}

/* Opens the gate when all other threads sleep. Returns NULL unless the context was already destroyed. */
static void *open_gate(void *user) {
  _Atomic(bool) *is_destroyed = user;
  td_rest();
  const bool was_early = *is_destroyed;
  set_gate(false);
  return was_early ? user : NULL;
}
CASE(saving_keeps_the_context_alive) {
  scoped_folder f = folder_create();
  for (int round = 0; round < 2; round++) {
    tdict_context *c = sim_context(0);
    scoped_tree tree = tree_of(3), source = move_to(c, tree, round ? tdict_sim(0) : tdict_cpu());
    _Atomic(bool) is_destroyed = false;
    void *was_early = NULL;
    set_gate(true);
    tdict_future *s = begin(c, in(&f, "t"), source, TDICT_SNAPSHOT_AUTO);
    await_writer();
    td_release(source);
    pthread_t thread = td_start(open_gate, &is_destroyed);
    if (round) tdict_future_release(s); /* no thread waits for the save */
    tdict_context_destroy(c);
    is_destroyed = true;
    assert_int_equal(pthread_join(thread, &was_early), 0);
    assert_null(was_early);
    if (!round) end(s);
    check_file(in(&f, "t"), tree);
  }
}

static char logged[512];
static _Atomic(int) num_logged;
static void note_log(void *user, int32_t level, const char *text) {
  (void)user, (void)level;
  if (!strstr(text, "a save failed and no call returned its error")) return;
  num_logged++;
  snprintf(logged, sizeof logged, "%s", text);
}
/* Every tdict_future_wait() returns the error of the file. An error that no call has returned is logged. */
CASE(saving_returns_errors_from_wait) {
  tdict_context *c = NULL;
  scoped_folder f = folder_create();
  scoped_tree tree = tree_of(1);
  td_ok(tdict_context_create(td_options(tdict_context_options, device = tdict_cpu(), log = note_log), &c, err));
  tdict_future *s = begin(c, in(&f, "none/t"), tree, TDICT_SNAPSHOT_AUTO);
  for (int i = 0; i < 2; i++) {
    td_fails(TDICT_EIO, "/none/' does not exist", tdict_future_wait(s, NULL, err));
    assert_int_equal(td_last_error.native, ENOENT);
    assert_string_equal(td_last_error.path, in(&f, "none/t"));
  }
  td_ok(tdict_future_wait_source(s, err));
  tdict_future_release(s);
  s = begin(c, in(&f, "none/t"), tree, TDICT_SNAPSHOT_AUTO);
  assert_int_equal(tdict_future_take(s, NULL, NULL), TDICT_EIO);
  s = begin(c, in(&f, "none/t"), tree, TDICT_SNAPSHOT_AUTO);
  tdict_future_release(s); /* perhaps before the save fails */
  tdict_context_destroy(c);
  assert_int_equal(num_logged, 2);
  assert_non_null(strstr(logged, "/none/' does not exist"));
}

CASE(saving_refuses_wrong_arguments) {
  scoped_context c = sim_context(0);
  scoped_folder f = folder_create();
  scoped_tree tree = tree_of(1), empty = NULL;
  tdict_future *s = NULL;
  td_fails(TDICT_EINVAL, "context", tdict_save_async(NULL, in(&f, "t"), tree, NULL, &s, err));
  td_fails(TDICT_EINVAL, "out", tdict_save_async(c, in(&f, "t"), tree, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "path", tdict_save_async(c, NULL, tree, NULL, &s, err));
  td_fails(TDICT_EINVAL, "tree", tdict_save_async(c, in(&f, "t"), NULL, NULL, &s, err));
  tdict_save_options o = td_with(tdict_save_options, snapshot = TDICT_SNAPSHOT_HOST + 1);
  td_fails(TDICT_EINVAL, "tdict_snapshot", tdict_save_async(c, in(&f, "t"), tree, &o, &s, err));
  o.snapshot = TDICT_SNAPSHOT_DEVICE;
  td_fails(TDICT_EINVAL, "one device", tdict_save_async(c, in(&f, "t"), tree, &o, &s, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_future_wait(NULL, NULL, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_future_wait_source(NULL, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_future_wait_on_stream(NULL, (tdict_stream){0}, NULL, err));
  assert_null(s);
  /* a tree without tensors, which changes after the call */
  td_ok(tdict_create(0, NULL, &empty, err));
  td_ok(tdict_set_text(empty, "text", "old", err));
  set_gate(true);
  s = begin(c, in(&f, "t"), empty, TDICT_SNAPSHOT_AUTO);
  td_ok(tdict_set_text(empty, "text", "new", err));
  set_gate(false);
  end(s);
  td_ok(tdict_set_text(empty, "text", "old", err));
  check_file(in(&f, "t"), empty);
}

/* If no thread can be started, the call itself writes the file. */
CASE(saving_without_a_thread) {
  scoped_context c = sim_context(0);
  scoped_folder f = folder_create();
  scoped_tree tree = tree_of(1), source = move_to(c, tree, tdict_sim(0));
  refuses_threads = true;
  tdict_future *s = begin(c, in(&f, "t"), source, TDICT_SNAPSHOT_AUTO);
  refuses_threads = false;
  assert_true(tdict_future_is_ready(s));
  end(s);
  check_file(in(&f, "t"), tree);
}

CASE(saving_in_a_forked_process) {
  scoped_context c = sim_context(0);
  scoped_folder f = folder_create();
  scoped_tree tree = tree_of(1), source = move_to(c, tree, tdict_sim(0));
  set_gate(true);
  tdict_future *s = begin(c, in(&f, "t"), source, TDICT_SNAPSHOT_AUTO);
  await_writer();
  const pid_t child = fork();
  if (child == 0) {
    tdict_future *other = NULL;
    const bool good = tdict_future_wait(s, NULL, NULL) == TDICT_EFORKED && !tdict_future_is_ready(s) &&
                      tdict_future_wait_source(s, NULL) == TDICT_OK &&
                      tdict_save_async(c, "t", tree, NULL, &other, NULL) == TDICT_EFORKED;
    tdict_future_cancel(s);
    tdict_future_release(s);
    _exit(good ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  set_gate(false);
  end(s);
  check_file(in(&f, "t"), tree);
}

CASE(saving_without_memory) {
  scoped_context c = sim_context(0);
  scoped_folder f = folder_create();
  scoped_tree tree = tree_of(1), source = move_to(c, tree, tdict_sim(0));
  end(begin(c, in(&f, "t"), source, TDICT_SNAPSHOT_AUTO));
  for (int64_t n = 0;; n++) {
    tdict_error error;
    tdict_future *s = NULL;
    refuses_threads = n % 2; /* without threads, this thread makes the writer's allocations, which then fail, too */
    td_fail_alloc(n / 2, false);
    tdict_status status = tdict_save_async(c, in(&f, "t"), source, NULL, &s, &error);
    const bool failed = td_fail_alloc_stop();
    refuses_threads = false;
    assert_true(!status == !!s);
    if (status == TDICT_OK) status = tdict_future_wait(s, NULL, &error);
    assert_true(status == TDICT_OK || (failed && status == TDICT_ENOMEM));
    tdict_future_release(s);
    check_file(in(&f, "t"), tree);
    assert_int_equal(folder_count(&f, NULL), 1);
    if (!failed && n % 2) break;
    assert_true(n < 2000);
  }
}

/* The thread of a save has a name. If no thread can be started, the caller writes the file, and keeps its own name. */
CASE(saving_thread_has_a_name) {
  scoped_context c = sim_context(0);
  scoped_folder f = folder_create();
  scoped_tree tree = tree_of(3);
  char before[32], after[32];
  for (int starts = 0; starts < 2; starts++) {
    refuses_threads = !starts;
    set_gate(starts);
    pthread_getname_np(pthread_self(), before, sizeof before);
    tdict_future *s = begin(c, in(&f, "t"), tree, TDICT_SNAPSHOT_AUTO);
    if (starts) await_writer();
    assert_int_equal(td_threads_named("tdict-save"), starts);
    pthread_getname_np(pthread_self(), after, sizeof after);
    assert_string_equal(after, before);
    set_gate(false);
    end(s);
    check_file(in(&f, "t"), tree);
  }
}
