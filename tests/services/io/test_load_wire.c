/* Tests loads with the transfer options `conversions` and `narrow`. The test writes the file without the library. */
#include "engine/conversions.h"
#include "engine/narrow.h"
#include "tdict/io.h"

enum { IDS = 70001, PIXELS = 6003, FLAGS = 40005 };

/* Writes a safetensors file with the tensors ids, image and mask. */
static void write_file(int file, const tdict_tree *src) {
  static const char *const keys[] = {"ids", "image", "mask"};
  static const char *const dtypes[] = {"I64", "U8", "BOOL"};
  char header[512];
  size_t length = 8, at = 0;
  for (int i = 0; i < 3; i++) {
    const size_t bytes = tdict_tensor_bytes(td_leaf(src, keys[i]));
    length += (size_t)snprintf(header + length, sizeof header - length,
                               "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[%zu,%zu]}%s", i ? "," : "{",
                               keys[i], dtypes[i], (int)tdict_tensor_numel(td_leaf(src, keys[i])), at, at + bytes,
                               i == 2 ? "}" : "");
    at += bytes;
  }
  while (length % 8) header[length++] = ' ';
  const uint64_t json_bytes = length - 8;
  memcpy(header, &json_bytes, 8);
  scoped_bytes all = malloc(length + at);
  memcpy(all, header, length);
  for (int i = 0; i < 3; i++) {
    const tdict_tensor *t = td_leaf(src, keys[i]);
    memcpy(all + length, t->data, tdict_tensor_bytes(t));
    length += tdict_tensor_bytes(t);
  }
  assert_int_equal(write(file, all, length), length);
  assert_int_equal(close(file), 0);
}

/* Loads to the device and to the host, into new and into existing tensors. */
DEVICE_CASE(load_converts_and_narrows) {
  char path[] = "/tmp/tdict-load.XXXXXX.safetensors";
  const int file = mkstemps(path, 12);
  place w = open_place();
  tdict_tree *src = new_tree();
  td_put(src, "ids", pv_tensor(TDICT_I64, SHAPE(IDS), PV_HALF, NULL));
  td_put(src, "image", random_tensor(TDICT_U8, SHAPE(PIXELS), NULL));
  td_put(src, "mask", pv_tensor(TDICT_BOOL, SHAPE(FLAGS), PV_OUTLIER, NULL));
  assert_true(file >= 0);
  write_file(file, src);
  const tdict_conversion c = scaled("image", TDICT_BF16, 1 / 255.0, -0.5);
  const pair_of image = {"image", TDICT_U8, TDICT_BF16, 1 / 255.0, -0.5};
  for (int i = 0; i < NUM_WAYS; i += 3) {
    way v = way_at(i);
    tdict_load_options o = tdict_load_options_default();
    tdict_transfer_stats s = tdict_transfer_stats_default();
    v.o.conversions = &c;
    v.o.num_conversions = 1;
    v.o.narrow = 1;
    v.o.stats = &s;
    o.transfer = &v.o;
    poison(&w, w.memory, 1 << 20);
    scoped_tree out = td_made(tree, tdict_load(w.c, path, i % 4 ? w.device : tdict_cpu(), &o, &made, err));
    for (int into = 0; into < 2; into++) {
      check_tensor(&w, td_leaf(src, "ids"), td_leaf(out, "ids"), "ids");
      check_tensor(&w, td_leaf(src, "mask"), td_leaf(out, "mask"), "mask");
      check_converted(&w, &image, td_leaf(src, "image"), td_leaf(out, "image"));
      if (w.gpu && i % 4) assert_true(s.wire_bytes < IDS * 2 + PIXELS + FLAGS + 10000);
      if (into) break;
      spoil_tree(&w, out);
      td_ok(td_load_into(w.c, out, path, &o, err));
    }
  }
  tdict_release(src);
  place_close(&w);
  assert_int_equal(unlink(path), 0);
}
