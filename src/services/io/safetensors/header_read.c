/* Reads headers of safetensors files. See safetensors.h for ownership and threads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/tensor/layout.h"
#include "services/io/json/read.h"
#include "services/io/safetensors/safetensors.h"

static const tdict_safetensors_dtype dtypes[] = {
    {"BOOL", TDICT_BOOL},
    {"F4", 0},
    {"F6_E2M3", 0},
    {"F6_E3M2", 0},
    {"U8", TDICT_U8},
    {"I8", TDICT_I8},
    {"F8_E5M2", TDICT_F8E5M2},
    {"F8_E4M3", TDICT_F8E4M3},
    {"F8_E8M0", 0},
    {"F8_E4M3FNUZ", 0},
    {"F8_E5M2FNUZ", 0},
    {"I16", TDICT_I16},
    {"U16", TDICT_U16},
    {"F16", TDICT_F16},
    {"BF16", TDICT_BF16},
    {"I32", TDICT_I32},
    {"U32", TDICT_U32},
    {"F32", TDICT_F32},
    {"C64", TDICT_C64},
    {"F64", TDICT_F64},
    {"I64", TDICT_I64},
    {"U64", TDICT_U64},
};
enum { NUM_DTYPES = sizeof dtypes / sizeof *dtypes };

const tdict_safetensors_dtype *tdict_safetensors_of(tdict_dtype dtype) {
  for (int i = 0; i < NUM_DTYPES; i++)
    if (dtypes[i].dtype == dtype) return &dtypes[i];
  return NULL;
}

tdict_status tdict_safetensors_refuse_other(const tdict_contents *contents, size_t file, tdict_error *err) {
  static const struct {
    const char *start, *text;
  } others[] = {{"version https://git-lfs", "a Git LFS pointer and not the data; run 'git lfs pull' in its folder"},
                {"PK\x03\x04", "a zip file, perhaps of torch.save(), wanted a safetensors file"}};
  const tdict_source_file *f = &contents->files[file];
  char found[24];
  const size_t bytes = f->bytes < sizeof found ? (size_t)f->bytes : sizeof found;
  tdict_status status = tdict_contents_read(contents, (tdict_span){file, 0, bytes}, found, err);
  for (size_t i = 0; i < sizeof others / sizeof *others && status == TDICT_OK; i++) {
    const size_t length = strlen(others[i].start);
    if (bytes < length || memcmp(found, others[i].start, length) != 0) continue;
    status = tdict_fail_at(err, TDICT_EFORMAT, f->path, "%s: the file is %s", contents->what, others[i].text);
  }
  return status;
}

/* Reads the length of the header, which the first 8 bytes hold, and checks the length against the size of the file. */
static tdict_status read_length(const tdict_contents *c, size_t file, uint64_t *out, tdict_error *err) {
  const tdict_source_file *f = &c->files[file];
  unsigned char bytes[TDICT_SAFETENSORS_PREFIX];
  uint64_t length = 0;
  if (f->bytes < sizeof bytes)
    return tdict_fail_at(err, TDICT_EFORMAT, f->path,
                         "%s: the file has %" PRIu64 " bytes, wanted at least %zu for the length of the header",
                         c->what, f->bytes, sizeof bytes);
  tdict_status status = tdict_contents_read(c, (tdict_span){file, 0, sizeof bytes}, bytes, err);
  if (status != TDICT_OK) return status;
  for (int i = TDICT_SAFETENSORS_PREFIX - 1; i >= 0; i--) length = length << 8 | bytes[i];
  if (length > f->bytes - sizeof bytes) {
    status = tdict_safetensors_refuse_other(c, file, err);
    if (status != TDICT_OK) return status;
    return tdict_fail_at(err, TDICT_EFORMAT, f->path,
                         "%s: at byte 0: the header has %" PRIu64 " bytes, but only %" PRIu64
                         " follow; is this a safetensors file?",
                         c->what, length, f->bytes - sizeof bytes);
  }
  if (length > TDICT_SAFETENSORS_MAX_HEADER)
    return tdict_fail_at(err, TDICT_ENOTSUP, f->path,
                         "%s: at byte 0: the header has %" PRIu64 " bytes, wanted at most %d", c->what, length,
                         TDICT_SAFETENSORS_MAX_HEADER);
  if (length < 2)
    return tdict_fail_at(err, TDICT_EFORMAT, f->path,
                         "%s: at byte 0: the header has %" PRIu64 " bytes, wanted at least 2", c->what, length);
  *out = length;
  return TDICT_OK;
}

tdict_status tdict_safetensors_read_metadata(tdict_contents *contents, const char *file, tdict_json metadata,
                                             bool texts_only, const char **structure, tdict_error *err) {
  const tdict_json_place place = {contents, file, "entry", texts_only ? "__metadata__" : "metadata", NULL};
  tdict_json_cursor cursor = tdict_json_enter(metadata);
  tdict_json key, value;
  tdict_status status = TDICT_OK;
  while (status == TDICT_OK && tdict_json_next(&cursor, &key, &value)) {
    const bool is_text = tdict_json_is(value, TDICT_JSON_STRING), is_structure = tdict_json_equals(key, "tensordict");
    tdict_metadata_entry entry;
    char name[81];
    (void)tdict_json_read_text(key, name, sizeof name);
    if (!is_text && (texts_only || is_structure))
      return tdict_json_fail(&place, err, "the value of '%s' is not a string", name);
    if (!is_text) continue;
    if (is_structure) {
      status = tdict_json_text(contents, value, structure, err);
      if (status == TDICT_OK && !*structure)
        return tdict_json_fail(&place, err, "the value of 'tensordict' has a 0 byte");
      continue;
    }
    status = tdict_json_copy(contents, key, &entry.key, NULL, err);
    if (status == TDICT_OK) status = tdict_json_copy(contents, value, &entry.value, &entry.length, err);
    if (status == TDICT_OK) status = tdict_contents_add_metadata(contents, &entry, err);
  }
  return status;
}

static tdict_status find_dtype(const tdict_json_place *place, const char *name, tdict_dtype *out, tdict_error *err) {
  int i = 0;
  while (i < NUM_DTYPES && strcmp(dtypes[i].name, name) != 0) i++;
  *out = i < NUM_DTYPES ? dtypes[i].dtype : 0;
  if (*out) return TDICT_OK;
  return tdict_json_refuse(place, err, "dtype %.40s %s", name,
                           i < NUM_DTYPES ? "is not supported by this library" : "is unknown");
}

/* The description of a tensor in the header. */
typedef struct entry {
  char dtype[48];
  tdict_sizes shape, span;
} entry;

static tdict_status read_entry(const tdict_json_place *place, tdict_json value, entry *out, tdict_error *err) {
  tdict_json_cursor cursor = tdict_json_enter(value);
  tdict_json key, member, dtype = {0}, shape = {0}, span = {0};
  if (!tdict_json_is(value, TDICT_JSON_OBJECT)) return tdict_json_fail(place, err, "no JSON object");
  while (tdict_json_next(&cursor, &key, &member)) {
    if (tdict_json_equals(key, "dtype")) dtype = member;
    if (tdict_json_equals(key, "shape")) shape = member;
    if (tdict_json_equals(key, "data_offsets")) span = member;
  }
  /* No dtype has a name that does not fit. */
  if (!tdict_json_read_text(dtype, out->dtype, sizeof out->dtype))
    return tdict_json_fail(place, err, "no text 'dtype'");
  tdict_status status = tdict_json_sizes(place, "shape", shape, TDICT_MAX_NDIM, &out->shape, err);
  return status == TDICT_OK ? tdict_json_sizes(place, "data_offsets", span, 2, &out->span, err) : status;
}

/* Returns TDICT_EFORMAT for a span that has not the bytes of the shape. */
static tdict_status fail_span(const tdict_json_place *place, const entry *from, size_t bytes, tdict_error *err) {
  char shape[64];
  return tdict_json_fail(place, err, "data_offsets are %" PRId64 " to %" PRId64 ", but %s of shape %s needs %zu bytes",
                         from->span.at[0], from->span.at[1], from->dtype,
                         tdict_text_shape(from->shape.count, from->shape.at, shape, sizeof shape), bytes);
}

/* Adds an item. Its span counts from the end of the header, whose position the caller adds later. `name` must live as
 * long as the contents. */
static tdict_status add_tensor(tdict_contents *c, size_t file, const char *name, const entry *from, tdict_error *err) {
  const tdict_json_place place = {c, c->files[file].path, "tensor", name, NULL};
  const tdict_sizes shape = from->shape, span = from->span;
  tdict_layout_size size;
  tdict_item item = {.kind = TDICT_ITEM_TENSOR, .path = name};
  tdict_status status = find_dtype(&place, from->dtype, &item.dtype, err);
  if (status != TDICT_OK) return status;
  if (span.count != 2) return tdict_json_fail(&place, err, "data_offsets has %d numbers, wanted 2", (int)span.count);
  if (tdict_layout_check(c->what, item.dtype, shape.count, shape.at, &size, NULL) != TDICT_OK)
    return tdict_json_fail(&place, err, "the bytes of the shape do not fit 63 bits");
  if (span.at[1] < span.at[0] || (uint64_t)(span.at[1] - span.at[0]) != size.bytes)
    return fail_span(&place, from, size.bytes, err);
  item.span = (tdict_span){file, (uint64_t)span.at[0], size.bytes};
  status = tdict_contents_set_shape(c, &item, shape.count, shape.at, err);
  return status == TDICT_OK ? tdict_contents_add(c, &item, err) : status;
}

/* Checks that the tensors cover the bytes after the header without holes and overlaps. */
static tdict_status check_spans(const tdict_contents *c, size_t file, size_t first, uint64_t data, tdict_error *err) {
  const size_t count = c->num_items - first;
  const tdict_source_file *f = &c->files[file];
  const tdict_item **sorted =
      tdict_array_sorted(count ? &c->items[first] : NULL, count, sizeof *c->items, tdict_item_compare_spans);
  uint64_t end = 0;
  tdict_status status = TDICT_OK;
  if (!sorted) return tdict_fail_memory(err, c->what, f->path, "%zu keys", count);
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    const tdict_item *item = sorted[i];
    const tdict_json_place place = {c, f->path, "tensor", item->path, NULL};
    if (item->span.offset != end)
      status = tdict_json_fail(&place, err, "begins at offset %" PRIu64 ", wanted %" PRIu64 ": %s", item->span.offset,
                               end, item->span.offset < end ? "two tensors overlap" : "a hole before the tensor");
    end = item->span.offset + item->span.bytes;
  }
  free((void *)sorted);
  if (status != TDICT_OK || data + end == f->bytes) return status;
  return tdict_fail_at(err, TDICT_EFORMAT, f->path,
                       "%s: the tensors end at byte %" PRIu64 ", but the file has %" PRIu64 " bytes", c->what,
                       data + end, f->bytes);
}

static tdict_status read_members(tdict_contents *c, size_t file, tdict_json header, const char **structure,
                                 tdict_error *err) {
  const char *path = c->files[file].path;
  tdict_json_cursor cursor = tdict_json_enter(header);
  tdict_json key, value;
  tdict_status status = TDICT_OK;
  *structure = NULL;
  c->has_metadata = true;
  while (status == TDICT_OK && tdict_json_next(&cursor, &key, &value)) {
    tdict_json_place place = {c, path, "tensor", NULL, NULL};
    entry found;
    if (tdict_json_equals(key, "__metadata__")) {
      if (tdict_json_is(value, TDICT_JSON_OBJECT))
        status = tdict_safetensors_read_metadata(c, path, value, true, structure, err);
      else if (!tdict_json_is(value, TDICT_JSON_NULL)) /* the package safetensors also accepts null */
        status = tdict_json_fail(&(tdict_json_place){c, path, "entry", "__metadata__", NULL}, err, "no JSON object");
      continue;
    }
    status = tdict_json_copy(c, key, &place.key, NULL, err);
    if (status == TDICT_OK) status = read_entry(&place, value, &found, err);
    if (status == TDICT_OK) status = add_tensor(c, file, place.key, &found, err);
  }
  return status;
}

tdict_status tdict_safetensors_read(tdict_contents *contents, size_t file, const char **structure, tdict_error *err) {
  const size_t first = contents->num_items;
  tdict_json_document header = {0};
  unsigned char brace;
  uint64_t length;
  tdict_status status = read_length(contents, file, &length, err);
  if (status != TDICT_OK) return status;
  status = tdict_contents_read(contents, (tdict_span){file, TDICT_SAFETENSORS_PREFIX, 1}, &brace, err);
  if (status == TDICT_OK && brace != '{')
    status = tdict_fail_at(err, TDICT_EFORMAT, contents->files[file].path,
                           "%s: at byte %d: 0x%02x, a header begins with '{'", contents->what, TDICT_SAFETENSORS_PREFIX,
                           brace);
  if (status == TDICT_OK)
    status =
        tdict_json_load(contents, (tdict_span){file, TDICT_SAFETENSORS_PREFIX, length}, "the header", &header, err);
  if (status == TDICT_OK) status = read_members(contents, file, tdict_json_root(&header), structure, err);
  tdict_json_close(&header);
  const uint64_t data = TDICT_SAFETENSORS_PREFIX + length;
  if (status == TDICT_OK) status = check_spans(contents, file, first, data, err);
  for (size_t i = first; i < contents->num_items && status == TDICT_OK; i++) contents->items[i].span.offset += data;
  return status;
}
