/* Tests Arrow arrays in device memory and in pinned memory. */

#include "device/gpu_help.h"
#include "services/interop/arrow/rig.h"
#include "support/threads.h"

static bool on_gpu(void) { return td_device().type != TDICT_DEVICE_CPU; }

/* Moves a tree to a device. Releases `tree`. */
static tdict_tree *moved(tdict_context *context, tdict_tree *tree, tdict_device device) {
  tdict_tree *there = td_made(tree, tdict_to_device(context, tree, device, NULL, &made, err));
  tdict_release(tree);
  return there;
}
typedef struct exported_there {
  struct ArrowSchema schema;
  struct ArrowDeviceArray array;
} exported_there;
static exported_there export_there(const tdict_tree *tree) {
  exported_there e;
  memset(&e, 0x77, sizeof e);
  td_ok(tdict_arrow_export_device(tree, &e.schema, &e.array, err));
  assert_null(e.array.sync_event);
  for (int i = 0; i < 3; i++) assert_int_equal(e.array.reserved[i], 0);
  return e;
}

DEVICE_CASE(arrow_device_round_trips_return_equal_trees) {
  scoped_context context = td_context(NULL);
  for (uint64_t seed = 0; seed < 8; seed++) {
    scoped_tree tree = sample_tree((int64_t)seed * 2, seed), back = NULL;
    tdict_tree *there = moved(context, tdict_retain(tree), td_device());
    exported_there e = export_there(there);
    tdict_release(there); /* the array retains the memory */
    assert_int_equal(e.array.device_type, on_gpu() ? td_device().type : ARROW_DEVICE_CPU);
    assert_int_equal(e.array.device_id, on_gpu() ? td_device().index : -1);
    td_ok(tdict_arrow_import_device(context, &e.schema, &e.array, NULL, &back, err));
    assert_null(e.array.array.release);
    e.schema.release(&e.schema);
    tdict_device device = {0, 0};
    assert_int_equal(tdict_get_device(back, &device), on_gpu());
    if (on_gpu()) assert_true(tdict_device_equal(device, td_device()));
    back = moved(context, back, tdict_cpu());
    equal_trees(tree, back);
  }
}

/* The export shares numbers and offsets, and packs bools. The bytes on the device must be correct. */
GPU_CASE(arrow_export_device_shares_device_memory) {
  static const int64_t lengths[] = {2, 0, 3};
  const int64_t rows = 3;
  scoped_context context = td_context(NULL);
  scoped_raw raw = raw_open(context, td_device());
  scoped_tree tree = new_tree(rows);
  td_put(tree, "x", random_tensor(TDICT_I32, 1, &rows, 1));
  td_put(tree, "bits", random_tensor(TDICT_BOOL, 1, &rows, 2));
  put_ragged(tree, "r", TDICT_I64, 3, lengths);
  td_ok(tdict_set_text(tree, "text", "abc", err));
  scoped_tree there = moved(context, tdict_retain(tree), td_device());
  exported_there e = export_there(there);
  struct ArrowArray **a = e.array.array.children;
  assert_ptr_equal(a[0]->buffers[1], tdict_const_data(there, "x"));
  uint8_t bits = 0xff, wanted = 0;
  raw_read(raw, &bits, a[1]->buffers[1], 1);
  for (int i = 0; i < 3; i++) wanted |= (uint8_t)(((const uint8_t *)tdict_const_data(tree, "bits"))[i] << i);
  assert_int_equal(bits, wanted);
  tdict_ragged *r = NULL;
  td_ok(tdict_get_ragged(there, "r", &r, err));
  assert_ptr_equal(a[2]->buffers[1], tdict_tensor_const_data(tdict_ragged_get_info(r).offsets));
  assert_ptr_equal(a[2]->children[0]->buffers[1], tdict_tensor_const_data(tdict_ragged_get_info(r).values));
  char text[9];
  int32_t offsets[4];
  raw_read(raw, text, a[3]->buffers[2], 9);
  raw_read(raw, offsets, a[3]->buffers[1], sizeof offsets);
  assert_memory_equal(text, "abcabcabc", 9);
  assert_int_equal(offsets[3], 9);
  e.array.array.release(&e.array.array);
  e.schema.release(&e.schema);
}

/* The import shares numbers in device memory. To fill nulls, it copies the numbers through the host. */
GPU_CASE(arrow_import_device_fills_and_masks) {
  static const int32_t numbers[] = {1, 2, 3, 4};
  static const uint8_t valid[] = {0xb};
  scoped_context context = td_context(NULL);
  tdict_tensor *parts[2];
  for (int i = 0; i < 2; i++) {
    const int64_t count = i ? 1 : 4;
    scoped_tensor host = NULL;
    td_ok(tdict_tensor_from_array(i ? TDICT_U8 : TDICT_I32, 1, &count, i ? (const void *)valid : numbers, &host, err));
    td_ok(tdict_tensor_clone(host, tdict_device_memory(context, td_device()), &parts[i], err));
  }
  hand root, x, y;
  hand_one(&root, &x, "i", 4, tdict_tensor_const_data(parts[0]));
  hand_numbers(&root, &y, "i", "y", tdict_tensor_const_data(parts[1]), tdict_tensor_const_data(parts[0]));
  y.array.null_count = -1;
  struct ArrowDeviceArray array = {.array = root.array, .device_id = 0, .device_type = td_device().type};
  tdict_tree *tree = NULL;
  td_fails_at(TDICT_EINVAL, "1 of 4 rows are null", "y",
              tdict_arrow_import_device(context, &root.schema, &array, NULL, &tree, err));
  assert_non_null(array.array.release);
  tdict_arrow_import_options o = td_with(tdict_arrow_import_options, nulls = TDICT_ARROW_NULLS_MASK);
  num_array_releases = 0;
  td_ok(tdict_arrow_import_device(context, &root.schema, &array, &o, &tree, err));
  assert_ptr_equal(tdict_const_data(tree, "x"), tdict_tensor_const_data(parts[0]));
  assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(tree, "y")), td_device()));
  assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(tree, "_mask.y")), td_device()));
  static const int32_t filled[] = {1, 2, 0, 4};
  static const uint8_t mask[] = {1, 1, 0, 1};
  tdict_tree *back = moved(context, tdict_retain(tree), tdict_cpu());
  assert_memory_equal(tdict_const_data(back, "x"), numbers, sizeof numbers);
  assert_memory_equal(tdict_const_data(back, "y"), filled, sizeof filled);
  assert_memory_equal(tdict_const_data(back, "_mask.y"), mask, sizeof mask);
  assert_int_equal(num_array_releases, 0);
  tdict_release(tree);
  assert_int_equal(num_array_releases, 3);
  tdict_release(back);
  for (int i = 0; i < 2; i++) tdict_tensor_release(parts[i]);
}

typedef struct importing {
  tdict_context *context;
  hand root, x;
  struct ArrowDeviceArray array;
  tdict_tree *tree;
  tdict_status status;
  _Atomic(bool) returned;
} importing;
static void *import_there(void *user) {
  importing *i = user;
  i->status = tdict_arrow_import_device(i->context, &i->root.schema, &i->array, NULL, &i->tree, NULL);
  i->returned = true;
  return NULL;
}

SIM_CASE(arrow_import_device_waits_for_the_event) {
  scoped_fixture f = fixture_open(NULL);
  const int64_t rows = 4;
  tdict_cu_stream stream;
  tdict_cu_event event;
  tdict_driver *d = f.d;
  tdict_tensor *t = td_made(tensor, tdict_tensor_zeros(TDICT_I32, 1, &rows, f.memory, &made, err));
  CU(SUCCESS, stream_create, &stream, TDICT_CU_STREAM_NON_BLOCKING);
  CU(SUCCESS, event_create, &event, TDICT_CU_EVENT_DEFAULT);
  td_ok(tdict_sim_hold(f.context, err));
  CU(SUCCESS, fill_async, tdict_tensor_data(t), 7, 16, stream);
  CU(SUCCESS, event_record, event, stream);
  importing i = {.context = f.context};
  hand_one(&i.root, &i.x, "i", rows, tdict_tensor_const_data(t));
  i.array = (struct ArrowDeviceArray){i.root.array, 0, ARROW_DEVICE_EXT_DEV, &event, {0, 0, 0}};
  pthread_t thread = td_start(import_there, &i);
  td_rest();
  assert_false(i.returned);
  td_ok(tdict_sim_resume(f.context, err));
  pthread_join(thread, NULL);
  assert_int_equal(i.status, TDICT_OK);
  assert_ptr_equal(tdict_const_data(i.tree, "x"), tdict_tensor_const_data(t));
  td_release(i.tree, t);
  CU(SUCCESS, event_destroy, event);
  CU(SUCCESS, stream_destroy, stream);
}

typedef struct exporting {
  tdict_tree *tree;
  struct ArrowSchema schema;
  struct ArrowDeviceArray array;
  tdict_status status;
  _Atomic(bool) returned;
} exporting;
static void *export_on_thread(void *user) {
  exporting *e = user;
  e->status = tdict_arrow_export_device(e->tree, &e->schema, &e->array, NULL);
  e->returned = true;
  return NULL;
}

SIM_CASE(arrow_export_device_waits_for_the_transfer) {
  const int64_t rows = 100;
  scoped_context context = td_context(NULL);
  tdict_tree *tree = new_tree(rows);
  tdict_future *future = NULL;
  exporting e = {0};
  td_put(tree, "x", random_tensor(TDICT_I32, 1, &rows, 1));
  TD_STREAM(stream, context, td_device());
  td_ok(tdict_sim_hold(context, err));
  td_ok(tdict_to_device_async(context, tree, td_device(), NULL, &future, err));
  td_ok(tdict_future_wait_on_stream(future, stream, &e.tree, err));
  pthread_t thread = td_start(export_on_thread, &e);
  td_rest();
  assert_false(e.returned);
  td_ok(tdict_sim_resume(context, err));
  pthread_join(thread, NULL);
  assert_int_equal(e.status, TDICT_OK);
  e.array.array.release(&e.array.array);
  e.schema.release(&e.schema);
  td_release(e.tree, tree, future);
}

GPU_CASE(arrow_export_device_names_pinned_memory) {
  const int64_t rows = 4;
  scoped_context context = td_context(NULL);
  scoped_tree tree = new_tree(rows), pinned = NULL;
  td_put(tree, "x", random_tensor(TDICT_I32, 1, &rows, 1));
  td_ok(tdict_pin_memory(context, tree, NULL, &pinned, err));
  exported_there e = export_there(pinned);
  const bool is_cuda = td_device().type == TDICT_DEVICE_CUDA;
  assert_int_equal(e.array.device_type, is_cuda ? ARROW_DEVICE_CUDA_HOST : ARROW_DEVICE_CPU);
  assert_int_equal(e.array.device_id, is_cuda ? 0 : -1);
  e.array.device_type = ARROW_DEVICE_CUDA_HOST;
  tdict_tree *back = td_made(tree, tdict_arrow_import_device(context, &e.schema, &e.array, NULL, &made, err));
  assert_true(tdict_tensor_is_pinned(td_leaf(back, "x")));
  assert_false(tdict_get_device(back, NULL));
  equal_trees(tree, back);
  e.schema.release(&e.schema);
  tdict_release(back);
  /* Packed bools are not in pinned memory, so the array is on the CPU. */
  td_put(pinned, "bits", random_tensor(TDICT_BOOL, 1, &rows, 2));
  e = export_there(pinned);
  assert_int_equal(e.array.device_type, ARROW_DEVICE_CPU);
  e.array.array.release(&e.array.array);
  e.schema.release(&e.schema);
}

GPU_CASE(arrow_export_device_refuses) {
  const int64_t rows = 4;
  scoped_context context = td_context(NULL);
  scoped_tree tree = new_tree(rows), there = NULL;
  struct ArrowSchema schema = {0};
  struct ArrowDeviceArray array = {.device_id = 55};
  td_put(tree, "a", random_tensor(TDICT_I32, 1, &rows, 1));
  there = moved(context, tdict_retain(tree), td_device());
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_arrow_export_device(NULL, &schema, &array, err));
  td_fails(TDICT_EINVAL, "schema is NULL", tdict_arrow_export_device(tree, NULL, &array, err));
  td_fails(TDICT_EINVAL, "array is NULL", tdict_arrow_export_device(tree, &schema, NULL, err));
  td_fails(TDICT_EWRONGDEVICE, "tdict_arrow_export_device()", tdict_arrow_export(there, &schema, &array.array, err));
  assert_string_equal(td_last_error.path, "a");
  /* A tree with tensors on two devices is refused. */
  td_put(tree, "b", tdict_tensor_retain(td_leaf(there, "a")));
  td_fails(TDICT_EWRONGDEVICE, "but the first tensor is on cpu", tdict_arrow_export_device(tree, &schema, &array, err));
  assert_string_equal(td_last_error.path, "b");
  /* The text needs new device memory, which cannot be allocated if the tensor's memory belongs to the program. */
  scoped_tree foreign = new_tree(rows);
  tdict_tensor_desc desc = {0};
  desc.struct_size = sizeof desc;
  tdict_tensor_get_desc(td_leaf(there, "a"), &desc);
  desc.flags = 0;
  td_put(foreign, "a", td_made(tensor, tdict_tensor_from_data(&desc, NULL, NULL, &made, err)));
  td_ok(tdict_set_text(foreign, "text", "x", err));
  td_fails(TDICT_EWRONGDEVICE, "belongs to the program", tdict_arrow_export_device(foreign, &schema, &array, err));
  assert_string_equal(td_last_error.path, "text");
  assert_int_equal(array.device_id, 55);
  assert_null(schema.release);
}

GPU_CASE(arrow_import_device_refuses) {
  static const int32_t numbers[4];
  scoped_context context = td_context(NULL);
  tdict_tree *out = NULL;
  struct ArrowDeviceArray array;
  hand root, x;
  hand_one(&root, &x, "i", 4, numbers);
  array = (struct ArrowDeviceArray){.array = root.array, .device_id = 0, .device_type = ARROW_DEVICE_METAL};
  td_fails(TDICT_EINVAL, "context is NULL", tdict_arrow_import_device(NULL, &root.schema, &array, NULL, &out, err));
  td_fails(TDICT_EINVAL, "schema is NULL", tdict_arrow_import_device(context, NULL, &array, NULL, &out, err));
  td_fails(TDICT_EINVAL, "array is NULL", tdict_arrow_import_device(context, &root.schema, NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_arrow_import_device(context, &root.schema, &array, NULL, NULL, err));
  td_fails(TDICT_ENOTSUP, "device type is 8",
           tdict_arrow_import_device(context, &root.schema, &array, NULL, &out, err));
  array.device_type = td_device().type;
  array.device_id = 40;
  td_fails(TDICT_ENODEVICE, "", tdict_arrow_import_device(context, &root.schema, &array, NULL, &out, err));
  array.device_id = 1ll << 40;
  td_fails(TDICT_ENODEVICE, "the device id is 1099511627776",
           tdict_arrow_import_device(context, &root.schema, &array, NULL, &out, err));
  tdict_arrow_import_options o = td_with(tdict_arrow_import_options, nulls = 9);
  td_fails(TDICT_EINVAL, "nulls is 9", tdict_arrow_import_device(context, &root.schema, &array, &o, &out, err));
  assert_non_null(array.array.release);
  array.array.release = NULL;
  td_fails(TDICT_EINVAL, "the array is released",
           tdict_arrow_import_device(context, &root.schema, &array, NULL, &out, err));
}

static tdict_status there_and_back(tdict_context *context, const tdict_tree *there, struct ArrowSchema *schema,
                                   struct ArrowDeviceArray *array, tdict_tree **back, tdict_error *err) {
  const tdict_status status = tdict_arrow_export_device(there, schema, array, err);
  return status == TDICT_OK ? tdict_arrow_import_device(context, schema, array, NULL, back, err) : status;
}

GPU_CASE(arrow_device_calls_survive_enomem) {
  scoped_context context = td_context(NULL);
  scoped_tree tree = sample_tree(5, 3);
  scoped_tree there = moved(context, tdict_retain(tree), td_device());
  int failures = 0;
  TD_SWEEP(s) {
    struct ArrowSchema schema = {0};
    struct ArrowDeviceArray array = {.device_id = 0};
    scoped_tree back = NULL;
    const tdict_status status = td_sweep_call(s, there_and_back(context, there, &schema, &array, &back, err));
    if (status != TDICT_OK && array.array.release) array.array.release(&array.array);
    if (schema.release) schema.release(&schema);
    failures += status != TDICT_OK;
    assert_int_equal(back != NULL, status == TDICT_OK);
    if (!back) continue;
    back = moved(context, back, tdict_cpu());
    equal_trees(tree, back);
  }
  assert_true(failures > 100);
}
