/* Collects uniform leaves quickly. A uniform leaf is in C order in ordinary host memory. Only the tree references the
 * leaf, and the leaf is copied to a GPU. A small pinned leaf that is packed into slots is uniform, too. No other leaf
 * can cover the same bytes, so no table is searched, and several threads can read leaves in parallel. The struct
 * belongs to one tdict_plan_collect() call. Thread rule: only the thread of that call changes the struct, and helping
 * threads read the struct. */
#ifndef TDICT_ENGINE_PLAN_COLLECT_UNIFORM_H
#define TDICT_ENGINE_PLAN_COLLECT_UNIFORM_H

#include "core/sched/pool.h"
#include "core/tree/cursor.h"
#include "engine/plan/plan.h"

typedef struct tdict_uniform {
  tdict_plan *plan;
  tdict_gpu *to;     /* borrowed; NULL: no leaf of this collection is uniform */
  uint8_t way;       /* a tdict_way */
  bool packs_pinned; /* true: small pinned leaves are packed into slots, too */
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

/* Returns true if the elements are in C order without gaps. Checks the most frequent shapes first. */
bool tdict_uniform_is_plain(const tdict_tensor *t);

#endif
