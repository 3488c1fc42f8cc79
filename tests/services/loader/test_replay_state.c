/* Tests that a replay buffer continues after a restart of the program: the next rows, the total and the filled rows,
 * and states that are refused. */
#include "replay_rows.h"
#include "support/guarded.h"
#include "support/random.h"

/* Creates the buffer again from a copy of its rows and from its state. */
static tdict_replay *restored(const tdict_replay *r, const tdict_tree *rows, tdict_tree **copy) {
  tdict_replay_state s = state_of(r);
  td_ok(tdict_clone_deep(rows, NULL, copy, err));
  tdict_replay *again = replay_over(*copy, 0);
  td_ok(tdict_replay_set_state(again, &s, err));
  return again;
}
static void check_equal(const tdict_replay *a, const tdict_tree *of_a, const tdict_replay *b, const tdict_tree *of_b) {
  tdict_replay_state s = state_of(a), t = state_of(b);
  assert_memory_equal(&s, &t, sizeof s);
  assert_memory_equal(tdict_const_data(of_a, "id"), tdict_const_data(of_b, "id"), CAPACITY * sizeof(int64_t));
  assert_memory_equal(tdict_const_data(of_a, "deep.x"), tdict_const_data(of_b, "deep.x"),
                      CAPACITY * X_COUNT * sizeof(float));
}

/* After each restart, the old buffer and the new one get the same rows, and stay equal. */
CASE(replay_continues_after_a_restart) {
  rng random = {3};
  scoped_tree tree = rows_from(0, CAPACITY);
  scoped_replay r = replay_over(tree, 5);
  int64_t id = 1000;
  for (int restart = 0; restart < 200; restart++) {
    tdict_tree *copy = NULL;
    tdict_replay *again = restored(r, tree, &copy);
    check_equal(r, tree, again, copy);
    for (int step = 0; step < 4; step++) {
      int64_t count = pick(&random, 0, CAPACITY);
      if (restart % 20 == 19 && step == 0) {
        tdict_replay_clear(r);
        tdict_replay_clear(again);
      }
      append_ids(r, id, count);
      append_ids(again, id, count);
      id += count;
      check_equal(r, tree, again, copy);
    }
    td_release(r, tree);
    r = again;
    tree = copy;
  }
  assert_true(state_of(r).total == id - 1000);
}

CASE(replay_restored_replaces_the_oldest_row) {
  scoped_tree tree = rows_from(0, CAPACITY), copy = NULL;
  scoped_replay r = replay_over(tree, 0);
  append_ids(r, 100, CAPACITY);
  append_ids(r, 200, 2);
  scoped_replay again = restored(r, tree, &copy);
  append_ids(again, 300, 1);
  const int64_t *ids = tdict_const_data(copy, "id");
  assert_int_equal(ids[0], 200);
  assert_int_equal(ids[1], 201);
  assert_int_equal(ids[2], 300);
  assert_int_equal(state_of(again).total, CAPACITY + 3);
}

/* The state can be read while this thread holds the lock of the rows, so it matches the rows. */
CASE(replay_state_is_read_under_the_lock) {
  scoped_tree tree = rows_from(0, CAPACITY);
  scoped_replay r = replay_over(tree, 4);
  tdict_replay_lock(r);
  tdict_replay_state s = state_of(r);
  assert_int_equal(s.num_filled, 4);
  assert_int_equal(s.total, 0);
  tdict_replay_unlock(r);
}

CASE(replay_states_need_no_memory) {
  scoped_tree tree = rows_from(0, CAPACITY);
  scoped_replay r = replay_over(tree, 4);
  tdict_replay_state s = tdict_replay_state_default(), set, bad;
  tdict_error why = {0};
  td_fail_alloc(0, true);
  const tdict_status got = tdict_replay_get_state(r, &s, NULL);
  set = bad = s;
  set.num_filled = set.next_row = set.total = 7;
  bad.next_row = -1;
  const tdict_status was_set = tdict_replay_set_state(r, &set, NULL);
  const tdict_status refused = tdict_replay_set_state(r, &bad, &why);
  assert_false(td_fail_alloc_stop());
  assert_int_equal(got, TDICT_OK);
  assert_int_equal(was_set, TDICT_OK);
  assert_int_equal(refused, TDICT_EINVAL);
  assert_non_null(strstr(why.message, "next_row is -1"));
  s = state_of(r);
  assert_memory_equal(&s, &set, sizeof s);
}

static void refuse_state(tdict_replay *r, tdict_replay_state s, const char *text) {
  tdict_replay_state was = state_of(r), now;
  td_fails(TDICT_EINVAL, text, tdict_replay_set_state(r, &s, err));
  now = state_of(r);
  assert_memory_equal(&was, &now, sizeof was);
}
CASE(replay_state_refuses) {
  scoped_tree tree = rows_from(0, CAPACITY);
  scoped_replay r = replay_over(tree, 4);
  const tdict_replay_state was = state_of(r);
  tdict_replay_state s = was;
#define REFUSED(change, text) \
  s = was;                    \
  s.change;                   \
  refuse_state(r, s, text)
  REFUSED(capacity = 24, "saved for a capacity of 24, this buffer has 23");
  REFUSED(num_filled = -1, "num_filled is -1, wanted 0 to the capacity 23");
  REFUSED(num_filled = 24, "num_filled is 24, wanted 0 to the capacity 23");
  REFUSED(num_filled = 5, "next_row is 4, but 5 of 23 rows are filled");
  REFUSED(next_row = -1, "next_row is -1");
  REFUSED(next_row = 23, "next_row is 23");
  REFUSED(next_row = 5, "next_row is 5, but 4 of 23 rows are filled");
  REFUSED(total = -1, "total is -1, wanted 0 to");
  REFUSED(total = INT64_MAX, "total is 9223372036854775807, wanted 0 to");
  td_fails(TDICT_EINVAL, "the state is NULL", tdict_replay_set_state(r, NULL, err));
  td_fails(TDICT_EINVAL, "the replay buffer is NULL", tdict_replay_set_state(NULL, &s, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_replay_get_state(r, NULL, err));
  td_fails(TDICT_EINVAL, "the replay buffer is NULL", tdict_replay_get_state(NULL, &s, err));

  /* Each flipped bit of the size is refused, and no byte after the struct is read. */
  tdict_replay_state *damaged = before_a_wall(&was, sizeof was);
  for (size_t bit = 0; bit < 8 * sizeof was.struct_size; bit++) {
    damaged->struct_size = was.struct_size ^ ((size_t)1 << bit);
    td_fails(TDICT_EINVAL, "another version of the library saved it, or it is damaged",
             tdict_replay_set_state(r, damaged, err));
  }
  for (size_t size = sizeof size; size <= sizeof was; size++) {
    guarded *g = guarded_of(size);
    td_ok(tdict_replay_get_state(r, (tdict_replay_state *)g, err));
    check_guarded(g, size, &was);
  }
}
