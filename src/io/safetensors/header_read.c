/* Reads headers of safetensors files. See safetensors.h for ownership and threads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "io/json_read.h"
#include "io/safetensors/safetensors.h"
#include "tensor/layout.h"

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

const tdict_safetensors_dtype *tdict_safetensors_find(const char *name) {
  for (int i = 0; i < NUM_DTYPES; i++)
    if (strcmp(dtypes[i].name, name) == 0) return &dtypes[i];
  return NULL;
}

const tdict_safetensors_dtype *tdict_safetensors_of(tdict_dtype dtype) {
  for (int i = 0; i < NUM_DTYPES; i++)
    if (dtypes[i].dtype == dtype) return &dtypes[i];
  return NULL;
}

/* Reads the length of the header, which the first 8 bytes hold, and checks the length against the size of the file. */
static tdict_status read_length(const tdict_contents *c, size_t file, uint64_t *out, tdict_error *err) {
  const tdict_source_file *f = &c->files[file];
  unsigned char bytes[TDICT_SAFETENSORS_PREFIX];
  uint64_t length = 0;
  if (f->bytes < sizeof bytes)
    return tdict_fail_file(err, TDICT_EFORMAT, f->path,
                           "%s: the file has %" PRIu64 " bytes, wanted at least %zu for the length of the header",
                           c->what, f->bytes, sizeof bytes);
  tdict_status status = tdict_contents_read(c, (tdict_span){file, 0, sizeof bytes}, bytes, err);
  if (status != TDICT_OK) return status;
  for (int i = TDICT_SAFETENSORS_PREFIX - 1; i >= 0; i--) length = length << 8 | bytes[i];
  if (length > f->bytes - sizeof bytes)
    return tdict_fail_file(err, TDICT_EFORMAT, f->path,
                           "%s: at byte 0: the header has %" PRIu64 " bytes, but only %" PRIu64
                           " follow; is this a safetensors file?",
                           c->what, length, f->bytes - sizeof bytes);
  if (length > TDICT_SAFETENSORS_MAX_HEADER)
    return tdict_fail_file(err, TDICT_ENOTSUP, f->path,
                           "%s: at byte 0: the header has %" PRIu64 " bytes, wanted at most %d", c->what, length,
                           TDICT_SAFETENSORS_MAX_HEADER);
  if (length < 2)
    return tdict_fail_file(err, TDICT_EFORMAT, f->path,
                           "%s: at byte 0: the header has %" PRIu64 " bytes, wanted at least 2", c->what, length);
  *out = length;
  return TDICT_OK;
}

/* Checks that the metadata maps texts to texts, and keeps TensorDict's entry. */
static tdict_status read_metadata(tdict_contents *c, const char *file, json_t *metadata, const char **structure,
                                  tdict_error *err) {
  const char *key;
  json_t *value;
  const tdict_json_place place = {c, file, "entry", "__metadata__"};
  if (!json_is_object(metadata)) return tdict_json_fail(&place, err, "no JSON object");
  json_object_foreach(metadata, key, value) {
    if (!json_is_string(value)) return tdict_json_fail(&place, err, "the value of '%.80s' is no text", key);
    if (strcmp(key, "tensordict") != 0) continue;
    if (!tdict_json_text(value)) return tdict_json_fail(&place, err, "the value of 'tensordict' has a 0 byte");
    tdict_status status =
        tdict_contents_copy_text(c, json_string_value(value), json_string_length(value), structure, err);
    if (status != TDICT_OK) return status;
  }
  return TDICT_OK;
}

static tdict_status find_dtype(const tdict_json_place *place, const char *name, tdict_dtype *out, tdict_error *err) {
  const tdict_safetensors_dtype *found = tdict_safetensors_find(name);
  if (found && found->dtype) {
    *out = found->dtype;
    return TDICT_OK;
  }
  return tdict_fail_file(err, TDICT_ENOTSUP, place->file, "%s: tensor '%.80s': dtype %.40s %s", place->contents->what,
                         place->key, name, found ? "is not supported by this library" : "is unknown");
}

/* The description of a tensor in the header. */
typedef struct entry {
  char dtype[32];
  tdict_sizes shape, span;
} entry;

/* Skips white space and the text `mark`. Returns false if another text follows. */
static bool skip_mark(const char **at, const char *mark) {
  const char *from = *at + strspn(*at, " \t\n\r");
  const size_t length = strlen(mark);
  if (strncmp(from, mark, length) != 0) return false;
  *at = from + length;
  return true;
}

/* Reads a JSON array of at most `most` integers without signs, of at most 18 digits. Returns false for another text. */
static bool read_usual_sizes(const char **at, int most, tdict_sizes *out) {
  out->count = 0;
  if (!skip_mark(at, "[")) return false;
  while (!skip_mark(at, "]")) {
    if (out->count && !skip_mark(at, ",")) return false;
    int64_t size = 0;
    const char *from = *at + strspn(*at, " \t\n\r"), *begin = from;
    while (*from >= '0' && *from <= '9' && from - begin < 18) size = 10 * size + (*from++ - '0');
    if (from == begin || out->count == most) return false;
    out->at[out->count++] = size;
    *at = from;
  }
  return true;
}

/* Reads an entry whose members are in the order of the package safetensors. `at` is valid JSON. Returns false for any
 * other entry. The caller then parses the entry with jansson, which takes much longer. */
static bool read_usual_entry(const char *at, entry *out) {
  if (!skip_mark(&at, "{") || !skip_mark(&at, "\"dtype\"") || !skip_mark(&at, ":") || !skip_mark(&at, "\""))
    return false;
  const size_t length = strcspn(at, "\"\\");
  if (length >= sizeof out->dtype) return false;
  memcpy(out->dtype, at, length);
  out->dtype[length] = 0;
  at += length;
  return skip_mark(&at, "\"") && skip_mark(&at, ",") && skip_mark(&at, "\"shape\"") && skip_mark(&at, ":") &&
         read_usual_sizes(&at, TDICT_MAX_NDIM, &out->shape) && skip_mark(&at, ",") &&
         skip_mark(&at, "\"data_offsets\"") && skip_mark(&at, ":") && read_usual_sizes(&at, 2, &out->span) &&
         skip_mark(&at, "}");
}

/* Reads an entry in any form. */
static tdict_status read_entry(const tdict_json_place *place, const json_t *value, entry *out, tdict_error *err) {
  if (!json_is_object(value)) return tdict_json_fail(place, err, "no JSON object");
  const char *dtype = tdict_json_text(json_object_get(value, "dtype"));
  if (!dtype) return tdict_json_fail(place, err, "no text 'dtype'");
  snprintf(out->dtype, sizeof out->dtype, "%s", dtype); /* no dtype has a name that does not fit */
  tdict_status status =
      tdict_json_sizes(place, "shape", json_object_get(value, "shape"), TDICT_MAX_NDIM, &out->shape, err);
  if (status == TDICT_OK)
    status = tdict_json_sizes(place, "data_offsets", json_object_get(value, "data_offsets"), 2, &out->span, err);
  return status;
}

/* Adds an item. The offset of its span counts from the end of the header, so the caller later adds the position of this
 * end. `name` must live as long as the contents. */
static tdict_status add_tensor(tdict_contents *c, size_t file, const char *name, const entry *from, tdict_error *err) {
  const tdict_json_place place = {c, c->files[file].path, "tensor", name};
  const tdict_sizes shape = from->shape, span = from->span;
  tdict_layout_size size;
  tdict_item item = {.kind = TDICT_ITEM_TENSOR, .path = name};
  void *sizes = NULL;
  tdict_status status = find_dtype(&place, from->dtype, &item.dtype, err);
  if (status != TDICT_OK) return status;
  if (span.count != 2) return tdict_json_fail(&place, err, "data_offsets has %d numbers, wanted 2", (int)span.count);
  if (tdict_layout_check(c->what, item.dtype, shape.count, shape.at, &size, NULL) != TDICT_OK)
    return tdict_json_fail(&place, err, "the bytes of the shape do not fit 63 bits");
  if (span.at[1] < span.at[0] || (uint64_t)(span.at[1] - span.at[0]) != size.bytes)
    return tdict_json_fail(&place, err, "data_offsets are %" PRId64 " to %" PRId64 ", but the shape needs %zu bytes",
                           span.at[0], span.at[1], size.bytes);
  status = tdict_contents_alloc(c, (size_t)shape.count * sizeof *shape.at, &sizes, err);
  if (status != TDICT_OK) return status;
  if (shape.count) memcpy(sizes, shape.at, (size_t)shape.count * sizeof *shape.at);
  item.ndim = shape.count;
  item.shape = sizes;
  item.span = (tdict_span){file, (uint64_t)span.at[0], size.bytes};
  return tdict_contents_add(c, &item, err);
}

static int compare_spans(const void *a, const void *b) {
  const tdict_item *x = *(const tdict_item *const *)a, *y = *(const tdict_item *const *)b;
  if (x->span.offset != y->span.offset) return x->span.offset < y->span.offset ? -1 : 1;
  return x->span.bytes < y->span.bytes ? -1 : x->span.bytes > y->span.bytes;
}

static int compare_names(const void *a, const void *b) {
  return strcmp((*(const tdict_item *const *)a)->path, (*(const tdict_item *const *)b)->path);
}

/* Returns a sorted list of the items with index `first` or higher, or NULL if memory is exhausted. The caller frees the
 * list. */
static const tdict_item **sort_items(const tdict_contents *c, size_t first,
                                     int (*compare)(const void *a, const void *b)) {
  const size_t count = c->num_items - first;
  const tdict_item **sorted = malloc((count + 1) * sizeof *sorted);
  if (!sorted) return NULL;
  for (size_t i = 0; i < count; i++) sorted[i] = &c->items[first + i];
  qsort((void *)sorted, count, sizeof *sorted, compare);
  return sorted;
}

static tdict_status fail_memory(const tdict_contents *c, size_t file, size_t count, tdict_error *err) {
  return tdict_fail_file(err, TDICT_ENOMEM, c->files[file].path, "%s: no host memory for %zu keys", c->what, count);
}

/* Checks that the tensors cover the bytes after the header without holes and overlaps. */
static tdict_status check_spans(const tdict_contents *c, size_t file, size_t first, uint64_t data, tdict_error *err) {
  const size_t count = c->num_items - first;
  const tdict_source_file *f = &c->files[file];
  const tdict_item **sorted = sort_items(c, first, compare_spans);
  uint64_t end = 0;
  tdict_status status = TDICT_OK;
  if (!sorted) return fail_memory(c, file, count, err);
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    const tdict_item *item = sorted[i];
    const tdict_json_place place = {c, f->path, "tensor", item->path};
    if (item->span.offset != end)
      status = tdict_json_fail(&place, err, "begins at offset %" PRIu64 ", wanted %" PRIu64 ": %s", item->span.offset,
                               end, item->span.offset < end ? "two tensors overlap" : "a hole before the tensor");
    end = item->span.offset + item->span.bytes;
  }
  free((void *)sorted);
  if (status != TDICT_OK || data + end == f->bytes) return status;
  return tdict_fail_file(err, TDICT_EFORMAT, f->path,
                         "%s: the tensors end at byte %" PRIu64 ", but the file has %" PRIu64 " bytes", c->what,
                         data + end, f->bytes);
}

/* Checks that all names differ. */
static tdict_status check_names(const tdict_contents *c, size_t file, size_t first, tdict_error *err) {
  const size_t count = c->num_items - first;
  const tdict_item **sorted = sort_items(c, first, compare_names);
  tdict_status status = TDICT_OK;
  if (!sorted) return fail_memory(c, file, count, err);
  for (size_t i = 1; i < count && status == TDICT_OK; i++)
    if (strcmp(sorted[i - 1]->path, sorted[i]->path) == 0)
      status = tdict_fail_file(err, TDICT_EFORMAT, c->files[file].path, "%s: two tensors have the name '%.80s'",
                               c->what, sorted[i]->path);
  free((void *)sorted);
  return status;
}

/* The state of the reader of a header whose text is valid JSON. */
typedef struct header {
  tdict_contents *contents;
  size_t file;
  const char *text;
  const char **structure; /* receives TensorDict's entry */
} header;

/* Returns the place of a part of the header, for messages. */
static tdict_json_source locate(const header *h, tdict_json_slice part) {
  return (tdict_json_source){h->contents, h->contents->files[h->file].path, "the header",
                             TDICT_SAFETENSORS_PREFIX + (uint64_t)(part.text - h->text)};
}

/* Copies a name to the contents, without its quotes and escapes. */
static tdict_status copy_name(const header *h, tdict_json_slice key, const char **out, tdict_error *err) {
  tdict_contents *c = h->contents;
  const tdict_json_source source = locate(h, key);
  json_t *decoded;
  if (!memchr(key.text, '\\', key.length)) return tdict_contents_copy_text(c, key.text + 1, key.length - 2, out, err);
  tdict_status status = tdict_json_parse(&source, key, &decoded, err);
  if (status != TDICT_OK) return status;
  if (tdict_json_text(decoded))
    status = tdict_contents_copy_text(c, json_string_value(decoded), json_string_length(decoded), out, err);
  else
    status = tdict_fail_file(err, TDICT_EFORMAT, source.file, "%s: the key at byte %" PRIu64 " has a 0 byte", c->what,
                             source.offset);
  json_decref(decoded);
  return status;
}

/* Reads a member of the header: a tensor or the metadata. */
static tdict_status read_member(const header *h, const char *name, bool is_metadata, tdict_json_slice value,
                                tdict_error *err) {
  const tdict_json_source source = locate(h, value);
  const tdict_json_place place = {h->contents, source.file, "tensor", name};
  entry found;
  json_t *json;
  if (!is_metadata && read_usual_entry(value.text, &found)) return add_tensor(h->contents, h->file, name, &found, err);
  tdict_status status = tdict_json_parse(&source, value, &json, err);
  if (status != TDICT_OK) return status;
  status = is_metadata ? read_metadata(h->contents, source.file, json, h->structure, err)
                       : read_entry(&place, json, &found, err);
  if (status == TDICT_OK && !is_metadata) status = add_tensor(h->contents, h->file, name, &found, err);
  json_decref(json);
  return status;
}

static tdict_status read_members(const header *h, tdict_error *err) {
  tdict_json_slice key, value;
  tdict_status status = TDICT_OK;
  bool has_metadata = false;
  *h->structure = NULL;
  for (const char *at = h->text + 1; status == TDICT_OK && tdict_json_next_member(&at, &key, &value);) {
    const char *name = NULL;
    status = copy_name(h, key, &name, err);
    if (status != TDICT_OK) return status;
    const bool is_metadata = strcmp(name, "__metadata__") == 0;
    if (is_metadata && has_metadata)
      return tdict_fail_file(err, TDICT_EFORMAT, h->contents->files[h->file].path,
                             "%s: the header has two entries '__metadata__'", h->contents->what);
    has_metadata = has_metadata || is_metadata;
    status = read_member(h, name, is_metadata, value, err);
  }
  return status;
}

tdict_status tdict_safetensors_read(tdict_contents *contents, size_t file, const char **structure, tdict_error *err) {
  const size_t first = contents->num_items;
  const char *path = contents->files[file].path;
  const tdict_json_source source = {contents, path, "the header", TDICT_SAFETENSORS_PREFIX};
  uint64_t length;
  tdict_status status = read_length(contents, file, &length, err);
  if (status != TDICT_OK) return status;
  char *text = malloc((size_t)length);
  if (!text)
    return tdict_fail_file(err, TDICT_ENOMEM, path, "%s: no host memory for a header of %" PRIu64 " bytes",
                           contents->what, length);
  status = tdict_contents_read(contents, (tdict_span){file, TDICT_SAFETENSORS_PREFIX, length}, text, err);
  if (status == TDICT_OK && text[0] != '{')
    status = tdict_fail_file(err, TDICT_EFORMAT, path, "%s: at byte %d: 0x%02x, a header begins with '{'",
                             contents->what, TDICT_SAFETENSORS_PREFIX, (unsigned char)text[0]);
  if (status == TDICT_OK) status = tdict_json_check(&source, (tdict_json_slice){text, (size_t)length}, err);
  if (status == TDICT_OK) status = read_members(&(header){contents, file, text, structure}, err);
  free(text);
  if (status == TDICT_OK) status = check_names(contents, file, first, err);
  const uint64_t data = TDICT_SAFETENSORS_PREFIX + length;
  if (status == TDICT_OK) status = check_spans(contents, file, first, data, err);
  for (size_t i = first; i < contents->num_items && status == TDICT_OK; i++) contents->items[i].span.offset += data;
  return status;
}
