/* Declares the arena, which creates tensors in C order, one after another in one storage. The caller measures all
 * tensors, allocates the arena, and then adds the same tensors in the same order. The caller owns the arena. Thread
 * rule: one thread at a time may use an arena. */
#ifndef TDICT_CORE_TENSOR_ARENA_H
#define TDICT_CORE_TENSOR_ARENA_H

#include "core/tensor/tensor.h"

typedef struct tdict_arena {
  size_t num_tensors, num_dims; /* number of measured tensors, and the sum of their ndim */
  size_t bytes;                 /* size of the measured tensors and the gaps between them, at most INT64_MAX */
  size_t next;                  /* offset of the tensor that is added next */
  tdict_slab *slab;             /* NULL until the arena has a storage, after a reset, and if there are no tensors */
} tdict_arena;

/* Adds a tensor to the size of the arena. Before the first call, the caller initializes the arena with zeros. The error
 * message begins with `what`. Returns the errors of tdict_layout_check(), and TDICT_EOVERFLOW if all tensors together
 * need too many bytes. */
tdict_status tdict_arena_measure(tdict_arena *arena, const char *what, tdict_dtype dtype, int ndim,
                                 const int64_t *shape, tdict_error *err);
/* Allocates the storage and a slab for the measured tensors. If `zero` is true, sets every byte of the storage to zero.
 * If no tensor was measured, allocates nothing. Returns the errors of tdict_storage_create() and
 * tdict_slab_create(). */
tdict_status tdict_arena_allocate(tdict_arena *arena, tdict_memory *memory, bool zero, tdict_error *err);
/* Makes the arena use an existing storage. Call instead of tdict_arena_allocate(). Retains the storage and sets the
 * flag TDICT_STORAGE_ARENA of the storage. The storage must have at least arena->bytes bytes and begin at a multiple of
 * 256 bytes. If no tensor was measured, does nothing. Returns the errors of tdict_slab_create(). */
tdict_status tdict_arena_use(tdict_arena *arena, tdict_storage *storage, tdict_error *err);
/* Adds a measured tensor. The caller owns one reference to the tensor. The offset of each tensor in the storage is a
 * multiple of 256 bytes. Cannot fail. */
tdict_tensor *tdict_arena_add(tdict_arena *arena, tdict_dtype dtype, int ndim, const int64_t *shape);
/* Drops the arena's reference to the slab. The tensors keep the storage. */
void tdict_arena_reset(tdict_arena *arena);

#endif
