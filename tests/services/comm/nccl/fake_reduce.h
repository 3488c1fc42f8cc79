/* The reductions of fake_nccl.c. Floats are computed as doubles, integers modulo 2^64. The 16-bit results must be
 * exactly representable, because the functions do not round. Thread rule: the functions have no state. */
#ifndef TDICT_TESTS_SERVICES_COMM_NCCL_FAKE_REDUCE_H
#define TDICT_TESTS_SERVICES_COMM_NCCL_FAKE_REDUCE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Returns the size of an element in bytes, or 0 if the ncclDataType_t is unknown. */
static inline size_t fake_type_bytes(int type) {
  static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < 12 ? bytes[type] : 0;
}

static inline double fake_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double size = exponent ? ldexp(1024 + (bits & 1023), exponent - 25) : ldexp(bits & 1023, -24);
  return bits >> 15 ? -size : size;
}
static inline uint16_t fake_half_bits(double value) {
  int exponent;
  if (value == 0) return 0;
  const double part = frexp(fabs(value), &exponent); /* value = part * 2^exponent, part in [0.5, 1) */
  return (uint16_t)((value < 0) << 15 | (exponent + 14) << 10 | ((int)ldexp(part, 11) & 1023));
}

static inline double fake_float(const void *bytes, int type) {
  union {
    uint32_t bits;
    float f;
  } single = {0};
  uint16_t half;
  double value;
  if (type == 8) {
    memcpy(&value, bytes, sizeof value);
    return value;
  }
  if (type == 7) {
    memcpy(&single.f, bytes, sizeof single.f);
    return (double)single.f;
  }
  memcpy(&half, bytes, sizeof half);
  if (type == 6) return fake_half(half);
  single.bits = (uint32_t)half << 16;
  return (double)single.f;
}
static inline void fake_store_float(void *bytes, int type, double value) {
  union {
    uint32_t bits;
    float f;
  } single = {.f = (float)value};
  uint16_t half = type == 6 ? fake_half_bits(value) : (uint16_t)(single.bits >> 16);
  if (type == 8)
    memcpy(bytes, &value, sizeof value);
  else if (type == 7)
    memcpy(bytes, &single.f, sizeof single.f);
  else
    memcpy(bytes, &half, sizeof half);
}

/* Returns an integer element, extended to 64 bits. Signed types are sign-extended. */
static inline uint64_t fake_integer(const void *bytes, int type) {
  int8_t i8;
  int32_t i32;
  uint32_t u32;
  uint64_t u64;
  switch (type) {
  case 0:
    return memcpy(&i8, bytes, 1), (uint64_t)(int64_t)i8;
  case 1:
    return *(const uint8_t *)bytes;
  case 2:
    return memcpy(&i32, bytes, 4), (uint64_t)(int64_t)i32;
  case 3:
    return memcpy(&u32, bytes, 4), u32;
  default:
    return memcpy(&u64, bytes, 8), u64;
  }
}
static inline bool fake_less(uint64_t a, uint64_t b, int type) {
  return type % 2 == 0 ? (int64_t)a < (int64_t)b : a < b; /* the even types are signed */
}

/* Reduces the elements at byte `at` of all ranks. `op` is an ncclRedOp_t. Returns false if the type lacks it. */
static inline bool fake_reduce_one(const void *const *parts, int world, size_t at, int type, int op, void *out) {
  if (type >= 6) {
    double sum = fake_float((const char *)parts[0] + at, type), least = sum, most = sum;
    for (int r = 1; r < world; r++) {
      const double value = fake_float((const char *)parts[r] + at, type);
      sum += value;
      least = fmin(least, value);
      most = fmax(most, value);
    }
    fake_store_float(out, type, op == 0 ? sum : op == 2 ? most : op == 3 ? least : sum / world);
    return op == 0 || (op >= 2 && op <= 4);
  }
  uint64_t sum = fake_integer((const char *)parts[0] + at, type), least = sum, most = sum;
  for (int r = 1; r < world; r++) {
    const uint64_t value = fake_integer((const char *)parts[r] + at, type);
    sum += value;
    if (fake_less(value, least, type)) least = value;
    if (fake_less(most, value, type)) most = value;
  }
  sum = op == 0 ? sum : op == 2 ? most : least;
  memcpy(out, &sum, fake_type_bytes(type)); /* little endian: the low bytes are first */
  return op == 0 || op == 2 || op == 3;
}

static inline bool fake_reduce(const void *const *parts, int world, size_t count, int type, int op, void *out) {
  const size_t bytes = fake_type_bytes(type);
  bool good = bytes > 0;
  if (type >= 10) { /* 8-bit floats: there is only one rank, so its elements are copied */
    memcpy(out, parts[0], count);
    return world == 1;
  }
  for (size_t i = 0; i < count && good; i++)
    good = fake_reduce_one(parts, world, i * bytes, type, op, (char *)out + i * bytes);
  return good;
}

#endif
