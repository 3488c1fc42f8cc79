/* What the scenarios of tdict-bench share: the registry's entry, exit codes, samples, progress and the JSON record.
 *
 * Thread rule: everything here is called from the main thread alone. */
#ifndef TDICT_BENCH_BENCH_H
#define TDICT_BENCH_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tdict/tdict.h"

/* What the program answers to the shell. */
enum { BENCH_OK = 0, BENCH_FAILED = 1, BENCH_USAGE = 2, BENCH_DIFFERS = 3 };

/* One scenario is one file. `run` is given its own arguments, argv[0] being "tdict-bench NAME", and answers one of the
 * codes above. */
typedef struct bench_scenario {
  const char *name, *summary;
  int (*run)(int argc, char **argv); /* NULL: it is a table of rows, see rows.h */
  const struct bench_row *rows;
  int num_rows;
} bench_scenario;
/* In the order in which a comparison takes them. */
enum { BENCH_SCENARIOS = 15 };
extern const bench_scenario *const bench_scenarios[BENCH_SCENARIOS];
extern const bench_scenario bench_to_device, bench_tensordict, bench_synergies, bench_batches, bench_d2h,
    bench_non_blocking, bench_pin, bench_latency, bench_fresh, bench_cpus, bench_overlap, bench_bandwidth,
    bench_threads, bench_alloc, bench_container;

/* Seconds of a clock that only goes forward. */
double bench_now(void);

/* Times of one row, in the order in which they were taken. Owner: whoever reserved them. */
typedef struct bench_samples {
  double *seconds;
  int count, capacity;
} bench_samples;
bool bench_samples_reserve(bench_samples *s, int capacity); /* false: no memory */
void bench_samples_free(bench_samples *s);
void bench_samples_add(bench_samples *s, double seconds); /* silently full: capacity is what was planned */
double bench_samples_median(const bench_samples *s);      /* 0 when empty */
double bench_samples_spread(const bench_samples *s);      /* slowest minus fastest; 0 when empty */
json_t *bench_samples_json(const bench_samples *s);       /* a new array, in seconds */

/* A line on stderr that is written over again and again; nothing when stderr is no terminal. */
void bench_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void bench_progress_end(void);

/* One sentence on stderr, "tdict-bench: ..."; the second adds path, message and name of a status. */
void bench_print_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void bench_print_status(const char *what, const tdict_error *err);

/* "4.00 GB", "100.00 MB", "12 bytes": powers of ten. Returns @p buffer. */
char *bench_format_bytes(double bytes, char *buffer, size_t size);

/* Whole numbers of options: false unless `text` is one between low and high. */
bool bench_parse_number(const char *text, int64_t low, int64_t high, int64_t *out);

/* The head of a record: format, scenario, date, library version, command line, machine. NULL: no memory. */
json_t *bench_record(const char *scenario, int argc, char **argv);
/* False and a complaint when the file cannot be written. */
bool bench_record_write(const json_t *record, const char *path);
/* The same, asked before there is anything to write, so that nobody measures for nothing. What is there stays as it is. */
bool bench_can_write(const char *path);

/* Where the record of --json goes. Opened before anything is printed or measured: where it is standard output (`-`), text
 * goes nowhere from then on. Owner of the descriptor: the sink, until it is written or the program ends. */
typedef struct bench_sink {
  const char *path; /* NULL: there is no record */
  int fd;           /* of `-`: standard output as it was */
} bench_sink;
bool bench_sink_open(bench_sink *sink, const char *path);            /* false: a complaint */
bool bench_sink_write(const bench_sink *sink, const json_t *record); /* the same; true where there is no record */
/* The model of the processor, "unknown" when the system does not say. Returns @p buffer. */
char *bench_cpu_model(char *buffer, size_t size);
int bench_cpu_count(void); /* processors that this process may use */

#endif
