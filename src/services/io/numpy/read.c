/* Reads NumPy's files. See numpy.h for ownership and threads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/tensor/layout.h"
#include "services/io/numpy/numpy.h"
#include "services/io/zip/zip.h"

enum { MAGIC_BYTES = 6, VERSION_BYTES = 8, MOST_HEADER = 1 << 20 };
static const char magic[MAGIC_BYTES + 1] = "\x93NUMPY";

/* The state of the parser of a .npy header, which is a Python literal, and the values read so far. */
typedef struct parser {
  const tdict_contents *contents;
  const char *file, *name;
  const char *text, *at, *end;
  uint64_t offset; /* of `text` in the file */
  tdict_dtype dtype;
  bool has_dtype, has_order, has_shape, is_swapped, is_fortran;
  bool has_longs; /* a size may end with L, as in files that Python 2 wrote */
  int32_t ndim;
  int64_t shape[TDICT_MAX_NDIM];
} parser;

static tdict_status fail_array(const tdict_contents *c, const char *file, const char *name, tdict_status status,
                               tdict_error *err, const char *why) {
  return tdict_fail_at(err, status, file, "%s: array '%.80s': %s", c->what, name, why);
}

static tdict_status fail_here(const parser *p, tdict_error *err, const char *wanted) {
  return tdict_fail_at(err, TDICT_EFORMAT, p->file, "%s: array '%.80s': at byte %" PRIu64 " of the file: wanted %s",
                       p->contents->what, p->name, p->offset + (uint64_t)(p->at - p->text), wanted);
}

static void skip_spaces(parser *p) {
  while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r')) p->at++;
}

static bool read_mark(parser *p, char mark) {
  skip_spaces(p);
  if (p->at == p->end || *p->at != mark) return false;
  p->at++;
  return true;
}

/* Reads a string of Python without escapes, in single or double quotes. */
static tdict_status read_string(parser *p, char *out, size_t bytes, tdict_error *err) {
  skip_spaces(p);
  if (p->at == p->end || (*p->at != '\'' && *p->at != '"')) return fail_here(p, err, "a string");
  const char quote = *p->at++, *begin = p->at;
  while (p->at < p->end && *p->at != quote && *p->at != '\\') p->at++;
  if (p->at == p->end || *p->at != quote || (size_t)(p->at - begin) >= bytes)
    return fail_here(p, err, "a short string without escapes");
  memcpy(out, begin, (size_t)(p->at - begin));
  out[p->at - begin] = 0;
  p->at++;
  return TDICT_OK;
}

static tdict_status fail_type(const parser *p, const char *descr, const char *why, tdict_error *err) {
  return tdict_fail_at(err, TDICT_ENOTSUP, p->file, "%s: array '%.80s': the type '%.30s' %s", p->contents->what,
                       p->name, descr, why);
}

/* Reads the type, such as '<f4': the byte order, the kind, and the number of bytes of an element. */
static tdict_status read_descr(parser *p, tdict_error *err) {
  char descr[64];
  skip_spaces(p);
  if (p->at < p->end && *p->at == '[')
    return fail_type(p, "[...]", "is a record, which this library does not have", err);
  tdict_status status = read_string(p, descr, sizeof descr, err);
  if (status != TDICT_OK) return status;
  const char order = descr[0];
  const bool has_order = order && strchr("<>|=", order);
  const char *kind = has_order ? descr + 1 : descr;
  p->has_dtype = true;
  p->is_swapped = order == '>';
  if (*kind == 'O') return fail_type(p, descr, "holds objects of Python, which need pickle", err);
  p->dtype = tdict_npy_dtype(kind);
  if (p->dtype) return TDICT_OK;
  if (*kind == 'V')
    return fail_type(p, descr, "is unknown to NumPy, too: the file does not say what the bytes are", err);
  return fail_type(p, descr, "is not supported by this library", err);
}

static tdict_status read_order(parser *p, tdict_error *err) {
  skip_spaces(p);
  const size_t left = (size_t)(p->end - p->at);
  p->has_order = true;
  p->is_fortran = left >= 4 && memcmp(p->at, "True", 4) == 0;
  if (!p->is_fortran && !(left >= 5 && memcmp(p->at, "False", 5) == 0)) return fail_here(p, err, "True or False");
  p->at += p->is_fortran ? 4 : 5;
  return TDICT_OK;
}

/* Reads a tuple of sizes: (), (3,) or (3, 4). */
static tdict_status read_shape(parser *p, tdict_error *err) {
  bool needs_comma = false;
  p->has_shape = true;
  if (!read_mark(p, '(')) return fail_here(p, err, "a tuple");
  while (!read_mark(p, ')')) {
    int64_t size = 0;
    if (needs_comma) return fail_here(p, err, "a comma or ')'");
    const char *begin = p->at;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++) {
      if (size > (INT64_MAX - 9) / 10) return fail_here(p, err, "a size below 2^63");
      size = 10 * size + (*p->at - '0');
    }
    if (p->at == begin) return fail_here(p, err, "a size of 0 or more");
    if (size && *begin == '0') return fail_here(p, err, "a size without a leading 0");
    if (p->has_longs && p->at < p->end && *p->at == 'L') p->at++;
    if (p->ndim == TDICT_MAX_NDIM) return fail_here(p, err, "at most 32 dimensions");
    p->shape[p->ndim++] = size;
    needs_comma = !read_mark(p, ',');
  }
  /* In Python, (3) is a number and no tuple. */
  return p->ndim == 1 && needs_comma ? fail_here(p, err, "a comma after the only size") : TDICT_OK;
}

static tdict_status read_pair(parser *p, tdict_error *err) {
  char key[32];
  tdict_status status = read_string(p, key, sizeof key, err);
  if (status != TDICT_OK) return status;
  if (!read_mark(p, ':')) return fail_here(p, err, "a colon");
  if (strcmp(key, "descr") == 0 && !p->has_dtype) return read_descr(p, err);
  if (strcmp(key, "fortran_order") == 0 && !p->has_order) return read_order(p, err);
  if (strcmp(key, "shape") == 0 && !p->has_shape) return read_shape(p, err);
  return fail_here(p, err, "each of the keys descr, fortran_order and shape once");
}

static tdict_status read_literal(parser *p, tdict_error *err) {
  tdict_status status = TDICT_OK;
  bool needs_comma = false;
  if (!read_mark(p, '{')) return fail_here(p, err, "'{'");
  while (status == TDICT_OK && !read_mark(p, '}')) {
    if (needs_comma) return fail_here(p, err, "a comma or '}'");
    status = read_pair(p, err);
    needs_comma = !read_mark(p, ',');
  }
  if (status != TDICT_OK) return status;
  if (!p->has_dtype || !p->has_order || !p->has_shape)
    return fail_here(p, err, "the keys descr, fortran_order and shape before this place");
  skip_spaces(p);
  return p->at == p->end ? TDICT_OK : fail_here(p, err, "spaces to the end of the header");
}

bool tdict_npy_is_npy(const tdict_contents *contents) {
  char found[MAGIC_BYTES];
  return tdict_contents_read(contents, (tdict_span){0, 0, MAGIC_BYTES}, found, NULL) == TDICT_OK &&
         memcmp(found, magic, MAGIC_BYTES) == 0;
}

/* Reads the magic, the version and the length of the header. Narrows *span to the bytes after these fields. */
static tdict_status read_prefix(const tdict_contents *c, tdict_span *span, const char *name, size_t *length,
                                int *version, tdict_error *err) {
  unsigned char bytes[VERSION_BYTES + 4];
  const char *file = c->files[span->file].path;
  tdict_span prefix = {span->file, span->offset, VERSION_BYTES + 2};
  if (span->bytes < prefix.bytes) return fail_array(c, file, name, TDICT_EFORMAT, err, "no header of NumPy");
  tdict_status status = tdict_contents_read(c, prefix, bytes, err);
  if (status != TDICT_OK) return status;
  if (memcmp(bytes, magic, MAGIC_BYTES) != 0)
    return fail_array(c, file, name, TDICT_EFORMAT, err, "no header of NumPy");
  if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)
    return tdict_fail_at(err, TDICT_ENOTSUP, file, "%s: array '%.80s': version %u.%u, wanted 1.0, 2.0 or 3.0", c->what,
                         name, bytes[6], bytes[7]);
  *version = bytes[6];
  *length = bytes[8] | (size_t)bytes[9] << 8;
  if (bytes[6] > 1) {
    prefix.bytes = sizeof bytes;
    if (span->bytes < prefix.bytes) return fail_array(c, file, name, TDICT_EFORMAT, err, "no header of NumPy");
    status = tdict_contents_read(c, prefix, bytes, err);
    *length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
  }
  span->offset += prefix.bytes;
  span->bytes -= prefix.bytes;
  if (status == TDICT_OK && (*length > span->bytes || *length > MOST_HEADER))
    status =
        tdict_fail_at(err, TDICT_EFORMAT, file, "%s: array '%.80s': the header has %zu bytes, wanted at most %" PRIu64,
                      c->what, name, *length, span->bytes < MOST_HEADER ? span->bytes : MOST_HEADER);
  return status;
}

static tdict_status add_item(tdict_contents *c, const parser *p, tdict_span span, tdict_error *err) {
  tdict_item item = {.kind = TDICT_ITEM_TENSOR, .path = p->name, .dtype = p->dtype, .span = span};
  tdict_layout_size size;
  if (tdict_layout_check(c->what, p->dtype, p->ndim, p->shape, &size, NULL) != TDICT_OK)
    return fail_array(c, p->file, p->name, TDICT_EFORMAT, err, "the bytes of the shape do not fit 63 bits");
  if (size.bytes != span.bytes)
    return tdict_fail_at(err, TDICT_EFORMAT, p->file,
                         "%s: array '%.80s': %" PRIu64 " bytes follow the header, but the shape needs %zu", c->what,
                         p->name, span.bytes, size.bytes);
  tdict_status status = tdict_contents_set_shape(c, &item, p->ndim, p->shape, err);
  if (status != TDICT_OK) return status;
  item.is_swapped = p->is_swapped && tdict_dtype_bytes(p->dtype) > 1;
  item.is_fortran = p->is_fortran && p->ndim > 1;
  return tdict_contents_add(c, &item, err);
}

tdict_status tdict_npy_read(tdict_contents *contents, tdict_span span, const char *name, tdict_error *err) {
  const char *file = contents->files[span.file].path;
  size_t length = 0;
  int version = 0;
  tdict_status status = read_prefix(contents, &span, name, &length, &version, err);
  if (status != TDICT_OK) return status;
  char *text = malloc(length + 1);
  if (!text) return fail_array(contents, file, name, TDICT_ENOMEM, err, "no host memory for the header");
  parser p = {.contents = contents, .file = file, .name = name, .text = text, .at = text, .end = text + length};
  p.offset = span.offset;
  p.has_longs = version < 3; /* as in numpy.lib.format */
  status = tdict_contents_read(contents, (tdict_span){span.file, span.offset, length}, text, err);
  if (status == TDICT_OK) status = read_literal(&p, err);
  span.offset += length;
  span.bytes -= length;
  if (status == TDICT_OK) status = add_item(contents, &p, span, err);
  free(text);
  return status;
}

tdict_status tdict_npz_read(tdict_contents *contents, const tdict_zip *zip, tdict_error *err) {
  static const char end[] = ".npy";
  tdict_status status = TDICT_OK;
  for (size_t i = 0; status == TDICT_OK && i < zip->count; i++) {
    const tdict_zip_entry *entry = &zip->entries[i];
    const size_t length = strlen(entry->name);
    const char *name = NULL;
    if (length <= sizeof end - 1 || strcmp(entry->name + length - (sizeof end - 1), end) != 0)
      return tdict_fail_at(err, TDICT_EFORMAT, contents->files[entry->span.file].path,
                           "%s: entry '%.120s' of the zip file is not an array: its name does not end with .npy",
                           contents->what, entry->name);
    status = tdict_zip_check_stored(contents, entry, err);
    if (status == TDICT_OK)
      status = tdict_contents_copy_text(contents, entry->name, length - (sizeof end - 1), &name, err);
    if (status == TDICT_OK) status = tdict_npy_read(contents, entry->span, name, err);
  }
  return status;
}
