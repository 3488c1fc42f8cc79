/* Tests locked trees, which a communicator checks once: results, errors, and the number of checks. */
#include "core/tensor/tensor.h"
#include "services/comm/call.h"
#include "services/comm/every_op.h"

enum { WORLD = 3 };
static _Atomic(int) walks[THREAD_MOST_RANKS]; /* for each rank: how often all tensors of a tree were checked */

tdict_status __real_tdict_comm_check_tree(const tdict_comm *comm, const char *what, const tdict_tree *tree, int use,
                                          tdict_comm_source *out, tdict_error *err);
tdict_status __wrap_tdict_comm_check_tree(const tdict_comm *comm, const char *what, const tdict_tree *tree, int use,
                                          tdict_comm_source *out, tdict_error *err);
tdict_status __wrap_tdict_comm_check_tree(const tdict_comm *comm, const char *what, const tdict_tree *tree, int use,
                                          tdict_comm_source *out, tdict_error *err) {
  walks[comm->table.rank]++;
  return __real_tdict_comm_check_tree(comm, what, tree, use, out, err);
}

static void forget_walks(void) {
  for (int r = 0; r < THREAD_MOST_RANKS; r++) walks[r] = 0;
}

static bool is_given(int op, int rank, int root) { return rank == root || (op != OP_BROADCAST && op != OP_SCATTER); }

/* Makes a call with the trees of all ranks, and checks that no rank fails. */
static void call_with(rig *g, int op, tdict_tree *const *trees, int root) {
  op_case c = {0};
  forget_walks();
  for (int r = 0; r < g->world; r++)
    c.of[r] = (op_args){.op = op, .tree = trees[r], .root = root, .reduce = TDICT_REDUCE_MAX};
  rig_run(g, op_try, &c);
  for (int r = 0; r < g->world; r++)
    if (g->ranks[r].status != TDICT_OK) fail_msg("rank %d, %s: %s", r, op_names[op], g->ranks[r].error.message);
}

/* Makes each call twice, with new element values each time. Calls with locked trees must have the same
 * results as calls with unlocked trees. Other tests check the results of unlocked trees. */
static void compare_calls(rig *g, tree_plan *plan, tdict_tree *const *locked, tdict_tree *const *unlocked, int mask) {
  const size_t leaves = tdict_num_leaves(locked[0]);
  const bool has_one_storage = leaves == 1 || (leaves > 1 && plan->layout == LAYOUT_BLOCK);
  bool was_checked[WORLD] = {false};
  for (int call = 0; call < 2 * NUM_OPS; call++) {
    const int op = (call * 3 + (int)plan->shape_seed) % NUM_OPS, root = call % WORLD;
    for (int r = 0; r < WORLD; r++) {
      plan->value_seed = plan->shape_seed * 100 + (uint64_t)(call * WORLD + r);
      scoped_tree fresh = tree_make(plan);
      td_ok(tdict_copy(locked[r], fresh, NULL, err));
      td_ok(tdict_copy(unlocked[r], fresh, NULL, err));
    }
    tdict_tree *wanted[WORLD];
    call_with(g, op, unlocked, root);
    for (int r = 0; r < WORLD; r++) {
      assert_int_equal(walks[r], is_given(op, r, root));
      wanted[r] = g->ranks[r].got == unlocked[r] ? locked[r] : g->ranks[r].got;
      if (wanted[r]) (void)tdict_retain(wanted[r]);
    }
    rig_drop_results(g);
    call_with(g, op, locked, root);
    for (int r = 0; r < WORLD; r++) {
      const bool is_known = has_one_storage && mask >> r & 1 && was_checked[r];
      assert_int_equal(walks[r], is_given(op, r, root) && !is_known);
      was_checked[r] = was_checked[r] || is_given(op, r, root);
      tree_check_equal(locked[r], unlocked[r]);
      assert_int_equal(wanted[r] != NULL, g->ranks[r].got != NULL);
      if (wanted[r]) tree_check_equal(g->ranks[r].got, wanted[r]);
      tdict_release(wanted[r]);
    }
    rig_drop_results(g);
  }
}

DEVICE_CASE(comm_locked_trees_are_checked_once) {
  rng random = {5};
  scoped_rig g = rig_create(WORLD);
  for (int i = 0; i < 18; i++) {
    tree_plan plan = {.shape_seed = 40 + (uint64_t)i, .batch_ndim = 1, .batch_size = {3}, .reducible = true};
    plan.layout = i % 3 ? LAYOUT_BLOCK : (tree_layout)(1 + i / 3 % 2);
    tdict_tree *locked[WORLD], *unlocked[WORLD];
    const int mask = i % 2 ? 7 : (int)pick(&random, 1, 6); /* bit r is set if rank r locks its tree */
    for (int r = 0; r < WORLD; r++) {
      locked[r] = tree_make(&plan);
      unlocked[r] = tree_make(&plan);
      if (mask >> r & 1) tdict_lock(locked[r]);
    }
    compare_calls(g, &plan, locked, unlocked, mask);
    for (int r = 0; r < WORLD; r++) td_release(locked[r], unlocked[r]);
  }
}

static tdict_tensor *device_tensor(int64_t size, double value) {
  scoped_tree tree = help_tree_without_batch();
  tdict_tensor *t = NULL, *made = NULL;
  td_ok(tdict_tensor_zeros(TDICT_F32, COUNTS(4, size), NULL, &t, err));
  td_put(tree, "x", t);
  td_ok(tdict_fill(tree, NULL, value, NULL, err));
  td_ok(tdict_tensor_clone(t, tdict_device_memory(rig_context(), td_device()), &made, err));
  return made;
}

/* One rank unlocks its tree, replaces a tensor and locks the tree again. The new tensor has a different shape, or has
 * the same shape and must receive the elements. */
DEVICE_CASE(comm_changed_trees_are_checked_again) {
  scoped_rig g = rig_create(WORLD);
  for (int same = 0; same < 2; same++)
    for (int changed = 0; changed < WORLD; changed++) {
      tdict_tree *trees[WORLD];
      op_case c = {0};
      for (int r = 0; r < WORLD; r++) {
        trees[r] = op_good_tree();
        td_ok(tdict_fill(trees[r], NULL, 10 + r, NULL, err));
        tdict_lock(trees[r]);
        c.of[r] = (op_args){.op = OP_BROADCAST_INTO, .tree = trees[r], .root = 1};
      }
      call_with(g, OP_BROADCAST_INTO, trees, 0);
      call_with(g, OP_BROADCAST_INTO, trees, 1);
      assert_int_equal(walks[changed], 0);
      td_ok(tdict_unlock(trees[changed], err));
      td_put(trees[changed], "child.b", device_tensor(same ? 2 : 3, 77));
      tdict_lock(trees[changed]);
      td_ok(tdict_fill(trees[1], NULL, 20, NULL, err));
      rig_run(g, op_try, &c);
      if (!same) op_check_all(g, TDICT_ESHAPE, "child.b", "[3]");
      tdict_tree *wanted = op_good_tree();
      td_ok(tdict_fill(wanted, NULL, 20, NULL, err));
      for (int r = 0; r < WORLD && same; r++) {
        assert_int_equal(g->ranks[r].status, TDICT_OK);
        tree_check_equal(trees[r], wanted);
      }
      tdict_release(wanted);
      for (int r = 0; r < WORLD; r++) tdict_release(trees[r]);
    }
}

static void expect_ok(rig *g, op_case *c) {
  rig_run(g, op_try, c);
  for (int r = 0; r < g->world; r++) assert_int_equal(g->ranks[r].status, TDICT_OK);
  rig_drop_results(g);
}

DEVICE_CASE(comm_lost_tensors_of_locked_trees_are_refused) {
  static const int ops[] = {OP_BROADCAST, OP_BROADCAST_INTO, OP_GATHER_TO, OP_STACK, OP_REDUCE};
  scoped_rig g = rig_create(WORLD);
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
    op_case c = {0};
    for (int r = 0; r < WORLD; r++) {
      c.of[r] = (op_args){.op = ops[i], .tree = op_good_tree(), .root = 1};
      tdict_lock(c.of[r].tree);
    }
    expect_ok(g, &c);
    const tdict_tensor *t = td_leaf(c.of[1].tree, "child.b");
    tdict_tensor_lose(t);
    rig_run(g, op_try, &c);
    op_check_all(g, TDICT_EINVAL, "child.b", "rank 1: ");
    tdict_tensor_regain(t);
    forget_walks();
    expect_ok(g, &c);
    assert_int_equal(walks[1], 0);
    for (int r = 0; r < WORLD; r++) tdict_release(c.of[r].tree);
  }
}

/* A tree that receives elements may have a tensor with lost bytes. The tensor is valid after the call. */
DEVICE_CASE(comm_locked_trees_regain_lost_tensors) {
  scoped_rig g = rig_create(WORLD);
  op_case c = {0};
  for (int r = 0; r < WORLD; r++) {
    c.of[r] = (op_args){.op = OP_BROADCAST_INTO, .tree = op_good_tree(), .root = 1};
    tdict_lock(c.of[r].tree);
  }
  expect_ok(g, &c);
  const tdict_tensor *t = td_leaf(c.of[2].tree, "z");
  tdict_tensor_lose(t);
  expect_ok(g, &c);
  assert_false(tdict_tensor_is_lost(t));
  for (int r = 0; r < WORLD; r++) tdict_release(c.of[r].tree);
}

CASE(comm_locked_read_only_trees_are_not_written) {
  static const float values[3] = {1, 2, 3};
  static const int ops[] = {OP_BROADCAST_INTO, OP_REDUCE};
  scoped_rig g = rig_create(WORLD);
  scoped_tree good = help_tree_without_batch(), constant = help_read_only_tree(values);
  td_put(good, "x", td_made(tensor, tdict_tensor_zeros(TDICT_F32, COUNTS(3), NULL, &made, err)));
  tdict_lock(constant);
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
    op_case c = {0};
    for (int r = 0; r < WORLD; r++)
      c.of[r] = (op_args){.op = OP_BROADCAST_INTO, .tree = r == 1 ? constant : good, .root = 1};
    expect_ok(g, &c); /* the root only reads */
    forget_walks();
    expect_ok(g, &c);
    assert_int_equal(walks[1], 0);
    for (int r = 0; r < WORLD; r++) {
      c.of[r].op = ops[i];
      c.of[r].root = 0;
    }
    rig_run(g, op_try, &c);
    op_check_all(g, TDICT_EREADONLY, "x", "rank 1: ");
  }
  assert_memory_equal(values, ((const float[]){1, 2, 3}), sizeof values);
}

SIM_CASE(comm_communicators_of_several_devices_use_a_locked_tree) {
  scoped_rig host = rig_create_on(WORLD, rig_context(), tdict_cpu(), true), device = rig_create(WORLD);
  tree_plan plan = {.shape_seed = 9, .value_seed = 10, .batch_ndim = 1, .batch_size = {3}, .layout = LAYOUT_BLOCK};
  scoped_tree made = tree_make(&plan), tree = NULL;
  td_ok(tdict_to_device(rig_context(), made, tdict_cpu(), NULL, &tree, err));
  tdict_lock(tree);
  tdict_tree *trees[WORLD] = {tree, tree, tree};
  for (int i = 0; i < 4; i++) {
    rig *g = i % 2 ? device : host;
    call_with(g, OP_BROADCAST, trees, 1);
    assert_int_equal(walks[1], i == 0);
    for (int r = 0; r < WORLD; r++) {
      assert_true(r == 1 || tdict_device_equal(tdict_tensor_device(td_leaf(g->ranks[r].got, "k0")), g->device));
      tree_check_equal(g->ranks[r].got, tree);
    }
    rig_drop_results(g);
  }
  op_case c = {0};
  for (int r = 0; r < WORLD; r++) c.of[r] = (op_args){.op = OP_BROADCAST_INTO, .tree = tree};
  rig_run(device, op_try, &c);
  for (int r = 1; r < WORLD; r++) assert_int_equal(device->ranks[r].status, TDICT_EWRONGDEVICE);
  assert_true(device->ranks[0].error.path[0] == 'k');
}

enum { THREAD_ROUNDS = 30 };
typedef struct both {
  rig *other; /* has the second communicator of each rank */
  tdict_tree *trees[THREAD_ROUNDS][WORLD];
  tdict_tree *stacks[2][THREAD_ROUNDS]; /* results of rank 0, by communicator */
} both;
static void stack_rounds(rig_rank *r) {
  both *b = r->rig->user;
  for (int i = 0; i < THREAD_ROUNDS; i++)
    for (int repeat = 0; repeat < 2; repeat++) {
      tdict_tree *got = NULL;
      rig_ok(r, td_comm_all_gather_stack(r->comm, b->trees[i][r->rank], NULL, &got, err));
      if (r->rank == 0 && repeat == 1)
        b->stacks[r->rig == b->other][i] = got;
      else
        tdict_release(got);
    }
}
static void *stack_on_other(void *rank) {
  stack_rounds(rank);
  return NULL;
}
static void stack_on_both(rig_rank *r) {
  both *b = r->rig->user;
  rig_rank *other = &b->other->ranks[r->rank];
  rig_true(r, pthread_create(&other->thread, NULL, stack_on_other, other) == 0);
  stack_rounds(r);
  pthread_join(other->thread, NULL);
  rig_true(r, !other->wrong[0]);
}

/* Uses new locked trees, so that the two communicators may make the first check of a tree at the same time. */
DEVICE_CASE(comm_two_communicators_use_a_locked_tree_at_once) {
  static both b;
  scoped_rig g = rig_create(WORLD);
  b.other = rig_create(WORLD);
  b.other->user = &b;
  for (int i = 0; i < THREAD_ROUNDS; i++)
    for (int r = 0; r < WORLD; r++) {
      const tree_plan plan = {.shape_seed = 200 + (uint64_t)i,
                              .value_seed = 300 + (uint64_t)(i * WORLD + r),
                              .batch_ndim = 1,
                              .batch_size = {2},
                              .layout = LAYOUT_BLOCK};
      b.trees[i][r] = tree_make(&plan);
      tdict_lock(b.trees[i][r]);
    }
  rig_run(g, stack_on_both, &b);
  for (int i = 0; i < THREAD_ROUNDS; i++) {
    for (int which = 0; which < 2; which++) {
      tdict_tree *stack = tree_on_host(b.stacks[which][i]);
      for (int r = 0; r < WORLD; r++) {
        scoped_tree part = tree_on_host(b.trees[i][r]);
        tree_check_part(stack, part, true, -1, r);
      }
      td_release(stack, b.stacks[which][i]);
    }
    for (int r = 0; r < WORLD; r++) tdict_release(b.trees[i][r]);
  }
  rig_destroy(b.other);
}

static void reduce_async(rig_rank *r) {
  tdict_tree *const *trees = r->rig->user;
  scoped_future first = NULL, second = NULL;
  rig_ok(r, tdict_comm_all_reduce_async(r->comm, trees[r->rank], TDICT_REDUCE_SUM, NULL, &first, err));
  rig_ok(r, tdict_comm_all_reduce_async(r->comm, trees[r->rank], TDICT_REDUCE_SUM, NULL, &second, err));
  if (r->rank == 1) { /* the running calls use the tree as it was when they started */
    rig_ok(r, tdict_unlock(trees[1], err));
    rig_ok(r, tdict_delete(trees[1], "z", err));
  }
  rig_ok(r, tdict_future_wait(first, NULL, err));
  rig_ok(r, tdict_future_wait(second, NULL, err));
}

/* An asynchronous call uses the facts that an earlier call found, even if the program has since unlocked the tree. */
DEVICE_CASE(comm_async_calls_check_a_locked_tree_once) {
  scoped_rig g = rig_create(WORLD);
  for (int i = 0; i < 20; i++) {
    tdict_tree *trees[WORLD], *wanted = op_good_tree();
    for (int r = 0; r < WORLD; r++) {
      trees[r] = op_good_tree();
      td_ok(tdict_fill(trees[r], NULL, r + 1, NULL, err));
      tdict_lock(trees[r]);
    }
    forget_walks();
    rig_run(g, reduce_async, trees);
    td_ok(tdict_fill(wanted, NULL, (1 + 2 + 3) * 3, NULL, err));
    for (int r = 0; r < WORLD; r++) {
      assert_int_equal(walks[r], 1);
      if (r != 1) tree_check_equal(trees[r], wanted);
    }
    td_ok(tdict_delete(wanted, "z", err));
    tree_check_equal(trees[1], wanted);
    tdict_release(wanted);
    for (int r = 0; r < WORLD; r++) tdict_release(trees[r]);
  }
}
