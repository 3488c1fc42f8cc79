/* Implements the table of Arrow's types, and the path of a field. Thread-safe. */
#include "services/interop/arrow/type.h"

#include <string.h>

#include "core/base/error.h"
#include "tdict/path.h"

static const struct {
  const char *format;
  tdict_arrow_type type;
} known[] = {
    {"c", {TDICT_ARROW_NUMBER, TDICT_I8, 0, 2}},  {"C", {TDICT_ARROW_NUMBER, TDICT_U8, 0, 2}},
    {"s", {TDICT_ARROW_NUMBER, TDICT_I16, 0, 2}}, {"S", {TDICT_ARROW_NUMBER, TDICT_U16, 0, 2}},
    {"i", {TDICT_ARROW_NUMBER, TDICT_I32, 0, 2}}, {"I", {TDICT_ARROW_NUMBER, TDICT_U32, 0, 2}},
    {"l", {TDICT_ARROW_NUMBER, TDICT_I64, 0, 2}}, {"L", {TDICT_ARROW_NUMBER, TDICT_U64, 0, 2}},
    {"e", {TDICT_ARROW_NUMBER, TDICT_F16, 0, 2}}, {"f", {TDICT_ARROW_NUMBER, TDICT_F32, 0, 2}},
    {"g", {TDICT_ARROW_NUMBER, TDICT_F64, 0, 2}}, {"b", {TDICT_ARROW_BOOL, TDICT_BOOL, 0, 2}},
    {"u", {TDICT_ARROW_TEXT, TDICT_I32, 0, 3}},   {"U", {TDICT_ARROW_TEXT, TDICT_I64, 0, 3}},
    {"+l", {TDICT_ARROW_LIST, TDICT_I32, 0, 2}},  {"+L", {TDICT_ARROW_LIST, TDICT_I64, 0, 2}},
    {"+s", {TDICT_ARROW_STRUCT, 0, 0, 1}},        {"n", {TDICT_ARROW_NULL, 0, 0, 0}},
};

/* The prefixes of Arrow's other formats, with the names of the types. */
static const struct {
  const char *begin, *name;
} refused[] = {
    {"z", "binary"},
    {"Z", "large binary"},
    {"vz", "binary view"},
    {"vu", "utf8 view"},
    {"d:", "decimal"},
    {"w:", "fixed-size binary"},
    {"td", "date"},
    {"tt", "time"},
    {"ts", "timestamp"},
    {"tD", "duration"},
    {"ti", "interval"},
    {"+vl", "list view"},
    {"+vL", "large list view"},
    {"+m", "map"},
    {"+ud", "dense union"},
    {"+us", "sparse union"},
    {"+r", "run-end encoded"},
};

/* Reads the digits after "+w:". Returns false for other text and above INT32_MAX, which Arrow does not allow. */
static bool read_list_size(const char *digits, int64_t *out) {
  int64_t size = 0;
  if (!*digits) return false;
  for (; *digits; digits++) {
    if (*digits < '0' || *digits > '9') return false;
    size = size * 10 + (*digits - '0');
    if (size > INT32_MAX) return false;
  }
  *out = size;
  return true;
}

tdict_status tdict_arrow_type_read(const char *what, const struct ArrowSchema *schema, tdict_arrow_type *out,
                                   tdict_error *err) {
  const char *format = schema->format;
  if (!format) return tdict_fail(err, TDICT_EFORMAT, "%s: the format of the schema is NULL", what);
  if (schema->dictionary)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: the array is dictionary-encoded; decode the array first", what);
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strcmp(format, known[i].format) == 0) {
      *out = known[i].type;
      return TDICT_OK;
    }
  *out = (tdict_arrow_type){TDICT_ARROW_FIXED_LIST, 0, 0, 1};
  if (strncmp(format, "+w:", 3) == 0 && read_list_size(format + 3, &out->size)) return TDICT_OK;
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
    if (strncmp(format, refused[i].begin, strlen(refused[i].begin)) == 0)
      return tdict_fail(err, TDICT_ENOTSUP, "%s: the Arrow type %s (format '%.20s') has no counterpart in a tree", what,
                        refused[i].name, format);
  return tdict_fail(err, TDICT_EFORMAT, "%s: '%.20s' is not an Arrow format", what, format);
}

const char *tdict_arrow_format(tdict_dtype dtype) {
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (known[i].type.kind <= TDICT_ARROW_BOOL && known[i].type.dtype == dtype) return known[i].format;
  return NULL;
}

tdict_status tdict_arrow_path_push(tdict_io_text *path, const char *key, tdict_error *err) {
  const size_t dot = path->length != 0, bytes = tdict_path_escape(key, NULL, 0);
  char *to = tdict_io_text_reserve(path, dot + bytes);
  if (!to) return tdict_fail_memory(err, "arrow", NULL, "a path of %zu bytes", path->length + bytes);
  if (dot) *to = '.';
  tdict_path_escape(key, to + dot, bytes + 1);
  path->length += dot + bytes;
  return TDICT_OK;
}
