/* Tests transfers between two simulated devices, and trees with leaves on both devices and on the host. */
#include "core/memory/pinned_blocks.h"
#include "core/sched/gate.h"
#include "engine/transfer.h"
#include "trees.h"

/* One context, opened as one place for each of its two devices. */
typedef struct pair {
  place zero, one;
} pair;
static pair open_pair(void) {
  tdict_context_options o = tdict_context_options_default();
  o.sim = td_options(tdict_sim_options, num_devices = 2);
  o.staging_bytes = STAGING;
  pair p = {.zero = place_around(td_context(&o))};
  p.one = p.zero;
  p.one.device = tdict_sim(1);
  p.one.memory = tdict_device_memory(p.zero.c, tdict_sim(1));
  p.one.raw = raw_open(p.zero.c, tdict_sim(1));
  return p;
}
static void close_pair(pair *p) {
  raw_close(p->one.raw);
  place_close(&p->zero);
}
#define scoped_pair TD_SCOPED(close_pair, pair)

SIM_CASE(transfer_between_two_devices) {
  scoped_pair p = open_pair();
  const place *w = &p.zero;
  for (int kind = 0; kind < NUM_TREE_KINDS; kind++) {
    scoped_tree src = make_tree(w, (tree_kind)kind), one = to_device(w, src, tdict_sim(1));
    check_device(one, tdict_sim(1));
    check_tree(&p.one, src, one);
    for (int i = kind; i < NUM_WAYS; i += FEW_WAYS_STEP) {
      const way v = way_at(i);
      poison(w, w->memory, line_bytes(src));
      scoped_tree zero = move_tree(w, one, tdict_sim(0), &v);
      check_device(zero, tdict_sim(0));
      check_tree(w, src, zero);
      spoil_tree(&p.one, one);
      copy_tree(w, zero, one, &v); /* back into the tree that already exists on device 1 */
      check_tree(&p.one, src, one);
      spoil_tree(w, zero);
    }
  }
}

/* tdict_consolidate() refuses to copy from one device to another. Transfers move consolidated trees between devices. */
SIM_CASE(consolidate_refuses_two_devices) {
  scoped_pair p = open_pair();
  const place *w = &p.zero;
  tdict_tree *src = NULL, *batch = batch_tree(NULL), *other = NULL;
  td_ok(tdict_consolidate(batch, NULL, &src, err));
  tdict_tree *one = to_device(w, src, tdict_sim(1));
  td_fails_at(TDICT_EWRONGDEVICE, "wanted one device", "obs.pixels", tdict_consolidate(one, w->memory, &other, err));
  assert_null(other);
  tdict_tree *zero = to_device(w, one, tdict_sim(0));
  assert_true(tdict_is_consolidated(one) && tdict_is_consolidated(zero));
  check_device(zero, tdict_sim(0));
  check_and_release(w, batch, zero);
  td_release(one, src, batch);
}

/* Pinned results are on the NUMA node of the source's device: node 1 for device 1, and unknown for device 0. */
SIM_CASE(transfer_pinned_results_lie_near_their_device) {
  scoped_pair p = open_pair();
  const place *w = &p.zero;
  scoped_tree src = new_tree();
  tdict_gpu *gpu;
  tdict_transfer_options o = td_with(tdict_transfer_options, pinned_result = true);
  td_ok(tdict_devices_gpu(tdict_context_devices(w->c), tdict_sim(1), &gpu, err));
  gpu->node = 1;
  td_put(src, "x", random_tensor(TDICT_U8, SHAPE(100000), NULL));
  for (int i = 0; i < 4; i++) { /* in round 1, only the other device's block is cached */
    scoped_tree there = to_device(w, src, tdict_sim(i % 2)), home = NULL;
    td_ok(tdict_to_device(w->c, there, tdict_cpu(), &o, &home, err));
    check_tree(w, src, home);
    const tdict_storage *s = td_leaf(home, "x")->storage;
    assert_int_equal(((const tdict_pinned_block *)s->block.cookie)->run->node, i % 2 ? 1 : -1);
  }
  tdict_memory_counts counts = td_memory_counts(w->pinned);
  assert_int_equal(counts.num_reused, 2);
}

/* Moves trees whose leaves are alternately on the host and on both devices. */
static void move_mixed(const pair *p, tree_kind kind) {
  const place *w = &p->zero;
  tdict_tree *src = make_tree(w, kind);
  scoped_tree mixed = new_tree(), want = new_tree();
  tdict_tree *parts[] = {src, to_device(w, src, tdict_sim(1)), to_device(w, src, tdict_sim(0))};
  leaf_list lists[] = {list_entries(parts[0]), list_entries(parts[1]), list_entries(parts[2])};
  for (size_t i = 0; i < lists[0].count; i++) {
    if (!lists[0].tensors[i]) continue;
    td_ok(tdict_set(mixed, lists[0].paths[i], lists[i % 3].tensors[i], err));
    td_ok(tdict_set(want, lists[0].paths[i], lists[0].tensors[i], err));
  }
  for (int i = 0; i < NUM_WAYS; i += 11) {
    const way v = way_at(i);
    scoped_tree at_zero = move_tree(w, mixed, tdict_sim(0), &v), at_one = move_tree(w, mixed, tdict_sim(1), &v);
    scoped_tree home = move_tree(w, mixed, tdict_cpu(), &v);
    check_device(at_zero, tdict_sim(0));
    check_device(at_one, tdict_sim(1));
    check_tree(w, want, at_zero);
    check_tree(&p->one, want, at_one);
    check_tree(w, want, home);
  }
  for (int i = 0; i < 3; i++) {
    free_list(&lists[i]);
    tdict_release(parts[i]);
  }
}
SIM_CASE(transfer_from_several_devices) {
  scoped_pair p = open_pair();
  for (int kind = 0; kind < NUM_TREE_KINDS; kind++) move_mixed(&p, (tree_kind)kind);
}

/* An asynchronous call queues the copy of a contiguous leaf itself, but leaves the many copies of a strided leaf to a
 * pool thread. */
SIM_CASE(transfer_of_strided_leaves_is_for_threads) {
  pool_gate wait_events[2][64]; /* one set for each round, because pool threads still use a gate after it is opened */
  scoped_pair p = open_pair();
  place *w = &p.zero;
  tdict_pool *pool = tdict_context_engine(w->c)->config.pool;
  const int threads = tdict_pool_size(pool);
  assert_in_range(threads, 1, 64);
  scoped_tree src = new_tree(), at_zero = NULL;
  tdict_tensor *at_home, *plain, *turned[2];
  td_put(src, "x", random_tensor(TDICT_U8, SHAPE(700, 300), NULL));
  td_ok(tdict_to_device(w->c, src, tdict_sim(0), NULL, &at_zero, err));
  td_ok(tdict_get(src, "x", &at_home, err));
  td_ok(tdict_get(at_zero, "x", &plain, err));
  td_ok(tdict_tensor_permute(at_home, 2, (int[]){1, 0}, &turned[0], err));
  td_ok(tdict_tensor_permute(plain, 2, (int[]){1, 0}, &turned[1], err));
  for (int strided = 0; strided < 2; strided++) {
    scoped_tree want = new_tree(), from = new_tree(), there = NULL;
    td_put(want, "x", strided ? turned[0] : tdict_tensor_retain(at_home));
    td_put(from, "x", strided ? turned[1] : tdict_tensor_retain(plain));
    for (int i = 0; i < threads; i++) pool_gate_close(pool, &wait_events[strided][i]);
    scoped_future f = move_async(w, from, tdict_sim(1), NULL);
    assert_int_equal(tdict_latch_is_zero(&((tdict_transfer *)f)->queued), !strided);
    for (int i = 0; i < threads; i++) pool_gate_open(&wait_events[strided][i]);
    td_ok(tdict_future_wait(f, &there, err));
    check_tree(&p.one, want, there);
  }
}
