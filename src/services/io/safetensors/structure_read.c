/* Reads TensorDict's entry in the metadata of safetensors files. See safetensors.h for ownership and threads. */
#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "services/io/json/read.h"
#include "services/io/reader.h"
#include "services/io/safetensors/safetensors.h"

enum { VERSION = 1 };

/* The items of the file, sorted by name. */
typedef struct structure_reader {
  tdict_reader base;
  const tdict_item **sorted;
  bool *used; /* used[i] is true if the entry names sorted[i] */
  size_t num_tensors;
} structure_reader;

static tdict_status read_level(structure_reader *r, tdict_json level, tdict_error *err);

static int compare_names(const void *a, const void *b) {
  return strcmp((*(const tdict_item *const *)a)->path, (*(const tdict_item *const *)b)->path);
}

static TDICT_NOINLINE tdict_status add_tensor(structure_reader *r, tdict_json name, tdict_item_kind kind,
                                              tdict_error *err) {
  tdict_contents *c = r->base.contents;
  const char *text;
  tdict_status status = tdict_json_text(c, name, &text, err);
  if (status != TDICT_OK) return status;
  if (!text) return tdict_json_fail(&r->base.place, err, "'tensor' is not a name");
  const tdict_item wanted = {.path = text}, *key = &wanted;
  const tdict_item **found =
      r->num_tensors ? bsearch(&key, (const void *)r->sorted, r->num_tensors, sizeof *r->sorted, compare_names) : NULL;
  if (!found) return tdict_json_fail(&r->base.place, err, "the file has no tensor '%.80s'", text);
  r->used[found - r->sorted] = true;
  tdict_item item = **found;
  item.kind = kind;
  return tdict_reader_add(&r->base, &item, err);
}

/* Reads one value for the whole tree, or a column, which is a list of values with a shape. */
static TDICT_NOINLINE tdict_status add_values(structure_reader *r, tdict_json entry, tdict_json json,
                                              tdict_error *err) {
  const tdict_json mark = tdict_json_get(entry, "tdict");
  const bool is_column = tdict_json_exists(mark);
  tdict_json_cursor cursor = tdict_json_enter(json);
  tdict_sizes shape = {0};
  uint64_t count = 1;
  void *values = NULL;
  if (is_column && !tdict_json_equals(mark, "column"))
    return tdict_json_fail(&r->base.place, err, "the mark 'tdict' of a value is no \"column\"");
  tdict_status status = !is_column ? TDICT_OK
                                   : tdict_json_sizes(&r->base.place, "shape", tdict_json_get(entry, "shape"),
                                                      TDICT_MAX_BATCH_NDIM, &shape, err);
  if (status != TDICT_OK) return status;
  for (int i = 0; i < shape.count; i++)
    if (__builtin_mul_overflow(count, (uint64_t)shape.at[i], &count)) count = UINT64_MAX;
  if (is_column && (!tdict_json_is(json, TDICT_JSON_ARRAY) || shape.count == 0 || tdict_json_count(json) != count))
    return tdict_json_fail(&r->base.place, err, "a column needs a list of values, one for each element of 'shape'");
  status = tdict_contents_alloc(r->base.contents, (size_t)count * sizeof(tdict_value), &values, err);
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    if (is_column) tdict_json_next(&cursor, NULL, &json);
    status = tdict_value_from_json(r->base.contents, json, (tdict_value *)values + i, err);
  }
  return status == TDICT_OK ? tdict_reader_add_values(&r->base, values, (size_t)count, &shape, err) : status;
}

static TDICT_NOINLINE tdict_status add_ragged(structure_reader *r, tdict_json level, tdict_error *err) {
  const tdict_json keys = tdict_json_get(level, "keys");
  const tdict_json values = tdict_json_get(tdict_json_get(keys, "values"), "tensor");
  const tdict_json offsets = tdict_json_get(tdict_json_get(keys, "offsets"), "tensor");
  if (!tdict_json_equals(tdict_json_get(level, "tdict"), "ragged") || !tdict_json_exists(values) ||
      !tdict_json_exists(offsets) || tdict_json_count(keys) != 2)
    return tdict_json_fail(&r->base.place, err,
                           "a level with the mark 'tdict' is not a ragged leaf of 'values' and 'offsets'");
  tdict_status status = add_tensor(r, values, TDICT_ITEM_RAGGED_VALUES, err);
  return status == TDICT_OK ? add_tensor(r, offsets, TDICT_ITEM_RAGGED_OFFSETS, err) : status;
}

static tdict_status read_entry(structure_reader *r, tdict_json entry, tdict_error *err) {
  const tdict_json tensor = tdict_json_get(entry, "tensor"), value = tdict_json_get(entry, "non_tensor");
  const tdict_json level = tdict_json_get(entry, "td");
  if (tdict_json_exists(tensor) + tdict_json_exists(value) + tdict_json_exists(level) != 1)
    return tdict_json_fail(&r->base.place, err, "wanted a JSON object with one of 'tensor', 'non_tensor' and 'td'");
  if (tdict_json_exists(tensor)) {
    const bool unbatched = tdict_json_is(tdict_json_get(entry, "unbatched"), TDICT_JSON_TRUE);
    return add_tensor(r, tensor, unbatched ? TDICT_ITEM_UNBATCHED : TDICT_ITEM_TENSOR, err);
  }
  if (tdict_json_exists(value)) return add_values(r, entry, value, err);
  if (tdict_json_exists(tdict_json_get(level, "tdict"))) return add_ragged(r, level, err);
  return read_level(r, level, err);
}

static tdict_status read_keys(structure_reader *r, tdict_json keys, tdict_error *err) {
  tdict_json_cursor cursor = tdict_json_enter(keys);
  tdict_json name, entry;
  const size_t length = r->base.path.length;
  while (tdict_json_next(&cursor, &name, &entry)) {
    const char *key;
    tdict_status status = tdict_json_copy(r->base.contents, name, &key, NULL, err);
    if (status != TDICT_OK) return status;
    if (!key[0]) return tdict_json_fail(&r->base.place, err, "an empty key");
    status = tdict_reader_push(&r->base, key, err);
    if (status == TDICT_OK) status = read_entry(r, entry, err);
    if (status != TDICT_OK) return status;
    tdict_io_text_cut(&r->base.path, length);
  }
  return TDICT_OK;
}

/* Adds an item for the tree and items for its entries. TDICT_IO_MAX_DEPTH limits the recursion. */
static tdict_status read_level(structure_reader *r, tdict_json level, tdict_error *err) {
  const tdict_json keys = tdict_json_get(level, "keys");
  if (!tdict_json_is(keys, TDICT_JSON_OBJECT))
    return tdict_json_fail(&r->base.place, err, "a level has no JSON object 'keys'");
  tdict_status status = tdict_reader_enter(&r->base, "batch_size", tdict_json_get(level, "batch_size"), err);
  if (status != TDICT_OK) return status;
  status = read_keys(r, keys, err);
  tdict_reader_leave(&r->base);
  return status;
}

static tdict_status read_root(structure_reader *r, tdict_json root, tdict_error *err) {
  const tdict_contents *c = r->base.contents;
  int64_t version = 0;
  const bool has_version = tdict_json_integer(tdict_json_get(root, "version"), &version);
  if (version != VERSION)
    return tdict_fail_at(err, TDICT_ENOTSUP, c->path,
                         "%s: the entry 'tensordict' has %s, wanted version %d; the option `flat` ignores the entry",
                         c->what, has_version ? "another version" : "no version", VERSION);
  tdict_status status = read_level(r, tdict_json_get(root, "root"), err);
  for (size_t i = 0; i < r->num_tensors && status == TDICT_OK; i++)
    if (!r->used[i])
      status = tdict_fail_at(err, TDICT_EFORMAT, c->path, "%s: the entry 'tensordict' does not name tensor '%.100s'",
                             c->what, r->sorted[i]->path);
  return status;
}

tdict_status tdict_structure_read(tdict_contents *contents, const char *structure, tdict_error *err) {
  const size_t count = contents->num_items;
  tdict_item *old = contents->items;
  const tdict_json_source source = {contents->what, contents->path, "the entry 'tensordict'", 0};
  structure_reader r = {.num_tensors = count};
  tdict_json_document entry;
  tdict_status status = tdict_json_read(&source, structure, strlen(structure), &entry, err);
  if (status != TDICT_OK) return status;
  tdict_reader_init(&r.base, contents, contents->path, false);
  r.sorted = tdict_array_sorted(old, count, sizeof *old, compare_names);
  r.used = calloc(count + 1, sizeof *r.used);
  contents->items = NULL;
  contents->num_items = contents->cap_items = 0;
  if (r.sorted && r.used)
    status = read_root(&r, tdict_json_root(&entry), err);
  else
    status = tdict_fail_memory(err, contents->what, contents->path, "the entry 'tensordict'");
  tdict_json_close(&entry);
  tdict_io_text_reset(&r.base.path);
  free((void *)r.sorted);
  free(r.used);
  free(old);
  return status;
}
