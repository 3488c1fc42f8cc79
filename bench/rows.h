/* Rows: one piece of work, done by the library and where it can be by plain driver calls too, measured in turns.
 *
 * A scenario is a table of rows. The same rows are measured by `tdict-bench SCENARIO`, alone, and by `bench/compare`
 * through `tdict-bench worker`, beside the same work in other libraries; what those are told of a row is
 * rows_describe(). Owner: whoever opened a place or a job closes it. Thread rule: one thread. */
#ifndef TDICT_BENCH_ROWS_H
#define TDICT_BENCH_ROWS_H

#include "check.h"

typedef struct bench_job bench_job;

/* What is done with the leaves of a row. Calls that answer bool or a BENCH_ code have complained when they fail. */
typedef struct bench_kind {
  const char *name;
  bool on_host;                                              /* needs no device */
  bool no_sources;                                           /* its leaves are only a size */
  bool (*prepare)(bench_job *job);                           /* NULL: nothing */
  int (*verify)(bench_job *job);                             /* does it once and checks the result */
  bool (*sample)(bench_job *job, int tree, double *seconds); /* one repetition on the sources of that number */
  bool (*driver)(bench_job *job, int tree, double *seconds); /* the same by driver calls; NULL: none */
  void (*finish)(bench_job *job);                            /* undoes prepare, half done too; NULL: nothing */
  json_t *(*more)(bench_job *job);                           /* further facts, a new object; NULL: none */
} bench_kind;

enum { BENCH_MAX_GROUPS = 3, BENCH_TREES = 4 };

/* Texts are what other libraries are told, see bench/peers/worker.py; NULL in a table stands for the first choice. */
typedef struct bench_row {
  const char *name;
  const bench_kind *kind;
  check_group groups[BENCH_MAX_GROUPS];
  const char *source; /* "pageable", "pinned" */
  const char *cache;  /* "warm": as the repetitions before left them; "cold": emptied before each repetition; "paused":
                            the sources are read through and there is a pause before each repetition */
  const char *result; /* "device"; to the host "fresh", "warm", "pinned", "into_pinned" */
  const char *calls;  /* "best": the best documented setting of each library; else which one */
  const char *peers;  /* names that take part, with commas; "all" */
  const char *statistic; /* "time"; of the latency rows "p50", "p99" */
  int32_t mode, threads; /* of the library's own call */
  int32_t worth;         /* rows of 1 are measured first, then 2, then 3 */
  int64_t kernel_ns;     /* overlap: how long the kernel runs */
  int32_t trees;         /* source trees that repetitions rotate among; 0: BENCH_TREES */
  int32_t processes;     /* over 0: each of so many repetitions is the first thing that a new process does; it is
                            verified afterwards, and so `verify` looks at what `sample` left */
  bool no_driver;        /* its loop stands in another row of the same leaves, or takes too long */
  int32_t cpus;          /* over 0: in processes that may use so many processors only */
} bench_row;

/* Where everything is measured: a context, the driver beside it, what is kept between rows. */
typedef struct bench_place {
  tdict_context *context;
  tdict_device device;
  tdict_error why; /* why no GPU is used; message empty when one is, or the cpu was asked for */
  check_place check;
  size_t line_bytes;        /* of one sample of the line */
  raw_address line_device;  /* cuda */
  check_source line_source; /* simulated: a pinned leaf, and where the library copies it */
  tdict_tree *line_target;
  unsigned char *evict; /* walked over to empty the caches */
  check_source sources[BENCH_TREES];
  check_group groups[BENCH_MAX_GROUPS]; /* of the sources that are kept */
  int num_sources;                      /* how many there are; 0: none is kept */
  bool kept_pinned;
  bool full;               /* rows in their full size */
  bool bare;               /* nothing is pinned or allocated beside the library until place_furnish() */
  int delay;               /* percent that each sample of the library is made longer by, to see that checks find it */
  const char *tuning_file; /* NULL: none */
  size_t staging_bytes;    /* 0: the library's */
  size_t pin_piece_bytes;  /* of the context: 0: one registration a block */
  double sim_rate;         /* bytes per second of simulated copies; 0: as fast as the host copies */
} bench_place;
bool place_open(bench_place *p, const char *device); /* full, bare, delay and sim_rate are set before */
void place_close(bench_place *p);
bool place_furnish(bench_place *p); /* what the line and reading back need; done by place_open() unless bare */
static inline bool place_is_gpu(const bench_place *p) { return p->device.type == TDICT_DEVICE_CUDA; }
bool place_line(bench_place *p, double *seconds); /* one copy of line_bytes from pinned memory, waited for */
bool place_empty_caches(bench_place *p);          /* of everything else, by several threads */
/* As many trees as the row wants; those of the row before when they fit. */
bool place_sources(bench_place *p, const bench_row *row);
void place_drop_sources(bench_place *p);
json_t *place_describe(const bench_place *p); /* kind, text, name, driver version or why there is no GPU */

/* A row under way. `row` is what is done, smaller than the table's where the place is not full. */
struct bench_job {
  bench_place *place;
  bench_row row;
  const char *scenario;
  size_t total_bytes, poisoned_bytes, verified_bytes;
  tdict_tree *device_trees[BENCH_TREES]; /* to the host: where the bytes are */
  check_source targets[BENCH_TREES];     /* to the host: existing memory that is written */
  int num_targets;
  raw_address raw_device; /* cuda: the driver's own memory, total_bytes long; 0: none */
  void *raw_host;         /* ordinary, touched, for the driver's copies to the host; NULL: none */
  void *state;            /* of a kind of its own */
};
bool job_open(bench_job *job, bench_place *place, const bench_scenario *scenario, const bench_row *row);
int job_verify(bench_job *job);
/* The number-th repetition, on the number-th of the trees, in turn; job_settle() does what the row's cache wants before. */
bool job_is_warm(const bench_job *job); /* nothing is to be done before */
bool job_settle(bench_job *job, int number);
bool job_sample(bench_job *job, int number, bool driver, double *seconds);
bool job_has_driver(const bench_job *job);
void job_close(bench_job *job);
json_t *rows_describe(const bench_place *place, const bench_scenario *scenario, const bench_row *row);

/* Kinds that several scenarios use; those of one scenario are in its file. */
extern const bench_kind kind_h2d, kind_d2h, kind_pin, kind_pin_h2d;
/* Transfers as a row says, with a complaint when they fail. */
bool move_tree(bench_job *job, const tdict_tree *source, tdict_device to, tdict_tree **out);
tdict_transfer_options move_options(const bench_job *job);

int rows_main(const bench_scenario *scenario, int argc, char **argv); /* tdict-bench SCENARIO */
int worker_main(int argc, char **argv);                               /* tdict-bench worker */
int doctor_main(int argc, char **argv);                               /* tdict-bench doctor */
int tune_main(int argc, char **argv);                                 /* tdict-bench tune */
int advise_main(int argc, char **argv);                               /* tdict-bench advise */
int stress_main(int argc, char **argv);                               /* tdict-bench stress */
int loader_main(int argc, char **argv);                               /* tdict-bench loader */
int pinning_main(int argc, char **argv);                              /* tdict-bench pinning */

#endif
