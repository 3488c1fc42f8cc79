/* SANITIZED: 1 in a build whose sanitizer keeps freed memory and catches signals, else 0. THREAD_SANITIZED: 1 in a
 * build with ThreadSanitizer, else 0. SANITIZED_STEP: the step of loops over many similar rounds: 5 with
 * AddressSanitizer, 11 with ThreadSanitizer, else 1. sanitized_first(k): the first round of variant k of such a loop,
 * so that its variants run different rounds. */
#ifndef TDICT_TESTS_SANITIZED_H
#define TDICT_TESTS_SANITIZED_H

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZED 1
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZED 1
#elif __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef THREAD_SANITIZED
#define THREAD_SANITIZED 0
#endif
#ifndef SANITIZED
#define SANITIZED THREAD_SANITIZED
#endif
enum { SANITIZED_STEP = THREAD_SANITIZED ? 11 : SANITIZED ? 5 : 1 };
static inline int sanitized_first(int k) { return k % SANITIZED_STEP; }

#endif
