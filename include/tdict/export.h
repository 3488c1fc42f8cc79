/* Defines the macros that mark declarations, and the cast that other macros use. Includes no other header. */
#ifndef TDICT_EXPORT_H
#define TDICT_EXPORT_H

#if defined(__GNUC__)
#define TDICT_API __attribute__((visibility("default")))
#define TDICT_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define TDICT_API
#define TDICT_PRINTF(text, first)
#endif

/* Makes the compiler warn if the caller ignores the result of the function. */
#if defined(__GNUC__)
#define TDICT_NODISCARD __attribute__((warn_unused_result))
#elif defined(__cplusplus) && __cplusplus >= 201703L
#define TDICT_NODISCARD [[nodiscard]]
#else
#define TDICT_NODISCARD
#endif

#ifdef __cplusplus
#define TDICT_BEGIN_DECLS extern "C" {
#define TDICT_END_DECLS }
#define tdict_cast_(type, value) static_cast<type>(value)
#else
#define TDICT_BEGIN_DECLS
#define TDICT_END_DECLS
#define tdict_cast_(type, value) ((type)(value))
#endif

#endif
