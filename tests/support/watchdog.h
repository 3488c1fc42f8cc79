/* A watchdog for tests with many threads. If no thread makes progress for some time, it prints the state of each thread
 * and ends the program. Thread rule: call watch_note() and watch_bump() from any thread. */
#ifndef TDICT_TESTS_SUPPORT_WATCHDOG_H
#define TDICT_TESTS_SUPPORT_WATCHDOG_H

enum { WATCH_MAX_THREADS = 64 };

/* Starts the watchdog. It ends the program after `seconds` without watch_note() or watch_bump(). Only one runs at a
 * time. */
void watch_begin(int seconds);
void watch_end(void);
/* Records what thread number `thread` does next. `state` must be a literal, or stay valid until watch_end(). */
void watch_note(int thread, const char *state);
/* Records progress that belongs to no particular thread, for example in hooks. */
void watch_bump(void);

#endif
