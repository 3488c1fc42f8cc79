/* Enforces tests/single_thread.txt: ends the program if a case of a listed file starts a thread. CTest sets
 * TDICT_TEST_SINGLE_THREAD for these cases. Test files that are not listed may define __wrap_pthread_create. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);

__attribute__((weak)) int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                                void *(*run)(void *), void *argument) {
  if (getenv("TDICT_TEST_SINGLE_THREAD")) {
    fputs("a thread was started, but tests/single_thread.txt names this case's file: remove it there\n", stderr);
    _Exit(1);
  }
  return __real_pthread_create(thread, attributes, run, argument);
}
