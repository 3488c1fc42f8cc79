/* Copies to several GPUs at once without the library. `tdict-bench devices` compares the library with these copies.
 * Thread rule: one thread. The functions print an error before they return false. */
#ifndef TDICT_BENCH_DEVICES_PLAIN_H
#define TDICT_BENCH_DEVICES_PLAIN_H

#include "bench.h"

/* Copies `bytes` bytes of pinned memory to each of the first `count` GPUs at the same time. Writes the sum of the
 * rates. */
bool plain_lines(int count, size_t bytes, double *bytes_per_second);
/* Divides `bytes` bytes of ordinary memory among the first `count` GPUs and copies all parts at the same time. Several
 * threads for each GPU copy pieces through page-locked buffers. Writes the sum of the rates of all GPUs. */
bool plain_staging(int count, size_t bytes, double *bytes_per_second);

#endif
