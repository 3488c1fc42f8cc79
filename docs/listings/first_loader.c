#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { SAMPLES = 10, BATCH = 4 };

int main(void) {
  const tdict_field field = TDICT_FIELD("x", TDICT_F32, 2);
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  tdict_loader_options loading = tdict_loader_options_default();
  tdict_context *context = NULL;
  tdict_tree *samples = NULL, *batch = NULL;
  tdict_dataset *dataset = NULL;
  tdict_loader *loader = NULL;
  tdict_error err = {0};
  options.sim = &sim;
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_create_from(&field, 1, TDICT_SHAPE(SAMPLES), NULL, &samples, &err));
  /* sample i is row i of the tree */
  TDICT_TRY(tdict_dataset_from_tree(samples, &dataset, &err));
  loading.batch_size = BATCH;
  loading.shuffle = true;
  loading.seed = 1;
  TDICT_TRY(tdict_loader_create(context, dataset, &loading, &loader, &err));
  for (int epoch = 0; epoch < 2;) {
    /* the batch is on the device */
    TDICT_TRY(tdict_loader_next(loader, tdict_no_stream(), &batch, &err));
    if (batch)
      printf("epoch %d: a batch of %d samples\n", epoch,
             (int)tdict_batch_size(batch)[0]);
    else
      epoch++; /* NULL marks the end of an epoch */
    tdict_release(batch);
  }
done:
  tdict_loader_destroy(loader);
  tdict_dataset_release(dataset);
  tdict_release(samples);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
