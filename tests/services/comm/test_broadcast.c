/* Tests broadcasts of random trees among 1 to 4 ranks, into new trees and into existing trees. */
#include "services/comm/trees.h"
#include "support/take_comm.h"

typedef struct broadcast_case {
  int root;
  tdict_tree *src;                     /* the tree that the root sends */
  tdict_tree *into[THREAD_MOST_RANKS]; /* the destination of each rank */
} broadcast_case;

static void broadcast(rig_rank *r) {
  const broadcast_case *c = r->rig->user;
  rig_ok(r, td_comm_broadcast(r->comm, r->rank == c->root ? c->src : NULL, c->root, NULL, &r->got, err));
}
static void broadcast_into(rig_rank *r) {
  const broadcast_case *c = r->rig->user;
  rig_ok(r, td_comm_broadcast_into(r->comm, c->into[r->rank], c->root, NULL, err));
}

static tree_plan random_plan(rng *random) {
  return (tree_plan){.shape_seed = next_random(random),
                     .value_seed = next_random(random),
                     .batch_ndim = (int)pick(random, 0, 2),
                     .batch_size = {pick(random, 0, 4), pick(random, 1, 3)},
                     .layout = (tree_layout)pick(random, 0, NUM_LAYOUTS - 1)};
}

static void check_broadcast(rig *g, rng *random, int i) {
  (void)i;
  const tree_plan plan = random_plan(random);
  broadcast_case c = {.root = (int)pick(random, 0, g->world - 1), .src = tree_make(&plan)};
  rig_run(g, broadcast, &c);
  for (int r = 0; r < g->world; r++) {
    assert_true((g->ranks[r].got == c.src) == (r == c.root));
    assert_false(tdict_is_locked(g->ranks[r].got));
    assert_false(tdict_get_device(g->ranks[r].got, NULL));
    tree_check_equal(g->ranks[r].got, c.src);
  }
  tdict_release(c.src);
}
DEVICE_CASE(comm_broadcast_gives_all_ranks_the_tree) { rig_in_worlds(1, 25, check_broadcast); }

static void check_broadcast_into(rig *g, rng *random, int i) {
  (void)i;
  tree_plan plan = random_plan(random);
  broadcast_case c = {.root = (int)pick(random, 0, g->world - 1)};
  for (int r = 0; r < g->world; r++) {
    c.into[r] = tree_make(&plan);
    tdict_lock(c.into[r]);
    plan.value_seed = next_random(random);
    plan.layout = (tree_layout)pick(random, 0, NUM_LAYOUTS - 1);
  }
  scoped_tree before = tree_on_host(c.into[c.root]), kept = NULL;
  td_ok(tdict_clone_deep(before, NULL, &kept, err)); /* tree_on_host() may share the tensors */
  rig_run(g, broadcast_into, &c);
  for (int r = 0; r < g->world; r++) {
    tree_check_equal(c.into[r], kept);
    tdict_release(c.into[r]);
  }
}
DEVICE_CASE(comm_broadcast_into_writes_all_ranks) { rig_in_worlds(2, 25, check_broadcast_into); }

/* Tied weights: one tensor at two paths, on all ranks. */
DEVICE_CASE(comm_broadcast_into_writes_tied_tensors) {
  scoped_rig g = rig_create(3);
  broadcast_case c = {.root = 1};
  const tree_plan plan = {.shape_seed = 5, .value_seed = 1, .layout = LAYOUT_SEPARATE};
  for (int r = 0; r < 3; r++) {
    tree_plan mine = plan;
    mine.value_seed += (uint64_t)r;
    c.into[r] = tree_make(&mine);
    tdict_tensor *t = NULL, *tied = NULL;
    const float values[6] = {(float)r, 1, 2, 3, 4, 5};
    td_ok(tdict_tensor_from_array(TDICT_F32, COUNTS(6), values, &t, err));
    td_ok(tdict_tensor_clone(t, tdict_device_memory(rig_context(), td_device()), &tied, err));
    tdict_tensor_release(t);
    td_ok(tdict_set(c.into[r], "embedding", tied, err));
    td_put(c.into[r], "head", tied);
  }
  rig_run(g, broadcast_into, &c);
  for (int r = 0; r < 3; r++) {
    tree_check_equal(c.into[r], c.into[1]);
    assert_ptr_equal(td_leaf(c.into[r], "head"), td_leaf(c.into[r], "embedding"));
  }
  for (int r = 0; r < 3; r++) tdict_release(c.into[r]);
}

/* The tensors are views of one storage, with gaps between them or in a different order than in a block. The bytes in
 * the gaps must not change. */
DEVICE_CASE(comm_broadcast_into_keeps_the_bytes_between_tensors) {
  enum { COUNT = 200 };
  scoped_rig g = rig_create(3);
  for (int variant = 0; variant < 3; variant++) {
    broadcast_case c = {.root = 2};
    tdict_tensor *all[3];
    const int64_t at[2] = {variant ? 64 : 0, variant ? 0 : 64}, count = variant == 2 ? 64 : 3;
    for (int r = 0; r < 3; r++) {
      tdict_tensor *host = NULL, *view = NULL;
      td_ok(tdict_tensor_arange(TDICT_F32, 1000 * r, 1, COUNT, &host, err));
      td_ok(tdict_tensor_clone(host, tdict_device_memory(rig_context(), td_device()), &all[r], err));
      tdict_tensor_release(host);
      c.into[r] = help_tree_without_batch();
      for (int i = 0; i < 2; i++) {
        td_ok(tdict_tensor_slice(all[r], &(tdict_tensor_range){0, at[i], count, 1}, &view, err));
        td_put(c.into[r], i ? "b" : "a", view);
      }
    }
    rig_run(g, broadcast_into, &c);
    for (int r = 0; r < 3; r++) {
      tdict_tensor *host = td_made(tensor, tdict_tensor_clone(all[r], NULL, &made, err));
      const float *found = tdict_tensor_const_data(host);
      for (int i = 0; i < COUNT; i++) assert_true(found[i] == (float)(1000 * (i % 64 < count && i < 128 ? 2 : r) + i));
      td_release(host, all[r], c.into[r]);
    }
  }
}

static void broadcast_five(rig_rank *r) {
  for (int i = 0; i < 5; i++) {
    broadcast(r);
    tdict_release(r->got);
    r->got = NULL;
  }
}

/* Each broadcast of a tree needs one message. The schema is sent once to each other rank. */
DEVICE_CASE(comm_broadcast_sends_one_message_and_one_schema) {
  enum { WORLD = 4 };
  scoped_rig g = rig_create(WORLD);
  const tree_plan plan = {.shape_seed = 11, .value_seed = 1, .batch_ndim = 1, .batch_size = {3}};
  broadcast_case c = {.root = 2, .src = tree_make(&plan)};
  assert_true(tdict_num_leaves(c.src) > 3);
  rig_run(g, broadcast_five, &c);
  int schemas_sent = 0, schemas_received = 0;
  for (int r = 0; r < WORLD; r++) {
    assert_int_equal(thread_world_calls(g->threads, r, THREAD_BROADCAST), 5);
    assert_int_equal(thread_world_calls(g->threads, r, THREAD_EXCHANGE), 5);
    assert_int_equal(thread_world_calls(g->threads, r, THREAD_SEND) + thread_world_calls(g->threads, r, THREAD_RECEIVE),
                     0);
    schemas_sent += thread_world_calls(g->threads, r, THREAD_SEND_HOST);
    schemas_received += thread_world_calls(g->threads, r, THREAD_RECEIVE_HOST);
    assert_int_equal(thread_world_calls(g->threads, r, THREAD_RECEIVE_HOST), r != c.root);
  }
  assert_int_equal(schemas_sent, WORLD - 1);
  assert_int_equal(schemas_received, WORLD - 1);
  assert_int_equal(thread_world_unread(g->threads), 0);
  tdict_release(c.src);
}
