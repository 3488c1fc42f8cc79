/* Implements tdict_save(): brings the tree to host memory, and calls the writer of the format. Owns nothing.
 * Thread-safe. */
#include "io/request.h"

#include <string.h>

#include "base/error.h"
#include "base/options.h"
#include "io/numpy/numpy.h"
#include "io/safetensors/safetensors.h"
#include "tdict/ragged.h"
#include "tdict/transfer.h"
#include "tdict/unbatched.h"

/* Stops at the first tensor that is not in host memory. */
static tdict_status find_device(void *user, const tdict_entry *entry, tdict_error *err) {
  bool *is_on_device = user;
  if (entry->tensor && !tdict_device_equal(tdict_tensor_device(entry->tensor), tdict_cpu())) *is_on_device = true;
  if (entry->type != tdict_unbatched_type() && entry->type != tdict_ragged_type()) return TDICT_OK;
  tdict_tree *flat = NULL;
  tdict_status status = entry->type->flatten(entry->object, &flat, err);
  if (status == TDICT_OK) status = tdict_walk(flat, find_device, user, err);
  tdict_release(flat);
  return status;
}

/* Returns the tree itself with a new reference if all tensors are in host memory, else a copy in host memory. */
static tdict_status get_host_tree(const char *what, tdict_context *context, const tdict_tree *tree, tdict_tree **out,
                                  tdict_error *err) {
  bool is_on_device = false;
  tdict_status status = tdict_walk(tree, find_device, &is_on_device, err);
  if (status != TDICT_OK) return status;
  if (!is_on_device) {
    *out = tdict_retain(tree);
    return TDICT_OK;
  }
  if (!context) return tdict_fail(err, TDICT_EINVAL, "%s: context is NULL, but a tensor is not in host memory", what);
  return tdict_to_device(context, tree, tdict_cpu(), NULL, out, err);
}

/* Returns the format of the end of a path. */
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

static tdict_status write_tree(const tdict_save_request *request, tdict_error *err) {
  switch (request->options->format) {
  case TDICT_FORMAT_SAFETENSORS:
    return tdict_safetensors_save(request, err);
  case TDICT_FORMAT_NPY:
    return tdict_npy_save(request, err);
  case TDICT_FORMAT_NPZ:
    return tdict_npz_save(request, err);
  default:
    return tdict_fail(err, TDICT_EINVAL, "%s: format is %d, wanted a tdict_file_format", request->what,
                      (int)request->options->format);
  }
}

tdict_status tdict_save(tdict_context *context, const char *path, const tdict_tree *tree,
                        const tdict_save_options *options, tdict_error *err) {
  static const char what[] = "save";
  tdict_save_options o = tdict_save_options_default();
  tdict_tree *host = NULL;
  if (!path || !tree) return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, path ? "tree" : "path");
  tdict_status status = tdict_options_read(&o, sizeof o, options, "save_options", err);
  if (o.format == TDICT_FORMAT_AUTO) o.format = format_of_path(path);
  if (status == TDICT_OK) status = get_host_tree(what, context, tree, &host, err);
  if (status != TDICT_OK) return status;
  const tdict_save_request request = {what, path, host, &o};
  status = write_tree(&request, err);
  tdict_release(host);
  return status;
}
