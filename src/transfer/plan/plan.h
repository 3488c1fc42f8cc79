/* The plan of a transfer: which leaves travel, by which way, to which place, cut into chunks that threads claim.
 *
 * All leaves that travel lie one after the other on one line of bytes (`offset`), in tree order, each beginning on a
 * multiple of 256; a new result's storage is that line. A chunk is an interval of it with one way.
 * A plan belongs to its transfer. It is made by one thread and then only read. */
#ifndef TDICT_TRANSFER_PLAN_PLAN_H
#define TDICT_TRANSFER_PLAN_PLAN_H

#include "device/devices.h"
#include "sched/pool.h"
#include "tdict/transfer.h"
#include "tree/box.h"
#include "tree/node.h"

enum { TDICT_LEAF_ALIGNMENT = 256 };
enum {
  TDICT_DIRECT_IN_FLIGHT = 4
}; /* driver copies of up to TDICT_LARGE_DIRECT_BYTES that a thread queues before it waits */
#define TDICT_SMALL_DIRECT_BYTES ((size_t)64 << 10) /* below this a driver copy of its own costs more than packing */
#define TDICT_LARGE_DIRECT_BYTES \
  ((size_t)16 << 20) /* above this the program's own copies would wait too long behind it */

typedef enum tdict_way {
  TDICT_WAY_STAGE_IN,    /* host, any strides -> slot -> device */
  TDICT_WAY_STAGE_OUT,   /* device -> slot -> host, any strides */
  TDICT_WAY_DIRECT,      /* one driver copy, at least one side pinned or both on devices */
  TDICT_WAY_PAGEABLE_IN, /* one driver copy from ordinary memory */
  TDICT_WAY_HOST         /* host -> host by a thread */
} tdict_way;

/* A leaf that travels. */
typedef struct tdict_item {
  tdict_tensor *src;    /* counted */
  tdict_tensor *dst;    /* counted; NULL: the place is dst_data, in C order */
  const char *src_data; /* first element, here so that who copies need not look at the tensor */
  char *dst_data;       /* first element */
  size_t offset, bytes;
  tdict_gpu *gpu;            /* whose copy engines work; NULL for host to host. Borrowed from the context */
  uint32_t leaf;             /* its number in the tree, counted in tree order */
  uint8_t way;               /* a tdict_way */
  uint8_t kind;              /* a tdict_cu_kind, for ways with a gpu */
  bool src_plain, dst_plain; /* in C order without gaps */
} tdict_item;

typedef struct tdict_chunk {
  size_t begin, end;   /* on the line */
  uint32_t first;      /* the item that holds `begin` */
  uint32_t end_inside; /* one behind the last item that lies in it as a whole; set with was_read */
  bool was_read;       /* the sources of items that lie in it as a whole were let go. Written by who queued its copy */
} tdict_chunk;

/* An object that the tree holds, and what is done about it. Filled in while the tree is read; `result` while hooks run. */
typedef enum tdict_object_action {
  TDICT_OBJECT_KEEP, /* the same object in the result */
  TDICT_OBJECT_HOOK, /* hooks of its type make another */
  TDICT_OBJECT_FLAT  /* its tensors travel with all others; another is made around them */
} tdict_object_action;
typedef struct tdict_object_step {
  tdict_box *box;    /* counted */
  tdict_tree *flat;  /* counted: its tensors, or NULL */
  tdict_box *result; /* counted, or NULL */
  tdict_leaf *place; /* in the result tree */
  tdict_tree *moved; /* counted: flat's counterpart, while the tree is read (copy_into) or the result built */
  uint32_t first_leaf, num_leaves; /* of flat */
  uint8_t action;
  bool pin, move; /* which hooks */
  char path[sizeof((tdict_error *)0)->path];
} tdict_object_step;

/* Where the i-th leaf of the tree's result is: the item, or TDICT_SHARED for a leaf that is already there. */
#define TDICT_SHARED UINT32_MAX

typedef struct tdict_plan {
  tdict_item *items;
  tdict_fence_node
      *nodes; /* one an item, the mark on its source; storage NULL: the item before it has the same storage */
  uint32_t num_items, cap_items;
  uint32_t *item_of_leaf;
  uint32_t num_leaves, cap_leaves;
  tdict_chunk *chunks;
  uint32_t num_chunks, cap_chunks;
  size_t line_bytes;          /* the end of the line */
  size_t total_bytes;         /* of leaves that travel */
  size_t way_bytes[5];        /* of those, by way */
  tdict_object_step *objects; /* in tree order */
  uint32_t num_objects, cap_objects;
  int64_t num_untouched; /* objects for which their type has no way */
  int64_t num_shared;    /* leaves that are there, or the same bytes as another */
  bool one_by_one;       /* a driver copy is of one leaf, or of a run: see tdict_plan_run_end() */
  uint32_t num_common;   /* items that are alike in all but place and size, see collect_uniform.h: way, gpu, plain */
  bool one_run;          /* one driver copy may go over all items */
  size_t num_new, num_new_dims;  /* tensors of a new result and their dimensions */
  bool reads_device, writes_old; /* something other than host to new device memory */
  bool some_locked;              /* a node of the tree is locked */
  bool may_overlap;              /* of copy_into: destinations that may have bytes in common */
  bool borrows;                  /* sources are not counted: the tree is held by who waits */
} tdict_plan;

/* Gives items their places: in the storage `arena` (whose line it is), unless they have a dst. */
void tdict_plan_place(tdict_plan *plan, tdict_storage *arena);
/* Pinned leaves that would make many small driver copies go through slots instead, packed. After tdict_plan_place(). */
void tdict_plan_pack(tdict_plan *plan);
/* Cuts the line: chunks of at most chunk_bytes that go through slots. The first and the last ones are smaller, down to
 * first_bytes; both are multiples of 256. TDICT_ENOMEM. */
tdict_status tdict_plan_cut(tdict_plan *plan, size_t first_bytes, size_t chunk_bytes, tdict_error *err);
/* The end of the run of leaves from `first` on that one driver copy can take: they lie on both sides as on the line. A
 * chunk of direct copies between host and device holds up to TDICT_CU_MOST_LINES runs, if the plan is not one_by_one. */
uint32_t tdict_plan_run_end(const tdict_plan *plan, uint32_t first);
/* The first item from `low` on that ends behind `at`, a place on the line; there is one. */
uint32_t tdict_plan_item_at(const tdict_plan *plan, uint32_t low, size_t at);
void tdict_plan_reset(tdict_plan *plan);
/* All items go the same way to the same gpu, from ordinary memory to a new result. */
static inline bool tdict_plan_is_uniform(const tdict_plan *plan) {
  return plan->num_items > 0 && plan->num_common == plan->num_items;
}
/* Lets go of all that the plan holds but its memory. */
void tdict_plan_clear(tdict_plan *plan);
/* What lies between this tensor and the next multiple of 256 is nobody's: it is one of an arena's own leaves, made from a
 * slab, no view of a part of one. True for NULL, a place in a new result. */
bool tdict_plan_gap_is_free(const tdict_tensor *t);

#endif
