/* Makes the snapshot of a locked tree, and lends the plans in the record of the tree to transfers. See tree_plans.h for
 * ownership and threads. */
#include "transfer/plan/tree_plans.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "tree/cursor.h"

static tdict_status fail_keep_memory(tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory to keep its plan");
}

/* Copies the tensors of a node to its copy, without references. Returns the number of leaves. */
static size_t borrow_leaves(tdict_tree *to, const tdict_tree *from) {
  const uint32_t slots = from->keys->num_slots;
  for (uint32_t i = 0; i < slots; i++)
    if (tdict_leaf_tensor(from->leaves[i])) to->leaves[i] = from->leaves[i];
  return slots;
}

/* Calls fn for each leaf of a snapshot. Cannot fail, because the nodes themselves form the list of work. */
static void each_leaf(tdict_tree *snapshot, void (*fn)(tdict_leaf *leaf)) {
  snapshot->pending = NULL;
  for (tdict_tree *list = snapshot; list;) {
    tdict_tree *node = list;
    list = node->pending;
    for (uint32_t i = 0; i < node->keys->num_slots; i++) {
      tdict_tree *child = tdict_leaf_tree(node->leaves[i]);
      if (!child) {
        fn(&node->leaves[i]);
        continue;
      }
      child->pending = list;
      list = child;
    }
  }
}
static void retain_leaf(tdict_leaf *leaf) { (void)tdict_leaf_retain(*leaf); }
static void forget_leaf(tdict_leaf *leaf) { *leaf = 0; }

static void free_snapshot(tdict_tree *snapshot, bool owns_leaves) {
  if (snapshot && !owns_leaves) each_leaf(snapshot, forget_leaf);
  tdict_release(snapshot);
}

/* Copies the nodes of a tree without objects. The copy does not retain the leaves. */
static tdict_status make_snapshot(const tdict_tree *tree, tdict_tree **out, size_t *num_leaves, tdict_error *err) {
  tdict_tree *snapshot = NULL, *made;
  tdict_status status = tdict_node_create_like(tree, &snapshot, err);
  if (status != TDICT_OK) return status;
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, tree, false);
  cursor.frames[0].mark = (size_t)(uintptr_t)snapshot;
  *num_leaves = borrow_leaves(snapshot, tree);
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    tdict_tree *child = tdict_leaf_tree(leaf);
    if (!child) continue;
    const tdict_frame *top = &cursor.frames[cursor.depth - 1];
    tdict_leaf *place = &((tdict_tree *)top->mark)->leaves[top->slot - 1];
    status = tdict_node_create_like(child, &made, err);
    if (status != TDICT_OK) continue;
    *place = tdict_leaf_of_tree(made);
    *num_leaves += borrow_leaves(made, child);
    if (!tdict_cursor_enter(&cursor, child))
      status = fail_keep_memory(err);
    else
      cursor.frames[cursor.depth - 1].mark = (size_t)(uintptr_t)made;
  }
  tdict_cursor_reset(&cursor);
  if (status != TDICT_OK) {
    free_snapshot(snapshot, false);
    return status;
  }
  tdict_lock(snapshot);
  if (tree->consolidated) snapshot->consolidated = tdict_consolidated_retain(tree->consolidated);
  *out = snapshot;
  return TDICT_OK;
}

static void forget_plan(tdict_kept_plan *kept) {
  free(kept->plan.items);
  free(kept->plan.nodes);
  free(kept->plan.item_of_leaf);
  free(kept->plan.chunks);
  tdict_forkmark_release(kept->mark);
  memset(kept, 0, sizeof *kept);
}

void tdict_tree_plans_release(tdict_tree_plans *plans) {
  if (!plans || atomic_fetch_sub_explicit(&plans->refs, 1, memory_order_acq_rel) != 1) return;
  for (uint32_t i = 0; i < plans->num_plans; i++) forget_plan(&plans->plans[i]);
  free_snapshot(plans->snapshot, plans->owns_leaves);
  tdict_consolidated_release(plans->whole);
  free(plans);
}

/* Retains the leaves if a transfer still uses the record. No transfer can begin to use the record meanwhile, because no
 * other thread may use a tree that is unlocked or freed. */
static void detach_plans(tdict_attachment *attachment) {
  tdict_tree_plans *plans = (tdict_tree_plans *)attachment;
  if (atomic_load_explicit(&plans->refs, memory_order_acquire) > 1) {
    each_leaf(plans->snapshot, retain_leaf);
    plans->owns_leaves = true; /* the decrement of the reference count makes this store visible */
  }
  tdict_tree_plans_release(plans);
}

tdict_tree_plans *tdict_tree_plans_find(const tdict_tree *tree) {
  tdict_tree_plans *plans = (tdict_tree_plans *)tdict_node_attachment(tree, TDICT_ATTACHED_PLANS);
  if (plans) atomic_fetch_add_explicit(&plans->refs, 1, memory_order_relaxed);
  return plans;
}

tdict_status tdict_tree_plans_create(const tdict_tree *tree, tdict_consolidated *whole, tdict_tree_plans **out,
                                     tdict_error *err) {
  size_t num_leaves;
  *out = NULL;
  tdict_tree_plans *plans = calloc(1, sizeof *plans);
  if (!plans) return fail_keep_memory(err);
  plans->attachment.detach = detach_plans;
  atomic_init(&plans->refs, 2); /* of the tree and of the caller */
  tdict_status status = make_snapshot(tree, &plans->snapshot, &num_leaves, err);
  if (status != TDICT_OK) {
    free(plans);
    return status;
  }
  const size_t each = sizeof(tdict_leaf) + sizeof whole->leaves[0];
  const bool is_small = num_leaves <= TDICT_MOST_TREE_PLAN_BYTES / each;
  if (whole) plans->whole = tdict_consolidated_retain(whole);
  if (is_small && tdict_node_attach(tree, TDICT_ATTACHED_PLANS, &plans->attachment)) {
    *out = plans;
    return TDICT_OK;
  }
  atomic_store_explicit(&plans->refs, 1, memory_order_relaxed);
  tdict_tree_plans_release(plans);
  if (is_small) *out = tdict_tree_plans_find(tree);
  return TDICT_OK;
}

bool tdict_tree_plans_may_keep(const tdict_plan *plan) {
  if (plan->num_leaves == 0) return false;
  const size_t each = sizeof *plan->items + sizeof *plan->nodes;
  const size_t bytes = plan->num_items * each + plan->num_leaves * sizeof *plan->item_of_leaf;
  if (bytes > TDICT_MOST_TREE_PLAN_BYTES) return false;
  for (uint32_t i = 0; i < plan->num_items; i++)
    if (plan->items[i].src->storage->flags & (TDICT_STORAGE_FOREIGN | TDICT_STORAGE_CLAIMED | TDICT_STORAGE_UNLOADED))
      return false;
  return true;
}

/* Tries to get the plans for the calling thread. */
static bool begin_use(tdict_tree_plans *plans) {
  return !atomic_exchange_explicit(&plans->is_busy, true, memory_order_acq_rel);
}
static void end_use(tdict_tree_plans *plans) { atomic_store_explicit(&plans->is_busy, false, memory_order_release); }

/* Finds a plan that no transfer uses. */
static tdict_kept_plan *find_plan(tdict_tree_plans *plans, const tdict_plan_stamp *stamp) {
  for (uint32_t i = 0; i < plans->num_plans; i++) {
    tdict_kept_plan *kept = &plans->plans[i];
    const tdict_plan_stamp *s = &kept->stamp;
    if (s->mark == stamp->mark && tdict_device_equal(s->device, stamp->device) && s->mode == stamp->mode &&
        s->want_pinned == stamp->want_pinned && !atomic_load_explicit(&kept->is_used, memory_order_acquire))
      return kept;
  }
  return NULL;
}

/* Returns an empty place for a plan, or NULL. Replaces the oldest plan that no transfer uses. */
static tdict_kept_plan *make_place(tdict_tree_plans *plans) {
  if (plans->num_plans < TDICT_MOST_TREE_PLANS) return &plans->plans[plans->num_plans++];
  for (uint32_t i = 0; i < TDICT_MOST_TREE_PLANS; i++) {
    tdict_kept_plan *kept = &plans->plans[plans->oldest];
    plans->oldest = (plans->oldest + 1) % TDICT_MOST_TREE_PLANS;
    if (atomic_load_explicit(&kept->is_used, memory_order_acquire)) continue;
    forget_plan(kept);
    return kept;
  }
  return NULL;
}

tdict_kept_plan *tdict_tree_plans_load(tdict_tree_plans *plans, const tdict_plan_stamp *stamp, tdict_plan *out) {
  if (!begin_use(plans)) return NULL;
  tdict_kept_plan *kept = find_plan(plans, stamp);
  if (kept) {
    atomic_store_explicit(&kept->is_used, true, memory_order_relaxed);
    *out = kept->plan;
  }
  end_use(plans);
  return kept;
}

tdict_kept_plan *tdict_tree_plans_store(tdict_tree_plans *plans, const tdict_plan_stamp *stamp,
                                        const tdict_plan *plan) {
  TDICT_ASSERT(tdict_tree_plans_may_keep(plan) && !plan->num_objects && plan->borrows && !plan->whole &&
               plan->num_chunks == 0);
  if (!begin_use(plans)) return NULL;
  tdict_kept_plan *place = make_place(plans);
  if (place) {
    place->stamp = *stamp;
    place->mark = tdict_forkmark_retain((tdict_forkmark *)(uintptr_t)stamp->mark);
    place->plan = *plan;
    atomic_store_explicit(&place->is_used, true, memory_order_relaxed);
  }
  end_use(plans);
  return place;
}

void tdict_tree_plans_give(tdict_kept_plan *kept, tdict_plan *plan) {
  tdict_plan_renew(plan);
  kept->plan.chunks = plan->chunks;
  kept->plan.cap_chunks = plan->cap_chunks;
  kept->plan.last_cut = plan->last_cut;
  kept->plan.is_one_run = plan->is_one_run;
  kept->plan.placed_at = plan->placed_at;
  memset(plan, 0, sizeof *plan);
  atomic_store_explicit(&kept->is_used, false, memory_order_release);
}
