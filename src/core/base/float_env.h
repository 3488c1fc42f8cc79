/* Sets the calling thread's default floating-point environment for a while: rounds to nearest, keeps subnormal numbers,
 * and runs no traps. Programs change it, and so do libraries built with -ffast-math, but results must not depend on
 * this.
 *
 * Compilers can move arithmetic on local variables across these calls. So call a function between them that is not
 * inline, or compute only with numbers in memory. Thread-safe. */
#ifndef TDICT_CORE_BASE_FLOAT_ENV_H
#define TDICT_CORE_BASE_FLOAT_ENV_H

#include <stdbool.h>
#include <stdint.h>

/* Marks a function that computes between tdict_float_env_enter() and tdict_float_env_leave(). */
#define TDICT_FLOAT_ENV_BODY __attribute__((noinline))

#if defined(__x86_64__)

/* The control register of SSE and AVX, and the control word of the x87 unit, which computes with long double. */
typedef struct tdict_float_env {
  uint32_t mxcsr;
  uint16_t x87;
  bool is_changed;
} tdict_float_env;

enum {
  TDICT_MXCSR_DEFAULT = 0x1f80,
  TDICT_MXCSR_FLAGS = 0x3f, /* flags of past exceptions, which change no result */
  TDICT_X87_DEFAULT = 0x37f,
  TDICT_X87_FIELDS = 0xf3f /* rounding, precision and masks of exceptions */
};

/* Saves the environment, and sets the default if another one is set: setting takes far longer than the check. */
static inline tdict_float_env tdict_float_env_enter(void) {
  tdict_float_env saved;
  __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(saved.mxcsr), "=m"(saved.x87) : : "memory");
  saved.is_changed = (saved.mxcsr & ~(uint32_t)TDICT_MXCSR_FLAGS) != TDICT_MXCSR_DEFAULT ||
                     (saved.x87 & TDICT_X87_FIELDS) != (TDICT_X87_DEFAULT & TDICT_X87_FIELDS);
  if (saved.is_changed) {
    const uint32_t mxcsr = TDICT_MXCSR_DEFAULT;
    const uint16_t x87 = TDICT_X87_DEFAULT;
    __asm__ volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(mxcsr), "m"(x87) : "memory");
  }
  return saved;
}

static inline void tdict_float_env_leave(const tdict_float_env *saved) {
  __asm__ volatile("" : : : "memory");
  if (saved->is_changed) __asm__ volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(saved->mxcsr), "m"(saved->x87) : "memory");
}

#elif defined(__aarch64__)

/* The control register FPCR. Its default value is 0. */
typedef struct tdict_float_env {
  uint64_t fpcr;
} tdict_float_env;

static inline tdict_float_env tdict_float_env_enter(void) {
  tdict_float_env saved;
  __asm__ volatile("mrs %0, fpcr" : "=r"(saved.fpcr) : : "memory");
  if (saved.fpcr) __asm__ volatile("msr fpcr, xzr" : : : "memory");
  return saved;
}
static inline void tdict_float_env_leave(const tdict_float_env *saved) {
  __asm__ volatile("" : : : "memory");
  if (saved->fpcr) __asm__ volatile("msr fpcr, %0" : : "r"(saved->fpcr) : "memory");
}

#else
#error "tdict supports x86-64 and aarch64"
#endif

#endif
