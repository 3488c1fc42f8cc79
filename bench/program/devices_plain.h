/* Copies to several devices at once without the library. `tdict-bench devices` compares the library with these copies.
 * Thread rule: one thread calls these functions. They print an error before they return false. */
#ifndef TDICT_BENCH_DEVICES_PLAIN_H
#define TDICT_BENCH_DEVICES_PLAIN_H

#include "bench.h"

/* Copies `bytes` bytes of pinned memory to each of the first `count` GPUs at once. Writes the total bytes per
 * second. */
bool plain_lines(int count, size_t bytes, double *bytes_per_second);
/* Copies `bytes` bytes of ordinary memory, divided among the first `count` GPUs. Threads copy pieces with memcpy() into
 * page-locked buffers and queue the copies from there. Writes the bytes per second. */
bool plain_staging(int count, size_t bytes, double *bytes_per_second);

#endif
