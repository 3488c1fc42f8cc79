/* Tests the table of tests/support/thread_comm.h: it moves bytes, logs calls, and fails at a chosen call. */
#include "services/comm/rig.h"
#include "support/take_comm.h"

static void move_bytes(rig_rank *r) {
  const tdict_comm_table *t = &r->table;
  const int world = r->rig->world, next = (r->rank + 1) % world, last = (r->rank + world - 1) % world;
  int64_t mine = 100 + r->rank, all[THREAD_MOST_RANKS] = {0}, value = mine;
  rig_ok(r, t->exchange(t->self, &mine, all, sizeof mine, RIG_SECOND, err));
  for (int i = 0; i < world; i++) rig_true(r, all[i] == 100 + i);
  rig_ok(r, t->broadcast(t->self, &value, sizeof value, world - 1, tdict_no_stream(), RIG_SECOND, err));
  rig_true(r, value == 100 + world - 1);
  rig_ok(r, t->all_reduce(t->self, &mine, 1, TDICT_I64, TDICT_REDUCE_SUM, tdict_no_stream(), RIG_SECOND, err));
  rig_true(r, mine == 100 * world + world * (world - 1) / 2);
  int32_t here = r->rank, there = -1;
  rig_ok(r, t->send_host(t->self, &here, sizeof here, next, RIG_SECOND, err));
  rig_ok(r, t->group_begin(t->self, err));
  int32_t there_too = -1;
  rig_ok(r, t->receive(t->self, &there_too, sizeof there_too, last, tdict_no_stream(), RIG_SECOND, err));
  rig_ok(r, t->send(t->self, &here, sizeof here, next, tdict_no_stream(), RIG_SECOND, err));
  rig_ok(r, t->group_end(t->self, tdict_no_stream(), RIG_SECOND, err));
  rig_ok(r, t->receive_host(t->self, &there, sizeof there, last, RIG_SECOND, err));
  rig_true(r, there == last && there_too == last);
}

CASE(thread_comm_moves_bytes) {
  for (int world = 1; world <= 4; world++) {
    scoped_rig g = rig_create_on(world, NULL, tdict_cpu(), false);
    rig_run(g, move_bytes, NULL);
    for (int i = 0; i < world; i++) {
      assert_int_equal(thread_world_calls(g->threads, i, THREAD_EXCHANGE), 1);
      assert_int_equal(thread_world_bytes(g->threads, i, THREAD_SEND), 4);
      assert_int_equal(thread_world_all_calls(g->threads, i), 7);
    }
    assert_int_equal(thread_world_unread(g->threads), 0);
  }
}

static void exchange_twice(rig_rank *r) {
  const tdict_comm_table *t = &r->table;
  const int64_t *limit_ns = r->rig->user;
  int64_t mine = r->rank, all[THREAD_MOST_RANKS] = {0};
  rig_ok(r, t->exchange(t->self, &mine, all, sizeof mine, 60 * RIG_SECOND, err));
  rig_keep(r, t->exchange(t->self, &mine, all, sizeof mine, *limit_ns, err));
}

CASE(thread_comm_fails_as_told) {
  for (int silent = 0; silent < 2; silent++) {
    scoped_rig g = rig_create_on(3, NULL, tdict_cpu(), false);
    int64_t limit_ns = silent ? RIG_SECOND / 10 : 60 * RIG_SECOND;
    thread_world_fail(g->threads, 1, 1, silent);
    rig_run(g, exchange_twice, &limit_ns);
    assert_int_equal(g->ranks[1].status, TDICT_EIO);
    assert_int_equal(g->ranks[0].status, silent ? TDICT_ETIMEDOUT : TDICT_ELOST);
    assert_int_equal(g->ranks[2].status, silent ? TDICT_ETIMEDOUT : TDICT_ELOST);
  }
}

static bool speaks;
/* Fails without setting err->status. Writes a message only if `speaks` is set. */
static tdict_status say(void *self, const void *src, void *dst, size_t bytes, int64_t timeout_ns, tdict_error *err) {
  (void)self, (void)src, (void)dst, (void)bytes, (void)timeout_ns;
  if (speaks) memcpy(err->message, "the cable is out", sizeof "the cable is out");
  return TDICT_EIO;
}
CASE(comm_keeps_messages_of_a_table) {
  for (int i = 0; i < 2; i++) {
    scoped_rig g = rig_create_on(2, rig_context(), tdict_cpu(), false);
    tdict_comm_table *t = &g->ranks[0].table;
    tdict_tree *src = NULL, *out = NULL;
    t->exchange = say;
    speaks = i;
    tdict_comm *comm = td_made(comm, tdict_comm_create(g->context, t, NULL, &made, err));
    td_ok(tdict_create(0, NULL, &src, err));
    td_fails(TDICT_EIO, i ? "the cable is out" : "comm: exchange returned TDICT_EIO without a message",
             td_comm_broadcast(comm, src, 0, NULL, &out, err));
    td_release(src, comm);
  }
}
