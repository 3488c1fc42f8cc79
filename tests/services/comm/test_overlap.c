/* Tests that a rank makes the result tree while a message is being sent. If making the tree fails, the rank still waits
 * for the message before it returns. */
#include "services/comm/every_op.h"

enum { WORLD = 2, OP_SEND_RECEIVE = NUM_OPS, NUM_WAYS };

/* The functions below wrap those of the thread table, and count allocations between queuing work and waiting for it. */
static tdict_comm_table inner;
typedef struct overlap {
  bool is_queued;
  int64_t seen;   /* number of allocations by this thread until the work was queued */
  int64_t during; /* allocations between the queuing and the wait */
  int64_t left;   /* allocations until one fails */
  int64_t before; /* allocations before the first operation of the table */
  bool was_refused;
} overlap;
static _Thread_local overlap state;

static void note_first(void) {
  if (state.before < 0) state.before = td_allocs_seen();
}
static tdict_status note_queued(tdict_status status) {
  state.is_queued = status == TDICT_OK;
  state.seen = td_allocs_seen();
  return status;
}
static tdict_status noting_broadcast(void *self, void *buffer, size_t bytes, int32_t root, tdict_stream stream,
                                     int64_t timeout_ns, tdict_error *err) {
  return note_queued(inner.broadcast(self, buffer, bytes, root, stream, timeout_ns, err));
}
static tdict_status noting_all_gather(void *self, const void *src, void *dst, size_t bytes, tdict_stream stream,
                                      int64_t timeout_ns, tdict_error *err) {
  return note_queued(inner.all_gather(self, src, dst, bytes, stream, timeout_ns, err));
}
static tdict_status noting_receive(void *self, void *dst, size_t bytes, int32_t peer, tdict_stream stream,
                                   int64_t timeout_ns, tdict_error *err) {
  return note_queued(inner.receive(self, dst, bytes, peer, stream, timeout_ns, err));
}
static tdict_status noting_group_end(void *self, tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  return note_queued(inner.group_end(self, stream, timeout_ns, err));
}
/* Suspends the failing allocations during the send, because the thread table's own allocations must not fail. */
static tdict_status sparing_send_host(void *self, const void *src, size_t bytes, int32_t peer, int64_t timeout_ns,
                                      tdict_error *err) {
  note_first();
  state.left -= td_allocs_seen();
  state.was_refused = td_fail_alloc_stop() || state.was_refused;
  const tdict_status status = inner.send_host(self, src, bytes, peer, timeout_ns, err);
  td_fail_alloc(state.was_refused ? INT64_MAX : state.left, false);
  return status;
}
static tdict_status noting_receive_host(void *self, void *dst, size_t bytes, int32_t peer, int64_t timeout_ns,
                                        tdict_error *err) {
  note_first();
  return inner.receive_host(self, dst, bytes, peer, timeout_ns, err);
}
static tdict_status noting_exchange(void *self, const void *src, void *dst, size_t bytes, int64_t timeout_ns,
                                    tdict_error *err) {
  note_first();
  return inner.exchange(self, src, dst, bytes, timeout_ns, err);
}
static tdict_status noting_finish(void *self, tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  if (state.is_queued) state.during = td_allocs_seen() - state.seen;
  state.is_queued = false;
  return inner.finish(self, stream, timeout_ns, err);
}

static rig *create_rig(void) {
  rig *g = rig_create_on(WORLD, rig_context(), tdict_cpu(), false);
  for (int r = 0; r < WORLD; r++) {
    tdict_comm_table *t = &g->ranks[r].table;
    inner = *t;
    t->broadcast = noting_broadcast;
    t->all_gather = noting_all_gather;
    t->receive = noting_receive;
    t->group_end = noting_group_end;
    t->finish = noting_finish;
    t->send_host = sparing_send_host;
    t->receive_host = noting_receive_host;
    t->exchange = noting_exchange;
    t->on_calling_thread = true; /* `state` and the failing allocations belong to a thread */
    td_ok(tdict_comm_create(g->context, t, NULL, &g->ranks[r].comm, err));
  }
  return g;
}

typedef struct attempt {
  int op;
  tdict_tree *tree;
  int64_t fails_at; /* number of the allocation of rank 1 that fails */
  overlap after[WORLD];
} attempt;

static void try_op(rig_rank *r) {
  attempt *a = r->rig->user;
  const op_args args = {.op = a->op, .tree = a->tree, .root = 0};
  tdict_status status;
  state = (overlap){.left = r->rank == 1 ? a->fails_at : INT64_MAX, .before = -1};
  td_fail_alloc(state.left, false);
  if (a->op != OP_SEND_RECEIVE)
    status = op_call(r, &args, &r->got, &r->error);
  else if (r->rank == 0)
    status = td_comm_send(r->comm, a->tree, 1, NULL, &r->error);
  else
    status = td_comm_receive(r->comm, 0, NULL, &r->got, &r->error);
  state.was_refused = td_fail_alloc_stop() || state.was_refused;
  r->status = (int)status;
  a->after[r->rank] = state;
}

/* Returns whether the rank receives elements into a new tree. */
static bool receives(int op, int rank) {
  if (op == OP_BROADCAST || op == OP_SCATTER || op == OP_SEND_RECEIVE) return rank == 1;
  if (op == OP_GATHER_TO) return rank == 0;
  return op == OP_ALL_GATHER || op == OP_STACK;
}

CASE(comm_trees_are_made_while_the_message_is_on_its_way) {
  scoped_tree tree = op_good_tree();
  for (int op = 0; op < NUM_WAYS; op++) {
    scoped_rig g = create_rig();
    attempt a = {.op = op, .tree = tree, .fails_at = INT64_MAX};
    rig_run(g, try_op, &a);
    for (int r = 0; r < WORLD; r++) {
      assert_int_equal(g->ranks[r].status, TDICT_OK);
      assert_false(a.after[r].is_queued);
      if (receives(op, r)) assert_true(a.after[r].during > 0);
    }
  }
}

/* Returns how many allocations rank 1 makes before its first message. If one of them fails, rank 0 waits for rank 1. */
static int64_t allocations_of_start(int op, tdict_tree *tree) {
  rig *g = create_rig();
  attempt a = {.op = op, .tree = tree, .fails_at = INT64_MAX};
  rig_run(g, try_op, &a);
  rig_destroy(g);
  return a.after[1].before;
}

CASE(comm_calls_without_memory_wait_for_the_message) {
  scoped_tree tree = op_good_tree();
  for (int op = 0; op < NUM_WAYS; op++) {
    int during = 0;
    for (int64_t n = receives(op, 1) ? allocations_of_start(op, tree) : 0; receives(op, 1); n++) {
      rig *g = create_rig();
      attempt a = {.op = op, .tree = tree, .fails_at = n};
      rig_run(g, try_op, &a);
      const overlap *after = &a.after[1];
      const bool was_refused = after->was_refused;
      assert_int_equal(g->ranks[1].status, was_refused ? TDICT_ENOMEM : TDICT_OK);
      assert_false(after->is_queued);
      assert_true(!g->ranks[1].got == was_refused);
      during += was_refused && g->ranks[0].status == TDICT_OK;
      rig_destroy(g);
      if (!was_refused) break;
      assert_true(n < 1000);
    }
    if (receives(op, 1)) assert_true(during > 0);
  }
}
