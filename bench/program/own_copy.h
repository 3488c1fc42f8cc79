/* The program's own small copies, which a transfer of the library may delay. On a GPU, a copy is a driver copy from
 * pinned memory on a stream of the program. On the simulated device it is a call of the library. Ownership:
 * own_copy_close() releases what own_copy_open() made. Thread rule: one thread. Functions that return false have
 * printed an error. */
#ifndef TDICT_BENCH_OWN_COPY_H
#define TDICT_BENCH_OWN_COPY_H

#include "rows.h"

typedef struct own_copy {
  bench_place *place; /* NULL: not open */
  void *host;         /* cuda: page-locked source and its destination on the device */
  raw_address device;
  check_source source; /* simulated device: a pinned leaf, and its copy on the device */
  tdict_tree *target;
} own_copy;
bool own_copy_open(own_copy *c, bench_place *place);
void own_copy_close(own_copy *c);
/* Copies 51,200 bytes once, waits, and writes the seconds. */
bool own_copy_once(const own_copy *c, double *seconds);
/* Copies, each time after a pause, until the transfer has ended or `times` is full. Copies at least once. `future`:
 * NULL if there is no transfer. */
bool own_copy_meanwhile(const own_copy *c, const tdict_future *future, long pause_ns, bench_samples *times);
/* Does a work on a second thread, and copies on this thread until the work has ended. Writes the seconds of the work
 * and of the longest copy. */
bool own_copy_beside(const own_copy *c, bool (*work)(void *user), void *user, double *seconds, double *longest);

#endif
