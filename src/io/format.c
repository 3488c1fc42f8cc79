/* Finds the format of a path, and reads the description of the files. Owns nothing. Thread-safe. */
#include "io/format.h"

#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "io/numpy/numpy.h"
#include "io/safetensors/safetensors.h"
#include "io/zip/zip.h"

static const char index_name[] = "model.safetensors.index.json";

static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), end_length = strlen(end);
  return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* Returns true if the path names an index, and sets *index to the path of the index. */
static tdict_status find_index(tdict_contents *c, const char **index, tdict_error *err) {
  struct stat info;
  void *path = NULL;
  *index = NULL;
  if (stat(c->path, &info) == 0 && S_ISDIR(info.st_mode)) {
    const size_t bytes = strlen(c->path) + sizeof index_name + 1;
    tdict_status status = tdict_contents_alloc(c, bytes, &path, err);
    if (status != TDICT_OK) return status;
    snprintf(path, bytes, "%s/%s", c->path, index_name);
    *index = path;
    if (stat(path, &info) == 0) return TDICT_OK;
    return tdict_fail_file(err, TDICT_EFORMAT, c->path, "%s: the folder has no file %s", c->what, index_name);
  }
  if (ends_with(c->path, ".json")) *index = c->path;
  return TDICT_OK;
}

/* Adds the file at the path, and reads the description of the format that its first bytes show. */
static tdict_status read_file(tdict_contents *c, const char **structure, tdict_error *err) {
  int fd;
  tdict_status status = tdict_file_open_to_read(c->what, c->path, &fd, err);
  if (status == TDICT_OK) status = tdict_contents_add_file(c, fd, c->path, err);
  if (status != TDICT_OK) return status;
  /* NumPy gives the name arr_0 to the first array without a name, too. */
  if (tdict_npy_is_npy(c, 0)) return tdict_npy_read(c, (tdict_span){0, 0, c->files[0].bytes}, "arr_0", err);
  if (tdict_zip_is_zip(c, 0)) return tdict_npz_read(c, 0, err);
  return tdict_safetensors_read(c, 0, structure, err);
}

/* Reads the description of all files. Sets the paths of the items, or their names if the option `flat` is set. */
static tdict_status read_description(tdict_contents *c, const tdict_open_options *o, tdict_error *err) {
  const char *index, *structure = NULL;
  tdict_status status = find_index(c, &index, err);
  if (status != TDICT_OK) return status;
  status = index ? tdict_shards_read(c, index, o, &structure, err) : read_file(c, &structure, err);
  if (status == TDICT_OK && !o->flat)
    status = structure ? tdict_structure_read(c, structure, err) : tdict_contents_nest(c, err);
  return status;
}

tdict_status tdict_format_read(tdict_contents *contents, const tdict_open_options *options, tdict_error *err) {
  tdict_status status = read_description(contents, options, err);
  return status == TDICT_OK ? tdict_contents_arrange(contents, options, err) : status;
}
