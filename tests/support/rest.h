/* A point at which all other threads of the test are blocked. */
#ifndef TDICT_TESTS_SUPPORT_REST_H
#define TDICT_TESTS_SUPPORT_REST_H

/* Waits until all other threads of the process sleep in the kernel at the same moment. If the test then finds something
 * undone, the work is blocked and not merely late, however slow the machine is. A timed sleep counts too, so a test
 * that has let a polling thread go must see it leave its loop first. A thread that never sleeps long counts as asleep
 * once it has slept a hundred times. Ends the program if a thread runs for a minute. Safe from any thread. */
void td_rest(void);

#endif
