/* Divides samples into batches: a sample that does not fit into the last batch begins another one. The owner of a
 * tdict_division frees its ranges. Thread rule: one thread at a time uses a division. */
#ifndef TDICT_SERVICES_LOADER_DIVISION_H
#define TDICT_SERVICES_LOADER_DIVISION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Consecutive samples of an epoch. */
typedef struct tdict_batch_range {
  int64_t first, count;
} tdict_batch_range;

typedef struct tdict_division {
  int64_t batch_size, max_tokens; /* most samples and tokens of a batch */
  bool counts_padding; /* true: a batch has (number of samples) * (largest length) tokens; false: the sum of the
                          lengths */
  bool is_open;        /* false: the next sample begins a batch */
  tdict_batch_range *ranges;
  int64_t num_batches, num_samples;
  size_t capacity;
  int64_t sum, longest; /* sum and maximum of the lengths in the last batch */
} tdict_division;

/* Adds the next sample, which has at most max_tokens tokens. Returns false if memory is exhausted. */
bool tdict_division_add(tdict_division *d, int64_t length);
/* Leaves out the last batch, if it could hold another sample and was not ended. */
void tdict_division_drop_last(tdict_division *d);

#endif
