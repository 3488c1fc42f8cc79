/* Tests datasets of tokens: windows of several files, all formats and token sizes, and errors. */
#include <errno.h>
#include <sys/stat.h>

#include "numbers.h"

static char folder[64];

static void write_file(const char *name, const void *header, size_t header_bytes, const void *tokens, size_t bytes) {
  FILE *f = fopen(td_text("%s/%s", folder, name), "wb");
  assert_non_null(f);
  if (header_bytes) assert_int_equal(fwrite(header, 1, header_bytes, f), header_bytes);
  if (bytes) assert_int_equal(fwrite(tokens, 1, bytes, f), bytes);
  assert_int_equal(fclose(f), 0);
}
static void make_folder(void) {
  snprintf(folder, sizeof folder, "/tmp/tdict-tokens-XXXXXX");
  assert_non_null(mkdtemp(folder));
}
static void remove_folder(int count, const char *const *names) {
  for (int i = 0; i < count; i++) unlink(td_text("%s/%s", folder, names[i]));
  assert_int_equal(rmdir(folder), 0);
}
static const char *in_folder(const char *name) {
  static char paths[8][128];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, 128, "%s/%s", folder, name);
  return path;
}

enum { A_COUNT = 1000, B_COUNT = 37, C_COUNT = 10 };
static uint16_t a16[A_COUNT], b16[B_COUNT];
static uint32_t c32[C_COUNT];
static int64_t known[3][A_COUNT]; /* token k of file f, as the test wrote it */

static void write_shards(void) {
  int32_t header[256] = {20240520, 1, A_COUNT}, header32[256] = {20240801, 7, C_COUNT};
  td_fill_random(a16, sizeof a16, 1);
  td_fill_random(b16, sizeof b16, 2);
  td_fill_random(c32, sizeof c32, 3);
  for (int i = 0; i < C_COUNT; i++) c32[i] &= 0x7fffffff;
  for (int i = 0; i < A_COUNT; i++) known[0][i] = a16[i];
  for (int i = 0; i < B_COUNT; i++) known[1][i] = b16[i];
  for (int i = 0; i < C_COUNT; i++) known[2][i] = c32[i];
  write_file("a.bin", header, sizeof header, a16, sizeof a16);
  write_file("b.bin", NULL, 0, b16, sizeof b16);
  write_file("c.bin", header32, sizeof header32, c32, sizeof c32);
}

static void check_windows(const yard *y, int64_t window, int64_t step, tdict_dtype dtype) {
  static const int64_t counts[3] = {A_COUNT, B_COUNT, C_COUNT};
  const char *paths[3] = {in_folder("a.bin"), in_folder("b.bin"), in_folder("c.bin")};
  tdict_token_options o =
      td_with(tdict_token_options, paths = paths, num_paths = 3, window = window, step = step, dtype = dtype);
  tdict_dataset *d = td_made(dataset, tdict_dataset_from_tokens(&o, &made, err));
  scoped_loader l = open_loader_on(y, d, td_options(tdict_loader_options, batch_size = 1));
  static int64_t tokens[1000], targets[1000];
  int64_t seen = 0;
  size_t item = dtype == TDICT_I64 ? 8 : 4;
  for (int f = 0; f < 3; f++) {
    for (int64_t at = 0; at + window + 1 <= counts[f]; at += step ? step : window, seen++) {
      scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
      assert_non_null(batch);
      assert_int_equal(read_leaf(y, batch, "tokens", tokens, sizeof tokens), (size_t)window * item);
      assert_int_equal(read_leaf(y, batch, "targets", targets, sizeof targets), (size_t)window * item);
      for (int64_t k = 0; k < window; k++) {
        int64_t one = item == 8 ? tokens[k] : ((int32_t *)tokens)[k],
                next = item == 8 ? targets[k] : ((int32_t *)targets)[k];
        assert_int_equal(one, known[f][at + k]);
        assert_int_equal(next, known[f][at + k + 1]);
      }
    }
  }
  assert_int_equal(tdict_loader_length(l), seen);
}

DEVICE_CASE(dataset_tokens_windows) {
  static const char *const names[] = {"a.bin", "b.bin", "c.bin"};
  scoped_yard y = open_yard();
  make_folder();
  write_shards();
  check_windows(&y, 8, 0, TDICT_I64);
  check_windows(&y, 9, 0, TDICT_I32); /* the third file holds only one such window */
  check_windows(&y, 36, 5, TDICT_I64);
  check_windows(&y, 1, 3, TDICT_I32);
  check_windows(&y, 601, 7, TDICT_I64); /* long enough for streaming stores; rows do not begin at cache lines */
  check_windows(&y, 999, 1, TDICT_I32);
  remove_folder(3, names);
}

DEVICE_CASE(dataset_tokens_u32) {
  static const char *const names[] = {"u32.bin"};
  static const uint32_t tokens[5] = {1, 70000, 0x7fffffff, 0x80000000, 5};
  scoped_yard y = open_yard();
  make_folder();
  write_file("u32.bin", NULL, 0, tokens, sizeof tokens);
  const char *path = in_folder("u32.bin");
  for (int wide = 0; wide < 2; wide++) {
    tdict_token_options o =
        td_with(tdict_token_options, paths = &path, num_paths = 1, format = TDICT_TOKENS_U32, window = 2, step = 1);
    if (!wide) o.dtype = TDICT_I32;
    tdict_dataset *d = td_made(dataset, tdict_dataset_from_tokens(&o, &made, err));
    scoped_loader l = open_loader_on(&y, d, NULL);
    for (int i = 0; i < 3; i++) {
      scoped_tree batch = NULL;
      if (!wide && i == 1) {
        td_fails(TDICT_EOVERFLOW, "sample 1", tdict_loader_next(l, tdict_no_stream(), &batch, err));
        break;
      }
      td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
      int64_t out[2];
      size_t bytes = read_leaf(&y, batch, "targets", out, sizeof out);
      if (wide)
        assert_int_equal(out[1], tokens[i + 2]);
      else
        assert_int_equal(((int32_t *)out)[1], tokens[i + 2]);
      assert_int_equal(bytes, wide ? 16 : 8);
    }
  }
  remove_folder(1, names);
}

static void refused(const char *name, int32_t format, tdict_status status, const char *text) {
  const char *path = in_folder(name);
  tdict_dataset *d = NULL;
  tdict_token_options o = td_with(tdict_token_options, paths = &path, num_paths = 1, window = 4, format = format);
  td_fails(status, text, tdict_dataset_from_tokens(&o, &d, err));
  if (status != TDICT_ESHAPE) assert_string_equal(td_last_error.path, path);
  if (status == TDICT_EIO) assert_int_equal(td_last_error.native, ENOENT);
}

CASE(dataset_tokens_refuses) {
  static const char *const names[] = {"short", "version", "odd", "none", "magic"};
  int32_t header[256] = {20240520, 1, 7}, version[256] = {20240520, 2, 2}, nothing[256] = {1, 1, 1};
  uint16_t tokens[6] = {1, 2, 3, 4, 5, 6};
  make_folder();
  write_file("short", header, sizeof header, tokens, 12);
  write_file("version", version, sizeof version, tokens, 4);
  write_file("odd", NULL, 0, tokens, 7);
  write_file("none", NULL, 0, NULL, 0);
  write_file("magic", nothing, sizeof nothing, tokens, 2);
  refused("absent", TDICT_TOKENS_AUTO, TDICT_EIO, "cannot be opened");
  refused(".", TDICT_TOKENS_AUTO, TDICT_EFORMAT, "is a directory, wanted a regular file");
  refused("short", TDICT_TOKENS_AUTO, TDICT_EFORMAT, "7 tokens of 2 bytes");
  refused("version", TDICT_TOKENS_LLMC, TDICT_EFORMAT, "version 2, wanted 1");
  refused("magic", TDICT_TOKENS_LLMC, TDICT_EFORMAT, "magic number");
  refused("odd", TDICT_TOKENS_U16, TDICT_EFORMAT, "multiple of 2");
  refused("none", TDICT_TOKENS_U16, TDICT_ESHAPE, "no file holds a window of 4");
  tdict_token_options o = tdict_token_options_default();
  tdict_dataset *d = NULL;
  const char *path = "x";
  td_fails(TDICT_EINVAL, "options is NULL", tdict_dataset_from_tokens(NULL, &d, err));
  td_fails(TDICT_EINVAL, "paths names no file", tdict_dataset_from_tokens(&o, &d, err));
  o.paths = &path;
  o.num_paths = 1;
  td_fails(TDICT_EINVAL, "window is 0", tdict_dataset_from_tokens(&o, &d, err));
  o.window = 1;
  o.dtype = TDICT_F32;
  td_fails(TDICT_EINVAL, "dtype is float32", tdict_dataset_from_tokens(&o, &d, err));
  o.dtype = TDICT_I64;
  o.format = 9;
  td_fails(TDICT_EINVAL, "format is 9", tdict_dataset_from_tokens(&o, &d, err));
  remove_folder(5, names);
}

CASE(dataset_tokens_refuses_a_fifo) {
  static const char *const names[] = {"fifo"};
  make_folder();
  assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
  alarm(30); /* a blocking open would wait forever for a writer */
  refused("fifo", TDICT_TOKENS_AUTO, TDICT_EFORMAT, "is a FIFO, wanted a regular file");
  alarm(0);
  remove_folder(1, names);
}
