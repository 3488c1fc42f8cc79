/* Tests transfers in which kernels convert the elements. One driver call fails: each launch in turn, each load of the
 * module, and each other call. */
#include "context.h"
#include "device/sim/driver.h"
#include "engine/conversions.h"
#include "support/driver_fault.h"

/* Leaves that kernels convert in transfers to the device, from the device and within the device. */
static const pair_of converted[] = {{"a", TDICT_U8, TDICT_BF16, 1 / 255.0, -0.5},
                                    {"n.b", TDICT_F16, TDICT_F64, 1, 0},
                                    {"n.c", TDICT_F32, TDICT_F8E5M2, 1, 0},
                                    {"plain", TDICT_I32, TDICT_I32, 1, 0}};
enum { NUM_CONVERTED = sizeof converted / sizeof *converted, ELEMENTS = 300 };

typedef enum faulty_way { WAY_IN, WAY_OUT, WAY_WITHIN, WAY_INTO, WAY_PINNED, NUM_FAULTY_WAYS } faulty_way;
static const char *const names[NUM_FAULTY_WAYS] = {"to the device", "to the host", "within the device",
                                                   "into the device", "from pinned memory"};

/* A context over a simulated driver that fails on demand, and the trees of a transfer. */
typedef struct faults {
  tdict_driver *inner, *d;
  place w;
  tdict_tree *source, *pinned, *there, *dst; /* on the host; pinned; on the device; a destination */
  tdict_transfer_options o;
  tdict_conversion rules[NUM_CONVERTED];
} faults;
static void faults_open(faults *f, int32_t mode) {
  tdict_sim_options sim = tdict_sim_options_default();
  memset(f, 0, sizeof *f);
  sim.memory_bytes = (size_t)256 << 20;
  td_ok(tdict_driver_sim_open(&sim, &f->inner, err));
  td_ok(tdict_driver_fault_open(f->inner, &f->d, err));
  tdict_context_options o =
      td_with(tdict_context_options, device = td_device(), staging_bytes = STAGING, num_threads = 1);
  tdict_context *c = td_made(context, tdict_context_create_over(&o, f->d, &made, err));
  f->w = place_around(c);
  f->source = new_tree();
  f->dst = new_tree();
  for (int i = 0; i < NUM_CONVERTED; i++) {
    tdict_tensor *t = td_made(tensor, tdict_tensor_empty(converted[i].from, SHAPE(ELEMENTS), NULL, &made, err));
    fill_fitting(t, &converted[i]);
    td_put(f->source, converted[i].path, t);
    td_ok(tdict_tensor_empty(converted[i].to, SHAPE(ELEMENTS), f->w.memory, &t, err));
    td_put(f->dst, converted[i].path, t);
    f->rules[i] = scaled(converted[i].path, converted[i].to, converted[i].scale, converted[i].offset);
  }
  f->there = to_device(&f->w, f->source, f->w.device);
  td_ok(tdict_pin_memory(c, f->source, NULL, &f->pinned, err));
  f->o = tdict_transfer_options_default();
  f->o.mode = mode;
  f->o.conversions = f->rules;
  f->o.num_conversions = NUM_CONVERTED;
}
static void faults_close(faults *f) {
  tdict_fault_live live, none = {0};
  td_release(f->source, f->there, f->pinned, f->dst);
  place_close(&f->w);
  tdict_driver_fault_get_live(f->d, &live);
  assert_memory_equal(&live, &none, sizeof live); /* nothing leaks */
  td_release(f->d, f->inner);
}
#define scoped_faults TD_SCOPED(faults_close, faults)

static tdict_status transfer(const faults *f, faulty_way which, tdict_tree **out, tdict_error *err) {
  const bool reads_device = which == WAY_OUT || which == WAY_WITHIN;
  const tdict_tree *src = reads_device ? f->there : which == WAY_PINNED ? f->pinned : f->source;
  if (which == WAY_INTO) return tdict_transfer_into(f->w.c, f->dst, src, &f->o, err);
  return tdict_to_device(f->w.c, src, which == WAY_OUT ? tdict_cpu() : f->w.device, &f->o, out, err);
}
static void check_transferred(const faults *f, faulty_way which, const tdict_tree *out) {
  for (int i = 0; i < NUM_CONVERTED; i++)
    check_converted(&f->w, &converted[i], td_leaf(f->source, converted[i].path),
                    td_leaf(which == WAY_INTO ? f->dst : out, converted[i].path));
}

/* Makes the n-th driver call of the given kinds fail in one transfer. This transfer must fail or return the right
 * elements, and the next transfer must return the right elements. Returns false if the transfer makes fewer such
 * calls. */
static bool fail_once(faulty_way which, uint32_t kinds, int64_t n, int32_t mode, tdict_status *status) {
  scoped_faults f;
  scoped_tree out = NULL;
  tdict_error e = {0};
  const tdict_fault fault = {.kinds = kinds, .n = n, .code = TDICT_CU_UNKNOWN};
  faults_open(&f, mode);
  tdict_driver_fault_arm(f.d, &fault);
  *status = transfer(&f, which, &out, &e);
  const bool fired = tdict_driver_fault_fired(f.d);
  tdict_driver_fault_arm(f.d, NULL);
  if (*status != TDICT_OK) {
    if (*status != TDICT_EDEVICE || e.native != TDICT_CU_UNKNOWN)
      fail_msg("%s, call %d: %s: %s", names[which], (int)n, tdict_status_name(*status), e.message);
    assert_null(out);
    const bool is_launch = kinds == TDICT_FAULT_BIT(TDICT_FAULT_LAUNCH);
    if (is_launch && !strstr(e.message, "cuLaunchKernel")) fail_msg("%s: %s", names[which], e.message);
    if (is_launch && !tdict_has(f.source, e.path)) fail_msg("%s: '%s' is not the path of a leaf", names[which], e.path);
    if (is_launch && which == WAY_INTO) assert_null(tdict_tensor_const_data(td_leaf(f.dst, e.path)));
    td_ok(transfer(&f, which, &out, err));
  }
  check_transferred(&f, which, out);
  return fired;
}

SIM_CASE(conversions_with_failing_launches) {
  for (faulty_way which = 0; which < NUM_FAULTY_WAYS; which++)
    for (int32_t mode = TDICT_MODE_AUTO; mode <= TDICT_MODE_NON_BLOCKING; mode++) {
      tdict_status status;
      int64_t n = 1;
      for (; fail_once(which, TDICT_FAULT_BIT(TDICT_FAULT_LAUNCH), n, mode, &status); n++)
        if (status == TDICT_OK) fail_msg("%s: a launch failed, but the transfer succeeded", names[which]);
      if (n < 2) fail_msg("%s, mode %d: no kernel was launched", names[which], (int)mode);
    }
}

SIM_CASE(conversions_with_failing_calls) {
  for (faulty_way which = 0; which < NUM_FAULTY_WAYS; which++) {
    tdict_status status;
    int num_failed = 0;
    for (int64_t n = 1; fail_once(which, TDICT_FAULT_ALL, n, TDICT_MODE_AUTO, &status); n++)
      num_failed += status != TDICT_OK;
    if (num_failed < 4) fail_msg("%s: only %d transfers failed", names[which], num_failed);
  }
}

/* If the module cannot be loaded, host threads convert leaves that cross the link, and conversions within the device
 * fail. */
SIM_CASE(conversions_with_failing_modules) {
  for (faulty_way which = 0; which < NUM_FAULTY_WAYS; which++)
    for (int64_t n = 1; n <= 5; n++) {
      scoped_faults f;
      scoped_tree out = NULL;
      const tdict_fault fault = {
          .kinds = TDICT_FAULT_BIT(TDICT_FAULT_MODULE), .n = n, .code = TDICT_CU_INVALID_VALUE, .lasts = true};
      faults_open(&f, TDICT_MODE_AUTO);
      tdict_driver_fault_arm(f.d, &fault);
      if (which == WAY_WITHIN)
        td_fails_at(TDICT_EDEVICE, "cuModule", "a", transfer(&f, which, &out, err));
      else
        td_ok(transfer(&f, which, &out, err));
      assert_true(tdict_driver_fault_fired(f.d));
      tdict_driver_fault_arm(f.d, NULL);
      if (which == WAY_WITHIN) td_ok(transfer(&f, which, &out, err));
      check_transferred(&f, which, out);
    }
}
