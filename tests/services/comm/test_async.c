/* Asynchronous calls: their order, their results and their errors. */
#include "services/comm/trees.h"
#include "support/thread_name.h"

enum { MOST_CALLS = 12 };
typedef struct async_case {
  tdict_tree *src; /* of rank 0 */
  tdict_tree *part[THREAD_MOST_RANKS];
  tdict_tree *sum[THREAD_MOST_RANKS]; /* "x" F32 [4] */
  const int64_t *counts;
} async_case;

static void wait_for(rig_rank *r, tdict_future *future, tdict_tree **out) {
  rig_ok(r, tdict_future_wait(future, out, err));
  tdict_future_release(future);
}

/* Starts every kind of call before it waits for the first. */
static void start_all(rig_rank *r) {
  async_case *c = r->rig->user;
  const int world = r->rig->world, next = (r->rank + 1) % world, last = (r->rank + world - 1) % world;
  tdict_future *f[MOST_CALLS];
  tdict_tree *got[MOST_CALLS] = {0};
  tdict_tree *src = r->rank == 0 ? c->src : NULL, *part = c->part[r->rank];
  int n = 0;
  rig_ok(r, tdict_broadcast_async(r->comm, src, 0, NULL, &f[n++], err));
  rig_ok(r, tdict_all_reduce_async(r->comm, c->sum[r->rank], TDICT_REDUCE_SUM, NULL, &f[n++], err));
  rig_ok(r, tdict_all_gather_async(r->comm, part, NULL, &f[n++], err));
  int64_t counts[THREAD_MOST_RANKS];
  memcpy(counts, c->counts, sizeof counts);
  tdict_comm_options o = tdict_comm_options_default();
  if (r->rank == 0) o.counts = counts;
  rig_ok(r, tdict_scatter_async(r->comm, src, 0, &o, &f[n++], err));
  memset(counts, 0, sizeof counts); /* the call has a copy */
  rig_ok(r, tdict_all_reduce_async(r->comm, c->sum[r->rank], TDICT_REDUCE_SUM, NULL, &f[n++], err));
  rig_ok(r, tdict_gather_to_async(r->comm, part, world - 1, NULL, &f[n++], err));
  rig_ok(r, tdict_all_gather_stack_async(r->comm, c->sum[r->rank], NULL, &f[n++], err));
  rig_ok(r, tdict_broadcast_into_async(r->comm, c->sum[r->rank], 0, NULL, &f[n++], err));
  if (r->rank == 0) rig_ok(r, tdict_send_async(r->comm, part, next, NULL, &f[n++], err));
  rig_ok(r, tdict_receive_async(r->comm, last, NULL, &f[n++], err));
  if (r->rank != 0) rig_ok(r, tdict_send_async(r->comm, part, next, NULL, &f[n++], err));
  rig_ok(r, tdict_all_reduce(r->comm, c->sum[r->rank], TDICT_REDUCE_SUM, NULL, err)); /* waits for its turn */
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
    rig *g = rig_create(world);
    int64_t counts[THREAD_MOST_RANKS] = {0}, rows = 0;
    for (int r = 0; r < world; r++) rows += counts[r] = r;
    const tree_plan plan = {
        .shape_seed = 11, .value_seed = 3, .batch_ndim = 1, .batch_size = {rows}, .reducible = true};
    async_case c = {.src = tree_make(&plan), .counts = counts};
    size_t count = (size_t)world;
    td_ok(tdict_split(c.src, 0, counts, c.part, &count, err));
    for (int r = 0; r < world; r++) {
      const float values[4] = {1, (float)r, 3, 4};
      tdict_tensor *t = NULL;
      c.sum[r] = help_tree_without_batch();
      td_ok(tdict_tensor_from_array(TDICT_F32, COUNTS(4), values, &t, err));
      help_put(c.sum[r], "x", t);
    }
    rig_run(g, start_all, &c);
    const int cube = world * world * world, ranks = world * (world - 1) / 2;
    for (int r = 0; r < world; r++) {
      const float *x = tdict_const_data(c.sum[r], "x");
      assert_true(x[0] == (float)cube && x[1] == (float)(ranks * world * world) && x[3] == (float)(4 * cube));
      tdict_release(c.sum[r]);
      tdict_release(c.part[r]);
    }
    tdict_release(c.src);
    rig_destroy(g);
  }
  rig_end();
}

/* After the call, the program may change the keys of the source and release the source. */
static void start_and_change(rig_rank *r) {
  tdict_future *future = NULL;
  tdict_tree *src = NULL;
  rig_ok(r, tdict_create(0, NULL, &src, err));
  tdict_tensor *t = NULL;
  rig_ok(r, tdict_tensor_full(TDICT_F32, 1, (const int64_t[]){3}, &(float){7}, &t, err));
  rig_ok(r, tdict_set(src, "x", t, err));
  rig_ok(r, tdict_broadcast_async(r->comm, r->rank == 0 ? src : NULL, 0, NULL, &future, err));
  rig_ok(r, tdict_set(src, "y", t, err));
  tdict_tensor_release(t);
  tdict_release(src);
  wait_for(r, future, &r->got);
  rig_true(r, r->got && tdict_has(r->got, "x") && (r->rank == 0 || !tdict_has(r->got, "y")));
}

CASE(comm_async_calls_keep_their_arguments) {
  rig *g = rig_create(3);
  for (int i = 0; i < 50; i++) {
    rig_run(g, start_and_change, NULL);
    rig_drop_results(g);
  }
  rig_destroy(g);
  rig_end();
}

static void start_wrong(rig_rank *r) {
  tdict_future *future = NULL;
  tdict_tree **trees = r->rig->user;
  rig_ok(r, tdict_all_gather_async(r->comm, trees[r->rank], NULL, &future, err));
  rig_keep(r, tdict_future_wait(future, NULL, err));
  tdict_future_release(future);
}

CASE(comm_async_calls_report_errors_with_the_path) {
  rig *g = rig_create(3);
  tdict_tree *trees[3];
  for (int r = 0; r < 3; r++) {
    trees[r] = TREE(2);
    help_put(trees[r], r == 2 ? "wrong" : "key", TENSOR(2, 3));
  }
  rig_run(g, start_wrong, trees);
  for (int r = 0; r < 3; r++) {
    assert_int_equal(g->ranks[r].status, TDICT_ESHAPE);
    assert_string_equal(g->ranks[r].error.path, "key");
    assert_non_null(strstr(g->ranks[r].error.message, "wrong"));
    tdict_release(trees[r]);
  }
  rig_destroy(g);
  rig_end();
}

/* Destroying the communicator waits for calls that nobody waited for. */
static void start_and_destroy(rig_rank *r) {
  tdict_future *future[5];
  for (int i = 0; i < 5; i++)
    rig_ok(r, tdict_all_reduce_async(r->comm, ((tdict_tree **)r->rig->user)[r->rank], TDICT_REDUCE_MAX, NULL,
                                     &future[i], err));
  tdict_comm_destroy(r->comm);
  r->comm = NULL;
  for (int i = 0; i < 5; i++) {
    rig_true(r, tdict_future_state(future[i]) == TDICT_FUTURE_DONE);
    tdict_future_release(future[i]);
  }
}

CASE(comm_destroy_waits_for_async_calls) {
  rig *g = rig_create(3);
  tdict_tree *trees[3];
  for (int r = 0; r < 3; r++) {
    trees[r] = TREE(2);
    help_put(trees[r], "x", TENSOR(2, 3));
  }
  rig_run(g, start_and_destroy, trees);
  for (int r = 0; r < 3; r++) {
    assert_int_equal(thread_world_destroys(g->threads, r), 1);
    tdict_release(trees[r]);
  }
  rig_destroy(g);
  rig_end();
}

/* A communicator has one thread after its first asynchronous call. */
CASE(comm_thread_has_a_name) {
  enum { WORLD = 3 };
  rig *g = rig_create(WORLD);
  assert_int_equal(td_threads_named("tdict-comm"), 0);
  for (int i = 0; i < 2; i++) {
    rig_run(g, start_and_change, NULL);
    rig_drop_results(g);
    assert_int_equal(td_threads_named("tdict-comm"), WORLD);
  }
  rig_destroy(g);
  rig_end();
}
