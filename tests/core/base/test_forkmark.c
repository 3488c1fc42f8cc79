/* Tests fork marks, by which a child process detects that it was forked. */
#include "core/base/forkmark.h"

#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

/* Checks the mark in a child process. Returns 0 if all checks pass, else the number of the failed check. */
static int ask_child(const tdict_forkmark *mark) {
  tdict_error err = {0};
  if (!tdict_forkmark_forked(mark)) return 1;
  if (tdict_forkmark_check(mark, "a call", &err) != TDICT_EFORKED || err.status != TDICT_EFORKED) return 2;
  if (strncmp(err.message, "a call: ", 8) != 0) return 3;
  if (tdict_forkmark_check(mark, "a call", NULL) != TDICT_EFORKED) return 4;
  return 0;
}
static int wait_for_child(pid_t child) {
  int status = 0;
  assert_true(child > 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

CASE(forkmark_is_seen_by_children) {
  tdict_forkmark *mark = NULL;
  tdict_error untouched = {.status = 77};
  td_ok(tdict_forkmark_create(&mark, err));
  assert_false(tdict_forkmark_forked(mark));
  assert_int_equal(tdict_forkmark_check(mark, "a call", &untouched), TDICT_OK);
  assert_int_equal(untouched.status, 77); /* a successful check does not write the error */
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    int answer = ask_child(mark);
    pid_t grandchild = answer ? -1 : fork(); /* a grandchild also detects the fork */
    if (grandchild == 0) _exit(ask_child(mark));
    int status = 0;
    if (grandchild > 0 && (waitpid(grandchild, &status, 0) != grandchild || !WIFEXITED(status) || WEXITSTATUS(status)))
      answer = 5;
    tdict_forkmark *own = NULL; /* a mark created in the child reports no fork there */
    if (tdict_forkmark_create(&own, NULL) != TDICT_OK || tdict_forkmark_forked(own)) answer = 6;
    tdict_forkmark_release(own);
    tdict_forkmark_release(mark);
    _exit(answer);
  }
  assert_int_equal(wait_for_child(child), 0);
  assert_false(tdict_forkmark_forked(mark));
  tdict_forkmark_release(mark);
}

CASE(forkmark_is_counted) {
  tdict_forkmark *mark = NULL;
  td_ok(tdict_forkmark_create(&mark, err));
  assert_ptr_equal(tdict_forkmark_retain(mark), mark);
  tdict_forkmark_release(mark);
  assert_false(tdict_forkmark_forked(mark));
  tdict_forkmark_release(mark);
  tdict_forkmark_release(NULL);
}
