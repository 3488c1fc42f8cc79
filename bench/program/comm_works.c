/* Implements the operations of comm.h. */
#include "comm.h"

/* --- the `tree` functions, which call the communicator --- */

static const tdict_tree *on_root(const comm_trees *t) { return t->rank == 0 ? t->whole : NULL; }

/* Waits for the future of a call that returned `status`. */
static tdict_status take(tdict_status status, tdict_future **future, tdict_tree **out, tdict_error *err) {
  return status == TDICT_OK ? tdict_future_take(*future, out, err) : status;
}

/* Defines a `tree` function, which makes an asynchronous call and waits. `to`: where a new tree goes, or NULL. */
#define TREE_WORK(name, to, call)                                                                                   \
  static tdict_status name##_tree(const comm_handles *h, const comm_trees *t, tdict_tree **out, tdict_error *err) { \
    tdict_future *future = NULL;                                                                                    \
    (void)out;                                                                                                      \
    return take(call, &future, to, err);                                                                            \
  }
TREE_WORK(broadcast, out, tdict_comm_broadcast_async(h->comm, on_root(t), 0, NULL, &future, err))
TREE_WORK(broadcast_into, NULL, tdict_comm_broadcast_into_async(h->comm, t->whole, 0, NULL, &future, err))
TREE_WORK(scatter, out, tdict_comm_scatter_async(h->comm, on_root(t), 0, NULL, &future, err))
TREE_WORK(gather, out, tdict_comm_gather_async(h->comm, t->part, 0, NULL, &future, err))
TREE_WORK(all_gather, out, tdict_comm_all_gather_async(h->comm, t->part, NULL, &future, err))
TREE_WORK(stack, out, tdict_comm_all_gather_stack_async(h->comm, t->part, NULL, &future, err))
TREE_WORK(reduce, NULL, tdict_comm_all_reduce_async(h->comm, t->whole, TDICT_REDUCE_SUM, NULL, &future, err))
static tdict_status send_tree(const comm_handles *h, const comm_trees *t, tdict_tree **out, tdict_error *err) {
  tdict_future *future = NULL;
  if (t->rank == 0) return take(tdict_comm_send_async(h->comm, t->whole, 1, NULL, &future, err), &future, NULL, err);
  return t->rank == 1 ? take(tdict_comm_receive_async(h->comm, 0, NULL, &future, err), &future, out, err) : TDICT_OK;
}

/* --- the `leaf` functions, which call the table for one leaf --- */

static size_t whole_bytes(const comm_trees *t) { return (size_t)t->elements * sizeof(float); }
static size_t part_bytes(const comm_trees *t) { return whole_bytes(t) / (size_t)t->world; }
/* Returns the address of a rank's range in leaf `i` of `whole`. */
static float *range_of(const comm_trees *t, int64_t i, int rank) {
  return t->whole_data[i] + rank * (t->elements / t->world);
}

static tdict_status broadcast_leaf(const comm_handles *h, const comm_trees *t, int64_t i, tdict_error *err) {
  return h->table->broadcast(h->table->self, t->whole_data[i], whole_bytes(t), 0, h->stream, COMM_TIMEOUT_NS, err);
}
static tdict_status scatter_leaf(const comm_handles *h, const comm_trees *t, int64_t i, tdict_error *err) {
  void *self = h->table->self;
  tdict_status status = TDICT_OK;
  if (t->rank > 0) return h->table->receive(self, t->part_data[i], part_bytes(t), 0, h->stream, COMM_TIMEOUT_NS, err);
  for (int r = 1; r < t->world && status == TDICT_OK; r++)
    status = h->table->send(self, range_of(t, i, r), part_bytes(t), r, h->stream, COMM_TIMEOUT_NS, err);
  return status;
}
static tdict_status gather_leaf(const comm_handles *h, const comm_trees *t, int64_t i, tdict_error *err) {
  void *self = h->table->self;
  tdict_status status = TDICT_OK;
  if (t->rank > 0) return h->table->send(self, t->part_data[i], part_bytes(t), 0, h->stream, COMM_TIMEOUT_NS, err);
  for (int r = 1; r < t->world && status == TDICT_OK; r++)
    status = h->table->receive(self, range_of(t, i, r), part_bytes(t), r, h->stream, COMM_TIMEOUT_NS, err);
  return status;
}
static tdict_status all_gather_leaf(const comm_handles *h, const comm_trees *t, int64_t i, tdict_error *err) {
  return h->table->all_gather(h->table->self, t->part_data[i], t->whole_data[i], part_bytes(t), h->stream,
                              COMM_TIMEOUT_NS, err);
}
static tdict_status reduce_leaf(const comm_handles *h, const comm_trees *t, int64_t i, tdict_error *err) {
  return h->table->all_reduce(h->table->self, t->whole_data[i], (size_t)t->elements, TDICT_F32, TDICT_REDUCE_SUM,
                              h->stream, COMM_TIMEOUT_NS, err);
}
static tdict_status send_leaf(const comm_handles *h, const comm_trees *t, int64_t i, tdict_error *err) {
  void *self = h->table->self;
  if (t->rank > 1) return TDICT_OK;
  if (t->rank == 0) return h->table->send(self, t->whole_data[i], whole_bytes(t), 1, h->stream, COMM_TIMEOUT_NS, err);
  return h->table->receive(self, t->whole_data[i], whole_bytes(t), 0, h->stream, COMM_TIMEOUT_NS, err);
}

const comm_work comm_works[COMM_WORKS] = {
    {.name = "broadcast", .tree = broadcast_tree, .leaf = broadcast_leaf},
    {.name = "broadcast_into", .tree = broadcast_into_tree, .leaf = broadcast_leaf},
    {.name = "scatter", .tree = scatter_tree, .leaf = scatter_leaf, .to_part = true, .has_messages = true},
    {.name = "gather",
     .tree = gather_tree,
     .leaf = gather_leaf,
     .from_part = true,
     .has_messages = true,
     .num_results = 1},
    {.name = "all_gather", .tree = all_gather_tree, .leaf = all_gather_leaf, .from_part = true},
    {.name = "all_gather_stack", .tree = stack_tree, .leaf = all_gather_leaf, .from_part = true, .is_stacked = true},
    {.name = "all_reduce", .tree = reduce_tree, .leaf = reduce_leaf, .is_sum = true},
    {.name = "send", .tree = send_tree, .leaf = send_leaf, .num_results = 2},
};
