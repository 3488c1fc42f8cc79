/* Tests dtypes, devices and streams. */
#include "core/base/device.h"
#include "support/test.h"

CASE(dtype_bytes_and_names) {
  static const struct {
    tdict_dtype dtype;
    size_t bytes;
    const char *name;
  } known[] = {{TDICT_I8, 1, "int8"},           {TDICT_I16, 2, "int16"},
               {TDICT_I32, 4, "int32"},         {TDICT_I64, 8, "int64"},
               {TDICT_U8, 1, "uint8"},          {TDICT_U16, 2, "uint16"},
               {TDICT_U32, 4, "uint32"},        {TDICT_U64, 8, "uint64"},
               {TDICT_F16, 2, "float16"},       {TDICT_F32, 4, "float32"},
               {TDICT_F64, 8, "float64"},       {TDICT_BF16, 2, "bfloat16"},
               {TDICT_C64, 8, "complex64"},     {TDICT_C128, 16, "complex128"},
               {TDICT_BOOL, 1, "bool"},         {TDICT_F8E4M3, 1, "float8_e4m3fn"},
               {TDICT_F8E5M2, 1, "float8_e5m2"}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    tdict_dtype code = known[i].dtype & 0xffu, bits = known[i].dtype >> 8 & 0xffu;
    assert_int_equal(tdict_dtype_bytes(known[i].dtype), known[i].bytes);
    assert_string_equal(tdict_dtype_name(known[i].dtype), known[i].name);
    assert_int_equal(tdict_dtype_bytes(TDICT_DTYPE(code, bits, 3)), 3 * known[i].bytes);
    assert_int_equal(tdict_dtype_bytes(TDICT_DTYPE(code, bits, 65535)), 65535 * known[i].bytes);
    assert_string_equal(tdict_dtype_name(TDICT_DTYPE(code, bits, 4)), known[i].name);
    assert_int_equal(tdict_dtype_bytes(TDICT_DTYPE(code, bits, 0)), 0);
    assert_string_equal(tdict_dtype_name(TDICT_DTYPE(code, bits, 0)), "unknown");
  }
  /* DLPack type codes that tdict lacks, and invalid sizes. */
  static const tdict_dtype unknown[] = {0,
                                        TDICT_DTYPE(0, 7, 1),
                                        TDICT_DTYPE(0, 4, 1),
                                        TDICT_DTYPE(2, 8, 1),
                                        TDICT_DTYPE(2, 128, 1),
                                        TDICT_DTYPE(3, 64, 1),
                                        TDICT_DTYPE(4, 32, 1),
                                        TDICT_DTYPE(6, 1, 1),
                                        TDICT_DTYPE(17, 4, 1),
                                        TDICT_DTYPE(255, 8, 1),
                                        0xffffffffu};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
    assert_int_equal(tdict_dtype_bytes(unknown[i]), 0);
    assert_string_equal(tdict_dtype_name(unknown[i]), "unknown");
  }
}

CASE(no_stream_has_no_device) {
  const tdict_stream none = tdict_no_stream(), zero = {{0, 0}, NULL};
  const tdict_run run = tdict_run_default();
  tdict_stream stream = {tdict_cpu(), NULL};
  tdict_error err;
  assert_memory_equal(&none, &zero, sizeof none);
  assert_memory_equal(&run.stream, &zero, sizeof zero);
  assert_int_equal(run.struct_size, sizeof run);
  assert_int_equal(run.num_threads, -1);
  assert_null(run.memory);
  assert_false(tdict_has_stream(none));
  assert_int_equal(tdict_stream_check_device(none, "call", &err), TDICT_OK);
  assert_true(tdict_has_stream(stream));
  stream.handle = &stream;
  assert_int_equal(tdict_stream_check_device(stream, "call", &err), TDICT_OK);
  stream.device = tdict_no_stream().device;
  assert_int_equal(tdict_stream_check_device(stream, "call", &err), TDICT_EINVAL);
  assert_string_equal(err.message, "call: the stream has a handle but no device, wanted a device such as cuda:0");
}

CASE(dtype_format_says_lanes) {
  char text[TDICT_DTYPE_TEXT_BYTES];
  assert_ptr_equal(tdict_dtype_format(TDICT_F32, text, sizeof text), text);
  assert_string_equal(text, "float32");
  assert_string_equal(tdict_dtype_format(TDICT_DTYPE(2, 32, 4), text, sizeof text), "float32 x 4");
  assert_string_equal(tdict_dtype_format(TDICT_DTYPE(10, 8, 65535), text, sizeof text), "float8_e4m3fn x 65535");
  assert_string_equal(tdict_dtype_format(TDICT_DTYPE(3, 64, 1), text, sizeof text), "unknown");
  assert_string_equal(tdict_dtype_format(TDICT_BF16, text, 5), "bflo");
  text[0] = 'x';
  assert_ptr_equal(tdict_dtype_format(TDICT_F32, text, 0), text);
  assert_int_equal(text[0], 'x');
}

CASE(dtype_is_a_constant) {
  switch (TDICT_F32) {
  case TDICT_F32:
    break;
  case TDICT_BF16:
    fail();
    break;
  default:
    fail();
  }
  assert_int_equal(TDICT_F32, 2 | 32 << 8 | 1 << 16);
}

CASE(device_equality) {
  assert_true(tdict_device_equal(tdict_cpu(), tdict_cpu()));
  assert_true(tdict_device_equal(tdict_cuda(3), tdict_cuda(3)));
  assert_false(tdict_device_equal(tdict_cuda(3), tdict_cuda(4)));
  assert_false(tdict_device_equal(tdict_cuda(0), tdict_sim(0)));
  assert_false(tdict_device_equal(tdict_cpu(), tdict_cuda(0)));
  assert_int_equal(tdict_cpu().type, 1);
  assert_int_equal(tdict_cuda(1).type, 2);
  assert_int_equal(tdict_sim(1).type, 12);
}

CASE(device_parse_accepts) {
  static const struct {
    const char *text;
    tdict_device device;
  } known[] = {{"cpu", {1, 0}},  {"cuda", {2, 0}},   {"cuda:0", {2, 0}}, {"cuda:1", {2, 1}},   {"cuda:12", {2, 12}},
               {"sim", {12, 0}}, {"sim:1", {12, 1}}, {"auto", {0, 0}},   {"sim:0007", {12, 7}}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    tdict_device device = {-5, -5};
    td_ok(tdict_device_parse(known[i].text, &device, err));
    assert_true(tdict_device_equal(device, known[i].device));
  }
}

CASE(device_parse_refuses) {
  static const char *bad[] = {
      "",        "c",       "cp",   "cpux",  "cpu:",  "cpu:0", "cpu:1", "cuda:",   "cuda:x", "cuda:1x", "cuda1",
      "cuda:-1", "cuda: 1", "CUDA", " cuda", "cuda ", "gpu",   "sim:",  "sim:1:2", "auto:0", "autos",   "cuda:10000"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    tdict_device device = {-5, -6};
    td_fails(TDICT_EINVAL, bad[i], tdict_device_parse(bad[i], &device, err));
    assert_int_equal(device.type, -5);
    assert_int_equal(device.index, -6);
  }
  tdict_device device;
  td_fails(TDICT_EINVAL, "text is NULL", tdict_device_parse(NULL, &device, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_device_parse("cpu", NULL, err));
}

CASE(device_format_round_trip) {
  const tdict_device devices[] = {tdict_cpu(), tdict_cuda(0), tdict_cuda(15), tdict_sim(0), tdict_sim(7), {0, 0}};
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
    char text[32];
    tdict_device back;
    assert_ptr_equal(tdict_device_format(devices[i], text, sizeof text), text);
    td_ok(tdict_device_parse(text, &back, err));
    assert_true(tdict_device_equal(back, devices[i]));
  }
  char text[8];
  memset(text, 'x', sizeof text);
  assert_string_equal(tdict_device_format(tdict_cuda(1), text, 5), "cuda");
  assert_int_equal(text[5], 'x');
  assert_string_equal(tdict_device_format(tdict_cuda(1), text, 1), "");
  memset(text, 'x', sizeof text);
  assert_ptr_equal(tdict_device_format(tdict_cuda(1), text, 0), text);
  assert_int_equal(text[0], 'x');
  assert_ptr_equal(tdict_device_format(tdict_cuda(1), NULL, 0), NULL);
}
