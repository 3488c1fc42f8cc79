/* Tests the option max_bytes_per_second of saves in virtual time. __wrap_clock_gettime and __wrap_nanosleep are in
 * virtual_clock.h. */
#include "random_tree.h"
#include "support/virtual_clock.h"
#include "tdict/sim.h"

/* RATE: bytes per second, so low that the real time of a save does not matter. PIECE: bytes of one write. */
enum { RATE = 1000000, PIECE = 256 << 10, ROWS = 1 << 20 };
static const char fields[] = "a.b:u8[1048576] a.c:u8[1048576] d:u8[1048576]";
static const double least_seconds = (3.0 * ROWS - PIECE) / RATE;

static tdict_context *open_context(tdict_device device) {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context *c = NULL;
  tdict_context_options o = td_with(tdict_context_options, device = device);
  if (device.type == TDICT_DEVICE_SIM) o.sim = &sim;
  td_ok(tdict_context_create(&o, &c, err));
  return c;
}

/* Saves and reads the tree. Returns the virtual seconds of the save. */
static double save_timed(tdict_context *c, const char *path, const tdict_tree *tree, int64_t rate, bool async) {
  const tdict_save_options o = td_with(tdict_save_options, max_bytes_per_second = rate);
  atomic_store(&td_clock.is_virtual, true);
  const int64_t begin = td_virtual_ns();
  if (async) {
    tdict_future *f = NULL;
    td_ok(tdict_save_async(c, path, tree, &o, &f, err));
    td_ok(tdict_future_take(f, NULL, err));
  } else {
    td_ok(tdict_save(c, path, tree, &o, err));
  }
  const double seconds = (double)(td_virtual_ns() - begin) / 1e9;
  atomic_store(&td_clock.is_virtual, false);
  return seconds;
}
static void check_paced(tdict_context *c, const char *path, const tdict_tree *tree, const tdict_tree *wanted,
                        bool async) {
  assert_true(save_timed(c, path, tree, RATE, async) >= least_seconds);
  scoped_tree found = td_made(tree, tdict_open(path, NULL, &made, err));
  same_trees(found, wanted);
}

/* Saves in each format, with the threads of a context and on the calling thread. */
CASE(save_keeps_to_a_rate) {
  static const char *const names[] = {"a.safetensors", "a.npz", "a.tdz"};
  scoped_folder f = folder_create();
  scoped_tree tree = td_tree(fields);
  tdict_context *c = open_context(tdict_cpu());
  for (int i = 0; i < 3; i++) {
    check_paced(NULL, in(&f, names[i]), tree, tree, false);
    check_paced(c, in(&f, names[i]), tree, tree, false);
  }
  check_paced(c, in(&f, names[0]), tree, tree, true);
  const int64_t slept = atomic_load(&td_clock.ahead_ns);
  (void)save_timed(c, in(&f, names[0]), tree, 0, false);
  assert_int_equal(atomic_load(&td_clock.ahead_ns), slept); /* without a rate, a save does not sleep */
  tdict_context_destroy(c);
}

/* Saves tensors on a device: a blocking save copies them while it writes, an asynchronous save before it writes. */
SIM_CASE(save_of_a_device_keeps_to_a_rate) {
  scoped_folder f = folder_create();
  tdict_context *c = open_context(tdict_sim(0));
  scoped_tree tree = td_tree(fields), there = td_made(tree, tdict_to_device(c, tree, tdict_sim(0), NULL, &made, err));
  check_paced(c, in(&f, "a.safetensors"), there, tree, false);
  check_paced(c, in(&f, "a.safetensors"), there, tree, true);
  check_paced(c, in(&f, "a.npz"), there, tree, false);
  tdict_release(there);
  there = NULL;
  tdict_context_destroy(c);
}

/* The snapshot is complete long before the file. Uses the real clock: at this rate, the file would take a minute. */
CASE(save_does_not_delay_the_snapshot) {
  scoped_folder f = folder_create();
  scoped_tree tree = td_tree("a:u8[67108864]");
  const tdict_save_options o = td_with(tdict_save_options, max_bytes_per_second = RATE);
  tdict_context *c = open_context(tdict_cpu());
  tdict_future *save = NULL;
  td_ok(tdict_save_async(c, in(&f, "a.safetensors"), tree, &o, &save, err));
  td_ok(tdict_future_wait_source(save, err));
  assert_false(tdict_future_is_ready(save));
  tdict_future_cancel(save);
  td_fails(TDICT_ECANCELLED, "cancelled", tdict_future_take(save, NULL, err));
  assert_int_equal(folder_count(&f, NULL), 0);
  tdict_context_destroy(c);
}

CASE(save_refuses_a_wrong_rate) {
  scoped_folder f = folder_create();
  scoped_tree tree = td_tree("a:f32[4]");
  tdict_context *c = open_context(tdict_cpu());
  const int64_t wrong[] = {-1, INT64_MIN, 1, RATE - 1};
  for (int i = 0; i < 4; i++) {
    const tdict_save_options o = td_with(tdict_save_options, max_bytes_per_second = wrong[i]);
    tdict_future *save = NULL;
    td_fails(TDICT_EINVAL, "max_bytes_per_second", tdict_save(NULL, in(&f, "a.npz"), tree, &o, err));
    td_fails(TDICT_EINVAL, "max_bytes_per_second", tdict_save_async(c, in(&f, "a.npz"), tree, &o, &save, err));
    assert_null(save);
  }
  assert_int_equal(folder_count(&f, NULL), 0);
  tdict_context_destroy(c);
}
