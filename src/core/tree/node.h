/* Defines the node of a tree: its key table, leaves, batch size, device and lock. A node owns one reference to its key
 * table and one reference to its list of leaves. Thread rule: as in tdict/tree.h. */
#ifndef TDICT_CORE_TREE_NODE_H
#define TDICT_CORE_TREE_NODE_H

#include <stdatomic.h>
#include <stddef.h>

#include "core/tensor/consolidated.h"
#include "core/tree/box.h"
#include "core/tree/keys.h"
#include "tdict/tree.h"

/* A tdict_leaf is the value of a slot: a pointer with its kind in the two low bits. 0 is an empty slot. */
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

/* The leaves of a node. Shallow copies share the list until a node changes its leaves. A list with several references
 * is read-only and holds no trees, because each copy has separate child nodes. */
typedef struct tdict_leaf_list {
  _Atomic(int64_t) refs; /* counts the nodes; the list holds one reference to each leaf */
  tdict_leaf leaves[];
} tdict_leaf_list;

/* The data that layers above attach to a locked tree. Each kind of data has its own slot. */
typedef enum tdict_attachment_slot {
  TDICT_ATTACHED_BLOCK, /* for transfers, see engine/plan/block.h */
  TDICT_ATTACHED_FACTS, /* for communicators, see services/comm/agree.h */
  TDICT_ATTACHMENT_SLOTS
} tdict_attachment_slot;

/* Data that a layer above attaches to a locked tree, as the first member of a struct of its own. */
typedef struct tdict_attachment {
  /* Called once, before the tree, whose leaves still exist, is unlocked or freed. Frees the data, now or later. */
  void (*detach)(struct tdict_attachment *self);
} tdict_attachment;

struct tdict_tree {
  _Atomic(int64_t) refs;
  tdict_keys *keys;   /* reference-counted; slots [0, keys->num_slots) are in use */
  tdict_leaf *leaves; /* in a tdict_leaf_list, or NULL; one leaf for each slot; 0 for a deleted slot */
  uint32_t cap_leaves;
  int32_t batch_ndim;
  bool has_device, locked; /* locked: true if tdict_lock() has locked this node itself */
  tdict_device device;
  /* relaxed: number of slots of locked nodes that hold this node. Freeing a locked node decreases the number, and may
   * then still read this node, so 0 does not order a change after the freeing: see tdict_is_locked() */
  _Atomic(int32_t) locks_above;
  /* retained, see consolidated.h; NULL unless the tree is consolidated, and so locked. Unlocking releases it */
  tdict_consolidated *consolidated;
  /* NULL, or data that tdict_node_attach() attached to the tree (acquire/release). Always NULL if `locked` is false */
  _Atomic(tdict_attachment *) attachments[TDICT_ATTACHMENT_SLOTS];
  tdict_tree *pending; /* next node in a work list, which replaces recursion in release, lock, unlock and copy */
  int64_t batch_size[TDICT_MAX_BATCH_NDIM];
};
static inline bool tdict_node_is_locked(const tdict_tree *td) {
  return td->locked || atomic_load_explicit(&td->locks_above, memory_order_relaxed) > 0;
}

/* Returns the list that holds the leaves of a node, which must have leaves. */
static inline tdict_leaf_list *tdict_node_list(const tdict_tree *td) {
  return (tdict_leaf_list *)(void *)((char *)td->leaves - offsetof(tdict_leaf_list, leaves));
}
/* Returns true if nodes share the list of leaves. A leaf then is at more places than its references say. */
static inline bool tdict_node_shares_leaves(const tdict_tree *td) {
  return td->leaves && atomic_load_explicit(&tdict_node_list(td)->refs, memory_order_acquire) != 1;
}

/* Returns true if only one slot or one caller holds the node, and no other node shares its leaves. */
static inline bool tdict_node_is_unshared(const tdict_tree *td) {
  return atomic_load_explicit(&td->refs, memory_order_relaxed) == 1 && !tdict_node_shares_leaves(td);
}

/* Returns TDICT_EINVAL if `batch_ndim` and `batch_size` are not a valid batch size. The message begins with `what`. */
tdict_status tdict_batch_check(const char *what, int batch_ndim, const int64_t *batch_size, tdict_error *err);
/* Makes an unlocked node with the batch size, device and key table of `like` and empty leaves. Returns TDICT_ENOMEM. */
tdict_status tdict_node_create_like(const tdict_tree *like, tdict_tree **out, tdict_error *err);
/* Makes a node with a valid batch size and the key table `keys`, which the node retains. The leaves are empty, for the
 * caller to fill in. The node has no device and is not locked. Returns TDICT_ENOMEM if memory is exhausted. */
tdict_status tdict_node_create_over(tdict_keys *keys, int batch_ndim, const int64_t *batch_size, tdict_tree **out,
                                    tdict_error *err);
/* Like tdict_node_create_like(), but with the leaves of `like` except trees, whose slots are empty for the caller. Sets
 * *trees to whether there are any. Returns TDICT_ENOMEM. */
tdict_status tdict_node_create_sharing(const tdict_tree *like, tdict_tree **out, bool *trees, tdict_error *err);
/* Makes an unlocked node without keys, with batch size and device of `like`. Returns NULL without memory. */
tdict_tree *tdict_node_create_under(const tdict_tree *like);
/* tdict_node_own_leaves() makes the leaves private to the node, so that they can be changed. tdict_node_own() also
 * makes the key table private. Both return false if memory is exhausted. */
bool tdict_node_own_leaves(tdict_tree *td);
bool tdict_node_own(tdict_tree *td);
/* Makes the leaves private, with room for `count` slots. Returns false without memory or beyond 32 bits. */
bool tdict_node_reserve(tdict_tree *td, size_t count);
/* Adds a key, which must not be in the node. Takes over the caller's reference to the leaf on success. Returns false if
 * memory is exhausted or a limit of tdict_keys_append() is exceeded; the keys and leaves are then unchanged. */
bool tdict_node_add_name(tdict_tree *td, const tdict_name *name, tdict_leaf leaf);
/* Deletes a slot's key of a node with own keys and leaves. The caller gets the leaf. Slot numbers can change. */
void tdict_node_remove(tdict_tree *td, uint32_t slot);
/* Compacts the slots if more than half are deleted. The node must own its keys and leaves. */
void tdict_node_compact(tdict_tree *td);
/* Swaps the keys and leaves of two nodes. Cannot fail. Does not check locks. */
void tdict_node_swap(tdict_tree *a, tdict_tree *b);
/* Adds a reference to the tensor, tree or box of a leaf and returns the leaf. An empty leaf is allowed. */
tdict_leaf tdict_leaf_retain(tdict_leaf leaf);
/* Retains a leaf. The common case of a tensor is inline, for loops. */
static inline tdict_leaf tdict_leaf_retain_inline(tdict_leaf leaf) {
  tdict_tensor *t = tdict_leaf_tensor(leaf);
  if (!t) return tdict_leaf_retain(leaf);
  atomic_fetch_add_explicit(t->slab ? &t->slab->refs : &t->refs, 1, memory_order_relaxed);
  return leaf;
}
/* Drops a reference to the tensor, tree or box of a leaf, if any. Can run callbacks of the program. */
void tdict_leaf_release(tdict_leaf leaf);
/* Attaches data to a locked node, or returns false if its slot has data already. Thread-safe while no thread unlocks or
 * frees the tree. */
static inline bool tdict_node_attach(const tdict_tree *td, tdict_attachment_slot slot, tdict_attachment *data) {
  tdict_attachment *none = NULL;
  _Atomic(tdict_attachment *) *field = (_Atomic(tdict_attachment *) *)(uintptr_t)&td->attachments[slot];
  return atomic_compare_exchange_strong_explicit(field, &none, data, memory_order_acq_rel, memory_order_acquire);
}
/* Returns the data in a slot, or NULL. */
static inline tdict_attachment *tdict_node_attachment(const tdict_tree *td, tdict_attachment_slot slot) {
  return atomic_load_explicit(&td->attachments[slot], memory_order_acquire);
}
/* Clears the lock that the node itself has. The tree is then no longer consolidated, and loses its attachments. */
void tdict_node_clear_lock(tdict_tree *td);
/* Decreases `locks_above` of each child of `td`. If a child is then no longer locked, does the same for the children of
 * that child, and so on. Call this function after unlocking `td`, or before freeing `td`. If `clear` is true, first
 * calls tdict_node_clear_lock() for each child that no locked node holds any more. */
void tdict_node_uncount_lock(tdict_tree *td, bool clear);
/* Writes the path "above.key" to `buffer`, with the key escaped. A long path is cut in the middle, as in tdict_error.
 * `above` is an escaped path; NULL or "" means no path. `key` may be NULL, and `buffer` may be `above`. */
void tdict_node_path(const char *above, const tdict_key *key, char *buffer, size_t bytes);

#endif
