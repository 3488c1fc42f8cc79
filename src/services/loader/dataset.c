/* Creates datasets. The record of a dataset of a callback is a struct `callback`. Thread rule: see tdict/dataset.h. */
#include "services/loader/dataset.h"

#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/options.h"

/* Returns TDICT_EINVAL if the table has no function that fetches samples. */
static tdict_status check_table(const tdict_dataset_table *t, tdict_error *err) {
  const char *name = t->name ? t->name : "dataset";
  if (!t->fields && t->num_fields > 0)
    return tdict_fail(err, TDICT_EINVAL, "%s: num_fields is %zu, but fields is NULL", name, t->num_fields);
  if (t->fetch_sample || (t->fields && (t->fetch || t->fetch_batch))) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: it has neither fetch_sample, nor fields with fetch or fetch_batch", name);
}

tdict_status tdict_dataset_create(const tdict_dataset_table *table, tdict_dataset **out, tdict_error *err) {
  if (!table || !out) return tdict_fail_null(err, "dataset", table ? "out" : "the table");
  tdict_dataset_table t = tdict_dataset_table_default();
  tdict_status status = tdict_options_read(&t, sizeof t, table, "dataset table", err);
  if (status == TDICT_OK) status = check_table(&t, err);
  if (status != TDICT_OK) return status;
  tdict_dataset *d = malloc(sizeof *d);
  if (!d) return tdict_fail_memory(err, "dataset", NULL, "its record");
  atomic_init(&d->references, 1);
  d->table = t;
  *out = d;
  return TDICT_OK;
}

tdict_status tdict_dataset_wrap(const tdict_dataset_table *table, tdict_dataset **out, tdict_error *err) {
  tdict_status status = tdict_dataset_create(table, out, err);
  if (status != TDICT_OK) table->release(table->self);
  return status;
}

tdict_dataset *tdict_dataset_retain(const tdict_dataset *dataset) {
  tdict_dataset *counted = (tdict_dataset *)dataset; /* The reference count changes even for a const dataset. */
  atomic_fetch_add_explicit(&counted->references, 1, memory_order_relaxed);
  return counted;
}

void tdict_dataset_release(tdict_dataset *d) {
  if (!d || atomic_fetch_sub_explicit(&d->references, 1, memory_order_acq_rel) != 1) return;
  if (d->table.release) d->table.release(d->table.self);
  free(d);
}

const tdict_dataset_table *tdict_dataset_get_table(const tdict_dataset *dataset) { return &dataset->table; }

typedef struct callback {
  tdict_make_sample make;
  void *user;
  int64_t length;
} callback;

static int64_t callback_length(void *self) { return ((callback *)self)->length; }

static tdict_status callback_sample(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                    tdict_error *err) {
  callback *c = self;
  return c->make(c->user, info, index, out, err);
}

tdict_status tdict_dataset_from_callback(tdict_make_sample make, void *user, int64_t length, tdict_dataset **out,
                                         tdict_error *err) {
  if (!make || !out) return tdict_fail_null(err, "dataset_from_callback", make ? "out" : "the callback");
  callback *self = malloc(sizeof *self);
  if (!self) return tdict_fail_memory(err, "dataset_from_callback", NULL, "its record");
  *self = (callback){make, user, length};
  tdict_dataset_table t = tdict_dataset_table_default();
  t.name = "callback";
  t.self = self;
  t.length = callback_length;
  t.fetch_sample = callback_sample;
  t.release = free;
  t.in_order = true;
  return tdict_dataset_wrap(&t, out, err);
}
