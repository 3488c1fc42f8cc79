/* Reads TensorDict's entry in the metadata of safetensors files. See safetensors.h for ownership and threads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "services/io/json/value.h"
#include "services/io/safetensors/safetensors.h"

enum { VERSION = 1 };

/* The items of the file, sorted by name, and the path of the level that is read. */
typedef struct reader {
  tdict_contents *contents;
  const char *file;
  const tdict_item **sorted;
  bool *used; /* used[i] is true if the entry names sorted[i] */
  size_t num_tensors;
  tdict_io_text path;
  int depth;
} reader;

static tdict_status read_level(reader *r, tdict_json level, tdict_error *err);

static tdict_status fail_memory(const reader *r, tdict_error *err) {
  return tdict_fail_file(err, TDICT_ENOMEM, r->file, "%s: no host memory for the entry 'tensordict'",
                         r->contents->what);
}

static const char *path_of(const reader *r) { return r->path.bytes ? r->path.bytes : ""; }

static tdict_json_place place_of(const reader *r) {
  return (tdict_json_place){r->contents, r->file, "key", path_of(r)};
}

static int compare_names(const void *a, const void *b) {
  return strcmp((*(const tdict_item *const *)a)->path, (*(const tdict_item *const *)b)->path);
}

/* Finds the tensor with a name, and adds an item for the tensor. */
static TDICT_NOINLINE tdict_status add_tensor(reader *r, tdict_json name, tdict_item_kind kind, tdict_error *err) {
  const tdict_json_place place = place_of(r);
  const char *text;
  tdict_status status = tdict_json_text(r->contents, name, &text, err);
  if (status != TDICT_OK) return status;
  if (!text) return tdict_json_fail(&place, err, "'tensor' is not a name");
  const tdict_item wanted = {.path = text}, *key = &wanted;
  const tdict_item **found =
      r->num_tensors ? bsearch(&key, (const void *)r->sorted, r->num_tensors, sizeof *r->sorted, compare_names) : NULL;
  if (!found) return tdict_json_fail(&place, err, "the file has no tensor '%.80s'", text);
  r->used[found - r->sorted] = true;
  tdict_item item = **found;
  item.kind = kind;
  status = tdict_contents_copy_text(r->contents, path_of(r), r->path.length, &item.path, err);
  return status == TDICT_OK ? tdict_contents_add(r->contents, &item, err) : status;
}

/* Reads the shape of a column, and checks the shape against the number of values. */
static tdict_status read_column(reader *r, tdict_json entry, tdict_json values, tdict_item *item, tdict_error *err) {
  const tdict_json_place place = place_of(r);
  tdict_sizes shape;
  uint64_t count = 1;
  void *sizes = NULL;
  tdict_status status =
      tdict_json_sizes(&place, "shape", tdict_json_get(entry, "shape"), TDICT_MAX_BATCH_NDIM, &shape, err);
  if (status != TDICT_OK) return status;
  for (int i = 0; i < shape.count; i++)
    if (__builtin_mul_overflow(count, (uint64_t)shape.at[i], &count)) count = UINT64_MAX;
  if (!tdict_json_is(values, TDICT_JSON_ARRAY) || shape.count == 0 || tdict_json_count(values) != count)
    return tdict_json_fail(&place, err, "a column needs a list of values, one for each element of 'shape'");
  status = tdict_contents_alloc(r->contents, (size_t)shape.count * sizeof *shape.at, &sizes, err);
  if (status != TDICT_OK) return status;
  memcpy(sizes, shape.at, (size_t)shape.count * sizeof *shape.at);
  item->ndim = shape.count;
  item->shape = sizes;
  item->num_values = (size_t)count;
  return TDICT_OK;
}

/* Reads one value for the whole tree, or a column. */
static TDICT_NOINLINE tdict_status add_values(reader *r, tdict_json entry, tdict_json json, tdict_error *err) {
  const tdict_json mark = tdict_json_get(entry, "tdict");
  const bool is_column = tdict_json_exists(mark);
  const tdict_json_place place = place_of(r);
  tdict_item item = {.kind = TDICT_ITEM_VALUES, .num_values = 1};
  void *values = NULL;
  tdict_status status = TDICT_OK;
  if (is_column && !tdict_json_equals(mark, "column"))
    return tdict_json_fail(&place, err, "the mark 'tdict' of a value is no \"column\"");
  if (is_column) status = read_column(r, entry, json, &item, err);
  if (status == TDICT_OK)
    status = tdict_contents_alloc(r->contents, item.num_values * sizeof(tdict_value), &values, err);
  tdict_json_cursor cursor = tdict_json_enter(json);
  for (size_t i = 0; i < item.num_values && status == TDICT_OK; i++) {
    tdict_json value = json;
    if (is_column) tdict_json_next(&cursor, NULL, &value);
    status = tdict_value_from_json(r->contents, value, (tdict_value *)values + i, err);
  }
  if (status == TDICT_OK) status = tdict_contents_copy_text(r->contents, path_of(r), r->path.length, &item.path, err);
  item.values = values;
  return status == TDICT_OK ? tdict_contents_add(r->contents, &item, err) : status;
}

/* Reads a level that marks a ragged leaf. */
static TDICT_NOINLINE tdict_status add_ragged(reader *r, tdict_json level, tdict_error *err) {
  const tdict_json_place place = place_of(r);
  const tdict_json keys = tdict_json_get(level, "keys");
  const tdict_json values = tdict_json_get(tdict_json_get(keys, "values"), "tensor");
  const tdict_json offsets = tdict_json_get(tdict_json_get(keys, "offsets"), "tensor");
  if (!tdict_json_equals(tdict_json_get(level, "tdict"), "ragged") || !tdict_json_exists(values) ||
      !tdict_json_exists(offsets) || tdict_json_count(keys) != 2)
    return tdict_json_fail(&place, err, "a level with the mark 'tdict' is not a ragged leaf of 'values' and 'offsets'");
  tdict_status status = add_tensor(r, values, TDICT_ITEM_RAGGED_VALUES, err);
  return status == TDICT_OK ? add_tensor(r, offsets, TDICT_ITEM_RAGGED_OFFSETS, err) : status;
}

static tdict_status read_entry(reader *r, tdict_json entry, tdict_error *err) {
  const tdict_json_place place = place_of(r);
  const tdict_json tensor = tdict_json_get(entry, "tensor"), value = tdict_json_get(entry, "non_tensor");
  const tdict_json level = tdict_json_get(entry, "td");
  if (tdict_json_exists(tensor) + tdict_json_exists(value) + tdict_json_exists(level) != 1)
    return tdict_json_fail(&place, err, "wanted a JSON object with one of 'tensor', 'non_tensor' and 'td'");
  if (tdict_json_exists(tensor)) {
    const bool unbatched = tdict_json_is(tdict_json_get(entry, "unbatched"), TDICT_JSON_TRUE);
    return add_tensor(r, tensor, unbatched ? TDICT_ITEM_UNBATCHED : TDICT_ITEM_TENSOR, err);
  }
  if (tdict_json_exists(value)) return add_values(r, entry, value, err);
  if (tdict_json_exists(tdict_json_get(level, "tdict"))) return add_ragged(r, level, err);
  return read_level(r, level, err);
}

static tdict_status read_keys(reader *r, tdict_json keys, tdict_error *err) {
  tdict_json_cursor cursor = tdict_json_enter(keys);
  tdict_json name, entry;
  tdict_status status = TDICT_OK;
  const size_t length = r->path.length;
  while (tdict_json_next(&cursor, &name, &entry)) {
    const tdict_json_place place = place_of(r);
    const char *key;
    status = tdict_json_copy(r->contents, name, &key, NULL, err);
    if (status != TDICT_OK) return status;
    const size_t bytes = tdict_path_escape(key, NULL, 0) + 1;
    if (!key[0]) return tdict_json_fail(&place, err, "an empty key");
    if (length) tdict_io_text_add(&r->path, ".", 1);
    char *to = tdict_io_text_reserve(&r->path, bytes);
    if (!to) return fail_memory(r, err);
    tdict_path_escape(key, to, bytes);
    r->path.length += bytes - 1;
    status = read_entry(r, entry, err);
    if (status != TDICT_OK) return status;
    tdict_io_text_cut(&r->path, length);
  }
  return status;
}

/* Adds an item for the tree of a level. */
static TDICT_NOINLINE tdict_status add_tree(reader *r, tdict_json level, tdict_error *err) {
  const tdict_json_place place = place_of(r);
  tdict_item item = {.kind = TDICT_ITEM_TREE};
  tdict_sizes batch_size;
  void *sizes = NULL;
  if (!tdict_json_is(tdict_json_get(level, "keys"), TDICT_JSON_OBJECT))
    return tdict_json_fail(&place, err, "a level has no JSON object 'keys'");
  if (r->depth == TDICT_IO_MAX_DEPTH)
    return tdict_json_fail(&place, err, "more than %d nested trees", TDICT_IO_MAX_DEPTH);
  tdict_status status = tdict_json_sizes(&place, "batch_size", tdict_json_get(level, "batch_size"),
                                         TDICT_MAX_BATCH_NDIM, &batch_size, err);
  if (status == TDICT_OK)
    status = tdict_contents_alloc(r->contents, (size_t)batch_size.count * sizeof(int64_t), &sizes, err);
  if (status == TDICT_OK) status = tdict_contents_copy_text(r->contents, path_of(r), r->path.length, &item.path, err);
  if (status != TDICT_OK) return status;
  if (batch_size.count) memcpy(sizes, batch_size.at, (size_t)batch_size.count * sizeof(int64_t));
  item.ndim = batch_size.count;
  item.shape = sizes;
  return tdict_contents_add(r->contents, &item, err);
}

/* Reads a level: adds an item for the tree and items for its entries. The recursion is limited by
 * TDICT_IO_MAX_DEPTH. */
static tdict_status read_level(reader *r, tdict_json level, tdict_error *err) {
  tdict_status status = add_tree(r, level, err);
  if (status != TDICT_OK) return status;
  r->depth++;
  status = read_keys(r, tdict_json_get(level, "keys"), err);
  r->depth--;
  return status;
}

static tdict_status read_root(reader *r, tdict_json root, tdict_error *err) {
  int64_t version = 0;
  const bool has_version = tdict_json_integer(tdict_json_get(root, "version"), &version);
  if (version != VERSION)
    return tdict_fail_file(err, TDICT_ENOTSUP, r->file,
                           "%s: the entry 'tensordict' has %s, wanted version %d; the option `flat` ignores the entry",
                           r->contents->what, has_version ? "another version" : "no version", VERSION);
  tdict_status status = read_level(r, tdict_json_get(root, "root"), err);
  if (status == TDICT_OK && r->path.has_failed) return fail_memory(r, err);
  for (size_t i = 0; i < r->num_tensors && status == TDICT_OK; i++)
    if (!r->used[i])
      status = tdict_fail_file(err, TDICT_EFORMAT, r->file, "%s: the entry 'tensordict' does not name tensor '%.100s'",
                               r->contents->what, r->sorted[i]->path);
  return status;
}

tdict_status tdict_structure_read(tdict_contents *contents, const char *structure, tdict_error *err) {
  const size_t count = contents->num_items;
  tdict_item *old = contents->items;
  reader r = {.contents = contents, .file = contents->path, .num_tensors = count};
  const tdict_json_source source = {contents, contents->path, "the entry 'tensordict'", 0};
  tdict_json_document entry;
  tdict_status status = tdict_json_read(&source, structure, strlen(structure), &entry, err);
  if (status != TDICT_OK) return status;
  r.sorted = malloc((count + 1) * sizeof *r.sorted);
  r.used = calloc(count + 1, sizeof *r.used);
  contents->items = NULL;
  contents->num_items = contents->cap_items = 0;
  if (r.sorted && r.used) {
    for (size_t i = 0; i < count; i++) r.sorted[i] = &old[i];
    qsort((void *)r.sorted, count, sizeof *r.sorted, compare_names);
    status = read_root(&r, tdict_json_root(&entry), err);
  } else {
    status = fail_memory(&r, err);
  }
  tdict_json_close(&entry);
  tdict_io_text_reset(&r.path);
  free((void *)r.sorted);
  free(r.used);
  free(old);
  return status;
}
