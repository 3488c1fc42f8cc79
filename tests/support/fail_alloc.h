/* Allocations that fail on demand. malloc, calloc, realloc, aligned_alloc and posix_memalign of the library and of the
 * tests go through here (the linker's --wrap); nothing fails unless a test asks for it. Each thread counts its own. */
#ifndef TDICT_TESTS_SUPPORT_FAIL_ALLOC_H
#define TDICT_TESTS_SUPPORT_FAIL_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "tdict/status.h"

/* Lets the next `n` allocations of this thread succeed and the one after them fail. With `and_all_after` all later
 * ones fail too. */
void td_fail_alloc(int64_t n, bool and_all_after);
/* Lets all allocations succeed again. Returns true if one has failed. */
bool td_fail_alloc_stop(void);
/* Returns the number of allocations of this thread since td_fail_alloc(). */
int64_t td_allocs_seen(void);

/* Runs `call`, which names `err` for its error, again and again, with a later allocation failing each time, until the
 * call succeeds. A failed call must return ENOMEM. Runs `check` after each failure. */
#define TD_WITHOUT_MEMORY_THEN(call, check)        \
  do {                                             \
    for (int64_t n_ = 0;; n_++) {                  \
      tdict_error error_ = {0}, *err = &error_;    \
      td_fail_alloc(n_, false);                    \
      const tdict_status got_ = (call);            \
      if (!td_fail_alloc_stop()) {                 \
        assert_int_equal(got_, TDICT_OK);          \
        assert_true(n_ > 0);                       \
        break;                                     \
      }                                            \
      assert_int_equal(got_, TDICT_ENOMEM);        \
      assert_int_equal(err->status, TDICT_ENOMEM); \
      check;                                       \
    }                                              \
  } while (0)
#define TD_WITHOUT_MEMORY(call) TD_WITHOUT_MEMORY_THEN(call, (void)0)

#endif
