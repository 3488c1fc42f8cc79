/* Helper functions for lazy stacks. */
#ifndef TDICT_TESTS_SUPPORT_LAZY_H
#define TDICT_TESTS_SUPPORT_LAZY_H

#include "tdict/lazy_stack.h"

static inline size_t td_lazy_count(const tdict_lazy_stack *stack) {
  return (size_t)tdict_lazy_stack_get_batch_size(stack, NULL)[0];
}

static inline tdict_status td_lazy_append(tdict_lazy_stack *stack, tdict_tree *item, tdict_error *err) {
  return tdict_lazy_stack_insert(stack, tdict_lazy_stack_get_batch_size(stack, NULL)[0], item, err);
}

/* Moves all items to a device and waits. Fills options->stats, if it is set. */
static inline tdict_status td_lazy_to_device(tdict_context *context, const tdict_lazy_stack *stack, tdict_device device,
                                             const tdict_transfer_options *options, tdict_lazy_stack **out,
                                             tdict_error *err) {
  tdict_transfer_options o = options ? *options : tdict_transfer_options_default();
  tdict_transfer_stats *stats = o.stats;
  tdict_future *future;
  tdict_tree *moved = NULL;
  o.stats = NULL; /* allowed only for blocking calls */
  tdict_status status = tdict_lazy_stack_to_device_async(context, stack, device, &o, &future, err);
  if (status != TDICT_OK) return status;
  status = tdict_future_wait(future, &moved, err);
  if (status == TDICT_OK && stats) status = tdict_future_get_stats(future, stats, err);
  tdict_future_release(future);
  if (status == TDICT_OK) status = tdict_lazy_stack_from_tree(moved, out, err);
  tdict_release(moved);
  return status;
}

#endif
