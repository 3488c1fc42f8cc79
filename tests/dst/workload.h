/* What a workload of the simulation may use. A workload is a file that defines dst_workload(). The program dst_NAME
 * runs it under the scheduler, or with real threads and without misfortunes. Thread rule: safe from any thread. */
#ifndef TDICT_TESTS_DST_WORKLOAD_H
#define TDICT_TESTS_DST_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>

/* The workload. Returns if every check holds; otherwise dst_fail() ends the program. */
void dst_workload(void);

/* Returns a number from 0 to n - 1 that depends on the seed. */
uint64_t dst_roll(uint64_t n);
/* Prints the message and ends the program as failed. */
_Noreturn void dst_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* True under the scheduler: time is virtual, and files are in memory. */
bool dst_is_simulated(void);

/* Kinds of misfortune. A set of kinds is a number with the bit 1u << kind for each kind. */
enum dst_misfortune { DST_SPURIOUS, DST_EARLY_TIMEOUT, DST_ALLOC, DST_THREAD, DST_DRIVER, DST_IO };
/* Says whether misfortunes of these kinds may happen from now on. At first, only spurious wakeups may. The environment
 * variable DST_OFF switches kinds off for good. */
void dst_allow(unsigned kinds, bool allowed);
/* While spared, no allocation of this thread fails: for the simulated driver, which is no part of the library. Calls
 * may be nested. */
void dst_spare(bool is_spared);
/* Returns true if a call of this kind must fail now. The scheduler asks this for the calls that it replaces. A workload
 * asks for DST_DRIVER before a driver call, in a driver of its own. */
bool dst_is_unlucky(enum dst_misfortune kind);
/* Returns the number of calls that have failed by misfortune so far. Spurious wakeups, early timeouts, interrupted and
 * short reads and writes do not count, because the program must not notice them. */
uint64_t dst_num_faults(void);

/* The folder for files, empty at first: "/dst" under the scheduler, otherwise a temporary folder. */
const char *dst_folder(void);
/* Runs `body`. Under the scheduler, the file system may crash inside. Returns true after a crash. The folder then has
 * what a crash at that moment would have left. */
bool dst_crash(void (*body)(void *data), void *data);
/* Inside of `body`: true if the moment of the crash has passed, so that nothing that happens now survives. */
bool dst_has_crashed(void);

#endif
