/* Implements tdict_append(), and checks that the rows fit the directory. See append.h for ownership and threads. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "core/base/array.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "core/tensor/layout.h"
#include "services/io/json/document.h"
#include "services/io/json/read.h"
#include "services/io/tensordict/append.h"

typedef struct checker {
  tdict_td_reader from;
  tdict_td_append *append;
  int64_t saved, added; /* numbers of rows */
  int depth;
} checker;

/* The new text of a meta.json. Only the numbers of rows differ from the saved text. */
typedef struct new_text {
  tdict_io_text text;
  const char *rest; /* the saved text that is not yet copied */
} new_text;

static tdict_status check_folder(checker *c, const tdict_tree *rows, tdict_error *err);

/* Replaces the first number of `sizes`. Calls must be in the order of the saved text. */
static void replace_rows(new_text *to, tdict_json sizes, int64_t rows) {
  const tdict_json number = tdict_json_at(sizes, 0);
  tdict_io_text_add(&to->text, to->rest, (size_t)(tdict_json_start(number) - to->rest));
  tdict_io_text_format(&to->text, "%" PRId64, rows);
  to->rest = tdict_json_start(number) + tdict_json_bytes(number);
}

static const char *path_of(const checker *c) { return tdict_json_place_key(&c->from.base.place); }

static tdict_status fail_memory(const checker *c, tdict_error *err) {
  return tdict_fail_memory(err, c->append->contents.what, c->append->contents.path, "the keys");
}

/* The rows do not fit: err->path is the path in the tree. */
static tdict_status fail_rows(const checker *c, tdict_status status, const char *why, tdict_error *err) {
  return tdict_fail_at(err, status, path_of(c), "%s: key '%.80s': %s", c->append->contents.what, path_of(c), why);
}

static tdict_status add_leaf(checker *c, const char *key, const tdict_tensor *rows, uint64_t saved_bytes,
                             tdict_error *err) {
  tdict_td_append *a = c->append;
  tdict_td_grown leaf = {.rows = rows, .offset = saved_bytes};
  tdict_io_text name = {0};
  tdict_span file;
  bool exists = false;
  tdict_status status = tdict_td_find_leaf(&c->from, key, &file, &exists, err);
  if (status != TDICT_OK) return status;
  if (saved_bytes && !exists) return tdict_json_fail(&c->from.base.place, err, "the file of the leaf is missing");
  if (exists && file.bytes < saved_bytes)
    return tdict_json_fail(&c->from.base.place, err, "the file has %" PRIu64 " bytes, but the shape needs %" PRIu64,
                           file.bytes, saved_bytes);
  leaf.is_new = !exists;
  leaf.old_bytes = exists ? file.bytes : 0;
  if (exists) {
    leaf.path = a->contents.files[file.file].below.name;
  } else {
    tdict_td_add_name(&name, key);
    status = name.has_failed ? fail_memory(c, err)
                             : tdict_contents_format(&a->contents, &leaf.path, err, "%s%s.memmap",
                                                     tdict_td_folder(&c->from), name.bytes);
  }
  tdict_io_text_reset(&name);
  if (status == TDICT_OK)
    status = tdict_contents_copy_text(&a->contents, path_of(c), c->from.base.path.length, &leaf.name, err);
  if (status != TDICT_OK) return status;
  if (!TDICT_RESERVE(a->leaves, a->cap_leaves, a->num_leaves + 1)) return fail_memory(c, err);
  a->leaves[a->num_leaves++] = leaf;
  return TDICT_OK;
}

/* Checks the leaf of the last key of the path, and writes its new number of rows. */
static TDICT_NOINLINE tdict_status check_leaf(checker *c, const char *key, tdict_json entry, const tdict_entry *rows,
                                              new_text *to, tdict_error *err) {
  tdict_dtype dtype;
  tdict_sizes shape;
  tdict_layout_size size;
  if (tdict_json_is(tdict_json_get(entry, "is_nested"), TDICT_JSON_TRUE) ||
      tdict_json_exists(tdict_json_get(entry, "tdict")))
    return fail_rows(c, TDICT_ENOTSUP, "a nested tensor or a leaf without batch dimensions cannot grow", err);
  tdict_status status = tdict_torch_dtype(&c->from.base.place, tdict_json_get(entry, "dtype"), &dtype, err);
  if (status == TDICT_OK)
    status =
        tdict_json_sizes(&c->from.base.place, "shape", tdict_json_get(entry, "shape"), TDICT_MAX_NDIM, &shape, err);
  if (status != TDICT_OK) return status;
  if (shape.count == 0 || shape.at[0] != c->saved)
    return tdict_json_fail(&c->from.base.place, err, "the leaf does not have the rows of its tree");
  if (!rows->tensor) return fail_rows(c, TDICT_ETYPE, "the saved entry is a tensor, but the rows have none", err);
  if (tdict_tensor_dtype(rows->tensor) != dtype)
    return fail_rows(c, TDICT_EDTYPE, "the rows have another dtype than the saved tensor", err);
  bool is_same = tdict_tensor_ndim(rows->tensor) == shape.count;
  for (int d = 1; d < shape.count && is_same; d++) is_same = tdict_tensor_shape(rows->tensor)[d] == shape.at[d];
  if (!is_same) return fail_rows(c, TDICT_ESHAPE, "the rows have another shape than the saved rows", err);
  status = tdict_layout_check(c->append->contents.what, dtype, shape.count, shape.at, &size, NULL);
  shape.at[0] += c->added;
  tdict_layout_size whole;
  if (status != TDICT_OK || tdict_layout_check(c->append->contents.what, dtype, shape.count, shape.at, &whole, NULL))
    return fail_rows(c, TDICT_EOVERFLOW, "the bytes of the tensor do not fit 63 bits", err);
  replace_rows(to, tdict_json_get(entry, "shape"), shape.at[0]);
  return tdict_tensor_bytes(rows->tensor) ? add_leaf(c, key, rows->tensor, size.bytes, err) : TDICT_OK;
}

/* Compares value `i` with a text of tdict_json_write(). A value without JSON differs. */
static tdict_status compare_value(const tdict_nontensor *values, int64_t i, const tdict_io_text *wanted,
                                  bool *is_same) {
  tdict_io_text text = {0}, written = {0};
  tdict_value value;
  const char *why;
  tdict_json_fault fault;
  tdict_json_document document = {0};
  *is_same = false;
  tdict_status status = tdict_nontensor_get(values, i, &value, NULL);
  if (status == TDICT_OK) status = tdict_value_to_json(&text, &value, &why);
  if (status == TDICT_OK && text.has_failed) status = TDICT_ENOMEM;
  if (status == TDICT_OK) status = tdict_json_open(text.bytes, text.length, &document, &fault);
  if (status == TDICT_OK) {
    tdict_json_write(&written, tdict_json_root(&document));
    if (written.has_failed) status = TDICT_ENOMEM;
    *is_same = status == TDICT_OK && written.length == wanted->length &&
               memcmp(written.bytes, wanted->bytes, wanted->length) == 0;
  }
  tdict_json_close(&document);
  tdict_io_text_reset(&written);
  tdict_io_text_reset(&text);
  return status == TDICT_ENOMEM ? TDICT_ENOMEM : TDICT_OK;
}

/* Checks that the rows have the saved value of the whole tree, because an append does not change this value. */
static TDICT_NOINLINE tdict_status check_value(const checker *c, tdict_json meta, const tdict_entry *rows,
                                               tdict_error *err) {
  const tdict_json data = tdict_json_get(meta, "data");
  tdict_io_text saved = {0};
  if (!tdict_json_exists(data))
    return fail_rows(c, TDICT_ENOTSUP, "the saved value is a pickle; this library does not read pickles", err);
  if (rows->type != tdict_nontensor_type())
    return fail_rows(c, TDICT_ETYPE, "the saved entry is a value, but the rows have none", err);
  tdict_json_write(&saved, data);
  tdict_status status = saved.has_failed ? fail_memory(c, err) : TDICT_OK;
  for (int64_t i = 0, count = tdict_nontensor_count(rows->object); i < count && status == TDICT_OK; i++) {
    bool is_same;
    if (compare_value(rows->object, i, &saved, &is_same) != TDICT_OK)
      status = fail_memory(c, err);
    else if (!is_same)
      status = fail_rows(c, TDICT_EINVAL, "the saved value stays as it is, but the rows have another", err);
  }
  tdict_io_text_reset(&saved);
  return status;
}

static tdict_status check_child(checker *c, const char *key, const tdict_entry *rows, tdict_error *err) {
  const size_t length = c->from.folder.length;
  const char *const file = c->from.base.place.file;
  tdict_json_document meta = {0};
  tdict_status status = tdict_td_enter_folder(&c->from, key, err);
  if (status == TDICT_OK) status = tdict_td_read_meta(&c->from, &meta, err);
  if (status == TDICT_OK && !meta.text)
    status = tdict_json_fail(&c->from.base.place, err, "the meta.json of the folder is missing");
  if (status == TDICT_OK) {
    if (tdict_td_is_class(tdict_json_root(&meta), "NonTensorData"))
      status = check_value(c, tdict_json_root(&meta), rows, err);
    else if (!rows->tree)
      status = fail_rows(c, TDICT_ETYPE,
                         "the saved entry is a tree, a ragged leaf or a column, which cannot grow "
                         "by these rows",
                         err);
    else
      status = check_folder(c, rows->tree, err);
  }
  tdict_json_close(&meta);
  tdict_io_text_cut(&c->from.folder, length);
  c->from.base.place.file = file;
  return status;
}

static tdict_status check_entry(checker *c, const char *key, tdict_json entry, const tdict_tree *rows, new_text *to,
                                tdict_error *err) {
  const size_t length = c->from.base.path.length;
  tdict_entry found = {0};
  if (!key[0]) return fail_rows(c, TDICT_ENOTFOUND, "the rows do not have this key", err);
  tdict_status status = tdict_reader_push(&c->from.base, key, err);
  if (status != TDICT_OK) return status;
  if (tdict_get_entry(rows, c->from.base.path.bytes + length + (length > 0), &found, NULL) != TDICT_OK)
    return fail_rows(c, TDICT_ENOTFOUND, "the rows do not have this key", err);
  return tdict_json_exists(tdict_json_get(entry, "type")) ? check_child(c, key, &found, err)
                                                          : check_leaf(c, key, entry, &found, to, err);
}

static tdict_status check_entries(checker *c, tdict_json meta, const tdict_tree *rows, new_text *to, tdict_error *err) {
  const size_t length = c->from.base.path.length;
  tdict_json_cursor cursor = tdict_json_enter(meta);
  tdict_json name, entry;
  size_t count = 0;
  while (tdict_json_next(&cursor, &name, &entry)) {
    const char *key;
    if (tdict_json_equals(name, "shape")) replace_rows(to, entry, c->saved + c->added);
    if (!tdict_json_exists(tdict_json_get(entry, "type")) && !tdict_json_exists(tdict_json_get(entry, "dtype")))
      continue;
    tdict_status status = tdict_json_copy(&c->append->contents, name, &key, NULL, err);
    if (status == TDICT_OK) status = check_entry(c, key, entry, rows, to, err);
    if (status != TDICT_OK) return status;
    tdict_io_text_cut(&c->from.base.path, length);
    count++;
  }
  if (count == tdict_num_keys(rows)) return TDICT_OK;
  return fail_rows(c, TDICT_ENOTFOUND, "the rows have a key that the saved tree does not have", err);
}

static TDICT_NOINLINE tdict_status check_batch(checker *c, tdict_json meta, const tdict_tree *rows, tdict_error *err) {
  tdict_sizes shape;
  int64_t whole;
  tdict_status status =
      tdict_json_sizes(&c->from.base.place, "shape", tdict_json_get(meta, "shape"), TDICT_MAX_BATCH_NDIM, &shape, err);
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
  if (shape.at[0] != c->saved)
    return tdict_json_fail(&c->from.base.place, err, "the tree does not have the rows of the root");
  return tdict_add_i64(c->saved, c->added, &whole) ? TDICT_OK : fail_rows(c, TDICT_EOVERFLOW, "too many rows", err);
}

/* Checks the entries of a tree, and makes its new meta.json. */
static tdict_status check_meta(checker *c, const tdict_json_document *meta, const tdict_tree *rows,
                               tdict_td_new_meta *made, tdict_error *err) {
  tdict_contents *contents = &c->append->contents;
  const char *end = meta->text + meta->length;
  new_text to = {.rest = meta->text};
  tdict_status status =
      tdict_contents_copy_text(contents, tdict_td_folder(&c->from), c->from.folder.length, &made->folder, err);
  made->old_length = meta->length;
  if (status == TDICT_OK)
    status = tdict_contents_copy_text(contents, meta->text, made->old_length, &made->old_text, err);
  if (status == TDICT_OK) status = check_batch(c, tdict_json_root(meta), rows, err);
  c->depth++;
  if (status == TDICT_OK) status = check_entries(c, tdict_json_root(meta), rows, &to, err);
  c->depth--;
  tdict_io_text_add(&to.text, to.rest, (size_t)(end - to.rest));
  made->length = to.text.length;
  if (status == TDICT_OK && to.text.has_failed) status = fail_memory(c, err);
  if (status == TDICT_OK) status = tdict_contents_copy_text(contents, to.text.bytes, made->length, &made->text, err);
  tdict_io_text_reset(&to.text);
  return status;
}

static tdict_status check_tree(checker *c, const tdict_json_document *meta, const tdict_tree *rows, tdict_error *err) {
  tdict_td_append *a = c->append;
  const size_t at = a->num_metas;
  tdict_td_new_meta made = {0};
  if (c->depth == TDICT_IO_MAX_DEPTH) return fail_rows(c, TDICT_ENOTSUP, "more than 128 nested trees", err);
  if (!TDICT_RESERVE(a->metas, a->cap_metas, a->num_metas + 1)) return fail_memory(c, err);
  a->num_metas++; /* the metas of the children follow */
  tdict_status status = check_meta(c, meta, rows, &made, err);
  a->metas[at] = made;
  return status;
}

/* Checks the current folder. The recursion is limited by TDICT_IO_MAX_DEPTH. */
static tdict_status check_folder(checker *c, const tdict_tree *rows, tdict_error *err) {
  tdict_json_document meta = {0};
  tdict_status status = tdict_td_read_meta(&c->from, &meta, err);
  const tdict_json root = tdict_json_root(&meta);
  if (status == TDICT_OK && !tdict_json_exists(root))
    status =
        tdict_json_fail(&c->from.base.place, err, "the folder has no meta.json; is this a directory of TensorDict?");
  if (status == TDICT_OK) status = tdict_td_check_meta(&c->from.base.place, root, err);
  if (status == TDICT_OK &&
      (tdict_td_is_class(root, "LazyStackedTensorDict") || tdict_json_exists(tdict_json_get(root, "stack_dim")) ||
       tdict_json_is(tdict_json_get(root, "tdict"), TDICT_JSON_STRING) ||
       !tdict_json_exists(tdict_json_get(root, "shape"))))
    status = fail_rows(c, TDICT_ENOTSUP, "lazy stacks, columns, ragged leaves and tensorclasses cannot grow", err);
  if (status == TDICT_OK) status = check_tree(c, &meta, rows, err);
  tdict_json_close(&meta);
  return status;
}

static tdict_status check_rows(tdict_td_append *append, const tdict_tree *rows, tdict_error *err) {
  checker c = {.append = append};
  tdict_td_reader_init(&c.from, &append->contents, NULL, NULL);
  tdict_status status = check_folder(&c, rows, err);
  tdict_td_reader_reset(&c.from);
  return status;
}

/* Opens and locks the directory. Meanwhile other calls of tdict_append() for it fail, also in other processes. */
static tdict_status open_directory(tdict_contents *c, tdict_error *err) {
  const int fd = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 && errno == ENOTDIR)
    return tdict_fail_at(err, TDICT_EFORMAT, c->path, "%s: the path names no directory; an archive cannot grow",
                         c->what);
  if (fd < 0) return tdict_fail_errno(err, errno, c->path, "%s: the directory cannot be opened", c->what);
  c->root = fd;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return TDICT_OK;
  return tdict_fail_errno(err, errno, c->path, "%s: another call appends to the directory", c->what);
}

/* Checks that it is a plain TensorDict, because tdict_td_recover() runs next and may change the directory. */
static tdict_status check_directory(tdict_contents *c, tdict_error *err) {
  tdict_td_reader reader;
  tdict_json_document meta = {0};
  tdict_td_reader_init(&reader, c, NULL, NULL);
  tdict_status status = tdict_td_read_meta(&reader, &meta, err);
  if (status == TDICT_OK && !meta.text)
    status = tdict_fail_at(err, TDICT_EFORMAT, c->path, "%s: the directory has no meta.json", c->what);
  if (status == TDICT_OK && !tdict_json_is(tdict_json_get(tdict_json_root(&meta), "shape"), TDICT_JSON_ARRAY))
    status = tdict_fail_at(err, TDICT_ENOTSUP, c->path,
                           "%s: the directory is not a plain TensorDict; lazy stacks and tensorclasses cannot grow",
                           c->what);
  tdict_json_close(&meta);
  tdict_td_reader_reset(&reader);
  return status;
}

static tdict_status append_rows(const char *path, const tdict_tree *rows, bool flushes, tdict_error *err) {
  tdict_td_append append = {.flushes = flushes};
  tdict_contents_init(&append.contents, "append", path);
  tdict_status status = open_directory(&append.contents, err);
  if (status == TDICT_OK) status = check_directory(&append.contents, err);
  if (status == TDICT_OK) status = tdict_td_recover(&append.contents, err);
  if (status == TDICT_OK) status = check_rows(&append, rows, err);
  if (status == TDICT_OK) status = tdict_td_append_write(&append, err);
  tdict_contents_close(&append.contents);
  free(append.leaves);
  free(append.metas);
  return status;
}

tdict_status tdict_append(tdict_context *context, const char *path, const tdict_tree *rows,
                          const tdict_append_options *options, tdict_error *err) {
  TDICT_UNCANCELLED;
  static const char what[] = "append";
  tdict_append_options o = tdict_append_options_default();
  const tdict_save_options plain = tdict_save_options_default();
  tdict_tree *host = NULL;
  if (!path || !rows) return tdict_fail_null(err, what, path ? "rows" : "path");
  tdict_status status = tdict_options_read(&o, sizeof o, options, "append_options", err);
  if (status == TDICT_OK) status = tdict_save_host_tree(what, context, rows, &plain, &host, err);
  if (status != TDICT_OK) return status;
  status = append_rows(path, host, !o.without_flush, err);
  tdict_release(host);
  return status;
}
