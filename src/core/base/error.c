/* Implements the names of statuses and the functions that fill the caller's tdict_error. Thread-safe. */
#include "core/base/error.h"

#include "core/base/thread.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef tdict_fail /* error.h defines macros with the names of these functions for clang-tidy */
#undef tdict_fail_native
#undef tdict_fail_null
#undef tdict_fail_memory

const char *tdict_status_name(tdict_status status) {
  switch (status) {
#define NAME(s) \
  case s:       \
    return #s
    NAME(TDICT_OK);
    NAME(TDICT_EINVAL);
    NAME(TDICT_ENOMEM);
    NAME(TDICT_ENOTFOUND);
    NAME(TDICT_EEXIST);
    NAME(TDICT_ETYPE);
    NAME(TDICT_ESHAPE);
    NAME(TDICT_EDTYPE);
    NAME(TDICT_EOVERFLOW);
    NAME(TDICT_ELOCKED);
    NAME(TDICT_EREADONLY);
    NAME(TDICT_EWRONGDEVICE);
    NAME(TDICT_ENODEVICE);
    NAME(TDICT_EDEVICE);
    NAME(TDICT_ELOST);
    NAME(TDICT_ECANCELLED);
    NAME(TDICT_ETIMEDOUT);
    NAME(TDICT_EDEADLOCK);
    NAME(TDICT_EFORKED);
    NAME(TDICT_ECAPTURE);
    NAME(TDICT_ECHANGED);
    NAME(TDICT_EHOOK);
    NAME(TDICT_EIO);
    NAME(TDICT_EFORMAT);
    NAME(TDICT_ENOTSUP);
#undef NAME
  }
  return "TDICT_?";
}

void tdict_error_print(const tdict_error *err, FILE *file) {
  TDICT_UNCANCELLED;
  char native[32] = "";
  if (!err) return;
  if (err->native) snprintf(native, sizeof native, " [%d]", (int)err->native);
  fprintf(file, "%s%s%.*s%s%.*s%s\n", tdict_status_name((tdict_status)err->status), err->path[0] ? " " : "",
          (int)sizeof err->path, err->path, err->message[0] ? ": " : "", (int)sizeof err->message, err->message,
          native);
}

/* Fills *err unless `err` is NULL. */
static void write_error(tdict_error *err, tdict_status status, int32_t native, const char *format, va_list args) {
  if (!err) return;
  char text[sizeof err->message];
  vsnprintf(text, sizeof text, format, args); /* Format into a local buffer first: an argument can point into *err. */
  memset(err, 0, sizeof *err);
  err->status = (int32_t)status;
  err->native = native;
  memcpy(err->message, text, strlen(text));
}

tdict_status tdict_fail(tdict_error *err, tdict_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  write_error(err, status, 0, format, args);
  va_end(args);
  return status;
}

tdict_status tdict_error_set(tdict_error *err, tdict_status status, const char *path, const char *format, ...) {
  tdict_error made;
  va_list args;
  if (!err) return status;
  va_start(args, format);
  write_error(&made, status, 0, format, args);
  va_end(args);
  (void)tdict_error_at(&made, status, path);
  *err = made; /* last, because `path` can point into *err */
  return status;
}

tdict_status tdict_fail_native(tdict_error *err, tdict_status status, int32_t native, const char *format, ...) {
  va_list args;
  va_start(args, format);
  write_error(err, status, native, format, args);
  va_end(args);
  return status;
}

tdict_status tdict_fail_null(tdict_error *err, const char *what, const char *name) {
  return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, name);
}

tdict_status tdict_fail_null_at(tdict_error *err, const char *what, const char *path, const char *name) {
  return tdict_error_at(err, tdict_fail_null(err, what, name), path);
}

bool tdict_status_is_known(tdict_status status) {
  return (int)status >= (int)TDICT_OK && (int)status <= (int)TDICT_ENOTSUP;
}

tdict_status tdict_callback_status(tdict_status returned, const char *what, tdict_error *own) {
  if (returned == TDICT_OK) return returned;
  if (!tdict_status_is_known(returned))
    return tdict_fail(own, TDICT_EHOOK, "%s returned %d, which is not a tdict_status", what, (int)returned);
  if (!own) return returned;
  own->status = (int32_t)returned;
  own->path[sizeof own->path - 1] = own->message[sizeof own->message - 1] = 0; /* the program may have filled both */
  if (!own->message[0])
    snprintf(own->message, sizeof own->message, "%s returned %s without a message", what, tdict_status_name(returned));
  return returned;
}

tdict_status tdict_error_at(tdict_error *err, tdict_status status, const char *path) {
  static const char cut[] = "...";
  if (!err || !path) return status;
  size_t length = strlen(path), room = sizeof err->path - 1;
  if (length <= room) {
    memcpy(err->path, path, length + 1);
    return status;
  }
  /* Keep the head and the tail of a long path, since both parts help to find the leaf. */
  size_t kept = room - (sizeof cut - 1), head = kept / 2, tail = kept - head;
  memcpy(err->path, path, head);
  memcpy(err->path + head, cut, sizeof cut - 1);
  memcpy(err->path + head + sizeof cut - 1, path + length - tail, tail + 1);
  return status;
}

tdict_status tdict_fail_at(tdict_error *err, tdict_status status, const char *path, const char *format, ...) {
  va_list args;
  va_start(args, format);
  write_error(err, status, 0, format, args);
  va_end(args);
  return tdict_error_at(err, status, path);
}

tdict_status tdict_fail_errno(tdict_error *err, int code, const char *path, const char *format, ...) {
  char text[sizeof err->message];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  tdict_fail_native(err, TDICT_EIO, code, "%s: %s", text, strerror(code));
  return tdict_error_at(err, TDICT_EIO, path);
}

tdict_status tdict_fail_memory(tdict_error *err, const char *what, const char *path, const char *format, ...) {
  char text[sizeof err->message];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return tdict_fail_at(err, TDICT_ENOMEM, path, "%s: no host memory for %s", what, text);
}
