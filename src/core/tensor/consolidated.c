/* Makes and counts references to records of consolidated trees. See consolidated.h for ownership and threads. */
#include "core/tensor/consolidated.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"

tdict_status tdict_consolidated_create(size_t num_leaves, tdict_storage *storage, tdict_consolidated **out,
                                       tdict_error *err) {
  tdict_consolidated *made = NULL;
  size_t bytes;
  if (tdict_mul_size(num_leaves, sizeof made->leaves[0], &bytes) && tdict_add_size(bytes, sizeof *made, &bytes))
    made = malloc(bytes);
  if (!made) return tdict_fail(err, TDICT_ENOMEM, "consolidate: no host memory for a record of %zu leaves", num_leaves);
  const int64_t count = (int64_t)storage->bytes;
  const tdict_tensor_desc all = {.data = storage->data, .dtype = TDICT_U8, .ndim = 1, .shape = &count};
  tdict_status status = tdict_tensor_over(storage, &all, &made->bytes, err);
  if (status != TDICT_OK) {
    free(made);
    return status;
  }
  atomic_init(&made->refs, 1);
  made->num_leaves = num_leaves;
  made->num_dims = 0;
  made->has_objects = false;
  *out = made;
  return TDICT_OK;
}

tdict_status tdict_consolidated_create_like(const tdict_consolidated *like, tdict_storage *storage,
                                            tdict_consolidated **out, tdict_error *err) {
  tdict_status status = tdict_consolidated_create(like->num_leaves, storage, out, err);
  if (status != TDICT_OK) return status;
  (*out)->num_dims = like->num_dims;
  (*out)->has_objects = like->has_objects;
  memcpy((*out)->leaves, like->leaves, like->num_leaves * sizeof like->leaves[0]);
  return TDICT_OK;
}

tdict_consolidated *tdict_consolidated_retain(tdict_consolidated *record) {
  atomic_fetch_add_explicit(&record->refs, 1, memory_order_relaxed);
  return record;
}

void tdict_consolidated_release(tdict_consolidated *record) {
  if (!record || atomic_fetch_sub_explicit(&record->refs, 1, memory_order_acq_rel) != 1) return;
  tdict_tensor_release(record->bytes);
  free(record);
}
