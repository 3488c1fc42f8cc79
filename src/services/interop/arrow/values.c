/* Exports columns of text, JSON, numbers and bools as copies. Thread rule: as in tdict/arrow.h. */
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/tensor/tensor.h"
#include "services/interop/arrow/export.h"
#include "tdict/nontensor.h"

/* A column of values that is being exported. */
typedef struct column {
  const tdict_nontensor *values;
  bool is_single; /* one value for the whole tree, repeated in each row */
  int64_t num_rows, num_nulls;
  int64_t text_bytes;
} column;

static void read_row(const column *c, int64_t row, tdict_value *out) {
  (void)!tdict_nontensor_get(c->values, c->is_single ? 0 : row, out, NULL);
}

static bool has_text(int32_t kind) { return kind == TDICT_VALUE_TEXT || kind == TDICT_VALUE_JSON; }

/* Counts nulls and bytes of text. Writes the bit set of the kinds other than null to *kinds. */
static tdict_status measure(column *c, unsigned *kinds, tdict_error *err) {
  tdict_value value;
  int64_t length = 0;
  const int64_t count = c->is_single ? 1 : c->num_rows;
  *kinds = 0;
  for (int64_t i = 0; i < count; i++) {
    read_row(c, i, &value);
    if (value.kind == TDICT_VALUE_NULL) c->num_nulls++;
    if (value.kind != TDICT_VALUE_NULL) *kinds |= 1u << value.kind;
    if (has_text(value.kind)) length += (int64_t)value.length;
  }
  c->text_bytes = length;
  if (!c->is_single) return TDICT_OK;
  c->num_nulls *= c->num_rows;
  if (tdict_mul_i64(length, c->num_rows, &c->text_bytes)) return TDICT_OK;
  return tdict_fail(err, TDICT_EOVERFLOW, "arrow_export: the text, repeated in each row, does not fit 63 bits");
}

/* Returns the Arrow format for a set of kinds, or NULL if no Arrow format can hold all these kinds. */
static const char *choose_format(const column *c, unsigned kinds) {
  const unsigned integer = 1u << TDICT_VALUE_INTEGER, real = 1u << TDICT_VALUE_REAL;
  const unsigned text = 1u << TDICT_VALUE_TEXT | 1u << TDICT_VALUE_JSON;
  if (kinds == 0) return "n";
  if (kinds == 1u << TDICT_VALUE_BOOL) return "b";
  if (kinds == integer) return "l";
  if ((kinds & ~(integer | real)) == 0) return "g";
  if ((kinds & ~text) == 0) return c->text_bytes > INT32_MAX ? "U" : "u";
  return NULL;
}

/* If there are nulls, sets the validity bitmap. Its bits are 1 for rows that are not null. */
static tdict_status set_validity(tdict_arrow_exporter *e, const column *c, const tdict_arrow_node *node,
                                 tdict_error *err) {
  tdict_tensor *bits;
  tdict_value value;
  if (c->num_nulls == 0) return TDICT_OK;
  tdict_status status = tdict_arrow_make_bits(c->num_rows, &bits, err);
  if (status != TDICT_OK) return status;
  for (int64_t i = 0; i < c->num_rows; i++) {
    read_row(c, i, &value);
    if (value.kind != TDICT_VALUE_NULL) ((uint8_t *)bits->data)[i / 8] |= (uint8_t)(1u << i % 8);
  }
  return tdict_arrow_export_place(e, node, 0, bits, err);
}

/* Writes a number to element `i`. Returns false if the column is float64, which cannot hold the integer exactly. */
static bool write_number(const tdict_value *value, char type, void *data, int64_t i) {
  const double real = value->kind == TDICT_VALUE_INTEGER ? (double)value->integer : value->real;
  if (type == 'b') {
    if (value->integer) ((uint8_t *)data)[i / 8] |= (uint8_t)(1u << i % 8);
  } else if (type == 'l') {
    ((int64_t *)data)[i] = value->integer;
  } else {
    ((double *)data)[i] = real;
    /* 2^63 does not fit int64_t, so compare before the conversion. */
    return value->kind != TDICT_VALUE_INTEGER || (real < 0x1p63 && (int64_t)real == value->integer);
  }
  return true;
}

static tdict_status set_numbers(tdict_arrow_exporter *e, const column *c, char type, const tdict_arrow_node *node,
                                tdict_error *err) {
  tdict_tensor *data;
  tdict_value value;
  tdict_status status =
      type == 'b' ? tdict_arrow_make_bits(c->num_rows, &data, err)
                  : tdict_tensor_zeros(type == 'l' ? TDICT_I64 : TDICT_F64, 1, &c->num_rows, NULL, &data, err);
  if (status != TDICT_OK) return status;
  for (int64_t i = 0; i < c->num_rows; i++) {
    read_row(c, i, &value);
    if (write_number(&value, type, data->data, i)) continue;
    tdict_tensor_release(data);
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: value %lld is %lld, which float64 cannot hold, in a column of reals",
                      e->what, (long long)i, (long long)value.integer);
  }
  return tdict_arrow_export_place(e, node, 1, data, err);
}

static tdict_status set_texts(tdict_arrow_exporter *e, const column *c, bool is_large, const tdict_arrow_node *node,
                              tdict_error *err) {
  const int64_t count = c->num_rows + 1;
  tdict_tensor *offsets, *text;
  tdict_value value;
  int64_t used = 0;
  tdict_status status = tdict_tensor_zeros(is_large ? TDICT_I64 : TDICT_I32, 1, &count, NULL, &offsets, err);
  if (status != TDICT_OK) return status;
  status = tdict_tensor_empty(TDICT_U8, 1, &c->text_bytes, NULL, &text, err);
  if (status != TDICT_OK) {
    tdict_tensor_release(offsets);
    return status;
  }
  for (int64_t i = 0; i < c->num_rows; i++) {
    read_row(c, i, &value);
    if (has_text(value.kind) && value.length) {
      memcpy((char *)text->data + used, value.text, value.length);
      used += (int64_t)value.length;
    }
    if (is_large)
      ((int64_t *)offsets->data)[i + 1] = used;
    else
      ((int32_t *)offsets->data)[i + 1] = (int32_t)used;
  }
  status = tdict_arrow_export_place(e, node, 1, offsets, err);
  if (status == TDICT_OK) return tdict_arrow_export_place(e, node, 2, text, err);
  tdict_tensor_release(text);
  return status;
}

tdict_status tdict_arrow_export_values(tdict_arrow_exporter *e, const void *values, const char *name,
                                       const tdict_arrow_node *node, tdict_error *err) {
  const int64_t *shape;
  const int ndim = tdict_nontensor_shape(values, &shape);
  column c = {.values = values, .is_single = ndim == 0, .num_rows = e->num_rows};
  unsigned kinds;
  if (ndim > 1)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: the column of values has %d dimensions, wanted one", e->what, ndim);
  if (ndim == 1 && shape[0] != e->num_rows)
    return tdict_fail(err, TDICT_ESHAPE, "%s: the column has %lld values, but the tree has %lld rows", e->what,
                      (long long)shape[0], (long long)e->num_rows);
  tdict_status status = measure(&c, &kinds, err);
  if (status != TDICT_OK) return status;
  const char *format = choose_format(&c, kinds);
  if (!format)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: the column mixes values of kinds that no type of Arrow holds", e->what);
  const int num_buffers = *format == 'n' ? 0 : *format == 'u' || *format == 'U' ? 3 : 2;
  const tdict_arrow_field field = {format, name, c.num_rows, 0, num_buffers, 0};
  status = tdict_arrow_node_make(node, &field, err);
  if (status != TDICT_OK) return status;
  node->array->null_count = *format == 'n' ? c.num_rows : c.num_nulls;
  if (*format == 'n') return TDICT_OK;
  status = set_validity(e, &c, node, err);
  if (status != TDICT_OK) return status;
  return num_buffers == 3 ? set_texts(e, &c, *format == 'U', node, err) : set_numbers(e, &c, *format, node, err);
}
