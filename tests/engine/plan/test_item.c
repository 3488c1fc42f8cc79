/* Tests how the plan detects leaves that view the same bytes of one storage. */
#include "engine/plan/item.h"
#include "engine/trees.h"

static uint32_t find(const tdict_same_bytes *same, const tdict_tensor *t) {
  uint32_t found = TDICT_SHARED;
  tdict_same_bytes_find(same, t, &found);
  return found;
}

CASE(same_bytes_are_found) {
  tdict_same_bytes same = {0};
  const int turn[] = {1, 0};
  tdict_tensor *t = random_tensor(TDICT_F32, SHAPE(6, 8), NULL);
  tdict_tensor *flat = restrided(tdict_tensor_retain(t), 0, SHAPE(48), (const int64_t[]){1});
  tdict_tensor *half = sliced(tdict_tensor_retain(t), (tdict_tensor_range){0, 0, 3, 1});
  tdict_tensor *turned = permuted(tdict_tensor_retain(t), turn), *turned_too = permuted(tdict_tensor_retain(t), turn);
  tdict_tensor *column = sliced(tdict_tensor_retain(t), (tdict_tensor_range){1, 0, 1, 1});
  tdict_tensor *back = sliced(tdict_tensor_retain(t), (tdict_tensor_range){0, 0, 1, 1});
  tdict_tensor *other = random_tensor(TDICT_F32, SHAPE(6, 8), NULL);
  assert_int_equal(find(&same, t), TDICT_SHARED); /* the table is empty */
  assert_true(tdict_same_bytes_add(&same, t, 7));
  assert_int_equal(find(&same, t), 7);
  assert_int_equal(find(&same, flat), 7); /* a different shape over the same bytes */
  assert_int_equal(find(&same, half), TDICT_SHARED);
  assert_int_equal(find(&same, turned), TDICT_SHARED); /* the same bytes in another order */
  assert_int_equal(find(&same, column), TDICT_SHARED);
  assert_int_equal(find(&same, back), TDICT_SHARED);
  assert_int_equal(find(&same, other), TDICT_SHARED);
  assert_true(tdict_same_bytes_add(&same, turned, 8));
  assert_true(tdict_same_bytes_add(&same, half, 9)); /* `t`, `turned` and `half` begin at the same address */
  assert_int_equal(find(&same, turned_too), 8);
  assert_int_equal(find(&same, half), 9);
  assert_int_equal(find(&same, t), 7);
  tdict_same_bytes_reset(&same);
  assert_int_equal(find(&same, t), TDICT_SHARED);
  tdict_tensor *all[] = {t, flat, half, turned, turned_too, column, back, other};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tdict_tensor_release(all[i]);
}

/* Leaves at the same address in different storages are not treated as the same bytes. */
CASE(same_bytes_needs_one_storage) {
  tdict_same_bytes same = {0};
  unsigned char bytes[64];
  const int64_t count = 64;
  scoped_tensor a = NULL, b = NULL;
  tdict_tensor_desc v = desc_of(bytes, TDICT_U8, &count);
  td_ok(tdict_tensor_from_data(&v, NULL, NULL, &a, err));
  td_ok(tdict_tensor_from_data(&v, NULL, NULL, &b, err));
  assert_true(tdict_same_bytes_add(&same, a, 1));
  assert_int_equal(find(&same, a), 1);
  assert_int_equal(find(&same, b), TDICT_SHARED);
  tdict_same_bytes_reset(&same);
}

CASE(same_bytes_table_grows) {
  enum { COUNT = 5000 };
  tdict_same_bytes same = {0};
  static tdict_tensor *all[COUNT];
  for (int i = 0; i < COUNT; i++) {
    all[i] = random_tensor(TDICT_U8, SHAPE(1 + i % 3), NULL);
    assert_int_equal(find(&same, all[i]), TDICT_SHARED);
    assert_true(tdict_same_bytes_add(&same, all[i], (uint32_t)i));
  }
  for (int i = 0; i < COUNT; i++) assert_int_equal(find(&same, all[i]), i);
  tdict_same_bytes_reset(&same);
  for (int i = 0; i < COUNT; i++) tdict_tensor_release(all[i]);
  tdict_tensor *none = random_tensor(TDICT_U8, SHAPE(0), NULL); /* has no bytes to share */
  assert_true(tdict_same_bytes_add(&same, none, 3));
  assert_int_equal(find(&same, none), TDICT_SHARED);
  tdict_tensor_release(none);
  tdict_same_bytes_reset(&same);
}

CASE(same_bytes_is_unshared_when_held_once) {
  scoped_tensor t = random_tensor(TDICT_U8, SHAPE(16), NULL), view = NULL;
  scoped_tree batch = batch_tree(NULL);
  assert_true(tdict_item_is_unshared(t));
  tdict_tensor_retain(t);
  assert_false(tdict_item_is_unshared(t));
  tdict_tensor_release(t);
  view = sliced(tdict_tensor_retain(t), (tdict_tensor_range){0, 0, 3, 1});
  assert_false(tdict_item_is_unshared(t));
  assert_false(tdict_item_is_unshared(view));
  td_release(view);
  assert_true(tdict_item_is_unshared(t));
  assert_false(tdict_item_is_unshared(td_leaf(batch, "action"))); /* false for a tensor in a slab */
}
