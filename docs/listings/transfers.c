#include <stdlib.h>

#include <tdict/clone.h>
#include <tdict/lazy_stack.h>
#include <tdict/memory.h>
#include <tdict/sim.h>
#include <tdict/trace.h>

#include "batch.h"

static int wait_in_other_ways(tdict_context *context, tdict_tree *batch) {
  tdict_future *future = NULL, *mine = NULL;
  tdict_tree *moved = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_to_device_async(context, batch, tdict_sim(0), NULL, &future, &err));
  mine = tdict_future_retain(future);
  /* now the program may write to `batch` */
  TDICT_TRY(tdict_future_wait_source(future, &err));
  /* at most a minute */
  TDICT_TRY(tdict_future_wait_for(mine, 60000000000, &moved, &err));
  printf("ready: %d, done: %d\n", tdict_future_is_ready(mine),
         tdict_future_state(mine) == TDICT_FUTURE_DONE);
  tdict_future_cancel(mine); /* too late: the transfer has ended */
done:
  tdict_release(moved);
  tdict_future_release(mine);
  tdict_future_release(future);
  return err.status != TDICT_OK;
}

static int step_the_device(tdict_context *context, tdict_tree *batch) {
  tdict_future *future = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_sim_hold(context, &err));
  TDICT_TRY(tdict_to_device_async(context, batch, tdict_sim(0), NULL, &future, &err));
  TDICT_TRY(tdict_sim_step(context, 1, &err)); /* lets at most one operation finish */
  tdict_future_cancel(future);
  TDICT_TRY(tdict_sim_resume(context, &err));
  printf("cancelled or done: %d\n",
         tdict_future_wait(future, NULL, NULL) == TDICT_ECANCELLED ||
             tdict_future_state(future) == TDICT_FUTURE_DONE);
done:
  tdict_future_release(future);
  return err.status != TDICT_OK;
}

static int set_on_a_device(tdict_context *context, tdict_tree *batch) {
  tdict_tree *moved = NULL, *back = NULL;
  tdict_tensor *bonus = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_to_device(context, batch, tdict_sim(0), NULL, &moved, &err));
  TDICT_TRY(tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(4), NULL, &bonus, &err));
  /* copies the tensor to the device of the tree */
  TDICT_TRY(tdict_set_to(context, moved, "bonus", bonus, &err));
  TDICT_TRY(tdict_to_device(context, moved, tdict_cpu(), NULL, &back, &err));
  printf("%d tensors came back\n", (int)tdict_num_leaves(back));
done:
  tdict_tensor_release(bonus);
  tdict_release(back);
  tdict_release(moved);
  return err.status != TDICT_OK;
}

static int move_a_lazy_stack(tdict_context *context, tdict_tree *batch) {
  tdict_tree *items[2] = {batch, batch};
  tdict_lazy_stack *stack = NULL, *moved = NULL;
  tdict_tree *tree = NULL;
  tdict_future *future = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_lazy_stack_create(items, 2, &stack, &err));
  /* one transfer */
  TDICT_TRY(tdict_lazy_stack_to_device_async(context, stack, tdict_sim(0), NULL,
                                             &future, &err));
  TDICT_TRY(tdict_future_wait(future, &tree, &err)); /* a tree with the keys 0 and 1 */
  TDICT_TRY(tdict_lazy_stack_from_tree(tree, &moved, &err));
  printf("%d items on the device\n",
         (int)tdict_lazy_stack_get_batch_size(moved, NULL)[0]);
done:
  tdict_release(tree);
  tdict_future_release(future);
  tdict_lazy_stack_release(moved);
  tdict_lazy_stack_release(stack);
  return err.status != TDICT_OK;
}

static int look_at_memory(tdict_context *context, tdict_tree *batch) {
  tdict_memory *pinned = tdict_pinned_memory(context);
  tdict_device_counts resources;
  tdict_memory_counts counts;
  tdict_tree *copy = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_consolidate(batch, pinned, &copy, &err));
  tdict_memory_get_counts(pinned, &counts);
  printf("pinned bytes in use: %d; memory of the cpu: %d; threads: %d\n",
         counts.live_bytes > 0,
         tdict_device_equal(tdict_memory_device(pinned), tdict_cpu()),
         tdict_context_num_threads(context) > 0);
  TDICT_TRY(tdict_context_get_counts(context, tdict_sim(0), &resources, &err));
  tdict_release(copy);
  copy = NULL;
  /* frees the pinned memory that the pool keeps */
  tdict_context_trim(context, tdict_cpu(), 0);
done:
  tdict_release(copy);
  return err.status != TDICT_OK;
}

static void *take_block(void *user, size_t bytes) {
  (void)user;
  return aligned_alloc(256, (bytes + 255) / 256 * 256);
}

static void give_block(void *user, void *data, size_t bytes) {
  (void)user, (void)bytes;
  free(data);
}

static int use_an_allocator(tdict_context *context, tdict_tree *batch) {
  tdict_allocator allocator = tdict_allocator_default();
  tdict_memory *memory = NULL;
  tdict_tree *copy = NULL;
  tdict_error err = {0};
  allocator.device = tdict_cpu();
  allocator.allocate = take_block;
  allocator.release = give_block;
  TDICT_TRY(tdict_memory_create(context, &allocator, &memory, &err));
  /* any function that takes a memory */
  TDICT_TRY(tdict_consolidate(batch, memory, &copy, &err));
  printf("equal: %d\n", tdict_equal(batch, copy));
done:
  tdict_memory_release(memory); /* the memory lives until its last block is freed */
  tdict_release(copy);
  return err.status != TDICT_OK;
}

static tdict_status count_text(void *user, const char *text, size_t bytes) {
  (void)text;
  *(size_t *)user += bytes;
  return TDICT_OK;
}

static int record_a_timeline(tdict_context *context, tdict_tree *batch) {
  tdict_tree *moved = NULL;
  size_t bytes = 0;
  tdict_error err = {0};
  TDICT_TRY(tdict_trace_start(context, NULL, &err));
  TDICT_TRY(tdict_to_device(context, batch, tdict_sim(0), NULL, &moved, &err));
  tdict_trace_stop(context);
  /* open the file at ui.perfetto.dev */
  TDICT_TRY(tdict_trace_write(context, "transfer.json", &err));
  TDICT_TRY(tdict_trace_write_to(context, count_text, &bytes, &err));
  printf("the timeline has text: %d\n", bytes > 100);
done:
  remove("transfer.json");
  tdict_release(moved);
  return err.status != TDICT_OK;
}

int main(void) {
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_tree *batch = make_batch();
  int failed = 1;
  tdict_error err = {0};
  options.device = tdict_sim(0);
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  failed = wait_in_other_ways(context, batch) + step_the_device(context, batch) +
           set_on_a_device(context, batch) + move_a_lazy_stack(context, batch) +
           look_at_memory(context, batch) + use_an_allocator(context, batch) +
           record_a_timeline(context, batch);
done:
  tdict_release(batch);
  tdict_context_destroy(context);
  return failed;
}
