/* Implements tdict_open(): reads the description of the files, and maps the files. Owns nothing. Thread-safe. */
#include <stdlib.h>

#include "base/error.h"
#include "io/format.h"
#include "io/map.h"

static tdict_status map_and_build(const tdict_contents *c, tdict_tree **out, tdict_error *err) {
  tdict_tensor **leaves = calloc(c->num_items + 1, sizeof *leaves);
  if (!leaves)
    return tdict_fail_file(err, TDICT_ENOMEM, c->path, "%s: no host memory for %zu tensors", c->what, c->num_items);
  tdict_status status = tdict_map_leaves(c, leaves, err);
  if (status == TDICT_OK) status = tdict_contents_build(c, leaves, out, err);
  for (size_t i = 0; i < c->num_items; i++) tdict_tensor_release(leaves[i]);
  free((void *)leaves);
  return status;
}

tdict_status tdict_open(const char *path, const tdict_open_options *options, tdict_tree **out, tdict_error *err) {
  static const char what[] = "open";
  tdict_open_options o;
  tdict_contents contents;
  tdict_tree *metadata = NULL;
  if (!path || !out) return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, path ? "out" : "path");
  tdict_status status = tdict_contents_options(what, options, &o, err);
  if (status != TDICT_OK) return status;
  tdict_contents_init(&contents, what, path);
  status = tdict_format_read(&contents, &o, err);
  if (status == TDICT_OK && o.metadata) status = tdict_contents_metadata(&contents, &metadata, err);
  if (status == TDICT_OK) status = map_and_build(&contents, out, err);
  if (status != TDICT_OK)
    tdict_release(metadata);
  else if (o.metadata)
    *o.metadata = metadata;
  tdict_contents_close(&contents);
  return status;
}
