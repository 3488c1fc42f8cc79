/* The data path: a dataset of the program over a list of files, and its loader. It takes at most 60 lines of code. The
 * CTest entry example_train_images_data_path counts the lines. The dataset owns the list. Several threads may fetch at
 * once, each with a decoder of its own. */
#include "data.h"

#include <stdlib.h>
#include <tdict/random.h>
#include <tdict/wire.h>

#include "files.h"
#include "model.h"

enum { FILE_SIDE = NET_SIDE + 2, PLACES = FILE_SIDE - NET_SIDE + 1 }; /* PLACES: of a window in a row of a file */
typedef struct images {
  image_list *list;
  bool is_shifted;
} images;

static int64_t count_images(void *self) { return ((images *)self)->list->count; }

static tdict_status fetch(void *self, const tdict_fetch_info *info, int64_t i, tdict_tree *batch, int64_t row,
                          tdict_error *err) {
  const images *all = self;
  tdict_random random = tdict_random_from(tdict_sample_seed(info, i)); /* the same after a resume */
  int32_t *window = (int32_t *)tdict_data(batch, "window") + 2 * row;  /* the first row and column of the window */
  for (int k = 0; k < 2; k++) window[k] = all->is_shifted ? (int32_t)tdict_random_below(&random, PLACES) : PLACES / 2;
  ((int32_t *)tdict_data(batch, "label"))[row] = all->list->images[i].digit;
  uint8_t *pixels = (uint8_t *)tdict_data(batch, "image") + row * FILE_SIDE * FILE_SIDE;
  return read_image(info->worker_state, all->list->images[i].path, FILE_SIDE, pixels, err);
}

static void release(void *self) {
  free(((images *)self)->list);
  free(self);
}

tdict_status open_images(tdict_context *context, const char *folder, const char *list, tdict_loader_options options,
                         tdict_loader **out, tdict_error *err) {
  static const tdict_field fields[] = {TDICT_FIELD("image", TDICT_U8, FILE_SIDE, FILE_SIDE, 1),
                                       TDICT_FIELD("window", TDICT_I32, 2), TDICT_FIELD("label", TDICT_I32)};
  /* The training images have mean 0.1957 and deviation 0.3350 in their one channel. */
  static const float scales[] = {1 / (255 * 0.3350f)}, offsets[] = {-0.1957f / 0.3350f};
  static const tdict_image image = {.struct_size = sizeof image,
                                    .height = NET_SIDE,
                                    .width = NET_SIDE,
                                    .channels_first = true,
                                    .scales = scales,
                                    .offsets = offsets,
                                    .num_channels = 1,
                                    .windows = "window"};
  static const tdict_conversion conversion = {
      .struct_size = sizeof conversion, .pattern = "image", .dtype = TDICT_F32, .scale = 1, .image = &image};
  tdict_dataset_table table = tdict_dataset_table_default();
  images *all = calloc(1, sizeof *all);
  if (!all) return tdict_error_set(err, TDICT_ENOMEM, list, "no memory for the dataset");
  all->is_shifted = options.shuffle;
  table.self = all;
  table.fields = fields;
  table.num_fields = 3;
  table.length = count_images;
  table.fetch = fetch;
  table.open_worker = open_decoder;
  table.close_worker = close_decoder;
  table.release = release;
  tdict_dataset *dataset;
  tdict_status status = read_list(folder, list, &all->list, err);
  if (status == TDICT_OK) status = tdict_dataset_create(&table, &dataset, err);
  if (status != TDICT_OK) {
    release(all);
    return status;
  }
  options.conversions = &conversion;
  options.num_conversions = 1;
  status = tdict_loader_create(context, dataset, &options, out, err);
  tdict_dataset_release(dataset);
  return status;
}
