/* Implements the division of samples into batches. See division.h for ownership and threads. */
#include "services/loader/division.h"

#include "core/base/array.h"

/* Returns true if a sample fits into the last batch. */
static bool has_room(const tdict_division *d, int64_t length) {
  int64_t count = d->ranges[d->num_batches - 1].count;
  if (count >= d->batch_size) return false;
  if (!d->counts_padding) return length <= d->max_tokens - d->sum;
  return (length > d->longest ? length : d->longest) <= d->max_tokens / (count + 1);
}

bool tdict_division_add(tdict_division *d, int64_t length) {
  if (!d->is_open || !has_room(d, length)) {
    if (!TDICT_RESERVE(d->ranges, d->capacity, (size_t)d->num_batches + 1)) return false;
    d->ranges[d->num_batches++] = (tdict_batch_range){d->num_samples, 0};
    d->sum = d->longest = 0;
    d->is_open = true;
  }
  d->ranges[d->num_batches - 1].count++;
  d->num_samples++;
  d->sum += length;
  if (length > d->longest) d->longest = length;
  return true;
}

void tdict_division_drop_last(tdict_division *d) {
  if (!d->is_open) return;
  int64_t count = d->ranges[d->num_batches - 1].count;
  int64_t tokens = d->counts_padding ? count * d->longest : d->sum;
  if (count < d->batch_size && tokens < d->max_tokens) d->num_batches--;
}
