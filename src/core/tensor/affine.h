/* Computes the layouts of views, which select indices, and swap, add, repeat or regroup dimensions. Temporary views
 * live for one call and hold no references. Pure functions; thread-safe. */
#ifndef TDICT_CORE_TENSOR_AFFINE_H
#define TDICT_CORE_TENSOR_AFFINE_H

#include "core/tensor/tensor.h"

/* Describes one dimension of a view. */
typedef struct tdict_axis {
  int32_t from;        /* source dimension; -1: a new dimension */
  int64_t count, step; /* step 0 repeats one element */
} tdict_axis;
/* Describes a view by its leading dimensions. The trailing dimensions of the tensor do not change. */
typedef struct tdict_affine {
  int ndim_in, ndim_out; /* numbers of leading dimensions of the tensor and of the view */
  bool grows;            /* true: the view can have more elements than the tensor has */
  tdict_axis axes[TDICT_MAX_NDIM];
  int64_t starts[TDICT_MAX_NDIM]; /* first index in each source dimension */
} tdict_affine;

/* A layout, and the address of the first element. */
typedef struct tdict_made {
  bool fresh; /* true: the layout describes new memory in C order; `data` and `strides` are unused */
  int32_t ndim;
  void *data;
  int64_t shape[TDICT_MAX_NDIM], strides[TDICT_MAX_NDIM];
} tdict_made;

/* Initializes `a` to describe a view with the dimensions of the tensor. */
void tdict_affine_init(tdict_affine *a, int ndim, const int64_t *shape);
/* Computes the layout of a view of `t`. Returns TDICT_EINVAL for more than TDICT_MAX_NDIM dimensions, and if `a->grows`
 * TDICT_EOVERFLOW for too many elements. `what` begins the message. */
tdict_status tdict_affine_apply(const tdict_affine *a, const tdict_tensor *t, const char *what, tdict_made *made,
                                tdict_error *err);
/* Computes strides for a view with the sizes `new_shape` that has the same elements, in the same order, as a tensor
 * with `shape` and `strides`. Both shapes must have as many elements. Returns false if no such strides exist, or if
 * there are no elements. */
bool tdict_layout_regroup(int ndim, const int64_t *shape, const int64_t *strides, int new_ndim,
                          const int64_t *new_shape, int64_t *new_strides);

/* Replaces a size of -1 in `shape` so that the product of the sizes is `total`. Returns TDICT_EINVAL for a size below
 * -1, or for a second -1. Returns TDICT_ESHAPE if the product is not `total`. Also returns TDICT_ESHAPE if the size in
 * place of -1 cannot be computed, because no number or every number fits. The error message begins with `what`. */
tdict_status tdict_layout_complete(const char *what, int ndim, int64_t *shape, int64_t total, tdict_error *err);

/* A temporary tensor over another's storage, without a reference. Must not be retained or released. */
typedef struct tdict_temp {
  tdict_tensor tensor;
  int64_t dims[2 * TDICT_MAX_NDIM];
} tdict_temp;
/* Makes a temporary tensor of layout `made` over the storage of `over`. Valid while `temp` and the storage exist. */
tdict_tensor *tdict_temp_over(tdict_temp *temp, const tdict_tensor *over, const tdict_made *made);
void tdict_made_of(const tdict_tensor *t, tdict_made *made);
/* Creates a view of `tensor` with the layout `made`. The view retains the storage. Returns TDICT_ENOMEM. */
tdict_status tdict_made_view(const tdict_tensor *tensor, const tdict_made *made, tdict_tensor **out, tdict_error *err);
/* Selects index `at` of dimension `dim` and removes that dimension. */
void tdict_made_select(tdict_made *made, int dim, int64_t at, size_t item_bytes);
/* Keeps the indices [at, at + count) of dimension `dim`. */
void tdict_made_narrow(tdict_made *made, int dim, int64_t at, int64_t count, size_t item_bytes);

#endif
