/* Tests dtypes and devices: conversions to and from DLPack's codes, and errors that name what is refused. */

#include "rig.h"

static const struct {
  tdict_dtype dtype;
  uint8_t code, bits;
} known[] = {{TDICT_I8, 0, 8},      {TDICT_I16, 0, 16},   {TDICT_I32, 0, 32}, {TDICT_I64, 0, 64},   {TDICT_U8, 1, 8},
             {TDICT_U16, 1, 16},    {TDICT_U32, 1, 32},   {TDICT_U64, 1, 64}, {TDICT_F16, 2, 16},   {TDICT_F32, 2, 32},
             {TDICT_F64, 2, 64},    {TDICT_BF16, 4, 16},  {TDICT_C64, 5, 64}, {TDICT_C128, 5, 128}, {TDICT_BOOL, 6, 8},
             {TDICT_F8E4M3, 10, 8}, {TDICT_F8E5M2, 12, 8}};

CASE(dlpack_dtypes_both_ways) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    scoped_tensor t = small_tensor(known[i].dtype, 3, i + 1), back = NULL;
    struct DLManagedTensorVersioned *m = NULL;
    struct DLManagedTensor *old = NULL;
    td_ok(export_versioned(NULL, t, NULL, &m, err));
    td_ok(export_legacy(NULL, t, NULL, &old, err));
    const tdict_dl_dtype d = versioned_of(m)->tensor.dtype, e = legacy_of(old)->tensor.dtype;
    assert_int_equal(d.code, known[i].code);
    assert_int_equal(d.bits, known[i].bits);
    assert_int_equal(d.lanes, 1);
    assert_memory_equal(&d, &e, sizeof d);
    td_ok(import_versioned(NULL, &m, NULL, &back, err));
    assert_int_equal(tdict_tensor_dtype(back), known[i].dtype);
    assert_memory_equal(tdict_tensor_const_data(back), tdict_tensor_const_data(t), tdict_tensor_bytes(t));
    tdict_tensor_release(back);
    td_ok(import_legacy(NULL, &old, NULL, &back, err));
    assert_int_equal(tdict_tensor_dtype(back), known[i].dtype);
  }
}

/* Checks that the import refuses a tensor in both structs. */
static void refuse(produced *p, tdict_status status, const char *text) {
  struct DLManagedTensorVersioned *m = give_versioned(p);
  struct DLManagedTensor *old = give_legacy(p);
  tdict_tensor *out = NULL;
  p->legacy.tensor = p->versioned.tensor;
  td_fails(status, text, import_versioned(NULL, &m, NULL, &out, err));
  td_fails(status, text, import_legacy(NULL, &old, NULL, &out, err));
  assert_null(out);
  assert_ptr_equal(m, give_versioned(p));
  assert_ptr_equal(old, give_legacy(p));
  assert_int_equal(times_deleted(p), 0);
}

CASE(dlpack_refuses_dtypes_by_name) {
  static const struct {
    tdict_dl_dtype dtype;
    const char *text;
  } bad[] = {{{2, 32, 4}, "float (code 2, 32 bits, 4 lanes)"},
             {{2, 32, 0}, "0 lanes"},
             {{0, 4, 1}, "int (code 0, 4 bits"},
             {{1, 1, 1}, "uint (code 1, 1 bits"},
             {{6, 1, 1}, "bool (code 6, 1 bits"},
             {{3, 64, 1}, "opaque handle"},
             {{7, 8, 1}, "float8_e3m4"},
             {{8, 8, 1}, "float8_e4m3 "},
             {{14, 8, 1}, "float8_e8m0fnu"},
             {{16, 6, 1}, "float6_e3m2fn"},
             {{17, 4, 1}, "float4_e2m1fn"},
             {{18, 8, 1}, "unknown (code 18"},
             {{255, 8, 1}, "unknown (code 255"}};
  unsigned char bytes[64] = {0};
  produced p;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    produce_bytes(&p, bytes, 2);
    p.versioned.tensor.dtype = bad[i].dtype;
    refuse(&p, TDICT_EDTYPE, bad[i].text);
  }
  /* the library has dtypes with several lanes, but most consumers do not */
  int64_t shape = 2;
  struct DLManagedTensorVersioned *m = NULL;
  scoped_tensor lanes = td_made(tensor, tdict_tensor_zeros(TDICT_DTYPE(2, 32, 4), 1, &shape, NULL, &made, err));
  td_fails(TDICT_EDTYPE, "float (code 2, 32 bits, 4 lanes)", export_versioned(NULL, lanes, NULL, &m, err));
  assert_null(m);
}

CASE(dlpack_devices_by_code) {
  static const struct {
    tdict_dl_device from;
    tdict_device to;
    bool pinned;
  } good[] = {{{1, 0}, {TDICT_DEVICE_CPU, 0}, false},  {{1, 3}, {TDICT_DEVICE_CPU, 0}, false},
              {{2, 1}, {TDICT_DEVICE_CUDA, 1}, false}, {{3, 0}, {TDICT_DEVICE_CPU, 0}, true},
              {{12, 1}, {TDICT_DEVICE_SIM, 1}, false}, {{13, 0}, {TDICT_DEVICE_CUDA, 0}, false}};
  unsigned char bytes[64] = {0};
  produced p;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    produce_bytes(&p, bytes, 64);
    p.versioned.tensor.device = good[i].from;
    struct DLManagedTensorVersioned *m = give_versioned(&p);
    tdict_tensor *t = td_made(tensor, import_versioned(NULL, &m, NULL, &made, err));
    assert_true(tdict_device_equal(tdict_tensor_device(t), good[i].to));
    assert_int_equal(tdict_tensor_is_pinned(t), good[i].pinned);
    tdict_tensor_release(t);
    assert_int_equal(times_deleted(&p), 1);
  }
}

CASE(dlpack_refuses_devices_by_name) {
  static const struct {
    tdict_dl_device device;
    const char *text;
  } bad[] = {{{10, 2}, "rocm:2 (type 10)"},
             {{8, 0}, "metal:0"},
             {{4, 0}, "opencl"},
             {{7, 0}, "vulkan"},
             {{18, 0}, "trn:0"},
             {{0, 0}, "unknown:0 (type 0)"},
             {{77, 1}, "unknown:1"},
             {{-1, 0}, "(type -1)"}};
  unsigned char bytes[64] = {0};
  produced p;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    produce_bytes(&p, bytes, 64);
    p.versioned.tensor.device = bad[i].device;
    refuse(&p, TDICT_ENOTSUP, bad[i].text);
  }
  produce_bytes(&p, bytes, 64);
  p.versioned.tensor.device = (tdict_dl_device){2, -1};
  refuse(&p, TDICT_EINVAL, "index -1");
  /* a tensor of the program on a device that the export does not support */
  scoped_tensor t = NULL;
  struct DLManagedTensorVersioned *m = NULL;
  tdict_tensor_desc desc = td_with(tdict_tensor_desc, data = bytes, device.type = 10, dtype = TDICT_U8);
  td_ok(tdict_tensor_from_data(&desc, NULL, NULL, &t, err));
  td_fails(TDICT_ENOTSUP, "rocm:0", export_versioned(NULL, t, NULL, &m, err));
}

CASE(dlpack_refuses_shapes) {
  unsigned char bytes[64] = {0};
  produced p;
  produce_bytes(&p, bytes, 64);
  p.versioned.tensor.ndim = -1;
  refuse(&p, TDICT_EINVAL, "-1 dimensions, wanted 0 to 32");
  p.versioned.tensor.ndim = 33;
  refuse(&p, TDICT_EINVAL, "33 dimensions");
  p.versioned.tensor.ndim = 1;
  p.versioned.tensor.shape = NULL;
  refuse(&p, TDICT_EINVAL, "shape is NULL");
  produce_bytes(&p, bytes, -1);
  refuse(&p, TDICT_EINVAL, "-1");
  produce_bytes(&p, NULL, 64);
  refuse(&p, TDICT_EINVAL, "data is NULL");
  produce_bytes(&p, bytes, 64);
  p.versioned.tensor.byte_offset = UINT64_MAX;
  refuse(&p, TDICT_EINVAL, "byte_offset is 18446744073709551615");
  produce_bytes(&p, bytes, INT64_MAX);
  p.strides[0] = INT64_MAX;
  refuse(&p, TDICT_EOVERFLOW, "63 bits");
}
