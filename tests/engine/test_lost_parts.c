/* Tests lost bytes of leaves that share a storage. They are recorded per leaf: a leaf that a failed transfer should
 * have written is lost until it is written again. */
#include "promises.h"

static const tdict_field fields[] = {
    {"a", TDICT_U8, 2, {30, 8}}, {"n.b", TDICT_F32, 1, {77}}, {"c", TDICT_I16, 1, {5}}};
enum { NUM_FIELDS = 3 };

static tdict_tree *shared_tree(const place *w, tdict_memory *memory, uint64_t number) {
  tdict_tree *td = td_made(tree, tdict_create_from(fields, 3, 0, NULL, memory, &made, err));
  for (int i = 0; i < NUM_FIELDS; i++) put_number(w, td_leaf(td, fields[i].path), number + (uint64_t)i);
  return td;
}
/* Returns a tree with one or two leaves of `td`. */
static tdict_tree *part_of(const tdict_tree *td, const char *one, const char *other) {
  tdict_tree *part = new_tree();
  td_ok(tdict_set(part, one, td_leaf(td, one), err));
  if (other) td_ok(tdict_set(part, other, td_leaf(td, other), err));
  return part;
}
/* Starts a transfer into `dst`, and cancels it while the device is stopped. */
static void lose(const place *w, const tdict_tree *src, tdict_tree *dst) {
  hold(w);
  scoped_future f = copy_async(w, src, dst, NULL);
  tdict_future_cancel(f);
  resume(w);
  assert_int_equal(tdict_future_wait(f, NULL, NULL), TDICT_ECANCELLED);
}
/* Returns the test's device if the leaf is on the CPU, otherwise the CPU. */
static tdict_device away_from(const place *w, const tdict_tensor *t) {
  return tdict_tensor_device(t).type == TDICT_DEVICE_CPU ? w->device : tdict_cpu();
}

/* Checks that accessors and transfers can read the leaf, and that it has the bytes of this number. */
static void check_there(const place *w, const tdict_tree *td, const char *path, uint64_t number) {
  scoped_tree part = part_of(td, path, NULL), out = NULL;
  assert_non_null(tdict_const_data(td, path));
  assert_true(has_number(w, td_leaf(td, path), number));
  td_ok(tdict_to_device(w->c, part, away_from(w, td_leaf(td, path)), NULL, &out, err));
  assert_true(has_number(w, td_leaf(out, path), number));
}
static void check_lost(const place *w, const tdict_tree *td, const char *path) {
  scoped_tree part = part_of(td, path, NULL), out = NULL;
  tdict_tensor *t = td_leaf(td, path), *clone = NULL;
  assert_null(tdict_tensor_const_data(t));
  assert_null(tdict_tensor_data(t));
  td_fails(TDICT_EINVAL, "transfer into them failed", tdict_tensor_clone(t, NULL, &clone, err));
  td_fails(TDICT_EINVAL, "transfer into them failed", tdict_to_device(w->c, td, away_from(w, t), NULL, &out, err));
  td_fails(TDICT_EINVAL, "transfer into them failed", tdict_to_device(w->c, part, away_from(w, t), NULL, &out, err));
  assert_string_equal(td_last_error.path, path);
}

SIM_CASE(lost_leaves_of_one_storage_are_told_apart) {
  scoped_place w = place_sim(2, 20e6, 1);
  for (int on_device = 0; on_device < 2; on_device++) {
    tdict_memory *memory = on_device ? w.memory : NULL;
    scoped_tree src = shared_tree(&w, on_device ? NULL : w.memory, 10), dst = shared_tree(&w, memory, 20);
    scoped_tree a = part_of(src, "a", NULL), to_a = part_of(dst, "a", NULL), both = part_of(src, "a", "n.b"),
                to_both = part_of(dst, "a", "n.b");
    lose(&w, both, to_both); /* a later transfer of "a" alone succeeds */
    check_lost(&w, dst, "a");
    check_lost(&w, dst, "n.b");
    check_there(&w, dst, "c", 22);
    td_ok(tdict_transfer_into(w.c, to_a, a, NULL, err));
    check_there(&w, dst, "a", 10);
    check_lost(&w, dst, "n.b");
    check_there(&w, dst, "c", 22);
    lose(&w, a, to_a); /* "a" is lost again, then one transfer writes both */
    td_ok(tdict_transfer_into(w.c, to_both, both, NULL, err));
    check_there(&w, dst, "a", 10);
    check_there(&w, dst, "n.b", 11);
    lose(&w, a, to_a);
    check_there(&w, dst, "n.b", 11);
    check_lost(&w, dst, "a");
    td_ok(tdict_transfer_into(w.c, dst, src, NULL, err));
    assert_false(tdict_storage_has_lost(td_leaf(dst, "a")->storage));
  }
}

static void give_columns(tdict_tree *td, const char *path, tdict_tensor *whole, int64_t first, int64_t count) {
  const tdict_tensor_range range = {1, first, count, 1};
  td_put(td, path, td_made(tensor, tdict_tensor_slice(whole, &range, &made, err)));
}
/* Lost columns of a matrix are recorded separately, although their bytes are interleaved. */
SIM_CASE(lost_columns_are_told_apart) {
  scoped_place w = place_sim(2, 20e6, 1);
  tdict_tree *wholes[2], *left[2], *right[2];
  for (int i = 0; i < 2; i++) {
    wholes[i] = shared_tree(&w, i ? NULL : w.memory, 10 + 10 * (uint64_t)i);
    left[i] = new_tree();
    right[i] = new_tree();
    give_columns(left[i], "k", td_leaf(wholes[i], "a"), 0, 3);
    give_columns(right[i], "k", td_leaf(wholes[i], "a"), 3, 5);
  }
  lose(&w, left[0], left[1]);
  assert_null(tdict_data(left[1], "k"));
  assert_null(tdict_data(wholes[1], "a"));
  assert_non_null(tdict_data(right[1], "k"));
  td_ok(tdict_transfer_into(w.c, right[1], right[0], NULL, err));
  assert_null(tdict_data(left[1], "k"));
  td_ok(tdict_transfer_into(w.c, left[1], left[0], NULL, err));
  assert_non_null(tdict_data(left[1], "k"));
  assert_true(has_number(&w, td_leaf(wholes[1], "a"), 10));
  check_there(&w, wholes[1], "a", 10);
  for (int i = 0; i < 2; i++) td_release(wholes[i], left[i], right[i]);
}

/* Each function that writes all elements of a leaf makes the leaf's lost bytes valid again. */
SIM_CASE(lost_bytes_come_back_by_any_write) {
  scoped_place w = place_sim(2, 20e6, 1);
  for (int on_device = 0; on_device < 2; on_device++)
    for (int how = 0; how < 5; how++) {
      tdict_memory *memory = on_device ? w.memory : NULL;
      scoped_tree src = shared_tree(&w, on_device ? NULL : w.memory, 10), dst = shared_tree(&w, memory, 20);
      lose(&w, src, dst);
      if (how == 0) td_ok(tdict_copy(dst, src, NULL, err));
      if (how == 1) td_ok(tdict_fill(dst, NULL, 0, NULL, err));
      if (how == 2) td_ok(tdict_update_in_place(dst, src, NULL, 0, err));
      if (how == 3) td_ok(tdict_write(dst, "a", NULL, td_leaf(src, "a"), err));
      if (how == 4) td_ok(tdict_fill(dst, "a", 0, NULL, err));
      for (int i = 0; i < NUM_FIELDS; i++)
        assert_int_equal(tdict_const_data(dst, fields[i].path) != NULL, how < 3 || i == 0);
    }
}

SIM_CASE(lost_rows_come_back_one_by_one) {
  scoped_place w = place_sim(2, 20e6, 1);
  const int64_t row_shape[] = {8}, batch[] = {30};
  scoped_tree src = NULL, dst = NULL, row = new_tree();
  for (int i = 0; i < 2; i++) td_ok(tdict_create_from(fields, 1, 0, NULL, i ? NULL : w.memory, i ? &dst : &src, err));
  td_ok(tdict_set_batch_size(src, 1, batch, err));
  td_ok(tdict_set_batch_size(dst, 1, batch, err));
  put_number(&w, td_leaf(src, "a"), 3);
  td_put(row, "a", new_tensor(TDICT_U8, 1, row_shape, NULL));
  put_number(&w, td_leaf(row, "a"), 7);
  lose(&w, src, dst);
  for (int64_t i = 0; i < 30; i++) {
    assert_null(tdict_data(dst, "a"));
    scoped_tree seen = td_made(tree, tdict_index_get(NULL, dst, TDICT_INDEX(TDICT_AT(i)), NULL, &made, err));
    assert_null(tdict_data(seen, "a"));
    td_ok(tdict_write_rows(dst, i, row, err));
    assert_true(tdict_data(seen, "a") && has_number(&w, td_leaf(seen, "a"), 7));
  }
  assert_non_null(tdict_data(dst, "a"));
  lose(&w, src, dst); /* loses two columns */
  tdict_tree *columns[2];
  for (int i = 0; i < 2; i++) {
    columns[i] = new_tree();
    give_columns(columns[i], "a", td_leaf(src, "a"), 4 * i, 4);
    const int64_t both[] = {30, 4};
    td_ok(tdict_set_batch_size(columns[i], 2, both, err));
  }
  const int64_t all[] = {30, 8};
  td_ok(tdict_set_batch_size(dst, 2, all, err));
  tdict_join_options o = td_with(tdict_join_options, dim = 1);
  td_ok(tdict_cat_into(dst, (const tdict_tree *[]){columns[0], columns[1]}, 2, &o, NULL, err));
  assert_non_null(tdict_data(dst, "a"));
  assert_true(has_number(&w, td_leaf(dst, "a"), 3));
  for (int i = 0; i < 2; i++) tdict_release(columns[i]);
}

/* tdict_get_difference() refuses lost bytes with the path of the leaf, and tdict_equal() returns false. */
SIM_CASE(lost_bytes_are_not_compared) {
  scoped_place w = place_sim(2, 20e6, 1);
  for (int on_device = 0; on_device < 2; on_device++) {
    scoped_tree src = shared_tree(&w, on_device ? NULL : w.memory, 10),
                dst = shared_tree(&w, on_device ? w.memory : NULL, 10);
    scoped_tree b = part_of(src, "n.b", NULL), to_b = part_of(dst, "n.b", NULL);
    tdict_difference d;
    assert_true(tdict_equal(src, dst));
    lose(&w, b, to_b);
    td_fails_at(TDICT_EINVAL, "transfer into them failed", "n.b", tdict_get_difference(src, dst, NULL, &d, err));
    td_fails(TDICT_EINVAL, "transfer into them failed", tdict_get_difference(dst, src, NULL, &d, err));
    assert_false(tdict_equal(src, dst));
    assert_false(tdict_equal(dst, dst));
    td_ok(tdict_transfer_into(w.c, to_b, b, NULL, err));
    assert_true(tdict_equal(src, dst));
  }
}

SIM_CASE(lost_mask_is_refused) {
  scoped_place w = place_sim(2, 20e6, 1);
  const int64_t rows[] = {30};
  scoped_tree td = shared_tree(&w, NULL, 10), masks = new_tree(), from = new_tree(), out = NULL;
  scoped_tree batch = part_of(td, "a", NULL);
  td_ok(tdict_set_batch_size(batch, 1, rows, err));
  td_put(masks, "m", new_tensor(TDICT_BOOL, 1, rows, NULL));
  td_put(from, "m", new_tensor(TDICT_BOOL, 1, rows, w.memory));
  td_ok(tdict_fill(masks, NULL, 0, NULL, err));
  td_ok(tdict_fill(from, NULL, 0, NULL, err));
  td_ok(tdict_index_get(NULL, batch, TDICT_INDEX(TDICT_MASK(td_leaf(masks, "m"))), NULL, &out, err));
  td_release(out);
  lose(&w, from, masks);
  td_fails(TDICT_EINVAL, "transfer into them failed",
           tdict_index_get(NULL, batch, TDICT_INDEX(TDICT_MASK(td_leaf(masks, "m"))), NULL, &out, err));
  td_fails(TDICT_EINVAL, "transfer into them failed",
           tdict_index_set(NULL, batch, TDICT_INDEX(TDICT_MASK(td_leaf(masks, "m"))), batch, NULL, err));
  assert_null(out);
}
