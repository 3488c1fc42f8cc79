/* Tests which values of transfer options are refused, and option structs of other versions of the header. */

#include "support/shim.h"
#include "trees.h"
#include "wrap.h"

/* Checks that all four transfer calls refuse the options and change nothing. */
static void refuse(const place *w, const tdict_transfer_options *o, tdict_status wanted, const char *text) {
  tdict_tree *src = batch_tree(NULL), *dst = to_device(w, src, w->device), *const mark = src, *out = mark;
  tdict_future *f = (tdict_future *)mark;
  if (w->gpu) spoil_tree(w, dst);
  td_fails_at(wanted, text, "", tdict_to_device(w->c, src, w->device, o, &out, err));
  td_fails(wanted, text, tdict_to_device_async(w->c, src, w->device, o, &f, err));
  td_fails(wanted, text, tdict_transfer_into(w->c, dst, src, o, err));
  td_fails(wanted, text, tdict_transfer_into_async(w->c, dst, src, o, &f, err));
  assert_ptr_equal(out, mark);
  assert_ptr_equal(f, mark);
  td_release(dst, src);
}

static void refuse_nulls(const place *w) {
  tdict_tree *src = batch_tree(NULL), *const mark = src, *out = mark;
  tdict_future *f = (tdict_future *)mark;
  td_fails(TDICT_EINVAL, "context is NULL", tdict_to_device(NULL, src, w->device, NULL, &out, err));
  td_fails(TDICT_EINVAL, "context is NULL", tdict_to_device_async(NULL, src, w->device, NULL, &f, err));
  td_fails(TDICT_EINVAL, "context is NULL", tdict_transfer_into(NULL, src, src, NULL, err));
  td_fails(TDICT_EINVAL, "context is NULL", tdict_transfer_into_async(NULL, src, src, NULL, &f, err));
  td_fails(TDICT_EINVAL, "context is NULL", tdict_pin_memory(NULL, src, NULL, &out, err));
  td_fails(TDICT_EINVAL, "src is NULL", tdict_to_device(w->c, NULL, w->device, NULL, &out, err));
  td_fails(TDICT_EINVAL, "src is NULL", tdict_to_device_async(w->c, NULL, w->device, NULL, &f, err));
  td_fails(TDICT_EINVAL, "src is NULL", tdict_transfer_into(w->c, src, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "src is NULL", tdict_pin_memory(w->c, NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "dst is NULL", tdict_transfer_into_async(w->c, NULL, src, NULL, &f, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_to_device(w->c, src, w->device, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_to_device_async(w->c, src, w->device, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_transfer_into_async(w->c, src, src, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_pin_memory(w->c, src, NULL, NULL, err));
  assert_int_equal(tdict_to_device(w->c, NULL, w->device, NULL, &out, NULL), TDICT_EINVAL); /* no error struct */
  assert_ptr_equal(out, mark);
  assert_ptr_equal(f, mark);
  tdict_release(src);
}

static void refuse_threads(const place *w) {
  const int above = tdict_context_num_threads(w->c) + 1, bad[] = {-2, above, INT32_MIN, INT32_MAX};
  tdict_tree *src = batch_tree(NULL), *out = src;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    tdict_transfer_options o = tdict_transfer_options_default();
    tdict_pin_options p = tdict_pin_options_default();
    o.num_threads = p.num_threads = bad[i];
    refuse(w, &o, TDICT_EINVAL, "num_threads is ");
    td_fails(TDICT_EINVAL, "num_threads is ", tdict_pin_memory(w->c, src, &p, &out, err));
  }
  assert_ptr_equal(out, src);
  tdict_release(src);
}

static void refuse_result_memory(const place *w) {
  scoped_tree src = batch_tree(NULL), dst = to_device(w, src, w->device);
  tdict_tree *out = src;
  tdict_transfer_options o = td_with(tdict_transfer_options, pinned_result = true);
  td_fails(TDICT_EINVAL, "pinned_result", tdict_transfer_into(w->c, dst, src, &o, err));
  if (w->gpu) td_fails(TDICT_EINVAL, "pinned_result", tdict_to_device(w->c, src, w->device, &o, &out, err));
  o.memory = tdict_device_memory(w->c, tdict_cpu()); /* memory that is not pinned */
  td_fails(TDICT_EINVAL, "not pinned", tdict_to_device(w->c, dst, tdict_cpu(), &o, &out, err));
  o.pinned_result = false;
  td_fails(TDICT_EINVAL, "memory", tdict_transfer_into(w->c, dst, src, &o, err));
  assert_ptr_equal(out, src);
}

static void refuse_stats(const place *w) {
  tdict_tree *src = batch_tree(NULL), *out = src;
  tdict_future *f = NULL;
  tdict_transfer_options o = tdict_transfer_options_default();
  tdict_pin_options p = tdict_pin_options_default();
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  o.stats = p.stats = &stats;
  td_fails(TDICT_EINVAL, "stats", tdict_to_device_async(w->c, src, w->device, &o, &f, err));
  td_fails(TDICT_EINVAL, "stats", tdict_transfer_into_async(w->c, src, src, &o, &f, err));
  assert_null(f);
  stats.struct_size = 0;
  td_fails(TDICT_EINVAL, "struct_size", tdict_to_device(w->c, src, w->device, &o, &out, err));
  td_fails(TDICT_EINVAL, "struct_size", tdict_transfer_into(w->c, src, src, &o, err));
  td_fails(TDICT_EINVAL, "struct_size", tdict_pin_memory(w->c, src, &p, &out, err));
  assert_ptr_equal(out, src);
  tdict_release(src);
}

DEVICE_CASE(transfer_refuses_bad_options) {
  scoped_place w = open_place();
  tdict_transfer_options o = tdict_transfer_options_default();
  const int32_t modes[] = {-1, TDICT_MODE_NON_BLOCKING_PIN + 1, 1000};
  for (size_t i = 0; i < 3; i++) {
    o.mode = modes[i];
    refuse(&w, &o, TDICT_EINVAL, "mode is ");
  }
  o = tdict_transfer_options_default();
  o = tdict_transfer_options_default();
  const tdict_stream host = {tdict_cpu(), NULL};
  o.after = host; /* refused, because the cpu has no streams */
  tdict_tree *src = batch_tree(NULL), *like = batch_tree(NULL), *dst = to_device(&w, like, w.device);
  td_fails(TDICT_EWRONGDEVICE, "cpu", tdict_transfer_into(w.c, dst, src, &o, err));
  td_release(src, like, dst);
  refuse_nulls(&w);
  refuse_threads(&w);
  refuse_result_memory(&w);
  refuse_stats(&w);
}

/* Structs of an older header are shorter, and structs of a newer header are longer. */
DEVICE_CASE(transfer_option_sizes) {
  scoped_place w = open_place();
  struct {
    tdict_transfer_options o;
    unsigned char more[24];
  } longer;
  struct {
    tdict_pin_options o;
    unsigned char more[24];
  } pin;
  memset(&longer, 0, sizeof longer);
  memset(&pin, 0, sizeof pin);
  longer.o = tdict_transfer_options_default();
  longer.o.struct_size = sizeof longer;
  pin.o = tdict_pin_options_default();
  pin.o.struct_size = sizeof pin;
  scoped_tree src = batch_tree(NULL), out = NULL;
  check_and_release(&w, src, move_with(&w, src, w.device, &longer.o));
  longer.more[20] = 1; /* a field that this library does not know */
  refuse(&w, &longer.o, TDICT_ENOTSUP, "struct_size");
  pin.more[0] = 1;
  td_fails(TDICT_ENOTSUP, "struct_size", tdict_pin_memory(w.c, src, &pin.o, &out, err));
  /* the missing fields of a shorter struct have their defaults, whatever bytes follow the struct */
  tdict_transfer_options old;
  const size_t sizes[] = {offsetof(tdict_transfer_options, mode), offsetof(tdict_transfer_options, num_threads),
                          offsetof(tdict_transfer_options, after), offsetof(tdict_transfer_options, pinned_result),
                          offsetof(tdict_transfer_options, stats)};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const tdict_transfer_options known = tdict_transfer_options_default();
    memset(&old, POISON, sizeof old);
    memcpy(&old, &known, sizes[i]);
    old.struct_size = sizes[i];
    check_and_release(&w, src, move_with(&w, src, w.device, &old));
  }
  const size_t bad[] = {0, 1, sizeof(size_t) - 1};
  for (size_t i = 0; i < 3; i++) {
    old = tdict_transfer_options_default();
    old.struct_size = bad[i];
    refuse(&w, &old, TDICT_EINVAL, "struct_size");
    pin.o.struct_size = bad[i];
    td_fails(TDICT_EINVAL, "struct_size", tdict_pin_memory(w.c, src, &pin.o, &out, err));
  }
}

SIM_CASE(transfer_refuses_capturing_stream) {
  scoped_place w = open_wrapped(NULL);
  TD_STREAM(s, w.c, w.device);
  tdict_transfer_options o = td_with(tdict_transfer_options, after = s);
  wrap.ops.stream_capture_status = say_capturing;
  refuse(&w, &o, TDICT_ECAPTURE, "captured");
  wrap.ops.stream_capture_status = wrap.real->stream_capture_status;
  scoped_tree src = batch_tree(NULL);
  check_and_release(&w, src, move_with(&w, src, w.device, &o));
  const tdict_stream absent = {tdict_sim(3), NULL};
  o.after = absent;
  refuse(&w, &o, TDICT_EWRONGDEVICE, "sim:3");
}

/* While the device is stopped, asynchronous calls return before any byte has moved. With num_threads 0, they return
 * after the last copy is queued. */
SIM_CASE(transfer_async_returns_early) {
  scoped_place w = open_wrapped(NULL);
  scoped_tree src = batch_tree(NULL), small = new_tree(), pinned = new_tree();
  td_put(small, "x", random_tensor(TDICT_U8, SHAPE(4 * SLOT), NULL));
  for (int i = 0; i < 4; i++) {
    char key[2] = {(char)('a' + i), 0};
    td_put(pinned, key, random_tensor(TDICT_U8, SHAPE(STAGING / 4 + i), w.pinned));
  }
  tdict_tree *first = to_device(&w, src, w.device);
  tdict_release(first);
  for (int i = 0; i < NUM_WAYS; i += 2) {
    const way v = way_at(i);
    const tdict_tree *trees[] = {src, small, pinned};
    for (int k = 0; k < 3; k++) {
      if (v.o.num_threads == 0 && (k == 0 || v.o.mode == TDICT_MODE_BLOCKING)) continue; /* too much to queue */
      poison(&w, w.memory, line_bytes(trees[k]));
      td_ok(tdict_sim_hold(w.c, err));
      scoped_future f = move_async(&w, trees[k], w.device, &v.o);
      assert_false(tdict_future_is_ready(f));
      if (v.o.num_threads == 0) expect_pending(k == 1 && v.o.mode == TDICT_MODE_NON_BLOCKING ? 1 : 4);
      td_ok(tdict_sim_resume(w.c, err));
      scoped_tree out = td_made(tree, tdict_future_wait(f, &made, err));
      check_tree(&w, trees[k], out);
      spoil_tree(&w, out);
    }
  }
}
