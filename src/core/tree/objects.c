/* Handles objects in operations on trees: calls hooks, flattens objects, and makes objects from flattened trees. A box
 * or tree owns the result of each hook at once, so an error cannot leak the result. Thread rule: see objects.h. */
#include "core/tree/objects.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/tree/agree.h"

enum { PATH_BYTES = sizeof((tdict_error *)NULL)->path };

/* Returns true if the operation does not flatten objects of this type. */
static bool handles_itself(const tdict_flatten_rule *o, const tdict_type *type) {
  /* A deep copy can flatten a built-in object. For TDICT_OBJECT_ELEMENTS, its function `elements` does. Other
   * operations on the tensors could make the object invalid. */
  const tdict_builtin *builtin = tdict_builtin_of(type);
  if (builtin && o->way != TDICT_OBJECT_CLONE) return o->way != TDICT_OBJECT_ELEMENTS || !builtin->elements;
  if (o->keeps_bare && !TDICT_HOOK_OF(type, flatten)) return true;
  if (o->tensors_first && TDICT_HOOK_OF(type, flatten)) return false;
  switch (o->way) {
  case TDICT_OBJECT_SHARE:
    return true;
  case TDICT_OBJECT_CLONE:
    return TDICT_HOOK_OF(type, clone) != NULL;
  case TDICT_OBJECT_INDEX:
    return TDICT_HOOK_OF(type, index) != NULL;
  case TDICT_OBJECT_STACK:
    return TDICT_HOOK_OF(type, stack) != NULL;
  default:
    return false;
  }
}

tdict_status tdict_box_clone(tdict_box *box, tdict_box **out, tdict_error *err) {
  void *result = NULL;
  tdict_error hook_err = {0};
  tdict_status status = box->type->clone(box->self, &result, &hook_err);
  status = tdict_hook_finish(box->type, "clone", status, result, &hook_err, err);
  return status == TDICT_OK ? tdict_box_of(box, result, out, err) : status;
}

tdict_status tdict_box_index(tdict_box *box, const tdict_element_index *pick, tdict_box **out, tdict_error *err) {
  /* The index hook selects an element of the first dimension only, so select in one dimension after another. */
  tdict_box *current = tdict_box_retain(box);
  for (int i = 0; i < pick->depth; i++) {
    void *result = NULL;
    tdict_box *next = NULL;
    tdict_error hook_err = {0};
    tdict_status status = box->type->index(current->self, pick->at[i], &result, &hook_err);
    status = tdict_hook_finish(box->type, "index", status, result, &hook_err, err);
    if (status == TDICT_OK) status = tdict_box_of(current, result, &next, err);
    tdict_box_release(current);
    if (status != TDICT_OK) return status;
    current = next;
  }
  *out = current;
  return TDICT_OK;
}

/* Returns true if the axis keeps every element of its dimension at its index. */
static bool is_whole_axis(const tdict_axis *axis, int64_t start, int64_t size) {
  return axis->count == size && start == 0 && (axis->step == 1 || axis->count <= 1);
}

bool tdict_pick_of(const tdict_affine *a, const int64_t *shape, tdict_pick *pick) {
  const int depth = a->ndim_in - a->ndim_out;
  if (depth < 0) return false;
  for (int i = 0; i < a->ndim_out; i++) {
    const tdict_axis *axis = &a->axes[i];
    if (axis->from != depth + i || (i > 0 && !is_whole_axis(axis, a->starts[depth + i], shape[depth + i])))
      return false;
  }
  *pick = (tdict_pick){.at.depth = depth};
  for (int i = 0; i < depth; i++) pick->at.at[i] = a->starts[i];
  if (a->ndim_out == 0) return true;
  pick->start = a->starts[depth];
  pick->count = a->axes[0].count;
  pick->step = a->axes[0].step;
  pick->selects = !is_whole_axis(&a->axes[0], pick->start, shape[depth]);
  return true;
}

static tdict_status fail_builtin(const char *what, const tdict_type *type, tdict_error *err) {
  return tdict_fail(err, TDICT_ENOTSUP, "%s: not possible for a leaf of type %.60s", what, type->name);
}

/* Writes to *out the positions in the first dimension that the pick selects. If the pick has no list of positions,
 * allocates the list and sets *made to the list. Otherwise sets *made to NULL. The caller frees *made. */
static tdict_status list_positions(const tdict_pick *pick, const char *what, tdict_positions *out, int64_t **made,
                                   tdict_error *err) {
  const size_t count = (size_t)pick->count;
  *made = NULL;
  *out = (tdict_positions){pick->positions, pick->count};
  if (pick->positions || count == 0) return TDICT_OK;
  *made = count <= SIZE_MAX / sizeof **made ? malloc(count * sizeof **made) : NULL;
  if (!*made) return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for a list of %zu positions", what, count);
  for (size_t i = 0; i < count; i++) (*made)[i] = pick->start + (int64_t)i * pick->step;
  out->at = *made;
  return TDICT_OK;
}

/* Returns the number of batch dimensions of an object of a built-in type. */
static int count_batch_dims(const tdict_box *box) {
  const int64_t *sizes;
  return tdict_builtin_of(box->type)->batch(box->self, &sizes);
}

tdict_status tdict_box_join(const tdict_leaf *boxes, size_t count, const tdict_joining *how, tdict_box **out,
                            tdict_error *err) {
  const tdict_type *type = tdict_leaf_box(boxes[0])->type;
  const tdict_builtin *builtin = tdict_builtin_of(type);
  const void **items = malloc(count * sizeof *items); /* cannot overflow: the caller has an array of `count` pointers */
  void *result = NULL;
  tdict_error hook_err = {0};
  if (!items)
    return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for a list of %zu objects", how->is_stack ? "stack" : "cat",
                      count);
  for (size_t i = 0; i < count; i++) items[i] = tdict_leaf_box(boxes[i])->self;
  tdict_status status =
      builtin ? builtin->join(items, count, how, &result, err) : type->stack(items, count, &result, &hook_err);
  free((void *)items);
  if (!builtin) status = tdict_hook_finish(type, "stack", status, result, &hook_err, err);
  if (status != TDICT_OK) return status;
  size_t own = 0; /* the result can be one of the items */
  while (own + 1 < count && tdict_leaf_box(boxes[own])->self != result) own++;
  return tdict_box_of(tdict_leaf_box(boxes[own]), result, out, err);
}

tdict_status tdict_tree_of_tensors(const char *const *keys, tdict_tensor *const *tensors, int count, tdict_tree **out,
                                   tdict_error *err) {
  tdict_tree *made;
  tdict_status status = tdict_create(0, NULL, &made, err);
  if (status != TDICT_OK) return status;
  for (int i = 0; i < count && status == TDICT_OK; i++) status = tdict_set(made, keys[i], tensors[i], err);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}

/* Checks that a write of `from` to elements of `to` would change nothing, or returns the error of the type. */
static tdict_status check_same_elements(const tdict_box *to, tdict_box *from, tdict_error *err) {
  static const tdict_positions some = {NULL, 0};
  tdict_tree *trees[2] = {NULL, NULL};
  tdict_status status = tdict_builtin_of(to->type)->pair(to->self, &some, tdict_leaf_of_box(from), trees, err);
  tdict_release(trees[0]);
  tdict_release(trees[1]);
  return status;
}

tdict_status tdict_box_keep(const char *what, tdict_leaf to, tdict_box *from, bool is_whole, tdict_error *err) {
  char difference[96] = "";
  const tdict_box *box = tdict_leaf_box(to);
  const tdict_builtin *builtin = tdict_builtin_of(from->type);
  if (!box || box->type != from->type)
    return tdict_fail(err, TDICT_ETYPE, "%s: an object of type %.60s in the source, %s in the destination", what,
                      from->type->name, box ? "an object of another type" : "none");
  const bool belongs_to_all = count_batch_dims(box) == 0 && count_batch_dims(from) == 0;
  if (box == from && (is_whole || belongs_to_all)) return TDICT_OK;
  if (builtin->pair && belongs_to_all) return check_same_elements(box, from, err);
  if (builtin->equal && (is_whole || belongs_to_all) &&
      builtin->equal(box->self, from->self, difference, sizeof difference))
    return TDICT_OK;
  return tdict_fail(err, TDICT_ENOTSUP, "%s: leaves of type %.60s cannot be written in place%s%s%s%s", what,
                    from->type->name, difference[0] ? " and differ: " : "", difference,
                    builtin->setter ? "; wanted " : "", builtin->setter ? builtin->setter : "");
}

static tdict_status fail_missing_hook(const tdict_flatten_rule *o, const tdict_type *type, tdict_error *err) {
  static const char *const hooks[] = {NULL, NULL, NULL, "clone", "index", "stack"};
  const char *hook = hooks[o->way];
  if (hook)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: objects of type %.60s have neither a %s hook nor flatten", o->what,
                      type->name, hook);
  return tdict_fail(err, TDICT_ENOTSUP, "%s: objects of type %.60s have no flatten hook", o->what, type->name);
}

/* Returns TDICT_EHOOK if a flattened tree holds an object: there are no objects inside objects. */
static tdict_status check_flattened_tree(const tdict_flatten_rule *o, const tdict_tree *flat, tdict_error *err) {
  tdict_status status = TDICT_OK;
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, flat, true);
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next_leaf(&cursor)) != 0;) {
    const tdict_box *box = tdict_leaf_box(leaf);
    if (!box) continue;
    status = tdict_fail(err, TDICT_EHOOK,
                        "%s: the tree from flatten holds an object of type %.60s, wanted tensors and trees", o->what,
                        box->type->name);
  }
  return tdict_cursor_end(&cursor, o->what, status, err);
}

tdict_status tdict_box_flatten(const tdict_flatten_rule *o, const tdict_box *box, const char *path, tdict_tree **out,
                               tdict_error *err) {
  tdict_tree *flat = NULL;
  tdict_error hook_err = {0};
  const tdict_builtin *builtin = tdict_builtin_of(box->type);
  tdict_status (*flatten)(const void *, tdict_tree **, tdict_error *) = TDICT_HOOK_OF(box->type, flatten);
  if (builtin && o->way == TDICT_OBJECT_ELEMENTS) flatten = builtin->elements;
  if (!flatten) return tdict_error_at(err, fail_missing_hook(o, box->type, err), path);
  tdict_status status = flatten(box->self, &flat, &hook_err);
  status = tdict_hook_finish(box->type, "flatten", status, flat, &hook_err, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, path);
  /* If the type is not built-in, the tensors must fit the batch size of the tree that holds the object. */
  const tdict_demand demand = {o->what, builtin ? 0 : o->batch_ndim, o->batch_size, NULL, path};
  status = check_flattened_tree(o, flat, err);
  status = status == TDICT_OK ? tdict_agree_adopt(&demand, flat, out, err) : tdict_error_at(err, status, path);
  tdict_release(flat);
  return status;
}

/* Writes to *to the leaf for a copy: a new reference to `leaf`, or the flattened tree of an object. */
static tdict_status flatten_leaf(const tdict_flatten_rule *o, const tdict_cursor *cursor, tdict_leaf leaf,
                                 tdict_leaf *to, tdict_error *err) {
  const tdict_box *box = tdict_leaf_box(leaf);
  if (!box || handles_itself(o, box->type)) {
    *to = tdict_leaf_retain(leaf);
    return TDICT_OK;
  }
  /* Flatten the object. Only error messages need the path. */
  char path[PATH_BYTES];
  tdict_tree *flat = NULL;
  tdict_cursor_path(cursor, o->above, path, sizeof path);
  tdict_status status = tdict_box_flatten(o, box, path, &flat, err);
  if (status == TDICT_OK) *to = tdict_leaf_of_tree(flat);
  return status;
}

tdict_status tdict_objects_flatten(const tdict_flatten_rule *o, const tdict_tree *td, tdict_tree **out,
                                   tdict_error *err) {
  tdict_tree *made;
  tdict_cursor cursor;
  tdict_status status = tdict_node_create_like(td, &made, err);
  if (status != TDICT_OK) return status;
  tdict_cursor_init(&cursor, td, false);
  /* Walk `td`. The mark of each frame is the address of the copied node. */
  cursor.frames[0].mark = (size_t)made;
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    const tdict_frame *top = &cursor.frames[cursor.depth - 1];
    tdict_leaf *to = &((tdict_tree *)top->mark)->leaves[top->slot - 1];
    tdict_tree *from = tdict_leaf_tree(leaf), *node = NULL;
    status = from ? tdict_node_create_like(from, &node, err) : flatten_leaf(o, &cursor, leaf, to, err);
    if (status != TDICT_OK || !from) continue;
    *to = tdict_leaf_of_tree(node);
    tdict_cursor_descend(&cursor, from, (size_t)node);
  }
  status = tdict_cursor_end(&cursor, o->what, status, err);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}

/* Counts the tensors and objects of a tree in *kept, and keys whose leaf was dropped, and is 0, in *dropped. */
static tdict_status count_kept_and_dropped(const char *what, tdict_tree *td, size_t *kept, size_t *dropped,
                                           tdict_error *err) {
  tdict_cursor cursor;
  *kept = *dropped = 0;
  tdict_cursor_init(&cursor, td, false);
  for (tdict_tree *node = td; node;) {
    /* The cursor skips empty slots, so count keys without a leaf here. */
    for (uint32_t i = 0; i < node->keys->num_slots; i++) *dropped += node->keys->slots[i].name && !node->leaves[i];
    node = NULL;
    for (tdict_leaf leaf; !node && (leaf = tdict_cursor_next(&cursor)) != 0; *kept += !node)
      node = tdict_leaf_tree(leaf);
    if (node) tdict_cursor_descend(&cursor, node, 0);
  }
  return tdict_cursor_end(&cursor, what, TDICT_OK, err);
}

/* Replaces the flattened tree in *to by an object, or by 0 if all leaves of the tree were dropped. */
static tdict_status unflatten_leaf(const char *what, tdict_box *box, tdict_leaf *to, tdict_error *err) {
  tdict_tree *tree = tdict_leaf_tree(*to);
  size_t kept, dropped;
  void *result = NULL;
  tdict_error hook_err = {0};
  tdict_box *made;
  if (!tree) return TDICT_OK;
  tdict_status status = count_kept_and_dropped(what, tree, &kept, &dropped, err);
  if (status != TDICT_OK) return status;
  /* An object cannot be made from only some of its tensors. */
  if (dropped && kept)
    return tdict_fail(err, TDICT_EINVAL, "%s: %zu tensors of an object of type %.60s are dropped, wanted all or none",
                      what, dropped, box->type->name);
  if (dropped) {
    *to = 0;
    tdict_release(tree);
    return TDICT_OK;
  }
  status = box->type->unflatten(box->self, tree, &result, &hook_err);
  status = tdict_hook_finish(box->type, "unflatten", status, result, &hook_err, err);
  if (status == TDICT_OK) status = tdict_box_of(box, result, &made, err);
  if (status != TDICT_OK) return status;
  *to = tdict_leaf_of_box(made);
  tdict_release(tree);
  return TDICT_OK;
}

tdict_status tdict_objects_unflatten(const char *what, const tdict_tree *like, tdict_tree *made, tdict_error *err) {
  tdict_cursor cursor;
  tdict_status status = TDICT_OK;
  tdict_cursor_init(&cursor, like, false);
  /* Walk `like`. The mark of each frame is the address of the node of `made` at the same path. */
  cursor.frames[0].mark = (size_t)made;
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    const tdict_frame *top = &cursor.frames[cursor.depth - 1];
    tdict_leaf *to = &((tdict_tree *)top->mark)->leaves[top->slot - 1];
    tdict_tree *node = tdict_leaf_tree(leaf);
    tdict_box *box = tdict_leaf_box(leaf);
    if (box) status = unflatten_leaf(what, box, to, err);
    if (status != TDICT_OK) status = tdict_cursor_fail(&cursor, NULL, status, err);
    if (node) tdict_cursor_descend(&cursor, node, (size_t)tdict_leaf_tree(*to));
  }
  return tdict_cursor_end(&cursor, what, status, err);
}

tdict_status tdict_objects_refuse(const char *what, const tdict_tree *td, bool allows_values, const char *above,
                                  const char *wanted, tdict_error *err) {
  tdict_cursor cursor;
  tdict_status status = TDICT_OK;
  tdict_cursor_init(&cursor, td, false);
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next_leaf(&cursor)) != 0;) {
    const tdict_box *box = tdict_leaf_box(leaf);
    if (!box || (allows_values && tdict_box_has_fixed_elements(box))) continue;
    status = tdict_fail(err, TDICT_ENOTSUP, "%s: an object of type %.60s%s", what, box->type->name, wanted);
    tdict_cursor_fail(&cursor, above, status, err);
  }
  return tdict_cursor_end(&cursor, what, status, err);
}

tdict_status tdict_objects_check_types(const char *what, const tdict_leaf *boxes, size_t count, tdict_error *err) {
  const tdict_type *type = tdict_leaf_box(boxes[0])->type;
  for (size_t i = 1; i < count; i++) {
    const tdict_type *other = tdict_leaf_box(boxes[i])->type;
    if (other == type) continue;
    return tdict_fail(err, TDICT_ETYPE, "%s: an object of type %.60s in one tree, and of %s%.60s in another", what,
                      type->name, strcmp(type->name, other->name) == 0 ? "another type named " : "type ", other->name);
  }
  return TDICT_OK;
}

/* Flattens two objects of the program. */
static tdict_status flatten_both(const tdict_pairing *how, const tdict_leaf leaves[2], tdict_tree *flat[2],
                                 tdict_error *err) {
  tdict_status status = tdict_objects_check_types(how->what, leaves, 2, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, how->path);
  for (int i = 0; i < 2 && status == TDICT_OK; i++) {
    tdict_flatten_rule rule = {.what = how->what};
    if (how->trees[i]) rule.batch_ndim = how->trees[i]->batch_ndim, rule.batch_size = how->trees[i]->batch_size;
    status = tdict_box_flatten(&rule, tdict_leaf_box(leaves[i]), how->path, &flat[i], err);
  }
  return status;
}

/* Pairs the elements of objects of a built-in type. flat[picked] has the elements that the pick selects. */
static tdict_status pair_elements(const tdict_pairing *how, const tdict_leaf leaves[2], tdict_tree *flat[2],
                                  tdict_error *err) {
  const tdict_pick *pick = how->pick;
  const tdict_box *box = tdict_leaf_box(leaves[how->picked]);
  tdict_positions positions = {pick->at.at, 1};
  int64_t *made = NULL;
  tdict_tree *trees[2] = {NULL, NULL};
  if (pick->at.depth > 1 || (pick->at.depth == 1 && pick->selects)) return fail_builtin(how->what, box->type, err);
  tdict_status status =
      tdict_leaf_box(leaves[!how->picked]) ? tdict_objects_check_types(how->what, leaves, 2, err) : TDICT_OK;
  for (int i = 0; i < 2 && status == TDICT_OK; i++) {
    const tdict_tree *tree = how->trees[i];
    const tdict_box *other = tdict_leaf_box(leaves[i]);
    if (tree && other && !tdict_box_begins_with(other, tree->batch_ndim, tree->batch_size))
      status = tdict_box_mismatch(how->what, tree, other, err);
  }
  if (status == TDICT_OK && pick->selects) status = list_positions(pick, how->what, &positions, &made, err);
  const bool is_part = pick->selects || pick->at.depth;
  if (status == TDICT_OK)
    status =
        tdict_builtin_of(box->type)->pair(box->self, is_part ? &positions : NULL, leaves[!how->picked], trees, err);
  free(made);
  flat[how->picked] = trees[0];
  flat[!how->picked] = trees[1];
  return status;
}

tdict_status tdict_flat_pairs_add(tdict_flat_pairs *pairs, const tdict_pairing *how, const tdict_leaf leaves[2],
                                  tdict_error *err) {
  tdict_tree *flat[2] = {NULL, NULL};
  const tdict_box *picked = tdict_leaf_box(leaves[how->picked]);
  tdict_box *from = tdict_leaf_box(leaves[1]);
  const tdict_builtin *builtin = picked ? tdict_builtin_of(picked->type) : NULL;
  /* Make room before flattening: if making room fails, there is no tree to release. */
  if (!TDICT_RESERVE(pairs->items, pairs->cap, pairs->count + 1))
    return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for a list of objects", how->what);
  tdict_status status;
  if (builtin && builtin->pair && how->pick && (how->is_whole || count_batch_dims(picked) > 0)) {
    status = pair_elements(how, leaves, flat, err);
    if (status != TDICT_OK) tdict_error_at(err, status, how->path);
  } else if (from && !tdict_builtin_of(from->type)) {
    status = flatten_both(how, leaves, flat, err);
  } else {
    status = from ? tdict_box_keep(how->what, leaves[0], from, how->is_whole, err)
                  : fail_builtin(how->what, picked->type, err);
    if (status != TDICT_OK) tdict_error_at(err, status, how->path);
  }
  if (status == TDICT_OK)
    pairs->items[pairs->count++] = (tdict_flat_pair){flat[0], flat[1]};
  else
    tdict_release(flat[0]);
  return status;
}

tdict_flat_pair tdict_flat_pairs_take(tdict_flat_pairs *pairs, bool last) {
  return pairs->items[last ? pairs->count - 1 : pairs->next++];
}

void tdict_flat_pairs_reset(tdict_flat_pairs *pairs) {
  for (size_t i = 0; i < pairs->count; i++) {
    tdict_release(pairs->items[i].to);
    tdict_release(pairs->items[i].from);
  }
  free(pairs->items);
}
