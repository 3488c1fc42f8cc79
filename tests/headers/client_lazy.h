/* The part of client.c that uses tdict/lazy_stack.h. */
static tdict_status visit_lazy(void *user, const tdict_lazy_entry *entry, tdict_error *err) {
  (void)err;
  *(tdict_lazy_kind *)user = entry->kind;
  return TDICT_OK;
}

static void use_lazy_dense(const tdict_lazy_stack *stack) {
  tdict_lazy_pad_options options = tdict_lazy_pad_options_default();
  tdict_tree *dense = NULL, *padded = NULL, *mask = NULL;
  options.mask = &mask;
  OK(tdict_lazy_stack_densify(stack, NULL, NULL, &dense, &last_error));
  OK(tdict_lazy_stack_pad(stack, &options, &padded, &last_error));
  tdict_release(dense);
  tdict_release(padded);
  tdict_release(mask);
}

static void use_lazy_move(tdict_context *context, const tdict_lazy_stack *stack) {
  tdict_lazy_stack *moved = NULL;
  tdict_future *future = NULL;
  tdict_tree *result = NULL;
  OK(tdict_lazy_stack_to_device_async(context, stack, tdict_sim(0), NULL, &future, &last_error));
  OK(tdict_future_wait(future, &result, &last_error));
  OK(tdict_lazy_stack_from_tree(result, &moved, &last_error));
  TRUE(tdict_lazy_stack_get_batch_size(moved, NULL)[0] == tdict_lazy_stack_get_batch_size(stack, NULL)[0]);
  tdict_future_release(future);
  tdict_release(result);
  tdict_lazy_stack_release(moved);
}

static void use_lazy_stack(tdict_context *context) {
  static const int64_t sizes[] = {2, 3};
  tdict_lazy_visitor visit = visit_lazy;
  tdict_lazy_kind kind = TDICT_LAZY_MIXED;
  tdict_lazy_stack *stack = NULL, *nested = NULL;
  tdict_tree *item = NULL, *found = NULL;
  tdict_tensor *tensor = NULL, *copy = NULL;
  int ndim = 0;
  OK(tdict_create(0, NULL, &item, &last_error));
  OK(tdict_lazy_stack_create(&item, 1, &stack, &last_error));
  tdict_release(item);
  OK(tdict_create(0, NULL, &item, &last_error));
  OK(tdict_lazy_stack_insert(stack, 1, item, &last_error));
  tdict_release(item);
  OK(tdict_tensor_zeros(TDICT_F32, 2, sizes, NULL, &tensor, &last_error));
  OK(tdict_lazy_stack_set(stack, "n.x", tensor, &last_error));
  OK(tdict_lazy_stack_get(stack, "n.x", NULL, &copy, &last_error));
  OK(tdict_lazy_stack_get_tree(stack, "n", &nested, &last_error));
  OK(tdict_lazy_stack_walk(stack, visit, &kind, &last_error));
  TRUE(kind == TDICT_LAZY_TENSORS && kind != TDICT_LAZY_TREES && kind != TDICT_LAZY_OBJECTS);
  OK(tdict_lazy_stack_get_item(stack, -1, &found, &last_error));
  use_lazy_move(context, stack);
  use_lazy_dense(stack);
  OK(tdict_lazy_stack_insert(stack, 0, found, &last_error));
  TRUE(tdict_lazy_stack_get_batch_size(stack, &ndim)[0] == 3 && ndim == 1);
  tdict_tensor_release(tensor);
  tdict_tensor_release(copy);
  tdict_lazy_stack_release(nested);
  tdict_lazy_stack_release(tdict_lazy_stack_retain(stack));
  tdict_lazy_stack_release(stack);
}
