/* Tests the context through its public functions: options, the default device, and objects that outlive the context. */
#include "context.h"

#include <stdatomic.h>

#include "core/sched/pool.h"
#include "device/sim/driver.h"
#include "support/test.h"
#include "support/thread_name.h"
#include "support/threads.h"

CASE(version_matches_the_headers) {
  assert_int_equal(tdict_version(), TDICT_VERSION_MAJOR * 10000 + TDICT_VERSION_MINOR * 100 + TDICT_VERSION_PATCH);
}

static tdict_context *open_on(tdict_device device, const tdict_sim_options *sim) {
  tdict_context *c = NULL;
  td_ok(tdict_context_create(td_options(tdict_context_options, device = device, sim = sim, num_threads = 2), &c, err));
  return c;
}

typedef struct heard {
  int count;
  int32_t level;
  char text[1024];
} heard;
static void hear(void *user, int32_t level, const char *text) {
  heard *h = user;
  h->count++;
  h->level = level;
  snprintf(h->text, sizeof h->text, "%s", text);
}

/* If TDICT_DEVICE_AUTO finds no GPU, the context logs one warning. A context whose device is named logs nothing. */
CASE(context_without_a_gpu_logs_a_warning) {
  tdict_sim_options sim = tdict_sim_options_default();
  for (int way = 0; way < 2 * 3; way++) {
    heard h = {.count = 0};
    tdict_error why = {0};
    tdict_context_options o = td_with(tdict_context_options, log = hear, user = &h, sim = way % 2 ? &sim : NULL);
    if (way / 2 == 1) o.device = tdict_cpu();
    if (way / 2 == 2) o.device = tdict_sim(0);
    scoped_context c = td_made(context, tdict_context_create(&o, &made, err));
    const bool is_missing = way / 2 == 0 && tdict_context_device(c, &why).type != TDICT_DEVICE_CUDA;
    assert_int_equal(h.count, is_missing);
    if (is_missing) {
      assert_int_equal(h.level, TDICT_LOG_WARNING);
      assert_non_null(strstr(h.text, why.message)); /* the warning contains the reason */
      assert_non_null(
          strstr(h.text, way % 2 ? "the default device of the context is the simulated device" : "the cpu"));
    }
  }
}

/* TDICT_DEVICE_AUTO chooses a GPU if there is one, else the simulated device if the context has one, else the host. */
CASE(context_auto_device) {
  tdict_sim_options sim = tdict_sim_options_default();
  scoped_context c = NULL;
  tdict_error why, untouched;
  tdict_device automatic = tdict_context_options_default().device;
  assert_int_equal(automatic.type, TDICT_DEVICE_AUTO);
  tdict_context_options named = td_with(tdict_context_options, device = tdict_cuda(0));
  tdict_status cuda = tdict_context_create(&named, &c, NULL);
  assert_true(cuda == TDICT_OK || cuda == TDICT_ENODEVICE);
  tdict_context_destroy(c);
  for (int with_sim = 0; with_sim < 2; with_sim++) {
    memset(&why, 0xA5, sizeof why);
    memset(&untouched, 0xA5, sizeof untouched);
    c = open_on(automatic, with_sim ? &sim : NULL);
    tdict_device chosen = tdict_context_device(c, &why);
    assert_true(tdict_device_equal(chosen, cuda == TDICT_OK ? tdict_cuda(0) : with_sim ? tdict_sim(0) : tdict_cpu()));
    assert_true(tdict_device_equal(chosen, tdict_context_device(c, NULL)));
    if (cuda == TDICT_OK) {
      assert_memory_equal(&why, &untouched, sizeof why);
    } else {
      assert_int_equal(why.status, TDICT_ENODEVICE);
      assert_true(strlen(why.message) > 10);
    }
    tdict_context_destroy(c);
  }
  c = NULL;
  td_ok(tdict_context_create(NULL, &c, err)); /* default options */
  assert_true(tdict_device_equal(tdict_context_device(c, NULL), cuda == TDICT_OK ? tdict_cuda(0) : tdict_cpu()));
  tdict_context_destroy(c);
  c = open_on(tdict_sim(0), NULL); /* tdict_context_device() also says why no GPU is used */
  assert_true(tdict_device_equal(tdict_context_device(c, &why), tdict_sim(0)));
  assert_int_equal(why.status, TDICT_ENODEVICE);
}

/* The options struct of a newer header: the fields that the library knows, followed by two that it does not know. */
typedef struct newer_options {
  tdict_context_options known;
  int64_t unknown[2];
} newer_options;

CASE(context_option_sizes) {
  tdict_context *c = NULL;
  newer_options newer = {0};
  newer.known = tdict_context_options_default();
  newer.known.device = tdict_cpu();
  newer.known.num_threads = 3;
  newer.known.struct_size = sizeof newer;
  td_ok(tdict_context_create((const tdict_context_options *)&newer, &c, err));
  assert_int_equal(tdict_context_num_threads(c), 3);
  td_release(c);
  newer.unknown[1] = 1;
  td_fails(TDICT_ENOTSUP, "context options", tdict_context_create((const tdict_context_options *)&newer, &c, err));
  assert_null(c);
  tdict_context_options older = tdict_context_options_default(); /* ends before staging_bytes */
  older.device = tdict_cpu();
  older.num_threads = 3;
  older.staging_bytes = 1;
  older.struct_size = offsetof(tdict_context_options, staging_bytes);
  td_ok(tdict_context_create(&older, &c, err));
  assert_int_equal(tdict_context_num_threads(c), 3);
  td_release(c);
  older.struct_size = sizeof older.struct_size; /* no option is in the struct, so all have their defaults */
  td_ok(tdict_context_create(&older, &c, err));
  assert_int_equal(tdict_context_num_threads(c), tdict_pool_default_size());
  td_release(c);
  for (size_t bytes = 0; bytes < sizeof older.struct_size; bytes += 7) {
    older.struct_size = bytes;
    td_fails(TDICT_EINVAL, "struct_size", tdict_context_create(&older, &c, err));
  }
  assert_null(c);
}

CASE(context_create_refuses) {
  static const int32_t threads[] = {-2, 0, 1025, INT32_MIN, INT32_MAX};
  static const size_t staging[] = {0, 1, 65535};
  tdict_context *c = NULL;
  tdict_context_options o = td_with(tdict_context_options, device = tdict_cpu());
  for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
    o.num_threads = threads[i];
    td_fails(TDICT_EINVAL, "num_threads", tdict_context_create(&o, &c, err));
  }
  o.num_threads = 1;
  for (size_t i = 0; i < sizeof staging / sizeof *staging; i++) {
    o.staging_bytes = staging[i];
    td_fails(TDICT_EINVAL, "staging_bytes", tdict_context_create(&o, &c, err));
  }
  o.staging_bytes = 65536;
  o.tuning_file = "";
  td_fails(TDICT_EIO, "tuning file", tdict_context_create(&o, &c, err));
  o.tuning_file = NULL;
  tdict_sim_options sim = tdict_sim_options_default();
  o.sim = &sim;
  sim.memory_bytes = 1;
  td_fails(TDICT_EINVAL, "memory_bytes", tdict_context_create(&o, &c, err));
  o.sim = NULL;
  td_fails(TDICT_EINVAL, "out is NULL", tdict_context_create(&o, NULL, err));
  assert_null(c);
  td_ok(tdict_context_create(&o, &c, err)); /* the smallest valid values */
  tdict_context_destroy(c);
  tdict_context_destroy(NULL);
}

CASE(context_absent_device) {
  static const tdict_device absent[] = {
      {TDICT_DEVICE_CUDA, 63}, {TDICT_DEVICE_CUDA, -1}, {TDICT_DEVICE_SIM, 1}, {TDICT_DEVICE_CPU, 1}, {4, 0}, {-1, 0}};
  static const char *const texts[] = {
      "cuda:63 is absent", "cuda:-1 is absent", "sim:1 is absent", "cpu:1 is absent", "4", "-1"};
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
    tdict_context *c = NULL;
    tdict_context_options o = td_with(tdict_context_options, device = absent[i]);
    td_fails(TDICT_ENODEVICE, texts[i], tdict_context_create(&o, &c, err));
    assert_true(strlen(td_last_error.message) > strlen(texts[i]) + 5); /* the message also gives the reason */
    assert_null(c);
  }
}

CASE(context_num_threads) {
  static const int32_t asked[] = {1, 2, 17};
  for (size_t i = 0; i < 3; i++) {
    tdict_context_options o = td_with(tdict_context_options, device = tdict_cpu(), num_threads = asked[i]);
    scoped_context c = td_made(context, tdict_context_create(&o, &made, err));
    assert_int_equal(tdict_context_num_threads(c), asked[i]);
  }
  scoped_context c = NULL;
  td_ok(tdict_context_create(td_options(tdict_context_options, device = tdict_cpu()), &c, err));
  assert_int_equal(tdict_context_num_threads(c), tdict_pool_default_size());
  assert_true(tdict_context_num_threads(c) >= 8);
}

CASE(context_create_survives_enomem) {
  scoped_driver d = NULL;
  tdict_sim_options sim = tdict_sim_options_default();
  int rounds = 0;
  tdict_context_options o = td_with(tdict_context_options, num_threads = 1);
  td_ok(tdict_driver_sim_open(&sim, &d, err));
  TD_SWEEP(s) { /* makes each allocation fail once */
    tdict_context *c = NULL;
    const tdict_status status = td_sweep_call(s, tdict_context_create_over(&o, d, &c, err));
    rounds++;
    assert_true((c == NULL) == (status != TDICT_OK));
    tdict_context_destroy(c);
    assert_int_equal(atomic_load(&d->refs), 1);
    assert_int_equal(atomic_load(&d->num_streams) + atomic_load(&d->num_events), 0);
  }
  assert_true(rounds > 5);
}

enum { LEAVES = 20, LEAF_BYTES = 300000 };

static tdict_tree *make_tree(void) {
  tdict_tree *td = td_made(tree, tdict_create(0, NULL, &made, err));
  for (int i = 0; i < LEAVES; i++) {
    scoped_tensor t = NULL;
    int64_t shape[1] = {LEAF_BYTES + i};
    const char *key = td_text("leaf%d", i);
    td_ok(tdict_tensor_empty(TDICT_U8, 1, shape, NULL, &t, err));
    td_fill_random(tdict_tensor_data(t), (size_t)shape[0], (uint64_t)i + 50);
    td_ok(tdict_set(td, key, t, err));
  }
  return td;
}

/* Copies each leaf of `moved` to the host and compares it with the bytes that make_tree() put into the leaf. */
static void check_tree(const tdict_tree *moved) {
  scoped_bytes wanted = td_alloc(LEAF_BYTES + LEAVES);
  for (int i = 0; i < LEAVES; i++) {
    tdict_tensor *t = NULL, *host = NULL;
    td_ok(tdict_get(moved, td_text("leaf%d", i), &t, err));
    td_ok(tdict_tensor_clone(t, NULL, &host, err));
    td_fill_random(wanted, (size_t)(LEAF_BYTES + i), (uint64_t)i + 50);
    assert_memory_equal(tdict_tensor_const_data(host), wanted, (size_t)(LEAF_BYTES + i));
    tdict_tensor_release(host);
  }
}

GPU_CASE(context_destroy_waits) {
  enum { COUNT = 4 };
  tdict_sim_options sim = tdict_sim_options_default();
  sim.latency_ns = 5000000; /* if tdict_context_destroy() did not wait, it would return before the transfers end */
  tdict_context *c = td_context(td_options(tdict_context_options, num_threads = 3, sim = &sim));
  tdict_tree *src = make_tree(), *results[COUNT];
  tdict_future *futures[COUNT];
  for (int i = 0; i < COUNT; i++) td_ok(tdict_to_device_async(c, src, td_device(), NULL, &futures[i], err));
  td_release(src, c);
  for (int i = 0; i < COUNT; i++) { /* all transfers have ended, because tdict_context_destroy() waited for them */
    assert_int_equal(tdict_future_state(futures[i]), TDICT_FUTURE_DONE);
    td_ok(tdict_future_wait(futures[i], &results[i], err));
    tdict_future_release(futures[i]);
    check_tree(results[i]);
    tdict_release(results[i]);
  }
}

static atomic_bool destroyed;
static void *destroy(void *user) {
  tdict_context_destroy(user);
  atomic_store(&destroyed, true);
  return NULL;
}

/* The test holds the simulated device, so destroying the context must wait until the test resumes it. */
SIM_CASE(context_destroy_waits_for_a_held_device) {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context *c = NULL;
  tdict_future *f = NULL;
  tdict_tree *src = make_tree(), *result = NULL;
  scoped_driver d = td_made(driver, tdict_driver_sim_open(&sim, &made, err));
  td_ok(tdict_context_create_over(td_options(tdict_context_options, num_threads = 2), d, &c, err));
  tdict_driver_sim_hold(d);
  td_ok(tdict_to_device_async(c, src, tdict_sim(0), NULL, &f, err));
  tdict_release(src);
  pthread_t thread = td_start(destroy, c);
  td_rest();
  assert_false(atomic_load(&destroyed));
  assert_int_equal(tdict_future_state(f), TDICT_FUTURE_PENDING);
  tdict_driver_sim_resume(d);
  pthread_join(thread, NULL);
  td_ok(tdict_future_wait(f, &result, err));
  tdict_future_release(f);
  check_tree(result);
  assert_true(atomic_load(&d->refs) > 1); /* the result keeps the driver alive */
  tdict_release(result);
  assert_int_equal(atomic_load(&d->refs), 1);
  assert_int_equal(atomic_load(&d->num_streams) + atomic_load(&d->num_events), 0);
  assert_int_equal(atomic_load(&d->pinned_bytes), 0);
}

GPU_CASE(memory_outlives_context) {
  tdict_context *c = td_context(NULL);
  tdict_tree *src = make_tree();
  scoped_tree pinned = NULL, moved = NULL;
  scoped_tensor own = NULL, copy = NULL;
  tdict_tensor *leaf = NULL;
  int64_t shape[1] = {LEAF_BYTES};
  td_ok(tdict_pin_memory(c, src, NULL, &pinned, err));
  td_ok(tdict_to_device(c, pinned, td_device(), NULL, &moved, err));
  td_ok(tdict_tensor_empty(TDICT_U8, 1, shape, tdict_device_memory(c, td_device()), &own, err));
  td_release(src, c);
  check_tree(pinned);
  check_tree(moved);
  assert_true(tdict_is_pinned(pinned));
  td_ok(tdict_get(moved, "leaf0", &leaf, err)); /* the copy on the device outlives the context */
  td_ok(tdict_tensor_copy(own, leaf, err));
  td_ok(tdict_tensor_clone(own, NULL, &copy, err));
  assert_memory_equal(tdict_tensor_const_data(copy), tdict_const_data(pinned, "leaf0"), LEAF_BYTES);
}

GPU_CASE(context_two_in_one_process) {
  tdict_context *a = td_context(NULL), *b = td_context(NULL);
  scoped_tree src = make_tree(), in_a = NULL, in_b = NULL;
  td_ok(tdict_to_device(a, src, td_device(), NULL, &in_a, err));
  td_ok(tdict_to_device(b, src, td_device(), NULL, &in_b, err));
  tdict_context_destroy(a);
  check_tree(in_a);
  check_tree(in_b);
  td_release(in_a);
  check_tree(in_b);
  td_release(in_b, b);
  check_tree(src);
}

static void *do_nothing(void *user) { return user; }

/* Every thread of a context with simulated devices has a name. A sanitizer may add an unnamed thread. */
SIM_CASE(threads_of_a_context_have_names) {
  static const char *const names[] = {"tdict-pool-0",   "tdict-pool-1",  "tdict-sim0-in",  "tdict-sim0-out",
                                      "tdict-sim0-run", "tdict-sim1-in", "tdict-sim1-out", "tdict-sim1-run"};
  pthread_t first = td_start(do_nothing, NULL);
  pthread_join(first, NULL);
  const int count = sizeof names / sizeof *names, num_others = td_threads_named("*");
  scoped_context c = open_on(tdict_sim(0), td_options(tdict_sim_options, num_devices = 2));
  tdict_tree *host = make_tree();
  for (int device = 0; device < 2; device++) {
    scoped_tree there = td_made(tree, tdict_to_device(c, host, tdict_sim(device), NULL, &made, err));
  }
  tdict_release(host);
  td_rest();
  for (int i = 0; i < count; i++) assert_int_equal(td_threads_named(names[i]), 1);
  assert_int_equal(td_threads_named("*"), num_others + count);
}
