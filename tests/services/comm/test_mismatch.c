/* Tests ranks that disagree: every rank gets the same error, no element is sent, and the communicator stays usable. */
#include "services/comm/every_op.h"

#include "core/tensor/tensor.h"

enum { WORLD = 3 };

static int data_calls(rig *g, int rank) {
  int count = 0;
  for (int kind = THREAD_BROADCAST; kind <= THREAD_RECEIVE; kind++)
    count += thread_world_calls(g->threads, rank, (thread_kind)kind);
  return count;
}

/* In every call whose trees must match, each rank in turn passes a tree with a different key, dtype or size. */
DEVICE_CASE(comm_trees_that_differ_are_named_on_all_ranks) {
  static const struct {
    const char *key;
    tdict_dtype dtype;
    int64_t size;
    const char *path, *text;
  } tries[] = {{"child.c", TDICT_F32, 2, "child.b", "'c'"},
               {"child.b", TDICT_F64, 2, "child.b", "float64"},
               {"child.b", TDICT_F32, 7, "child.b", "[7]"}};
  scoped_rig g = rig_create(WORLD);
  scoped_tree good = op_good_tree();
  for (int op = OP_FIRST_MATCHING; op < NUM_OPS; op++)
    for (int wrong = 0; wrong < WORLD; wrong++)
      for (int t = 0; t < 3; t++) {
        op_case c = {0};
        for (int r = 0; r < WORLD; r++) {
          tdict_tree *tree = r == wrong ? op_tree(tries[t].key, tries[t].dtype, tries[t].size) : op_good_tree();
          c.of[r] = (op_args){.op = op, .tree = tree, .root = 1};
        }
        thread_world_forget(g->threads);
        rig_run(g, op_try, &c);
        /* if the other ranks are compared with the wrong rank (the root, or rank 0), the error names its key */
        const bool has_root = op == OP_BROADCAST_INTO || op == OP_GATHER_TO;
        const bool is_first = wrong == (has_root ? 1 : 0);
        const char *path = t == 0 && is_first ? "child.c" : tries[t].path;
        op_check_all(g, TDICT_ESHAPE, path, t == 0 && is_first ? "'b'" : tries[t].text);
        for (int r = 0; r < WORLD; r++) {
          assert_non_null(strstr(g->ranks[r].error.message, td_text("rank %d", wrong)));
          assert_non_null(strstr(g->ranks[r].error.message, op_names[op]));
          assert_int_equal(data_calls(g, r), 0);
          if (r != wrong) tree_check_equal(c.of[r].tree, good);
          tdict_release(c.of[r].tree);
        }
        op_check_usable(g, good);
      }
}

CASE(comm_other_operations_are_named_on_all_ranks) {
  scoped_rig g = rig_create(WORLD);
  scoped_tree good = op_good_tree();
  for (int op = 0; op < NUM_OPS; op++)
    for (int other = 0; other < NUM_OPS; other++)
      for (int wrong = 0; wrong < WORLD && other != op; wrong++) {
        op_case c = {0};
        for (int r = 0; r < WORLD; r++) c.of[r] = (op_args){.op = r == wrong ? other : op, .tree = good, .root = 1};
        rig_run(g, op_try, &c);
        op_check_all(g, TDICT_EINVAL, "", op_names[other]);
        op_check_all(g, TDICT_EINVAL, "", op_names[op]);
        op_check_usable(g, good);
      }
}

CASE(comm_other_arguments_are_named_on_all_ranks) {
  scoped_rig g = rig_create(WORLD);
  scoped_tree good = op_good_tree();
  for (int op = 0; op < NUM_OPS; op++)
    for (int wrong = 0; wrong < WORLD; wrong++)
      for (int what = 0; what < 3; what++) {
        static const char *const names[] = {"has root", "has dim", "has op"};
        const bool has_root = op <= OP_GATHER_TO,
                   has_dim = op == OP_SCATTER || op == OP_GATHER_TO || op == OP_ALL_GATHER;
        if (!(what == 0 ? has_root : what == 1 ? has_dim : op == OP_REDUCE)) continue;
        op_case c = {0};
        for (int r = 0; r < WORLD; r++) c.of[r] = (op_args){.op = op, .tree = good, .root = 1};
        if (what == 0) c.of[wrong].root = 2;
        if (what == 1) c.of[wrong].dim = -1;
        if (what == 2) c.of[wrong].reduce = TDICT_REDUCE_MAX;
        rig_run(g, op_try, &c);
        op_check_all(g, TDICT_EINVAL, "", names[what]);
        op_check_usable(g, good);
      }
}

static tdict_tree *tree_with_text(void) {
  tdict_tree *tree = op_good_tree();
  td_ok(tdict_set_text(tree, "child.words", "text", err));
  return tree;
}
static tdict_tree *tree_with_lost_bytes(void) {
  tdict_tree *tree = op_good_tree();
  tdict_storage_lose_all(td_leaf(tree, "z")->storage);
  return tree;
}

/* Each rank in turn passes a wrong argument, which only this rank can detect. All ranks must get the error. */
DEVICE_CASE(comm_errors_of_one_rank_reach_all_ranks) {
  scoped_rig g = rig_create(WORLD);
  scoped_tree good = op_good_tree(), text = tree_with_text(), lost = tree_with_lost_bytes();
  tdict_comm_options slow = td_with(tdict_comm_options, timeout_ns = -1);
  static const int64_t counts[THREAD_MOST_RANKS] = {0};
  for (int op = 0; op < NUM_OPS; op++)
    for (int wrong = 0; wrong < WORLD; wrong++)
      for (int what = 0; what < 6; what++) {
        const bool root_only = op < OP_FIRST_MATCHING;
        op_case c = {0};
        for (int r = 0; r < WORLD; r++) c.of[r] = (op_args){.op = op, .tree = good, .root = 1};
        op_args *a = &c.of[wrong];
        int status = TDICT_EINVAL;
        const char *path = "", *message = NULL;
        if (what == 0 && (!root_only || wrong == 1)) a->tree = NULL, message = "the tree is NULL";
        if (what == 1 && (!root_only || wrong == 1))
          a->tree = text, message = "object", status = TDICT_ENOTSUP, path = "child.words";
        if (what == 2 && (!root_only || wrong == 1) && !(op == OP_BROADCAST_INTO && wrong != 1))
          a->tree = lost, message = "failed", path = "a";
        if (what == 3 && root_only && wrong != 1) a->always_passes = true, message = "not the root";
        if (what == 4) a->options = &slow, message = "timeout_ns is -1";
        if (what == 5 && op != OP_SCATTER) a->counts = counts, message = "the option `counts` is set";
        if (!message) continue;
        rig_run(g, op_try, &c);
        op_check_all(g, status, path, td_text("rank %d: ", wrong));
        op_check_all(g, status, path, message);
        op_check_usable(g, good);
      }
}

CASE(comm_dimensions_and_counts_are_checked) {
  static const int64_t negative[] = {5, -1, 0}, too_few[] = {1, 1, 1};
  static const struct {
    int op, dim, root;
    const int64_t *counts;
    int reduce, status;
    const char *text;
  } tries[] = {{OP_SCATTER, 1, 0, NULL, 0, TDICT_EINVAL, "rank 0: "},
               {OP_GATHER_TO, -2, 0, NULL, 0, TDICT_EINVAL, "rank 0: "},
               {OP_ALL_GATHER, 3, 0, NULL, 0, TDICT_EINVAL, "rank 0: "},
               {OP_SCATTER, 0, 0, negative, 0, TDICT_EINVAL, "count 1 is -1"},
               {OP_SCATTER, 0, 0, too_few, 0, TDICT_ESHAPE, "sum to 3"},
               {OP_BROADCAST, 0, 3, NULL, 0, TDICT_EINVAL, "rank 3 does not exist"},
               {OP_BROADCAST_INTO, 0, -1, NULL, 0, TDICT_EINVAL, "rank -1 does not exist"},
               {OP_REDUCE, 0, 0, NULL, 4, TDICT_EINVAL, "op is 4"},
               {OP_REDUCE, 0, 0, NULL, -1, TDICT_EINVAL, "op is -1"}};
  scoped_rig g = rig_create(WORLD);
  scoped_tree good = op_good_tree();
  for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
    op_case c = {0};
    for (int r = 0; r < WORLD; r++)
      c.of[r] = (op_args){.op = tries[i].op,
                          .tree = good,
                          .dim = tries[i].dim,
                          .root = tries[i].root,
                          .counts = tries[i].counts,
                          .reduce = (tdict_reduce_op)tries[i].reduce};
    rig_run(g, op_try, &c);
    op_check_all(g, tries[i].status, "", tries[i].text);
    op_check_usable(g, good);
  }
}
