/* Makes allocations fail on demand: see fail_alloc.h. */
#include "support/fail_alloc.h"

#include <errno.h>

static _Thread_local bool armed, sticky, hit;
static _Thread_local int64_t left, seen;

void td_fail_alloc(int64_t n, bool and_all_after) {
  armed = true;
  sticky = and_all_after;
  hit = false;
  left = n;
  seen = 0;
}

bool td_fail_alloc_stop(void) {
  armed = false;
  return hit;
}

int64_t td_allocs_seen(void) { return seen; }

static bool refused(void) {
  if (!armed) return false;
  seen++;
  if (left > 0) {
    left--;
    return false;
  }
  if (hit && !sticky) return false;
  hit = true;
  return true;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **out, size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes);

void *__wrap_malloc(size_t bytes) { return refused() ? NULL : __real_malloc(bytes); }
void *__wrap_calloc(size_t count, size_t bytes) { return refused() ? NULL : __real_calloc(count, bytes); }
void *__wrap_realloc(void *old, size_t bytes) { return refused() ? NULL : __real_realloc(old, bytes); }
void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
  return refused() ? NULL : __real_aligned_alloc(alignment, bytes);
}
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes) {
  return refused() ? ENOMEM : __real_posix_memalign(out, alignment, bytes);
}
