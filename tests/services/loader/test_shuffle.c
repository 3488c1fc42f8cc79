/* Tests shuffles: each is a permutation, keys select different permutations, and positions are uniform. test_random.c
 * tests more draws. */
#include "services/loader/shuffle.h"
#include "support/test.h"

CASE(shuffle_is_a_permutation) {
  for (uint64_t count = 1; count < 700; count += count < 40 ? 1 : 37) {
    for (uint64_t key = 0; key < 5; key++) {
      unsigned char seen[700] = {0};
      tdict_shuffle p = tdict_shuffle_make(count, key);
      for (uint64_t i = 0; i < count; i++) {
        uint64_t j = tdict_shuffle_at(&p, i);
        assert_true(j < count);
        assert_int_equal(seen[j]++, 0);
      }
    }
  }
}

/* Over 60,000 keys, each of 6 elements is at each of 6 places about 10,000 times (standard deviation 91). */
CASE(shuffle_is_uniform) {
  enum { COUNT = 6, KEYS = 60000 };
  int seen[COUNT][COUNT] = {{0}};
  for (uint64_t key = 0; key < KEYS; key++) {
    tdict_shuffle p = tdict_shuffle_make(COUNT, tdict_mix(7, key));
    for (uint64_t i = 0; i < COUNT; i++) seen[i][tdict_shuffle_at(&p, i)]++;
  }
  for (int i = 0; i < COUNT; i++)
    for (int j = 0; j < COUNT; j++) assert_in_range(seen[i][j], KEYS / COUNT - 500, KEYS / COUNT + 500);
}

/* Neighbours stay neighbours only by chance, with a probability of 1/500. */
CASE(shuffle_separates_neighbours) {
  enum { COUNT = 1000, KEYS = 200 };
  int together = 0;
  for (uint64_t key = 0; key < KEYS; key++) {
    tdict_shuffle p = tdict_shuffle_make(COUNT, tdict_mix(key, 1));
    for (uint64_t i = 0; i + 1 < COUNT; i++) {
      int64_t gap = (int64_t)tdict_shuffle_at(&p, i) - (int64_t)tdict_shuffle_at(&p, i + 1);
      together += gap == 1 || gap == -1;
    }
  }
  assert_in_range(together, 300, 500); /* 400 are expected */
}

/* For up to 256 elements, the order is that of a Fisher-Yates shuffle with the same random numbers. */
CASE(shuffle_equals_fisher_yates) {
  for (uint64_t count = 1; count <= 256; count += count < 20 ? 1 : 59) {
    tdict_shuffle p = tdict_shuffle_make(count, 17);
    uint64_t array[256];
    for (uint64_t i = 0; i < count; i++) array[i] = i;
    for (uint64_t last = count - 1; last > 0; last--) {
      uint64_t other = tdict_pick_below(tdict_mix(p.key, last), last + 1), moved = array[other];
      array[other] = array[last];
      array[last] = moved;
    }
    for (uint64_t i = 0; i < count; i++) assert_int_equal(tdict_shuffle_at(&p, i), array[i]);
  }
}

CASE(shuffle_large_counts) {
  uint64_t counts[] = {(UINT64_C(1) << 32) + 1, UINT64_C(1) << 40, (UINT64_C(1) << 62) - 57};
  for (size_t c = 0; c < 3; c++) {
    tdict_shuffle p = tdict_shuffle_make(counts[c], 3);
    uint64_t before = counts[c];
    for (uint64_t i = 0; i < 1000; i++) {
      uint64_t j = tdict_shuffle_at(&p, i);
      assert_true(j < counts[c] && j != before);
      before = j;
    }
  }
}
