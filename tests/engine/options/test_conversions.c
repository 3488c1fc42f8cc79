/* Tests the option conversions. The plain C code of core/tensor/naive_convert.h computes the expected elements. */
#include "engine/conversions.h"
#include "support/float_env.h"
#include "support/things.h"
#include "support/unloaded.h"

/* Converts in transfers to the device, to the host and within the host, in all modes and with various thread counts. */
DEVICE_CASE(conversions_arrive_in_all_ways) {
  scoped_place w = open_place();
  for (int layout = 0; layout < 3; layout++) {
    scoped_tree src = make_sources(&w, layout), there = to_device(&w, src, w.device);
    for (int i = layout; i < NUM_WAYS; i += 3 * WAYS_STEP) {
      way v = way_at(i);
      use_rules(&v.o);
      poison(&w, w.memory, line_bytes(src));
      scoped_tree out = move_tree(&w, src, w.device, &v), back = move_tree(&w, there, tdict_cpu(), &v);
      check_all(&w, src, out, w.device);
      check_all(&w, src, back, tdict_cpu());
      td_release(out, back);
      v.o.pinned_result = w.gpu;
      back = move_tree(&w, i % 2 ? src : there, tdict_cpu(), &v);
      check_all(&w, src, back, tdict_cpu());
    }
  }
}

/* A large leaf is cut into chunks, which use many slots. */
GPU_CASE(conversions_of_large_leaves_use_many_slots) {
  static const pair_of large[] = {{"a", TDICT_U8, TDICT_F32, 0.5, 1}, {"a", TDICT_F32, TDICT_U8, 1, 0}};
  scoped_place w = open_place();
  for (int k = 0; k < 2; k++) {
    scoped_tree src = new_tree();
    tdict_tensor *t = td_made(tensor, tdict_tensor_empty(large[k].from, SHAPE(211, 1009), NULL, &made, err));
    fill_fitting(t, &large[k]);
    td_put(src, "a", t);
    scoped_tree there = to_device(&w, src, w.device);
    for (int i = 4; i < NUM_WAYS; i += FEW_WAYS_STEP) {
      way v = way_at(i);
      const tdict_conversion c = scaled("**", large[k].to, large[k].scale, large[k].offset);
      use_conversions(&v.o, &c, 1);
      scoped_tree out = move_tree(&w, src, w.device, &v), back = move_tree(&w, there, tdict_cpu(), &v);
      check_converted(&w, &large[k], t, td_leaf(out, "a"));
      check_converted(&w, &large[k], t, td_leaf(back, "a"));
    }
  }
}

/* A destination must have the dtype of the conversion, and may have any strides. */
DEVICE_CASE(conversions_into_a_destination) {
  scoped_place w = open_place();
  scoped_tree src = make_sources(&w, 1);
  for (int host = 0; host < 2; host++) {
    scoped_tree dst = new_tree();
    const tdict_device device = host ? tdict_cpu() : w.device;
    for (int i = 0; i < NUM_PAIRS; i++) {
      const tdict_tensor *s = td_leaf(src, pairs[i].path);
      const int64_t *shape = tdict_tensor_shape(s);
      tdict_tensor *t = NULL;
      td_ok(tdict_tensor_empty(pairs[i].to, SHAPE(shape[1], shape[0]), host ? NULL : w.memory, &t, err));
      td_put(dst, pairs[i].path, permuted(t, (const int[]){1, 0}));
    }
    scoped_tree from = host ? to_device(&w, src, w.device) : tdict_retain(src);
    for (int i = 0; i < NUM_WAYS; i += SANITIZED ? FEW_WAYS_STEP : 9) {
      way v = way_at(i);
      use_rules(&v.o);
      spoil_tree(&w, dst);
      copy_tree(&w, from, dst, &v);
      check_all(&w, src, dst, device);
    }
    tdict_transfer_options o = tdict_transfer_options_default();
    td_fails_at(TDICT_EDTYPE, "the source is uint8, the destination bfloat16", "image",
                tdict_transfer_into(w.c, dst, from, &o, err));
    const tdict_conversion wrong = to_dtype("image", TDICT_F32);
    use_conversions(&o, &wrong, 1);
    td_fails_at(TDICT_EDTYPE, "the source is converted to float32, the destination bfloat16", "image",
                tdict_transfer_into(w.c, dst, from, &o, err));
  }
}

/* A transfer to the device, to the host or within the host fails if the target dtype cannot represent an element. */
DEVICE_CASE(conversions_report_elements_out_of_range) {
  scoped_place w = open_place();
  tdict_tree *src = new_tree(), *out = NULL, *there;
  tdict_tensor *t = random_tensor(TDICT_U8, SHAPE(5000), NULL), *wide = NULL;
  td_put(src, "other", t);
  td_ok(tdict_tensor_zeros(TDICT_I64, SHAPE(40, 50), NULL, &wide, err));
  ((int64_t *)wide->data)[23 * 50 + 7] = 65536;
  td_put(src, "ids.deep", wide);
  there = to_device(&w, src, w.device);
  const tdict_conversion c = to_dtype("ids.*", TDICT_U16);
  const char *text = "element [23, 7] is 65536, wanted 0 to 65535 (uint16)";
  for (int i = 0; i < NUM_WAYS; i += 3) {
    way v = way_at(i);
    use_conversions(&v.o, &c, 1);
    td_fails_at(TDICT_EOVERFLOW, text, "ids.deep", tdict_to_device(w.c, src, w.device, &v.o, &out, err));
    td_fails_at(TDICT_EOVERFLOW, text, "ids.deep", tdict_to_device(w.c, there, tdict_cpu(), &v.o, &out, err));
    scoped_future f = move_async(&w, src, w.device, &v.o);
    td_fails_at(TDICT_EOVERFLOW, text, "ids.deep", tdict_future_wait(f, &out, err));
  }
  assert_null(out);
  td_release(there, src);
}

/* A leaf that is already on the target device is copied only if its elements change. */
DEVICE_CASE(conversions_of_what_is_there) {
  scoped_place w = open_place();
  scoped_tree src = td_tree("a:f32[100] b:u8[100]"), there = NULL, out = NULL;
  there = to_device(&w, src, w.device);
  const tdict_conversion same[2] = {to_dtype("a", TDICT_F32), to_dtype("?nothing.**", TDICT_F16)};
  tdict_transfer_options o = converting(same, 2, NULL);
  td_ok(tdict_to_device(w.c, there, w.device, &o, &out, err));
  assert_ptr_equal(out, there);
  td_release(out);
  const tdict_conversion half = to_dtype("a", TDICT_F16);
  use_conversions(&o, &half, 1);
  td_ok(tdict_to_device(w.c, there, w.device, &o, &out, err));
  check_converted(&w, &(pair_of){"a", TDICT_F32, TDICT_F16, 1, 0}, td_leaf(src, "a"), td_leaf(out, "a"));
  assert_ptr_equal(td_leaf(out, "b"), td_leaf(there, "b"));
}

/* Leaves that view the same bytes share the converted bytes, but only if their conversions are equal. */
GPU_CASE(conversions_of_tied_leaves) {
  scoped_place w = open_place();
  scoped_tree src = new_tree(), out = NULL;
  tdict_tensor *t = random_tensor(TDICT_F32, SHAPE(64), NULL), *raw = NULL;
  tdict_tensor_desc desc = desc_of(t->data, TDICT_I32, (const int64_t[]){64});
  static const char *const tied[] = {"half.a", "half.b", "same.a", "same.b", "whole"};
  td_ok(tdict_tensor_over(t->storage, &desc, &raw, err));
  for (int i = 0; i < 64; i++) ((float *)t->data)[i] = (float)i;
  td_put(src, "half.raw", raw); /* the same bytes with a different dtype */
  for (int i = 0; i < 5; i++) td_ok(tdict_set(src, tied[i], t, err));
  const tdict_conversion rule[2] = {to_dtype("half.*", TDICT_F16), to_dtype("whole", TDICT_F64)};
  tdict_transfer_stats s = tdict_transfer_stats_default();
  tdict_transfer_options o = converting(rule, 2, &s);
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  assert_int_equal(s.num_shared_leaves, 2);
  assert_ptr_equal(td_leaf(out, "half.a")->data, td_leaf(out, "half.b")->data);
  assert_ptr_equal(td_leaf(out, "same.a")->data, td_leaf(out, "same.b")->data);
  check_converted(&w, &(pair_of){"half", TDICT_F32, TDICT_F16, 1, 0}, t, td_leaf(out, "half.a"));
  check_converted(&w, &(pair_of){"raw", TDICT_I32, TDICT_F16, 1, 0}, raw, td_leaf(out, "half.raw"));
  check_converted(&w, &(pair_of){"whole", TDICT_F32, TDICT_F64, 1, 0}, t, td_leaf(out, "whole"));
  check_tensor(&w, t, td_leaf(out, "same.a"), "same.a");
  tdict_tensor_release(t);
}

/* The first matching pattern wins, kept entries are not converted, and a consolidated tree is moved leaf by leaf. */
GPU_CASE(conversions_and_other_options) {
  scoped_place w = open_place();
  scoped_tree src = td_tree("a.x:u8[70] a.y:u8[70] kept:u8[70]"), out = NULL, whole = NULL;
  const tdict_conversion rule[3] = {to_dtype("a.x", TDICT_I16), to_dtype("**", TDICT_F32), to_dtype("?a", TDICT_I64)};
  static const char *const keep[] = {"kept"};
  tdict_transfer_stats s = tdict_transfer_stats_default();
  tdict_transfer_options o = converting(rule, 3, NULL);
  o.keep = keep;
  o.num_keep = 1;
  o.check_sources = true;
  o.stats = &s;
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  assert_int_equal(tdict_tensor_dtype(td_leaf(out, "a.x")), TDICT_I16);
  assert_int_equal(tdict_tensor_dtype(td_leaf(out, "a.y")), TDICT_F32);
  assert_ptr_equal(td_leaf(out, "kept"), td_leaf(src, "kept"));
  assert_int_equal(s.total_bytes, 70 * 2 + 70 * 4);
  assert_int_equal(s.staged_bytes, s.total_bytes);
  assert_int_equal(s.wire_bytes, 70 + 70); /* the elements cross the link as uint8 */
  td_release(out);
  o.num_keep = 0;
  td_ok(tdict_consolidate(src, NULL, &whole, err));
  td_ok(tdict_to_device(w.c, whole, w.device, &o, &out, err));
  check_converted(&w, &(pair_of){"a.x", TDICT_U8, TDICT_I16, 1, 0}, td_leaf(src, "a.x"), td_leaf(out, "a.x"));
  assert_false(tdict_is_consolidated(out));
  td_release(whole, out);
  scoped_tree there = to_device(&w, src, w.device);
  td_ok(tdict_to_device(w.c, there, tdict_cpu(), &o, &out, err));
  assert_int_equal(s.wire_bytes, 3 * 70);
  assert_int_equal(s.total_bytes, 70 * 2 + 2 * 70 * 4);
  check_converted(&w, &(pair_of){"kept", TDICT_U8, TDICT_F32, 1, 0}, td_leaf(src, "kept"), td_leaf(out, "kept"));
}

/* Patterns do not match the tensors of an object. */
GPU_CASE(conversions_leave_objects_alone) {
  scoped_place w = open_place();
  scoped_tree src = new_tree(), out = NULL;
  thing *t = thing_create(random_tensor(TDICT_U8, SHAPE(70), NULL), random_tensor(TDICT_F32, SHAPE(33), NULL));
  td_ok(tdict_set_object(src, "a.thing", &thing_flat, t, err));
  td_put(src, "a.z", random_tensor(TDICT_U8, SHAPE(70), NULL));
  const tdict_conversion all = to_dtype("**", TDICT_F64);
  tdict_transfer_options o = converting(&all, 1, NULL);
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  void *moved = NULL;
  td_ok(tdict_get_object(out, "a.thing", &thing_flat, &moved, err));
  check_tensor(&w, t->a, ((thing *)moved)->a, "a");
  check_tensor(&w, t->b, ((thing *)moved)->b, "b");
  check_converted(&w, &(pair_of){"a.z", TDICT_U8, TDICT_F64, 1, 0}, td_leaf(src, "a.z"), td_leaf(out, "a.z"));
}

/* Two leaves may have the same destination only if they have the same source and the same conversion. */
DEVICE_CASE(conversions_into_one_place_must_agree) {
  scoped_place w = open_place();
  scoped_tree src = new_tree(), dst = new_tree();
  scoped_tensor s = random_tensor(TDICT_U8, SHAPE(500), NULL), d = NULL;
  td_ok(tdict_tensor_empty(TDICT_F32, SHAPE(500), w.memory, &d, err));
  static const char *const paths[] = {"a", "b"};
  for (int i = 0; i < 2; i++) {
    td_ok(tdict_set(src, paths[i], s, err));
    td_ok(tdict_set(dst, paths[i], d, err));
  }
  tdict_conversion c[2] = {to_dtype("*", TDICT_F32), scaled("b", TDICT_F32, 2, 0)};
  tdict_transfer_options o = converting(c, 2, NULL);
  td_ok(tdict_transfer_into(w.c, dst, src, &o, err));
  check_converted(&w, &(pair_of){"a", TDICT_U8, TDICT_F32, 1, 0}, s, d);
  c[0].pattern = "a";
  td_fails_at(TDICT_EINVAL, "is that at 'a', and their sources differ", "b",
              tdict_transfer_into(w.c, dst, src, &o, err));
}

static tdict_status sink_write(void *user, size_t offset, const void *src, size_t bytes, tdict_error *err) {
  (void)err;
  memcpy((char *)user + offset, src, bytes); /* threads write separate pieces */
  return TDICT_OK;
}
static void sink_release(void *user) { (void)user; }
/* Converted elements go to the callback of a sink. */
DEVICE_CASE(conversions_into_sinks) {
  enum { ROWS = 150, COLUMNS = 301, ALL = ROWS * COLUMNS };
  static uint16_t got[ALL];
  scoped_place w = open_place();
  scoped_tree src = new_tree(), dst = new_tree();
  tdict_storage *s = NULL;
  const tdict_tensor_desc layout = {.dtype = TDICT_BF16, .ndim = 2, .shape = (const int64_t[]){COLUMNS, ROWS}};
  td_put(src, "a", permuted(random_tensor(TDICT_F32, SHAPE(ROWS, COLUMNS), NULL), (const int[]){1, 0}));
  td_ok(tdict_storage_create_sink(&(tdict_storage_writer){sink_write, sink_release, got}, sizeof got, &s, err));
  td_put(dst, "a", td_made(tensor, tdict_tensor_unloaded(s, &layout, 0, &made, err)));
  tdict_storage_release(s);
  scoped_tree there = to_device(&w, src, w.device);
  scoped_bytes elements = read_elements(&w, td_leaf(src, "a"));
  const naive_dtype *from = naive_find(TDICT_F32), *to = naive_find(TDICT_BF16);
  const tdict_conversion c = to_dtype("a", TDICT_BF16);
  for (int i = 0; i < NUM_WAYS; i += 5) {
    way v = way_at(i);
    use_conversions(&v.o, &c, 1);
    memset(got, 0xA5, sizeof got);
    copy_tree(&w, i % 2 ? src : there, dst, &v);
    for (size_t k = 0; k < ALL; k++) {
      uint64_t want = 0;
      assert_true(naive_convert(to, from, naive_load(from, elements, k), &want));
      assert_true(naive_equal(to, got[k], want));
    }
  }
}

/* Converts leaves that a callback reads. */
DEVICE_CASE(conversions_of_unloaded_leaves) {
  scoped_place w = open_place();
  scoped_tree src = make_sources(&w, 0);
  for (int i = 0; i < NUM_WAYS; i += 6) {
    way v = way_at(i);
    scoped_disk d = disk_open();
    use_rules(&v.o);
    scoped_tree twin = disk_twin(&d, src, 60, next_seed()), out = move_tree(&w, twin, w.device, &v);
    check_all(&w, src, out, w.device);
  }
}

DEVICE_CASE(conversions_are_checked_first) {
  scoped_place w = open_place();
  tdict_tree *src = td_tree("a:f32[10] c:c64[10]"), *out = NULL;
  tdict_conversion c[2] = {to_dtype("a", TDICT_F16), to_dtype("b", TDICT_F16)};
  tdict_transfer_options o = td_with(tdict_transfer_options, num_conversions = 2);
  td_fails(TDICT_EINVAL, "to_device: options.conversions is NULL, wanted 2 conversions",
           tdict_to_device(w.c, src, w.device, &o, &out, err));
  o.conversions = c;
  c[1].pattern = NULL;
  td_fails(TDICT_EINVAL, "options.conversions[1].pattern is NULL", tdict_to_device(w.c, src, w.device, &o, &out, err));
  c[1] = to_dtype("x*", TDICT_F16);
  td_fails_at(TDICT_EINVAL, "options.conversions[1]: a star is a part of a key", "x*",
              tdict_to_device(w.c, src, w.device, &o, &out, err));
  c[1] = to_dtype("b", 77);
  td_fails_at(TDICT_EDTYPE, "options.conversions[1]: dtype 0x4d is unknown", "b",
              tdict_to_device(w.c, src, w.device, &o, &out, err));
  c[1] = scaled("b", TDICT_F16, 1e300, 0);
  td_fails_at(TDICT_EINVAL, "wanted finite float32 numbers", "b", tdict_to_device(w.c, src, w.device, &o, &out, err));
  c[1] = to_dtype("b", TDICT_F16);
  c[1].struct_size = 8;
  td_fails(TDICT_EINVAL, "options.conversions[1]: struct_size is 8, wanted",
           tdict_to_device(w.c, src, w.device, &o, &out, err));
  c[1].struct_size = 0;
  td_fails(TDICT_EINVAL, "options.conversions[1]: struct_size is 0",
           tdict_to_device(w.c, src, w.device, &o, &out, err));
  c[1] = to_dtype("c", TDICT_F16);
  td_fails_at(TDICT_ENOTSUP, "from complex64 to float16 is not supported", "c",
              tdict_to_device(w.c, src, w.device, &o, &out, err));
  c[1] = to_dtype("b", TDICT_F16);
  c[0] = scaled("a", TDICT_F16, 2, 0);
  td_fails_at(TDICT_ENOTSUP, "from float32 to float16 with a scale or an offset is not supported", "a",
              tdict_to_device(w.c, src, w.device, &o, &out, err));
  assert_null(out);
  tdict_release(src);
}

static tdict_status move_and_drop(const place *w, const tdict_tree *src, tdict_device device,
                                  const tdict_transfer_options *o, tdict_error *err) {
  tdict_tree *out = NULL;
  const tdict_status status = tdict_to_device(w->c, src, device, o, &out, err);
  if (status == TDICT_OK) tdict_release(out);
  return status;
}
DEVICE_CASE(conversions_survive_enomem) {
  scoped_place w = open_place();
  scoped_tree src = make_sources(&w, 1), there = to_device(&w, src, w.device);
  tdict_transfer_options o = tdict_transfer_options_default();
  use_rules(&o);
  o.num_threads = 0;
  td_ok(move_and_drop(&w, src, w.device, &o, err)); /* creates the staging ring */
  td_ok(move_and_drop(&w, there, tdict_cpu(), &o, err));
  TD_WITHOUT_MEMORY(move_and_drop(&w, src, w.device, &o, err));
  TD_WITHOUT_MEMORY(move_and_drop(&w, there, tdict_cpu(), &o, err));
}

/* The floating-point environment in which the context is created or the transfer is started has no effect. */
DEVICE_CASE(conversions_in_any_float_env) {
  for (int i = 0; i < TD_FLOAT_ENVS; i++) {
    (void)td_float_env_set(i);
    scoped_place w = open_place();
    td_float_env_reset();
    scoped_tree src = make_sources(&w, i % 3), there = to_device(&w, src, w.device);
    for (int k = i; k < NUM_WAYS; k += FEW_WAYS_STEP) {
      way v = way_at(k);
      use_rules(&v.o);
      const td_float_env set = td_float_env_set(i);
      scoped_tree out = move_tree(&w, src, w.device, &v), back = move_tree(&w, there, tdict_cpu(), &v);
      const td_float_env left = td_float_env_get();
      td_float_env_reset();
      assert_true(td_float_env_equal(left, set));
      check_all(&w, src, out, w.device);
      check_all(&w, src, back, tdict_cpu());
    }
  }
}
