/* Tests tdict_describe(): its summaries of elements, which are compared with plain loops, and the text around them. */

#include <errno.h>
#include <float.h>
#include <math.h>
#include <sched.h>
#include <unistd.h>

#include "core/tensor/tensor.h"
#include "core/tree/help.h"
#include "support/test.h"

static char *describe(const tdict_tree *td) {
  char *text = NULL;
  size_t length = 0;
  FILE *file = open_memstream(&text, &length);
  assert_non_null(file);
  td_ok(tdict_describe(td, file, err));
  fclose(file);
  assert_int_equal(strlen(text), length);
  return text;
}

/* Returns what tdict_describe() writes to stderr if it gets no file, as in a debugger. */
static char *dump(const tdict_tree *td) {
  FILE *file = tmpfile();
  const int kept = dup(STDERR_FILENO);
  assert_true(file && kept >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
  errno = 77;
  const tdict_status status = tdict_describe(td, NULL, NULL);
  const int after = errno;
  assert_true(dup2(kept, STDERR_FILENO) >= 0);
  assert_int_equal(status, TDICT_OK);
  assert_int_equal(after, 77);
  close(kept);
  const long length = lseek(fileno(file), 0, SEEK_END);
  char *text = calloc(1, (size_t)length + 1);
  assert_int_equal(pread(fileno(file), text, (size_t)length, 0), length);
  fclose(file);
  return text;
}

/* Checks the summary of a tensor, which is at the end of the line of its leaf. */
static void expect_summary(tdict_tensor *t, const char *wanted) {
  tdict_tree *td = help_tree_without_batch();
  td_ok(tdict_set(td, "x", t, err));
  for (int i = 0; i < 2; i++) {
    char *text = i ? dump(td) : describe(td), *end = strchr(text, '\n');
    assert_non_null(end);
    end = strchr(end + 1, '\n');
    assert_non_null(end);
    *end = 0;
    const char *at = strstr(text, " cpu ");
    assert_non_null(at);
    assert_string_equal(at + 5, wanted);
    free(text);
  }
  td_release(td, t);
}

static tdict_tensor *tensor_of(tdict_dtype dtype, int64_t count, const void *data) {
  return td_made(tensor, tdict_tensor_from_array(dtype, 1, &count, data, &made, err));
}
#define OF(dtype, type, ...) \
  tensor_of(dtype, (int64_t)(sizeof((const type[]){__VA_ARGS__}) / sizeof(type)), (const type[]){__VA_ARGS__})

CASE(describe_each_dtype) {
  expect_summary(OF(TDICT_I8, int8_t, -128, 127, 1), "min=-128         max=127          mean=0");
  expect_summary(OF(TDICT_U8, uint8_t, 255, 0), "min=0            max=255          mean=127.5");
  expect_summary(OF(TDICT_I16, int16_t, -32768, 2), "min=-32768       max=2            mean=-16383");
  expect_summary(OF(TDICT_U16, uint16_t, 65535), "min=65535        max=65535        mean=65535");
  expect_summary(OF(TDICT_I32, int32_t, INT32_MIN, INT32_MAX), "min=-2147483648  max=2147483647   mean=-0.5");
  expect_summary(OF(TDICT_U32, uint32_t, UINT32_MAX, 1), "min=1            max=4294967295   mean=2.14748e+09");
  expect_summary(OF(TDICT_I64, int64_t, INT64_MIN, INT64_MIN, 1),
                 "min=-9223372036854775808 max=1            mean=-6.14891e+18");
  expect_summary(OF(TDICT_I64, int64_t, INT64_MAX, INT64_MAX - 1),
                 "min=9223372036854775806 max=9223372036854775807 mean=9.22337e+18");
  expect_summary(OF(TDICT_U64, uint64_t, UINT64_MAX, UINT64_MAX), "min=18446744073709551615 "
                                                                  "max=18446744073709551615 mean=1.84467e+19");
  expect_summary(OF(TDICT_F32, float, -1.5f, NAN, 4, NAN), "min=-1.5         max=4            mean=1.25         nan=2");
  expect_summary(OF(TDICT_F32, float, NAN), "nan=1 of 1");
  expect_summary(OF(TDICT_F64, double, DBL_MAX, DBL_MAX, DBL_MAX),
                 "min=1.79769e+308 max=1.79769e+308 mean=1.79769e+308 nan=0");
  expect_summary(OF(TDICT_F64, double, INFINITY, 1), "min=1            max=inf          mean=inf          nan=0");
  expect_summary(OF(TDICT_F64, double, INFINITY, -INFINITY),
                 "min=-inf         max=inf          mean=nan          nan=0");
  expect_summary(OF(TDICT_F16, uint16_t, 0x3c00, 0xc000, 0x7e00),
                 "min=-2           max=1            mean=-0.5         nan=1");
  expect_summary(OF(TDICT_BF16, uint16_t, 0x3f80, 0xc000, 0x7fc0, 0x7fc1),
                 "min=-2           max=1            mean=-0.5         nan=2");
  expect_summary(OF(TDICT_F8E4M3, uint8_t, 0x38, 0x7f), "min=1            max=1            mean=1            nan=1");
  expect_summary(OF(TDICT_F8E5M2, uint8_t, 0x3c, 0xc0), "min=-2           max=1            mean=-0.5         nan=0");
  expect_summary(OF(TDICT_BOOL, uint8_t, 1, 0, 1, 1), "true=3 of 4");
}

CASE(describe_complex_and_lanes) {
  const double numbers[6] = {1, NAN, 2, 3, NAN, NAN};
  const float four[8] = {1, 2, 3, 4, 5, 6, 7, NAN};
  expect_summary(tensor_of(TDICT_C128, 3, numbers), "nan=2 of 3");
  expect_summary(tensor_of(TDICT_C64, 4, four), "nan=1 of 4");
  expect_summary(tensor_of(TDICT_DTYPE(2, 32, 4), 2, four),
                 "min=1            max=7            mean=4            nan=1");
  expect_summary(tensor_of(TDICT_F32, 0, NULL), "empty");
}

/* Compares summaries of strided, backwards and repeated leaves with the results of a plain loop. */
CASE(describe_strided) {
  enum { N = 24 };
  int32_t numbers[N];
  for (uint64_t seed = 1; seed < 40; seed++) {
    td_fill_random(numbers, sizeof numbers, seed);
    for (int i = 0; i < N; i++) numbers[i] %= 1000;
    const int64_t shape[3] = {2, 2, 3};
    const int64_t strides[3] = {seed % 3 ? (seed % 2 ? 12 : -12) : 0, -5, 2};
    const int origin = 12 + 5 - (strides[0] > 0 ? 12 : 0);
    int64_t sum = 0, low = INT64_MAX, high = INT64_MIN;
    for (int64_t i = 0; i < 12; i++) {
      const int64_t value = numbers[origin + i / 6 * strides[0] + i / 3 % 2 * strides[1] + i % 3 * strides[2]];
      sum += value;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    tdict_tensor_desc view = td_with(tdict_tensor_desc, data = numbers + origin, dtype = TDICT_I32, ndim = 3,
                                     shape = shape, strides = strides);
    tdict_tensor *t = td_made(tensor, tdict_tensor_from_data(&view, NULL, NULL, &made, err));
    char wanted[160];
    snprintf(wanted, sizeof wanted, "min=%-12lld max=%-12lld mean=%.6g", (long long)low, (long long)high,
             (double)sum / 12);
    expect_summary(t, wanted);
  }
}

static tdict_tensor_summary summary_of(tdict_tensor *t) {
  tdict_tensor_summary s = td_filled(tdict_tensor_summary, tdict_tensor_get_summary(t, &made, err));
  tdict_tensor_release(t);
  return s;
}

CASE(summary_has_the_numbers) {
  tdict_tensor_summary s = summary_of(OF(TDICT_I64, int64_t, INT64_MIN, INT64_MAX, 1));
  assert_true(s.min_integer == INT64_MIN && s.max_integer == INT64_MAX && s.num_elements == 3 && s.mean == 0);
  s = summary_of(OF(TDICT_U64, uint64_t, UINT64_MAX, UINT64_MAX - 1));
  assert_true((uint64_t)s.max_integer == UINT64_MAX && (uint64_t)s.min_integer == UINT64_MAX - 1);
  s = summary_of(OF(TDICT_F32, float, -1.5f, NAN, 4, NAN));
  assert_true(s.min == -1.5 && s.max == 4 && s.mean == 1.25 && s.num_nans == 2 && s.num_elements == 4);
  assert_true(!s.num_true && !s.min_integer && !s.max_integer);
  s = summary_of(OF(TDICT_F32, float, NAN));
  assert_true(s.min == 0 && s.max == 0 && s.mean == 0 && s.num_nans == 1);
  s = summary_of(OF(TDICT_F64, double, INFINITY, -INFINITY));
  assert_true(s.min == -INFINITY && s.max == INFINITY && isnan(s.mean));
  s = summary_of(OF(TDICT_BOOL, uint8_t, 1, 0, 1));
  assert_true(s.num_true == 2 && s.num_elements == 3 && s.max == 0);
  const double numbers[4] = {1, NAN, 2, 3};
  s = summary_of(tensor_of(TDICT_C128, 2, numbers));
  assert_true(s.num_nans == 1 && s.num_elements == 2 && s.max == 0);
  const float four[4] = {1, 2, 3, 4};
  s = summary_of(tensor_of(TDICT_DTYPE(2, 32, 4), 1, four));
  assert_true(s.num_elements == 4 && s.mean == 2.5);
  s = summary_of(tensor_of(TDICT_F32, 0, NULL));
  assert_true(s.num_elements == 0 && s.num_nans == 0);
}

GPU_CASE(summary_refuses) {
  scoped_context c = td_context(NULL);
  scoped_tree td = help_tree_without_batch(), moved = NULL;
  tdict_tensor *t = OF(TDICT_F32, float, 1), *far = NULL;
  tdict_tensor_summary s = tdict_tensor_summary_default();
  td_fails(TDICT_EINVAL, "summary: tensor is NULL", tdict_tensor_get_summary(NULL, &s, err));
  td_fails(TDICT_EINVAL, "summary: out is NULL", tdict_tensor_get_summary(t, NULL, err));
  s.struct_size = 0;
  td_fails(TDICT_EINVAL, "struct_size", tdict_tensor_get_summary(t, &s, err));
  /* An older program's struct has fewer members, and only these are set. */
  s = tdict_tensor_summary_default();
  s.struct_size = offsetof(tdict_tensor_summary, num_nans);
  s.num_nans = 77;
  td_ok(tdict_tensor_get_summary(t, &s, err));
  assert_true(s.num_elements == 1 && s.num_nans == 77);
  td_ok(tdict_set(td, "x", t, err));
  td_ok(tdict_to_device(c, td, td_device(), NULL, &moved, err));
  td_ok(tdict_get(moved, "x", &far, err));
  td_fails(TDICT_EWRONGDEVICE, "wanted host memory", tdict_tensor_get_summary(far, &s, err));
  tdict_tensor_release(t);
}

static size_t print_hook(const void *self, char *buffer, size_t bytes) {
  return (size_t)snprintf(buffer, bytes, "%s", (const char *)self);
}
static size_t bytes_hook(const void *self) {
  (void)self;
  return 1000;
}
static void release_hook(void *self) { (void)self; }

CASE(describe_columns) {
  static const tdict_type type =
      TD_TYPE(.name = "note", .release = release_hook, .bytes = bytes_hook, .print = print_hook);
  static char note[] = "hello";
  scoped_tree td = help_tree_without_batch();
  scoped_tensor t = OF(TDICT_F32, float, 1, 2, 3);
  td_ok(tdict_set(td, "obs.state", t, err));
  td_ok(tdict_set(td, "again", t, err));
  td_ok(tdict_set_object(td, "note", &type, note, err));
  scoped_tensor flag = OF(TDICT_BOOL, uint8_t, 0);
  td_ok(tdict_set(td, "done", flag, err));
  static const char body[] =
      "tree batch=[]\n"
      "  obs: tree batch=[]\n"
      "    state  float32 [3] cpu shared min=1            max=3            mean=2            nan=0\n"
      "  again    float32 [3] cpu shared min=1            max=3            mean=2            nan=0\n"
      "  note     object note%s\n"
      "  done     bool    [1] cpu        true=0 of 1\n"
      "3 tensors, 1 object%s\n";
  char wanted[640];
  scoped_chars text = describe(td);
  snprintf(wanted, sizeof wanted, body, "  hello", ", 1025 bytes (1.0 KiB)");
  assert_string_equal(text, wanted);
  free(text);
  /* Without a file, tdict_describe() calls no hook of the program. */
  text = dump(td);
  snprintf(wanted, sizeof wanted, body, "", "");
  assert_string_equal(text, wanted);
}

CASE(describe_refuses) {
  scoped_tree td = help_tree_without_batch();
  td_fails(TDICT_EINVAL, "describe: tree is NULL", tdict_describe(NULL, stdout, err));
  FILE *full = fopen("/dev/full", "w");
  assert_non_null(full);
  td_fails(TDICT_EIO, "could not be written", tdict_describe(td, full, err));
  assert_int_equal(td_last_error.native, ENOSPC);
  fclose(full);
}

CASE(dump_null) {
  scoped_chars text = dump(NULL);
  assert_string_equal(text, "tree: NULL\n");
}

CASE(dump_allocates_nothing) {
  scoped_tree td = td_tree("a.b.c.d.e.f.g.h:f32[2]");
  td_fail_alloc(0, true);
  td_ok(tdict_describe(td, NULL, err));
  assert_int_equal(td_allocs_seen(), 0);
  td_fail_alloc_stop();
}

GPU_CASE(describe_does_not_read_devices) {
  scoped_context c = td_context(NULL);
  scoped_tree td = help_tree_without_batch(), moved = NULL;
  char device[32], wanted[128];
  td_put(td, "x", TENSOR(4));
  td_ok(tdict_to_device(c, td, td_device(), NULL, &moved, err));
  tdict_device_format(td_device(), device, sizeof device);
  snprintf(wanted, sizeof wanted, " %s not read: on %s\n", device, device);
  for (int i = 0; i < 2; i++) {
    scoped_chars text = i ? dump(moved) : describe(moved);
    assert_non_null(strstr(text, wanted));
  }
}

/* Without a file, as in a debugger, tdict_describe() does not wait for a transfer of the tree. */
SIM_CASE(dump_does_not_wait) {
  scoped_context c = td_context(NULL);
  scoped_tree td = help_tree_without_batch(), moved = NULL, back = NULL;
  const float numbers[4] = {1, 2, 3, 4};
  scoped_tensor t = tensor_of(TDICT_F32, 4, numbers);
  td_ok(tdict_set(td, "x", t, err));
  td_ok(tdict_to_device(c, td, td_device(), NULL, &moved, err));
  td_ok(tdict_clone_deep(td, NULL, &back, err));
  td_ok(tdict_sim_hold(c, err));
  scoped_future f = td_made(future, tdict_transfer_into_async(c, back, moved, NULL, &made, err));
  scoped_chars text = dump(back);
  assert_non_null(strstr(text, "not read: in transfer\n"));
  free(text);
  td_ok(tdict_sim_resume(c, err));
  td_ok(tdict_future_wait(f, NULL, err));
  text = dump(back);
  assert_non_null(strstr(text, "min=1            max=4 "));
}

static void wait_for_flag(void *user) {
  while (!atomic_load((_Atomic(bool) *)user)) sched_yield();
}

/* Without a file, tdict_describe() does not read bytes that work queued on a stream may still write. */
SIM_CASE(dump_does_not_wait_for_streams) {
  scoped_context c = td_context(NULL);
  tdict_memory *pinned = tdict_pinned_memory(c);
  scoped_tree td = help_tree_without_batch();
  scoped_tensor t = NULL;
  _Atomic(bool) flag = false;
  TD_STREAM(stream, c, td_device());
  td_ok(tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(4), pinned, &t, err));
  td_ok(tdict_set(td, "x", t, err));
  td_ok(tdict_sim_launch(stream, wait_for_flag, &flag, err));
  td_ok(tdict_record_stream(td, stream, err));
  scoped_chars text = dump(td);
  assert_non_null(strstr(text, " pinned not read: in use by a stream\n"));
  free(text);
  atomic_store(&flag, true);
  assert_non_null(tdict_tensor_data(t)); /* waits for the stream */
  text = dump(td);
  assert_non_null(strstr(text, " pinned min=0 "));
}

CASE(describe_lost) {
  scoped_tree td = help_tree_without_batch();
  scoped_tensor t = OF(TDICT_F32, float, 1);
  td_ok(tdict_set(td, "x", t, err));
  tdict_tensor_lose(t); /* as after a failed transfer into the tensor */
  tdict_tensor_summary s = tdict_tensor_summary_default();
  td_fails(TDICT_EINVAL, "a transfer into the tensor has failed", tdict_tensor_get_summary(t, &s, err));
  scoped_chars text = describe(td);
  assert_non_null(strstr(text, " cpu not read: a transfer into the tensor has failed\n"));
  free(text);
  text = dump(td);
  assert_non_null(strstr(text, " cpu not read: a transfer into the storage has failed\n"));
}
