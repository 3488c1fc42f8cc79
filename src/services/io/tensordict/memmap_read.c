/* Reads memory-mapped directories of TensorDict. See memmap.h for ownership and threads. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/tensor/layout.h"
#include "services/io/tensordict/memmap.h"

/* `folder` is the path of the folder that is read: "" or a path that ends with a slash. */
typedef struct save_reader {
  tdict_td_reader base;
  const tdict_td_files *files;
  tdict_io_text folder;
} save_reader;

static tdict_status read_folder(save_reader *r, tdict_error *err);

static tdict_status fail_memory(const tdict_contents *c, tdict_error *err) {
  return tdict_fail_file(err, TDICT_ENOMEM, c->path, "%s: no host memory for a path or a file meta.json", c->what);
}

static const char *folder_of(const save_reader *r) { return r->folder.bytes ? r->folder.bytes : ""; }

tdict_status tdict_td_find(const tdict_td_files *files, const char *folder, const char *name, tdict_span *span,
                           bool *exists, tdict_error *err) {
  tdict_io_text path = {0};
  tdict_io_text_add_string(&path, folder);
  tdict_io_text_add_string(&path, name);
  tdict_status status =
      path.has_failed ? fail_memory(files->contents, err) : files->find(files, path.bytes, span, exists, err);
  tdict_io_text_reset(&path);
  return status;
}

tdict_status tdict_td_read_meta(const tdict_td_files *files, const char *folder, tdict_td_meta *out, const char **file,
                                tdict_error *err) {
  tdict_contents *c = files->contents;
  tdict_span span;
  bool exists = false;
  tdict_status status = tdict_td_find(files, folder, "meta.json", &span, &exists, err);
  if (status != TDICT_OK || !exists) return status;
  const char *path = c->files[span.file].path;
  if (file) *file = path;
  if (span.bytes > TDICT_TD_MAX_JSON)
    return tdict_fail_file(err, TDICT_ENOTSUP, path, "%s: %smeta.json has %" PRIu64 " bytes, wanted at most %d",
                           c->what, folder, span.bytes, TDICT_TD_MAX_JSON);
  out->text = calloc(1, (size_t)span.bytes + 1);
  if (!out->text) return fail_memory(c, err);
  const tdict_json_source source = {c, path, "meta.json", span.offset};
  status = tdict_contents_read(c, span, out->text, err);
  if (status == TDICT_OK) status = tdict_json_read(&source, out->text, (size_t)span.bytes, &out->document, err);
  if (status == TDICT_OK) out->root = tdict_json_root(&out->document);
  return status;
}

void tdict_td_close_meta(tdict_td_meta *meta) {
  tdict_json_close(&meta->document);
  free(meta->text);
}

tdict_status tdict_td_find_leaf(const tdict_td_files *files, const char *folder, const char *key, tdict_span *span,
                                bool *exists, tdict_error *err) {
  tdict_io_text name = {0};
  tdict_status status = TDICT_OK;
  *exists = false;
  for (int i = 0; i < 2 && status == TDICT_OK && !*exists; i++) {
    tdict_io_text_cut(&name, 0);
    if (i == 0) tdict_td_add_name(&name, key);
    if (i == 1) tdict_io_text_add_string(&name, key);
    tdict_io_text_add_string(&name, ".memmap");
    if (name.has_failed) status = fail_memory(files->contents, err);
    if (status == TDICT_OK && (i == 0 || tdict_td_is_plain_name(key)))
      status = tdict_td_find(files, folder, name.bytes, span, exists, err);
  }
  tdict_io_text_reset(&name);
  return status;
}

tdict_status tdict_td_add_folder(const tdict_td_files *files, tdict_io_text *folder, const char *key,
                                 tdict_error *err) {
  const size_t length = folder->length;
  tdict_span span;
  bool exists = false;
  tdict_td_add_name(folder, key);
  tdict_io_text_add(folder, "/", 1);
  if (folder->has_failed) return fail_memory(files->contents, err);
  tdict_status status = tdict_td_find(files, folder->bytes, "meta.json", &span, &exists, err);
  if (status != TDICT_OK || exists || !tdict_td_is_plain_name(key)) return status;
  tdict_io_text_cut(folder, length);
  tdict_io_text_add_string(folder, key);
  tdict_io_text_add(folder, "/", 1);
  return folder->has_failed ? fail_memory(files->contents, err) : TDICT_OK;
}

/* Reads the dtype and the shape of a leaf. */
static tdict_status read_layout(const save_reader *r, tdict_json entry, tdict_item *item, tdict_sizes *shape,
                                tdict_error *err) {
  const tdict_json_place place = tdict_td_place(&r->base);
  tdict_layout_size size;
  if (tdict_json_is(tdict_json_get(entry, "is_nested"), TDICT_JSON_TRUE))
    return tdict_fail_file(err, TDICT_ENOTSUP, place.file, "%s: key '%.80s': nested tensors cannot be read",
                           place.contents->what, place.key);
  tdict_status status = tdict_torch_dtype(&place, tdict_json_get(entry, "dtype"), &item->dtype, err);
  if (status == TDICT_OK)
    status = tdict_json_sizes(&place, "shape", tdict_json_get(entry, "shape"), TDICT_MAX_NDIM, shape, err);
  if (status != TDICT_OK) return status;
  if (tdict_layout_check(place.contents->what, item->dtype, shape->count, shape->at, &size, NULL) != TDICT_OK)
    return tdict_json_fail(&place, err, "the bytes of the shape do not fit 63 bits");
  item->span.bytes = size.bytes;
  return TDICT_OK;
}

static TDICT_NOINLINE tdict_status read_leaf(save_reader *r, const char *key, tdict_json entry, tdict_item_kind kind,
                                             tdict_error *err) {
  const tdict_json_place place = tdict_td_place(&r->base);
  tdict_contents *c = r->base.contents;
  tdict_item item = {.kind = kind};
  tdict_sizes shape;
  tdict_span file = {0}; /* file 0 exists: it is the first meta.json, or the archive */
  bool exists = false;
  tdict_status status = read_layout(r, entry, &item, &shape, err);
  if (status == TDICT_OK && item.span.bytes)
    status = tdict_td_find_leaf(r->files, folder_of(r), key, &file, &exists, err);
  if (status != TDICT_OK) return status;
  if (item.span.bytes && !exists)
    return tdict_json_fail(&place, err, "the file '%s%.60s.memmap' is missing", folder_of(r), key);
  if (file.bytes < item.span.bytes)
    return tdict_fail_file(err, TDICT_EFORMAT, c->files[file.file].path,
                           "%s: key '%.80s': the file has %" PRIu64 " bytes, but the shape needs %" PRIu64, c->what,
                           place.key, file.bytes, item.span.bytes);
  item.span.file = file.file;
  item.span.offset = file.offset;
  return tdict_td_add_tensor(&r->base, &item, &shape, err);
}

/* Adds a name and a slash to the folder. */
static tdict_status push_folder(save_reader *r, const char *name, tdict_error *err) {
  tdict_io_text_add_string(&r->folder, name);
  tdict_io_text_add(&r->folder, "/", 1);
  return r->folder.has_failed ? fail_memory(r->base.contents, err) : TDICT_OK;
}

static tdict_status has_file(const save_reader *r, const char *name, bool *out, tdict_error *err) {
  tdict_span span;
  return tdict_td_find(r->files, folder_of(r), name, &span, out, err);
}

static tdict_status read_child(save_reader *r, const char *key, tdict_error *err) {
  const size_t length = r->folder.length;
  tdict_status status = tdict_td_add_folder(r->files, &r->folder, key, err);
  if (status == TDICT_OK) status = read_folder(r, err);
  tdict_io_text_cut(&r->folder, length);
  return status;
}

static tdict_status read_entry(save_reader *r, const char *key, tdict_json entry, tdict_error *err) {
  const tdict_json_place place = tdict_td_place(&r->base);
  const tdict_json mark = tdict_json_get(entry, "tdict");
  const bool is_unbatched = tdict_json_exists(mark);
  if (tdict_json_exists(tdict_json_get(entry, "type"))) return read_child(r, key, err);
  if (is_unbatched && !tdict_json_equals(mark, "unbatched"))
    return tdict_json_fail(&place, err, "the mark 'tdict' of a tensor is no \"unbatched\"");
  return read_leaf(r, key, entry, is_unbatched ? TDICT_ITEM_UNBATCHED : TDICT_ITEM_TENSOR, err);
}

/* Reads the entries of a tree. Like TensorDict, skips members that describe neither a tensor nor a tree. */
static tdict_status read_entries(save_reader *r, tdict_json meta, tdict_error *err) {
  const size_t length = r->base.path.length;
  const char *const file = r->base.file;
  tdict_json_cursor cursor = tdict_json_enter(meta);
  tdict_json name, entry;
  tdict_status status = TDICT_OK;
  while (tdict_json_next(&cursor, &name, &entry)) {
    const char *key;
    const bool is_leaf =
        tdict_json_exists(tdict_json_get(entry, "dtype")) || tdict_json_exists(tdict_json_get(entry, "shape"));
    if (!is_leaf && !tdict_json_exists(tdict_json_get(entry, "type"))) continue;
    status = tdict_json_copy(r->base.contents, name, &key, NULL, err);
    if (status == TDICT_OK) status = tdict_td_push(&r->base, key, err);
    if (status == TDICT_OK) status = read_entry(r, key, entry, err);
    if (status != TDICT_OK) return status;
    tdict_io_text_cut(&r->base.path, length);
    r->base.file = file;
  }
  return status;
}

static tdict_status read_tree(save_reader *r, tdict_json meta, tdict_error *err) {
  const tdict_json shape = tdict_json_get(meta, "shape");
  tdict_status status = tdict_td_enter(&r->base, tdict_json_exists(shape) ? "shape" : NULL, shape, err);
  if (status != TDICT_OK) return status;
  status = read_entries(r, meta, err);
  tdict_td_leave(&r->base);
  return status;
}

/* Reads the trees of a lazy stack, which are in the folders "0", "1" and so on. */
static tdict_status read_members(save_reader *r, int dim, tdict_error *err) {
  const tdict_json_place place = tdict_td_place(&r->base);
  const size_t folder = r->folder.length, path = r->base.path.length, first = r->base.contents->num_items;
  const char *const file = r->base.file;
  char name[24];
  for (int i = 0;; i++) {
    bool exists = false;
    snprintf(name, sizeof name, "%d", i);
    tdict_status status = push_folder(r, name, err);
    if (status == TDICT_OK) status = has_file(r, "meta.json", &exists, err);
    if (status == TDICT_OK && !exists && i == 0) return tdict_json_fail(&place, err, "a lazy stack without trees");
    if (status == TDICT_OK && exists) status = tdict_td_push(&r->base, name, err);
    if (status == TDICT_OK && exists) status = read_folder(r, err);
    if (status == TDICT_OK && i == 0) status = tdict_td_stack_batch(&r->base, dim, first, err);
    tdict_io_text_cut(&r->folder, folder);
    if (status != TDICT_OK || !exists) return status;
    tdict_io_text_cut(&r->base.path, path);
    r->base.file = file;
  }
}

static TDICT_NOINLINE tdict_status read_stack(save_reader *r, tdict_json meta, tdict_error *err) {
  const tdict_json_place place = tdict_td_place(&r->base);
  int dim;
  tdict_status status =
      tdict_td_read_dim(&place, tdict_json_get(meta, "stack_dim"), TDICT_MAX_BATCH_NDIM - 1, &dim, err);
  if (status == TDICT_OK) status = tdict_td_cut_batch(&r->base, dim, err);
  if (status == TDICT_OK) status = tdict_td_enter(&r->base, NULL, (tdict_json){0}, err);
  if (status != TDICT_OK) return status;
  status = read_members(r, dim, err);
  tdict_td_leave(&r->base);
  return status;
}

/* Reads a level with a mark: a ragged leaf. */
static TDICT_NOINLINE tdict_status read_ragged(save_reader *r, tdict_json meta, tdict_error *err) {
  const tdict_json_place place = tdict_td_place(&r->base);
  const tdict_json values = tdict_json_get(meta, "values"), offsets = tdict_json_get(meta, "offsets");
  if (!tdict_json_equals(tdict_json_get(meta, "tdict"), "ragged") || !tdict_json_is(values, TDICT_JSON_OBJECT) ||
      !tdict_json_is(offsets, TDICT_JSON_OBJECT))
    return tdict_json_fail(&place, err, "the mark 'tdict' of a folder is no \"ragged\" with 'values' and 'offsets'");
  tdict_status status = read_leaf(r, "values", values, TDICT_ITEM_RAGGED_VALUES, err);
  return status == TDICT_OK ? read_leaf(r, "offsets", offsets, TDICT_ITEM_RAGGED_OFFSETS, err) : status;
}

/* Reads a value that is saved as JSON. A value that is saved as a pickle is refused. */
static TDICT_NOINLINE tdict_status read_value(save_reader *r, tdict_json meta, bool is_stack, tdict_error *err) {
  const tdict_json_place place = tdict_td_place(&r->base);
  const tdict_json data = tdict_json_get(meta, "data");
  const bool has_data = tdict_json_exists(data);
  bool has_pickle = is_stack && tdict_json_is(data, TDICT_JSON_STRING);
  const char *pickle = is_stack ? "pickle.pkl" : "other.pickle";
  tdict_status status = is_stack || has_data ? TDICT_OK : has_file(r, pickle, &has_pickle, err);
  if (status != TDICT_OK) return status;
  if (has_pickle) return tdict_td_fail_pickle(&r->base, pickle, err);
  if (!has_data || (is_stack && !tdict_json_is(data, TDICT_JSON_ARRAY)))
    return tdict_json_fail(&place, err, "a value without 'data' in its meta.json");
  if (r->base.depth == 0) return tdict_json_fail(&place, err, "the root is a value, wanted a tree");
  return is_stack ? tdict_td_add_column(&r->base, data, err) : tdict_td_add_value(&r->base, data, err);
}

/* Reads a tensorclass: its tensors are in the folder `_tensordict`. The class is ignored. If the meta.json of the
 * tensorclass has values in addition to the tensors, returns TDICT_ENOTSUP. */
static TDICT_NOINLINE tdict_status read_tensorclass(save_reader *r, tdict_json meta, bool *is_tensorclass,
                                                    tdict_error *err) {
  const size_t folder = r->folder.length;
  tdict_td_meta tensors = {0};
  bool has_pickle = false;
  tdict_status status = push_folder(r, "_tensordict", err);
  if (status == TDICT_OK) status = tdict_td_read_meta(r->files, folder_of(r), &tensors, &r->base.file, err);
  *is_tensorclass = status == TDICT_OK && tdict_json_exists(tensors.root);
  tdict_io_text_cut(&r->folder, folder);
  if (!*is_tensorclass) {
    tdict_td_close_meta(&tensors);
    return status;
  }
  status = has_file(r, "other.pickle", &has_pickle, err);
  if (status == TDICT_OK && has_pickle) status = tdict_td_fail_pickle(&r->base, "other.pickle", err);
  if (status == TDICT_OK && tdict_json_count(meta) > 1)
    status = tdict_fail_file(err, TDICT_ENOTSUP, r->base.file,
                             "%s: key '%.80s': a tensorclass with fields beside its tensors cannot be read",
                             r->base.contents->what, tdict_td_place(&r->base).key);
  if (status == TDICT_OK) status = push_folder(r, "_tensordict", err);
  if (status == TDICT_OK) status = read_tree(r, tensors.root, err);
  tdict_io_text_cut(&r->folder, folder);
  tdict_td_close_meta(&tensors);
  return status;
}

TDICT_NOINLINE bool tdict_td_is_class(tdict_json meta, const char *name) {
  char end[64];
  const tdict_json type = tdict_json_get(meta, "_type");
  const size_t length = (size_t)snprintf(end, sizeof end, ".%s'>\"", name), bytes = tdict_json_bytes(type);
  return bytes > length && memcmp(tdict_json_start(type) + bytes - length, end, length) == 0;
}

TDICT_NOINLINE tdict_status tdict_td_check_meta(const tdict_json_place *place, tdict_json meta, tdict_error *err) {
  int64_t version;
  if (tdict_json_integer(tdict_json_get(meta, "_format_version"), &version) && version > TDICT_TD_FORMAT_VERSION)
    return tdict_fail_file(err, TDICT_ENOTSUP, place->file,
                           "%s: key '%.80s': the format version is %" PRId64 ", wanted at most %d",
                           place->contents->what, place->key, version, TDICT_TD_FORMAT_VERSION);
  if (tdict_json_is(tdict_json_get(meta, "_type"), TDICT_JSON_STRING)) return TDICT_OK;
  return tdict_json_fail(place, err, "meta.json has no text '_type'; is this a directory of TensorDict?");
}

/* Reads a folder. The class in the meta.json selects the reader. */
static tdict_status read_meta(save_reader *r, tdict_json meta, tdict_error *err) {
  const tdict_json_place place = tdict_td_place(&r->base);
  bool is_tensorclass = false;
  tdict_status status = tdict_td_check_meta(&place, meta, err);
  if (status != TDICT_OK) return status;
  if (tdict_json_is(tdict_json_get(meta, "tdict"), TDICT_JSON_STRING)) return read_ragged(r, meta, err);
  if (tdict_td_is_class(meta, "NonTensorStack")) return read_value(r, meta, true, err);
  if (tdict_td_is_class(meta, "NonTensorData") ||
      tdict_json_is(tdict_json_get(meta, "_is_non_tensor"), TDICT_JSON_TRUE))
    return read_value(r, meta, false, err);
  if (tdict_td_is_class(meta, "LazyStackedTensorDict")) return read_stack(r, meta, err);
  status =
      tdict_json_exists(tdict_json_get(meta, "shape")) ? TDICT_OK : read_tensorclass(r, meta, &is_tensorclass, err);
  return status == TDICT_OK && !is_tensorclass ? read_tree(r, meta, err) : status;
}

/* Reads the folder at the current path. The recursion is limited by TDICT_IO_MAX_DEPTH: each call but the last enters a
 * tree. */
static tdict_status read_folder(save_reader *r, tdict_error *err) {
  const tdict_json_place place = tdict_td_place(&r->base);
  tdict_td_meta meta = {0};
  tdict_status status = tdict_td_read_meta(r->files, folder_of(r), &meta, &r->base.file, err);
  if (status == TDICT_OK && !tdict_json_exists(meta.root))
    status = tdict_json_fail(&place, err, "the file '%.150smeta.json' is missing", folder_of(r));
  if (status == TDICT_OK) status = read_meta(r, meta.root, err);
  tdict_td_close_meta(&meta);
  return status;
}

tdict_status tdict_td_read_files(const tdict_td_files *files, const tdict_open_options *options, tdict_error *err) {
  save_reader r = {.base = {.contents = files->contents, .file = files->contents->path, .flat = options->flat},
                   .files = files};
  tdict_status status = read_folder(&r, err);
  tdict_io_text_reset(&r.base.path);
  tdict_io_text_reset(&r.folder);
  return status;
}

static tdict_status find_below(const tdict_td_files *files, const char *path, tdict_span *span, bool *exists,
                               tdict_error *err) {
  tdict_contents *c = files->contents;
  tdict_error why = {0};
  tdict_status status = tdict_contents_add_below(c, path, &why);
  *exists = status == TDICT_OK;
  if (status == TDICT_EIO && why.native == ENOENT) return TDICT_OK;
  if (status != TDICT_OK) {
    if (err) *err = why;
    return status;
  }
  *span = (tdict_span){c->num_files - 1, 0, c->files[c->num_files - 1].bytes};
  return TDICT_OK;
}

tdict_td_files tdict_td_folder_files(tdict_contents *contents, int folder) {
  tdict_contents_set_root(contents, folder);
  return (tdict_td_files){.find = find_below, .contents = contents};
}

tdict_status tdict_memmap_read(tdict_contents *contents, int folder, const tdict_open_options *options,
                               tdict_error *err) {
  const tdict_td_files files = tdict_td_folder_files(contents, folder);
  return tdict_td_read_files(&files, options, err);
}
