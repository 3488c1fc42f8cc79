/* Checks that rows can be appended to a memory-mapped directory. See append.h for ownership and threads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "io/json_value.h"
#include "io/tensordict/append.h"
#include "tensor/layout.h"

typedef struct checker {
  tdict_td_append *append;
  tdict_td_files files;
  tdict_io_text folder, path; /* `folder` is "" or ends with a slash; `path` is the escaped path in the tree */
  const char *file;           /* the meta.json that is read, for messages */
  int64_t saved, added;       /* numbers of rows */
  int depth;
} checker;

static tdict_status check_folder(checker *c, const tdict_tree *rows, tdict_error *err);

static const char *path_of(const checker *c) { return c->path.bytes ? c->path.bytes : ""; }
static const char *folder_of(const checker *c) { return c->folder.bytes ? c->folder.bytes : ""; }

static tdict_status fail_memory(const checker *c, tdict_error *err) {
  return tdict_fail_file(err, TDICT_ENOMEM, c->append->contents.path, "%s: no host memory for the keys",
                         c->append->contents.what);
}

/* The rows do not fit: err->path is the path in the tree. */
static tdict_status fail_rows(const checker *c, tdict_status status, const char *why, tdict_error *err) {
  return tdict_fail_file(err, status, path_of(c), "%s: key '%.80s': %s", c->append->contents.what, path_of(c), why);
}

static tdict_json_place place_of(const checker *c) {
  return (tdict_json_place){&c->append->contents, c->file, "key", path_of(c)};
}

/* Makes room for one more element in an array of `count` elements. Returns NULL if memory is exhausted. */
static void *grow(void *array, size_t count, size_t *cap, size_t width) {
  size_t bytes;
  const size_t wanted = *cap ? 2 * *cap : 64;
  if (count < *cap) return array;
  void *grown = tdict_mul_size(wanted, width, &bytes) ? realloc(array, bytes) : NULL;
  if (grown) *cap = wanted;
  return grown;
}

static tdict_status add_leaf(checker *c, const char *key, const tdict_tensor *rows, uint64_t saved_bytes,
                             tdict_error *err) {
  tdict_td_append *a = c->append;
  tdict_td_grown leaf = {.rows = rows, .offset = saved_bytes};
  tdict_io_text path = {0};
  tdict_span file;
  bool exists = false;
  tdict_status status = tdict_td_find_leaf(&c->files, folder_of(c), key, &file, &exists, err);
  if (status != TDICT_OK) return status;
  const tdict_json_place place = place_of(c);
  if (saved_bytes && !exists) return tdict_json_fail(&place, err, "the file of the leaf is missing");
  if (exists && file.bytes < saved_bytes)
    return tdict_json_fail(&place, err, "the file has %" PRIu64 " bytes, but the shape needs %" PRIu64, file.bytes,
                           saved_bytes);
  leaf.is_new = !exists;
  leaf.old_bytes = exists ? file.bytes : 0;
  if (!exists) {
    tdict_io_text_add_string(&path, folder_of(c));
    tdict_td_add_name(&path, key);
    tdict_io_text_add_string(&path, ".memmap");
    if (path.has_failed) status = fail_memory(c, err);
  }
  if (exists) leaf.path = a->contents.files[file.file].below;
  if (!exists && status == TDICT_OK)
    status = tdict_contents_copy_text(&a->contents, path.bytes, path.length, &leaf.path, err);
  tdict_io_text_reset(&path);
  if (status == TDICT_OK) status = tdict_contents_copy_text(&a->contents, path_of(c), c->path.length, &leaf.name, err);
  if (status != TDICT_OK) return status;
  tdict_td_grown *grown = grow(a->leaves, a->num_leaves, &a->cap_leaves, sizeof *grown);
  if (!grown) return fail_memory(c, err);
  a->leaves = grown;
  a->leaves[a->num_leaves++] = leaf;
  return TDICT_OK;
}

/* Checks a leaf, and sets the new number of rows in `entry`. */
static tdict_status check_leaf(checker *c, const char *key, json_t *entry, const tdict_entry *rows, tdict_error *err) {
  const tdict_json_place place = place_of(c);
  tdict_dtype dtype;
  tdict_sizes shape;
  tdict_layout_size size;
  if (json_is_true(json_object_get(entry, "is_nested")) || json_object_get(entry, "tdict"))
    return fail_rows(c, TDICT_ENOTSUP, "a nested tensor or a leaf without batch dimensions cannot grow", err);
  tdict_status status = tdict_torch_dtype(&place, json_object_get(entry, "dtype"), &dtype, err);
  if (status == TDICT_OK)
    status = tdict_json_sizes(&place, "shape", json_object_get(entry, "shape"), TDICT_MAX_NDIM, &shape, err);
  if (status != TDICT_OK) return status;
  if (shape.count == 0 || shape.at[0] != c->saved)
    return tdict_json_fail(&place, err, "the leaf does not have the rows of its tree");
  if (!rows->tensor) return fail_rows(c, TDICT_ETYPE, "the saved entry is a tensor, but the rows have none", err);
  if (tdict_tensor_dtype(rows->tensor) != dtype)
    return fail_rows(c, TDICT_EDTYPE, "the rows have another dtype than the saved tensor", err);
  bool is_same = tdict_tensor_ndim(rows->tensor) == shape.count;
  for (int d = 1; d < shape.count && is_same; d++) is_same = tdict_tensor_shape(rows->tensor)[d] == shape.at[d];
  if (!is_same) return fail_rows(c, TDICT_ESHAPE, "the rows have another shape than the saved rows", err);
  status = tdict_layout_check(c->append->contents.what, dtype, shape.count, shape.at, &size, NULL);
  shape.at[0] += c->added;
  tdict_layout_size whole;
  if (status != TDICT_OK || tdict_layout_check(place.contents->what, dtype, shape.count, shape.at, &whole, NULL))
    return fail_rows(c, TDICT_EOVERFLOW, "the bytes of the tensor do not fit 63 bits", err);
  if (json_array_set_new(json_object_get(entry, "shape"), 0, json_integer(shape.at[0]))) return fail_memory(c, err);
  return tdict_tensor_bytes(rows->tensor) ? add_leaf(c, key, rows->tensor, size.bytes, err) : TDICT_OK;
}

/* Compares value `i` with JSON. A value without JSON differs. */
static tdict_status compare_value(const tdict_nontensor *values, int64_t i, const json_t *wanted, bool *is_same) {
  tdict_io_text text = {0};
  tdict_value value;
  const char *why;
  json_error_t fault;
  json_t *json = NULL;
  *is_same = false;
  tdict_io_text_add(&text, "[", 1);
  tdict_status status = tdict_nontensor_get(values, i, &value, NULL);
  if (status == TDICT_OK) status = tdict_value_to_json(&text, &value, &why);
  tdict_io_text_add(&text, "]", 1);
  if (status == TDICT_OK) {
    json = text.has_failed ? NULL : json_loadb(text.bytes, text.length, JSON_ALLOW_NUL, &fault);
    *is_same = json && json_equal(json_array_get(json, 0), wanted);
    if (!json) status = TDICT_ENOMEM;
  }
  json_decref(json);
  tdict_io_text_reset(&text);
  return status == TDICT_ENOMEM ? TDICT_ENOMEM : TDICT_OK;
}

/* Checks that the rows have the saved value of the whole tree, because an append does not change this value. */
static tdict_status check_value(const checker *c, const json_t *meta, const tdict_entry *rows, tdict_error *err) {
  const json_t *data = json_object_get(meta, "data");
  if (!data) return fail_rows(c, TDICT_ENOTSUP, "the saved value is a pickle; this library does not read pickles", err);
  if (rows->type != tdict_nontensor_type())
    return fail_rows(c, TDICT_ETYPE, "the saved entry is a value, but the rows have none", err);
  for (int64_t i = 0, count = tdict_nontensor_count(rows->object); i < count; i++) {
    bool is_same;
    if (compare_value(rows->object, i, data, &is_same) != TDICT_OK) return fail_memory(c, err);
    if (!is_same) return fail_rows(c, TDICT_EINVAL, "the saved value stays as it is, but the rows have another", err);
  }
  return TDICT_OK;
}

/* Checks the entry of a key that is a folder. */
static tdict_status check_child(checker *c, const char *key, const tdict_entry *rows, tdict_error *err) {
  const size_t length = c->folder.length;
  const char *const file = c->file;
  json_t *meta = NULL;
  tdict_status status = tdict_td_add_folder(&c->files, &c->folder, key, err);
  if (status == TDICT_OK) status = tdict_td_read_meta(&c->files, folder_of(c), &meta, &c->file, err);
  const tdict_json_place place = place_of(c);
  if (status == TDICT_OK && !meta) status = tdict_json_fail(&place, err, "the meta.json of the folder is missing");
  if (status == TDICT_OK) {
    if (tdict_td_is_class(meta, "NonTensorData"))
      status = check_value(c, meta, rows, err);
    else if (!rows->tree)
      status = fail_rows(c, TDICT_ETYPE,
                         "the saved entry is a tree, a ragged leaf or a column, which cannot grow "
                         "by these rows",
                         err);
    else
      status = check_folder(c, rows->tree, err);
  }
  json_decref(meta);
  tdict_io_text_cut(&c->folder, length);
  c->file = file;
  return status;
}

/* Adds the key to the path. */
static tdict_status push_key(checker *c, const char *key, size_t *escaped, tdict_error *err) {
  const size_t bytes = tdict_path_escape(key, NULL, 0) + 1;
  if (c->path.length) tdict_io_text_add(&c->path, ".", 1);
  *escaped = c->path.length;
  char *to = tdict_io_text_reserve(&c->path, bytes);
  if (!to) return fail_memory(c, err);
  tdict_path_escape(key, to, bytes);
  c->path.length += bytes - 1;
  return TDICT_OK;
}

static tdict_status check_entries(checker *c, json_t *meta, const tdict_tree *rows, tdict_error *err) {
  const size_t length = c->path.length;
  size_t count = 0;
  const char *key;
  json_t *entry;
  json_object_foreach(meta, key, entry) {
    const bool is_child = json_object_get(entry, "type") != NULL;
    if (!is_child && !json_object_get(entry, "dtype")) continue;
    size_t escaped = 0;
    tdict_entry found = {0};
    tdict_status status = push_key(c, key, &escaped, err);
    if (status != TDICT_OK) return status;
    if (!key[0] || tdict_get_entry(rows, c->path.bytes + escaped, &found, NULL) != TDICT_OK)
      return fail_rows(c, TDICT_ENOTFOUND, "the rows do not have this key", err);
    status = is_child ? check_child(c, key, &found, err) : check_leaf(c, key, entry, &found, err);
    if (status != TDICT_OK) return status;
    tdict_io_text_cut(&c->path, length);
    count++;
  }
  if (count == tdict_num_keys(rows)) return TDICT_OK;
  return fail_rows(c, TDICT_ENOTFOUND, "the rows have a key that the saved tree does not have", err);
}

/* Checks the batch size of a tree, and sets the new number of rows. */
static tdict_status check_batch(checker *c, json_t *meta, const tdict_tree *rows, tdict_error *err) {
  const tdict_json_place place = place_of(c);
  tdict_sizes shape;
  json_t *sizes = json_object_get(meta, "shape");
  tdict_status status = tdict_json_sizes(&place, "shape", sizes, TDICT_MAX_BATCH_NDIM, &shape, err);
  if (status != TDICT_OK) return status;
  if (shape.count == 0 || tdict_batch_ndim(rows) == 0)
    return fail_rows(c, TDICT_ESHAPE, "rows need a first batch dimension in the saved tree and in the rows", err);
  bool is_same = tdict_batch_ndim(rows) == shape.count;
  for (int d = 1; d < shape.count && is_same; d++) is_same = tdict_batch_size(rows)[d] == shape.at[d];
  if (!is_same) return fail_rows(c, TDICT_ESHAPE, "the batch sizes differ beyond the first dimension", err);
  if (c->depth == 0) {
    c->saved = shape.at[0];
    c->added = tdict_batch_size(rows)[0];
  }
  if (shape.at[0] != c->saved) return tdict_json_fail(&place, err, "the tree does not have the rows of the root");
  int64_t whole;
  if (!tdict_add_i64(c->saved, c->added, &whole)) return fail_rows(c, TDICT_EOVERFLOW, "too many rows", err);
  return json_array_set_new(sizes, 0, json_integer(whole)) ? fail_memory(c, err) : TDICT_OK;
}

/* Makes the text of a meta.json as Python's module json does. The contents own the text. Does not call json_dumps(),
 * because json_dumps() of jansson 2.14 leaves out a key if memory is exhausted. */
static tdict_status dump_meta(checker *c, const json_t *meta, const char **text, size_t *length, tdict_error *err) {
  void *to = NULL;
  *length = json_dumpb(meta, NULL, 0, JSON_ENSURE_ASCII);
  if (*length == 0) return fail_memory(c, err);
  tdict_status status = tdict_contents_alloc(&c->append->contents, *length, &to, err);
  if (status == TDICT_OK && json_dumpb(meta, to, *length, JSON_ENSURE_ASCII) != *length) status = fail_memory(c, err);
  *text = to;
  return status;
}

static tdict_status check_tree(checker *c, json_t *meta, const tdict_tree *rows, tdict_error *err) {
  tdict_td_append *a = c->append;
  const size_t at = a->num_metas;
  tdict_td_new_meta made = {0};
  if (c->depth == TDICT_IO_MAX_DEPTH) return fail_rows(c, TDICT_ENOTSUP, "more than 128 nested trees", err);
  tdict_td_new_meta *grown = grow(a->metas, a->num_metas, &a->cap_metas, sizeof *grown);
  if (!grown) return fail_memory(c, err);
  a->metas = grown;
  a->num_metas++;
  tdict_status status = tdict_contents_copy_text(&a->contents, folder_of(c), c->folder.length, &made.folder, err);
  if (status == TDICT_OK) status = dump_meta(c, meta, &made.old_text, &made.old_length, err);
  if (status == TDICT_OK) status = check_batch(c, meta, rows, err);
  c->depth++;
  if (status == TDICT_OK) status = check_entries(c, meta, rows, err);
  c->depth--;
  if (status == TDICT_OK) status = dump_meta(c, meta, &made.text, &made.length, err);
  a->metas[at] = made;
  return status;
}

/* Checks the current folder. The recursion is limited by TDICT_IO_MAX_DEPTH. */
static tdict_status check_folder(checker *c, const tdict_tree *rows, tdict_error *err) {
  json_t *meta = NULL;
  tdict_status status = tdict_td_read_meta(&c->files, folder_of(c), &meta, &c->file, err);
  const tdict_json_place place = place_of(c);
  if (status == TDICT_OK && !meta)
    status = tdict_json_fail(&place, err, "the folder has no meta.json; is this a directory of TensorDict?");
  if (status == TDICT_OK) status = tdict_td_check_meta(&place, meta, err);
  if (status == TDICT_OK && (tdict_td_is_class(meta, "LazyStackedTensorDict") || json_object_get(meta, "stack_dim") ||
                             json_is_string(json_object_get(meta, "tdict")) || !json_object_get(meta, "shape")))
    status = fail_rows(c, TDICT_ENOTSUP, "lazy stacks, columns, ragged leaves and tensorclasses cannot grow", err);
  if (status == TDICT_OK) status = check_tree(c, meta, rows, err);
  json_decref(meta);
  return status;
}

tdict_status tdict_td_append_check(tdict_td_append *append, const tdict_tree *rows, tdict_error *err) {
  checker c = {.append = append, .file = append->contents.path};
  c.files = tdict_td_folder_files(&append->contents, append->contents.root);
  tdict_status status = check_folder(&c, rows, err);
  tdict_io_text_reset(&c.folder);
  tdict_io_text_reset(&c.path);
  return status;
}
