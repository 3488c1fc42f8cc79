/* Converts elements in two steps, so that no pair of dtypes needs a separate function. The first step reads integers as
 * int64_t and floats as double. The second step writes these numbers as elements of the destination's dtype. See
 * convert_simple.h for ownership and threads. */
#include "core/tensor/convert_simple.h"

#include <string.h>

#include "core/tensor/convert.h"

enum { CODE_INT = 0, CODE_UINT = 1, CODE_COMPLEX = 5, CHUNK = 256 };

static bool is_integer(tdict_dtype dtype) { return (dtype & 0xffu) <= CODE_UINT; }
static bool is_complex(tdict_dtype dtype) { return (dtype & 0xffu) == CODE_COMPLEX; }
/* Returns the dtype of the real and the imaginary part. */
static tdict_dtype part_of(tdict_dtype dtype) { return dtype == TDICT_C64 ? TDICT_F32 : TDICT_F64; }

bool tdict_convert_supports(tdict_dtype to, tdict_dtype from) {
  return tdict_dtype_bytes(to) && tdict_dtype_bytes(from) && to >> 16 == 1 && from >> 16 == 1 &&
         (is_complex(to) || !is_complex(from));
}

/* Reads and writes items of a C type. */
#define READ(type, wide)                                             \
  for (size_t i = 0; i < count; i++) {                               \
    type item;                                                       \
    memcpy(&item, (const char *)src + i * sizeof item, sizeof item); \
    out[i] = (wide)item;                                             \
  }
#define WRITE(type)                                            \
  for (size_t i = 0; i < count; i++) {                         \
    const type item = (type)in[i];                             \
    memcpy((char *)dst + i * sizeof item, &item, sizeof item); \
  }

/* Reads integers. A uint64 keeps its bits. Bool becomes 0 or 1. */
static void read_integers(tdict_dtype dtype, const void *src, size_t count, int64_t *out) {
  switch (dtype) {
  case TDICT_I8:
    READ(int8_t, int64_t)
    break;
  case TDICT_I16:
    READ(int16_t, int64_t)
    break;
  case TDICT_I32:
    READ(int32_t, int64_t)
    break;
  case TDICT_U8:
    READ(uint8_t, int64_t)
    break;
  case TDICT_U16:
    READ(uint16_t, int64_t)
    break;
  case TDICT_U32:
    READ(uint32_t, int64_t)
    break;
  case TDICT_BOOL:
    for (size_t i = 0; i < count; i++) out[i] = ((const unsigned char *)src)[i] != 0;
    break;
  default:
    memcpy(out, src, count * sizeof *out);
  }
}

static void read_reals(tdict_dtype dtype, const void *src, size_t count, double *out) {
  const tdict_small_float *small = tdict_small_float_of(dtype);
  const size_t bytes = tdict_dtype_bytes(dtype);
  if (dtype == TDICT_F64) {
    memcpy(out, src, count * sizeof *out);
  } else if (small) {
    for (size_t i = 0; i < count; i++) {
      uint16_t bits = 0;
      memcpy(&bits, (const char *)src + i * bytes, bytes);
      out[i] = tdict_small_float_decode(small, bits);
    }
  } else {
    READ(float, double)
  }
}

/* Writes the low bytes of integers. */
static void write_integers(tdict_dtype dtype, const int64_t *in, size_t count, void *dst) {
  switch (tdict_dtype_bytes(dtype)) {
  case 1:
    WRITE(uint8_t)
    break;
  case 2:
    WRITE(uint16_t)
    break;
  case 4:
    WRITE(uint32_t)
    break;
  default:
    memcpy(dst, in, count * sizeof *in);
  }
}

static void write_reals(tdict_dtype dtype, const double *in, size_t count, void *dst) {
  const tdict_small_float *small = tdict_small_float_of(dtype);
  const size_t bytes = tdict_dtype_bytes(dtype);
  if (dtype == TDICT_F64) {
    memcpy(dst, in, count * sizeof *in);
  } else if (small) {
    for (size_t i = 0; i < count; i++) {
      const uint16_t bits = (uint16_t)tdict_small_float_encode(small, in[i]);
      memcpy((char *)dst + i * bytes, &bits, bytes);
    }
  } else {
    WRITE(float)
  }
}

/* Returns the index of the first integer that `to` cannot hold, or `count`. */
static size_t check_integers(tdict_dtype to, tdict_dtype from, const int64_t *in, size_t count) {
  const unsigned bits = to >> 8 & 0xffu;
  const uint64_t high = ((to & 0xffu) == CODE_UINT ? UINT64_MAX : (uint64_t)INT64_MAX) >> (64 - bits);
  const int64_t low = (to & 0xffu) == CODE_UINT ? 0 : -(int64_t)high - 1;
  size_t i = 0;
  if (from == TDICT_U64)
    while (i < count && (uint64_t)in[i] <= high) i++;
  else
    while (i < count && in[i] >= low && (in[i] < 0 || (uint64_t)in[i] <= high)) i++;
  return i;
}

/* Truncates toward zero. Returns the index of the first number that `to` cannot hold, or `count`. */
static size_t truncate_reals(tdict_dtype to, const double *in, size_t count, int64_t *out) {
  const unsigned bits = to >> 8 & 0xffu;
  const bool is_signed = (to & 0xffu) == CODE_INT;
  const double end = (double)((uint64_t)1 << (bits - 1)) * (is_signed ? 1 : 2); /* one more than the highest value */
  const double low = is_signed ? -end : 0;
  /* Numbers between low - 1 and low truncate to low. For int64, low - 1 rounds to low, so the condition also accepts
   * low itself. A comparison with NaN is false. */
  size_t i = 0;
  for (; i < count && (in[i] >= low || in[i] > low - 1) && in[i] < end; i++)
    out[i] = in[i] < 0x1p63 ? (int64_t)in[i] : (int64_t)(uint64_t)in[i];
  return i;
}

/* Converts integers to double for a destination of dtype `to`. If the destination is narrower than a double, rounding
 * twice could give a wrong result. For such a destination, an integer of more than 53 bits is rounded to odd: if one of
 * its 11 low bits is 1, the next bit becomes 1, and the 11 bits become 0. Rounding the resulting double gives the same
 * number as rounding the integer. */
static void widen_integers(tdict_dtype to, tdict_dtype from, const int64_t *in, size_t count, double *out) {
  for (size_t i = 0; i < count; i++) {
    const bool is_negative = from != TDICT_U64 && in[i] < 0;
    uint64_t magnitude = is_negative ? 0 - (uint64_t)in[i] : (uint64_t)in[i];
    if (to != TDICT_F64 && magnitude >> 53) magnitude = (magnitude >> 11 | (magnitude & 0x7ff ? 1 : 0)) << 11;
    out[i] = is_negative ? -(double)magnitude : (double)magnitude;
  }
}

/* Converts at most CHUNK real elements to another real dtype. */
static size_t convert_real_chunk(tdict_dtype to, void *dst, tdict_dtype from, const void *src, size_t count) {
  int64_t integers[CHUNK];
  double reals[CHUNK];
  size_t fitting = count;
  if (is_integer(from) || from == TDICT_BOOL) {
    read_integers(from, src, count, integers);
    if (is_integer(to)) fitting = check_integers(to, from, integers, count);
    if (to == TDICT_BOOL)
      for (size_t i = 0; i < count; i++) integers[i] = integers[i] != 0;
    if (!is_integer(to) && to != TDICT_BOOL) widen_integers(to, from, integers, count, reals);
  } else {
    read_reals(from, src, count, reals);
    if (is_integer(to)) fitting = truncate_reals(to, reals, count, integers);
    if (to == TDICT_BOOL)
      for (size_t i = 0; i < count; i++) integers[i] = reals[i] != 0; /* also true for NaN */
  }
  if (is_integer(to) || to == TDICT_BOOL)
    write_integers(to, integers, fitting, dst);
  else
    write_reals(to, reals, count, dst);
  return fitting;
}

/* Converts at most CHUNK elements. */
static size_t convert_chunk(tdict_dtype to, void *dst, tdict_dtype from, const void *src, size_t count) {
  const tdict_dtype part = part_of(to);
  const size_t bytes = tdict_dtype_bytes(part);
  char reals[CHUNK * sizeof(double)];
  if (!is_complex(to)) return convert_real_chunk(to, dst, from, src, count);
  /* The imaginary parts are 0. */
  convert_real_chunk(part, reals, from, src, count);
  memset(dst, 0, 2 * count * bytes);
  for (size_t i = 0; i < count; i++) memcpy((char *)dst + 2 * i * bytes, reals + i * bytes, bytes);
  return count;
}

size_t tdict_convert_simple(tdict_dtype to, void *dst, tdict_dtype from, const void *src, size_t count) {
  /* A complex element is converted as two floats. */
  if (is_complex(from)) {
    (void)tdict_convert_simple(part_of(to), dst, part_of(from), src, 2 * count);
    return count;
  }
  const size_t to_bytes = tdict_dtype_bytes(to), from_bytes = tdict_dtype_bytes(from);
  for (size_t at = 0; at < count; at += CHUNK) {
    const size_t some = count - at < CHUNK ? count - at : CHUNK;
    const size_t fitting =
        convert_chunk(to, (char *)dst + at * to_bytes, from, (const char *)src + at * from_bytes, some);
    if (fitting < some) return at + fitting;
  }
  return count;
}
