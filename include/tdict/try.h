/* Two macros for programs that print an error and leave. No other header includes this one: a program that wants the
 * macros includes it beside tdict/tdict.h. It adds nothing to the library's ABI.
 *
 * Both evaluate a call that returns a tdict_status, once. If the status is #TDICT_OK nothing else happens. If not, they
 * print one line to stderr, such as
 *
 *     train.c:41: TDICT_ENOTFOUND obs.stat: get: 'stat' is no key there; keys: state, pixels
 *
 * and leave the function. They use the variable `err` of the place where they stand: a tdict_error that the call was
 * given (`&err`). For a call that was given NULL, set `err` to zero first; then the status alone is printed.
 *
 * In main, and in a function that returns a tdict_status, `err.status` is the result, since it is written on failure
 * only:
 *
 *     tdict_status load(tdict_tree **out) {
 *       tdict_error err = {0};
 *       tdict_tree *td = NULL;
 *       TDICT_TRY(tdict_create(0, NULL, &td, &err));
 *       TDICT_TRY(fill(td, &err));
 *       *out = tdict_retain(td);
 *
 *     done:
 *       tdict_release(td);
 *       return (tdict_status)err.status;      (main: return err.status != TDICT_OK;)
 *     }
 *
 * A call that may fail without harm is given another tdict_error, or NULL. C++ does not let a goto pass the
 * initialization of a variable: there, declare variables at the top, or use TDICT_TRY_RETURN(). */
#ifndef TDICT_TRY_H
#define TDICT_TRY_H

#include <stdio.h>

#include "tdict/status.h"

#define tdict_try_(call, leave)                       \
  do {                                                \
    const tdict_status tdict_try_status = (call);     \
    if (tdict_try_status != TDICT_OK) {               \
      err.status = (int32_t)tdict_try_status;         \
      fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
      tdict_error_print(&err, stderr);                \
      leave;                                          \
    }                                                 \
  } while (0)

/** @brief Evaluates a call. On failure prints the error with file and line, and goes to the label `done`. err.status is
 *         set since a call that was given NULL leaves `err` as it was. */
#define TDICT_TRY(call) tdict_try_(call, goto done)

/** @brief The same, but on failure returns `value` from the function. */
#define TDICT_TRY_RETURN(call, value) tdict_try_(call, return value)

#endif
