/* Tests transfers with driver faults. The first call of a kind fails, then the second and so on, until none fails.
 *
 * Each run has its own context, and the fault is in its first transfer, which also creates the streams and the ring.
 * The status must be allowed for this kind of fault, the bytes must be correct if the call succeeded, and no mark may
 * be left on the source. The next transfer of the context must succeed, and nothing may leak when the context is
 * destroyed. scripts/sweep-faults collects the "fault ..." lines from the output. */
#include <sched.h>

#include "fault_cases.h"
#include "support/test.h"

enum { UNKNOWN = TDICT_CU_UNKNOWN, LAUNCH_FAILED = 719, MOST_FAULTS = 2000 };

/* What a call may do after a fault. */
typedef enum verdict {
  EITHER,       /* a clear error, or correct bytes */
  GOES_ON,      /* correct bytes, because the library falls back to another way */
  FAILS,        /* a clear error */
  FAILS_AT_LEAF /* a clear error with the path of a leaf or an object */
} verdict;

static verdict verdict_of(fw_op op, tdict_fault_kind kind, tdict_cu code) {
  switch (kind) {
  case TDICT_FAULT_HOST_ALLOC:
  case TDICT_FAULT_HOST_REGISTER:
    return op == FW_TENSORS ? EITHER : GOES_ON;
  case TDICT_FAULT_POINTER:
  case TDICT_FAULT_EVENT_QUERY:
  case TDICT_FAULT_END:
    return GOES_ON;
  case TDICT_FAULT_MODULE: /* without kernels, host threads convert, and nothing is packed */
    return GOES_ON;
  case TDICT_FAULT_POOL:
    return op == FW_CONTEXT ? EITHER : GOES_ON;
  case TDICT_FAULT_CAPTURE:
    return op == FW_TO_DEVICE_ASYNC ? EITHER : GOES_ON;
  case TDICT_FAULT_DEVICE_ALLOC:
    return code == TDICT_CU_OUT_OF_MEMORY ? GOES_ON : FAILS;
  case TDICT_FAULT_COPY_IN:
  case TDICT_FAULT_COPY_OUT:
  case TDICT_FAULT_COPY_WITHIN:
    return op == FW_TENSORS ? FAILS : FAILS_AT_LEAF;
  default:
    return EITHER;
  }
}

/* Checks that the error has the driver's code, a message, and either no path or the path of an entry of the source. */
static void check_clear(const fw_world *w, const fw_run *run, const char *where, tdict_cu code) {
  const tdict_error *e = &run->err;
  tdict_status wanted = code == TDICT_CU_OUT_OF_MEMORY ? TDICT_ENOMEM : TDICT_EDEVICE;
  if (run->status != wanted || e->status != (int32_t)wanted || e->native != code)
    fail_msg("%s: returned %s, the error has %s, native %d: %s", where, tdict_status_name(run->status),
             tdict_status_name((tdict_status)e->status), (int)e->native, e->message);
  if (strlen(e->message) < 10) fail_msg("%s: the message is '%s'", where, e->message);
  char path[sizeof e->path];
  memcpy(path, e->path, sizeof path);
  char *below = strstr(path, "m.flat."); /* paths inside an object do not exist in the tree */
  if (below) below[strlen("m.flat")] = 0;
  if (path[0] && !tdict_has(fw_source(w, run->op), path)) fail_msg("%s: there is no '%s'", where, e->path);
}

static void judge(const fw_world *w, const fw_run *run, verdict v, const char *where, tdict_cu code) {
  if (run->status != TDICT_OK) check_clear(w, run, where, code);
  if (v == GOES_ON && run->status != TDICT_OK)
    fail_msg("%s: %s at '%s': %s; wanted a fallback", where, tdict_status_name(run->status), run->err.path,
             run->err.message);
  if (v >= FAILS && run->status == TDICT_OK) fail_msg("%s: wanted an error", where);
  if (v == FAILS_AT_LEAF && !run->err.path[0]) fail_msg("%s: no path: %s", where, run->err.message);
  if (run->status == TDICT_OK && !run->done) fail_msg("%s: no error, and no result", where);
}

/* Checks that the next transfer, without a fault, succeeds. */
static void check_next(fw_world *w, fw_run *run, const char *where) {
  fw_prepare(w, run);
  fw_do(w, run);
  if (run->status != TDICT_OK)
    fail_msg("%s: the next transfer: %s at '%s': %s", where, tdict_status_name(run->status), run->err.path,
             run->err.message);
  fw_check_bytes(w, run);
  fw_let_go(run);
}

typedef struct tally {
  int64_t met, failed; /* met: number of faults that occurred; failed: how many of them made the transfer fail */
  int64_t calls;       /* calls of this kind in the run without a fault */
} tally;

/* Runs the operation once with the fault. Returns false if the fault did not occur. */
static bool run_one(fw_world *w, fw_op op, const fw_variant *variant, const tdict_fault *fault, tdict_fault_kind kind,
                    tally *t) {
  char where[128];
  fw_counts before;
  snprintf(where, sizeof where, "%s/%s, %s %lld (%d)", fw_op_name(op), variant->name, tdict_fault_kind_name(kind),
           (long long)fault->n, fault->code);
  fw_count(w, &before);
  fw_run run = {.op = op, .variant = variant};
  if (op != FW_CONTEXT) run.context = fw_context(w);
  fw_prepare(w, &run);
  tdict_driver_fault_arm(w->driver, fault);
  fw_do(w, &run);
  if (run.done) fw_check_bytes(w, &run);
  fw_let_go(&run);
  bool fired = tdict_driver_fault_fired(w->driver);
  t->calls = tdict_driver_fault_calls(w->driver, kind);
  tdict_driver_fault_arm(w->driver, NULL);
  judge(w, &run, fired ? verdict_of(op, kind, fault->code) : GOES_ON, where, fault->code);
  if (run.begun) fw_check_lost(w, &run);
  fw_check_source_free(w, &run);
  t->met += fired;
  t->failed += fired && run.status != TDICT_OK;
  check_next(w, &run, where);
  if (run.stream.handle) tdict_stream_destroy(run.context, run.stream);
  tdict_context_destroy(run.context);
  fw_check_counts(w, &before, where);
  return fired;
}

static void sweep_kind(fw_world *w, fw_op op, const fw_variant *variant, tdict_fault_kind kind, tdict_cu code) {
  tally t = {0};
  const int first = 1 + sanitized_first((int)(variant - fw_variants));
  tdict_fault fault = {.kinds = TDICT_FAULT_BIT(kind), .n = first, .code = code};
  while (run_one(w, op, variant, &fault, kind, &t)) {
    assert_int_equal(SANITIZED_STEP * (t.met - 1) + first, fault.n); /* all earlier faults occurred */
    fault.n += SANITIZED_STEP;
    if (fault.n > MOST_FAULTS) fail_msg("%s: the sweep does not end", tdict_fault_kind_name(kind));
  }
  /* The last run had no fault. If one thread does all the work, this run made as many calls of the kind as faults
   * occurred before. The numbers of copies and queries vary with timing. */
  bool alone = op != FW_TO_DEVICE_ASYNC && op != FW_TO_HOST_ASYNC && op != FW_INTO_HOST_ASYNC;
  bool steady = kind != TDICT_FAULT_COPY_IN && kind != TDICT_FAULT_COPY_OUT && kind != TDICT_FAULT_EVENT_QUERY;
  if (variant->num_threads == 0 && alone && steady)
    assert_int_equal(t.met, (t.calls - first + SANITIZED_STEP) / SANITIZED_STEP);
  if (t.calls >= first) assert_true(t.met > 0);
  if (t.met > 0)
    printf("fault %s %s %s %s %d %lld %lld\n", w->device.type == TDICT_DEVICE_SIM ? "sim" : "cuda", fw_op_name(op),
           variant->name, tdict_fault_kind_name(kind), code, (long long)t.met, (long long)t.failed);
}

static bool may_be_short(tdict_fault_kind kind) {
  return kind == TDICT_FAULT_DEVICE_ALLOC || kind == TDICT_FAULT_HOST_ALLOC || kind == TDICT_FAULT_HOST_REGISTER ||
         kind == TDICT_FAULT_STREAM_CREATE || kind == TDICT_FAULT_EVENT_CREATE;
}

static void sweep(fw_op op, int first, int num_variants) {
  fw_world w;
  fw_open(&w);
  for (int v = first; v < first + num_variants; v++)
    for (int i = 0; i < TDICT_NUM_FAULT_KINDS; i++) {
      const tdict_fault_kind kind = (tdict_fault_kind)i;
      sweep_kind(&w, op, &fw_variants[v], kind, UNKNOWN);
      if (may_be_short(kind)) sweep_kind(&w, op, &fw_variants[v], kind, TDICT_CU_OUT_OF_MEMORY);
    }
  fw_close(&w);
}

GPU_CASE(faults_to_device) { sweep(FW_TO_DEVICE, 0, 3); }
GPU_CASE(faults_to_device_async) { sweep(FW_TO_DEVICE_ASYNC, 0, 3); }
GPU_CASE(faults_wire) { sweep(FW_WIRE, 0, 3); }
GPU_CASE(faults_to_host) { sweep(FW_TO_HOST, 0, 3); }
GPU_CASE(faults_to_host_async) { sweep(FW_TO_HOST_ASYNC, 0, 3); }
GPU_CASE(faults_transfer_into_device) { sweep(FW_INTO_DEVICE, 0, 3); }
GPU_CASE(faults_transfer_into_host_async) { sweep(FW_INTO_HOST_ASYNC, 0, 3); }
GPU_CASE(faults_transfer_into_within_device) { sweep(FW_INTO_WITHIN, 0, 3); }
GPU_CASE(faults_pin_memory) { sweep(FW_PIN_MEMORY, 0, 3); }
GPU_CASE(faults_single_tensors) { sweep(FW_TENSORS, 0, 1); }
GPU_CASE(faults_context) { sweep(FW_CONTEXT, 0, 1); }

ALL_FAULT_CASES(faults_long)

/* If no page-locked memory is available, transfers use ordinary memory, but calls whose result must be pinned fail. */
GPU_CASE(faults_no_pinned_memory_at_all) {
  fw_world w;
  fw_open(&w);
  const tdict_fault none = {.kinds =
                                TDICT_FAULT_BIT(TDICT_FAULT_HOST_ALLOC) | TDICT_FAULT_BIT(TDICT_FAULT_HOST_REGISTER),
                            .n = 1,
                            .code = TDICT_CU_OUT_OF_MEMORY,
                            .lasts = true};
  static const fw_op ops[] = {FW_INTO_DEVICE, FW_INTO_HOST_ASYNC, FW_TO_HOST, FW_PIN_MEMORY, FW_TO_HOST_ASYNC};
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    for (int v = 0; v < FW_NUM_VARIANTS; v++) {
      fw_counts before;
      bool must_pin = ops[i] == FW_PIN_MEMORY || ops[i] == FW_TO_HOST_ASYNC;
      fw_count(&w, &before);
      fw_run run = {.op = ops[i], .variant = &fw_variants[v], .context = fw_context(&w)};
      fw_prepare(&w, &run);
      tdict_driver_fault_arm(w.driver, &none);
      fw_do(&w, &run);
      if (run.done) fw_check_bytes(&w, &run);
      fw_let_go(&run);
      tdict_driver_fault_arm(w.driver, NULL);
      judge(&w, &run, must_pin ? FAILS : GOES_ON, fw_op_name(ops[i]), none.code);
      check_next(&w, &run, fw_op_name(ops[i]));
      tdict_context_destroy(run.context);
      fw_check_counts(&w, &before, fw_op_name(ops[i]));
    }
  fw_close(&w);
}

/* Makes all driver calls from the n-th on fail, as if the device were lost. The next transfer must return TDICT_ELOST,
 * and no call may wait forever. Driver resources are lost with the device, so leaks of them are not checked. Sanitizers
 * find host leaks. */
static bool lose(fw_world *w, fw_op op, const fw_variant *variant, int64_t n) {
  const tdict_fault lost = {.kinds = TDICT_FAULT_ALL, .n = n, .code = LAUNCH_FAILED, .lasts = true};
  const char *where = td_text("%s/%s, lost at call %lld", fw_op_name(op), variant->name, (long long)n);
  fw_run run = {.op = op, .variant = variant, .context = fw_context(w)};
  fw_prepare(w, &run);
  tdict_driver_fault_arm(w->driver, &lost);
  fw_do(w, &run);
  if (run.done) fw_check_bytes(w, &run);
  fw_let_go(&run);
  bool fired = tdict_driver_fault_fired(w->driver);
  if (run.status != TDICT_OK && run.status != TDICT_ELOST)
    fail_msg("%s: %s: %s", where, tdict_status_name(run.status), run.err.message);
  if (fired) {
    fw_run next = {.op = op, .variant = variant, .context = run.context, .stream = run.stream};
    fw_do(w, &next);
    fw_let_go(&next);
    if (next.status != TDICT_ELOST)
      fail_msg("%s: the next transfer returned %s", where, tdict_status_name(next.status));
    if (next.err.native != LAUNCH_FAILED) fail_msg("%s: the next transfer has native %d", where, (int)next.err.native);
  }
  if (run.stream.handle) tdict_stream_destroy(run.context, run.stream);
  tdict_context_destroy(run.context);
  tdict_driver_fault_arm(w->driver, NULL);
  return fired;
}

static void lose_all(fw_op op) {
  for (int v = 1; v < 3; v++) {
    int64_t n = 1 + sanitized_first(v);
    for (bool fired = true; fired; n += SANITIZED_STEP) {
      fw_world w;
      fw_open(&w);
      fired = lose(&w, op, &fw_variants[v], n);
      fw_abandon(&w);
      if (n > MOST_FAULTS) fail_msg("the sweep does not end");
    }
    printf("lost %s %s %lld\n", fw_op_name(op), fw_variants[v].name, (long long)n - 1 - SANITIZED_STEP);
  }
}
SIM_CASE(faults_device_lost_to_device) { lose_all(FW_TO_DEVICE_ASYNC); }
SIM_CASE(faults_device_lost_to_host) { lose_all(FW_INTO_HOST_ASYNC); }

/* While a copy stalls, its transfer waits, but other transfers succeed. */
GPU_CASE(faults_stalled_copy_is_waited_for) {
  fw_world w;
  fw_open(&w);
  for (int cancels = 0; cancels < 2; cancels++) {
    scoped_context c = fw_context(&w);
    tdict_tree *moved = NULL;
    const tdict_fault stall = {.kinds = TDICT_FAULT_BIT(TDICT_FAULT_COPY_IN), .n = 3, .stalls = true};
    tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = 1);
    tdict_driver_fault_arm(w.driver, &stall);
    scoped_future f = td_made(future, tdict_to_device_async(c, w.host_into, w.device, &o, &made, err));
    while (!tdict_driver_fault_is_stalled(w.driver)) sched_yield();
    td_fails(TDICT_ETIMEDOUT, "has not ended", tdict_future_wait_for(f, 20000000, NULL, err));
    assert_int_equal(tdict_future_state(f), TDICT_FUTURE_PENDING);
    if (cancels) tdict_future_cancel(f);
    assert_int_equal(tdict_future_state(f), TDICT_FUTURE_PENDING); /* the transfer waits for its queued copies */
    tdict_tree *other = NULL;
    td_ok(tdict_to_device(c, w.one, w.device, NULL, &other, err)); /* other transfers succeed */
    tdict_release(other);
    tdict_driver_fault_release(w.driver);
    if (cancels) {
      td_fails(TDICT_ECANCELLED, "cancelled", tdict_future_wait(f, &moved, err));
    } else {
      td_ok(tdict_future_wait(f, &moved, err));
      fw_run run = {.op = FW_INTO_DEVICE, .result = moved};
      fw_check_bytes(&w, &run);
      tdict_release(moved);
    }
    tdict_driver_fault_arm(w.driver, NULL);
  }
  fw_close(&w);
}
