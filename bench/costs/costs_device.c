/* tdict-costs-device: makes one call for a tree of small tensors on simulated devices: an asynchronous transfer, or a
 * read of rows by a list on the device. With callgrind, bench/costs/device_limits.py counts the instructions of the
 * calling thread in cost_call(). The device makes no copies during the call that starts a transfer, so that the count
 * varies little between runs. main() owns the data. Thread rule: one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/scoped.h"
#include "tdict/clone.h"
#include "tdict/devices.h"
#include "tdict/index.h"
#include "tdict/memory.h"
#include "tdict/sim.h"
#include "tdict/tdict.h"

#if defined(__clang__)
#define COUNTED __attribute__((noinline, used))
#else
#define COUNTED __attribute__((noinline, noclone, used))
#endif

typedef struct device_job {
  tdict_context *context;
  tdict_memory *memory; /* the memory of the first device */
  tdict_tree *tree, *target;
  tdict_tensor *list;
  tdict_run run; /* has a stream */
} device_job;

/* A call whose instructions are counted. A transfer sets *out. A read of rows does not: it waits, or queues its work on
 * a stream. */
typedef struct operation {
  const char *name;
  tdict_status (*call)(device_job *job, tdict_future **out, tdict_error *err);
  bool is_transfer, is_block;
} operation;

static const tdict_device devices[2] = {{TDICT_DEVICE_SIM, 0}, {TDICT_DEVICE_SIM, 1}};

/* Returns options with one thread, so that the result does not depend on the number of processors. */
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
/* The leaves are floats in pinned memory, so none is narrowed. */
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

static tdict_status read_new(const device_job *job, const tdict_run *run, tdict_error *err) {
  scoped_tree out = NULL;
  return tdict_index_get(NULL, job->tree, TDICT_INDEX(TDICT_LIST_OF(job->list)), run, &out, err);
}
static tdict_status read_into(const device_job *job, const tdict_run *run, tdict_error *err) {
  return tdict_index_into(NULL, job->target, job->tree, TDICT_INDEX(TDICT_LIST_OF(job->list)), run, err);
}
static tdict_status get(device_job *job, tdict_future **out, tdict_error *err) {
  return (void)out, read_new(job, NULL, err);
}
static tdict_status get_on_stream(device_job *job, tdict_future **out, tdict_error *err) {
  return (void)out, read_new(job, &job->run, err);
}
static tdict_status into(device_job *job, tdict_future **out, tdict_error *err) {
  return (void)out, read_into(job, NULL, err);
}
static tdict_status into_on_stream(device_job *job, tdict_future **out, tdict_error *err) {
  return (void)out, read_into(job, &job->run, err);
}

static const operation operations[] = {
    {"block", move, true, true},
    {"block-narrow", move_narrow, true, true},
    {"separate", move, true, false},
    {"split-one", split_one, true, false},
    {"split-two", split_two, true, false},
    {"get", get, false, false},
    {"get-on-stream", get_on_stream, false, false},
    {"into", into, false, false},
    {"into-on-stream", into_on_stream, false, false},
};
enum { NUM_OPERATIONS = sizeof operations / sizeof *operations };

COUNTED static tdict_status cost_call(const operation *op, device_job *job, tdict_future **out, tdict_error *err) {
  return op->call(job, out, err);
}

/* Makes a tree of `leaves` tensors of `ndim` dimensions, each in its own storage. */
static tdict_status make_tree(long leaves, int ndim, const int64_t *shape, tdict_memory *memory, tdict_tree **out,
                              tdict_error *err) {
  tdict_status status = tdict_create(1, shape, out, err);
  for (long i = 0; i < leaves && status == TDICT_OK; i++) {
    char key[32];
    scoped_tensor leaf = NULL;
    snprintf(key, sizeof key, "leaf%ld", i);
    status = tdict_tensor_zeros(TDICT_F32, ndim, shape, memory, &leaf, err);
    if (status == TDICT_OK) status = tdict_set(*out, key, leaf, err);
  }
  return status;
}

/* Makes the source: leaves of 4000 bytes in host memory, or in one pinned storage if the operation moves a block. */
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

/* Makes the source, the target and the list of positions on the device. Leaves have 16 rows of 64 bytes. */
static tdict_status prepare_read(device_job *job, long leaves, tdict_error *err) {
  enum { ROWS = 16, PICKED = 4, ROW = 16 };
  static const int64_t positions[PICKED] = {3, 9, 1, 0}, count = PICKED, shape[] = {ROWS, ROW},
                       picked[] = {PICKED, ROW};
  scoped_tensor list = NULL;
  job->run = tdict_run_default();
  tdict_status status = tdict_stream_create(job->context, devices[0], &job->run.stream, err);
  if (status == TDICT_OK) status = make_tree(leaves, 2, shape, job->memory, &job->tree, err);
  if (status == TDICT_OK) status = make_tree(leaves, 2, picked, job->memory, &job->target, err);
  if (status == TDICT_OK) status = tdict_tensor_from_array(TDICT_I64, 1, &count, positions, &list, err);
  return status == TDICT_OK ? tdict_tensor_clone(list, job->memory, &job->list, err) : status;
}

/* Makes uncounted calls, which load the kernels and fill the library's caches, and then the counted call. */
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
  sim.memory_bytes = (size_t)64 << 20; /* under valgrind, more address space is not available */
  o.sim = &sim;
  o.device = devices[0];
  tdict_status status = tdict_context_create(&o, &job->context, err);
  if (status != TDICT_OK) return status;
  job->memory = tdict_device_memory(job->context, devices[0]);
  status = op->is_transfer ? prepare_transfer(job, op, leaves, err) : prepare_read(job, leaves, err);
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
  tdict_tensor_release(job.list);
  tdict_release(job.tree);
  tdict_release(job.target);
  if (job.context && job.run.stream.handle) tdict_stream_destroy(job.context, job.run.stream);
  tdict_context_destroy(job.context);
  return status == TDICT_OK ? 0 : 1;
}
