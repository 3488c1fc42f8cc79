/* Reshapes tensors, with the same elements in C order. A view retains the storage, not the source. Thread rule: any
 * thread that may read the source tensor. */
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/tensor/affine.h"
#include "core/tensor/layout.h"
#include "tdict/view.h"

tdict_status tdict_layout_complete(const char *what, int ndim, int64_t *shape, int64_t total, tdict_error *err) {
  int inferred = -1;
  int64_t product = 1;
  bool fits = true;
  for (int i = 0; i < ndim; i++) {
    if (shape[i] < -1 || (shape[i] == -1 && inferred >= 0))
      return tdict_fail(err, TDICT_EINVAL, "%s: count %d of the shape is %lld%s", what, i, (long long)shape[i],
                        shape[i] == -1 ? ", and an earlier count is -1" : ", wanted -1 or more");
    if (shape[i] == -1)
      inferred = i;
    else if (shape[i] == 0 || product == 0) /* the shape has no elements, however large its other counts are */
      product = 0;
    else
      fits = fits && tdict_mul_i64(product, shape[i], &product);
  }
  /* Compute the count that was given as -1. */
  if (inferred >= 0 && fits && product != 0 && total % product == 0) {
    shape[inferred] = total / product;
    product = total;
  } else if (inferred >= 0) {
    fits = false;
  }
  if (fits && product == total) return TDICT_OK;
  return tdict_fail(err, TDICT_ESHAPE, "%s: %lld elements in the shape %s", what, (long long)total,
                    TDICT_SHAPE_TEXT(ndim, shape));
}

static tdict_status complete_shape(const tdict_tensor *t, int ndim, const int64_t *shape, int64_t *wanted,
                                   tdict_error *err) {
  if (ndim < 0 || ndim > TDICT_MAX_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "reshape: %d dimensions, wanted 0 to %d", ndim, TDICT_MAX_NDIM);
  if (ndim && !shape) return tdict_fail(err, TDICT_EINVAL, "reshape: shape is NULL, wanted %d counts", ndim);
  for (int i = 0; i < ndim; i++) wanted[i] = shape[i];
  return tdict_layout_complete("reshape", ndim, wanted, t->numel, err);
}

/* Copies the elements of `t` in C order to a new tensor with the new shape. */
static tdict_status reshape_copy(const tdict_tensor *t, int ndim, const int64_t *shape, tdict_tensor **out,
                                 tdict_error *err) {
  tdict_tensor *copy;
  tdict_status status = tdict_tensor_clone(t, t->storage->memory, &copy, err);
  if (status != TDICT_OK) return status;
  const tdict_tensor_desc view = {.data = copy->data, .dtype = t->dtype, .ndim = ndim, .shape = shape};
  status = tdict_tensor_over(copy->storage, &view, out, err);
  tdict_tensor_release(copy);
  return status;
}

tdict_status tdict_tensor_reshape(const tdict_tensor *tensor, int ndim, const int64_t *shape, tdict_tensor **out,
                                  tdict_error *err) {
  int64_t wanted[TDICT_MAX_NDIM], strides[TDICT_MAX_NDIM];
  if (!tensor || !out) return tdict_fail_null(err, "reshape", tensor ? "out" : "tensor");
  tdict_status status = complete_shape(tensor, ndim, shape, wanted, err);
  if (status != TDICT_OK) return status;
  tdict_layout_size size; /* If one count is 0, other counts can still be too large for any tensor. */
  status = tdict_layout_check("reshape", tensor->dtype, ndim, wanted, &size, err);
  if (status != TDICT_OK) return status;
  if (tensor->numel == 0)
    tdict_layout_strides(ndim, wanted, strides);
  else if (!tdict_layout_regroup(tensor->ndim, tensor->dims, tdict_tensor_dims_strides(tensor), ndim, wanted, strides))
    return reshape_copy(tensor, ndim, wanted, out, err);
  const tdict_tensor_desc view = {
      .data = tensor->data, .dtype = tensor->dtype, .ndim = ndim, .shape = wanted, .strides = strides};
  return tdict_tensor_over(tensor->storage, &view, out, err);
}
