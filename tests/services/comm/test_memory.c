/* Makes every allocation of every call fail once. The only rank makes its calls on this thread, so all of its
 * allocations can fail. */
#include "services/comm/every_op.h"

static tdict_tree *separate_tree(void) {
  tdict_tree *tree = op_good_tree(), *made = NULL;
  tdict_tensor *t = NULL;
  td_ok(tdict_clone(tree, &made, err));
  td_ok(tdict_tensor_clone(td_leaf(tree, "z"), tdict_device_memory(rig_context(), td_device()), &t, err));
  td_put(made, "z", t);
  tdict_release(tree);
  return made;
}

static tdict_status (*real_exchange)(void *self, const void *src, void *dst, size_t num_bytes, int64_t timeout_ns,
                                     tdict_error *err);
static int64_t seen_at_exchange; /* allocations before the headers were exchanged */
static tdict_status note_exchange(void *self, const void *src, void *dst, size_t num_bytes, int64_t timeout_ns,
                                  tdict_error *err) {
  seen_at_exchange = td_allocs_seen();
  return real_exchange(self, src, dst, num_bytes, timeout_ns, err);
}
static rig *rig_of_one(void) {
  rig *g = rig_create_on(1, rig_context(), td_device(), false);
  tdict_comm_table *table = &g->ranks[0].table;
  real_exchange = table->exchange;
  table->exchange = note_exchange;
  table->on_calling_thread = true;
  td_ok(tdict_comm_create(g->context, table, NULL, &g->ranks[0].comm, err));
  return g;
}

static void refuse_each(int op, tdict_tree *tree, const tdict_tree *wanted) {
  int refused = 0;
  TD_SWEEP(s) {
    scoped_rig g = rig_of_one();
    scoped_tree got = NULL;
    const op_args a = {.op = op, .tree = tree, .reduce = TDICT_REDUCE_MAX};
    const tdict_status status = td_sweep_call(s, op_call(&g->ranks[0], &a, &got, err));
    assert_true(status == TDICT_OK || (int)s.error.status == TDICT_ENOMEM);
    assert_true(!got == (status != TDICT_OK || op == OP_BROADCAST_INTO || op == OP_REDUCE));
    tree_check_equal(tree, wanted);
    refused += status == TDICT_ENOMEM;
  }
  assert_true(refused > 0);
}

CASE(comm_calls_without_memory_return_enomem) {
  scoped_tree block = op_good_tree(), separate = separate_tree();
  for (int op = 0; op < NUM_OPS; op++) {
    refuse_each(op, block, separate);
    refuse_each(op, separate, block);
  }
}

/* On a device, the join is prepared while the message is being sent. */
SIM_CASE(comm_gathers_on_a_device_without_memory_return_enomem) {
  static const int ops[] = {OP_SCATTER, OP_GATHER_TO, OP_ALL_GATHER, OP_STACK};
  scoped_tree block = op_good_tree(), separate = separate_tree();
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
    refuse_each(ops[i], block, separate);
    refuse_each(ops[i], separate, block);
  }
}

/* Broadcasts two trees in turn. Once the communicator knows their schemas, it allocates only the future, which holds a
 * copy of the tree, before the headers are exchanged. */
CASE(comm_broadcast_into_of_known_blocks_allocates_only_the_future) {
  tdict_tree *trees[] = {op_good_tree(), op_tree("child.c", TDICT_F32, 3)};
  rig *g = rig_of_one();
  int64_t seen[6];
  for (int round = 0; round < 6; round++) {
    tdict_error err = {0};
    const op_args a = {.op = OP_BROADCAST_INTO, .tree = trees[round % 2]};
    td_fail_alloc(INT64_MAX, true);
    const tdict_status status = op_call(&g->ranks[0], &a, NULL, &err);
    seen[round] = td_allocs_seen();
    assert_false(td_fail_alloc_stop());
    assert_int_equal(status, TDICT_OK);
    if (round < 2) continue;
    assert_int_equal(seen[round], seen_at_exchange);
    assert_int_equal(seen[round], seen[2 + round % 2]);
    assert_true(seen[round] < seen[round % 2]);
  }
  rig_destroy(g);
  for (int i = 0; i < 2; i++) tdict_release(trees[i]);
}

CASE(comm_create_without_memory_returns_enomem) {
  thread_world *w = thread_world_create(1, NULL, tdict_cpu());
  tdict_context *context = rig_context();
  tdict_comm_table table;
  thread_world_table(w, 0, &table);
  TD_SWEEP(s) {
    scoped_comm comm = NULL;
    const bool refused = td_refused(s, tdict_comm_create(context, &table, NULL, &comm, err));
    assert_int_equal(refused, !comm);
  }
  thread_world_destroy(w);
}
