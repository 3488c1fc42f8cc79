/* Functions for workloads of the simulation. A workload is a file that defines dst_workload(). The program dst_NAME
 * runs the workload under the scheduler, or with real threads and without misfortunes. Thread rule: all functions are
 * thread-safe. */
#ifndef TDICT_TESTS_DST_WORKLOAD_H
#define TDICT_TESTS_DST_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>

/* Runs the workload once. If a check fails, dst_fail() ends the program. */
void dst_workload(void);

/* Returns a pseudorandom number from 0 to n - 1. The seed determines the sequence. */
uint64_t dst_roll(uint64_t n);
/* Prints the message and aborts the program. */
_Noreturn void dst_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns true under the scheduler. Time is then virtual, and files are in memory. */
bool dst_is_simulated(void);

/* Kinds of misfortune, which are injected faults and other rare events. Bit 1u << kind of a set stands for the kind. */
enum dst_misfortune { DST_SPURIOUS, DST_EARLY_TIMEOUT, DST_ALLOC, DST_THREAD, DST_DRIVER, DST_IO };
/* Sets whether misfortunes of these kinds may happen from now on. At first, only spurious wakeups may happen. Kinds in
 * the environment variable DST_OFF never happen. */
void dst_allow(unsigned kinds, bool allowed);
/* Starts or ends a section in which no allocation of this thread fails, for example in the simulated driver. Calls may
 * be nested. */
void dst_spare(bool is_spared);
/* Returns true if a call of this kind must fail now. The scheduler calls this function for the calls that it replaces.
 * A workload with its own driver calls it with DST_DRIVER before each driver call. */
bool dst_is_unlucky(enum dst_misfortune kind);
/* Returns how many calls injected faults have made fail so far. Does not count spurious wakeups, early timeouts, and
 * interrupted or short reads and writes, because the library must handle them without an error. */
uint64_t dst_num_faults(void);

/* Returns the folder for files, which is empty at first: "/dst" under the scheduler, otherwise a temporary folder. */
const char *dst_folder(void);
/* Runs `body`. Under the scheduler, the file system may crash while `body` runs. Returns true after a crash. The folder
 * then has the files that survived the crash. */
bool dst_crash(void (*body)(void *data), void *data);
/* Returns true in `body` after the crash. Later changes do not survive. */
bool dst_has_crashed(void);

#endif
