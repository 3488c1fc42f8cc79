/* Writes safetensors files without the library: random tensors in random order, at any byte offset. Compares loaded
 * trees with the file's bytes, using support/raw.h. Thread rule: one thread. */
#ifndef TDICT_TESTS_SERVICES_IO_RAW_FILE_H
#define TDICT_TESTS_SERVICES_IO_RAW_FILE_H

#include "files.h"
#include "support/descriptors.h"
#include "support/raw.h"

enum { MAX_RAW_TENSORS = 24, RAW_HEADER_BYTES = 8192 };
typedef struct raw_tensor {
  char name[24];
  tdict_dtype dtype;
  int ndim;
  int64_t shape[4];
  size_t offset, bytes; /* in the file */
} raw_tensor;
typedef struct raw_file {
  char path[PATH_BYTES];
  raw_tensor tensors[MAX_RAW_TENSORS];
  int count;
  unsigned char *bytes; /* the bytes of the whole file */
  size_t size, data_bytes;
} raw_file;

/* The names that safetensors files use for file_dtypes. */
static const char *const raw_dtype_names[] = {"BOOL", "U8",  "I8",  "F8_E5M2", "F8_E4M3", "I16", "U16", "F16",
                                              "BF16", "I32", "U32", "F32",     "C64",     "F64", "I64", "U64"};

/* Chooses a shape. If `rows` is not negative, dimension 0 has this size. */
static inline void raw_shape(dice *d, raw_tensor *t, int64_t rows) {
  t->ndim = rows < 0 ? (int)roll(d, 4) : 1 + (int)roll(d, 3);
  for (int i = 0; i < t->ndim; i++) t->shape[i] = roll(d, 12) ? 1 + (int64_t)roll(d, 9) : 0;
  if (t->ndim && roll(d, 5) == 0) t->shape[t->ndim - 1] = 3000 + (int64_t)roll(d, 4000);
  if (rows >= 0) t->shape[0] = rows;
}
/* Writes a random file. `rows`: size of dimension 0 of all tensors, or -1 for any shapes. */
static inline raw_file *raw_file_create(dice *d, const char *path, int64_t rows) {
  raw_file *f = calloc(1, sizeof *f);
  char header[RAW_HEADER_BYTES];
  size_t length = 1;
  assert_non_null(f);
  snprintf(f->path, sizeof f->path, "%s", path);
  f->count = 1 + (int)roll(d, MAX_RAW_TENSORS - 1);
  header[0] = '{';
  for (int i = 0; i < f->count; i++) {
    raw_tensor *t = &f->tensors[i];
    const uint64_t k = roll(d, NUM_FILE_DTYPES);
    snprintf(t->name, sizeof t->name, "%sleaf%d", i % 3 == 0 ? "" : i % 3 == 1 ? "a." : "a.b.", i);
    t->dtype = file_dtypes[k];
    raw_shape(d, t, rows);
    t->bytes = tdict_dtype_bytes(t->dtype);
    for (int n = 0; n < t->ndim; n++) t->bytes *= (size_t)t->shape[n];
    t->offset = f->data_bytes;
    f->data_bytes += t->bytes;
    length += (size_t)snprintf(header + length, sizeof header - length, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                               i ? "," : "", t->name, raw_dtype_names[k]);
    for (int n = 0; n < t->ndim; n++)
      length += (size_t)snprintf(header + length, sizeof header - length, "%s%d", n ? "," : "", (int)t->shape[n]);
    length += (size_t)snprintf(header + length, sizeof header - length, "],\"data_offsets\":[%zu,%zu]}", t->offset,
                               f->data_bytes);
  }
  header[length++] = '}';
  for (uint64_t pad = roll(d, 8); pad; pad--) header[length++] = ' ';
  assert_true(length < sizeof header);
  f->size = 8 + length + f->data_bytes;
  f->bytes = malloc(f->size + 1);
  for (int i = 0; i < 8; i++) f->bytes[i] = (unsigned char)(length >> 8 * i);
  memcpy(f->bytes + 8, header, length);
  if (f->data_bytes) td_fill_random(f->bytes + 8 + length, f->data_bytes, roll(d, 1u << 30));
  for (int i = 0; i < f->count; i++) f->tensors[i].offset += 8 + length;
  write_bytes(path, f->bytes, f->size);
  return f;
}
static inline void raw_file_free(raw_file *f) {
  if (!f) return;
  free(f->bytes);
  free(f);
}
TD_DECLARE_SCOPED(raw_file, raw_file, raw_file_free)
#define scoped_raw_file TD_SCOPED_NAMED(raw_file)

/* Selects `count` rows, from row `first` on; count -1: the whole tensor. */
typedef struct raw_rows {
  int64_t first, count;
} raw_rows;
static const raw_rows all_rows = {0, -1};

static inline void raw_check_tensor(tdict_context *c, const raw_file *f, const raw_tensor *t, const tdict_tensor *got,
                                    raw_rows rows) {
  const bool is_whole = rows.count < 0;
  const size_t row = is_whole || !t->shape[0] ? 0 : t->bytes / (size_t)t->shape[0];
  const size_t bytes = is_whole ? t->bytes : row * (size_t)rows.count;
  scoped_bytes found = malloc(bytes + 1);
  const tdict_device device = tdict_tensor_device(got);
  assert_int_equal(tdict_tensor_dtype(got), t->dtype);
  assert_int_equal(tdict_tensor_ndim(got), t->ndim);
  for (int i = 0; i < t->ndim; i++)
    assert_int_equal(tdict_tensor_shape(got)[i], i == 0 && !is_whole ? rows.count : t->shape[i]);
  assert_int_equal(tdict_tensor_bytes(got), bytes);
  if (device.type == TDICT_DEVICE_CPU) {
    if (bytes) memcpy(found, tdict_tensor_const_data(got), bytes);
  } else if (bytes) {
    scoped_raw raw = raw_open(c, device);
    raw_read(raw, found, tdict_tensor_const_data(got), bytes);
  }
  assert_memory_equal(found, f->bytes + t->offset + (is_whole ? 0 : row * (size_t)rows.first), bytes);
}
static inline void raw_check(tdict_context *c, const raw_file *f, const tdict_tree *tree, tdict_device device,
                             int64_t first, int64_t count) {
  assert_int_equal(tdict_num_leaves(tree), f->count);
  for (int i = 0; i < f->count; i++) {
    tdict_tensor *got = td_made(tensor, tdict_get(tree, f->tensors[i].name, &made, err));
    assert_true(tdict_device_equal(tdict_tensor_device(got), device));
    raw_check_tensor(c, f, &f->tensors[i], got, (raw_rows){first, count});
  }
}

/* Writes a random file with at least `bytes` bytes of tensor data. */
static inline raw_file *raw_file_create_large(dice *d, const char *path, size_t bytes) {
  raw_file *f;
  for (f = raw_file_create(d, path, -1); f->data_bytes < bytes; f = raw_file_create(d, path, -1)) raw_file_free(f);
  return f;
}

#endif
