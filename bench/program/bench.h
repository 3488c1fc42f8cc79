/* Declarations that all scenarios of tdict-bench share: the list of scenarios, exit codes, samples, messages and JSON
 * records.
 * Thread rule: do not call the functions for progress, bars, paragraphs and sinks on two threads at the same time. All
 * other functions may be called on any thread. */
#ifndef TDICT_BENCH_BENCH_H
#define TDICT_BENCH_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "support/expressions.h"
#include "support/scoped.h"
#include "tdict/tdict.h"

enum { BENCH_OK = 0, BENCH_FAILED = 1, BENCH_USAGE = 2, BENCH_DIFFERS = 3 };

/* A scenario. `run` gets the scenario's command line, with "tdict-bench NAME" as argv[0], and returns an exit code. */
typedef struct bench_scenario {
  const char *name, *summary;
  int (*run)(int argc, char **argv); /* NULL: the scenario is a table of rows, see rows.h */
  const struct bench_row *rows;
  int num_rows;
} bench_scenario;
/* All scenarios, in the order in which bench/peers/compare measures them. */
enum { BENCH_SCENARIOS = 17 };
extern const bench_scenario *const bench_scenarios[BENCH_SCENARIOS];
extern const bench_scenario bench_to_device, bench_tensordict, bench_synergies, bench_batches, bench_d2h,
    bench_non_blocking, bench_pin, bench_latency, bench_fresh, bench_cpus, bench_overlap, bench_bandwidth,
    bench_threads, bench_alloc, bench_container, bench_dlpack, bench_load;

/* Returns the time of a monotonic clock in seconds. */
double bench_now(void);
/* Returns the CPU time of this process in seconds: all threads, in user and kernel mode. */
double bench_cpu_seconds(void);

/* Returns the next number of the generator SplitMix64 (Steele, Lea and Flood), and updates the state. Different states
 * produce different numbers. Does not use the library under test. */
uint64_t bench_random(uint64_t *state);

/* The measured times of one row, oldest first. The caller of bench_samples_reserve() owns the memory. */
typedef struct bench_samples {
  double *seconds;
  int count, capacity;
  double processors; /* set by bench_count_processors(); 0: not counted */
} bench_samples;
/* Allocates space for `capacity` times in each of the `count` elements of `s`. Prints an error and returns false on
 * failure. Call bench_samples_free() even after a failure. */
bool bench_samples_reserve(bench_samples *s, int count, int capacity);
void bench_samples_free(bench_samples *s, int count);
/* Runs operations 0 to `count` - 1 in turn, each once per round. After `warmups` unrecorded rounds, adds the times of
 * `repeats` rounds to `samples`. `once` runs operation `work` and writes its time in seconds. A negative time is not
 * recorded. If `once` returns false, stops and returns false. */
typedef bool bench_once(void *user, int work, double *seconds);
bool bench_measure_in_turn(bench_samples *samples, int count, int warmups, int repeats, bench_once *once, void *user);
/* Like bench_measure_in_turn() for at most BENCH_MOST_MEDIANS operations, but writes only their median times in
 * seconds. */
enum { BENCH_MOST_MEDIANS = 2 };
bool bench_medians(double *medians, int count, int warmups, int repeats, bench_once *once, void *user);
void bench_samples_add(bench_samples *s, double seconds); /* does nothing if the array is full */
/* Repeats a work for at least 20 ms, and writes how many processors the process uses meanwhile: processor time divided
 * by elapsed time. Other works must not take turns with it, because threads of the library still run for a while after
 * a transfer. If `once` returns false, stops and returns false. */
bool bench_count_processors(double *processors, bench_once *once, void *user, int work);
double bench_samples_median(const bench_samples *s); /* 0 if there is no sample */
/* Returns the smallest measured time such that at least `percent` % of the times are not longer. Returns 0 if there is
 * no sample. */
double bench_samples_percentile(const bench_samples *s, int percent);
double bench_samples_spread(const bench_samples *s); /* longest time minus shortest; 0 if there is no sample */
json_t *bench_samples_json(const bench_samples *s);  /* returns a new array of seconds */

/* Calls `work` for each part from 0 to `parts` - 1, on a thread of its own if possible, and waits for all of them. */
enum { BENCH_MOST_THREADS = 16 };
void bench_on_threads(int parts, void (*work)(void *user, int part, int parts), void *user);

/* If stderr is a terminal, prints a progress line. The next call replaces it, and bench_progress_end() erases it. */
void bench_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void bench_progress_end(void);
/* The progress of work that may take longer than two seconds. */
typedef struct bench_bar {
  double begin, total; /* when bench_bar_start() was called, in seconds; the amount of work in any unit */
} bench_bar;
bench_bar bench_bar_start(double total);
/* Prints a progress line as bench_progress() does. After two seconds, the line also has a bar and the estimated time
 * left. */
void bench_bar_show(const bench_bar *bar, double done, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Prints a paragraph, wrapped between words to at most bench_columns() columns. */
void bench_print_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints a label of at most `hang` columns, and `text` to its right, wrapped in the same way. */
void bench_print_item(int hang, const char *label, const char *text);
/* Returns the width of the terminal in columns, but at most 100. Returns 100 if standard output is not a terminal. */
int bench_columns(void);

/* Prints an error to stderr: "tdict-bench: ...". bench_print_status() prints `what`, then the path, message and status
 * name in `err`. */
void bench_print_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void bench_print_status(const char *what, const tdict_error *err);
/* Returns whether `status` is TDICT_OK. If not, prints an error that begins with `what`. The macro bench_ok() does this
 * for the status of `call`, in which `err` is a pointer to a tdict_error. */
bool bench_has_worked(const char *what, tdict_status status, const tdict_error *err);
#define bench_ok(what, call)                        \
  __extension__({                                   \
    tdict_error bench_error_, *err = &bench_error_; \
    bench_has_worked(what, call, err);              \
  })

/* Describes a tree to make. `is_separate`: each leaf has its own allocation. */
typedef struct bench_form {
  const tdict_field *fields;
  size_t num_fields;
  int ndim;
  const int64_t *batch;
  bool is_separate;
} bench_form;
tdict_status bench_make_tree(const bench_form *form, tdict_memory *memory, tdict_tree **out, tdict_error *err);

/* Formats a number of bytes in powers of ten: "4.00 GB", "100.00 MB", "12 bytes". Returns @p buffer. */
char *bench_format_bytes(double bytes, char *buffer, size_t size);

/* Parses an integer. Returns false if `text` is not an integer from low to high. */
bool bench_parse_number(const char *text, int64_t low, int64_t high, int64_t *out);

/* Returns a new JSON record with the common fields: format, scenario, date, version of the library, command line,
 * machine. Returns NULL if out of memory. */
json_t *bench_record(const char *scenario, int argc, char **argv);
/* Writes a record. Prints an error and returns false if the file cannot be written. */
bool bench_record_write(const json_t *record, const char *path);
/* Checks that a file can be written, without changing it. Call before a measurement. If the file cannot be written,
 * prints an error and returns false. */
bool bench_can_write(const char *path);

/* What the options --json, --csv and --markdown name: files, "-" for standard output, or NULL. */
typedef struct bench_outputs {
  const char *json, *csv, *markdown;
} bench_outputs;
/* A table as text of another format, in memory until the scenario ends. */
typedef struct bench_text {
  FILE *file; /* NULL: not wanted, or no table has begun */
  char *text;
  size_t length;
} bench_text;
/* The destinations of the JSON record and of the tables. Open the sink before anything is printed or measured: if an
 * output is standard output, nothing else goes there. */
typedef struct bench_sink {
  bench_outputs outputs;
  int fd; /* a duplicate of standard output if an output is "-"; otherwise -1 */
  bench_text csv, markdown;
} bench_sink;
bool bench_sink_open(bench_sink *sink, const bench_outputs *outputs); /* prints an error and returns false on failure */
/* Writes the outputs if `answer` is BENCH_OK. Releases the record and the texts. Returns `answer`, or BENCH_FAILED. */
int bench_sink_end(bench_sink *sink, int answer, json_t *record);

/* A table, which is printed cell by cell while a scenario measures. All outputs of the sink get the same cells. Each
 * title is the head of a column; the cells of the first column begin at the left. */
enum { TABLE_MOST_COLUMNS = 12 };
typedef struct bench_table {
  bench_sink *sink;
  int widths[TABLE_MOST_COLUMNS], num_columns;
  int column; /* the column of the next cell */
} bench_table;
/* Begins a table. The sink is borrowed. `titles` are separated by "|". Blanks before a title make its column wider. */
void table_begin(bench_table *t, bench_sink *sink, const char *titles);
void table_text(bench_table *t, const char *text);
/* Adds a number in a printf() format. Adds "-" if the number is NaN. CSV has all digits. */
void table_number(bench_table *t, const char *format, double number);
void table_ms(bench_table *t, double seconds);           /* adds milliseconds, or "-" for a time of 0 */
void table_threads(bench_table *t, int32_t num_threads); /* adds "auto" for -1 */
void table_end_row(bench_table *t);
/* Finds the first line of a file that begins with `key`. Writes the rest of the line without leading blanks and colons
 * to @p buffer, which it returns. Returns NULL if there is no such line. */
char *bench_read_field(const char *path, const char *key, char *buffer, size_t size);
/* Writes the name of the processor model, or "unknown". Returns @p buffer. */
char *bench_cpu_model(char *buffer, size_t size);
int bench_cpu_count(void); /* returns the number of processors that this process may use */

#endif
