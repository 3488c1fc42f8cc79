/* Tests the export of trees as Arrow arrays. The tests read the arrays with loops over the Arrow structs. */

#include "core/tensor/slow_fence.h"
#include "core/tensor/tensor.h"
#include "services/interop/arrow/rig.h"
#include "support/things.h"
#include "support/threads.h"

static int num_tensor_releases;
static void count_tensor_release(void *user) {
  (void)user;
  num_tensor_releases++;
}

/* Makes a tensor over the test's memory, and counts its release. */
static tdict_tensor *counted_tensor(const void *data, tdict_dtype dtype, int ndim, const int64_t *shape,
                                    const int64_t *strides) {
  tdict_tensor_desc desc = td_with(tdict_tensor_desc, data = (void *)(uintptr_t)data, dtype = dtype, ndim = ndim,
                                   shape = shape, strides = strides);
  return td_made(tensor, tdict_tensor_from_data(&desc, count_tensor_release, NULL, &made, err));
}

CASE(arrow_export_shares_numbers) {
  static const struct {
    tdict_dtype dtype;
    const char *format;
  } types[] = {{TDICT_I8, "c"},  {TDICT_U8, "C"},  {TDICT_I16, "s"}, {TDICT_U16, "S"},
               {TDICT_I32, "i"}, {TDICT_U32, "I"}, {TDICT_I64, "l"}, {TDICT_U64, "L"},
               {TDICT_F16, "e"}, {TDICT_F32, "f"}, {TDICT_F64, "g"}};
  const int64_t rows = 5;
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    scoped_tree tree = new_tree(rows);
    tdict_tensor *t = random_tensor(types[i].dtype, 1, &rows, i);
    td_put(tree, "a\\.b", t);
    exported e = export_tree(tree);
    assert_string_equal(e.schema.format, "+s");
    assert_int_equal(e.schema.n_children, 1);
    assert_int_equal(e.array.length, rows);
    assert_int_equal(e.array.n_buffers, 1);
    assert_null(e.array.buffers[0]);
    assert_string_equal(e.schema.children[0]->format, types[i].format);
    assert_string_equal(e.schema.children[0]->name, "a.b");
    const struct ArrowArray *x = e.array.children[0];
    assert_int_equal(x->length, rows);
    assert_int_equal(x->offset, 0);
    assert_int_equal(x->null_count, 0);
    assert_int_equal(x->n_buffers, 2);
    assert_null(x->buffers[0]);
    assert_ptr_equal(x->buffers[1], tdict_tensor_const_data(t));
    release_exported(&e);
  }
}

CASE(arrow_export_makes_lists_of_dimensions) {
  const int64_t shape[4] = {3, 2, 0, 5}, full[3] = {3, 2, 5};
  scoped_tree tree = new_tree(3);
  td_put(tree, "empty", random_tensor(TDICT_I16, 4, shape, 1));
  tdict_tensor *t = random_tensor(TDICT_BOOL, 3, full, 2);
  td_put(tree, "bits", t);
  exported e = export_tree(tree);
  const struct ArrowSchema *s = e.schema.children[0];
  const struct ArrowArray *a = e.array.children[0];
  static const char *const formats[] = {"+w:2", "+w:0", "+w:5", "s"};
  static const int64_t lengths[] = {3, 6, 0, 0};
  for (int i = 0; i < 4; i++) {
    assert_string_equal(s->format, formats[i]);
    assert_string_equal(s->name, i ? "item" : "empty");
    assert_int_equal(a->length, lengths[i]);
    assert_int_equal(a->n_buffers, i == 3 ? 2 : 1);
    assert_int_equal(s->n_children, i < 3);
    assert_int_equal(a->n_children, i < 3);
    if (i < 3) s = s->children[0], a = a->children[0];
  }
  a = e.array.children[1]->children[0]->children[0];
  assert_string_equal(e.schema.children[1]->children[0]->children[0]->format, "b");
  assert_int_equal(a->length, 30);
  for (int i = 0; i < 30; i++)
    assert_int_equal(hand_bit(a->buffers[1], i), ((const uint8_t *)tdict_tensor_const_data(t))[i]);
  assert_int_equal(((const uint8_t *)a->buffers[1])[3] >> 6, 0); /* the bits after the last element are 0 */
  release_exported(&e);
}

CASE(arrow_export_copies_strided_elements) {
  static const int32_t numbers[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const int64_t rows = 4, stride = 3;
  tdict_tree *tree = new_tree(rows);
  td_put(tree, "x", counted_tensor(numbers, TDICT_I32, 1, &rows, &stride));
  num_tensor_releases = 0;
  exported e = export_tree(tree);
  tdict_release(tree);
  assert_int_equal(num_tensor_releases, 1); /* the array retains only the copy */
  for (int i = 0; i < 4; i++) assert_int_equal(((const int32_t *)e.array.children[0]->buffers[1])[i], 3 * i);
  release_exported(&e);
}

CASE(arrow_export_shares_ragged_leaves) {
  static const int64_t lengths[] = {2, 0, 3};
  scoped_tree tree = new_tree(3);
  put_ragged(tree, "narrow", TDICT_I32, 3, lengths);
  put_ragged(tree, "wide", TDICT_I64, 3, lengths);
  exported e = export_tree(tree);
  for (int i = 0; i < 2; i++) {
    tdict_ragged *r = td_made(ragged, tdict_get_ragged(tree, i ? "wide" : "narrow", &made, err));
    assert_string_equal(e.schema.children[i]->format, i ? "+L" : "+l");
    assert_string_equal(e.schema.children[i]->children[0]->format, "f");
    const struct ArrowArray *a = e.array.children[i];
    assert_ptr_equal(a->buffers[1], tdict_tensor_const_data(tdict_ragged_get_info(r).offsets));
    assert_ptr_equal(a->children[0]->buffers[1], tdict_tensor_const_data(tdict_ragged_get_info(r).values));
    assert_int_equal(a->children[0]->length, 5);
  }
  release_exported(&e);
}

/* Checks row `i` of a text array with 32-bit offsets. If `wanted` is NULL, the row must be null. */
static void is_text(const struct ArrowArray *a, int i, const char *wanted) {
  const int32_t *at = a->buffers[1];
  if (a->buffers[0]) assert_int_equal(hand_bit(a->buffers[0], i), wanted != NULL);
  if (!wanted) wanted = "";
  assert_int_equal(at[i + 1] - at[i], strlen(wanted));
  if (*wanted) assert_memory_equal((const char *)a->buffers[2] + at[i], wanted, strlen(wanted));
}

static tdict_value integer_value(int64_t n) { return (tdict_value){.kind = TDICT_VALUE_INTEGER, .integer = n}; }
static tdict_value real_value(double x) { return (tdict_value){.kind = TDICT_VALUE_REAL, .real = x}; }
static tdict_value bool_value(bool b) { return (tdict_value){.kind = TDICT_VALUE_BOOL, .integer = b}; }
static const tdict_value null_value;

CASE(arrow_export_makes_columns_of_values) {
  static const char *const texts[] = {"a", NULL, ""};
  const tdict_value whole[] = {integer_value(-3), integer_value(1ll << 62), null_value};
  const tdict_value mixed[] = {integer_value(2), real_value(0.5), null_value};
  const tdict_value bools[] = {null_value, bool_value(true), bool_value(false)};
  const tdict_value nulls[] = {null_value, null_value, null_value};
  const tdict_value json = {.kind = TDICT_VALUE_JSON, .text = "[1]", .length = 3};
  scoped_tree tree = new_tree(3);
  td_ok(tdict_set_texts(tree, "texts", texts, 3, err));
  td_ok(tdict_set_values(tree, "whole", whole, 3, err));
  td_ok(tdict_set_values(tree, "mixed", mixed, 3, err));
  td_ok(tdict_set_values(tree, "bools", bools, 3, err));
  td_ok(tdict_set_values(tree, "nulls", nulls, 3, err));
  td_ok(tdict_set_values(tree, "json", &json, TDICT_WHOLE_TREE, err));
  exported e = export_tree(tree);
  struct ArrowArray **a = e.array.children;
  static const char *const formats[] = {"u", "l", "g", "b", "n", "u"};
  static const int64_t num_nulls[] = {1, 1, 1, 1, 3, 0};
  for (int i = 0; i < 6; i++) {
    assert_string_equal(e.schema.children[i]->format, formats[i]);
    assert_int_equal(e.schema.children[i]->flags, ARROW_FLAG_NULLABLE);
    assert_int_equal(a[i]->null_count, num_nulls[i]);
    assert_int_equal(a[i]->length, 3);
  }
  is_text(a[0], 0, "a");
  is_text(a[0], 1, NULL);
  is_text(a[0], 2, "");
  assert_int_equal(((const int64_t *)a[1]->buffers[1])[0], -3);
  assert_true(((const int64_t *)a[1]->buffers[1])[1] == 1ll << 62);
  assert_false(hand_bit(a[1]->buffers[0], 2));
  assert_true(((const double *)a[2]->buffers[1])[0] == 2 && ((const double *)a[2]->buffers[1])[1] == 0.5);
  assert_false(hand_bit(a[3]->buffers[0], 0));
  assert_true(hand_bit(a[3]->buffers[1], 1));
  assert_false(hand_bit(a[3]->buffers[1], 2));
  assert_int_equal(a[4]->n_buffers, 0);
  for (int i = 0; i < 3; i++) is_text(a[5], i, "[1]");
  assert_null(a[5]->buffers[0]);
  release_exported(&e);
}

static void *release_array_there(void *user) {
  struct ArrowArray *array = user;
  array->release(array);
  return NULL;
}

CASE(arrow_export_releases_once_and_children_move) {
  static const int64_t numbers[4] = {1, 2, 3, 4};
  const int64_t rows = 4;
  tdict_tree *tree = new_tree(rows);
  td_put(tree, "n.a", counted_tensor(numbers, TDICT_I64, 1, &rows, NULL));
  td_put(tree, "n.b", counted_tensor(numbers, TDICT_I64, 1, &rows, NULL));
  td_put(tree, "c", counted_tensor(numbers, TDICT_I64, 1, &rows, NULL));
  num_tensor_releases = 0;
  exported e = export_tree(tree);
  tdict_release(tree);
  assert_int_equal(num_tensor_releases, 0); /* the array retains the tensors */
  struct ArrowArray *n = e.array.children[0], moved = *n->children[1];
  n->children[1]->release = NULL;
  struct ArrowSchema schema = *e.schema.children[0];
  e.schema.children[0]->release = NULL;
  release_exported(&e);
  assert_int_equal(num_tensor_releases, 2);
  assert_ptr_equal(moved.buffers[1], numbers);
  assert_int_equal(moved.length, 4);
  pthread_t thread = td_start(release_array_there, &moved);
  pthread_join(thread, NULL);
  assert_null(moved.release);
  assert_int_equal(num_tensor_releases, 3);
  assert_string_equal(schema.children[1]->name, "b");
  schema.release(&schema);
  /* A consumer can also move a whole array. */
  tree = new_tree(rows);
  td_put(tree, "x", counted_tensor(numbers, TDICT_I64, 1, &rows, NULL));
  num_tensor_releases = 0;
  e = export_tree(tree);
  tdict_release(tree);
  exported there = e;
  memset(&e, 0xff, sizeof e);
  assert_int_equal(((const int64_t *)there.array.children[0]->buffers[1])[3], 4);
  release_exported(&there);
  assert_int_equal(num_tensor_releases, 1);
}

/* Sets a tensor in a tree of three rows and checks that the export fails with the path of the tensor. */
static void refuses_tensor(tdict_status wanted, const char *text, tdict_tensor *tensor) {
  struct ArrowSchema schema = {.n_children = 77};
  struct ArrowArray array = {.length = 77};
  scoped_tree tree = new_tree(3);
  td_put(tree, "a.bad", tensor);
  td_fails_at(wanted, text, "a.bad", tdict_arrow_export(tree, &schema, &array, err));
  assert_int_equal(schema.n_children, 77);
  assert_int_equal(array.length, 77);
}

CASE(arrow_export_refuses_tensors) {
  static const struct {
    tdict_dtype dtype;
    const char *name;
  } types[] = {{TDICT_BF16, "bfloat16"}, {TDICT_F8E4M3, "float8_e4m3"}, {TDICT_F8E5M2, "float8_e5m2"},
               {TDICT_C64, "complex64"}, {TDICT_C128, "complex128"},    {TDICT_DTYPE(2, 32, 4), "float32 x 4"}};
  const int64_t rows = 3;
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    refuses_tensor(TDICT_ENOTSUP, types[i].name, random_tensor(types[i].dtype, 1, &rows, i));
  tdict_tensor *lost = random_tensor(TDICT_I8, 1, &rows, 1);
  tdict_tensor_lose(lost);
  refuses_tensor(TDICT_EINVAL, "lost", lost);
  tdict_tensor_desc desc = td_with(tdict_tensor_desc, data = (void *)(uintptr_t)4096, device = tdict_cuda(1),
                                   dtype = TDICT_F32, ndim = 1, shape = &rows);
  tdict_tensor *far = td_made(tensor, tdict_tensor_from_data(&desc, NULL, NULL, &made, err));
  refuses_tensor(TDICT_EWRONGDEVICE, "is on cuda:1, wanted the cpu", far);
  /* A dimension that is too long for an Arrow list is refused. */
  const int64_t shape[2] = {3, (int64_t)INT32_MAX + 1}, strides[2] = {0, 0};
  static const int8_t zero;
  refuses_tensor(TDICT_EOVERFLOW, "2147483648", counted_tensor(&zero, TDICT_I8, 2, shape, strides));
}

CASE(arrow_export_refuses_trees) {
  struct ArrowSchema schema = {0};
  struct ArrowArray array = {0};
  scoped_tree tree = new_tree(2), child = NULL, scalar = NULL, square = NULL;
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_arrow_export(NULL, &schema, &array, err));
  td_fails(TDICT_EINVAL, "schema is NULL", tdict_arrow_export(tree, NULL, &array, err));
  td_fails(TDICT_EINVAL, "array is NULL", tdict_arrow_export(tree, &schema, NULL, err));
  td_ok(tdict_create(0, NULL, &scalar, err));
  td_ok(tdict_create(TDICT_SHAPE(2, 3), &square, err));
  td_fails(TDICT_ESHAPE, "the batch size is [], wanted one dimension",
           tdict_arrow_export(scalar, &schema, &array, err));
  td_fails(TDICT_ESHAPE, "the batch size is [2, 3]", tdict_arrow_export(square, &schema, &array, err));
  /* Columns with several dimensions and other objects are refused. */
  const tdict_value six[6] = {{0}};
  td_ok(tdict_set_values(square, "v", six, 6, err));
  td_ok(tdict_set_tree(tree, "deep", square, err));
  td_fails_at(TDICT_ENOTSUP, "2 dimensions", "deep.v", tdict_arrow_export(tree, &schema, &array, err));
  td_ok(tdict_delete(tree, "deep", err));
  const tdict_value kinds[2] = {integer_value(1), bool_value(true)};
  td_ok(tdict_set_values(tree, "kinds", kinds, 2, err));
  td_fails_at(TDICT_ENOTSUP, "mixes", "kinds", tdict_arrow_export(tree, &schema, &array, err));
  const tdict_value big[2] = {integer_value((1ll << 53) + 1), real_value(1)};
  td_ok(tdict_set_values(tree, "kinds", big, 2, err));
  td_fails(TDICT_EOVERFLOW, "9007199254740993", tdict_arrow_export(tree, &schema, &array, err));
  const tdict_value most[2] = {integer_value(INT64_MAX), real_value(1)};
  td_ok(tdict_set_values(tree, "kinds", most, 2, err));
  td_fails(TDICT_EOVERFLOW, "9223372036854775807", tdict_arrow_export(tree, &schema, &array, err));
  td_ok(tdict_delete(tree, "kinds", err));
  /* A child whose batch size was changed after it was added is refused. */
  const int64_t three = 3;
  td_ok(tdict_create(1, tdict_batch_size(tree), &child, err));
  td_ok(tdict_set_tree(tree, "child", child, err));
  td_ok(tdict_set_batch_size(child, 1, &three, err));
  tdict_tensor *long_tensor = random_tensor(TDICT_I8, 1, &three, 1);
  td_put(child, "x", long_tensor);
  td_fails(TDICT_ESHAPE, "shape [3], but the tree has 2 rows", tdict_arrow_export(tree, &schema, &array, err));
  assert_string_equal(td_last_error.path, "child.x");
  td_ok(tdict_delete(child, "x", err));
  const char *const texts[] = {"a", "b", "c"};
  td_ok(tdict_set_texts(child, "x", texts, 3, err));
  td_fails(TDICT_ESHAPE, "3 values, but the tree has 2 rows", tdict_arrow_export(tree, &schema, &array, err));
  td_ok(tdict_delete(child, "x", err));
  static const int64_t three_lengths[] = {1, 1, 1};
  put_ragged(child, "x", TDICT_I64, 3, three_lengths);
  td_fails(TDICT_ESHAPE, "3 rows, the tree has 2", tdict_arrow_export(tree, &schema, &array, err));
  td_ok(tdict_delete(tree, "child", err));
}

CASE(arrow_export_refuses_objects) {
  struct ArrowSchema schema = {0};
  struct ArrowArray array = {0};
  const int64_t two = 2;
  tdict_tree *tree = new_tree(2);
  tdict_tensor *a = random_tensor(TDICT_I8, 1, &two, 1), *b = random_tensor(TDICT_I8, 1, &two, 2), *c;
  td_ok(tdict_set_object(tree, "n.thing", &thing_flat, thing_create(a, b), err));
  td_fails_at(TDICT_ENOTSUP, "object of type", "n.thing", tdict_arrow_export(tree, &schema, &array, err));
  td_ok(tdict_delete(tree, "n", err));
  c = random_tensor(TDICT_I8, 1, &two, 1);
  td_ok(tdict_set_unbatched(tree, "weights", c, err));
  td_fails(TDICT_ENOTSUP, "object of type", tdict_arrow_export(tree, &schema, &array, err));
  td_release(c, tree);
  /* The export accepts 64 levels, but not 65. */
  for (int depth = 63; depth <= 64; depth++) {
    char path[200] = "k";
    for (int i = 0; i < depth - 1; i++) strcat(path, ".k");
    tree = new_tree(2);
    td_put_tree(tree, path, new_tree(2));
    if (depth == 63) { /* the import accepts a tensor at the deepest level, too */
      c = random_tensor(TDICT_I8, 1, &two, 1);
      strcat(path, ".x");
      td_put(tree, path, c);
      td_ok(tdict_arrow_export(tree, &schema, &array, err));
      scoped_tree back = td_made(tree, tdict_arrow_import(&schema, &array, NULL, &made, err));
      assert_true(tdict_has(back, path));
      schema.release(&schema);
    } else {
      td_fails(TDICT_ENOTSUP, "more than 64 levels", tdict_arrow_export(tree, &schema, &array, err));
    }
    tdict_release(tree);
  }
}

CASE(arrow_export_survives_enomem) {
  scoped_tree tree = sample_tree(5, 3);
  tdict_tensor *strided = NULL;
  const int64_t shape[2] = {5, 4};
  tdict_tensor *t = random_tensor(TDICT_F32, 2, shape, 1);
  const tdict_tensor_range range = {1, 0, 2, 2};
  td_ok(tdict_tensor_slice(t, &range, &strided, err));
  td_put(tree, "strided", strided);
  tdict_tensor_release(t);
  char path[100] = "d";
  while (strlen(path) < 60) strcat(path, ".d"); /* more levels than a cursor can hold without allocating */
  td_put(tree, path, random_tensor(TDICT_I8, 1, shape, 2));
  int64_t failures = 0;
  TD_SWEEP(s) {
    exported e;
    const tdict_status status = td_sweep_call(s, tdict_arrow_export(tree, &e.schema, &e.array, err));
    failures += status != TDICT_OK;
    if (status == TDICT_OK) release_exported(&e);
  }
  assert_true(failures > 40);
}

CASE(arrow_export_waits_for_transfers) {
  const int64_t rows = 4;
  scoped_tree tree = new_tree(rows);
  tdict_tensor *t = td_put(tree, "x", random_tensor(TDICT_I32, 1, &rows, 1));
  scoped_slow_fence fence;
  begin_use(&fence, t->storage, true);
  fence.thread = td_start(end_later, &fence);
  exported e = export_tree(tree);
  assert_true(fence.ended);
  release_exported(&e);
}
