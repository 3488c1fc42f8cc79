/* Creates tensors and slabs, counts their references, returns their properties, and records lost bytes. A single tensor
 * retains its storage, and consecutive tensors of a slab over one storage share a reference. Thread rule: as in
 * tdict/tensor.h. */
#include "core/tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/assert.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/float_env.h"
#include "core/base/hash.h"
#include "core/base/options.h"
#include "core/kernel/work.h"
#include "core/tensor/convert.h"
#include "core/tensor/layout.h"
#include "tdict/view.h"

/* Describes the elements, but not `refs`, `slab` or `storage`. `dims` has room for counts and strides. */
static void init_record(tdict_tensor *t, const tdict_tensor_desc *view, int64_t *dims) {
  int ndim = view->ndim;
  t->data = view->data;
  t->dtype = view->dtype;
  t->ndim = view->ndim;
  t->numel = 1;
  t->dims = dims;
  for (int i = 0; i < ndim; i++) {
    dims[i] = view->shape[i];
    if (view->strides) dims[ndim + i] = view->strides[i];
    if (dims[i] == 0) t->numel = 0;
  }
  for (int i = 0; i < ndim && t->numel != 0; i++) t->numel *= dims[i];
  if (!view->strides) tdict_layout_strides(ndim, dims, dims + ndim);
}

tdict_status tdict_tensor_over(tdict_storage *storage, const tdict_tensor_desc *view, tdict_tensor **out,
                               tdict_error *err) {
  tdict_tensor *t = malloc(sizeof *t + 2 * (size_t)view->ndim * sizeof(int64_t));
  if (!t) {
    tdict_fail_memory(err, "tensor", NULL, "its record");
    return TDICT_ENOMEM;
  }
  atomic_init(&t->refs, 1);
  t->slab = NULL;
  t->storage = tdict_storage_retain(storage);
  init_record(t, view, (int64_t *)(t + 1));
  *out = t;
  return TDICT_OK;
}

tdict_status tdict_tensor_unloaded(tdict_storage *storage, const tdict_tensor_desc *layout, size_t offset,
                                   tdict_tensor **out, tdict_error *err) {
  tdict_layout_size size;
  TDICT_ASSERT(tdict_storage_is_unloaded(storage));
  tdict_status status = tdict_layout_check("tensor", layout->dtype, layout->ndim, layout->shape, &size, err);
  if (status != TDICT_OK) return status;
  if (offset > storage->bytes || size.bytes > storage->bytes - offset)
    return tdict_fail(err, TDICT_ESHAPE, "tensor: %zu bytes at offset %zu of a storage of %zu bytes", size.bytes,
                      offset, storage->bytes);
  const tdict_tensor_desc view = {.data = (void *)((uintptr_t)storage->data + offset),
                                  .dtype = layout->dtype,
                                  .ndim = layout->ndim,
                                  .shape = layout->shape};
  return tdict_tensor_over(storage, &view, out, err);
}

tdict_status tdict_tensor_choose_memory(const char *what, const tdict_tensor *like, tdict_memory *given,
                                        tdict_memory **out, tdict_error *err) {
  const tdict_storage *s = like->storage;
  *out = given;
  if (given || s->device.type == TDICT_DEVICE_CPU) return TDICT_OK;
  *out = s->memory;
  if (s->memory) return TDICT_OK;
  return tdict_fail(err, TDICT_EWRONGDEVICE,
                    "%s: the device memory belongs to the program, so no memory is known for the result", what);
}

/* Returns the description of a new tensor in C order that has no data address yet. */
static tdict_tensor_desc make_description(tdict_dtype dtype, int ndim, const int64_t *shape) {
  return (tdict_tensor_desc){.dtype = dtype, .ndim = ndim, .shape = shape};
}

static tdict_status create_tensor(tdict_tensor_desc view, tdict_memory *memory, bool zero, tdict_tensor **out,
                                  tdict_error *err) {
  tdict_layout_size size;
  tdict_storage *storage;
  if (!out) return tdict_fail_null(err, "tensor", "out");
  tdict_status status = tdict_layout_check("tensor", view.dtype, view.ndim, view.shape, &size, err);
  if (status == TDICT_OK) status = tdict_storage_create(memory, size.bytes, zero, &storage, err);
  if (status != TDICT_OK) return status;
  view.data = storage->data;
  status = tdict_tensor_over(storage, &view, out, err);
  tdict_storage_release(storage);
  return status;
}

tdict_status tdict_tensor_empty(tdict_dtype dtype, int ndim, const int64_t *shape, tdict_memory *memory,
                                tdict_tensor **out, tdict_error *err) {
  return create_tensor(make_description(dtype, ndim, shape), memory, false, out, err);
}

tdict_status tdict_tensor_zeros(tdict_dtype dtype, int ndim, const int64_t *shape, tdict_memory *memory,
                                tdict_tensor **out, tdict_error *err) {
  return create_tensor(make_description(dtype, ndim, shape), memory, true, out, err);
}

tdict_status tdict_tensor_full(tdict_dtype dtype, int ndim, const int64_t *shape, const void *element,
                               tdict_tensor **out, tdict_error *err) {
  if (!element) return tdict_fail_null(err, "tensor", "element");
  tdict_status status = create_tensor(make_description(dtype, ndim, shape), NULL, false, out, err);
  if (status != TDICT_OK || (*out)->numel == 0) return status;
  tdict_rows_fill((*out)->data, element, tdict_dtype_bytes(dtype), tdict_tensor_nbytes(*out));
  return TDICT_OK;
}

tdict_status tdict_tensor_from_array(tdict_dtype dtype, int ndim, const int64_t *shape, const void *data,
                                     tdict_tensor **out, tdict_error *err) {
  tdict_tensor *t;
  if (!out) return tdict_fail_null(err, "tensor", "out");
  tdict_status status = create_tensor(make_description(dtype, ndim, shape), NULL, false, &t, err);
  if (status != TDICT_OK) return status;
  if (t->numel != 0 && !data) {
    tdict_tensor_release(t);
    return tdict_fail(err, TDICT_EINVAL, "tensor: data is NULL and there are elements");
  }
  if (t->numel != 0) memcpy(t->data, data, tdict_tensor_nbytes(t));
  *out = t;
  return TDICT_OK;
}

TDICT_FLOAT_ENV_BODY static tdict_status write_arange(tdict_tensor *t, double start, double step, tdict_error *err) {
  const size_t item = tdict_dtype_bytes(t->dtype);
  for (int64_t i = 0; i < t->numel; i++) {
    double value = start + (double)i * step;
    if (tdict_convert_simple(t->dtype, (char *)t->data + (size_t)i * item, TDICT_F64, &value, 1) != 1)
      return tdict_fail(err, TDICT_EOVERFLOW, "tensor: arange element %lld is %g, which %s cannot hold", (long long)i,
                        value, tdict_dtype_name(t->dtype));
  }
  return TDICT_OK;
}

tdict_status tdict_tensor_arange(tdict_dtype dtype, double start, double step, int64_t count, tdict_tensor **out,
                                 tdict_error *err) {
  tdict_tensor *t = NULL;
  if (!out) return tdict_fail_null(err, "tensor", "out");
  if (tdict_dtype_bytes(dtype) != 0 && (dtype == TDICT_BOOL || !tdict_kernel_converts(TDICT_F64, dtype)))
    return tdict_fail(err, TDICT_ENOTSUP, "tensor: arange of %s; wanted one integer or float", TDICT_DTYPE_TEXT(dtype));
  tdict_status status = create_tensor(make_description(dtype, 1, &count), NULL, false, &t, err);
  if (status != TDICT_OK) return status;
  const tdict_float_env saved = tdict_float_env_enter();
  status = write_arange(t, start, step, err);
  tdict_float_env_leave(&saved);
  return TDICT_HAND_OVER(status, t, out, tdict_tensor_release);
}

/* The range of bytes that a description covers: the lowest address and the number of bytes. */
typedef struct storage_range {
  void *data;
  size_t bytes;
} storage_range;

static tdict_status check_view_device(const tdict_tensor_desc *v, tdict_error *err) {
  if (v->flags & ~(TDICT_DESC_PINNED | TDICT_DESC_READ_ONLY))
    return tdict_fail(err, TDICT_EINVAL, "tensor: view flags are 0x%x, wanted TDICT_DESC_PINNED and _READ_ONLY only",
                      (unsigned)v->flags);
  if (v->device.type <= TDICT_DEVICE_AUTO || v->device.index < 0)
    return tdict_fail(err, TDICT_EINVAL, "tensor: view's device has type %d and index %d, which cannot hold memory",
                      (int)v->device.type, (int)v->device.index);
  if (v->device.type == TDICT_DEVICE_CPU && v->device.index != 0)
    return tdict_fail(err, TDICT_EINVAL, "tensor: view's device is cpu with index %d, wanted 0", (int)v->device.index);
  return TDICT_OK;
}

static tdict_status find_storage_range(const tdict_tensor_desc *v, size_t item, bool has_any, storage_range *out,
                                       tdict_error *err) {
  int64_t low = 0, end = 0;
  if (has_any && !v->data) return tdict_fail(err, TDICT_EINVAL, "tensor: view's data is NULL and there are elements");
  if (v->strides && !tdict_layout_extent(v->ndim, v->shape, v->strides, item, &low, &end))
    return tdict_fail(err, TDICT_EOVERFLOW, "tensor: view's strides reach further than 63 bits of bytes");
  /* Check the range against storage_bytes and the address space. */
  if (v->storage_bytes && low < 0)
    return tdict_fail(err, TDICT_ESHAPE,
                      "tensor: view's strides reach %lld bytes below data, which storage_bytes "
                      "does not cover",
                      -(long long)low);
  if (v->storage_bytes && (uint64_t)end > v->storage_bytes)
    return tdict_fail(err, TDICT_ESHAPE, "tensor: view's strides reach byte %lld, storage_bytes is %zu", (long long)end,
                      v->storage_bytes);
  uintptr_t first = (uintptr_t)v->data, last;
  size_t above = v->storage_bytes ? v->storage_bytes : (size_t)end;
  if (first < (uintptr_t)-low || __builtin_add_overflow(first, (uintptr_t)above, &last))
    return tdict_fail(err, TDICT_EOVERFLOW, "tensor: view reaches outside of the address space");
  out->data = v->data ? (void *)(first + (uintptr_t)low) : NULL;
  out->bytes = v->data ? above + (size_t)-low : 0;
  return TDICT_OK;
}

/* Reads a caller's description and finds its bytes. Without strides, those of C order go to c_order. */
static tdict_status read_view(const tdict_tensor_desc *view, tdict_tensor_desc *v, int64_t *c_order,
                              storage_range *whole, tdict_error *err) {
  tdict_layout_size size;
  *v = tdict_tensor_desc_default();
  tdict_status status = tdict_options_read(v, sizeof *v, view, "tdict_tensor_desc", err);
  if (status == TDICT_OK) status = check_view_device(v, err);
  if (status == TDICT_OK) status = tdict_layout_check("tensor", v->dtype, v->ndim, v->shape, &size, err);
  if (status != TDICT_OK) return status;
  if (!v->strides) {
    tdict_layout_strides(v->ndim, v->shape, c_order);
    v->strides = c_order;
  }
  return find_storage_range(v, tdict_dtype_bytes(v->dtype), size.numel != 0, whole, err);
}

tdict_status tdict_tensor_from_data(const tdict_tensor_desc *view, void (*release)(void *user), void *user,
                                    tdict_tensor **out, tdict_error *err) {
  tdict_tensor_desc v;
  int64_t c_order[TDICT_MAX_NDIM];
  storage_range whole = {NULL, 0};
  tdict_storage *storage;
  if (!view || !out) return tdict_fail_null(err, "tensor", view ? "out" : "view");
  tdict_status status = read_view(view, &v, c_order, &whole, err);
  if (status != TDICT_OK) return status;
  uint32_t flags = 0;
  if (v.flags & TDICT_DESC_PINNED) flags |= TDICT_STORAGE_CLAIMED;
  if (v.flags & TDICT_DESC_READ_ONLY) flags |= TDICT_STORAGE_READ_ONLY;
  status = tdict_storage_wrap(whole.data, whole.bytes, v.device, flags, &storage, err);
  if (status != TDICT_OK) return status;
  status = tdict_tensor_over(storage, &v, out, err);
  /* Set `release` only on success: if tdict_tensor_from_data() fails, the caller must still free the memory. */
  if (status == TDICT_OK) {
    storage->release = release;
    storage->user = user;
  }
  tdict_storage_release(storage);
  return status;
}

tdict_tensor *tdict_tensor_retain(const tdict_tensor *tensor) {
  tdict_tensor *counted = (tdict_tensor *)tensor; /* The reference count may change although the tensor is const. */
  atomic_fetch_add_explicit(counted->slab ? &counted->slab->refs : &counted->refs, 1, memory_order_relaxed);
  return counted;
}

void tdict_tensor_release(tdict_tensor *tensor) {
  if (!tensor) return;
  if (tensor->slab) {
    tdict_slab_release(tensor->slab, 1);
    return;
  }
  if (atomic_fetch_sub_explicit(&tensor->refs, 1, memory_order_acq_rel) != 1) return;
  tdict_storage_release(tensor->storage);
  free(tensor);
}

tdict_status tdict_slab_create(size_t num_tensors, size_t num_dims, tdict_storage *storage, tdict_slab **out,
                               tdict_error *err) {
  size_t tensors, dims, bytes;
  if (!tdict_mul_size(num_tensors, sizeof(tdict_tensor), &tensors) ||
      !tdict_mul_size(num_dims, 2 * sizeof(int64_t), &dims) || !tdict_add_size(tensors, dims, &bytes) ||
      !tdict_add_size(bytes, sizeof(tdict_slab), &bytes))
    return tdict_fail(err, TDICT_EOVERFLOW, "slab: %zu tensors with %zu dimensions do not fit", num_tensors, num_dims);
  tdict_slab *slab = malloc(bytes);
  if (!slab) return tdict_fail_memory(err, "slab", NULL, "%zu tensors", num_tensors);
  atomic_init(&slab->refs, 1);
  slab->storage = storage ? tdict_storage_retain(storage) : NULL;
  slab->num_tensors = 0;
  slab->cap_tensors = num_tensors;
  slab->next_dims = (int64_t *)(slab->tensors + num_tensors);
  *out = slab;
  return TDICT_OK;
}

/* Counts one more reference. No other thread uses the slab yet, so no atomic addition is needed. */
static void count_new(tdict_slab *slab) {
  atomic_store_explicit(&slab->refs, atomic_load_explicit(&slab->refs, memory_order_relaxed) + 1, memory_order_relaxed);
}

tdict_tensor *tdict_slab_add(tdict_slab *slab, tdict_dtype dtype, int ndim, const int64_t *shape, size_t offset) {
  TDICT_ASSERT(slab->num_tensors < slab->cap_tensors);
  tdict_tensor *t = &slab->tensors[slab->num_tensors++];
  atomic_init(&t->refs, 0);
  count_new(slab);
  t->slab = slab;
  t->storage = slab->storage;
  tdict_tensor_desc view = make_description(dtype, ndim, shape);
  if (t->storage->data) view.data = (void *)((uintptr_t)t->storage->data + offset);
  init_record(t, &view, slab->next_dims);
  slab->next_dims += 2 * (size_t)ndim;
  return t;
}

int64_t *tdict_slab_write_dims(int64_t *dims, const tdict_tensor *like) {
  const int ndim = like->ndim;
  for (int i = 0; i < ndim; i++) dims[i] = like->dims[i];
  tdict_layout_strides(ndim, dims, dims + ndim);
  return dims + 2 * (size_t)ndim;
}

void tdict_slab_count(tdict_slab *slab, size_t more) {
  slab->num_tensors += more;
  TDICT_ASSERT(slab->num_tensors <= slab->cap_tensors);
  atomic_fetch_add_explicit(&slab->refs, (int64_t)more, memory_order_relaxed);
}

/* Adds a tensor without data and layout to a slab of views. */
static tdict_tensor *add_over(tdict_slab *slab, tdict_storage *storage) {
  TDICT_ASSERT(slab->num_tensors < slab->cap_tensors);
  tdict_tensor *t = &slab->tensors[slab->num_tensors++];
  atomic_init(&t->refs, 0);
  count_new(slab);
  t->slab = slab;
  t->storage = t > slab->tensors && t[-1].storage == storage ? storage : tdict_storage_retain(storage);
  return t;
}

tdict_tensor *tdict_slab_add_view(tdict_slab *slab, tdict_storage *storage, const tdict_tensor_desc *view) {
  tdict_tensor *t = add_over(slab, storage);
  init_record(t, view, slab->next_dims);
  slab->next_dims += 2 * (size_t)view->ndim;
  return t;
}

tdict_tensor *tdict_slab_add_repeated(tdict_slab *slab, const tdict_tensor *like, tdict_storage *storage, void *data) {
  return tdict_tensor_be_like(add_over(slab, storage), like, data);
}

void tdict_slab_release(tdict_slab *slab, int64_t count) {
  if (atomic_fetch_sub_explicit(&slab->refs, count, memory_order_acq_rel) != count) return;
  tdict_storage_release(slab->storage);
  for (size_t i = 0; !slab->storage && i < slab->num_tensors; i++)
    if (i == 0 || slab->tensors[i].storage != slab->tensors[i - 1].storage)
      tdict_storage_release(slab->tensors[i].storage);
  free(slab);
}

tdict_dtype tdict_tensor_dtype(const tdict_tensor *tensor) { return tensor->dtype; }
tdict_device tdict_tensor_device(const tdict_tensor *tensor) { return tensor->storage->device; }
int tdict_tensor_ndim(const tdict_tensor *tensor) { return tensor->ndim; }
const int64_t *tdict_tensor_shape(const tdict_tensor *tensor) { return tensor->dims; }
const int64_t *tdict_tensor_strides(const tdict_tensor *tensor) { return tdict_tensor_dims_strides(tensor); }
int64_t tdict_tensor_numel(const tdict_tensor *tensor) { return tensor->numel; }
size_t tdict_tensor_bytes(const tdict_tensor *tensor) { return tdict_tensor_nbytes(tensor); }

bool tdict_tensor_is_contiguous(const tdict_tensor *tensor) {
  return tdict_layout_is_contiguous(tensor->ndim, tensor->dims, tdict_tensor_dims_strides(tensor));
}

bool tdict_tensor_is_pinned(const tdict_tensor *tensor) {
  return tdict_is_on_host(tensor) && (tensor->storage->flags & (TDICT_STORAGE_PINNED | TDICT_STORAGE_CLAIMED)) != 0;
}

bool tdict_tensor_shares_storage(const tdict_tensor *a, const tdict_tensor *b) { return a->storage == b->storage; }

/* With more rows than this, tdict_tensor_regain_lost() leaves bytes lost: each row could become an extent. */
enum { MAX_REGAINED_ROWS = 1 << 20 };

/* A dimension of a tensor: the number of elements, and the distance between adjacent elements. */
typedef struct dim_step {
  int64_t count;
  size_t step; /* in bytes */
} dim_step;

/* Writes the dimensions with more than one element and a step other than 0, smallest step first, and returns their
 * number. The sign of a step does not count: steps in both directions cover the same bytes. */
static int sort_dims(const tdict_tensor *t, size_t item, dim_step *out) {
  const int64_t *strides = tdict_tensor_dims_strides(t);
  int count = 0;
  for (int d = 0; d < t->ndim; d++) {
    if (t->dims[d] == 1 || strides[d] == 0) continue;
    const uint64_t step = strides[d] < 0 ? 0 - (uint64_t)strides[d] : (uint64_t)strides[d];
    int at = count++;
    for (; at > 0 && out[at - 1].step > step * item; at--) out[at] = out[at - 1];
    out[at] = (dim_step){t->dims[d], step * item};
  }
  return count;
}

tdict_extent tdict_tensor_extent(const tdict_tensor *t) {
  const size_t item = tdict_dtype_bytes(t->dtype), bytes = tdict_tensor_nbytes(t);
  const size_t begin = (size_t)((uintptr_t)t->data - (uintptr_t)t->storage->data);
  if (bytes == 0) return tdict_extent_all(0, 0);
  if (tdict_tensor_is_contiguous(t)) return tdict_extent_all(begin, begin + bytes);
  dim_step dims[TDICT_MAX_NDIM];
  int64_t low = 0, end = 0;
  /* Cannot fail: the layout was checked when the tensor was created. */
  (void)tdict_layout_extent(t->ndim, t->dims, tdict_tensor_dims_strides(t), item, &low, &end);
  tdict_extent e = tdict_extent_all(begin + (size_t)low, begin + (size_t)end);
  const int count = sort_dims(t, item, dims);
  int next = 0;
  /* Merge the innermost dimensions into one row, as long as these dimensions leave no gap. */
  for (e.width = item; next < count && dims[next].step <= e.width; next++)
    e.width += (size_t)(dims[next].count - 1) * dims[next].step;
  if (next == count) return tdict_extent_all(e.begin, e.end);
  e.layout = tdict_mix_hash(tdict_mix_hash(0x243f6a8885a308d3u, e.begin), e.width);
  /* The distance of all rows if it is the same, else 0: the rows are unknown. */
  e.pitch = dims[next].step;
  size_t all = e.pitch;
  for (int i = next; i < count; i++) {
    if (dims[i].step != all) e.pitch = 0;
    all = dims[i].step * (size_t)dims[i].count;
    e.layout = tdict_mix_hash(tdict_mix_hash(e.layout, dims[i].step), (uint64_t)dims[i].count);
  }
  if (e.layout == 0) e.layout = 1;
  return e;
}

/* Not inlined, because tdict_tensor_const_data() would need a larger stack frame for a rare case. */
__attribute__((noinline)) bool tdict_tensor_check_lost(const tdict_tensor *t) {
  const tdict_extent e = tdict_tensor_extent(t);
  return tdict_storage_is_lost(t->storage, &e);
}

tdict_status tdict_tensor_refuse_lost(const char *what, const char *bytes, const tdict_tensor *t, tdict_error *err) {
  if (tdict_storage_is_unloaded(t->storage))
    return tdict_fail(err, TDICT_EINVAL, "%s: the elements are in a file; load the tree first", what);
  return tdict_fail(err, TDICT_EINVAL, "%s: %s are lost, because a transfer into them failed", what, bytes);
}

void tdict_tensor_lose(const tdict_tensor *t) {
  const tdict_extent e = tdict_tensor_extent(t);
  tdict_storage_lose(t->storage, &e);
}

static tdict_status regain_rows(void *user, const tdict_rect *rect, tdict_error *err) {
  tdict_storage *s = user;
  (void)err;
  for (size_t i = 0; i < rect->height; i++) {
    const size_t begin = (uintptr_t)rect->dst + i * (uintptr_t)rect->dst_pitch - (uintptr_t)s->data;
    const tdict_extent row = tdict_extent_all(begin, begin + rect->width);
    tdict_storage_regain(s, &row);
  }
  return TDICT_OK;
}

/* Rows that still count as lost without the extent are removed one by one, up to MAX_REGAINED_ROWS. */
void tdict_tensor_regain_lost(const tdict_tensor *t) {
  const tdict_extent e = tdict_tensor_extent(t);
  tdict_storage_regain(t->storage, &e);
  if (!e.layout || !tdict_storage_is_lost(t->storage, &e)) return;
  const int64_t *strides = tdict_tensor_dims_strides(t);
  const size_t bytes = tdict_tensor_nbytes(t);
  tdict_pair pair;
  tdict_pair_init(&pair, t->ndim, t->dims, strides, strides, tdict_dtype_bytes(t->dtype));
  if (bytes / pair.run_bytes > MAX_REGAINED_ROWS) return;
  const tdict_pair_span whole = {t->data, t->data, 0, bytes};
  (void)!tdict_pair_walk(&pair, &whole, regain_rows, t->storage, NULL);
}

/* Waits for transfers in host memory. On a device the streams, which the program uses, order the work. */
static void wait_for_host(const tdict_tensor *t, bool to_write) {
  if (tdict_is_on_host(t)) tdict_tensor_await(t, to_write);
}

void *tdict_tensor_data(tdict_tensor *tensor) {
  if (tensor->storage->flags & TDICT_STORAGE_READ_ONLY || !tensor->data) return NULL;
  wait_for_host(tensor, true);
  return tdict_storage_is_unloaded(tensor->storage) || tdict_tensor_is_lost(tensor) ? NULL : tensor->data;
}

const void *tdict_tensor_const_data(const tdict_tensor *tensor) {
  if (!tensor->data) return NULL;
  wait_for_host(tensor, false);
  if (!tdict_storage_has_lost(tensor->storage)) return tensor->data;
  return tdict_storage_is_unloaded(tensor->storage) || tdict_tensor_check_lost(tensor) ? NULL : tensor->data;
}
