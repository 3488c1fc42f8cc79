/* Creates views over the storage of a tensor, which they retain, and describes tensors. Thread rule: any thread that
 * may read the source tensor. */
#include "tdict/view.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/tensor/affine.h"
#include "core/tensor/layout.h"
#include "core/tensor/tensor.h"

static size_t item_bytes(const tdict_tensor *t) { return tdict_dtype_bytes(t->dtype); }

void tdict_tensor_get_desc(const tdict_tensor *tensor, tdict_tensor_desc *out) {
  const tdict_storage *s = tensor->storage;
  tdict_tensor_desc v = tdict_tensor_desc_default();
  const bool has_memory = tensor->data && !tdict_storage_is_unloaded(s);
  v.data = has_memory ? tensor->data : NULL;
  v.device = s->device;
  v.dtype = tensor->dtype;
  v.ndim = tensor->ndim;
  v.shape = tensor->dims;
  v.strides = tdict_tensor_dims_strides(tensor);
  v.storage_bytes = has_memory ? s->bytes - (size_t)((uintptr_t)tensor->data - (uintptr_t)s->data) : 0;
  if (s->flags & (TDICT_STORAGE_PINNED | TDICT_STORAGE_CLAIMED)) v.flags |= TDICT_DESC_PINNED;
  if (s->flags & TDICT_STORAGE_READ_ONLY) v.flags |= TDICT_DESC_READ_ONLY;
  (void)!tdict_options_write(out, &v, sizeof v, "view", NULL); /* A struct without a valid size is left unchanged. */
}

/* Checks that the layout is inside the storage. `offset` is in elements from the first element of `t`. */
static tdict_status check_reach(const tdict_tensor *t, const tdict_tensor_desc *v, int64_t offset, tdict_error *err) {
  const tdict_storage *s = t->storage;
  int64_t low, end, first;
  int64_t current = (int64_t)((uintptr_t)t->data - (uintptr_t)s->data);
  if (!tdict_layout_extent(v->ndim, v->shape, v->strides, item_bytes(t), &low, &end) ||
      !tdict_mul_i64(offset, (int64_t)item_bytes(t), &first) || !tdict_add_i64(first, current, &first) ||
      !tdict_add_i64(low, first, &low) || !tdict_add_i64(end, first, &end))
    return tdict_fail(err, TDICT_EOVERFLOW, "as_strided: offset and strides reach further than 63 bits of bytes");
  if (low < 0 || (uint64_t)end > s->bytes)
    return tdict_fail(err, TDICT_ESHAPE, "as_strided: bytes %lld to %lld of a storage of %zu bytes", (long long)low,
                      (long long)end, s->bytes);
  return TDICT_OK;
}

tdict_status tdict_tensor_as_strided(const tdict_tensor *tensor, const tdict_tensor_desc *layout, int64_t offset,
                                     tdict_tensor **out, tdict_error *err) {
  tdict_tensor_desc v = tdict_tensor_desc_default();
  int64_t c_order[TDICT_MAX_NDIM];
  tdict_layout_size size;
  if (!tensor || !layout || !out)
    return tdict_fail_null(err, "as_strided", !tensor ? "tensor" : !layout ? "layout" : "out");
  tdict_status status = tdict_options_read(&v, sizeof v, layout, "tdict_tensor_desc", err);
  if (status == TDICT_OK) status = tdict_layout_check("as_strided", tensor->dtype, v.ndim, v.shape, &size, err);
  if (status != TDICT_OK) return status;
  if (!v.strides) {
    tdict_layout_strides(v.ndim, v.shape, c_order);
    v.strides = c_order;
  }
  if (size.numel != 0) status = check_reach(tensor, &v, offset, err);
  if (status != TDICT_OK) return status;
  v.data = (void *)((uintptr_t)tensor->data + (size.numel != 0 ? (uintptr_t)offset * item_bytes(tensor) : 0));
  v.dtype = tensor->dtype;
  return tdict_tensor_over(tensor->storage, &v, out, err);
}

static tdict_status check_range(const tdict_tensor *t, const tdict_tensor_range *r, tdict_error *err) {
  if (r->dim < 0 || r->dim >= t->ndim)
    return tdict_fail(err, TDICT_EINVAL, "slice: dim is %d, the tensor has %d dimensions", (int)r->dim, (int)t->ndim);
  if (r->step == 0) return tdict_fail(err, TDICT_EINVAL, "slice: step is 0");
  if (r->count < 0) return tdict_fail(err, TDICT_EINVAL, "slice: count is %lld", (long long)r->count);
  if (r->count == 0) return TDICT_OK;
  int64_t size = t->dims[r->dim], last;
  if (!tdict_mul_i64(r->count - 1, r->step, &last) || !tdict_add_i64(last, r->start, &last) || r->start < 0 ||
      r->start >= size || last < 0 || last >= size)
    return tdict_fail(err, TDICT_EINVAL, "slice: %lld elements from %lld by %lld leave dimension %d, which has %lld",
                      (long long)r->count, (long long)r->start, (long long)r->step, (int)r->dim, (long long)size);
  return TDICT_OK;
}

tdict_status tdict_tensor_slice(const tdict_tensor *tensor, const tdict_tensor_range *range, tdict_tensor **out,
                                tdict_error *err) {
  if (!tensor || !range || !out) return tdict_fail_null(err, "slice", !tensor ? "tensor" : !range ? "range" : "out");
  tdict_status status = check_range(tensor, range, err);
  if (status != TDICT_OK) return status;
  tdict_affine a;
  tdict_made made;
  tdict_affine_init(&a, tensor->ndim, tensor->dims);
  a.axes[range->dim] = (tdict_axis){range->dim, range->count, range->step};
  a.starts[range->dim] = range->start;
  status = tdict_affine_apply(&a, tensor, "slice", &made, err);
  return status == TDICT_OK ? tdict_made_view(tensor, &made, out, err) : status;
}

tdict_status tdict_tensor_permute(const tdict_tensor *tensor, int ndim, const int *order, tdict_tensor **out,
                                  tdict_error *err) {
  if (!tensor || !out) return tdict_fail_null(err, "permute", tensor ? "out" : "tensor");
  if (!order && tensor->ndim > 0) return tdict_fail_null(err, "permute", "order");
  if (ndim != tensor->ndim)
    return tdict_fail(err, TDICT_EINVAL, "permute: order has %d dimensions, the tensor has %d", ndim,
                      (int)tensor->ndim);
  tdict_affine a;
  tdict_made made;
  tdict_affine_init(&a, ndim, tensor->dims);
  uint32_t seen = 0;
  for (int i = 0; i < ndim; i++) {
    if (order[i] < 0 || order[i] >= ndim || (seen >> order[i] & 1))
      return tdict_fail(err, TDICT_EINVAL, "permute: order[%d] is %d; wanted each of 0 to %d once", i, order[i],
                        ndim - 1);
    seen |= (uint32_t)1 << order[i];
    a.axes[i] = (tdict_axis){order[i], tensor->dims[order[i]], 1};
  }
  tdict_status status = tdict_affine_apply(&a, tensor, "permute", &made, err);
  return status == TDICT_OK ? tdict_made_view(tensor, &made, out, err) : status;
}
