/* Tests sends of trees between two ranks. */
#include "services/comm/trees.h"
#include "support/take_comm.h"

enum { MOST_TREES = 8 };
typedef struct point_case {
  int count, peer_of_0;
  tdict_tree *src[MOST_TREES];
  tdict_tree *got[MOST_TREES][THREAD_MOST_RANKS];
} point_case;

/* Sends each tree from rank 0 to rank 1, from 1 to 2, and so on, and back to rank 0. */
static void pass_around(rig_rank *r) {
  point_case *c = r->rig->user;
  const int world = r->rig->world, next = (r->rank + 1) % world, last = (r->rank + world - 1) % world;
  for (int i = 0; i < c->count; i++) {
    if (r->rank == 0) rig_ok(r, td_comm_send(r->comm, c->src[i], next, NULL, err));
    rig_ok(r, td_comm_receive(r->comm, last, NULL, &c->got[i][r->rank], err));
    if (r->rank != 0) rig_ok(r, td_comm_send(r->comm, c->got[i][r->rank], next, NULL, err));
  }
}

DEVICE_CASE(comm_send_gives_the_tree_to_one_rank) {
  rng random = {1};
  for (int world = 2; world <= 4; world++) {
    scoped_rig g = rig_create(world);
    for (int i = 0; i < 6; i++) {
      point_case c = {.count = MOST_TREES};
      for (int k = 0; k < MOST_TREES; k++) {
        const tree_plan plan = {.shape_seed = next_random(&random),
                                .value_seed = next_random(&random),
                                .batch_ndim = (int)pick(&random, 0, 2),
                                .batch_size = {pick(&random, 0, 4), 2},
                                .layout = (tree_layout)pick(&random, 0, NUM_LAYOUTS - 1)};
        c.src[k] = tree_make(&plan);
      }
      rig_run(g, pass_around, &c);
      for (int k = 0; k < MOST_TREES; k++) {
        for (int r = 0; r < world; r++) {
          assert_false(tdict_get_device(c.got[k][r], NULL));
          tree_check_equal(c.got[k][r], c.src[k]);
          tdict_release(c.got[k][r]);
        }
        tdict_release(c.src[k]);
      }
    }
    assert_int_equal(thread_world_unread(g->threads), 0);
  }
}

/* Each tree needs a header, a reply and one message. The schema is sent once. */
DEVICE_CASE(comm_send_sends_one_message_and_one_schema) {
  scoped_rig g = rig_create(2);
  const tree_plan plan = {.shape_seed = 11, .value_seed = 1, .batch_ndim = 1, .batch_size = {3}};
  point_case c = {.count = 5};
  for (int i = 0; i < 5; i++) c.src[i] = i ? tdict_retain(c.src[0]) : tree_make(&plan);
  rig_run(g, pass_around, &c);
  for (int r = 0; r < 2; r++) {
    assert_int_equal(thread_world_calls(g->threads, r, THREAD_SEND), 5);
    assert_int_equal(thread_world_calls(g->threads, r, THREAD_RECEIVE), 5);
    assert_int_equal(thread_world_calls(g->threads, r, THREAD_SEND_HOST), 5 + 1 + 5); /* headers, schema, replies */
  }
  for (int i = 0; i < 5; i++) {
    for (int r = 0; r < 2; r++) tdict_release(c.got[i][r]);
    tdict_release(c.src[i]);
  }
}

/* Sends more schemas than the caches hold, in a random order in which old schemas recur. */
static void pass_many(rig_rank *r) {
  rng random = {77};
  tdict_tree **trees = r->rig->user;
  for (int i = 0; i < 400; i++) {
    const int64_t k = pick(&random, 0, 99);
    if (r->rank == 0) {
      rig_ok(r, td_comm_send(r->comm, trees[k], 1, NULL, err));
      rig_ok(r, td_comm_broadcast(r->comm, trees[k], 0, NULL, &r->got, err));
    } else {
      tdict_tree *got = NULL;
      rig_ok(r, td_comm_receive(r->comm, 0, NULL, &got, err));
      rig_true(r, got && tdict_equal(got, trees[k]));
      tdict_release(got);
      rig_ok(r, td_comm_broadcast(r->comm, NULL, 0, NULL, &r->got, err));
      rig_true(r, r->got && tdict_equal(r->got, trees[k]));
    }
    tdict_release(r->got);
    r->got = NULL;
  }
}

CASE(comm_schemas_are_sent_again_after_64_others) {
  scoped_rig g = rig_create(2);
  tdict_tree *trees[100];
  for (int k = 0; k < 100; k++) {
    const char *key = td_text("key%d", k);
    trees[k] = help_tree_without_batch();
    td_put(trees[k], key, TENSOR(2));
  }
  rig_run(g, pass_many, trees);
  const int sent = thread_world_calls(g->threads, 0, THREAD_SEND_HOST);
  assert_in_range(sent, 400 + 2 * 100, 400 + 2 * 300); /* headers; schemas for sends and for broadcasts */
  assert_int_equal(thread_world_unread(g->threads), 0);
  for (int k = 0; k < 100; k++) tdict_release(trees[k]);
}

static void send_wrong(rig_rank *r) {
  const point_case *c = r->rig->user;
  scoped_tree got = NULL;
  if (r->rank == 0) {
    rig_keep(r, td_comm_send(r->comm, c->src[0], 1, NULL, err));
    rig_true(r, r->status == TDICT_ENOTSUP && strcmp(r->error.path, "text") == 0);
    rig_keep(r, td_comm_send(r->comm, c->src[1], 0, NULL, err));
    rig_true(r, r->status == TDICT_EINVAL);
    rig_keep(r, td_comm_send(r->comm, c->src[1], 7, NULL, err));
    rig_true(r, r->status == TDICT_EINVAL);
    rig_keep(r, td_comm_send(r->comm, c->src[1], 1, NULL, err)); /* the receiver passes a wrong option */
    rig_true(r, r->status == TDICT_EINVAL && strstr(r->error.message, "rank 1: receive: the option `dim`"));
    rig_ok(r, td_comm_send(r->comm, c->src[1], 1, NULL, err));
    return;
  }
  rig_keep(r, td_comm_receive(r->comm, 0, NULL, &got, err));
  rig_true(r, r->status == TDICT_ENOTSUP && strcmp(r->error.path, "text") == 0 && !got);
  rig_true(r, strstr(r->error.message, "rank 0: "));
  rig_keep(r, td_comm_receive(r->comm, 0, td_options(tdict_comm_options, dim = 1), &got, err));
  rig_true(r, r->status == TDICT_EINVAL);
  rig_ok(r, td_comm_receive(r->comm, 0, NULL, &got, err));
  rig_true(r, got && tdict_equal(got, c->src[1]));
}

CASE(comm_send_errors_reach_both_ranks) {
  scoped_rig g = rig_create(2);
  point_case c = {.src = {help_tree_without_batch(), help_tree_without_batch()}};
  td_put(c.src[1], "x", TENSOR(5));
  td_ok(tdict_set_text(c.src[0], "text", "words", err));
  rig_run(g, send_wrong, &c);
  assert_int_equal(thread_world_unread(g->threads), 0);
  td_release(c.src[0], c.src[1]);
}

static void both_send(rig_rank *r) {
  const point_case *c = r->rig->user;
  rig_keep(r, td_comm_send(r->comm, c->src[0], 1 - r->rank, NULL, err));
}

CASE(comm_two_ranks_that_both_send_get_an_error) {
  scoped_rig g = rig_create(2);
  point_case c = {.src = {help_tree_without_batch()}};
  td_put(c.src[0], "x", TENSOR(5));
  rig_run(g, both_send, &c);
  for (int r = 0; r < 2; r++) assert_true(g->ranks[r].status == TDICT_EINVAL || g->ranks[r].status == TDICT_ELOST);
  assert_true(g->ranks[0].status == TDICT_EINVAL || g->ranks[1].status == TDICT_EINVAL);
  tdict_release(c.src[0]);
}
