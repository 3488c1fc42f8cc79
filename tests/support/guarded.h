/* A buffer of guard bytes. It begins with a struct that a function fills. The struct of an older program is shorter, so
 * the function must write at most struct_size bytes. */
#ifndef TDICT_TESTS_SUPPORT_GUARDED_H
#define TDICT_TESTS_SUPPORT_GUARDED_H

#include <sys/mman.h>
#include <unistd.h>

#include "support/test.h"

enum { GUARD_BYTE = 0x5A, GUARDED_BYTES = 1024 };

typedef union guarded {
  size_t struct_size;
  double alignment;
  unsigned char bytes[GUARDED_BYTES];
} guarded;

static inline guarded *guarded_of(size_t struct_size) {
  static guarded g;
  memset(&g, GUARD_BYTE, sizeof g);
  g.struct_size = struct_size;
  return &g;
}
/* Checks that the struct equals the first `size` bytes of `whole`, except for struct_size, and that the bytes after it
 * are unchanged. */
static inline void check_guarded(const guarded *g, size_t size, const void *whole) {
  assert_int_equal(g->struct_size, size);
  assert_memory_equal(g->bytes + sizeof size, (const unsigned char *)whole + sizeof size, size - sizeof size);
  for (size_t i = size; i < sizeof *g; i++) assert_int_equal(g->bytes[i], GUARD_BYTE);
}
/* Checks that a function that refused the struct wrote nothing after struct_size. */
static inline void check_untouched(const guarded *g) {
  for (size_t i = sizeof g->struct_size; i < sizeof *g; i++) assert_int_equal(g->bytes[i], GUARD_BYTE);
}
/* Returns a copy of a struct at the end of a page. Reading beyond the copy causes a fault. The copy is never freed. */
static inline void *before_a_wall(const void *given, size_t size) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(pages != MAP_FAILED && size <= page);
  assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
  return memcpy(pages + page - size, given, size);
}

#endif
