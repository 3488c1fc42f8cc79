/* Starts threads for cases. A failure to start a thread ends the case. Thread rule: the main thread. */
#ifndef TDICT_TESTS_SUPPORT_THREADS_H
#define TDICT_TESTS_SUPPORT_THREADS_H

#include <pthread.h>

#include "support/test.h"

static inline pthread_t td_start(void *(*run)(void *), void *user) {
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, run, user), 0);
  return thread;
}

/* Runs a function on `count` threads at the same time, and waits for them. Thread i gets the address `user` + i *
 * `stride`. Returns a non-NULL result of a thread, or NULL if there is none. */
static inline void *td_in_threads(int count, void *(*run)(void *), void *user, size_t stride) {
  pthread_t threads[64];
  void *found = NULL, *result;
  assert_in_range(count, 1, 64);
  for (int i = 0; i < count; i++) threads[i] = td_start(run, (char *)user + (size_t)i * stride);
  for (int i = 0; i < count; i++) {
    assert_int_equal(pthread_join(threads[i], &result), 0);
    if (result) found = result;
  }
  return found;
}

#endif
