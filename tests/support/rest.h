/* td_rest() waits until all other threads of the test are blocked. */
#ifndef TDICT_TESTS_SUPPORT_REST_H
#define TDICT_TESTS_SUPPORT_REST_H

/* Waits until all other threads of the process sleep in the kernel at the same moment. Work that is unfinished at this
 * moment is blocked, not just late, even on a slow machine. A thread in a timed sleep also counts as asleep, so a test
 * that has released a polling thread must first see that the thread has left its loop. A thread that polls with short
 * sleeps counts as asleep after 100 sleeps. Ends the program if a thread runs for a minute. Safe from any thread. */
void td_rest(void);

#endif
