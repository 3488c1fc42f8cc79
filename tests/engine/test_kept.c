/* Tests the option keep: kept entries are shared, not copied. */
#include "trees.h"

static const char *const kept_patterns[] = {"meta", "**.text", "list.*"};
static tdict_transfer_options keeping(void) {
  return td_with(tdict_transfer_options, keep = kept_patterns, num_keep = 3);
}

/* The paths of tensors that the patterns keep, and of tensors that are moved. list.* keeps the whole tree list.n. */
static const char *const staying[] = {"meta.id", "meta.deep.x", "text", "deep.text", "list.a", "list.n.b"};
static const char *const moving[] = {"obs", "deep.x.y", "other.texts"};
static tdict_tree *mixed_sources(void) {
  tdict_tree *td = new_tree();
  const tdict_device cpu = tdict_cpu();
  for (size_t i = 0; i < 6; i++) {
    if (i < 3) td_put(td, moving[i], random_tensor(TDICT_F32, SHAPE(100 + (int64_t)i), NULL));
    td_put(td, staying[i], random_tensor(TDICT_U8, SHAPE(50 + (int64_t)i), NULL));
  }
  td_put_tree(td, "meta.empty", new_tree());
  td_ok(tdict_set_device(td, &cpu, err));
  return td;
}
static bool has_device(const tdict_tree *td, const char *path, tdict_device *out) {
  tdict_tree *child = td_made(tree, tdict_get_tree(td, path, &made, err));
  return tdict_get_device(child, out);
}

GPU_CASE(kept_entries_stay_where_they_are) {
  scoped_place w = open_place();
  scoped_tree src = mixed_sources();
  for (int i = 0; i < NUM_WAYS; i += 3) {
    way v = way_at(i);
    v.o.keep = kept_patterns;
    v.o.num_keep = 3;
    scoped_tree out = move_tree(&w, src, w.device, &v);
    check_tree(&w, src, out);
    tdict_device device;
    for (size_t k = 0; k < 6; k++) assert_ptr_equal(td_leaf(out, staying[k]), td_leaf(src, staying[k]));
    for (size_t k = 0; k < 3; k++)
      assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(out, moving[k])), w.device));
    /* a node with a kept tensor, and the nodes above it, have no device */
    assert_false(tdict_get_device(out, &device));
    assert_false(has_device(out, "meta", &device) || has_device(out, "deep", &device) ||
                 has_device(out, "list", &device) || has_device(out, "list.n", &device));
    assert_true(has_device(out, "deep.x", &device) && tdict_device_equal(device, w.device));
    assert_true(has_device(out, "other", &device) && tdict_device_equal(device, w.device));
    /* nodes are not shared: a change of the result does not change the source */
    td_ok(tdict_delete(out, "meta.id", err));
    assert_true(tdict_has(src, "meta.id"));
  }
  tdict_transfer_options o = keeping();
  tdict_transfer_stats s = tdict_transfer_stats_default();
  o.stats = &s;
  tdict_lock(src);
  scoped_tree out = move_with(&w, src, w.device, &o);
  assert_int_equal(s.num_leaves, 9);
  assert_int_equal(s.num_shared_leaves, 6);
  assert_int_equal(s.total_bytes, 4 * (100 + 101 + 102));
  assert_true(tdict_is_locked(out));
  tdict_device device;
  assert_true(tdict_get_device(src, &device) && device.type == TDICT_DEVICE_CPU);
}

/* Tests patterns that match no entry or all entries, and tensors that are already on the device. */
GPU_CASE(kept_entries_all_or_none) {
  scoped_place w = open_place();
  scoped_tree src = mixed_sources(), out = NULL;
  tdict_device device;
  static const char *const none[] = {"?no.such", "?*.**.nowhere"}, *const all[] = {"**"}, *const obs[] = {"obs"};
  tdict_transfer_options o = td_with(tdict_transfer_options, keep = none, num_keep = 2);
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  check_device(out, w.device);
  check_tree(&w, src, out);
  assert_true(tdict_get_device(out, &device) && tdict_device_equal(device, w.device));
  o.keep = all;
  o.num_keep = 1;
  scoped_tree again = move_with(&w, src, w.device, &o); /* nothing is copied, so the call returns the source itself */
  assert_ptr_equal(again, src);
  tdict_release(again);
  o.keep = obs;
  td_ok(tdict_set_device(src, NULL, err));
  td_ok(tdict_set(src, "obs", td_leaf(out, "obs"), err));
  td_ok(tdict_to_device(w.c, src, w.device, &o, &again, err)); /* kept, and already on the device */
  assert_ptr_equal(td_leaf(again, "obs"), td_leaf(out, "obs"));
  assert_true(tdict_get_device(again, &device) && tdict_device_equal(device, w.device));
  tdict_release(again);
  o.keep = NULL; /* without patterns */
  o.num_keep = 0;
  td_ok(tdict_to_device(w.c, src, w.device, &o, &again, err));
  check_device(again, w.device);
}

GPU_CASE(kept_entries_are_not_pinned) {
  scoped_place w = open_place();
  scoped_tree src = mixed_sources(), out = NULL, there = NULL;
  tdict_pin_options o = td_with(tdict_pin_options, keep = kept_patterns, num_keep = 3);
  td_ok(tdict_pin_memory(w.c, src, &o, &out, err));
  check_tree(&w, src, out);
  for (size_t k = 0; k < 6; k++) assert_ptr_equal(td_leaf(out, staying[k]), td_leaf(src, staying[k]));
  for (size_t k = 0; k < 3; k++) assert_true(tdict_tensor_is_pinned(td_leaf(out, moving[k])));
  tdict_device device;
  assert_true(tdict_get_device(out, &device) && device.type == TDICT_DEVICE_CPU);
  td_release(out);
  /* A kept tensor may be on a device. */
  td_ok(tdict_to_device(w.c, src, w.device, NULL, &there, err));
  td_ok(tdict_set_device(src, NULL, err));
  td_ok(tdict_set(src, "text", td_leaf(there, "text"), err));
  td_ok(tdict_pin_memory(w.c, src, &o, &out, err));
  assert_ptr_equal(td_leaf(out, "text"), td_leaf(there, "text"));
  td_release(out);
  td_fails(TDICT_EWRONGDEVICE, "wanted one on the cpu", tdict_pin_memory(w.c, src, NULL, &out, err));
}

/* Kept entries of a destination are not written. Only their keys are compared. */
DEVICE_CASE(kept_entries_are_not_written) {
  scoped_place w = open_place();
  scoped_tree src = mixed_sources(), like = mixed_sources(), dst = NULL;
  td_ok(tdict_clone_deep(like, TD_IN(w.memory), &dst, err));
  td_put(src, "text", random_tensor(TDICT_F64, SHAPE(3, 3), NULL)); /* a different dtype and shape */
  td_ok(tdict_delete(dst, "meta", err));
  tdict_tensor *number = td_made(tensor, tdict_tensor_empty(TDICT_U8, 0, NULL, w.memory, &made, err));
  td_ok(tdict_set(dst, "meta", number, err)); /* a tensor here, but a tree in the source */
  tdict_tensor_release(number);
  for (int i = 0; i < NUM_WAYS; i += 3) {
    way v = way_at(i);
    v.o.keep = kept_patterns;
    v.o.num_keep = 3;
    copy_tree(&w, src, dst, &v);
    for (size_t k = 0; k < 3; k++) check_tensor(&w, td_leaf(src, moving[k]), td_leaf(dst, moving[k]), moving[k]);
    for (size_t k = 2; k < 6; k++) check_tensor(&w, td_leaf(like, staying[k]), td_leaf(dst, staying[k]), staying[k]);
    for (size_t k = 0; k < 3; k++) {
      tdict_tensor *t = td_leaf(dst, moving[k]);
      raw_fill(raw_of(&w, t), t->data, POISON, tdict_tensor_bytes(t));
    }
  }
  tdict_transfer_options o = keeping();
  o.num_keep = 1; /* "text" is not kept now, so its dtype is compared */
  td_fails_at(TDICT_EDTYPE, "the source is", "text", tdict_transfer_into(w.c, dst, src, &o, err));
  o.num_keep = 3;
  td_ok(tdict_rename(dst, "text", "texts", false, err));
  td_fails_at(TDICT_ENOTFOUND, "the destination has no such key; keys: texts", "text",
              tdict_transfer_into(w.c, dst, src, &o, err));
}

DEVICE_CASE(kept_patterns_are_checked_first) {
  scoped_place w = open_place();
  scoped_tree src = mixed_sources(), out = NULL;
  tdict_future *f = NULL;
  tdict_transfer_options o = tdict_transfer_options_default();
  tdict_pin_options p = tdict_pin_options_default();
  static const char *const bad[] = {"fine", "obs*"};
  o.keep = p.keep = bad;
  o.num_keep = p.num_keep = 2;
  td_fails(TDICT_EINVAL, "to_device: options.keep[1]: a star", tdict_to_device(w.c, src, w.device, &o, &out, err));
  assert_string_equal(td_last_error.path, "obs*");
  td_fails(TDICT_EINVAL, "options.keep[1]: a star", tdict_to_device_async(w.c, src, w.device, &o, &f, err));
  td_fails(TDICT_EINVAL, "options.keep[1]: a star", tdict_transfer_into(w.c, src, src, &o, err));
  if (w.gpu) td_fails(TDICT_EINVAL, "pin_memory: options.keep[1]", tdict_pin_memory(w.c, src, &p, &out, err));
  o.keep = NULL;
  td_fails(TDICT_EINVAL, "options.keep is NULL", tdict_to_device(w.c, src, w.device, &o, &out, err));
  assert_null(out);
  assert_null(f);
}

/* A kept tensor is nested 31 levels deep, so each traversal of the tree allocates memory. */
SIM_CASE(kept_entries_survive_enomem) {
  scoped_place w = open_place();
  scoped_tree src = mixed_sources();
  char path[128] = "a";
  for (int i = 0; i < 30; i++) strcat(path, ".a");
  strcat(path, ".text");
  td_put(src, path, random_tensor(TDICT_U8, SHAPE(5), NULL));
  tdict_transfer_options o = keeping();
  o.num_threads = 0;
  TD_SWEEP(s) {
    scoped_tree out = NULL;
    if (td_sweep_call(s, tdict_to_device(w.c, src, w.device, &o, &out, err)) == TDICT_OK) {
      check_tree(&w, src, out);
      assert_false(tdict_get_device(out, NULL));
    } else {
      assert_null(out);
    }
    assert_true(s.failed || s.n > 10);
  }
}

/* With patterns, consolidated trees move leaf by leaf. */
GPU_CASE(kept_entries_of_consolidated_trees) {
  scoped_place w = open_place();
  scoped_tree td = mixed_sources(), src = NULL, out = NULL;
  tdict_transfer_options o = keeping();
  td_ok(tdict_consolidate(td, NULL, &src, err));
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  assert_true(tdict_is_locked(out) && !tdict_is_consolidated(out));
  check_tree(&w, td, out);
  for (size_t k = 0; k < 6; k++) assert_ptr_equal(td_leaf(out, staying[k]), td_leaf(src, staying[k]));
}
