/* Defines the macros that mark declarations, and those that inline functions and other macros use. */
#ifndef TDICT_EXPORT_H
#define TDICT_EXPORT_H

#include <string.h>

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
/* Sets a struct that begins with struct_size to zeros, and struct_size to its size. */
#define tdict_init_struct_(s) ((void)memset(&(s), 0, sizeof(s)), (void)((s).struct_size = sizeof(s)))

#endif
