/* Lets a test run every collective operation: op_call() selects the operation by its number. */
#ifndef TDICT_TESTS_SERVICES_COMM_EVERY_OP_H
#define TDICT_TESTS_SERVICES_COMM_EVERY_OP_H

#include "services/comm/trees.h"
#include "support/take_comm.h"

enum { OP_BROADCAST, OP_SCATTER, OP_BROADCAST_INTO, OP_GATHER_TO, OP_ALL_GATHER, OP_STACK, OP_REDUCE, NUM_OPS };
enum { OP_FIRST_MATCHING = OP_BROADCAST_INTO }; /* from this operation on, the trees of all ranks must match */
static const char *const op_names[] = {"broadcast",  "scatter",          "broadcast_into", "gather",
                                       "all_gather", "all_gather_stack", "all_reduce"};

typedef struct op_args {
  int op;
  tdict_tree *tree; /* broadcast and scatter get NULL on ranks other than the root, unless `always_passes` is set */
  bool always_passes;
  int root, dim;
  tdict_reduce_op reduce;
  const int64_t *counts;
  const tdict_comm_options *options;
  bool has_bad_option;
} op_args;

/* Runs the operation a->op on one rank. The caller releases *out, which stays NULL if the operation returns no tree. */
static inline tdict_status op_call(rig_rank *r, const op_args *a, tdict_tree **out, tdict_error *err) {
  tdict_tree *src = r->rank == a->root || a->always_passes ? a->tree : NULL;
  tdict_comm_options o = a->options ? *a->options : tdict_comm_options_default();
  o.dim = a->dim;
  o.counts = a->counts;
  if (a->has_bad_option) o.timeout_ns = -1;
  switch (a->op) {
  case OP_BROADCAST:
    return td_comm_broadcast(r->comm, src, a->root, &o, out, err);
  case OP_SCATTER:
    return td_comm_scatter(r->comm, src, a->root, &o, out, err);
  case OP_BROADCAST_INTO:
    return td_comm_broadcast_into(r->comm, a->tree, a->root, &o, err);
  case OP_GATHER_TO:
    return td_comm_gather(r->comm, a->tree, a->root, &o, out, err);
  case OP_ALL_GATHER:
    return td_comm_all_gather(r->comm, a->tree, &o, out, err);
  case OP_STACK:
    return td_comm_all_gather_stack(r->comm, a->tree, &o, out, err);
  default:
    return td_comm_all_reduce(r->comm, a->tree, a->reduce, &o, err);
  }
}

/* The arguments of each rank. The field `user` of the rig points to this struct. */
typedef struct op_case {
  op_args of[THREAD_MOST_RANKS];
} op_case;
static inline void op_try(rig_rank *r) {
  const op_case *c = r->rig->user;
  rig_keep(r, op_call(r, &c->of[r->rank], &r->got, err));
}

/* Makes a tree of three tensors. Equal arguments produce equal trees. */
static inline tdict_tree *op_tree(const char *second_key, tdict_dtype dtype, int64_t size) {
  tdict_field fields[3];
  memset(fields, 0, sizeof fields);
  fields[0] = (tdict_field){"a", TDICT_F32, 1, {5}};
  fields[1] = (tdict_field){second_key, dtype, 1, {size}};
  fields[2] = (tdict_field){"z", TDICT_F32, 1, {5}};
  tdict_tree *tree = NULL;
  td_ok(tdict_create_from(fields, 3, COUNTS(4), tdict_device_memory(rig_context(), td_device()), &tree, err));
  td_ok(tdict_fill(tree, NULL, 3, NULL, err));
  return tree;
}
static inline tdict_tree *op_good_tree(void) { return op_tree("child.b", TDICT_F32, 2); }

static inline void op_check_all(const rig *g, int status, const char *path, const char *text) {
  for (int r = 0; r < g->world; r++) {
    const tdict_error *e = &g->ranks[r].error;
    if (g->ranks[r].status != status || strcmp(e->path, path) != 0 || !strstr(e->message, text))
      fail_msg("rank %d: status %d at '%s': '%s', wanted %d at '%s': '%s'", r, g->ranks[r].status, e->path, e->message,
               status, path, text);
    assert_null(g->ranks[r].got);
  }
}
/* Checks that a broadcast still succeeds on all ranks, and that no message is left unread. */
static inline void op_check_usable(rig *g, tdict_tree *tree) {
  op_case c = {0};
  for (int r = 0; r < g->world; r++) c.of[r] = (op_args){.op = OP_BROADCAST, .tree = tree};
  rig_run(g, op_try, &c);
  for (int r = 0; r < g->world; r++) {
    assert_int_equal(g->ranks[r].status, TDICT_OK);
    assert_int_equal(thread_world_aborts(g->threads, r), 0);
    tree_check_equal(g->ranks[r].got, tree);
  }
  assert_int_equal(thread_world_unread(g->threads), 0);
  rig_drop_results(g);
}

#endif
