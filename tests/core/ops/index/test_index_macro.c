/* Tests TDICT_INDEX(), indices with too many items, and the number of allocations that an index makes. */
#include "core/ops/rig.h"

#define TWO(i) TDICT_AT(i), TDICT_AT((i) + 1)
#define EIGHT(i) TWO(i), TWO((i) + 2), TWO((i) + 4), TWO((i) + 6)
CASE(index_macro_takes_one_to_sixteen_items) {
  int calls = 0;
  assert_int_equal(TDICT_INDEX(TDICT_ALL)->count, 1);
  const tdict_indices *nine = TDICT_INDEX(EIGHT(1), TDICT_AT(9)), *sixteen = TDICT_INDEX(EIGHT(1), EIGHT(9));
  assert_int_equal(nine->count, 9);
  assert_int_equal(sixteen->count, TDICT_MAX_INDEX);
  for (int i = 0; i < 9; i++) assert_int_equal(nine->item[i].start, i + 1);
  for (int i = 0; i < TDICT_MAX_INDEX; i++) assert_int_equal(sixteen->item[i].start, i + 1);
  assert_int_equal(TDICT_INDEX(TDICT_AT(++calls), TDICT_ALL)->item[0].start, 1); /* each item is evaluated once */
  assert_int_equal(calls, 1);
  tdict_indices many = tdict_indices_none();
  for (int i = 0; i < TDICT_MAX_INDEX + 1; i++) tdict_indices_add(&many, TDICT_NEW_AXIS);
  scoped_tree td = TREE(1), out = NULL;
  td_fails(TDICT_EINVAL, "17 items", tdict_index_get(NULL, td, &many, NULL, &out, err));
}

CASE(index_costs_one_slab) {
  scoped_tree few = TREE(4), many = TREE(4);
  for (int i = 0; i < 1000; i++) td_put(i < 10 ? few : many, td_text("k%d", i), TENSOR(4, 3));
  int64_t seen[2];
  for (int i = 0; i < 2; i++) {
    td_fail_alloc(INT64_MAX, false);
    scoped_tree out = td_made(tree, tdict_index_get(NULL, i ? many : few, TDICT_INDEX(TDICT_AT(1)), NULL, &made, err));
    seen[i] = td_allocs_seen();
    td_fail_alloc_stop();
  }
  assert_int_equal(seen[0], seen[1]);
  assert_int_equal(seen[1], 3); /* the slab, the node, and its list of leaves */
}
