/* Reads a schema's metadata: the number of pairs, then keys and values, each after its length. Thread-safe. */
#include "services/interop/arrow/import.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "services/io/json/document.h"

typedef struct text {
  const char *at;
  int32_t length; /* -1: missing */
} text;

static text read_text(const char **at) {
  text t;
  memcpy(&t.length, *at, sizeof t.length);
  t.at = *at + sizeof t.length;
  if (t.length > 0) *at = t.at + t.length;
  if (t.length <= 0) *at = t.at;
  return t;
}

static bool text_is(text t, const char *wanted) {
  return t.length == (int32_t)strlen(wanted) && memcmp(t.at, wanted, (size_t)t.length) == 0;
}

/* Returns the value of a key in the metadata, or a text of length -1 if the key is missing. */
static text find_value(const char *metadata, const char *key) {
  int32_t count = 0;
  if (metadata) {
    memcpy(&count, metadata, sizeof count);
    metadata += sizeof count;
  }
  for (int32_t i = 0; i < count; i++) {
    const text name = read_text(&metadata), value = read_text(&metadata);
    if (name.length < 0 || value.length < 0) break; /* the positions of later pairs are unknown */
    if (text_is(name, key)) return value;
  }
  return (text){NULL, -1};
}

/* Reads an array of at most TDICT_MAX_NDIM integers of 0 or more. Returns false for any other value. */
static bool read_numbers(tdict_json array, int64_t numbers[TDICT_MAX_NDIM], int *count) {
  tdict_json_cursor cursor = tdict_json_enter(array);
  tdict_json item;
  if (!tdict_json_is(array, TDICT_JSON_ARRAY)) return false;
  for (*count = 0; tdict_json_next(&cursor, NULL, &item); (*count)++)
    if (*count == TDICT_MAX_NDIM || !tdict_json_integer(item, &numbers[*count]) || numbers[*count] < 0) return false;
  return true;
}

/* Checks that `order` is a permutation, and stores the permutation. */
static bool store_order(const int64_t *order, int count, tdict_arrow_row_shape *out) {
  uint32_t seen = 0;
  if (count != out->ndim) return false;
  for (int i = 0; i < count; i++) {
    if (order[i] >= count || (seen & 1u << order[i])) return false;
    seen |= 1u << order[i];
    out->order[i] = (int)order[i];
    out->is_permuted = out->is_permuted || order[i] != i;
  }
  return true;
}

/* Reads the shape and the permutation. Returns false if they do not describe lists of `size` elements. */
static bool read_shape(tdict_json json, int64_t size, tdict_arrow_row_shape *out) {
  const tdict_json permutation = tdict_json_get(json, "permutation");
  int64_t order[TDICT_MAX_NDIM], total = 1;
  int count;
  if (!read_numbers(tdict_json_get(json, "shape"), out->sizes, &out->ndim)) return false;
  for (int i = 0; i < out->ndim; i++)
    if (!tdict_mul_i64(total, out->sizes[i], &total)) return false;
  if (total != size) return false;
  if (!tdict_json_exists(permutation)) return true;
  return read_numbers(permutation, order, &count) && store_order(order, count, out);
}

tdict_status tdict_arrow_row_shape_read(const char *what, const struct ArrowSchema *schema, int64_t size,
                                        tdict_arrow_row_shape *out, tdict_error *err) {
  out->ndim = 0;
  out->is_permuted = false;
  if (!text_is(find_value(schema->metadata, "ARROW:extension:name"), "arrow.fixed_shape_tensor")) return TDICT_OK;
  const text json = find_value(schema->metadata, "ARROW:extension:metadata");
  tdict_json_document document = {0};
  tdict_json_fault fault;
  bool is_valid = false;
  if (json.length > 0) {
    char *copy = strndup(json.at, (size_t)json.length); /* a document needs a 0 byte at the end */
    const tdict_status status = copy ? tdict_json_open(copy, strlen(copy), &document, &fault) : TDICT_ENOMEM;
    is_valid =
        status == TDICT_OK && strlen(copy) == (size_t)json.length && read_shape(tdict_json_root(&document), size, out);
    tdict_json_close(&document);
    free(copy);
    if (status == TDICT_ENOMEM) return tdict_fail(err, status, "%s: no host memory for the metadata", what);
  }
  if (is_valid) return TDICT_OK;
  return tdict_fail(err, TDICT_EFORMAT, "%s: the shape in the metadata does not describe lists of %lld elements", what,
                    (long long)size);
}
