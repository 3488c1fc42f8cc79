/* Declarations that load.c and load_save.c, the two parts of the scenario load, share. The job owns the place; the
 * record owns `rows`. Thread rule: one thread. Functions print an error before they return false. */
#ifndef TDICT_BENCH_LOAD_H
#define TDICT_BENCH_LOAD_H

#include "load_files.h"
#include "options.h"
#include "rows.h"

enum { LOAD_WORKS = 5, LOAD_COLD = 3, LOAD_SAVE = 4 }; /* even, mixed, many, cold, save */

typedef struct load_options {
  common_options common;
  const char *folder;
  bool works[LOAD_WORKS]; /* the workloads to measure */
  bool makes;             /* --make: only write the files, and keep them */
  int64_t divide;         /* divisor of the tensor sizes; 0: chosen so that each file is about 4 MB large */
  int64_t contexts;
} load_options;

/* A row of the table: the times of one way. */
typedef struct load_row {
  char name[48];
  bench_samples samples;
} load_row;

typedef struct load_job {
  load_options options;
  bench_place place;
  bench_sink sink;
  bench_table table;
  json_t *rows;
  uint64_t verified_bytes;
  int verified_files;
  double left; /* largest fraction of the file that was still in the page cache before a cold read; -1: unknown */
} load_job;

bool load_open_context(load_job *job); /* opens job->place with `bare` set */
/* Initializes rows with the names "WORK, NAME", and allocates space for `capacity` samples in each. */
bool load_open_rows(load_row *rows, int count, int capacity, const char *const *names, const char *work);
void load_close_rows(load_row *rows, int count);
/* Prints a row and adds it to job->rows, if the row has samples. `bytes`: the bytes of a repetition, from which the
 * rate is computed; 0: no rate. `line`: the times of the line, with which the rate is compared, or NULL. `more`: an
 * object with further results, or NULL; the function releases it. */
void load_put_row(load_job *job, const load_row *row, uint64_t bytes, const bench_samples *line, json_t *more);

extern const int64_t load_save_bytes;
int load_run_save(load_job *job); /* the workload `save`; returns an exit code */

#endif
