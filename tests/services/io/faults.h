/* Makes system calls of the library fail, or kills the process at one of them. The linker's option --wrap redirects the
 * calls to this file. A test file names the wrapped functions in a comment, which CMake reads. Thread rule: the state
 * may be changed only while no other thread makes calls. */
#ifndef TDICT_TESTS_SERVICES_IO_FAULTS_H
#define TDICT_TESTS_SERVICES_IO_FAULTS_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "files.h"

/* What happens at call number fault_at. */
typedef enum fault { FAULT_NONE, FAULT_FAIL, FAULT_KILL_BEFORE, FAULT_KILL_AFTER } fault;
static fault chosen;
static int fault_at = -1;  /* the fault happens at call number fault_at */
static int again_at = -1;  /* the fault happens at this call, too */
static _Atomic(int) calls; /* number of calls made while `chosen` is set */
static int fault_errno = EIO;
static const char *only_call;        /* if not NULL, other calls are neither counted nor changed */
static const char *fault_call;       /* name of the call that failed */
static bool writes_little;           /* pwrite() writes 7 bytes at most, and every second call is interrupted */
static bool lacks_exchange;          /* renameat2() fails as on a file system that cannot exchange names */
static bool skips_flush;             /* fsync() does nothing, to save time: a killed process loses no written bytes */
static void (*look_at_file)(int fd); /* if not NULL, called after a file is created and before each pwrite() */
static _Thread_local bool dies_after;

/* Counts a call. Returns true if the call must fail. Kills the process if FAULT_KILL_BEFORE is chosen for this call. */
static bool begin_call(const char *name) {
  if (chosen == FAULT_NONE || (only_call && strcmp(name, only_call) != 0)) return false;
  const int at = calls++;
  if (at != fault_at && at != again_at) return false;
  if (chosen == FAULT_KILL_BEFORE) raise(SIGKILL);
  dies_after = chosen == FAULT_KILL_AFTER;
  fault_call = name;
  errno = fault_errno;
  return chosen == FAULT_FAIL;
}
static void end_call(void) {
  if (dies_after) raise(SIGKILL);
}
/* Returns true if a save ignores a failure of this call: it closes a folder or a removed file, locks a file, searches
 * for files of killed processes, or checks whether such a search has removed a new file. */
static inline bool is_ignored(const char *call) {
  return strcmp(call, "close") == 0 || strcmp(call, "flock") == 0 || strcmp(call, "openat .") == 0 ||
         strcmp(call, "fstatat") == 0;
}
static inline void begin_faults(fault what, int at) {
  fault_at = at;
  calls = 0;
  fault_call = NULL;
  chosen = what;
}
#define WRAP(type, name, parameters, arguments)  \
  type __real_##name parameters;                 \
  type __wrap_##name parameters;                 \
  type __wrap_##name parameters {                \
    if (begin_call(#name)) return (type)-1;      \
    const type result = __real_##name arguments; \
    end_call();                                  \
    return result;                               \
  }
WRAP(int, renameat, (int a, const char *b, int c, const char *d), (a, b, c, d))
WRAP(int, fchmod, (int fd, mode_t mode), (fd, mode))
WRAP(int, fstatat, (int fd, const char *name, struct stat *out, int flags), (fd, name, out, flags))
WRAP(int, mkdirat, (int at, const char *name, mode_t mode), (at, name, mode))
WRAP(int, unlinkat, (int at, const char *name, int flags), (at, name, flags))
WRAP(int, flock, (int fd, int operation), (fd, operation))
WRAP(int, ftruncate, (int fd, off_t bytes), (fd, bytes))
int __real_renameat2(int a, const char *b, int c, const char *d, unsigned flags);
int __wrap_renameat2(int a, const char *b, int c, const char *d, unsigned flags);
int __wrap_renameat2(int a, const char *b, int c, const char *d, unsigned flags) {
  if (begin_call("renameat2")) return -1;
  if (lacks_exchange) errno = EINVAL;
  const int result = lacks_exchange ? -1 : __real_renameat2(a, b, c, d, flags);
  end_call();
  return result;
}
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
  if (begin_call("fsync")) return -1;
  const int result = skips_flush ? 0 : __real_fsync(fd);
  end_call();
  return result;
}
int __real_openat(int at, const char *name, int flags, ...);
int __wrap_openat(int at, const char *name, int flags, mode_t mode);
int __wrap_openat(int at, const char *name, int flags, mode_t mode) {
  if (begin_call(strcmp(name, ".") == 0 ? "openat ." : "openat")) return -1;
  const int fd = __real_openat(at, name, flags, mode);
  if (look_at_file && flags & O_CREAT && fd >= 0) look_at_file(fd);
  end_call();
  return fd;
}
int __real_open(const char *name, int flags, ...);
int __wrap_open(const char *name, int flags, mode_t mode);
int __wrap_open(const char *name, int flags, mode_t mode) {
  if (begin_call("open")) return -1;
  const int fd = __real_open(name, flags, mode);
  end_call();
  return fd;
}
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd) {
  const bool fails = begin_call("close");
  const int code = errno, result = __real_close(fd);
  end_call();
  if (fails) errno = code;
  return fails ? -1 : result;
}
ssize_t __real_pwrite(int fd, const void *bytes, size_t count, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t count, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t count, off_t offset) {
  static _Atomic(int) rounds;
  if (begin_call("pwrite")) return -1;
  if (look_at_file) look_at_file(fd);
  if (writes_little && rounds++ % 2) {
    errno = EINTR;
    return -1;
  }
  const ssize_t result = __real_pwrite(fd, bytes, writes_little && count > 7 ? 7 : count, offset);
  end_call();
  return result;
}

#endif
