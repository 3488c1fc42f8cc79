/* Tests gathers and scatters of random trees among 1 to 4 ranks, with uneven and empty parts. */
#include "services/comm/trees.h"
#include "support/take_comm.h"

typedef struct gather_case {
  int root, dim;
  tdict_tree *part[THREAD_MOST_RANKS];
  const tdict_tree *src;
  const int64_t *counts;
} gather_case;

static tdict_comm_options options_of(const gather_case *c) { return td_with(tdict_comm_options, dim = c->dim); }
static void all_gather(rig_rank *r) {
  const gather_case *c = r->rig->user;
  const tdict_comm_options o = options_of(c);
  rig_ok(r, td_comm_all_gather(r->comm, c->part[r->rank], &o, &r->got, err));
}
static void all_gather_stack(rig_rank *r) {
  const gather_case *c = r->rig->user;
  rig_ok(r, td_comm_all_gather_stack(r->comm, c->part[r->rank], NULL, &r->got, err));
}
static void gather_to(rig_rank *r) {
  const gather_case *c = r->rig->user;
  const tdict_comm_options o = options_of(c);
  r->got = (tdict_tree *)(uintptr_t)c; /* must be overwritten */
  rig_ok(r, td_comm_gather(r->comm, c->part[r->rank], c->root, &o, &r->got, err));
}
static void scatter(rig_rank *r) {
  const gather_case *c = r->rig->user;
  const bool is_root = r->rank == c->root;
  tdict_comm_options o = options_of(c);
  if (is_root) o.counts = c->counts;
  rig_ok(r, td_comm_scatter(r->comm, is_root ? c->src : NULL, c->root, &o, &r->got, err));
}

/* Makes a part for each rank. If `rows` is negative, each part has a random size from 0 to 4 in dimension `dim`. */
static void make_parts(gather_case *c, int world, int dim, int64_t rows, rng *random) {
  tree_plan plan = {.shape_seed = next_random(random), .batch_ndim = 2, .batch_size = {2, 2}};
  for (int r = 0; r < world; r++) {
    plan.value_seed = next_random(random);
    plan.layout = (tree_layout)pick(random, 0, NUM_LAYOUTS - 1);
    plan.batch_size[dim] = rows >= 0 ? rows : pick(random, 0, 4);
    c->part[r] = tree_make(&plan);
  }
}
static void release_parts(gather_case *c, int world) {
  for (int r = 0; r < world; r++) tdict_release(c->part[r]);
}

/* Checks that a tree consists of the parts of all ranks, in order. */
static void check_joined(const gather_case *c, int world, int dim, const tdict_tree *got) {
  scoped_tree whole = tree_on_host(got);
  int64_t from = 0;
  assert_false(tdict_is_locked(got));
  assert_false(tdict_get_device(got, NULL));
  for (int r = 0; r < world; r++) {
    scoped_tree part = tree_on_host(c->part[r]);
    tree_check_part(whole, part, false, dim, from);
    from += tdict_batch_size(part)[dim];
  }
  assert_int_equal(tdict_batch_size(whole)[dim], from);
}

static void check_all_gather(rig *g, rng *random, int i) {
  const int dim = (int)pick(random, 0, 1);
  gather_case c = {.dim = i % 2 ? dim : dim - 2};
  make_parts(&c, g->world, dim, i % 3 ? -1 : pick(random, 0, 3), random);
  rig_run(g, all_gather, &c);
  for (int r = 0; r < g->world; r++) check_joined(&c, g->world, dim, g->ranks[r].got);
  release_parts(&c, g->world);
}
DEVICE_CASE(comm_all_gather_joins_the_trees_of_all_ranks) { rig_in_worlds(1, 24, check_all_gather); }

static void check_gather_to(rig *g, rng *random, int i) {
  const int dim = (int)pick(random, 0, 1);
  gather_case c = {.dim = i % 2 ? dim : dim - 2, .root = (int)pick(random, 0, g->world - 1)};
  make_parts(&c, g->world, dim, i % 3 ? -1 : pick(random, 0, 3), random);
  rig_run(g, gather_to, &c);
  check_joined(&c, g->world, dim, g->ranks[c.root].got);
  for (int r = 0; r < g->world; r++) assert_true((g->ranks[r].got == NULL) == (r != c.root));
  release_parts(&c, g->world);
  assert_int_equal(thread_world_unread(g->threads), 0);
}
DEVICE_CASE(comm_gather_to_joins_on_the_root) { rig_in_worlds(2, 24, check_gather_to); }

static void check_stack(rig *g, rng *random, int i) {
  (void)i;
  gather_case c = {0};
  make_parts(&c, g->world, 0, pick(random, 0, 3), random);
  rig_run(g, all_gather_stack, &c);
  for (int r = 0; r < g->world; r++) {
    scoped_tree whole = tree_on_host(g->ranks[r].got);
    assert_int_equal(tdict_batch_ndim(whole), 3);
    assert_int_equal(tdict_batch_size(whole)[0], g->world);
    for (int from = 0; from < g->world; from++) {
      scoped_tree part = tree_on_host(c.part[from]);
      tree_check_part(whole, part, true, 0, from);
    }
  }
  release_parts(&c, g->world);
}
DEVICE_CASE(comm_all_gather_stack_adds_a_dimension) { rig_in_worlds(3, 24, check_stack); }

static void refuse_stack(rig_rank *r) {
  gather_case *c = r->rig->user;
  rig_keep(r, td_comm_all_gather_stack(r->comm, c->part[r->rank], NULL, &r->got, err));
  rig_true(r, r->status == TDICT_EINVAL && strstr(r->error.message, "batch dimensions, the maximum"));
}
CASE(comm_all_gather_stack_refuses_trees_with_all_batch_dimensions) {
  scoped_rig g = rig_create(2);
  int64_t ones[TDICT_MAX_BATCH_NDIM];
  for (int i = 0; i < TDICT_MAX_BATCH_NDIM; i++) ones[i] = 1;
  gather_case c = {.part = {help_tree(TDICT_MAX_BATCH_NDIM, ones), help_tree(TDICT_MAX_BATCH_NDIM, ones)}};
  rig_run(g, refuse_stack, &c);
  release_parts(&c, 2);
}

static void check_scatter(rig *g, rng *random, int i) {
  const int dim = (int)pick(random, 0, 1);
  int64_t counts[THREAD_MOST_RANKS], rows = 0;
  const bool even = i % 3 == 0;
  if (even) rows = pick(random, 0, 9);
  for (int r = 0; r < g->world; r++) {
    counts[r] = even ? rows / g->world + (r < rows % g->world) : pick(random, 0, 3);
    if (!even) rows += counts[r];
  }
  tree_plan plan = {.shape_seed = next_random(random),
                    .value_seed = next_random(random),
                    .batch_ndim = 2,
                    .batch_size = {2, 2},
                    .layout = (tree_layout)pick(random, 0, NUM_LAYOUTS - 1)};
  plan.batch_size[dim] = rows;
  scoped_tree src = tree_make(&plan), whole = tree_on_host(src);
  gather_case c = {.dim = i % 2 ? dim : dim - 2,
                   .root = (int)pick(random, 0, g->world - 1),
                   .src = src,
                   .counts = even ? NULL : counts};
  rig_run(g, scatter, &c);
  int64_t from = 0;
  for (int r = 0; r < g->world; r++) {
    scoped_tree part = tree_on_host(g->ranks[r].got);
    assert_int_equal(tdict_batch_size(part)[dim], counts[r]);
    tree_check_part(whole, part, false, dim, from);
    from += counts[r];
  }
  assert_int_equal(thread_world_unread(g->threads), 0);
}
DEVICE_CASE(comm_scatter_cuts_the_tree_of_the_root) { rig_in_worlds(4, 24, check_scatter); }

/* A tree needs one gather if the parts have equal sizes, otherwise one message for each rank that has elements. */
DEVICE_CASE(comm_gathers_send_one_message_for_a_tree) {
  enum { WORLD = 3 };
  scoped_rig g = rig_create(WORLD);
  for (int equal = 0; equal < 2; equal++) {
    gather_case c = {.root = 1};
    tree_plan plan = {.shape_seed = 11, .value_seed = 1, .batch_ndim = 1};
    for (int r = 0; r < WORLD; r++) {
      plan.batch_size[0] = equal ? 2 : r; /* rank 0 has no elements */
      c.part[r] = tree_make(&plan);
    }
    assert_true(tdict_num_leaves(c.part[0]) > 3);
    thread_world_forget(g->threads);
    rig_run(g, all_gather, &c);
    for (int r = 0; r < WORLD; r++) {
      assert_int_equal(thread_world_calls(g->threads, r, THREAD_ALL_GATHER), equal);
      assert_int_equal(thread_world_calls(g->threads, r, THREAD_BROADCAST), equal ? 0 : 2);
      assert_int_equal(thread_world_calls(g->threads, r, THREAD_EXCHANGE), 1);
      assert_int_equal(thread_world_calls(g->threads, r, THREAD_SEND_HOST), 0);
    }
    rig_drop_results(g);
    rig_run(g, gather_to, &c);
    for (int r = 0; r < WORLD; r++)
      assert_int_equal(thread_world_calls(g->threads, r, THREAD_SEND), r != 1 && (equal || r != 0));
    assert_int_equal(thread_world_calls(g->threads, 1, THREAD_RECEIVE), equal ? 2 : 1);
    rig_drop_results(g);
    release_parts(&c, WORLD);
  }
}

/* Repeatedly scatters and gathers a few trees, along both dimensions and with different counts each time, so that more
 * schemas occur than the communicator caches. */
DEVICE_CASE(comm_gathers_along_each_dimension_in_turns) {
  enum { WORLD = 3, TREES = 3 };
  rng random = {8};
  tdict_tree *trees[TREES];
  rig *g = rig_create(WORLD); /* skips the case if there is no device */
  for (int i = 0; i < TREES; i++) {
    const tree_plan plan = {.shape_seed = next_random(&random),
                            .value_seed = next_random(&random),
                            .batch_ndim = 2,
                            .batch_size = {5, 5},
                            .layout = (tree_layout)i};
    trees[i] = tree_make(&plan);
  }
  for (int turn = 0; turn < 60; turn++) {
    int64_t counts[WORLD] = {pick(&random, 0, 2), pick(&random, 0, 3)}, from = 0;
    gather_case c = {.src = trees[pick(&random, 0, TREES - 1)], .dim = (int)pick(&random, 0, 1), .counts = counts};
    counts[2] = 5 - counts[0] - counts[1];
    rig_run(g, scatter, &c);
    scoped_tree whole = tree_on_host(c.src);
    for (int r = 0; r < WORLD; r++) {
      c.part[r] = g->ranks[r].got;
      g->ranks[r].got = NULL;
      scoped_tree part = tree_on_host(c.part[r]);
      assert_int_equal(tdict_batch_size(part)[c.dim], counts[r]);
      tree_check_part(whole, part, false, c.dim, from);
      from += counts[r];
    }
    rig_run(g, all_gather, &c);
    for (int r = 0; r < WORLD; r++) check_joined(&c, WORLD, c.dim, g->ranks[r].got);
    rig_drop_results(g);
    release_parts(&c, WORLD);
  }
  for (int i = 0; i < TREES; i++) tdict_release(trees[i]);
  rig_destroy(g);
}
