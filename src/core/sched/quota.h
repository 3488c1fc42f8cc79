/* Finds the quota of processors that cgroups set for this process, as containers and schedulers of jobs do. A process
 * that uses more processor time in a period is stopped until the next period. Thread-safe. */
#ifndef TDICT_CORE_SCHED_QUOTA_H
#define TDICT_CORE_SCHED_QUOTA_H

/* Returns the quota in processors, rounded up: the minimum of the process's cgroup and of all cgroups above. Reads
 * cgroups of version 2 (cpu.max) and 1 (cpu.cfs_quota_us). Returns 0 if there is no quota, or if the files cannot be
 * read. `root` is "", or a folder that stands for the root of the file system. */
int tdict_quota_cpus(const char *root);

#endif
