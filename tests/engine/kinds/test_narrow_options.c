/* Tests the option narrow with other options, with other kinds of trees, and with failing calls. */
#include "engine/narrow.h"

#include "engine/conversions.h"
#include "support/things.h"
#include "support/unloaded.h"

/* Converted leaves are sent in their wire dtype, kept leaves are shared, and sources are checked. */
GPU_CASE(narrow_beside_other_options) {
  scoped_place w = large_world();
  scoped_tree src = new_tree(), out = NULL;
  static const char *const keep[] = {"kept"};
  tdict_transfer_stats s = tdict_transfer_stats_default();
  tdict_transfer_options o = narrow_options(&s);
  td_put(src, "a", pv_tensor(TDICT_I64, SHAPE(3000), PV_HALF, NULL));
  td_put(src, "b", pv_tensor(TDICT_U16, SHAPE(5000), PV_BYTE, NULL));
  td_put(src, "c", pv_tensor(TDICT_I32, SHAPE(5000), PV_BYTE, NULL));
  td_put(src, "kept", pv_tensor(TDICT_I64, SHAPE(4000), PV_BYTE, NULL));
  const tdict_conversion c[3] = {to_dtype("b", TDICT_F32), to_dtype("c", TDICT_I32), to_dtype("?a.*", TDICT_F32)};
  use_conversions(&o, c, 3);
  o.keep = keep;
  o.num_keep = 1;
  o.check_sources = true;
  o.max_queued_bytes = 256 << 10; /* all leaves are in one chunk */
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  check_tensor(&w, td_leaf(src, "a"), td_leaf(out, "a"), "a");
  check_converted(&w, &(pair_of){"b", TDICT_U16, TDICT_F32, 1, 0}, td_leaf(src, "b"), td_leaf(out, "b"));
  check_tensor(&w, td_leaf(src, "c"), td_leaf(out, "c"), "c"); /* converted to its own dtype, so packed */
  assert_ptr_equal(td_leaf(out, "kept"), td_leaf(src, "kept"));
  assert_int_equal(s.total_bytes, 24000 + 20000 + 20000);
  assert_int_equal(s.wire_bytes, pv_packed_bytes(TDICT_I64, td_leaf(src, "a")->data, 24000) + 10000 +
                                     pv_packed_bytes(TDICT_I32, td_leaf(src, "c")->data, 20000));
}

/* Moves consolidated and locked trees, tied leaves, views with another dtype, and objects. */
GPU_CASE(narrow_of_other_trees) {
  scoped_place w = large_world();
  scoped_tree src = narrow_tree(NULL, false), whole = NULL, out = NULL;
  tdict_transfer_stats s = tdict_transfer_stats_default();
  tdict_transfer_options o = narrow_options(&s);
  tdict_tensor *t = pv_tensor(TDICT_I64, SHAPE(2048), PV_BYTE, NULL), *raw = NULL;
  tdict_tensor_desc desc = desc_of(t->data, TDICT_F32, (const int64_t[]){4096});
  td_ok(tdict_tensor_over(t->storage, &desc, &raw, err));
  td_ok(tdict_set(src, "tied.a", t, err));
  td_put(src, "tied.floats", raw);
  td_put(src, "tied.b", t);
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  check_tree(&w, src, out);
  assert_ptr_equal(td_leaf(out, "tied.a")->data, td_leaf(out, "tied.b")->data);
  assert_ptr_equal(td_leaf(out, "tied.a")->data, td_leaf(out, "tied.floats")->data);
  td_release(out);
  td_ok(tdict_consolidate(src, NULL, &whole, err));
  tdict_lock(whole);
  tdict_lock(src);
  for (int i = 0; i < 8; i++) {
    const tdict_tree *from = i % 2 ? whole : src;
    o.narrow = i / 2 % 2;
    td_ok(tdict_to_device(w.c, from, w.device, &o, &out, err));
    check_tree(&w, src, out);
    assert_true(tdict_is_locked(out));
    assert_int_equal(s.wire_bytes < s.total_bytes, o.narrow);
    td_release(out);
  }
  td_release(whole, src);
  src = new_tree();
  thing *object =
      thing_create(pv_tensor(TDICT_I64, SHAPE(4000), PV_BYTE, NULL), random_tensor(TDICT_F32, SHAPE(33), NULL));
  td_ok(tdict_set_object(src, "thing", &thing_flat, object, err));
  o.narrow = 1;
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  void *moved = NULL;
  td_ok(tdict_get_object(out, "thing", &thing_flat, &moved, err));
  check_tensor(&w, object->a, ((thing *)moved)->a, "a");
  check_tensor(&w, object->b, ((thing *)moved)->b, "b");
  assert_int_equal(s.wire_bytes, pv_packed_bytes(TDICT_I64, object->a->data, 32000) + 33 * 4);
}

/* Moves leaves that a callback reads, including leaves whose read fails. */
GPU_CASE(narrow_of_unloaded_leaves) {
  scoped_place w = open_place();
  scoped_tree src = narrow_tree(NULL, false), out = NULL;
  for (int i = 0; i < NUM_WAYS; i += 6) {
    way v = way_at(i);
    scoped_disk d = disk_open();
    v.o.narrow = 1;
    scoped_tree twin = disk_twin(&d, src, 60, next_seed());
    check_and_release(&w, src, move_tree(&w, twin, w.device, &v));
    d.fail_at = d.begun + 3 + i;
    d.fault = DISK_ERROR;
    td_fails(TDICT_EIO, "", tdict_to_device(w.c, twin, w.device, &v.o, &out, err));
    assert_true(td_last_error.path[0] != 0);
  }
}

static tdict_status move_and_drop(const place *w, const tdict_tree *src, const tdict_transfer_options *o,
                                  tdict_error *err) {
  tdict_tree *out = NULL;
  const tdict_status status = tdict_to_device(w->c, src, w->device, o, &out, err);
  if (status == TDICT_OK) tdict_release(out);
  return status;
}
DEVICE_CASE(narrow_survives_enomem) {
  scoped_place w = open_place();
  scoped_tree src = new_tree(), empty = new_tree();
  tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = 0, narrow = 1);
  TD_WITHOUT_MEMORY(move_and_drop(&w, empty, &o, err)); /* a plan without leaves */
  td_put(src, "plain", pv_tensor(TDICT_I64, SHAPE(3000), PV_HALF, NULL));
  td_put(src, "strided", permuted(pv_tensor(TDICT_I32, SHAPE(100, 90), PV_BYTE, NULL), (const int[]){1, 0}));
  td_put(src, "floats", random_tensor(TDICT_F32, SHAPE(100), NULL));
  td_ok(move_and_drop(&w, src, &o, err)); /* creates the staging ring */
  TD_WITHOUT_MEMORY(move_and_drop(&w, src, &o, err));
}

/* After a cancelled transfer, the next transfer makes the destination valid again. */
SIM_CASE(narrow_can_be_cancelled) {
  scoped_place w = open_place();
  scoped_tree src = narrow_tree(NULL, false), dst = to_device(&w, src, w.device);
  tdict_tree *out = NULL;
  for (int i = 0; i < 4; i++) {
    held_stream h;
    hold_stream(&w, &h);
    tdict_transfer_options o = behind(&h);
    o.narrow = 1;
    o.num_threads = i + 1;
    spoil_tree(&w, dst);
    tdict_future *f = copy_async(&w, src, dst, &o);
    td_rest();
    tdict_future_cancel(f);
    atomic_store(&h.open, true);
    td_fails(TDICT_ECANCELLED, "", tdict_future_wait(f, &out, err));
    tdict_future_release(f);
    assert_null(tdict_tensor_const_data(td_leaf(dst, "d0.k0")));
    o.after = tdict_no_stream();
    td_ok(tdict_transfer_into(w.c, dst, src, &o, err));
    check_tree(&w, src, dst);
    tdict_stream_destroy(w.c, h.s);
  }
}
