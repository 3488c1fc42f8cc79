/* Declares the plan of a transfer. The plan says which leaves are copied, in which way, to which address, and in which
 * chunks.
 *
 * The plan lays out all leaves to copy one after another, in tree order. This layout is called the line. `offset` is
 * the offset of a leaf on the line, a multiple of 256. The storage of a new result has the layout of the line. A chunk
 * is an interval of the line whose leaves have the same way. A plan belongs to its transfer. Thread rule: one thread
 * makes a plan; afterwards the plan is only read. */
#ifndef TDICT_TRANSFER_PLAN_PLAN_H
#define TDICT_TRANSFER_PLAN_PLAN_H

#include "device/devices.h"
#include "sched/pool.h"
#include "tdict/transfer.h"
#include "tree/box.h"
#include "tree/node.h"

enum { TDICT_LEAF_ALIGNMENT = 256 };
/* Maximum number of driver copies that a thread queues before it waits. */
enum { TDICT_DIRECT_IN_FLIGHT = 4 };
/* Packing a leaf below this size costs less than a driver copy of the leaf. */
#define TDICT_SMALL_DIRECT_BYTES ((size_t)64 << 10)
/* Larger chunks would make the program's own copies wait too long. */
#define TDICT_LARGE_DIRECT_BYTES ((size_t)16 << 20)

typedef enum tdict_way {
  TDICT_WAY_STAGE_IN,    /* from host memory with any strides, through a slot, to the device */
  TDICT_WAY_STAGE_OUT,   /* from the device, through a slot, to host memory with any strides */
  TDICT_WAY_DIRECT,      /* by one driver copy; one side is pinned memory, or both sides are on devices */
  TDICT_WAY_PAGEABLE_IN, /* by one driver copy from ordinary host memory */
  TDICT_WAY_HOST         /* a thread copies from host memory to host memory */
} tdict_way;

/* A leaf to copy, or the storage of a consolidated tree. */
typedef struct tdict_item {
  tdict_tensor *src;    /* retained */
  tdict_tensor *dst;    /* retained; NULL: the destination is dst_data, in C order */
  const char *src_data; /* address of the first element; stored here so that workers need not read the tensor */
  char *dst_data;       /* first element */
  size_t offset, bytes;
  tdict_gpu *gpu;            /* the device that copies; NULL for host to host. Borrowed from the context */
  uint32_t leaf;             /* number of the leaf in tree order; TDICT_SHARED: the item is a whole tree */
  uint8_t way;               /* a tdict_way */
  uint8_t kind;              /* a tdict_cu_kind, for ways with a gpu */
  bool src_plain, dst_plain; /* in C order without gaps */
} tdict_item;

typedef struct tdict_chunk {
  size_t begin, end;   /* offsets on the line */
  uint32_t first;      /* number of the item that contains `begin` */
  uint32_t end_inside; /* number of the last item completely inside the chunk, plus 1; set with was_read */
  /* true: the sources of all items completely inside the chunk were released. The thread that queued the chunk's copy
   * sets this flag */
  bool was_read;
} tdict_chunk;

typedef enum tdict_object_action {
  TDICT_OBJECT_KEEP, /* the result holds the same object */
  TDICT_OBJECT_HOOK, /* hooks of the object's type make a new object */
  TDICT_OBJECT_FLAT  /* the object's tensors are copied like all other tensors, and unflatten makes a new object */
} tdict_object_action;
/* An object of the source tree, and what the transfer does with the object. Hooks set `result`. Building the result
 * sets `place`. Reading the tree sets the other fields. */
typedef struct tdict_object_step {
  tdict_box *box;    /* retained */
  tdict_tree *flat;  /* retained: the tensors that flatten returned, or NULL */
  tdict_box *result; /* retained, or NULL */
  tdict_leaf *place; /* the object's place in the result tree */
  /* retained: the counterpart of `flat`, while the tree is read (transfer_into) or the result is built */
  tdict_tree *moved;
  uint32_t first_leaf, num_leaves; /* the range of the leaves of `flat` */
  uint8_t action;
  bool pin, move; /* the hooks to run */
  char path[sizeof((tdict_error *)0)->path];
} tdict_object_step;

/* Value of item_of_leaf for a leaf that is shared and not copied. */
#define TDICT_SHARED UINT32_MAX

typedef struct tdict_plan {
  tdict_item *items;
  /* one for each item: the mark on the item's source. If `storage` is NULL, the previous item has the same storage */
  tdict_fence_node *nodes;
  uint32_t num_items, cap_items;
  uint32_t *item_of_leaf;
  uint32_t num_leaves, cap_leaves;
  tdict_chunk *chunks;
  uint32_t num_chunks, cap_chunks;
  size_t line_bytes;          /* length of the line */
  size_t total_bytes;         /* bytes of all items */
  size_t way_bytes[5];        /* bytes of the items, for each way */
  tdict_object_step *objects; /* in tree order */
  uint32_t num_objects, cap_objects;
  int64_t num_untouched;              /* objects whose type has no hook for this transfer */
  int64_t num_shared;                 /* leaves that are already in place, or cover the same bytes as another leaf */
  bool one_by_one;                    /* true: each driver copy covers one leaf or one run, see tdict_plan_run_end() */
  uint32_t num_uniform;               /* items that differ only in place and size, see collect_uniform.h */
  bool is_one_run;                    /* one driver copy can cover all items */
  size_t num_new, num_new_dims;       /* tensors of a new result, and the sum of their dimensions */
  bool reads_device, writes_existing; /* both are false for copies from the host to new device memory */
  bool keeps_elsewhere;               /* the option `keep` keeps a tensor that is on another device than the result */
  bool some_locked;                   /* a node of the tree is locked */
  bool may_overlap;                   /* transfer_into: some destinations may share bytes */
  /* retained; the tree is copied as one item, and no leaf has an entry in item_of_leaf. NULL: leaves are items */
  tdict_consolidated *whole;
  bool borrows; /* sources are not retained: the caller keeps the tree alive */
} tdict_plan;

/* If an item has no `dst`, sets its destination address to its offset in `arena`. */
void tdict_plan_place(tdict_plan *plan, tdict_storage *arena);
/* Packs small pinned leaves: if runs would need many small driver copies, their leaves are copied through slots. Call
 * after tdict_plan_place(). */
void tdict_plan_pack(tdict_plan *plan);
/* Cuts the line into chunks. A chunk that is copied through slots has at most chunk_bytes. Among
 * neighbouring items with the same way and GPU, the sizes of these chunks grow from first_bytes to chunk_bytes, and
 * shrink again towards the end. Both limits are multiples of 256. TDICT_ENOMEM. */
tdict_status tdict_plan_cut(tdict_plan *plan, size_t first_bytes, size_t chunk_bytes, tdict_error *err);
/* Returns the end of the run that begins at item `first`. One driver copy can cover a run, because its leaves have the
 * same distances on both sides as on the line. A chunk of direct copies between host and device has up to
 * TDICT_CU_MOST_LINES runs, unless the plan is one_by_one. */
uint32_t tdict_plan_run_end(const tdict_plan *plan, uint32_t first);
/* Returns the first item at or after number `low` that ends after offset `at` of the line. Such an item must exist. */
uint32_t tdict_plan_item_at(const tdict_plan *plan, uint32_t low, size_t at);
void tdict_plan_reset(tdict_plan *plan);
/* Returns true if all items have the same way and GPU, and go from ordinary memory to a new result. */
static inline bool tdict_plan_is_uniform(const tdict_plan *plan) {
  return plan->num_items > 0 && plan->num_uniform == plan->num_items;
}
/* Releases everything that the plan holds, and keeps its memory for reuse. */
void tdict_plan_clear(tdict_plan *plan);
/* Returns true if no tensor owns the bytes between this tensor and the next multiple of 256, so a copy may overwrite
 * them. Returns true for a leaf of an arena that is not a view. Also returns true for NULL, which means a place in a
 * new result. */
bool tdict_plan_gap_is_free(const tdict_tensor *t);

#endif
