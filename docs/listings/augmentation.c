#include <string.h>

#include <tdict/dataset.h>
#include <tdict/sampler.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { IMAGES = 12, SIDE = 8, CROP = 6, BATCH = 4, EPOCHS = 3, BATCHES = 9 /* of all epochs */, SAVED = 4 };

typedef struct images {
  uint64_t seed;
  int64_t epoch;              /* recipe 1: written between epochs */
  const tdict_sampler *order; /* recipe 2: the order of the images of each epoch */
} images;

/* Mixes the bits of a number, so that near numbers give unlike results. */
static uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* Writes a random part of an image to a row of the batch. It depends only on the seed, the epoch and the image, not on
 * the worker and not on the time. */
static void write_row(const images *self, int64_t epoch, int64_t image, tdict_tree *batch, int64_t row) {
  const uint64_t random = mix(mix(self->seed + (uint64_t)epoch) + (uint64_t)image);
  const int top = (int)(random % (SIDE - CROP + 1)), left = (int)(random / 8 % (SIDE - CROP + 1));
  const bool flips = random >> 40 & 1;
  float *pixel = (float *)tdict_data(batch, "image") + row * CROP * CROP;
  for (int y = 0; y < CROP; y++)
    for (int x = 0; x < CROP; x++) { /* a real program would read the image from a file */
      const int from = left + (flips ? CROP - 1 - x : x);
      *pixel++ = (float)(image * SIDE * SIDE + (top + y) * SIDE + from);
    }
}

/* Recipe 1: the program tells the dataset the epoch. */
static int64_t count_images(void *self) {
  (void)self;
  return IMAGES;
}
static tdict_status fetch_of_epoch(void *self, int64_t index, tdict_tree *batch, int64_t row, tdict_error *err) {
  const images *i = self;
  (void)err;
  write_row(i, i->epoch, index, batch, row);
  return TDICT_OK;
}

/* Recipe 2: the epoch is a part of the index. */
static int64_t count_all_epochs(void *self) {
  (void)self;
  return (int64_t)EPOCHS * IMAGES;
}
static tdict_status fetch_of_index(void *self, int64_t index, tdict_tree *batch, int64_t row, tdict_error *err) {
  const images *i = self;
  const int64_t epoch = index / IMAGES;
  (void)err;
  write_row(i, epoch, tdict_sampler_get(i->order, epoch, index % IMAGES), batch, row);
  return TDICT_OK;
}

static tdict_status make_loader(tdict_context *context, images *self, tdict_loader **out, tdict_error *err) {
  static const tdict_field fields[] = {TDICT_FIELD("image", TDICT_F32, CROP, CROP)};
  tdict_dataset_table table = tdict_dataset_table_default();
  tdict_loader_options loading = tdict_loader_options_default();
  tdict_dataset *dataset = NULL;
  table.self = self;
  table.fields = fields;
  table.num_fields = 1;
  table.length = self->order ? count_all_epochs : count_images;
  table.fetch = self->order ? fetch_of_index : fetch_of_epoch;
  table.length_varies = !self->order; /* recipe 1: fetches no image of an epoch before its first batch is wanted */
  loading.batch_size = BATCH;
  loading.shuffle = !self->order; /* recipe 2: the dataset shuffles */
  loading.seed = self->seed;
  tdict_status status = tdict_dataset_create(&table, &dataset, err);
  if (status == TDICT_OK) status = tdict_loader_create(context, dataset, &loading, out, err);
  tdict_dataset_release(dataset);
  return status;
}

/* Trains from `first`, or from the begin if it is NULL. Notes a number for each batch, and a state. */
static int train(tdict_context *context, images *self, const tdict_loader_state *first, double *sums,
                 tdict_loader_state *saved) {
  tdict_loader *loader = NULL;
  tdict_tree *batch = NULL;
  tdict_error err = {0};
  int n = first ? SAVED : 0;
  TDICT_TRY(make_loader(context, self, &loader, &err));
  self->epoch = first ? first->epoch : 0; /* before tdict_loader_set_state(), which starts to fetch */
  if (first) TDICT_TRY(tdict_loader_set_state(loader, first, &err));
  for (; n < BATCHES; self->epoch++) { /* before the first tdict_loader_next() of the next epoch */
    for (;;) {
      TDICT_TRY(tdict_loader_next(loader, tdict_no_stream(), &batch, &err));
      if (!batch) break; /* the end of the epoch */
      const float *pixels = tdict_const_data(batch, "image");
      const int64_t count = tdict_batch_size(batch)[0] * CROP * CROP;
      sums[n] = 0;
      for (int64_t i = 0; i < count; i++) sums[n] += pixels[i] * (double)(i + 1);
      tdict_release(batch);
      if (++n == SAVED) TDICT_TRY(tdict_loader_get_state(loader, saved, &err));
    }
  }
done:
  tdict_loader_destroy(loader);
  return err.status != TDICT_OK;
}

/* Trains without a break, and again from the saved state. */
static int compare(const char *name, tdict_context *context, images *self) {
  tdict_loader_state saved = tdict_loader_state_default();
  double whole[BATCHES] = {0}, resumed[BATCHES] = {0};
  if (train(context, self, NULL, whole, &saved) || train(context, self, &saved, resumed, NULL)) return 1;
  const size_t rest = (BATCHES - SAVED) * sizeof *whole;
  printf("%s: resumed at epoch %d, batch %d: %s\n", name, (int)saved.epoch, (int)saved.batch,
         memcmp(whole + SAVED, resumed + SAVED, rest) == 0 ? "the same images" : "other images");
  return 0;
}

int main(void) {
  tdict_context_options options = tdict_context_options_default();
  tdict_sampler_options order = tdict_sampler_options_default();
  images first = {.seed = 7}, second = {.seed = 7};
  tdict_context *context = NULL;
  tdict_sampler *sampler = NULL;
  tdict_error err = {0};
  int failed = 1;
  options.device = tdict_cpu(); /* so that this program can read the batches */
  order.kind = TDICT_SAMPLER_SHUFFLED;
  order.seed = 7;
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_sampler_create(IMAGES, &order, &sampler, &err));
  second.order = sampler;
  failed = compare("epoch of the program", context, &first) || compare("epoch in the index", context, &second);
done:
  tdict_sampler_release(sampler);
  tdict_context_destroy(context);
  return failed;
}
