/* Defines TDICT_ASSERT(condition), the debug assertion. Assertions check conditions that the library itself guarantees.
 * Assertions never check arguments that the program passes.
 *
 * Assertions are enabled in builds without NDEBUG, and in builds with AddressSanitizer or ThreadSanitizer. A failed
 * assertion writes one line to stderr and executes a trap instruction. A failed assertion does not call abort(). The
 * condition must have no side effects. Thread-safe. */
#ifndef TDICT_CORE_BASE_ASSERT_H
#define TDICT_CORE_BASE_ASSERT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

/* A build with a sanitizer has assertions even with NDEBUG. GCC has a macro for each, and Clang has __has_feature(). */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TDICT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TDICT_SANITIZED 1
#endif
#endif

/* A test may define TDICT_ASSERTS before it includes this header. */
#ifndef TDICT_ASSERTS
#if !defined(NDEBUG) || defined(TDICT_SANITIZED)
#define TDICT_ASSERTS 1
#else
#define TDICT_ASSERTS 0
#endif
#endif

#if TDICT_ASSERTS
/* Calls dprintf(), because another thread can hold the lock of a stdio stream. */
__attribute__((noreturn, cold)) static inline void tdict_assert_failed(const char *condition, const char *file,
                                                                       int line) {
  dprintf(STDERR_FILENO, "tdict: %s:%d: assertion failed: %s\n", file, line, condition);
  __builtin_trap();
}
#define TDICT_ASSERT(condition) ((condition) ? (void)0 : tdict_assert_failed(#condition, __FILE__, __LINE__))
#else
/* The condition is not evaluated, but checked, and its variables count as used. */
#define TDICT_ASSERT(condition) ((void)sizeof((condition) ? 1 : 0))
#endif

/* Returns true if some thread holds the mutex. A default mutex does not record which. */
static inline bool tdict_lock_is_held(pthread_mutex_t *lock) {
  if (pthread_mutex_trylock(lock) != 0) return true;
  pthread_mutex_unlock(lock);
  return false;
}

#endif
