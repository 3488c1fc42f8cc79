/* Converts tensors of any strides to another dtype. Keeps no state. Thread rule: see convert_tensor.h. */
#include "core/tensor/convert_tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/float_env.h"
#include "core/kernel/work.h"
#include "core/tensor/convert.h"
#include "core/tensor/element.h"
#include "core/tensor/layout.h"

enum { CHUNK = 512 };

static tdict_status check_host(const char *what, tdict_device device, tdict_error *err) {
  if (device.type == TDICT_DEVICE_CPU) return TDICT_OK;
  return tdict_fail(err, TDICT_EWRONGDEVICE,
                    "%s: the tensor is on %s, wanted host memory; tdict_to_dtype() converts on devices", what,
                    TDICT_DEVICE_TEXT(device));
}

tdict_status tdict_convert_check_memory(const char *what, const tdict_memory *memory, tdict_error *err) {
  if (!memory || memory->device.type == TDICT_DEVICE_CPU) return TDICT_OK;
  return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the memory is on %s, wanted host memory, as of the tensor", what,
                    TDICT_DEVICE_TEXT(memory->device));
}

tdict_status tdict_convert_refuse(const char *what, tdict_dtype to, tdict_dtype from, tdict_error *err) {
  return tdict_fail(err, TDICT_ENOTSUP, "%s: from %s to %s is not supported", what, TDICT_DTYPE_TEXT(from),
                    TDICT_DTYPE_TEXT(to));
}

tdict_status tdict_convert_check(const char *what, tdict_dtype to, const tdict_tensor *from, tdict_error *err) {
  if (!tdict_dtype_bytes(to)) return tdict_fail(err, TDICT_EDTYPE, "%s: dtype 0x%x is unknown", what, (unsigned)to);
  tdict_status status = check_host(what, from->storage->device, err);
  if (status != TDICT_OK || to == from->dtype || tdict_kernel_converts(to, from->dtype)) return status;
  return tdict_convert_refuse(what, to, from->dtype, err);
}

/* One side of a conversion: adjacent elements, or strided elements with a buffer for one chunk. */
typedef struct side {
  char *data;
  size_t item;
  bool is_strided;
  tdict_pair pair; /* layouts of the strided elements and of the buffer; the destination of the copy is first */
  char buffer[CHUNK * TDICT_ELEMENT_BYTES];
} side;

static void init_side(side *s, const tdict_tensor *t, bool is_dst) {
  const int64_t *strides = tdict_tensor_dims_strides(t);
  s->data = t->data;
  s->item = tdict_dtype_bytes(t->dtype);
  s->is_strided = !tdict_tensor_is_contiguous(t);
  if (s->is_strided)
    tdict_pair_init(&s->pair, t->ndim, t->dims, is_dst ? strides : NULL, is_dst ? NULL : strides, s->item);
}

/* Returns the address of element `at` if the elements are adjacent, else the buffer. */
static char *find_chunk(side *s, size_t at) { return s->is_strided ? s->buffer : s->data + at * s->item; }

/* Copies strided elements [at, at + count) to the buffer, or from the buffer. */
static void copy_chunk(side *s, size_t at, size_t count, bool to_buffer) {
  const size_t begin = at * s->item;
  /* The address of the leaf's first element if the buffer, which begins with element `at`, held all before it, too. */
  void *first = (void *)((uintptr_t)s->buffer - begin);
  const tdict_pair_span part = {to_buffer ? first : s->data, to_buffer ? s->data : first, begin,
                                begin + count * s->item};
  tdict_pair_copy(&s->pair, &part);
}

/* Converts all elements. Returns their number, or the index of the first in C order that does not fit. */
TDICT_FLOAT_ENV_BODY static size_t convert_elements(const tdict_tensor *dst, const tdict_tensor *src) {
  const tdict_stream_kind kind = tdict_stream_best();
  const size_t count = (size_t)dst->numel;
  side to, from;
  init_side(&to, dst, true);
  init_side(&from, src, false);
  const size_t most = to.is_strided || from.is_strided ? CHUNK : count;
  for (size_t at = 0; at < count; at += most) {
    const size_t some = count - at < most ? count - at : most;
    if (from.is_strided) copy_chunk(&from, at, some, true);
    const size_t fitting =
        tdict_convert_vector(kind, dst->dtype, find_chunk(&to, at), src->dtype, find_chunk(&from, at), some);
    if (fitting < some) return at + fitting;
    if (to.is_strided) copy_chunk(&to, at, some, false);
  }
  return count;
}

static void format_value(tdict_dtype dtype, const void *element, char *text, size_t room) {
  double real, imaginary;
  int64_t wide;
  if (dtype == TDICT_I64 || dtype == TDICT_U64) {
    memcpy(&wide, element, sizeof wide);
    snprintf(text, room, dtype == TDICT_U64 ? "%" PRIu64 : "%" PRId64, wide);
    return;
  }
  (void)tdict_element_read(dtype, element, &real, &imaginary); /* cannot fail: the dtype has one lane */
  snprintf(text, room, "%.17g", real);
}

/* Writes the index of element `at` in each dimension. */
static void find_index(const tdict_tensor *src, size_t at, int64_t *index) {
  int64_t left = (int64_t)at;
  for (int i = src->ndim - 1; i >= 0; left /= src->dims[i--]) index[i] = left % src->dims[i];
}

int64_t tdict_convert_offset(const tdict_tensor *src, size_t at) {
  int64_t index[TDICT_MAX_NDIM], offset = 0;
  find_index(src, at, index);
  for (int i = 0; i < src->ndim; i++) offset += index[i] * tdict_tensor_dims_strides(src)[i];
  return offset * (int64_t)tdict_dtype_bytes(src->dtype);
}

tdict_status tdict_convert_overflow(const char *what, tdict_dtype to, const tdict_tensor *src, size_t at,
                                    const void *element, tdict_error *err) {
  const unsigned bits = to >> 8 & 0xffu;
  const bool is_signed = (to & 0xffu) == 0;
  const uint64_t high = (is_signed ? (uint64_t)INT64_MAX : UINT64_MAX) >> (64 - bits);
  int64_t index[TDICT_MAX_NDIM];
  char value[40];
  find_index(src, at, index);
  format_value(src->dtype, element, value, sizeof value);
  return tdict_fail(err, TDICT_EOVERFLOW, "%s: element %s is %s, wanted %" PRId64 " to %" PRIu64 " (%s)", what,
                    TDICT_SHAPE_TEXT(src->ndim, index), value, is_signed ? -(int64_t)high - 1 : 0, high,
                    tdict_dtype_name(to));
}

tdict_status tdict_convert_tensor(const char *what, tdict_tensor *dst, const tdict_tensor *src, tdict_error *err) {
  if (!dst || !src) return tdict_fail_null(err, what, dst ? "src" : "dst");
  tdict_status status = tdict_convert_check(what, dst->dtype, src, err);
  if (status == TDICT_OK) status = check_host(what, dst->storage->device, err);
  if (status == TDICT_OK) status = tdict_tensor_check_target(what, dst, src, err);
  if (status != TDICT_OK || dst->numel == 0) return status;
  if (dst->dtype == src->dtype) return tdict_tensor_copy(dst, src, err);
  tdict_tensor_await(src, false);
  tdict_tensor_await(dst, true);
  /* Check after the wait, since a transfer into `src` can fail during the wait. */
  if (tdict_tensor_is_lost(src)) return tdict_tensor_refuse_lost(what, "the source's bytes", src, err);
  const tdict_float_env saved = tdict_float_env_enter();
  const size_t fitting = convert_elements(dst, src);
  tdict_float_env_leave(&saved);
  if (fitting < (size_t)dst->numel)
    return tdict_convert_overflow(what, dst->dtype, src, fitting,
                                  (const char *)src->data + tdict_convert_offset(src, fitting), err);
  tdict_tensor_regain(dst);
  return TDICT_OK;
}
