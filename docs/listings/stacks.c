#include <tdict/clone.h>
#include <tdict/lazy_stack.h>
#include <tdict/schema.h>

#include "batch.h"

static int stack_lazily(tdict_tree *batch) {
  tdict_tree *items[2] = {batch, batch}, *item = NULL;
  tdict_lazy_stack *stack = NULL, *also = NULL;
  const int64_t *sizes;
  int ndim;
  tdict_error err = {0};
  TDICT_TRY(tdict_lazy_stack_create(items, 2, &stack, &err)); /* copies nothing */
  TDICT_TRY(tdict_lazy_stack_insert(stack, 2, batch, &err));  /* at the end */
  TDICT_TRY(tdict_lazy_stack_insert(stack, 0, batch, &err));
  /* borrowed, as tdict_get() */
  TDICT_TRY(tdict_lazy_stack_get_item(stack, 1, &item, &err));
  also = tdict_lazy_stack_retain(stack);
  sizes = tdict_lazy_stack_get_batch_size(also, &ndim);
  printf("%d items of %d rows, %d batch dimensions\n", (int)sizes[0],
         (int)tdict_batch_size(item)[0], ndim);
done:
  tdict_lazy_stack_release(also);
  tdict_lazy_stack_release(stack);
  return err.status != TDICT_OK;
}

static tdict_status count_entry(void *user, const tdict_lazy_entry *entry,
                                tdict_error *err) {
  (void)entry, (void)err;
  ++*(int *)user;
  return TDICT_OK;
}

static int read_lazy_stack(tdict_tree *batch) {
  tdict_tree *items[2] = {batch, batch};
  tdict_lazy_stack *stack = NULL, *obs = NULL;
  tdict_tensor *rewards = NULL;
  int entries = 0;
  tdict_error err = {0};
  TDICT_TRY(tdict_lazy_stack_create(items, 2, &stack, &err));
  TDICT_TRY(tdict_lazy_stack_walk(stack, count_entry, &entries, &err));
  /* copies: a new tensor of [2, 4] */
  TDICT_TRY(tdict_lazy_stack_get(stack, "reward", NULL, &rewards, &err));
  TDICT_TRY(tdict_lazy_stack_get_tree(stack, "obs", &obs, &err));
  printf("%d entries, %d elements\n", entries, (int)tdict_tensor_numel(rewards));
  TDICT_TRY(tdict_lazy_stack_set(stack, "also", rewards, &err)); /* item i gets row i */
done:
  tdict_lazy_stack_release(obs);
  tdict_tensor_release(rewards);
  tdict_lazy_stack_release(stack);
  return err.status != TDICT_OK;
}

static int join_lazy_stack(tdict_tree *batch) {
  tdict_tree *items[2] = {batch, batch};
  tdict_lazy_stack *stack = NULL;
  tdict_tree *dense = NULL, *padded = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_lazy_stack_create(items, 2, &stack, &err));
  /* all items have equal shapes */
  TDICT_TRY(tdict_lazy_stack_densify(stack, NULL, NULL, &dense, &err));
  TDICT_TRY(tdict_lazy_stack_pad(stack, NULL, &padded, &err)); /* shapes may differ */
  printf("one tree of %d dimensions; equal: %d\n", tdict_batch_ndim(dense),
         tdict_equal(dense, padded));
done:
  tdict_release(padded);
  tdict_release(dense);
  tdict_lazy_stack_release(stack);
  return err.status != TDICT_OK;
}

static int read_a_schema(tdict_tree *batch) {
  tdict_schema *schema = NULL, *mine = NULL;
  tdict_schema_info info;
  tdict_schema_entry entry;
  char path[64];
  tdict_error err = {0};
  /* keys, dtypes and shapes, but no elements */
  TDICT_TRY(tdict_schema_from_tree(batch, &schema, &err));
  mine = tdict_schema_retain(schema);
  info = tdict_schema_get_info(mine);
  for (size_t i = 0; i < info.num_entries; i++) {
    TDICT_TRY(tdict_schema_get_entry(mine, i, &entry, &err));
    tdict_schema_get_path(mine, i, path, sizeof path);
    printf("%s has %d dimensions of its own\n", path, (int)entry.ndim);
  }
  printf("%d tensors, %d objects, %d batch dimension of size %d\n",
         (int)info.num_leaves, (int)info.num_objects, (int)info.batch_ndim,
         (int)info.batch_size[0]);
done:
  tdict_schema_release(mine);
  tdict_schema_release(schema);
  return err.status != TDICT_OK;
}

static int send_a_schema(tdict_tree *batch) {
  unsigned char blob[256];
  tdict_schema *schema = NULL, *received = NULL;
  tdict_schema_difference difference;
  tdict_tree *made = NULL;
  size_t bytes;
  tdict_error err = {0};
  TDICT_TRY(tdict_schema_from_tree(batch, &schema, &err));
  /* send these bytes to another process */
  bytes = tdict_schema_write(schema, blob, sizeof blob);
  TDICT_TRY(tdict_schema_read(blob, bytes, &received, &err));
  /* a tree of zeros with this schema */
  TDICT_TRY(tdict_create_from_schema(received, NULL, &made, &err));
  printf("equal: %d, equal hashes: %d, %d leaves\n",
         tdict_schema_equal(schema, received, &difference),
         tdict_schema_get_info(schema).hash.lo ==
             tdict_schema_get_info(received).hash.lo,
         (int)tdict_num_leaves(made));
done:
  tdict_release(made);
  tdict_schema_release(received);
  tdict_schema_release(schema);
  return err.status != TDICT_OK;
}

int main(void) {
  return run_on_batch(stack_lazily) + run_on_batch(read_lazy_stack) +
         run_on_batch(join_lazy_stack) + run_on_batch(read_a_schema) +
         run_on_batch(send_a_schema);
}
