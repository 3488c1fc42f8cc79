/* Allocations that fail on demand. malloc, calloc, realloc, aligned_alloc and posix_memalign of the library and of the
 * tests go through here (the linker's --wrap); nothing fails unless a test asks for it. Each thread counts its own. */
#ifndef TDICT_TESTS_SUPPORT_FAIL_ALLOC_H
#define TDICT_TESTS_SUPPORT_FAIL_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* Lets the next `n` allocations of this thread succeed and the one after them fail. With `and_all_after` all later
 * ones fail too. */
void td_fail_alloc(int64_t n, bool and_all_after);
/* Lets all allocations succeed again. Returns true if one has failed. */
bool td_fail_alloc_stop(void);
/* Returns the number of allocations of this thread since td_fail_alloc(). */
int64_t td_allocs_seen(void);

#endif
