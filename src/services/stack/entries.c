/* Reads and sets entries of all items of a lazy stack. Thread rule: as in tdict/lazy_stack.h. */
#include <stdlib.h>

#include "core/base/error.h"
#include "core/ops/changes.h"
#include "core/tensor/affine.h"
#include "core/tensor/layout.h"
#include "core/tree/agree.h"
#include "core/tree/place.h"
#include "services/stack/lazy_stack.h"

enum { SHAPE_BYTES = 80 };

typedef struct walker {
  const tdict_lazy_stack *stack;
  tdict_lazy_visitor visit;
  void *user;
  tdict_tensor **tensors; /* room for one tensor of each item */
} walker;

static tdict_lazy_kind kind_of(const tdict_entry *entry) {
  return entry->tensor ? TDICT_LAZY_TENSORS : entry->tree ? TDICT_LAZY_TREES : TDICT_LAZY_OBJECTS;
}

/* Looks up an entry of the first item in all others. If all have it, calls the program's visitor. */
static tdict_status visit_common(void *user, const tdict_entry *entry, tdict_error *err) {
  const walker *w = user;
  tdict_lazy_entry found = {.path = entry->path, .depth = entry->depth, .kind = kind_of(entry)};
  found.count = w->stack->count;
  w->tensors[0] = entry->tensor;
  for (size_t i = 1; i < found.count; i++) {
    tdict_entry other;
    tdict_status status = tdict_get_entry(w->stack->items[i], entry->path, &other, NULL);
    if (status == TDICT_ENOMEM) return tdict_fail(err, status, "lazy_stack_walk: no host memory for a path");
    if (status != TDICT_OK) return TDICT_OK; /* this item lacks the path */
    if (kind_of(&other) != found.kind) found.kind = TDICT_LAZY_MIXED;
    w->tensors[i] = other.tensor;
  }
  if (found.kind == TDICT_LAZY_TENSORS) found.tensors = w->tensors;
  return w->visit(w->user, &found, err);
}

tdict_status tdict_lazy_stack_walk(const tdict_lazy_stack *stack, tdict_lazy_visitor visit, void *user,
                                   tdict_error *err) {
  static const char what[] = "lazy_stack_walk";
  tdict_status status = tdict_lazy_stack_check(what, stack, stack, err);
  if (status != TDICT_OK) return status;
  if (!visit) return tdict_fail(err, TDICT_EINVAL, "%s: visit is NULL", what);
  walker w = {stack, visit, user, malloc(stack->count * sizeof *w.tensors)};
  if (!w.tensors) return tdict_fail_memory(err, what, NULL, "%zu tensors", stack->count);
  status = tdict_walk(stack->items[0], visit_common, &w, err);
  free(w.tensors);
  return status;
}

/* Gets the tensor of item `i`. */
static tdict_status get_tensor(const tdict_lazy_stack *stack, size_t i, const char *path, tdict_tensor **out,
                               tdict_error *err) {
  tdict_status status = tdict_get(stack->items[i], path, out, err);
  return status == TDICT_OK ? status : tdict_lazy_fail_at(err, status, i, path);
}

static tdict_status check_stackable(const char *what, const tdict_tensor *first, const tdict_tensor *t, size_t i,
                                    tdict_error *err) {
  char wanted[SHAPE_BYTES], found[SHAPE_BYTES];
  if (!tdict_shapes_equal(t->ndim, t->dims, first->ndim, first->dims))
    return tdict_fail(err, TDICT_ESHAPE, "%s: the tensor has shape %s in item %zu, but %s in item 0", what,
                      tdict_text_shape(t->ndim, t->dims, found, sizeof found), i,
                      tdict_text_shape(first->ndim, first->dims, wanted, sizeof wanted));
  if (t->dtype != first->dtype)
    return tdict_fail(err, TDICT_EDTYPE, "%s: the tensor has dtype %s in item %zu, but %s in item 0", what,
                      TDICT_DTYPE_TEXT(t->dtype), i, TDICT_DTYPE_TEXT(first->dtype));
  if (!tdict_device_equal(t->storage->device, first->storage->device))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the tensor is on %s in item %zu, but on %s in item 0", what,
                      TDICT_DEVICE_TEXT(t->storage->device), i, TDICT_DEVICE_TEXT(first->storage->device));
  return TDICT_OK;
}

/* Allocates a tensor for a stack of `count` tensors like `first`. */
static tdict_status create_stacked(const char *what, const tdict_tensor *first, size_t count, tdict_memory *memory,
                                   tdict_tensor **out, tdict_error *err) {
  int64_t shape[TDICT_MAX_NDIM + 1] = {(int64_t)count};
  tdict_status status = tdict_tensor_choose_memory(what, first, memory, &memory, err);
  if (status != TDICT_OK) return status;
  for (int d = 0; d < first->ndim; d++) shape[d + 1] = first->dims[d];
  return tdict_tensor_empty(first->dtype, first->ndim + 1, shape, memory, out, err);
}

tdict_status tdict_lazy_stack_get(const tdict_lazy_stack *stack, const char *path, tdict_memory *memory,
                                  tdict_tensor **out, tdict_error *err) {
  static const char what[] = "lazy_stack_get";
  tdict_tensor *first = NULL, *t = NULL, *made = NULL;
  tdict_status status = tdict_lazy_stack_check(what, stack, out, err);
  if (status == TDICT_OK) status = get_tensor(stack, 0, path, &first, err);
  for (size_t i = 1; status == TDICT_OK && i < stack->count; i++) {
    status = get_tensor(stack, i, path, &t, err);
    if (status == TDICT_OK) status = check_stackable(what, first, t, i, err);
    if (status != TDICT_OK) return tdict_lazy_fail_at(err, status, i, path);
  }
  if (status == TDICT_OK) status = create_stacked(what, first, stack->count, memory, &made, err);
  for (size_t i = 0; status == TDICT_OK && i < stack->count; i++) {
    tdict_made row;
    tdict_temp temp;
    tdict_made_of(made, &row);
    tdict_made_select(&row, 0, (int64_t)i, tdict_dtype_bytes(made->dtype));
    (void)!tdict_get(stack->items[i], path, &t, NULL);
    status = tdict_tensor_copy(tdict_temp_over(&temp, made, &row), t, err);
    if (status != TDICT_OK) tdict_lazy_fail_at(err, status, i, path);
  }
  return TDICT_HAND_OVER(status, made, out, tdict_tensor_release);
}

tdict_status tdict_lazy_stack_get_tree(const tdict_lazy_stack *stack, const char *path, tdict_lazy_stack **out,
                                       tdict_error *err) {
  static const char what[] = "lazy_stack_get_tree";
  tdict_status status = tdict_lazy_stack_check(what, stack, out, err);
  if (status != TDICT_OK) return status;
  tdict_tree **trees = malloc(stack->count * sizeof *trees);
  if (!trees) return tdict_fail_memory(err, what, NULL, "%zu trees", stack->count);
  for (size_t i = 0; i < stack->count && status == TDICT_OK; i++) {
    status = tdict_get_tree(stack->items[i], path, &trees[i], err);
    if (status != TDICT_OK) tdict_lazy_fail_at(err, status, i, path);
  }
  if (status == TDICT_OK) status = tdict_lazy_stack_create(trees, stack->count, out, err);
  free(trees);
  return status;
}

/* Sets a tensor in a copy of an item's node. tdict_changes_end() moves the contents of the copy into the node. */
static tdict_status set_in_item(tdict_changes *changes, tdict_tree *item, const char *path, tdict_tensor *tensor,
                                tdict_error *err) {
  tdict_place place, changed;
  tdict_tree *node;
  tdict_status status = tdict_place_find(&place, item, path, changes->what, err);
  if (status != TDICT_OK) return status;
  const tdict_demand demand = tdict_demand_of(place.node, changes->what, NULL);
  status = tdict_agree_tensor(&demand, tensor, path, err);
  if (status == TDICT_OK) status = tdict_changes_get(changes, place.node, &node, err);
  if (status == TDICT_OK) status = tdict_place_find(&changed, node, place.path.begin, changes->what, err);
  if (status == TDICT_OK) {
    status = tdict_place_set(&changed, tdict_leaf_of_tensor(tensor), err);
    tdict_place_reset(&changed);
  }
  tdict_place_reset(&place);
  return status;
}

/* Makes a view of element `i` along dimension 0. */
static tdict_status view_element(const tdict_tensor *tensor, size_t i, tdict_tensor **out, tdict_error *err) {
  tdict_made made;
  tdict_made_of(tensor, &made);
  tdict_made_select(&made, 0, (int64_t)i, tdict_dtype_bytes(tensor->dtype));
  return tdict_made_view(tensor, &made, out, err);
}

tdict_status tdict_lazy_stack_set(tdict_lazy_stack *stack, const char *path, tdict_tensor *tensor, tdict_error *err) {
  static const char what[] = "lazy_stack_set";
  tdict_status status = tdict_lazy_stack_check(what, stack, path ? tensor : NULL, err);
  if (status != TDICT_OK) return status;
  if (!tdict_tensor_begins_with(tensor, stack->batch_ndim, stack->batch_size)) {
    char wanted[SHAPE_BYTES], found[SHAPE_BYTES];
    return tdict_fail_at(err, TDICT_ESHAPE, path, "%s: the stack's batch size is %s, the tensor has shape %s", what,
                         tdict_text_shape(stack->batch_ndim, stack->batch_size, wanted, sizeof wanted),
                         tdict_text_shape(tensor->ndim, tensor->dims, found, sizeof found));
  }
  tdict_changes changes;
  tdict_changes_init(&changes, what);
  for (size_t i = 0; i < stack->count && status == TDICT_OK; i++) {
    tdict_tensor *view;
    status = view_element(tensor, i, &view, err);
    if (status != TDICT_OK) break;
    status = set_in_item(&changes, stack->items[i], path, view, err);
    if (status != TDICT_OK) tdict_lazy_fail_at(err, status, i, path);
    tdict_tensor_release(view);
  }
  return tdict_changes_end(&changes, status);
}
