/* An index read: what it does with the first dimensions of a tensor. Owned by one call. Thread rule: one thread. */
#ifndef TDICT_TREE_INDEX_PLAN_H
#define TDICT_TREE_INDEX_PLAN_H

#include "tdict/index.h"
#include "tensor/affine.h"

typedef struct tdict_index_plan {
  const char *what;
  tdict_affine affine;
  /* A list or mask takes `gather_dims` dimensions of the affine result, from gather_at on, to `gather_count` elements,
   * whose positions in each of these dimensions are in coords. 0: there is none. */
  int gather_at, gather_dims;
  int64_t gather_count, *coords;
  int ndim; /* what the dimensions become */
  int64_t shape[TDICT_MAX_NDIM];
} tdict_index_plan;

/* Errors of tdict_index_get() but for the batch size and devices. The plan is to be reset on success only. */
tdict_status tdict_index_plan_init(tdict_index_plan *plan, const char *what, int ndim, const int64_t *shape,
                                   const tdict_indices *index, tdict_error *err);
void tdict_index_plan_reset(tdict_index_plan *plan);
/* What tensor `t` becomes: a view, or fresh where there is a list or mask, which TDICT_ENOTSUP refuses on devices. */
tdict_status tdict_index_plan_describe(const tdict_index_plan *plan, const tdict_tensor *t, tdict_made *made,
                                       tdict_error *err);
/* Copies between the elements of `t` that the plan names and `other`, which has their shape: to `other`, or with `set`
 * from it. Takes no memory. */
tdict_status tdict_index_plan_copy(const tdict_index_plan *plan, const tdict_tensor *t, const tdict_tensor *other,
                                   bool set, tdict_error *err);

#endif
