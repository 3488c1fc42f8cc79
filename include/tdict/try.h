/* Defines two macros for programs that print an error and then leave the function. The macros are not part of the
 * library's ABI.
 *
 * Each macro takes a call that returns a tdict_status, and evaluates the call once. If the status is #TDICT_OK, nothing
 * else happens. Otherwise the macro prints one line to stderr, such as
 *
 *     train.c:41: TDICT_ENOTFOUND obs.stat: get: 'stat' is no key of the tree; keys: state, pixels
 *
 * and leaves the calling function. The calling function must have a tdict_error variable `err`, and pass `&err` to the
 * call. If the calling function passes NULL to the call instead, all bytes of `err` must be zero. The macro then prints
 * only the status.
 *
 * If a function initializes `err` with zero, the function can return `err.status` at its end, because calls write `err`
 * only on failure:
 *
 *     tdict_status load(tdict_tree **out) {
 *       tdict_error err = {0};
 *       tdict_tree *tree = NULL;
 *       TDICT_TRY(tdict_create(0, NULL, &tree, &err));
 *       TDICT_TRY(fill(tree, &err));
 *       *out = tdict_retain(tree);
 *
 *     done:
 *       tdict_release(tree);
 *       return (tdict_status)err.status;      (main: return err.status != TDICT_OK;)
 *     }
 *
 * For a call whose failure the program can handle, do not use the macros. Pass another tdict_error or NULL to such a
 * call, so that `err.status` stays zero. In C++ a goto must not skip the initialization of a variable. Declare
 * variables at the top of the function, or use TDICT_TRY_RETURN(). */
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

/** @brief Evaluates a call. If the call fails, prints the error with file and line, and jumps to the label `done`.
 *  The macro also sets err.status to the status of the call. */
#define TDICT_TRY(call) tdict_try_(call, goto done)

/** @brief Evaluates a call. If the call fails, prints the error like TDICT_TRY(), and returns `value` from the calling
 *  function. */
#define TDICT_TRY_RETURN(call, value) tdict_try_(call, return value)

#endif
