/* Reads and releases tdict_dataset structs, and makes datasets from a callback. The dataset of a callback owns a struct
 * `callback`. Thread rule: see tdict/dataset.h. */
#include "tdict/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/options.h"
#include "services/loader/loader_internal.h"

tdict_status tdict_dataset_read(tdict_dataset *out, const tdict_dataset *given, tdict_error *err) {
  *out = tdict_dataset_default();
  tdict_status status = tdict_options_read(out, sizeof *out, given, "dataset", err);
  if (status != TDICT_OK) return status;
  if (!out->fetch_sample && !(out->schema && (out->fetch || out->fetch_batch)))
    return tdict_fail(err, TDICT_EINVAL, "%s: it has neither fetch_sample, nor schema with fetch or fetch_batch",
                      out->name ? out->name : "dataset");
  return TDICT_OK;
}

void tdict_dataset_reset(tdict_dataset *d) {
  tdict_dataset taken = tdict_dataset_default(), empty = taken;
  if (!d || tdict_options_read(&taken, sizeof taken, d, "dataset", NULL) != TDICT_OK) return;
  if (taken.release) taken.release(taken.self);
  (void)!tdict_options_write(d, &empty, sizeof empty, "dataset", NULL);
}

typedef struct callback {
  tdict_make_sample make;
  void *user;
  int64_t length;
} callback;

static int64_t callback_length(void *self) { return ((callback *)self)->length; }

static tdict_status callback_sample(void *self, int64_t index, tdict_tree **out, tdict_error *err) {
  callback *c = self;
  return c->make(c->user, index, out, err);
}

tdict_status tdict_dataset_from_callback(tdict_make_sample make, void *user, int64_t length, tdict_dataset *out,
                                         tdict_error *err) {
  if (!make || !out)
    return tdict_fail(err, TDICT_EINVAL, "dataset_from_callback: %s is NULL", make ? "out" : "the callback");
  callback *self = malloc(sizeof *self);
  if (!self) return tdict_fail(err, TDICT_ENOMEM, "dataset_from_callback: no host memory for its record");
  *self = (callback){make, user, length};
  tdict_dataset d = tdict_dataset_default();
  d.name = "callback";
  d.self = self;
  d.length = callback_length;
  d.fetch_sample = callback_sample;
  d.release = free;
  d.in_order = true;
  *out = d;
  return TDICT_OK;
}
