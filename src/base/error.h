/* Filling tdict_error: one line at each failing exit. Thread rule: an error belongs to its caller. */
#ifndef TDICT_BASE_ERROR_H
#define TDICT_BASE_ERROR_H

#include <stdbool.h>

#include "tdict/status.h"

/* Fills *err (when not NULL) with status, an empty path, native 0 and the formatted sentence; returns status. */
tdict_status tdict_fail(tdict_error *err, tdict_status status, const char *format, ...) TDICT_PRINTF(3, 4);
/* The same with the code of the driver or errno. */
tdict_status tdict_fail_native(tdict_error *err, tdict_status status, int32_t native, const char *format, ...)
    TDICT_PRINTF(4, 5);
/* Sets err->path, cut in the middle when it is too long; err may be NULL. Returns err->status, or `status` when err is
 * NULL, so that `return tdict_error_at(err, status, path)` ends a function. */
tdict_status tdict_error_at(tdict_error *err, tdict_status status, const char *path);

/* True for the numbers of the enum. */
bool tdict_status_is_known(tdict_status status);
/* What a program's function answered, to be asked at every call of one: a number that is no tdict_status becomes
 * TDICT_EHOOK, in *said too, and `what` names the function there. *said is what the function put into its error; may be
 * NULL. */
tdict_status tdict_callback_status(tdict_status answered, const char *what, tdict_error *said);

#ifdef __clang_analyzer__ /* clang-tidy sees one file at a time, and would take these answers to be TDICT_OK, too */
#define tdict_fail(err, status, ...) (tdict_fail((err), (status), __VA_ARGS__), (status))
#define tdict_fail_native(err, status, ...) (tdict_fail_native((err), (status), __VA_ARGS__), (status))
#endif

#endif
