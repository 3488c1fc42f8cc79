/* Adds trees, tensors and values to the contents. See reader.h for ownership and threads. */
#include "services/io/reader.h"

#include "core/base/error.h"
#include "services/io/json/read.h"
#include "tdict/path.h"

void tdict_reader_init(tdict_reader *reader, tdict_contents *contents, const char *file, bool flat) {
  *reader = (tdict_reader){.contents = contents, .flat = flat};
  reader->place = (tdict_json_place){contents, file, "key", NULL, &reader->path};
}

tdict_status tdict_reader_fail_pickle(const tdict_reader *reader, const char *name, tdict_error *err) {
  return tdict_json_refuse(&reader->place, err, "the data is in %s, a pickle; this library does not read pickles",
                           name);
}

tdict_status tdict_reader_push(tdict_reader *reader, const char *key, tdict_error *err) {
  const size_t bytes = tdict_path_escape(key, NULL, 0) + 1;
  if (!key[0]) return tdict_json_refuse(&reader->place, err, "an empty key below this tree; tdict has no empty keys");
  if (reader->path.length) tdict_io_text_add(&reader->path, ".", 1);
  if (reader->flat) tdict_io_text_add_string(&reader->path, key);
  char *to = reader->flat ? NULL : tdict_io_text_reserve(&reader->path, bytes);
  if (to) {
    tdict_path_escape(key, to, bytes);
    reader->path.length += bytes - 1;
  }
  if (!reader->path.has_failed) return TDICT_OK;
  return tdict_fail_memory(err, reader->contents->what, reader->place.file, "a path");
}

tdict_status tdict_reader_add(tdict_reader *reader, tdict_item *item, tdict_error *err) {
  tdict_status status =
      tdict_contents_copy_text(reader->contents, reader->path.bytes, reader->path.length, &item->path, err);
  return status == TDICT_OK ? tdict_contents_add(reader->contents, item, err) : status;
}

tdict_status tdict_reader_add_shaped(tdict_reader *reader, tdict_item *item, const tdict_sizes *shape,
                                     tdict_error *err) {
  tdict_status status = tdict_contents_set_shape(reader->contents, item, shape->count, shape->at, err);
  return status == TDICT_OK ? tdict_reader_add(reader, item, err) : status;
}

tdict_status tdict_reader_enter(tdict_reader *reader, const char *name, tdict_json batch_size, tdict_error *err) {
  tdict_item item = {.kind = TDICT_ITEM_TREE};
  tdict_sizes sizes = {0};
  if (reader->depth == TDICT_IO_MAX_DEPTH)
    return tdict_json_fail(&reader->place, err, "more than %d nested trees", TDICT_IO_MAX_DEPTH);
  tdict_status status =
      name ? tdict_json_sizes(&reader->place, name, batch_size, TDICT_MAX_BATCH_NDIM, &sizes, err) : TDICT_OK;
  reader->trees[reader->depth].item = reader->contents->num_items;
  reader->trees[reader->depth].has_column = false;
  if (status == TDICT_OK && !reader->flat) status = tdict_reader_add_shaped(reader, &item, &sizes, err);
  if (status == TDICT_OK) reader->depth++;
  return status;
}

void tdict_reader_leave(tdict_reader *reader) { reader->depth--; }

/* Reads the values of the nested lists from dimension `depth` on, and moves *next to the place after these values. */
static tdict_status read_column(tdict_reader *r, tdict_json list, const tdict_sizes *sizes, int depth,
                                tdict_value **next, tdict_error *err) {
  tdict_json_cursor cursor = tdict_json_enter(list);
  tdict_json value;
  tdict_status status = TDICT_OK;
  if (depth == sizes->count) return tdict_value_from_json(r->contents, list, (*next)++, err);
  while (status == TDICT_OK && tdict_json_next(&cursor, NULL, &value))
    status = read_column(r, value, sizes, depth + 1, next, err);
  return status;
}

static bool has_sizes(tdict_json list, const tdict_sizes *sizes, int depth) {
  tdict_json_cursor cursor = tdict_json_enter(list);
  tdict_json value;
  int64_t count = 0;
  if (depth == sizes->count) return true;
  if (!tdict_json_is(list, TDICT_JSON_ARRAY)) return false;
  for (; tdict_json_next(&cursor, NULL, &value); count++)
    if (!has_sizes(value, sizes, depth + 1)) return false;
  return count == sizes->at[depth];
}

tdict_status tdict_reader_add_values(tdict_reader *reader, const tdict_value *values, size_t count,
                                     const tdict_sizes *sizes, tdict_error *err) {
  tdict_item item = {.kind = TDICT_ITEM_VALUES, .values = values, .num_values = count};
  if (sizes->count) reader->trees[reader->depth - 1].has_column = true;
  return tdict_reader_add_shaped(reader, &item, sizes, err);
}

/* Adds the values of nested lists that have the given sizes. If there are no sizes, adds one value. */
static tdict_status add_values(tdict_reader *r, tdict_json json, const tdict_sizes *sizes, tdict_error *err) {
  size_t count = 1;
  void *values = NULL;
  if (r->flat) return TDICT_OK;
  for (int i = 0; i < sizes->count; i++) /* check for 0 first: the product of the other sizes may overflow */
    if (sizes->at[i] == 0) count = 0;
  for (int i = 0; i < sizes->count && count; i++) count *= (size_t)sizes->at[i];
  tdict_status status = tdict_contents_alloc(r->contents, count * sizeof(tdict_value), &values, err);
  tdict_value *next = values;
  if (status == TDICT_OK && count) status = read_column(r, json, sizes, 0, &next, err);
  return status == TDICT_OK ? tdict_reader_add_values(r, values, count, sizes, err) : status;
}

tdict_status tdict_reader_add_value(tdict_reader *reader, tdict_json value, tdict_error *err) {
  const tdict_sizes none = {0};
  return add_values(reader, value, &none, err);
}

tdict_status tdict_reader_add_column(tdict_reader *reader, tdict_json list, tdict_error *err) {
  tdict_sizes sizes = {0};
  if (reader->flat) return TDICT_OK;
  const tdict_item *tree = &reader->contents->items[reader->trees[reader->depth - 1].item];
  for (int i = 0; i < tree->ndim; i++) sizes.at[sizes.count++] = tree->shape[i];
  if (!has_sizes(list, &sizes, 0)) return tdict_reader_add_value(reader, list, err);
  return add_values(reader, list, &sizes, err);
}

tdict_status tdict_reader_read_dim(const tdict_reader *reader, tdict_json value, int most, int *out, tdict_error *err) {
  int64_t dim;
  if (!tdict_json_integer(value, &dim) || dim < 0 || dim > most)
    return tdict_json_fail(&reader->place, err, "stack_dim is not an integer from 0 to %d", most);
  *out = (int)dim;
  return TDICT_OK;
}

/* Removes the batch dimensions `dim` and higher from all trees that are being read. */
static tdict_status cut_batch(tdict_reader *reader, int dim, tdict_error *err) {
  for (int i = 0; i < reader->depth && !reader->flat; i++) {
    tdict_item *tree = &reader->contents->items[reader->trees[i].item];
    if (tree->ndim <= dim) continue;
    if (reader->trees[i].has_column)
      return tdict_json_refuse(&reader->place, err, "a lazy stack in a tree with a column of values cannot be read");
    tree->ndim = dim;
  }
  return TDICT_OK;
}

tdict_status tdict_reader_enter_stack(tdict_reader *reader, tdict_json value, int *dim, tdict_error *err) {
  tdict_status status = tdict_reader_read_dim(reader, value, TDICT_MAX_BATCH_NDIM - 1, dim, err);
  if (status == TDICT_OK) status = cut_batch(reader, *dim, err);
  return status == TDICT_OK ? tdict_reader_enter(reader, NULL, (tdict_json){0}, err) : status;
}

tdict_status tdict_reader_stack_batch(tdict_reader *reader, int dim, size_t member, tdict_error *err) {
  if (reader->flat) return TDICT_OK;
  const tdict_item *first = member < reader->contents->num_items ? &reader->contents->items[member] : NULL;
  if (!first || first->kind != TDICT_ITEM_TREE)
    return tdict_json_fail(&reader->place, err, "the members of a lazy stack are not trees");
  tdict_item *stack = &reader->contents->items[reader->trees[reader->depth - 1].item];
  if (first->ndim < dim)
    return tdict_json_fail(&reader->place, err, "stack_dim is %d, but the trees of the stack have %d batch dimensions",
                           dim, (int)first->ndim);
  stack->ndim = dim;
  stack->shape = first->shape;
  return TDICT_OK;
}
