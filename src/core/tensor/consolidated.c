/* Makes and counts references to records of consolidated trees. See consolidated.h for ownership and threads. */
#include "core/tensor/consolidated.h"

#include <stdlib.h>

#include "core/base/checked.h"
#include "core/base/error.h"

static void release_layout(tdict_block_layout *layout) {
  if (atomic_fetch_sub_explicit(&layout->refs, 1, memory_order_acq_rel) == 1) free(layout);
}

static tdict_status fail_record_memory(size_t num_leaves, tdict_error *err) {
  return tdict_fail_memory(err, "consolidate", NULL, "a record of %zu leaves", num_leaves);
}

/* Makes a record. Takes over the caller's reference to the layout, also on failure. */
static tdict_status make_record(tdict_block_layout *layout, tdict_storage *storage, tdict_consolidated **out,
                                tdict_error *err) {
  tdict_consolidated *made = malloc(sizeof *made);
  const int64_t count = (int64_t)storage->bytes;
  const tdict_tensor_desc all = {.data = storage->data, .dtype = TDICT_U8, .ndim = 1, .shape = &count};
  tdict_status status =
      made ? tdict_tensor_over(storage, &all, &made->bytes, err) : fail_record_memory(layout->num_leaves, err);
  if (status != TDICT_OK) {
    free(made);
    release_layout(layout);
    return status;
  }
  atomic_init(&made->refs, 1);
  made->layout = layout;
  *out = made;
  return TDICT_OK;
}

tdict_status tdict_consolidated_create(size_t num_leaves, tdict_storage *storage, tdict_consolidated **out,
                                       tdict_error *err) {
  tdict_block_layout *layout = NULL;
  size_t bytes;
  if (tdict_mul_size(num_leaves, sizeof layout->leaves[0], &bytes) && tdict_add_size(bytes, sizeof *layout, &bytes))
    layout = malloc(bytes);
  if (!layout) return fail_record_memory(num_leaves, err);
  atomic_init(&layout->refs, 1);
  layout->num_leaves = num_leaves;
  layout->num_dims = 0;
  layout->has_objects = false;
  return make_record(layout, storage, out, err);
}

tdict_status tdict_consolidated_create_like(const tdict_consolidated *like, tdict_storage *storage,
                                            tdict_consolidated **out, tdict_error *err) {
  atomic_fetch_add_explicit(&like->layout->refs, 1, memory_order_relaxed);
  return make_record(like->layout, storage, out, err);
}

tdict_consolidated *tdict_consolidated_retain(tdict_consolidated *record) {
  atomic_fetch_add_explicit(&record->refs, 1, memory_order_relaxed);
  return record;
}

void tdict_consolidated_release(tdict_consolidated *record) {
  if (!record || atomic_fetch_sub_explicit(&record->refs, 1, memory_order_acq_rel) != 1) return;
  tdict_tensor_release(record->bytes);
  release_layout(record->layout);
  free(record);
}
