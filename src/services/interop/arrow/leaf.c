/* Makes tensors, ragged leaves and columns of texts from an imported array. Thread rule: as in import.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/tensor/convert.h"
#include "core/tensor/element.h"
#include "services/interop/arrow/import.h"
#include "tdict/nontensor.h"
#include "tdict/ragged.h"
#include "tdict/view.h"

static bool is_float(tdict_dtype dtype) { return dtype == TDICT_F16 || dtype == TDICT_F32 || dtype == TDICT_F64; }

/* Writes the fill value to each null row of a tensor in host memory. NaN becomes 0 in integers and bools. */
static tdict_status fill_rows(const tdict_arrow_importer *m, tdict_tensor *t, const uint8_t *valid, int64_t count,
                              tdict_error *err) {
  unsigned char element[TDICT_ELEMENT_ROOM];
  const double value = isnan(m->options.fill_value) && !is_float(t->dtype) ? 0 : m->options.fill_value;
  tdict_status status = tdict_element_from_double(m->what, t->dtype, value, element, err);
  if (status != TDICT_OK || t->numel == 0) return status;
  const size_t item = tdict_dtype_bytes(t->dtype), row_bytes = tdict_tensor_nbytes(t) / (size_t)count;
  for (int64_t i = 0; i < count; i++) {
    unsigned char *row = (unsigned char *)t->data + (size_t)i * row_bytes;
    for (size_t at = 0; !valid[i] && at < row_bytes; at += item) memcpy(row + at, element, item);
  }
  return TDICT_OK;
}

static tdict_status import_bools(const tdict_arrow_importer *m, const tdict_arrow_column *c, tdict_tensor **out,
                                 tdict_error *err) {
  tdict_tensor *bools;
  tdict_status status = tdict_tensor_empty(TDICT_BOOL, 1, &c->count, NULL, &bools, err);
  if (status != TDICT_OK) return status;
  status = tdict_arrow_unpack(m, tdict_arrow_column_buffer(c, 1), c->start, c->count, bools->data, err);
  return TDICT_HAND_OVER(status, bools, out, tdict_tensor_release);
}

static tdict_status import_dense(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                                 tdict_tensor **out, tdict_error *err);

/* Makes a tensor of shape [count, size, ...] from a fixed-size list. */
static tdict_status import_fixed_list(tdict_arrow_importer *m, const tdict_arrow_column *c, tdict_tensor **out,
                                      tdict_error *err) {
  tdict_arrow_column child;
  tdict_tensor *flat;
  uint8_t *valid = NULL;
  int64_t shape[TDICT_MAX_NDIM];
  tdict_arrow_range range;
  if (m->depth == TDICT_ARROW_MOST_DEPTH)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: more than %d levels", m->what, TDICT_ARROW_MOST_DEPTH);
  if (!tdict_mul_i64(c->start, c->type.size, &range.first) || !tdict_mul_i64(c->count, c->type.size, &range.count))
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: the elements of all lists do not fit 63 bits", m->what);
  tdict_status status = tdict_arrow_column_child(m, c, 0, range, &child, err);
  if (status == TDICT_OK) status = tdict_arrow_column_nulls(m, &child, NULL, &valid, err);
  m->depth++;
  if (status == TDICT_OK) status = import_dense(m, &child, valid, &flat, err);
  m->depth--;
  free(valid);
  if (status != TDICT_OK) return status;
  const int ndim = flat->ndim + 1;
  if (ndim <= TDICT_MAX_NDIM) {
    shape[0] = c->count;
    shape[1] = c->type.size;
    for (int i = 2; i < ndim; i++) shape[i] = flat->dims[i - 1];
    status = tdict_tensor_reshape(flat, ndim, shape, out, err);
  } else {
    status = tdict_fail(err, TDICT_ENOTSUP, "%s: more than %d dimensions", m->what, TDICT_MAX_NDIM);
  }
  tdict_tensor_release(flat);
  return status;
}

static tdict_status import_dense(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                                 tdict_tensor **out, tdict_error *err) {
  tdict_tensor *tensor = NULL;
  tdict_status status;
  if (c->type.kind == TDICT_ARROW_NUMBER) {
    const char *elements = tdict_arrow_column_buffer(c, 1);
    int64_t offset;
    if (!tdict_mul_i64(c->start, (int64_t)tdict_dtype_bytes(c->type.dtype), &offset))
      status = tdict_fail(err, TDICT_EOVERFLOW, "%s: the offset does not fit 63 bits", m->what);
    else
      status = tdict_arrow_wrap(m, elements ? elements + offset : NULL, c->type.dtype, c->count, &tensor, err);
  } else if (c->type.kind == TDICT_ARROW_BOOL) {
    status = import_bools(m, c, &tensor, err);
  } else if (c->type.kind == TDICT_ARROW_FIXED_LIST) {
    status = import_fixed_list(m, c, &tensor, err);
  } else {
    status =
        tdict_fail(err, TDICT_ENOTSUP, "%s: the elements of lists have the format '%.20s', wanted numbers or bools",
                   m->what, c->schema->format);
  }
  if (status == TDICT_OK && valid) {
    tdict_tensor *shared = tensor; /* tensors over the buffers are read-only */
    status = tdict_arrow_host_copy(m, shared, &tensor, err);
    if (status != TDICT_OK) tensor = NULL;
    tdict_tensor_release(shared);
    if (status == TDICT_OK) status = fill_rows(m, tensor, valid, c->count, err);
  }
  if (status == TDICT_OK) status = tdict_arrow_place(m, &tensor, err);
  return TDICT_HAND_OVER(status, tensor, out, tdict_tensor_release);
}

/* Gives a tensor [count, size, ...] the dimensions of the extension type arrow.fixed_shape_tensor. */
static tdict_status apply_row_shape(const char *what, const tdict_tensor *flat, const tdict_arrow_row_shape *row,
                                    tdict_tensor **out, tdict_error *err) {
  int64_t shape[TDICT_MAX_NDIM];
  int order[TDICT_MAX_NDIM], ndim = 1;
  tdict_tensor *shaped;
  if (row->ndim + flat->ndim - 1 > TDICT_MAX_NDIM)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: more than %d dimensions", what, TDICT_MAX_NDIM);
  shape[0] = flat->dims[0];
  order[0] = 0;
  for (int i = 0; i < row->ndim; i++, ndim++) {
    shape[ndim] = row->sizes[i];
    order[ndim] = row->is_permuted ? 1 + row->order[i] : ndim;
  }
  for (int i = 2; i < flat->ndim; i++, ndim++) {
    shape[ndim] = flat->dims[i];
    order[ndim] = ndim;
  }
  tdict_status status = tdict_tensor_reshape(flat, ndim, shape, &shaped, err);
  if (status != TDICT_OK || !row->is_permuted) {
    if (status == TDICT_OK) *out = shaped;
    return status;
  }
  status = tdict_tensor_permute(shaped, ndim, order, out, err);
  tdict_tensor_release(shaped);
  return status;
}

tdict_status tdict_arrow_import_tensor(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                                       tdict_tensor **out, tdict_error *err) {
  tdict_arrow_row_shape row = {.ndim = 0};
  tdict_tensor *flat;
  tdict_status status = TDICT_OK;
  if (c->type.kind == TDICT_ARROW_FIXED_LIST)
    status = tdict_arrow_row_shape_read(m->what, c->schema, c->type.size, &row, err);
  if (status == TDICT_OK) status = import_dense(m, c, valid, &flat, err);
  if (status != TDICT_OK) return status;
  if (row.ndim == 0) {
    *out = flat;
    return TDICT_OK;
  }
  status = apply_row_shape(m->what, flat, &row, out, err);
  tdict_tensor_release(flat);
  return status;
}

/* Reads the count + 1 offsets of a list or text column. None may be negative or less than the one before. A column
 * without rows has the offset 0. The caller frees *out. */
static tdict_status read_offsets(const tdict_arrow_importer *m, const tdict_arrow_column *c, int64_t **out,
                                 tdict_error *err) {
  const size_t item = tdict_dtype_bytes(c->type.dtype);
  const char *buffer = tdict_arrow_column_buffer(c, 1);
  int64_t begin = 0, bytes = 0;
  size_t room;
  tdict_tensor *copy = NULL;
  const void *raw = NULL;
  if (!tdict_mul_i64(c->start, (int64_t)item, &begin) || !tdict_mul_i64(c->count + 1, 8, &bytes) ||
      !tdict_mul_size((size_t)c->count + 1, sizeof **out, &room))
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: too many offsets", m->what);
  int64_t *at = calloc(1, room);
  if (!at) return tdict_fail_memory(err, m->what, NULL, "%lld offsets", (long long)c->count + 1);
  tdict_status status = TDICT_OK;
  if (c->count) status = tdict_arrow_to_host(m, buffer + begin, (c->count + 1) * (int64_t)item, &copy, &raw, err);
  if (status == TDICT_OK && c->count)
    (void)tdict_convert_simple(TDICT_I64, at, c->type.dtype, raw, (size_t)c->count + 1);
  for (int64_t i = 0; status == TDICT_OK && i <= c->count; i++)
    if (at[i] < (i ? at[i - 1] : 0))
      status = tdict_fail(err, TDICT_EFORMAT, "%s: offset %lld is %lld, wanted at least %lld", m->what, (long long)i,
                          (long long)at[i], (long long)(i ? at[i - 1] : 0));
  tdict_tensor_release(copy);
  return TDICT_HAND_OVER(status, at, out, free);
}

/* Makes the offsets of a ragged leaf, over those of the array if these are in host memory and begin at 0. */
static tdict_status make_offsets(const tdict_arrow_importer *m, const tdict_arrow_column *c, const int64_t *at,
                                 tdict_tensor **out, tdict_error *err) {
  const int64_t count = c->count + 1;
  const char *buffer = tdict_arrow_column_buffer(c, 1);
  const size_t item = tdict_dtype_bytes(c->type.dtype);
  if (!m->memory && c->count && at[0] == 0)
    return tdict_arrow_wrap(m, buffer + (size_t)c->start * item, c->type.dtype, count, out, err);
  tdict_tensor *offsets;
  tdict_status status = tdict_tensor_empty(c->type.dtype, 1, &count, NULL, &offsets, err);
  if (status != TDICT_OK) return status;
  for (int64_t i = 0; i < count; i++)
    if (c->type.dtype == TDICT_I64)
      ((int64_t *)offsets->data)[i] = at[i] - at[0];
    else
      ((int32_t *)offsets->data)[i] = (int32_t)(at[i] - at[0]);
  status = tdict_arrow_place(m, &offsets, err);
  return TDICT_HAND_OVER(status, offsets, out, tdict_tensor_release);
}

typedef struct list_rows {
  const tdict_arrow_column *column;
  const int64_t *at;    /* the offsets */
  const uint8_t *valid; /* NULL: no row is null */
} list_rows;

static bool has_null_elements(const list_rows *r) {
  for (int64_t i = 0; r->valid && i < r->column->count; i++)
    if (!r->valid[i] && r->at[i + 1] > r->at[i]) return true;
  return false;
}

/* Makes a ragged leaf by copying the rows. Null rows become empty. */
static tdict_status join_rows(const tdict_arrow_importer *m, const list_rows *r, const tdict_tensor *values,
                              tdict_ragged **out, tdict_error *err) {
  tdict_ragged_options options = tdict_ragged_options_default();
  const int64_t count = r->column->count;
  tdict_tensor **rows = calloc((size_t)count, sizeof(tdict_tensor *));
  if (!rows) return tdict_fail_memory(err, m->what, NULL, "%lld rows", (long long)count);
  tdict_status status = TDICT_OK;
  for (int64_t i = 0; i < count && status == TDICT_OK; i++) {
    const tdict_tensor_range range = {0, r->at[i] - r->at[0], r->valid[i] ? r->at[i + 1] - r->at[i] : 0, 1};
    status = tdict_tensor_slice(values, &range, &rows[i], err);
  }
  options.offsets_dtype = r->column->type.dtype;
  options.memory = m->memory;
  if (status == TDICT_OK) status = tdict_ragged_from_rows(rows, (size_t)count, &options, out, err);
  for (int64_t i = 0; i < count; i++) tdict_tensor_release(rows[i]);
  free(rows);
  return status;
}

static tdict_status make_ragged(tdict_arrow_importer *m, const list_rows *r, tdict_ragged **out, tdict_error *err) {
  const tdict_arrow_range range = {r->at[0], r->at[r->column->count] - r->at[0]};
  tdict_arrow_column child;
  tdict_tensor *values, *offsets;
  uint8_t *inner = NULL;
  tdict_status status = tdict_arrow_column_child(m, r->column, 0, range, &child, err);
  if (status == TDICT_OK) status = tdict_arrow_column_nulls(m, &child, NULL, &inner, err);
  if (status == TDICT_OK) status = tdict_arrow_import_tensor(m, &child, inner, &values, err);
  free(inner);
  if (status != TDICT_OK) return status;
  if (has_null_elements(r)) {
    status = join_rows(m, r, values, out, err);
  } else {
    status = make_offsets(m, r->column, r->at, &offsets, err);
    if (status == TDICT_OK) {
      status = tdict_ragged_create(values, offsets, out, err);
      tdict_tensor_release(offsets);
    }
  }
  tdict_tensor_release(values);
  return status;
}

tdict_status tdict_arrow_import_list(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                                     tdict_error *err) {
  int64_t *at;
  tdict_ragged *ragged;
  tdict_status status = read_offsets(m, c, &at, err);
  if (status != TDICT_OK) return status;
  const list_rows rows = {c, at, valid};
  status = make_ragged(m, &rows, &ragged, err);
  free(at);
  if (status != TDICT_OK) return status;
  status = tdict_set_ragged(m->tree, m->path.bytes, ragged, err);
  tdict_ragged_release(ragged);
  return status;
}

/* Reads the values of a text column. The texts are borrowed from the bytes of the array, or from *copy. */
static tdict_status read_texts(const tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                               tdict_value *values, tdict_tensor **copy, tdict_error *err) {
  int64_t *at;
  const char *bytes = tdict_arrow_column_buffer(c, 2);
  const void *text = NULL;
  tdict_status status = read_offsets(m, c, &at, err);
  if (status != TDICT_OK) return status;
  const int64_t length = at[c->count] - at[0];
  if (length && !bytes) status = tdict_fail(err, TDICT_EFORMAT, "%s: the buffer of the text is NULL", m->what);
  if (status == TDICT_OK && length) status = tdict_arrow_to_host(m, bytes + at[0], length, copy, &text, err);
  for (int64_t i = 0; status == TDICT_OK && i < c->count; i++) {
    if (valid && !valid[i]) continue; /* calloc() has made this value null */
    values[i].kind = TDICT_VALUE_TEXT;
    values[i].length = (size_t)(at[i + 1] - at[i]);
    values[i].text = values[i].length ? (const char *)text + (at[i] - at[0]) : "";
  }
  free(at);
  return status;
}

tdict_status tdict_arrow_import_text(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                                     tdict_error *err) {
  tdict_tensor *copy = NULL;
  tdict_value *values = calloc((size_t)c->count + 1, sizeof *values);
  if (!values) return tdict_fail_memory(err, m->what, NULL, "%lld texts", (long long)c->count);
  tdict_status status = TDICT_OK;
  if (c->type.kind == TDICT_ARROW_TEXT) status = read_texts(m, c, valid, values, &copy, err);
  if (status == TDICT_OK) status = tdict_set_values(m->tree, m->path.bytes, values, (size_t)c->count, err);
  tdict_tensor_release(copy);
  free(values);
  return status;
}
