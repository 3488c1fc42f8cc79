/* Tests the random numbers of tdict/random.h. */
#include "support/test.h"
#include "tdict/dataset.h"
#include "tdict/random.h"

/* Known answers for philox4x32-10 that its authors publish with Random123 (file kat_vectors). */
static const struct {
  uint32_t counter[4], key[2], out[4];
} known[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static uint64_t word(const uint32_t *low) { return low[0] | (uint64_t)low[1] << 32; }

CASE(random_philox_gives_the_known_answers) {
  uint32_t out[4];
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    tdict_philox(known[i].counter, known[i].key, out);
    assert_memory_equal(out, known[i].out, sizeof out);
    memcpy(out, known[i].counter, sizeof out);
    tdict_philox(out, known[i].key, out);
    assert_memory_equal(out, known[i].out, sizeof out);
  }
}

CASE(random_numbers_are_those_of_philox) {
  tdict_random r = tdict_random_from(0);
  assert_true(tdict_random_bits(&r) == word(known[0].out));
  assert_true(tdict_random_bits(&r) == word(known[0].out + 2));
  r.num_drawn = 0;
  assert_true(tdict_random_uniform(&r) == (double)(word(known[0].out) >> 11) / 9007199254740992.0);
  r.num_drawn = 0;
  const int64_t tenth = tdict_random_below(&r, 10); /* the first number is 0.88 * 2^64 */
  assert_int_equal(tenth, 8);

  /* A copy continues independently. The numbers come from successive Philox blocks. */
  tdict_random copy = r;
  uint32_t block[4];
  tdict_philox((const uint32_t[]){1, 0, 0, 0}, (const uint32_t[]){0, 0}, block);
  (void)tdict_random_bits(&copy);
  assert_true(tdict_random_bits(&copy) == word(block));
  (void)tdict_random_bits(&r);
  assert_true(tdict_random_bits(&r) == word(block));
}

CASE(random_numbers_stay_in_their_range) {
  tdict_random r = tdict_random_from(0x299f31d0a4093822);
  int counts[7] = {0};
  double sum = 0;
  enum { DRAWS = 70000 };
  for (int i = 0; i < DRAWS; i++) {
    const int64_t below = tdict_random_below(&r, 7);
    const double x = tdict_random_uniform(&r);
    assert_in_range(below, 0, 6);
    assert_true(x >= 0 && x < 1);
    counts[below]++;
    sum += x;
  }
  for (int i = 0; i < 7; i++) assert_in_range(counts[i], 9500, 10500); /* 5 standard deviations of 93 */
  assert_true(sum > 0.494 * DRAWS && sum < 0.506 * DRAWS);             /* 5 standard deviations */
  assert_int_equal(tdict_random_below(&r, 1), 0);
  assert_true(tdict_random_below(&r, INT64_MAX) >= 0);
}

CASE(random_shuffle_draws_all_orders) {
  tdict_random r = tdict_random_from(0x299f31d0a4093822);
  int counts[4 * 4 * 4 * 4] = {0};
  enum { DRAWS = 24000 };
  for (int i = 0; i < DRAWS; i++) {
    int64_t items[4] = {0, 1, 2, 3};
    tdict_random_shuffle(&r, items, 4);
    counts[items[0] + 4 * items[1] + 16 * items[2] + 64 * items[3]]++;
  }
  assert_int_equal(r.num_drawn, 3 * DRAWS);
  int orders = 0;
  for (int c = 0; c < 256; c++) {
    const int used = 1 << c % 4 | 1 << c / 4 % 4 | 1 << c / 16 % 4 | 1 << c / 64;
    orders += counts[c] > 0;
    if (used == 15) assert_in_range(counts[c], 845, 1155); /* 5 standard deviations of 31 */
  }
  assert_int_equal(orders, 24);
  tdict_random_shuffle(&r, NULL, 0);
  assert_int_equal(r.num_drawn, 3 * DRAWS);
}

CASE(random_seed_of_a_sample_depends_on_seed_epoch_and_index) {
  tdict_fetch_info info = tdict_fetch_info_default();
  info.seed = word(known[2].key);
  info.epoch = (int64_t)word(known[2].counter + 2);
  const int64_t index = (int64_t)word(known[2].counter);
  assert_true(tdict_sample_seed(&info, index) == word(known[2].out));
  info.batch = 3, info.position = 4, info.rank = 1, info.world_size = 2, info.worker = 5;
  assert_true(tdict_sample_seed(&info, index) == word(known[2].out));
  assert_false(tdict_sample_seed(&info, index + 1) == word(known[2].out));
  info.seed++;
  assert_false(tdict_sample_seed(&info, index) == word(known[2].out));
}
