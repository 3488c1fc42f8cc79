/* Makes allocations fail on demand. The linker's option --wrap redirects malloc, calloc, realloc, aligned_alloc and
 * posix_memalign of the library and the tests to fail_alloc.c. Each thread counts its own allocations. */
#ifndef TDICT_TESTS_SUPPORT_FAIL_ALLOC_H
#define TDICT_TESTS_SUPPORT_FAIL_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "tdict/status.h"

/* Makes the next `n` allocations of this thread succeed and the one after them fail. If `and_all_after` is true, all
 * later allocations fail, too. */
void td_fail_alloc(int64_t n, bool and_all_after);
/* Lets all allocations succeed again. Returns true if an allocation has failed. */
bool td_fail_alloc_stop(void);
/* Returns how many allocations this thread attempted after td_fail_alloc() and before td_fail_alloc_stop(). */
int64_t td_allocs_seen(void);

/* A loop: round k makes allocation number k of a call fail. In the last round, no allocation fails.
 *
 *   TD_SWEEP(s)
 *     if (td_refused(s, tdict_load(context, path, device, NULL, &out, err))) assert_null(out); */
typedef struct td_sweep {
  int64_t n;   /* number of the allocation that fails, from 0 */
  bool failed; /* whether an allocation failed in this round */
  tdict_error error;
} td_sweep;
#define TD_SWEEP(sweep) for (td_sweep sweep = {.n = -1, .failed = true}; sweep.failed;)
/* Runs the call of a round. The call may use `err`. Returns its status, which must be TDICT_ENOMEM or TDICT_OK. */
#define td_sweep_call(sweep, call)                                                       \
  __extension__({                                                                        \
    tdict_error *err = &(sweep).error;                                                   \
    memset(err, 0, sizeof *err);                                                         \
    assert_true((sweep).n++ < 100000);                                                   \
    td_fail_alloc((sweep).n, false);                                                     \
    const tdict_status got_ = (call);                                                    \
    (sweep).failed = td_fail_alloc_stop();                                               \
    if (got_ != TDICT_OK && (got_ != TDICT_ENOMEM || !(sweep).failed))                   \
      fail_msg("%s: allocation %d: %s", #call, (int)(sweep).n, tdict_status_name(got_)); \
    got_;                                                                                \
  })
/* Like td_sweep_call(), for calls that must fail if any allocation fails. Returns whether the call failed. */
#define td_refused(sweep, call)                                             \
  __extension__({                                                           \
    const bool refused_ = td_sweep_call(sweep, call) != TDICT_OK;           \
    if (refused_ != (sweep).failed) fail_msg("%s: hides a failure", #call); \
    refused_;                                                               \
  })

/* Runs the call in each round, and runs `check` after each failure. Both may use `err`. */
#define TD_WITHOUT_MEMORY_THEN(call, check)        \
  do {                                             \
    TD_SWEEP(sweep_) {                             \
      if (!td_refused(sweep_, call)) {             \
        assert_true(sweep_.n > 0);                 \
        break;                                     \
      }                                            \
      tdict_error *err = &sweep_.error;            \
      assert_int_equal(err->status, TDICT_ENOMEM); \
      check;                                       \
    }                                              \
  } while (0)
#define TD_WITHOUT_MEMORY(call) TD_WITHOUT_MEMORY_THEN(call, (void)0)

#endif
