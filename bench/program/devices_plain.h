/* Plain copies to several devices at once, without the library: the references of `tdict-bench devices`. Thread rule:
 * one thread calls these functions. Functions that return false have printed an error. */
#ifndef TDICT_BENCH_DEVICES_PLAIN_H
#define TDICT_BENCH_DEVICES_PLAIN_H

#include "bench.h"

/* Copies `bytes` bytes of page-locked memory to each of the first `count` GPUs, at the same time. Writes the bytes of
 * all GPUs divided by the seconds. */
bool plain_lines(int count, size_t bytes, double *bytes_per_second);
/* Copies `bytes` bytes of ordinary memory, divided among the first `count` GPUs. Threads copy pieces with memcpy() into
 * page-locked buffers and queue the copies from there. Writes `bytes` divided by the seconds. */
bool plain_staging(int count, size_t bytes, double *bytes_per_second);

#endif
