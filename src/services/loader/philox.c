/* Computes Philox4x32-10. The multipliers and the increments of the key are those of the paper, see tdict/random.h. */
#include "tdict/random.h"

#include "services/loader/shuffle.h"
#include "tdict/dataset.h"

enum { ROUNDS = 10 };

void tdict_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
  for (int i = 0; i < ROUNDS; i++) {
    const uint64_t first = (uint64_t)c[0] * 0xd2511f53u, second = (uint64_t)c[2] * 0xcd9e8d57u;
    const uint32_t c1 = c[1], c3 = c[3];
    c[0] = (uint32_t)(second >> 32) ^ c1 ^ k[0];
    c[1] = (uint32_t)second;
    c[2] = (uint32_t)(first >> 32) ^ c3 ^ k[1];
    c[3] = (uint32_t)first;
    k[0] += 0x9e3779b9u;
    k[1] += 0xbb67ae85u;
  }
  for (int i = 0; i < 4; i++) out[i] = c[i];
}

/* Returns 64 bits of the block whose counter has the low word `low` and the high word `high`: the first half of the
 * block, or its second half. */
static uint64_t philox_bits(uint64_t low, uint64_t high, uint64_t key, bool is_second) {
  const uint32_t counter[4] = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)};
  const uint32_t keys[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
  uint32_t out[4];
  tdict_philox(counter, keys, out);
  return is_second ? out[2] | (uint64_t)out[3] << 32 : out[0] | (uint64_t)out[1] << 32;
}

uint64_t tdict_random_bits(tdict_random *random) {
  const uint64_t drawn = random->num_drawn++;
  return philox_bits(drawn / 2, 0, random->seed, drawn % 2);
}

int64_t tdict_random_below(tdict_random *random, int64_t count) {
  return (int64_t)tdict_pick_below(tdict_random_bits(random), (uint64_t)count);
}

double tdict_random_uniform(tdict_random *random) { return (double)(tdict_random_bits(random) >> 11) * 0x1p-53; }

void tdict_random_shuffle(tdict_random *random, int64_t *items, size_t count) {
  for (size_t left = count; left > 1; left--) {
    const int64_t chosen = tdict_random_below(random, (int64_t)left);
    const int64_t last = items[left - 1];
    items[left - 1] = items[chosen];
    items[chosen] = last;
  }
}

uint64_t tdict_sample_seed(const tdict_fetch_info *info, int64_t index) {
  return philox_bits((uint64_t)index, (uint64_t)info->epoch, info->seed, false);
}
