/* Creates lazy stacks, adds, returns and joins their items. Thread rule: as in tdict/lazy_stack.h. */
#include "services/stack/lazy_stack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/ops/pad.h"
#include "core/tensor/layout.h"

tdict_status tdict_lazy_fail_at(tdict_error *err, tdict_status status, size_t i, const char *path) {
  char text[sizeof err->path + 24];
  if (!err) return status;
  tdict_error_at(err, status, path ? path : ""); /* cuts the path if it is too long */
  snprintf(text, sizeof text, "%zu%s%s", i, err->path[0] ? "." : "", err->path);
  return tdict_error_at(err, status, text);
}

/* Checks that item `i` has the batch size of the stack without the stack's first dimension. */
static tdict_status check_item(const char *what, const tdict_lazy_stack *stack, const tdict_tree *item, size_t i,
                               tdict_error *err) {
  const int ndim = stack->batch_ndim - 1;
  const int64_t *wanted = stack->batch_size + 1;
  if (tdict_shapes_equal(tdict_batch_ndim(item), tdict_batch_size(item), ndim, wanted)) return TDICT_OK;
  tdict_fail(err, TDICT_ESHAPE, "%s: item %zu has batch size %s, wanted %s", what, i,
             TDICT_SHAPE_TEXT(tdict_batch_ndim(item), tdict_batch_size(item)), TDICT_SHAPE_TEXT(ndim, wanted));
  return tdict_lazy_fail_at(err, TDICT_ESHAPE, i, NULL);
}

tdict_status tdict_lazy_stack_check(const char *what, const tdict_lazy_stack *stack, const void *out,
                                    tdict_error *err) {
  if (!stack || !out) return tdict_fail(err, TDICT_EINVAL, "%s: a pointer is NULL", what);
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < stack->count && status == TDICT_OK; i++)
    status = check_item(what, stack, stack->items[i], i, err);
  return status;
}

/* Makes an empty stack for items with the batch size of `first`. The stack has room for `cap` items. */
static tdict_status create_empty(const char *what, const tdict_tree *first, size_t cap, tdict_lazy_stack **out,
                                 tdict_error *err) {
  const int ndim = tdict_batch_ndim(first);
  if (ndim == TDICT_MAX_BATCH_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: the items have %d batch dimensions, the maximum", what, ndim);
  tdict_lazy_stack *stack = calloc(1, sizeof *stack);
  if (!stack || !TDICT_RESERVE(stack->items, stack->cap, cap)) {
    free(stack);
    return tdict_fail_memory(err, what, NULL, "%zu items", cap);
  }
  atomic_init(&stack->refs, 1);
  stack->batch_ndim = ndim + 1;
  for (int d = 0; d < ndim; d++) stack->batch_size[d + 1] = tdict_batch_size(first)[d];
  *out = stack;
  return TDICT_OK;
}

/* Inserts an item at index `i`. The list must have room for one more item. */
static void put_item(tdict_lazy_stack *stack, size_t i, const tdict_tree *item) {
  memmove(stack->items + i + 1, stack->items + i, (stack->count - i) * sizeof *stack->items);
  stack->items[i] = tdict_retain(item);
  stack->batch_size[0] = (int64_t)++stack->count;
}

tdict_status tdict_lazy_stack_create(tdict_tree *const *items, size_t count, tdict_lazy_stack **out, tdict_error *err) {
  static const char what[] = "lazy_stack_create";
  tdict_lazy_stack *stack;
  if (!out || (count && !items)) return tdict_fail_null(err, what, out ? "items" : "out");
  if (!count) return tdict_fail(err, TDICT_EINVAL, "%s: there are no items, wanted at least one", what);
  for (size_t i = 0; i < count; i++)
    if (!items[i]) return tdict_fail(err, TDICT_EINVAL, "%s: item %zu is NULL", what, i);
  tdict_status status = create_empty(what, items[0], count, &stack, err);
  if (status != TDICT_OK) return status;
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    status = check_item(what, stack, items[i], i, err);
    if (status == TDICT_OK) put_item(stack, i, items[i]);
  }
  return TDICT_HAND_OVER(status, stack, out, tdict_lazy_stack_release);
}

tdict_lazy_stack *tdict_lazy_stack_retain(const tdict_lazy_stack *stack) {
  tdict_lazy_stack *s = (tdict_lazy_stack *)(uintptr_t)stack;
  atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
  return s;
}

void tdict_lazy_stack_release(tdict_lazy_stack *stack) {
  if (!stack || atomic_fetch_sub_explicit(&stack->refs, 1, memory_order_acq_rel) != 1) return;
  for (size_t i = 0; i < stack->count; i++) tdict_release(stack->items[i]);
  free(stack->items);
  free(stack);
}

const int64_t *tdict_lazy_stack_get_batch_size(const tdict_lazy_stack *stack, int *ndim) {
  if (ndim) *ndim = stack->batch_ndim;
  return stack->batch_size;
}

tdict_status tdict_lazy_stack_get_item(const tdict_lazy_stack *stack, int64_t i, tdict_tree **out, tdict_error *err) {
  static const char what[] = "lazy_stack_get_item";
  if (!stack || !out) return tdict_fail_null(err, what, stack ? "out" : "stack");
  const int64_t count = (int64_t)stack->count;
  if (i < -count || i >= count)
    return tdict_fail(err, TDICT_EINVAL, "%s: index %" PRId64 ", but the stack has %" PRId64 " items", what, i, count);
  *out = stack->items[i < 0 ? i + count : i];
  return TDICT_OK;
}

static bool is_locked(const tdict_lazy_stack *stack) {
  bool all_locked = true;
  for (size_t i = 0; all_locked && i < stack->count; i++) all_locked = tdict_is_locked(stack->items[i]);
  return all_locked;
}

tdict_status tdict_lazy_stack_insert(tdict_lazy_stack *stack, int64_t i, tdict_tree *item, tdict_error *err) {
  static const char what[] = "lazy_stack_insert";
  if (!stack || !item) return tdict_fail_null(err, what, stack ? "item" : "stack");
  const int64_t count = (int64_t)stack->count;
  if (i < -count || i > count)
    return tdict_fail(err, TDICT_EINVAL, "%s: index %" PRId64 ", but the stack has %" PRId64 " items", what, i, count);
  if (is_locked(stack))
    return tdict_fail(err, TDICT_ELOCKED, "%s: all items are locked, so the stack is locked: unlock an item first",
                      what);
  const size_t place = (size_t)(i < 0 ? i + count : i);
  tdict_status status = check_item(what, stack, item, place, err);
  if (status != TDICT_OK) return status;
  if (!TDICT_RESERVE(stack->items, stack->cap, stack->count + 1))
    return tdict_fail_memory(err, what, NULL, "%zu items", stack->count + 1);
  put_item(stack, place, item);
  return TDICT_OK;
}

tdict_status tdict_lazy_stack_densify(const tdict_lazy_stack *stack, const tdict_join_options *options,
                                      const tdict_run *run, tdict_tree **out, tdict_error *err) {
  static const char what[] = "lazy_stack_densify";
  tdict_join_options o = tdict_join_options_default();
  tdict_status status = tdict_lazy_stack_check(what, stack, out, err);
  if (status == TDICT_OK) status = tdict_options_read(&o, sizeof o, options, "join options", err);
  if (status == TDICT_OK && o.dim != 0)
    status = tdict_fail(err, TDICT_EINVAL, "%s: dim is %d, wanted 0", what, (int)o.dim);
  if (status != TDICT_OK) return status;
  return tdict_stack((const tdict_tree *const *)stack->items, stack->count, &o, run, out, err);
}

tdict_status tdict_lazy_stack_pad(const tdict_lazy_stack *stack, const tdict_lazy_pad_options *options,
                                  tdict_tree **out, tdict_error *err) {
  static const char what[] = "lazy_stack_pad";
  tdict_lazy_pad_options o = tdict_lazy_pad_options_default();
  tdict_status status = tdict_lazy_stack_check(what, stack, out, err);
  if (status == TDICT_OK) status = tdict_options_read(&o, sizeof o, options, "lazy_pad_options", err);
  if (status != TDICT_OK) return status;
  const tdict_pad_rule rule = {.what = what, .value = o.value, .memory = o.memory};
  return tdict_pad_trees(&rule, (const tdict_tree *const *)stack->items, stack->count, out, o.mask, err);
}
