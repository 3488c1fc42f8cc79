/* Reading what nearly every leaf of a large tree is: in C order in ordinary host memory (or pinned, where a leaf is so
 * small that it is packed all the same), held by the tree alone, going to one gpu. No other leaf can be the same bytes, so
 * nothing is looked up, and stretches of them are read by several threads.
 * Owned by one collection; one thread calls. */
#ifndef TDICT_TRANSFER_PLAN_COLLECT_UNIFORM_H
#define TDICT_TRANSFER_PLAN_COLLECT_UNIFORM_H

#include "sched/pool.h"
#include "transfer/plan/plan.h"
#include "tree/cursor.h"

typedef struct tdict_uniform {
  tdict_plan *plan;
  tdict_gpu *to; /* borrowed; NULL: leaves of this collection are not common */
  uint8_t way;   /* a tdict_way */
  bool packs;    /* small pinned leaves go that way, too */
  tdict_pool *pool;
  int num_helpers;
  const tdict_tree *refused; /* the last node in which several threads came upon a leaf that is not common */
} tdict_uniform;

/* Asks for what is read of the leaves that follow `slot`: a large tree's records lie all over memory, and waiting for each
 * line of them in turn would cost more than all the rest. */
enum { TDICT_LOOK_FAR = 16, TDICT_LOOK_NEAR = 8 };
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
    if (storage) __builtin_prefetch(&storage->flags, 1); /* on the next line, half of the time */
  }
}

/* Reads the leaves from the frame's slot on until one is not common, and moves the frame behind them. The plan has room for
 * the node's leaves. The node hangs at one place only. */
void tdict_uniform_collect(tdict_uniform *uniform, tdict_frame *frame);

/* C order without gaps; the shapes that most leaves have are told at once. */
bool tdict_uniform_is_plain(const tdict_tensor *t);

#endif
