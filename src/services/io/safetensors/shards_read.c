/* Reads an index and the shards that the index names. See safetensors.h for ownership and threads. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "services/io/json/read.h"
#include "services/io/safetensors/safetensors.h"

enum { MAX_INDEX_BYTES = TDICT_SAFETENSORS_MAX_HEADER };

typedef struct reference {
  const char *tensor, *shard;
  size_t file; /* the number of the shard */
} reference;

/* The index and the tensors of all shards. */
typedef struct reader {
  tdict_contents *contents;
  const tdict_open_options *options;
  const char *path;      /* of the index */
  reference *references; /* owned; in the order of the index */
  size_t num_references;
} reader;

/* Orders the tensors of all shards by shard, then by name. */
static int compare_items(const void *a, const void *b) {
  const tdict_item *x = *(const tdict_item *const *)a, *y = *(const tdict_item *const *)b;
  if (x->span.file != y->span.file) return x->span.file < y->span.file ? -1 : 1;
  return strcmp(x->path, y->path);
}

static int compare_shards(const void *a, const void *b) {
  return strcmp((*(const reference *const *)a)->shard, (*(const reference *const *)b)->shard);
}

/* Opens a shard and reads its header. The path of the shard is the folder of the index, followed by the name. */
static tdict_status open_shard(reader *r, const char *name, tdict_error *err) {
  const char *slash = strrchr(r->path, '/'), *path, *none;
  const int length = slash ? (int)(slash - r->path) + 1 : 0;
  tdict_status status = tdict_contents_format(r->contents, &path, err, "%.*s%s", length, r->path, name);
  if (status == TDICT_OK) status = tdict_contents_add_shard(r->contents, name, path, r->options->follows_links, err);
  if (status == TDICT_OK) status = tdict_safetensors_read(r->contents, r->contents->num_files - 1, &none, err);
  if (status == TDICT_OK) tdict_contents_rest(r->contents);
  return status;
}

static tdict_status read_references(reader *r, tdict_json map, tdict_error *err) {
  tdict_json_cursor cursor = tdict_json_enter(map);
  tdict_json key, value;
  const size_t count = tdict_json_count(map);
  r->references = calloc(count + 1, sizeof *r->references);
  if (!r->references) return tdict_fail_memory(err, r->contents->what, r->path, "%zu keys", count);
  while (tdict_json_next(&cursor, &key, &value)) {
    reference *next = &r->references[r->num_references++];
    tdict_status status = tdict_json_copy(r->contents, key, &next->tensor, NULL, err);
    if (status == TDICT_OK) status = tdict_json_text(r->contents, value, &next->shard, err);
    if (status != TDICT_OK) return status;
    const tdict_json_place place = {r->contents, r->path, "tensor", next->tensor, NULL};
    if (!next->shard) return tdict_json_fail(&place, err, "the name of the shard is not a string");
    if (!tdict_below_is_name(next->shard))
      return tdict_json_fail(&place, err, "the shard '%.80s' is not the name of a file beside the index", next->shard);
  }
  return TDICT_OK;
}

/* Opens all shards, in the order of their names. */
static tdict_status open_shards(reader *r, tdict_error *err) {
  const size_t count = r->num_references;
  tdict_status status = TDICT_OK;
  reference **sorted = tdict_array_sorted(r->references, count, sizeof *r->references, compare_shards);
  if (!sorted) return tdict_fail_memory(err, r->contents->what, r->path, "%zu keys", count);
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    if (i == 0 || strcmp(sorted[i]->shard, sorted[i - 1]->shard) != 0) status = open_shard(r, sorted[i]->shard, err);
    sorted[i]->file = r->contents->num_files - 1;
  }
  free((void *)sorted);
  return status;
}

/* Replaces the tensors of the shards by the tensors of the index, in the order of the index. */
static tdict_status choose_items(reader *r, tdict_error *err) {
  tdict_contents *c = r->contents;
  const size_t count = c->num_items;
  tdict_item *old = c->items;
  const tdict_item **sorted = tdict_array_sorted(old, count, sizeof *old, compare_items);
  tdict_status status = TDICT_OK;
  if (!sorted) return tdict_fail_memory(err, r->contents->what, r->path, "%zu keys", count);
  c->items = NULL;
  c->num_items = c->cap_items = 0;
  for (size_t i = 0; i < r->num_references && status == TDICT_OK; i++) {
    const reference *wanted = &r->references[i];
    const tdict_json_place place = {c, r->path, "tensor", wanted->tensor, NULL};
    const tdict_item item = {.path = wanted->tensor, .span.file = wanted->file}, *key = &item, **found;
    found = count ? bsearch(&key, (const void *)sorted, count, sizeof *sorted, compare_items) : NULL;
    status = found ? tdict_contents_add(c, *found, err)
                   : tdict_json_fail(&place, err, "the shard '%.80s' does not have the tensor", wanted->shard);
  }
  c->num_unnamed = count - c->num_items;
  free((void *)sorted);
  free(old);
  return status;
}

static tdict_status read_index(const reader *r, tdict_json_document *out, tdict_error *err) {
  const tdict_contents *c = r->contents;
  tdict_contents index;
  int fd;
  tdict_status status = tdict_file_open_to_read(c->what, r->path, &fd, err);
  if (status != TDICT_OK) return status;
  tdict_contents_init(&index, c->what, r->path);
  status = tdict_contents_add_file(&index, fd, r->path, err);
  if (status == TDICT_OK && index.files[0].bytes > MAX_INDEX_BYTES)
    status = tdict_fail_at(err, TDICT_ENOTSUP, r->path, "%s: the index has %" PRIu64 " bytes, wanted at most %d",
                           c->what, index.files[0].bytes, MAX_INDEX_BYTES);
  if (status == TDICT_OK)
    status = tdict_json_load(&index, (tdict_span){0, 0, index.files[0].bytes}, "the index", out, err);
  tdict_contents_close(&index);
  return status;
}

static tdict_status open_folder(reader *r, tdict_error *err) {
  const char *slash = strrchr(r->path, '/');
  const char *folder = ".";
  tdict_status status = TDICT_OK;
  if (slash) status = tdict_contents_copy_text(r->contents, r->path, (size_t)(slash - r->path) + 1, &folder, err);
  if (status != TDICT_OK) return status;
  const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  r->contents->root = fd;
  if (fd >= 0) return TDICT_OK;
  return tdict_fail_errno(err, errno, r->path, "%s: the folder of the index cannot be opened", r->contents->what);
}

tdict_status tdict_shards_read(tdict_contents *contents, const char *path, const tdict_open_options *options,
                               const char **structure, tdict_error *err) {
  reader r = {.contents = contents, .options = options, .path = path};
  const tdict_json_place place = {contents, path, "entry", "weight_map", NULL};
  tdict_json_document index = {0};
  tdict_status status = read_index(&r, &index, err);
  if (status == TDICT_OK) {
    const tdict_json map = tdict_json_get(tdict_json_root(&index), "weight_map");
    status = tdict_json_is(map, TDICT_JSON_OBJECT)
                 ? read_references(&r, map, err)
                 : tdict_json_fail(&place, err, "the index has no JSON object of this name");
  }
  const tdict_json metadata = tdict_json_get(tdict_json_root(&index), "metadata");
  *structure = NULL;
  contents->has_metadata = true;
  if (status == TDICT_OK && tdict_json_is(metadata, TDICT_JSON_OBJECT))
    status = tdict_safetensors_read_metadata(contents, path, metadata, false, structure, err);
  if (status == TDICT_OK) status = open_folder(&r, err);
  if (status == TDICT_OK) status = open_shards(&r, err);
  if (status == TDICT_OK) status = choose_items(&r, err);
  tdict_json_close(&index);
  free(r.references);
  return status;
}
