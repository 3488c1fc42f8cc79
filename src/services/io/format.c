/* Finds the format of a path, and reads the description of the files. Owns nothing. Thread-safe. */
#include "services/io/contents/contents.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "services/io/numpy/numpy.h"
#include "services/io/safetensors/safetensors.h"
#include "services/io/tensordict/tensordict.h"

static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), end_length = strlen(end);
  return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static tdict_status fail_other(const tdict_contents *c, const char *what, const char *why, tdict_error *err) {
  return tdict_fail_at(err, TDICT_ENOTSUP, c->files[0].path, "%s: the file is %s; this library does not read %s",
                       c->what, what, why);
}

/* Reads `bytes` bytes at `offset` of the file. Returns false if the file is shorter or cannot be read. */
static bool read_at(const tdict_contents *c, uint64_t offset, void *to, size_t bytes) {
  return tdict_contents_read(c, (tdict_span){0, offset, bytes}, to, NULL) == TDICT_OK;
}

/* Returns true if the first entry of a zip file is the pickle of torch.save. */
static bool is_torch_file(const tdict_contents *c) {
  enum { HEADER = 30, LENGTH = 26 };
  unsigned char header[HEADER];
  char name[256];
  if (!read_at(c, 0, header, sizeof header)) return false;
  const size_t length = header[LENGTH] | (size_t)header[LENGTH + 1] << 8;
  if (length >= sizeof name || !read_at(c, HEADER, name, length)) return false;
  name[length] = 0;
  return ends_with(name, "/data.pkl");
}

static tdict_status read_zip(tdict_contents *c, const tdict_open_options *o, bool *has_paths, tdict_error *err) {
  tdict_zip zip;
  if (is_torch_file(c)) return fail_other(c, "a zip file of torch.save, which has a pickle", "pickles", err);
  tdict_status status = tdict_zip_read(c, &zip, err);
  /* A damaged header should be reported as a wrong checksum, so the check comes first. */
  if (status == TDICT_OK && o->check_crc) status = tdict_zip_check(c, &zip, err);
  if (status != TDICT_OK) return status;
  *has_paths = tdict_archive_is(&zip);
  return *has_paths ? tdict_archive_read(c, &zip, o, err) : tdict_npz_read(c, &zip, err);
}

/* Returns true if a file begins as a pickle of protocol 2 to 5, for example of an old torch.save. */
static bool is_pickle(const tdict_contents *c) {
  unsigned char start[3];
  return read_at(c, 0, start, sizeof start) && start[0] == 0x80 && start[1] >= 2 && start[1] <= 5 && start[2] != 0;
}

static bool is_gguf(const tdict_contents *c) {
  char start[4];
  return read_at(c, 0, start, sizeof start) && memcmp(start, "GGUF", sizeof start) == 0;
}

/* Reads the format that the first bytes name. Without a complete header that fits the file, *decides becomes false. */
static tdict_status read_start(tdict_contents *c, const char **structure, bool *decides, tdict_error *err) {
  char brace = 0;
  tdict_status status = TDICT_EFORMAT;
  *decides = false;
  /* Use the name that NumPy gives to the first array without a name. */
  if (tdict_npy_is_npy(c))
    status = tdict_npy_read(c, (tdict_span){0, 0, c->files[0].bytes}, "arr_0", err);
  else if (!read_at(c, TDICT_SAFETENSORS_PREFIX, &brace, 1) || brace != '{')
    return TDICT_OK;
  else
    status = tdict_safetensors_read(c, 0, structure, err);
  *decides = status != TDICT_EFORMAT;
  if (!*decides) c->num_items = c->num_metadata = 0;
  c->has_metadata = c->has_metadata && *decides;
  if (!*decides) *structure = NULL;
  return status;
}

/* What to read, and what was read. */
typedef struct description {
  const char *path;   /* of the file */
  bool follows_links; /* opens the file if it is a symbolic link */
  const char *structure;
  bool has_paths; /* the reader has set paths and not names */
} description;

/* Adds the file at the path, finds the format of the file from its bytes, and reads the description in this format. */
static tdict_status read_file(tdict_contents *c, const tdict_open_options *o, description *out, tdict_error *err) {
  int fd;
  bool decides;
  tdict_error why;
  tdict_status status = tdict_below_open_shard(c->what, AT_FDCWD, out->path, out->follows_links, &fd, err);
  if (status == TDICT_OK) status = tdict_contents_add_file(c, fd, out->path, err);
  if (status != TDICT_OK) return status;
  /* A header at the start comes first: elements at the end can look like the end of a consolidated file. */
  status = read_start(c, &out->structure, &decides, &why);
  if (!decides && tdict_consolidated_is(c)) {
    out->has_paths = true;
    return tdict_consolidated_read(c, o, err);
  }
  if (!decides && tdict_zip_is_zip(c)) return read_zip(c, o, &out->has_paths, err);
  if (!decides && ends_with(out->path, ".json")) {
    status = tdict_safetensors_refuse_other(c, 0, err);
    if (status != TDICT_OK) return status;
    close(c->files[0].fd);
    c->num_files = 0;
    return tdict_shards_read(c, out->path, o, &out->structure, err);
  }
  if (!decides && is_gguf(c)) return fail_other(c, "a GGUF file", "this format", err);
  if (!decides && status == TDICT_OK) status = tdict_safetensors_read(c, 0, &out->structure, &why);
  if (status == TDICT_EFORMAT && is_pickle(c)) return fail_other(c, "a pickle", "pickles", err);
  if (status != TDICT_OK && err) *err = why;
  return status;
}

/* Sets *out to the path of a file in the folder, and *exists to true if the file exists. */
static tdict_status find_in_folder(tdict_contents *c, const char *name, const char **out, bool *exists,
                                   tdict_error *err) {
  struct stat info;
  tdict_status status = tdict_contents_format(c, out, err, "%s/%s", c->path, name);
  *exists = status == TDICT_OK && lstat(*out, &info) == 0;
  return status;
}

static tdict_status read_directory(tdict_contents *c, const tdict_open_options *o, tdict_error *err) {
  const int fd = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) return tdict_memmap_read(c, fd, o, err);
  return tdict_fail_errno(err, errno, c->path, "%s: the folder cannot be opened", c->what);
}

/* Reads a folder: an index and its shards, a directory of TensorDict, or a model in one file. */
static tdict_status read_folder(tdict_contents *c, const tdict_open_options *o, description *out, tdict_error *err) {
  static const char index_name[] = "model.safetensors.index.json", model_name[] = "model.safetensors";
  const char *meta;
  bool has_index = false, has_meta = false, has_model = false;
  tdict_status status = find_in_folder(c, index_name, &out->path, &has_index, err);
  if (status == TDICT_OK && !has_index) status = find_in_folder(c, "meta.json", &meta, &has_meta, err);
  if (status == TDICT_OK && has_meta) {
    out->has_paths = true;
    return read_directory(c, o, err);
  }
  if (status == TDICT_OK && !has_index) status = find_in_folder(c, model_name, &out->path, &has_model, err);
  if (status != TDICT_OK) return status;
  if (!has_index && !has_model)
    return tdict_fail_at(err, TDICT_EFORMAT, c->path, "%s: the folder has none of the files %s, meta.json and %s",
                         c->what, index_name, model_name);
  /* As with shards, a link from the folder can lead out of the folder. */
  out->follows_links = has_index || o->follows_links;
  return read_file(c, o, out, err);
}

/* Reads the description of all files. Sets the path of each item, or with the option `flat` its name. */
static tdict_status read_description(tdict_contents *c, const tdict_open_options *o, tdict_error *err) {
  description d = {.path = c->path, .follows_links = true};
  struct stat info;
  const bool is_folder = stat(c->path, &info) == 0 && S_ISDIR(info.st_mode);
  tdict_status status = is_folder ? read_folder(c, o, &d, err) : read_file(c, o, &d, err);
  if (status != TDICT_OK || o->flat || d.has_paths) return status;
  return d.structure ? tdict_structure_read(c, d.structure, err) : tdict_contents_nest(c, err);
}

tdict_status tdict_format_read(tdict_contents *contents, const tdict_open_options *options, tdict_error *err) {
  tdict_status status = read_description(contents, options, err);
  return status == TDICT_OK ? tdict_contents_arrange(contents, options, err) : status;
}

bool tdict_format_was_replaced(const tdict_contents *contents) {
  struct stat read, now;
  return contents->root >= 0 && fstat(contents->root, &read) == 0 && stat(contents->path, &now) == 0 &&
         S_ISDIR(now.st_mode) && (read.st_dev != now.st_dev || read.st_ino != now.st_ino);
}

tdict_status tdict_format_check_start(const tdict_output *output, tdict_error *err) {
  const tdict_folder *folder = output->folder;
  const char *structure;
  tdict_contents c;
  bool decides = false;
  int fd;
  tdict_contents_init(&c, folder->what, folder->path);
  tdict_status status = tdict_file_open_in(folder->what, folder->fd, output->file.name, false, &fd, err);
  if (status == TDICT_OK) status = tdict_contents_add_file(&c, fd, folder->path, err);
  if (status == TDICT_OK) (void)!read_start(&c, &structure, &decides, NULL);
  tdict_contents_close(&c);
  if (status != TDICT_OK) return tdict_error_at(err, status, folder->path);
  if (!decides) return TDICT_OK;
  return tdict_fail_at(err, TDICT_ENOTSUP, folder->path,
                       "%s: the elements at the start of the file are a complete file of another format, "
                       "which tdict_open() would read; choose another format",
                       folder->what);
}
