/* Copies to GPUs as a program would write them without the library, for comparison: from pinned memory, and by threads
 * that fill pinned buffers. Thread rule: one thread. The functions print an error before they return false. */
#ifndef TDICT_BENCH_PLAIN_H
#define TDICT_BENCH_PLAIN_H

#include "check.h"

/* Copies `bytes` bytes of pinned memory to each of the first `count` GPUs at the same time. Writes the sum of the
 * rates. */
bool plain_lines(int count, size_t bytes, double *bytes_per_second);
/* Divides `bytes` bytes of ordinary memory among the first `count` GPUs and copies all parts at the same time. Several
 * threads for each GPU copy pieces through page-locked buffers. Writes the sum of the rates of all GPUs. */
bool plain_staging(int count, size_t bytes, double *bytes_per_second);
/* Copies the leaves of a source to `to` on GPU `ordinal`, one leaf after the other without gaps, like plain_staging().
 * Writes the seconds from the first copy's start to the last copy's end. The threads exist before. */
bool plain_leaves(const check_source *source, int ordinal, raw_address to, double *seconds);

#endif
