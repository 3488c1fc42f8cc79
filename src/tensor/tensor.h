/* The tensor struct, for the layers above, and the slab that many tensors are made in at once.
 * Thread rule: as in tdict/tensor.h. */
#ifndef TDICT_TENSOR_TENSOR_H
#define TDICT_TENSOR_TENSOR_H

#include <stdatomic.h>

#include "memory/storage.h"
#include "tdict/tensor.h"

typedef struct tdict_slab tdict_slab;
struct tdict_tensor {
  _Atomic(int64_t) refs;  /* of a tensor that is alone; tensors of a slab count in it */
  tdict_slab *slab;       /* NULL: alone */
  tdict_storage *storage; /* counted by the tensor, or by its slab for all of its tensors */
  void *data;             /* first element; never dereferenced for device memory; NULL only without elements */
  tdict_dtype dtype;
  int32_t ndim;
  int64_t numel;
  const int64_t *dims; /* ndim counts, then ndim strides */
};
static inline const int64_t *tdict_tensor_dims_strides(const tdict_tensor *t) { return t->dims + t->ndim; }

/* Many tensors with one count, in one allocation: contiguous ones over one storage, or views over many. */
struct tdict_slab {
  _Atomic(int64_t) refs;  /* references to the slab and to all its tensors */
  tdict_storage *storage; /* NULL: of views, where each run of tensors over one storage counts it once */
  size_t num_tensors, cap_tensors;
  int64_t *next_dims; /* where the next tensor's counts and strides go */
  tdict_tensor tensors[];
};
/* A slab with room for `num_tensors` tensors with `num_dims` dimensions in all; retains storage, which is NULL for a
 * slab of views; one reference. TDICT_ENOMEM, TDICT_EOVERFLOW. */
tdict_status tdict_slab_create(size_t num_tensors, size_t num_dims, tdict_storage *storage, tdict_slab **out,
                               tdict_error *err);
/* The next tensor, in C order at `offset` bytes of the storage; its reference is counted to the slab, which
 * nobody else uses yet (so the caller owns one). The layout has been checked. Cannot fail. */
tdict_tensor *tdict_slab_add(tdict_slab *slab, tdict_dtype dtype, int ndim, const int64_t *shape, size_t offset);
/* The next tensor, like `like` but in C order at `offset`. Not counted to the slab, which nobody else uses yet: whoever
 * adds many counts them at once, see tdict_slab_count(). Cannot fail. */
tdict_tensor *tdict_slab_add_like(tdict_slab *slab, const tdict_tensor *like, size_t offset);
void tdict_slab_count(tdict_slab *slab, int64_t more);
/* The next view of a slab that has no storage of its own, which nobody else uses yet: of `view` the data, dtype, ndim,
 * shape and strides (NULL: C order), which have been checked. Its reference is the caller's. Cannot fail. */
tdict_tensor *tdict_slab_add_view(tdict_slab *slab, tdict_storage *storage, const tdict_tensor_view *view);
void tdict_slab_release(tdict_slab *slab, int64_t count); /* drops `count` references at once */

/* A tensor, alone, over an existing storage, which it retains. Of `view` the data, dtype, ndim, shape and strides
 * (NULL: C order) are used, which have been checked. TDICT_ENOMEM. */
tdict_status tdict_tensor_over(tdict_storage *storage, const tdict_tensor_view *view, tdict_tensor **out,
                               tdict_error *err);
/* The bytes of the tensor's elements, counted from the storage's first. */
tdict_extent tdict_tensor_extent(const tdict_tensor *t);
/* Some of the tensor's bytes never came, because a transfer into them failed and nothing has written them since. */
bool tdict_tensor_check_lost(const tdict_tensor *t);
static inline bool tdict_tensor_is_lost(const tdict_tensor *t) {
  return tdict_storage_has_lost(t->storage) && tdict_tensor_check_lost(t);
}
/* The tensor's bytes never came. */
void tdict_tensor_lose(const tdict_tensor *t);
/* All elements have been written. */
void tdict_tensor_regain_lost(const tdict_tensor *t);
static inline void tdict_tensor_regain(const tdict_tensor *t) {
  if (tdict_storage_has_lost(t->storage)) tdict_tensor_regain_lost(t);
}
/* Waits until no transfer writes the storage; `to_write`: nor reads it, and what tdict_record_stream() noted is done. */
static inline void tdict_tensor_await(const tdict_tensor *t, bool to_write) {
  if (!tdict_storage_is_idle(t->storage)) tdict_storage_wait(t->storage, to_write);
}
/* numel times the element's bytes, as an inline for loops. */
static inline size_t tdict_tensor_nbytes(const tdict_tensor *t) {
  return (size_t)t->numel * ((size_t)(t->dtype >> 8 & 0xffu) / 8 * (t->dtype >> 16));
}

#endif
