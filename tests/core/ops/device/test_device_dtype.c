/* Tests conversions of trees on devices: results and errors as on the host, a single launch, and order on streams. */
#include "core/ops/device/pair.h"
#include "core/ops/device/rows.h"
#include "core/ops/twins.h"

enum { NUM_SEEDS = 300 };

/* Random elements often do not fit an integer dtype. The error must then be the same as on the host. */
GPU_CASE(device_to_dtype_equals_host) {
  static const tdict_dtype dtypes[] = {TDICT_U8,  TDICT_I8,  TDICT_I16, TDICT_U16,  TDICT_I32,    TDICT_U32,
                                       TDICT_I64, TDICT_U64, TDICT_F16, TDICT_BF16, TDICT_F8E4M3, TDICT_F8E5M2,
                                       TDICT_F32, TDICT_F64, TDICT_C64, TDICT_C128, TDICT_BOOL};
  scoped_world w = world_open();
  int num_good = 0, num_overflows = 0;
  nans_are_equal = true;
  TD_STREAM(s, w.context, td_device());
  for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
    rng r = {seed};
    scoped_pair p = pair_random(&w, seed, seed), got = {NULL, NULL};
    const tdict_dtype dtype = dtypes[pick(&r, 0, sizeof dtypes / sizeof *dtypes - 1)];
    tdict_run run = tdict_run_default();
    tdict_error errors[2] = {{0}, {0}};
    tdict_dtype_options o = td_with(tdict_dtype_options, floats_only = pick(&r, 0, 3) == 0);
    const tdict_status wanted = tdict_to_dtype(p.host, dtype, &o, &run, &got.host, &errors[0]);
    if (seed % 2) run.stream = s;
    if (pick(&r, 0, 1)) run.memory = w.memory;
    const tdict_status found = tdict_to_dtype(p.device, dtype, &o, &run, &got.device, &errors[1]);
    td_ok(tdict_stream_synchronize(w.context, s, err));
    if (found != wanted) fail_msg("seed %d: %s, wanted %s", (int)seed, errors[1].message, errors[0].message);
    assert_string_equal(errors[0].message, errors[1].message);
    assert_string_equal(errors[0].path, errors[1].path);
    if (wanted == TDICT_OK) pair_check(&w, &got);
    num_good += wanted == TDICT_OK;
    num_overflows += wanted == TDICT_EOVERFLOW;
  }
  assert_true(num_good > NUM_SEEDS / 4 && num_overflows > NUM_SEEDS / 10);
  nans_are_equal = false;
}

/* tdict_tensor_to_dtype() converts device tensors on the device, with the results and messages of the host. */
GPU_CASE(device_tensor_to_dtype_equals_host) {
  static const tdict_dtype dtypes[] = {TDICT_U8, TDICT_I32, TDICT_F16, TDICT_BF16, TDICT_F32, TDICT_F64, TDICT_BOOL};
  scoped_world w = world_open();
  int num_good = 0, num_bad = 0;
  for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
    rng r = {seed};
    pair p = pair_random(&w, seed, seed);
    const tdict_dtype dtype = dtypes[pick(&r, 0, sizeof dtypes / sizeof *dtypes - 1)];
    tdict_memory *memory = pick(&r, 0, 1) ? w.memory : NULL;
    for (size_t i = 0; i < tdict_num_keys(p.host); i++) {
      tdict_entry host, device;
      host = tdict_get_entry_at(p.host, i);
      device = tdict_get_entry_at(p.device, i);
      if (!host.tensor) continue;
      scoped_tensor wanted = NULL, found = NULL;
      tdict_error errors[2] = {{0}, {0}};
      const tdict_status first = tdict_tensor_to_dtype(host.tensor, dtype, NULL, &wanted, &errors[0]);
      assert_int_equal(tdict_tensor_to_dtype(device.tensor, dtype, TD_IN(memory), &found, &errors[1]), first);
      assert_string_equal(errors[0].message, errors[1].message);
      assert_string_equal(errors[1].path, "");
      num_good += first == TDICT_OK;
      num_bad += first != TDICT_OK;
      if (first != TDICT_OK) continue;
      assert_int_equal(tdict_tensor_dtype(found), dtype);
      assert_true(tdict_device_equal(tdict_tensor_device(found), td_device()));
      scoped_pair got = {NULL, NULL};
      td_ok(tdict_create(0, NULL, &got.host, err));
      td_ok(tdict_create(0, NULL, &got.device, err));
      td_ok(tdict_set(got.host, "t", wanted, err));
      td_ok(tdict_set(got.device, "t", found, err));
      nans_are_equal = true;
      pair_check(&w, &got);
      nans_are_equal = false;
    }
    pair_release(&p);
  }
  assert_true(num_good > NUM_SEEDS && num_bad > 10);
}

/* Checks that element `at` of the leaf "e" is the converted int32 of a tree of 40 rows from rows_tree(). */
static void check_double(const place *w, const tdict_tree *td, uint64_t number, int at) {
  int32_t numbers[240];
  TD_FREED double *found = (double *)(void *)get_bytes(w, td_leaf(td, "e"));
  td_fill_random(numbers, sizeof numbers, number);
  assert_true(found[at] == (double)numbers[at]);
}

SIM_CASE(device_to_dtype_launches_once) {
  scoped_place w = place_open(2);
  shim s;
  scoped_tree td = rows_tree(&w, 40, 1), out = NULL;
  begin_counting(&s, &w);
  td_ok(tdict_to_dtype(td, TDICT_F64, NULL, NULL, &out, err));
  assert_int_equal(num_launches, 1);
  shim_end(&s, w.d);
  check_double(&w, out, 5, 77);
  assert_true(tdict_tensor_shares_storage(td_leaf(out, "a"), td_leaf(out, "e")));
}

SIM_CASE(device_to_dtype_is_ordered) {
  scoped_place w = place_open(2);
  const place host = host_of(w);
  scoped_tree td = rows_tree(&w, 40, 1), source = rows_tree(&host, 40, 71);
  tdict_tree *out = NULL;
  blocked b;
  td_ok(tdict_to_dtype(td, TDICT_F64, NULL, NULL, &out, err)); /* loads the kernels */
  tdict_release(out);
  block(&w, &b);
  td_ok(tdict_to_dtype(td, TDICT_F64, NULL, TD_ON(b.s), &out, err));
  scoped_tree found = pass_gate(&w, &b, out, out, source, td);
  check_double(&w, found, 5, 77);
  check_row(&w, td_leaf(td, "e"), 4, 40, 75, 4);
  end_blocked(&w, &b);
}

SIM_CASE(device_to_dtype_fails_whole) {
  scoped_place w = place_sim(2, 0, 2);
  rig r = {w.c, w.memory};
  shim s;
  scoped_tree td = rows_tree(&w, 40, 1), out = NULL;
  tdict_stream stream = new_stream(&w), second = {tdict_sim(1), NULL};
  shim_begin(&s, w.d);
  s.ops.module_load = refuse_module;
  td_fails(TDICT_ENOTSUP, "cannot compile", tdict_to_dtype(td, TDICT_F64, NULL, NULL, &out, err));
  shim_end(&s, w.d);
  tdict_run o = td_with(tdict_run, stream = second);
  td_fails(TDICT_EWRONGDEVICE, "but the stream belongs to sim:1", tdict_to_dtype(td, TDICT_F64, NULL, &o, &out, err));
  assert_string_equal(td_last_error.path, "a");
  o.stream = stream;
  begin_counting(&s, &w);
  fault_code = TDICT_CU_INVALID_VALUE;
  td_fails(TDICT_EDEVICE, "cuLaunchKernel", tdict_to_dtype(td, TDICT_F64, NULL, NULL, &out, err));
  td_fails(TDICT_EDEVICE, "cuLaunchKernel", tdict_to_dtype(td, TDICT_F64, NULL, &o, &out, err));
  fault_code = TDICT_CU_SUCCESS;
  shim_end(&s, w.d);
  TD_WITHOUT_MEMORY_THEN(tdict_to_dtype(td, TDICT_F64, NULL, NULL, &out, err), assert_null(out));
  check_double(&w, out, 5, 77);
  td_release(out);
  tdict_tensor_lose(td_leaf(td, "n.c"));
  td_fails_at(TDICT_EINVAL, "the source's bytes are lost", "n.c", tdict_to_dtype(td, TDICT_F64, NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "the source's bytes are lost", tdict_to_dtype(td, TDICT_F64, NULL, &o, &out, err));
  twins both = make_twins(&r, &flat_type);
  td_fails(TDICT_ENOTSUP, "an object of type flat", tdict_to_dtype(both.td, TDICT_F64, NULL, &o, &out, err));
  assert_null(out);
  end_twins(&both);
  tdict_stream_destroy(w.c, stream);
}
