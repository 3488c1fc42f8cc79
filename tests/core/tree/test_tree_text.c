/* Tests tests/support/tree_text.h and tests/support/make.h, which make trees from strings. */
#include "help.h"
#include "support/tree_text.h"

static void check_leaf(const tdict_tree *tree, const char *path, tdict_dtype dtype, int ndim, const int64_t *shape) {
  const tdict_tensor *leaf = td_leaf(tree, path);
  assert_int_equal(tdict_tensor_dtype(leaf), dtype);
  assert_int_equal(tdict_tensor_ndim(leaf), ndim);
  assert_memory_equal(tdict_tensor_shape(leaf), shape, (size_t)ndim * sizeof *shape);
}

CASE(tree_text_describes_a_tree) {
  scoped_tree tree = td_tree(" [4,2] obs.pixels:u8[4,2,84,84]  obs.state:f32[%d,%d,17] done:bool[4,2] ", 4, 2);
  assert_int_equal(tdict_batch_ndim(tree), 2);
  assert_int_equal(tdict_batch_size(tree)[1], 2);
  assert_int_equal(tdict_batch_ndim(td_child(tree, "obs")), 2);
  help_paths(tree, "obs obs.pixels obs.state done");
  check_leaf(tree, "obs.pixels", TDICT_U8, COUNTS(4, 2, 84, 84));
  check_leaf(tree, "obs.state", TDICT_F32, COUNTS(4, 2, 17));
  check_leaf(tree, "done", TDICT_BOOL, COUNTS(4, 2));
}

CASE(tree_text_knows_every_dtype) {
  static const char text[] =
      "0:bool 1:i8 2:i16 3:i32 4:i64 5:u8 6:u16 7:u32 8:u64 9:f16 10:bf16 11:f32 12:f64 13:f8e4m3 "
      "14:f8e5m2 15:c64 16:c128 17:u8x3 18:f32x65535[0]";
  const tdict_dtype u8x3 = TDICT_DTYPE(1, 8, 3), f32x65535 = TDICT_DTYPE(2, 32, 65535);
  const tdict_dtype dtypes[] = {TDICT_BOOL,   TDICT_I8,  TDICT_I16,  TDICT_I32,  TDICT_I64, TDICT_U8,  TDICT_U16,
                                TDICT_U32,    TDICT_U64, TDICT_F16,  TDICT_BF16, TDICT_F32, TDICT_F64, TDICT_F8E4M3,
                                TDICT_F8E5M2, TDICT_C64, TDICT_C128, u8x3,       f32x65535};
  scoped_tree tree = td_tree("%s", text);
  for (int i = 0; i < 19; i++) {
    const char *key = td_text("%d", i);
    assert_int_equal(tdict_tensor_dtype(td_leaf(tree, key)), dtypes[i]);
    assert_int_equal(tdict_tensor_ndim(td_leaf(tree, key)), i == 18);
  }
}

CASE(tree_text_may_be_empty) {
  static const char *const texts[] = {"", "  ", "[]", "[5]"};
  for (int i = 0; i < 4; i++) {
    scoped_tree tree = td_made(tree, tree_from_text(texts[i], NULL, &made, err));
    assert_int_equal(tdict_num_leaves(tree), 0);
    assert_int_equal(tdict_batch_ndim(tree), i == 3);
  }
}

CASE(tree_text_refuses_bad_texts) {
  static const char *const texts[][2] = {
      {"x", "wanted path:dtype[sizes] at 'x'"},
      {":f32", "wanted path:dtype[sizes]"},
      {"x y:f32", "wanted path:dtype[sizes] at 'x y:f32'"},
      {"x:", "wanted a dtype such as f32 at ''"},
      {"x:f33[2]", "at 'f33[2]' in 'x:f33[2]'"},
      {"x:f", "wanted a dtype"},
      {"x:u8x[2]", "wanted 1 to 65535 lanes at '[2]'"},
      {"x:u8x0", "wanted 1 to 65535 lanes"},
      {"x:u8x65536", "wanted 1 to 65535 lanes"},
      {"x:f32[", "wanted a size at ''"},
      {"x:f32[2,]", "wanted a size at ']'"},
      {"x:f32[-1]", "wanted a size at '-1]'"},
      {"x:f32[2;3]", "wanted ',' or ']' at ';3]'"},
      {"x:f32[2", "wanted ',' or ']'"},
      {"x:f32[2]y:f32", "wanted the end of the field at 'y:f32'"},
      {"x:f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "too many sizes"},
      {"[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "too many sizes"},
      {"[4]x:f32[4]", "wanted a space after the batch size"},
      {"x:f32[2] x:f32[2]", "the path is repeated"},
  };
  tdict_tree *tree = NULL;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    td_fails(TDICT_EINVAL, texts[i][1], tree_from_text(texts[i][0], NULL, &tree, err));
  td_fails(TDICT_ESHAPE, "", tree_from_text("[4] x:f32[3]", NULL, &tree, err));
  td_fails(TDICT_EOVERFLOW, "", tree_from_text("x:f32[9223372036854775807,9]", NULL, &tree, err));
  assert_int_equal(tree_from_text("x", NULL, &tree, NULL), TDICT_EINVAL);
  tdict_tensor *tensor = NULL;
  td_fails(TDICT_EINVAL, "wanted one tensor", tensor_from_text("f32[2] i8", NULL, &tensor, err));
  assert_true(!tree && !tensor);
}

/* Random leaves differ from each other. The elements of each counting leaf start at 0. */
CASE(tree_text_fills_the_leaves) {
  scoped_tree random = td_tree("a:u8[100] b:u8[100] flags:bool[100]");
  assert_memory_not_equal(tdict_data(random, "a"), tdict_data(random, "b"), 100);
  for (int i = 0; i < 100; i++) assert_in_range(((unsigned char *)tdict_data(random, "flags"))[i], 0, 1);
  scoped_tree counting = td_tree_counting("a:f32[2,3] b:i64[%d] c:u16[2]", 4);
  assert_memory_equal(tdict_data(counting, "a"), ((const float[]){0, 1, 2, 3, 4, 5}), 6 * sizeof(float));
  assert_memory_equal(tdict_data(counting, "b"), ((const int64_t[]){0, 1, 2, 3}), 4 * sizeof(int64_t));
  assert_memory_equal(tdict_data(counting, "c"), ((const uint16_t[]){0, 1}), 4);
  scoped_tensor rows = td_tensor_counting("f64[%d]", 3);
  assert_memory_equal(tdict_tensor_data(rows), ((const double[]){0, 1, 2}), 3 * sizeof(double));
}

GPU_CASE(tree_text_makes_trees_in_any_memory) {
  scoped_context context = td_context(NULL);
  scoped_tree there = td_tree_in(tdict_device_memory(context, td_device()), "[2] x:f32[2] n.y:u8[2,3]");
  scoped_tree pinned = td_tree_in(tdict_pinned_memory(context), "x:f32[2]");
  scoped_tensor tensor = td_tensor_in(tdict_device_memory(context, td_device()), "i16[7]");
  assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(there, "n.y")), td_device()));
  assert_int_equal(tdict_batch_ndim(there), 1);
  assert_true(tdict_is_pinned(pinned));
  assert_true(tdict_device_equal(tdict_tensor_device(tensor), td_device()));
}
