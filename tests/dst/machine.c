/* Replaces the functions that describe the machine, and refuses to start other processes. */
#include "dst/dst.h"

#include <dlfcn.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PID = 4242, FIRST_TID = 5000 };

void *dst_real(const char *name) {
  void *function = dlsym(RTLD_NEXT, name);
  if (!function) {
    fprintf(stderr, "dst: libc has no %s\n", name);
    _exit(99);
  }
  return function;
}

/* ---- processors and process numbers ---- */

DST_EXPORT int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *out) {
  if (!dst_active()) return DST_REAL(sched_getaffinity)(process, bytes, out);
  CPU_ZERO_S(bytes, out);
  for (int i = 0; i < dst_the.num_cpus; i++) CPU_SET_S((size_t)i, bytes, out);
  return 0;
}

DST_EXPORT long sysconf(int name) {
  if (dst_active() && (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF)) return dst_the.num_cpus;
  return DST_REAL(sysconf)(name);
}

DST_EXPORT int sched_getcpu(void) { return dst_active() ? 0 : DST_REAL(sched_getcpu)(); }
DST_EXPORT pid_t getpid(void) { return dst_active() ? PID : DST_REAL(getpid)(); }
DST_EXPORT pid_t gettid(void) { return dst_active() ? FIRST_TID + dst_self : DST_REAL(gettid)(); }

/* ---- random bytes ---- */

DST_EXPORT ssize_t getrandom(void *out, size_t bytes, unsigned flags) {
  if (!dst_active()) return DST_REAL(getrandom)(out, bytes, flags);
  for (size_t i = 0; i < bytes; i++) ((unsigned char *)out)[i] = (unsigned char)dst_random_bits();
  return (ssize_t)bytes;
}

DST_EXPORT int getentropy(void *out, size_t bytes) {
  if (!dst_active()) return DST_REAL(getentropy)(out, bytes);
  return getrandom(out, bytes, 0) < 0 ? -1 : 0;
}

/* ---- system calls ---- */

DST_EXPORT long syscall(long number, ...) {
  long a[6];
  va_list args;
  va_start(args, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(args, long);
  va_end(args);
  if (dst_active() && number == SYS_futex)
    return dst_futex((void *)a[0], (int)a[1], (uint32_t)a[2], (const struct timespec *)a[3], DST_SITE);
  if (dst_active() && number == SYS_gettid) return gettid();
  if (dst_active() && number == SYS_pidfd_open && a[0] == PID) a[0] = DST_REAL(getpid)();
  return DST_REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- other processes and libraries ---- */

static void refuse(const char *call) {
  if (dst_active()) dst_die("%s: the simulation has one process", call);
}

DST_EXPORT pid_t fork(void) {
  refuse("fork");
  return DST_REAL(fork)();
}
DST_EXPORT pid_t vfork(void) { /* refused like fork() */
  refuse("vfork");
  return DST_REAL(fork)();
}
DST_EXPORT int execve(const char *path, char *const arguments[], char *const environment[]) {
  refuse("execve");
  return DST_REAL(execve)(path, arguments, environment);
}
DST_EXPORT int execv(const char *path, char *const arguments[]) {
  refuse("execv");
  return DST_REAL(execv)(path, arguments);
}
DST_EXPORT int execvp(const char *path, char *const arguments[]) {
  refuse("execvp");
  return DST_REAL(execvp)(path, arguments);
}
DST_EXPORT int posix_spawn(pid_t *out, const char *path, const posix_spawn_file_actions_t *actions,
                           const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {
  refuse("posix_spawn");
  return DST_REAL(posix_spawn)(out, path, actions, attributes, arguments, environment);
}
DST_EXPORT int system(const char *command) {
  refuse("system");
  return DST_REAL(system)(command);
}
DST_EXPORT FILE *popen(const char *command, const char *mode) {
  refuse("popen");
  return DST_REAL(popen)(command, mode);
}

/* Fails for library names without a folder: a real driver or NCCL would start threads unknown to the scheduler. */
DST_EXPORT void *dlopen(const char *path, int flags) {
  return DST_REAL(dlopen)(dst_active() && path && !strchr(path, '/') ? "dst-opens-no-library" : path, flags);
}

/* ---- the start ---- */

DST_EXPORT void dst_scheduler_start(uint64_t seed);
void dst_scheduler_start(uint64_t seed) { dst_start_scheduler(seed); }

/* Turns address randomization off, so that the addresses of the program and its libraries are the same in each run. If
 * the container forbids this, a program whose behavior depends on addresses may behave differently in each run. */
__attribute__((constructor)) static void start(int argc, char **argv, char **environment) {
  const char *seed = getenv("DST_SEED");
  const int now = personality(0xffffffff);
  (void)argc;
  if (!(now & ADDR_NO_RANDOMIZE) && !getenv("DST_RANDOM_ADDRESSES") &&
      personality((unsigned long)now | ADDR_NO_RANDOMIZE) >= 0 && (personality(0xffffffff) & ADDR_NO_RANDOMIZE))
    DST_REAL(execve)("/proc/self/exe", argv, environment);
  if (seed) dst_start_scheduler(strtoull(seed, NULL, 10));
}
