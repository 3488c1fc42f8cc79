/* Tests the loader's option `conversions`: 16-bit tokens arrive as int64, images as normalized floats, and windows of
 * images, which a sample chooses, with the channels first. */
#include "numbers.h"
#include "tdict/random.h"

enum { ROWS = 40, LENGTH = 77, BATCH = 8 };

static tdict_tree *make_rows(void) {
  static const tdict_field fields[] = {{"tokens", TDICT_U16, 1, {LENGTH}}, {"image", TDICT_U8, 1, {LENGTH}}};
  tdict_tree *td = td_made(tree, tdict_create_from(fields, 2, 1, &(int64_t){ROWS}, NULL, &made, err));
  td_fill_random(tdict_data(td, "tokens"), ROWS * LENGTH * 2, 5);
  td_fill_random(tdict_data(td, "image"), ROWS * LENGTH, 6);
  return td;
}

/* Reads an epoch in order, and compares the elements. */
static void check_epoch(const yard *y, tdict_loader *l, const uint16_t *tokens, const uint8_t *image) {
  static int64_t ids[BATCH * LENGTH];
  static float pixels[BATCH * LENGTH];
  for (int at = 0; at < ROWS * LENGTH; at += BATCH * LENGTH) {
    scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
    assert_non_null(batch);
    assert_int_equal(read_leaf(y, batch, "tokens", ids, sizeof ids), sizeof ids);
    assert_int_equal(read_leaf(y, batch, "image", pixels, sizeof pixels), sizeof pixels);
    for (int i = 0; i < BATCH * LENGTH; i++) {
      assert_int_equal(ids[i], tokens[at + i]);
      volatile float product = (float)image[at + i] * (float)(1 / 255.0);
      volatile float sum = product + -0.5f;
      assert_true(pixels[i] == sum);
    }
  }
}

DEVICE_CASE(loader_converts_batches) {
  scoped_yard y = open_yard();
  scoped_tree rows = make_rows();
  tdict_conversion c[2] = {tdict_conversion_default(), tdict_conversion_default()};
  c[0].pattern = "tokens";
  c[0].dtype = TDICT_I64;
  c[1].pattern = "image";
  c[1].dtype = TDICT_F32;
  c[1].scale = 1 / 255.0;
  c[1].offset = -0.5;
  for (int workers = 0; workers < 4; workers += 3) {
    tdict_dataset *d = td_made(dataset, tdict_dataset_from_tree(rows, &made, err));
    tdict_loader_options o = td_with(tdict_loader_options, batch_size = BATCH, num_workers = workers, device = y.device,
                                     conversions = c, num_conversions = 2);
    scoped_loader l = open_loader_on(&y, d, &o);
    for (int epoch = 0; epoch < 2; epoch++) {
      tdict_tree *end = NULL;
      check_epoch(&y, l, tdict_const_data(rows, "tokens"), tdict_const_data(rows, "image"));
      td_ok(tdict_loader_next(l, tdict_no_stream(), &end, err));
      assert_null(end);
    }
  }
}

/* With a bad conversion, no loader is created. An element out of range fails its batch. The error names the leaf. */
DEVICE_CASE(loader_reports_bad_conversions) {
  scoped_yard y = open_yard();
  scoped_tree rows = make_rows(), batch = NULL;
  tdict_conversion c = tdict_conversion_default();
  scoped_loader l = NULL;
  tdict_dataset *d = NULL;
  ((uint16_t *)tdict_data(rows, "tokens"))[3] = 256;
  memset(tdict_data(rows, "tokens"), 0, 6);
  td_ok(tdict_dataset_from_tree(rows, &d, err));
  tdict_loader_options o = td_with(tdict_loader_options, batch_size = BATCH, num_workers = 0, device = y.device,
                                   conversions = &c, num_conversions = 1);
  c.pattern = "tok*";
  c.dtype = TDICT_U8;
  td_fails_at(TDICT_EINVAL, "loader: options.conversions[0]: a star is a part of a key", "tok*",
              tdict_loader_create(y.c, d, &o, &l, err));
  c.pattern = "tokens";
  l = open_loader_on(&y, d, &o);
  td_fails_at(TDICT_EOVERFLOW, "element [0, 3] is 256, wanted 0 to 255 (uint8)", "tokens",
              tdict_loader_next(l, tdict_no_stream(), &batch, err));
}

/* A conversion without a match fails the batch on the device and on the CPU, unless its pattern is optional. */
DEVICE_CASE(loader_refuses_conversions_without_a_match) {
  for (int way = 0; way < 2 * 2 * 2; way++) {
    scoped_yard y = open_yard();
    numbers n = numbers_of(6);
    tdict_dataset_table d = way & 1 ? by_row(&n) : by_sample(&n);
    tdict_conversion c[2] = {tdict_conversion_default(), tdict_conversion_default()};
    tdict_tree *batch = NULL;
    c[0].pattern = "id";
    c[1].pattern = way & 4 ? "?deep.y" : "deep.y";
    c[0].dtype = c[1].dtype = TDICT_F64;
    tdict_loader_options o =
        td_with(tdict_loader_options, batch_size = 3, num_workers = 1, conversions = c, num_conversions = 2);
    if (way & 2) o.device = tdict_cpu();
    scoped_loader l = open_loader(&y, &d, &o);
    if (way & 4) {
      td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
      tdict_tensor *id = NULL;
      td_ok(tdict_get(batch, "id", &id, err));
      assert_int_equal(tdict_tensor_dtype(id), TDICT_F64);
      tdict_release(batch);
    } else {
      td_fails_at(TDICT_ENOTFOUND, "conversions[1] matches no tensor; keys: x", "deep.y",
                  tdict_loader_next(l, tdict_no_stream(), &batch, err));
    }
  }
}

enum { IMAGES = 24, SIDE = 9, CROP = 5, PIXELS = CROP * CROP };
static unsigned char pixel_of(int64_t image, int64_t row, int64_t column, int channel) {
  return (unsigned char)(image * 31 + row * 7 + column * 3 + channel * 101);
}
static int64_t count_images(void *self) {
  (void)self;
  return IMAGES;
}
/* Writes an image, a random window, and the window once more for the test. */
static tdict_status fetch_image(void *self, const tdict_fetch_info *info, int64_t image, tdict_tree *batch, int64_t row,
                                tdict_error *e) {
  tdict_random random = tdict_random_from(tdict_sample_seed(info, image));
  unsigned char *pixel = (unsigned char *)tdict_data(batch, "image") + row * SIDE * SIDE * 3;
  int16_t *window = (int16_t *)tdict_data(batch, "window") + row * 3;
  for (int i = 0; i < SIDE * SIDE * 3; i++) pixel[i] = pixel_of(image, i / (SIDE * 3), i / 3 % SIDE, i % 3);
  for (int i = 0; i < 2; i++) window[i] = (int16_t)tdict_random_below(&random, SIDE - CROP + 1);
  window[2] = (int16_t)tdict_random_below(&random, 2);
  ((int64_t *)tdict_data(batch, "id"))[row] = image;
  if (self) window[0] = (int16_t)(image == 5 ? SIDE : 0); /* outside of the image */
  (void)e;
  return TDICT_OK;
}
static tdict_dataset *make_images(bool is_bad) {
  static const tdict_field fields[] = {
      {"image", TDICT_U8, 3, {SIDE, SIDE, 3}}, {"window", TDICT_I16, 1, {3}}, {"id", TDICT_I64, 0, {0}}};
  tdict_dataset_table table = td_with(tdict_dataset_table, fields = fields, num_fields = 3, length = count_images);
  table.fetch = fetch_image;
  table.self = is_bad ? &table : NULL; /* only compared with NULL */
  return td_made(dataset, tdict_dataset_create(&table, &made, err));
}
static const float image_scales[3] = {0.5f, 0.25f, 2}, image_offsets[3] = {-1, 0, 7};

/* Checks a batch, whose windows have arrived, too. */
static void check_images(const yard *y, const tdict_tree *batch) {
  float pixels[BATCH * 3 * PIXELS];
  int16_t windows[BATCH * 3];
  int64_t ids[BATCH];
  assert_int_equal(read_leaf(y, batch, "image", pixels, sizeof pixels), sizeof pixels);
  assert_int_equal(read_leaf(y, batch, "window", windows, sizeof windows), sizeof windows);
  assert_int_equal(read_leaf(y, batch, "id", ids, sizeof ids), sizeof ids);
  for (int i = 0; i < BATCH * 3 * PIXELS; i++) {
    const int n = i / (3 * PIXELS), c = i / PIXELS % 3, row = i % PIXELS / CROP, column = i % CROP;
    const int16_t *at = &windows[3 * n];
    const int64_t x = at[1] + (at[2] ? CROP - 1 - column : column);
    assert_true(pixels[i] == (float)pixel_of(ids[n], at[0] + row, x, c) * image_scales[c] + image_offsets[c]);
  }
}

/* Each epoch has other windows, and the same windows with any number of workers. */
DEVICE_CASE(loader_cuts_images) {
  scoped_yard y = open_yard();
  const tdict_image image = td_with(tdict_image, height = CROP, width = CROP, windows = "window", scales = image_scales,
                                    offsets = image_offsets, num_channels = 3);
  const tdict_conversion c = td_with(tdict_conversion, pattern = "image", dtype = TDICT_F32, image = &image);
  int16_t seen[2][2][IMAGES * 3];
  for (int many = 0; many < 2; many++) {
    tdict_loader_options o = td_with(tdict_loader_options, batch_size = BATCH, num_workers = 3 * many, shuffle = true,
                                     seed = 4, device = y.device, conversions = &c, num_conversions = 1);
    scoped_loader l = open_loader_on(&y, make_images(false), &o);
    for (int epoch = 0; epoch < 2; epoch++) {
      for (int n = 0; n < IMAGES / BATCH; n++) {
        scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
        check_images(&y, batch);
        read_leaf(&y, batch, "window", &seen[many][epoch][n * BATCH * 3], BATCH * 3 * sizeof(int16_t));
      }
      tdict_tree *end = NULL;
      td_ok(tdict_loader_next(l, tdict_no_stream(), &end, err));
      assert_null(end);
    }
  }
  assert_memory_equal(seen[0], seen[1], sizeof seen[0]);
  assert_memory_not_equal(seen[0][0], seen[0][1], sizeof seen[0][0]);
}

/* A window outside its image is the error of its batch. */
DEVICE_CASE(loader_reports_windows_outside) {
  scoped_yard y = open_yard();
  const tdict_image image = td_with(tdict_image, height = CROP, width = CROP, windows = "window");
  const tdict_conversion c = td_with(tdict_conversion, pattern = "image", dtype = TDICT_F32, image = &image);
  for (int workers = 0; workers < 4; workers += 3) {
    tdict_loader_options o = td_with(tdict_loader_options, batch_size = BATCH, num_workers = workers, device = y.device,
                                     conversions = &c, num_conversions = 1);
    scoped_loader l = open_loader_on(&y, make_images(true), &o);
    tdict_tree *batch = NULL;
    td_fails_at(TDICT_EINVAL, "window 5 of 5 x 5 is at row 9", "window",
                tdict_loader_next(l, tdict_no_stream(), &batch, err));
    assert_null(batch);
  }
}
