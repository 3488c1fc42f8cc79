/* Creates ragged leaves, counts their references, and returns their properties. Thread rule: as in tdict/ragged.h. */
#include "core/leaves/ragged.h"

#include <stdlib.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/tensor/layout.h"
#include "tdict/view.h"

tdict_status tdict_ragged_new(const char *what, int64_t num_rows, tdict_ragged **out, tdict_error *err) {
  size_t bytes;
  tdict_ragged *r = NULL;
  if (tdict_mul_size((size_t)num_rows + 1, sizeof r->at[0], &bytes) && tdict_add_size(bytes, sizeof *r, &bytes))
    r = malloc(bytes);
  if (!r) return tdict_fail_memory(err, what, NULL, "%lld offsets", (long long)num_rows + 1);
  atomic_init(&r->refs, 1);
  r->values = r->offsets = NULL;
  r->num_rows = num_rows;
  r->at[0] = 0;
  *out = r;
  return TDICT_OK;
}

tdict_ragged *tdict_ragged_retain(const tdict_ragged *ragged) {
  tdict_ragged *r = (tdict_ragged *)(uintptr_t)ragged;
  atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
  return r;
}

void tdict_ragged_release(tdict_ragged *ragged) {
  if (!ragged || atomic_fetch_sub_explicit(&ragged->refs, 1, memory_order_acq_rel) != 1) return;
  tdict_tensor_release(ragged->values);
  tdict_tensor_release(ragged->offsets);
  free(ragged);
}

tdict_tensor *tdict_ragged_part(tdict_temp *temp, const tdict_tensor *values, int64_t first, int64_t count) {
  tdict_made part;
  tdict_made_of(values, &part);
  tdict_made_narrow(&part, 0, first, count, tdict_dtype_bytes(values->dtype));
  return tdict_temp_over(temp, values, &part);
}

tdict_status tdict_ragged_read_options(const char *what, const tdict_ragged_options *options, tdict_ragged_options *out,
                                       tdict_error *err) {
  *out = tdict_ragged_options_default();
  tdict_status status = tdict_options_read(out, sizeof *out, options, "ragged options", err);
  if (status != TDICT_OK || out->offsets_dtype == TDICT_I64 || out->offsets_dtype == TDICT_I32) return status;
  return tdict_fail(err, TDICT_EDTYPE, "%s: offsets_dtype is %s, wanted int64 or int32", what,
                    TDICT_DTYPE_TEXT(out->offsets_dtype));
}

tdict_status tdict_ragged_read_integers(const tdict_tensor *tensor, int64_t *out, tdict_error *err) {
  tdict_tensor *host;
  tdict_status status = tdict_tensor_clone(tensor, NULL, &host, err);
  if (status != TDICT_OK) return status;
  for (int64_t i = 0; i < host->numel; i++)
    out[i] = host->dtype == TDICT_I64 ? ((const int64_t *)host->data)[i] : ((const int32_t *)host->data)[i];
  tdict_tensor_release(host);
  return TDICT_OK;
}

/* Checks the shapes, dtypes and devices of both tensors. Does not read the offsets. */
static tdict_status check_tensors(const char *what, const tdict_tensor *values, const tdict_tensor *offsets,
                                  tdict_error *err) {
  if (values->ndim < 1) return tdict_fail(err, TDICT_ESHAPE, "%s: values has no dimension, wanted at least one", what);
  if (offsets->ndim != 1 || offsets->dims[0] < 1)
    return tdict_fail(err, TDICT_ESHAPE, "%s: offsets has shape %s, wanted [number of rows + 1]", what,
                      TDICT_SHAPE_TEXT(offsets->ndim, offsets->dims));
  if (offsets->dtype != TDICT_I64 && offsets->dtype != TDICT_I32)
    return tdict_fail(err, TDICT_EDTYPE, "%s: offsets is %s, wanted int64 or int32", what,
                      TDICT_DTYPE_TEXT(offsets->dtype));
  if (tdict_device_equal(values->storage->device, offsets->storage->device)) return TDICT_OK;
  return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: values is on %s, but offsets is on %s", what,
                    TDICT_DEVICE_TEXT(values->storage->device), TDICT_DEVICE_TEXT(offsets->storage->device));
}

static tdict_status check_offsets(const char *what, const tdict_ragged *r, int64_t total, tdict_error *err) {
  if (r->at[0] != 0)
    return tdict_fail(err, TDICT_EINVAL, "%s: offsets[0] is %lld, wanted 0", what, (long long)r->at[0]);
  for (int64_t i = 1; i <= r->num_rows; i++)
    if (r->at[i] < r->at[i - 1])
      return tdict_fail(err, TDICT_EINVAL, "%s: offsets[%lld] is %lld, less than its predecessor %lld", what,
                        (long long)i, (long long)r->at[i], (long long)r->at[i - 1]);
  if (r->at[r->num_rows] == total) return TDICT_OK;
  return tdict_fail(err, TDICT_ESHAPE, "%s: offsets[%lld] is %lld, but values has %lld elements", what,
                    (long long)r->num_rows, (long long)r->at[r->num_rows], (long long)total);
}

tdict_status tdict_ragged_create(tdict_tensor *values, tdict_tensor *offsets, tdict_ragged **out, tdict_error *err) {
  static const char what[] = "ragged_create";
  tdict_ragged *r;
  if (!values || !offsets || !out) return tdict_fail_null(err, what, !values ? "values" : !offsets ? "offsets" : "out");
  tdict_status status = check_tensors(what, values, offsets, err);
  if (status == TDICT_OK) status = tdict_ragged_new(what, offsets->dims[0] - 1, &r, err);
  if (status != TDICT_OK) return status;
  r->values = tdict_tensor_retain(values);
  r->offsets = tdict_tensor_retain(offsets);
  status = tdict_ragged_read_integers(offsets, r->at, err);
  if (status == TDICT_OK) status = check_offsets(what, r, values->dims[0], err);
  return TDICT_HAND_OVER(status, r, out, tdict_ragged_release);
}

tdict_status tdict_ragged_make_offsets(const tdict_ragged *r, const char *what, tdict_dtype dtype, tdict_memory *memory,
                                       tdict_tensor **out, tdict_error *err) {
  const bool on_device = memory && memory->device.type != TDICT_DEVICE_CPU;
  const int64_t count = r->num_rows + 1;
  tdict_tensor *host;
  if (dtype == TDICT_I32 && r->at[r->num_rows] > INT32_MAX)
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: the last offset is %lld, which int32 cannot hold", what,
                      (long long)r->at[r->num_rows]);
  tdict_status status = tdict_tensor_empty(dtype, 1, &count, on_device ? NULL : memory, &host, err);
  if (status != TDICT_OK) return status;
  for (int64_t i = 0; i < count; i++)
    if (dtype == TDICT_I64)
      ((int64_t *)host->data)[i] = r->at[i];
    else
      ((int32_t *)host->data)[i] = (int32_t)r->at[i];
  if (!on_device) {
    *out = host;
    return TDICT_OK;
  }
  status = tdict_tensor_clone(host, memory, out, err);
  tdict_tensor_release(host);
  return status;
}

tdict_status tdict_ragged_allocate(tdict_ragged *r, const char *what, const tdict_tensor *like, int from_dim,
                                   const tdict_ragged_options *options, tdict_error *err) {
  int64_t shape[TDICT_MAX_NDIM];
  tdict_memory *memory;
  shape[0] = r->at[r->num_rows];
  for (int i = from_dim; i < like->ndim; i++) shape[1 + i - from_dim] = like->dims[i];
  tdict_status status = tdict_tensor_choose_memory(what, like, options->memory, &memory, err);
  if (status == TDICT_OK)
    status = tdict_tensor_empty(like->dtype, 1 + like->ndim - from_dim, shape, memory, &r->values, err);
  if (status != TDICT_OK) return status;
  return tdict_ragged_make_offsets(r, what, options->offsets_dtype, memory, &r->offsets, err);
}

/* Checks that a tensor has the dtype, the device and the shape of the first one, except for dimension 0. */
static tdict_status check_part(const char *what, const tdict_tensor *first, const tdict_tensor *t, size_t i,
                               tdict_error *err) {
  if (t->ndim < 1) return tdict_fail(err, TDICT_ESHAPE, "%s: tensor %zu has no dimension, wanted one or more", what, i);
  if (t->ndim != first->ndim || !tdict_sizes_equal(t->dims + 1, first->dims + 1, t->ndim - 1))
    return tdict_fail(err, TDICT_ESHAPE, "%s: tensor %zu has shape %s, tensor 0 has %s, wanted equal last sizes", what,
                      i, TDICT_SHAPE_TEXT(t->ndim, t->dims), TDICT_SHAPE_TEXT(first->ndim, first->dims));
  if (t->dtype != first->dtype)
    return tdict_fail(err, TDICT_EDTYPE, "%s: tensor %zu is %s, tensor 0 is %s", what, i, TDICT_DTYPE_TEXT(t->dtype),
                      TDICT_DTYPE_TEXT(first->dtype));
  if (tdict_device_equal(t->storage->device, first->storage->device)) return TDICT_OK;
  return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: tensor %zu is on %s, tensor 0 is on %s", what, i,
                    TDICT_DEVICE_TEXT(t->storage->device), TDICT_DEVICE_TEXT(first->storage->device));
}

tdict_status tdict_ragged_join(tdict_ragged *r, const char *what, tdict_tensor *const *parts, size_t count,
                               const tdict_ragged_options *options, tdict_error *err) {
  tdict_status status = TDICT_OK;
  tdict_temp temp;
  for (size_t i = 1; i < count && status == TDICT_OK; i++) status = check_part(what, parts[0], parts[i], i, err);
  if (status == TDICT_OK) status = tdict_ragged_allocate(r, what, parts[0], 1, options, err);
  int64_t first = 0;
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    status = tdict_tensor_copy(tdict_ragged_part(&temp, r->values, first, parts[i]->dims[0]), parts[i], err);
    first += parts[i]->dims[0];
  }
  return status;
}

tdict_status tdict_ragged_of_rows(const char *what, tdict_tensor *const *rows, size_t count,
                                  const tdict_ragged_options *options, tdict_ragged **out, tdict_error *err) {
  tdict_ragged *r;
  tdict_status status = tdict_ragged_new(what, (int64_t)count, &r, err);
  if (status != TDICT_OK) return status;
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    if (rows[i]->ndim < 1)
      status = tdict_fail(err, TDICT_ESHAPE, "%s: tensor %zu has no dimension, wanted one or more", what, i);
    else if (!tdict_add_i64(r->at[i], rows[i]->dims[0], &r->at[i + 1]))
      status = tdict_fail(err, TDICT_EOVERFLOW, "%s: the sum of the lengths does not fit in 63 bits", what);
  }
  if (status == TDICT_OK) status = tdict_ragged_join(r, what, rows, count, options, err);
  return TDICT_HAND_OVER(status, r, out, tdict_ragged_release);
}

tdict_status tdict_ragged_from_rows(tdict_tensor *const *rows, size_t count, const tdict_ragged_options *options,
                                    tdict_ragged **out, tdict_error *err) {
  static const char what[] = "ragged_from_rows";
  tdict_ragged_options o;
  if (!out) return tdict_fail_null(err, what, "out");
  if (!rows || count == 0) return tdict_fail(err, TDICT_EINVAL, "%s: no rows", what);
  for (size_t i = 0; i < count; i++)
    if (!rows[i]) return tdict_fail(err, TDICT_EINVAL, "%s: row %zu is NULL", what, i);
  tdict_status status = tdict_ragged_read_options(what, options, &o, err);
  return status == TDICT_OK ? tdict_ragged_of_rows(what, rows, count, &o, out, err) : status;
}

tdict_ragged_info tdict_ragged_get_info(const tdict_ragged *ragged) {
  return (tdict_ragged_info){.values = ragged->values, .offsets = ragged->offsets, .num_rows = ragged->num_rows};
}

int64_t tdict_ragged_row_length(const tdict_ragged *ragged, int64_t i) {
  return i < 0 || i >= ragged->num_rows ? -1 : tdict_ragged_length(ragged, i);
}

int64_t tdict_ragged_max_length(const tdict_ragged *ragged) {
  int64_t longest = 0;
  for (int64_t i = 0; i < ragged->num_rows; i++)
    if (tdict_ragged_length(ragged, i) > longest) longest = tdict_ragged_length(ragged, i);
  return longest;
}

tdict_status tdict_ragged_get_row(const tdict_ragged *ragged, int64_t i, tdict_tensor **out, tdict_error *err) {
  if (!ragged || !out) return tdict_fail_null(err, "ragged_get_row", ragged ? "out" : "ragged");
  if (i < 0 || i >= ragged->num_rows)
    return tdict_fail(err, TDICT_EINVAL, "ragged_get_row: row %lld of %lld", (long long)i, (long long)ragged->num_rows);
  const tdict_tensor_range range = {0, ragged->at[i], tdict_ragged_length(ragged, i), 1};
  return tdict_tensor_slice(ragged->values, &range, out, err);
}
