/* Results that are built after the starting call: on which thread, with which errors, and with streams that wait. */
#include "transfer/late_result.h"

#include <pthread.h>
#include <sys/wait.h>

#include "support/fail_alloc.h"
#include "transfer/plan/result.h"
#include "trees.h"

/* Notes the threads that build results, and makes building fail on demand. */
static _Atomic(int) num_builds, builds_of_main, fails;
static pthread_t main_thread;
tdict_status __real_tdict_result_build(const tdict_plan *plan, const tdict_tree *src, tdict_storage *arena,
                                       const tdict_device *device, tdict_tree **out, tdict_error *err);
tdict_status __wrap_tdict_result_build(const tdict_plan *plan, const tdict_tree *src, tdict_storage *arena,
                                       const tdict_device *device, tdict_tree **out, tdict_error *err);
tdict_status __wrap_tdict_result_build(const tdict_plan *plan, const tdict_tree *src, tdict_storage *arena,
                                       const tdict_device *device, tdict_tree **out, tdict_error *err) {
  atomic_fetch_add(&num_builds, 1);
  if (pthread_equal(pthread_self(), main_thread)) atomic_fetch_add(&builds_of_main, 1);
  if (atomic_load(&fails)) {
    err->status = TDICT_ENOMEM;
    err->path[0] = 0;
    snprintf(err->message, sizeof err->message, "the test wants this");
    return TDICT_ENOMEM;
  }
  return __real_tdict_result_build(plan, src, arena, device, out, err);
}
static void reset_counts(void) {
  main_thread = pthread_self();
  atomic_store(&num_builds, 0);
  atomic_store(&builds_of_main, 0);
  atomic_store(&fails, 0);
}
static tdict_tree *locked_tree(int kind, tdict_memory *memory) {
  tdict_tree *td = kind ? tiny_tree(memory) : batch_tree(memory);
  tdict_lock(td);
  return td;
}

/* The starting call builds nothing, with any number of threads; after the wait there is one result. */
SIM_CASE(late_result_is_not_built_by_the_call) {
  world w = open_world();
  for (int k = 0; k < 4; k++) {
    tdict_tree *td = locked_tree(k % 2, k / 2 ? w.pinned : NULL);
    for (int i = 1; i < NUM_WAYS; i += 2) {
      const way v = way_at(i);
      tdict_future *f = NULL;
      tdict_tree *out = NULL;
      reset_counts();
      td_ok(tdict_to_device_async(w.c, td, w.device, &v.o, &f, err));
      assert_int_equal(atomic_load(&builds_of_main), 0);
      td_ok(tdict_future_wait(f, &out, err));
      assert_int_equal(atomic_load(&num_builds), 1);
      check_tree(&w, td, out);
      assert_true(tdict_is_locked(out) && !tdict_is_consolidated(out));
      tdict_future_release(f);
      tdict_release(out);
    }
    tdict_release(td);
  }
  close_world(&w);
}

/* A stream may wait, and the result is there, before any byte has moved. */
SIM_CASE(late_result_is_built_before_a_stream_waits) {
  world w = open_world();
  tdict_stream s;
  td_ok(tdict_stream_create(w.c, w.device, &s, err));
  for (int k = 0; k < 4; k++) {
    tdict_tree *td = locked_tree(k % 2, w.pinned), *out = NULL, *end = NULL;
    tdict_transfer_options o = tdict_transfer_options_default();
    o.num_threads = k / 2 ? 0 : 2;
    tdict_future *f = NULL;
    reset_counts();
    td_ok(tdict_sim_hold(w.c, err));
    td_ok(tdict_to_device_async(w.c, td, w.device, &o, &f, err));
    td_ok(tdict_future_wait_on_stream(f, s, &out, err));
    assert_non_null(out);
    assert_false(tdict_future_is_ready(f));
    td_ok(tdict_sim_resume(w.c, err));
    td_ok(tdict_future_wait(f, &end, err));
    assert_ptr_equal(out, end);
    check_tree(&w, td, out);
    assert_int_equal(atomic_load(&num_builds), 1);
    tdict_release(end);
    tdict_release(out);
    tdict_future_release(f);
    tdict_release(td);
  }
  tdict_stream_destroy(w.c, s);
  close_world(&w);
}

/* A failure to build is an error of the future, not of the call. */
SIM_CASE(late_result_fails_in_the_future) {
  world w = open_world();
  tdict_stream s;
  td_ok(tdict_stream_create(w.c, w.device, &s, err));
  for (int k = 0; k < 8; k++) {
    tdict_tree *td = locked_tree(k % 2, k & 2 ? w.pinned : NULL), *out = NULL;
    tdict_transfer_options o = tdict_transfer_options_default();
    o.num_threads = k & 4 ? 0 : -1;
    tdict_future *f = NULL;
    reset_counts();
    atomic_store(&fails, 1);
    td_ok(tdict_to_device_async(w.c, td, w.device, &o, &f, err));
    td_fails(TDICT_ENOMEM, "the test wants this", tdict_future_wait_on_stream(f, s, &out, err));
    td_fails(TDICT_ENOMEM, "the test wants this", tdict_future_wait(f, &out, err));
    assert_null(out);
    assert_int_equal(tdict_future_state(f), TDICT_FUTURE_FAILED);
    tdict_future_release(f);
    /* the tree can be moved again */
    atomic_store(&fails, 0);
    out = to_device(&w, td, w.device);
    check_tree(&w, td, out);
    tdict_release(out);
    tdict_release(td);
  }
  tdict_stream_destroy(w.c, s);
  close_world(&w);
}

/* Cancelled before, while and after the result is built; released without a wait. */
SIM_CASE(late_result_is_cancelled) {
  world w = open_world();
  for (int k = 0; k < 12; k++) {
    tdict_tree *td = locked_tree(k % 2, k & 2 ? w.pinned : NULL), *out = NULL;
    tdict_future *f = NULL;
    tdict_transfer_options o = tdict_transfer_options_default();
    o.num_threads = k >= 8 ? 3 : k < 4 && k % 2 ? 0 : -1; /* with 0, the call must not wait for a slot */
    reset_counts();
    td_ok(tdict_sim_hold(w.c, err));
    td_ok(tdict_to_device_async(w.c, td, w.device, &o, &f, err));
    if (k % 3) td_rest();
    tdict_future_cancel(f);
    tdict_release(td);
    td_ok(tdict_sim_resume(w.c, err));
    if (k % 4 != 3) td_fails(TDICT_ECANCELLED, "cancelled", tdict_future_wait(f, &out, err));
    assert_null(out);
    tdict_future_release(f);
  }
  close_world(&w);
}

/* A transfer that waits for an earlier one, and a transfer that a thread of the pool starts. */
SIM_CASE(late_result_of_waiting_transfers) {
  world w = open_world();
  tdict_tree *td = locked_tree(1, NULL), *source = NULL, *twin = NULL, *out = NULL;
  tdict_future *into = NULL, *f = NULL;
  td_ok(tdict_clone_deep(td, NULL, &twin, err));
  spoil_tree(&w, twin);
  source = to_device(&w, twin, w.device);
  td_ok(tdict_sim_hold(w.c, err));
  td_ok(tdict_transfer_into_async(w.c, td, source, NULL, &into, err));
  td_ok(tdict_to_device_async(w.c, td, w.device, NULL, &f, err));
  td_rest();
  td_ok(tdict_sim_resume(w.c, err));
  td_ok(tdict_future_wait(f, &out, err));
  check_tree(&w, twin, out);
  tdict_release(out);
  td_ok(tdict_future_wait(into, NULL, err));
  tdict_future_release(into);
  tdict_future_release(f);
  tdict_release(source);
  tdict_release(twin);
  tdict_release(td);
  close_world(&w);
}

/* A child unlocks and frees a tree whose transfer runs in the parent. */
SIM_CASE(late_result_fork) {
  world w = open_world();
  tdict_tree *td = locked_tree(1, NULL), *out = NULL;
  tdict_future *f = NULL;
  td_ok(tdict_sim_hold(w.c, err));
  td_ok(tdict_to_device_async(w.c, td, w.device, NULL, &f, err));
  td_rest();
  const pid_t child = fork();
  if (child == 0) {
    tdict_error err;
    alarm(20);
    if (tdict_unlock(td, &err) != TDICT_OK || tdict_delete(td, "group0", &err) != TDICT_OK) _exit(1);
    tdict_release(td);
    tdict_future_release(f);
    _exit(0);
  }
  int code = -1;
  assert_int_equal(waitpid(child, &code, 0), child);
  assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
  td_ok(tdict_sim_resume(w.c, err));
  td_ok(tdict_future_wait(f, &out, err));
  check_tree(&w, td, out);
  tdict_release(out);
  tdict_future_release(f);
  tdict_release(td);
  close_world(&w);
}

/* An _async call without memory: the call fails, or its future does. */
SIM_CASE(late_result_survives_enomem) {
  world w = open_world();
  for (int k = 0; k < 4; k++) {
    tdict_tree *td = locked_tree(k % 2, k / 2 ? w.pinned : NULL);
    tdict_release(to_device(&w, td, w.device));
    for (int64_t n = 0;; n++) {
      tdict_future *f = NULL;
      tdict_tree *out = NULL;
      tdict_error err = {0};
      reset_counts();
      td_fail_alloc(n, false);
      tdict_status status = tdict_to_device_async(w.c, td, w.device, NULL, &f, &err);
      if (status == TDICT_OK) status = tdict_future_wait(f, &out, &err);
      const bool hit = td_fail_alloc_stop();
      if (!hit) assert_int_equal(status, TDICT_OK);
      if (status == TDICT_OK)
        check_tree(&w, td, out);
      else
        assert_int_equal(status, TDICT_ENOMEM);
      tdict_release(out);
      tdict_future_release(f);
      if (!hit) break;
    }
    tdict_release(td);
  }
  close_world(&w);
}
