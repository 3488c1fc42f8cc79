/* Checks JSON texts, and finds the ends of arrays and objects, without recursion. See document.h for threads. */
#include "services/io/json/document.h"

#include <stdlib.h>

#include "core/base/array.h"

/* Objects with at most this number of members are compared without a table. */
enum { FEW_MEMBERS = 16 };

/* Adds the end of an array or object that begins. */
static bool add_end(tdict_json_document *d, size_t *cap) {
  if (!TDICT_RESERVE(d->ends, *cap, d->num_ends + 1)) return false;
  d->num_ends++;
  return true;
}

static bool find_ends(tdict_json_document *d) {
  uint32_t open[TDICT_JSON_MOST_DEPTH];
  size_t cap = 0, depth = 0;
  for (size_t at = 0; at < d->length;) {
    const char c = d->text[at];
    at += c == '"' ? tdict_json_string_bytes(d->text + at) : 1;
    if (c == '{' || c == '[') {
      open[depth++] = (uint32_t)d->num_ends;
      if (!add_end(d, &cap)) return false;
    }
    if (c == '}' || c == ']') d->ends[open[--depth]] = (tdict_json_end){(uint32_t)at, (uint32_t)d->num_ends};
  }
  return true;
}

static tdict_status refuse(tdict_json at, const char *why, tdict_json_fault *fault) {
  *fault = (tdict_json_fault){at.at, why};
  return TDICT_ENOTSUP;
}

static bool is_same_key(tdict_json a, tdict_json b) {
  return tdict_json_string_compare(tdict_json_start(a), tdict_json_start(b)) == 0;
}

/* Looks for duplicate keys in an object with many members. */
static tdict_status check_many_keys(tdict_json object, tdict_json_fault *fault) {
  tdict_json_table table;
  tdict_status status = tdict_json_table_make(object, &table);
  if (status != TDICT_OK) return status;
  for (size_t i = 1; i < table.count && status == TDICT_OK; i++) {
    const tdict_json a = table.members[i - 1].key, b = table.members[i].key;
    if (is_same_key(a, b)) status = refuse(a.at > b.at ? a : b, "duplicate object key", fault);
  }
  free(table.members);
  return status;
}

static tdict_status check_keys(tdict_json object, tdict_json_fault *fault) {
  tdict_json_cursor cursor = tdict_json_enter(object);
  tdict_json keys[FEW_MEMBERS], key, value;
  size_t count = 0;
  while (tdict_json_next(&cursor, &key, &value)) {
    if (tdict_json_string_has_zero(tdict_json_start(key))) return refuse(key, "a key with a 0 byte", fault);
    for (size_t i = 0; i < count && count < FEW_MEMBERS; i++)
      if (is_same_key(keys[i], key)) return refuse(key, "duplicate object key", fault);
    if (count < FEW_MEMBERS) keys[count++] = key;
  }
  return count < FEW_MEMBERS ? TDICT_OK : check_many_keys(object, fault);
}

static tdict_status check_number(tdict_json number, tdict_json_fault *fault) {
  int64_t integer;
  double real;
  if (tdict_json_is(number, TDICT_JSON_INTEGER))
    return tdict_json_integer(number, &integer) ? TDICT_OK : refuse(number, "too big integer", fault);
  return tdict_json_real(number, &real) ? TDICT_OK : refuse(number, "real number overflow", fault);
}

/* Checks what RFC 8259 leaves open. */
static tdict_status check_values(const tdict_json_document *d, tdict_json_fault *fault) {
  tdict_status status = TDICT_OK;
  tdict_json at = {.document = d};
  while (at.at < d->length && status == TDICT_OK) {
    const char first = *tdict_json_start(at);
    size_t bytes = 1;
    if (first == '"') bytes = tdict_json_string_bytes(tdict_json_start(at));
    if (first == '{') status = check_keys(at, fault);
    if (first == '-' || (first >= '0' && first <= '9')) {
      bytes = tdict_json_bytes(at);
      status = check_number(at, fault);
    }
    at.at += (uint32_t)bytes;
    at.level += first == '{' || first == '[';
  }
  return status;
}

tdict_status tdict_json_open(const char *text, size_t length, tdict_json_document *out, tdict_json_fault *fault) {
  if (length >= UINT32_MAX) {
    *fault = (tdict_json_fault){0, "the text has 4 GiB or more"};
    return TDICT_ENOTSUP;
  }
  if (!tdict_json_is_valid(text, length, fault)) return TDICT_EFORMAT;
  *out = (tdict_json_document){.text = text, .length = length};
  tdict_status status = find_ends(out) ? check_values(out, fault) : TDICT_ENOMEM;
  if (status != TDICT_OK) tdict_json_close(out);
  return status;
}
