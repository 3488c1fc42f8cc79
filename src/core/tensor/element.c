/* Reads and writes elements as numbers. Owns nothing. Thread rule: see element.h. */
#include "core/tensor/element.h"

#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/float_env.h"
#include "core/kernel/work.h"
#include "core/tensor/affine.h"
#include "core/tensor/convert.h"
#include "core/tensor/layout.h"

enum { MOST_ELEMENT_BYTES = 4096 };

TDICT_FLOAT_ENV_BODY static tdict_status write_number(const char *what, tdict_dtype dtype, double value, void *element,
                                                      tdict_error *err) {
  memset(element, 0, tdict_dtype_bytes(dtype));
  if (tdict_kernel_converts(dtype, TDICT_F64)) {
    if (tdict_convert_simple(dtype, element, TDICT_F64, &value, 1) == 1) return TDICT_OK;
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: %s does not hold %g", what, tdict_dtype_name(dtype), value);
  }
  if (value == 0 && !signbit(value)) return TDICT_OK;
  return tdict_fail(err, TDICT_ENOTSUP, "%s: %s can be filled with 0 only", what, TDICT_DTYPE_TEXT(dtype));
}

tdict_status tdict_element_from_double(const char *what, tdict_dtype dtype, double value, void *element,
                                       tdict_error *err) {
  if (tdict_dtype_bytes(dtype) > TDICT_ELEMENT_ROOM)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: elements of %zu bytes are not supported", what,
                      tdict_dtype_bytes(dtype));
  const tdict_float_env saved = tdict_float_env_enter();
  tdict_status status = write_number(what, dtype, value, element, err);
  tdict_float_env_leave(&saved);
  return status;
}

static bool has_equal_bytes(const unsigned char *bytes, size_t count) {
  for (size_t i = 1; i < count; i++)
    if (bytes[i] != bytes[0]) return false;
  return true;
}

tdict_status tdict_element_check(const char *what, const tdict_tensor *t, const void *element, tdict_error *err) {
  const tdict_storage *s = t->storage;
  if (s->flags & TDICT_STORAGE_READ_ONLY)
    return tdict_fail(err, TDICT_EREADONLY, "%s: the tensor may not be written", what);
  if (s->device.type == TDICT_DEVICE_CPU) return TDICT_OK;
  if (!s->memory || !s->memory->ops->fill)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the memory on %s belongs to the program and to no context", what,
                      TDICT_DEVICE_TEXT(s->device));
  if (has_equal_bytes(element, tdict_dtype_bytes(t->dtype))) return TDICT_OK;
  return tdict_fail(err, TDICT_ENOTSUP, "%s: on %s only elements of equal bytes (such as 0) can be filled", what,
                    TDICT_DEVICE_TEXT(s->device));
}

typedef struct filler {
  tdict_memory *memory; /* NULL: host memory */
  const void *element;
  size_t item;
} filler;

static void fill_host_run(void *to, const void *element, size_t item, size_t bytes) {
  if (has_equal_bytes(element, item))
    memset(to, *(const unsigned char *)element, bytes);
  else
    tdict_rows_fill(to, element, item, bytes);
}

/* Fills the rows of a rectangle. Fills adjacent rows in one call. */
static tdict_status fill_rect(void *user, const tdict_rect *rect, tdict_error *err) {
  const filler *f = user;
  bool whole = rect->dst_pitch == (int64_t)rect->width;
  size_t rows = whole ? 1 : rect->height, bytes = whole ? rect->width * rect->height : rect->width;
  uintptr_t to = (uintptr_t)rect->dst;
  for (size_t i = 0; i < rows; i++, to += (uintptr_t)rect->dst_pitch) {
    if (!f->memory) {
      fill_host_run((void *)to, f->element, f->item, bytes);
      continue;
    }
    tdict_status status = f->memory->ops->fill(f->memory, (void *)to, *(const unsigned char *)f->element, bytes, err);
    if (status != TDICT_OK) return status;
  }
  return TDICT_OK;
}

tdict_status tdict_element_fill(const tdict_tensor *t, const void *element, tdict_error *err) {
  tdict_storage *s = t->storage;
  bool host = s->device.type == TDICT_DEVICE_CPU;
  filler f = {host ? NULL : s->memory, element, tdict_dtype_bytes(t->dtype)};
  if (t->numel == 0) return TDICT_OK;
  tdict_tensor_await(t, true);
  tdict_pair pair;
  tdict_pair_init(&pair, t->ndim, t->dims, tdict_tensor_dims_strides(t), tdict_tensor_dims_strides(t), f.item);
  const tdict_pair_span whole = {t->data, t->data, 0, tdict_tensor_nbytes(t)};
  tdict_status status = tdict_pair_walk(&pair, &whole, fill_rect, &f, err);
  if (status == TDICT_OK) tdict_tensor_regain(t);
  return status;
}

/* Fills one region for each dimension. In this dimension, the region has the indices after the end of `part`. In
 * earlier dimensions, the region has only the indices of `part`. In later dimensions, the region has all indices. The
 * regions do not overlap, and together they cover the rest of the row. */
tdict_status tdict_element_pad(const char *what, const tdict_tensor *row, const tdict_tensor *part, const void *element,
                               tdict_error *err) {
  const size_t item = tdict_dtype_bytes(row->dtype);
  tdict_made start;
  tdict_temp temp;
  tdict_made_of(row, &start);
  for (int d = 0; d < row->ndim; d++) {
    const int64_t size = part->dims[d];
    if (row->dims[d] == size) continue;
    tdict_made rest = start;
    tdict_made_narrow(&rest, d, size, row->dims[d] - size, item);
    tdict_made_narrow(&start, d, 0, size, item);
    const tdict_tensor *padding = tdict_temp_over(&temp, row, &rest);
    tdict_status status = tdict_element_check(what, padding, element, err);
    if (status == TDICT_OK) status = tdict_element_fill(padding, element, err);
    if (status != TDICT_OK) return status;
  }
  return tdict_tensor_copy(tdict_temp_over(&temp, row, &start), part, err);
}

bool tdict_element_read(tdict_dtype dtype, const void *element, double *real, double *imaginary) {
  const tdict_dtype part = dtype == TDICT_C64 ? TDICT_F32 : dtype == TDICT_C128 ? TDICT_F64 : dtype;
  *real = *imaginary = 0;
  if (part != dtype)
    (void)tdict_convert_simple(TDICT_F64, imaginary, part, (const char *)element + tdict_dtype_bytes(part), 1);
  return tdict_convert_simple(TDICT_F64, real, part, element, 1) == 1;
}
