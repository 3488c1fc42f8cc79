/* Finds values in JSON texts. Uses no recursion. See document.h for ownership and threads. */
#include "services/io/json/document.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/float_env.h"

void tdict_json_close(tdict_json_document *document) {
  free(document->ends);
  free(document->owned);
  *document = (tdict_json_document){0};
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

tdict_json tdict_json_root(const tdict_json_document *document) {
  tdict_json root = {.document = document};
  if (!document->text) return (tdict_json){0};
  while (is_space(*tdict_json_start(root))) root.at++;
  return root;
}

/* Returns the number of bytes of digits and signs of an integer, or of the first part of a real. */
static size_t integer_bytes(const char *number) { return strspn(number, "-0123456789"); }

tdict_json_kind tdict_json_kind_of(tdict_json value) {
  if (!value.document) return TDICT_JSON_ABSENT;
  const char *start = tdict_json_start(value);
  switch (*start) {
  case '{':
    return TDICT_JSON_OBJECT;
  case '[':
    return TDICT_JSON_ARRAY;
  case '"':
    return TDICT_JSON_STRING;
  case 't':
    return TDICT_JSON_TRUE;
  case 'f':
    return TDICT_JSON_FALSE;
  case 'n':
    return TDICT_JSON_NULL;
  default: {
    const char end = start[integer_bytes(start)];
    return end == '.' || end == 'e' || end == 'E' ? TDICT_JSON_REAL : TDICT_JSON_INTEGER;
  }
  }
}

size_t tdict_json_bytes(tdict_json value) {
  switch (tdict_json_kind_of(value)) {
  case TDICT_JSON_ABSENT:
    return 0;
  case TDICT_JSON_OBJECT:
  case TDICT_JSON_ARRAY:
    return value.document->ends[value.level].at - value.at;
  case TDICT_JSON_STRING:
    return tdict_json_string_bytes(tdict_json_start(value));
  case TDICT_JSON_FALSE:
    return strlen("false");
  case TDICT_JSON_NULL:
  case TDICT_JSON_TRUE:
    return strlen("true");
  default:
    return strspn(tdict_json_start(value), "+-.0123456789Ee");
  }
}

tdict_json_cursor tdict_json_enter(tdict_json value) {
  tdict_json_cursor cursor = {.is_object = tdict_json_is(value, TDICT_JSON_OBJECT)};
  if (cursor.is_object || tdict_json_is(value, TDICT_JSON_ARRAY))
    cursor.next = (tdict_json){value.document, value.at + 1, value.level + 1};
  return cursor;
}

/* Moves over white space and separators. */
static void skip_separators(tdict_json *at) {
  const char *start = tdict_json_start(*at);
  while (is_space(*start) || *start == ',' || *start == ':') start++;
  at->at = (uint32_t)(start - at->document->text);
}

static void skip_value(tdict_json *at) {
  const char first = *tdict_json_start(*at);
  const tdict_json value = *at;
  at->at += (uint32_t)tdict_json_bytes(value);
  if (first == '{' || first == '[') at->level = value.document->ends[value.level].next;
}

bool tdict_json_next(tdict_json_cursor *cursor, tdict_json *key, tdict_json *value) {
  if (key) *key = (tdict_json){0};
  if (!cursor->next.document) return false;
  skip_separators(&cursor->next);
  const char first = *tdict_json_start(cursor->next);
  if (first == '}' || first == ']') return false;
  if (cursor->is_object) {
    if (key) *key = cursor->next;
    skip_value(&cursor->next);
    skip_separators(&cursor->next);
  }
  *value = cursor->next;
  skip_value(&cursor->next);
  return true;
}

size_t tdict_json_count(tdict_json value) {
  tdict_json_cursor cursor = tdict_json_enter(value);
  size_t count = 0;
  while (tdict_json_next(&cursor, NULL, &value)) count++;
  return count;
}

tdict_json tdict_json_get(tdict_json object, const char *key) {
  tdict_json_cursor cursor = tdict_json_enter(object);
  tdict_json name, value;
  while (tdict_json_next(&cursor, &name, &value))
    if (tdict_json_equals(name, key)) return value;
  return (tdict_json){0};
}

tdict_json tdict_json_at(tdict_json array, size_t i) {
  tdict_json_cursor cursor = tdict_json_enter(array);
  tdict_json value;
  while (tdict_json_next(&cursor, NULL, &value))
    if (i-- == 0) return value;
  return (tdict_json){0};
}

bool tdict_json_integer(tdict_json value, int64_t *out) {
  if (!tdict_json_is(value, TDICT_JSON_INTEGER)) return false;
  const char *at = tdict_json_start(value);
  const bool is_negative = *at == '-';
  int64_t number = 0;
  for (at += is_negative; *at >= '0' && *at <= '9'; at++) {
    const int digit = is_negative ? '0' - *at : *at - '0';
    if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, digit, &number)) return false;
  }
  *out = number;
  return true;
}

bool tdict_json_real(tdict_json value, double *out) {
  const tdict_json_kind kind = tdict_json_kind_of(value);
  if (kind != TDICT_JSON_INTEGER && kind != TDICT_JSON_REAL) return false;
  /* glibc keeps this locale forever, so it needs no memory and no release. */
  const tdict_float_env saved = tdict_float_env_enter(); /* strtod_l() rounds as the environment says */
  const double number = strtod_l(tdict_json_start(value), NULL, newlocale(LC_ALL_MASK, "C", (locale_t)0));
  tdict_float_env_leave(&saved);
  if (!isfinite(number)) return false;
  *out = number;
  return true;
}

bool tdict_json_equals(tdict_json value, const char *text) {
  return tdict_json_is(value, TDICT_JSON_STRING) && tdict_json_string_compare_text(tdict_json_start(value), text) == 0;
}

bool tdict_json_read_text(tdict_json value, char *to, size_t bytes) {
  if (!tdict_json_is(value, TDICT_JSON_STRING) || tdict_json_string_has_zero(tdict_json_start(value))) return false;
  to[tdict_json_string_decode(tdict_json_start(value), to, bytes - 1)] = 0;
  return true;
}

static int compare_members(const void *a, const void *b) {
  const tdict_json_member *x = a, *y = b;
  return tdict_json_string_compare(tdict_json_start(x->key), tdict_json_start(y->key));
}

tdict_status tdict_json_table_make(tdict_json value, tdict_json_table *out) {
  const size_t most = tdict_json_count(value);
  tdict_json_cursor cursor = tdict_json_enter(value);
  tdict_json_table made = {0};
  tdict_json_member member;
  size_t bytes;
  if (!tdict_mul_size(most + 1, sizeof member, &bytes)) return TDICT_ENOMEM;
  made.members = malloc(bytes);
  if (!made.members) return TDICT_ENOMEM;
  while (tdict_json_next(&cursor, &member.key, &member.value)) {
    if (!tdict_json_exists(member.key)) member.key = member.value;
    if (tdict_json_is(member.key, TDICT_JSON_STRING)) made.members[made.count++] = member;
  }
  qsort(made.members, made.count, sizeof member, compare_members);
  *out = made;
  return TDICT_OK;
}

static int compare_key(const void *key, const void *member) {
  return -tdict_json_string_compare_text(tdict_json_start(((const tdict_json_member *)member)->key), key);
}

tdict_json tdict_json_table_find(const tdict_json_table *table, const char *key) {
  const tdict_json_member *found =
      table->count ? bsearch(key, table->members, table->count, sizeof *found, compare_key) : NULL;
  return found ? found->value : (tdict_json){0};
}
