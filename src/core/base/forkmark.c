/* Detects a fork. The mark is a page that the kernel zeroes in a child process (MADV_WIPEONFORK). If such a page cannot
 * be obtained, the mark compares process ids instead. Marks are reference-counted. Thread rule: see forkmark.h. */
#include "core/base/forkmark.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/error.h"

struct tdict_forkmark {
  _Atomic(int64_t) refs;
  /* *page is 1 in the creating process and 0 in a child. If `page` is NULL, process ids are compared. */
  unsigned char *page;
  pid_t creator;
  tdict_log *log; /* retained; NULL: no log */
};
enum { PAGE_BYTES = 4096 };

tdict_status tdict_forkmark_create(tdict_forkmark **out, tdict_error *err) {
  tdict_forkmark *mark = calloc(1, sizeof *mark);
  if (!mark) return tdict_fail_memory(err, "context", NULL, "its fork mark");
  atomic_init(&mark->refs, 1);
  mark->creator = getpid();
  void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED && madvise(page, PAGE_BYTES, MADV_WIPEONFORK) == 0) {
    mark->page = page;
    *mark->page = 1;
  } else if (page != MAP_FAILED) {
    munmap(page, PAGE_BYTES);
  }
  *out = mark;
  return TDICT_OK;
}

tdict_forkmark *tdict_forkmark_retain(tdict_forkmark *mark) {
  if (mark) atomic_fetch_add_explicit(&mark->refs, 1, memory_order_relaxed);
  return mark;
}

void tdict_forkmark_release(tdict_forkmark *mark) {
  if (!mark || atomic_fetch_sub_explicit(&mark->refs, 1, memory_order_acq_rel) != 1) return;
  if (mark->page) munmap(mark->page, PAGE_BYTES);
  tdict_log_release(mark->log);
  free(mark);
}

void tdict_forkmark_keep_log(tdict_forkmark *mark, tdict_log *log) { mark->log = tdict_log_retain(log); }

tdict_log *tdict_forkmark_log(const tdict_forkmark *mark) { return mark ? mark->log : NULL; }

bool tdict_forkmark_forked(const tdict_forkmark *mark) {
  if (!mark) return false;
  /* volatile: the kernel changes the byte, so the compiler must read the byte at each call. */
  return mark->page ? *(const volatile unsigned char *)mark->page == 0 : getpid() != mark->creator;
}

tdict_status tdict_forkmark_check(const tdict_forkmark *mark, const char *what, tdict_error *err) {
  if (!tdict_forkmark_forked(mark)) return TDICT_OK;
  return tdict_fail(err, TDICT_EFORKED, "%s: this process is a fork of the process that created the context", what);
}
