/* The scenario to-device between its two files: to_device.c measures, to_device_show.c prints and records.
 * Owner: to_device.c's run function owns the job and all in it. Thread rule: one thread. */
#ifndef TDICT_BENCH_TO_DEVICE_H
#define TDICT_BENCH_TO_DEVICE_H

#include "check.h"
#include "options.h"

typedef struct to_device_options {
  common_options common;
  int64_t leaves, leaf_bytes, staging_bytes; /* -1: not given */
  int64_t warmups, seed;
  bool full, corrupt;
  const char *trace;
} to_device_options;

/* A way through the library. */
typedef struct to_device_way {
  const char *name;
  int32_t mode, threads; /* threads of -1 are the library's choice */
  bool takes_threads;    /* false: the mode works with one thread whatever is asked */
} to_device_way;
enum { TO_DEVICE_WAYS = 8 };
extern const to_device_way to_device_ways[TO_DEVICE_WAYS];

typedef struct to_device_row {
  bench_samples samples;
  tdict_transfer_stats stats; /* of the last measured transfer */
  size_t peak_staging_bytes;  /* the most of all transfers, warm-ups too */
  int most_threads;           /* that worked, the same */
  bench_samples cpu;          /* processor seconds of the whole process, the driver's and a simulator's threads, too */
} to_device_row;

typedef struct to_device_job {
  to_device_options options;
  bench_sink sink;
  tdict_context *context;
  tdict_device device;
  tdict_error why; /* why no GPU is used; message empty when one is */
  check_source source;
  check_place place;
  raw_address raw_destination; /* cuda only */
  size_t total_bytes, line_bytes;
  to_device_row rows[TO_DEVICE_WAYS];
  bench_samples loop, line; /* raw rows; empty but on cuda */
  int verified_ways;
  size_t poisoned_bytes; /* of all results that were verified */
} to_device_job;

static inline bool to_device_is_gpu(const to_device_job *job) { return job->device.type == TDICT_DEVICE_CUDA; }

/* "4", "auto", or "-" for a mode that takes none. Returns `buffer`. */
char *to_device_threads_text(const to_device_way *way, char *buffer, size_t size);
void to_device_show_head(const to_device_job *job);
void to_device_show_table(const to_device_job *job);
bool to_device_write_record(const to_device_job *job, int argc, char **argv);

#endif
