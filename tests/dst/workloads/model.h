/* Helpers for workloads: checks of the status of calls, simulated devices that must be empty at the end, threads, and
 * trees whose bytes are known.
 *
 * Trees. All bytes of a row are computed from one number, its stamp. A tree of the model has n rows and the batch size
 * [n]. Its leaves have several dtypes. The expected bytes are computed here, without library code. Thread rule: safe
 * from any thread, except where a comment says otherwise. */
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

/* ---- the status of calls ---- */

/* Begins a workload. From now on, faults are injected, which make calls fail. */
void model_begin(void);
/* Ends a workload: no more faults are injected. */
void model_end(void);
/* Starts or ends a section in which no faults are injected in any thread. Calls may be nested. */
void model_calm(bool is_calm);
/* Returns true if an injected fault has made a call fail since model_begin(). */
bool model_was_unlucky(void);

/* Resets and returns this thread's error, for the last argument of a call inside model_ok() or model_may(). */
tdict_error *model_error(void);
/* Returns true if the call succeeded, and false if an injected fault made it fail. Any other failure aborts the
 * program, and so does a successful call that wrote an error. */
#define model_ok(call) model_judge((call), 0, #call)
/* Like model_ok(), but the call may also fail with any status whose bit (1u << status) is set in `allowed`.
 * model_status() then returns the status. */
#define model_may(allowed, call) model_judge((call), (allowed), #call)
bool model_judge(tdict_status status, uint32_t allowed, const char *call);
/* Returns the status of the last call of this thread inside model_ok() or model_may(). */
tdict_status model_status(void);
#define model_true(condition)                                                    \
  do {                                                                           \
    if (!(condition)) dst_fail("%s:%d: not %s", __FILE__, __LINE__, #condition); \
  } while (0)

/* ---- devices and threads ---- */

/* Opens a simulated driver with injected faults. Returns NULL if this call fails because of such a fault. */
tdict_driver *model_open_driver(const tdict_sim_options *options);
/* Releases the driver. Fails if its devices still have memory, streams, events or pending work. */
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
/* Returns settings with one device, two threads and the smallest staging ring. */
model_settings model_settings_default(void);
/* Creates a context with its own simulated driver. Returns false after an injected fault. */
bool model_open(model_world *w, const model_settings *settings);
/* Checks that a new tree can be moved to the device and back with the right bytes. No faults are injected. */
void model_next_transfer_works(model_world *w);
/* Destroys the context. All results must have been released. Checks that the driver's devices are empty. */
void model_close(model_world *w);

/* Calls body(number, data) on `count` threads (at most 8), numbered from 0. Returns when all threads have ended. */
void model_run(int count, void (*body)(int number, void *data), void *data);

/* A stream that waits until the gate is opened. While a gate is shut, no kernel runs on its device, and transfers that
 * wait for the gate occupy staging slots and pool threads. So a device may have only one shut gate. A thread that has
 * shut a gate must not take a lock or wait for a transfer without a timeout. Call model_calm(true) first, because a
 * call that fails to allocate memory waits for conflicting transfers. */
typedef struct model_gate {
  tdict_stream stream;
  _Atomic(bool) is_open;
} model_gate;
/* Shuts a gate on a new stream of the device. Returns false after an injected fault. */
bool model_shut_gate(model_world *w, tdict_device device, model_gate *g);
void model_open_gate(model_world *w, model_gate *g);

/* ---- trees ---- */

enum { MODEL_MOST_ROWS = 64, MODEL_NUM_LEAVES = 6 };
typedef int64_t model_stamp;
static inline model_stamp model_stamp_of(int64_t generation, int64_t row) { return generation * 1024 + row; }
/* The stamps of a tree's rows. model_rows_of() returns `count` rows of one generation, starting at row `first`. */
typedef struct model_rows {
  int64_t count;
  int64_t width; /* number of elements in a row of the largest leaf */
  model_stamp stamps[MODEL_MOST_ROWS];
} model_rows;
model_rows model_rows_of(int64_t generation, int64_t first, int64_t count, int64_t width);
/* Returns `count` rows of `rows`, starting at row `first`. */
model_rows model_rows_slice(const model_rows *rows, int64_t first, int64_t count);

/* Makes a tree in host memory with these rows. Returns NULL after an injected fault. */
tdict_tree *model_tree(const model_rows *rows);
/* Like model_tree(), but with one storage in `memory`, laid out by tdict_create_from(). */
tdict_tree *model_block(const model_rows *rows, tdict_memory *memory);
/* Returns the MODEL_NUM_LEAVES fields of a row in trees of this width. They are valid until a call with another width.
 * Only the main thread may make such a call, while no other thread runs. */
const tdict_field *model_fields(int64_t width);
/* Writes row `row` of a contiguous tree. Without batch dimensions, there is only row 0. Returns false if an accessor
 * returned NULL. */
bool model_write_row(tdict_tree *td, int64_t row, model_stamp stamp, int64_t width);
/* Writes all rows through accessors. Returns false if an accessor returned NULL. */
bool model_write(tdict_tree *td, const model_rows *rows);

/* The expected properties of a tree, apart from its bytes. */
typedef struct model_look {
  tdict_device device; /* device of the tensors */
  bool has_device, is_locked, is_contiguous;
  bool is_mixed;    /* the file format may reorder keys and drop batch dimensions */
  int is_pinned;    /* 1, 0, or -1: either */
  size_t num_extra; /* keys of the root that are not leaves of the model */
} model_look;
model_look model_plain_look(void);
model_look model_device_look(tdict_device device);
/* Checks the properties of a tree, but not its bytes. */
void model_check_shape(const tdict_tree *td, const model_rows *rows, const model_look *look);
/* Checks the properties and the bytes of a tree in host memory. */
void model_check(const tdict_tree *td, const model_rows *rows, const model_look *look);
/* Checks the properties and bytes of a tree on a device. Copies the tree to the host. No faults are injected. */
void model_check_device(model_world *w, const tdict_tree *td, const model_rows *rows, const model_look *look);
/* A host function on a stream that acts as a kernel of the program: checks the leaves "a" and "n.m.d" of a tree. The
 * struct must not move until the stream is synchronized. */
typedef struct model_reader {
  tdict_stream stream;
  const void *first, *largest;
  model_rows rows;
} model_reader;
/* Launches the kernel. Returns false after an injected fault. */
bool model_read_on(model_reader *r, const tdict_tree *td, tdict_stream stream, const model_rows *rows);
/* A host function on a stream that acts as a kernel of the program: writes all leaves of a tree on a device. The struct
 * must not move until the stream is synchronized. */
typedef struct model_writer {
  tdict_stream stream;
  tdict_tensor *leaves[MODEL_NUM_LEAVES]; /* borrowed from the tree */
  void *data[MODEL_NUM_LEAVES];           /* on the device; NULL: the leaf has no elements */
  model_rows rows;
} model_writer;
/* Launches the kernel. Returns false after an injected fault. */
bool model_write_on(model_writer *w, tdict_tree *td, tdict_stream stream, const model_rows *rows);
/* Waits for the stream. No faults are injected. */
void model_synchronize(model_world *w, tdict_stream stream);
/* Returns true if a tree in host memory has the bytes of these rows. */
bool model_has(const tdict_tree *td, const model_rows *rows);
/* Returns the generation of a host tree's first row. Ignores the other rows. Fails if an accessor returns NULL. */
int64_t model_generation(const tdict_tree *td);
/* Returns the number of bytes of all elements of a tree with these rows. */
size_t model_bytes(const model_rows *rows);
/* Returns the size of the storage of model_block(), in which each leaf begins at a multiple of 256 bytes. */
size_t model_block_bytes(const model_rows *rows);
/* Returns element `index` of the leaf "n.m.d" in the row with this stamp. */
int32_t model_int_of(model_stamp stamp, int64_t index);

#endif
