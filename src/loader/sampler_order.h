/* What a sampler's order depends on, for states that are saved and compared. */
#ifndef TDICT_LOADER_SAMPLER_ORDER_H
#define TDICT_LOADER_SAMPLER_ORDER_H

#include "tdict/sampler.h"

/* Samplers of equal orders that differ in rank alone share one order of an epoch. */
typedef struct tdict_sampler_order {
  int64_t length;        /* indices are 0 to length - 1 */
  int64_t num_samples;   /* drawn in an epoch by all ranks */
  int64_t rank_samples;  /* by each rank */
  uint64_t seed;         /* 0 where none is used */
  uint64_t weights_hash; /* WEIGHTED; else 0 */
  int32_t kind, world_size;
} tdict_sampler_order;
tdict_sampler_order tdict_sampler_get_order(const tdict_sampler *s);

#endif
