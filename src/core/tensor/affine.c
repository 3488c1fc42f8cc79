/* Computes the layouts of views, and makes temporary ones. Owns nothing. Thread rule: see affine.h. */
#include "core/tensor/affine.h"

#include <string.h>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/tensor/layout.h"

void tdict_affine_init(tdict_affine *a, int ndim, const int64_t *shape) {
  a->ndim_in = a->ndim_out = ndim;
  a->grows = false;
  for (int i = 0; i < ndim; i++) {
    a->axes[i] = (tdict_axis){i, shape[i], 1};
    a->starts[i] = 0;
  }
}

/* Returns the address advanced as a number: addresses can wrap, and device addresses are not dereferenced. */
static void *advance_address(const void *data, int64_t elements, size_t item) {
  return (void *)((uintptr_t)data + (uintptr_t)elements * item);
}

/* Multiplies with wrap-around: strides of a tensor without elements mean nothing, and can overflow. */
static int64_t wrapping_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

tdict_status tdict_affine_apply(const tdict_affine *a, const tdict_tensor *t, const char *what, tdict_made *made,
                                tdict_error *err) {
  const int num_trailing = t->ndim - a->ndim_in, ndim = a->ndim_out + num_trailing;
  if (ndim > TDICT_MAX_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: a tensor would have %d dimensions, and may have %d", what, ndim,
                      TDICT_MAX_NDIM);
  const int64_t *strides = tdict_tensor_dims_strides(t);
  bool has_any = t->numel != 0;
  /* Compute the dimensions that change, then copy the trailing dimensions. */
  made->fresh = false;
  made->ndim = ndim;
  for (int i = 0; i < a->ndim_out; i++) {
    const tdict_axis *axis = &a->axes[i];
    made->shape[i] = axis->count;
    made->strides[i] = axis->from < 0 ? 0 : wrapping_mul(strides[axis->from], axis->step);
    has_any = has_any && axis->count != 0;
  }
  for (int i = 0; i < num_trailing; i++) {
    made->shape[a->ndim_out + i] = t->dims[a->ndim_in + i];
    made->strides[a->ndim_out + i] = strides[a->ndim_in + i];
  }
  /* Move to the first element. A view without elements keeps the address of the tensor. */
  made->data = t->data;
  if (has_any) {
    int64_t offset = 0;
    for (int i = 0; i < a->ndim_in; i++) offset += wrapping_mul(a->starts[i], strides[i]);
    made->data = advance_address(t->data, offset, tdict_tensor_item_bytes(t));
  }
  if (!a->grows) return TDICT_OK;
  tdict_layout_size size;
  return tdict_layout_check(what, t->dtype, ndim, made->shape, &size, err);
}

bool tdict_layout_regroup(int ndim, const int64_t *shape, const int64_t *strides, int new_ndim,
                          const int64_t *new_shape, int64_t *new_strides) {
  int to = new_ndim - 1;
  for (int i = ndim - 1; i >= 0;) { /* Each pass handles one group of old dimensions without gaps between them. */
    int64_t step = strides[i], elements = shape[i], taken = 1;
    for (i--; i >= 0 && (shape[i] == 1 || strides[i] == wrapping_mul(elements, step)); i--) elements *= shape[i];
    if (elements == 0) return false;
    /* Take the adjacent new dimensions of size 1, too: a later group of one element may find none. */
    for (; to >= 0 && (taken < elements || new_shape[to] == 1); to--) {
      if (new_shape[to] == 0) return false;
      new_strides[to] = wrapping_mul(taken, step);
      taken *= new_shape[to];
    }
    if (taken != elements) return false;
  }
  for (; to >= 0 && new_shape[to] == 1; to--) new_strides[to] = 1;
  return to < 0;
}

tdict_tensor *tdict_temp_over(tdict_temp *temp, const tdict_tensor *over, const tdict_made *made) {
  tdict_tensor *t = &temp->tensor;
  atomic_init(&t->refs, 1);
  t->slab = NULL;
  t->storage = over->storage;
  t->data = made->data;
  t->dtype = over->dtype;
  t->ndim = made->ndim;
  t->numel = 1;
  t->dims = temp->dims;
  for (int i = 0; i < made->ndim; i++) {
    temp->dims[i] = made->shape[i];
    temp->dims[made->ndim + i] = made->strides[i];
    if (made->shape[i] == 0) t->numel = 0;
  }
  for (int i = 0; i < made->ndim && t->numel != 0; i++) t->numel *= made->shape[i];
  return t;
}

void tdict_made_of(const tdict_tensor *t, tdict_made *made) {
  size_t bytes = (size_t)t->ndim * sizeof *made->shape;
  made->fresh = false;
  made->ndim = t->ndim;
  made->data = t->data;
  memcpy(made->shape, t->dims, bytes);
  memcpy(made->strides, tdict_tensor_dims_strides(t), bytes);
}

tdict_status tdict_made_view(const tdict_tensor *tensor, const tdict_made *made, tdict_tensor **out, tdict_error *err) {
  const tdict_tensor_desc view = {
      .data = made->data, .dtype = tensor->dtype, .ndim = made->ndim, .shape = made->shape, .strides = made->strides};
  return tdict_tensor_over(tensor->storage, &view, out, err);
}

void tdict_made_select(tdict_made *made, int dim, int64_t at, size_t item_bytes) {
  TDICT_ASSERT(dim >= 0 && dim < made->ndim && at >= 0 && at < made->shape[dim]);
  made->data = advance_address(made->data, wrapping_mul(at, made->strides[dim]), item_bytes);
  made->ndim--;
  for (int i = dim; i < made->ndim; i++) {
    made->shape[i] = made->shape[i + 1];
    made->strides[i] = made->strides[i + 1];
  }
}

void tdict_made_narrow(tdict_made *made, int dim, int64_t at, int64_t count, size_t item_bytes) {
  if (count) made->data = advance_address(made->data, wrapping_mul(at, made->strides[dim]), item_bytes);
  made->shape[dim] = count;
}
