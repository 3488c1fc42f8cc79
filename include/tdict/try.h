/* Two macros for programs that print an error and then leave the function. The macros are not part of the ABI.
 * docs/learn/errors.md has an example.
 *
 * A macro evaluates a call once. If its status is not #TDICT_OK, the macro prints a line such as this to stderr:
 *
 *     train.c:41: TDICT_ENOTFOUND obs.stat: get: 'stat' is not a key of the tree; keys: state
 *
 * Then it leaves the calling function, which must have a `tdict_error err = {0};`, in C++ `{}`, and pass `&err` to the
 * call. Calls write `err` only on failure, so the function can end with `done: ... return (tdict_status)err.status;`.
 * For a failure that the program can handle, pass another error struct or NULL, and use no macro. In C++, a goto must
 * not skip an initialization: declare variables at the top, or use TDICT_TRY_RETURN(). */
#ifndef TDICT_TRY_H
#define TDICT_TRY_H

#include <stdio.h>

#include "tdict/status.h"

#define tdict_try_(call, leave)                            \
  do {                                                     \
    const tdict_status tdict_try_status = (call);          \
    if (tdict_try_status != TDICT_OK) {                    \
      err.status = tdict_cast_(int32_t, tdict_try_status); \
      fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);      \
      tdict_error_print(&err, stderr);                     \
      leave;                                               \
    }                                                      \
  } while (0)

/** @brief If a call fails, sets `err.status`, prints `err` and jumps. Needs a `tdict_error err` and a label `done`. */
#define TDICT_TRY(call) tdict_try_(call, goto done)

/** @brief Does the same as TDICT_TRY(), but returns `value` from the function instead, and needs no label. */
#define TDICT_TRY_RETURN(call, value) tdict_try_(call, return value)

#endif
