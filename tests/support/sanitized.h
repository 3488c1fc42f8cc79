/* SANITIZED: 1 in a build whose sanitizer keeps freed memory and catches signals, else 0. */
#ifndef TDICT_TESTS_SANITIZED_H
#define TDICT_TESTS_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#endif
