#include <tdict/epoch.h>
#include <tdict/random.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { SAMPLES = 24, BATCH = 4 };

/* Plans a curriculum over samples that are sorted by difficulty.
 * Each epoch has six more samples than the last one. */
static tdict_status plan_curriculum(void *user, const tdict_epoch_info *info,
                                    tdict_epoch *epoch, tdict_error *err) {
  const int64_t count = info->epoch < 3 ? 6 * (info->epoch + 1) : info->num_indices;
  int64_t order[SAMPLES];
  tdict_random random = tdict_random_from(info->seed);
  (void)user, (void)err;
  for (int64_t i = 0; i < count; i++) order[i] = i;
  tdict_random_shuffle(&random, order, (size_t)count);
  for (int64_t i = 0; i < count; i++) tdict_epoch_add(epoch, order[i]);
  return TDICT_OK;
}

/* Prints the rest of an epoch: the samples of each batch. */
static int print_epoch(const char *name, tdict_loader *loader) {
  tdict_batch_info info = tdict_batch_info_default();
  tdict_tree *batch = NULL;
  tdict_error err = {0};
  printf("%-10s", name);
  do {
    TDICT_TRY(tdict_loader_next(loader, tdict_no_stream(), &batch, &err));
    TDICT_TRY(tdict_loader_get_batch_info(loader, &info, &err));
    const int64_t *x = batch ? tdict_const_data(batch, "x") : NULL;
    for (int64_t i = 0; i < info.num_samples; i++) printf(" %d", (int)x[i]);
    printf(batch ? "," : "\n");
    tdict_release(batch);
  } while (batch);
done:
  return err.status != TDICT_OK;
}

/* Prints two epochs of one rank. Then two ranks take one
 * batch each of the second epoch, and one rank the others. */
static int use_plan(tdict_context *context, tdict_dataset *data, const char *name,
                    tdict_plan_epoch plan, void *user) {
  tdict_loader_options options = tdict_loader_options_default();
  tdict_loader_state state = tdict_loader_state_default();
  tdict_loader *all = NULL, *half = NULL;
  tdict_tree *batch = NULL;
  tdict_error err = {0};
  options.batch_size = BATCH;
  options.seed = 5;
  options.plan_epoch = plan;
  options.plan_user = user;
  TDICT_TRY(tdict_loader_create(context, data, &options, &all, &err));
  options.world_size = 2; /* this is rank 0 of 2, and rank 1 does the same */
  TDICT_TRY(tdict_loader_create(context, data, &options, &half, &err));
  if (print_epoch(name, all) || print_epoch("", all)) goto done;

  TDICT_TRY(tdict_loader_get_state(half, &state, &err));
  state.epoch = 1;
  TDICT_TRY(tdict_loader_set_state(half, &state, &err));
  TDICT_TRY(tdict_loader_next(half, tdict_no_stream(), &batch, &err));
  tdict_release(batch);
  TDICT_TRY(tdict_loader_get_state(half, &state, &err));
  TDICT_TRY(tdict_loader_set_state(all, &state, &err));
  print_epoch("  from 2", all);
done:
  tdict_loader_destroy(all);
  tdict_loader_destroy(half);
  return err.status != TDICT_OK;
}

int main(void) {
  static const int64_t lengths[SAMPLES] = {3, 9, 4, 1, 7, 7, 2, 8, 5, 3, 6, 1,
                                           9, 9, 2, 4, 8, 5, 6, 3, 7, 1, 2, 5};
  /* the other samples have class 0 */
  static const int64_t labels[SAMPLES] = {0, 0, 0, 0, 1, 1, 2};
  static const int64_t parts[2] = {16, 8};
  static const double weights[2] = {1, 3};
  tdict_context_options options = tdict_context_options_default();
  tdict_balanced_options balanced = tdict_balanced_options_default();
  tdict_bucketed_options bucketed = tdict_bucketed_options_default();
  tdict_mixed_options mixed = tdict_mixed_options_default();
  tdict_context *context = NULL;
  tdict_tree *rows = NULL;
  tdict_tensor *x = NULL;
  tdict_dataset *data = NULL;
  tdict_error err = {0};
  balanced.labels = labels;
  balanced.num_labels = SAMPLES;
  balanced.num_classes = 3;
  balanced.num_samples = 12;
  bucketed.lengths = lengths;
  bucketed.num_lengths = SAMPLES;
  bucketed.max_tokens = 20;
  bucketed.bucket_width = 3;
  mixed.lengths = parts;
  mixed.weights = weights;
  mixed.num_parts = 2;
  mixed.num_samples = 12;
  options.device = tdict_cpu(); /* so that this program can read the batches */
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_create(1, (int64_t[]){SAMPLES}, &rows, &err));
  TDICT_TRY(tdict_tensor_arange(TDICT_I64, 0, 1, SAMPLES, &x, &err));
  TDICT_TRY(tdict_set(rows, "x", x, &err));
  TDICT_TRY(tdict_dataset_from_tree(rows, &data, &err));
  if (use_plan(context, data, "curriculum", plan_curriculum, NULL) ||
      use_plan(context, data, "balanced", tdict_plan_balanced, &balanced) ||
      use_plan(context, data, "bucketed", tdict_plan_bucketed, &bucketed) ||
      use_plan(context, data, "mixed", tdict_plan_mixed, &mixed))
    err.status = TDICT_EHOOK;
done:
  tdict_dataset_release(data);
  tdict_tensor_release(x);
  tdict_release(rows);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
