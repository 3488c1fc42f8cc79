/* Declares the plan of a transfer. The plan says which leaves are copied, in which way, to which address, and in which
 * chunks.
 *
 * The plan lays out all leaves to copy one after another, in tree order. This layout is called the line. `offset` is
 * the offset of a leaf on the line, a multiple of 256. The storage of a new result has the layout of the line. A
 * chunk is an interval of the line. The same GPU copies all leaves of a chunk in the same way, or the host copies
 * all these leaves. A plan belongs to its transfer. Thread rule: the starting thread and its helper threads make a
 * plan. After that, a worker changes only the chunks that the worker has claimed, and the sources and marks of the
 * items in these chunks. */
#ifndef TDICT_ENGINE_PLAN_PLAN_H
#define TDICT_ENGINE_PLAN_PLAN_H

#include <pthread.h>

#include "core/sched/pool.h"
#include "core/tensor/cast.h"
#include "core/tree/box.h"
#include "core/tree/node.h"
#include "device/devices.h"
#include "engine/plan/image.h"
#include "engine/plan/pair.h"
#include "tdict/transfer.h"

enum { TDICT_LEAF_ALIGNMENT = 256 };
/* Several threads build the leaves of a node if it has at least this many. For fewer leaves, waking the threads takes
 * longer. */
enum { TDICT_PARALLEL_LEAVES = 8192 };
/* If a lane has this many flights (see lane.h), a copy without a slot first waits for the oldest flight. */
enum { TDICT_DIRECT_IN_FLIGHT = 4 };
/* Copying a leaf below this size through a slot costs less than a driver copy of the leaf. */
#define TDICT_SMALL_DIRECT_BYTES ((size_t)64 << 10)
/* Packing a leaf below this size saves little. */
#define TDICT_PACK_MIN_BYTES ((size_t)4 << 10)
/* A kernel reads up to this many bytes of a transfer directly from pinned sources, without a slot. For more bytes, the
 * kernel would occupy the device while it waits for the link. The limit is an estimate. */
#define TDICT_READ_PINNED_BYTES ((size_t)1 << 20)
/* Maximum size of a chunk of direct copies. Larger copies would delay other copies of the program too long. */
#define TDICT_LARGE_DIRECT_BYTES ((size_t)16 << 20)

typedef enum tdict_way {
  TDICT_WAY_STAGE_IN,    /* from host memory with any strides, through a slot, to the device */
  TDICT_WAY_STAGE_OUT,   /* from the device, through a slot, to host memory with any strides */
  TDICT_WAY_DIRECT,      /* by driver copies without a slot; one side is pinned memory, or both sides are on GPUs */
  TDICT_WAY_PAGEABLE_IN, /* by one driver copy from ordinary host memory */
  TDICT_WAY_HOST         /* a thread copies from host memory to host memory */
} tdict_way;

/* How an item's elements are converted or packed. Host threads do it when they fill a slot (stage in), when they read a
 * slot (stage out), or while they copy on the host. A kernel does it between slots and the device, or within a
 * device. */
typedef struct tdict_item_cast {
  uint32_t rule;    /* number of the conversion that the program gave, plus 1; 0: the item is copied unchanged */
  tdict_cast cast;  /* the whole conversion */
  tdict_dtype wire; /* the dtype of the elements in a slot; while leaves are collected: the dtype that the program
                      * named, or 0 */
  bool by_host;     /* true: threads of the host do `host` */
  bool by_device;   /* true: a kernel does `device` */
  tdict_cast host, device;
  /* true: the item is not converted, but its elements are packed in the slot, see engine/kinds/pack.h. A kernel
   * restores the elements. `rule` is 0, by_device is true, and all dtypes are the dtype of the item */
  bool is_packed;
  /* not NULL: the elements are images, of which windows are converted, see engine/kinds/windows.h. A byte of the item
   * on the line is then not the byte at this place of the result: on the line, the elements have the order of the
   * windows in the source. Borrowed from the plan's `wire` */
  const tdict_images *images;
} tdict_item_cast;

/* A leaf to copy, or the storage of a tree that is one block of memory. */
typedef struct tdict_item {
  tdict_tensor *src;    /* retained, except if the plan's `borrows` is true; NULL after an early release */
  tdict_tensor *dst;    /* retained; NULL: the destination is dst_data, in C order */
  const char *src_data; /* address of the first element; stored here so that workers need not read the tensor */
  char *dst_data;       /* first element */
  size_t offset, bytes; /* if the elements are converted, `bytes` is the size of the result */
  tdict_gpu *gpu;       /* the GPU that copies; NULL: copied on the host. Borrowed from the context */
  uint32_t leaf;        /* number of the leaf in tree order; TDICT_SHARED: the item is a whole tree */
  uint8_t way;          /* a tdict_way */
  uint8_t kind;         /* a tdict_cu_kind; not used if `gpu` is NULL */
  bool src_plain : 1, dst_plain : 1; /* true: the elements are in memory, in C order without gaps */
  bool shares_storage : 1;           /* true: the source is in the storage of the previous item's source */
  bool is_cast : 1;                  /* true: the elements are converted or packed, see tdict_plan_cast() */
  bool is_whole : 1;                 /* true: not divided between chunks, unless driver copies are limited */
} tdict_item;

typedef struct tdict_chunk {
  size_t begin, end; /* offsets on the line */
  uint32_t first;    /* number of the item that contains `begin` */
  /* number of the last item completely inside the chunk, plus 1. The thread that queued the chunk's copy sets this
   * field after it has released the sources of all these items. 0: not set */
  uint32_t read_end;
} tdict_chunk;

typedef enum tdict_object_action {
  TDICT_OBJECT_KEEP, /* the result holds the same object */
  TDICT_OBJECT_HOOK, /* pin_memory, to_device or both make a new object before the copies begin */
  TDICT_OBJECT_FLAT  /* the object's tensors are copied like all other tensors, and unflatten makes a new object */
} tdict_object_action;
/* An object of the source tree, and how the transfer handles the object. tdict_plan_collect() creates the step.
 * Building the result sets `place`. Running the hooks sets `result`. */
typedef struct tdict_object_step {
  tdict_box *box;    /* retained */
  tdict_tree *flat;  /* retained: the tree that the hook `flatten` returned, or NULL */
  tdict_box *result; /* retained: the box of the new object, or NULL */
  tdict_leaf *place; /* the object's place in the result tree */
  /* retained, or NULL. While the destination of transfer_into is read: the flattened object of the destination. While
   * the result is built: a copy of `flat` with the new leaves */
  tdict_tree *moved;
  uint32_t first_leaf, num_leaves; /* numbers of the leaves of `flat`, in tree order */
  uint8_t action;
  /* pin: the hook pin_memory must run. move: the hook to_device must run, or without it the tensors of `flatten`
   * move */
  bool pin, move;
  char path[sizeof((tdict_error *)0)->path];
} tdict_object_step;

/* The objects of a tree, in tree order. */
typedef struct tdict_objects {
  tdict_object_step *steps;
  uint32_t count;
  size_t cap;
  uint32_t num_hooked;            /* steps whose hooks run */
  int64_t num_unpinned, num_kept; /* see the statistics num_objects_unpinned and num_objects_kept */
} tdict_objects;

/* Value of item_of_leaf for a leaf that is shared and not copied. */
#define TDICT_SHARED UINT32_MAX

/* What the wire options, `conversions` and `narrow`, add to a plan. */
typedef struct tdict_wire {
  tdict_item_cast *casts; /* one for each item */
  size_t cap_casts;
  size_t slot_bytes;   /* bytes that the items copied through slots need in slots, with padding */
  size_t pinned_bytes; /* bytes that kernels read from pinned sources without images, see TDICT_READ_PINNED_BYTES */
  /* true: kernels convert or restore what is in slots. Pieces then lack the line's offsets in slots, and one thread
   * fills a slot */
  bool slots_differ;
  bool packs;           /* true: some items are packed, so chunks are smaller than slots */
  tdict_images *images; /* owned; a list; NULL: no conversion of images */
  tdict_gpu *runner;    /* borrowed; the last GPU whose kernels were loaded for this plan, or NULL */
} tdict_wire;

typedef struct tdict_plan {
  tdict_item *items;
  /* one for each item: the mark on the item's source. If `storage` is NULL, the previous item has the same storage */
  tdict_fence_node *nodes;
  uint32_t *item_of_leaf;
  uint32_t num_items, num_leaves, cap; /* cap: capacity of `items`, `nodes` and `item_of_leaf` */
  tdict_wire *wire;                    /* owned; NULL: the request has no wire options */
  tdict_objects *objects;              /* owned; NULL: the tree has no objects */
  tdict_chunk *chunks;
  uint32_t num_chunks;
  size_t cap_chunks;
  size_t line_bytes;    /* length of the line */
  size_t way_bytes[5];  /* bytes of the items that have each tdict_way */
  bool is_one_stretch;  /* true: one driver copy can cover all items */
  bool writes_existing; /* true: a destination existed before the transfer */
  /* retained; the tree is one block, copied as one item, and item_of_leaf is empty. NULL: items are leaves */
  tdict_consolidated *block;
  bool borrows; /* true: the plan does not retain the sources, because the caller keeps the tree alive */
} tdict_plan;

/* A plan, and what only the starting call must know of the leaves that were collected into the plan. */
typedef struct tdict_collected {
  tdict_plan *plan;
  size_t num_new, num_new_dims; /* number of new tensors in the result, and the sum of their ndim */
  size_t peer_bytes;            /* bytes of the items that are copied from one GPU to another GPU */
  /* number of items that are uniform leaves, see item.h. If all items are uniform, one GPU copies them in one way */
  uint32_t num_uniform;
  bool reads_device;             /* true: a source is on a GPU */
  bool keeps_elsewhere;          /* the option `keep` keeps a tensor that is on another device than the result */
  bool may_overlap;              /* transfer_into: some destinations may share bytes */
  const tdict_source_rows *rows; /* of the result; NULL: all rows */
  tdict_pool *pool;              /* num_builders threads of this pool help to build the result */
  int num_builders;
} tdict_collected;

/* The memory of an ended plan. Reusing this memory avoids page faults, which cost more than filling a plan. */
typedef struct tdict_used_plan {
  pthread_mutex_t lock; /* guards: plan */
  tdict_plan plan;      /* empty: there is no memory to reuse */
} tdict_used_plan;
/* Moves the used plan to *out. If there is no used plan, *out is empty. */
void tdict_plan_take_used(tdict_used_plan *used, tdict_plan *out);
/* Clears a plan, and keeps its memory as the used plan. If the used plan is at least as large, or the memory exceeds 32
 * MiB, frees the memory. */
void tdict_plan_give_used(tdict_used_plan *used, tdict_plan *plan);

/* Removes plan->wire if no item is packed. Only for plans without conversions. */
void tdict_plan_drop_unused_wire(tdict_plan *plan);
/* Sets the destination address of each item without a `dst` to the address at the item's offset in `arena`. */
void tdict_plan_place(tdict_plan *plan, tdict_storage *arena);
static inline size_t tdict_plan_bytes(const tdict_plan *plan) {
  size_t bytes = 0;
  for (size_t i = 0; i < sizeof plan->way_bytes / sizeof plan->way_bytes[0]; i++) bytes += plan->way_bytes[i];
  return bytes;
}
/* Returns the number of leaves that are already in place, cover the same bytes as another leaf, or are kept by the
 * option `keep`. All other leaves are items, or are copied as one block. */
static inline uint32_t tdict_plan_num_shared(const tdict_plan *plan) {
  return plan->block || plan->num_leaves < plan->num_items ? 0 : plan->num_leaves - plan->num_items;
}
static inline bool tdict_item_uses_slot(const tdict_item *item) {
  return item->way == TDICT_WAY_STAGE_IN || item->way == TDICT_WAY_STAGE_OUT;
}
/* Returns the conversion of an item, or NULL if the item is neither converted nor packed. */
static inline const tdict_item_cast *tdict_plan_cast(const tdict_plan *plan, uint32_t item) {
  return plan->items[item].is_cast ? &plan->wire->casts[item] : NULL;
}
/* Returns a tensor with the shape of the result of a conversion. `t` is the source. */
static inline const tdict_tensor *tdict_item_cast_like(const tdict_item_cast *cast, const tdict_tensor *t) {
  return cast->images ? &cast->images->like : t;
}
/* Returns the kernel that does the device's part of a conversion. */
static inline tdict_kernel_op tdict_item_cast_op(const tdict_item_cast *cast) {
  return cast->is_packed ? TDICT_KERNEL_UNPACK : cast->images ? TDICT_KERNEL_WINDOW : TDICT_KERNEL_CONVERT;
}
/* Returns the bytes that the elements of a range of an item need in a slot, with padding. `bytes` is the length of the
 * range on the line. Packed elements count as if they were not packed. */
static inline size_t tdict_plan_slot_bytes(const tdict_item_cast *cast, size_t bytes) {
  const size_t in_slot = cast ? bytes / tdict_dtype_bytes(cast->cast.to) * tdict_dtype_bytes(cast->wire) : bytes;
  return (in_slot + TDICT_LEAF_ALIGNMENT - 1) / TDICT_LEAF_ALIGNMENT * TDICT_LEAF_ALIGNMENT;
}
/* Changes the way of pinned leaves that are in small stretches, so that these leaves are copied through slots. A driver
 * copy for each small stretch would take longer. Does nothing if all items are in one stretch. Call after
 * tdict_plan_place(), unless all items are uniform. */
void tdict_plan_stage_small(tdict_plan *plan);
/* How the line is cut. first_bytes and chunk_bytes must be multiples of 256. */
typedef struct tdict_cut {
  size_t first_bytes, chunk_bytes; /* a chunk that is copied through slots or on the host has at most chunk_bytes */
  /* limit of a chunk of driver copies; 0: TDICT_LARGE_DIRECT_BYTES. If not 0, pageable and whole items are also
   * divided */
  size_t max_copy_bytes;
  bool one_by_one;      /* true: each driver copy covers one leaf or one stretch, see tdict_plan_stretch_end() */
  uint32_t num_uniform; /* see tdict_collected */
} tdict_cut;
/* Cuts the line into chunks. Consecutive items of one `way` and GPU form a group, in which chunks grow from first_bytes
 * to chunk_bytes, and shrink towards the end. Converted elements count as in the slot. If items are packed, chunks are
 * smaller. Errors: TDICT_ENOMEM. */
tdict_status tdict_plan_cut(tdict_plan *plan, const tdict_cut *cut, tdict_error *err);
/* Returns the number of the item after the stretch that begins at item `first`. One driver copy can cover a stretch,
 * because the leaves of a stretch have the same distances in the source, in the destination and on the line. A chunk of
 * direct copies between host and device has up to TDICT_CU_MOST_COPIES stretches, unless it is cut one_by_one. */
uint32_t tdict_plan_stretch_end(const tdict_plan *plan, uint32_t first);
/* Returns the index of the first item from `low` on whose end on the line is greater than `at`. The item must exist. */
uint32_t tdict_plan_item_at(const tdict_plan *plan, uint32_t low, size_t at);
/* Reserves space for `more` items and leaves. If memory is exhausted or the numbers exceed 32 bits, returns false and
 * changes nothing. */
bool tdict_plan_reserve(tdict_plan *plan, size_t more);
void tdict_plan_reset(tdict_plan *plan);
/* Returns true if no tensor owns the bytes up to the next multiple of 256, which a copy may then overwrite: for leaves
 * of an arena, but not their views, and for NULL, a leaf of a new result. */
bool tdict_plan_gap_is_free(const tdict_tensor *t);

#endif
