/* Reads elements of tensors in C order. See elements.h. */
#include "tdict/convert.h"
#include "tdict/view.h"

#include "elements.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

tdict_status elements_flatten(const tdict_tensor *tensor, tdict_tensor **flat, tdict_error *err) {
  const int64_t count = tdict_tensor_numel(tensor);
  tdict_tensor *dense = NULL;
  tdict_status status = tdict_tensor_contiguous(tensor, &dense, err);
  if (status == TDICT_OK) status = tdict_tensor_reshape(dense, 1, &count, flat, err);
  tdict_tensor_release(dense);
  return status;
}

tdict_status elements_chunk(const tdict_tensor *flat, int64_t start, int64_t count, tdict_dtype dtype,
                            tdict_tensor **chunk, tdict_error *err) {
  const tdict_tensor_range range = {.dim = 0, .start = start, .count = count, .step = 1};
  tdict_tensor *part = NULL;
  tdict_status status = tdict_tensor_slice(flat, &range, &part, err);
  if (status == TDICT_OK) status = tdict_tensor_to_dtype(part, dtype, NULL, chunk, err);
  tdict_tensor_release(part);
  return status;
}

/* Adds the summary of further elements. */
static void merge(tdict_dtype dtype, tdict_tensor_summary *to, const tdict_tensor_summary *part) {
  const double counted = (double)(to->num_elements - to->num_nans),
               more = (double)(part->num_elements - part->num_nans);
  const bool is_unsigned = (dtype & 0xffu) == 1;
  if (more > 0 && counted > 0) {
    to->mean = to->mean * (counted / (counted + more)) + part->mean * (more / (counted + more));
    if (part->min < to->min) to->min = part->min;
    if (part->max > to->max) to->max = part->max;
    const int64_t low = part->min_integer, high = part->max_integer;
    if (is_unsigned ? (uint64_t)low < (uint64_t)to->min_integer : low < to->min_integer) to->min_integer = low;
    if (is_unsigned ? (uint64_t)high > (uint64_t)to->max_integer : high > to->max_integer) to->max_integer = high;
  } else if (more > 0) {
    to->mean = part->mean;
    to->min = part->min;
    to->max = part->max;
  }
  to->num_elements += part->num_elements;
  to->num_nans += part->num_nans;
  to->num_true += part->num_true;
}

tdict_status elements_summarize(const tdict_tensor *tensor, progress *p, uint64_t done, tdict_tensor_summary *out,
                                tdict_error *err) {
  enum { AT_ONCE = 1 << 23 };
  const tdict_dtype dtype = tdict_tensor_dtype(tensor);
  const int64_t count = tdict_tensor_numel(tensor);
  progress_show(p, done);
  if (count <= AT_ONCE) return tdict_tensor_get_summary(tensor, out, err);
  tdict_tensor *flat = NULL;
  tdict_status status = elements_flatten(tensor, &flat, err);
  for (int64_t at = 0; at < count && status == TDICT_OK; at += AT_ONCE) {
    tdict_tensor_summary part = tdict_tensor_summary_default();
    tdict_tensor *chunk = NULL;
    status = elements_chunk(flat, at, count - at < AT_ONCE ? count - at : AT_ONCE, dtype, &chunk, err);
    if (status == TDICT_OK) status = tdict_tensor_get_summary(chunk, &part, err);
    tdict_tensor_release(chunk);
    if (status == TDICT_OK && at == 0) *out = part;
    if (status == TDICT_OK && at > 0) merge(dtype, out, &part);
    progress_show(p, done + (uint64_t)at * tdict_dtype_bytes(dtype));
  }
  tdict_tensor_release(flat);
  return status;
}

tdict_dtype elements_wide_dtype(tdict_dtype dtype) {
  const bool is_small = dtype == TDICT_F16 || dtype == TDICT_BF16 || dtype == TDICT_F8E4M3 || dtype == TDICT_F8E5M2;
  return is_small ? TDICT_F32 : dtype;
}

static int real_text(double number, bool is_double, char *text, size_t bytes) {
  int length = 0;
  if (isnan(number)) return snprintf(text, bytes, "nan");
  for (int digits = is_double ? 15 : 6; digits <= 17; digits++) {
    length = snprintf(text, bytes, "%.*g", digits, number);
    if (is_double ? strtod(text, NULL) == number : strtof(text, NULL) == (float)number) break;
  }
  return length;
}

static void complex_text(double real, double imaginary, bool is_double, char text[ELEMENT_TEXT_BYTES]) {
  int at = real_text(real, is_double, text, ELEMENT_TEXT_BYTES);
  if (!signbit(imaginary) || isnan(imaginary)) text[at++] = '+';
  at += real_text(imaginary, is_double, text + at, ELEMENT_TEXT_BYTES - (size_t)at);
  snprintf(text + at, ELEMENT_TEXT_BYTES - (size_t)at, "j");
}

void element_text(tdict_dtype dtype, const void *element, char text[ELEMENT_TEXT_BYTES]) {
#define INTEGER(type, format) snprintf(text, ELEMENT_TEXT_BYTES, "%" format, *(const type *)element)
  const float *floats = element;
  const double *doubles = element;
  switch (dtype) {
  case TDICT_BOOL:
    snprintf(text, ELEMENT_TEXT_BYTES, "%s", *(const uint8_t *)element ? "true" : "false");
    break;
  case TDICT_I8:
    INTEGER(int8_t, PRId8);
    break;
  case TDICT_I16:
    INTEGER(int16_t, PRId16);
    break;
  case TDICT_I32:
    INTEGER(int32_t, PRId32);
    break;
  case TDICT_I64:
    INTEGER(int64_t, PRId64);
    break;
  case TDICT_U8:
    INTEGER(uint8_t, PRIu8);
    break;
  case TDICT_U16:
    INTEGER(uint16_t, PRIu16);
    break;
  case TDICT_U32:
    INTEGER(uint32_t, PRIu32);
    break;
  case TDICT_U64:
    INTEGER(uint64_t, PRIu64);
    break;
  case TDICT_F32:
    real_text((double)floats[0], false, text, ELEMENT_TEXT_BYTES);
    break;
  case TDICT_F64:
    real_text(doubles[0], true, text, ELEMENT_TEXT_BYTES);
    break;
  case TDICT_C64:
    complex_text((double)floats[0], (double)floats[1], false, text);
    break;
  case TDICT_C128:
    complex_text(doubles[0], doubles[1], true, text);
    break;
  default:
    snprintf(text, ELEMENT_TEXT_BYTES, "?");
  }
#undef INTEGER
}
