/* Helpers for the tests in tests/services/io: a temporary folder, files with given bytes, and random trees. Trees are
 * compared without the library's functions that copy or compare. Thread rule: one thread. */
#ifndef TDICT_TESTS_SERVICES_IO_FILES_H
#define TDICT_TESTS_SERVICES_IO_FILES_H

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"
#include "tdict/io.h"
#include "tdict/path.h"

enum { PATH_BYTES = 512 };

typedef struct folder {
  char path[64];
} folder;

static inline folder folder_create(void) {
  folder f;
  snprintf(f.path, sizeof f.path, "/tmp/tdict-io.XXXXXX");
  assert_non_null(mkdtemp(f.path));
  return f;
}
/* Returns the path of a file in the folder, in one of four buffers. */
static inline const char *in(const folder *f, const char *name) {
  static char paths[4][PATH_BYTES];
  static int next;
  char *path = paths[next++ % 4];
  const int length = snprintf(path, PATH_BYTES, "%s/%s", f->path, name);
  assert_true(length > 0 && length < PATH_BYTES);
  return path;
}
/* Returns the number of entries in the folder. Writes the name of the last entry to `name`, unless `name` is NULL. */
static inline int folder_count(const folder *f, char *name) {
  DIR *dir = opendir(f->path);
  struct dirent *entry;
  int count = 0;
  assert_non_null(dir);
  while ((entry = readdir(dir)) != NULL) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (name) snprintf(name, 256, "%s", entry->d_name);
    count++;
  }
  closedir(dir);
  return count;
}
static inline void folder_empty(const folder *f) {
  char name[256];
  while (folder_count(f, name)) assert_int_equal(remove(in(f, name)), 0);
}
static inline void folder_remove(const folder *f) {
  folder_empty(f);
  assert_int_equal(rmdir(f->path), 0);
}
#define scoped_folder TD_SCOPED(folder_remove, folder)

static inline void write_bytes(const char *path, const void *bytes, size_t count) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  assert_int_equal(fclose(file), 0);
}
/* Returns the bytes of a file, followed by a 0 byte. The caller frees them. */
static inline unsigned char *read_bytes(const char *path, size_t *count) {
  FILE *file = fopen(path, "rb");
  if (!file) fail_msg("%s cannot be opened", path);
  fseek(file, 0, SEEK_END);
  *count = (size_t)ftell(file);
  rewind(file);
  unsigned char *bytes = calloc(1, *count + 1);
  assert_int_equal(fread(bytes, 1, *count, file), *count);
  fclose(file);
  return bytes;
}
/* Writes a safetensors file with this header and `data_bytes` bytes 0, 1, 2, ... */
static inline void write_safetensors(const char *path, const char *header, size_t header_bytes, size_t data_bytes) {
  scoped_bytes all = malloc(8 + header_bytes + data_bytes);
  for (int i = 0; i < 8; i++) all[i] = (unsigned char)(header_bytes >> 8 * i);
  memcpy(all + 8, header, header_bytes);
  for (size_t i = 0; i < data_bytes; i++) all[8 + header_bytes + i] = (unsigned char)i;
  write_bytes(path, all, 8 + header_bytes + data_bytes);
}

/* Copies the elements of a host tensor in C order, index by index. The caller frees the bytes. */
static inline unsigned char *elements_of(const tdict_tensor *t) {
  const size_t width = tdict_dtype_bytes(tdict_tensor_dtype(t));
  const int ndim = tdict_tensor_ndim(t);
  unsigned char *bytes = calloc(1, tdict_tensor_bytes(t) + 1);
  const unsigned char *from = tdict_tensor_const_data(t);
  for (int64_t i = 0; i < tdict_tensor_numel(t); i++) {
    int64_t left = i, offset = 0;
    for (int d = ndim - 1; d >= 0; d--) {
      offset += left % tdict_tensor_shape(t)[d] * tdict_tensor_strides(t)[d];
      left /= tdict_tensor_shape(t)[d];
    }
    memcpy(bytes + (size_t)i * width, from + offset * (int64_t)width, width);
  }
  return bytes;
}
static inline void same_tensors(const tdict_tensor *a, const tdict_tensor *b) {
  assert_int_equal(tdict_tensor_dtype(a), tdict_tensor_dtype(b));
  assert_int_equal(tdict_tensor_ndim(a), tdict_tensor_ndim(b));
  for (int d = 0; d < tdict_tensor_ndim(a); d++) assert_int_equal(tdict_tensor_shape(a)[d], tdict_tensor_shape(b)[d]);
  scoped_bytes x = elements_of(a), y = elements_of(b);
  assert_memory_equal(x, y, tdict_tensor_bytes(a));
}
static inline void same_values(const tdict_nontensor *a, const tdict_nontensor *b) {
  const int64_t *x, *y;
  int64_t count = 1;
  assert_int_equal(tdict_nontensor_shape(a, &x), tdict_nontensor_shape(b, &y));
  for (int d = 0; d < tdict_nontensor_shape(a, NULL); d++) {
    assert_int_equal(x[d], y[d]);
    count *= x[d];
  }
  for (int64_t i = 0; i < count; i++) {
    tdict_value v, w;
    td_ok(tdict_nontensor_get(a, i, &v, err));
    td_ok(tdict_nontensor_get(b, i, &w, err));
    assert_int_equal(v.kind, w.kind);
    assert_int_equal(v.integer, w.integer);
    assert_memory_equal(&v.real, &w.real, sizeof v.real);
    assert_int_equal(v.length, w.length);
    if (v.text) assert_memory_equal(v.text, w.text, v.length);
  }
}
static bool ignores_order; /* same_trees() allows a different order of the keys */
/* Finds the entry of `b` that same_trees() compares with entry `i` of `a`, whose key is `key`. */
static inline void other_entry(const tdict_tree *b, size_t i, const char *key, tdict_entry *out) {
  char path[PATH_BYTES];
  tdict_path_escape(key, path, sizeof path);
  if (ignores_order)
    td_ok(tdict_get_entry(b, path, out, err));
  else
    *out = tdict_get_entry_at(b, i);
}
/* Checks that both trees have the same keys, batch sizes and leaves. Unless ignores_order is set, their order must be
 * the same, too. */
static inline void same_trees(const tdict_tree *a, const tdict_tree *b) {
  assert_int_equal(tdict_batch_ndim(a), tdict_batch_ndim(b));
  for (int d = 0; d < tdict_batch_ndim(a); d++) assert_int_equal(tdict_batch_size(a)[d], tdict_batch_size(b)[d]);
  assert_int_equal(tdict_num_keys(a), tdict_num_keys(b));
  for (size_t i = 0; i < tdict_num_keys(a); i++) {
    tdict_entry x, y;
    x = tdict_get_entry_at(a, i);
    other_entry(b, i, x.key, &y);
    assert_string_equal(x.key, y.key);
    assert_ptr_equal(x.type, y.type);
    assert_true(!x.tree == !y.tree && !x.tensor == !y.tensor);
    if (x.tree) same_trees(x.tree, y.tree);
    if (x.tensor) same_tensors(x.tensor, y.tensor);
    if (!x.object) continue;
    if (x.type == tdict_nontensor_type()) {
      same_values(x.object, y.object);
    } else if (x.type == tdict_ragged_type()) {
      same_tensors(tdict_ragged_get_info(x.object).values, tdict_ragged_get_info(y.object).values);
      same_tensors(tdict_ragged_get_info(x.object).offsets, tdict_ragged_get_info(y.object).offsets);
    } else {
      char path[PATH_BYTES];
      tdict_path_escape(x.key, path, sizeof path);
      tdict_tensor *t = td_made(tensor, tdict_get_unbatched(a, path, &made, err));
      same_tensors(t, td_made(tensor, tdict_get_unbatched(b, path, &made, err)));
    }
  }
}

/* A small random number generator. */
typedef struct dice {
  uint64_t state;
} dice;
static inline uint64_t roll(dice *d, uint64_t sides) {
  d->state = d->state * 6364136223846793005u + 1442695040888963407u;
  return (d->state >> 33) % sides;
}
static const tdict_dtype file_dtypes[] = {TDICT_BOOL, TDICT_U8,  TDICT_I8,   TDICT_F8E5M2, TDICT_F8E4M3, TDICT_I16,
                                          TDICT_U16,  TDICT_F16, TDICT_BF16, TDICT_I32,    TDICT_U32,    TDICT_F32,
                                          TDICT_C64,  TDICT_F64, TDICT_I64,  TDICT_U64};
enum { NUM_FILE_DTYPES = sizeof file_dtypes / sizeof *file_dtypes };
static uint64_t other_bytes; /* changes the bytes that random_tensor() makes, but not the shapes */
/* Makes a tensor of random bytes with this batch size. Its dimensions have a random order in memory. */
static inline tdict_tensor *random_tensor(dice *d, tdict_dtype dtype, int batch_ndim, const int64_t *batch_size) {
  int64_t shape[8], stored[8];
  int order[8], ndim = batch_ndim + (int)roll(d, 3);
  tdict_tensor *whole = NULL, *turned = NULL, *part = NULL;
  for (int i = 0; i < ndim; i++) {
    shape[i] = i < batch_ndim ? batch_size[i] : (int64_t)roll(d, 4);
    order[i] = i;
  }
  for (int i = ndim - 1; i > 0; i--) { /* order[i]: the index of dimension i in `stored` */
    const int k = (int)roll(d, (uint64_t)i + 1), kept = order[i];
    order[i] = order[k];
    order[k] = kept;
  }
  const bool steps = ndim && roll(d, 2);
  for (int i = 0; i < ndim; i++) stored[order[i]] = shape[i];
  if (steps) stored[order[0]] *= 3;
  td_ok(tdict_tensor_empty(dtype, ndim, stored, NULL, &whole, err));
  td_fill_random(tdict_tensor_data(whole), tdict_tensor_bytes(whole), roll(d, 1u << 30) ^ other_bytes);
  td_ok(tdict_tensor_permute(whole, ndim, order, &turned, err));
  if (steps) {
    const bool is_empty = shape[0] == 0;
    const tdict_tensor_range back = {0, is_empty ? 0 : 3 * shape[0] - 1, shape[0], is_empty ? 1 : -3};
    td_ok(tdict_tensor_slice(turned, &back, &part, err));
    tdict_tensor_release(turned);
    turned = part;
  }
  tdict_tensor_release(whole);
  return turned;
}

#endif
