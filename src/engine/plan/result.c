/* Builds the tree that a transfer returns. The tree has the source's keys. The new leaves are allocated in one slab,
 * which is one allocation for many tensors. See result.h for ownership and threads. */
#include "engine/plan/result.h"

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/sched/pool.h"
#include "core/tree/cursor.h"
#include "engine/plan/flatten.h"

/* The state of building one tree. */
typedef struct builder {
  const tdict_collected *collected; /* NULL for a mirror, which has no new leaves */
  const tdict_plan *plan;
  tdict_slab_place place; /* the place of the next new leaf; `slab` is NULL if no leaf is new */
  tdict_storage *arena;   /* NULL: no leaf is new */
  const tdict_device *device;
  bool mirror;     /* true: the new tree is a mirror, see tdict_result_mirror() */
  bool is_further; /* true: the source tree is an earlier result, see tdict_result_for_target() */
  /* the storage of all leaves of the source tree, if the leaves have the same offsets in the arena; otherwise NULL */
  const tdict_storage *block;
  uintptr_t distance;            /* from the data of `block` to the data of the arena */
  const tdict_source_rows *rows; /* the rows of the source that the result has; NULL: all */
  uint32_t leaf, object;
} builder;

static tdict_status fail_result_memory(tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its result");
}

/* Makes a leaf of a block, at the same offset in the arena. `distance` leads from the block's data to the arena's. */
static inline tdict_leaf make_block_leaf(tdict_slab_place *place, uintptr_t distance, const tdict_tensor *src) {
  return tdict_leaf_of_tensor(tdict_slab_add_like(place, src, (void *)((uintptr_t)src->data + distance)));
}

/* Makes the leaf of an item that is not converted. */
static inline tdict_leaf make_item_leaf(const tdict_storage *arena, tdict_slab_place *place, const tdict_item *item,
                                        const tdict_tensor *src) {
  void *data = arena->data ? (void *)((uintptr_t)arena->data + item->offset) : NULL; /* NULL: all leaves are empty */
  return tdict_leaf_of_tensor(tdict_slab_add_like(place, src, data));
}

static tdict_leaf make_result_leaf(builder *b, tdict_tensor *src) {
  if (b->block) return make_block_leaf(&b->place, b->distance, src);
  uint32_t place = b->mirror ? TDICT_SHARED : b->plan->item_of_leaf[b->leaf++];
  if (place == TDICT_SHARED) return tdict_leaf_of_tensor(tdict_tensor_retain(src));
  const tdict_item_cast *cast = b->plan->wire ? tdict_plan_cast(b->plan, place) : NULL;
  const tdict_tensor *like = cast ? tdict_item_cast_like(cast, src) : src;
  const tdict_leaf made = make_item_leaf(b->arena, &b->place, &b->plan->items[place], like);
  /* leaves of different dtypes can share a packed item */
  if (cast && cast->rule) tdict_leaf_tensor(made)->dtype = cast->cast.to;
  return made;
}

/* Returns true if each leaf is new and is not converted: the leaves of a block, or leaf n of the source is item n. */
static bool are_plain(const builder *b) {
  const tdict_plan *p = b->plan;
  if (b->block || b->mirror || b->is_further) return b->block != NULL;
  return p->num_leaves == p->num_items && b->collected->num_uniform == p->num_items;
}

static inline bool is_tensor(tdict_leaf leaf) { return (leaf & TDICT_LEAF_MASK) == TDICT_LEAF_TENSOR; }

/* Prefetch distance, in leaves. */
enum { LOOK_AHEAD = 8 };
/* Prefetches the tensor of a later leaf. The tensors can be scattered over memory. */
static inline void look_ahead(tdict_leaf later) {
  const char *next = tdict_leaf_pointer(later);
  __builtin_prefetch(next);
  if (next) __builtin_prefetch(next + 64);
}

/* Makes plain leaves in `count` slots, up to the first leaf that is not a tensor, and moves the place. `leaf` is the
 * number of the first leaf. Returns the number of slots before the leaf that is not a tensor. */
static uint32_t make_plain_leaves(const builder *b, tdict_slab_place *at, uint32_t leaf, const tdict_leaf *leaves,
                                  tdict_leaf *places, uint32_t count) {
  tdict_slab_place place = *at; /* local copies, which the compiler can keep in registers */
  const uintptr_t distance = b->distance;
  const tdict_item *item = b->block ? NULL : &b->plan->items[leaf];
  uint32_t i = 0;
  if (!item) {
    for (; i < count && is_tensor(leaves[i]); i++) {
      if (i + LOOK_AHEAD < count) look_ahead(leaves[i + LOOK_AHEAD]);
      if (leaves[i]) places[i] = make_block_leaf(&place, distance, (const tdict_tensor *)leaves[i]);
    }
  } else {
    for (; i < count && is_tensor(leaves[i]); i++) {
      if (i + LOOK_AHEAD < count) look_ahead(leaves[i + LOOK_AHEAD]);
      if (leaves[i]) places[i] = make_item_leaf(b->arena, &place, item++, (const tdict_tensor *)leaves[i]);
    }
  }
  *at = place;
  return i;
}

/* Consecutive plain leaves that several threads make, in stretches. */
typedef struct stretches {
  const builder *b;
  const tdict_leaf *leaves; /* tensors, without empty slots */
  tdict_leaf *places;
  uint32_t count;
  _Atomic(size_t) num_dims; /* relaxed: dimensions whose room in the slab was given to stretches */
} stretches;
enum { STRETCH_LEAVES = 1024 };

static void make_stretch(void *user, long n) {
  stretches *s = user;
  const uint32_t first = (uint32_t)n * STRETCH_LEAVES;
  const uint32_t end = s->count - first < STRETCH_LEAVES ? s->count : first + STRETCH_LEAVES;
  size_t num_dims = 0;
  for (uint32_t i = first; i < end; i++) {
    if (i + LOOK_AHEAD < end) look_ahead(s->leaves[i + LOOK_AHEAD]);
    num_dims += (size_t)((const tdict_tensor *)s->leaves[i])->ndim;
  }
  tdict_slab_place place = s->b->place;
  place.next += first;
  place.next_dims += 2 * atomic_fetch_add_explicit(&s->num_dims, num_dims, memory_order_relaxed);
  make_plain_leaves(s->b, &place, s->b->leaf + first, s->leaves + first, s->places + first, end - first);
}

/* Makes plain leaves with helpers, and returns their number. Returns 0 if the leaves are too few for helpers. */
static uint32_t make_with_helpers(builder *b, const tdict_leaf *leaves, tdict_leaf *places, uint32_t count) {
  const tdict_collected *c = b->collected;
  stretches s = {.b = b, .leaves = leaves, .places = places};
  if (count < TDICT_PARALLEL_LEAVES) return 0;
  while (s.count < count && leaves[s.count] && is_tensor(leaves[s.count])) s.count++;
  if (s.count < TDICT_PARALLEL_LEAVES) return 0;
  const long num_stretches = ((long)s.count + STRETCH_LEAVES - 1) / STRETCH_LEAVES;
  tdict_parallel_for(c->pool, c->num_builders, num_stretches, make_stretch, &s);
  b->place.next += s.count;
  b->place.next_dims += 2 * atomic_load_explicit(&s.num_dims, memory_order_relaxed);
  b->leaf += s.count;
  return s.count;
}

/* Makes the tensors of the leaves from slot top->slot up to the first leaf that is not a tensor, and moves the frame to
 * that leaf. */
static void make_leaves(builder *b, tdict_frame *top) {
  const tdict_leaf *leaves = top->node->leaves;
  tdict_leaf *places = ((tdict_tree *)top->mark)->leaves;
  const uint32_t end = top->node->keys->num_slots;
  uint32_t i = top->slot;
  if (i + LOOK_AHEAD < end && are_plain(b)) { /* in a smaller node, the test takes longer than it saves */
    if (b->collected->num_builders) i += make_with_helpers(b, leaves + i, places + i, end - i);
    const tdict_tensor *first = b->place.next;
    i += make_plain_leaves(b, &b->place, b->leaf, leaves + i, places + i, end - i);
    b->leaf += (uint32_t)(b->place.next - first);
  }
  for (; i < end && is_tensor(leaves[i]); i++) {
    if (i + LOOK_AHEAD < end) look_ahead(leaves[i + LOOK_AHEAD]);
    if (leaves[i]) places[i] = make_result_leaf(b, (tdict_tensor *)leaves[i]);
  }
  top->slot = i;
}

static tdict_status make_result_node(const builder *b, const tdict_tree *like, tdict_tree **out, tdict_error *err) {
  tdict_status status = tdict_node_create_like(like, out, err);
  if (status == TDICT_OK && b->device) {
    (*out)->has_device = true;
    (*out)->device = *b->device;
  }
  if (status == TDICT_OK && b->rows) (*out)->batch_size[0] = b->rows->count;
  return status;
}

/* Locks a new node below `parent` if its source is locked. Nodes are locked while the tree is built, because
 * tdict_lock() visits every leaf. */
static void lock_child(tdict_tree *made, const tdict_tree *like, const tdict_tree *parent) {
  if (tdict_node_is_locked(parent))
    atomic_init(&made->locks_above, 1);
  else
    made->locked = tdict_node_is_locked(like);
}

/* Returns the flattened tree of the next object, or NULL if the object is not entered like a tree. Skips the leaves of
 * an object that is kept. */
static tdict_tree *next_flat(builder *b, tdict_object_step **step) {
  *step = &b->plan->objects->steps[b->object++];
  if (b->mirror || (*step)->action == TDICT_OBJECT_FLAT) return (*step)->flat;
  b->leaf += (*step)->num_leaves;
  return NULL;
}

/* Sets the place of an object in the new tree. If the object is entered like a tree, writes the object's flattened tree
 * to *child, and a new node for this tree to *made. Otherwise sets *child to NULL. */
static tdict_status make_object(builder *b, tdict_leaf leaf, tdict_leaf *place, tdict_tree **child, tdict_tree **made,
                                tdict_error *err) {
  tdict_object_step *step;
  *child = NULL;
  if (b->is_further) {
    *place = tdict_leaf_retain(leaf);
    return TDICT_OK;
  }
  *child = next_flat(b, &step);
  if (!b->mirror) step->place = place;
  if (!*child) {
    if (b->mirror || step->action == TDICT_OBJECT_KEEP) *place = tdict_leaf_retain(leaf);
    return TDICT_OK;
  }
  tdict_status status = make_result_node(b, *child, made, err);
  if (status != TDICT_OK) return status;
  if (b->mirror)
    *place = tdict_leaf_of_tree(*made);
  else
    step->moved = *made; /* passed to the hook unflatten after all leaves of this tree are made */
  return TDICT_OK;
}

static tdict_status fill_nodes(builder *b, const tdict_tree *src, tdict_tree *result, tdict_error *err) {
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, src, false);
  cursor.frames[0].mark = (size_t)(uintptr_t)result;
  tdict_status status = TDICT_OK;
  tdict_leaf leaf;
  make_leaves(b, &cursor.frames[0]);
  while (status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0) {
    const tdict_frame *top = &cursor.frames[cursor.depth - 1];
    tdict_leaf *place = &((tdict_tree *)top->mark)->leaves[top->slot - 1];
    tdict_tree *child = tdict_leaf_tree(leaf), *made = NULL;
    if (tdict_leaf_tensor(leaf)) {
      *place = make_result_leaf(b, tdict_leaf_tensor(leaf));
    } else if (child) {
      status = make_result_node(b, child, &made, err);
      if (status == TDICT_OK && !b->mirror) lock_child(made, child, (tdict_tree *)top->mark);
      if (status == TDICT_OK) *place = tdict_leaf_of_tree(made);
    } else {
      status = make_object(b, leaf, place, &child, &made, err);
    }
    if (status != TDICT_OK || !child) continue;
    if (!tdict_cursor_enter(&cursor, child)) {
      status = fail_result_memory(err);
      continue;
    }
    cursor.frames[cursor.depth - 1].mark = (size_t)(uintptr_t)made;
    make_leaves(b, &cursor.frames[cursor.depth - 1]);
  }
  tdict_cursor_reset(&cursor);
  return status;
}

/* Calls the hook unflatten to make an object from the new tensors. */
static tdict_status unflatten_object(tdict_object_step *step, tdict_error *err) {
  tdict_box *box;
  tdict_status status = tdict_unflatten_object(step->box, step->moved, &box, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, step->path);
  *step->place = tdict_leaf_of_box(box);
  return TDICT_OK;
}

static tdict_status unflatten_objects(const tdict_objects *objects, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (uint32_t i = 0; i < objects->count && status == TDICT_OK; i++) {
    tdict_object_step *step = &objects->steps[i];
    if (step->action != TDICT_OBJECT_FLAT) continue;
    status = unflatten_object(step, err);
    tdict_release(step->moved);
    step->moved = NULL;
  }
  return status;
}

/* Makes the result of a consolidated tree consolidated. If the tree has no leaves, the result shares the source's
 * record. */
static tdict_status keep_consolidated(const builder *b, tdict_tree *result, const tdict_tree *src, tdict_error *err) {
  const tdict_consolidated *block = b->plan->block;
  if (block) return tdict_consolidated_create_like(block, b->arena, &result->consolidated, err);
  if (b->plan->num_leaves == 0) result->consolidated = tdict_consolidated_retain(src->consolidated);
  return TDICT_OK;
}

/* Removes the device of each tree of the result that holds, at any depth, a tensor on another device. */
static tdict_status clear_devices(const builder *b, tdict_tree *result, tdict_error *err) {
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, result, false);
  for (tdict_leaf leaf; (leaf = tdict_cursor_next_leaf(&cursor)) != 0;) {
    const tdict_tensor *t = tdict_leaf_tensor(leaf);
    if (!t || tdict_device_equal(t->storage->device, *b->device)) continue;
    /* above a tree without a device, no tree has a device */
    for (size_t i = cursor.depth; i-- && cursor.frames[i].node->has_device;) cursor.frames[i].node->has_device = false;
  }
  tdict_cursor_reset(&cursor);
  return cursor.no_memory ? fail_result_memory(err) : TDICT_OK;
}

/* Cuts the new tensors, which have the shapes of the source, to the rows of the result. Neighbours of equal shape share
 * their counts. */
static void cut_rows(const tdict_source_rows *rows, tdict_slab *slab) {
  for (size_t i = 0; i < slab->num_tensors; i++) {
    tdict_tensor *t = &slab->tensors[i];
    if (i > 0 && t->dims == t[-1].dims) {
      t->numel = t[-1].numel;
      continue;
    }
    t->numel = t->numel / rows->all * rows->count;
    ((int64_t *)(uintptr_t)t->dims)[0] = rows->count;
  }
}

static tdict_status build_tree(builder *b, const tdict_tree *src, tdict_tree **out, tdict_error *err) {
  tdict_tree *result;
  tdict_status status = make_result_node(b, src, &result, err);
  if (status != TDICT_OK) return status;
  if (!b->mirror) result->locked = tdict_node_is_locked(src);
  status = fill_nodes(b, src, result, err);
  tdict_slab *slab = b->place.slab;
  /* also after a failure, because tdict_release() drops one reference for each tensor */
  if (slab) tdict_slab_count(slab, (size_t)(b->place.next - slab->tensors));
  if (slab && b->rows) cut_rows(b->rows, slab);
  if (status == TDICT_OK && b->plan->objects && !b->mirror) status = unflatten_objects(b->plan->objects, err);
  if (status == TDICT_OK && b->device && b->collected->keeps_elsewhere) status = clear_devices(b, result, err);
  if (status == TDICT_OK && src->consolidated && !b->mirror) status = keep_consolidated(b, result, src, err);
  return TDICT_HAND_OVER(status, result, out, tdict_release);
}

/* Creates the slab of the new leaves, and builds the tree. */
static tdict_status build_with_slab(builder *b, const tdict_tree *src, tdict_tree **out, tdict_error *err) {
  const tdict_collected *c = b->collected;
  tdict_slab *slab = NULL;
  tdict_status status = c->num_new ? tdict_slab_create(c->num_new, c->num_new_dims, b->arena, &slab, err) : TDICT_OK;
  if (status != TDICT_OK) return status;
  if (slab) b->place = TDICT_FIRST_PLACE(slab);
  if (b->block && slab) b->distance = (uintptr_t)b->arena->data - (uintptr_t)b->block->data;
  status = build_tree(b, src, out, err);
  if (slab) tdict_slab_release(slab, 1);
  return status;
}

tdict_status tdict_result_build(const tdict_collected *collected, const tdict_tree *src, tdict_storage *arena,
                                const tdict_device *device, tdict_tree **out, tdict_error *err) {
  const tdict_plan *plan = collected->plan;
  const tdict_storage *block = plan->block ? plan->block->bytes->storage : NULL;
  builder b = {
      .collected = collected, .plan = plan, .arena = arena, .device = device, .block = block, .rows = collected->rows};
  return build_with_slab(&b, src, out, err);
}

tdict_status tdict_result_for_target(const tdict_collected *collected, const tdict_tree *result,
                                     const tdict_storage *like, tdict_storage *arena, tdict_tree **out,
                                     tdict_error *err) {
  const tdict_plan own = {.block = result->consolidated, .num_leaves = collected->plan->num_leaves};
  builder b = {.collected = collected,
               .plan = &own,
               .arena = arena,
               .device = &arena->device,
               .is_further = true,
               .block = like};
  return build_with_slab(&b, result, out, err);
}

tdict_status tdict_result_mirror(const tdict_plan *plan, const tdict_tree *src, tdict_tree **out, tdict_error *err) {
  builder b = {.plan = plan, .mirror = true};
  return build_tree(&b, src, out, err);
}

void tdict_leaf_path(const tdict_tree *tree, uint32_t n, char *buffer, size_t bytes) {
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, tree, false);
  tdict_leaf leaf = tdict_cursor_next_leaf(&cursor);
  while (leaf && (!tdict_leaf_tensor(leaf) || n-- != 0)) leaf = tdict_cursor_next_leaf(&cursor);
  tdict_cursor_path(&cursor, NULL, buffer, bytes); /* empty after the last leaf */
  tdict_cursor_reset(&cursor);
}
