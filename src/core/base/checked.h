/* Arithmetic with overflow checks. Each function with a parameter `out` writes the result to *out and returns true. If
 * the result overflows, the function returns false, and *out is unspecified. Thread-safe. */
#ifndef TDICT_CORE_BASE_CHECKED_H
#define TDICT_CORE_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/assert.h"

static inline bool tdict_mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool tdict_add_size(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool tdict_mul_i64(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool tdict_add_i64(int64_t a, int64_t b, int64_t *out) { return !__builtin_add_overflow(a, b, out); }
/* Rounds `value` up to a multiple of `step`, where `step` is a power of two. */
static inline bool tdict_round_up(size_t value, size_t step, size_t *out) {
  size_t sum;
  TDICT_ASSERT(step != 0 && (step & (step - 1)) == 0);
  if (!tdict_add_size(value, step - 1, &sum)) return false;
  *out = sum & ~(step - 1);
  return true;
}
/* Rounds up like tdict_round_up(). The caller guarantees that the result fits. */
static inline size_t tdict_align(size_t value, size_t step) { return (value + step - 1) & ~(step - 1); }

#endif
