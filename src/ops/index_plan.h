/* An index read: what it does with the first dimensions of a tensor. Owned by one call. Thread rule: one thread. */
#ifndef TDICT_OPS_INDEX_PLAN_H
#define TDICT_OPS_INDEX_PLAN_H

#include "tdict/index.h"
#include "tensor/affine.h"

/* A list or mask: the dimensions [axis, axis + dims) of the affine result at `count` positions. */
typedef struct tdict_gather {
  int axis, dims;
  int64_t count, *positions; /* `dims` of them for each element */
} tdict_gather;
typedef struct tdict_index_plan {
  const char *what;
  tdict_affine affine;
  /* What all lists and masks take of the affine result becomes one dimension of `gather_count` elements, dimension
   * gather_at of the result. A list of one position is used again and again. */
  int num_gathers, gather_at;
  int64_t gather_count;
  tdict_gather gathers[TDICT_MAX_INDEX];
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
/* Waits for what the plan names of `t`. TDICT_EINVAL: some of it never came. */
tdict_status tdict_index_plan_check_came(const tdict_index_plan *plan, const tdict_tensor *t, tdict_error *err);
/* Copies between the elements of `t` that the plan names and `other`, which has their shape: to `other`, or with `set`
 * from it. Takes no memory. */
tdict_status tdict_index_plan_copy(const tdict_index_plan *plan, const tdict_tensor *t, const tdict_tensor *other,
                                   bool set, tdict_error *err);

#endif
