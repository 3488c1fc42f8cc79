/* What the workloads share: the judgement of calls, simulated devices that must be empty at the end, threads, and trees
 * whose every byte is known.
 *
 * Trees. A row is a stamp, a number that gives all bytes of the row. A tree of the model has n rows, and the batch size
 * [n]. Its leaves have several dtypes, and one of them is strided. The expected bytes are computed here, without code
 * of the library.
 * Thread rule: safe from any thread, except where a comment says otherwise. */
#ifndef TDICT_TESTS_DST_MODEL_H
#define TDICT_TESTS_DST_MODEL_H

#include <stdatomic.h>
#include <string.h>

#include "device/sim/driver.h"
#include "dst/workload.h"
#include "support/expressions.h"
#include "support/scoped.h"
#include "tdict/sim.h"
#include "tdict/tdict.h"

/* ---- the judgement of calls ---- */

/* Begins a workload: from now on, misfortunes may happen, and each call may fail because of one. */
void model_begin(void);
/* Ends a workload: misfortunes no longer happen. */
void model_end(void);
/* While calm, no misfortune happens on any thread. Calls may be nested. */
void model_calm(bool is_calm);
/* True if a misfortune has happened since model_begin(). */
bool model_was_unlucky(void);

/* The error of this thread, reset; for the last argument of a call that model_ok() or model_fails() judges. */
tdict_error *model_error(void);
/* True if the call succeeded. False if the call failed and a misfortune explains the failure. Any other failure ends
 * the program, and so does an error that a successful call wrote. */
#define model_ok(call) model_judge((call), 0, #call)
/* Like model_ok(), for a call that may also fail with one of these statuses (1u << status). The status is in
 * model_status(). */
#define model_may(allowed, call) model_judge((call), (allowed), #call)
bool model_judge(tdict_status status, uint32_t allowed, const char *call);
/* The status of the call that this thread judged last. */
tdict_status model_status(void);
#define model_true(condition)                                                    \
  do {                                                                           \
    if (!(condition)) dst_fail("%s:%d: not %s", __FILE__, __LINE__, #condition); \
  } while (0)

/* ---- devices and threads ---- */

/* A driver over a simulated driver, in which calls fail by misfortune. NULL: a misfortune. */
tdict_driver *model_open_driver(const tdict_sim_options *options);
/* Releases the driver, which must hold nothing any more. */
void model_close_driver(tdict_driver *driver, int num_devices);

typedef struct model_world {
  tdict_driver *driver;
  tdict_context *context;
  int num_devices;
} model_world;
typedef struct model_settings {
  int num_devices, num_threads;
  size_t staging_bytes;
  int64_t latency_ns;
  int32_t peers; /* a tdict_sim_peers */
} model_settings;
/* One device, two threads and the smallest staging ring. */
model_settings model_settings_default(void);
/* Creates a context over a simulated driver of its own. False: a misfortune. */
bool model_open(model_world *w, const model_settings *settings);
/* Without misfortunes: moves a tree there and back, and checks its bytes. */
void model_next_transfer_works(model_world *w);
/* Destroys the context. All results must have been released. The driver must hold nothing. */
void model_close(model_world *w);

/* Runs `body` on `count` threads, at most 8, with the numbers 0, 1, and so on. Returns when all have ended. */
void model_run(int count, void (*body)(int number, void *data), void *data);

/* A stream that waits until the gate is opened. A transfer that waits for a gate keeps staging slots and threads of the
 * pool. While a gate is shut, no kernel of its device runs. So a device has at most one shut gate. Between shutting and
 * opening it, a thread neither takes a lock nor waits for a transfer without a limit, and is calm: a call without
 * memory waits for the transfers that it conflicts with. */
typedef struct model_gate {
  tdict_stream stream;
  _Atomic(bool) is_open;
} model_gate;
/* False: a misfortune. */
bool model_shut_gate(model_world *w, tdict_device device, model_gate *g);
void model_open_gate(model_world *w, model_gate *g);

/* ---- trees ---- */

enum { MODEL_MOST_ROWS = 64, MODEL_NUM_LEAVES = 6 };
typedef int64_t model_stamp;
/* The stamp of row `row` of a tree of a generation. */
static inline model_stamp model_stamp_of(int64_t generation, int64_t row) { return generation * 1024 + row; }
/* The rows of a tree of one generation: `first`, first + 1, and so on. */
typedef struct model_rows {
  int64_t count;
  int64_t width; /* elements of a row of the largest leaf */
  model_stamp stamps[MODEL_MOST_ROWS];
} model_rows;
model_rows model_rows_of(int64_t generation, int64_t first, int64_t count, int64_t width);
/* Rows `first` to first + count - 1 of `rows`. */
model_rows model_rows_slice(const model_rows *rows, int64_t first, int64_t count);

/* A new tree in host memory with these rows. NULL: a misfortune. */
tdict_tree *model_tree(const model_rows *rows);
/* The same tree, not strided, in one storage of `memory`, in the layout of tdict_create_from(). NULL: a misfortune. */
tdict_tree *model_block(const model_rows *rows, tdict_memory *memory);
/* The MODEL_NUM_LEAVES fields of a row of trees of this width. Valid until the next call with another width, which the
 * main thread makes while no other thread runs. */
const tdict_field *model_fields(int64_t width);
/* Writes row `row` of a contiguous tree. A tree without batch dimensions has the row 0. False: an accessor is NULL. */
bool model_write_row(tdict_tree *td, int64_t row, model_stamp stamp, int64_t width);
/* Writes the rows through accessors. False: an accessor returned NULL. */
bool model_write(tdict_tree *td, const model_rows *rows);

/* What a tree must be, besides its bytes. */
typedef struct model_look {
  tdict_device device; /* of the tensors */
  bool has_device, is_locked, is_contiguous;
  bool is_mixed;    /* the keys may be in another order, and the tree may lack batch dimensions: a file format */
  int is_pinned;    /* 1, 0, or -1: either */
  size_t num_extra; /* keys of the root that are no leaves of the model */
} model_look;
model_look model_plain_look(void);
model_look model_device_look(tdict_device device);
/* Compares all that accessors say, without bytes. */
void model_check_shape(const tdict_tree *td, const model_rows *rows, const model_look *look);
/* Also compares the bytes, for a tree in host memory. */
void model_check(const tdict_tree *td, const model_rows *rows, const model_look *look);
/* Also compares the bytes, for a tree on a device, with a copy that is made without misfortunes. */
void model_check_device(model_world *w, const tdict_tree *td, const model_rows *rows, const model_look *look);
/* What a kernel of the program would do: reads the first and the largest leaf of a tree on a stream, and compares them.
 * Must not move until the stream is synchronized. */
typedef struct model_reader {
  tdict_stream stream;
  const void *first, *largest;
  model_rows rows;
} model_reader;
/* True: the kernel is launched. False: a misfortune. */
bool model_read_on(model_reader *r, const tdict_tree *td, tdict_stream stream, const model_rows *rows);
/* What a kernel of the program would do: writes all leaves of a tree on a device. Must not move until the stream is
 * synchronized. */
typedef struct model_writer {
  tdict_stream stream;
  tdict_tensor *leaves[MODEL_NUM_LEAVES]; /* borrowed from the tree */
  void *data[MODEL_NUM_LEAVES];           /* on the device; NULL: the leaf has no elements */
  model_rows rows;
} model_writer;
/* True: the kernel is launched. False: a misfortune. */
bool model_write_on(model_writer *w, tdict_tree *td, tdict_stream stream, const model_rows *rows);
/* Without misfortunes: waits for the stream. */
void model_synchronize(model_world *w, tdict_stream stream);
/* True if the tree, in host memory, has the bytes of these rows. */
bool model_has(const tdict_tree *td, const model_rows *rows);
/* The generation of a host tree's first row. Does not check the other rows. Fails if an accessor returns NULL. */
int64_t model_generation(const tdict_tree *td);
/* The bytes of all elements of a tree of these rows, and the number of leaves. */
size_t model_bytes(const model_rows *rows);
/* The bytes of such a tree in one storage, in which each leaf begins at a multiple of 256 bytes. */
size_t model_block_bytes(const model_rows *rows);
/* The first element of leaf "n.m.d" of row `row`, an int32. */
int32_t model_int_of(model_stamp stamp, int64_t index);

#endif
