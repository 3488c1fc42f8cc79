/* Tests REPLICATE: every device receives all bytes, over links between devices where these exist. */
#include "several.h"

/* Replicates a tree in every `step`-th way of way_at(): modes, numbers of threads, blocking or asynchronous. */
static void check_ways(const several *s, const tdict_tree *src, int first, int step) {
  for (int i = first; i < NUM_WAYS; i += step) {
    const way v = way_at(i);
    tdict_tree *trees[MOST_DEVICES];
    spread_tree(s, src, NULL, &v, trees);
    check_replicas(s, src, trees);
    for (size_t j = 0; j < s->count; j++) spoil_tree(&s->at[j], trees[j]);
    release_all(s, trees);
  }
}
static void check_kinds(size_t count, int32_t peers) {
  scoped_several s = several_open(count, peers);
  for (int kind = 0; kind < NUM_TREE_KINDS; kind++) {
    scoped_tree src = make_tree(&s.at[0], (tree_kind)kind);
    check_ways(&s, src, sanitized_first(kind), 3 * WAYS_STEP);
  }
}
GPU_CASE(replicate_every_kind_of_tree_on_two_devices) { check_kinds(2, TDICT_SIM_PEERS_ALL); }
SIM_CASE(replicate_every_kind_of_tree_on_four_devices) { check_kinds(4, TDICT_SIM_PEERS_ALL); }
SIM_CASE(replicate_every_kind_of_tree_on_pairs) { check_kinds(4, TDICT_SIM_PEERS_PAIRS); }
SIM_CASE(replicate_every_kind_of_tree_without_peers) { check_kinds(3, TDICT_SIM_PEERS_NONE); }

/* Makes a tree with a small leaf, a 12 MiB leaf that needs several rounds, a strided leaf, an empty leaf and a 1.6 MB
 * leaf. */
static tdict_tree *large_tree(const several *s, bool pinned) {
  tdict_memory *memory = pinned ? s->at[0].pinned : NULL;
  const int turn[] = {1, 0};
  tdict_tree *td = td_tree_in(memory, "first:u8[1000]");
  td_put(td, "a.large", random_tensor(TDICT_F32, SHAPE(3 << 20), memory)); /* 12 MiB */
  td_put(td, "a.turned", permuted(random_tensor(TDICT_F64, SHAPE(700, 701), memory), turn));
  td_put(td, "none", random_tensor(TDICT_F64, SHAPE(0, 3), memory));
  td_put(td, "b", random_tensor(TDICT_I16, SHAPE(777, 1001), memory));
  return td;
}
GPU_CASE(replicate_large_trees_in_rounds) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  for (int pinned = 0; pinned < 2; pinned++) {
    scoped_tree src = large_tree(&s, pinned);
    check_ways(&s, src, 0, 7 * WAYS_STEP);
  }
}

static tdict_transfer_stats stats_of(const several *s, const tdict_tree *src, const tdict_spread *spread) {
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  way v = way_at(0);
  v.o.stats = &stats;
  v.o.num_threads = -1;
  tdict_tree *trees[MOST_DEVICES];
  spread_tree(s, src, spread, &v, trees);
  release_all(s, trees);
  return stats;
}
/* Checks how often the host's bytes are read and how often devices copy them, for a small and a large tree. */
static void check_reads(size_t count, int32_t peers, size_t host_reads) {
  scoped_several s = several_open(count, peers);
  for (int64_t rows = 16; rows <= 1600; rows *= 100) {
    scoped_tree src = rows_tree(rows, NULL);
    const size_t bytes = tdict_bytes(src), slack = (size_t)256 * 8 * count;
    const tdict_transfer_stats stats = stats_of(&s, src, NULL);
    assert_int_equal(stats.staged_bytes, host_reads * bytes);
    assert_in_range(stats.peer_bytes, (count - host_reads) * bytes, (count - host_reads) * bytes + slack);
    assert_int_equal(stats.total_bytes, stats.staged_bytes + stats.peer_bytes);
    assert_true(stats.total_seconds > 0);
  }
}
GPU_CASE(replicate_reads_host_memory_once) { check_reads(2, TDICT_SIM_PEERS_ALL, 1); }
SIM_CASE(replicate_reads_host_memory_once_for_four) { check_reads(4, TDICT_SIM_PEERS_ALL, 1); }
SIM_CASE(replicate_reads_host_memory_once_for_each_pair) { check_reads(4, TDICT_SIM_PEERS_PAIRS, 2); }
SIM_CASE(replicate_without_peers_reads_for_each_device) { check_reads(3, TDICT_SIM_PEERS_NONE, 3); }

GPU_CASE(replicate_keeps_locks_and_batch_sizes) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  for (int64_t rows = 16; rows <= 1600; rows *= 100) {
    tdict_tree *src = rows_tree(rows, NULL), *trees[2];
    const way v = way_at(0);
    tdict_lock(src);
    spread_tree(&s, src, NULL, &v, trees);
    check_replicas(&s, src, trees);
    for (int i = 0; i < 2; i++) {
      assert_true(tdict_is_locked(trees[i]));
      assert_int_equal(tdict_batch_ndim(trees[i]), 1);
      assert_int_equal(tdict_batch_size(trees[i])[0], rows);
    }
    release_all(&s, trees);
    tdict_release(src);
  }
}

/* A source on a device is copied from there to the others. The result on the source's device is the source itself. */
GPU_CASE(replicate_from_a_device) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  tdict_tree *host = rows_tree(100, NULL), *src = to_device(&s.at[1], host, s.devices[1]), *trees[2];
  const way v = way_at(0);
  spread_tree(&s, src, NULL, &v, trees);
  check_replicas(&s, host, trees);
  assert_ptr_equal(trees[1], src);
  release_all(&s, trees);
  td_release(src, host);
}

/* Replicates with a conversion, which rules out an exchange of parts between the devices. */
GPU_CASE(replicate_with_conversions_goes_to_each_device) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  tdict_tree *src = rows_tree(200, NULL), *trees[2];
  way v = way_at(0);
  v.o.conversions = td_options(tdict_conversion, pattern = "obs.state", dtype = TDICT_F64);
  v.o.num_conversions = 1;
  spread_tree(&s, src, NULL, &v, trees);
  for (int i = 0; i < 2; i++) {
    TD_FREED double *got = (double *)(void *)read_elements(&s.at[i], td_leaf(trees[i], "obs.state"));
    const float *want = tdict_tensor_const_data(td_leaf(src, "obs.state"));
    for (int k = 0; k < 200 * 17; k++) assert_true(got[k] == (double)want[k] || got[k] != got[k]);
  }
  release_all(&s, trees);
  tdict_release(src);
}
GPU_CASE(replicate_keeps_to_the_limit_of_queued_bytes) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  tdict_tree *src = rows_tree(1600, NULL), *trees[2];
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  way v = way_at(0);
  v.o.max_queued_bytes = (size_t)256 << 10;
  v.o.stats = &stats;
  spread_tree(&s, src, NULL, &v, trees);
  check_replicas(&s, src, trees);
  assert_in_range(stats.peak_queued_bytes, 1, (size_t)256 << 10);
  assert_int_equal(stats.peer_bytes, 0); /* parts that exchange bytes cannot share one limit */
  release_all(&s, trees);
  tdict_release(src);
}
GPU_CASE(replicate_on_the_host_too) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  tdict_tree *src = rows_tree(200, NULL), *trees[3];
  const tdict_device devices[3] = {s.devices[0], tdict_cpu(), s.devices[1]};
  const tdict_spread how = tdict_spread_replicate(devices, 3);
  td_ok(td_to_devices(s.c, src, &how, NULL, trees, err));
  check_tree(&s.at[0], src, trees[0]);
  check_tree(&s.at[0], src, trees[1]);
  check_tree(&s.at[1], src, trees[2]);
  for (int i = 0; i < 3; i++) tdict_release(trees[i]);
  tdict_release(src);
}
GPU_CASE(replicate_of_trees_without_bytes) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  tdict_tree *src = new_tree(), *trees[2];
  const way v = way_at(0);
  spread_tree(&s, src, NULL, &v, trees);
  check_replicas(&s, src, trees);
  release_all(&s, trees);
  td_put(src, "none", random_tensor(TDICT_F32, SHAPE(0, 4), NULL));
  spread_tree(&s, src, NULL, &v, trees);
  check_replicas(&s, src, trees);
  release_all(&s, trees);
  tdict_release(src);
}

CASE(to_devices_names_what_is_wrong) {
  tdict_sim_options sim = td_with(tdict_sim_options, num_devices = 2, peers = 3);
  tdict_context_options o = td_with(tdict_context_options, sim = &sim, device = tdict_sim(0));
  scoped_context c = NULL;
  td_fails(TDICT_EINVAL, "peers is 3", tdict_context_create(&o, &c, err));
  sim.peers = TDICT_SIM_PEERS_PAIRS;
  td_ok(tdict_context_create(&o, &c, err));
  tdict_tree *src = new_tree(), *trees[TDICT_MAX_DEVICES + 1];
  tdict_device devices[TDICT_MAX_DEVICES + 1] = {tdict_sim(0), tdict_sim(1)};
  tdict_future *f = NULL;
  tdict_spread spread = tdict_spread_replicate(devices, 2);
  tdict_transfer_options t = tdict_transfer_options_default();
  td_fails(TDICT_EINVAL, "out is NULL", tdict_to_devices_async(c, src, &spread, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "spread is NULL", td_to_devices(c, src, NULL, NULL, trees, err));
  td_fails(TDICT_EINVAL, "context is NULL", td_to_devices(NULL, src, &spread, NULL, trees, err));
  td_fails(TDICT_EINVAL, "src is NULL", td_to_devices(c, NULL, &spread, NULL, trees, err));
  spread.devices = NULL;
  td_fails(TDICT_EINVAL, "devices is NULL", td_to_devices(c, src, &spread, NULL, trees, err));
  spread = tdict_spread_replicate(devices, 0);
  td_fails(TDICT_EINVAL, "num_devices is 0, wanted 1 to 64", td_to_devices(c, src, &spread, NULL, trees, err));
  spread.num_devices = TDICT_MAX_DEVICES + 1;
  td_fails(TDICT_EINVAL, "num_devices is 65", td_to_devices(c, src, &spread, NULL, trees, err));
  spread.num_devices = 2;
  devices[1] = (tdict_device){TDICT_DEVICE_AUTO, 0};
  td_fails(TDICT_EINVAL, "devices 0 and 1 are both sim:0", td_to_devices(c, src, &spread, NULL, trees, err));
  devices[1] = tdict_sim(2);
  td_fails(TDICT_ENODEVICE, "", tdict_to_devices_async(c, src, &spread, NULL, &f, err));
  devices[1] = tdict_sim(1);
  spread.kind = 7;
  td_fails(TDICT_EINVAL, "kind is 7", td_to_devices(c, src, &spread, NULL, trees, err));
  spread.kind = TDICT_SPLIT;
  td_fails(TDICT_EINVAL, "dim", td_to_devices(c, src, &spread, NULL, trees, err));
  spread.kind = TDICT_REPLICATE;
  t.memory = tdict_device_memory(c, devices[0]);
  td_fails(TDICT_EINVAL, "memory is set", td_to_devices(c, src, &spread, &t, trees, err));
  tdict_release(src);
}
