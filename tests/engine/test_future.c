/* Tests futures: waits, polls, failures, early releases and statistics. */
#include "core/base/clock.h"
#include "support/guarded.h"
#include "trees.h"
#include "wrap.h"

SIM_CASE(future_wait_for_times_out) {
  scoped_place w = open_wrapped(NULL);
  tdict_tree *src = batch_tree(NULL), *const mark = src, *out = mark;
  td_ok(tdict_sim_hold(w.c, err));
  tdict_future *f = move_async(&w, src, w.device, NULL);
  td_fails(TDICT_ETIMEDOUT, "", tdict_future_wait_for(f, 0, &out, err));
  const int64_t begin = tdict_now_ns();
  td_fails(TDICT_ETIMEDOUT, "30000000", tdict_future_wait_for(f, 30000000, &out, err));
  assert_true(tdict_now_ns() - begin >= 30000000);
  td_fails(TDICT_EINVAL, "-1", tdict_future_wait_for(f, -1, &out, err));
  assert_ptr_equal(out, mark);
  td_ok(tdict_sim_resume(w.c, err));
  td_ok(tdict_future_wait_for(f, INT64_MAX, &out, err)); /* no overflow */
  check_and_release(&w, src, out);
  td_ok(tdict_future_wait_for(f, 0, &out, err)); /* the transfer has ended */
  td_ok(tdict_future_wait_for(f, 0, NULL, err));
  td_release(f, out, src);
}

SIM_CASE(future_poll) {
  scoped_place w = open_wrapped(NULL);
  scoped_tree src = batch_tree(NULL);
  td_ok(tdict_sim_hold(w.c, err));
  scoped_future f = move_async(&w, src, w.device, NULL);
  td_rest();
  assert_false(tdict_future_is_ready(f));
  assert_int_equal(tdict_future_state(f), TDICT_FUTURE_PENDING);
  td_ok(tdict_sim_resume(w.c, err));
  td_ok(tdict_future_wait(f, NULL, err));
  assert_true(tdict_future_is_ready(f));
  assert_int_equal(tdict_future_state(f), TDICT_FUTURE_DONE);
  tdict_future_release(f);
  fail_call(CALL_COPY, 1);
  f = move_async(&w, src, w.device, NULL);
  td_fails(TDICT_EDEVICE, "", tdict_future_wait(f, NULL, err));
  assert_true(tdict_future_is_ready(f));
  assert_int_equal(tdict_future_state(f), TDICT_FUTURE_FAILED);
  tdict_future_release(f);
  /* if nothing is copied, the transfer has ended when the call returns */
  scoped_tree there = to_device(&w, src, w.device), out = NULL;
  f = move_async(&w, there, w.device, NULL);
  assert_int_equal(tdict_future_state(f), TDICT_FUTURE_DONE);
  td_ok(tdict_future_wait(f, &out, err));
  assert_ptr_equal(out, there);
}

GPU_CASE(future_reports_failure) {
  scoped_place w = open_wrapped(NULL);
  tdict_tree *src = new_tree(), *const mark = src, *out = mark, *there = NULL;
  td_put(src, "fine", random_tensor(TDICT_U8, SHAPE(SLOT), NULL));             /* fills a slot */
  td_put(src, "a.b\\.c.at_fault", random_tensor(TDICT_U8, SHAPE(SLOT), NULL)); /* fills the next slot */
  there = to_device(&w, src, w.device);
  fail_call(CALL_COPY, 2);
  tdict_transfer_options o = threads(1);
  tdict_future *f = move_async(&w, src, w.device, &o);
  for (int i = 0; i < 3; i++) {
    td_fails_at(TDICT_EDEVICE, "999", "a.b\\.c.at_fault", tdict_future_wait(f, &out, err));
    assert_int_equal(td_last_error.native, TDICT_CU_UNKNOWN);
    td_fails(TDICT_EDEVICE, "", tdict_future_wait_for(f, 0, &out, err));
  }
  assert_int_equal(tdict_future_wait(f, NULL, NULL), TDICT_EDEVICE);
  assert_ptr_equal(out, mark);
  tdict_future_release(f);
  /* for transfer_into, the error has the path in the source, even if the source has changed in the meantime */
  fail_call(CALL_COPY, 2);
  td_ok(tdict_transfer_into_async(w.c, there, src, &o, &f, err));
  td_ok(tdict_delete(src, "a", err));
  td_fails_at(TDICT_EDEVICE, "", "a.b\\.c.at_fault", tdict_future_wait(f, &out, err));
  td_release(f, there, src);
  td_fails(TDICT_EINVAL, "NULL", tdict_future_wait(NULL, &out, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_future_wait_for(NULL, 0, &out, err));
}

static char logged[512];
static void note_log(void *user, int32_t level, const char *text) {
  (void)user, (void)level;
  if (strstr(text, "no call returned")) snprintf(logged, sizeof logged, "%s", text);
}
/* If the last reference of a future is released before a call has returned its error, the error is logged. */
SIM_CASE(future_take_releases) {
  place w = open_wrapped(td_options(tdict_context_options, staging_bytes = STAGING, log = note_log));
  tdict_tree *src = batch_tree(NULL), *const mark = src, *out = mark;
  td_ok(tdict_future_take(move_async(&w, src, w.device, NULL), &out, err));
  check_and_release(&w, src, out);
  td_ok(tdict_future_take(move_async(&w, src, w.device, NULL), NULL, err));
  out = mark;
  for (int with_error = 1; with_error >= 0; with_error--) {
    tdict_error error;
    logged[0] = 0;
    fail_call(CALL_COPY, 1);
    assert_int_equal(tdict_future_take(move_async(&w, src, w.device, NULL), &out, with_error ? &error : NULL),
                     TDICT_EDEVICE);
    if (with_error) assert_string_equal(logged, "");
  }
  assert_ptr_equal(out, mark);
  td_fails(TDICT_EINVAL, "NULL", tdict_future_take(NULL, &out, err));
  tdict_release(src);
  place_close(&w); /* waits for the thread that ended the transfer */
  assert_non_null(strstr(logged, "a transfer failed and no call returned its error"));
}

GPU_CASE(future_stats) {
  scoped_place w = open_place();
  const tdict_transfer_stats nothing = tdict_transfer_stats_default();
  tdict_tree *src = batch_tree(NULL), *there = NULL;
  size_t bytes = tdict_bytes(src);
  for (int i = 0; i < NUM_WAYS; i++) {
    const way v = way_at(i);
    tdict_transfer_stats s = nothing;
    tdict_future *f = move_async(&w, src, w.device, &v.o);
    td_ok(tdict_future_wait(f, NULL, err));
    td_ok(tdict_future_get_stats(f, &s, err));
    tdict_future_release(f);
    bool pins = v.o.mode == TDICT_MODE_AUTO || v.o.mode == TDICT_MODE_NON_BLOCKING_PIN;
    assert_int_equal(s.struct_size, sizeof s);
    assert_int_equal(s.num_leaves, 7);
    assert_int_equal(s.num_shared_leaves, 0);
    assert_int_equal(s.total_bytes, bytes);
    assert_int_equal(s.staged_bytes, pins ? bytes : 0);
    assert_int_equal(s.pageable_bytes, pins ? 0 : bytes);
    assert_int_equal(s.direct_bytes, 0);
    assert_int_equal(s.host_bytes, 0);
    assert_int_equal(s.mode, pins ? TDICT_MODE_NON_BLOCKING_PIN : v.o.mode);
    assert_int_equal(s.pin_path, pins ? TDICT_PIN_DRIVER : TDICT_PIN_NONE); /* a ring of 1 MiB is not registered */
    assert_int_equal(s.num_chunks, pins ? (line_bytes(src) + SLOT - 1) / (SLOT) : 7);
    assert_in_range(s.num_threads, 1, !pins || v.o.num_threads == 0 ? 1 : v.o.num_threads > 0 ? v.o.num_threads : 8);
    assert_in_range(s.peak_staging_bytes, pins ? SLOT : 0, pins ? STAGING : 0);
    assert_true(s.plan_seconds >= 0 && s.copy_seconds >= 0 && s.wait_seconds >= 0 && s.cpu_seconds >= 0);
    assert_true(s.total_seconds > 0 && s.total_seconds < 60 && s.plan_seconds <= s.total_seconds);
  }
  /* transfers from pinned memory, to pinned memory, and within the host */
  tdict_tree *pinned = batch_tree(w.pinned);
  way v = way_at(0);
  tdict_transfer_stats s = nothing;
  v.o.stats = &s;
  there = move_tree(&w, pinned, w.device, &v);
  assert_int_equal(s.direct_bytes, bytes);
  assert_int_equal(s.staged_bytes + s.pageable_bytes + s.host_bytes, 0);
  assert_true(s.peak_pinned_bytes >= line_bytes(src));
  v.o.pinned_result = true;
  tdict_tree *back = move_tree(&w, there, tdict_cpu(), &v);
  assert_int_equal(s.direct_bytes, bytes);
  assert_int_equal(s.pin_path, TDICT_PIN_DRIVER);
  v.o.pinned_result = false;
  tdict_tree *plain = move_tree(&w, there, tdict_cpu(), &v);
  assert_int_equal(s.staged_bytes, bytes);
  copy_tree(&w, plain, src, &v);
  assert_int_equal(s.host_bytes, bytes);
  assert_int_equal(s.direct_bytes + s.staged_bytes + s.pageable_bytes, 0);
  check_tree(&w, pinned, src);
  tdict_tree *same = move_tree(&w, there, w.device, &v);
  assert_int_equal(s.num_leaves, 7);
  assert_int_equal(s.num_shared_leaves, 7);
  assert_int_equal(s.total_bytes, 0);
  tdict_tree *trees[] = {src, there, pinned, back, plain, same};
  for (size_t i = 0; i < 6; i++) tdict_release(trees[i]);
}

SIM_CASE(future_stats_refuses) {
  scoped_place w = open_wrapped(NULL);
  scoped_tree src = batch_tree(NULL);
  tdict_transfer_stats s = tdict_transfer_stats_default(), zero = s;
  td_ok(tdict_sim_hold(w.c, err));
  scoped_future f = move_async(&w, src, w.device, NULL);
  td_fails(TDICT_EINVAL, "not ended", tdict_future_get_stats(f, &s, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_future_get_stats(NULL, &s, err));
  td_ok(tdict_sim_resume(w.c, err));
  td_ok(tdict_future_wait(f, NULL, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_future_get_stats(f, NULL, err));
  zero.struct_size = 3;
  td_fails(TDICT_EINVAL, "struct_size", tdict_future_get_stats(f, &zero, err));
  assert_int_equal(s.num_leaves, 0);
  /* a smaller struct is filled up to its size, and a larger struct up to the known fields */
  struct {
    tdict_transfer_stats s;
    unsigned char more[32];
  } old, new;
  memset(&old, POISON, sizeof old);
  memset(&new, POISON, sizeof new);
  old.s.struct_size = offsetof(tdict_transfer_stats, total_bytes);
  new.s.struct_size = sizeof new;
  td_ok(tdict_future_get_stats(f, &old.s, err));
  td_ok(tdict_future_get_stats(f, &new.s, err));
  assert_int_equal(old.s.num_leaves, 7);
  assert_int_equal(old.s.struct_size, offsetof(tdict_transfer_stats, total_bytes));
  for (const unsigned char *p = (unsigned char *)&old.s.total_bytes; p < (unsigned char *)(&old + 1); p++)
    assert_int_equal(*p, POISON);
  assert_int_equal(new.s.total_bytes, tdict_bytes(src));
  assert_int_equal(new.s.struct_size, sizeof new);
  for (size_t i = 0; i < sizeof new.more; i++) assert_int_equal(new.more[i], POISON);
}

GPU_CASE(future_released_early) {
  scoped_place w = open_place();
  scoped_tree src = batch_tree(NULL), dst = to_device(&w, src, w.device);
  spoil_tree(&w, dst);
  for (int i = 0; i < NUM_WAYS; i++) {
    const way v = way_at(i);
    tdict_future_release(move_async(&w, src, w.device, &v.o)); /* without waiting */
    tdict_future *f = copy_async(&w, src, dst, &v.o);
    tdict_future_release(f); /* the transfer continues without the future */
    check_and_release(&w, src, to_device(&w, dst, tdict_cpu()));
    f = move_async(&w, src, w.device, &v.o);
    assert_ptr_equal(tdict_future_retain(f), f);
    tdict_future_release(f);
    check_and_spoil(&w, src, finish(f));
    spoil_tree(&w, dst);
  }
  tdict_future_release(NULL);
  assert_null(tdict_future_retain(NULL));
}

/* A transfer retains its source and its result until the copy has ended, even if the program has released them. */
SIM_CASE(transfer_keeps_source_alive) {
  scoped_place w = open_wrapped(NULL);
  for (int pinned = 0; pinned < 2; pinned++)
    for (int i = 0; i < NUM_WAYS; i += 2) {
      way v = way_at(i);
      if (v.o.num_threads == 0 && (!pinned || v.o.mode == TDICT_MODE_BLOCKING))
        continue; /* the call itself would wait for the device */
      tdict_tree *src = batch_tree(pinned ? w.pinned : NULL), *want = to_device(&w, src, w.device);
      td_ok(tdict_sim_hold(w.c, err));
      tdict_future *f = move_async(&w, src, w.device, &v.o);
      tdict_release(src); /* the last reference of the program; the memory must not be reused yet */
      scoped_tree other = batch_tree(pinned ? w.pinned : NULL);
      td_ok(tdict_sim_resume(w.c, err));
      check_and_spoil(&w, want, finish(f));
      /* to the host: the device tree is released while it is read */
      v.o.pinned_result = pinned;
      scoped_tree twin = to_device(&w, want, tdict_cpu());
      td_ok(tdict_sim_hold(w.c, err));
      td_ok(tdict_to_device_async(w.c, want, tdict_cpu(), &v.o, &f, err));
      tdict_release(want);
      td_ok(tdict_sim_resume(w.c, err));
      check_result(&w, twin, f);
    }
}

/* Two nodes of a tree share their list of leaves, so each tensor has two paths. It is copied only once. */
GPU_CASE(leaves_of_clones_are_sent_once) {
  enum { LEAVES = 7 };
  const int64_t shape[1] = {1000};
  scoped_place w = open_place();
  tdict_tree *src = td_made(tree, tdict_create(0, NULL, &made, err)), *part = NULL, *clone = NULL;
  td_ok(tdict_create(0, NULL, &part, err));
  for (int i = 0; i < LEAVES; i++) { /* each in its own storage, referenced only by `part` */
    tdict_tensor *t = NULL;
    const char *name = td_text("leaf %d", i);
    td_ok(tdict_tensor_zeros(TDICT_I32, 1, shape, NULL, &t, err));
    ((int32_t *)tdict_tensor_data(t))[i] = i + 1;
    td_put(part, name, t);
  }
  td_ok(tdict_clone(part, &clone, err));
  td_ok(tdict_set_tree(src, "a", part, err));
  td_ok(tdict_set_tree(src, "b", clone, err));
  td_release(part, clone);
  tdict_transfer_stats s = tdict_transfer_stats_default();
  way v = way_at(0);
  v.o.stats = &s;
  scoped_tree there = move_tree(&w, src, w.device, &v);
  check_tree(&w, there, src);
  assert_int_equal(s.num_leaves, 2 * LEAVES);
  assert_int_equal(s.num_shared_leaves, LEAVES);
  assert_int_equal(s.total_bytes, LEAVES * 4000);
  tdict_release(src);
}

GPU_CASE(future_stats_keep_to_their_size) {
  scoped_place w = open_wrapped(NULL);
  scoped_tree src = batch_tree(NULL), out = NULL;
  tdict_future *f = move_async(&w, src, w.device, NULL);
  td_ok(tdict_future_wait(f, NULL, err));
  tdict_transfer_stats whole = td_filled(tdict_transfer_stats, tdict_future_get_stats(f, &made, err));
  for (size_t size = sizeof size; size <= sizeof whole; size++) {
    guarded *g = guarded_of(size);
    td_ok(tdict_future_get_stats(f, (tdict_transfer_stats *)g, err));
    check_guarded(g, size, &whole);
  }
  guarded *g = guarded_of(0);
  td_fails(TDICT_EINVAL, "struct_size is 0", tdict_future_get_stats(f, (tdict_transfer_stats *)g, err));
  check_untouched(g);
  tdict_future_release(f);
  size_t size = offsetof(tdict_transfer_stats, total_bytes);
  g = guarded_of(size);
  tdict_transfer_options o = td_with(tdict_transfer_options, stats = (tdict_transfer_stats *)g);
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  for (size_t i = size; i < sizeof *g; i++) assert_int_equal(g->bytes[i], GUARD_BYTE);
  assert_int_equal(g->struct_size, size);
  td_release(out);
  g = guarded_of(0);
  td_fails(TDICT_EINVAL, "to_device: stats: struct_size is 0", tdict_to_device(w.c, src, w.device, &o, &out, err));
  check_untouched(g);
  tdict_pin_options p = td_with(tdict_pin_options, stats = o.stats);
  td_fails(TDICT_EINVAL, "pin_memory: stats: struct_size is 0", tdict_pin_memory(w.c, src, &p, &out, err));
  g = guarded_of(size);
  td_ok(tdict_pin_memory(w.c, src, &p, &out, err));
  for (size_t i = size; i < sizeof *g; i++) assert_int_equal(g->bytes[i], GUARD_BYTE);
}
