/* Collects the tensors of a tree, and writes one file, or shards and an index. Owns nothing. Thread-safe. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "services/io/safetensors/safetensors.h"

static const char index_end[] = ".safetensors.index.json", shard_end[] = ".safetensors";
/* MOST_STEM: leaves room for the number of the save, the numbers of the shard, and the parts of a temporary name */
enum { MAX_SHARDS = 99999, MOST_STEM = 200, ALIGNMENT = 8 };

/* The tensors of one file, and the metadata of its header. */
typedef struct out_file {
  const tdict_out_tensor *tensors; /* borrowed */
  size_t num_tensors;
  const tdict_io_text *structure; /* TensorDict's entry; NULL or empty: none */
  const tdict_io_text *metadata;  /* the other entries of the metadata */
} out_file;

/* Adds the members of the metadata: `metadata`, then TensorDict's entry unless `structure` is NULL. */
static void write_metadata(const tdict_io_text *metadata, const tdict_io_text *structure, tdict_io_text *text) {
  if (metadata->length) tdict_io_text_add(text, metadata->bytes, metadata->length);
  if (!structure) return;
  tdict_io_text_add_string(text, metadata->length ? ",\"tensordict\":" : "\"tensordict\":");
  tdict_io_text_add_json(text, structure->bytes, structure->length);
}

/* Writes the header with the package's bytes: no spaces in the JSON, padded with spaces to a multiple of 8 bytes. */
static void write_header(const out_file *file, tdict_io_text *text) {
  size_t offset = 0;
  tdict_io_text_add_string(text, "{");
  const bool has_structure = file->structure && file->structure->length;
  if (has_structure || file->metadata->length) {
    tdict_io_text_add_string(text, "\"__metadata__\":{");
    write_metadata(file->metadata, has_structure ? file->structure : NULL, text);
    tdict_io_text_add_string(text, file->num_tensors ? "}," : "}");
  }
  for (size_t i = 0; i < file->num_tensors; i++) {
    const tdict_out_tensor *t = &file->tensors[i];
    const size_t end = offset + tdict_tensor_bytes(t->tensor);
    if (i) tdict_io_text_add(text, ",", 1);
    tdict_io_text_add_json(text, t->name, strlen(t->name));
    tdict_io_text_format(text, ":{\"dtype\":\"%s\",\"shape\":", t->dtype->name);
    tdict_io_text_add_sizes(text, ",", tdict_tensor_ndim(t->tensor), tdict_tensor_shape(t->tensor));
    tdict_io_text_format(text, ",\"data_offsets\":[%zu,%zu]}", offset, end);
    offset = end;
  }
  tdict_io_text_add_string(text, "}");
  while (text->length % ALIGNMENT && !text->has_failed) tdict_io_text_add(text, " ", 1);
}

static tdict_status write_elements(const out_file *file, const tdict_save_request *request, tdict_output *to,
                                   tdict_error *err) {
  tdict_output_part *parts = malloc((file->num_tensors + 1) * sizeof *parts);
  uint64_t offset = to->offset;
  if (!parts) return tdict_fail_memory(err, to->folder->what, to->folder->path, "%zu tensors", file->num_tensors);
  for (size_t i = 0; i < file->num_tensors; i++) {
    parts[i] = (tdict_output_part){file->tensors[i].tensor, file->tensors[i].name, offset};
    offset += tdict_tensor_bytes(file->tensors[i].tensor);
  }
  tdict_status status = tdict_output_write_parts(to, request, parts, file->num_tensors, err);
  free(parts);
  return status;
}

static tdict_status write_file(const out_file *file, const tdict_save_request *request, tdict_output *to,
                               tdict_error *err) {
  const char *what = to->folder->what, *path = to->folder->path;
  tdict_io_text header = {0};
  char length[TDICT_SAFETENSORS_PREFIX];
  tdict_status status = TDICT_OK;
  write_header(file, &header);
  if (header.has_failed)
    status = tdict_fail_memory(err, what, path, "the header");
  else if (header.length > TDICT_SAFETENSORS_MAX_HEADER)
    status = tdict_fail_at(err, TDICT_ENOTSUP, path, "%s: the header has %zu bytes, wanted at most %d", what,
                           header.length, TDICT_SAFETENSORS_MAX_HEADER);
  for (int i = 0; i < TDICT_SAFETENSORS_PREFIX; i++) length[i] = (char)(header.length >> 8 * i & 0xff);
  if (status == TDICT_OK) status = tdict_output_write(to, length, sizeof length, err);
  if (status == TDICT_OK) status = tdict_output_write(to, header.bytes, header.length, err);
  if (status == TDICT_OK) status = write_elements(file, request, to, err);
  tdict_io_text_reset(&header);
  return status;
}

/* The shards of one save. The temporary file of the index exists, and is locked, from before the first shard until the
 * index is in place. All shards have temporary names until all shards are whole. */
typedef struct shards {
  const tdict_out_tree *tree;
  const tdict_save_request *request;
  const tdict_folder *folder;
  size_t count;       /* number of shards */
  uint64_t total;     /* bytes of all elements */
  size_t *ends;       /* ends[i]: the tensor after the last tensor of shard i; owned */
  tdict_output index; /* its number is in the names of the shards */
} shards;

/* Writes the start of the names of shards, before their number. Returns false if `base` is no name of an index. */
static bool name_start(const char *base, uint64_t unique, char start[TDICT_OUTPUT_NAME_BYTES]) {
  const size_t length = strlen(base), end = sizeof index_end - 1;
  if (length <= end || strcmp(base + length - end, index_end) != 0) return false;
  size_t stem = length - end;
  if (stem > MOST_STEM) stem = MOST_STEM;
  while (((unsigned char)base[stem] & 0xc0) == 0x80) stem--; /* not inside a character of UTF-8 */
  snprintf(start, TDICT_OUTPUT_NAME_BYTES, "%.*s-%016" PRIx64 "-", (int)stem, base, unique);
  return true;
}

typedef struct shard_names {
  char final[TDICT_OUTPUT_NAME_BYTES], temporary[TDICT_OUTPUT_NAME_BYTES + 8];
} shard_names;

static void name_shard(const shards *s, size_t i, shard_names *names) {
  (void)name_start(s->folder->name, s->index.file.unique, names->final);
  const size_t length = strlen(names->final);
  snprintf(names->final + length, sizeof names->final - length, "%05zu-of-%05zu%s", i + 1, s->count, shard_end);
  snprintf(names->temporary, sizeof names->temporary, ".%s.tmp", names->final);
}

/* Removes a file if it is a shard of the killed save whose names begin with `user`. */
static int remove_if_shard(void *user, int folder, const char *name) {
  const char *start = user;
  const size_t length = strlen(start);
  const bool is_shard = strncmp(name, start, length) == 0 || (name[0] == '.' && strncmp(name + 1, start, length) == 0);
  if (is_shard) (void)!tdict_entry_remove(folder, name);
  return 0;
}

/* Removes the shards of a save that was killed before its index was in place. */
static void remove_lost_shards(int folder, const char *base, uint64_t unique) {
  char start[TDICT_OUTPUT_NAME_BYTES];
  if (name_start(base, unique, start)) (void)!tdict_names_visit(folder, remove_if_shard, start);
}

/* Divides the tensors among shards, in the order of the tensors. */
static tdict_status divide(shards *s, uint64_t most, tdict_error *err) {
  const tdict_out_tree *tree = s->tree;
  uint64_t used = 0;
  s->ends = calloc(tree->num_tensors + 1, sizeof *s->ends);
  if (!s->ends) return tdict_fail_memory(err, s->folder->what, s->folder->path, "%zu tensors", tree->num_tensors);
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
  return tdict_fail_at(err, TDICT_ENOTSUP, s->folder->path, "%s: %zu shards, wanted at most %d", s->folder->what,
                       s->count, MAX_SHARDS);
}

/* Writes shard `i` under its temporary name. */
static tdict_status write_shard(const shards *s, size_t i, tdict_error *err) {
  const size_t begin = i ? s->ends[i - 1] : 0;
  const out_file file = {s->tree->tensors + begin, s->ends[i] - begin, NULL, &s->tree->metadata};
  tdict_output to;
  shard_names names;
  name_shard(s, i, &names);
  tdict_status status = tdict_output_create(&to, s->folder, names.temporary, err);
  if (status != TDICT_OK) return status;
  status = write_file(&file, s->request, &to, err);
  if (status == TDICT_OK) status = tdict_output_close(&to, err);
  tdict_output_end(&to);
  return status;
}

/* Gives a shard its final name. */
static tdict_status rename_shard(const shards *s, size_t i, tdict_error *err) {
  const tdict_folder *folder = s->folder;
  shard_names names;
  name_shard(s, i, &names);
  if (renameat(folder->fd, names.temporary, folder->fd, names.final) == 0) return TDICT_OK;
  return tdict_folder_fail(folder, "shard", "renamed", errno, err);
}

/* Removes the first `count` shards, of which the first `num_renamed` have their final names. */
static void remove_shards(const shards *s, size_t count, size_t num_renamed) {
  for (size_t i = 0; i < count; i++) {
    shard_names names;
    name_shard(s, i, &names);
    (void)!tdict_entry_remove(s->folder->fd, i < num_renamed ? names.final : names.temporary);
  }
}

static void write_index(const shards *s, tdict_io_text *text) {
  shard_names names;
  tdict_io_text_format(text, "{\"metadata\":{\"total_size\":%" PRIu64, s->total);
  const tdict_io_text *structure = s->tree->structure.length ? &s->tree->structure : NULL;
  if (structure || s->tree->metadata.length) {
    tdict_io_text_add(text, ",", 1);
    write_metadata(&s->tree->metadata, structure, text);
  }
  tdict_io_text_add_string(text, "},\"weight_map\":{");
  for (size_t i = 0, shard = 0; i < s->tree->num_tensors; i++) {
    if (i == s->ends[shard]) shard++;
    name_shard(s, shard, &names);
    tdict_io_text_add_string(text, i ? ",\n" : "\n");
    tdict_io_text_add_json(text, s->tree->tensors[i].name, strlen(s->tree->tensors[i].name));
    tdict_io_text_add_string(text, ":");
    tdict_io_text_add_json(text, names.final, strlen(names.final));
  }
  tdict_io_text_add_string(text, "}}\n");
}

/* Writes the text of the index. Returns TDICT_ENOTSUP if tdict_open() would refuse the index. */
static tdict_status make_index(const shards *s, tdict_io_text *text, tdict_error *err) {
  write_index(s, text);
  if (text->has_failed) return tdict_fail_memory(err, s->folder->what, s->folder->path, "the index");
  if (text->length <= TDICT_SAFETENSORS_MAX_HEADER) return TDICT_OK;
  return tdict_fail_at(err, TDICT_ENOTSUP, s->folder->path, "%s: the index has %zu bytes, wanted at most %d",
                       s->folder->what, text->length, TDICT_SAFETENSORS_MAX_HEADER);
}

/* Makes the text of the index, writes all shards, gives the shards their names, and then replaces the index. If the new
 * index has its final name, the shards stay, also after a later error. */
static tdict_status write_shards(shards *s, tdict_error *err) {
  size_t written = 0, renamed = 0;
  tdict_io_text text = {0};
  tdict_status status = make_index(s, &text, err);
  for (; written < s->count && status == TDICT_OK; written += status == TDICT_OK) status = write_shard(s, written, err);
  if (status == TDICT_OK) status = tdict_output_write(&s->index, text.bytes, text.length, err);
  for (; renamed < written && status == TDICT_OK; renamed += status == TDICT_OK) status = rename_shard(s, renamed, err);
  /* The names of the shards must be on the disk before the index names them. */
  if (status == TDICT_OK) status = tdict_folder_flush(s->folder, err);
  if (status == TDICT_OK) status = tdict_output_replace(&s->index, err);
  tdict_io_text_reset(&text);
  if (!s->index.is_whole) remove_shards(s, written, renamed);
  tdict_output_end(&s->index); /* last: the next save finds lost shards by the temporary file of the index */
  return status;
}

static tdict_status save_shards(const tdict_out_tree *tree, const tdict_save_request *request, tdict_error *err) {
  tdict_folder folder;
  char start[TDICT_OUTPUT_NAME_BYTES];
  tdict_status status = tdict_folder_open(&folder, request->what, request->path, remove_lost_shards, err);
  if (status != TDICT_OK) return status;
  shards s = {.tree = tree, .request = request, .folder = &folder};
  folder.watch = request->watch;
  if (!name_start(folder.name, 0, start))
    status = tdict_fail_at(err, TDICT_EINVAL, folder.path, "%s: the path of shards is '%.100s', wanted an end '%s'",
                           folder.what, folder.path, index_end);
  if (status == TDICT_OK) status = divide(&s, request->options->max_shard_bytes, err);
  if (status == TDICT_OK) status = tdict_output_create_temporary(&s.index, &folder, err);
  if (status == TDICT_OK) status = write_shards(&s, err);
  free(s.ends);
  tdict_folder_close(&folder);
  return status;
}

typedef struct whole_file {
  const tdict_save_request *request;
  out_file file;
} whole_file;

static tdict_status write_whole(void *user, tdict_output *to, tdict_error *err) {
  const whole_file *whole = user;
  return write_file(&whole->file, whole->request, to, err);
}

tdict_status tdict_safetensors_save(const tdict_save_request *request, tdict_error *err) {
  tdict_out_tree out;
  tdict_status status = tdict_out_tree_collect(&out, request, err);
  whole_file whole = {request, {out.tensors, out.num_tensors, &out.structure, &out.metadata}};
  if (status == TDICT_OK)
    status = request->options->max_shard_bytes
                 ? save_shards(&out, request, err)
                 : tdict_output_file(request, remove_lost_shards, write_whole, &whole, err);
  tdict_out_tree_reset(&out);
  return status;
}
