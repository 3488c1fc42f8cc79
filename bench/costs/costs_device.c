/* tdict-costs-device: reads rows of 1000 leaves on a simulated device. scripts/costs --limit counts with callgrind the
 * instructions of a function whose name begins with cost_: only those of the calling thread, and none of the kernels,
 * which run on a thread of the device. Main owns the data. Thread rule: one thread. */
#include <stdio.h>
#include <stdlib.h>

#include "support/scoped.h"
#include "tdict/clone.h"
#include "tdict/index.h"
#include "tdict/sim.h"
#include "tdict/tdict.h"

enum { LEAVES = 1000, ROWS = 16, PICKED = 4, ROW_BYTES = 64, CALLS = 2 };

typedef struct device_job {
  tdict_context *context;
  tdict_memory *memory;
  tdict_tree *tree, *target;
  tdict_tensor *list;
  tdict_run run; /* with a stream */
} device_job;

#if defined(__clang__)
#define COST(name) __attribute__((noinline, used)) static tdict_status cost_##name(device_job *job, tdict_error *err)
#else
#define COST(name) \
  __attribute__((noinline, noclone, used)) static tdict_status cost_##name(device_job *job, tdict_error *err)
#endif

static tdict_status get(device_job *job, const tdict_run *run, tdict_error *err) {
  scoped_tree out = NULL;
  return tdict_index_get(NULL, job->tree, TDICT_INDEX(TDICT_LIST_OF(job->list)), run, &out, err);
}
static tdict_status into(device_job *job, const tdict_run *run, tdict_error *err) {
  return tdict_index_into(NULL, job->target, job->tree, TDICT_INDEX(TDICT_LIST_OF(job->list)), run, err);
}
COST(device_get) { return get(job, NULL, err); }
COST(device_get_on_stream) { return get(job, &job->run, err); }
COST(device_into) { return into(job, NULL, err); }
COST(device_into_on_stream) { return into(job, &job->run, err); }

/* Makes a tree whose leaves have storages of their own on the device. */
static tdict_status make_tree(const device_job *job, int64_t rows, tdict_tree **out, tdict_error *err) {
  const int64_t shape[] = {rows, ROW_BYTES};
  tdict_status status = tdict_create(1, &rows, out, err);
  for (int i = 0; i < LEAVES && status == TDICT_OK; i++) {
    char key[16];
    scoped_tensor leaf = NULL;
    snprintf(key, sizeof key, "leaf%d", i);
    status = tdict_tensor_empty(TDICT_U8, 2, shape, job->memory, &leaf, err);
    if (status == TDICT_OK) status = tdict_set(*out, key, leaf, err);
  }
  return status;
}

static tdict_status prepare(device_job *job, tdict_error *err) {
  static const int64_t positions[PICKED] = {3, 9, 1, 0}, count = PICKED;
  const tdict_device device = {TDICT_DEVICE_SIM, 0};
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  scoped_tensor list = NULL;
  sim.memory_bytes = (size_t)64 << 20; /* valgrind has no address space for more */
  options.device = device;
  options.sim = &sim;
  tdict_status status = tdict_context_create(&options, &job->context, err);
  if (status != TDICT_OK) return status;
  job->memory = tdict_device_memory(job->context, device);
  job->run = tdict_run_default();
  status = tdict_stream_create(job->context, device, &job->run.stream, err);
  if (status == TDICT_OK) status = make_tree(job, ROWS, &job->tree, err);
  if (status == TDICT_OK) status = make_tree(job, PICKED, &job->target, err);
  if (status == TDICT_OK) status = tdict_tensor_from_array(TDICT_I64, 1, &count, positions, &list, err);
  return status == TDICT_OK ? tdict_tensor_clone(list, job->memory, &job->list, err) : status;
}

int main(void) {
  static tdict_status (*const ops[])(device_job * job, tdict_error * err) = {
      cost_device_get, cost_device_get_on_stream, cost_device_into, cost_device_into_on_stream};
  device_job job = {.context = NULL};
  tdict_error err;
  tdict_status status = prepare(&job, &err);
  for (int call = 0; call < CALLS; call++) /* the first call loads the kernels and fills the caches */
    for (size_t i = 0; i < sizeof ops / sizeof *ops && status == TDICT_OK; i++) status = ops[i](&job, &err);
  if (status != TDICT_OK) fprintf(stderr, "tdict-costs-device: %s (%s)\n", err.message, tdict_status_name(status));
  tdict_tensor_release(job.list);
  tdict_release(job.tree);
  tdict_release(job.target);
  if (job.context) tdict_stream_destroy(job.context, job.run.stream);
  tdict_context_destroy(job.context);
  return status == TDICT_OK ? 0 : 1;
}
