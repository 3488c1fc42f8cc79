/* Measures and creates tensors in one storage. The arena owns a reference to its slab until tdict_arena_reset(). Thread
 * rule: see arena.h. */
#include "core/tensor/arena.h"

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/tensor/layout.h"

enum { LEAF_ALIGNMENT = 256 };

tdict_status tdict_arena_measure(tdict_arena *arena, const char *what, tdict_dtype dtype, int ndim,
                                 const int64_t *shape, tdict_error *err) {
  tdict_layout_size size;
  size_t aligned, sum;
  tdict_status status = tdict_layout_check(what, dtype, ndim, shape, &size, err);
  if (status != TDICT_OK) return status;
  /* Check that offsets also fit in int64_t. */
  if (!tdict_round_up(size.bytes, LEAF_ALIGNMENT, &aligned) || !tdict_add_size(arena->bytes, aligned, &sum) ||
      sum > INT64_MAX)
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: the tensors up to this one need more than 2^63 - 1 bytes", what);
  arena->bytes = sum;
  arena->num_dims += (size_t)ndim;
  arena->num_tensors++;
  return TDICT_OK;
}

tdict_status tdict_arena_allocate(tdict_arena *arena, tdict_memory *memory, bool zero, tdict_error *err) {
  tdict_storage *storage;
  if (!arena->num_tensors) return TDICT_OK;
  tdict_status status = tdict_storage_create(memory, arena->bytes, zero, &storage, err);
  if (status != TDICT_OK) return status;
  status = tdict_arena_use(arena, storage, err);
  tdict_storage_release(storage);
  return status;
}

tdict_status tdict_arena_use(tdict_arena *arena, tdict_storage *storage, tdict_error *err) {
  if (!arena->num_tensors) return TDICT_OK;
  TDICT_ASSERT(storage->bytes >= arena->bytes);
  /* The flag tells transfers that the gaps between the tensors hold no data. */
  storage->flags |= TDICT_STORAGE_ARENA;
  return tdict_slab_create(arena->num_tensors, arena->num_dims, storage, &arena->slab, err);
}

tdict_tensor *tdict_arena_add(tdict_arena *arena, tdict_dtype dtype, int ndim, const int64_t *shape) {
  tdict_tensor *tensor = tdict_slab_add(arena->slab, dtype, ndim, shape, arena->next);
  arena->next += tdict_align(tdict_tensor_nbytes(tensor), LEAF_ALIGNMENT);
  return tensor;
}

void tdict_arena_reset(tdict_arena *arena) {
  if (arena->slab) tdict_slab_release(arena->slab, 1);
  arena->slab = NULL;
}
