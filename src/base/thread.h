/* Starts the library's threads. Thread-safe. */
#ifndef TDICT_BASE_THREAD_H
#define TDICT_BASE_THREAD_H

#include <pthread.h>

/* Starts a thread like pthread_create(). Blocks all signals on the new thread except SIGABRT and the signals that
 * report a fault of the thread, such as SIGSEGV. Handlers of the blocked signals thus run on the program's threads
 * only. The new thread starts in the default floating-point environment. Restores the caller's signal mask and
 * floating-point environment. Returns 0 or an errno. */
int tdict_thread_create(pthread_t *out, void *(*run)(void *argument), void *argument);

#endif
