/* Tests where elements are converted: by kernels if fewer bytes then cross the link, otherwise by host threads. */
#include "core/base/error.h"
#include "device/gpu.h"
#include "engine/conversions.h"

/* If true, loading the kernels fails. Host threads then convert all leaves, and the wider elements cross the link. */
static bool has_no_kernels;
tdict_status __real_tdict_gpu_load_kernels(tdict_gpu *gpu, tdict_error *err);
tdict_status __wrap_tdict_gpu_load_kernels(tdict_gpu *gpu, tdict_error *err);
tdict_status __wrap_tdict_gpu_load_kernels(tdict_gpu *gpu, tdict_error *err) {
  if (has_no_kernels) return tdict_fail(err, TDICT_ENOTSUP, "the driver cannot compile the library's kernels");
  return __real_tdict_gpu_load_kernels(gpu, err);
}

/* Checks how many bytes cross the link, and the converted elements, with and without kernels. */
GPU_CASE(conversions_choose_the_narrow_wire) {
  static const struct {
    tdict_dtype from, to;
    size_t in, out, host_in, host_out; /* bytes per element on the link; host_: without kernels */
  } wires[] = {{TDICT_U8, TDICT_F32, 1, 1, 4, 1},
               {TDICT_F32, TDICT_BF16, 2, 2, 2, 4},
               {TDICT_F16, TDICT_BF16, 2, 2, 2, 2},
               {TDICT_F32, TDICT_I64, 8, 4, 8, 4}, /* not by a kernel: range errors would be found too late */
               {TDICT_I64, TDICT_U8, 1, 8, 1, 8}};
  enum { COUNT = 40000 };
  scoped_place w = open_place();
  for (int k = 0; k < 10; k++) {
    const tdict_dtype from = wires[k / 2].from, to = wires[k / 2].to;
    const pair_of p = {"a", from, to, 1, 0};
    scoped_tree src = new_tree(), there = NULL, out = NULL;
    tdict_tensor *t = td_made(tensor, tdict_tensor_empty(from, SHAPE(COUNT), NULL, &made, err));
    fill_fitting(t, &p);
    td_put(src, "a", t);
    there = to_device(&w, src, w.device);
    has_no_kernels = k % 2;
    const tdict_conversion c = to_dtype("a", to);
    tdict_transfer_stats s = tdict_transfer_stats_default();
    tdict_transfer_options o = converting(&c, 1, &s);
    td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
    check_converted(&w, &p, t, td_leaf(out, "a"));
    assert_int_equal(s.wire_bytes, COUNT * (k % 2 ? wires[k / 2].host_in : wires[k / 2].in));
    tdict_release(out);
    td_ok(tdict_to_device(w.c, there, tdict_cpu(), &o, &out, err));
    check_converted(&w, &p, t, td_leaf(out, "a"));
    assert_int_equal(s.wire_bytes, COUNT * (k % 2 ? wires[k / 2].host_out : wires[k / 2].out));
    has_no_kernels = false;
  }
}

/* If the program sets wire_dtype, elements are first rounded to wire_dtype and then converted to `dtype`. On one
 * device, wire_dtype is ignored. */
GPU_CASE(conversions_with_a_named_wire) {
  enum { COUNT = 30001 };
  scoped_place w = open_place();
  scoped_tree src = new_tree(), out = NULL;
  tdict_tensor *t = NULL;
  const pair_of p = {"a", TDICT_F32, TDICT_BF16, 1, 0}, again = {"a", TDICT_BF16, TDICT_F64, 1, 0};
  td_ok(tdict_tensor_empty(TDICT_F32, SHAPE(COUNT), NULL, &t, err));
  fill_fitting(t, &p);
  td_put(src, "a", t);
  scoped_tree there = to_device(&w, src, w.device), rounded = NULL;
  td_ok(tdict_to_dtype(src, TDICT_BF16, NULL, NULL, &rounded, err));
  tdict_conversion c = to_dtype("a", TDICT_F64);
  tdict_transfer_stats s = tdict_transfer_stats_default();
  tdict_transfer_options o = converting(&c, 1, &s);
  for (int same = 0; same < 2; same++) {
    const pair_of want = same ? (pair_of){"a", TDICT_BF16, TDICT_F32, 1, 0} : again;
    c.dtype = want.to;
    c.wire_dtype = TDICT_BF16;
    td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
    assert_int_equal(s.wire_bytes, COUNT * 2);
    check_converted(&w, &want, td_leaf(rounded, "a"), td_leaf(out, "a"));
    td_release(out);
    scoped_tree back = td_made(tree, tdict_to_device(w.c, there, tdict_cpu(), &o, &made, err));
    assert_int_equal(s.wire_bytes, COUNT * 2);
    check_converted(&w, &want, td_leaf(rounded, "a"), td_leaf(back, "a"));
  }
  td_ok(tdict_to_device(w.c, there, w.device, &o, &out, err)); /* already on the device with this dtype */
  assert_ptr_equal(out, there);
  td_release(out);
  has_no_kernels = true;
  out = NULL;
  td_fails_at(TDICT_ENOTSUP, "cannot compile the library's kernels", "a",
              tdict_to_device(w.c, src, w.device, &o, &out, err));
  has_no_kernels = false;
  c.wire_dtype = 77;
  td_fails_at(TDICT_EDTYPE, "options.conversions[0]: wire_dtype 0x4d is unknown", "a",
              tdict_to_device(w.c, src, w.device, &o, &out, err));
  c.wire_dtype = TDICT_C64;
  td_fails_at(TDICT_ENOTSUP, "from float32 to float32 with the wire dtype complex64 is not supported", "a",
              tdict_to_device(w.c, src, w.device, &o, &out, err));
  assert_null(out);
}

/* Within a device, a kernel converts the tensors. A conversion in which elements may not fit is refused. */
GPU_CASE(conversions_within_a_device) {
  scoped_place w = open_place();
  scoped_tree src = make_sources(&w, 0), there = to_device(&w, src, w.device);
  tdict_tree *out = NULL;
  tdict_tree *large = new_tree();
  td_put(large, "a", random_tensor(TDICT_U8, SHAPE(9, 1000003), NULL)); /* several chunks of 16 MiB */
  const tdict_conversion wide[2] = {scaled("*", TDICT_F32, 0.5, 1), to_dtype("deep.two", TDICT_F64)};
  tdict_transfer_options o = converting(wide, 1, NULL);
  tdict_tree *large_there = to_device(&w, large, w.device);
  td_ok(tdict_to_device(w.c, large_there, w.device, &o, &out, err));
  const unsigned char *from = tdict_tensor_const_data(td_leaf(large, "a"));
  float *got = (float *)(void *)read_elements(&w, td_leaf(out, "a"));
  for (size_t i = 0; i < 9 * 1000003; i++) assert_true(got[i] == (float)from[i] * 0.5f + 1);
  free(got);
  td_release(out, large_there, large);
  o.conversions = &wide[1];
  td_ok(tdict_to_device(w.c, there, w.device, &o, &out, err));
  check_converted(&w, &pairs[6], td_leaf(src, "deep.two"), td_leaf(out, "deep.two"));
  td_release(out);
  const tdict_conversion narrow = to_dtype("tokens", TDICT_U16);
  o.conversions = &narrow;
  td_fails_at(TDICT_ENOTSUP, "from int64 to uint16 needs a kernel on one device", "tokens",
              tdict_to_device(w.c, there, w.device, &o, &out, err));
  assert_null(out);
}

/* One slot may hold leaves that kernels convert, leaves that host threads convert, and leaves without a conversion. */
GPU_CASE(conversions_mix_in_large_slots) {
  static const tdict_dtype from[] = {TDICT_U8, TDICT_F32, TDICT_I16, TDICT_F64};
  static const pair_of wide = {"wide", TDICT_U8, TDICT_F32, 0.5, 1}, narrow = {"narrow", TDICT_F64, TDICT_BF16, 1, 0};
  enum { COUNT = 300 };
  scoped_place w = place_sized(16 << 20, -1);
  scoped_tree src = new_tree();
  char path[64];
  for (int i = 0; i < COUNT; i++) {
    snprintf(path, sizeof path, "g%d.%s", i, i % 4 == 0 ? "wide" : i % 4 == 3 ? "narrow" : "plain");
    td_put(src, path, random_tensor(from[i % 4], SHAPE(i * 37 % 1501), NULL));
  }
  scoped_tree there = to_device(&w, src, w.device);
  const tdict_conversion c[2] = {scaled("*.wide", TDICT_F32, 0.5, 1), to_dtype("*.narrow", TDICT_BF16)};
  for (int k = 0; k < NUM_WAYS; k += WAYS_STEP) {
    way v = way_at(k);
    use_conversions(&v.o, c, 2);
    poison(&w, w.memory, 2 << 20);
    scoped_tree out = move_tree(&w, k % 2 ? src : there, k % 2 ? w.device : tdict_cpu(), &v);
    for (int i = 0; i < COUNT; i++) {
      snprintf(path, sizeof path, "g%d.%s", i, i % 4 == 0 ? "wide" : i % 4 == 3 ? "narrow" : "plain");
      if (i % 4 == 0 || i % 4 == 3)
        check_converted(&w, i % 4 ? &narrow : &wide, td_leaf(src, path), td_leaf(out, path));
      else
        check_tensor(&w, td_leaf(src, path), td_leaf(out, path), path);
    }
  }
}

SIM_CASE(conversions_between_two_devices) {
  tdict_context_options co = tdict_context_options_default();
  co.sim = td_options(tdict_sim_options, num_devices = 2);
  scoped_place w = place_around(td_context(&co));
  scoped_tree src = bytes_tree("a", 100, NULL), there = NULL;
  tdict_tree *out = NULL;
  there = to_device(&w, src, tdict_sim(0));
  const tdict_conversion c = to_dtype("a", TDICT_F32);
  tdict_transfer_options o = converting(&c, 1, NULL);
  td_fails_at(TDICT_ENOTSUP, "from uint8 to float32 needs a kernel on one device", "a",
              tdict_to_device(w.c, there, tdict_sim(1), &o, &out, err));
  assert_null(out);
}
