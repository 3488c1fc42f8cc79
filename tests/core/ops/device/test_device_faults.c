/* Tests operations on device trees with injected faults: each driver call fails once, or the kernels are missing. */
#include "context.h"
#include "core/ops/device/ways.h"
#include "support/driver_fault.h"

/* A context on a simulated driver that fails on demand. */
typedef struct faults {
  tdict_driver *inner, *d;
  place w;
  ways t;
  tdict_stream stream;
} faults;
static void faults_open(faults *f) {
  tdict_context_options o = place_options(1);
  memset(f, 0, sizeof *f);
  td_ok(tdict_driver_sim_open(td_options(tdict_sim_options, memory_bytes = (size_t)256 << 20), &f->inner, err));
  td_ok(tdict_driver_fault_open(f->inner, &f->d, err));
  o.device = td_device();
  tdict_context *context = td_made(context, tdict_context_create_over(&o, f->d, &made, err));
  f->w = place_around(context);
  f->t = ways_open(&f->w, &f->w);
  f->stream = new_stream(&f->w);
}
static void faults_close(faults *f) {
  tdict_fault_live live, none = {0};
  tdict_stream_destroy(f->w.c, f->stream);
  ways_close(&f->t);
  place_close(&f->w);
  tdict_driver_fault_get_live(f->d, &live);
  assert_memory_equal(&live, &none, sizeof live); /* nothing has leaked */
  td_release(f->d, f->inner);
}
#define scoped_faults TD_SCOPED(faults_close, faults)

/* Converts each leaf with tdict_tensor_to_dtype(). Makes the same tree as WAY_TO_DTYPE. */
static tdict_status convert_tensors(const ways *t, tdict_tree **out, tdict_error *err) {
  tdict_tree *made = NULL;
  tdict_status status = tdict_create(0, NULL, &made, err);
  for (int i = 0; i < 5 && status == TDICT_OK; i++) {
    scoped_tensor converted = NULL;
    status = tdict_tensor_to_dtype(td_leaf(t->td, way_paths[i]), TDICT_F64, NULL, &converted, err);
    if (status == TDICT_OK) status = tdict_set(made, way_paths[i], converted, err);
  }
  if (status == TDICT_OK)
    *out = made;
  else
    tdict_release(made);
  return status;
}

/* Makes the n-th driver call of an operation fail. The operation must succeed, or return the driver's code with no work
 * queued. After a failure, a second try must succeed. Returns false if the operation makes fewer calls. */
static bool fail_once(tree_way way, bool by_tensor, bool on_stream, int64_t n, int *num_failed) {
  scoped_faults f;
  scoped_tree out = NULL;
  tdict_error e = {0};
  tdict_driver_sim_count counts;
  const tdict_fault fault = {.kinds = TDICT_FAULT_ALL, .n = n, .code = TDICT_CU_UNKNOWN};
  faults_open(&f);
  const tdict_stream *s = on_stream ? &f.stream : NULL;
  tdict_driver_fault_arm(f.d, &fault);
  const tdict_status status = by_tensor ? convert_tensors(&f.t, &out, &e) : ways_call(&f.t, way, s, &out, &e);
  const bool fired = tdict_driver_fault_fired(f.d);
  tdict_driver_fault_arm(f.d, NULL);
  if (status != TDICT_OK) {
    if (status != TDICT_EDEVICE || e.native != TDICT_CU_UNKNOWN)
      fail_msg("%s, call %d: %s: %s", way_names[way], (int)n, tdict_status_name(status), e.message);
    assert_null(out);
    tdict_driver_sim_counts(f.inner, 0, &counts);
    if (counts.num_pending != 0) fail_msg("%s, call %d: work is still queued", way_names[way], (int)n);
    ++*num_failed;
    if (!ways_destination(&f.t, way)) ways_check_untouched(&f.t);
    ways_reset(&f.t);
    td_ok(by_tensor ? convert_tensors(&f.t, &out, err) : ways_call(&f.t, way, s, &out, err));
  }
  sync_stream(&f.w, f.stream);
  ways_check(&f.t, way, out);
  return fired;
}
SIM_CASE(device_ops_with_failing_calls) {
  for (tree_way way = 0; way < NUM_WAYS; way++)
    for (int on_stream = 0; on_stream < 2; on_stream++) {
      int num_failed = 0;
      for (int64_t n = 1; fail_once(way, false, on_stream, n, &num_failed); n++) {}
      if (num_failed < 6) fail_msg("%s: only %d calls failed", way_names[way], num_failed);
    }
}

SIM_CASE(device_tensor_to_dtype_with_failing_calls) {
  int num_failed = 0;
  for (int64_t n = 1; fail_once(WAY_TO_DTYPE, true, false, n, &num_failed); n++) {}
  assert_true(num_failed >= 6);
}
SIM_CASE(device_tensor_to_dtype_without_memory) {
  scoped_faults f;
  scoped_tree out = NULL;
  faults_open(&f);
  TD_WITHOUT_MEMORY_THEN(convert_tensors(&f.t, &out, err), {
    assert_null(out);
    assert_true(err->message[0] != 0);
  });
  ways_check(&f.t, WAY_TO_DTYPE, out);
}

/* The driver fails to load the kernels or to find their functions. Without the fault, the operation must succeed. */
SIM_CASE(device_ops_with_failing_modules) {
  for (tree_way way = 0; way < NUM_WAYS; way++)
    for (int64_t n = 1; n <= 5; n++) {
      scoped_faults f;
      scoped_tree out = NULL;
      const tdict_fault fault = {
          .kinds = TDICT_FAULT_BIT(TDICT_FAULT_MODULE), .n = n, .code = TDICT_CU_INVALID_VALUE, .lasts = true};
      faults_open(&f);
      for (int on_stream = 0; on_stream < 2; on_stream++) {
        const tdict_stream *s = on_stream ? &f.stream : NULL;
        tdict_driver_fault_arm(f.d, &fault);
        td_fails(TDICT_EDEVICE, n == 1 ? "cuModuleLoadData" : "cuModuleGetFunction",
                 ways_call(&f.t, way, s, &out, err));
        assert_null(out);
        ways_check_untouched(&f.t);
        tdict_driver_fault_arm(f.d, NULL);
      }
      td_ok(ways_call(&f.t, way, NULL, &out, err));
      ways_check(&f.t, way, out);
    }
}
