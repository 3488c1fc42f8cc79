/* Writes NumPy's files. See numpy.h for ownership and threads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/leaves/json.h"
#include "services/io/numpy/numpy.h"
#include "services/io/output.h"
#include "services/io/zip/zip.h"
#include "tdict/nontensor.h"
#include "tdict/unbatched.h"
#include "tdict/view.h"

enum { ALIGNMENT = 64, VERSION_BYTES = 8, LENGTH_BYTES = 2 };

/* A tensor to write. */
typedef struct array {
  char *name;                 /* owned */
  const tdict_tensor *tensor; /* borrowed */
} array;

/* The tensors of a tree, in the order of the tree. */
typedef struct arrays {
  const tdict_save_request *request;
  array *at; /* owned */
  size_t count, cap;
} arrays;

static tdict_status fail_request(const tdict_save_request *request, tdict_status status, tdict_error *err,
                                 const char *why) {
  return tdict_fail_file(err, status, request->path, "%s: %s", request->what, why);
}

static tdict_status fail_entry(const tdict_save_request *request, const char *path, tdict_error *err, const char *why) {
  return tdict_fail_file(err, TDICT_ENOTSUP, path, "%s: %s", request->what, why);
}

static const char *descr_of(tdict_dtype dtype) {
  static const struct {
    tdict_dtype dtype;
    const char *descr;
  } types[] = {{TDICT_BOOL, "|b1"}, {TDICT_I8, "|i1"},  {TDICT_U8, "|u1"},  {TDICT_I16, "<i2"},  {TDICT_U16, "<u2"},
               {TDICT_I32, "<i4"},  {TDICT_U32, "<u4"}, {TDICT_I64, "<i8"}, {TDICT_U64, "<u8"},  {TDICT_F16, "<f2"},
               {TDICT_F32, "<f4"},  {TDICT_F64, "<f8"}, {TDICT_C64, "<c8"}, {TDICT_C128, "<c16"}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].dtype == dtype) return types[i].descr;
  return NULL;
}

bool tdict_npy_add_header(tdict_io_text *text, const tdict_tensor *tensor) {
  const char *descr = descr_of(tdict_tensor_dtype(tensor));
  const int ndim = tdict_tensor_ndim(tensor);
  const size_t start = text->length;
  if (!descr) return false;
  tdict_io_text_add(text, "\x93NUMPY\x01\x00\x00\x00", VERSION_BYTES + LENGTH_BYTES);
  tdict_io_text_format(text, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (int d = 0; d < ndim; d++)
    tdict_io_text_format(text, "%s%" PRId64 "%s", d ? ", " : "", tdict_tensor_shape(tensor)[d], ndim == 1 ? "," : "");
  tdict_io_text_add_string(text, "), }");
  /* NumPy leaves room for a longer shape. Leave the same room, so that the header has the same bytes as a header of
   * NumPy. */
  for (int64_t first = ndim ? tdict_tensor_shape(tensor)[0] : 0, digits = 21 * (ndim > 0); digits > 0; digits--) {
    if (first)
      first /= 10;
    else
      tdict_io_text_add(text, " ", 1);
  }
  for (size_t i = ALIGNMENT - (text->length - start + 1) % ALIGNMENT; i; i--) tdict_io_text_add(text, " ", 1);
  tdict_io_text_add(text, "\n", 1);
  if (text->has_failed) return true;
  const size_t length = text->length - start - VERSION_BYTES - LENGTH_BYTES;
  text->bytes[start + VERSION_BYTES] = (char)(length & 0xff);
  text->bytes[start + VERSION_BYTES + 1] = (char)(length >> 8);
  return true;
}

/* Turns an escaped path into a name: the keys joined by dots. */
static char *name_of_path(const char *path) {
  char *name = malloc(strlen(path) + 1), *to = name;
  if (!name) return NULL;
  for (const char *at = path; *at; at++) {
    if (*at == '\\' && at[1]) at++;
    *to++ = *at;
  }
  *to = 0;
  return name;
}

static tdict_status add_array(arrays *all, const char *path, const tdict_tensor *tensor, tdict_error *err) {
  char text[TDICT_DTYPE_TEXT_BYTES], why[96];
  if (!descr_of(tdict_tensor_dtype(tensor))) {
    snprintf(why, sizeof why, "NumPy has no dtype for %s",
             tdict_dtype_format(tdict_tensor_dtype(tensor), text, sizeof text));
    return fail_entry(all->request, path, err, why);
  }
  if (tdict_utf8_length(path, strlen(path)) != strlen(path))
    return fail_entry(all->request, path, err, "the key is not UTF-8");
  if (all->count == all->cap) {
    size_t bytes, cap = all->cap ? 2 * all->cap : 64;
    array *grown = tdict_mul_size(cap, sizeof *grown, &bytes) ? realloc(all->at, bytes) : NULL;
    if (!grown) return fail_request(all->request, TDICT_ENOMEM, err, "no host memory for the keys of the tree");
    all->at = grown;
    all->cap = cap;
  }
  char *name = name_of_path(path);
  if (!name) return fail_request(all->request, TDICT_ENOMEM, err, "no host memory for the keys of the tree");
  all->at[all->count++] = (array){name, tensor};
  return TDICT_OK;
}

static tdict_status visit(void *user, const tdict_entry *entry, tdict_error *err) {
  arrays *all = user;
  if (entry->tree)
    return tdict_num_keys(entry->tree) ? TDICT_OK
                                       : fail_entry(all->request, entry->path, err, "NumPy's files hold no empty tree");
  if (entry->tensor) return add_array(all, entry->path, entry->tensor, err);
  if (entry->type != tdict_unbatched_type()) {
    char why[128];
    snprintf(why, sizeof why, "NumPy's files hold tensors only, found an object of type %.60s", entry->type->name);
    return fail_entry(all->request, entry->path, err, why);
  }
  tdict_tensor *tensor = NULL;
  tdict_status status = tdict_get_unbatched(all->request->tree, entry->path, &tensor, err);
  return status == TDICT_OK ? add_array(all, entry->path, tensor, err) : status;
}

static int compare_names(const void *a, const void *b) {
  return strcmp((*(const array *const *)a)->name, (*(const array *const *)b)->name);
}

static tdict_status check_names(const arrays *all, tdict_error *err) {
  const array **sorted = malloc((all->count + 1) * sizeof *sorted);
  tdict_status status = TDICT_OK;
  if (!sorted) return fail_request(all->request, TDICT_ENOMEM, err, "no host memory for the keys of the tree");
  for (size_t i = 0; i < all->count; i++) sorted[i] = &all->at[i];
  qsort((void *)sorted, all->count, sizeof *sorted, compare_names);
  for (size_t i = 1; i < all->count && status == TDICT_OK; i++)
    if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
      status = tdict_fail_file(err, TDICT_EEXIST, sorted[i]->name, "%s: two tensors have the name '%.100s' in the file",
                               all->request->what, sorted[i]->name);
  free((void *)sorted);
  return status;
}

static void reset(arrays *all) {
  for (size_t i = 0; i < all->count; i++) free(all->at[i].name);
  free(all->at);
}

static tdict_status write_npy(void *user, tdict_output *to, tdict_error *err) {
  const arrays *all = user;
  tdict_io_text header = {0};
  tdict_npy_add_header(&header, all->at[0].tensor);
  tdict_status status = header.has_failed
                            ? fail_request(all->request, TDICT_ENOMEM, err, "no host memory for the header")
                            : tdict_output_write(to, header.bytes, header.length, err);
  tdict_io_text_reset(&header);
  return status == TDICT_OK ? tdict_output_write_tensor(to, all->at[0].tensor, all->at[0].name, err) : status;
}

/* Writes one entry of an archive. The checksum comes before the bytes, so a strided tensor is copied first. */
static tdict_status write_entry(const array *from, tdict_zip_writer *zip, const tdict_crc_tables *tables,
                                tdict_error *err) {
  const tdict_folder *folder = zip->to->folder;
  tdict_io_text header = {0}, name = {0};
  tdict_tensor *tensor = NULL;
  tdict_npy_add_header(&header, from->tensor);
  tdict_io_text_format(&name, "%s.npy", from->name);
  tdict_status status =
      header.has_failed || name.has_failed
          ? tdict_fail_file(err, TDICT_ENOMEM, folder->path, "%s: no host memory for the header", folder->what)
          : tdict_tensor_contiguous(from->tensor, &tensor, err);
  if (status == TDICT_OK) {
    const size_t bytes = tdict_tensor_bytes(tensor);
    const void *data = tdict_tensor_const_data(tensor);
    tdict_zip_new entry = {name.bytes, header.length + bytes, 0, ALIGNMENT};
    entry.crc = tdict_crc_add(tables, 0, header.bytes, header.length);
    if (data) entry.crc = tdict_crc_add(tables, entry.crc, data, bytes);
    status = tdict_zip_begin(zip, &entry, err);
    if (status == TDICT_OK) status = tdict_output_write(zip->to, header.bytes, header.length, err);
    if (status == TDICT_OK) status = tdict_output_write_tensor(zip->to, tensor, from->name, err);
  }
  tdict_tensor_release(tensor);
  tdict_io_text_reset(&header);
  tdict_io_text_reset(&name);
  return status;
}

static tdict_status write_npz(void *user, tdict_output *to, tdict_error *err) {
  const arrays *all = user;
  tdict_zip_writer zip = {.to = to};
  tdict_crc_tables tables;
  tdict_status status = TDICT_OK;
  tdict_crc_init(&tables);
  for (size_t i = 0; i < all->count && status == TDICT_OK; i++) status = write_entry(&all->at[i], &zip, &tables, err);
  if (status == TDICT_OK) status = tdict_zip_finish(&zip, err);
  tdict_zip_writer_reset(&zip);
  return status;
}

tdict_status tdict_npy_save(const tdict_save_request *request, tdict_error *err) {
  arrays all = {.request = request};
  tdict_status status = tdict_walk(request->tree, visit, &all, err);
  if (status == TDICT_OK && all.count != 1)
    status = tdict_fail_file(err, TDICT_ENOTSUP, request->path,
                             "%s: the tree has %zu tensors, but a .npy file holds one; write a .npz file",
                             request->what, all.count);
  if (status == TDICT_OK) status = tdict_output_file(request, write_npy, &all, err);
  reset(&all);
  return status;
}

tdict_status tdict_npz_save(const tdict_save_request *request, tdict_error *err) {
  arrays all = {.request = request};
  tdict_status status = tdict_walk(request->tree, visit, &all, err);
  if (status == TDICT_OK) status = check_names(&all, err);
  if (status == TDICT_OK) status = tdict_output_file(request, write_npz, &all, err);
  reset(&all);
  return status;
}
