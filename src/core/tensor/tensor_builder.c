/* Measures and creates tensors in one storage. The builder owns its slab. Thread rule: see tensor_builder.h. */
#include "core/tensor/tensor_builder.h"

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/tensor/layout.h"

enum { LEAF_ALIGNMENT = 256 };

tdict_status tdict_tensor_builder_measure(tdict_tensor_builder *builder, const char *what, tdict_dtype dtype, int ndim,
                                          const int64_t *shape, tdict_error *err) {
  tdict_layout_size size;
  size_t aligned, sum;
  tdict_status status = tdict_layout_check(what, dtype, ndim, shape, &size, err);
  if (status != TDICT_OK) return status;
  /* Check that offsets also fit in int64_t. */
  if (!tdict_round_up(size.bytes, LEAF_ALIGNMENT, &aligned) || !tdict_add_size(builder->bytes, aligned, &sum) ||
      sum > INT64_MAX)
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: the tensors up to this one need more than 2^63 - 1 bytes", what);
  builder->bytes = sum;
  builder->num_dims += (size_t)ndim;
  builder->num_tensors++;
  return TDICT_OK;
}

tdict_status tdict_tensor_builder_allocate(tdict_tensor_builder *builder, tdict_memory *memory, bool zero,
                                           tdict_error *err) {
  tdict_storage *storage;
  if (!builder->num_tensors) return TDICT_OK;
  tdict_status status = tdict_storage_create(memory, builder->bytes, zero, &storage, err);
  if (status != TDICT_OK) return status;
  status = tdict_tensor_builder_use(builder, storage, err);
  tdict_storage_release(storage);
  return status;
}

tdict_status tdict_tensor_builder_use(tdict_tensor_builder *builder, tdict_storage *storage, tdict_error *err) {
  if (!builder->num_tensors) return TDICT_OK;
  TDICT_ASSERT(storage->bytes >= builder->bytes);
  /* The flag tells transfers that the gaps between the tensors hold no data. */
  storage->flags |= TDICT_STORAGE_ARENA;
  return tdict_slab_create(builder->num_tensors, builder->num_dims, storage, &builder->slab, err);
}

tdict_tensor *tdict_tensor_builder_add(tdict_tensor_builder *builder, tdict_dtype dtype, int ndim,
                                       const int64_t *shape) {
  tdict_tensor *tensor = tdict_slab_add(builder->slab, dtype, ndim, shape, builder->next);
  builder->next += tdict_align(tdict_tensor_nbytes(tensor), LEAF_ALIGNMENT);
  return tensor;
}

void tdict_tensor_builder_reset(tdict_tensor_builder *builder) {
  if (builder->slab) tdict_slab_release(builder->slab, 1);
  builder->slab = NULL;
}
