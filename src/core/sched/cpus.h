/* Sets of processors for every Linux machine, those that the process may use, and its quota. Thread-safe. */
#ifndef TDICT_CORE_SCHED_CPUS_H
#define TDICT_CORE_SCHED_CPUS_H

#include <sched.h>
#include <stdbool.h>

/* A set of processors. A cpu_set_t has 1024 processors, and sched_getaffinity() returns EINVAL if the machine can have
 * more than the set. Linux supports at most 8192. Use the macros CPU_SET_S() and so on with `sets` and its size. */
enum { TDICT_CPU_SETS = 16, TDICT_MOST_CPUS = TDICT_CPU_SETS * CPU_SETSIZE };
typedef struct tdict_cpus {
  cpu_set_t sets[TDICT_CPU_SETS];
} tdict_cpus;

/* Reads the processors that the calling thread may use. Returns false, with an empty set, if the system call failed. */
bool tdict_cpus_read(tdict_cpus *out);
/* Returns the number of processors that the calling thread may use, else that of the machine. At least 1. */
int tdict_cpus_count(void);
/* Writes the set as the kernel does, such as "0-3,8", as far as `buffer` has room. Returns `buffer`. */
char *tdict_cpus_format(const tdict_cpus *cpus, char *buffer, size_t bytes);

/* Finds the quota in processors that cgroups set for this process, which would be stopped for using more. It is the
 * minimum of the process's cgroup and all above, rounded up, of versions 2 (cpu.max) and 1 (cpu.cfs_quota_us). 0: no
 * quota, or no readable files. `root` is "", or a folder that stands for the root of the file system. */
int tdict_quota_cpus(const char *root);

#endif
