/* Makes datasets whose samples are windows over files of tokens: raw tokens or llm.c's shards. The dataset owns its
 * mapped files.
 * Thread rule: see tdict/dataset.h. The record is constant after creation, so fetching needs no lock. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "services/loader/dataset.h"
#include "services/loader/row_stores.h"
#include "tdict/tokens.h"

static const char error_prefix[] = "dataset_from_tokens";
enum { HEADER_BYTES = 1024, MAGIC_U16 = 20240520, VERSION_U16 = 1, MAGIC_U32 = 20240801, VERSION_U32 = 7 };

typedef struct token_file {
  void *map; /* owned; NULL: not mapped */
  size_t map_bytes;
  const void *tokens;
  int64_t count;
  int32_t width; /* bytes in a token: 2 or 4 */
} token_file;

/* Maps the whole file. An empty file is not mapped, because mmap() fails for a length of 0. */
static tdict_status map_file(token_file *file, int fd, const char *path, tdict_error *err) {
  struct stat info;
  if (fstat(fd, &info) != 0) return tdict_fail_errno(err, errno, path, "tokens: the file cannot be inspected");
  file->map_bytes = (size_t)info.st_size;
  if (file->map_bytes == 0) return TDICT_OK;
  void *address = mmap(NULL, file->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) return tdict_fail_errno(err, errno, path, "tokens: the file cannot be mapped");
  file->map = address;
  return TDICT_OK;
}

/* Returns an int32 of the header. */
static int32_t read_header_int(const token_file *file, size_t i) {
  int32_t number;
  memcpy(&number, (const char *)file->map + i * sizeof number, sizeof number);
  return number;
}

static bool has_header(const token_file *file) {
  if (!file->map || file->map_bytes < HEADER_BYTES) return false;
  int32_t magic = read_header_int(file, 0);
  return magic == MAGIC_U16 || magic == MAGIC_U32;
}

/* Reads the header, and checks that the file has the size that the header implies. */
static tdict_status read_header(token_file *file, tdict_error *err) {
  if (!has_header(file))
    return tdict_fail(err, TDICT_EFORMAT, "tokens: the file does not begin with the magic number %d or %d", MAGIC_U16,
                      MAGIC_U32);
  int32_t magic = read_header_int(file, 0), version = read_header_int(file, 1), count = read_header_int(file, 2);
  int32_t wanted = magic == MAGIC_U16 ? VERSION_U16 : VERSION_U32;
  if (version != wanted)
    return tdict_fail(err, TDICT_EFORMAT, "tokens: version %d, wanted %d for magic number %d", (int)version,
                      (int)wanted, (int)magic);
  file->width = magic == MAGIC_U16 ? 2 : 4;
  if (count < 0 || file->map_bytes != HEADER_BYTES + (size_t)count * (size_t)file->width)
    return tdict_fail(err, TDICT_EFORMAT, "tokens: %zu bytes, wanted %d of header and %d tokens of %d bytes",
                      file->map_bytes, HEADER_BYTES, (int)count, (int)file->width);
  file->count = count;
  file->tokens = (const char *)file->map + HEADER_BYTES;
  return TDICT_OK;
}

/* Uses the whole file as tokens of `width` bytes. */
static tdict_status read_raw(token_file *file, int32_t width, tdict_error *err) {
  if (file->map_bytes % (size_t)width)
    return tdict_fail(err, TDICT_EFORMAT, "tokens: %zu bytes, wanted a multiple of %d", file->map_bytes, (int)width);
  file->width = width;
  file->count = (int64_t)(file->map_bytes / (size_t)width);
  file->tokens = file->map;
  return TDICT_OK;
}

/* Opens and maps a file. `format` is a tdict_token_format. err->path is `path`. release_tokens() unmaps the file, also
 * after a failure. */
static tdict_status open_file(token_file *file, const char *path, int32_t format, tdict_error *err) {
  int fd;
  tdict_status status = tdict_file_open_to_read("tokens", path, &fd, err);
  if (status != TDICT_OK) return status;
  status = map_file(file, fd, path, err);
  close(fd);
  if (status != TDICT_OK) return status;
  if (format == TDICT_TOKENS_LLMC || (format == TDICT_TOKENS_AUTO && has_header(file)))
    status = read_header(file, err);
  else
    status = read_raw(file, format == TDICT_TOKENS_U32 ? 4 : 2, err);
  return status == TDICT_OK ? status : tdict_error_at(err, status, path);
}

typedef struct token_source {
  int64_t num_files, window, step;
  tdict_dtype dtype;
  token_file *files;
  int64_t *first_sample; /* index of the first sample of each file; the last element is the number of all samples */
  tdict_field fields[2];
} token_source;

static void release_tokens(void *self) {
  token_source *s = self;
  for (int64_t i = 0; i < s->num_files; i++)
    if (s->files[i].map) munmap(s->files[i].map, s->files[i].map_bytes);
  free(s->files);
  free(s->first_sample);
  free(s);
}

static int64_t tokens_length(void *self) {
  return ((token_source *)self)->first_sample[((token_source *)self)->num_files];
}

/* Returns the number of the file that holds a sample. Uses a binary search. */
static int64_t find_file(const token_source *s, int64_t index) {
  int64_t low = 0, high = s->num_files; /* first_sample[low] <= index < first_sample[high] */
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (s->first_sample[middle] <= index)
      low = middle;
    else
      high = middle;
  }
  return low;
}

#define WIDEN(type, from) \
  for (int64_t i = 0; i < count; i++) ((type *)dst)[i] = (type)(from)[i];

/* Widens tokens to int64 if `wide` is true, else to int32. Returns false if a token does not fit int32. */
static bool widen_tokens(const token_file *file, int64_t begin, int64_t count, bool wide, void *dst) {
  const uint16_t *halves = (const uint16_t *)file->tokens + begin;
  const uint32_t *words = (const uint32_t *)file->tokens + begin;
  uint32_t all_bits = 0;
  if (file->width == 2 && wide) {
    WIDEN(int64_t, halves)
  } else if (file->width == 2) {
    WIDEN(int32_t, halves)
  } else if (wide) {
    WIDEN(int64_t, words)
  } else {
    for (int64_t i = 0; i < count; i++) all_bits |= words[i];
    WIDEN(int32_t, words)
  }
  return all_bits <= INT32_MAX;
}

/* The addresses to which a batch is written, and the kind of stores for each row. */
typedef struct batch_writer {
  char *tokens, *targets;
  tdict_row_stores stores;
} batch_writer;

/* Writes one window. Non-temporal stores should write whole cache lines, so for these stores the tokens are first
 * widened into a small buffer. */
static bool write_tokens(const token_source *s, const token_file *file, int64_t begin, char *dst,
                         tdict_stream_kind stores) {
  enum { BUFFER_TOKENS = 256 };
  int64_t buffer[BUFFER_TOKENS];
  bool wide = s->dtype == TDICT_I64, fits = true;
  if (stores == TDICT_STREAM_PLAIN) return widen_tokens(file, begin, s->window, wide, dst);
  for (int64_t at = 0; at < s->window; at += BUFFER_TOKENS) {
    int64_t count = s->window - at < BUFFER_TOKENS ? s->window - at : BUFFER_TOKENS;
    size_t bytes = tdict_dtype_bytes(s->dtype);
    fits &= widen_tokens(file, begin + at, count, wide, buffer);
    tdict_stream_copy(stores, dst + (size_t)at * bytes, buffer, (size_t)count * bytes);
  }
  return fits;
}

static tdict_status write_window(const token_source *s, int64_t index, int64_t row, const batch_writer *w,
                                 tdict_error *err) {
  int64_t f = find_file(s, index), begin = (index - s->first_sample[f]) * s->step;
  size_t at = (size_t)row * (size_t)s->window * tdict_dtype_bytes(s->dtype);
  tdict_stream_kind stores = tdict_row_stores_at(&w->stores, row);
  bool fits = write_tokens(s, &s->files[f], begin, w->tokens + at, stores) &&
              write_tokens(s, &s->files[f], begin + 1, w->targets + at, stores);
  if (fits) return TDICT_OK;
  return tdict_fail(err, TDICT_EOVERFLOW, "tokens: a token of sample %lld does not fit int32", (long long)index);
}

/* Writes the windows of a batch. The fence makes the non-temporal stores visible before the loader sends the batch. */
static tdict_status fetch_token_batch(void *self, const tdict_fetch_info *info, const int64_t *indices, int64_t count,
                                      tdict_tree *batch, tdict_error *err) {
  (void)info;
  const token_source *s = self;
  tdict_tensor *t;
  batch_writer w = {.tokens = tdict_data(batch, "tokens"), .targets = tdict_data(batch, "targets")};
  if (!w.tokens || !w.targets || tdict_get(batch, "tokens", &t, NULL) != TDICT_OK)
    return tdict_fail(err, TDICT_EINVAL, "tokens: the batch has no tokens or no targets");
  w.stores = tdict_row_stores_choose(t, count, (size_t)s->window * tdict_dtype_bytes(s->dtype));
  tdict_status status = TDICT_OK;
  for (int64_t i = 0; i < count && status == TDICT_OK; i++) {
    if (indices[i] < 0 || indices[i] >= s->first_sample[s->num_files])
      status = tdict_fail(err, TDICT_EINVAL, "tokens: sample %lld of %lld", (long long)indices[i],
                          (long long)s->first_sample[s->num_files]);
    else
      status = write_window(s, indices[i], i, &w, err);
  }
  if (w.stores.tail_kind != TDICT_STREAM_PLAIN) tdict_stream_fence();
  return status;
}

static tdict_status check_token_options(const tdict_token_options *o, tdict_error *err) {
  if (o->num_paths < 1 || !o->paths) return tdict_fail(err, TDICT_EINVAL, "%s: paths names no file", error_prefix);
  for (size_t i = 0; i < o->num_paths; i++)
    if (!o->paths[i]) return tdict_fail(err, TDICT_EINVAL, "%s: path %zu is NULL", error_prefix, i);
  if (o->window < 1 || o->step < 0)
    return tdict_fail(err, TDICT_EINVAL, "%s: window is %lld and step %lld, wanted 1 or more, and 0 or more",
                      error_prefix, (long long)o->window, (long long)o->step);
  if (o->format < TDICT_TOKENS_AUTO || o->format > TDICT_TOKENS_U32)
    return tdict_fail(err, TDICT_EINVAL, "%s: format is %d, wanted a tdict_token_format", error_prefix, (int)o->format);
  if (o->dtype != TDICT_I64 && o->dtype != TDICT_I32)
    return tdict_fail(err, TDICT_EINVAL, "%s: dtype is %s, wanted int64 or int32", error_prefix,
                      tdict_dtype_name(o->dtype));
  return TDICT_OK;
}

/* Maps all files, and numbers their samples. The token after a window must also be in the file, because this token is
 * the last target of the window. */
static tdict_status open_token_files(token_source *s, const tdict_token_options *o, tdict_error *err) {
  s->files = calloc(o->num_paths, sizeof *s->files);
  s->first_sample = calloc(o->num_paths + 1, sizeof *s->first_sample);
  if (!s->files || !s->first_sample) return tdict_fail_memory(err, error_prefix, NULL, "%zu files", o->num_paths);
  s->num_files = (int64_t)o->num_paths;
  for (int64_t i = 0; i < s->num_files; i++) {
    tdict_status status = open_file(&s->files[i], o->paths[i], o->format, err);
    if (status != TDICT_OK) return status;
    int64_t last_begin = s->files[i].count - 1 - s->window;
    s->first_sample[i + 1] = s->first_sample[i] + (last_begin >= 0 ? last_begin / s->step + 1 : 0);
  }
  if (s->first_sample[s->num_files] > 0) return TDICT_OK;
  return tdict_fail(err, TDICT_ESHAPE, "%s: no file holds a window of %lld tokens and the token after it", error_prefix,
                    (long long)s->window);
}

tdict_status tdict_dataset_from_tokens(const tdict_token_options *options, tdict_dataset **out, tdict_error *err) {
  TDICT_UNCANCELLED;
  if (!options || !out) return tdict_fail_null(err, error_prefix, options ? "out" : "options");
  tdict_token_options o = tdict_token_options_default();
  tdict_status status = tdict_options_read(&o, sizeof o, options, "token options", err);
  if (status == TDICT_OK) status = check_token_options(&o, err);
  if (status != TDICT_OK) return status;

  /* Open the files. */
  token_source *s = calloc(1, sizeof *s);
  if (!s) return tdict_fail_memory(err, error_prefix, NULL, "its record");
  s->window = o.window;
  s->step = o.step ? o.step : o.window;
  s->dtype = o.dtype;
  status = open_token_files(s, &o, err);
  if (status != TDICT_OK) {
    release_tokens(s);
    return status;
  }

  /* Fill the dataset. */
  s->fields[0] = (tdict_field){"tokens", o.dtype, 1, {o.window}};
  s->fields[1] = (tdict_field){"targets", o.dtype, 1, {o.window}};
  tdict_dataset_table t = tdict_dataset_table_default();
  t.name = "tokens";
  t.self = s;
  t.fields = s->fields;
  t.num_fields = 2;
  t.length = tokens_length;
  t.fetch_batch = fetch_token_batch;
  t.release = release_tokens;
  return tdict_dataset_wrap(&t, out, err);
}
