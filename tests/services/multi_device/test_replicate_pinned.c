/* Tests REPLICATE to pinned host memory and devices: the bytes are pinned in parts, and the devices copy each part as
 * soon as it is pinned. The host is the last device of `several`. */
#include "several.h"
#include "tdict/sim.h"

static several open_with_host(size_t count) {
  several s = several_open(count, TDICT_SIM_PEERS_ALL);
  several_add_host(&s);
  return s;
}
static way pinned_way(int number) {
  way v = way_at(number);
  v.o.pinned_result = true;
  return v;
}
static void replicate(const several *s, const tdict_tree *src, const way *v) {
  tdict_tree *trees[MOST_DEVICES + 1];
  spread_tree(s, src, NULL, v, trees);
  check_replicas(s, src, trees);
  assert_true(tdict_is_pinned(trees[s->count - 1]));
  release_all(s, trees);
}
static tdict_future *start(const several *s, const tdict_tree *src) {
  const tdict_spread how = on_all(s, NULL);
  const tdict_transfer_options o = td_with(tdict_transfer_options, pinned_result = true);
  return td_made(future, tdict_to_devices_async(s->c, src, &how, &o, &made, err));
}

static void check_kinds(size_t count) {
  scoped_several s = open_with_host(count);
  for (int kind = 0; kind < NUM_TREE_KINDS; kind++) {
    scoped_tree src = make_tree(&s.at[0], (tree_kind)kind);
    for (int i = sanitized_first(kind); i < NUM_WAYS; i += 3 * WAYS_STEP) {
      const way v = pinned_way(i);
      replicate(&s, src, &v);
    }
  }
}
GPU_CASE(replicate_pins_every_kind_of_tree) { check_kinds(1); }
GPU_CASE(replicate_pins_every_kind_of_tree_for_two_devices) { check_kinds(2); }

static tdict_transfer_stats stats_of(const several *s, const tdict_tree *src) {
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  way v = pinned_way(0);
  v.o.stats = &stats;
  v.o.num_threads = -1;
  replicate(s, src, &v);
  return stats;
}
/* The devices copy the pinned bytes of a large tree. They copy a small tree from the source instead. */
GPU_CASE(replicate_sends_what_it_has_pinned) {
  scoped_several s = open_with_host(2);
  scoped_tree small = rows_tree(16, NULL), large = rows_tree(18000, NULL);
  const size_t bytes = tdict_bytes(large), slack = (size_t)256 * 8;
  tdict_transfer_stats stats = stats_of(&s, large);
  assert_int_equal(stats.host_bytes, bytes);
  assert_int_equal(stats.staged_bytes, 0);
  assert_in_range(stats.direct_bytes, 2 * bytes, 2 * (bytes + slack));
  stats = stats_of(&s, small);
  assert_int_equal(stats.host_bytes, tdict_bytes(small));
  assert_int_equal(stats.staged_bytes, 2 * tdict_bytes(small));
}
GPU_CASE(replicate_shares_pinned_leaves_with_the_host) {
  scoped_several s = open_with_host(1);
  scoped_tree src = rows_tree(1600, NULL);
  const way v = pinned_way(0);
  tdict_tree *trees[MOST_DEVICES + 1];
  td_put(src, "pinned", random_tensor(TDICT_F32, SHAPE(1600), s.at[0].pinned));
  spread_tree(&s, src, NULL, &v, trees);
  check_replicas(&s, src, trees);
  assert_ptr_equal(td_leaf(trees[1], "pinned")->storage, td_leaf(src, "pinned")->storage);
  release_all(&s, trees);
}
SIM_CASE(replicate_pins_only_on_the_host) {
  const tdict_transfer_options o = td_with(tdict_transfer_options, pinned_result = true);
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  scoped_tree src = rows_tree(1600, NULL);
  tdict_tree *trees[MOST_DEVICES];
  const tdict_spread how = on_all(&s, NULL);
  td_fails(TDICT_EINVAL, "pinned_result is for results on the cpu", td_to_devices(s.c, src, &how, &o, trees, err));
}

static int64_t num_pending(const several *s) {
  tdict_gpu *gpu;
  tdict_driver_sim_count count;
  td_ok(tdict_devices_gpu(tdict_context_devices(s->c), s->devices[0], &gpu, err));
  tdict_driver_sim_counts(gpu->driver, 0, &count);
  return count.num_pending;
}
/* An earlier transfer still writes the last leaf. The parts before it are pinned and their copies queued anyway. The
 * device is held, so it does not run the copies. */
SIM_CASE(replicate_sends_parts_while_others_are_pinned) {
  scoped_several s = open_with_host(1);
  scoped_tree src = rows_tree(4000, NULL), into = new_tree(), late = new_tree(), all = NULL;
  td_put(late, "x", random_tensor(TDICT_F32, SHAPE(4000, 250), NULL));
  td_put(into, "x", random_tensor(TDICT_F32, SHAPE(4000, 250), NULL));
  td_ok(tdict_set(src, "x", td_leaf(into, "x"), err));
  scoped_tree on_device = to_device(&s.at[0], late, s.devices[0]);
  td_ok(tdict_sim_hold(s.c, err));
  scoped_future before = td_made(future, tdict_transfer_into_async(s.c, into, on_device, NULL, &made, err));
  td_rest();
  const int64_t queued = num_pending(&s);
  scoped_future f = start(&s, src);
  td_rest();
  const int64_t more = num_pending(&s) - queued;
  td_ok(tdict_sim_resume(s.c, err));
  td_ok(tdict_future_wait(f, &all, err));
  assert_true(more > 0);
  tdict_tree *const trees[2] = {tdict_get_entry_at(all, 0).tree, tdict_get_entry_at(all, 1).tree};
  check_replicas(&s, src, trees);
}
SIM_CASE(replicate_and_pin_can_be_cancelled) {
  scoped_several s = open_with_host(2);
  scoped_tree src = rows_tree(4000, NULL), out = NULL;
  td_ok(tdict_sim_hold(s.c, err));
  scoped_future f = start(&s, src);
  td_rest();
  tdict_future_cancel(f);
  td_ok(tdict_sim_resume(s.c, err));
  td_fails(TDICT_ECANCELLED, "", tdict_future_wait(f, &out, err));
  assert_null(out);
  assert_non_null(tdict_tensor_data(td_leaf(src, "obs.pixels"))); /* no longer read */
}
