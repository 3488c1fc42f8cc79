/* Narrows the items of opened files to rows of dimension 0. See contents.h for ownership and threads. */
#include "services/io/contents/contents.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/error.h"

/* Returns true if the item has no rows of its own: it belongs to all, or has the values of a ragged leaf. */
static bool is_whole(const tdict_item *item) {
  const bool is_tensor = item->kind == TDICT_ITEM_TENSOR || item->kind == TDICT_ITEM_RAGGED_OFFSETS;
  return item->kind == TDICT_ITEM_UNBATCHED || item->kind == TDICT_ITEM_RAGGED_VALUES || (!is_tensor && !item->ndim);
}

/* Finds the number of rows: the batch size of the root, or the rows of the first leaf. All items must have as many. */
static tdict_status find_rows(const tdict_contents *c, int64_t *rows, tdict_error *err) {
  const tdict_item *first = NULL;
  for (size_t i = 0; i < c->num_items; i++) {
    const tdict_item *item = &c->items[i];
    if (is_whole(item)) continue;
    if (item->ndim == 0)
      return tdict_fail_at(err, TDICT_ESHAPE, c->path,
                           "%s: rows cannot be selected: key '%.80s' is a tensor without dimensions", c->what,
                           item->path);
    /* The offsets of a ragged leaf are one more than its rows. */
    const int64_t found = item->shape[0] - (item->kind == TDICT_ITEM_RAGGED_OFFSETS);
    if (!first) {
      first = item;
      *rows = found;
    }
    if (found != *rows)
      return tdict_fail_at(err, TDICT_ESHAPE, c->path,
                           "%s: rows cannot be selected: key '%.60s' has %" PRId64 " rows, key '%.60s' has %" PRId64,
                           c->what, item->path, found, first->path, *rows);
  }
  if (first) return TDICT_OK;
  return tdict_fail_at(err, TDICT_ESHAPE, c->path, "%s: rows cannot be selected: no selected leaf has rows", c->what);
}

static tdict_status set_dimension(tdict_contents *c, tdict_item *item, int64_t size, tdict_error *err) {
  int64_t shape[TDICT_MAX_NDIM] = {0};
  memcpy(shape, item->shape, (size_t)item->ndim * sizeof *shape);
  shape[0] = size;
  return tdict_contents_set_shape(c, item, item->ndim, shape, err);
}

/* Narrows dimension 0 of a tensor. */
static tdict_status narrow(tdict_contents *c, tdict_item *item, int64_t first, int64_t count, tdict_error *err) {
  if (item->is_fortran)
    return tdict_fail_at(err, TDICT_ENOTSUP, c->path,
                         "%s: rows cannot be selected: key '%.80s' is in Fortran order, so its rows are not adjacent",
                         c->what, item->path);
  const uint64_t row_bytes = item->shape[0] ? item->span.bytes / (uint64_t)item->shape[0] : 0;
  item->span.offset += (uint64_t)first * row_bytes;
  item->span.bytes = (uint64_t)count * row_bytes;
  return set_dimension(c, item, count, err);
}

static tdict_status read_offset(const tdict_contents *c, const tdict_item *offsets, int64_t at, int64_t *out,
                                tdict_error *err) {
  const uint64_t width = tdict_dtype_bytes(offsets->dtype);
  const tdict_span span = {offsets->span.file, offsets->span.offset + (uint64_t)at * width, width};
  int32_t narrow_value = 0;
  tdict_status status = tdict_contents_read(c, span, width == sizeof *out ? (void *)out : &narrow_value, err);
  if (width != sizeof *out) *out = narrow_value;
  return status;
}

/* Narrows a ragged leaf of values and offsets. tdict_ragged_create() checks offsets that are not needed here. */
static tdict_status narrow_ragged(tdict_contents *c, tdict_item *items, int64_t first, int64_t count,
                                  tdict_error *err) {
  tdict_item *values = &items[0], *offsets = &items[1];
  int64_t start, begin, end, last;
  if (values->ndim < 1 || offsets->ndim != 1 || (offsets->dtype != TDICT_I64 && offsets->dtype != TDICT_I32))
    return tdict_fail_at(err, TDICT_EFORMAT, c->path,
                         "%s: key '%.80s': a ragged leaf needs values with a dimension, and int64 or int32 offsets",
                         c->what, values->path);
  tdict_status status = read_offset(c, offsets, 0, &start, err);
  if (status == TDICT_OK) status = read_offset(c, offsets, first, &begin, err);
  if (status == TDICT_OK) status = read_offset(c, offsets, first + count, &end, err);
  if (status == TDICT_OK) status = read_offset(c, offsets, offsets->shape[0] - 1, &last, err);
  if (status != TDICT_OK) return status;
  if (start != 0 || begin < 0 || end < begin || last < end || last != values->shape[0])
    return tdict_fail_at(err, TDICT_EFORMAT, c->path,
                         "%s: key '%.60s': offsets 0, %" PRId64 ", %" PRId64 " and the last are wrong for %" PRId64
                         " values",
                         c->what, values->path, first, first + count, values->shape[0]);
  status = narrow(c, values, begin, end - begin, err);
  return status == TDICT_OK ? narrow(c, offsets, first, count + 1, err) : status;
}

/* Narrows the values of a column, which are in memory. */
static tdict_status narrow_column(tdict_contents *c, tdict_item *item, int64_t first, int64_t count, tdict_error *err) {
  const size_t row_values = item->shape[0] ? item->num_values / (size_t)item->shape[0] : 0;
  item->values += (size_t)first * row_values;
  item->num_values = (size_t)count * row_values;
  return set_dimension(c, item, count, err);
}

tdict_status tdict_contents_select_rows(tdict_contents *contents, int64_t first, int64_t count, tdict_error *err) {
  int64_t rows = 0;
  tdict_status status = find_rows(contents, &rows, err);
  if (status != TDICT_OK) return status;
  const int64_t left = rows - first, wanted = count < 0 ? left : count;
  if (left < 0 || wanted > left)
    return tdict_fail_at(err, TDICT_EINVAL, contents->path,
                         "%s: first_row is %" PRId64 " and num_rows is %" PRId64 ", but there are %" PRId64 " rows",
                         contents->what, first, count, rows);
  for (size_t i = 0; i < contents->num_items && status == TDICT_OK; i++) {
    tdict_item *item = &contents->items[i];
    if (item->kind == TDICT_ITEM_RAGGED_VALUES)
      status = narrow_ragged(contents, item, first, wanted, err);
    else if (is_whole(item) || item->kind == TDICT_ITEM_RAGGED_OFFSETS)
      continue;
    else if (item->kind == TDICT_ITEM_TREE)
      status = set_dimension(contents, item, wanted, err);
    else if (item->kind == TDICT_ITEM_VALUES)
      status = narrow_column(contents, item, first, wanted, err);
    else
      status = narrow(contents, item, first, wanted, err);
  }
  return status;
}
