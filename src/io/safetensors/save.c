/* Collects the tensors of a tree, and writes one file, or shards and an index. Owns nothing. Thread-safe. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/safetensors/safetensors.h"

static const char index_end[] = ".safetensors.index.json";
enum { MAX_SHARDS = 99999 };

/* Writes and flushes one new file. On failure, removes the file. */
static tdict_status write_file(const tdict_out_file *file, const tdict_save_request *request, tdict_output *to,
                               tdict_error *err) {
  tdict_status status = tdict_safetensors_write(file, request, to, err);
  if (status == TDICT_OK) status = tdict_output_close(to, err);
  if (status != TDICT_OK) tdict_output_discard(to);
  return status;
}

static tdict_status save_file(const tdict_out_tree *tree, const tdict_save_request *request, const tdict_folder *folder,
                              tdict_error *err) {
  const tdict_out_file file = {tree->tensors, tree->num_tensors, &tree->structure, &tree->metadata};
  tdict_output to;
  bool is_named = false;
  tdict_status status = tdict_output_create_temporary(&to, folder, err);
  if (status == TDICT_OK) status = write_file(&file, request, &to, err);
  return status == TDICT_OK ? tdict_output_replace(&to, &is_named, err) : status;
}

/* The shards of one save. */
typedef struct shards {
  const tdict_out_tree *tree;
  const tdict_save_request *request;
  const tdict_folder *folder;
  size_t count;      /* number of shards */
  uint64_t unique;   /* part of the names */
  uint64_t total;    /* bytes of all elements */
  size_t *ends;      /* ends[i]: the tensor after the last tensor of shard i; owned */
  tdict_output last; /* the shard that was written last */
} shards;

static void name_shard(const shards *s, size_t i, char *name, size_t bytes) {
  const int stem = (int)(strlen(s->folder->name) - (sizeof index_end - 1));
  snprintf(name, bytes, "%.*s-%016" PRIx64 "-%05zu-of-%05zu.safetensors", stem, s->folder->name, s->unique, i + 1,
           s->count);
}

/* Divides the tensors among shards, in the order of the tensors. */
static tdict_status divide(shards *s, uint64_t most, tdict_error *err) {
  const tdict_out_tree *tree = s->tree;
  uint64_t used = 0;
  s->ends = calloc(tree->num_tensors + 1, sizeof *s->ends);
  if (!s->ends)
    return tdict_fail_file(err, TDICT_ENOMEM, s->folder->path, "%s: no host memory for %zu tensors", s->folder->what,
                           tree->num_tensors);
  for (size_t i = 0; i < tree->num_tensors; i++) {
    const uint64_t bytes = tdict_tensor_bytes(tree->tensors[i].tensor);
    if (s->count == 0 || (used && bytes > most - (used < most ? used : most))) {
      s->count++;
      used = 0;
    }
    s->ends[s->count - 1] = i + 1;
    used += bytes;
    s->total += bytes;
  }
  if (s->count <= MAX_SHARDS) return TDICT_OK;
  return tdict_fail_file(err, TDICT_ENOTSUP, s->folder->path, "%s: %zu shards, wanted at most %d", s->folder->what,
                         s->count, MAX_SHARDS);
}

/* Writes shard `i`. */
static tdict_status write_shard(shards *s, size_t i, tdict_error *err) {
  const size_t begin = i ? s->ends[i - 1] : 0;
  const tdict_out_file file = {s->tree->tensors + begin, s->ends[i] - begin, NULL, &s->tree->metadata};
  char name[TDICT_OUTPUT_NAME_BYTES];
  name_shard(s, i, name, sizeof name);
  tdict_status status = tdict_output_create(&s->last, s->folder, name, err);
  return status == TDICT_OK ? write_file(&file, s->request, &s->last, err) : status;
}

static void remove_shards(shards *s, size_t count) {
  for (size_t i = 0; i < count; i++) {
    name_shard(s, i, s->last.name, sizeof s->last.name);
    tdict_output_discard(&s->last);
  }
}

static void write_index(const shards *s, tdict_io_text *text) {
  char name[TDICT_OUTPUT_NAME_BYTES];
  tdict_io_text_format(text, "{\"metadata\":{\"total_size\":%" PRIu64, s->total);
  const tdict_io_text *structure = s->tree->structure.length ? &s->tree->structure : NULL;
  if (structure || s->tree->metadata.length) {
    tdict_io_text_add(text, ",", 1);
    tdict_safetensors_write_metadata(&s->tree->metadata, structure, text);
  }
  tdict_io_text_add_string(text, "},\"weight_map\":{");
  for (size_t i = 0, shard = 0; i < s->tree->num_tensors; i++) {
    if (i == s->ends[shard]) shard++;
    name_shard(s, shard, name, sizeof name);
    tdict_io_text_add_string(text, i ? ",\n" : "\n");
    tdict_io_text_add_json(text, s->tree->tensors[i].name, strlen(s->tree->tensors[i].name));
    tdict_io_text_add_string(text, ":");
    tdict_io_text_add_json(text, name, strlen(name));
  }
  tdict_io_text_add_string(text, "}}\n");
}

/* Writes the text of the index. Returns TDICT_ENOTSUP if tdict_open() would refuse the index. */
static tdict_status make_index(const shards *s, tdict_io_text *text, tdict_error *err) {
  write_index(s, text);
  if (text->has_failed)
    return tdict_fail_file(err, TDICT_ENOMEM, s->folder->path, "%s: no host memory for the index", s->folder->what);
  if (text->length <= TDICT_SAFETENSORS_MAX_HEADER) return TDICT_OK;
  return tdict_fail_file(err, TDICT_ENOTSUP, s->folder->path, "%s: the index has %zu bytes, wanted at most %d",
                         s->folder->what, text->length, TDICT_SAFETENSORS_MAX_HEADER);
}

/* Replaces the index. Sets *is_named to true if the new index was renamed to its final name. In this case, the caller
 * must keep the shards. */
static tdict_status replace_index(const shards *s, const tdict_io_text *text, bool *is_named, tdict_error *err) {
  tdict_output index;
  tdict_status status = tdict_output_create_temporary(&index, s->folder, err);
  if (status != TDICT_OK) return status;
  status = tdict_output_write(&index, text->bytes, text->length, err);
  if (status == TDICT_OK) status = tdict_output_close(&index, err);
  if (status == TDICT_OK) return tdict_output_replace(&index, is_named, err);
  tdict_output_discard(&index);
  return status;
}

static tdict_status save_shards(const tdict_out_tree *tree, const tdict_save_request *request,
                                const tdict_folder *folder, tdict_error *err) {
  shards s = {.tree = tree, .request = request, .folder = folder, .unique = tdict_output_unique()};
  tdict_io_text index = {0};
  size_t written = 0;
  bool is_named = false;
  tdict_status status = divide(&s, request->options->max_shard_bytes, err);
  if (status == TDICT_OK) status = make_index(&s, &index, err);
  for (; written < s.count && status == TDICT_OK; written += status == TDICT_OK) status = write_shard(&s, written, err);
  /* The names of the shards must be on the disk before the index names them. */
  if (status == TDICT_OK) status = tdict_folder_flush(folder, err);
  if (status == TDICT_OK) status = replace_index(&s, &index, &is_named, err);
  if (status != TDICT_OK && !is_named) remove_shards(&s, written);
  tdict_io_text_reset(&index);
  free(s.ends);
  return status;
}

static tdict_status check_index_name(const tdict_folder *folder, tdict_error *err) {
  const size_t length = strlen(folder->name), end = sizeof index_end - 1;
  if (length > end && strcmp(folder->name + length - end, index_end) == 0) return TDICT_OK;
  return tdict_fail_file(err, TDICT_EINVAL, folder->path, "%s: the path of shards is '%.100s', wanted an end '%s'",
                         folder->what, folder->path, index_end);
}

static tdict_status save_tree(const tdict_out_tree *tree, const tdict_save_request *request, tdict_error *err) {
  const bool has_shards = request->options->max_shard_bytes != 0;
  tdict_folder folder;
  tdict_status status = tdict_folder_open(&folder, request->what, request->path, err);
  if (status != TDICT_OK) return status;
  folder.is_cancelled = request->is_cancelled;
  if (has_shards) status = check_index_name(&folder, err);
  if (status == TDICT_OK)
    status = has_shards ? save_shards(tree, request, &folder, err) : save_file(tree, request, &folder, err);
  tdict_folder_close(&folder);
  return status;
}

tdict_status tdict_safetensors_save(const tdict_save_request *request, tdict_error *err) {
  tdict_out_tree out = {0};
  tdict_contents_init(&out.contents, request->what, request->path);
  tdict_status status = tdict_out_tree_collect(&out, request->tree, request->options, err);
  if (status == TDICT_OK) status = save_tree(&out, request, err);
  tdict_out_tree_reset(&out);
  return status;
}
