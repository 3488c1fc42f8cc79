/* tdict-costs-device: makes one call on a tree of small tensors with simulated devices, such as an asynchronous
 * transfer or a read of selected rows. bench/costs/device_limits.py runs it under callgrind to count the instructions
 * that the calling thread executes in cost_call(). The simulated device is held during the call that starts a transfer,
 * so the count varies little between runs. main() owns the data. Thread rule: one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/scoped.h"
#include "tdict/clone.h"
#include "tdict/combine.h"
#include "tdict/convert.h"
#include "tdict/devices.h"
#include "tdict/index.h"
#include "tdict/memory.h"
#include "tdict/sim.h"
#include "tdict/tdict.h"
#include "tdict/write.h"

#if defined(__clang__)
#define COUNTED __attribute__((noinline, used))
#else
#define COUNTED __attribute__((noinline, noclone, used))
#endif

enum { ITEMS = 4 };

typedef struct device_job {
  tdict_context *context;
  tdict_memory *memory; /* the memory of the first device */
  tdict_tree *tree, *target;
  tdict_tree *items[ITEMS]; /* the trees that stack and cat join */
  tdict_tensor *list;
  tdict_run run;        /* options with a stream */
  const tdict_run *how; /* &run, or NULL: the call waits until its work is done */
} device_job;

/* A call whose instructions are counted. A transfer sets *out to its future. Other calls leave *out NULL: they wait, or
 * queue their work on a stream. */
typedef struct operation {
  const char *name;
  tdict_status (*call)(device_job *job, tdict_future **out, tdict_error *err);
  bool is_transfer, is_block, on_stream;
} operation;

static const tdict_device devices[2] = {{TDICT_DEVICE_SIM, 0}, {TDICT_DEVICE_SIM, 1}};

/* Returns transfer options with one thread, so that the count does not depend on the number of processors. */
static tdict_transfer_options one_thread(void) {
  tdict_transfer_options o = tdict_transfer_options_default();
  o.num_threads = 1;
  return o;
}
static tdict_status move_with(device_job *job, bool narrow, tdict_future **out, tdict_error *err) {
  tdict_transfer_options o = one_thread();
  o.narrow = narrow;
  return tdict_to_device_async(job->context, job->tree, devices[0], &o, out, err);
}
static tdict_status move(device_job *job, tdict_future **out, tdict_error *err) {
  return move_with(job, false, out, err);
}
/* The option narrow has no effect here, because the leaves are floats in pinned memory. */
static tdict_status move_narrow(device_job *job, tdict_future **out, tdict_error *err) {
  return move_with(job, true, out, err);
}
static tdict_status split(device_job *job, size_t count, tdict_future **out, tdict_error *err) {
  const tdict_transfer_options o = one_thread();
  const tdict_spread spread = tdict_spread_split(devices, count, 0);
  return tdict_to_devices_async(job->context, job->tree, &spread, &o, out, err);
}
static tdict_status split_one(device_job *job, tdict_future **out, tdict_error *err) { return split(job, 1, out, err); }
static tdict_status split_two(device_job *job, tdict_future **out, tdict_error *err) { return split(job, 2, out, err); }

/* Defines a call that makes the tree `made`, and releases it. */
#define MAKES_TREE(name, make)                                                      \
  static tdict_status name(device_job *job, tdict_future **out, tdict_error *err) { \
    scoped_tree made = NULL;                                                        \
    (void)out;                                                                      \
    return make;                                                                    \
  }
/* Defines a call that writes to a tree of the job. */
#define WRITES_TREE(name, write) \
  static tdict_status name(device_job *job, tdict_future **out, tdict_error *err) { return (void)out, write; }
#define JOINED (const tdict_tree *const *)job->items, ITEMS
MAKES_TREE(get, tdict_index_get(NULL, job->tree, TDICT_INDEX(TDICT_LIST_OF(job->list)), job->how, &made, err))
MAKES_TREE(clone, tdict_clone_deep(job->tree, job->how, &made, err))
MAKES_TREE(to_dtype, tdict_to_dtype(job->tree, TDICT_BF16, NULL, job->how, &made, err))
MAKES_TREE(stack, tdict_stack(JOINED, NULL, job->how, &made, err))
MAKES_TREE(cat, tdict_cat(JOINED, NULL, job->how, &made, err))
WRITES_TREE(into, tdict_index_into(NULL, job->target, job->tree, TDICT_INDEX(TDICT_LIST_OF(job->list)), job->how, err))
WRITES_TREE(copy, tdict_copy(job->target, job->items[0], job->how, err))
WRITES_TREE(fill, tdict_fill(job->tree, NULL, 1, job->how, err))

static const operation operations[] = {
    {"block", move, .is_transfer = true, .is_block = true},
    {"block-narrow", move_narrow, .is_transfer = true, .is_block = true},
    {"separate", move, .is_transfer = true},
    {"split-one", split_one, .is_transfer = true},
    {"split-two", split_two, .is_transfer = true},
    {"get", get, .on_stream = false},
    {"get-on-stream", get, .on_stream = true},
    {"into", into, .on_stream = false},
    {"into-on-stream", into, .on_stream = true},
    {"copy", copy, .on_stream = false},
    {"fill", fill, .on_stream = false},
    {"fill-on-stream", fill, .on_stream = true},
    {"clone", clone, .on_stream = false},
    {"clone-on-stream", clone, .on_stream = true},
    {"to-dtype", to_dtype, .on_stream = false},
    {"stack", stack, .on_stream = false},
    {"stack-on-stream", stack, .on_stream = true},
    {"cat", cat, .on_stream = false},
};
enum { NUM_OPERATIONS = sizeof operations / sizeof *operations };

COUNTED static tdict_status cost_call(const operation *op, device_job *job, tdict_future **out, tdict_error *err) {
  return op->call(job, out, err);
}

/* Makes a tree of `leaves` float tensors with this shape, each in its own storage. The first dimension is the batch
 * size. Leaves the elements uninitialized, because setting them on a simulated device takes seconds under valgrind. */
static tdict_status make_tree(long leaves, int ndim, const int64_t *shape, tdict_memory *memory, tdict_tree **out,
                              tdict_error *err) {
  tdict_status status = tdict_create(1, shape, out, err);
  for (long i = 0; i < leaves && status == TDICT_OK; i++) {
    char key[32];
    scoped_tensor leaf = NULL;
    snprintf(key, sizeof key, "leaf%ld", i);
    status = tdict_tensor_empty(TDICT_F32, ndim, shape, memory, &leaf, err);
    if (status == TDICT_OK) status = tdict_set(*out, key, leaf, err);
  }
  return status;
}

/* Makes the source. Its leaves of 4000 bytes are separate in ordinary memory, or together in one pinned block. */
static tdict_status prepare_transfer(device_job *job, const operation *op, long leaves, tdict_error *err) {
  static const int64_t shape[] = {1000};
  tdict_tree *made = NULL;
  tdict_status status = make_tree(leaves, 1, shape, NULL, &made, err);
  if (!op->is_block || status != TDICT_OK) {
    job->tree = made;
    return status;
  }
  status = tdict_consolidate(made, tdict_pinned_memory(job->context), &job->tree, err);
  tdict_release(made);
  return status;
}

/* Makes the source, the other trees and the list of positions on the device. The source's leaves have 16 rows of 64
 * bytes, and those of the other trees have 4 rows. */
static tdict_status prepare_work(device_job *job, const operation *op, long leaves, tdict_error *err) {
  enum { ROWS = 16, PICKED = 4, ROW = 16 };
  static const int64_t positions[PICKED] = {3, 9, 1, 0}, count = PICKED, shape[] = {ROWS, ROW},
                       picked[] = {PICKED, ROW};
  scoped_tensor list = NULL;
  job->run = tdict_run_default();
  job->how = op->on_stream ? &job->run : NULL;
  tdict_status status = tdict_stream_create(job->context, devices[0], &job->run.stream, err);
  if (status == TDICT_OK) status = make_tree(leaves, 2, shape, job->memory, &job->tree, err);
  if (status == TDICT_OK) status = make_tree(leaves, 2, picked, job->memory, &job->target, err);
  for (int i = 0; i < ITEMS && status == TDICT_OK; i++)
    status = make_tree(leaves, 2, picked, job->memory, &job->items[i], err);
  if (status == TDICT_OK) status = tdict_tensor_from_array(TDICT_I64, 1, &count, positions, &list, err);
  return status == TDICT_OK ? tdict_tensor_clone(list, job->memory, &job->list, err) : status;
}

/* Makes two uncounted calls, which load the kernels and fill the library's caches, then the counted call. */
static tdict_status run_calls(device_job *job, const operation *op, tdict_error *err) {
  enum { WARMUP = 2 };
  tdict_status status = TDICT_OK;
  for (int i = 0; i <= WARMUP && status == TDICT_OK; i++) {
    tdict_future *future = NULL;
    if (op->is_transfer) status = tdict_sim_hold(job->context, err);
    if (status == TDICT_OK) status = i < WARMUP ? op->call(job, &future, err) : cost_call(op, job, &future, err);
    if (op->is_transfer && tdict_sim_resume(job->context, err) != TDICT_OK) return (tdict_status)err->status;
    if (future) status = tdict_future_take(future, NULL, err);
  }
  return status;
}

static tdict_status run(device_job *job, const operation *op, long leaves, tdict_error *err) {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  sim.num_devices = 2;
  sim.memory_bytes = (size_t)64 << 20; /* valgrind cannot reserve more address space for the simulated memory */
  o.sim = &sim;
  o.device = devices[0];
  tdict_status status = tdict_context_create(&o, &job->context, err);
  if (status != TDICT_OK) return status;
  job->memory = tdict_device_memory(job->context, devices[0]);
  status = op->is_transfer ? prepare_transfer(job, op, leaves, err) : prepare_work(job, op, leaves, err);
  return status == TDICT_OK ? run_calls(job, op, err) : status;
}

static const operation *find_operation(const char *name) {
  for (int i = 0; i < NUM_OPERATIONS; i++)
    if (strcmp(operations[i].name, name) == 0) return &operations[i];
  return NULL;
}

int main(int argc, char **argv) {
  device_job job = {.context = NULL};
  tdict_error err;
  const operation *op = argc == 3 ? find_operation(argv[1]) : NULL;
  const long leaves = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
  if (!op || leaves < 1 || leaves > 10000) {
    const bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
    FILE *to = help ? stdout : stderr;
    fprintf(
        to,
        "usage: tdict-costs-device OPERATION LEAVES\nMakes one call for a tree of LEAVES tensors, at most 10000, on "
        "simulated devices.\nbench/costs/device_limits.py counts its instructions. OPERATION is one of:\n");
    for (int i = 0; i < NUM_OPERATIONS; i++) fprintf(to, "  %s\n", operations[i].name);
    fprintf(to, "Exit status: 0 success, 1 failure, 2 wrong usage.\n");
    return help ? 0 : 2;
  }
  const tdict_status status = run(&job, op, leaves, &err);
  if (status != TDICT_OK) tdict_error_print(&err, stderr);
  fflush(NULL);
  _exit(status == TDICT_OK ? 0 : 1); /* valgrind would take longer for the release of the trees than for all the rest */
}
