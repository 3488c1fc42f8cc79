/* Converts tensors and trees to another dtype. The caller owns the results. Thread rule: as in tdict/convert.h. */
#include <stdlib.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/memory/run.h"
#include "core/ops/map.h"
#include "core/ops/visit.h"
#include "core/tensor/convert_tensor.h"
#include "tdict/convert.h"

static const char what[] = "to_dtype";

tdict_status tdict_convert(tdict_tensor *dst, const tdict_tensor *src, tdict_error *err) {
  return tdict_convert_tensor("convert", dst, src, err);
}

/* Converts a tensor on a device as the only leaf of a tree. */
static tdict_status convert_on_device(const tdict_tensor *tensor, tdict_dtype dtype, const tdict_run *run,
                                      tdict_tensor **out, tdict_error *err) {
  tdict_tree *tree = NULL, *converted = NULL;
  tdict_status status = tdict_create(0, NULL, &tree, err);
  if (status == TDICT_OK) status = tdict_set(tree, "tensor", (tdict_tensor *)(uintptr_t)tensor, err);
  if (status == TDICT_OK) status = tdict_to_dtype(tree, dtype, NULL, run, &converted, err);
  if (status == TDICT_OK) status = tdict_pop(converted, "tensor", out, err);
  tdict_release(converted);
  tdict_release(tree);
  return status == TDICT_OK ? status : tdict_error_at(err, status, "");
}

tdict_status tdict_tensor_to_dtype(const tdict_tensor *tensor, tdict_dtype dtype, const tdict_run *run,
                                   tdict_tensor **out, tdict_error *err) {
  tdict_tensor *made;
  tdict_run r;
  if (!tensor || !out) return tdict_fail_null(err, what, tensor ? "out" : "tensor");
  tdict_status status = tdict_run_read(&r, run, TDICT_USES_STREAM | TDICT_USES_MEMORY, what, err);
  if (status != TDICT_OK) return status;
  if (tensor->dtype == dtype) {
    *out = tdict_tensor_retain(tensor);
    return TDICT_OK;
  }
  if (!tdict_is_on_host(tensor)) return convert_on_device(tensor, dtype, &r, out, err);
  status = tdict_convert_check(what, dtype, tensor, err);
  if (status == TDICT_OK) status = tdict_convert_check_memory(what, r.memory, err);
  if (status == TDICT_OK) status = tdict_tensor_empty(dtype, tensor->ndim, tensor->dims, r.memory, &made, err);
  if (status != TDICT_OK) return status;
  status = tdict_convert_tensor(what, made, tensor, err);
  return TDICT_HAND_OVER(status, made, out, tdict_tensor_release);
}

typedef struct caster {
  tdict_dtype dtype;
  tdict_dtype_options options;
  bool *answers; /* results of the filter for all tensors, in cursor order; NULL: no filter */
  size_t num_answers, cap_answers;
} caster;

/* Calls the filter for one tensor and stores the result. A callback of tdict_visit_in_order(). */
static tdict_status ask_filter(void *user, const tdict_leaves *at, tdict_error *err) {
  caster *c = user;
  if (!TDICT_RESERVE(c->answers, c->cap_answers, c->num_answers + 1))
    return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for the results of the filter", what);
  c->answers[c->num_answers++] = c->options.filter(c->options.user, at);
  return TDICT_OK;
}

static bool is_real_float(tdict_dtype dtype) {
  switch (dtype) {
  case TDICT_F16:
  case TDICT_F32:
  case TDICT_F64:
  case TDICT_BF16:
  case TDICT_F8E4M3:
  case TDICT_F8E5M2:
    return true;
  default:
    return false;
  }
}

/* Returns true if the tensor is converted, and false if the result shares the tensor. */
static bool is_converted(const tdict_map *map, size_t tensor, const tdict_tensor *from) {
  const caster *c = map->user;
  if (from->dtype == c->dtype || (c->options.floats_only && !is_real_float(from->dtype))) return false;
  return !c->options.filter || (tensor < c->num_answers && c->answers[tensor]);
}

static tdict_status describe_converted(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                       tdict_error *err) {
  (void)entry;
  tdict_made_of(from, made);
  made->fresh = true;
  return tdict_moves_check_convert(map->moves, map->dtype, map->memory, from, err);
}

static tdict_status fill_converted(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                                   tdict_error *err) {
  return tdict_moves_convert(map->moves, made, from, entry, err);
}

tdict_status tdict_to_dtype(const tdict_tree *tree, tdict_dtype dtype, const tdict_dtype_options *options,
                            const tdict_run *run, tdict_tree **out, tdict_error *err) {
  tdict_run r;
  caster c = {.dtype = dtype, .options = tdict_dtype_options_default()};
  if (!tree || !out) return tdict_fail_null(err, what, tree ? "out" : "tree");
  tdict_status status = tdict_options_read(&c.options, sizeof c.options, options, "dtype options", err);
  if (status == TDICT_OK) status = tdict_run_read(&r, run, TDICT_USES_STREAM | TDICT_USES_MEMORY, what, err);
  if (status == TDICT_OK && !tdict_dtype_bytes(dtype))
    status = tdict_fail(err, TDICT_EDTYPE, "%s: dtype 0x%x is unknown", what, (unsigned)dtype);
  if (status != TDICT_OK) return status;
  tdict_moves moves = {.what = what, .stream = tdict_run_stream(&r)};
  status = tdict_moves_check_objects(&moves, tree, err);
  if (status == TDICT_OK && c.options.filter) status = tdict_visit_in_order(what, tree, ask_filter, &c, err);
  const tdict_map map = {.what = what,
                         .memory = r.memory,
                         .dtype = dtype,
                         .changes = is_converted,
                         .describe = describe_converted,
                         .fill = fill_converted,
                         .describes_shapes = true,
                         .user = &c,
                         .moves = &moves,
                         .way = TDICT_OBJECT_ELEMENTS,
                         .keeps_bare = true};
  if (status == TDICT_OK) status = tdict_map_run(&map, tree, out, err);
  free(c.answers);
  return status;
}
