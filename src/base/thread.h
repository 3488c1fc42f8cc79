/* Starting the library's threads. */
#ifndef TDICT_BASE_THREAD_H
#define TDICT_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create(), for a thread that takes none of the program's signals: a handler of the program's runs on threads
 * of its own, and a signal wakes no waiting worker. Signals that tell of a fault of the thread's own stay open. The
 * caller's mask is left as it was found. */
int tdict_thread_create(pthread_t *out, void *(*run)(void *argument), void *argument);

#endif
