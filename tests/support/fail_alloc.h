/* Allocations that fail on demand. malloc, calloc, realloc, aligned_alloc and posix_memalign of the library and of the
 * tests go through here (the linker's --wrap); nothing fails unless a test asks for it. Each thread counts its own. */
#ifndef TDICT_TESTS_SUPPORT_FAIL_ALLOC_H
#define TDICT_TESTS_SUPPORT_FAIL_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* Of the allocations of this thread from now on, `n` succeed and the next one fails; with `and_all_after` so do all that
 * follow. */
void td_fail_alloc(int64_t n, bool and_all_after);
/* Lets all succeed again. True when one was refused. */
bool td_fail_alloc_stop(void);
/* Allocations of this thread since td_fail_alloc(). */
int64_t td_allocs_seen(void);

#endif
