/* A watchdog for tests of many threads: when nobody makes progress for a while it prints what each thread was about and
 * ends the program, so that a hang is a failure with a story. Thread rule: note and bump from anywhere in between. */
#ifndef TDICT_TESTS_SUPPORT_WATCHDOG_H
#define TDICT_TESTS_SUPPORT_WATCHDOG_H

enum { WATCH_MAX_THREADS = 64 };

/* Looks every second; `seconds` without a note or bump end the program. One at a time. */
void watch_begin(int seconds);
void watch_end(void);
/* What the thread begins now; `state` must live on, as a literal does. */
void watch_note(int thread, const char *state);
/* Progress that is nobody's in particular, as in hooks. */
void watch_bump(void);

#endif
