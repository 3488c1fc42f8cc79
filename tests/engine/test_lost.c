/* Tests transfers that fail: cancelled transfers, lost bytes, errors that no call has returned, and lost devices. */
#include "pair.h"
#include "support/threads.h"
enum { SLOW = 20 << 20 };

/* ---- cancel ---- */

static tdict_status at_gate(const pair *self, const tdict_hook *hook, tdict_error *err) {
  (void)hook, (void)err;
  gate_pass(self->user);
  return TDICT_OK;
}
static void check_cancelled(tdict_future *f) {
  tdict_tree *out = NULL;
  td_fails(TDICT_ECANCELLED, "cancelled", tdict_future_wait(f, &out, err));
  td_fails(TDICT_ECANCELLED, "cancelled", tdict_future_wait_for(f, 0, &out, err)); /* also in later calls */
  assert_null(out);
  assert_int_equal(tdict_future_state(f), TDICT_FUTURE_CANCELLED);
  assert_true(tdict_future_is_ready(f));
}

static void cancel_while_hooks_run(void) {
  scoped_probe p = {0};
  scoped_place w = place_open(1);
  gate g = {0};
  scoped_tree src = numbered_tree(&w, NULL, 1);
  for (int i = 0; i < 3; i++) put_pair_with(src, td_text("p%d", i), &p, i, at_gate, &g);
  tdict_future *f = move_async(&w, src, w.device, NULL);
  gate_await(&g, 1);
  tdict_future_cancel(f);
  gate_open(&g);
  check_cancelled(f);
  assert_int_equal(atomic_load(&p.pins) + atomic_load(&p.moves), 1);
  tdict_future_release(f);
  check_number_and_release(&w, moved(&w, src, w.device), 1);
}

/* Cancels transfer b, which waits for transfer a, while transfer c waits for b. */
static void cancel_while_waiting(void) {
  scoped_place w = place_sim(4, SLOW, 1);
  scoped_tree one = numbered_tree(&w, NULL, 2), two = numbered_tree(&w, NULL, 3), d = numbered_tree(&w, w.memory, 4);
  hold(&w);
  tdict_future *a = copy_async(&w, one, d, NULL), *b = copy_async(&w, two, d, NULL),
               *c = move_async(&w, d, tdict_cpu(), NULL);
  tdict_future_cancel(b);
  assert_int_equal(tdict_future_state(c), TDICT_FUTURE_PENDING);
  resume(&w);
  finish_copy(a);
  check_cancelled(b);
  td_fails(TDICT_EINVAL, "transfer into them failed",
           tdict_future_wait(c, NULL, err)); /* c ran after b, so the bytes that b did not write are lost */
  tdict_future_release(c);
  check_tree_number(&w, d, 2);
  tdict_future_release(b);
}

/* Cancels a transfer after `steps` operations of the device, while other copies are queued or wait for slots. */
static void cancel_in_flight(int32_t mode, int32_t num_threads, int64_t steps) {
  enum { BYTES = 3 << 20 };
  tdict_context_options o = place_options(2);
  o.staging_bytes = 256 << 10;
  scoped_place w = place_over(&o);
  scoped_tree src = new_tree(), dst = new_tree();
  tdict_tree *none = NULL;
  td_put(src, "x", new_bytes(BYTES, NULL));
  td_put(dst, "x", new_bytes(BYTES, w.memory));
  put_number(&w, td_leaf(src, "x"), 5);
  tdict_transfer_options t = td_with(tdict_transfer_options, num_threads = num_threads, mode = mode);
  hold(&w);
  tdict_future *f = copy_async(&w, src, dst, &t);
  td_ok(tdict_sim_step(w.c, steps, err));
  check_pending(f);
  tdict_future_cancel(f);
  tdict_future_cancel(f);
  resume(&w);
  td_fails(TDICT_ECANCELLED, "cancelled", tdict_future_wait(f, &none, err));
  assert_int_equal(tdict_future_state(f), TDICT_FUTURE_CANCELLED);
  tdict_driver_sim_count counts;
  tdict_driver_sim_counts(w.d, 0, &counts);
  assert_int_equal(counts.num_pending, 0);               /* the queued copies have ended */
  assert_true(counts.num_finished < BYTES / (16 << 10)); /* no further copy was begun */
  assert_null(tdict_data(dst, "x"));
  tdict_future_release(f);
  td_ok(tdict_transfer_into(w.c, dst, src, NULL, err));
  assert_true(has_number(&w, td_leaf(dst, "x"), 5));
  assert_non_null(tdict_data(dst, "x"));
}

static void cancel_what_has_ended(void) {
  scoped_place w = place_open(2);
  scoped_tree src = numbered_tree(&w, NULL, 6), out = NULL;
  tdict_future_cancel(NULL);
  tdict_future *f = move_async(&w, src, w.device, NULL);
  td_ok(tdict_future_wait(f, NULL, err));
  tdict_future_cancel(f);
  assert_int_equal(tdict_future_state(f), TDICT_FUTURE_DONE);
  td_ok(tdict_future_wait(f, &out, err));
  check_tree_number(&w, out, 6);
  td_release(f, out);
  f = move_async(&w, src, tdict_cpu(), NULL); /* nothing is copied, so the call returns an ended future */
  tdict_future_cancel(f);
  out = finish(f);
  assert_ptr_equal(out, src);
}

/* Cancels transfers at random times. Each ends as CANCELLED or DONE. The destination can be read only after DONE. */
static void cancel_at_random(void) {
  scoped_place w = place_sim(3, 400e6, 1);
  scoped_tree src = numbered_tree(&w, NULL, 7), dst = numbered_tree(&w, w.memory, 0);
  int ended[2] = {0, 0};
  uint64_t x = 99;
  for (int i = 0; i < 150; i++) {
    td_fill_random(&x, sizeof x, x);
    tdict_transfer_options o = threads((int32_t)(x % 4) - 1);
    o.mode = TDICT_MODE_AUTO + (int32_t)(x / 4 % 4);
    tdict_future *f = copy_async(&w, src, dst, &o);
    usleep((unsigned)(x / 64 % 1200));
    tdict_future_cancel(f);
    tdict_status status = tdict_future_wait(f, NULL, NULL);
    assert_true(status == TDICT_OK || status == TDICT_ECANCELLED);
    assert_int_equal(tdict_data(dst, "a") != NULL, status == TDICT_OK);
    if (status == TDICT_OK) check_tree_number(&w, dst, 7);
    ended[status == TDICT_OK]++;
    tdict_future_release(f);
    number_tree(&w, dst, 0);
  }
  printf("%d cancelled, %d done\n", ended[0], ended[1]);
  assert_true(ended[0] > 0 && ended[1] > 0);
}

SIM_CASE(cancel_in_every_state) {
  cancel_while_hooks_run();
  cancel_while_waiting();
  for (int32_t mode = TDICT_MODE_AUTO; mode <= TDICT_MODE_NON_BLOCKING_PIN; mode++)
    for (int64_t steps = 0; steps < 8; steps += 3) /* steps > 0 only in modes with many copies */
      if (!steps || mode == TDICT_MODE_AUTO || mode == TDICT_MODE_NON_BLOCKING_PIN)
        cancel_in_flight(mode, steps ? 2 : 1, steps);
  cancel_what_has_ended();
  cancel_at_random();
}

/* Cancels a future and releases it at once. tdict_context_destroy() waits for the end of the transfer. */
SIM_CASE(cancel_and_release) {
  scoped_place w = place_sim(2, SLOW, 1);
  scoped_tree src = numbered_tree(&w, NULL, 8);
  for (int i = 0; i < 5; i++) {
    scoped_future f = move_async(&w, src, w.device, NULL);
    tdict_future_cancel(f);
  }
}

/* ---- lost bytes ---- */

/* While `is_failing` is set, event queries, event waits and stream waits return an error. All three fail, because
 * timing decides which of them the library calls. */
static shim failing;
static atomic_bool is_failing;
static tdict_cu answer(tdict_cu result) { return atomic_load(&is_failing) ? TDICT_CU_UNKNOWN : result; }
static tdict_cu fail_query(tdict_driver *d, tdict_cu_event e) { return answer(failing.real->event_query(d, e)); }
static tdict_cu fail_wait(tdict_driver *d, tdict_cu_event e) { return answer(failing.real->event_synchronize(d, e)); }
static tdict_cu fail_stream(tdict_driver *d, tdict_cu_stream s) {
  return answer(failing.real->stream_synchronize(d, s));
}
static void begin_failing(const place *w, bool at_once) {
  atomic_store(&is_failing, at_once);
  shim_begin(&failing, w->d);
  failing.ops.event_query = fail_query;
  failing.ops.event_synchronize = fail_wait;
  failing.ops.stream_synchronize = fail_stream;
}
static void end_failing(const place *w) {
  atomic_store(&is_failing, false);
  shim_end(&failing, w->d);
}

/* A transfer fails after tdict_future_wait_on_stream() has returned its result to the program. */
static void lose_a_result(tdict_device to, bool pinned) {
  scoped_place w = place_sim(2, SLOW, 1);
  tdict_tree *src = numbered_tree(&w, to.type == TDICT_DEVICE_CPU ? w.memory : NULL, 10), *out = NULL;
  tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = 1, pinned_result = pinned);
  TD_STREAM(s, w.c, w.device);
  begin_failing(&w, false);
  hold(&w);
  tdict_future *f = move_async(&w, src, to, &o);
  td_ok(tdict_future_wait_on_stream(f, s, &out, err));
  atomic_store(&is_failing, true);
  resume(&w);
  for (int i = 0; i < NUM_NUMBERED; i++) assert_non_null(td_leaf(out, numbered[i].path)->data);
  td_fails(TDICT_EDEVICE, "", tdict_future_wait(f, NULL, err));
  assert_int_equal(td_last_error.native, TDICT_CU_UNKNOWN);
  for (int i = 0; i < NUM_NUMBERED; i++) {
    assert_null(tdict_const_data(out, numbered[i].path));
    assert_null(tdict_data(out, numbered[i].path));
  }
  end_failing(&w);
  td_release(f, out);
  check_number_and_release(&w, src, 10);
}
/* The program gets a result early and changes it. Then the transfer fails. */
static void change_a_result(void) {
  scoped_place w = place_sim(2, SLOW, 1);
  scoped_tree src = numbered_tree(&w, w.memory, 10), out = NULL;
  TD_STREAM(s, w.c, w.device);
  begin_failing(&w, false);
  hold(&w);
  scoped_future f = move_async(&w, src, tdict_cpu(), NULL);
  td_ok(tdict_future_wait_on_stream(f, s, &out, err));
  atomic_store(&is_failing, true);
  resume(&w);
  for (int i = 0; !tdict_future_is_ready(f); i++) td_put(out, td_text("new%d", i % 100), new_bytes(1, NULL));
  td_fails(TDICT_EDEVICE, "", tdict_future_wait(f, NULL, err));
  end_failing(&w);
}
/* The bytes of a destination are lost, and a later transfer into it writes them again. The source stays valid. */
static void lose_a_destination(bool on_device) {
  scoped_place w = place_sim(2, SLOW, 1);
  scoped_tree src = numbered_tree(&w, on_device ? NULL : w.memory, 11),
              dst = numbered_tree(&w, on_device ? w.memory : NULL, 0);
  void *address = td_leaf(dst, "n.b")->data;
  td_ok(tdict_transfer_into(w.c, dst, src, NULL, err)); /* creates the streams, which would fail below */
  begin_failing(&w, true);
  td_fails(TDICT_EDEVICE, "", tdict_transfer_into(w.c, dst, src, NULL, err));
  end_failing(&w);
  for (int i = 0; i < NUM_NUMBERED; i++) {
    assert_null(tdict_const_data(dst, numbered[i].path));
    assert_null(tdict_data(dst, numbered[i].path));
    assert_non_null(tdict_const_data(src, numbered[i].path));
  }
  td_ok(tdict_transfer_into(w.c, dst, src, NULL, err));
  assert_ptr_equal(tdict_data(dst, "n.b"), address);
  check_tree_number(&w, dst, 11);
}
/* A thread in an accessor. The accessor waits for the bytes, and must return NULL if they are lost. */
typedef struct waiter {
  const tdict_tree *td;
  const void *data;
  atomic_bool started, ended;
} waiter;
static void *wait_for_bytes(void *user) {
  waiter *x = user;
  atomic_store(&x->started, true);
  x->data = tdict_const_data(x->td, "a");
  atomic_store(&x->ended, true);
  return NULL;
}
static void lose_under_an_accessor(bool cancels) {
  scoped_place w = place_sim(2, SLOW, 1);
  scoped_tree src = numbered_tree(&w, w.memory, 12), dst = numbered_tree(&w, NULL, 0);
  waiter x = {.td = dst};
  hold(&w);
  scoped_future f = copy_async(&w, src, dst, NULL);
  pthread_t thread = td_start(wait_for_bytes, &x);
  assert_true(wait_flag(&x.started));
  td_rest();
  assert_false(atomic_load(&x.ended));
  if (cancels) tdict_future_cancel(f);
  resume(&w);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(x.data != NULL, !cancels);
  assert_int_equal(tdict_future_wait(f, NULL, NULL), cancels ? TDICT_ECANCELLED : TDICT_OK);
}

SIM_CASE(lost_result_is_changed_meanwhile) {
  for (int i = 0; i < 20; i++) change_a_result();
}

SIM_CASE(lost_bytes_give_null) {
  lose_a_result(tdict_sim(0), false);
  lose_a_result(tdict_cpu(), false);
  lose_a_result(tdict_cpu(), true);
  lose_a_destination(true);
  lose_a_destination(false);
  lose_under_an_accessor(true);
  lose_under_an_accessor(false);
}

/* A source whose release function waits for the test, so that its transfer has made the last copy but has not ended.
 * The function does not wait on the program's own thread, where a fast transfer may release the source. */
typedef struct late {
  pthread_t program;
  atomic_bool entered, may_go;
  unsigned char bytes[64];
} late;
static void release_late(void *user) {
  late *l = user;
  atomic_store(&l->entered, true);
  while (!pthread_equal(l->program, pthread_self()) && !atomic_load(&l->may_go)) usleep(100);
}

GPU_CASE(cancel_after_the_last_copy_changes_nothing) {
  static const int64_t shape[] = {64};
  scoped_place w = place_open(2);
  late l = {0};
  tdict_tree *src = new_tree(), *out = NULL;
  tdict_tensor *t = NULL, *host = NULL;
  tdict_tensor_desc v = desc_of(l.bytes, TDICT_U8, shape);
  td_fill_random(l.bytes, sizeof l.bytes, 77);
  td_put(src, "a", td_made(tensor, tdict_tensor_from_data(&v, release_late, &l, &made, err)));
  tdict_transfer_options o = threads(1);
  const bool sim = w.device.type == TDICT_DEVICE_SIM;
  l.program = pthread_self();
  if (sim) hold(&w); /* so that the transfer holds the last reference to the source */
  tdict_future *f = move_async(&w, src, w.device, &o);
  tdict_release(src);
  if (sim) resume(&w);
  assert_true(wait_flag(&l.entered));
  tdict_future_cancel(f);
  atomic_store(&l.may_go, true);
  td_ok(tdict_future_wait(f, &out, err));
  assert_int_equal(tdict_future_state(f), TDICT_FUTURE_DONE);
  tdict_future_release(f);
  td_ok(tdict_get(out, "a", &t, err));
  td_ok(tdict_tensor_clone(t, NULL, &host, err));
  assert_memory_equal(tdict_tensor_const_data(host), l.bytes, sizeof l.bytes);
  td_release(host, out);
}

/* ---- errors that no call has returned ---- */

typedef struct heard {
  pthread_mutex_t lock; /* guards: all fields below */
  int errors;
  char text[1024];
} heard;
static void hear(void *user, int32_t level, const char *text) {
  heard *h = user;
  pthread_mutex_lock(&h->lock);
  if (level == TDICT_LOG_ERROR) {
    h->errors++;
    snprintf(h->text, sizeof h->text, "%s", text);
  }
  pthread_mutex_unlock(&h->lock);
}
static int errors_of(heard *h) {
  pthread_mutex_lock(&h->lock);
  int errors = h->errors;
  pthread_mutex_unlock(&h->lock);
  return errors;
}
static tdict_status answer_eio(const pair *self, const tdict_hook *hook, tdict_error *err) {
  (void)hook, (void)err;
  if (self->user) gate_pass(self->user);
  return TDICT_EIO;
}

GPU_CASE(unreported_errors_are_logged) {
  heard h = {.lock = PTHREAD_MUTEX_INITIALIZER};
  tdict_context_options o = place_options(2);
  o.log = hear;
  o.user = &h;
  place w = place_over(&o);
  probe p = {0};
  tdict_tree *good = numbered_tree(&w, NULL, 13), *bad = new_tree(), *out = NULL;
  pair *x = put_pair(bad, "n.pair", &pair_hooked, &p, 1);
  x->also = answer_eio;
  /* the error is returned by wait, by wait_for, or by the call itself */
  tdict_future *f = move_async(&w, bad, w.device, NULL);
  td_fails(TDICT_EIO, "", tdict_future_wait(f, NULL, err));
  tdict_future_release(f);
  f = move_async(&w, bad, w.device, NULL);
  td_fails(TDICT_EIO, "", tdict_future_wait_for(f, (int64_t)10 * 1000000000, NULL, err));
  tdict_future_release(f);
  td_fails(TDICT_EIO, "", tdict_to_device(w.c, bad, w.device, NULL, &out, err));
  /* no error: the transfer succeeded or was cancelled */
  f = move_async(&w, good, w.device, NULL);
  tdict_future_release(f);
  gate g = {0};
  x->user = &g;
  f = move_async(&w, bad, w.device, NULL);
  gate_await(&g, 1);
  tdict_future_cancel(f);
  gate_open(&g);
  while (!tdict_future_is_ready(f)) usleep(100);
  tdict_future_release(f);
  assert_int_equal(errors_of(&h), 0);
  /* no call returns the error; the future is released after or before the end of the transfer */
  f = move_async(&w, bad, w.device, NULL);
  assert_int_equal(tdict_future_wait(f, NULL, NULL), TDICT_EIO); /* only a call that fills a tdict_error counts */
  assert_int_equal(tdict_future_state(f), TDICT_FUTURE_FAILED);
  tdict_future_release(f);
  for (int i = 0; i < 50000 && errors_of(&h) < 1; i++) usleep(100);
  assert_int_equal(errors_of(&h), 1);
  assert_non_null(strstr(h.text, "TDICT_EIO"));
  assert_non_null(strstr(h.text, "n.pair"));
  gate later = {0};
  x->user = &later;
  f = move_async(&w, bad, w.device, NULL);
  gate_await(&later, 1);
  tdict_future_release(f);
  assert_int_equal(errors_of(&h), 1);
  gate_open(&later);
  for (int i = 0; i < 50000 && errors_of(&h) < 2; i++) usleep(100);
  assert_int_equal(errors_of(&h), 2);
  td_release(good, bad);
  close_pairs(&w, &p);
  pthread_mutex_destroy(&h.lock);
}

static void *close_place(void *user) {
  place_close(user);
  return NULL;
}

/* If a transfer fails while its context is being destroyed, its error is still logged. */
GPU_CASE(unreported_errors_are_logged_until_destroy) {
  heard h = {.lock = PTHREAD_MUTEX_INITIALIZER};
  tdict_context_options o = place_options(2);
  o.log = hear;
  o.user = &h;
  place w = place_over(&o);
  probe p = {0};
  gate g = {0};
  tdict_tree *bad = new_tree();
  put_pair_with(bad, "n.pair", &p, 1, answer_eio, &g);
  tdict_future *f = move_async(&w, bad, w.device, NULL);
  gate_await(&g, 1);
  tdict_future_release(f);
  pthread_t thread = td_start(close_place, &w);
  td_rest(); /* until tdict_context_destroy() waits */
  gate_open(&g);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(errors_of(&h), 1);
  tdict_release(bad);
  check_gone(&p);
  pthread_mutex_destroy(&h.lock);
}

/* ---- a lost device ---- */

enum { LAUNCH_FAILED = 719 };
static shim losing;
static atomic_int copies_left, copies_after; /* the copy that lowers copies_left to 0 fails */
static tdict_cu_context lost_context;
static bool loses(tdict_driver *d) {
  tdict_cu_context now = NULL;
  losing.real->ctx_current(d, &now);
  if (now != lost_context) return false;
  int left = atomic_fetch_sub(&copies_left, 1);
  if (left <= 0) atomic_fetch_add(&copies_after, 1);
  return left == 1;
}
static tdict_cu lose_h2d(tdict_driver *d, void *device, const void *host, size_t bytes, tdict_cu_stream s) {
  return loses(d) ? LAUNCH_FAILED : losing.real->copy_h2d_async(d, device, host, bytes, s);
}
static tdict_cu lose_d2h(tdict_driver *d, void *host, const void *device, size_t bytes, tdict_cu_stream s) {
  return loses(d) ? LAUNCH_FAILED : losing.real->copy_d2h_async(d, host, device, bytes, s);
}
static tdict_cu lose_rect(tdict_driver *d, const tdict_cu_rect *rect, tdict_cu_stream s) {
  return loses(d) ? LAUNCH_FAILED : losing.real->copy_rect_async(d, rect, s);
}

static tdict_cu lose_batch(tdict_driver *d, tdict_cu_kind kind, const tdict_cu_copy *lines, size_t count,
                           tdict_cu_stream s) {
  bool lost = false;
  for (size_t i = 0; i < count; i++) lost |= loses(d);
  return lost ? LAUNCH_FAILED : losing.real->copy_batch_async(d, kind, lines, count, s);
}

/* Checks that each call that needs the lost device returns TDICT_ELOST, and that other calls succeed. */
static void check_stays_lost(const place *w, const tdict_tree *src, tdict_tree *dst, const tdict_tree *on_host) {
  tdict_tree *out = NULL;
  tdict_tensor *t = NULL;
  tdict_stream s = {0};
  const int64_t count = 8;
  for (int i = 0; i < 2; i++) {
    td_fails(TDICT_ELOST, "lost", tdict_to_device(w->c, src, w->device, NULL, &out, err));
    assert_int_equal(td_last_error.native, LAUNCH_FAILED);
    td_fails(TDICT_ELOST, "lost", tdict_to_device(w->c, dst, tdict_cpu(), NULL, &out, err));
    td_fails(TDICT_ELOST, "lost", tdict_transfer_into(w->c, dst, src, NULL, err));
  }
  td_fails(TDICT_ELOST, "lost", tdict_tensor_empty(TDICT_U8, 1, &count, w->memory, &t, err));
  td_fails(TDICT_ELOST, "lost", tdict_stream_create(w->c, w->device, &s, err));
  td_fails(TDICT_ELOST, "lost", tdict_record_stream(dst, (tdict_stream){w->device, NULL}, err));
  assert_null(out);
  assert_null(t);
  assert_int_equal(atomic_load(&copies_after), 0); /* no copy was retried */
  tdict_tree *copy = numbered_tree(w, NULL, 0);
  td_ok(tdict_transfer_into(w->c, copy, on_host, NULL, err)); /* from host to host */
  check_number_and_release(w, copy, 21);
}

/* Loses the device at copy number `n` of a transfer. Returns false if the transfer makes fewer copies. */
static bool lose_at(int n, int32_t mode, int32_t num_threads, bool to_host) {
  tdict_context_options o = place_options(2);
  o.staging_bytes = 256 << 10;
  tdict_sim_options sim = td_with(tdict_sim_options, num_devices = 2);
  if (td_device().type == TDICT_DEVICE_SIM) o.sim = &sim;
  scoped_place w = place_over(&o);
  tdict_tree *host = numbered_tree(&w, NULL, 21), *dev = numbered_tree(&w, w.memory, 22), *out = NULL;
  tdict_transfer_options t = td_with(tdict_transfer_options, num_threads = num_threads, mode = mode);
  lost_context = w.gpu->context;
  atomic_store(&copies_left, n), atomic_store(&copies_after, 0);
  shim_begin(&losing, w.d);
  losing.ops.copy_h2d_async = lose_h2d;
  losing.ops.copy_d2h_async = lose_d2h;
  losing.ops.copy_rect_async = lose_rect;
  losing.ops.copy_batch_async = lose_batch;
  tdict_status status =
      tdict_to_device(w.c, to_host ? dev : host, to_host ? tdict_cpu() : w.device, &t, &out, &td_last_error);
  bool met = atomic_load(&copies_left) <= 0;
  if (!met) {
    assert_int_equal(status, TDICT_OK);
    check_tree_number(&w, out, to_host ? 22 : 21);
  } else {
    assert_int_equal(status, TDICT_ELOST);
    assert_int_equal(td_last_error.native, LAUNCH_FAILED);
    assert_true(tdict_has(host, td_last_error.path));
    assert_null(out);
    atomic_store(&copies_after, 0); /* other workers may have queued copies at the same time */
    check_stays_lost(&w, host, dev, host);
    if (w.device.type == TDICT_DEVICE_SIM) { /* the other device is not affected */
      td_ok(tdict_to_device(w.c, host, tdict_sim(1), &t, &out, err));
      check_number_and_release(&w, moved(&w, out, tdict_cpu()), 21);
    }
  }
  td_release(out, host, dev);
  shim_end(&losing, w.d);
  return met;
}

GPU_CASE(lost_device_stays_lost) {
  scoped_context beside = td_context(NULL); /* keeps a GPU's primary context alive between the rounds */
  for (int32_t mode = TDICT_MODE_BLOCKING; mode <= TDICT_MODE_NON_BLOCKING_PIN; mode++)
    for (int to_host = 0, n = 1; to_host < 2; to_host++, n = 1) {
      while (lose_at(n, mode, n % 3, to_host)) n++;
      assert_true(n > 4);
    }
}
