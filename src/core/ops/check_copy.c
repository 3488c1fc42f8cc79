/* Checks whether a copy between tensors is possible. Keeps no state. Thread rule: see check_copy.h. */
#include "core/ops/check_copy.h"

#include "core/base/error.h"
#include "core/tensor/layout.h"

tdict_status tdict_check_not_lost(const char *what, const tdict_tensor *src, tdict_error *err) {
  tdict_tensor_await(src, false);
  if (!tdict_tensor_is_lost(src)) return TDICT_OK;
  return tdict_tensor_refuse_lost(what, "the source's bytes", src, err);
}

tdict_status tdict_check_copy(const char *what, const tdict_tensor *dst, const tdict_tensor *src, tdict_error *err) {
  tdict_status status = tdict_tensor_check_copy(what, dst, src, err);
  return status == TDICT_OK ? tdict_check_not_lost(what, src, err) : status;
}

tdict_status tdict_check_shape(const char *what, const tdict_tensor *t, int ndim, const int64_t *shape,
                               tdict_error *err) {
  if (tdict_shapes_equal(t->ndim, t->dims, ndim, shape)) return TDICT_OK;
  return tdict_fail(err, TDICT_ESHAPE, "%s: the tensor has shape %s, wanted %s", what,
                    TDICT_SHAPE_TEXT(t->ndim, t->dims), TDICT_SHAPE_TEXT(ndim, shape));
}

tdict_status tdict_check_batch_size(const char *what, const tdict_tree *dst, int ndim, const int64_t *batch_size,
                                    tdict_error *err) {
  if (tdict_shapes_equal(dst->batch_ndim, dst->batch_size, ndim, batch_size)) return TDICT_OK;
  return tdict_fail(err, TDICT_ESHAPE, "%s: dst has batch size %s, wanted %s", what,
                    TDICT_SHAPE_TEXT(dst->batch_ndim, dst->batch_size), TDICT_SHAPE_TEXT(ndim, batch_size));
}

bool tdict_repeat_leading(const tdict_tensor *src, int ndim, const int64_t *shape, tdict_made *made) {
  int num_leading = ndim - src->ndim;
  if (num_leading < 0) return false;
  made->fresh = false;
  made->ndim = ndim;
  made->data = src->data;
  for (int i = 0; i < ndim; i++) {
    made->shape[i] = shape[i];
    made->strides[i] = i < num_leading ? 0 : tdict_tensor_dims_strides(src)[i - num_leading];
    if (i >= num_leading && src->dims[i - num_leading] != shape[i]) return false;
  }
  return true;
}
