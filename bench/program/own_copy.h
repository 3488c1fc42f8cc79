/* Times small copies that the program itself makes while the library is busy, because that may delay them. On a GPU,
 * they are driver copies from pinned memory on a stream of the program. On the simulated device, they are library
 * calls. Ownership: own_copy_close() releases what own_copy_open() made. Thread rule: one thread. Functions that return
 * false print an error. */
#ifndef TDICT_BENCH_OWN_COPY_H
#define TDICT_BENCH_OWN_COPY_H

#include "rows.h"

typedef struct own_copy {
  bench_place *place; /* NULL: not open */
  void *host;         /* cuda: the pinned source; the next field is its destination on the device */
  raw_address device;
  check_source source; /* simulated device: a pinned leaf; the next field is its copy on the device */
  tdict_tree *target;
} own_copy;
bool own_copy_open(own_copy *c, bench_place *place);
void own_copy_close(own_copy *c);
/* Copies 51,200 bytes, waits for the copy, and writes the seconds. */
bool own_copy_once(const own_copy *c, double *seconds);
/* Pauses for a random time of about pause_ns and then copies; repeats this until `future` is ready or `times` is full.
 * `future` may be NULL. */
bool own_copy_meanwhile(const own_copy *c, const tdict_future *future, long pause_ns, bench_samples *times);
/* Runs `work` on a second thread, and copies repeatedly on this thread until `work` returns. Writes the seconds of
 * `work` and of the longest copy. */
bool own_copy_beside(const own_copy *c, bool (*work)(void *user), void *user, double *seconds, double *longest);

#endif
