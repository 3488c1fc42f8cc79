/* Helpers for tests of conversions of images: random images with windows, and a check of the results that uses no code
 * of the library. Thread rule: only the main thread. */
#ifndef TDICT_TESTS_ENGINE_IMAGES_H
#define TDICT_TESTS_ENGINE_IMAGES_H

#include "conversions.h"
#include "support/random.h"

enum { MOST_IMAGES = 512, MOST_CHANNELS = 4 };

/* The images of a leaf, and how they are converted. */
typedef struct image_set {
  int64_t height, width, channels; /* of the images */
  int64_t num_images;
  tdict_dtype dtype;
  float scales[MOST_CHANNELS], offsets[MOST_CHANNELS];
  tdict_window windows[MOST_IMAGES];
  tdict_image image;
  tdict_conversion rule;
} image_set;

static inline float random_float(rng *r) {
  static const float special[] = {0, -0.0f, 1, 1 / 255.0f, 1e-7f, -3e-8f, 1e-41f, 257.03f, -65504, 1e38f};
  const int64_t n = pick(r, 0, 19);
  return n < 10 ? special[n] : (float)pick(r, -100000, 100000) / (float)pick(r, 1, 3000000);
}

/* Chooses sizes, windows and scales, and makes the conversion of the leaf "image". */
static inline void choose_images(image_set *s, rng *r, int64_t num_images, int64_t most_size) {
  static const tdict_dtype dtypes[] = {TDICT_F16, TDICT_BF16, TDICT_F32};
  s->num_images = num_images;
  s->height = pick(r, 1, most_size);
  s->width = pick(r, 1, most_size);
  s->channels = pick(r, 1, MOST_CHANNELS);
  s->dtype = dtypes[pick(r, 0, 2)];
  s->image = td_with(tdict_image, height = pick(r, 1, s->height), width = pick(r, 1, s->width));
  s->image.channels_first = pick(r, 0, 1);
  for (int64_t i = 0; i < num_images; i++)
    s->windows[i] =
        (tdict_window){pick(r, 0, s->height - s->image.height), pick(r, 0, s->width - s->image.width), pick(r, 0, 1)};
  for (int64_t c = 0; c < s->channels; c++) {
    s->scales[c] = random_float(r);
    s->offsets[c] = random_float(r);
  }
  s->image.scales = s->scales;
  s->image.offsets = s->offsets;
  s->image.num_channels = (size_t)s->channels;
  s->image.window_array = s->windows;
  s->image.num_windows = (size_t)num_images;
  s->rule = td_with(tdict_conversion, pattern = "image", dtype = s->dtype, image = &s->image);
}

/* Makes random images [num_images, height, width, channels]. `layout` is 0: plain, 1: strided, 2: pinned. */
static inline tdict_tensor *make_images(const place *w, const image_set *s, int layout) {
  if (layout != 1)
    return random_tensor(TDICT_U8, SHAPE(s->num_images, s->height, s->width, s->channels),
                         layout == 2 ? w->pinned : NULL);
  return permuted(random_tensor(TDICT_U8, SHAPE(s->channels, s->width, s->num_images, s->height), NULL),
                  (const int[]){2, 3, 1, 0});
}

/* Makes the windows as a tensor of integers with two or three columns. Two columns need windows without flips. */
static inline tdict_tensor *make_windows(const image_set *s, tdict_dtype dtype, int64_t columns) {
  tdict_tensor *t = td_made(tensor, tdict_tensor_empty(dtype, SHAPE(s->num_images, columns), NULL, &made, err));
  for (int64_t i = 0; i < s->num_images; i++) {
    const int64_t row[] = {s->windows[i].top, s->windows[i].left, s->windows[i].flip};
    for (int64_t k = 0; k < columns; k++)
      naive_store(naive_find(dtype), t->data, (size_t)(i * columns + k), (uint64_t)row[k]);
  }
  return t;
}

/* Returns the bits of the wanted element. */
static inline uint64_t wanted_element(const image_set *s, const unsigned char *src, int64_t image, int64_t row,
                                      int64_t column, int64_t channel) {
  const tdict_window *at = &s->windows[image];
  const int64_t y = at->top + row, x = at->left + (at->flip ? s->image.width - 1 - column : column);
  const unsigned char byte = src[((image * s->height + y) * s->width + x) * s->channels + channel];
  volatile float product = (float)byte * s->scales[channel];
  volatile float sum = product + s->offsets[channel];
  const float value = sum;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return s->dtype == TDICT_F32 ? bits : naive_float(naive_find(s->dtype), (long double)value);
}

/* Checks the result of images [num_images, height, width, channels]. */
static inline void check_images(const place *w, const image_set *s, const tdict_tensor *src, const tdict_tensor *got) {
  const int64_t h = s->image.height, x = s->image.width, c = s->channels;
  const int64_t first[] = {s->num_images, c, h, x}, last[] = {s->num_images, h, x, c};
  const naive_dtype *to = naive_find(s->dtype);
  scoped_bytes a = read_elements(w, src), b = read_elements(w, got);
  assert_int_equal(tdict_tensor_dtype(got), s->dtype);
  assert_int_equal(tdict_tensor_ndim(got), 4);
  for (int i = 0; i < 4; i++)
    assert_int_equal(tdict_tensor_shape(got)[i], s->image.channels_first ? first[i] : last[i]);
  for (int64_t i = 0; i < tdict_tensor_numel(got); i++) {
    const int64_t image = i / (h * x * c), within = i % (h * x * c);
    const int64_t channel = s->image.channels_first ? within / (h * x) : within % c;
    const int64_t pixel = s->image.channels_first ? within % (h * x) : within / c;
    const uint64_t want = wanted_element(s, a, image, pixel / x, pixel % x, channel);
    if (naive_load(to, b, (size_t)i) != want)
      fail_msg("image %d, row %d, column %d, channel %d is 0x%llx, wanted 0x%llx", (int)image, (int)(pixel / x),
               (int)(pixel % x), (int)channel, (unsigned long long)naive_load(to, b, (size_t)i),
               (unsigned long long)want);
  }
}

#endif
