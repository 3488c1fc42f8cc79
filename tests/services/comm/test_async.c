/* Tests asynchronous calls: their order, their results and their errors. */
#include "services/comm/trees.h"
#include "support/take_comm.h"
#include "support/thread_name.h"

enum { MOST_CALLS = 12 };
typedef struct async_case {
  tdict_tree *src; /* the source of rank 0 */
  tdict_tree *part[THREAD_MOST_RANKS];
  tdict_tree *sum[THREAD_MOST_RANKS]; /* on each rank: "x" F32 [4] */
  const int64_t *counts;
} async_case;

static void wait_for(rig_rank *r, tdict_future *future, tdict_tree **out) {
  rig_ok(r, tdict_future_wait(future, out, err));
  tdict_future_release(future);
}

/* Starts every kind of asynchronous call, then waits for all of them. */
static void start_all(rig_rank *r) {
  async_case *c = r->rig->user;
  const int world = r->rig->world, next = (r->rank + 1) % world, last = (r->rank + world - 1) % world;
  tdict_future *f[MOST_CALLS];
  tdict_tree *got[MOST_CALLS] = {0};
  tdict_tree *src = r->rank == 0 ? c->src : NULL, *part = c->part[r->rank];
  int n = 0;
  rig_ok(r, tdict_comm_broadcast_async(r->comm, src, 0, NULL, &f[n++], err));
  rig_ok(r, tdict_comm_all_reduce_async(r->comm, c->sum[r->rank], TDICT_REDUCE_SUM, NULL, &f[n++], err));
  rig_ok(r, tdict_comm_all_gather_async(r->comm, part, NULL, &f[n++], err));
  int64_t counts[THREAD_MOST_RANKS];
  memcpy(counts, c->counts, sizeof counts);
  tdict_comm_options o = tdict_comm_options_default();
  if (r->rank == 0) o.counts = counts;
  rig_ok(r, tdict_comm_scatter_async(r->comm, src, 0, &o, &f[n++], err));
  memset(counts, 0, sizeof counts); /* the call has copied the counts */
  rig_ok(r, tdict_comm_all_reduce_async(r->comm, c->sum[r->rank], TDICT_REDUCE_SUM, NULL, &f[n++], err));
  rig_ok(r, tdict_comm_gather_async(r->comm, part, world - 1, NULL, &f[n++], err));
  rig_ok(r, tdict_comm_all_gather_stack_async(r->comm, c->sum[r->rank], NULL, &f[n++], err));
  rig_ok(r, tdict_comm_broadcast_into_async(r->comm, c->sum[r->rank], 0, NULL, &f[n++], err));
  if (r->rank == 0) rig_ok(r, tdict_comm_send_async(r->comm, part, next, NULL, &f[n++], err));
  rig_ok(r, tdict_comm_receive_async(r->comm, last, NULL, &f[n++], err));
  if (r->rank != 0) rig_ok(r, tdict_comm_send_async(r->comm, part, next, NULL, &f[n++], err));
  rig_ok(r, td_comm_all_reduce(r->comm, c->sum[r->rank], TDICT_REDUCE_SUM, NULL, err)); /* runs after the others */
  for (int i = 0; i < n; i++) wait_for(r, f[i], &got[i]);
  const int sent = r->rank == 0 ? 8 : 9, received = r->rank == 0 ? 9 : 8;
  rig_true(r, r->rank != 0 || got[0] == c->src);
  rig_true(r, tdict_equal(got[0], c->src));
  rig_true(r, got[1] == c->sum[r->rank] && got[4] == got[1] && got[7] == got[1]);
  rig_true(r, got[2] && tdict_equal(got[2], c->src));
  rig_true(r, got[3] && tdict_equal(got[3], part));
  rig_true(r, (got[5] != NULL) == (r->rank == world - 1));
  rig_true(r, !got[5] || tdict_equal(got[5], c->src));
  rig_true(r, got[6] && tdict_batch_size(got[6])[0] == world);
  rig_true(r, got[sent] == part);
  rig_true(r, got[received] && tdict_equal(got[received], c->part[last]));
  for (int i = 0; i < n; i++) tdict_release(got[i]);
}

CASE(comm_async_calls_run_in_order) {
  for (int world = 2; world <= 4; world++) {
    scoped_rig g = rig_create(world);
    int64_t counts[THREAD_MOST_RANKS] = {0}, rows = 0;
    for (int r = 0; r < world; r++) rows += counts[r] = r;
    const tree_plan plan = {
        .shape_seed = 11, .value_seed = 3, .batch_ndim = 1, .batch_size = {rows}, .reducible = true};
    async_case c = {.src = tree_make(&plan), .counts = counts};
    size_t count = (size_t)world;
    td_ok(tdict_split(c.src, 0, counts, c.part, &count, err));
    for (int r = 0; r < world; r++) {
      const float values[4] = {1, (float)r, 3, 4};
      c.sum[r] = help_tree_without_batch();
      td_put(c.sum[r], "x", td_made(tensor, tdict_tensor_from_array(TDICT_F32, COUNTS(4), values, &made, err)));
    }
    rig_run(g, start_all, &c);
    const int cube = world * world * world, ranks = world * (world - 1) / 2;
    for (int r = 0; r < world; r++) {
      const float *x = tdict_const_data(c.sum[r], "x");
      assert_true(x[0] == (float)cube && x[1] == (float)(ranks * world * world) && x[3] == (float)(4 * cube));
      td_release(c.sum[r], c.part[r]);
    }
    tdict_release(c.src);
  }
}

/* Starts a call, then changes the keys of its source and releases the source. */
static void start_and_change(rig_rank *r) {
  tdict_future *future = NULL;
  tdict_tree *src = NULL;
  rig_ok(r, tdict_create(0, NULL, &src, err));
  tdict_tensor *t = NULL;
  rig_ok(r, tdict_tensor_full(TDICT_F32, 1, (const int64_t[]){3}, &(float){7}, &t, err));
  rig_ok(r, tdict_set(src, "x", t, err));
  rig_ok(r, tdict_comm_broadcast_async(r->comm, r->rank == 0 ? src : NULL, 0, NULL, &future, err));
  rig_ok(r, tdict_set(src, "y", t, err));
  td_release(t, src);
  wait_for(r, future, &r->got);
  rig_true(r, r->got && tdict_has(r->got, "x") && (r->rank == 0 || !tdict_has(r->got, "y")));
}

CASE(comm_async_calls_keep_their_arguments) {
  scoped_rig g = rig_create(3);
  for (int i = 0; i < 50; i++) {
    rig_run(g, start_and_change, NULL);
    rig_drop_results(g);
  }
}

/* A communicator has one thread after its first call. The caller may run this call itself before the thread has started
 * and set its name, so td_rest() lets it start. */
CASE(comm_thread_has_a_name) {
  enum { WORLD = 3 };
  scoped_rig g = rig_create(WORLD);
  assert_int_equal(td_threads_named("tdict-comm"), 0);
  for (int i = 0; i < 2; i++) {
    rig_run(g, start_and_change, NULL);
    rig_drop_results(g);
    td_rest();
    assert_int_equal(td_threads_named("tdict-comm"), WORLD);
  }
}

static void start_wrong(rig_rank *r) {
  scoped_future future = NULL;
  tdict_tree **trees = r->rig->user;
  rig_ok(r, tdict_comm_all_gather_async(r->comm, trees[r->rank], NULL, &future, err));
  rig_keep(r, tdict_future_wait(future, NULL, err));
}

CASE(comm_async_calls_report_errors_with_the_path) {
  scoped_rig g = rig_create(3);
  tdict_tree *trees[3];
  for (int r = 0; r < 3; r++) {
    trees[r] = TREE(2);
    td_put(trees[r], r == 2 ? "wrong" : "key", TENSOR(2, 3));
  }
  rig_run(g, start_wrong, trees);
  for (int r = 0; r < 3; r++) {
    assert_int_equal(g->ranks[r].status, TDICT_ESHAPE);
    assert_string_equal(g->ranks[r].error.path, "key");
    assert_non_null(strstr(g->ranks[r].error.message, "wrong"));
    tdict_release(trees[r]);
  }
}

static _Atomic(bool) wakes_nobody;
int __real_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
/* If `wakes_nobody` is set, does nothing, so a sleeping queue thread of the library stays asleep. */
int __wrap_pthread_cond_signal(pthread_cond_t *cond) {
  return wakes_nobody ? 0 : __real_pthread_cond_signal(cond); /* __wrap_pthread_cond_signal */
}

/* The thread that exchanged headers most recently. */
static pthread_t exchanged_on;
static tdict_status (*real_exchange)(void *self, const void *src, void *dst, size_t num_bytes, int64_t timeout_ns,
                                     tdict_error *err);
static tdict_status note_exchange(void *self, const void *src, void *dst, size_t num_bytes, int64_t timeout_ns,
                                  tdict_error *err) {
  exchanged_on = pthread_self();
  return real_exchange(self, src, dst, num_bytes, timeout_ns, err);
}
/* Makes a communicator of one rank whose table records which thread exchanges headers. */
static tdict_comm *lonely_comm(rig *g, bool on_calling_thread) {
  tdict_comm_table table = g->ranks[0].table;
  real_exchange = table.exchange;
  table.exchange = note_exchange;
  table.on_calling_thread = on_calling_thread;
  return td_made(comm, tdict_comm_create(g->context, &table, NULL, &made, err));
}
static tdict_tree *tree_with_x(void) {
  tdict_tree *tree = td_tree("[2] x:f32[2,3]");
  return tree;
}

CASE(comm_calls_are_made_by_the_thread_that_waits) {
  scoped_rig g = rig_create_on(1, rig_context(), tdict_cpu(), false);
  tdict_comm *comm = lonely_comm(g, false);
  tdict_tree *tree = tree_with_x();
  tdict_future *first = NULL, *second = NULL;
  td_ok(tdict_comm_broadcast_into_async(comm, tree, 0, NULL, &first, err)); /* starts the thread */
  td_ok(tdict_future_take(first, NULL, err));
  td_rest();
  wakes_nobody = true;
  td_ok(tdict_comm_broadcast_into_async(comm, tree, 0, NULL, &first, err));
  td_ok(tdict_comm_broadcast_into_async(comm, tree, 0, NULL, &second, err));
  assert_false(tdict_future_is_ready(first));
  td_ok(tdict_future_take(second, NULL, err)); /* this thread makes both calls */
  assert_true(pthread_equal(exchanged_on, pthread_self()));
  assert_true(tdict_future_is_ready(first));
  wakes_nobody = false;
  td_release(first, tree, comm);
}

CASE(comm_calls_stay_on_the_calling_thread) {
  scoped_rig g = rig_create_on(1, rig_context(), tdict_cpu(), false);
  scoped_comm comm = lonely_comm(g, true);
  scoped_tree tree = tree_with_x(), out = NULL;
  tdict_future *future = NULL;
  for (int i = 0; i < 3; i++) {
    exchanged_on = (pthread_t){0};
    td_ok(tdict_comm_broadcast_async(comm, i == 1 ? NULL : tree, 0, NULL, &future, err));
    assert_true(tdict_future_is_ready(future));
    assert_true(pthread_equal(exchanged_on, pthread_self()));
    if (i == 1)
      td_fails(TDICT_EINVAL, "tree is NULL", tdict_future_take(future, &out, err));
    else
      td_ok(tdict_future_take(future, &out, err));
    assert_true((out == NULL) == (i == 1));
    td_release(out);
  }
}

CASE(comm_calls_are_not_cancelled) {
  scoped_rig g = rig_create_on(1, rig_context(), tdict_cpu(), false);
  scoped_comm comm = lonely_comm(g, false);
  scoped_tree tree = tree_with_x();
  wakes_nobody = true;
  scoped_future future = td_made(future, tdict_comm_broadcast_into_async(comm, tree, 0, NULL, &made, err));
  tdict_future_cancel(future);
  wakes_nobody = false;
  td_ok(tdict_future_wait(future, NULL, err));
  assert_int_equal(tdict_future_state(future), TDICT_FUTURE_DONE);
}

CASE(comm_calls_refuse_options_that_they_do_not_use) {
  static const int64_t counts[1] = {2};
  scoped_rig g = rig_create_on(1, rig_context(), tdict_cpu(), true);
  tdict_comm *comm = g->ranks[0].comm;
  scoped_tree tree = tree_with_x(), out = NULL;
  const tdict_comm_options none = tdict_comm_options_default();
  tdict_comm_options o = none;
  o.dim = 1;
  td_fails(TDICT_EINVAL, "all_reduce: the option `dim`", td_comm_all_reduce(comm, tree, TDICT_REDUCE_SUM, &o, err));
  td_fails(TDICT_EINVAL, "broadcast: the option `dim`", td_comm_broadcast(comm, tree, 0, &o, &out, err));
  td_fails(TDICT_EINVAL, "receive: the option `dim`", td_comm_receive(comm, 0, &o, &out, err));
  o = none;
  o.counts = counts;
  td_fails(TDICT_EINVAL, "gather: the option `counts`", td_comm_gather(comm, tree, 0, &o, &out, err));
  tdict_release(td_made(tree, td_comm_scatter(comm, tree, 0, &o, &made, err)));
  o = none;
  o.memory = tdict_device_memory(rig_context(), tdict_cpu());
  td_fails(TDICT_EINVAL, "broadcast_into: the option `memory`", td_comm_broadcast_into(comm, tree, 0, &o, err));
  td_fails(TDICT_EINVAL, "send: the option `memory`", td_comm_send(comm, tree, 0, &o, err));
  o = none;
  o.after = (tdict_stream){{TDICT_DEVICE_SIM, 0}, NULL};
  td_fails(TDICT_EINVAL, "all_gather: the option `after`", td_comm_all_gather(comm, tree, &o, &out, err));
  td_ok(td_comm_all_reduce(comm, tree, TDICT_REDUCE_SUM, NULL, err)); /* the communicator stays usable */
}

/* Destroys the communicator before any thread waits for its calls. tdict_comm_destroy() must wait for them. */
static void start_and_destroy(rig_rank *r) {
  tdict_future *future[5];
  for (int i = 0; i < 5; i++)
    rig_ok(r, tdict_comm_all_reduce_async(r->comm, ((tdict_tree **)r->rig->user)[r->rank], TDICT_REDUCE_MAX, NULL,
                                          &future[i], err));
  tdict_comm_destroy(r->comm);
  r->comm = NULL;
  for (int i = 0; i < 5; i++) {
    rig_true(r, tdict_future_state(future[i]) == TDICT_FUTURE_DONE);
    tdict_future_release(future[i]);
  }
}

CASE(comm_destroy_waits_for_async_calls) {
  scoped_rig g = rig_create(3);
  tdict_tree *trees[3];
  for (int r = 0; r < 3; r++) {
    trees[r] = TREE(2);
    td_put(trees[r], "x", TENSOR(2, 3));
  }
  rig_run(g, start_and_destroy, trees);
  for (int r = 0; r < 3; r++) {
    assert_int_equal(thread_world_destroys(g->threads, r), 1);
    tdict_release(trees[r]);
  }
}
