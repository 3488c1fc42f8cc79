#include <inttypes.h>
#include <stdio.h>

#include <tdict/random.h>

int main(void) {
  const uint32_t counter[4] = {0, 0, 0, 0}, key[2] = {7, 0};
  uint32_t words[4];
  tdict_random random = tdict_random_from(7), again = random;
  /* the words that a generator with the seed 7 uses first */
  tdict_philox(counter, key, words);
  printf("%08" PRIx32 " %08" PRIx32 " %08" PRIx32 " %08" PRIx32 "\n", words[0],
         words[1], words[2], words[3]);
  printf("%016" PRIx64 "\n", tdict_random_bits(&random));
  printf("%d of 100\n", (int)tdict_random_below(&random, 100));
  again.num_drawn = 2;
  printf("equal: %d\n", tdict_random_uniform(&random) == tdict_random_uniform(&again));
  return 0;
}
