/* The tree's node, for the files of this layer and for transfers, which read whole trees and make their results.
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_TREE_NODE_H
#define TDICT_TREE_NODE_H

#include <stdatomic.h>

#include "tdict/tree.h"
#include "tensor/tensor.h"
#include "tree/keys.h"

/* What hangs at a slot: a pointer with its kind in the low bits. 0 is an empty slot. */
typedef uintptr_t tdict_leaf;
enum { TDICT_LEAF_TENSOR = 0, TDICT_LEAF_TREE = 1, TDICT_LEAF_MASK = 3 };
static inline int tdict_leaf_kind(tdict_leaf leaf) { return (int)(leaf & TDICT_LEAF_MASK); }
static inline void *tdict_leaf_pointer(tdict_leaf leaf) { return (void *)(leaf & ~(tdict_leaf)TDICT_LEAF_MASK); }
static inline tdict_leaf tdict_leaf_of_tensor(tdict_tensor *t) { return (tdict_leaf)t | TDICT_LEAF_TENSOR; }
static inline tdict_leaf tdict_leaf_of_tree(tdict_tree *t) { return (tdict_leaf)t | TDICT_LEAF_TREE; }
static inline tdict_tensor *tdict_leaf_tensor(tdict_leaf leaf) {
  return leaf && tdict_leaf_kind(leaf) == TDICT_LEAF_TENSOR ? (tdict_tensor *)tdict_leaf_pointer(leaf) : NULL;
}
static inline tdict_tree *tdict_leaf_tree(tdict_leaf leaf) {
  return leaf && tdict_leaf_kind(leaf) == TDICT_LEAF_TREE ? (tdict_tree *)tdict_leaf_pointer(leaf) : NULL;
}

struct tdict_tree {
  _Atomic(int64_t) refs;
  tdict_keys *keys;        /* counted; slots [0, keys->num_slots) */
  tdict_leaf *leaves;      /* one a slot; counted references; 0 for a deleted slot */
  uint32_t cap_leaves;
  int32_t batch_ndim;
  bool has_device, locked; /* locked: by a call of its own */
  tdict_device device;
  int32_t locks_above;     /* how many locked nodes hold this one */
  int64_t batch_size[];
};

/* A node with the batch size, device and key table of `like` and one empty leaf a slot, for a result whose leaves the
 * caller fills in; not locked. TDICT_ENOMEM. */
tdict_status tdict_node_like(const tdict_tree *like, tdict_tree **out, tdict_error *err);
/* Fills the path of slot `slot` of the node that `above` escaped keys lead to: "above.key". Cut as errors' paths are. */
void tdict_node_path(const char *above, const tdict_key *key, char *buffer, size_t bytes);

#endif
