#include <tdict/dataset.h>
#include <tdict/random.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { IMAGES = 8, HEIGHT = 20, WIDTH = 24, CHANNELS = 3, CROP = 16, BATCH = 4 };

static int64_t count_images(void *self) {
  (void)self;
  return IMAGES;
}

/* Writes an image as it is stored, and the window that this epoch takes of it. */
static tdict_status fetch(void *self, const tdict_fetch_info *info, int64_t image,
                          tdict_tree *batch, int64_t row, tdict_error *err) {
  tdict_random random = tdict_random_from(tdict_sample_seed(info, image));
  unsigned char *pixel =
      (unsigned char *)tdict_data(batch, "image") + row * HEIGHT * WIDTH * CHANNELS;
  int32_t *window = (int32_t *)tdict_data(batch, "window") + row * 3;
  /* a real program would decode a file */
  for (int64_t i = 0; i < HEIGHT * WIDTH * CHANNELS; i++)
    pixel[i] = (unsigned char)(image * 16 + i % CHANNELS);
  window[0] = (int32_t)tdict_random_below(&random, HEIGHT - CROP + 1); /* top */
  window[1] = (int32_t)tdict_random_below(&random, WIDTH - CROP + 1);  /* left */
  window[2] = (int32_t)tdict_random_below(&random, 2);                 /* flip */
  (void)self, (void)err;
  return TDICT_OK;
}

static tdict_status make_dataset(tdict_dataset **out, tdict_error *err) {
  static const tdict_field fields[] = {
      TDICT_FIELD("image", TDICT_U8, HEIGHT, WIDTH, CHANNELS),
      TDICT_FIELD("window", TDICT_I32, 3)};
  tdict_dataset_table table = tdict_dataset_table_default();
  table.fields = fields;
  table.num_fields = 2;
  table.length = count_images;
  table.fetch = fetch;
  return tdict_dataset_create(&table, out, err);
}

int main(void) {
  /* mean and standard deviation of the channels of ImageNet, for values from 0 to 1 */
  static const float mean[CHANNELS] = {0.485f, 0.456f, 0.406f},
                     deviation[CHANNELS] = {0.229f, 0.224f, 0.225f};
  float scales[CHANNELS], offsets[CHANNELS];
  for (int c = 0; c < CHANNELS; c++) {
    scales[c] = 1 / (255 * deviation[c]);
    offsets[c] = -mean[c] / deviation[c];
  }
  tdict_image image = tdict_image_default();
  image.height = image.width = CROP;
  image.scales = scales;
  image.offsets = offsets;
  image.num_channels = CHANNELS;
  image.windows = "window";
  tdict_conversion conversion = tdict_conversion_default();
  conversion.pattern = "image";
  conversion.dtype = TDICT_BF16;
  conversion.image = &image;

  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_dataset *dataset = NULL;
  tdict_loader *loader = NULL;
  tdict_tree *batch = NULL;
  tdict_loader_options loading = tdict_loader_options_default();
  tdict_error err = {0};
  loading.batch_size = BATCH;
  loading.shuffle = true;
  loading.seed = 7;
  loading.conversions = &conversion;
  loading.num_conversions = 1;
  options.sim = &sim; /* without this line: the first GPU */
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(make_dataset(&dataset, &err));
  TDICT_TRY(tdict_loader_create(context, dataset, &loading, &loader, &err));
  for (int n = 0; n < IMAGES / BATCH; n++) {
    TDICT_TRY(tdict_loader_next(loader, tdict_no_stream(), &batch, &err));
    tdict_tensor *pixels = NULL;
    TDICT_TRY(tdict_get(batch, "image", &pixels, &err)); /* normalized, on the device */
    const int64_t *shape = tdict_tensor_shape(pixels);
    printf("%s [%d, %d, %d, %d]\n", tdict_dtype_name(tdict_tensor_dtype(pixels)),
           (int)shape[0], (int)shape[1], (int)shape[2], (int)shape[3]);
    tdict_release(batch);
  }
done:
  tdict_loader_destroy(loader);
  tdict_dataset_release(dataset);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
