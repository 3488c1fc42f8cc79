/* td_rest() waits until all other threads of the test are blocked. */
#ifndef TDICT_TESTS_SUPPORT_REST_H
#define TDICT_TESTS_SUPPORT_REST_H

/* Waits until all other threads of the process sleep in the kernel at the same moment. Unfinished work is then blocked,
 * not merely slow. A thread in a timed sleep also counts as asleep, so a test that releases a polling thread must first
 * check that the thread has left its loop. A thread that polls with short sleeps counts as asleep after 100 sleeps.
 * Ends the program if a thread runs for a minute. Safe from any thread. */
void td_rest(void);

#endif
