/* Tests conversions of images: windows are cut, normalized by channel and permuted. A naive model in engine/images.h
 * computes the expected elements. */
#include "engine/engine.h"
#include "engine/images.h"
#include "engine/plan/collect.h"
#include "support/float_env.h"
#include "support/rest.h"
#include "support/threads.h"
#include "support/unloaded.h"

/* Random images, windows and dtypes, to the device, within the device and within the host, in all modes and with
 * different numbers of threads. */
DEVICE_CASE(images_arrive_in_all_ways) {
  static const tdict_dtype integers[] = {TDICT_I8, TDICT_U16, TDICT_I32, TDICT_I64, TDICT_U64};
  scoped_place w = open_place();
  rng r = {7};
  for (int i = 0; i < 3 * NUM_WAYS; i += WAYS_STEP) {
    image_set s;
    way v = way_at(i % NUM_WAYS);
    choose_images(&s, &r, pick(&r, 1, 9), 60);
    use_conversions(&v.o, &s.rule, 1);
    scoped_tree src = td_tree("before:f32[33]");
    tdict_tensor *images = td_put(src, "image", make_images(&w, &s, i % 3));
    if (i % 2) { /* the windows are in the tree, and travel, too */
      s.image.window_array = NULL;
      s.image.num_windows = 0;
      s.image.windows = "deep.at";
      td_put(src, "deep.at", make_windows(&s, integers[i % 5], 3));
    }
    poison(&w, w.memory, 4 * line_bytes(src));
    scoped_tree out = move_tree(&w, src, w.device, &v);
    check_images(&w, &s, images, td_leaf(out, "image"));
    check_tensor(&w, td_leaf(src, "before"), td_leaf(out, "before"), "before");
    if (i % 2) check_tensor(&w, td_leaf(src, "deep.at"), td_leaf(out, "deep.at"), "deep.at");
    if (i % 2 || !w.gpu) continue;
    scoped_tree there = to_device(&w, src, w.device), cut = move_tree(&w, there, w.device, &v);
    check_images(&w, &s, images, td_leaf(cut, "image"));
  }
}

/* Many slots hold parts of a leaf, which begin and end within pixels and rows. */
GPU_CASE(images_of_large_leaves_use_many_slots) {
  scoped_place w = open_place();
  rng r = {8};
  for (int i = 4; i < NUM_WAYS; i += FEW_WAYS_STEP) {
    image_set s;
    way v = way_at(i);
    choose_images(&s, &r, SANITIZED ? 40 : 160, 100);
    s.image.height = s.image.width = 0;
    if (s.height * s.width < 400) continue;
    memset(s.windows, 0, sizeof s.windows);
    for (int k = 0; k < s.num_images; k++) s.windows[k].flip = k % 3 == 1;
    use_conversions(&v.o, &s.rule, 1);
    scoped_tree src = new_tree();
    tdict_tensor *images = td_put(src, "image", make_images(&w, &s, i % 3));
    td_put(src, "small", random_tensor(TDICT_U8, SHAPE(77), NULL));
    scoped_tree out = move_tree(&w, src, w.device, &v);
    s.image.height = s.height; /* 0 means the size of the images */
    s.image.width = s.width;
    check_images(&w, &s, images, td_leaf(out, "image"));
    check_tensor(&w, td_leaf(src, "small"), td_leaf(out, "small"), "small");
  }
}

/* One launch reads the images of a pinned leaf, even if the result is larger than the largest driver copy. */
GPU_CASE(images_in_pinned_memory_need_one_launch) {
  enum { IMAGES = 29, SIDE = 230, CROP = 224 };
  scoped_place w = open_place();
  image_set s = {.height = SIDE, .width = SIDE, .channels = 3, .num_images = IMAGES, .dtype = TDICT_F32};
  s.image = td_with(tdict_image, height = CROP, width = CROP, window_array = s.windows, num_windows = IMAGES);
  s.rule = td_with(tdict_conversion, pattern = "image", dtype = TDICT_F32, image = &s.image);
  for (int c = 0; c < 3; c++) s.scales[c] = 1;
  for (int k = 0; k < IMAGES; k++) s.windows[k] = (tdict_window){k % 7, k % 5, k % 2};
  scoped_tree src = new_tree();
  tdict_tensor *images = td_put(src, "image", make_images(&w, &s, 2));
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_transfer_options o = converting(&s.rule, 1, &stats);
  for (int limited = 0; limited < 2; limited++) {
    o.max_queued_bytes = limited ? 4 << 20 : 0;
    scoped_tree out = move_with(&w, src, w.device, &o);
    check_images(&w, &s, images, td_leaf(out, "image"));
    assert_int_equal(stats.staged_bytes, 0);
    assert_int_equal(stats.wire_bytes, IMAGES * CROP * CROP * 3);
    if (limited) assert_true(stats.num_chunks > 4);
    if (!limited) assert_int_equal(stats.num_chunks, 1);
  }
}

/* A large leaf of images that is pinned or on the device is one chunk, unless driver copies are limited. Images in
 * ordinary memory, and large conversions of other leaves, are divided. */
GPU_CASE(images_of_one_leaf_are_one_chunk) {
  static const size_t most = (size_t)1 << 20;
  scoped_place w = open_place();
  const tdict_image image = tdict_image_default();
  const tdict_conversion rules[] = {
      td_with(tdict_conversion, pattern = "image", dtype = TDICT_F32, image = &image), /* 19,044,000 bytes */
      to_dtype("other", TDICT_F32),                                                    /* 20 MiB */
  };
  tdict_conversions *conversions = NULL;
  td_ok(tdict_conversions_create("test", rules, 2, &conversions, err));
  enum { PAGEABLE, PINNED, ON_DEVICE };
  for (int i = 0; i < 6; i++) {
    const int memory = i / 2, limited = i % 2;
    scoped_tree host = td_tree_in(memory == PINNED ? w.pinned : NULL, "image:u8[30,230,230,3] other:u8[5242880]");
    scoped_tree src = memory == ON_DEVICE ? to_device(&w, host, w.device) : tdict_retain(host);
    const tdict_plan_request request = {.devices = tdict_context_engine(w.c)->config.devices,
                                        .device = w.device,
                                        .mode = TDICT_MODE_NON_BLOCKING_PIN,
                                        .conversions = conversions};
    const tdict_cut cut = {.first_bytes = most, .chunk_bytes = most, .max_copy_bytes = limited ? most : 0};
    tdict_plan p;
    td_ok(tdict_plan_collect(&(tdict_collected){.plan = &p}, &request, src, err));
    td_ok(tdict_plan_cut(&p, &cut, err));
    int begin_in[2] = {0, 0};
    for (uint32_t k = 0; k < p.num_chunks; k++) begin_in[p.chunks[k].first]++;
    assert_int_equal(begin_in[0], limited ? 19 : memory == PAGEABLE ? 5 : 1);
    if (memory == ON_DEVICE) assert_int_equal(begin_in[1], limited ? 20 : 2);
    tdict_plan_reset(&p);
  }
  tdict_conversions_destroy(conversions);
}

/* Nothing of pinned images is staged, so they leave the limit for pinned leaves that kernels read to other leaves. */
GPU_CASE(images_in_pinned_memory_do_not_count) {
  scoped_place w = open_place();
  image_set s = {.height = 300, .width = 300, .channels = 3, .num_images = 5, .dtype = TDICT_F16};
  s.image = td_with(tdict_image, channels_first = true);
  s.rule = td_with(tdict_conversion, pattern = "image", dtype = TDICT_F16, image = &s.image);
  for (int c = 0; c < 3; c++) s.scales[c] = 1;
  scoped_tree src = new_tree();
  tdict_tensor *images = td_put(src, "image", make_images(&w, &s, 2));
  tdict_tensor *labels = td_put(src, "labels", random_tensor(TDICT_U8, SHAPE(1 << 20), w.pinned));
  const tdict_conversion rules[] = {s.rule, to_dtype("labels", TDICT_F32)};
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  const tdict_transfer_options o = converting(rules, 2, &stats);
  scoped_tree out = move_with(&w, src, w.device, &o);
  assert_int_equal(stats.staged_bytes, 0);
  s.image.height = s.image.width = 300;
  check_images(&w, &s, images, td_leaf(out, "image"));
  scoped_bytes got = read_elements(&w, td_leaf(out, "labels"));
  for (int64_t i = 0; i < 1 << 20; i++)
    if (((float *)(void *)got)[i] != ((unsigned char *)labels->data)[i]) fail_msg("label %d is wrong", (int)i);
}

/* Without windows, the middle of each image is taken. Scale and offset of the conversion hold for all channels. */
DEVICE_CASE(images_without_windows_are_cut_in_the_middle) {
  scoped_place w = open_place();
  rng r = {9};
  for (int i = 0; i < 20; i++) {
    image_set s;
    choose_images(&s, &r, 3, 20);
    for (int k = 0; k < s.num_images; k++)
      s.windows[k] = (tdict_window){(s.height - s.image.height) / 2, (s.width - s.image.width) / 2, false};
    s.image.window_array = NULL;
    s.image.num_windows = s.image.num_channels = 0;
    s.image.scales = s.image.offsets = NULL;
    s.rule.scale = 0.25;
    s.rule.offset = -3;
    for (int c = 0; c < MOST_CHANNELS; c++) s.scales[c] = 0.25f, s.offsets[c] = -3;
    const tdict_transfer_options o = converting(&s.rule, 1, NULL);
    scoped_tree src = new_tree();
    tdict_tensor *images = td_put(src, "image", make_images(&w, &s, 0));
    scoped_tree out = move_with(&w, src, w.device, &o);
    check_images(&w, &s, images, td_leaf(out, "image"));
  }
}

/* The dimensions before the height can be any number, and the batch dimensions stay. A tensor can be without images. */
DEVICE_CASE(images_keep_batch_dimensions) {
  scoped_place w = open_place();
  image_set s = {.height = 9, .width = 7, .channels = 3, .num_images = 6, .dtype = TDICT_F32};
  s.image = td_with(tdict_image, height = 4, width = 5, windows = "at");
  s.rule = td_with(tdict_conversion, pattern = "image", dtype = TDICT_F32, image = &s.image);
  for (int c = 0; c < 3; c++) s.scales[c] = 1;
  for (int k = 0; k < 6; k++) s.windows[k] = (tdict_window){k % 5, k % 2, false};
  const tdict_transfer_options o = converting(&s.rule, 1, NULL);
  scoped_tree src = td_tree("[2,3] image:u8[2,3,9,7,3]"), one = td_tree("image:u8[9,7,3] at:u8[2]"), out = NULL;
  scoped_tree none = td_tree("[0] image:u8[0,9,7,3] at:i64[0,3]");
  scoped_tensor rows = make_windows(&s, TDICT_I32, 2), shaped = NULL;
  td_ok(tdict_tensor_reshape(rows, SHAPE(2, 3, 2), &shaped, err));
  td_ok(tdict_set(src, "at", shaped, err));
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  assert_int_equal(tdict_batch_ndim(out), 2);
  scoped_tensor four = NULL, got = NULL;
  td_ok(tdict_tensor_reshape(td_leaf(src, "image"), SHAPE(6, 9, 7, 3), &four, err));
  assert_int_equal(tdict_tensor_ndim(td_leaf(out, "image")), 5);
  td_ok(tdict_tensor_reshape(td_leaf(out, "image"), SHAPE(6, 3, 4, 5), &got, err));
  check_images(&w, &s, four, got);
  td_release(out);
  memset(tdict_data(one, "at"), 0, 2);
  td_ok(tdict_to_device(w.c, one, w.device, &o, &out, err));
  assert_int_equal(tdict_tensor_ndim(td_leaf(out, "image")), 3);
  td_release(out);
  td_ok(tdict_to_device(w.c, none, w.device, &o, &out, err));
  assert_int_equal(tdict_tensor_shape(td_leaf(out, "image"))[2], 4);
  td_release(out);
  s.image.windows = NULL;
  s.image.window_array = s.windows; /* an array for larger batches, of which no window is used */
  td_ok(tdict_to_device(w.c, none, w.device, &o, &out, err));
  assert_int_equal(tdict_tensor_shape(td_leaf(out, "image"))[2], 4);
}

/* The destination has the shape and the dtype of the result. In host memory, it can have any strides. */
DEVICE_CASE(images_into_a_destination) {
  scoped_place w = open_place();
  rng r = {10};
  for (int i = 0; i < NUM_WAYS; i += SANITIZED ? FEW_WAYS_STEP : 3) {
    image_set s;
    way v = way_at(i);
    choose_images(&s, &r, 5, 40);
    s.image.channels_first = true;
    use_conversions(&v.o, &s.rule, 1);
    scoped_tree src = new_tree(), dst = new_tree(), strided = new_tree();
    tdict_tensor *images = td_put(src, "image", make_images(&w, &s, i % 3));
    const int64_t h = s.image.height, x = s.image.width, c = s.channels;
    tdict_tensor *plain = NULL, *turned = NULL;
    td_ok(tdict_tensor_empty(s.dtype, SHAPE(5, c, h, x), w.memory, &plain, err));
    td_ok(tdict_tensor_empty(s.dtype, SHAPE(h, x, 5, c), w.memory, &turned, err));
    td_put(dst, "image", plain);
    td_put(strided, "image", permuted(turned, (const int[]){2, 3, 0, 1}));
    copy_tree(&w, src, dst, &v);
    check_images(&w, &s, images, plain);
    if (w.gpu && !tdict_tensor_is_contiguous(td_leaf(strided, "image"))) {
      td_fails_at(TDICT_ENOTSUP, "transfer: images become a device tensor of shape [5, ", "image",
                  tdict_transfer_into(w.c, strided, src, &v.o, err));
    } else {
      copy_tree(&w, src, strided, &v);
      check_images(&w, &s, images, td_leaf(strided, "image"));
    }
    scoped_tree wrong = td_tree("image:u8[5]");
    td_fails_at(TDICT_EDTYPE, "the source is converted to", "image", tdict_transfer_into(w.c, wrong, src, &v.o, err));
    s.image.channels_first = false;
    if (c != h || h != x)
      td_fails_at(TDICT_ESHAPE, "the source is converted to shape [5, ", "image",
                  tdict_transfer_into(w.c, dst, src, &v.o, err));
  }
}

/* A scale of each channel gives the bits of tdict_to_dtype(), for all bytes. */
DEVICE_CASE(images_have_the_bits_of_to_dtype) {
  static const tdict_dtype dtypes[] = {TDICT_F16, TDICT_BF16, TDICT_F32};
  scoped_place w = open_place();
  rng r = {11};
  scoped_tree src = new_tree();
  unsigned char *bytes = td_put(src, "image", random_tensor(TDICT_U8, SHAPE(16, 16, 1), NULL))->data;
  for (int i = 0; i < 256; i++) bytes[i] = (unsigned char)i;
  for (int i = 0; i < 300; i++) {
    const float scale = random_float(&r), offset = random_float(&r);
    const tdict_image image = td_with(tdict_image, scales = &scale, offsets = &offset, num_channels = 1);
    const tdict_conversion rule[2] = {
        td_with(tdict_conversion, pattern = "image", dtype = dtypes[i % 3], image = &image),
        scaled("image", dtypes[i % 3], scale, offset)};
    tdict_transfer_options o = converting(&rule[0], 1, NULL), plain = converting(&rule[1], 1, NULL);
    scoped_tree cut = move_with(&w, src, w.device, &o), same = move_with(&w, src, tdict_cpu(), &plain);
    scoped_bytes a = read_elements(&w, td_leaf(cut, "image")), b = read_elements(&w, td_leaf(same, "image"));
    assert_memory_equal(a, b, 256 * tdict_dtype_bytes(dtypes[i % 3]));
  }
}

/* Leaves with the same bytes share a result only if they have the same shape. */
GPU_CASE(images_of_tied_leaves) {
  scoped_place w = open_place();
  scoped_tree src = td_tree("a:u8[2,6,8,3]"), out = NULL;
  scoped_tensor turned = NULL;
  td_ok(tdict_tensor_reshape(td_leaf(src, "a"), SHAPE(2, 8, 6, 3), &turned, err));
  td_ok(tdict_set(src, "b", td_leaf(src, "a"), err));
  td_ok(tdict_set(src, "c", turned, err));
  const tdict_image image = td_with(tdict_image, height = 2, width = 3);
  const tdict_conversion rule = td_with(tdict_conversion, pattern = "*", dtype = TDICT_F16, image = &image);
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  const tdict_transfer_options o = converting(&rule, 1, &stats);
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  assert_int_equal(stats.num_shared_leaves, 1);
  assert_ptr_equal(td_leaf(out, "a")->data, td_leaf(out, "b")->data);
  assert_ptr_not_equal(td_leaf(out, "a")->data, td_leaf(out, "c")->data);
  scoped_bytes a = read_elements(&w, td_leaf(out, "a")), c = read_elements(&w, td_leaf(out, "c"));
  assert_memory_not_equal(a, c, 2 * 3 * 2 * 3 * 2);
}

/* Only the windows travel. Locked and consolidated trees, `keep` and `check_sources` work with images, too. */
GPU_CASE(images_and_other_options) {
  scoped_place w = open_place();
  scoped_tree src = td_tree("image:u8[4,9,9,3] at:u8[4,2]"), whole = NULL, out = NULL;
  static const char *const keep[] = {"at"};
  memset(tdict_data(src, "at"), 3, 8);
  const tdict_image image = td_with(tdict_image, height = 5, width = 6, windows = "at");
  const tdict_conversion rule = td_with(tdict_conversion, pattern = "image", dtype = TDICT_BF16, image = &image);
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_transfer_options o = converting(&rule, 1, &stats);
  o.keep = keep;
  o.num_keep = 1;
  o.check_sources = true;
  tdict_lock(src);
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  assert_int_equal(stats.total_bytes, 4 * 5 * 6 * 3 * 2);
  assert_int_equal(stats.wire_bytes, 4 * 5 * 6 * 3);
  assert_ptr_equal(td_leaf(out, "at"), td_leaf(src, "at"));
  assert_true(tdict_is_locked(out));
  scoped_bytes first = read_elements(&w, td_leaf(out, "image"));
  td_release(out);
  td_ok(tdict_consolidate(src, NULL, &whole, err));
  td_ok(tdict_to_device(w.c, whole, w.device, &o, &out, err));
  scoped_bytes second = read_elements(&w, td_leaf(out, "image"));
  assert_memory_equal(first, second, 4 * 5 * 6 * 3 * 2);
  scoped_tree there = to_device(&w, src, w.device), back = NULL;
  td_fails_at(TDICT_EWRONGDEVICE, "the windows of images are on", "at",
              tdict_to_device(w.c, there, w.device, &o, &back, err));
  const tdict_image middle = td_with(tdict_image, height = 5);
  const tdict_conversion plain = td_with(tdict_conversion, pattern = "image", dtype = TDICT_BF16, image = &middle);
  o.conversions = &plain;
  td_fails_at(TDICT_ENOTSUP, "not from a device to the host", "image",
              tdict_to_device(w.c, there, tdict_cpu(), &o, &back, err));
}

/* On a device, images must be contiguous and stay on the device. */
SIM_CASE(images_on_a_device_are_refused) {
  tdict_context_options co = tdict_context_options_default();
  co.sim = td_options(tdict_sim_options, num_devices = 2);
  scoped_place w = place_around(td_context(&co));
  scoped_tree src = td_tree("image:u8[2,8,9,3]"), there = to_device(&w, src, tdict_sim(0)), turned = new_tree();
  tdict_tree *out = NULL;
  const tdict_image image = td_with(tdict_image, height = 4);
  const tdict_conversion rule = td_with(tdict_conversion, pattern = "image", dtype = TDICT_F16, image = &image);
  const tdict_transfer_options o = converting(&rule, 1, NULL);
  td_fails_at(TDICT_ENOTSUP, "transfer: images on sim:0 are converted on this device, but the result is on sim:1",
              "image", tdict_to_device(w.c, there, tdict_sim(1), &o, &out, err));
  tdict_tensor *images = td_leaf(there, "image");
  tdict_tensor_retain(images);
  td_put(turned, "image", permuted(images, (const int[]){0, 2, 1, 3}));
  td_fails_at(TDICT_ENOTSUP,
              "images in a device tensor of shape [2, 9, 8, 3] with strides [216, 3, 27, 1], wanted a contiguous one",
              "image", tdict_to_device(w.c, turned, tdict_sim(0), &o, &out, err));
  assert_null(out);
}

/* The leaf is checked before anything is copied. */
DEVICE_CASE(images_are_checked_first) {
  scoped_place w = open_place();
  scoped_tree src = td_tree(
                  "[2] image:u8[2,8,9,3] at:i64[2,3] few:i64[2,4] real:f32[2,2] f:f32[2,8,9,3] five:u8[2,8,9,5] "
                  "flat:u8[2,9,3]"),
              out = NULL;
  int64_t *at = tdict_data(src, "at");
  tdict_image image = td_with(tdict_image, height = 4, width = 4, windows = "at");
  tdict_conversion rule = td_with(tdict_conversion, pattern = "image", dtype = TDICT_F16, image = &image);
  const tdict_transfer_options o = converting(&rule, 1, NULL);
#define FAILS(status, text, path) td_fails_at(status, text, path, tdict_to_device(w.c, src, w.device, &o, &out, err))
  memset(at, 0, 6 * sizeof *at);
  static const int64_t bad[][2] = {{5, 0}, {0, 6}, {-1, 0}, {0, -1}, {INT64_MAX, 0}, {0, INT64_MIN}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    memcpy(at + 3, bad[i], sizeof bad[i]);
    FAILS(TDICT_EINVAL, "transfer: window 1 of 4 x 4 is at row ", "at");
  }
  FAILS(TDICT_EINVAL, "wanted rows 0 to 4, columns 0 to 5 in images of 8 x 9", "at");
  image.windows = "few";
  FAILS(TDICT_ESHAPE, "have shape [2, 4], wanted [2], then [2] or [3]", "few");
  image.windows = "real";
  FAILS(TDICT_EDTYPE, "are float32, wanted integers", "real");
  image.windows = "no";
  FAILS(TDICT_ENOTFOUND, "", "no");
  image.windows = NULL;
  tdict_window array[3] = {{4, 5, true}, {4, 6, false}};
  image.window_array = array;
  image.num_windows = 2;
  FAILS(TDICT_EINVAL, "transfer: window 1 of 4 x 4 is at row 4, column 6", "image");
  image.num_windows = 3;
  FAILS(TDICT_ESHAPE, "num_windows is 3, wanted 2, the number of images", "image");
  image.num_windows = 0;
  FAILS(TDICT_ESHAPE, "num_windows is 0, wanted 2, the number of images", "image");
  image.window_array = NULL;
  image.height = 9;
  FAILS(TDICT_ESHAPE, "windows of 9 x 4 in images of 8 x 9", "image");
  image.height = 0;
  rule.pattern = "f";
  FAILS(TDICT_EDTYPE, "images of float32, wanted uint8", "f");
  rule.pattern = "five";
  FAILS(TDICT_ESHAPE, "images with 5 channels, wanted 1 to 4", "five");
  rule.pattern = "flat";
  FAILS(TDICT_ESHAPE, "images of shape [2, 9, 3], wanted 1 batch dimensions", "flat");
  const float ones[4] = {1, 1, 1, 1};
  rule.pattern = "image";
  image.scales = ones;
  image.num_channels = 4;
  FAILS(TDICT_ESHAPE, "images with 3 channels, wanted 4, the num_channels", "image");
#undef FAILS
  assert_null(out);
}

/* The options are checked before the tree is read. */
CASE(images_options_are_checked) {
  scoped_place w = open_place();
  scoped_tree src = td_tree("image:u8[2,8,9,3]"), out = NULL;
  const float ones[4] = {1, 1, 1, 1}, wrong[4] = {1, 1, INFINITY, 1};
  const tdict_window window = {0, 0, false};
  const tdict_conversion plain = td_with(tdict_conversion, pattern = "image", dtype = TDICT_F16);
  tdict_image image = tdict_image_default();
  tdict_conversion rule = plain;
  rule.image = &image;
  const tdict_transfer_options o = converting(&rule, 1, NULL);
#define FAILS(status, text) td_fails_at(status, text, "image", tdict_to_device(w.c, src, tdict_cpu(), &o, &out, err))
  rule.dtype = TDICT_F64;
  FAILS(TDICT_EDTYPE, "to_device: options.conversions[0].image: images become float64");
  rule.dtype = TDICT_F16;
  rule.wire_dtype = TDICT_F16;
  FAILS(TDICT_EINVAL, "wire_dtype is float16, wanted 0 or uint8");
  rule.wire_dtype = 0;
  image.width = -1;
  FAILS(TDICT_EINVAL, "windows of 0 x -1");
  image.width = 0;
  image.windows = "at";
  image.window_array = &window;
  image.num_windows = 1;
  FAILS(TDICT_EINVAL, "windows and window_array are set");
  image.windows = NULL;
  image.window_array = NULL;
  FAILS(TDICT_EINVAL, "window_array is NULL and num_windows is 1");
  image.num_windows = 0;
  image.scales = ones;
  FAILS(TDICT_EINVAL, "num_channels is 0, wanted 1 to 4");
  image.num_channels = 5;
  FAILS(TDICT_EINVAL, "num_channels is 5, wanted 1 to 4");
  image.num_channels = 3;
  rule.scale = 2;
  FAILS(TDICT_EINVAL, "scale of the conversion is also set");
  rule.scale = 1;
  image.offsets = wrong;
  FAILS(TDICT_EINVAL, "scales and offsets must be finite");
  image.offsets = ones;
  rule.offset = 1;
  FAILS(TDICT_EINVAL, "offset of the conversion is also set");
  rule.offset = 0;
  image.struct_size = 4;
  FAILS(TDICT_EINVAL, "options.conversions[0].image: struct_size is 4");
#undef FAILS
  assert_null(out);
}

static tdict_status cut_and_drop(const place *w, const tdict_tree *src, const tdict_transfer_options *o,
                                 tdict_error *err) {
  tdict_tree *out = NULL;
  const tdict_status status = tdict_to_device(w->c, src, w->device, o, &out, err);
  if (status == TDICT_OK) tdict_release(out);
  return status;
}
DEVICE_CASE(images_survive_enomem) {
  scoped_place w = open_place();
  scoped_tree src = td_tree("image:u8[2,8,9,3] at:u8[2,2]");
  memset(tdict_data(src, "at"), 1, 4);
  const tdict_image image = td_with(tdict_image, height = 4, width = 4, windows = "at");
  const tdict_conversion rule = td_with(tdict_conversion, pattern = "image", dtype = TDICT_F16, image = &image);
  tdict_transfer_options o = converting(&rule, 1, NULL);
  o.num_threads = 0;
  td_ok(cut_and_drop(&w, src, &o, err)); /* creates the staging ring */
  TD_WITHOUT_MEMORY(cut_and_drop(&w, src, &o, err));
}

/* The floating-point environment of the threads that create the context or start the transfer has no effect. */
DEVICE_CASE(images_in_any_float_env) {
  rng r = {12};
  for (int i = 0; i < TD_FLOAT_ENVS; i++) {
    (void)td_float_env_set(i);
    scoped_place w = open_place();
    td_float_env_reset();
    image_set s;
    choose_images(&s, &r, 3, 30);
    scoped_tree src = new_tree();
    tdict_tensor *images = td_put(src, "image", make_images(&w, &s, i % 3));
    for (int k = i; k < NUM_WAYS; k += FEW_WAYS_STEP) {
      way v = way_at(k);
      use_conversions(&v.o, &s.rule, 1);
      (void)td_float_env_set(i);
      scoped_tree out = move_tree(&w, src, w.device, &v);
      td_float_env_reset();
      check_images(&w, &s, images, td_leaf(out, "image"));
    }
  }
}

typedef struct cutting {
  const place *w;
  const tdict_tree *src;
  const tdict_transfer_options *o;
  tdict_tree *out;
  atomic_bool is_done;
} cutting;
static void *cut_on_thread(void *user) {
  cutting *c = user;
  if (tdict_to_device(c->w->c, c->src, c->w->device, c->o, &c->out, NULL) != TDICT_OK) c->out = NULL;
  atomic_store(&c->is_done, true);
  return NULL;
}
/* The starting call waits for a transfer that writes the windows. */
SIM_CASE(images_wait_for_their_windows) {
  scoped_place w = open_place();
  image_set s = {.height = 9, .width = 9, .channels = 1, .num_images = 2, .dtype = TDICT_F16};
  s.image = td_with(tdict_image, height = 4, width = 4, windows = "at");
  s.rule = td_with(tdict_conversion, pattern = "image", dtype = TDICT_F16, image = &s.image);
  s.scales[0] = 1;
  s.windows[0] = (tdict_window){5, 3, false};
  s.windows[1] = (tdict_window){2, 4, true};
  scoped_tree src = td_tree("image:u8[2,9,9,1] at:i64[2,3]"), later = new_tree(), dst = new_tree();
  memset(tdict_data(src, "at"), 0, 6 * sizeof(int64_t));
  td_put(later, "at", make_windows(&s, TDICT_I64, 3));
  td_ok(tdict_set(dst, "at", td_leaf(src, "at"), err));
  scoped_tree there = to_device(&w, later, w.device);
  held_stream held;
  hold_stream(&w, &held);
  const tdict_transfer_options behind_it = behind(&held), o = converting(&s.rule, 1, NULL);
  tdict_future *writes = copy_async(&w, there, dst, &behind_it);
  cutting c = {.w = &w, .src = src, .o = &o};
  const pthread_t thread = td_start(cut_on_thread, &c);
  td_rest();
  assert_false(atomic_load(&c.is_done));
  atomic_store(&held.open, true);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_non_null(c.out);
  check_images(&w, &s, td_leaf(src, "image"), td_leaf(c.out, "image"));
  tdict_release(c.out);
  td_ok(tdict_future_take(writes, NULL, err));
  tdict_stream_destroy(w.c, held.s);
}

/* The elements of files are not read for windows, and images in files are refused. */
DEVICE_CASE(images_in_files_are_refused) {
  scoped_place w = open_place();
  scoped_tree src = td_tree("image:u8[2,8,9,3] at:u8[2,2]"), out = NULL;
  memset(tdict_data(src, "at"), 1, 4);
  scoped_disk d = disk_open();
  scoped_tree twin = disk_twin(&d, src, 100, 1);
  tdict_image image = td_with(tdict_image, height = 4, width = 4);
  const tdict_conversion rule = td_with(tdict_conversion, pattern = "image", dtype = TDICT_F16, image = &image);
  const tdict_transfer_options o = converting(&rule, 1, NULL);
  td_fails_at(TDICT_ENOTSUP, "images in files are not converted", "image",
              tdict_to_device(w.c, twin, w.device, &o, &out, err));
  image.windows = "at";
  td_fails_at(TDICT_EINVAL, "the windows of images: the elements are in a file", "at",
              tdict_to_device(w.c, twin, w.device, &o, &out, err));
  assert_null(out);
}
