/* tdict-call-costs: makes one asynchronous transfer call on simulated devices. bench/costs/call_limits.py counts with
 * callgrind what the calling thread does in cost_call(). Copies are held meanwhile, so that the calls of all runs find
 * about the same marks. Main owns the data. Thread rule: one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tdict/clone.h"
#include "tdict/devices.h"
#include "tdict/memory.h"
#include "tdict/sim.h"

#if defined(__clang__)
#define COUNTED __attribute__((noinline, used))
#else
#define COUNTED __attribute__((noinline, noclone, used))
#endif

typedef enum operation { BLOCK, SEPARATE, SPLIT_ONE, SPLIT_TWO, NUM_OPERATIONS } operation;
static const char *const names[NUM_OPERATIONS] = {"block", "separate", "split-one", "split-two"};

typedef struct call_job {
  tdict_context *context;
  tdict_tree *tree;
  operation operation;
  tdict_error err;
} call_job;

static tdict_status start(call_job *job, tdict_future **out) {
  static const tdict_device devices[2] = {{TDICT_DEVICE_SIM, 0}, {TDICT_DEVICE_SIM, 1}};
  tdict_transfer_options o = tdict_transfer_options_default();
  o.num_threads = 1; /* the number of processors must not matter */
  if (job->operation < SPLIT_ONE) return tdict_to_device_async(job->context, job->tree, devices[0], &o, out, &job->err);
  const tdict_spread spread = tdict_spread_split(devices, job->operation == SPLIT_TWO ? 2 : 1, 0);
  return tdict_to_devices_async(job->context, job->tree, &spread, &o, out, &job->err);
}
COUNTED static tdict_status cost_call(call_job *job, tdict_future **out) { return start(job, out); }

/* Makes a tree of leaves of 4000 bytes. For a block, the leaves are in one storage in pinned memory. */
static tdict_status make_tree(call_job *job, long leaves) {
  static const int64_t shape[1] = {1000};
  tdict_error *err = &job->err;
  tdict_tree *made = NULL, *block = NULL;
  tdict_status status = tdict_create(1, shape, &made, err);
  for (long i = 0; i < leaves && status == TDICT_OK; i++) {
    char key[32];
    tdict_tensor *leaf = NULL;
    snprintf(key, sizeof key, "leaf%ld", i);
    status = tdict_tensor_zeros(TDICT_F32, 1, shape, NULL, &leaf, err);
    if (status == TDICT_OK) status = tdict_set(made, key, leaf, err);
    tdict_tensor_release(leaf);
  }
  if (status == TDICT_OK && job->operation == BLOCK)
    status = tdict_consolidate(made, tdict_pinned_memory(job->context), &block, err);
  job->tree = block ? block : made;
  if (block) tdict_release(made);
  return status;
}

/* Makes calls to fill the caches of the library, and then the call that is counted. */
static tdict_status run_calls(call_job *job) {
  enum { WARMUP = 2 };
  tdict_error *err = &job->err;
  tdict_status status = TDICT_OK;
  for (int i = 0; i <= WARMUP && status == TDICT_OK; i++) {
    tdict_future *future = NULL;
    status = tdict_sim_hold(job->context, err);
    if (status != TDICT_OK) break;
    status = i < WARMUP ? start(job, &future) : cost_call(job, &future);
    if (tdict_sim_resume(job->context, err) != TDICT_OK) return err->status;
    if (status == TDICT_OK) status = tdict_future_take(future, NULL, err);
  }
  return status;
}

int main(int argc, char **argv) {
  call_job job = {.operation = BLOCK};
  const long leaves = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
  while (argc == 3 && job.operation < NUM_OPERATIONS && strcmp(names[job.operation], argv[1]) != 0) job.operation++;
  if (argc != 3 || job.operation == NUM_OPERATIONS || leaves < 1 || leaves > 1000000) {
    const bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
    fprintf(help ? stdout : stderr,
            "usage: tdict-call-costs block|separate|split-one|split-two LEAVES\nMoves a tree of LEAVES tensors to "
            "simulated devices, with asynchronous calls. bench/costs/call_limits.py\ncounts their instructions.\n"
            "Exit status: 0 success, 1 failure, 2 wrong usage.\n");
    return help ? 0 : 2;
  }
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  sim.num_devices = 2;
  o.sim = &sim;
  o.device = (tdict_device){TDICT_DEVICE_SIM, 0};
  tdict_status status = tdict_context_create(&o, &job.context, &job.err);
  if (status == TDICT_OK) status = make_tree(&job, leaves);
  if (status == TDICT_OK) status = run_calls(&job);
  if (status != TDICT_OK) tdict_error_print(&job.err, stderr);
  tdict_release(job.tree);
  if (job.context) tdict_context_destroy(job.context);
  return status == TDICT_OK ? 0 : 1;
}
