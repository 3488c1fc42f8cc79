/* Joins trees of several devices into one tree, in one transfer into views of the result. The caller owns the result.
 * Thread rule: as in tdict/devices.h. */
#include <string.h>

#include "core/base/checked.h"
#include "core/base/device.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/ops/map.h"
#include "core/ops/shape.h"
#include "core/tree/create_from.h"
#include "device/devices.h"
#include "engine/start.h"
#include "services/multi_device/spread.h"
#include "tdict/shape.h"

/* The state of one tdict_gather_devices_async() call. */
typedef struct gathering {
  const char *what;
  tdict_context *context;
  const tdict_tree *const *trees;
  size_t num_trees;
  int dim;
  tdict_device device;
  tdict_memory *memory; /* NULL: ordinary host memory */
  tdict_transfer_options options;
  int64_t sizes[TDICT_MAX_DEVICES]; /* of the trees, along `dim` */
  int64_t batch_size[TDICT_MAX_BATCH_NDIM];
} gathering;

static tdict_status check_pointers(const gathering *g, tdict_error *err) {
  if (!g->context || !g->trees) return tdict_fail_null(err, g->what, g->context ? "trees" : "context");
  if (g->num_trees < 1 || g->num_trees > TDICT_MAX_DEVICES)
    return tdict_fail(err, TDICT_EINVAL, "%s: count is %zu, wanted 1 to %d", g->what, g->num_trees, TDICT_MAX_DEVICES);
  for (size_t i = 0; i < g->num_trees; i++)
    if (!g->trees[i]) return tdict_fail(err, TDICT_EINVAL, "%s: tree %zu is NULL", g->what, i);
  if (g->options.num_keep || g->options.num_conversions)
    return tdict_fail(err, TDICT_EINVAL, "%s: %s is set, wanted no patterns", g->what,
                      g->options.num_keep ? "keep" : "conversions");
  return TDICT_OK;
}

/* Computes the batch size of the result. The transfer checks all other sizes. */
static tdict_status plan_batch_size(gathering *g, tdict_error *err) {
  const tdict_tree *first = g->trees[0];
  tdict_status status = tdict_dim_find(g->what, g->dim, first->batch_ndim, &g->dim, err);
  if (status != TDICT_OK) return status;
  int64_t sum = 0;
  for (size_t i = 0; i < g->num_trees; i++) {
    if (g->trees[i]->batch_ndim != first->batch_ndim)
      return tdict_fail(err, TDICT_ESHAPE, "%s: tree %zu has %d batch dimensions, tree 0 has %d", g->what, i,
                        g->trees[i]->batch_ndim, first->batch_ndim);
    g->sizes[i] = g->trees[i]->batch_size[g->dim];
    if (!tdict_add_i64(sum, g->sizes[i], &sum))
      return tdict_fail(err, TDICT_EOVERFLOW, "%s: the sum of the sizes does not fit in 63 bits", g->what);
  }
  memcpy(g->batch_size, first->batch_size, (size_t)first->batch_ndim * sizeof g->batch_size[0]);
  g->batch_size[g->dim] = sum;
  return TDICT_OK;
}

/* Finds the memory of the result. */
static tdict_status choose_memory(gathering *g, tdict_error *err) {
  tdict_devices *devices = tdict_context_devices(g->context);
  if (g->device.type == TDICT_DEVICE_AUTO) g->device = tdict_devices_default(devices, NULL);
  const bool to_host = g->device.type == TDICT_DEVICE_CPU;
  tdict_gpu *gpu;
  tdict_status status = tdict_device_check(g->device, g->what, err);
  if (status == TDICT_OK && !to_host) status = tdict_devices_gpu(devices, g->device, &gpu, err);
  if (status != TDICT_OK) return status;
  g->memory = g->options.memory          ? g->options.memory
              : !to_host                 ? tdict_devices_memory(devices, g->device)
              : g->options.pinned_result ? tdict_devices_pinned(devices)
                                         : NULL;
  if (g->memory && !tdict_device_equal(g->memory->device, g->device))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: options.memory is on %s, wanted memory on %s", g->what,
                      TDICT_DEVICE_TEXT(g->memory->device), TDICT_DEVICE_TEXT(g->device));
  g->options.memory = NULL; /* the transfer writes an existing tree */
  g->options.pinned_result = false;
  return TDICT_OK;
}

static tdict_status describe(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                             tdict_error *err) {
  const gathering *g = map->user;
  (void)entry, (void)err;
  tdict_made_of(from, made);
  made->shape[g->dim] = g->batch_size[g->dim];
  made->fresh = true;
  return TDICT_OK;
}

/* Creates the result, with uninitialized elements. */
static tdict_status create_result(gathering *g, tdict_tree **out, tdict_error *err) {
  const int ndim = g->trees[0]->batch_ndim;
  tdict_tree *tree = NULL;
  const tdict_map map = {.what = g->what,
                         .batch_in = ndim,
                         .batch_out = ndim,
                         .batch_size = g->batch_size,
                         .drops_locks = true,
                         .memory = g->memory,
                         .one_memory = true,
                         .describe = describe,
                         .fill = tdict_map_leave_unset,
                         .describes_shapes = true,
                         .user = g};
  tdict_status status = tdict_map_run(&map, g->trees[0], &tree, err);
  if (status == TDICT_OK) status = tdict_set_device(tree, &g->device, err);
  return TDICT_HAND_OVER(status, tree, out, tdict_release);
}

/* Starts the transfer of all trees into views of `result`. */
static tdict_status start_transfer(const gathering *g, tdict_tree *result, bool waits, tdict_future **out,
                                   tdict_error *err) {
  tdict_tree *views[TDICT_MAX_DEVICES], *sources[TDICT_MAX_DEVICES], *src = NULL, *dst = NULL;
  size_t count = g->num_trees;
  tdict_status status = tdict_split(result, g->dim, g->sizes, views, &count, err);
  if (status != TDICT_OK) return status;
  for (size_t i = 0; i < count; i++) sources[i] = (tdict_tree *)(uintptr_t)g->trees[i];
  status = tdict_create_numbered(g->what, sources, count, &src, err);
  if (status == TDICT_OK) status = tdict_create_numbered(g->what, views, count, &dst, err);
  if (status == TDICT_OK) {
    const tdict_start start = {
        .what = g->what, .src = src, .dst = dst, .result = result, .options = g->options, .caller_waits = waits};
    status = tdict_start_transfer(g->context, &start, out, err);
  }
  tdict_release(src);
  tdict_release(dst);
  for (size_t i = 0; i < count; i++) tdict_release(views[i]);
  return status;
}

static tdict_status start_gather(gathering *g, const tdict_gather_devices_options *options, bool waits,
                                 tdict_future **out, tdict_error *err) {
  tdict_gather_devices_options own = tdict_gather_devices_options_default();
  tdict_tree *result;
  g->options = tdict_transfer_options_default();
  tdict_status status = tdict_options_read(&own, sizeof own, options, "gather_devices options", err);
  if (status == TDICT_OK)
    status = tdict_options_read(&g->options, sizeof g->options, own.transfer, "transfer options", err);
  g->dim = own.dim;
  g->device = own.device;
  if (status == TDICT_OK) status = check_pointers(g, err);
  if (status == TDICT_OK) status = plan_batch_size(g, err);
  if (status == TDICT_OK) status = choose_memory(g, err);
  if (status == TDICT_OK)
    status = tdict_objects_refuse(g->what, g->trees[0], false, "0", ", wanted tensors and trees only", err);
  if (status == TDICT_OK) status = create_result(g, &result, err);
  if (status != TDICT_OK) return status;
  status = start_transfer(g, result, waits, out, err);
  tdict_release(result);
  return status;
}

tdict_status tdict_gather_and_wait(tdict_context *context, const tdict_tree *const *trees, size_t count,
                                   const tdict_gather_devices_options *options, tdict_tree **out, tdict_error *err) {
  gathering g = {.what = "gather_devices", .context = context, .trees = trees, .num_trees = count};
  tdict_future *future;
  tdict_status status = start_gather(&g, options, true, &future, err);
  return status == TDICT_OK ? tdict_start_wait(future, NULL, out, err) : status;
}

tdict_status tdict_gather_devices_async(tdict_context *context, const tdict_tree *const *trees, size_t count,
                                        const tdict_gather_devices_options *options, tdict_future **out,
                                        tdict_error *err) {
  gathering g = {.what = "gather_devices_async", .context = context, .trees = trees, .num_trees = count};
  if (!out) return tdict_fail(err, TDICT_EINVAL, "%s: out is NULL", g.what);
  return start_gather(&g, options, false, out, err);
}
