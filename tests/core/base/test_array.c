/* Tests TDICT_RESERVE(), which grows an array. */
#include "support/test.h"

#include "core/base/array.h"

CASE(array_keeps_its_items_when_it_grows) {
  TD_FREED int *items = NULL;
  size_t cap = 0, moves = 0;
  for (size_t i = 0; i < 1000; i++) {
    const size_t before = cap;
    assert_true(TDICT_RESERVE(items, cap, i + 1));
    assert_true(cap > i);
    assert_true(cap == before || cap >= 2 * before);
    moves += cap != before;
    items[i] = (int)i;
  }
  assert_in_range(moves, 1, 8); /* the capacity at least doubles, so it grows only a few times */
  for (size_t i = 0; i < 1000; i++) assert_int_equal(items[i], i);
  assert_true(TDICT_RESERVE(items, cap, 5000)); /* more than twice the capacity */
  assert_true(cap >= 5000);
  assert_int_equal(items[999], 999);
}

CASE(array_is_unchanged_if_it_cannot_grow) {
  TD_FREED int *items = NULL;
  size_t cap = 0;
  assert_true(TDICT_RESERVE(items, cap, 3));
  int *before = items;
  const size_t cap_before = cap;
  assert_false(TDICT_RESERVE(items, cap, SIZE_MAX / 2)); /* the size in bytes would overflow */
  assert_false(TDICT_RESERVE(items, cap, SIZE_MAX));
  td_fail_alloc(0, true);
  const bool has_grown = TDICT_RESERVE(items, cap, cap_before + 1);
  assert_true(td_fail_alloc_stop());
  assert_false(has_grown);
  assert_ptr_equal(items, before);
  assert_true(cap == cap_before);
}
