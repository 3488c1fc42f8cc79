/* Implements the reductions of the communicator in tests/support/thread_comm.h. */
#include "support/thread_comm.h"

bool thread_can_reduce(tdict_dtype dtype, tdict_reduce_op op) {
  (void)op;
  switch (dtype) {
  case TDICT_I8:
  case TDICT_I16:
  case TDICT_I32:
  case TDICT_I64:
  case TDICT_U8:
  case TDICT_F32:
  case TDICT_F64:
    return true;
  default:
    return false;
  }
}

#define COMBINE(type)                                                           \
  for (size_t i = 0; i < count; i++) {                                          \
    type *d = (type *)dst + i;                                                  \
    const type s = ((const type *)src)[i];                                      \
    *d = op == TDICT_REDUCE_MIN   ? (s < *d ? s : *d)                           \
         : op == TDICT_REDUCE_MAX ? (s > *d ? s : *d)                           \
                                  : (type)((wide_##type) * d + (wide_##type)s); \
  }
typedef uint64_t wide_int8_t, wide_int16_t, wide_int32_t, wide_int64_t, wide_uint8_t; /* unsigned: may wrap */
typedef float wide_float;
typedef double wide_double;

void thread_reduce(void *dst, const void *src, size_t count, tdict_dtype dtype, tdict_reduce_op op) {
  switch (dtype) {
  case TDICT_I8:
    COMBINE(int8_t) break;
  case TDICT_I16:
    COMBINE(int16_t) break;
  case TDICT_I32:
    COMBINE(int32_t) break;
  case TDICT_I64:
    COMBINE(int64_t) break;
  case TDICT_U8:
    COMBINE(uint8_t) break;
  case TDICT_F32:
    COMBINE(float) break;
  case TDICT_F64:
    COMBINE(double) break;
  default:
    break;
  }
}

void thread_divide(void *dst, size_t count, tdict_dtype dtype, int world) {
  for (size_t i = 0; i < count && dtype == TDICT_F32; i++) ((float *)dst)[i] /= (float)world;
  for (size_t i = 0; i < count && dtype == TDICT_F64; i++) ((double *)dst)[i] /= (double)world;
}
