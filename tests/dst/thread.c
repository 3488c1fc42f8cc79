/* Replaces the functions that start, end and join threads, read clocks, sleep, and use sockets. The scheduler allocates
 * the stacks, so that their addresses do not depend on when earlier threads ended. */
#include "dst/dst.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* ---- the start and the end ---- */

typedef struct start {
  void *(*run)(void *argument);
  void *argument;
  int number;
} start;

static pthread_key_t last_key;

/* Ends the thread in the last round of destructors. libc runs at most PTHREAD_DESTRUCTOR_ITERATIONS rounds, and the key
 * is set again in each round before the last. */
static void count_destructors(void *value) {
  const intptr_t round = (intptr_t)value;
  if (round < PTHREAD_DESTRUCTOR_ITERATIONS)
    pthread_setspecific(last_key, (void *)(round + 1));
  else
    dst_end_thread();
}

__attribute__((constructor)) static void create_key(void) { pthread_key_create(&last_key, count_destructors); }

static void *run_thread(void *argument) {
  const start s = *(start *)argument;
  dst_self = s.number;
  dst_take_token(s.number);
  dst_report_catch(dst_me()->stack);
  free(argument);
  pthread_setspecific(last_key, (void *)1);
  return s.run(s.argument);
}

/* Joins the real thread, which has given up the token permanently. New threads may then reuse its stack and number. */
static void reap(dst_thread *t, void **result) {
  DST_REAL(pthread_join)(t->real, result);
  dst_stack_give(t->stack);
  t->is_free = true;
}

static void reap_detached(void) {
  for (int i = 0; i < dst_the.num_threads; i++) {
    dst_thread *t = &dst_the.threads[i];
    if (t->state == DST_DONE && t->is_detached && !t->is_free) reap(t, NULL);
  }
}

DST_EXPORT int pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
  pthread_attr_t own;
  size_t bytes;
  int is_detached = PTHREAD_CREATE_JOINABLE;
  if (!dst_active()) return DST_REAL(pthread_create)(out, attributes, run, argument);
  if (dst_call_fails(DST_THREAD)) return EAGAIN;
  reap_detached();
  if (attributes) pthread_attr_getdetachstate(attributes, &is_detached);
  const int number = dst_add_thread();
  dst_thread *t = &dst_the.threads[number];
  start *s = dst_alloc(sizeof *s);
  *s = (start){run, argument, number};
  t->start = *(void **)(void *)&run;
  t->is_detached = is_detached == PTHREAD_CREATE_DETACHED;
  t->stack = dst_stack_take(&bytes);
  pthread_attr_init(&own);
  pthread_attr_setstack(&own, (char *)t->stack + DST_SIGNAL_STACK_BYTES, bytes - DST_SIGNAL_STACK_BYTES);
  dst_scheduler_spare(true); /* libc allocates memory for the thread */
  const int code = DST_REAL(pthread_create)(&t->real, &own, run_thread, s);
  dst_scheduler_spare(false);
  pthread_attr_destroy(&own);
  if (code) dst_die("a thread cannot be started: errno %d", code);
  *out = t->real;
  dst_decide("pthread_create", DST_SITE);
  return 0;
}

static dst_thread *find(pthread_t thread) {
  for (int i = 0; i < dst_the.num_threads; i++) {
    dst_thread *t = &dst_the.threads[i];
    if (!t->is_free && pthread_equal(t->real, thread)) return t;
  }
  dst_die("a thread that does not exist is joined or detached");
}

DST_EXPORT int pthread_join(pthread_t thread, void **result) {
  if (!dst_active()) return DST_REAL(pthread_join)(thread, result);
  dst_thread *t = find(thread);
  if (t->is_detached || t == dst_me()) dst_die("a thread joins itself or a detached thread");
  dst_me()->target = (int)(t - dst_the.threads);
  dst_wait(DST_JOIN, t, DST_FOREVER, "pthread_join", DST_SITE);
  reap(t, result);
  return 0;
}

DST_EXPORT int pthread_detach(pthread_t thread) {
  if (!dst_active()) return DST_REAL(pthread_detach)(thread);
  find(thread)->is_detached = true;
  dst_decide("pthread_detach", DST_SITE);
  return 0;
}

DST_EXPORT int pthread_cancel(pthread_t thread) {
  if (!dst_active()) return DST_REAL(pthread_cancel)(thread);
  dst_die("pthread_cancel: the scheduler does not cancel threads");
}

DST_EXPORT int pthread_setaffinity_np(pthread_t thread, size_t bytes, const cpu_set_t *set) {
  return dst_active() ? 0 : DST_REAL(pthread_setaffinity_np)(thread, bytes, set);
}

/* ---- clocks ---- */

enum { READ_NS = 1000 };

int64_t dst_ns(const struct timespec *t) {
  return t->tv_sec > INT64_MAX / 1000000000 - 1 ? DST_FOREVER : t->tv_sec * INT64_C(1000000000) + t->tv_nsec;
}

/* All clocks show the same time. */
DST_EXPORT int clock_gettime(clockid_t clock, struct timespec *out) {
  if (!dst_active()) return DST_REAL(clock_gettime)(clock, out);
  dst_the.now_ns += READ_NS;
  dst_decide("clock_gettime", DST_SITE);
  *out = (struct timespec){dst_the.now_ns / 1000000000, dst_the.now_ns % 1000000000};
  return 0;
}

DST_EXPORT int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  if (!dst_active()) return DST_REAL(gettimeofday)(out, zone);
  *out = (struct timeval){dst_the.now_ns / 1000000000, dst_the.now_ns % 1000000000 / 1000};
  return 0;
}

DST_EXPORT time_t time(time_t *out) {
  if (!dst_active()) return DST_REAL(time)(out);
  const time_t now = dst_the.now_ns / 1000000000;
  if (out) *out = now;
  return now;
}

/* ---- sleeps ---- */

static void sleep_until(int64_t deadline_ns, const char *call, void *site) {
  dst_wait(DST_SLEEP, NULL, deadline_ns, call, site);
}

DST_EXPORT int nanosleep(const struct timespec *duration, struct timespec *rest) {
  if (!dst_active()) return DST_REAL(nanosleep)(duration, rest);
  sleep_until(dst_the.now_ns + dst_ns(duration), "nanosleep", DST_SITE);
  return 0;
}

DST_EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *duration, struct timespec *rest) {
  if (!dst_active()) return DST_REAL(clock_nanosleep)(clock, flags, duration, rest);
  sleep_until((flags & TIMER_ABSTIME ? 0 : dst_the.now_ns) + dst_ns(duration), "clock_nanosleep", DST_SITE);
  return 0;
}

DST_EXPORT int usleep(useconds_t microseconds) {
  if (!dst_active()) return DST_REAL(usleep)(microseconds);
  sleep_until(dst_the.now_ns + microseconds * INT64_C(1000), "usleep", DST_SITE);
  return 0;
}

DST_EXPORT unsigned sleep(unsigned seconds) {
  if (!dst_active()) return DST_REAL(sleep)(seconds);
  sleep_until(dst_the.now_ns + seconds * INT64_C(1000000000), "sleep", DST_SITE);
  return 0;
}

DST_EXPORT int sched_yield(void) {
  if (!dst_active()) return DST_REAL(sched_yield)();
  dst_give_way(dst_self);
  dst_decide("sched_yield", DST_SITE);
  return 0;
}

/* Polls the descriptors now and, if none is ready, again after the timeout. */
DST_EXPORT int poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
  if (!dst_active()) return DST_REAL(poll)(fds, count, timeout_ms);
  dst_decide("poll", DST_SITE);
  const int found = DST_REAL(poll)(fds, count, 0);
  if (found || timeout_ms == 0) return found;
  if (timeout_ms < 0) dst_die("poll: the scheduler cannot wait for a descriptor forever");
  sleep_until(dst_the.now_ns + timeout_ms * INT64_C(1000000), "poll", DST_SITE);
  return DST_REAL(poll)(fds, count, 0);
}

/* ---- sockets between threads of the program ---- */

enum { SOCKET_WAIT_NS = 100000 };

DST_EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  if (!dst_active()) return DST_REAL(sendmsg)(fd, message, flags);
  for (;;) {
    dst_decide("sendmsg", DST_SITE);
    const ssize_t count = DST_REAL(sendmsg)(fd, message, flags | MSG_DONTWAIT);
    if (count >= 0 || errno != EAGAIN || flags & MSG_DONTWAIT) return count;
    sleep_until(dst_the.now_ns + SOCKET_WAIT_NS, "sendmsg", DST_SITE);
  }
}

DST_EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
  if (!dst_active()) return DST_REAL(recvmsg)(fd, message, flags);
  for (;;) {
    dst_decide("recvmsg", DST_SITE);
    const ssize_t count = DST_REAL(recvmsg)(fd, message, flags | MSG_DONTWAIT);
    if (count >= 0 || errno != EAGAIN || flags & MSG_DONTWAIT) return count;
    sleep_until(dst_the.now_ns + SOCKET_WAIT_NS, "recvmsg", DST_SITE);
  }
}
