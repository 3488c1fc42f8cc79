#include <string.h>

#include <tdict/dataset.h>
#include <tdict/random.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum {
  IMAGES = 12,
  SIDE = 8,
  CROP = 6,
  BATCH = 4,
  BATCHES = 9 /* of three epochs */,
  SAVED = 4
};

static int64_t count_images(void *self) {
  (void)self;
  return IMAGES;
}

/* Writes a random part of an image to a row of the batch,
 * perhaps flipped, and with another brightness. */
static tdict_status fetch(void *self, const tdict_fetch_info *info, int64_t image,
                          tdict_tree *batch, int64_t row, tdict_error *err) {
  tdict_random random = tdict_random_from(tdict_sample_seed(info, image));
  const int64_t top = tdict_random_below(&random, SIDE - CROP + 1);
  const int64_t left = tdict_random_below(&random, SIDE - CROP + 1);
  const bool flips = tdict_random_below(&random, 2) == 1;
  const double brightness = 0.8 + 0.4 * tdict_random_uniform(&random);
  float *pixel = (float *)tdict_data(batch, "image") + row * CROP * CROP;
  (void)self, (void)err;
  for (int64_t y = 0; y < CROP; y++)
    /* a real program would read the image from a file */
    for (int64_t x = 0; x < CROP; x++) {
      const int64_t from = left + (flips ? CROP - 1 - x : x);
      *pixel++ =
          (float)(brightness * (double)(image * SIDE * SIDE + (top + y) * SIDE + from));
    }
  return TDICT_OK;
}

static tdict_status make_loader(tdict_context *context, int workers, tdict_loader **out,
                                tdict_error *err) {
  static const tdict_field fields[] = {TDICT_FIELD("image", TDICT_F32, CROP, CROP)};
  tdict_dataset_table table = tdict_dataset_table_default();
  tdict_loader_options loading = tdict_loader_options_default();
  tdict_dataset *dataset = NULL;
  table.fields = fields;
  table.num_fields = 1;
  table.length = count_images;
  table.fetch = fetch;
  loading.batch_size = BATCH;
  loading.shuffle = true;
  loading.seed = 7;
  loading.num_workers = workers;
  tdict_status status = tdict_dataset_create(&table, &dataset, err);
  if (status == TDICT_OK)
    status = tdict_loader_create(context, dataset, &loading, out, err);
  tdict_dataset_release(dataset);
  return status;
}

/* Trains from `first`, or from the beginning if it is
 * NULL. Writes a number for each batch, and a state. */
static int train(tdict_context *context, int workers, const tdict_loader_state *first,
                 double *sums, tdict_loader_state *saved) {
  tdict_loader *loader = NULL;
  tdict_tree *batch = NULL;
  tdict_error err = {0};
  TDICT_TRY(make_loader(context, workers, &loader, &err));
  if (first) TDICT_TRY(tdict_loader_set_state(loader, first, &err));
  for (int n = first ? SAVED : 0; n < BATCHES;) {
    TDICT_TRY(tdict_loader_next(loader, tdict_no_stream(), &batch, &err));
    if (!batch) continue; /* the end of an epoch */
    const float *pixels = tdict_const_data(batch, "image");
    sums[n] = 0;
    for (int i = 0; i < BATCH * CROP * CROP; i++)
      sums[n] += pixels[i] * (double)(i + 1);
    tdict_release(batch);
    if (++n == SAVED) TDICT_TRY(tdict_loader_get_state(loader, saved, &err));
  }
done:
  tdict_loader_destroy(loader);
  return err.status != TDICT_OK;
}

/* Trains without a break, and again from the
 * saved state with another number of workers. */
int main(void) {
  tdict_context_options options = tdict_context_options_default();
  tdict_loader_state saved = tdict_loader_state_default();
  double whole[BATCHES] = {0}, resumed[BATCHES] = {0};
  tdict_context *context = NULL;
  tdict_error err = {0};
  options.device = tdict_cpu(); /* so that this program can read the batches */
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  if (train(context, 4, NULL, whole, &saved) ||
      train(context, 0, &saved, resumed, NULL))
    goto done;
  const size_t rest = (BATCHES - SAVED) * sizeof *whole;
  printf("resumed at epoch %d, batch %d: %s\n", (int)saved.epoch, (int)saved.batch,
         memcmp(whole + SAVED, resumed + SAVED, rest) == 0 ? "the same images"
                                                           : "other images");
done:
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
