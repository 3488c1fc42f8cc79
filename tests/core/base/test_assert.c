/* Tests debug assertions: a failed assertion writes one line to stderr and kills the process with a signal. Release
 * builds do not check the conditions. */
#include "core/base/assert.h"

#include <signal.h>
#include <sys/wait.h>

#include "support/test.h"

/* Runs TDICT_ASSERT(condition) in a child process. Returns its wait status, and stores its stderr output in `text`. */
static int run_assertion(bool condition, char *text, size_t room) {
  int ends[2], status = 0;
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    signal(SIGILL, SIG_DFL); /* cmocka catches these signals, so restore their default action */
    signal(SIGTRAP, SIG_DFL);
    dup2(ends[1], STDERR_FILENO);
    TDICT_ASSERT(condition);
    _exit(0);
  }
  close(ends[1]);
  size_t length = 0;
  for (ssize_t got; (got = read(ends[0], text + length, room - 1 - length)) > 0;) length += (size_t)got;
  text[length] = 0;
  close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

CASE(assert_failed_writes_a_line_and_traps) {
  char text[512];
  int status = run_assertion(false, text, sizeof text);
  if (!TDICT_ASSERTS) {
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_string_equal(text, "");
    return;
  }
  assert_true(WIFSIGNALED(status));
  assert_true(WTERMSIG(status) == SIGILL || WTERMSIG(status) == SIGTRAP);
  assert_non_null(strstr(text, "test_assert.c"));
  assert_non_null(strstr(text, "assertion failed: condition\n"));
}

CASE(assert_that_holds_is_silent) {
  char text[512];
  int status = run_assertion(true, text, sizeof text);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_string_equal(text, "");
}

CASE(assert_follows_the_build_type) {
#ifdef NDEBUG
  assert_int_equal(TDICT_ASSERTS, SANITIZED);
#else
  assert_int_equal(TDICT_ASSERTS, 1);
#endif
}

CASE(assert_sees_held_locks) {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  assert_false(tdict_lock_is_held(&lock));
  pthread_mutex_lock(&lock);
  assert_true(tdict_lock_is_held(&lock));
  pthread_mutex_unlock(&lock);
  assert_false(tdict_lock_is_held(&lock));
  pthread_mutex_destroy(&lock);
}
