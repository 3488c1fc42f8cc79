/* The record of a consolidated tree: the storage, and each leaf's position in it. The root and transfers hold
 * references. A filled record never changes. Thread-safe. */
#ifndef TDICT_CORE_TENSOR_CONSOLIDATED_H
#define TDICT_CORE_TENSOR_CONSOLIDATED_H

#include "core/tensor/tensor.h"

/* The bytes of one leaf, as an offset from the start of the storage and a size, and the leaf's dtype. */
typedef struct tdict_leaf_span {
  size_t begin, bytes;
  tdict_dtype dtype;
} tdict_leaf_span;

/* The layout of the leaves. The records of a tree and of its copies share it, because copying it for each transfer of a
 * large tree takes long. */
typedef struct tdict_block_layout {
  _Atomic(int64_t) refs;
  size_t num_leaves, num_dims; /* num_dims: sum of the ndim of all leaves */
  bool has_objects;            /* true: the tree has text, numbers or JSON, which are not in the storage */
  tdict_leaf_span leaves[];    /* in tree order */
} tdict_block_layout;

typedef struct tdict_consolidated {
  _Atomic(int64_t) refs;
  tdict_tensor *bytes;        /* retained; covers the whole storage */
  tdict_block_layout *layout; /* retained */
} tdict_consolidated;

/* Makes a record for `num_leaves` leaves. The caller fills in the layout. Retains `storage`. Returns TDICT_ENOMEM if
 * host memory is exhausted. */
tdict_status tdict_consolidated_create(size_t num_leaves, tdict_storage *storage, tdict_consolidated **out,
                                       tdict_error *err);
/* Makes a record with the layout of `like` and another storage. Returns TDICT_ENOMEM if host memory is exhausted. */
tdict_status tdict_consolidated_create_like(const tdict_consolidated *like, tdict_storage *storage,
                                            tdict_consolidated **out, tdict_error *err);
tdict_consolidated *tdict_consolidated_retain(tdict_consolidated *record);
/* Drops a reference. NULL is allowed. */
void tdict_consolidated_release(tdict_consolidated *record);

#endif
