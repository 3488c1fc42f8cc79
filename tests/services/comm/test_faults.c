/* Tests ranks that die, that never arrive, or that abort, and wrong arguments of tdict_comm_create(). */
#include <unistd.h>

#include "core/tensor/tensor.h"
#include "services/comm/every_op.h"

enum { WORLD = 3 };

static bool is_lost(const tdict_tree *tree) {
  bool lost = false;
  static const char *const paths[] = {"a", "child.b", "z"};
  for (int i = 0; i < 3; i++) lost = lost || tdict_tensor_is_lost(td_leaf(tree, paths[i]));
  return lost;
}

/* Sets the arguments of a call that succeeds. With `separate`, trees are not blocks: `z` has its own storage. */
static void set_args(op_case *c, int op, bool separate) {
  memset(c, 0, sizeof *c);
  for (int r = 0; r < WORLD; r++) {
    tdict_tree *tree = op_good_tree(), *other = NULL;
    if (separate) {
      td_ok(tdict_clone(tree, &other, err));
      tdict_tensor *t = NULL;
      td_ok(tdict_tensor_clone(td_leaf(tree, "z"), tdict_device_memory(rig_context(), td_device()), &t, err));
      td_put(other, "z", t);
      tdict_release(tree);
      tree = other;
    }
    c->of[r] = (op_args){.op = op, .tree = tree, .root = 1};
  }
}
static void release_args(op_case *c) {
  for (int r = 0; r < WORLD; r++) tdict_release(c->of[r].tree);
}

/* Counts the table calls that an operation makes on a rank. */
static int count_calls(int op, bool separate, int rank) {
  scoped_rig g = rig_create(WORLD);
  op_case c;
  set_args(&c, op, separate);
  rig_run(g, op_try, &c);
  const int count = thread_world_all_calls(g->threads, rank);
  for (int r = 0; r < WORLD; r++) assert_int_equal(g->ranks[r].status, TDICT_OK);
  release_args(&c);
  return count;
}

/* Makes rank `dead` die in call `n` of its table. Checks that no rank waits for long, and that a failed call leaves its
 * tree unchanged or lost. Returns false if another rank of a slow machine reached its time limit before the death. */
static bool die_once(int op, int dead, int n, bool silent, int64_t timeout_ns, int losses[NUM_OPS]) {
  scoped_tree good = op_good_tree();
  scoped_rig g = rig_create(WORLD);
  op_case c;
  tdict_comm_options o = td_with(tdict_comm_options, timeout_ns = timeout_ns);
  set_args(&c, op, (op + dead) % 2);
  for (int r = 0; r < WORLD; r++) c.of[r].options = &o;
  thread_world_fail(g->threads, dead, n, silent);
  rig_run(g, op_try, &c);
  const bool has_died = g->ranks[dead].status == TDICT_EIO;
  assert_true(has_died || silent);
  for (int r = 0; r < WORLD; r++) {
    const rig_rank *rank = &g->ranks[r];
    /* a rank that finished before the death is unaffected */
    if ((r != dead || !has_died) && rank->status != TDICT_OK)
      assert_true(rank->status == TDICT_ELOST || (silent && rank->status == TDICT_ETIMEDOUT));
    assert_true(rank->took_ns < timeout_ns + 15 * RIG_SECOND);
    assert_int_equal(thread_world_aborts(g->threads, r), rank->status != TDICT_OK);
    if (rank->status != TDICT_OK) assert_null(rank->got);
    const bool lost = is_lost(c.of[r].tree), writes = op == OP_BROADCAST_INTO || op == OP_REDUCE;
    losses[op] += lost;
    assert_true(!lost || (writes && rank->status != TDICT_OK));
    if (!lost && rank->status != TDICT_OK) tree_check_equal(c.of[r].tree, good);
  }
  release_args(&c);
  return has_died;
}

/* Makes each rank die in each of its table calls, for each operation. */
static void die_everywhere(bool silent) {
  int deaths = 0, losses[NUM_OPS] = {0};
  for (int op = 0; op < NUM_OPS; op++)
    for (int dead = 0; dead < WORLD; dead++) {
      const int calls = count_calls(op, (op + dead) % 2, dead);
      for (int n = 0; n < calls; n++, deaths++) {
        int64_t timeout_ns = silent ? RIG_SECOND / 20 : 60 * RIG_SECOND;
        while (!die_once(op, dead, n, silent, timeout_ns, losses)) {
          timeout_ns *= 4;
          assert_true(timeout_ns < 60 * RIG_SECOND);
        }
      }
    }
  assert_true(deaths >= NUM_OPS * WORLD && losses[OP_BROADCAST_INTO] > 0 && losses[OP_REDUCE] > 0);
}

CASE(comm_dead_ranks_are_reported_at_once) { die_everywhere(false); }
CASE(comm_silent_ranks_are_reported_within_the_time_limit) { die_everywhere(true); }

typedef struct absent_case {
  op_case c;
  int absent;
  bool is_silent;
} absent_case;
static void come_or_not(rig_rank *r) {
  absent_case *a = r->rig->user;
  if (r->rank == a->absent) return;
  rig_keep(r, op_call(r, &a->c.of[r->rank], &r->got, err));
  const int first = r->status;
  const tdict_error error = r->error;
  rig_true(r, first == TDICT_ETIMEDOUT || first == TDICT_ELOST);
  /* later calls return the status of the first failure at once, and do not wait for a limit */
  tdict_comm_options o = *a->c.of[r->rank].options;
  op_args later = a->c.of[r->rank];
  o.timeout_ns = 20 * RIG_SECOND;
  later.options = &o;
  rig_keep(r, op_call(r, &later, &r->got, err));
  rig_true(r, r->status == first && r->took_ns < 10 * RIG_SECOND);
  rig_true(r, strstr(r->error.message, "the communicator was aborted"));
  r->error = error;
}

DEVICE_CASE(comm_absent_ranks_are_reported_within_the_time_limit) {
  tdict_comm_options o = td_with(tdict_comm_options, timeout_ns = RIG_SECOND / 10);
  for (int op = 0; op < NUM_OPS; op++)
    for (int absent = 0; absent < WORLD; absent++) {
      scoped_rig g = rig_create(WORLD);
      absent_case a = {.absent = absent};
      set_args(&a.c, op, false);
      for (int r = 0; r < WORLD; r++) a.c.of[r].options = &o;
      const int64_t begin = tdict_now_ns();
      rig_run(g, come_or_not, &a);
      assert_in_range(tdict_now_ns() - begin, RIG_SECOND / 10, 20 * RIG_SECOND);
      release_args(&a.c);
    }
}

static void abort_or_wait(rig_rank *r) {
  absent_case *a = r->rig->user;
  if (r->rank == a->absent) {
    usleep(20000);
    for (int i = 0; i < WORLD; i++) tdict_comm_abort(r->rig->ranks[i].comm);
    tdict_comm_abort(r->comm);
    return;
  }
  rig_keep(r, op_call(r, &a->c.of[r->rank], &r->got, err));
  /* rank 1 may detect the abort of rank 0 before its own communicator is aborted */
  rig_true(r, r->status == TDICT_ECANCELLED || (r->rank == 1 && r->status == TDICT_ELOST));
  rig_true(r, r->took_ns < 10 * RIG_SECOND);
}

CASE(comm_abort_ends_calls_that_wait) {
  tdict_comm_abort(NULL);
  for (int op = 0; op < NUM_OPS; op++) {
    scoped_rig g = rig_create(WORLD);
    absent_case a = {.absent = 2};
    set_args(&a.c, op, false);
    rig_run(g, abort_or_wait, &a);
    for (int r = 0; r < WORLD; r++) {
      tdict_tree *got = NULL;
      assert_int_equal(thread_world_aborts(g->threads, r), 1);
      const tdict_status wanted = r == 1 ? (tdict_status)g->ranks[1].status : TDICT_ECANCELLED;
      td_fails(wanted, "aborted", td_comm_broadcast(g->ranks[r].comm, NULL, 0, NULL, &got, err));
    }
    release_args(&a.c);
  }
}

static void send_or_die(rig_rank *r) {
  absent_case *a = r->rig->user;
  tdict_comm_options o = tdict_comm_options_default();
  if (a->is_silent) o.timeout_ns = RIG_SECOND / 4;
  if (r->rank == 0) rig_keep(r, td_comm_send(r->comm, a->c.of[0].tree, 1, &o, err));
  if (r->rank == 1) rig_keep(r, td_comm_receive(r->comm, 0, &o, &r->got, err));
}

CASE(comm_send_reports_dead_ranks) {
  for (int silent = 0; silent < 2; silent++)
    for (int dead = 0; dead < 2; dead++)
      for (int n = 0;; n++) {
        rig *g = rig_create(2);
        absent_case a = {.is_silent = silent};
        a.c.of[0].tree = op_good_tree();
        thread_world_fail(g->threads, dead, n, silent);
        rig_run(g, send_or_die, &a);
        const bool died = thread_world_all_calls(g->threads, dead) > n;
        const int other = g->ranks[1 - dead].status;
        assert_int_equal(g->ranks[dead].status, died ? TDICT_EIO : TDICT_OK);
        /* the sender succeeds as soon as the elements are sent */
        assert_true(other == TDICT_ELOST || (silent && other == TDICT_ETIMEDOUT) || (dead == 1 && other == TDICT_OK) ||
                    !died);
        tdict_release(a.c.of[0].tree);
        rig_destroy(g);
        if (!died) break;
        assert_true(n < 20);
      }
}

CASE(comm_create_checks_its_arguments) {
  thread_world *w = thread_world_create(2, NULL, tdict_cpu());
  tdict_context *context = rig_context();
  tdict_comm *comm = NULL;
  tdict_comm_table good, t;
  thread_world_table(w, 1, &good);
  td_fails(TDICT_EINVAL, "context is NULL", tdict_comm_create(NULL, &good, NULL, &comm, err));
  td_fails(TDICT_EINVAL, "table is NULL", tdict_comm_create(context, NULL, NULL, &comm, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_comm_create(context, &good, NULL, NULL, err));
  t = good;
  t.group_end = NULL;
  td_fails(TDICT_EINVAL, "a function of the table is NULL", tdict_comm_create(context, &t, NULL, &comm, err));
  t = good;
  t.rank = 2;
  td_fails(TDICT_EINVAL, "rank 2 of 2", tdict_comm_create(context, &t, NULL, &comm, err));
  t = good;
  t.world_size = 0;
  td_fails(TDICT_EINVAL, "of 0 ranks", tdict_comm_create(context, &t, NULL, &comm, err));
  t = good;
  t.device = tdict_sim(77);
  td_fails(TDICT_ENODEVICE, "", tdict_comm_create(context, &t, NULL, &comm, err));
  t = good;
  t.device.type = TDICT_DEVICE_AUTO;
  td_fails(TDICT_EINVAL, "wanted cpu, cuda or sim", tdict_comm_create(context, &t, NULL, &comm, err));
  tdict_comm_create_options o = tdict_comm_create_options_default();
  assert_true(o.timeout_ns == 60 * RIG_SECOND);
  o.timeout_ns = 0;
  td_fails(TDICT_EINVAL, "timeout_ns is 0", tdict_comm_create(context, &good, &o, &comm, err));
  o.struct_size = 3;
  td_fails(TDICT_EINVAL, "", tdict_comm_create(context, &good, &o, &comm, err));
  assert_null(comm);
  assert_int_equal(thread_world_destroys(w, 1), 0);
  td_ok(tdict_comm_create(context, &good, NULL, &comm, err));
  assert_int_equal(tdict_comm_get_info(comm).rank, 1);
  assert_int_equal(tdict_comm_get_info(comm).world_size, 2);
  assert_true(tdict_device_equal(tdict_comm_get_info(comm).device, tdict_cpu()));
  assert_int_equal(thread_world_all_calls(w, 1), 0);
  tdict_comm_destroy(comm);
  tdict_comm_destroy(NULL);
  assert_int_equal(thread_world_destroys(w, 1), 1);
  tdict_tree *got = NULL;
  td_fails(TDICT_EINVAL, "comm is NULL", td_comm_broadcast(NULL, NULL, 0, NULL, &got, err));
  thread_world_destroy(w);
}
