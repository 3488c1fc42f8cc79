/* Converts floats on a device to every float and integer dtype: random bits as float32, and all floats of 8 and 16
 * bits. `--patterns N` sets the number of random float32 values, and `--seed S` sets the seed. `--out FOLDER` writes
 * sources and results, which tests/beside/kernel_floats.py compares with PyTorch's. */
#include "device/kernels/convert_check.h"
#include "support/random.h"

enum { PIECE = 1 << 20 };

static const tdict_dtype targets[] = {TDICT_F16, TDICT_BF16, TDICT_F8E4M3, TDICT_F8E5M2, TDICT_F32,
                                      TDICT_F64, TDICT_I8,   TDICT_I16,    TDICT_I32,    TDICT_I64,
                                      TDICT_U8,  TDICT_U16,  TDICT_U32,    TDICT_U64,    TDICT_BOOL};
enum { NUM_TARGETS = sizeof targets / sizeof *targets };

/* Appends bytes to FOLDER/FROM or, if `to` is not 0, to FOLDER/FROM-TO. Does nothing without a folder. */
static void write_bytes(tdict_dtype from, tdict_dtype to, const void *bytes, size_t count) {
  char path[4096];
  const char *folder = td_option("--out");
  if (!folder) return;
  const int length = snprintf(path, sizeof path, "%s/%s%s%s", folder, tdict_dtype_name(from), to ? "-" : "",
                              to ? tdict_dtype_name(to) : "");
  assert_true(length > 0 && (size_t)length < sizeof path);
  FILE *f = fopen(path, "ab");
  if (!f) fail_msg("%s cannot be written", path);
  assert_int_equal(fwrite(bytes, 1, count, f), count);
  assert_int_equal(fclose(f), 0);
}

/* Converts a piece to all targets. Writes the source, and the results that are floats, to the folder. */
static void convert_piece(convert_rig *c, tdict_dtype from, const unsigned char *src, size_t count) {
  write_bytes(from, 0, src, count * tdict_dtype_bytes(from));
  for (int t = 0; t < NUM_TARGETS; t++) {
    const convert_pair p = {targets[t], from, count};
    if (p.to == from) continue;
    convert_and_check(c, &p, src);
    if (t < 5) write_bytes(from, p.to, c->found, count * tdict_dtype_bytes(p.to));
  }
}

GPU_CASE(kernel_converts_bit_patterns_of_floats) {
  static const tdict_dtype small[] = {TDICT_F16, TDICT_BF16, TDICT_F8E4M3, TDICT_F8E5M2};
  const int64_t count = td_number("--patterns", 1000000 / SANITIZED_STEP);
  convert_rig c;
  rng r = {(uint64_t)td_number("--seed", 20261124)};
  convert_rig_open(&c, (size_t)PIECE * 8); /* skips the case if there is no device */
  unsigned char *src = td_alloc((size_t)PIECE * 4);
  for (int s = 0; s < 4; s++) {
    const size_t bytes = tdict_dtype_bytes(small[s]), all = (size_t)1 << 8 * bytes;
    for (size_t i = 0; i < all; i++) memcpy(src + i * bytes, &i, bytes); /* GPUs are little-endian, too */
    convert_piece(&c, small[s], src, all);
  }
  for (int64_t at = 0; at < count; at += PIECE) {
    const size_t some = count - at < PIECE ? (size_t)(count - at) : PIECE;
    td_fill_random(src, some * 4, next_random(&r));
    convert_piece(&c, TDICT_F32, src, some);
  }
  free(src);
  convert_rig_close(&c);
}
