/* Defines the settings that a sampler's order depends on. Saved states of loaders contain these settings.
 * The functions are thread-safe. */
#ifndef TDICT_SERVICES_LOADER_SAMPLER_ORDER_H
#define TDICT_SERVICES_LOADER_SAMPLER_ORDER_H

#include "tdict/sampler.h"

/* Two samplers with equal values, except for the rank, draw the same indices in the same order. Each rank takes its
 * part of that order. */
typedef struct tdict_sampler_order {
  int64_t length;        /* indices are 0 to length - 1 */
  int64_t num_samples;   /* number of samples in an epoch of all ranks together */
  int64_t rank_samples;  /* number of samples in an epoch of each rank */
  uint64_t seed;         /* 0 for a SEQUENTIAL sampler */
  uint64_t weights_hash; /* hash of the alias table of a WEIGHTED sampler; else 0 */
  int32_t kind, rank, world_size;
  bool drop_uneven;
} tdict_sampler_order;
/* Returns the settings of a sampler. */
tdict_sampler_order tdict_sampler_get_order(const tdict_sampler *s);
/* Returns the index at position `draw` in an epoch of all ranks. `draw` is from 0 to num_samples - 1. */
int64_t tdict_sampler_draw(const tdict_sampler *s, int64_t epoch, int64_t draw);
/* Creates a sampler of another length with the same options. Reduces num_samples if the length is too short. The
 * sampler must not be WEIGHTED. */
tdict_status tdict_sampler_resize(const tdict_sampler *s, int64_t length, tdict_sampler **out, tdict_error *err);

#endif
