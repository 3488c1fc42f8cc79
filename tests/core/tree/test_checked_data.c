/* Tests the accessors that check the dtype and the shape: their results, and the errors if either differs. */
#include "core/tensor/tensor.h"
#include "help.h"

typedef struct question {
  const char *path;
  tdict_dtype dtype;
  int num_dims;
  int64_t shape[3];
  tdict_status status;
  const char *message;
} question;

static const question questions[] = {
    {"x", TDICT_F32, 2, {3, 4}, TDICT_OK, ""},
    {"x", TDICT_F32, 2, {-1, 4}, TDICT_OK, ""},
    {"x", TDICT_F32, 2, {-1, -1}, TDICT_OK, ""},
    {"x", TDICT_F32, -1, {0}, TDICT_OK, ""},
    {"x", TDICT_F32, 2, {3, 5}, TDICT_ESHAPE, "the tensor has the shape [3, 4], wanted [3, 5]"},
    {"x", TDICT_F32, 2, {4, -1}, TDICT_ESHAPE, "wanted [4, -1]"},
    {"x", TDICT_F32, 1, {3}, TDICT_ESHAPE, "the tensor has the shape [3, 4], wanted [3]"},
    {"x", TDICT_F32, 3, {3, 4, -1}, TDICT_ESHAPE, "wanted [3, 4, -1]"},
    {"x", TDICT_F32, 0, {0}, TDICT_ESHAPE, "wanted []"},
    {"x", TDICT_F16, 2, {3, 4}, TDICT_EDTYPE, "the tensor has the dtype float32, wanted float16"},
    {"x", TDICT_I32, 1, {7}, TDICT_EDTYPE, "wanted int32"}, /* a dtype of the same size */
    {"n.s", TDICT_I64, 0, {0}, TDICT_OK, ""},
    {"empty", TDICT_U8, 2, {0, -1}, TDICT_OK, ""},
    {"y", TDICT_F32, 2, {3, 4}, TDICT_ENOTFOUND, "'y' is not a key of the tree; keys: x, "},
    {"n", TDICT_F32, 2, {3, 4}, TDICT_ETYPE, ""},
    {"x.z", TDICT_F32, 2, {3, 4}, TDICT_ETYPE, ""},
    {"", TDICT_F32, 2, {3, 4}, TDICT_EINVAL, ""},
    {"gaps", TDICT_F32, 1, {3}, TDICT_ESHAPE, "tdict_contiguous()"},
    {"x", TDICT_F32, -2, {0}, TDICT_EINVAL, "num_dims is -2"},
    {"x", TDICT_F32, 33, {0}, TDICT_EINVAL, "num_dims is 33"},
};

/* Checks both accessors that return const data. They must not allocate memory, even if they fail. */
static void check_const(const tdict_tree *td, const question *q, const void *data) {
  memset(&td_last_error, 0, sizeof td_last_error);
  td_fail_alloc(0, true);
  const void *got = tdict_checked_const_data(td, q->path, q->dtype, q->num_dims, q->shape, &td_last_error);
  assert_false(td_fail_alloc_stop());
  assert_int_equal(td_last_error.status, q->status);
  assert_int_equal(got != NULL, q->status == TDICT_OK);
  if (got && data) assert_ptr_equal(got, data);
  assert_non_null(strstr(td_last_error.message, q->message));
  if (!got) assert_ptr_equal(strstr(td_last_error.message, "checked_const_data: "), td_last_error.message);
  if (q->status != TDICT_OK && q->status != TDICT_EINVAL) assert_string_equal(td_last_error.path, q->path);
  assert_int_equal(tdict_checked_const_data(td, q->path, q->dtype, q->num_dims, q->shape, NULL) != NULL, got != NULL);
}
static void check_mutable(tdict_tree *td, const question *q, const void *data) {
  memset(&td_last_error, 0, sizeof td_last_error);
  td_fail_alloc(0, true);
  void *got = tdict_checked_data(td, q->path, q->dtype, q->num_dims, q->shape, &td_last_error);
  assert_false(td_fail_alloc_stop());
  assert_int_equal(td_last_error.status, q->status);
  assert_int_equal(got != NULL, q->status == TDICT_OK);
  if (got && data) assert_ptr_equal(got, data);
  assert_non_null(strstr(td_last_error.message, q->message));
  if (!got) assert_ptr_equal(strstr(td_last_error.message, "checked_data: "), td_last_error.message);
}

CASE(checked_data_compares_dtype_and_shape) {
  tdict_tensor *t = NULL, *column = NULL;
  const tdict_tensor_range range = {.dim = 0, .start = 0, .count = 3, .step = 2};
  scoped_tree td = td_made(tree, tdict_create(0, NULL, &made, err));
  td_put(td, "x", td_made(tensor, tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(3, 4), NULL, &made, err)));
  td_put(td, "n.s", td_made(tensor, tdict_tensor_zeros(TDICT_I64, 0, NULL, NULL, &made, err)));
  td_put(td, "empty", td_made(tensor, tdict_tensor_zeros(TDICT_U8, TDICT_SHAPE(0, 7), NULL, &made, err)));
  td_ok(tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(6), NULL, &t, err));
  td_ok(tdict_tensor_slice(t, &range, &column, err));
  td_ok(tdict_set(td, "gaps", column, err));
  td_release(t, column);
  for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
    const question *q = &questions[i];
    const void *data = q->status == TDICT_OK ? tdict_const_data(td, q->path) : NULL;
    check_const(td, q, data);
    check_mutable(td, q, data);
  }
  const question no_shape = {"x", TDICT_F32, 2, {0}, TDICT_EINVAL, "shape is NULL"};
  assert_null(tdict_checked_data(td, "x", TDICT_F32, 2, NULL, &td_last_error));
  assert_non_null(strstr(td_last_error.message, no_shape.message));
  assert_null(tdict_checked_const_data(NULL, "x", TDICT_F32, 0, NULL, &td_last_error));
  assert_int_equal(td_last_error.status, TDICT_EINVAL);
}

CASE(checked_data_refuses_read_only_tensors) {
  static const float numbers[2] = {1, 2};
  scoped_tree td = NULL;
  static const int64_t shape[] = {2};
  tdict_tensor_desc d = td_with(tdict_tensor_desc, data = (void *)(uintptr_t)numbers, dtype = TDICT_F32, ndim = 1,
                                shape = shape, flags = TDICT_DESC_READ_ONLY);
  td_ok(tdict_create(0, NULL, &td, err));
  td_put(td, "x", td_made(tensor, tdict_tensor_from_data(&d, NULL, NULL, &made, err)));
  const question q = {"x", TDICT_F32, 1, {2}, TDICT_OK, ""},
                 w = {"x",
                      TDICT_F32,
                      1,
                      {2},
                      TDICT_EREADONLY,
                      "checked_data: the tensor is read-only, as in trees of tdict_open(); tdict_clone_deep() makes"};
  check_const(td, &q, numbers);
  check_mutable(td, &w, NULL);
}

CASE(checked_data_refuses_lost_elements) {
  scoped_tree td = NULL;
  scoped_tensor t = NULL;
  td_ok(tdict_create(0, NULL, &td, err));
  td_ok(tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(2), NULL, &t, err));
  td_ok(tdict_set(td, "x", t, err));
  tdict_tensor_lose(t);
  const question q = {"x", TDICT_F32, 1, {2}, TDICT_EINVAL, "elements are lost"};
  check_const(td, &q, NULL);
  check_mutable(td, &q, NULL);
  assert_string_equal(td_last_error.path, "x");
  tdict_tensor_regain(t);
}
