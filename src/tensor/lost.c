/* Computes which bytes of its storage a tensor covers, and reads and changes the record of lost bytes. The functions
 * own nothing. Thread rule: as in tdict/tensor.h. */
#include "base/error.h"
#include "tensor/layout.h"
#include "tensor/tensor.h"

/* The maximum number of rows that tdict_tensor_regain_lost() removes from the lost bytes one by one. With more rows,
 * the set of lost bytes could get an entry for each row. */
enum { MAX_REGAINED_ROWS = 1 << 20 };

/* A dimension of a tensor: the number of elements, and the distance between adjacent elements. */
typedef struct dim_step {
  int64_t count;
  size_t step; /* in bytes */
} dim_step;

/* Writes to `out` the dimensions that have more than one element and a step other than 0, smallest step first. Returns
 * the number of these dimensions. The sign of a step is ignored, because steps in both directions cover the same
 * bytes. */
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

/* Mixes a word into a hash. */
static uint64_t mix_hash(uint64_t h, uint64_t word) {
  h = (h ^ word) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 29;
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
  e.layout = mix_hash(mix_hash(0x243f6a8885a308d3u, e.begin), e.width);
  /* If all rows are the same distance apart, this distance is the pitch. Otherwise the pitch is 0, which means that the
   * rows are unknown. */
  e.pitch = dims[next].step;
  size_t all = e.pitch;
  for (int i = next; i < count; i++) {
    if (dims[i].step != all) e.pitch = 0;
    all = dims[i].step * (size_t)dims[i].count;
    e.layout = mix_hash(mix_hash(e.layout, dims[i].step), (uint64_t)dims[i].count);
  }
  if (e.layout == 0) e.layout = 1;
  return e;
}

bool tdict_tensor_check_lost(const tdict_tensor *t) {
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

/* If strided elements still count as lost after their extent is removed, removes their rows one by one. With more than
 * MAX_REGAINED_ROWS rows, the bytes stay lost. */
void tdict_tensor_regain_lost(const tdict_tensor *t) {
  const tdict_extent e = tdict_tensor_extent(t);
  tdict_storage_regain(t->storage, &e);
  if (!e.layout || !tdict_storage_is_lost(t->storage, &e)) return;
  const int64_t *strides = tdict_tensor_dims_strides(t);
  const size_t bytes = tdict_tensor_nbytes(t);
  tdict_pair pair;
  tdict_pair_init(&pair, t->ndim, t->dims, strides, strides, tdict_dtype_bytes(t->dtype));
  if (bytes / pair.run_bytes > MAX_REGAINED_ROWS) return;
  const tdict_pair_part whole = {t->data, t->data, 0, bytes};
  (void)!tdict_pair_walk(&pair, &whole, regain_rows, t->storage, NULL);
}
