/* Implements tdict_open(): reads the description of the files, and maps the files. Owns nothing. Thread-safe. */

#include "core/base/error.h"
#include "core/base/thread.h"
#include "services/io/contents/contents.h"

typedef struct opened {
  tdict_tree *tree, *metadata;
} opened;

static tdict_status open_once(tdict_contents *c, const tdict_open_options *o, opened *out, tdict_error *err) {
  *out = (opened){NULL, NULL};
  tdict_status status = tdict_format_read(c, o, err);
  if (status == TDICT_OK && o->metadata) status = tdict_contents_metadata(c, &out->metadata, err);
  if (status == TDICT_OK) status = tdict_contents_map(c, err);
  if (status == TDICT_OK) status = tdict_contents_build(c, &out->tree, err);
  if (status != TDICT_OK) tdict_release(out->metadata);
  return status;
}

tdict_status tdict_open(const char *path, const tdict_open_options *options, tdict_tree **out, tdict_error *err) {
  TDICT_UNCANCELLED;
  static const char what[] = "open";
  tdict_open_options o;
  tdict_contents contents;
  opened found;
  bool again = true;
  if (!path || !out) return tdict_fail_null(err, what, path ? "out" : "path");
  tdict_status status = tdict_contents_options(what, options, &o, err);
  if (status != TDICT_OK) return status;
  tdict_contents_init(&contents, what, path);
  for (int i = 0; again; i++) {
    tdict_error why; /* a call that succeeds leaves *err alone */
    status = open_once(&contents, &o, &found, &why);
    again = status != TDICT_OK && i < TDICT_FORMAT_RETRIES && tdict_format_was_replaced(&contents);
    if (status != TDICT_OK && !again && err) *err = why;
    tdict_contents_close(&contents);
  }
  if (status != TDICT_OK) return status;
  *out = found.tree;
  if (o.metadata) *o.metadata = found.metadata;
  return TDICT_OK;
}
