/* The tree's node, for the files of this layer and for transfers, which read whole trees and make their results.
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_TREE_NODE_H
#define TDICT_TREE_NODE_H

#include <stdatomic.h>
#include <stddef.h>

#include "tdict/tree.h"
#include "tensor/tensor.h"
#include "tree/box.h"
#include "tree/keys.h"

/* What hangs at a slot: a pointer with its kind in the low bits. 0 is an empty slot. */
typedef uintptr_t tdict_leaf;
enum { TDICT_LEAF_TENSOR = 0, TDICT_LEAF_TREE = 1, TDICT_LEAF_OBJECT = 2, TDICT_LEAF_MASK = 3 };
static inline int tdict_leaf_kind(tdict_leaf leaf) { return (int)(leaf & TDICT_LEAF_MASK); }
static inline void *tdict_leaf_pointer(tdict_leaf leaf) { return (void *)(leaf & ~(tdict_leaf)TDICT_LEAF_MASK); }
static inline tdict_leaf tdict_leaf_of_tensor(tdict_tensor *t) { return (tdict_leaf)t | TDICT_LEAF_TENSOR; }
static inline tdict_leaf tdict_leaf_of_tree(tdict_tree *t) { return (tdict_leaf)t | TDICT_LEAF_TREE; }
static inline tdict_leaf tdict_leaf_of_box(tdict_box *box) { return (tdict_leaf)box | TDICT_LEAF_OBJECT; }
static inline tdict_tensor *tdict_leaf_tensor(tdict_leaf leaf) {
  return leaf && tdict_leaf_kind(leaf) == TDICT_LEAF_TENSOR ? (tdict_tensor *)tdict_leaf_pointer(leaf) : NULL;
}
static inline tdict_tree *tdict_leaf_tree(tdict_leaf leaf) {
  return leaf && tdict_leaf_kind(leaf) == TDICT_LEAF_TREE ? (tdict_tree *)tdict_leaf_pointer(leaf) : NULL;
}
static inline tdict_box *tdict_leaf_box(tdict_leaf leaf) {
  return tdict_leaf_kind(leaf) == TDICT_LEAF_OBJECT ? (tdict_box *)tdict_leaf_pointer(leaf) : NULL;
}

/* The leaves of a node, and of its shallow copies until one of them changes. A list that several nodes count is read
 * only, has the same slots in all of them and holds no tree, since each copy has nodes of its own. */
typedef struct tdict_leaf_list {
  _Atomic(int64_t) refs; /* nodes; the list holds one reference to each leaf */
  tdict_leaf leaves[];
} tdict_leaf_list;

struct tdict_tree {
  _Atomic(int64_t) refs;
  tdict_keys *keys;   /* counted; slots [0, keys->num_slots) */
  tdict_leaf *leaves; /* of a tdict_leaf_list, or NULL; one a slot; 0 for a deleted slot */
  uint32_t cap_leaves;
  int32_t batch_ndim;
  bool has_device, locked; /* locked: by a call of its own */
  tdict_device device;
  _Atomic(int32_t) locks_above; /* relaxed: how often locked nodes hold this one; the last release of one counts down */
  tdict_tree *pending;          /* the next node of a list that release, lock or a private copy works through */
  int64_t batch_size[TDICT_MAX_BATCH_NDIM];
};
static inline bool tdict_node_is_locked(const tdict_tree *td) {
  return td->locked || atomic_load_explicit(&td->locks_above, memory_order_relaxed) > 0;
}

static inline tdict_leaf_list *tdict_node_list(const tdict_tree *td) {
  return (tdict_leaf_list *)(void *)((char *)td->leaves - offsetof(tdict_leaf_list, leaves));
}
/* True when other nodes share the leaves, which then hang at more places than they are counted for. */
static inline bool tdict_node_shares_leaves(const tdict_tree *td) {
  return td->leaves && atomic_load_explicit(&tdict_node_list(td)->refs, memory_order_acquire) != 1;
}

/* TDICT_EINVAL if these counts are no batch size. `what` begins the message. */
tdict_status tdict_batch_check(const char *what, int batch_ndim, const int64_t *batch_size, tdict_error *err);
/* A node with the batch size, device and key table of `like` and one empty leaf a slot, for a result whose leaves the
 * caller fills in; not locked. TDICT_ENOMEM. */
tdict_status tdict_node_like(const tdict_tree *like, tdict_tree **out, tdict_error *err);
/* The same with the leaves of `like`; not locked. Where these hold trees, *trees is true and the slots of trees are
 * empty, to be filled in by the caller. TDICT_ENOMEM. */
tdict_status tdict_node_share(const tdict_tree *like, tdict_tree **out, bool *trees, tdict_error *err);
/* An empty node with the batch size and device of `like`, not locked; NULL without memory. */
tdict_tree *tdict_node_create_under(const tdict_tree *like);
/* Make the leaves, or the leaves and the key table, the node's own, to be changed; false without memory. */
bool tdict_node_own_leaves(tdict_tree *td);
bool tdict_node_own(tdict_tree *td);
/* Room for slots up to `count` of leaves that are then the node's own; false without memory. */
bool tdict_node_reserve(tdict_tree *td, size_t count);
/* Adds a key that is not there yet, with its hash; the leaf's reference is taken. False without memory, and nothing has
 * changed. */
bool tdict_node_add(tdict_tree *td, const char *name, size_t length, uint32_t hash, tdict_leaf leaf);
bool tdict_node_add_name(tdict_tree *td, const tdict_name *name, tdict_leaf leaf);
/* Deletes the key of a slot of a node that owns keys and leaves; the leaf's reference is the caller's. Slot numbers may
 * change. */
void tdict_node_remove(tdict_tree *td, uint32_t slot);
/* Moves the slots together when more than half are empty; the node owns keys and leaves. */
void tdict_node_compact(tdict_tree *td);
/* Changes the keys and leaves of two nodes with each other. Cannot fail; locks are not looked at. */
void tdict_node_swap(tdict_tree *a, tdict_tree *b);
tdict_leaf tdict_leaf_retain(tdict_leaf leaf);
/* The same, for loops. */
static inline tdict_leaf tdict_leaf_hold(tdict_leaf leaf) {
  tdict_tensor *t = tdict_leaf_tensor(leaf);
  if (!t) return tdict_leaf_retain(leaf);
  atomic_fetch_add_explicit(t->slab ? &t->slab->refs : &t->refs, 1, memory_order_relaxed);
  return leaf;
}
void tdict_leaf_release(tdict_leaf leaf);
/* Counts the lock of a node that has ended (unlocked, or about to be freed) out of all below it. `clear`: what no other
 * locked node holds loses its own lock too. */
void tdict_node_uncount_lock(tdict_tree *td, bool clear);
/* Fills the path of a key of the node that `above` (escaped keys; NULL or "": none) leads to: "above.key", cut as
 * errors' paths are. `key` may be NULL, and `buffer` may be `above`. */
void tdict_node_path(const char *above, const tdict_key *key, char *buffer, size_t bytes);

#endif
