/* Sets and returns text, numbers and JSON at paths. Checks values before copies. Thread rule: as in tdict/tree.h. */
#include <string.h>

#include "core/base/error.h"
#include "core/leaves/json.h"
#include "core/leaves/nontensor.h"
#include "core/tensor/layout.h"
#include "core/tree/objects.h"
#include "core/tree/place.h"

enum { NAME_BYTES = 40 }; /* buffer size for a text such as "value 5: " in a message */

/* Checks the text of a value. `name` is the part of the message that says which value is wrong. */
static tdict_status check_text(const char *what, const char *name, const tdict_value *value, tdict_error *err) {
  tdict_json_fault fault;
  if (!value->text) return tdict_fail(err, TDICT_EINVAL, "%s: %sthe text is NULL", what, name);
  if (value->kind == TDICT_VALUE_JSON) {
    if (tdict_json_is_valid(value->text, value->length, &fault)) return TDICT_OK;
    return tdict_fail(err, TDICT_EINVAL, "%s: %snot JSON at byte %zu: %s", what, name, fault.at, fault.why);
  }
  const size_t valid = tdict_utf8_length(value->text, value->length);
  if (valid == value->length) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: %snot UTF-8 at byte %zu", what, name, valid);
}

static tdict_status check_value(const char *what, const char *name, const tdict_value *value, tdict_error *err) {
  switch (value->kind) {
  case TDICT_VALUE_NULL:
  case TDICT_VALUE_INTEGER:
  case TDICT_VALUE_REAL:
    return TDICT_OK;
  case TDICT_VALUE_BOOL:
    if (value->integer == 0 || value->integer == 1) return TDICT_OK;
    return tdict_fail(err, TDICT_EINVAL, "%s: %sthe bool is %lld, wanted 0 or 1", what, name,
                      (long long)value->integer);
  case TDICT_VALUE_TEXT:
  case TDICT_VALUE_JSON:
    return check_text(what, name, value, err);
  default:
    return tdict_fail(err, TDICT_EINVAL, "%s: %sthe kind is %d, wanted a tdict_value_kind", what, name,
                      (int)value->kind);
  }
}

/* The values to set: an array of values or of texts. */
typedef struct given {
  const tdict_value *values;
  const char *const *texts;
  int ndim; /* 0: one value for the whole tree */
  const int64_t *shape;
} given;

static void read_given(void *user, int64_t k, tdict_value *out) {
  const given *g = user;
  const char *text = g->texts ? g->texts[k] : NULL;
  if (g->values) {
    const tdict_value *value = &g->values[k];
    /* Copy only the members that the kind uses, since the caller may leave the other members uninitialized. */
    memset(out, 0, sizeof *out);
    out->kind = value->kind;
    if (value->kind == TDICT_VALUE_BOOL || value->kind == TDICT_VALUE_INTEGER) out->integer = value->integer;
    if (value->kind == TDICT_VALUE_REAL) out->real = value->real;
    if (value->kind != TDICT_VALUE_TEXT && value->kind != TDICT_VALUE_JSON) return;
    out->text = value->text;
    out->length = value->length;
    return;
  }
  *out = (tdict_value){.kind = text ? TDICT_VALUE_TEXT : TDICT_VALUE_NULL, .text = text};
  if (text) out->length = strlen(text);
}

/* Makes an object of the given values and sets the object at the path. */
static tdict_status set_given(const char *what, tdict_tree *tree, const char *path, given *g, tdict_error *err) {
  tdict_nontensor *made = NULL;
  tdict_status status = tdict_nontensor_create(g->ndim, g->shape, read_given, g, &made, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, path);
  return tdict_object_set(what, tree, path, tdict_nontensor_type(), made, err);
}

static tdict_status set_one(const char *what, tdict_tree *tree, const char *path, const tdict_value *value,
                            tdict_error *err) {
  given g = {.values = value};
  tdict_status status = check_value(what, "", value, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, path);
  return set_given(what, tree, path, &g, err);
}

/* Sets a column of values. If no shape is given, the shape is the batch size of the tree that will hold the leaf. */
static tdict_status set_column(const char *what, tdict_tree *tree, const char *path, given *g, size_t count,
                               tdict_error *err) {
  tdict_place place;
  char name[NAME_BYTES];
  tdict_status status = tdict_place_find(&place, tree, path, what, err);
  if (status != TDICT_OK) return status;
  /* Trees that are created on the path have the batch size of this node. */
  const tdict_tree *node = place.node;
  tdict_place_reset(&place);
  if (!g->shape) g->ndim = node->batch_ndim, g->shape = node->batch_size;
  int64_t elements;
  const bool fits = tdict_layout_count(g->ndim, g->shape, &elements);
  if (!fits || (uint64_t)elements != count)
    return tdict_fail_at(err, TDICT_ESHAPE, path, "%s: %zu values, but the tree has %s%lld elements", what, count,
                         fits ? "" : "more than ", (long long)elements);
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    tdict_value value;
    read_given(g, (int64_t)i, &value);
    snprintf(name, sizeof name, "value %zu: ", i);
    status = check_value(what, name, &value, err);
  }
  return status == TDICT_OK ? set_given(what, tree, path, g, err) : tdict_error_at(err, status, path);
}

tdict_status tdict_set_text(tdict_tree *tree, const char *path, const char *text, tdict_error *err) {
  static const char what[] = "set_text";
  if (!tree || !path || !text) return tdict_fail_null_at(err, what, path, !tree ? "tree" : !path ? "path" : "text");
  const tdict_value value = {.kind = TDICT_VALUE_TEXT, .text = text, .length = strlen(text)};
  return set_one(what, tree, path, &value, err);
}

tdict_status tdict_set_values(tdict_tree *tree, const char *path, const tdict_value *values, size_t count,
                              tdict_error *err) {
  static const char what[] = "set_values";
  given g = {.values = values};
  if (!tree || !path || (!values && count))
    return tdict_fail_null_at(err, what, path, !tree ? "tree" : !path ? "path" : "values");
  return count == TDICT_WHOLE_TREE ? set_one(what, tree, path, values, err)
                                   : set_column(what, tree, path, &g, count, err);
}

tdict_status tdict_nontensor_set(tdict_tree *tree, const char *path, const tdict_value *values, int ndim,
                                 const int64_t *shape, tdict_error *err) {
  given g = {.values = values, .ndim = ndim, .shape = shape};
  size_t count = 1;
  for (int i = 0; i < ndim; i++) count *= (size_t)shape[i];
  return set_column("set_values", tree, path, &g, count, err);
}

tdict_status tdict_set_texts(tdict_tree *tree, const char *path, const char *const *texts, size_t count,
                             tdict_error *err) {
  static const char what[] = "set_texts";
  given g = {.texts = texts};
  if (!tree || !path || (!texts && count))
    return tdict_fail_null_at(err, what, path, !tree ? "tree" : !path ? "path" : "texts");
  return set_column(what, tree, path, &g, count, err);
}

/* Returns the value of element `i`. If `i` is -1, returns the value for the whole tree. */
static tdict_status get_at(const char *what, const tdict_tree *tree, const char *path, int64_t i, tdict_value *out,
                           tdict_error *err) {
  void *object = NULL;
  const int64_t *shape;
  tdict_place place;
  tdict_status status = tdict_object_get(what, tree, path, tdict_nontensor_type(), &object, err);
  if (status == TDICT_OK) status = tdict_place_get(&place, tree, path, what, err);
  if (status != TDICT_OK) return status;
  int ndim = tdict_nontensor_shape(object, &shape);
  const bool is_column = ndim > 0, is_whole = i == -1 && !is_column;
  if (i == -1 && is_column) {
    tdict_place_reset(&place);
    return tdict_fail_at(err, TDICT_ESHAPE, path,
                         "%s: found a column of values, wanted one value; pass the position of an "
                         "element instead of -1",
                         what);
  }
  if (!is_column) {
    ndim = place.node->batch_ndim;
    shape = place.node->batch_size;
  }
  /* The number of elements can overflow if the value is not a column. Every `i` is in range then. */
  int64_t elements;
  const bool is_in_range = i >= 0 && (!tdict_layout_count(ndim, shape, &elements) || i < elements);
  tdict_place_reset(&place);
  if (is_in_range || is_whole) return tdict_nontensor_get(object, is_column ? i : 0, out, err);
  return tdict_fail_at(err, TDICT_EINVAL, path, "%s: element %lld does not exist", what, (long long)i);
}

static tdict_status take_text(const char *what, const char *path, const tdict_value *value, const char **text,
                              tdict_error *err) {
  static const char *const names[] = {"null", "a bool", "an integer", "a real"};
  if (value->text) {
    *text = value->text;
    return TDICT_OK;
  }
  return tdict_fail_at(err, TDICT_ETYPE, path, "%s: found %s, wanted text or JSON", what, names[value->kind]);
}

/* Returns the name of the first argument that is NULL. Returns NULL if all arguments are given. */
static const char *missing(const void *tree, const void *path, const void *out, const char *out_name) {
  return !tree ? "tree" : !path ? "path" : !out ? out_name : NULL;
}

tdict_status tdict_get_value(const tdict_tree *tree, const char *path, int64_t i, tdict_value *out, tdict_error *err) {
  const char *name = missing(tree, path, out, "out");
  return name ? tdict_fail_null(err, "get_value", name) : get_at("get_value", tree, path, i, out, err);
}

tdict_status tdict_get_text(const tdict_tree *tree, const char *path, int64_t i, const char **text, size_t *length,
                            tdict_error *err) {
  tdict_value value;
  const char *name = missing(tree, path, text, "text");
  if (name) return tdict_fail_null(err, "get_text", name);
  tdict_status status = get_at("get_text", tree, path, i, &value, err);
  if (status == TDICT_OK) status = take_text("get_text", path, &value, text, err);
  if (status == TDICT_OK && length) *length = value.length;
  return status;
}
