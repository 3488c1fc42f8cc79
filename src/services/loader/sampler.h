/* Defines the sampler. Saved states of loaders contain the settings that its order depends on. A sampler owns its alias
 * table. Thread rule: after creation only the reference count changes. */
#ifndef TDICT_SERVICES_LOADER_SAMPLER_H
#define TDICT_SERVICES_LOADER_SAMPLER_H

#include <stdatomic.h>

#include "tdict/sampler.h"

/* A column of an alias table (Walker's method, filled as Vose describes). A draw that selects column i returns i with
 * probability own_share / 2^64, and returns `other` otherwise. */
typedef struct tdict_alias_column {
  uint64_t own_share;
  int64_t other;
} tdict_alias_column;

/* Two samplers whose members are equal, except for `references`, `columns` and the rank, draw the same indices in the
 * same order. Each rank takes its part of that order. */
struct tdict_sampler {
  atomic_long references;
  int64_t length;                  /* indices are 0 to length - 1 */
  int64_t num_drawn, num_per_rank; /* number of positions in an epoch, of all ranks together and of one rank */
  tdict_sampler_options options;   /* without the weights; the seed of a SEQUENTIAL sampler is 0 */
  tdict_alias_column *columns;     /* WEIGHTED: `length` columns; else NULL */
  uint64_t weights_hash;           /* of the alias table; else 0 */
};

/* Returns count / by, rounded down if the rest is left out, else up. */
static inline int64_t tdict_divide(int64_t count, int64_t by, bool leaves_out_rest) {
  return count / by + (!leaves_out_rest && count % by ? 1 : 0);
}
/* Returns the number of samples that each of `world_size` ranks draws in an epoch. */
static inline int64_t tdict_sampler_share(const tdict_sampler *s, int32_t world_size) {
  return tdict_divide(s->num_drawn, world_size, s->options.drop_uneven);
}
/* Returns the index at position `draw` in an epoch of all ranks. `draw` is from 0 to num_samples - 1. */
int64_t tdict_sampler_draw(const tdict_sampler *s, int64_t epoch, int64_t draw);
/* Creates a sampler of another length with the same options. Reduces num_samples if the length is too short. The
 * sampler must not be WEIGHTED. */
tdict_status tdict_sampler_resize(const tdict_sampler *s, int64_t length, tdict_sampler **out, tdict_error *err);

#endif
