/* Copies the items of a lazy stack into one tree, with or without padding. Thread rule: as in tdict/lazy_stack.h. */
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/ops/pad.h"
#include "services/stack/lazy_stack.h"

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
