/* Writes NumPy's files. See numpy.h for ownership and threads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "services/io/listing.h"
#include "services/io/numpy/numpy.h"
#include "services/io/output/output.h"
#include "services/io/zip/zip.h"

enum { ALIGNMENT = 64, VERSION_BYTES = 8, LENGTH_BYTES = 2 };

static const struct {
  tdict_dtype dtype;
  const char *descr;
} types[] = {{TDICT_BOOL, "|b1"}, {TDICT_I8, "|i1"},  {TDICT_U8, "|u1"},  {TDICT_I16, "<i2"},  {TDICT_U16, "<u2"},
             {TDICT_I32, "<i4"},  {TDICT_U32, "<u4"}, {TDICT_I64, "<i8"}, {TDICT_U64, "<u8"},  {TDICT_F16, "<f2"},
             {TDICT_F32, "<f4"},  {TDICT_F64, "<f8"}, {TDICT_C64, "<c8"}, {TDICT_C128, "<c16"}};
enum { NUM_TYPES = sizeof types / sizeof *types };

static const char *descr_of(tdict_dtype dtype) {
  for (int i = 0; i < NUM_TYPES; i++)
    if (types[i].dtype == dtype) return types[i].descr;
  return NULL;
}

tdict_dtype tdict_npy_dtype(const char *kind) {
  for (int i = 0; i < NUM_TYPES; i++)
    if (strcmp(types[i].descr + 1, kind) == 0) return types[i].dtype;
  return 0;
}

static void add_header(tdict_io_text *text, const tdict_tensor *tensor) {
  const int ndim = tdict_tensor_ndim(tensor);
  const size_t start = text->length;
  tdict_io_text_add(text, "\x93NUMPY\x01\x00\x00\x00", VERSION_BYTES + LENGTH_BYTES);
  tdict_io_text_format(text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                       descr_of(tdict_tensor_dtype(tensor)));
  for (int d = 0; d < ndim; d++)
    tdict_io_text_format(text, "%s%" PRId64 "%s", d ? ", " : "", tdict_tensor_shape(tensor)[d], ndim == 1 ? "," : "");
  tdict_io_text_add_string(text, "), }");
  /* NumPy leaves room for a longer shape. Leave the same, so that the header has the same bytes. */
  for (int64_t first = ndim ? tdict_tensor_shape(tensor)[0] : 0, digits = 21 * (ndim > 0); digits > 0; digits--) {
    if (first)
      first /= 10;
    else
      tdict_io_text_add(text, " ", 1);
  }
  for (size_t i = ALIGNMENT - (text->length - start + 1) % ALIGNMENT; i; i--) tdict_io_text_add(text, " ", 1);
  tdict_io_text_add(text, "\n", 1);
  if (text->has_failed) return;
  const size_t length = text->length - start - VERSION_BYTES - LENGTH_BYTES;
  text->bytes[start + VERSION_BYTES] = (char)(length & 0xff);
  text->bytes[start + VERSION_BYTES + 1] = (char)(length >> 8);
}

static int compare_names(const void *a, const void *b) {
  return strcmp((*(const tdict_listed *const *)a)->name, (*(const tdict_listed *const *)b)->name);
}

/* Removes the trees from the listing, and checks that all names differ. */
static tdict_status keep_tensors(tdict_listing *list, tdict_error *err) {
  size_t count = 0;
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < list->count; i++)
    if (list->entries[i].tensor) list->entries[count++] = list->entries[i];
  list->count = count;
  const tdict_listed **sorted = tdict_array_sorted(list->entries, count, sizeof *list->entries, compare_names);
  if (!sorted) return tdict_listing_no_memory(list, err);
  for (size_t i = 1; i < count && status == TDICT_OK; i++)
    if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
      status = tdict_fail_at(err, TDICT_EEXIST, sorted[i]->name, "%s: two tensors have the name '%.100s' in the file",
                             list->contents.what, sorted[i]->name);
  free((void *)sorted);
  return status;
}

static tdict_status write_npy(void *user, tdict_output *to, tdict_error *err) {
  const tdict_listing *list = user;
  const tdict_listed *from = list->entries;
  tdict_io_text header = {0};
  add_header(&header, from->tensor);
  tdict_status status =
      header.has_failed ? tdict_listing_no_memory(list, err) : tdict_output_write(to, header.bytes, header.length, err);
  tdict_io_text_reset(&header);
  return status == TDICT_OK ? tdict_output_write_tensor(to, from->tensor, from->name, err) : status;
}

/* Describes an entry of an archive. The listing owns the texts. */
static tdict_status make_entry(tdict_listing *list, const tdict_listed *from, tdict_zip_new *out, tdict_error *err) {
  tdict_io_text header = {0};
  add_header(&header, from->tensor);
  *out = (tdict_zip_new){
      .length = header.length, .tensor = from->tensor, .tensor_name = from->name, .alignment = ALIGNMENT};
  tdict_status status = header.has_failed
                            ? tdict_listing_no_memory(list, err)
                            : tdict_contents_copy_text(&list->contents, header.bytes, header.length, &out->text, err);
  tdict_io_text_reset(&header);
  return status == TDICT_OK ? tdict_contents_format(&list->contents, &out->name, err, "%s.npy", from->name) : status;
}

static tdict_status write_npz(void *user, tdict_output *to, tdict_error *err) {
  tdict_listing *list = user;
  tdict_status status = TDICT_OK;
  tdict_zip_new *entries = malloc((list->count + 1) * sizeof *entries);
  if (!entries) return tdict_listing_no_memory(list, err);
  for (size_t i = 0; i < list->count && status == TDICT_OK; i++)
    status = make_entry(list, &list->entries[i], &entries[i], err);
  if (status == TDICT_OK) status = tdict_zip_write(to, entries, list->count, err);
  free(entries);
  return status;
}

tdict_status tdict_numpy_save(const tdict_save_request *request, tdict_error *err) {
  static const tdict_format_rules rules = {"NumPy has", descr_of, true};
  const bool is_npy = request->options->format == TDICT_FORMAT_NPY;
  tdict_listing list;
  tdict_status status = tdict_listing_make(&list, request, &rules, err);
  if (status == TDICT_OK && is_npy && list.num_tensors != 1)
    status = tdict_fail_at(err, TDICT_ENOTSUP, request->path,
                           "%s: the tree has %zu tensors, but a .npy file holds one; write a .npz file", request->what,
                           list.num_tensors);
  if (status == TDICT_OK) status = keep_tensors(&list, err);
  if (status == TDICT_OK) status = tdict_output_file(request, NULL, is_npy ? write_npy : write_npz, &list, err);
  tdict_listing_reset(&list);
  return status;
}
