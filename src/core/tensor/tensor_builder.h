/* Creates tensors in C order, one after another in one storage: the caller measures all, allocates, and adds them in
 * the same order. The caller owns the builder. Thread rule: one thread at a time. */
#ifndef TDICT_CORE_TENSOR_TENSOR_BUILDER_H
#define TDICT_CORE_TENSOR_TENSOR_BUILDER_H

#include "core/tensor/tensor.h"

typedef struct tdict_tensor_builder {
  size_t num_tensors, num_dims; /* number of measured tensors, and the sum of their ndim */
  size_t bytes;                 /* size of the measured tensors and the gaps between them, at most INT64_MAX */
  size_t next;                  /* offset of the tensor that is added next */
  tdict_slab *slab;             /* NULL until the builder has a storage, after a reset, and if there are no tensors */
} tdict_tensor_builder;

/* Adds the size of a tensor to builder->bytes. Before the first call, the caller sets the builder to zeros. `what`
 * begins the message. Returns the errors of tdict_layout_check(), and TDICT_EOVERFLOW if all tensors together need too
 * many bytes. */
tdict_status tdict_tensor_builder_measure(tdict_tensor_builder *builder, const char *what, tdict_dtype dtype, int ndim,
                                          const int64_t *shape, tdict_error *err);
/* Allocates a storage, of zeros if `zero`, and a slab for the measured tensors, if any. Returns the errors of
 * tdict_storage_create() and tdict_slab_create(). */
tdict_status tdict_tensor_builder_allocate(tdict_tensor_builder *builder, tdict_memory *memory, bool zero,
                                           tdict_error *err);
/* Makes the builder use an existing storage. Call instead of tdict_tensor_builder_allocate(). Retains the storage and
 * sets the flag TDICT_STORAGE_ARENA of the storage. The storage must have at least builder->bytes bytes and begin at a
 * multiple of 256 bytes. If no tensor was measured, does nothing. Returns the errors of tdict_slab_create(). */
tdict_status tdict_tensor_builder_use(tdict_tensor_builder *builder, tdict_storage *storage, tdict_error *err);
/* Adds a measured tensor, at a multiple of 256 bytes. The caller owns a reference. Cannot fail. */
tdict_tensor *tdict_tensor_builder_add(tdict_tensor_builder *builder, tdict_dtype dtype, int ndim,
                                       const int64_t *shape);
/* Drops the builder's reference to the slab. The tensors keep the storage. */
void tdict_tensor_builder_reset(tdict_tensor_builder *builder);

#endif
