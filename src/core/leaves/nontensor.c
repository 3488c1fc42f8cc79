/* Implements the built-in type of text, numbers and JSON: arrays of values that never change. Each value has a cell of
 * 16 bytes. All text is in one buffer after the cells. See nontensor.h for ownership and threads. */
#include "core/leaves/nontensor.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/tensor/layout.h"
#include "core/tree/objects.h"

/* TEXT_BYTES: size of the buffer for a value in a message. MOST_SHOWN: maximum number of text bytes in a message. */
enum { TEXT_BYTES = 96, MOST_SHOWN = 40 };

typedef struct cell {
  uint64_t content;         /* the bits of the number, or the offset of the text */
  uint64_t length_and_kind; /* the length of the text * 8 + a tdict_value_kind */
} cell;
struct tdict_nontensor {
  int32_t ndim;
  int64_t count;
  size_t text_bytes;
  cell *cells;     /* `count` cells, after the shape; the text follows */
  int64_t shape[]; /* `ndim` sizes */
};

static char *text_of(const tdict_nontensor *values) { return (char *)(values->cells + values->count); }

static bool has_text(const tdict_value *value) {
  return value->kind == TDICT_VALUE_TEXT || value->kind == TDICT_VALUE_JSON;
}

static void read_cell(const tdict_nontensor *values, int64_t i, tdict_value *out) {
  const cell *c = &values->cells[i];
  memset(out, 0, sizeof *out);
  out->kind = (int32_t)(c->length_and_kind % 8);
  if (has_text(out)) {
    out->text = text_of(values) + c->content;
    out->length = (size_t)(c->length_and_kind / 8);
  } else if (out->kind == TDICT_VALUE_REAL) {
    memcpy(&out->real, &c->content, sizeof out->real);
  } else {
    out->integer = (int64_t)c->content;
  }
}

/* The text that was read last. Successive values with the same pointer and length share the bytes of one text. */
typedef struct last_text {
  const char *text;
  size_t length, offset;
} last_text;

static bool is_last_text(const last_text *last, const tdict_value *value) {
  return last->text && value->text == last->text && value->length == last->length;
}

/* Adds the size of a text and its 0 to *bytes, unless it is the text that was read last. Returns false on overflow. */
static bool measure_text(const tdict_value *value, last_text *last, size_t *bytes) {
  size_t sum;
  if (!has_text(value) || is_last_text(last, value)) return true;
  *last = (last_text){value->text, value->length, *bytes};
  if (value->length > SIZE_MAX / 16 || !tdict_add_size(*bytes, value->length + 1, &sum)) return false;
  *bytes = sum;
  return true;
}

/* Writes one value. `text` is the buffer of all texts. *used is the number of bytes in use in the buffer. */
static void write_cell(const tdict_value *value, last_text *last, char *text, size_t *used, cell *to) {
  *to = (cell){(uint64_t)value->integer, (uint64_t)value->kind};
  if (value->kind == TDICT_VALUE_REAL) memcpy(&to->content, &value->real, sizeof value->real);
  if (!has_text(value)) return;
  if (!is_last_text(last, value)) {
    *last = (last_text){value->text, value->length, *used};
    if (value->length) memcpy(text + *used, value->text, value->length);
    text[*used + value->length] = 0;
    *used += value->length + 1;
  }
  *to = (cell){last->offset, (uint64_t)value->length * 8 + (uint64_t)value->kind};
}

tdict_status tdict_nontensor_create(int ndim, const int64_t *shape, tdict_value_source read, void *user,
                                    tdict_nontensor **out, tdict_error *err) {
  int64_t count;
  size_t text_bytes = 0, used = 0, bytes = 0;
  last_text last = {NULL, 0, 0};
  tdict_value value;
  if (ndim > TDICT_MAX_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "values: %d dimensions, wanted at most %d", ndim, TDICT_MAX_NDIM);
  /* Measure. */
  bool fits = tdict_layout_count(ndim, shape, &count) && (uint64_t)count <= SIZE_MAX / sizeof(cell) / 2;
  for (int64_t k = 0; k < count && fits; k++) {
    read(user, k, &value);
    fits = measure_text(&value, &last, &text_bytes);
  }
  const size_t header = sizeof(tdict_nontensor) + (size_t)ndim * sizeof *shape;
  fits = fits && tdict_add_size(header + (size_t)count * sizeof(cell), text_bytes, &bytes);
  if (!fits) return tdict_fail(err, TDICT_EOVERFLOW, "values: their bytes do not fit in memory");
  tdict_nontensor *made = malloc(bytes);
  if (!made) return tdict_fail_memory(err, "values", NULL, "%zu bytes", bytes);
  *made = (tdict_nontensor){ndim, count, text_bytes, (cell *)(void *)((char *)made + header)};
  for (int i = 0; i < ndim; i++) made->shape[i] = shape[i];
  /* Copy the values. */
  last.text = NULL;
  for (int64_t k = 0; k < count; k++) {
    read(user, k, &value);
    write_cell(&value, &last, text_of(made), &used, &made->cells[k]);
  }
  *out = made;
  return TDICT_OK;
}

int tdict_nontensor_shape(const tdict_nontensor *values, const int64_t **shape) {
  if (shape) *shape = values->shape;
  return values->ndim;
}

tdict_status tdict_nontensor_get(const tdict_nontensor *values, int64_t i, tdict_value *out, tdict_error *err) {
  if (!values || !out) return tdict_fail_null(err, "nontensor_get", values ? "out" : "values");
  if (i < 0 || i >= values->count)
    return tdict_fail(err, TDICT_EINVAL, "nontensor_get: value %lld of %lld does not exist", (long long)i,
                      (long long)values->count);
  read_cell(values, i, out);
  return TDICT_OK;
}

static void release_values(void *self) { free(self); }

static int count_batch_dims(const void *self, const int64_t **sizes) { return tdict_nontensor_shape(self, sizes); }

/* The values do not change, so a deep copy shares the object. */
static tdict_status share_values(const void *self, void **out, tdict_error *err) {
  (void)err;
  *out = (void *)(uintptr_t)self;
  return TDICT_OK;
}

static size_t count_bytes(const void *self) {
  const tdict_nontensor *values = self;
  return (size_t)values->count * sizeof(cell) + values->text_bytes;
}

/* The state of an arrangement, which copies a block of `block` values for each entry of `at`. */
typedef struct arranger {
  const tdict_nontensor *from;
  const int64_t *at;
  int64_t block; /* number of values in a block */
} arranger;

static void read_arranged(void *user, int64_t k, tdict_value *out) {
  const arranger *a = user;
  read_cell(a->from, a->at[k / a->block] * a->block + k % a->block, out);
}

static tdict_status arrange_values(const void *self, const tdict_arrangement *to, tdict_leaf *out, tdict_error *err) {
  const tdict_nontensor *from = self;
  int64_t shape[2 * TDICT_MAX_NDIM];
  arranger a = {from, to->at, 1};
  tdict_nontensor *made = NULL;
  tdict_box *box = NULL;
  int ndim = 0;
  for (int i = 0; i < to->ndim; i++) shape[ndim++] = to->shape[i];
  for (int i = to->dims_in; i < from->ndim; i++) {
    shape[ndim++] = from->shape[i];
    a.block *= from->shape[i];
  }
  tdict_status status = tdict_nontensor_create(ndim, shape, read_arranged, &a, &made, err);
  if (status == TDICT_OK) status = tdict_box_give(tdict_nontensor_type(), made, &box, err);
  if (status == TDICT_OK) *out = tdict_leaf_of_box(box);
  return status;
}

/* The state of a join of objects, the parts. Values are read in C order of the result, so the search for the part of a
 * value begins at the part of the previous value. */
typedef struct joiner {
  const tdict_nontensor *const *parts;
  const tdict_joining *how;
  /* inner: product of the sizes after the joined dimension; length: size of the joined dimension in the result */
  int64_t inner, length;
  size_t part;
  int64_t begin; /* index of the first element of `part` in the joined dimension */
} joiner;

/* Returns the size of a part in the joined dimension. A value for a whole tree counts once for each element. */
static int64_t part_length(const joiner *j, size_t part) {
  const tdict_joining *how = j->how;
  if (how->is_stack) return 1;
  return j->parts[part]->ndim ? j->parts[part]->shape[how->dim] : how->items[part]->batch_size[how->dim];
}

/* Writes the shape that a part has in the join. A value for a whole tree has the shape of the tree. */
static int find_part_shape(const joiner *j, size_t part, int64_t *shape) {
  const tdict_nontensor *values = j->parts[part];
  const tdict_tree *node = j->how->node;
  int ndim = 0;
  if (values->ndim) memcpy(shape, values->shape, (size_t)values->ndim * sizeof *shape);
  if (values->ndim) return values->ndim;
  for (int i = 0; i < node->batch_ndim; i++)
    if (i != j->how->dim)
      shape[ndim++] = node->batch_size[i];
    else if (!j->how->is_stack)
      shape[ndim++] = part_length(j, part);
  return ndim;
}

static void read_joined(void *user, int64_t k, tdict_value *out) {
  joiner *j = user;
  const int64_t outer = k / (j->inner * j->length), index = k / j->inner % j->length;
  if (index < j->begin) j->part = 0, j->begin = 0;
  for (; index >= j->begin + part_length(j, j->part); j->part++) j->begin += part_length(j, j->part);
  const int64_t row = outer * part_length(j, j->part) + index - j->begin;
  read_cell(j->parts[j->part], j->parts[j->part]->ndim ? row * j->inner + k % j->inner : 0, out);
}

/* Checks that all parts have the same shape. For cat, the size of the joined dimension may differ. */
static tdict_status check_parts(const joiner *j, size_t count, int ndim, const int64_t *shape, tdict_error *err) {
  int64_t other[TDICT_MAX_NDIM];
  for (size_t i = 0; i < count; i++) {
    const int other_ndim = find_part_shape(j, i, other);
    bool is_equal = other_ndim == ndim && (j->how->is_stack || j->how->dim < ndim);
    for (int d = 0; is_equal && d < ndim; d++)
      is_equal = other[d] == shape[d] || (!j->how->is_stack && d == j->how->dim);
    if (is_equal) continue;
    return tdict_fail(err, TDICT_ESHAPE, "%s: the values have shape %s in tree %zu, but %s in tree 0",
                      j->how->is_stack ? "stack" : "cat", TDICT_SHAPE_TEXT(other_ndim, other), i,
                      TDICT_SHAPE_TEXT(ndim, shape));
  }
  return TDICT_OK;
}

static bool are_equal(const void *first, const void *second, char *message, size_t bytes);

/* Returns true if every part is the same value for a whole tree. */
static bool are_same_for_all(const tdict_nontensor *const *parts, size_t count) {
  char unused[TEXT_BYTES];
  bool is_equal = parts[0]->ndim == 0;
  for (size_t i = 1; is_equal && i < count; i++) is_equal = are_equal(parts[0], parts[i], unused, sizeof unused);
  return is_equal;
}

static tdict_status join_values(const void *const *items, size_t count, const tdict_joining *how, void **out,
                                tdict_error *err) {
  joiner j = {.parts = (const tdict_nontensor *const *)items, .how = how, .inner = 1};
  const int is_stack = how->is_stack, dim = how->dim;
  int64_t first[TDICT_MAX_NDIM], shape[TDICT_MAX_NDIM + 1];
  tdict_nontensor *made = NULL;
  if (!is_stack && are_same_for_all(j.parts, count)) {
    *out = (void *)(uintptr_t)items[0];
    return TDICT_OK;
  }
  const int ndim = find_part_shape(&j, 0, first);
  tdict_status status = check_parts(&j, count, ndim, first, err);
  if (status != TDICT_OK) return status;
  for (int i = 0; i < ndim; i++) shape[i + (is_stack && i >= dim)] = first[i];
  for (size_t i = 0; i < count; i++) j.length += part_length(&j, i);
  shape[dim] = j.length;
  for (int i = dim + 1; i < ndim + is_stack; i++) j.inner *= shape[i];
  status = tdict_nontensor_create(ndim + is_stack, shape, read_joined, &j, &made, err);
  if (status == TDICT_OK) *out = made;
  return status;
}

/* Writes the kind and the text of a value, up to a NUL byte. Cuts a long text at the end of a character. */
static void format_text(const tdict_value *value, const char *kind, const char *quote, char *buffer, size_t bytes) {
  size_t length = value->length < MOST_SHOWN ? value->length : MOST_SHOWN;
  const char *nul = memchr(value->text, 0, length);
  if (nul) length = (size_t)(nul - value->text);
  while (length < value->length && ((unsigned char)value->text[length] & 0xc0) == 0x80) length--;
  snprintf(buffer, bytes, "%s %s%.*s%s%s", kind, quote, (int)length, value->text, length < value->length ? "..." : "",
           quote);
}

static void format_value(const tdict_value *value, char buffer[TEXT_BYTES]) {
  switch (value->kind) {
  case TDICT_VALUE_BOOL:
    snprintf(buffer, TEXT_BYTES, "%s", value->integer ? "true" : "false");
    break;
  case TDICT_VALUE_INTEGER:
    snprintf(buffer, TEXT_BYTES, "integer %lld", (long long)value->integer);
    break;
  case TDICT_VALUE_REAL:
    snprintf(buffer, TEXT_BYTES, "real %.17g", value->real);
    break;
  case TDICT_VALUE_TEXT:
    format_text(value, "text", "\"", buffer, TEXT_BYTES);
    break;
  case TDICT_VALUE_JSON:
    format_text(value, "json", "", buffer, TEXT_BYTES);
    break;
  default:
    snprintf(buffer, TEXT_BYTES, "null");
  }
}

static size_t print_values(const void *self, char *buffer, size_t bytes) {
  const tdict_nontensor *values = self;
  char text[TEXT_BYTES];
  tdict_value value;
  if (values->ndim) {
    tdict_text_shape(values->ndim, values->shape, text, sizeof text);
    return (size_t)snprintf(buffer, bytes, "values %s", text);
  }
  read_cell(values, 0, &value);
  format_value(&value, text);
  return (size_t)snprintf(buffer, bytes, "%s", text);
}

/* Compares numbers by their bits, so that a NaN equals itself. */
static bool are_same(const tdict_value *a, const tdict_value *b) {
  uint64_t x, y;
  memcpy(&x, &a->real, sizeof x);
  memcpy(&y, &b->real, sizeof y);
  if (a->kind != b->kind || a->integer != b->integer || x != y || a->length != b->length) return false;
  return !has_text(a) || memcmp(a->text, b->text, a->length) == 0;
}

/* Returns the index of value `i` of a column as a text such as "[1, 2]". Returns "" for a single value. */
static const char *format_index(const tdict_nontensor *values, int64_t i, char *buffer, size_t bytes) {
  int64_t index[TDICT_MAX_NDIM] = {0};
  if (values->ndim == 0) return "";
  for (int d = values->ndim - 1; d >= 0; i /= values->shape[d--]) index[d] = i % values->shape[d];
  return tdict_text_shape(values->ndim, index, buffer, bytes);
}

static bool are_equal(const void *first, const void *second, char *message, size_t bytes) {
  const tdict_nontensor *a = first, *b = second;
  char x_text[TEXT_BYTES], y_text[TEXT_BYTES], index[TEXT_BYTES / 2];
  tdict_value x, y;
  if (!tdict_shapes_equal(a->ndim, a->shape, b->ndim, b->shape)) {
    snprintf(message, bytes, "values of shape %s and %s", TDICT_SHAPE_TEXT(a->ndim, a->shape),
             TDICT_SHAPE_TEXT(b->ndim, b->shape));
    return false;
  }
  for (int64_t i = 0; i < a->count; i++) {
    read_cell(a, i, &x);
    read_cell(b, i, &y);
    if (are_same(&x, &y)) continue;
    format_value(&x, x_text);
    format_value(&y, y_text);
    snprintf(message, bytes, "value%s%s: %s and %s", a->ndim ? " " : "", format_index(a, i, index, sizeof index),
             x_text, y_text);
    return false;
  }
  return true;
}

const tdict_builtin tdict_nontensor_builtin = {.type = {.struct_size = sizeof(tdict_builtin),
                                                        .name = "nontensor",
                                                        .release = release_values,
                                                        .clone = share_values,
                                                        .bytes = count_bytes,
                                                        .print = print_values},
                                               .mark = &tdict_builtin_mark,
                                               .batch = count_batch_dims,
                                               .equal = are_equal,
                                               .arrange = arrange_values,
                                               .join = join_values,
                                               .setter = "tdict_set_values() or tdict_set_texts()"};

const tdict_type *tdict_nontensor_type(void) { return &tdict_nontensor_builtin.type; }
