/* Reads memory-mapped directories of TensorDict. See memmap.h for ownership and threads. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core/base/error.h"
#include "services/io/tensordict/memmap.h"

static tdict_status read_folder(tdict_td_reader *r, tdict_error *err);

static tdict_status fail_memory(const tdict_td_reader *r, tdict_error *err) {
  const tdict_contents *c = r->base.contents;
  return tdict_fail_memory(err, c->what, c->path, "a path or a file meta.json");
}

const char *tdict_td_folder(const tdict_td_reader *reader) { return reader->folder.bytes ? reader->folder.bytes : ""; }

static tdict_status find(tdict_td_reader *r, const char *name, tdict_span *span, bool *exists, tdict_error *err) {
  const size_t length = r->folder.length;
  tdict_io_text_add_string(&r->folder, name);
  tdict_status status = r->folder.has_failed
                            ? fail_memory(r, err)
                            : r->find(r->base.contents, r->archive, r->folder.bytes, span, exists, err);
  tdict_io_text_cut(&r->folder, length);
  return status;
}

tdict_status tdict_td_read_meta(tdict_td_reader *reader, tdict_json_document *out, tdict_error *err) {
  tdict_contents *c = reader->base.contents;
  tdict_span span;
  bool exists = false;
  tdict_status status = find(reader, "meta.json", &span, &exists, err);
  if (status != TDICT_OK || !exists) return status;
  reader->base.place.file = c->files[span.file].path;
  if (span.bytes > TDICT_TD_MAX_JSON)
    return tdict_fail_at(err, TDICT_ENOTSUP, c->files[span.file].path,
                         "%s: %smeta.json has %" PRIu64 " bytes, wanted at most %d", c->what, tdict_td_folder(reader),
                         span.bytes, TDICT_TD_MAX_JSON);
  return tdict_json_load(c, span, "meta.json", out, err);
}

tdict_status tdict_td_find_leaf(tdict_td_reader *reader, const char *key, tdict_span *span, bool *exists,
                                tdict_error *err) {
  tdict_io_text name = {0};
  tdict_status status = TDICT_OK;
  *exists = false;
  for (int i = 0; i < 2 && status == TDICT_OK && !*exists; i++) {
    tdict_io_text_cut(&name, 0);
    if (i == 0) tdict_td_add_name(&name, key);
    if (i == 1) tdict_io_text_add_string(&name, key);
    tdict_io_text_add_string(&name, ".memmap");
    if (name.has_failed) status = fail_memory(reader, err);
    if (status == TDICT_OK && (i == 0 || tdict_td_is_plain_name(key)))
      status = find(reader, name.bytes, span, exists, err);
  }
  tdict_io_text_reset(&name);
  return status;
}

static tdict_status push_folder(tdict_td_reader *r, const char *name, tdict_error *err) {
  tdict_io_text_format(&r->folder, "%s/", name);
  return r->folder.has_failed ? fail_memory(r, err) : TDICT_OK;
}

static tdict_status has_file(tdict_td_reader *r, const char *name, bool *out, tdict_error *err) {
  tdict_span span;
  return find(r, name, &span, out, err);
}

tdict_status tdict_td_enter_folder(tdict_td_reader *reader, const char *key, tdict_error *err) {
  const size_t length = reader->folder.length;
  bool exists = false;
  tdict_td_add_name(&reader->folder, key);
  tdict_io_text_add(&reader->folder, "/", 1);
  tdict_status status = has_file(reader, "meta.json", &exists, err);
  if (status != TDICT_OK || exists || !tdict_td_is_plain_name(key)) return status;
  tdict_io_text_cut(&reader->folder, length);
  return push_folder(reader, key, err);
}

static TDICT_NOINLINE tdict_status read_leaf(tdict_td_reader *r, const char *key, tdict_json entry,
                                             tdict_item_kind kind, tdict_error *err) {
  tdict_contents *c = r->base.contents;
  tdict_item item = {.kind = kind};
  tdict_sizes shape;
  tdict_span file = {0}; /* file 0 exists: it is the first meta.json, or the archive */
  bool exists = false;
  if (tdict_json_is(tdict_json_get(entry, "is_nested"), TDICT_JSON_TRUE))
    return tdict_json_refuse(&r->base.place, err, "nested tensors cannot be read");
  tdict_status status = tdict_torch_layout(&r->base.place, tdict_json_get(entry, "dtype"),
                                           tdict_json_get(entry, "shape"), &item, &shape, err);
  if (status == TDICT_OK && item.span.bytes) status = tdict_td_find_leaf(r, key, &file, &exists, err);
  if (status != TDICT_OK) return status;
  if (item.span.bytes && !exists)
    return tdict_json_fail(&r->base.place, err, "the file '%s%.60s.memmap' is missing", tdict_td_folder(r), key);
  if (file.bytes < item.span.bytes)
    return tdict_fail_at(err, TDICT_EFORMAT, c->files[file.file].path,
                         "%s: key '%.80s': the file has %" PRIu64 " bytes, but the shape needs %" PRIu64, c->what,
                         tdict_json_place_key(&r->base.place), file.bytes, item.span.bytes);
  item.span.file = file.file;
  item.span.offset = file.offset;
  return tdict_reader_add_shaped(&r->base, &item, &shape, err);
}

static tdict_status read_child(tdict_td_reader *r, const char *key, tdict_error *err) {
  const size_t length = r->folder.length;
  tdict_status status = tdict_td_enter_folder(r, key, err);
  if (status == TDICT_OK) status = read_folder(r, err);
  tdict_io_text_cut(&r->folder, length);
  return status;
}

static tdict_status read_entry(tdict_td_reader *r, const char *key, tdict_json entry, tdict_error *err) {
  const tdict_json mark = tdict_json_get(entry, "tdict");
  const bool is_unbatched = tdict_json_exists(mark);
  if (tdict_json_exists(tdict_json_get(entry, "type"))) return read_child(r, key, err);
  if (is_unbatched && !tdict_json_equals(mark, "unbatched"))
    return tdict_json_fail(&r->base.place, err, "the mark 'tdict' of a tensor is no \"unbatched\"");
  return read_leaf(r, key, entry, is_unbatched ? TDICT_ITEM_UNBATCHED : TDICT_ITEM_TENSOR, err);
}

/* Reads the entries of a tree. Like TensorDict, skips members that describe neither a tensor nor a tree. */
static tdict_status read_entries(tdict_td_reader *r, tdict_json meta, tdict_error *err) {
  const size_t length = r->base.path.length;
  const char *const file = r->base.place.file;
  tdict_json_cursor cursor = tdict_json_enter(meta);
  tdict_json name, entry;
  tdict_status status = TDICT_OK;
  while (tdict_json_next(&cursor, &name, &entry)) {
    const char *key;
    const bool is_leaf =
        tdict_json_exists(tdict_json_get(entry, "dtype")) || tdict_json_exists(tdict_json_get(entry, "shape"));
    if (!is_leaf && !tdict_json_exists(tdict_json_get(entry, "type"))) continue;
    status = tdict_json_copy(r->base.contents, name, &key, NULL, err);
    if (status == TDICT_OK) status = tdict_reader_push(&r->base, key, err);
    if (status == TDICT_OK) status = read_entry(r, key, entry, err);
    if (status != TDICT_OK) return status;
    tdict_io_text_cut(&r->base.path, length);
    r->base.place.file = file;
  }
  return status;
}

static tdict_status read_tree(tdict_td_reader *r, tdict_json meta, tdict_error *err) {
  const tdict_json shape = tdict_json_get(meta, "shape");
  tdict_status status = tdict_reader_enter(&r->base, tdict_json_exists(shape) ? "shape" : NULL, shape, err);
  if (status != TDICT_OK) return status;
  status = read_entries(r, meta, err);
  tdict_reader_leave(&r->base);
  return status;
}

/* Reads the trees of a lazy stack, which are in the folders "0", "1" and so on. */
static tdict_status read_members(tdict_td_reader *r, int dim, tdict_error *err) {
  const size_t folder = r->folder.length, path = r->base.path.length, first = r->base.contents->num_items;
  const char *const file = r->base.place.file;
  char name[24];
  for (int i = 0;; i++) {
    bool exists = false;
    snprintf(name, sizeof name, "%d", i);
    tdict_status status = push_folder(r, name, err);
    if (status == TDICT_OK) status = has_file(r, "meta.json", &exists, err);
    if (status == TDICT_OK && !exists && i == 0)
      return tdict_json_fail(&r->base.place, err, "a lazy stack without trees");
    if (status == TDICT_OK && exists) status = tdict_reader_push(&r->base, name, err);
    if (status == TDICT_OK && exists) status = read_folder(r, err);
    if (status == TDICT_OK && i == 0) status = tdict_reader_stack_batch(&r->base, dim, first, err);
    tdict_io_text_cut(&r->folder, folder);
    if (status != TDICT_OK || !exists) return status;
    tdict_io_text_cut(&r->base.path, path);
    r->base.place.file = file;
  }
}

static TDICT_NOINLINE tdict_status read_stack(tdict_td_reader *r, tdict_json meta, tdict_error *err) {
  int dim;
  tdict_status status = tdict_reader_enter_stack(&r->base, tdict_json_get(meta, "stack_dim"), &dim, err);
  if (status != TDICT_OK) return status;
  status = read_members(r, dim, err);
  tdict_reader_leave(&r->base);
  return status;
}

/* Reads a level with a mark: a ragged leaf. */
static TDICT_NOINLINE tdict_status read_ragged(tdict_td_reader *r, tdict_json meta, tdict_error *err) {
  const tdict_json values = tdict_json_get(meta, "values"), offsets = tdict_json_get(meta, "offsets");
  if (!tdict_json_equals(tdict_json_get(meta, "tdict"), "ragged") || !tdict_json_is(values, TDICT_JSON_OBJECT) ||
      !tdict_json_is(offsets, TDICT_JSON_OBJECT))
    return tdict_json_fail(&r->base.place, err,
                           "the mark 'tdict' of a folder is no \"ragged\" with 'values' and 'offsets'");
  tdict_status status = read_leaf(r, "values", values, TDICT_ITEM_RAGGED_VALUES, err);
  return status == TDICT_OK ? read_leaf(r, "offsets", offsets, TDICT_ITEM_RAGGED_OFFSETS, err) : status;
}

/* Reads a value that is saved as JSON. A value that is saved as a pickle is refused. */
static TDICT_NOINLINE tdict_status read_value(tdict_td_reader *r, tdict_json meta, bool is_stack, tdict_error *err) {
  const tdict_json data = tdict_json_get(meta, "data");
  const bool has_data = tdict_json_exists(data);
  bool has_pickle = is_stack && tdict_json_is(data, TDICT_JSON_STRING);
  const char *pickle = is_stack ? "pickle.pkl" : "other.pickle";
  tdict_status status = is_stack || has_data ? TDICT_OK : has_file(r, pickle, &has_pickle, err);
  if (status != TDICT_OK) return status;
  if (has_pickle) return tdict_reader_fail_pickle(&r->base, pickle, err);
  if (!has_data || (is_stack && !tdict_json_is(data, TDICT_JSON_ARRAY)))
    return tdict_json_fail(&r->base.place, err, "a value without 'data' in its meta.json");
  if (r->base.depth == 0) return tdict_json_fail(&r->base.place, err, "the root is a value, wanted a tree");
  return is_stack ? tdict_reader_add_column(&r->base, data, err) : tdict_reader_add_value(&r->base, data, err);
}

/* Reads a tensorclass: its tensors are in the folder `_tensordict`. The class is ignored. If the meta.json of the
 * tensorclass has values in addition to the tensors, returns TDICT_ENOTSUP. */
static TDICT_NOINLINE tdict_status read_tensorclass(tdict_td_reader *r, tdict_json meta, bool *is_tensorclass,
                                                    tdict_error *err) {
  const size_t folder = r->folder.length;
  tdict_json_document tensors = {0};
  bool has_pickle = false;
  tdict_status status = push_folder(r, "_tensordict", err);
  if (status == TDICT_OK) status = tdict_td_read_meta(r, &tensors, err);
  *is_tensorclass = status == TDICT_OK && tensors.text;
  tdict_io_text_cut(&r->folder, folder);
  if (!*is_tensorclass) {
    tdict_json_close(&tensors);
    return status;
  }
  status = has_file(r, "other.pickle", &has_pickle, err);
  if (status == TDICT_OK && has_pickle) status = tdict_reader_fail_pickle(&r->base, "other.pickle", err);
  if (status == TDICT_OK && tdict_json_count(meta) > 1)
    status = tdict_json_refuse(&r->base.place, err, "a tensorclass with fields beside its tensors cannot be read");
  if (status == TDICT_OK) status = push_folder(r, "_tensordict", err);
  if (status == TDICT_OK) status = read_tree(r, tdict_json_root(&tensors), err);
  tdict_io_text_cut(&r->folder, folder);
  tdict_json_close(&tensors);
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
    return tdict_json_refuse(place, err, "the format version is %" PRId64 ", wanted at most %d", version,
                             TDICT_TD_FORMAT_VERSION);
  if (tdict_json_is(tdict_json_get(meta, "_type"), TDICT_JSON_STRING)) return TDICT_OK;
  return tdict_json_fail(place, err, "meta.json has no text '_type'; is this a directory of TensorDict?");
}

/* Reads a folder. The class in the meta.json selects the reader. */
static tdict_status read_meta(tdict_td_reader *r, tdict_json meta, tdict_error *err) {
  bool is_tensorclass = false;
  tdict_status status = tdict_td_check_meta(&r->base.place, meta, err);
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

/* Reads the folder at the current path. TDICT_IO_MAX_DEPTH limits the recursion: each call enters a tree. */
static tdict_status read_folder(tdict_td_reader *r, tdict_error *err) {
  tdict_json_document meta = {0};
  tdict_status status = tdict_td_read_meta(r, &meta, err);
  if (status == TDICT_OK && !meta.text)
    status = tdict_json_fail(&r->base.place, err, "the file '%.150smeta.json' is missing", tdict_td_folder(r));
  if (status == TDICT_OK) status = read_meta(r, tdict_json_root(&meta), err);
  tdict_json_close(&meta);
  return status;
}

static tdict_status find_below(tdict_contents *contents, const void *archive, const char *path, tdict_span *span,
                               bool *exists, tdict_error *err) {
  tdict_error why = {0};
  (void)archive;
  tdict_status status = tdict_contents_add_below(contents, path, &why);
  *exists = status == TDICT_OK;
  if (status == TDICT_EIO && why.native == ENOENT) return TDICT_OK;
  if (status != TDICT_OK && err) *err = why;
  if (status == TDICT_OK)
    *span = (tdict_span){contents->num_files - 1, 0, contents->files[contents->num_files - 1].bytes};
  return status;
}

void tdict_td_reader_init(tdict_td_reader *reader, tdict_contents *contents, tdict_td_finder find_other,
                          const void *archive) {
  *reader = (tdict_td_reader){.find = find_other ? find_other : find_below, .archive = archive};
  tdict_reader_init(&reader->base, contents, contents->path, false);
}

void tdict_td_reader_reset(tdict_td_reader *reader) {
  tdict_io_text_reset(&reader->base.path);
  tdict_io_text_reset(&reader->folder);
}

tdict_status tdict_td_read_files(tdict_contents *contents, tdict_td_finder find_other, const void *archive,
                                 const tdict_open_options *options, tdict_error *err) {
  tdict_td_reader r;
  tdict_td_reader_init(&r, contents, find_other, archive);
  r.base.flat = options->flat;
  tdict_status status = read_folder(&r, err);
  tdict_td_reader_reset(&r);
  return status;
}

tdict_status tdict_memmap_read(tdict_contents *contents, int folder, const tdict_open_options *options,
                               tdict_error *err) {
  contents->root = folder;
  return tdict_td_read_files(contents, NULL, NULL, options, err);
}
