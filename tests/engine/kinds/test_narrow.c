/* Tests the option narrow: integers and bools are packed for the transfer to a device, and arrive unchanged. */
#include "engine/narrow.h"

#include "core/base/error.h"
#include "device/gpu.h"

/* If true, loading the kernels fails, and tensors are then sent unpacked. */
static bool has_no_kernels;
tdict_status __real_tdict_gpu_load_kernels(tdict_gpu *gpu, tdict_error *err);
tdict_status __wrap_tdict_gpu_load_kernels(tdict_gpu *gpu, tdict_error *err);
tdict_status __wrap_tdict_gpu_load_kernels(tdict_gpu *gpu, tdict_error *err) {
  if (has_no_kernels) return tdict_fail(err, TDICT_ENOTSUP, "the driver cannot compile the library's kernels");
  return __real_tdict_gpu_load_kernels(gpu, err);
}

/* Moves trees to the test's device and back, in all modes and with different numbers of threads. */
DEVICE_CASE(narrow_arrives_in_all_ways) {
  scoped_place w = open_place();
  for (int layout = 0; layout < 3; layout++) {
    scoped_tree src = narrow_tree(layout == 2 ? w.pinned : NULL, layout == 1);
    for (int i = layout; i < NUM_WAYS; i += 3 * WAYS_STEP) {
      way v = way_at(i);
      v.o.narrow = 1;
      poison(&w, w.memory, line_bytes(src));
      scoped_tree out = move_tree(&w, src, w.device, &v), back = move_tree(&w, out, tdict_cpu(), &v);
      check_tree(&w, src, out);
      check_tree(&w, src, back);
    }
  }
}

/* Checks slots that hold many blocks and many leaves. */
GPU_CASE(narrow_fills_large_slots) {
  scoped_place w = large_world();
  for (int i = 0; i < 6; i++) {
    scoped_tree src = narrow_tree(NULL, i % 2);
    char path[32];
    for (int k = 0; k < 40; k++) { /* incompressible leaves of 4096 bytes have the largest heads */
      snprintf(path, sizeof path, "rows.r%d", k);
      td_put(src, path, pv_tensor(TDICT_I64, SHAPE(512), PV_RANDOM, NULL));
    }
    td_put(src, "large", pv_tensor(pv_dtypes[i % PV_DTYPES], SHAPE(3, 500009), PV_MIXED, NULL));
    td_put(src, "random", pv_tensor(TDICT_I64, SHAPE(400001), PV_RANDOM, NULL));
    way v = way_at(4 + 7 * i);
    v.o.narrow = 1;
    poison(&w, w.memory, line_bytes(src));
    check_and_release(&w, src, move_tree(&w, src, w.device, &v));
  }
}

/* Checks that packed elements and heads fit into slots of every size. */
GPU_CASE(narrow_heads_fit_into_slots) {
  for (size_t slot = 4096; slot <= 65536; slot += slot < 16384 ? 4096 : 16384) {
    scoped_place w = place_sized(32 * slot, -1);
    scoped_tree src = new_tree();
    for (int k = 0; k < 64; k++)
      td_put(src, td_text("r%d", k), pv_tensor(TDICT_U64, SHAPE(512 + k % 3), PV_RANDOM, NULL));
    for (int i = 0; i < NUM_WAYS; i += 5) {
      way v = way_at(i);
      v.o.narrow = 1;
      check_and_release(&w, src, move_tree(&w, src, w.device, &v));
    }
  }
}

/* If all leaves are in one chunk, `wire_bytes` is the model's packed size plus the size of unpacked leaves. */
GPU_CASE(narrow_counts_the_bytes_on_the_wire) {
  scoped_place w = large_world();
  for (int d = 0; d < PV_DTYPES; d++)
    for (int kind = 0; kind < PV_KINDS; kind++) {
      scoped_tree src = new_tree(), out = NULL;
      tdict_transfer_stats s = tdict_transfer_stats_default();
      tdict_transfer_options o = narrow_options(&s);
      o.num_threads = 0;
      const int64_t count = 40001 / (int64_t)pv_item(pv_dtypes[d]) + 7 * kind;
      tdict_tensor *t = pv_tensor(pv_dtypes[d], SHAPE(count), (pv_kind)kind, NULL);
      td_put(src, "a", t);
      td_put(src, "b", random_tensor(TDICT_F32, SHAPE(33), NULL));
      td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
      check_tree(&w, src, out);
      assert_int_equal(s.num_chunks, 1);
      assert_int_equal(s.total_bytes, tdict_tensor_bytes(t) + 33 * 4);
      assert_int_equal(s.staged_bytes, s.total_bytes);
      assert_int_equal(s.wire_bytes, pv_packed_bytes(pv_dtypes[d], t->data, tdict_tensor_bytes(t)) + 33 * 4);
      tdict_release(out);
      td_ok(tdict_to_device(w.c, src, w.device, &(tdict_transfer_options){sizeof o, .num_threads = -1, .stats = &s},
                            &out, err));
      assert_int_equal(s.wire_bytes, s.total_bytes); /* off by default */
    }
}

/* Large leaves with small ranges are sent in a fraction of their bytes. */
GPU_CASE(narrow_saves_most_bytes_of_tokens) {
  scoped_place w = large_world();
  scoped_tree src = new_tree();
  td_put(src, "tokens", pv_tensor(TDICT_I64, SHAPE(1 << 19), PV_HALF, NULL));
  td_put(src, "times", pv_tensor(TDICT_U64, SHAPE(1 << 18), PV_WORD, NULL));
  td_put(src, "mask", pv_tensor(TDICT_BOOL, SHAPE(1 << 20), PV_BYTE, NULL));
  for (int i = 0; i < 6; i++) {
    tdict_transfer_stats s = tdict_transfer_stats_default();
    tdict_transfer_options o = narrow_options(&s);
    o.mode = i < 3 ? TDICT_MODE_NON_BLOCKING_PIN : i == 3 ? TDICT_MODE_BLOCKING : TDICT_MODE_NON_BLOCKING;
    o.num_threads = i == 0 ? 0 : i == 1 ? 3 : -1;
    scoped_tree out = move_with(&w, src, w.device, &o);
    check_tree(&w, src, out);
    const size_t least = (1 << 20) + (1 << 20) + (1 << 17);
    assert_true(s.wire_bytes >= least && s.wire_bytes < least + least / 50);
  }
}

/* Pinned tensors that the driver copies directly are not packed. */
GPU_CASE(narrow_leaves_pinned_tensors_alone) {
  scoped_place w = large_world();
  scoped_tree src = new_tree(), out = NULL;
  tdict_transfer_stats s = tdict_transfer_stats_default();
  tdict_transfer_options o = narrow_options(&s);
  td_put(src, "a", pv_tensor(TDICT_I64, SHAPE(1 << 17), PV_BYTE, w.pinned));
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  check_tree(&w, src, out);
  assert_int_equal(s.direct_bytes, s.total_bytes);
  assert_int_equal(s.wire_bytes, s.total_bytes);
}

/* Without kernels, and for transfers to the host, leaves are sent unpacked. */
GPU_CASE(narrow_needs_kernels) {
  scoped_place w = large_world();
  scoped_tree src = narrow_tree(NULL, false), out = NULL;
  tdict_transfer_stats s = tdict_transfer_stats_default();
  tdict_transfer_options o = narrow_options(&s);
  has_no_kernels = true;
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  has_no_kernels = false;
  check_tree(&w, src, out);
  assert_int_equal(s.wire_bytes, s.total_bytes);
  tdict_tree *back = td_made(tree, tdict_to_device(w.c, out, tdict_cpu(), &o, &made, err));
  check_tree(&w, src, back);
  assert_int_equal(s.wire_bytes, s.total_bytes);
  td_release(back, out);
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  assert_true(s.wire_bytes < s.total_bytes);
}

/* Writes into existing tensors with different alignments and strides. The bytes around them do not change. */
DEVICE_CASE(narrow_into_a_destination) {
  scoped_place w = open_place();
  scoped_tree src = narrow_tree(NULL, true), dst = new_tree();
  scoped_leaf_list l = list_entries(src);
  for (size_t i = 0; i < l.count; i++) {
    const tdict_tensor *s = l.tensors[i];
    if (!s) continue;
    const int64_t n = tdict_tensor_numel(s), first = (int64_t)i % 5, *shape = tdict_tensor_shape(s);
    tdict_tensor *t = td_made(tensor, tdict_tensor_empty(tdict_tensor_dtype(s), SHAPE(n + 9), w.memory, &made, err));
    const bool is_flat = tdict_tensor_ndim(s) == 1;
    const int64_t strides[] = {is_flat ? 1 : i % 3 ? shape[1] : 1, i % 3 ? 1 : shape[0]};
    td_put(dst, l.paths[i], restrided(t, first, tdict_tensor_ndim(s), shape, strides));
  }
  for (int i = 0; i < NUM_WAYS; i += 5) {
    way v = way_at(i);
    v.o.narrow = 1;
    spoil_tree(&w, dst);
    copy_tree(&w, src, dst, &v);
    check_tree(&w, src, dst);
    for (size_t k = 0; k < l.count; k++) {
      if (!l.tensors[k]) continue;
      const tdict_tensor *t = td_leaf(dst, l.paths[k]);
      scoped_bytes all = read_storage(&w, t);
      const size_t begin = (size_t)((char *)t->data - (char *)t->storage->data), end = begin + tdict_tensor_bytes(t);
      for (size_t at = 0; at < t->storage->bytes; at++)
        if (at < begin || at >= end) assert_int_equal(all[at], POISON);
    }
  }
}
