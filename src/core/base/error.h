/* Fills errors. tdict_fail() and tdict_error_at() return the status, so that a caller can fail in one line. The caller
 * owns the error struct. Thread-safe if each thread uses its own. */
#ifndef TDICT_CORE_BASE_ERROR_H
#define TDICT_CORE_BASE_ERROR_H

#include <stdbool.h>

#include "tdict/values.h"

/* Fills *err, if any, with the status and a message, which may be cut, without path and code. Returns `status`. */
tdict_status tdict_fail(tdict_error *err, tdict_status status, const char *format, ...) TDICT_PRINTF(3, 4);
/* Fills *err like tdict_fail(), and also sets the native code: an error code of the driver, or an errno. */
tdict_status tdict_fail_native(tdict_error *err, tdict_status status, int32_t native, const char *format, ...)
    TDICT_PRINTF(4, 5);
/* Fills *err with TDICT_EINVAL and the message "<what>: <name> is NULL". Returns TDICT_EINVAL. */
tdict_status tdict_fail_null(tdict_error *err, const char *what, const char *name);
/* Does the same, and sets err->path unless `path` is NULL. */
tdict_status tdict_fail_null_at(tdict_error *err, const char *what, const char *path, const char *name);
/* Sets err->path. If the path is too long, replaces the middle of the path with "...". If `err` or `path` is NULL,
 * writes nothing. Returns `status`, so a function can end with `return tdict_error_at(err, status, path)`. */
tdict_status tdict_error_at(tdict_error *err, tdict_status status, const char *path);
/* Fills *err like tdict_fail(), and sets err->path to the path of a file or of an entry. */
tdict_status tdict_fail_at(tdict_error *err, tdict_status status, const char *path, const char *format, ...)
    TDICT_PRINTF(4, 5);
/* Fills *err with TDICT_EIO, a path, the errno `code`, and the message with the errno's text. Returns TDICT_EIO. */
tdict_status tdict_fail_errno(tdict_error *err, int code, const char *path, const char *format, ...) TDICT_PRINTF(4, 5);
/* Fills *err with TDICT_ENOMEM, a path, and "<what>: no host memory for <formatted text>". Returns TDICT_ENOMEM. */
tdict_status tdict_fail_memory(tdict_error *err, const char *what, const char *path, const char *format, ...)
    TDICT_PRINTF(4, 5);

/* The text of a dtype or a device for a message, in a buffer of the enclosing block. */
#define TDICT_DTYPE_TEXT(dtype) tdict_dtype_format((dtype), (char[TDICT_DTYPE_TEXT_BYTES]){0}, TDICT_DTYPE_TEXT_BYTES)
#define TDICT_DEVICE_TEXT(device) tdict_device_format((device), (char[40]){0}, 40)

/* Ends a function that makes an object: writes `made` to *out, or releases it after an error. Evaluates to `status`. */
#define TDICT_HAND_OVER(status, made, out, release) \
  ((status) == TDICT_OK ? (void)(*(out) = (made)) : (void)release(made), (status))

/* Returns true if `status` is a value of enum tdict_status. */
bool tdict_status_is_known(tdict_status status);
/* Checks what a callback of the program returned. Call it after each callback that returns a status. `own` is the error
 * that was passed to the callback, empty before, or NULL; `what` names the callback in messages. Returns TDICT_OK for
 * TDICT_OK, and leaves `own` as it is. For another value of enum tdict_status, sets own->status to it, adds a message
 * if there is none, and returns it. Fills `own` and returns TDICT_EHOOK for any other number. */
tdict_status tdict_callback_status(tdict_status returned, const char *what, tdict_error *own);
/* Empties an error struct. */
static inline void tdict_error_clear(tdict_error *err) {
  err->status = err->native = 0;
  err->path[0] = err->message[0] = 0;
}

/* Without these, clang-tidy, which reads one file at a time, thinks that failures can return TDICT_OK. */
#ifdef __clang_analyzer__
#define tdict_fail(err, status, ...) (tdict_fail((err), (status), __VA_ARGS__), (status))
#define tdict_fail_native(err, status, ...) (tdict_fail_native((err), (status), __VA_ARGS__), (status))
#define tdict_fail_null(err, what, name) (tdict_fail_null((err), (what), (name)), TDICT_EINVAL)
#define tdict_fail_memory(err, what, ...) (tdict_fail_memory((err), (what), __VA_ARGS__), TDICT_ENOMEM)
#endif

#endif
