/* Reads a tree into a plan. A leaf is either shared with the result or becomes an item of the plan. Each item has a
 * way, which says how the item is copied. See collect.h for ownership and threads. */
#include "engine/plan/collect.h"

#include <stdlib.h>

#include "core/base/array.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/tensor/layout.h"
#include "core/tree/cursor.h"
#include "core/tree/objects.h"
#include "engine/kinds/pack.h"
#include "engine/plan/block.h"
#include "engine/plan/destination.h"
#include "engine/plan/flatten.h"
#include "engine/plan/item.h"

/* A node, and whether only one path leads to its leaves. */
typedef struct reached {
  const tdict_tree *node;
  bool once;
} reached;

typedef struct collector {
  tdict_collected *collected;
  tdict_plan *plan;
  const tdict_plan_request *request;
  tdict_item_maker make; /* makes items of leaves; `make.cast` is the conversion of the current leaf */
  tdict_same_bytes same; /* table that finds leaves that cover the same bytes */
  bool table_in_use;     /* true: items are in the table `same`, because tdict_same_bytes_follows() returned false
                              * for a leaf */
  int misses;            /* number of consecutive attempts of the fast path that found no uniform leaf */
  tdict_uniform uniform; /* state of the fast path for uniform leaves */
  reached reached_src, reached_dst; /* the last nodes of the source and of the destination that were checked */
  uintptr_t dst_end;                /* end address of the last destination whose memory other tensors may share */
  size_t flat_depth; /* the cursor's depth at the root of the flattened object that contains the cursor; 0: no flattened
                      * object */
  size_t kept_depth; /* the cursor's depth at the root of the kept child tree that contains the cursor; 0: no kept
                      * tree */
  /* is_kept() checks only entries at a smaller depth than this number. Only these entries can follow the flattened
   * object or the kept tree, or match a pattern. 0: is_kept() checks no entry */
  size_t watch_depth;
} collector;

static tdict_status fail_plan_memory(tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its plan");
}

/* Returns true if the leaf is already where the result must be, and need not be copied. */
static inline bool is_in_place(const collector *c, const tdict_tensor *t) {
  const tdict_plan_request *r = c->request;
  tdict_device at = t->storage->device;
  if (r->copies || (c->make.cast.rule && tdict_item_cast_changes(&c->make.cast))) return false;
  if (at.type != r->device.type || at.index != r->device.index) return false;
  if (tdict_storage_is_unloaded(t->storage)) return false;
  if (at.type == TDICT_DEVICE_SIM && !tdict_devices_own_storage(r->devices, t->storage)) return false;
  return !r->want_pinned || tdict_tensor_is_pinned(t);
}

/* Returns true if only one path leads to the leaves of `node`, the current node of the source or of the destination:
 * each node below the root has one reference, and no other node shares the list of leaves. If the leaf's tensor also
 * has only one reference, no other leaf of the tree is the same tensor. `last` has the last result. */
static inline bool is_reached_once(reached *last, const tdict_cursor *cursor, const tdict_tree *node) {
  const tdict_frame *top = &cursor->frames[cursor->depth - 1];
  if (last->node == node) return last->once;
  *last = (reached){node, !top->is_shared && !tdict_node_shares_leaves(node)};
  return last->once;
}

/* Enters a child tree, and notes whether several paths lead to it, once for all its leaves. */
static bool enter_node(tdict_cursor *cursor, tdict_tree *node, const tdict_tree *other) {
  if (!tdict_cursor_enter(cursor, node)) return false;
  tdict_frame *top = &cursor->frames[cursor->depth - 1];
  top->mark = (size_t)(uintptr_t)other;
  const tdict_tree *counted_node = other ? other : node; /* for transfer_into, sharing of the destination matters */
  top->is_shared = top[-1].is_shared || atomic_load_explicit(&counted_node->refs, memory_order_relaxed) != 1;
  return true;
}

/* Puts all items into the table, once, when tdict_same_bytes_follows() returns false for a leaf. */
static tdict_status list_items(collector *c, const tdict_tensor *t, tdict_error *err) {
  if (c->table_in_use || tdict_same_bytes_follows(&c->same, t)) return TDICT_OK;
  for (uint32_t i = 0; i < c->plan->num_items; i++)
    if (!tdict_same_bytes_add(&c->same, c->plan->items[i].src, i)) return fail_plan_memory(err);
  c->table_in_use = true;
  return TDICT_OK;
}

/* Collects a leaf of to_device or pin_memory: in place, with the bytes of an earlier one, or to copy. */
static tdict_status collect_source_leaf(collector *c, const tdict_cursor *cursor, tdict_tensor *t, uint32_t *place,
                                        tdict_error *err) {
  const tdict_plan_request *r = c->request;
  if (r->host_only && t->storage->device.type != TDICT_DEVICE_CPU)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "pin_memory: the tensor is on %s, wanted one on the cpu",
                      TDICT_DEVICE_TEXT(t->storage->device));
  *place = TDICT_SHARED;
  if (is_in_place(c, t)) return TDICT_OK;
  const tdict_tree *node = cursor->frames[cursor->depth - 1].node;
  /* check the references before the item adds a reference */
  bool is_unshared = r->is_distinct || (is_reached_once(&c->reached_src, cursor, node) && tdict_item_is_unshared(t));
  tdict_status status = is_unshared ? TDICT_OK : list_items(c, t, err);
  if (status != TDICT_OK) return status;
  if (!is_unshared && c->table_in_use) tdict_same_bytes_find(&c->same, t, place);
  if (*place != TDICT_SHARED) return TDICT_OK;
  tdict_item item = {.src = t, .src_data = t->data, .bytes = tdict_tensor_nbytes(t), .leaf = c->plan->num_leaves};
  const size_t at = r->rows ? tdict_source_rows_cut(r->rows, &item.bytes) : 0;
  if (at > 0) item.src_data += at; /* an empty tensor has no data */
  if (c->make.cast.rule && !tdict_mul_size((size_t)tdict_item_cast_like(&c->make.cast, t)->numel,
                                           tdict_dtype_bytes(c->make.cast.cast.to), &item.bytes))
    return tdict_fail(err, TDICT_EOVERFLOW, "transfer: the converted bytes do not fit the address space");
  status = tdict_item_choose_way(&c->make, &item, r->device, err);
  if (status == TDICT_OK) status = tdict_item_append(&c->make, &item, err);
  if (status != TDICT_OK) return status;
  *place = c->plan->num_items - 1;
  if (is_unshared || !c->table_in_use) return TDICT_OK;
  return tdict_same_bytes_add(&c->same, t, *place) ? TDICT_OK : fail_plan_memory(err);
}

/* Prepares the fast path for uniform leaves. The fast path is off if c->uniform.to is NULL. Leaves c->uniform.to NULL
 * if the target is not a GPU that can be opened, if a destination exists, or if `keep` or wire options are set. Also if
 * the GPU reads ordinary memory, because leaves of a node can then have different ways. */
static void begin_uniform(collector *c) {
  const tdict_plan_request *r = c->request;
  c->uniform = (tdict_uniform){.collected = c->collected,
                               .plan = c->plan,
                               .is_distinct = r->is_distinct,
                               .rows = r->rows,
                               .pool = r->pool,
                               .num_helpers = r->num_helpers};
  if (r->dst || r->host_only || r->keep || c->plan->wire || r->device.type == TDICT_DEVICE_CPU) return;
  /* the error is reported when the first leaf is collected */
  if (tdict_item_find_gpu(&c->make, r->device, &c->uniform.to, NULL) != TDICT_OK) c->uniform.to = NULL;
  if (c->uniform.to && c->uniform.to->reads_pageable && r->may_read_pageable) c->uniform.to = NULL; /* ways differ */
  c->uniform.way = r->mode == TDICT_MODE_NON_BLOCKING_PIN ? TDICT_WAY_STAGE_IN : TDICT_WAY_PAGEABLE_IN;
}

/* Notes whether destinations may overlap. Call before the item retains `dst`. A destination whose memory is not shared
 * overlaps with no other. The others do not overlap if each begins at or after the end of the one before. Destinations
 * with gaps, or in memory of the program, may always overlap. */
static void note_overlap(collector *c, const tdict_cursor *cursor, const tdict_tensor *dst) {
  const uintptr_t begin = (uintptr_t)dst->data, end = begin + tdict_tensor_nbytes(dst);
  if (begin == end || c->collected->may_overlap) return;
  const bool foreign = dst->storage->flags & TDICT_STORAGE_FOREIGN;
  const tdict_tree *node = (const tdict_tree *)cursor->frames[cursor->depth - 1].mark;
  if (!foreign && tdict_item_is_unshared(dst) && is_reached_once(&c->reached_dst, cursor, node)) return;
  c->collected->may_overlap = foreign || begin < c->dst_end || !tdict_item_is_plain(dst);
  c->dst_end = end;
}

/* Collects a leaf for transfer_into. The leaf is copied even if an earlier leaf has the same bytes. */
static tdict_status collect_pair(collector *c, const tdict_cursor *cursor, tdict_tensor *src, tdict_leaf other,
                                 tdict_error *err) {
  tdict_tensor *dst = tdict_leaf_tensor(other);
  if (!dst) return tdict_fail(err, TDICT_ETYPE, "transfer_into: a tensor in the source, a tree in the destination");
  const tdict_item_cast *cast = c->make.cast.rule ? &c->make.cast : NULL;
  tdict_status status = tdict_destination_check_leaf(cast ? tdict_item_cast_like(cast, src) : src,
                                                     cast ? cast->cast.to : src->dtype, dst, err);
  if (status != TDICT_OK) return status;
  tdict_item item = {.src = src, .dst = dst, .bytes = tdict_tensor_nbytes(dst), .leaf = c->plan->num_leaves};
  item.src_data = src->data;
  item.dst_data = dst->data;
  note_overlap(c, cursor, dst);
  status = tdict_item_choose_way(&c->make, &item, dst->storage->device, err);
  return status == TDICT_OK ? tdict_item_append(&c->make, &item, err) : status;
}

static tdict_status note_leaf(const collector *c, uint32_t place, const tdict_tensor *t, tdict_error *err) {
  tdict_plan *p = c->plan;
  if (p->num_leaves == p->cap && !tdict_plan_reserve(p, 1)) return fail_plan_memory(err);
  p->item_of_leaf[p->num_leaves++] = place;
  c->collected->num_new += place != TDICT_SHARED;
  c->collected->num_new_dims += place != TDICT_SHARED ? (size_t)t->ndim : 0;
  return TDICT_OK;
}

/* Returns true if a node's objects must be pinned: by tdict_pin_memory(), for a pinned result on the cpu, or on the way
 * to a device in the mode NON_BLOCKING_PIN. In this mode, objects of a tree that is on a device already are not
 * pinned. */
static bool asks_for_pinning(const tdict_plan_request *r, const tdict_tree *node) {
  if (r->dst) return false;
  if (r->device.type == TDICT_DEVICE_CPU) return r->want_pinned;
  return r->mode == TDICT_MODE_NON_BLOCKING_PIN && !(node->has_device && node->device.type != TDICT_DEVICE_CPU);
}

/* Chooses how an object moves: by the hooks pin_memory and to_device rather than flatten. Returns false if it cannot be
 * brought to the target. */
static bool choose_action(collector *c, const tdict_cursor *cursor, tdict_object_step *step) {
  const tdict_type *type = step->box->type;
  const tdict_plan_request *r = c->request;
  const bool must_pin = asks_for_pinning(r, cursor->frames[cursor->depth - 1].node);
  const bool can_pin = TDICT_HOOK_OF(type, pin_memory) != NULL;
  const bool can_move = TDICT_HOOK_OF(type, to_device) && !r->dst;
  const bool can_flatten = TDICT_HOOK_OF(type, flatten) && TDICT_HOOK_OF(type, unflatten);
  step->pin = must_pin && can_pin;
  step->move = !r->host_only && (can_move || (step->pin && can_flatten));
  step->action = step->pin || step->move ? TDICT_OBJECT_HOOK : can_flatten ? TDICT_OBJECT_FLAT : TDICT_OBJECT_KEEP;
  c->plan->objects->num_hooked += step->action == TDICT_OBJECT_HOOK;
  c->plan->objects->num_unpinned += must_pin && !step->pin && step->action != TDICT_OBJECT_FLAT;
  if (r->host_only || can_move || can_flatten) return true;
  c->plan->objects->num_kept++;
  return false;
}

/* Returns the error for an object that cannot be brought to the target. */
static tdict_status fail_unmovable(const tdict_plan_request *r, const tdict_type *type, tdict_error *err) {
  if (r->dst)
    return tdict_fail(err, TDICT_ENOTSUP,
                      "transfer_into: type %.60s has no hook flatten, so its tensors cannot be copied; the option "
                      "keep_objects leaves such objects as they are",
                      type->name);
  return tdict_fail(err, TDICT_ENOTSUP,
                    "transfer: type %.60s has no hook to_device or flatten, so it cannot be moved to %s; the option "
                    "keep_objects leaves such objects as they are",
                    type->name, TDICT_DEVICE_TEXT(r->device));
}

/* Reserves space for all leaves of a node at once. */
static bool reserve_node(collector *c, const tdict_tree *node) {
  return tdict_plan_reserve(c->plan, node->keys->num_live);
}

/* Retains the sources if the plan borrows them. */
static void end_borrowing(tdict_plan *plan) {
  for (uint32_t i = 0; i < plan->num_items && plan->borrows; i++) tdict_tensor_retain(plan->items[i].src);
  plan->borrows = false;
}

static tdict_status add_step(collector *c, tdict_box *box, tdict_error *err) {
  tdict_plan *p = c->plan;
  if (!p->objects) p->objects = calloc(1, sizeof *p->objects);
  tdict_objects *o = p->objects;
  if (!o || !TDICT_RESERVE(o->steps, o->cap, (size_t)o->count + 1)) return fail_plan_memory(err);
  /* Hooks are code of the program and may release tensors that the caller keeps alive. */
  end_borrowing(p);
  o->steps[o->count++] = (tdict_object_step){.box = tdict_box_retain(box), .first_leaf = p->num_leaves};
  return TDICT_OK;
}

/* Collects an object. The object is kept, moved by hooks, or read as a tree of its tensors. */
static tdict_status collect_object(collector *c, tdict_cursor *cursor, tdict_box *box, tdict_leaf other,
                                   tdict_error *err) {
  tdict_tree *other_flat = NULL;
  if (c->flat_depth && cursor->depth >= c->flat_depth)
    return tdict_fail(err, TDICT_EHOOK, "transfer: flatten returned an object of type %.60s, wanted tensors and trees",
                      box->type->name);
  tdict_status status = add_step(c, box, err);
  if (status != TDICT_OK) return status;
  tdict_object_step *step = &c->plan->objects->steps[c->plan->objects->count - 1];
  if (tdict_box_has_fixed_elements(box)) /* the elements are in host memory and are never moved, so the result shares
                                          * the object */
    return c->request->dst ? tdict_box_keep("transfer_into", other, box, true, err) : TDICT_OK;
  if (!choose_action(c, cursor, step) && !c->request->keep_objects) return fail_unmovable(c->request, box->type, err);
  if (step->action == TDICT_OBJECT_KEEP) return c->request->dst ? tdict_flatten_check_pair(box, other, err) : TDICT_OK;
  tdict_cursor_path(cursor, NULL, step->path, sizeof step->path);
  if (step->action == TDICT_OBJECT_HOOK) return TDICT_OK;
  status = c->request->dst ? tdict_flatten_pair(box, other, &step->flat, &other_flat, err)
                           : tdict_flatten_object(box, &step->flat, err);
  if (status != TDICT_OK && err) err->path[0] = 0; /* the path of the object replaces that of the hook */
  if (status == TDICT_OK && other_flat) status = tdict_destination_check_keys(cursor, step->flat, other_flat, err);
  if (status == TDICT_OK && other_flat) { /* the step keeps the destination's tensors alive while the tree is read */
    step->moved = other_flat;
  } else if (other_flat) {
    tdict_release(other_flat);
  }
  if (status != TDICT_OK) return status;
  if (!reserve_node(c, step->flat) || !enter_node(cursor, step->flat, other_flat)) return fail_plan_memory(err);
  c->flat_depth = cursor->depth;
  if (!c->request->keep) c->watch_depth = cursor->depth;
  return TDICT_OK;
}

/* Finds the conversion of the current leaf. Tensors of objects are not converted. */
static TDICT_COLD tdict_status find_cast(collector *c, const tdict_cursor *cursor, const tdict_tensor *t,
                                         tdict_error *err) {
  c->make.cast.rule = 0;
  if (c->flat_depth && cursor->depth >= c->flat_depth) return TDICT_OK;
  return tdict_conversions_find(c->request->conversions, cursor, t, c->plan->wire, &c->make.cast, err);
}

static tdict_status collect_leaf(collector *c, tdict_cursor *cursor, tdict_leaf leaf, tdict_error *err) {
  tdict_tensor *t = tdict_leaf_tensor(leaf);
  tdict_tree *child = tdict_leaf_tree(leaf);
  bool has_dst = c->request->dst != NULL;
  tdict_leaf other = 0;
  tdict_status status = has_dst ? tdict_destination_find(cursor, &other, err) : TDICT_OK;
  if (status != TDICT_OK) return status;
  if (t) {
    uint32_t place = c->plan->num_items;
    if (c->request->conversions) status = find_cast(c, cursor, t, err);
    if (status != TDICT_OK) return status;
    status = has_dst ? collect_pair(c, cursor, t, other, err) : collect_source_leaf(c, cursor, t, &place, err);
    return status == TDICT_OK ? note_leaf(c, place, t, err) : status;
  }
  if (tdict_leaf_box(leaf)) return collect_object(c, cursor, tdict_leaf_box(leaf), other, err);
  tdict_tree *matching = tdict_leaf_tree(other);
  if (has_dst && !matching)
    return tdict_fail(err, TDICT_ETYPE, "transfer_into: a tree in the source, a tensor in the destination");
  if (has_dst) status = tdict_destination_check_keys(cursor, child, matching, err);
  if (status != TDICT_OK) return status;
  return reserve_node(c, child) && enter_node(cursor, child, matching) ? TDICT_OK : fail_plan_memory(err);
}

/* Collects an entry that is not copied, because the entry or a tree above matches a pattern of `keep`. For
 * tdict_transfer_into_async(), only checks that the destination has the key. */
static TDICT_COLD tdict_status keep_entry(collector *c, tdict_cursor *cursor, tdict_leaf leaf, tdict_error *err) {
  const tdict_plan_request *r = c->request;
  tdict_plan *p = c->plan;
  tdict_tensor *t = tdict_leaf_tensor(leaf);
  tdict_tree *child = tdict_leaf_tree(leaf);
  tdict_leaf other;
  tdict_status status = r->dst && !c->kept_depth ? tdict_destination_find(cursor, &other, err) : TDICT_OK;
  if (status != TDICT_OK) return status;
  if (t) {
    c->collected->keeps_elsewhere |= !tdict_device_equal(t->storage->device, r->device);
    if (p->num_leaves == p->cap && !tdict_plan_reserve(p, 1)) return fail_plan_memory(err);
    p->item_of_leaf[p->num_leaves++] = TDICT_SHARED; /* note_leaf() is not called here, because the compiler inlines
                                                      * note_leaf() only while there is one call */
    return TDICT_OK;
  }
  if (!child) return add_step(c, tdict_leaf_box(leaf), err);
  if (!reserve_node(c, child) || !enter_node(cursor, child, NULL)) return fail_plan_memory(err);
  if (!c->kept_depth) c->kept_depth = cursor->depth;
  return TDICT_OK;
}

/* Returns true if the current entry is not copied, because the entry or a tree above matches a pattern of `keep`. Also
 * detects the end of a flattened object or of a kept tree. Tensors of objects match no pattern. */
static TDICT_COLD bool is_kept(collector *c, const tdict_cursor *cursor) {
  tdict_patterns *keep = c->request->keep;
  if (cursor->depth < c->flat_depth) c->flat_depth = 0;
  if (cursor->depth < c->kept_depth) c->kept_depth = 0;
  c->watch_depth = keep ? SIZE_MAX : 0;
  return c->kept_depth || (keep && !c->flat_depth && tdict_patterns_find(keep, cursor) != TDICT_NO_PATTERN);
}

/* Adds a step for each object of a consolidated tree: text, numbers and JSON, which the result shares. */
static tdict_status keep_block_objects(collector *c, const tdict_tree *src, tdict_error *err) {
  tdict_cursor cursor;
  tdict_status status = TDICT_OK;
  tdict_cursor_init(&cursor, src, false);
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next_leaf(&cursor)) != 0;)
    if (tdict_leaf_box(leaf)) status = add_step(c, tdict_leaf_box(leaf), err);
  tdict_cursor_reset(&cursor);
  return cursor.no_memory ? fail_plan_memory(err) : status;
}

/* Writes a new reference to the record of a tree that is copied as one block to *out, or NULL if the leaves must be
 * collected one by one. If a destination was given, or leaves in place are copied too, or the call is
 * tdict_pin_memory(), only consolidated trees are copied as one block, because errors then name a leaf. */
static tdict_status find_block(const collector *c, const tdict_tree *src, tdict_consolidated **out, tdict_error *err) {
  const tdict_plan_request *r = c->request;
  const bool by_leaf = r->keep || r->conversions || (!src->consolidated && (r->dst || r->copies || r->host_only)) ||
                       (r->dst && !tdict_destination_matches(r->dst, src));
  *out = NULL;
  return by_leaf ? TDICT_OK : tdict_block_find(src, out, err);
}

/* Returns true if a leaf of a block can be packed for the option `narrow`. */
static bool has_packed_leaf(collector *c, const tdict_consolidated *block, const tdict_item *item) {
  const tdict_block_layout *layout = block->layout;
  if (!item->gpu || item->kind != TDICT_CU_H2D || tdict_item_is_pinned(&c->make, item->gpu, item->src)) return false;
  for (size_t i = 0; i < layout->num_leaves; i++)
    if (layout->leaves[i].bytes >= TDICT_PACK_MIN_BYTES && tdict_pack_supports(layout->leaves[i].dtype)) return true;
  return false;
}

/* Collects a tree that is one block of memory as one item, which is all bytes of the tree's storage, and sets *done
 * to true. If these bytes are already in place, adds no item. If the tree cannot be copied, returns TDICT_OK without
 * changing *done: the leaves are then collected one by one, so that the error has the path of a leaf. */
static tdict_status collect_block(collector *c, tdict_consolidated *block, bool *done, tdict_error *err) {
  const tdict_plan_request *r = c->request;
  tdict_plan *p = c->plan;
  if (block->layout->num_leaves >= TDICT_SHARED) return TDICT_OK;
  tdict_tensor *bytes = block->bytes, *dst = r->dst ? r->dst->consolidated->bytes : NULL;
  const bool in_place = !dst && is_in_place(c, bytes);
  if (!in_place) {
    tdict_item item = {.src = bytes, .dst = dst, .src_data = bytes->data, .leaf = TDICT_SHARED};
    item.bytes = tdict_tensor_nbytes(bytes);
    item.dst_data = dst ? dst->data : NULL;
    const bool is_wrong = r->host_only && bytes->storage->device.type != TDICT_DEVICE_CPU;
    if (is_wrong || tdict_item_choose_way(&c->make, &item, dst ? dst->storage->device : r->device, NULL) != TDICT_OK ||
        (r->narrow && has_packed_leaf(c, block, &item)))
      return TDICT_OK;
    tdict_status status = tdict_item_append(&c->make, &item, err);
    if (status != TDICT_OK) return status;
    p->block = tdict_consolidated_retain(block);
    c->collected->num_new = block->layout->num_leaves;
    c->collected->num_new_dims = block->layout->num_dims;
  }
  p->num_leaves = (uint32_t)block->layout->num_leaves;
  *done = true;
  return TDICT_OK;
}
static tdict_status collect_if_block(collector *c, const tdict_tree *src, bool *done, tdict_error *err) {
  tdict_consolidated *block;
  tdict_status status = find_block(c, src, &block, err);
  if (!block) return status;
  status = collect_block(c, block, done, err);
  if (status == TDICT_OK && *done && block->layout->has_objects) status = keep_block_objects(c, src, err);
  tdict_consolidated_release(block);
  return status;
}

/* Returns TDICT_ENOTFOUND if a pattern that must match has no match. */
static tdict_status check_patterns(const collector *c, const tdict_tree *src, tdict_error *err) {
  tdict_patterns *keep = c->request->keep;
  tdict_patterns *converted = c->request->conversions ? tdict_conversions_patterns(c->request->conversions) : NULL;
  tdict_status status = keep ? tdict_patterns_check(keep, src, false, err) : TDICT_OK;
  return status == TDICT_OK && converted ? tdict_patterns_check(converted, src, true, err) : status;
}

/* Counts the leaves of flattened objects. Without copied leaves and a destination, the result has the same object. */
static void settle_objects(tdict_plan *p, bool has_destination) {
  for (uint32_t i = 0; i < p->objects->count; i++) {
    tdict_object_step *step = &p->objects->steps[i];
    if (step->action != TDICT_OBJECT_FLAT) continue;
    step->num_leaves = (uint32_t)tdict_num_leaves(step->flat);
    bool travels = false;
    for (uint32_t k = 0; k < step->num_leaves; k++) travels |= p->item_of_leaf[step->first_leaf + k] != TDICT_SHARED;
    if (has_destination) {
      tdict_release(step->moved);
      step->moved = NULL;
    } else if (!travels) {
      step->action = TDICT_OBJECT_KEEP;
    }
  }
}

enum { MOST_MISSES = 64 }; /* after MOST_MISSES failed attempts in a row, the fast path is not tried again */

/* Tries the fast path for the leaves that follow in a node. */
static inline void try_uniform(collector *c, tdict_cursor *cursor) {
  tdict_frame *top = &cursor->frames[cursor->depth - 1];
  const tdict_tree *node = top->node;
  if (top->slot >= node->keys->num_slots || !is_reached_once(&c->reached_src, cursor, node)) return;
  const uint32_t before = c->plan->num_items;
  /* a single leaf needs only one copy, so packing saves nothing */
  c->uniform.stages_small = c->uniform.way == TDICT_WAY_STAGE_IN && node->keys->num_live > 1;
  tdict_uniform_collect(&c->uniform, top);
  c->misses = c->plan->num_items > before ? 0 : c->misses + 1;
}

tdict_status tdict_plan_collect(tdict_collected *collected, const tdict_plan_request *request, const tdict_tree *src,
                                tdict_error *err) {
  tdict_plan *plan = collected->plan;
  collector c = {.collected = collected, .plan = plan, .request = request};
  c.watch_depth = request->keep ? SIZE_MAX : 0;
  tdict_status status = tdict_item_maker_init(&c.make, collected, request, err);
  plan->borrows = request->borrows;
  if (request->conversions) c.same.plan = plan, c.same.wanted = &c.make.cast;
  /* Check the root, then visit all leaves. */
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, src, false);
  cursor.frames[0].mark = (size_t)(uintptr_t)request->dst;
  if (request->dst && status == TDICT_OK) status = tdict_destination_check_keys(&cursor, src, request->dst, err);
  bool done = false;
  if (status == TDICT_OK && src->locked) status = collect_if_block(&c, src, &done, err);
  if (status == TDICT_OK && !done && !reserve_node(&c, src)) status = fail_plan_memory(err);
  if (!done) begin_uniform(&c);
  while (status == TDICT_OK && !done) {
    if (c.uniform.to && cursor.depth && c.misses < MOST_MISSES) try_uniform(&c, &cursor);
    tdict_leaf leaf = tdict_cursor_next(&cursor);
    if (!leaf) break;
    const tdict_frame *top = &cursor.frames[cursor.depth - 1];
    if (top->slot + TDICT_LOOK_NEAR < top->node->keys->num_slots)
      tdict_look_ahead(top->node, top->slot, top->node->keys->num_slots);
    if (cursor.depth >= c.watch_depth || !is_kept(&c, &cursor))
      status = collect_leaf(&c, &cursor, leaf, err);
    else
      status = keep_entry(&c, &cursor, leaf, err);
    if (status != TDICT_OK && err && !err->path[0]) status = tdict_cursor_fail(&cursor, NULL, status, err);
  }
  /* Add the pending references and finish the objects. */
  if (c.make.slab_count) tdict_item_count_slab(&c.make);
  tdict_cursor_reset(&cursor);
  if (c.same.cap) tdict_same_bytes_reset(&c.same);
  if (status == TDICT_OK && (request->keep || request->conversions)) status = check_patterns(&c, src, err);
  if (status == TDICT_OK && request->narrow && !request->conversions) tdict_plan_drop_unused_wire(plan);
  if (status == TDICT_OK && plan->objects) settle_objects(plan, request->dst != NULL);
  if (status != TDICT_OK) tdict_plan_reset(plan);
  return status;
}
