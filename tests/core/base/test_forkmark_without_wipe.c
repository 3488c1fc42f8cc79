/* Tests fork marks without MADV_WIPEONFORK or without memory for a page. A mark then compares process ids. */
#include "core/base/forkmark.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

static bool no_wipe, no_page;
int __real_madvise(void *address, size_t bytes, int advice);
int __wrap_madvise(void *address, size_t bytes, int advice);
int __wrap_madvise(void *address, size_t bytes, int advice) {
  if (!no_wipe) return __real_madvise(address, bytes, advice);
  errno = EINVAL;
  return -1;
}
void *__real_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (!no_page) return __real_mmap(address, bytes, protection, flags, file, offset);
  errno = ENOMEM;
  return MAP_FAILED;
}

static void check_by_number(void) {
  tdict_forkmark *mark = NULL;
  td_ok(tdict_forkmark_create(&mark, err));
  assert_false(tdict_forkmark_forked(mark));
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    bool seen = tdict_forkmark_forked(mark) && tdict_forkmark_check(mark, "a call", NULL) == TDICT_EFORKED;
    tdict_forkmark_release(mark);
    _exit(seen ? 0 : 1);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  tdict_forkmark_release(mark);
}

CASE(forkmark_falls_back_to_the_process_id) {
  no_wipe = true;
  check_by_number();
  no_wipe = false;
  no_page = true;
  check_by_number();
  no_page = false;
}

CASE(forkmark_without_memory) {
  tdict_forkmark *mark = NULL;
  tdict_error err = {0};
  td_fail_alloc(0, false);
  tdict_status status = tdict_forkmark_create(&mark, &err);
  assert_true(td_fail_alloc_stop());
  assert_int_equal(status, TDICT_ENOMEM);
  assert_int_equal(err.status, TDICT_ENOMEM);
  assert_null(mark);
}
