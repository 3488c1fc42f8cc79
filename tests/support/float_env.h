/* Floating-point environments that a program can set: rounding modes, subnormal numbers treated as zero, and long
 * double with the precision of float. Writes the processor's control registers, because <fenv.h> cannot control
 * subnormal numbers and needs libm. Thread rule: the functions set or read the environment of the calling thread. */
#ifndef TDICT_TESTS_SUPPORT_FLOAT_ENV_H
#define TDICT_TESTS_SUPPORT_FLOAT_ENV_H

#include <stdbool.h>
#include <stdint.h>

enum { TD_FLOAT_ENVS = 5 };

#if defined(__x86_64__)
typedef struct td_float_env {
  uint32_t mxcsr;
  uint16_t x87;
} td_float_env;
static inline td_float_env td_float_env_get(void) {
  td_float_env e;
  __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(e.mxcsr), "=m"(e.x87) : : "memory");
  e.mxcsr &= ~(uint32_t)0x3f; /* clears the flags of past exceptions */
  return e;
}
static inline void td_float_env_put(td_float_env e) {
  __asm__ volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(e.mxcsr), "m"(e.x87) : "memory");
}
static inline bool td_float_env_equal(td_float_env a, td_float_env b) { return a.mxcsr == b.mxcsr && a.x87 == b.x87; }
static inline void td_float_env_reset(void) { td_float_env_put((td_float_env){0x1f80, 0x37f}); }
/* Sets environment `i` of TD_FLOAT_ENVS, and returns it. All of them differ from the default environment. */
static inline td_float_env td_float_env_set(int i) {
  static const td_float_env all[TD_FLOAT_ENVS] = {
      {0x5f80, 0xb7f}, /* rounds up */
      {0x3f80, 0x77f}, /* rounds down */
      {0x7f80, 0xf7f}, /* rounds toward zero */
      {0x9fc0, 0x07f}, /* FTZ and DAZ; long double has a 24-bit significand */
      {0xdfc0, 0xb7f}, /* FTZ and DAZ, rounds up */
  };
  td_float_env_put(all[i]);
  return td_float_env_get();
}
#else
typedef struct td_float_env {
  uint64_t fpcr;
} td_float_env;
static inline td_float_env td_float_env_get(void) {
  td_float_env e;
  __asm__ volatile("mrs %0, fpcr" : "=r"(e.fpcr) : : "memory");
  return e;
}
static inline void td_float_env_put(td_float_env e) { __asm__ volatile("msr fpcr, %0" : : "r"(e.fpcr) : "memory"); }
static inline bool td_float_env_equal(td_float_env a, td_float_env b) { return a.fpcr == b.fpcr; }
static inline void td_float_env_reset(void) { td_float_env_put((td_float_env){0}); }
static inline td_float_env td_float_env_set(int i) {
  static const td_float_env all[TD_FLOAT_ENVS] = {
      {1u << 22}, {2u << 22}, {3u << 22}, {1u << 24}, {1u << 24 | 1u << 22}, /* RMode, FZ */
  };
  td_float_env_put(all[i]);
  return td_float_env_get();
}
#endif

#endif
