/* Keeps the plans of a locked tree. A locked tree cannot change its structure, so a later transfer of the tree can
 * reuse the work of an earlier transfer. The record of kept plans is attached to the root node of the tree, see
 * tdict_node_attach(). The tree holds one reference to the record, and each transfer of the tree holds another. The
 * record is detached before the tree is unlocked or freed. While the record is attached, the tree keeps the leaves
 * alive. If transfers still use a detached record, the record retains the leaves.
 * Thread rule: safe from any thread, as long as no thread unlocks or frees the tree. */
#ifndef TDICT_TRANSFER_PLAN_TREE_PLANS_H
#define TDICT_TRANSFER_PLAN_TREE_PLANS_H

#include "base/forkmark.h"
#include "transfer/plan/plan.h"

/* TDICT_MOST_TREE_PLANS: maximum number of plans of one tree. Another plan replaces the oldest plan. */
enum { TDICT_MOST_TREE_PLANS = 4 };
/* A plan is not kept if it needs more memory. For trees of small leaves, this size is reached at about 140,000
 * leaves. A tree that is one interval of memory reaches this size at 700,000 leaves. */
#define TDICT_MOST_TREE_PLAN_BYTES ((size_t)16 << 20)

/* The values that determine a plan, together with the tree. Two transfers of one tree with equal stamps have equal
 * plans. */
typedef struct tdict_plan_stamp {
  const tdict_forkmark *mark; /* identifies the context: a kept plan retains the mark, so no other context has this
                               * address */
  tdict_device device;
  int32_t mode; /* TDICT_MODE_AUTO only if the device reads ordinary memory; the plan then has other ways */
  bool want_pinned;
} tdict_plan_stamp;

/* A kept plan. One transfer at a time uses the plan. Meanwhile the transfer has a copy of the struct, and changes the
 * elements of the arrays. */
typedef struct tdict_kept_plan {
  tdict_plan_stamp stamp;
  tdict_forkmark *mark; /* retained */
  /* as collected, without references to the sources. The chunks and the places of the items are from the last use. If
   * the next use needs the same, they are not computed again */
  tdict_plan plan;
  _Atomic(bool) is_used; /* acq_rel: true while a transfer uses the plan */
} tdict_kept_plan;

typedef struct tdict_tree_plans {
  tdict_attachment attachment; /* first member, because detach() gets its address */
  _Atomic(int64_t) refs;
  bool owns_leaves; /* true after a detach during a transfer: the snapshot holds a reference to each leaf */
  /* A locked copy of the tree's nodes, with the same keys and leaves, and with the record of a consolidated tree. The
   * copy borrows the leaves unless owns_leaves is true. Transfers build their results from this copy, because the
   * program may change the tree meanwhile. */
  tdict_tree *snapshot;
  tdict_consolidated *whole; /* retained; NULL unless the tree is one interval of memory. Such a tree has no plans,
                              * because making its plan takes little time */
  /* acq_rel: true while a thread uses `plans`. Another thread then makes a plan of its own, and does not wait: in a
   * forked child, the flag may stay true for ever */
  _Atomic(bool) is_busy;
  uint32_t num_plans, oldest;
  tdict_kept_plan plans[TDICT_MOST_TREE_PLANS];
} tdict_tree_plans;

/* Returns a new reference to the record of a tree, or NULL if the tree has no record. */
tdict_tree_plans *tdict_tree_plans_find(const tdict_tree *tree);
/* Makes the record of a locked tree without objects, and attaches the record. Retains `whole`, which may be NULL. If
 * another thread has attached a record meanwhile, uses that record. *out is a new reference, or NULL if the record
 * would need too much memory. Returns TDICT_ENOMEM if host memory is exhausted. */
tdict_status tdict_tree_plans_create(const tdict_tree *tree, tdict_consolidated *whole, tdict_tree_plans **out,
                                     tdict_error *err);
/* Drops a reference. NULL is allowed. May run release callbacks of the program. */
void tdict_tree_plans_release(tdict_tree_plans *plans);
/* If the record has a plan with this stamp that no transfer uses, copies the struct to *out and returns the kept plan.
 * The transfer then uses the arrays of the kept plan, which does not retain its sources. The transfer must hold a
 * reference to the record, and must return the plan with tdict_tree_plans_give(). Otherwise returns NULL and changes
 * nothing. */
tdict_kept_plan *tdict_tree_plans_load(tdict_tree_plans *plans, const tdict_plan_stamp *stamp, tdict_plan *out);
/* Keeps a plan that was just collected, borrows its sources and has no objects. The transfer uses the kept plan as
 * after tdict_tree_plans_load(). If the record has no room, replaces the oldest plan. Returns NULL, and does not keep
 * the plan, if another thread uses the record or transfers use all plans of the record. */
tdict_kept_plan *tdict_tree_plans_store(tdict_tree_plans *plans, const tdict_plan_stamp *stamp, const tdict_plan *plan);
/* Returns a plan after its transfer has ended, or was not begun. Clears *plan. Later transfers can use the plan. */
void tdict_tree_plans_give(tdict_kept_plan *kept, tdict_plan *plan);
/* Returns true if a plan without objects may be kept: the plan is small enough, and depends only on its stamp. A plan
 * with memory of the program depends on the driver, too, because the program may pin or unpin the memory. */
bool tdict_tree_plans_may_keep(const tdict_plan *plan);

#endif
