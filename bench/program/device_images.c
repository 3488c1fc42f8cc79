/* The work images of `tdict-bench device`: a window of each image is cut, perhaps flipped, normalized by channel, and
 * moved to the device with the channels first, as bfloat16. "crop" of the request is the size of the windows. See
 * device.h for ownership and threads. */
#include <string.h>

#include "device.h"

enum { CHANNELS = 3, MOST_IMAGES = 1024 };
/* The sizes of the images, and the windows, which are the same for every run. */
typedef struct image_work {
  int64_t count, height, width, crop;
  tdict_window windows[MOST_IMAGES];
} image_work;

static const float scales[CHANNELS] = {1 / (255 * 0.229f), 1 / (255 * 0.224f), 1 / (255 * 0.225f)};
static const float offsets[CHANNELS] = {-0.485f / 0.229f, -0.456f / 0.224f, -0.406f / 0.225f};

static bool read_work(const device_job *job, image_work *w) {
  const tdict_tensor *leaf = device_leaf(job, job->host, 0);
  if (!leaf || tdict_tensor_ndim(leaf) != 4) return false;
  const int64_t *shape = tdict_tensor_shape(leaf);
  uint64_t state = 5;
  *w = (image_work){.count = shape[0], .height = shape[1], .width = shape[2], .crop = device_number(job, "crop", 1)};
  if (w->count > MOST_IMAGES || w->crop > w->height || w->crop > w->width || shape[3] != CHANNELS) return false;
  for (int64_t i = 0; i < w->count; i++) {
    w->windows[i].top = (int64_t)(bench_random(&state) % (uint64_t)(w->height - w->crop + 1));
    w->windows[i].left = (int64_t)(bench_random(&state) % (uint64_t)(w->width - w->crop + 1));
    w->windows[i].flip = bench_random(&state) % 2 == 1;
  }
  return true;
}

static bool prepare(device_job *job) {
  image_work w;
  return job->num_leaves == 1 && read_work(job, &w);
}

static bool renew(device_job *job) { return job->host != NULL; }

static tdict_status move_images(device_job *job, tdict_tree **out, tdict_error *err) {
  image_work w;
  tdict_image image = tdict_image_default();
  tdict_conversion c = td_with(tdict_conversion, pattern = "**", dtype = TDICT_BF16);
  tdict_transfer_options o = tdict_transfer_options_default();
  if (!read_work(job, &w)) return TDICT_EINVAL;
  image.height = image.width = w.crop;
  image.scales = scales;
  image.offsets = offsets;
  image.num_channels = CHANNELS;
  image.window_array = w.windows;
  image.num_windows = (size_t)w.count;
  c.image = &image;
  o.conversions = &c;
  o.num_conversions = 1;
  return tdict_to_device(job->place.context, job->host, job->place.device, &o, out, err);
}

static size_t expect(const device_job *job, const device_way *way, int64_t i, unsigned char *to) {
  image_work w;
  (void)way;
  if (!read_work(job, &w)) return 0;
  const unsigned char *from = tdict_tensor_const_data(device_leaf(job, job->host, i));
  const int64_t area = w.crop * w.crop, total = w.count * CHANNELS * area;
  for (int64_t n = 0; to && n < total; n++) {
    const int64_t image = n / (CHANNELS * area), channel = n / area % CHANNELS;
    const int64_t row = n % area / w.crop, column = n % w.crop;
    const tdict_window *at = &w.windows[image];
    const int64_t x = at->left + (at->flip ? w.crop - 1 - column : column), y = at->top + row;
    volatile float product = (float)from[((image * w.height + y) * w.width + x) * CHANNELS + channel] * scales[channel];
    const uint16_t result = device_bf16(product + offsets[channel]);
    memcpy(to + (size_t)n * sizeof result, &result, sizeof result);
  }
  return (size_t)total * sizeof(uint16_t);
}

static const device_way ways[] = {{"to_device image", move_images, DEVICE_RESULT_NEW, false}, {0}};
const device_kind device_images = {"images", prepare, renew, expect, NULL, ways};
