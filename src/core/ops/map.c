/* Implements map.h: a first pass measures the new tree, and a second creates it. Thread rule: as in tdict/tree.h. */
#include "core/ops/map.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/tensor/layout.h"
#include "core/tree/agree.h"

enum { MAX_MEMORIES = 16, LEAF_ALIGNMENT = 256 };

/* The storage for all new elements in one memory, of the measured size. `next` is the offset of the next tensor. */
typedef struct arena {
  tdict_memory *memory;
  size_t bytes, next;
  tdict_storage *storage;
} arena;
/* The new tensor for a tensor `from` of the source. */
typedef struct fresh_result {
  const tdict_tensor *from; /* NULL: none, or not to be reused; borrowed from the source */
  tdict_made made;
  arena *arena;
  size_t bytes;         /* aligned */
  tdict_tensor *tensor; /* NULL: not created yet */
} fresh_result;
/* The last view. A map with `repeats_views` makes the views of tensors with the same layout from it. */
typedef struct last_view {
  const tdict_tensor *from; /* NULL: none; borrowed from the source */
  tdict_tensor *tensor;
  uintptr_t distance; /* from the address of `from` to the address of the view */
} last_view;
typedef struct maker {
  const tdict_map *map;
  const tdict_tree *root; /* the source, or a copy with flattened objects; tensors must begin with root->batch_size */
  tdict_cursor cursor;
  size_t entry, tensor; /* numbers of the entry and of the tensor, in cursor order */
  size_t num_tensors, num_dims;
  bool may_be_locked; /* false only if no node of the source is locked */
  bool found_objects; /* true if the source has an object for which stays_closed() returns false */
  tdict_slab *slab;
  arena arenas[MAX_MEMORIES];
  int num_arenas;
  fresh_result last; /* reused only if map->describes_shapes is true */
  last_view view;
} maker;

/* Puts the cursor's path into the error, unless the error has a path already. */
static tdict_status fail_at_leaf(const maker *m, tdict_status status, tdict_error *err) {
  return err && !err->path[0] ? tdict_cursor_fail(&m->cursor, NULL, status, err) : status;
}

/* Chooses the memory of the new elements for `from`. */
static tdict_status choose_result_memory(const tdict_map *map, const tdict_tensor *from, tdict_memory **out,
                                         tdict_error *err) {
  if (map->memory || !map->one_memory) return tdict_tensor_choose_memory(map->what, from, map->memory, out, err);
  *out = NULL;
  return TDICT_OK;
}

/* Finds or adds the arena of a memory. Returns NULL if there are too many memories. */
static arena *get_arena(maker *m, tdict_memory *memory) {
  for (int i = 0; i < m->num_arenas; i++)
    if (m->arenas[i].memory == memory) return &m->arenas[i];
  if (m->num_arenas == MAX_MEMORIES) return NULL;
  arena *added = &m->arenas[m->num_arenas++];
  *added = (arena){memory, 0, 0, NULL};
  return added;
}

static tdict_dtype choose_result_dtype(const tdict_map *map, const tdict_tensor *from) {
  return map->dtype ? map->dtype : from->dtype;
}

/* Returns true if the result shares the tensor. Counts the tensor. */
static bool is_next_tensor_shared(maker *m, const tdict_tensor *from) {
  const size_t tensor = m->tensor++;
  return m->map->changes && !m->map->changes(m->map, tensor, from);
}

/* Returns true if the result of `from` is a new tensor with the layout and the memory of the last new tensor. */
static inline bool is_like_last(const maker *m, const tdict_tensor *from) {
  const tdict_tensor *last = m->last.from;
  if (!last) return false;
  if (last->dtype != from->dtype || !tdict_shapes_equal(last->ndim, last->dims, from->ndim, from->dims)) return false;
  const tdict_storage *a = last->storage, *b = from->storage;
  return a->memory == b->memory && tdict_storage_devices_equal(a, b);
}

/* Adds the aligned size of a new tensor to the size of the arena that will hold the tensor. */
static tdict_status add_fresh(const maker *m, arena *a, size_t bytes, tdict_error *err) {
  size_t sum;
  if (!tdict_add_size(a->bytes, bytes, &sum) || sum > INT64_MAX)
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: the size of the result does not fit in 63 bits", m->map->what);
  a->bytes = sum;
  return TDICT_OK;
}

/* Measures the new tensor that m->last.made describes. */
static tdict_status measure_fresh(maker *m, const tdict_tensor *from, tdict_error *err) {
  const tdict_made *made = &m->last.made;
  tdict_memory *memory;
  tdict_layout_size size;
  tdict_status status = choose_result_memory(m->map, from, &memory, err);
  if (status == TDICT_OK)
    status = tdict_layout_check(m->map->what, choose_result_dtype(m->map, from), made->ndim, made->shape, &size, err);
  if (status != TDICT_OK) return status;
  arena *a = get_arena(m, memory);
  if (!a)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: the tensors of the tree are in more than %d memories", m->map->what,
                      MAX_MEMORIES);
  size_t aligned;
  if (!tdict_round_up(size.bytes, LEAF_ALIGNMENT, &aligned)) aligned = SIZE_MAX; /* add_fresh() then fails */
  m->last.arena = a;
  m->last.bytes = aligned;
  if (m->map->describes_shapes) m->last.from = from;
  return add_fresh(m, a, aligned, err);
}

/* Counts a tensor, and the bytes of its result if the result is a new tensor. */
static tdict_status measure_tensor(maker *m, const tdict_tensor *from, tdict_error *err) {
  /* The program can have changed a child through a borrowed pointer. Offsets must not come from dimensions that the
   * tensor does not have. */
  if (!tdict_tensor_begins_with(from, m->map->batch_in, m->root->batch_size))
    return tdict_batch_mismatch(m->map->what, m->root, from, err);
  if (is_next_tensor_shared(m, from)) return TDICT_OK;
  if (m->map->becomes_object && m->map->becomes_object(m->map, m->entry)) return TDICT_OK;
  m->num_tensors++;
  m->num_dims += (size_t)(from->ndim + m->map->more_dims);
  if (!m->map->fill) return TDICT_OK;
  if (is_like_last(m, from)) return add_fresh(m, m->last.arena, m->last.bytes, err);
  m->last.from = NULL;
  tdict_status status = m->map->describe(m->map, m->entry, from, &m->last.made, err);
  return status == TDICT_OK && m->last.made.fresh ? measure_fresh(m, from, err) : status;
}

/* Returns true if the object stays closed, so that its tensors need not be mapped. Built-in ones do, but not for
 * TDICT_OBJECT_CLONE, nor those with elements for TDICT_OBJECT_ELEMENTS. The program's do only if they have no
 * `flatten` and `keeps_bare` is true. */
static bool stays_closed(const tdict_map *map, const tdict_box *box) {
  if (!tdict_builtin_of(box->type)) return map->keeps_bare && !TDICT_HOOK_OF(box->type, flatten);
  if (map->way == TDICT_OBJECT_CLONE) return false;
  return map->way != TDICT_OBJECT_ELEMENTS || !tdict_box_has_elements(box);
}

/* Counts the tensors that follow in the node and fit the batch size. Each of them gets a view. */
static void measure_views(maker *m) {
  tdict_frame *top = &m->cursor.frames[m->cursor.depth - 1];
  const uint32_t first = top->slot, end = top->node->keys->num_slots;
  for (const tdict_tensor *t; top->slot < end && (t = tdict_leaf_tensor(top->node->leaves[top->slot])); top->slot++) {
    if (!tdict_tensor_begins_with(t, m->map->batch_in, m->root->batch_size)) break;
    m->num_dims += (size_t)(t->ndim + m->map->more_dims);
  }
  m->entry += top->slot - first;
  m->num_tensors += top->slot - first;
}

/* Measures all leaves, up to an object that does not stay closed: then flattened objects are mapped again. */
static tdict_status measure_all(maker *m, tdict_error *err) {
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(&m->cursor)) != 0; m->entry++) {
    tdict_tree *tree = tdict_leaf_tree(leaf);
    tdict_tensor *tensor = tdict_leaf_tensor(leaf);
    if (tree) {
      m->may_be_locked = m->may_be_locked || tdict_node_is_locked(tree);
      tdict_cursor_descend(&m->cursor, tree, 0);
      continue;
    }
    const bool is_closed = !tensor && stays_closed(m->map, tdict_leaf_box(leaf));
    m->found_objects = m->found_objects || (!tensor && !m->map->objects_opened && !is_closed);
    if (m->found_objects) return TDICT_OK;
    tdict_status status = tensor ? measure_tensor(m, tensor, err) : TDICT_OK;
    if (status != TDICT_OK) return fail_at_leaf(m, status, err);
    if (tensor && m->map->repeats_views) measure_views(m);
  }
  return tdict_cursor_check(&m->cursor, m->map->what, err);
}

/* Allocates one storage per memory and one slab for all tensors. */
static tdict_status allocate_result(maker *m, tdict_error *err) {
  for (int i = 0; i < m->num_arenas; i++) {
    arena *a = &m->arenas[i];
    tdict_status status = tdict_storage_create(a->memory, a->bytes, false, &a->storage, err);
    if (status != TDICT_OK) return status;
    a->storage->flags |= TDICT_STORAGE_ARENA;
  }
  return m->num_tensors ? tdict_slab_create(m->num_tensors, m->num_dims, NULL, &m->slab, err) : TDICT_OK;
}

/* Returns the number of batch dimensions of `from` after the mapped dimensions. Returns 0 if `from` does not begin with
 * the mapped dimensions of the root, which is possible if the program has changed the batch size of a child. */
static int count_kept_dims(const tdict_map *map, const tdict_tree *root, const tdict_tree *from) {
  if (from->batch_ndim < map->batch_in) return 0;
  return tdict_sizes_equal(from->batch_size, root->batch_size, map->batch_in) ? from->batch_ndim - map->batch_in : 0;
}

/* Creates the node for `from`, with empty slots for its leaves. */
static tdict_status make_mapped_node(const maker *m, const tdict_tree *root, const tdict_tree *from, tdict_tree **out,
                                     tdict_error *err) {
  const tdict_map *map = m->map;
  int num_kept = count_kept_dims(map, root, from);
  if (map->batch_out + num_kept > TDICT_MAX_BATCH_NDIM)
    return tdict_fail(err, TDICT_ESHAPE, "%s: a tree would have %d batch dimensions, wanted at most %d", map->what,
                      map->batch_out + num_kept, TDICT_MAX_BATCH_NDIM);
  tdict_tree *node;
  tdict_status status = tdict_node_create_like(from, &node, err);
  if (status != TDICT_OK) return status;
  node->batch_ndim = map->batch_out + num_kept;
  for (int i = 0; i < map->batch_out; i++) node->batch_size[i] = map->batch_size[i];
  for (int i = 0; i < num_kept; i++) node->batch_size[map->batch_out + i] = from->batch_size[map->batch_in + i];
  /* If `changes` is set, the result can share tensors, which stay on their device. */
  if (map->memory && node->has_device && !map->changes) node->device = map->memory->device;
  if (!map->memory && map->one_memory) node->device = tdict_cpu();
  *out = node;
  return TDICT_OK;
}

/* Creates and fills the new tensor that m->last describes. */
static tdict_status make_fresh(maker *m, const tdict_tensor *from, tdict_leaf *to, tdict_error *err) {
  fresh_result *last = &m->last;
  arena *a = last->arena;
  void *data = a->storage->data ? (void *)((uintptr_t)a->storage->data + a->next) : NULL;
  if (last->tensor) {
    last->tensor = tdict_slab_add_repeated(m->slab, last->tensor, a->storage, data);
  } else {
    const tdict_tensor_desc view = {
        .data = data, .dtype = choose_result_dtype(m->map, from), .ndim = last->made.ndim, .shape = last->made.shape};
    last->tensor = tdict_slab_add_view(m->slab, a->storage, &view);
    last->bytes = tdict_align(tdict_tensor_nbytes(last->tensor), LEAF_ALIGNMENT);
  }
  a->next += last->bytes;
  *to = tdict_leaf_of_tensor(last->tensor);
  return last->tensor->numel ? m->map->fill(m->map, m->entry, from, last->tensor, err) : TDICT_OK;
}

/* Creates the view that m->last.made describes. */
static tdict_tensor *make_view(maker *m, const tdict_tensor *from) {
  const tdict_made *made = &m->last.made;
  const tdict_tensor_desc desc = {
      .data = made->data, .dtype = from->dtype, .ndim = made->ndim, .shape = made->shape, .strides = made->strides};
  tdict_tensor *view = tdict_slab_add_view(m->slab, from->storage, &desc);
  if (m->map->repeats_views) m->view = (last_view){from, view, (uintptr_t)view->data - (uintptr_t)from->data};
  return view;
}

/* Returns true if the view of `from` differs from the last view only in its address and its storage. */
static inline bool is_view_like_last(const maker *m, const tdict_tensor *from) {
  const tdict_tensor *last = m->view.from;
  return last && last->dtype == from->dtype && last->ndim == from->ndim &&
         tdict_sizes_equal(last->dims, from->dims, 2 * from->ndim);
}

/* Makes the views of `from`, which the cursor returned last, and of the tensors that follow in its node and are like
 * `from`. Not inlined, so that the loop keeps its values in registers. */
static __attribute__((noinline)) void repeat_view(maker *m, const tdict_tensor *from, tdict_leaf *to) {
  tdict_frame *top = &m->cursor.frames[m->cursor.depth - 1];
  const tdict_leaf *next = &top->node->leaves[top->slot], *end = &top->node->leaves[top->node->keys->num_slots];
  const tdict_tensor like = *m->view.tensor;
  tdict_slab_place place = TDICT_NEXT_PLACE(m->slab);
  size_t count = 0; /* of the tensors that follow */
  do {
    void *data = (void *)((uintptr_t)from->data + m->view.distance);
    to[count] = tdict_leaf_of_tensor(tdict_slab_repeat(&place, &like, from->storage, data));
  } while (next < end && (from = tdict_leaf_tensor(*next++)) && is_view_like_last(m, from) && ++count);
  top->slot += (uint32_t)count;
  m->entry += count;
  tdict_slab_count(m->slab, count + 1);
}

/* Creates the result of a tensor: the tensor itself, a view, or a new tensor in the arena of its memory. */
static tdict_status make_mapped_tensor(maker *m, const tdict_tensor *from, tdict_leaf *to, tdict_error *err) {
  tdict_made *made = &m->last.made;
  tdict_memory *memory;
  if (is_next_tensor_shared(m, from)) {
    *to = tdict_leaf_of_tensor(tdict_tensor_retain(from));
    return TDICT_OK;
  }
  if (is_like_last(m, from)) return make_fresh(m, from, to, err);
  if (is_view_like_last(m, from)) return repeat_view(m, from, to), TDICT_OK;
  m->last.from = NULL;
  m->last.tensor = NULL;
  tdict_status status = m->map->describe(m->map, m->entry, from, made, err);
  if (status == TDICT_OK && !made->fresh) {
    *to = tdict_leaf_of_tensor(make_view(m, from));
    return TDICT_OK;
  }
  if (status == TDICT_OK) status = choose_result_memory(m->map, from, &memory, err);
  if (status != TDICT_OK) return status;
  m->last.arena = get_arena(m, memory);
  if (m->map->describes_shapes) m->last.from = from;
  return make_fresh(m, from, to, err);
}

/* Writes the positions that `describe` and `fill` select, by copying from a tensor that holds positions. */
static tdict_status copy_positions(const maker *m, int64_t *positions, size_t bytes, tdict_error *err) {
  const tdict_map *map = m->map;
  tdict_tensor *from = NULL, *selected = NULL;
  tdict_status status = tdict_tensor_empty(TDICT_I64, map->batch_in, m->root->batch_size, NULL, &from, err);
  if (status == TDICT_OK) status = tdict_tensor_empty(TDICT_I64, map->batch_out, map->batch_size, NULL, &selected, err);
  if (status == TDICT_OK) {
    for (int64_t i = 0; i < from->numel; i++) ((int64_t *)from->data)[i] = i;
    if (selected->numel) status = map->fill(map, m->entry, from, selected, err);
  }
  if (status == TDICT_OK && bytes) memcpy(positions, selected->data, bytes);
  tdict_tensor_release(from);
  tdict_tensor_release(selected);
  return status;
}

/* Writes the positions of all elements of a view that begins at element `first`, in C order. */
static void list_positions(const tdict_made *view, int64_t first, int64_t count, int64_t *positions) {
  int64_t index[TDICT_MAX_NDIM] = {0};
  for (int64_t k = 0; k < count; k++) {
    int64_t at = first;
    for (int d = 0; d < view->ndim; d++) at += index[d] * view->strides[d];
    positions[k] = at;
    for (int d = view->ndim - 1; d >= 0 && ++index[d] == view->shape[d]; d--) index[d] = 0;
  }
}

/* Makes an array of the positions of the elements that the map selects. */
static tdict_status find_positions(const maker *m, int64_t **out, tdict_error *err) {
  const tdict_map *map = m->map;
  tdict_layout_size size;
  tdict_made view = {.ndim = map->batch_in};
  tdict_temp temp;
  tdict_status status = tdict_layout_check(map->what, TDICT_I64, map->batch_out, map->batch_size, &size, err);
  if (status != TDICT_OK) return status;
  int64_t *positions = malloc(size.bytes ? size.bytes : 1);
  if (!positions)
    return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for %zu bytes of positions", map->what, size.bytes);
  /* A map of a tensor at address 0 with elements of one byte makes each element's address its position. */
  tdict_storage storage = {.device = tdict_cpu()};
  const tdict_tensor over = {.storage = &storage, .dtype = TDICT_U8};
  memcpy(view.shape, m->root->batch_size, (size_t)view.ndim * sizeof *view.shape);
  tdict_layout_strides(view.ndim, view.shape, view.strides);
  status = map->describe(map, m->entry, tdict_temp_over(&temp, &over, &view), &view, err);
  if (status == TDICT_OK && view.fresh)
    status = copy_positions(m, positions, size.bytes, err);
  else if (status == TDICT_OK)
    list_positions(&view, (int64_t)(uintptr_t)view.data, size.numel, positions);
  return TDICT_HAND_OVER(status, positions, out, free);
}

/* Arranges the elements of an object of a built-in type. */
static tdict_status arrange_builtin(const maker *m, const tdict_box *box, tdict_leaf *out, tdict_error *err) {
  const tdict_map *map = m->map;
  const tdict_builtin *builtin = tdict_builtin_of(box->type);
  int64_t *positions = NULL;
  tdict_arrangement to = {.dims_in = map->batch_in, .ndim = map->batch_out, .shape = map->batch_size};
  tdict_status status = TDICT_OK;
  if (!map->pick && builtin->elements)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: not possible for a leaf of type %.60s", map->what, box->type->name);
  to.is_list = map->pick && map->pick->positions;
  if (to.is_list && map->pick->at.depth == 0) {
    /* Copy whole rows of the first dimension, and do not list the positions of all elements. */
    to.dims_in = to.ndim = 1;
    to.at = map->pick->positions;
  } else {
    status = find_positions(m, &positions, err);
    to.at = positions;
  }
  if (status == TDICT_OK) status = builtin->arrange(box->self, &to, out, err);
  free(positions);
  return status;
}

/* Creates the result of an object of a built-in type. `node` is the new node that will hold the result. */
static tdict_status make_mapped_builtin(const maker *m, const tdict_tree *node, tdict_box *box, tdict_leaf *to,
                                        tdict_error *err) {
  const tdict_map *map = m->map;
  const int64_t *sizes;
  tdict_box *made;
  if (!tdict_box_begins_with(box, map->batch_in, m->root->batch_size))
    return tdict_box_mismatch(map->what, m->root, box, err);
  if (!map->join && tdict_builtin_of(box->type)->batch(box->self, &sizes) > 0) return arrange_builtin(m, box, to, err);
  tdict_status status = TDICT_OK;
  if (map->join)
    status = map->join(map, m->entry, box, node, &made, err);
  else
    made = tdict_box_retain(box);
  if (status == TDICT_OK) *to = tdict_leaf_of_box(made);
  return status;
}

/* Returns TDICT_ESHAPE if a built-in object does not fit its node. A child can have more batch dimensions. */
static tdict_status check_mapped_builtin(const maker *m, const tdict_tree *node, tdict_leaf made, tdict_error *err) {
  const tdict_box *box = tdict_leaf_box(made);
  if (!box || tdict_box_begins_with(box, node->batch_ndim, node->batch_size)) return TDICT_OK;
  return tdict_box_mismatch(m->map->what, node, box, err);
}

/* Creates the object that replaces the tensors of an entry. */
static tdict_status make_object_of_tensors(const maker *m, const tdict_tree *node, tdict_leaf *to, tdict_error *err) {
  tdict_box *made;
  tdict_status status = m->map->join(m->map, m->entry, NULL, node, &made, err);
  if (status == TDICT_OK) *to = tdict_leaf_of_box(made);
  return status;
}

static tdict_status make_mapped_leaf(maker *m, const tdict_tree *node, tdict_leaf from, tdict_leaf *to,
                                     tdict_error *err) {
  tdict_box *box = tdict_leaf_box(from), *made;
  if (!box && m->map->becomes_object && m->map->becomes_object(m->map, m->entry))
    return make_object_of_tensors(m, node, to, err);
  if (!box) return make_mapped_tensor(m, tdict_leaf_tensor(from), to, err);
  const bool is_closed = stays_closed(m->map, box);
  if (m->map->way == TDICT_OBJECT_SHARE || (is_closed && m->map->way == TDICT_OBJECT_ELEMENTS)) {
    *to = tdict_leaf_retain(from);
    return TDICT_OK;
  }
  if (is_closed) return make_mapped_builtin(m, node, box, to, err);
  tdict_error hook_error = {0};
  const tdict_map *map = m->map;
  tdict_status status = map->way == TDICT_OBJECT_CLONE   ? tdict_box_clone(box, &made, &hook_error)
                        : map->way == TDICT_OBJECT_INDEX ? tdict_box_index(box, &map->pick->at, &made, &hook_error)
                                                         : map->join(map, m->entry, box, node, &made, &hook_error);
  if (status != TDICT_OK) {
    hook_error.path[0] = 0; /* remove the path that the hook set; fail_at_leaf() sets the path of the object */
    if (err) *err = hook_error;
    return status;
  }
  *to = tdict_leaf_of_box(made);
  return TDICT_OK;
}

/* Creates all leaves and child nodes. A frame's mark is the new node for the frame's node. */
static tdict_status make_all_leaves(maker *m, const tdict_tree *root, tdict_tree *made, tdict_error *err) {
  tdict_cursor *c = &m->cursor;
  tdict_cursor_rewind(c, root);
  c->frames[0].mark = (size_t)made;
  m->entry = m->tensor = 0;
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(c)) != 0; m->entry++) {
    const tdict_frame *top = &c->frames[c->depth - 1];
    tdict_tree *above = (tdict_tree *)top->mark, *from = tdict_leaf_tree(leaf), *node = NULL;
    tdict_leaf *to = &above->leaves[top->slot - 1];
    tdict_status status =
        from ? make_mapped_node(m, root, from, &node, err) : make_mapped_leaf(m, above, leaf, to, err);
    if (status == TDICT_OK && !from) status = check_mapped_builtin(m, above, *to, err);
    if (status != TDICT_OK) return fail_at_leaf(m, status, err);
    if (!from) continue;
    *to = tdict_leaf_of_tree(node);
    tdict_cursor_descend(c, from, (size_t)node);
  }
  return tdict_cursor_check(c, m->map->what, err);
}

/* Locks the new nodes of locked nodes. Visits the nodes of make_all_leaves(), so the cursor needs no memory. */
static void copy_locks(maker *m, const tdict_tree *root, tdict_tree *made) {
  tdict_cursor *c = &m->cursor;
  if (tdict_node_is_locked(root)) tdict_lock(made);
  tdict_cursor_rewind(c, root);
  c->frames[0].mark = (size_t)made;
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(c)) != 0;) {
    tdict_tree *from = tdict_leaf_tree(leaf);
    if (!from) continue;
    const tdict_frame *top = &c->frames[c->depth - 1];
    tdict_tree *node = tdict_leaf_tree(((tdict_tree *)top->mark)->leaves[top->slot - 1]);
    if (tdict_node_is_locked(from)) tdict_lock(node);
    tdict_cursor_descend(c, from, (size_t)node);
  }
}

/* Makes the moves. Puts the path of a failed entry into the error. */
static tdict_status run_moves(maker *m, const tdict_tree *root, tdict_error *err) {
  tdict_moves *moves = m->map->moves;
  tdict_status status = tdict_moves_run(moves, err);
  if (status == TDICT_OK || !moves->has_failed_entry) return status;
  tdict_cursor_rewind(&m->cursor, root);
  for (size_t entry = 0; entry <= moves->failed_entry; entry++) {
    tdict_tree *tree = tdict_leaf_tree(tdict_cursor_next(&m->cursor));
    if (tree) tdict_cursor_descend(&m->cursor, tree, 0); /* needs no memory: the cursor has entered the nodes before */
  }
  return fail_at_leaf(m, status, err);
}

/* Measures and creates the tree, without locks. If measure_all() stops at an object, creates nothing. */
static tdict_status map_once(maker *m, const tdict_tree *td, tdict_tree **out, tdict_error *err) {
  tdict_tree *made = NULL;
  m->entry = m->tensor = m->num_tensors = m->num_dims = 0;
  m->found_objects = false;
  m->root = td;
  m->slab = NULL;
  m->num_arenas = 0;
  m->last.from = NULL;
  m->last.tensor = NULL;
  m->view.from = NULL;
  tdict_cursor_rewind(&m->cursor, td);
  tdict_status status = measure_all(m, err);
  if (status != TDICT_OK || m->found_objects) return status;
  status = allocate_result(m, err);
  if (status == TDICT_OK) status = make_mapped_node(m, td, td, &made, err);
  if (status == TDICT_OK) status = make_all_leaves(m, td, made, err);
  if (status == TDICT_OK && m->map->moves) status = run_moves(m, td, err);
  /* Drop the references of this call; the tensors hold separate references. */
  for (int i = 0; i < m->num_arenas; i++) tdict_storage_release(m->arenas[i].storage);
  if (m->slab) tdict_slab_release(m->slab, 1);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}

/* Maps a copy of the tree with flattened objects, and makes objects from the results again. */
static tdict_status map_opened_objects(maker *m, const tdict_tree *td, tdict_tree **out, tdict_error *err) {
  const tdict_map *map = m->map;
  const tdict_flatten_rule opening = {map->what,      map->way, map->memory != NULL, map->batch_in,
                                      td->batch_size, NULL,     map->keeps_bare};
  tdict_map changed = *map;
  tdict_tree *opened, *made = NULL;
  tdict_status status = tdict_objects_flatten(&opening, td, &opened, err);
  if (status != TDICT_OK) return status;
  changed.objects_opened = true;
  m->map = &changed;
  status = map_once(m, opened, &made, err);
  if (status == TDICT_OK) status = tdict_objects_unflatten(map->what, td, made, err);
  m->map = map;
  tdict_release(opened);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}

tdict_status tdict_map_run(const tdict_map *map, const tdict_tree *td, tdict_tree **out, tdict_error *err) {
  maker m;
  tdict_tree *made = NULL;
  m.map = map;
  m.may_be_locked = tdict_node_is_locked(td);
  tdict_cursor_init(&m.cursor, td, false);
  tdict_status status = tdict_moves_check_objects(map->moves, td, err);
  if (status == TDICT_OK) status = map_once(&m, td, &made, err);
  if (status == TDICT_OK && m.found_objects) {
    status = map_opened_objects(&m, td, &made, err);
    m.may_be_locked = true; /* the first measuring pass stopped at the first object, so it did not visit all nodes */
  }
  if (status == TDICT_OK && m.may_be_locked && !map->drops_locks) copy_locks(&m, td, made);
  tdict_cursor_reset(&m.cursor);
  if (map->moves) tdict_moves_reset(map->moves);
  if (status == TDICT_OK) *out = made;
  return status;
}

tdict_status tdict_map_describe_new(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                    tdict_error *err) {
  (void)map, (void)entry, (void)err;
  tdict_made_of(from, made);
  made->fresh = true;
  return TDICT_OK;
}

tdict_status tdict_map_leave_unset(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                                   tdict_error *err) {
  (void)map, (void)entry, (void)from, (void)made, (void)err;
  return TDICT_OK;
}

tdict_status tdict_map_share(const tdict_tree *td, const char *what, tdict_tree **out, tdict_error *err) {
  tdict_tree *made;
  tdict_cursor cursor;
  bool trees;
  tdict_status status = tdict_node_create_sharing(td, &made, &trees, err);
  if (status != TDICT_OK) return status;
  if (!trees) {
    *out = made;
    return TDICT_OK;
  }
  tdict_cursor_init(&cursor, td, false);
  cursor.frames[0].mark = (size_t)made;
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    const tdict_frame *top = &cursor.frames[cursor.depth - 1];
    tdict_tree *from = tdict_leaf_tree(leaf), *node = NULL;
    if (!from) continue; /* tdict_node_create_sharing() has shared this leaf */
    status = tdict_node_create_sharing(from, &node, &trees, err);
    if (status != TDICT_OK) break;
    ((tdict_tree *)top->mark)->leaves[top->slot - 1] = tdict_leaf_of_tree(node);
    if (trees) tdict_cursor_descend(&cursor, from, (size_t)node);
  }
  status = tdict_cursor_end(&cursor, what, status, err);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}

tdict_status tdict_map_adopt(const tdict_tree *under, tdict_leaf leaf, const char *what, tdict_leaf *out,
                             tdict_error *err) {
  const tdict_tensor *tensor = tdict_leaf_tensor(leaf);
  if (tensor && tdict_node_agrees(under, tensor)) { /* the common case */
    *out = tdict_leaf_retain_inline(leaf);
    return TDICT_OK;
  }
  tdict_demand demand = tdict_demand_of(under, what, NULL);
  tdict_tree *tree = tdict_leaf_tree(leaf), *copy, *adopted;
  tdict_status status;
  if (!tree) {
    status = tdict_agree_leaf(&demand, leaf, NULL, err);
    if (status == TDICT_OK) *out = tdict_leaf_retain(leaf);
    return status;
  }
  status = tdict_map_share(tree, what, &copy, err);
  if (status != TDICT_OK) return status;
  status = tdict_agree_adopt(&demand, copy, &adopted, err);
  tdict_release(copy);
  if (status == TDICT_OK) *out = tdict_leaf_of_tree(adopted);
  return status;
}
