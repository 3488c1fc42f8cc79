/* Reads an index and the shards that the index names. See safetensors.h for ownership and threads. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "io/json/read.h"
#include "io/safetensors/safetensors.h"

enum { MAX_INDEX_BYTES = TDICT_SAFETENSORS_MAX_HEADER };

/* The index and the tensors of all shards. */
typedef struct reader {
  tdict_contents *contents;
  const tdict_open_options *options;
  const char *path; /* of the index */
  int folder;
  tdict_json map;            /* maps names of tensors to names of shards */
  const tdict_item **sorted; /* the tensors of all shards, sorted by shard, then by name */
} reader;

static int compare_items(const void *a, const void *b) {
  const tdict_item *x = *(const tdict_item *const *)a, *y = *(const tdict_item *const *)b;
  if (x->span.file != y->span.file) return x->span.file < y->span.file ? -1 : 1;
  return strcmp(x->path, y->path);
}

/* Returns true if the name can be the name of a file in the folder of the index. */
static bool is_file_name(const char *name) {
  return name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* Finds a shard by the last part of its path. */
static bool find_shard(const tdict_contents *c, const char *name, size_t *out) {
  for (size_t f = c->num_files; f-- > 0;) { /* successive tensors are usually in the shard that was added last */
    const char *slash = strrchr(c->files[f].path, '/');
    if (strcmp(slash ? slash + 1 : c->files[f].path, name) != 0) continue;
    *out = f;
    return true;
  }
  return false;
}

/* Opens a shard and reads its header. The path of the shard is the folder of the index, followed by the name. */
static tdict_status open_shard(reader *r, const char *name, tdict_error *err) {
  const char *slash = strrchr(r->path, '/'), *none;
  tdict_io_text path = {0};
  tdict_error why;
  int fd;
  if (slash) tdict_io_text_add(&path, r->path, (size_t)(slash - r->path) + 1);
  tdict_io_text_add_string(&path, name);
  tdict_status status = TDICT_OK;
  if (path.has_failed)
    status = tdict_fail_file(err, TDICT_ENOMEM, r->path, "%s: no host memory for a path", r->contents->what);
  if (status == TDICT_OK) {
    status = tdict_file_open_in(r->contents->what, r->folder, name, r->options->follows_links, &fd, &why);
    if (status != TDICT_OK) {
      tdict_fail_native(err, status, why.native, "%s", why.message);
      tdict_error_at(err, status, path.bytes);
    }
  }
  if (status == TDICT_OK) status = tdict_contents_add_file(r->contents, fd, path.bytes, err);
  tdict_io_text_reset(&path);
  return status == TDICT_OK ? tdict_safetensors_read(r->contents, r->contents->num_files - 1, &none, err) : status;
}

/* Reads a member of the index. The names live as long as the contents. */
static tdict_status read_member(reader *r, tdict_json_cursor *cursor, const char **tensor, const char **shard,
                                tdict_error *err) {
  tdict_json key, value;
  *tensor = NULL;
  if (!tdict_json_next(cursor, &key, &value)) return TDICT_OK;
  tdict_status status = tdict_json_copy(r->contents, key, tensor, NULL, err);
  if (status == TDICT_OK) status = tdict_json_text(r->contents, value, shard, err);
  const tdict_json_place place = {r->contents, r->path, "tensor", *tensor};
  if (status != TDICT_OK || *shard) return status;
  return tdict_json_fail(&place, err, "the name of the shard is no text");
}

/* Opens all shards that the index names. */
static tdict_status open_shards(reader *r, tdict_error *err) {
  tdict_json_cursor cursor = tdict_json_enter(r->map);
  for (;;) {
    const char *tensor, *name;
    size_t file;
    tdict_status status = read_member(r, &cursor, &tensor, &name, err);
    if (status != TDICT_OK || !tensor) return status;
    const tdict_json_place place = {r->contents, r->path, "tensor", tensor};
    if (!is_file_name(name))
      return tdict_json_fail(&place, err, "the shard '%.80s' is no name of a file beside the index", name);
    if (find_shard(r->contents, name, &file)) continue;
    status = open_shard(r, name, err);
    if (status != TDICT_OK) return status;
  }
}

/* Adds an item for each tensor of the index, in the order of the index. */
static tdict_status add_items(reader *r, size_t count, tdict_error *err) {
  tdict_json_cursor cursor = tdict_json_enter(r->map);
  for (;;) {
    const char *tensor, *name;
    tdict_status status = read_member(r, &cursor, &tensor, &name, err);
    if (status != TDICT_OK || !tensor) return status;
    const tdict_json_place place = {r->contents, r->path, "tensor", tensor};
    tdict_item wanted = {.path = tensor};
    const tdict_item *pointer = &wanted, **found;
    find_shard(r->contents, name, &wanted.span.file);
    found = count ? bsearch(&pointer, (const void *)r->sorted, count, sizeof *r->sorted, compare_items) : NULL;
    if (!found) return tdict_json_fail(&place, err, "the shard '%.80s' does not have the tensor", name);
    status = tdict_contents_add(r->contents, *found, err);
    if (status != TDICT_OK) return status;
  }
}

/* Replaces the tensors of the shards by the tensors of the index. */
static tdict_status choose_items(reader *r, tdict_error *err) {
  tdict_contents *c = r->contents;
  const size_t count = c->num_items;
  tdict_item *old = c->items;
  r->sorted = malloc((count + 1) * sizeof *r->sorted);
  if (!r->sorted) return tdict_fail_file(err, TDICT_ENOMEM, r->path, "%s: no host memory for %zu keys", c->what, count);
  for (size_t i = 0; i < count; i++) r->sorted[i] = &old[i];
  qsort((void *)r->sorted, count, sizeof *r->sorted, compare_items);
  c->items = NULL;
  c->num_items = c->cap_items = 0;
  tdict_status status = add_items(r, count, err);
  free((void *)r->sorted);
  free(old);
  return status;
}

/* Reads the whole index as text. */
static tdict_status read_text(reader *r, char **text, size_t *length, tdict_error *err) {
  tdict_contents *c = r->contents;
  tdict_contents index;
  int fd;
  tdict_status status = tdict_file_open_to_read(c->what, r->path, &fd, err);
  if (status != TDICT_OK) return status;
  tdict_contents_init(&index, c->what, r->path);
  status = tdict_contents_add_file(&index, fd, r->path, err);
  if (status == TDICT_OK && index.files[0].bytes > MAX_INDEX_BYTES)
    status = tdict_fail_file(err, TDICT_ENOTSUP, r->path, "%s: the index has %" PRIu64 " bytes, wanted at most %d",
                             c->what, index.files[0].bytes, MAX_INDEX_BYTES);
  if (status == TDICT_OK) {
    *length = (size_t)index.files[0].bytes;
    *text = calloc(1, *length + 1);
    if (*text)
      status = tdict_contents_read(&index, (tdict_span){0, 0, *length}, *text, err);
    else
      status = tdict_fail_file(err, TDICT_ENOMEM, r->path, "%s: no host memory for %zu bytes", c->what, *length);
  }
  tdict_contents_close(&index);
  return status;
}

/* Keeps the texts of the index's metadata, and the structure. */
static tdict_status read_metadata(reader *r, tdict_json index, const char **structure, tdict_error *err) {
  const tdict_json metadata = tdict_json_get(index, "metadata"), entry = tdict_json_get(metadata, "tensordict");
  tdict_json_cursor cursor = tdict_json_enter(metadata);
  tdict_json key, value;
  tdict_status status = TDICT_OK;
  const tdict_json_place place = {r->contents, r->path, "entry", "metadata"};
  *structure = NULL;
  r->contents->has_metadata = true;
  while (status == TDICT_OK && tdict_json_is(metadata, TDICT_JSON_OBJECT) && tdict_json_next(&cursor, &key, &value))
    if (tdict_json_is(value, TDICT_JSON_STRING) && !tdict_json_equals(key, "tensordict"))
      status = tdict_safetensors_keep_metadata(r->contents, key, value, err);
  if (status != TDICT_OK || !tdict_json_exists(entry)) return status;
  status = tdict_json_text(r->contents, entry, structure, err);
  if (status != TDICT_OK || *structure) return status;
  return tdict_json_fail(&place, err, "the value of 'tensordict' is no text");
}

/* Opens the folder of the index. */
static tdict_status open_folder(reader *r, tdict_error *err) {
  const char *slash = strrchr(r->path, '/');
  const char *folder = ".";
  tdict_status status = TDICT_OK;
  if (slash) status = tdict_contents_copy_text(r->contents, r->path, (size_t)(slash - r->path) + 1, &folder, err);
  if (status != TDICT_OK) return status;
  r->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (r->folder >= 0) return TDICT_OK;
  const int code = errno;
  tdict_fail_native(err, TDICT_EIO, code, "%s: the folder of the index cannot be opened: %s", r->contents->what,
                    strerror(code));
  return tdict_error_at(err, TDICT_EIO, r->path);
}

tdict_status tdict_shards_read(tdict_contents *contents, const char *path, const tdict_open_options *options,
                               const char **structure, tdict_error *err) {
  reader r = {.contents = contents, .options = options, .path = path, .folder = -1};
  const tdict_json_source source = {contents, path, "the index", 0};
  const tdict_json_place place = {contents, path, "entry", "weight_map"};
  tdict_json_document index = {0};
  char *text = NULL;
  size_t length = 0;
  tdict_status status = read_text(&r, &text, &length, err);
  if (status == TDICT_OK) status = tdict_json_read(&source, text, length, &index, err);
  if (status == TDICT_OK) {
    r.map = tdict_json_get(tdict_json_root(&index), "weight_map");
    if (!tdict_json_is(r.map, TDICT_JSON_OBJECT))
      status = tdict_json_fail(&place, err, "the index has no JSON object of this name");
  }
  if (status == TDICT_OK) status = read_metadata(&r, tdict_json_root(&index), structure, err);
  if (status == TDICT_OK) status = open_folder(&r, err);
  if (status == TDICT_OK) status = open_shards(&r, err);
  if (status == TDICT_OK) status = choose_items(&r, err);
  if (r.folder >= 0) close(r.folder);
  tdict_json_close(&index);
  free(text);
  return status;
}
