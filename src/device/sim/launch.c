/* Implements the modules and launches of the simulated driver's table. A kernel is a function of device/kernels/host.h.
 * A launch is queued with a copy of its parameters. The caller owns its modules. Thread rule: safe from any thread. */
#include <stdlib.h>
#include <string.h>

#include "device/kernels/host.h"
#include "device/sim/entries.h"

struct tdict_cu_function {
  tdict_kernel_op op;
  const tdict_sim_device *device;
};
struct tdict_cu_module {
  struct tdict_cu_function functions[TDICT_KERNEL_NUM_OPS];
};

static tdict_cu module_load(tdict_driver *base, const char *image, tdict_cu_module *out) {
  const tdict_sim_device *device = tdict_sim_current(tdict_sim_driver_of(base));
  if (!device) return TDICT_CU_INVALID_CONTEXT;
  if (!image) return TDICT_CU_INVALID_VALUE;
  tdict_cu_module module = calloc(1, sizeof *module);
  if (!module) return TDICT_CU_OUT_OF_MEMORY;
  for (int op = 0; op < TDICT_KERNEL_NUM_OPS; op++)
    module->functions[op] = (struct tdict_cu_function){(tdict_kernel_op)op, device};
  *out = module;
  return TDICT_CU_SUCCESS;
}

static tdict_cu module_unload(tdict_driver *base, tdict_cu_module module) {
  if (!tdict_sim_current(tdict_sim_driver_of(base))) return TDICT_CU_INVALID_CONTEXT;
  if (!module) return TDICT_CU_INVALID_HANDLE;
  free(module);
  return TDICT_CU_SUCCESS;
}

static tdict_cu module_function(tdict_driver *base, tdict_cu_module module, const char *name, tdict_cu_function *out) {
  (void)base;
  for (int op = 0; op < TDICT_KERNEL_NUM_OPS; op++) {
    if (strcmp(name, tdict_kernel_name((tdict_kernel_op)op)) != 0) continue;
    *out = &module->functions[op];
    return TDICT_CU_SUCCESS;
  }
  return TDICT_CU_NOT_FOUND;
}

static tdict_cu launch(tdict_driver *base, const tdict_cu_launch *launch, tdict_cu_stream handle) {
  tdict_sim_driver *d = tdict_sim_driver_of(base);
  const tdict_sim_device *current = tdict_sim_current(d);
  tdict_sim_stream *stream;
  if (!current) return TDICT_CU_INVALID_CONTEXT;
  if (launch->function->device != current) return TDICT_CU_INVALID_HANDLE;
  if (launch->blocks == 0 || launch->blocks > INT32_MAX || launch->threads != TDICT_KERNEL_THREADS ||
      launch->params_bytes != sizeof(tdict_kernel_params))
    return TDICT_CU_INVALID_VALUE;
  tdict_sim_op *op = tdict_sim_op_new(TDICT_SIM_OP_LAUNCH);
  if (!op) return TDICT_CU_OUT_OF_MEMORY;
  op->engine = TDICT_SIM_ENGINE_OTHER;
  op->work.kernel = (int)launch->function->op;
  op->work.blocks = launch->blocks;
  op->buffer = malloc(launch->params_bytes);
  if (op->buffer) memcpy(op->buffer, launch->params, launch->params_bytes);
  tdict_sim_lock(d);
  tdict_cu result = op->buffer ? tdict_sim_resolve_on(current, handle, &stream) : TDICT_CU_OUT_OF_MEMORY;
  if (result == TDICT_CU_SUCCESS) result = tdict_sim_push(stream, op);
  tdict_sim_op_release(op);
  tdict_sim_unlock(d);
  return result;
}

void tdict_sim_add_launches(tdict_driver_ops *ops) { TDICT_DRIVER_LAUNCH_ENTRIES(TDICT_SIM_FILL) }
