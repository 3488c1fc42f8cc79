/* Reads the metadata of a schema. Metadata begins with the number of key-value pairs. Each key and each value is a
 * length in bytes, followed by the bytes. Thread-safe. */
#include "services/interop/arrow/extension.h"

#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/leaves/json.h"

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

static const char *skip_space(const char *at, const char *end) {
  while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) at++;
  return at;
}

/* Reads digits. Returns NULL if there are no digits, or the number does not fit 63 bits. */
static const char *read_number(const char *at, const char *end, int64_t *out) {
  const char *begin = at;
  for (*out = 0; at < end && *at >= '0' && *at <= '9'; at++)
    if (!tdict_mul_i64(*out, 10, out) || !tdict_add_i64(*out, *at - '0', out)) return NULL;
  return at == begin ? NULL : at;
}

/* Returns the position after the JSON string at `at`. */
static const char *skip_string(const char *at) {
  for (at++; *at != '"'; at++)
    if (*at == '\\') at++;
  return at + 1;
}

/* Finds a member of the outermost object of a valid JSON text. `key` has its quotation marks. Returns the position of
 * the value, or NULL if the member is missing. */
static const char *find_member(text json, const char *key) {
  const char *at = json.at, *end = json.at + json.length;
  const size_t length = strlen(key);
  int depth = 0;
  while (at < end) {
    if (*at != '"') {
      depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
      at++;
      continue;
    }
    const char *begin = at, *after = skip_string(at);
    at = skip_space(after, end);
    /* A string is a key only if a colon follows. Members of nested objects have other meanings. */
    if (depth == 1 && at < end && *at == ':' && (size_t)(after - begin) == length && memcmp(begin, key, length) == 0)
      return skip_space(at + 1, end);
  }
  return NULL;
}

/* Reads the member `key` of a valid JSON object, which must be an array of integers of 0 or more. *count is -1 if the
 * member is missing. Returns false if the value is not such an array, or has more than TDICT_MAX_NDIM integers. */
static bool read_member(text json, const char *key, int64_t numbers[TDICT_MAX_NDIM], int *count) {
  const char *end = json.at + json.length, *value = find_member(json, key);
  *count = -1;
  if (!value) return true;
  if (*value != '[') return false;
  value = skip_space(value + 1, end);
  for (*count = 0; *value != ']';) {
    if (*count == TDICT_MAX_NDIM || !(value = read_number(value, end, &numbers[*count]))) return false;
    (*count)++;
    value = skip_space(value, end);
    if (*value == ',') value = skip_space(value + 1, end);
  }
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

tdict_status tdict_arrow_row_shape_read(const char *what, const struct ArrowSchema *schema, int64_t size,
                                        tdict_arrow_row_shape *out, tdict_error *err) {
  int64_t order[TDICT_MAX_NDIM], total = 1;
  int count;
  out->ndim = 0;
  out->is_permuted = false;
  if (!text_is(find_value(schema->metadata, "ARROW:extension:name"), "arrow.fixed_shape_tensor")) return TDICT_OK;
  const text json = find_value(schema->metadata, "ARROW:extension:metadata");
  tdict_json_fault fault;
  bool is_valid = json.length > 0 && tdict_json_is_valid(json.at, (size_t)json.length, &fault) &&
                  read_member(json, "\"shape\"", out->sizes, &out->ndim) && out->ndim >= 0;
  for (int i = 0; is_valid && i < out->ndim; i++) is_valid = tdict_mul_i64(total, out->sizes[i], &total);
  is_valid = is_valid && total == size && read_member(json, "\"permutation\"", order, &count);
  is_valid = is_valid && (count < 0 || store_order(order, count, out));
  if (is_valid) return TDICT_OK;
  return tdict_fail(err, TDICT_EFORMAT, "%s: the shape in the metadata does not describe lists of %lld elements", what,
                    (long long)size);
}
