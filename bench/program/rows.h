/* Declares the rows of scenarios. A row measures an operation of the library, such as a transfer. If plain driver calls
 * can do the same, the two take turns. The *line*, one driver copy from one pinned buffer, is the reference for all
 * rates. `tdict-bench SCENARIO` measures only the library and the driver. `bench/peers/compare` measures rows through
 * `tdict-bench worker`, and the same operations in other libraries, which get the description that rows_describe()
 * returns. Ownership: the caller that opens a place or job closes it. Thread rule: one thread. */
#ifndef TDICT_BENCH_ROWS_H
#define TDICT_BENCH_ROWS_H

#include "check.h"

typedef struct bench_job bench_job;

/* A kind of operation, with the functions that run and verify it. They print an error before they fail. */
typedef struct bench_kind {
  const char *name;
  bool on_host;                    /* true: needs no device */
  bool no_sources;                 /* true: needs only the size of the source trees */
  bool to_host;                    /* true: the result is in host memory */
  bool (*prepare)(bench_job *job); /* NULL: nothing to prepare */
  /* Makes the result of source tree number `tree`. *out stays NULL if the result is in job->targets. NULL: `verify` and
   * `sample` do not need it. */
  bool (*make)(bench_job *job, int tree, tdict_tree **out);
  int (*verify)(bench_job *job);                             /* NULL: use job_verify_made() */
  bool (*sample)(bench_job *job, int tree, double *seconds); /* runs a repetition; NULL: use job_sample_made() */
  bool (*driver)(bench_job *job, int tree, double *seconds); /* the same with driver calls; NULL: impossible */
  void (*finish)(bench_job *job);  /* called even if prepare() failed; NULL: nothing to release */
  json_t *(*more)(bench_job *job); /* returns further results as a new object; NULL: none */
} bench_kind;

enum { BENCH_MAX_GROUPS = 3, BENCH_TREES = 4, BENCH_NAME_BYTES = 96 };

/* Defines the scenario bench_ID, whose rows are the array `rows`. */
#define BENCH_SCENARIO(id, name, rows, summary) \
  const bench_scenario bench_##id = {name, summary, NULL, rows, sizeof rows / sizeof *rows};

/* A row of a scenario. Other libraries' workers read the strings. NULL means the first value that is listed. */
typedef struct bench_row {
  const char *name;
  const bench_kind *kind;
  check_group groups[BENCH_MAX_GROUPS];
  const char *source; /* "pageable", "pinned" */
  /* "warm": nothing changes the CPU caches between repetitions. "cold": the CPU caches are emptied before each
   * repetition. "paused": before each repetition, the source is read, and the program sleeps. */
  const char *cache;
  const char *result; /* "device"; for results on the host "fresh", "warm", "pinned", "into_pinned" */
  /* "best": each library's fastest documented setting; or one setting, such as "blocking". "by hand": instead of driver
   * calls for each leaf, threads pack leaves into pinned buffers, see plain_leaves(). */
  const char *calls;
  const char *peers;     /* "all", "none", or the libraries to compare with, separated by commas */
  const char *statistic; /* "time"; for latency rows "p50", "p99" or "longest" */
  int32_t mode, threads; /* the options mode and num_threads of tdict's calls */
  int32_t worth;         /* priority: 1 is measured first, then 2, then 3; 0 means 2 */
  int64_t kernel_ns;     /* overlap: how long the kernel runs */
  int32_t trees;         /* number of source trees, which repetitions use in turn; 0: BENCH_TREES */
  /* 0: all repetitions use one context. Otherwise, each repetition opens a new one, and `verify` checks the result that
   * the `sample` before it kept. bench/peers/compare leaves out such a row. */
  int32_t processes;
  bool no_driver; /* do not measure the driver: another row has the same driver loop, or it takes too long */
  int32_t cpus;   /* number of processors that the processes may use; 0: all */
} bench_row;

/* The environment of a measurement: a context, the driver, and memory that later rows reuse. */
typedef struct bench_place {
  tdict_context *context;
  tdict_device device;
  tdict_error why; /* why no GPU is used; empty if a GPU is used or --device chose another device */
  check_place check;
  size_t line_bytes;        /* bytes of a line copy */
  raw_address line_device;  /* cuda: destination of the line */
  check_source line_source; /* source of the line on the simulated device: a pinned leaf */
  tdict_tree *line_target;
  unsigned char *evict; /* memory that is written to empty the caches */
  check_source sources[BENCH_TREES];
  check_group groups[BENCH_MAX_GROUPS]; /* `groups` of the row that the kept sources belong to */
  int num_sources;                      /* number of kept sources; 0: none */
  bool kept_pinned;
  bool full;               /* true: rows have their full size */
  bool bare;               /* until place_furnish(), only the library allocates pinned and device memory */
  int delay;               /* self-test: percent by which each tdict sample is lengthened */
  const char *tuning_file; /* the option tuning_file of the context; NULL: none */
  size_t staging_bytes;    /* option of the context; 0: the library's default */
  size_t pin_piece_bytes;  /* option of the context; 0: one registration for each block */
  double sim_rate;         /* bytes per second of simulated copies; 0: unlimited */
} bench_place;
bool place_open(bench_place *p, const char *device); /* set bare, sim_rate and the options of the context before */
void place_close(bench_place *p);
/* Opens a place for a tool that needs a device. Prints an error and returns false if the device is the cpu. */
bool place_open_device(bench_place *p, const char *device, const char *tool);
/* Copies a tree to the device of the place. On failure, prints an error that begins with `what` and returns false. */
bool place_move(const bench_place *p, const tdict_tree *tree, const tdict_transfer_options *options, const char *what,
                tdict_tree **out);
/* Copies like place_move(), and releases the result. The seconds include the release. */
bool place_move_timed(const bench_place *p, const tdict_tree *tree, const tdict_transfer_options *options,
                      const char *what, double *seconds);
/* Copies leaf by leaf to the device with driver calls. `waits`: wait after each leaf, not only at the end. Prints no
 * error. */
bool place_copy_leaves(const bench_place *p, const check_source *source, raw_address to, bool waits, double *seconds);
/* Fills device memory with 0xA5, copies a source to the device, and compares every byte. Returns an exit code. */
int place_verify(const bench_place *p, const check_source *source, const tdict_transfer_options *options,
                 const char *what);
/* Returns a new record with the common fields, the device, and whether it is simulated. */
json_t *place_record(const bench_place *p, const char *scenario, int argc, char **argv);
bool place_furnish(
    bench_place *p); /* allocates the memory for the line and for reading back; place_open() calls it unless `bare` */
tdict_stream place_stream(const bench_place *p); /* raw_stream(), or the stream on the simulated device */
/* Queues a kernel on place_stream() that takes *ns nanoseconds. *ns must stay valid until the kernel has finished. */
bool place_spin(const bench_place *p, int64_t *ns);
static inline bool place_is_gpu(const bench_place *p) { return p->device.type == TDICT_DEVICE_CUDA; }
bool place_line(bench_place *p, double *seconds); /* makes a line copy and waits for it */
bool place_empty_caches(bench_place *p);          /* evicts the sources from all CPU caches */
/* Makes the source trees of a row, or keeps those of an earlier row if they are the same. */
bool place_sources(bench_place *p, const bench_row *row);
void place_drop_sources(bench_place *p);
json_t *place_describe(
    const bench_place *p); /* returns kind, text, name and driver version, or the reason why no GPU is used */

/* A row that is being measured. `row` is a copy with defaults filled in, and with reduced sizes unless place->full. */
struct bench_job {
  bench_place *place;
  bench_row row;
  const char *scenario;
  char name[BENCH_NAME_BYTES]; /* see row_measured_name() */
  size_t total_bytes, poisoned_bytes, verified_bytes;
  tdict_tree *device_trees[BENCH_TREES]; /* for copies to the host: the sources on the device */
  check_source targets[BENCH_TREES];     /* for copies to the host: existing destinations */
  int num_targets;
  raw_address raw_device; /* cuda: destination of the driver's copies; 0: none */
  void *raw_host;         /* pageable memory for the driver's copies to the host; NULL: none */
  void *state;            /* private data of the kind */
};
/* Returns about how long a row takes, in any unit: its bytes plus a constant. */
double row_weight(const bench_place *p, const bench_row *row);
/* Writes the name of a row, with the sizes that are measured. */
void row_measured_name(const bench_place *p, const bench_row *row, char name[BENCH_NAME_BYTES]);
bool job_open(bench_job *job, bench_place *place, const bench_scenario *scenario, const bench_row *row);
int job_verify(bench_job *job);
/* job_sample() runs a repetition on source tree `number` % place->num_sources. job_settle(), called before it, brings
 * the caches into the state that the row wants. */
bool job_is_warm(const bench_job *job); /* then job_settle() does nothing */
bool job_settle(bench_job *job, int number);
bool job_sample(bench_job *job, int number, bool driver, double *seconds);
bool job_has_driver(const bench_job *job);
void job_close(bench_job *job);
json_t *rows_describe(const bench_place *place, const bench_scenario *scenario, const bench_row *row);

/* The kinds that several scenarios use. The other kinds are static in the files of their scenarios. */
extern const bench_kind kind_h2d, kind_d2h, kind_pin, kind_pin_h2d;
/* Makes the result of source tree 0 and compares every byte. */
int job_verify_made(bench_job *job);
/* Makes a result and releases it. Writes the seconds of both together. */
bool job_sample_made(bench_job *job, int tree, double *seconds);
/* Compares a result with source tree 0. If the row wants a pinned result, also checks that it is pinned. `poison` may
 * be NULL. */
int job_check(bench_job *job, tdict_tree *result, const check_poison *poison);
bool h2d_make(bench_job *job, int tree, tdict_tree **out); /* copies a source tree to the device */
bool pin_make(bench_job *job, int tree, tdict_tree **out); /* pins a source tree */
/* move_start() starts a transfer of a source tree to the device; move_end() waits for it. `after`: a stream or NULL. */
bool move_start(bench_job *job, int tree, const tdict_stream *after, tdict_future **out);
bool move_end(bench_job *job, tdict_future *future, tdict_tree **out);
/* Transfers a tree with the options of the row. On failure, prints an error and returns false. */
bool move_tree(bench_job *job, const tdict_tree *source, tdict_device to, tdict_tree **out);
tdict_transfer_options move_options(const bench_job *job);

/* What the table and the record show about a row. */
typedef struct table_row {
  const char *name;
  const bench_samples *library, *driver, *line; /* `driver` and `line` may have no samples */
  size_t bytes, line_bytes;                     /* size of a repetition; size of a line copy */
  bool has_rate;                                /* true: the table shows a rate in GB/s */
} table_row;

/* Prints the scenario, the host and the device. If no GPU is used, also prints the reason. */
void table_print_head(const bench_place *place, const char *scenario, const char *what);
/* The columns that table_put_row() fills. */
#define TABLE_TIMES "median ms|p10 ms|p90 ms|GB/s|% of line|processors|to driver"
void table_put_row(bench_table *t, const table_row *row);
void table_put_times(bench_table *t, const table_row *row); /* only the columns of TABLE_TIMES */
/* Adds the samples of the row to a JSON object. */
void table_record_row(json_t *record, const table_row *row);

int rows_main(const bench_scenario *scenario, int argc, char **argv); /* tdict-bench SCENARIO */

/* The tools: subcommands that are not scenarios. Each has a function NAME_main(). --help lists those with a summary. */
#define BENCH_TOOLS(TOOL)                                                         \
  TOOL(demo, "shows a tree, its transfer and the result; then times and a chart") \
  TOOL(loader, "measures batches per second from a loader")                       \
  TOOL(doctor, "shows hardware, driver and settings that transfers use here")     \
  TOOL(advise, "recommends mode and num_threads for a tree")                      \
  TOOL(devices, "measures moving a tree to several devices, whole or in parts")   \
  TOOL(comm, "measures trees that ranks on several GPUs send each other")         \
  TOOL(tune, "measures this machine and writes a tuning file")                    \
  TOOL(pinning, "measures pinning a block while another thread copies")           \
  TOOL(share, "measures batches that another process has filled")                 \
  TOOL(stress, "moves random trees in random ways and verifies every bit")        \
  TOOL(device, NULL) /* for bench/peers/compare-device */                         \
  TOOL(worker, NULL) /* for bench/peers/compare */
#define BENCH_DECLARE_TOOL(name, summary) int name##_main(int argc, char **argv);
BENCH_TOOLS(BENCH_DECLARE_TOOL)

#endif
