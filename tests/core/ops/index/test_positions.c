/* Compares the positions of random lists and masks with positions that plain loops find. */
#include "core/ops/index/positions.h"

#include "core/tensor/naive.h"
#include "support/test.h"

enum { MAX_ELEMENTS = 5000, UNTOUCHED = -7 };

/* Checks a mask of `count` elements. About one in `rarity` elements is not 0. */
static void check_mask(naive_random *r, int64_t count, int64_t rarity) {
  scoped_tensor mask = td_made(tensor, tdict_tensor_zeros(TDICT_U8, 1, &count, NULL, &made, err));
  unsigned char *element = tdict_tensor_data(mask);
  int64_t wanted[MAX_ELEMENTS], found[MAX_ELEMENTS + TDICT_POSITIONS_SLACK + 1], num_wanted = 0;
  for (int64_t i = 0; i < count; i++)
    if (naive_below(r, rarity) == 0) element[wanted[num_wanted++] = i] = (unsigned char)(1 + naive_below(r, 255));
  assert_int_equal(tdict_mask_count(mask), num_wanted);
  for (int64_t i = 0; i < MAX_ELEMENTS + TDICT_POSITIONS_SLACK + 1; i++) found[i] = UNTOUCHED;
  tdict_mask_positions(mask, found);
  assert_memory_equal(found, wanted, (size_t)num_wanted * sizeof *found);
  assert_int_equal(found[num_wanted + TDICT_POSITIONS_SLACK], UNTOUCHED);
}

CASE(masks_of_all_sizes_have_their_positions) {
  naive_random r = {11};
  for (int64_t count = 0; count < 300; count++)
    for (int64_t rarity = 1; rarity <= 64; rarity *= 2) check_mask(&r, count, rarity);
  for (int64_t rarity = 1; rarity <= 4096; rarity *= 8) check_mask(&r, MAX_ELEMENTS, rarity);
}

CASE(lists_are_counted_from_both_ends) {
  enum { COUNT = 37, STEP = 3, SIZE = 20 };
  naive_random r = {5};
  int64_t list[COUNT * STEP], found[COUNT];
  for (int64_t step = 1; step <= STEP; step++) {
    for (int64_t i = 0; i < COUNT * STEP; i++) list[i] = naive_below(&r, 2 * SIZE) - SIZE;
    assert_int_equal(tdict_positions_read(found, list, COUNT, step, SIZE), -1);
    for (int64_t i = 0; i < COUNT; i++)
      assert_int_equal(found[i], list[i * step] < 0 ? list[i * step] + SIZE : list[i * step]);
  }
}

CASE(the_first_bad_position_is_found) {
  static const int64_t bad[] = {20, 21, -21, INT64_MAX, INT64_MIN, INT64_MIN + 20, INT64_MAX - 20};
  int64_t list[9], found[9];
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
    for (int64_t at = 0; at < 9; at++) {
      for (int i = 0; i < 9; i++) list[i] = i < at ? i - 5 : 20;
      list[at] = bad[k];
      assert_int_equal(tdict_positions_read(found, list, 9, 1, 20), at);
    }
  assert_int_equal(tdict_positions_read(found, list, 0, 1, 0), -1);
  list[0] = 0;
  assert_int_equal(tdict_positions_read(found, list, 1, 1, 0), 0);
}
