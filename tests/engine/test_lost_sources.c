/* Tests that transfers from sources with lost bytes fail with the path of the leaf, and write nothing. */
#include "pair.h"
#include "support/threads.h"

static shim failing;
static tdict_cu fail_copy_in(tdict_driver *d, void *device, const void *host, size_t bytes, tdict_cu_stream s) {
  (void)d, (void)device, (void)host, (void)bytes, (void)s;
  return TDICT_CU_UNKNOWN;
}
static tdict_cu fail_copy_out(tdict_driver *d, void *host, const void *device, size_t bytes, tdict_cu_stream s) {
  (void)d, (void)device, (void)host, (void)bytes, (void)s;
  return TDICT_CU_UNKNOWN;
}
/* Makes a transfer into `dst` that fails. */
static void lose(const place *w, const tdict_tree *src, tdict_tree *dst) {
  shim_begin(&failing, w->d);
  failing.ops.copy_h2d_async = fail_copy_in;
  failing.ops.copy_d2h_async = fail_copy_out;
  td_fails(TDICT_EDEVICE, "", tdict_transfer_into(w->c, dst, src, NULL, err));
  shim_end(&failing, w->d);
}

/* Checks that the call is refused with the path of the lost leaf. */
#define REFUSED(path_, call)                                   \
  do {                                                         \
    td_fails(TDICT_EINVAL, "transfer into them failed", call); \
    assert_string_equal(td_last_error.path, path_);            \
  } while (0)

/* Checks that each call refuses a tree if one of its three leaves has lost bytes. */
static void refuse(bool on_device, int32_t num_threads) {
  scoped_place w = place_open(2);
  tdict_device other = on_device ? tdict_cpu() : w.device;
  scoped_tree good = new_tree(), bad = new_tree(), mixed = new_tree(), there = new_tree(), out = NULL;
  tdict_future *f = NULL;
  tdict_transfer_options o = threads(num_threads);
  td_put(good, "x", new_bytes(70000, on_device ? NULL : w.memory));
  td_put(bad, "x", new_bytes(70000, on_device ? w.memory : NULL));
  td_put(mixed, "a", new_bytes(5, NULL));
  td_ok(tdict_set(mixed, "n.b", td_leaf(bad, "x"), err));
  td_put(mixed, "z", new_bytes(7, NULL));
  put_number(&w, td_leaf(mixed, "a"), 3);
  put_number(&w, td_leaf(mixed, "z"), 4);
  put_number(&w, td_leaf(good, "x"), 1);
  td_put(there, "a", new_bytes(5, NULL));
  td_put(there, "n.b", new_bytes(70000, on_device ? NULL : w.memory));
  td_put(there, "z", new_bytes(7, NULL));
  put_number(&w, td_leaf(there, "n.b"), 2);
  put_number(&w, td_leaf(there, "z"), 9);
  lose(&w, good, bad);
  assert_null(tdict_data(bad, "x"));
  REFUSED("n.b", tdict_to_device(w.c, mixed, other, &o, &out, err));
  REFUSED("n.b", tdict_to_device_async(w.c, mixed, other, &o, &f, err));
  REFUSED("n.b", tdict_transfer_into(w.c, there, mixed, &o, err));
  REFUSED("n.b", tdict_transfer_into_async(w.c, there, mixed, &o, &f, err));
  if (!on_device) REFUSED("n.b", tdict_pin_memory(w.c, mixed, NULL, &out, err));
  assert_null(out);
  assert_null(f);
  assert_true(has_number(&w, td_leaf(there, "n.b"), 2)); /* the call has written and lost nothing */
  assert_true(has_number(&w, td_leaf(there, "z"), 9));
  assert_non_null(tdict_data(there, "n.b"));
  td_ok(tdict_transfer_into(w.c, bad, good, NULL, err)); /* writes the lost bytes */
  td_ok(tdict_to_device(w.c, mixed, other, &o, &out, err));
  assert_true(has_number(&w, td_leaf(out, "n.b"), 1));
}
GPU_CASE(lost_source_is_refused) {
  for (int32_t n = -1; n < 3; n++) {
    refuse(true, n);
    refuse(false, n);
  }
}

/* One transfer is queued after a cancelled write of its source, and another after a write that succeeds. */
SIM_CASE(lost_source_of_a_queued_transfer) {
  scoped_place w = place_sim(4, 20e6, 1);
  scoped_tree src = numbered_tree(&w, NULL, 1), dst = numbered_tree(&w, w.memory, 2), out = NULL;
  hold(&w);
  tdict_future *lost = copy_async(&w, src, dst, NULL), *reads = move_async(&w, dst, tdict_cpu(), NULL),
               *good = copy_async(&w, src, dst, NULL), *reads_too = move_async(&w, dst, tdict_cpu(), NULL);
  tdict_future_cancel(lost);
  resume(&w);
  REFUSED("a", tdict_future_wait(reads, &out, err));
  assert_null(out);
  finish_copy(good);
  out = finish(reads_too);
  check_tree_number(&w, out, 1);
  td_release(lost, reads);
}

/* The tree also has an object, whose hooks run before the lost leaf is found. */
GPU_CASE(lost_source_beside_an_object) {
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  tdict_tree *good = new_tree(), *bad = new_tree(), *out = NULL;
  td_put(good, "n.x", new_bytes(1000, w.memory));
  td_put(bad, "n.x", new_bytes(1000, NULL));
  lose(&w, good, bad);
  put_pair(bad, "pair", &pair_hooked, &p, 1);
  for (int32_t n = -1; n < 3; n++) {
    tdict_transfer_options o = threads(n);
    REFUSED("n.x", tdict_to_device(w.c, bad, w.device, &o, &out, err));
    scoped_future f = move_async(&w, bad, w.device, &o);
    REFUSED("n.x", tdict_future_wait(f, &out, err));
  }
  assert_null(out);
  td_release(good, bad);
}

GPU_CASE(lost_source_of_a_tensor_copy) {
  scoped_place w = place_open(2);
  scoped_tree good = new_tree(), bad = new_tree();
  scoped_tensor into = new_bytes(1000, NULL), clone = NULL;
  td_put(good, "x", new_bytes(1000, NULL));
  td_put(bad, "x", new_bytes(1000, w.memory));
  put_number(&w, into, 5);
  lose(&w, good, bad);
  td_fails(TDICT_EINVAL, "transfer into them failed", tdict_tensor_copy(into, td_leaf(bad, "x"), err));
  td_fails(TDICT_EINVAL, "transfer into them failed", tdict_tensor_clone(td_leaf(bad, "x"), NULL, &clone, err));
  assert_null(clone);
  assert_true(has_number(&w, into, 5));
}

/* Reads of one leaf that start while a transfer into this leaf fails. The transfer has many more leaves, so that it
 * ends slowly and reads can start in the meantime. */
enum { ENDING_LEAVES = 30000, MOST_READS = 3000 };
typedef struct reading {
  const place *w;
  const tdict_tree *td;
  tdict_future *ending; /* the transfer that fails; reads are started until it has ended */
  tdict_future *reads[MOST_READS];
  atomic_int begun;
  int count, refused, strange; /* used only by the reading thread */
} reading;
static void *read_on(void *user) {
  reading *r = user;
  for (bool ended = false; !ended && r->count < MOST_READS;) {
    ended = tdict_future_is_ready(r->ending);
    tdict_error why = {0};
    tdict_status status = tdict_to_device_async(r->w->c, r->td, r->w->device, NULL, &r->reads[r->count], &why);
    if (status == TDICT_OK)
      r->count++;
    else if (status == TDICT_EINVAL)
      r->refused++;
    else
      r->strange++;
    atomic_fetch_add(&r->begun, 1);
  }
  return NULL;
}
static int meet_an_end(const place *w, tdict_tree *src, tdict_tree *dst) {
  TD_FREED reading *r = td_zeros(1, sizeof *r);
  scoped_tree one = new_tree(), feed = new_tree(), from = new_tree();
  const char *last = td_text("k%d", ENDING_LEAVES - 1);
  td_ok(tdict_set(one, "x", td_leaf(dst, last), err));
  td_ok(tdict_set(feed, "x", td_leaf(src, last), err));
  td_put(from, "x", new_bytes(8, w->memory));
  hold(w);
  tdict_future *before = copy_async(w, from, feed, NULL);
  *r = (reading){.w = w, .td = one, .ending = copy_async(w, src, dst, NULL)};
  tdict_future_cancel(r->ending);
  pthread_t thread = td_start(read_on, r);
  for (int i = 0; i < PROMISE_LONG_MS * 10 && atomic_load(&r->begun) < 3; i++) usleep(100);
  resume(w);
  assert_int_equal(pthread_join(thread, NULL), 0);
  finish_copy(before);
  assert_int_equal(tdict_future_wait(r->ending, NULL, NULL), TDICT_ECANCELLED);
  tdict_future_release(r->ending);
  int wrong = r->strange, met = r->count + r->refused;
  for (int i = 0; i < r->count; i++) {
    wrong += tdict_future_wait(r->reads[i], NULL, NULL) != TDICT_EINVAL;
    tdict_future_release(r->reads[i]);
  }
  if (wrong) fail_msg("%d of %d reads did not fail with TDICT_EINVAL", wrong, met);
  return met;
}
SIM_CASE(lost_source_is_seen_while_its_transfer_ends) {
  scoped_place w = place_sim(4, 0, 1);
  scoped_tree src = new_tree(), dst = new_tree();
  for (int i = 0; i < ENDING_LEAVES; i++) {
    const char *path = td_text("k%d", i);
    td_put(src, path, new_bytes(8, NULL));
    td_put(dst, path, new_bytes(8, NULL));
  }
  for (int i = 0; i < 25; i += SANITIZED_STEP) assert_true(meet_an_end(&w, src, dst) >= 3);
}
