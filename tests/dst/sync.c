/* Replaces mutexes, condition variables, read-write locks, barriers and pthread_once(). An object's state is stored in
 * its own bytes, which are all zero after a normal static initializer. The table of threads says which threads wait for
 * the object. Before the scheduler starts, the functions call libc. */
#include "dst/dst.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

_Static_assert(offsetof(pthread_mutex_t, __data.__kind) == offsetof(dst_lock, kind),
               "dst_lock.kind must be at the offset of the field that static initializers of mutexes set");
_Static_assert(sizeof(dst_lock) <= sizeof(pthread_rwlock_t), "a lock fits");

/* ---- mutexes ---- */

static dst_lock *lock_of(void *object) { return object; }

DST_EXPORT int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes) {
  int kind = PTHREAD_MUTEX_DEFAULT;
  if (!dst_active()) return DST_REAL(pthread_mutex_init)(mutex, attributes);
  if (attributes) pthread_mutexattr_gettype(attributes, &kind);
  memset(mutex, 0, sizeof *mutex);
  lock_of(mutex)->kind = kind;
  return 0;
}

DST_EXPORT int pthread_mutex_destroy(pthread_mutex_t *mutex) {
  if (!dst_active()) return DST_REAL(pthread_mutex_destroy)(mutex);
  if (lock_of(mutex)->owner) dst_die("a mutex is destroyed while thread %d holds it", lock_of(mutex)->owner - 1);
  for (int i = 0; i < dst_the.num_threads; i++) {
    const dst_thread *t = &dst_the.threads[i];
    if ((t->state == DST_MUTEX && t->object == mutex) || (t->state == DST_CONDITION && t->mutex == lock_of(mutex)))
      dst_die("a mutex is destroyed while thread %d waits for it", i);
  }
  lock_of(mutex)->kind = -1;
  return 0;
}

static void check_mutex(const dst_lock *lock) {
  if (lock->kind == -1) dst_die("a destroyed mutex is used");
}

DST_EXPORT int pthread_mutex_lock(pthread_mutex_t *mutex) {
  dst_lock *lock = lock_of(mutex);
  if (!dst_active()) return DST_REAL(pthread_mutex_lock)(mutex);
  check_mutex(lock);
  if (lock->owner == dst_self + 1) {
    if (lock->kind == PTHREAD_MUTEX_ERRORCHECK) return EDEADLK;
    if (lock->kind != PTHREAD_MUTEX_RECURSIVE) dst_die("the thread locks a mutex that it holds");
    lock->depth++;
    return 0;
  }
  dst_wait(DST_MUTEX, lock, DST_FOREVER, "pthread_mutex_lock", DST_SITE);
  lock->owner = dst_self + 1;
  return 0;
}

DST_EXPORT int pthread_mutex_trylock(pthread_mutex_t *mutex) {
  dst_lock *lock = lock_of(mutex);
  if (!dst_active()) return DST_REAL(pthread_mutex_trylock)(mutex);
  check_mutex(lock);
  dst_decide("pthread_mutex_trylock", DST_SITE);
  if (lock->owner == dst_self + 1 && lock->kind == PTHREAD_MUTEX_RECURSIVE) {
    lock->depth++;
    return 0;
  }
  if (lock->owner) return EBUSY;
  lock->owner = dst_self + 1;
  return 0;
}

DST_EXPORT int pthread_mutex_unlock(pthread_mutex_t *mutex) {
  dst_lock *lock = lock_of(mutex);
  if (!dst_active()) return DST_REAL(pthread_mutex_unlock)(mutex);
  check_mutex(lock);
  if (lock->owner != dst_self + 1) dst_die("the thread unlocks a mutex that it does not hold");
  if (lock->depth) {
    lock->depth--;
    return 0;
  }
  lock->owner = 0;
  dst_decide("pthread_mutex_unlock", DST_SITE);
  return 0;
}

/* ---- conditions ---- */

DST_EXPORT int pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes) {
  if (!dst_active()) return DST_REAL(pthread_cond_init)(condition, attributes);
  memset(condition, 0, sizeof *condition);
  return 0;
}

DST_EXPORT int pthread_cond_destroy(pthread_cond_t *condition) {
  if (!dst_active()) return DST_REAL(pthread_cond_destroy)(condition);
  for (int i = 0; i < dst_the.num_threads; i++) {
    const dst_thread *t = &dst_the.threads[i];
    if (t->state == DST_CONDITION && t->object == condition && !t->was_woken)
      dst_die("a condition is destroyed while thread %d waits for it", i);
  }
  return 0;
}

static int wait_for(pthread_cond_t *condition, dst_lock *lock, int64_t deadline_ns, const char *call, void *site) {
  dst_thread *me = dst_me();
  check_mutex(lock);
  if (lock->owner != dst_self + 1) dst_die("the thread waits for a condition without holding the mutex");
  dst_decide(call, site); /* a signal that is sent here without the mutex is missed */
  lock->owner = 0;
  me->mutex = lock;
  dst_wait(DST_CONDITION, condition, deadline_ns, call, site);
  lock->owner = dst_self + 1;
  return me->was_woken ? 0 : ETIMEDOUT;
}

DST_EXPORT int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
  if (!dst_active()) return DST_REAL(pthread_cond_wait)(condition, mutex);
  return wait_for(condition, lock_of(mutex), DST_FOREVER, "pthread_cond_wait", DST_SITE);
}

DST_EXPORT int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
  if (!dst_active()) return DST_REAL(pthread_cond_timedwait)(condition, mutex, until);
  return wait_for(condition, lock_of(mutex), dst_ns(until), "pthread_cond_timedwait", DST_SITE);
}

DST_EXPORT int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                                      const struct timespec *until) {
  if (!dst_active()) return DST_REAL(pthread_cond_clockwait)(condition, mutex, clock, until);
  return wait_for(condition, lock_of(mutex), dst_ns(until), "pthread_cond_clockwait", DST_SITE);
}

/* Wakes up to `most` threads, chosen at random. Returns the number of woken threads. */
static long wake(dst_state state, const void *object, long most) {
  int waiting[DST_MOST_THREADS], count = 0;
  long woken = 0;
  for (int i = 0; i < dst_the.num_threads; i++) {
    const dst_thread *t = &dst_the.threads[i];
    if (t->state == state && t->object == object && !t->was_woken) waiting[count++] = i;
  }
  for (; woken < most && count > 0; woken++) {
    const int at = count == 1 || most > count ? 0 : (int)dst_choose((uint64_t)count, 0);
    dst_the.threads[waiting[at]].was_woken = true;
    waiting[at] = waiting[--count];
  }
  return woken;
}

DST_EXPORT int pthread_cond_signal(pthread_cond_t *condition) {
  if (!dst_active()) return DST_REAL(pthread_cond_signal)(condition);
  wake(DST_CONDITION, condition, 1);
  dst_decide("pthread_cond_signal", DST_SITE);
  return 0;
}

DST_EXPORT int pthread_cond_broadcast(pthread_cond_t *condition) {
  if (!dst_active()) return DST_REAL(pthread_cond_broadcast)(condition);
  wake(DST_CONDITION, condition, LONG_MAX);
  dst_decide("pthread_cond_broadcast", DST_SITE);
  return 0;
}

/* ---- futexes ---- */

long dst_futex(void *word, int op, uint32_t value, const struct timespec *timeout, void *site) {
  enum { WAIT = 0, WAKE = 1, COMMAND_MASK = 127 };
  if ((op & COMMAND_MASK) == WAKE) {
    const long woken = wake(DST_FUTEX, word, value > INT_MAX ? INT_MAX : (long)value);
    dst_decide("futex wake", site);
    return woken;
  }
  if ((op & COMMAND_MASK) != WAIT) dst_die("futex: the operation %d is unknown to the scheduler", op);
  dst_decide("futex", site); /* other threads may change the word between the caller's last read and the wait */
  if (__atomic_load_n((uint32_t *)word, __ATOMIC_SEQ_CST) != value) {
    errno = EAGAIN;
    return -1;
  }
  dst_wait(DST_FUTEX, word, timeout ? dst_the.now_ns + dst_ns(timeout) : DST_FOREVER, "futex wait", site);
  if (dst_me()->was_woken) return 0;
  errno = ETIMEDOUT;
  return -1;
}

/* ---- read-write locks ---- */

DST_EXPORT int pthread_rwlock_init(pthread_rwlock_t *lock, const pthread_rwlockattr_t *attributes) {
  if (!dst_active()) return DST_REAL(pthread_rwlock_init)(lock, attributes);
  memset(lock, 0, sizeof *lock);
  return 0;
}

DST_EXPORT int pthread_rwlock_destroy(pthread_rwlock_t *lock) {
  if (!dst_active()) return DST_REAL(pthread_rwlock_destroy)(lock);
  if (lock_of(lock)->owner || lock_of(lock)->readers) dst_die("a read-write lock is destroyed while a thread holds it");
  return 0;
}

DST_EXPORT int pthread_rwlock_rdlock(pthread_rwlock_t *lock) {
  if (!dst_active()) return DST_REAL(pthread_rwlock_rdlock)(lock);
  dst_wait(DST_READ, lock, DST_FOREVER, "pthread_rwlock_rdlock", DST_SITE);
  lock_of(lock)->readers++;
  return 0;
}

DST_EXPORT int pthread_rwlock_wrlock(pthread_rwlock_t *lock) {
  if (!dst_active()) return DST_REAL(pthread_rwlock_wrlock)(lock);
  dst_wait(DST_WRITE, lock, DST_FOREVER, "pthread_rwlock_wrlock", DST_SITE);
  lock_of(lock)->owner = dst_self + 1;
  return 0;
}

DST_EXPORT int pthread_rwlock_unlock(pthread_rwlock_t *lock) {
  if (!dst_active()) return DST_REAL(pthread_rwlock_unlock)(lock);
  dst_lock *l = lock_of(lock);
  if (l->owner != dst_self + 1 && !l->readers) dst_die("the thread unlocks a read-write lock that it does not hold");
  if (l->owner)
    l->owner = 0;
  else
    l->readers--;
  dst_decide("pthread_rwlock_unlock", DST_SITE);
  return 0;
}

/* ---- barriers, and code that runs once ---- */

typedef struct barrier {
  unsigned size, num_waiting;
} barrier;

DST_EXPORT int pthread_barrier_init(pthread_barrier_t *object, const pthread_barrierattr_t *attributes, unsigned size) {
  if (!dst_active()) return DST_REAL(pthread_barrier_init)(object, attributes, size);
  *(barrier *)(void *)object = (barrier){.size = size};
  return size ? 0 : EINVAL;
}

DST_EXPORT int pthread_barrier_destroy(pthread_barrier_t *object) {
  return dst_active() ? 0 : DST_REAL(pthread_barrier_destroy)(object);
}

DST_EXPORT int pthread_barrier_wait(pthread_barrier_t *object) {
  barrier *b = (void *)object;
  if (!dst_active()) return DST_REAL(pthread_barrier_wait)(object);
  if (++b->num_waiting < b->size) {
    dst_wait(DST_BARRIER, b, DST_FOREVER, "pthread_barrier_wait", DST_SITE);
    return 0;
  }
  b->num_waiting = 0;
  wake(DST_BARRIER, b, LONG_MAX);
  dst_decide("pthread_barrier_wait", DST_SITE);
  return PTHREAD_BARRIER_SERIAL_THREAD;
}

DST_EXPORT int pthread_once(pthread_once_t *once, void (*run)(void)) {
  enum { RUNS = 1, DONE = 2 }; /* glibc uses the same value for DONE */
  if (!dst_active()) return DST_REAL(pthread_once)(once, run);
  while (*once == RUNS) dst_wait(DST_ONCE, once, DST_FOREVER, "pthread_once", DST_SITE);
  if (*once == DONE) return 0;
  *once = RUNS;
  dst_decide("pthread_once", DST_SITE);
  run();
  *once = DONE;
  wake(DST_ONCE, once, LONG_MAX);
  return 0;
}
