/* Layouts made of another layout: picked, stepped, swapped, added and repeated dimensions, and regrouped ones; and views
 * for the length of a call, which count nothing. Pure functions of their arguments; thread-safe. */
#ifndef TDICT_TENSOR_AFFINE_H
#define TDICT_TENSOR_AFFINE_H

#include "tensor/tensor.h"

/* What the first dimensions of a tensor become; those behind them stay. */
typedef struct tdict_axis {
  int32_t from;        /* the dimension that it was; -1: a new one */
  int64_t count, step; /* step 0: the same element again and again */
} tdict_axis;
typedef struct tdict_affine {
  int ndim_in, ndim_out;
  bool grows; /* there may be more elements than before */
  tdict_axis axes[TDICT_MAX_NDIM];
  int64_t starts[TDICT_MAX_NDIM]; /* in each dimension that came in */
} tdict_affine;

/* A layout and where it begins. */
typedef struct tdict_made {
  bool fresh; /* of new memory in C order: data and strides mean nothing */
  int32_t ndim;
  void *data;
  int64_t shape[TDICT_MAX_NDIM], strides[TDICT_MAX_NDIM];
} tdict_made;

/* All dimensions as they are. */
void tdict_affine_init(tdict_affine *a, int ndim, const int64_t *shape);
/* The view of `t`. TDICT_EINVAL more than TDICT_MAX_NDIM dimensions; TDICT_EOVERFLOW too many elements. */
tdict_status tdict_affine_apply(const tdict_affine *a, const tdict_tensor *t, const char *what, tdict_made *made,
                                tdict_error *err);
/* The strides that elements have in another grouping of dimensions with as many elements; false when no strides do it,
 * or there is no element. */
bool tdict_layout_regroup(int ndim, const int64_t *shape, const int64_t *strides, int new_ndim,
                          const int64_t *new_shape, int64_t *new_strides);

/* Fills in the count that is -1, so that the product is `total`. TDICT_EINVAL a count that cannot be; TDICT_ESHAPE another
 * number of elements. `what` begins the message. */
tdict_status tdict_layout_complete(const char *what, int ndim, int64_t *shape, int64_t total, tdict_error *err);

/* A tensor on the stack over another one's storage, neither counting nor counted. */
typedef struct tdict_temp {
  tdict_tensor tensor;
  int64_t dims[2 * TDICT_MAX_NDIM];
} tdict_temp;
tdict_tensor *tdict_temp_over(tdict_temp *temp, const tdict_tensor *over, const tdict_made *made);
/* The same elements in the description of a layout. */
void tdict_made_of(const tdict_tensor *t, tdict_made *made);
/* Takes element `at` of dimension `dim`, which goes. */
void tdict_made_select(tdict_made *made, int dim, int64_t at, size_t item_bytes);
/* Elements [at, at + count) of dimension `dim`. */
void tdict_made_narrow(tdict_made *made, int dim, int64_t at, int64_t count, size_t item_bytes);

#endif
