/* Implements tdict_save(): calls the writer of the format. Owns nothing. Thread-safe. */
#include "services/io/request.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "core/ops/visit.h"
#include "services/io/numpy/numpy.h"
#include "services/io/safetensors/safetensors.h"
#include "services/io/tensordict/tensordict.h"
#include "tdict/ragged.h"
#include "tdict/transfer.h"
#include "tdict/unbatched.h"

/* Notes where a tensor is. */
static tdict_status note_place(void *user, const tdict_entry *entry, tdict_error *err) {
  tdict_save_places *places = user;
  if (entry->tensor) {
    const tdict_device device = tdict_tensor_device(entry->tensor);
    if (!places->num_tensors++) places->device = device;
    places->bytes += tdict_tensor_bytes(entry->tensor);
    places->has_device |= device.type != TDICT_DEVICE_CPU;
    places->is_mixed |= !tdict_device_equal(device, places->device);
  }
  if (entry->type != tdict_unbatched_type() && entry->type != tdict_ragged_type()) return TDICT_OK;
  tdict_tree *flat = NULL;
  tdict_status status = entry->type->flatten(entry->object, &flat, err);
  if (status == TDICT_OK) status = tdict_walk(flat, note_place, user, err);
  tdict_release(flat);
  return status;
}

tdict_status tdict_save_find_places(const tdict_tree *tree, tdict_save_places *out, tdict_error *err) {
  *out = (tdict_save_places){.num_tensors = 0};
  return tdict_walk(tree, note_place, out, err);
}

/* The visitor of refuse_devices(). `user` is the name of the public call. */
static tdict_status refuse_device(void *user, const tdict_entry *entry, tdict_error *err) {
  tdict_save_places places = {.num_tensors = 0};
  tdict_status status = note_place(&places, entry, err);
  if (status != TDICT_OK || !places.has_device) return status;
  tdict_fail(err, TDICT_EINVAL, "%s: context is NULL, but the tensor is on %s, wanted host memory", (const char *)user,
             TDICT_DEVICE_TEXT(places.device));
  return tdict_error_at(err, TDICT_EINVAL, entry->path);
}

/* Returns TDICT_EINVAL with the path of the first tensor that is not in host memory. Such a tensor must exist. */
static tdict_status refuse_devices(const char *what, const tdict_tree *tree, tdict_error *err) {
  return tdict_walk(tree, refuse_device, (void *)(uintptr_t)what, err);
}

tdict_status tdict_save_host_tree(const char *what, tdict_context *context, const tdict_tree *tree,
                                  const tdict_save_options *options, tdict_tree **out, tdict_error *err) {
  tdict_save_places places;
  tdict_status status = tdict_save_find_places(tree, &places, err);
  if (status != TDICT_OK) return status;
  if (places.has_device && !context) return refuse_devices(what, tree, err);
  tdict_transfer_options o = tdict_transfer_options_default();
  o.after = options->after;
  o.max_bytes_per_second = options->max_bytes_per_second;
  o.keep_objects = true; /* the writer names an object that it cannot write */
  if (places.has_device) return tdict_to_device(context, tree, tdict_cpu(), &o, out, err);
  *out = tdict_retain(tree);
  return TDICT_OK;
}

static bool writes_devices(int32_t format) {
  return format == TDICT_FORMAT_SAFETENSORS || format == TDICT_FORMAT_CONSOLIDATED;
}

/* Sets request->tree to the tree, or a copy in host memory if needed. `context` is NULL if this thread must write. */
static tdict_status prepare_tree(tdict_save_request *request, tdict_context *context, const tdict_tree *tree,
                                 tdict_error *err) {
  tdict_save_places places;
  tdict_tree *host = NULL;
  tdict_status status = tdict_save_find_places(tree, &places, err);
  if (status != TDICT_OK) return status;
  if (context && writes_devices(request->options->format))
    host = tdict_retain(tree);
  else
    status = tdict_save_host_tree(request->what, context, tree, request->options, &host, err);
  /* In a forked process, the threads of the context do not exist. */
  const bool has_threads = context && tdict_context_pool(context);
  request->tree = host;
  request->context = has_threads || places.has_device ? context : NULL;
  return status;
}

static int32_t format_of_path(const char *path) {
  static const struct {
    const char *end;
    int32_t format;
  } ends[] = {
      {".npy", TDICT_FORMAT_NPY}, {".npz", TDICT_FORMAT_NPZ}, {".tdz", TDICT_FORMAT_TDZ}, {"/", TDICT_FORMAT_MEMMAP}};
  const size_t length = strlen(path);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    const size_t end = strlen(ends[i].end);
    if (length >= end && strcmp(path + length - end, ends[i].end) == 0) return ends[i].format;
  }
  return TDICT_FORMAT_SAFETENSORS;
}

static tdict_status refuse_unused(const tdict_save_request *request, tdict_error *err) {
  const tdict_save_options *o = request->options;
  const bool is_safetensors = o->format == TDICT_FORMAT_SAFETENSORS;
  const char *why = !is_safetensors && o->max_shard_bytes
                        ? "max_shard_bytes is set, but only safetensors files have shards"
                    : !is_safetensors && o->metadata && tdict_num_keys(o->metadata)
                        ? "metadata is set, but only safetensors files hold metadata"
                    : !is_safetensors && o->without_structure
                        ? "without_structure is set, but only safetensors files have TensorDict's entry"
                    : o->format != TDICT_FORMAT_MEMMAP && o->allows_gap
                        ? "allows_gap is set, but only directories (MEMMAP) are exchanged"
                        : NULL;
  return why ? tdict_fail(err, TDICT_EINVAL, "%s: %s", request->what, why) : TDICT_OK;
}

static tdict_status write_tree(const tdict_save_request *request, tdict_error *err) {
  tdict_status status = refuse_unused(request, err);
  if (status != TDICT_OK) return status;
  switch (request->options->format) {
  case TDICT_FORMAT_SAFETENSORS:
    return tdict_safetensors_save(request, err);
  case TDICT_FORMAT_MEMMAP:
    return tdict_memmap_save(request, err);
  case TDICT_FORMAT_CONSOLIDATED:
    return tdict_consolidated_save(request, err);
  case TDICT_FORMAT_TDZ:
    return tdict_archive_save(request, err);
  case TDICT_FORMAT_NPY:
  case TDICT_FORMAT_NPZ:
    return tdict_numpy_save(request, err);
  default:
    return tdict_fail(err, TDICT_EINVAL, "%s: format is %d, wanted a tdict_file_format", request->what,
                      (int)request->options->format);
  }
}

/* Writes the tree of the request. Reports the progress to the program if the program wants that. */
static tdict_status write_and_report(tdict_save_request *request, tdict_error *err) {
  const tdict_save_options *o = request->options;
  tdict_save_places places;
  if (!o->progress) return write_tree(request, err);
  tdict_status status = tdict_save_find_places(request->tree, &places, err);
  if (status == TDICT_OK)
    status = tdict_io_progress_create(request->what, o->progress, o->user, &request->watch.progress, err);
  if (status != TDICT_OK) return status;
  status = tdict_io_progress_begin(request->watch.progress, places.bytes, err);
  status = status == TDICT_OK ? write_tree(request, err) : tdict_error_at(err, status, request->path);
  tdict_io_progress_release(request->watch.progress);
  return status;
}

tdict_status tdict_save_request_run(tdict_save_request *request, tdict_context *context, const tdict_tree *tree,
                                    tdict_error *err) {
  tdict_status status = prepare_tree(request, context, tree, err);
  if (status != TDICT_OK) return status;
  const int64_t rate = request->options->max_bytes_per_second;
  if (rate) status = tdict_pace_create(rate, &request->watch.pace, err);
  if (status == TDICT_OK) status = write_and_report(request, err);
  if (request->watch.pace) tdict_pace_free(request->watch.pace);
  tdict_release((tdict_tree *)(uintptr_t)request->tree);
  return status;
}

tdict_status tdict_save_read_options(const char *what, const char *path, const tdict_tree *tree,
                                     const tdict_save_options *options, tdict_save_options *out, tdict_error *err) {
  *out = tdict_save_options_default();
  if (!path || !tree) return tdict_fail_null(err, what, path ? "tree" : "path");
  tdict_status status = tdict_options_read(out, sizeof *out, options, "save_options", err);
  if (status == TDICT_OK && (out->snapshot < TDICT_SNAPSHOT_AUTO || out->snapshot > TDICT_SNAPSHOT_HOST))
    return tdict_fail(err, TDICT_EINVAL, "%s: snapshot is %d, wanted a tdict_snapshot", what, (int)out->snapshot);
  if (status == TDICT_OK) status = tdict_pace_check(out->max_bytes_per_second, what, err);
  if (status == TDICT_OK && out->format == TDICT_FORMAT_AUTO) out->format = format_of_path(path);
  return status;
}

tdict_status tdict_save(tdict_context *context, const char *path, const tdict_tree *tree,
                        const tdict_save_options *options, tdict_error *err) {
  TDICT_UNCANCELLED;
  tdict_save_options o;
  tdict_save_request request = {.what = "save", .path = path, .options = &o, .num_threads = -1};
  tdict_status status = tdict_save_read_options(request.what, path, tree, options, &o, err);
  if (status == TDICT_OK && o.snapshot != TDICT_SNAPSHOT_AUTO)
    status = tdict_fail(err, TDICT_EINVAL, "save: snapshot is set, but only tdict_save_async() makes a snapshot");
  return status == TDICT_OK ? tdict_save_request_run(&request, context, tree, err) : status;
}
