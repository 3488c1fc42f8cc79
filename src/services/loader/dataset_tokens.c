/* Makes datasets whose samples are windows over files of tokens. The dataset owns its mapped files.
 * Thread rule: see tdict/dataset.h. The record is constant after creation, so fetching needs no lock. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "services/loader/dataset.h"
#include "services/loader/row_stores.h"
#include "services/loader/token_file.h"
#include "tdict/tokens.h"

static const char error_prefix[] = "dataset_from_tokens";

typedef struct token_source {
  int64_t num_files, window, step;
  tdict_dtype dtype;
  tdict_token_file *files;
  int64_t *first_sample; /* index of the first sample of each file; the last element is the number of all samples */
  tdict_field fields[2];
} token_source;

static void release_tokens(void *self) {
  token_source *s = self;
  for (int64_t i = 0; i < s->num_files && s->files; i++) tdict_token_file_close(&s->files[i]);
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

static void widen_u16(const uint16_t *src, int64_t count, bool wide, void *dst) {
  if (wide)
    for (int64_t i = 0; i < count; i++) ((int64_t *)dst)[i] = src[i];
  else
    for (int64_t i = 0; i < count; i++) ((int32_t *)dst)[i] = src[i];
}

/* Widens tokens to int64 if `wide` is true. Otherwise copies the tokens to int32, and returns false if a token does not
 * fit. */
static bool widen_u32(const uint32_t *src, int64_t count, bool wide, void *dst) {
  uint32_t all_bits = 0;
  if (wide)
    for (int64_t i = 0; i < count; i++) ((int64_t *)dst)[i] = src[i];
  else
    for (int64_t i = 0; i < count; i++) {
      all_bits |= src[i];
      ((int32_t *)dst)[i] = (int32_t)src[i];
    }
  return all_bits <= INT32_MAX;
}

static bool widen_tokens(const tdict_token_file *file, int64_t begin, int64_t count, bool wide, void *dst) {
  if (file->width == 4) return widen_u32((const uint32_t *)file->tokens + begin, count, wide, dst);
  widen_u16((const uint16_t *)file->tokens + begin, count, wide, dst);
  return true;
}

/* The addresses to which a batch is written, and the kind of stores for each row. */
typedef struct batch_writer {
  char *tokens, *targets;
  tdict_row_stores stores;
} batch_writer;

/* Writes one window. Non-temporal stores should write whole cache lines, so for these stores the tokens are first
 * widened into a small buffer. */
static bool write_tokens(const token_source *s, const tdict_token_file *file, int64_t begin, char *dst,
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
static tdict_status fetch_token_batch(void *self, const int64_t *indices, int64_t count, tdict_tree *batch,
                                      tdict_error *err) {
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
  if (!s->files || !s->first_sample)
    return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory for %zu files", error_prefix, o->num_paths);
  s->num_files = (int64_t)o->num_paths;
  for (int64_t i = 0; i < s->num_files; i++) {
    tdict_status status = tdict_token_file_open(&s->files[i], o->paths[i], o->format, err);
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
  if (!options || !out)
    return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", error_prefix, options ? "out" : "options");
  tdict_token_options o = tdict_token_options_default();
  tdict_status status = tdict_options_read(&o, sizeof o, options, "token options", err);
  if (status == TDICT_OK) status = check_token_options(&o, err);
  if (status != TDICT_OK) return status;

  /* Open the files. */
  token_source *s = calloc(1, sizeof *s);
  if (!s) return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory for its record", error_prefix);
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
