/* Tests communicators with streams, running transfers, read-only trees, memories and devices. */
#include <unistd.h>

#include "services/comm/every_op.h"
#include "support/gate.h"
#include "support/threads.h"

enum { WORLD = 3, COUNT = 5 };

typedef struct order_case {
  tdict_tree *tree[WORLD];
  tdict_stream stream[WORLD];
  tdict_comm_options options;
  float *device_data[WORLD];
  int op;
} order_case;

/* Simulates a slow kernel of the program: write_late() writes the elements after 30 ms. */
typedef struct late_kernel {
  tdict_stream stream;
  float *device_data;
  float value;
} late_kernel;
static void write_late(void *user) {
  const late_kernel *k = user;
  float *data = tdict_sim_host_pointer(k->stream, k->device_data);
  usleep(30000);
  for (int i = 0; i < COUNT; i++) data[i] = k->value;
}

static void reduce_after_kernel(rig_rank *r) {
  order_case *c = r->rig->user;
  tdict_comm_options o = c->options;
  late_kernel kernel = {c->stream[r->rank], c->device_data[r->rank], (float)(r->rank + 1)};
  o.after = c->stream[r->rank];
  rig_ok(r, tdict_sim_launch(c->stream[r->rank], write_late, &kernel, err));
  if (c->op == OP_REDUCE) rig_ok(r, td_comm_all_reduce(r->comm, c->tree[r->rank], TDICT_REDUCE_SUM, &o, err));
  if (c->op == OP_BROADCAST_INTO) rig_ok(r, td_comm_broadcast_into(r->comm, c->tree[r->rank], 1, &o, err));
  if (c->op == OP_ALL_GATHER) rig_ok(r, td_comm_all_gather_stack(r->comm, c->tree[r->rank], &o, &r->got, err));
  rig_ok(r, tdict_stream_synchronize(r->rig->context, c->stream[r->rank], err)); /* `kernel` is a local variable */
}

SIM_CASE(comm_calls_follow_the_stream_after) {
  static const int ops[] = {OP_REDUCE, OP_BROADCAST_INTO, OP_ALL_GATHER};
  for (int i = 0; i < 6; i++) {
    scoped_rig g = rig_create(WORLD);
    order_case c = {.op = ops[i % 3], .options = tdict_comm_options_default()};
    for (int r = 0; r < WORLD; r++) {
      tdict_tensor *t = NULL;
      c.tree[r] = help_tree_without_batch();
      td_ok(tdict_tensor_zeros(TDICT_F32, COUNTS(COUNT), tdict_device_memory(g->context, g->device), &t, err));
      c.device_data[r] = tdict_tensor_data(t);
      td_put(c.tree[r], "x", t);
      if (i >= 3) td_put(c.tree[r], "y", tdict_tensor_retain(t)); /* not one block, so the elements are copied first */
      td_ok(tdict_stream_create(g->context, g->device, &c.stream[r], err));
    }
    rig_run(g, reduce_after_kernel, &c);
    for (int r = 0; r < WORLD; r++) {
      tdict_tree *host = tree_on_host(c.op == OP_ALL_GATHER ? g->ranks[r].got : c.tree[r]);
      const tdict_tensor *x = td_leaf(host, "x");
      for (int64_t k = 0; k < COUNT; k++) {
        const int64_t index[2] = {c.op == OP_ALL_GATHER ? 2 : k, k};
        const float found = *(const float *)(const void *)tree_element(x, index);
        assert_true(found == (c.op == OP_REDUCE ? 6.0f : c.op == OP_ALL_GATHER ? 3.0f : 2.0f));
      }
      td_release(host, c.tree[r]);
      tdict_stream_destroy(g->context, c.stream[r]);
    }
  }
}

/* Uses sources in host memory with a communicator on a device. */
static void broadcast_from_host(rig_rank *r) {
  order_case *c = r->rig->user;
  rig_ok(r, td_comm_broadcast(r->comm, r->rank == 1 ? c->tree[1] : NULL, 1, NULL, &r->got, err));
  scoped_tree joined = NULL;
  rig_ok(r, td_comm_all_gather(r->comm, c->tree[1], NULL, &joined, err));
  rig_true(r, joined && tdict_batch_size(joined)[0] == 3 * tdict_batch_size(c->tree[1])[0]);
}

GPU_CASE(comm_sources_may_be_on_the_host) {
  scoped_rig g = rig_create(WORLD);
  tdict_tree *device = op_good_tree();
  order_case c = {.tree = {NULL, tree_on_host(device), NULL}};
  rig_run(g, broadcast_from_host, &c);
  for (int r = 0; r < WORLD; r++) {
    const tdict_tensor *t = td_leaf(g->ranks[r].got, "a");
    assert_true(tdict_device_equal(tdict_tensor_device(t), r == 1 ? tdict_cpu() : g->device));
    tree_check_equal(g->ranks[r].got, device);
  }
  td_release(c.tree[1], device);
}

GPU_CASE(comm_trees_in_place_must_be_on_the_device) {
  scoped_rig g = rig_create(WORLD);
  scoped_tree device = op_good_tree(), host = tree_on_host(device);
  static const int ops[] = {OP_BROADCAST_INTO, OP_REDUCE};
  for (int i = 0; i < 2; i++) {
    op_case c = {0};
    for (int r = 0; r < WORLD; r++) c.of[r] = (op_args){.op = ops[i], .tree = r == 2 ? host : device};
    rig_run(g, op_try, &c);
    op_check_all(g, TDICT_EWRONGDEVICE, "a", "rank 2: ");
    op_check_usable(g, device);
  }
}

CASE(comm_read_only_trees_are_not_written) {
  scoped_rig g = rig_create(WORLD);
  static const float values[3] = {1, 2, 3};
  scoped_tree good = help_tree_without_batch(), constant = help_read_only_tree(values);
  td_put(good, "x", td_made(tensor, tdict_tensor_zeros(TDICT_F32, COUNTS(3), NULL, &made, err)));
  for (int is_root = 0; is_root < 2; is_root++) {
    op_case c = {0};
    for (int r = 0; r < WORLD; r++)
      c.of[r] = (op_args){.op = OP_BROADCAST_INTO, .tree = r == 1 ? constant : good, .root = is_root};
    rig_run(g, op_try, &c);
    if (!is_root) op_check_all(g, TDICT_EREADONLY, "x", "rank 1: ");
    for (int r = 0; r < WORLD && is_root; r++) assert_int_equal(g->ranks[r].status, TDICT_OK); /* the root only reads */
  }
  assert_memory_equal(tdict_const_data(good, "x"), values, sizeof values);
}

/* New results are in the memory that the options name. Memory and streams of other devices are refused. */
SIM_CASE(comm_results_are_in_the_given_memory) {
  scoped_rig g = rig_create_on(WORLD, rig_context(), tdict_cpu(), true), on_device = rig_create(WORLD);
  scoped_tree tree = op_good_tree(), host = tree_on_host(tree);
  tdict_comm_options o = tdict_comm_options_default();
  op_case c;
  for (int op = 0; op < NUM_OPS; op++) {
    if (op == OP_BROADCAST_INTO || op == OP_REDUCE) continue;
    memset(&c, 0, sizeof c);
    o.memory = tdict_pinned_memory(g->context);
    for (int r = 0; r < WORLD; r++) c.of[r] = (op_args){.op = op, .tree = host, .root = 1, .options = &o};
    rig_run(g, op_try, &c);
    for (int r = 0; r < WORLD; r++) {
      assert_int_equal(g->ranks[r].status, TDICT_OK);
      const bool is_new = g->ranks[r].got && g->ranks[r].got != host;
      assert_true(!is_new || tdict_tensor_is_pinned(td_leaf(g->ranks[r].got, "z")));
      assert_true(is_new || (op == OP_BROADCAST && r == 1) || (op == OP_GATHER_TO && r != 1));
    }
    rig_drop_results(g);
    o.memory = tdict_device_memory(g->context, td_device());
    rig_run(g, op_try, &c);
    op_check_all(g, TDICT_EWRONGDEVICE, "", "rank 0: ");
  }
  memset(&c, 0, sizeof c);
  const tdict_stream cpu = {{TDICT_DEVICE_CPU, 0}, NULL};
  o = tdict_comm_options_default();
  o.after = cpu;
  for (int r = 0; r < WORLD; r++) c.of[r] = (op_args){.op = OP_STACK, .tree = tree, .options = r == 1 ? &o : NULL};
  rig_run(on_device, op_try, &c);
  op_check_all(on_device, TDICT_EWRONGDEVICE, "", "rank 1: ");
  op_check_usable(on_device, tree);
}

static void stack_during_transfer(rig_rank *r) {
  order_case *c = r->rig->user;
  rig_ok(r, td_comm_all_gather_stack(r->comm, c->tree[r->rank], NULL, &r->got, err));
}

GPU_CASE(comm_calls_wait_for_transfers) {
  enum { MANY = 1 << 20 };
  scoped_rig g = rig_create(WORLD);
  order_case c = {0};
  scoped_tree host = help_tree_without_batch();
  tdict_future *futures[WORLD];
  td_put(host, "x", td_made(tensor, tdict_tensor_arange(TDICT_I32, 5, 3, MANY, &made, err)));
  const void *wanted = tdict_const_data(host, "x");
  TD_STREAM(other, g->context, g->device);
  for (int i = 0; i < 10; i++) {
    for (int r = 0; r < WORLD; r++) {
      td_ok(tdict_to_device_async(g->context, host, g->device, NULL, &futures[r], err));
      td_ok(tdict_future_wait_on_stream(futures[r], other, &c.tree[r], err)); /* `other` is not the legacy stream */
    }
    rig_run(g, stack_during_transfer, &c);
    for (int r = 0; r < WORLD; r++) {
      tdict_tree *whole = tree_on_host(g->ranks[r].got);
      for (int from = 0; from < WORLD; from++)
        assert_memory_equal(tree_element(td_leaf(whole, "x"), (const int64_t[]){from, 0}), wanted,
                            sizeof(int32_t) * MANY);
      td_release(whole, futures[r], c.tree[r]);
    }
    rig_drop_results(g);
  }
}

/* The transfers wait for a stream that a gate blocks. The gate opens when all ranks wait. The gate is on a second
 * device, so it does not block the copies of the calls. */
SIM_CASE(comm_calls_wait_for_blocked_transfers) {
  enum { MANY = 1024 }; /* with this size, the block of the tree has no padding, so it is sent directly */
  tdict_sim_options sim = td_with(tdict_sim_options, num_devices = 2);
  scoped_context context = td_context(td_options(tdict_context_options, sim = &sim));
  scoped_rig g = rig_create_on(WORLD, context, tdict_sim(0), true);
  order_case c = {0};
  gate before = {0};
  scoped_tree host = help_tree_without_batch(), there = NULL;
  tdict_future *at_gate, *futures[WORLD];
  td_put(host, "x", td_made(tensor, tdict_tensor_arange(TDICT_I32, 5, 3, MANY, &made, err)));
  TD_STREAM(second, context, tdict_sim(1));
  TD_STREAM(blocked, context, tdict_sim(0));
  TD_STREAM(other, context, tdict_sim(0));
  td_ok(tdict_sim_launch(second, pass_gate, &before, err));
  td_ok(tdict_to_device_async(context, host, tdict_sim(1), td_options(tdict_transfer_options, after = second), &at_gate,
                              err));
  td_ok(tdict_future_wait_on_stream(at_gate, blocked, &there, err));
  for (int r = 0; r < WORLD; r++) {
    td_ok(tdict_to_device_async(context, host, tdict_sim(0), td_options(tdict_transfer_options, after = blocked),
                                &futures[r], err));
    td_ok(tdict_future_wait_on_stream(futures[r], other, &c.tree[r], err));
  }
  pthread_t opener = td_start(open_gate_at_rest, &before);
  rig_run(g, stack_during_transfer, &c);
  assert_int_equal(pthread_join(opener, NULL), 0);
  for (int r = 0; r < WORLD; r++) {
    scoped_tree whole = td_made(tree, tdict_to_device(context, g->ranks[r].got, tdict_cpu(), NULL, &made, err));
    for (int from = 0; from < WORLD; from++)
      assert_memory_equal(tree_element(td_leaf(whole, "x"), (const int64_t[]){from, 0}), tdict_const_data(host, "x"),
                          sizeof(int32_t) * MANY);
    td_release(futures[r], c.tree[r]);
  }
  td_release(at_gate);
  rig_drop_results(g);
}
