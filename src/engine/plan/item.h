/* Declares the request for a plan, and makes the items of a plan. The caller of tdict_plan_collect() owns the request,
 * which no thread changes during the call. The collector of a tree owns the other three structs of this file: the
 * maker, the table of leaves with the same bytes, and the state of the fast path for uniform leaves. Thread rule: one
 * thread uses these structs. Threads that help to collect uniform leaves only read them. */
#ifndef TDICT_ENGINE_PLAN_ITEM_H
#define TDICT_ENGINE_PLAN_ITEM_H

#include "core/sched/pool.h"
#include "core/tree/cursor.h"
#include "engine/options/conversions.h"
#include "engine/options/patterns.h"
#include "engine/plan/pair.h"
#include "engine/plan/plan.h"

typedef struct tdict_plan_request {
  tdict_devices *devices;
  tdict_device device;    /* the target device; not used if `dst` is set */
  tdict_gpu *gpu;         /* the target's GPU; NULL: the GPU is looked up if needed */
  const tdict_tree *dst;  /* the destination of tdict_transfer_into_async(); else NULL */
  bool want_pinned;       /* the result is pinned host memory, so host leaves that are not pinned are copied */
  bool copies;            /* true: leaves that are in place already are also copied */
  bool host_only;         /* true for pin_memory: a leaf on a device is an error, and hooks pin the objects */
  bool keep_objects;      /* the option: an object whose type cannot be moved stays as it is */
  int32_t mode;           /* a tdict_mode, but never TDICT_MODE_AUTO */
  bool may_read_pageable; /* true for TDICT_MODE_AUTO: a device that reads ordinary memory copies without slots */
  /* true: the caller keeps the tree alive until the transfer has ended, so the plan does not retain the sources */
  bool borrows;
  bool is_distinct;              /* true: the caller knows that no two tensors of the tree share a storage */
  const tdict_source_rows *rows; /* NULL: the whole tensors are copied; see tdict_start */
  tdict_pool *pool;              /* the threads of this pool help to read a large tree; NULL: no helpers */
  int num_helpers;
  tdict_patterns *keep;           /* patterns of the entries that are not copied; NULL: no patterns */
  tdict_conversions *conversions; /* NULL: no leaf is converted */
  bool narrow;                    /* the option `narrow` */
  const tdict_plan *used;         /* a cleared plan whose memory the new plan takes over, or NULL */
} tdict_plan_request;

/* Returns true if the elements are in C order without gaps. Checks the most frequent shapes first. */
bool tdict_item_is_plain(const tdict_tensor *t);
/* Returns true if no other tensor can use the tensor's storage: the tensor and the storage have one reference each.
 * Returns false for tensors in a slab, which have no reference counts of their own. */
bool tdict_item_is_unshared(const tdict_tensor *t);

/* The state that consecutive items share. */
typedef struct tdict_item_maker {
  tdict_collected *collected;
  tdict_plan *plan;
  const tdict_plan_request *request;
  tdict_item_cast cast;      /* the conversion of the current item */
  const tdict_storage *last; /* the storage whose pinning was checked last. last_gpu and last_pinned are the GPU and the
                              * result of this check */
  tdict_gpu *last_gpu;
  bool last_pinned;
  tdict_device found_device; /* the device that was looked up last. found_gpu is its GPU, or NULL before the first
                              * lookup */
  tdict_gpu *found_gpu;
  tdict_slab *slab; /* the slab to which slab_count references must still be added */
  int64_t slab_count;
} tdict_item_maker;

/* Initializes the maker and collected->plan, an empty plan. Errors: TDICT_ENOMEM. */
tdict_status tdict_item_maker_init(tdict_item_maker *maker, tdict_collected *collected,
                                   const tdict_plan_request *request, tdict_error *err);
/* Returns true if the GPU can access the tensor's memory. */
bool tdict_item_is_pinned(tdict_item_maker *maker, tdict_gpu *gpu, const tdict_tensor *t);
/* Finds a device's GPU. Errors: TDICT_EWRONGDEVICE if absent, and those of tdict_devices_gpu(). */
tdict_status tdict_item_find_gpu(tdict_item_maker *maker, tdict_device device, tdict_gpu **out, tdict_error *err);
/* Chooses the way of an item to the device `to`, and the GPU that copies the item. Returns TDICT_EWRONGDEVICE if a
 * storage is on an absent device, or on a simulated device of another context. Returns TDICT_ENOTSUP for a copy between
 * a simulated device and a GPU. Other errors: those of tdict_devices_gpu(). */
tdict_status tdict_item_choose_way(tdict_item_maker *maker, tdict_item *item, tdict_device to, tdict_error *err);
/* Appends the item to the plan and to the line. Retains its tensors. Returns TDICT_EOVERFLOW and TDICT_ENOMEM. */
tdict_status tdict_item_append(tdict_item_maker *maker, tdict_item *item, tdict_error *err);
/* Adds the pending references of a slab with one atomic operation. Call after the last item. */
void tdict_item_count_slab(tdict_item_maker *maker);
/* Reads pairs into collected->plan. Each pair becomes an item. The request gives the target device and the mode.
 * Returns the errors of tdict_item_choose_way() and tdict_item_append(). After a failure, the plan is empty. */
tdict_status tdict_plan_collect_pairs(tdict_collected *collected, const tdict_plan_request *request,
                                      const tdict_copy_pair *pairs, size_t num_pairs, tdict_error *err);

enum { TDICT_SAME_BYTES_STORAGES = 8 };
/* A table that finds leaves with exactly the same bytes of one storage, so that these bytes are copied once. */
typedef struct tdict_same_bytes {
  uint32_t *table; /* number of an item plus 1; 0: the entry is empty. The hash key is the address of the first
                    * element */
  const tdict_tensor **tensors;
  size_t cap, count; /* cap is a power of two, or 0 */
  const tdict_storage
      /* storages for which tdict_same_bytes_follows() has returned true; the last of these is the current storage */
      *storages[TDICT_SAME_BYTES_STORAGES];
  int num_storages;
  uintptr_t storage_end; /* end address of the last leaf in the current storage */
  /* borrowed; the conversions of items, and that of the searched leaf. NULL: no leaf is converted */
  const tdict_plan *plan;
  const tdict_item_cast *wanted;
} tdict_same_bytes;

/* Returns true if the leaf is in C order and begins at or after the end of all its storage's leaves that were passed
 * before: no earlier leaf then covers the same bytes. May return false without need, for empty leaves, alternating
 * storages, or after TDICT_SAME_BYTES_STORAGES storages. Then all leaves must go to the table. */
bool tdict_same_bytes_follows(tdict_same_bytes *same, const tdict_tensor *t);

/* Sets *place to the item with the same bytes and conversion as `t`, if there is one. */
void tdict_same_bytes_find(const tdict_same_bytes *same, const tdict_tensor *t, uint32_t *place);
/* Adds the tensor of an item to the table. Returns false if memory is exhausted. */
bool tdict_same_bytes_add(tdict_same_bytes *same, const tdict_tensor *t, uint32_t item);
void tdict_same_bytes_reset(tdict_same_bytes *same);

/* The fast path for uniform leaves. A uniform leaf is in C order in ordinary host memory, and is copied to a GPU. Only
 * the tree references the leaf, or the caller knows that no two leaves share a storage. A small pinned leaf that is
 * copied through slots is also uniform. No other leaf can cover the same bytes, so no table is searched, and several
 * threads can read leaves in parallel. */
typedef struct tdict_uniform {
  tdict_collected *collected;
  tdict_plan *plan;
  tdict_gpu *to;     /* borrowed; NULL: no leaf of this collection is uniform */
  uint8_t way;       /* a tdict_way */
  bool stages_small; /* true: small pinned leaves are also copied through slots */
  bool is_distinct;  /* see tdict_plan_request */
  const tdict_source_rows *rows;
  tdict_pool *pool;
  int num_helpers;
  const tdict_tree *mixed_node; /* the last node in which helpers found a leaf that is not uniform */
} tdict_uniform;

/* Prefetch distances, in leaves. */
enum { TDICT_LOOK_FAR = 16, TDICT_LOOK_NEAR = 8 };
/* Prefetches the tensors and storages of leaves that follow `slot`. In a large tree these structs are scattered over
 * memory. Waiting for each cache line would take longer than all other work. */
static inline void tdict_look_ahead(const tdict_tree *node, uint32_t slot, uint32_t end) {
  if (slot + TDICT_LOOK_FAR < end) {
    const char *far = tdict_leaf_pointer(node->leaves[slot + TDICT_LOOK_FAR]);
    __builtin_prefetch(far);
    if (far) __builtin_prefetch(far + 64);
  }
  if (slot + TDICT_LOOK_NEAR < end) {
    const tdict_tensor *near = tdict_leaf_tensor(node->leaves[slot + TDICT_LOOK_NEAR]);
    const tdict_storage *storage = near ? near->storage : NULL;
    __builtin_prefetch(storage, 1);
    if (storage) __builtin_prefetch(&storage->flags, 1); /* the field may be on the next cache line */
  }
}

/* Reads leaves, beginning at frame->slot, and moves the frame past the leaves that were read. Stops at the first leaf
 * that is not uniform, or when the plan has no more space. Only one path may lead to the node. */
void tdict_uniform_collect(tdict_uniform *uniform, tdict_frame *frame);

#endif
