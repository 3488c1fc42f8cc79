#include <tdict/index.h>
#include <tdict/sampler.h>
#include <tdict/shape.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { ENVS = 4, STEPS = 8, ROWS = ENVS * STEPS, MINIBATCH = 16, EPOCHS = 2 };

/* What the environments return in a step, and
 * the key that is added after the rollout. */
static const tdict_field fields[] = {
    TDICT_FIELD("obs.state", TDICT_F32, 3), TDICT_FIELD("action", TDICT_I64),
    TDICT_FIELD("reward", TDICT_F32), TDICT_FIELD("done", TDICT_BOOL),
    TDICT_FIELD("returns", TDICT_F32)};

/* Writes step `t` of all environments to buffer[:, t]. `step`
 * is one tree that the program fills again and again. */
static tdict_status act(tdict_tree *buffer, tdict_tree *step, int t, tdict_error *err) {
  float *state = tdict_data(step, "obs.state"), *reward = tdict_data(step, "reward");
  int64_t *action = tdict_data(step, "action");
  bool *done = tdict_data(step, "done");
  for (int e = 0; e < ENVS; e++) {
    state[3 * e] = (float)t;
    action[e] = (e + t) % 2;
    reward[e] = 1;
    /* the episode of environment e ends earlier than that of e - 1 */
    done[e] = t == STEPS - 1 - e;
  }
  return tdict_index_set(NULL, buffer, TDICT_INDEX(TDICT_ALL, TDICT_AT(t)), step, NULL,
                         err);
}

/* Adds the key `returns`: the sum of the rewards until the end of the episode. */
static tdict_status add_returns(tdict_tree *buffer, tdict_error *err) {
  const float *reward = tdict_const_data(buffer, "reward");
  const bool *done = tdict_const_data(buffer, "done");
  tdict_tensor *returns = NULL;
  tdict_status status =
      tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(ENVS, STEPS), NULL, &returns, err);
  if (status != TDICT_OK) return status;
  float *to = tdict_tensor_data(returns);
  for (int i = ROWS - 1; i >= 0; i--)
    to[i] = reward[i] + (done[i] || i % STEPS == STEPS - 1 ? 0 : to[i + 1]);
  /* the tree takes a reference of its own */
  status = tdict_set(buffer, "returns", returns, err);
  tdict_tensor_release(returns);
  return status;
}

/* Gathers random rows on the host, into one pinned tree,
 * and sends them to the same device tree each time. */
static int train_from_host(tdict_context *context, const tdict_tree *flat,
                           const tdict_sampler *sampler) {
  const tdict_device device = tdict_context_device(context, NULL);
  tdict_tree *rows = NULL, *batch = NULL;
  tdict_future *future = NULL;
  tdict_stream stream = {{0, 0}, NULL};
  int64_t order[MINIBATCH];
  tdict_error err = {0};
  /* or the program's own CUDA stream */
  TDICT_TRY(tdict_stream_create(context, device, &stream, &err));
  TDICT_TRY(tdict_create_from(fields, 5, TDICT_SHAPE(MINIBATCH),
                              tdict_pinned_memory(context), &rows, &err));
  TDICT_TRY(tdict_to_device(context, rows, device, NULL, &batch, &err));
  for (int i = 0; i < EPOCHS * (ROWS / MINIBATCH); i++) {
    const int epoch = i / (ROWS / MINIBATCH),
              first = i % (ROWS / MINIBATCH) * MINIBATCH;
    for (int k = 0; k < MINIBATCH; k++)
      order[k] = tdict_sampler_get(sampler, epoch, first + k);
    TDICT_TRY(tdict_index_into(NULL, rows, flat,
                               TDICT_INDEX(TDICT_LIST(order, MINIBATCH)), NULL, &err));
    tdict_future_release(future);
    future = NULL;
    /* returns at once */
    TDICT_TRY(tdict_transfer_into_async(context, batch, rows, NULL, &future, &err));
    TDICT_TRY(tdict_future_wait_on_stream(future, stream, NULL, &err));
    /* Launch the update of the policy on the stream here. */
    /* the next transfer into `batch` waits for the update */
    TDICT_TRY(tdict_record_stream(batch, stream, &err));
    printf("epoch %d: rows %d, %d, ... on the device\n", epoch, (int)order[0],
           (int)order[1]);
  }
done:
  tdict_future_release(future);
  tdict_release(batch);
  tdict_release(rows);
  if (stream.handle) tdict_stream_destroy(context, stream);
  return err.status != TDICT_OK;
}

/* Moves the whole buffer to the device, and gathers random rows there. */
static int train_on_device(tdict_context *context, const tdict_tree *flat,
                           const tdict_sampler *sampler) {
  const tdict_device device = tdict_context_device(context, NULL);
  tdict_tree *all = NULL, *batch = NULL, *back = NULL;
  tdict_tensor *weight = NULL, *order = NULL, *list = NULL;
  int64_t numbers[ROWS];
  const float one = 1;
  tdict_error err = {0};
  TDICT_TRY(tdict_to_device(context, flat, device, NULL, &all, &err));
  TDICT_TRY(tdict_tensor_full(TDICT_F32, TDICT_SHAPE(ROWS), &one, &weight, &err));
  /* adds a key: copies the tensor to the device */
  TDICT_TRY(tdict_set_to(context, all, "weight", weight, &err));
  for (int i = 0; i < ROWS; i++) numbers[i] = tdict_sampler_get(sampler, EPOCHS, i);
  TDICT_TRY(
      tdict_tensor_from_array(TDICT_I64, TDICT_SHAPE(ROWS), numbers, &order, &err));
  TDICT_TRY(
      tdict_tensor_clone(order, tdict_device_memory(context, device), &list, &err));
  /* on the device */
  TDICT_TRY(
      tdict_index_get(NULL, all, TDICT_INDEX(TDICT_LIST_OF(list)), NULL, &batch, &err));
  TDICT_TRY(tdict_to_device(context, batch, tdict_cpu(), NULL, &back, &err));
  printf("row %d has returns %.0f, weight %.0f\n", (int)numbers[0],
         ((const float *)tdict_const_data(back, "returns"))[0],
         ((const float *)tdict_const_data(back, "weight"))[0]);
done:
  tdict_release(back);
  tdict_release(batch);
  tdict_release(all);
  tdict_tensor_release(list);
  tdict_tensor_release(order);
  tdict_tensor_release(weight);
  return err.status != TDICT_OK;
}

int main(void) {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  tdict_sampler_options shuffled = tdict_sampler_options_default();
  tdict_context *context = NULL;
  tdict_tree *buffer = NULL, *step = NULL, *flat = NULL;
  tdict_sampler *sampler = NULL;
  int failed = 1;
  tdict_error err = {0};
  options.sim = &sim;
  /* in each epoch, each row once, in a new random order */
  shuffled.kind = TDICT_SAMPLER_SHUFFLED;
  shuffled.seed = 1;
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(
      tdict_create_from(fields, 4, TDICT_SHAPE(ENVS, STEPS), NULL, &buffer, &err));
  TDICT_TRY(tdict_create_from(fields, 4, TDICT_SHAPE(ENVS), NULL, &step, &err));
  for (int t = 0; t < STEPS; t++) TDICT_TRY(act(buffer, step, t, &err));
  TDICT_TRY(add_returns(buffer, &err));
  /* [4, 8] becomes [32]; a view */
  TDICT_TRY(tdict_merge_dims(buffer, 0, 1, &flat, &err));
  TDICT_TRY(tdict_sampler_create(ROWS, &shuffled, &sampler, &err));
  failed =
      train_from_host(context, flat, sampler) + train_on_device(context, flat, sampler);
done:
  tdict_sampler_release(sampler);
  tdict_release(flat);
  tdict_release(step);
  tdict_release(buffer);
  tdict_context_destroy(context);
  return failed;
}
