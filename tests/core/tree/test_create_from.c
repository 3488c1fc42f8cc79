/* Tests creating trees from fields: one aligned storage of zeros, the order of keys, and refused fields. */
#include "core/tensor/tensor.h"
#include "help.h"
#include "tdict/debug.h"

static const tdict_field fields[] = {
    {"obs.pixels", TDICT_U8, 3, {84, 84, 3}}, {"obs.state", TDICT_F32, 1, {7}},      {"reward", TDICT_F64, 0, {0}},
    {"next.none", TDICT_I16, 2, {0, 5}},      {"next.h\\.0", TDICT_BF16, 2, {3, 3}}, {"done", TDICT_BOOL, 1, {1}},
};
enum { FIELDS = sizeof fields / sizeof *fields };

static void check(const tdict_tree *td) {
  size_t offset = 0;
  const tdict_tensor *first = td_leaf(td, fields[0].path);
  for (size_t i = 0; i < FIELDS; i++) {
    const tdict_tensor *t = td_leaf(td, fields[i].path);
    const int64_t *shape = tdict_tensor_shape(t);
    assert_int_equal(tdict_tensor_dtype(t), fields[i].dtype);
    assert_int_equal(tdict_tensor_ndim(t), fields[i].ndim + 2);
    assert_true(shape[0] == 4 && shape[1] == 2);
    for (int d = 0; d < fields[i].ndim; d++) assert_int_equal(shape[2 + d], fields[i].shape[d]);
    assert_true(tdict_tensor_is_contiguous(t));
    assert_true(tdict_tensor_shares_storage(t, first));
    assert_int_equal((uintptr_t)t->data - (uintptr_t)first->storage->data, offset);
    assert_int_equal(offset % 256, 0);
    offset += (tdict_tensor_bytes(t) + 255) / 256 * 256;
  }
  assert_int_equal(first->storage->bytes, offset);
  assert_true(first->storage->flags & TDICT_STORAGE_ARENA);
  size_t unique = 0;
  td_ok(tdict_unique_bytes(td, &unique, err));
  assert_int_equal(unique, offset);
}

CASE(tree_create_from_one_storage) {
  void *dirty = malloc(400000); /* malloc may return this nonzero memory again */
  memset(dirty, 0xA5, 400000);
  free(dirty);
  scoped_tree td = td_made(tree, tdict_create_from(fields, FIELDS, COUNTS(4, 2), NULL, &made, err));
  help_paths(td, "obs obs.pixels obs.state reward next next.none next.h\\.0 done");
  assert_int_equal(tdict_batch_ndim(td_child(td, "next")), 2);
  assert_false(tdict_get_device(td, NULL));
  check(td);
  for (size_t i = 0; i < FIELDS; i++) {
    const unsigned char *bytes = tdict_const_data(td, fields[i].path);
    for (size_t k = 0; k < tdict_tensor_bytes(td_leaf(td, fields[i].path)); k++) assert_int_equal(bytes[k], 0);
  }
  /* The tensors must not overlap, so fill all of them before checking any. */
  for (size_t i = 0; i < FIELDS; i++)
    td_fill_random(tdict_data(td, fields[i].path), tdict_tensor_bytes(td_leaf(td, fields[i].path)), i + 1);
  for (size_t i = 0; i < FIELDS; i++) {
    size_t count = tdict_tensor_bytes(td_leaf(td, fields[i].path));
    scoped_bytes wanted = malloc(count + 1);
    td_fill_random(wanted, count, i + 1);
    assert_memory_equal(tdict_const_data(td, fields[i].path), wanted, count);
  }
  tdict_tensor *kept = tdict_tensor_retain(td_leaf(td, "reward")); /* keeps the storage alive */
  tdict_release(td);
  memset(tdict_tensor_data(kept), 1, tdict_tensor_bytes(kept));
  tdict_tensor_release(kept);
  td_ok(tdict_create_from(NULL, 0, COUNTS(4), NULL, &td, err));
  assert_int_equal(tdict_num_keys(td), 0);
  assert_int_equal(tdict_batch_ndim(td), 1);
}

DEVICE_CASE(tree_create_from_device_memory) {
  scoped_context context = td_context(NULL);
  tdict_memory *const memories[] = {tdict_device_memory(context, td_device()), tdict_pinned_memory(context)};
  for (size_t i = 0; i < 2; i++) {
    tdict_tree *td = NULL;
    if (i == 1 && td_device().type == TDICT_DEVICE_CPU) continue; /* the host has no pinned memory */
    td_ok(tdict_create_from(fields, FIELDS, COUNTS(4, 2), memories[i], &td, err));
    check(td);
    tdict_tensor *t = td_leaf(td, "obs.pixels"), *host = NULL;
    assert_true(tdict_device_equal(tdict_tensor_device(t), i == 0 ? td_device() : tdict_cpu()));
    assert_true(tdict_tensor_is_pinned(t) == (i == 1));
    td_ok(tdict_tensor_empty(TDICT_U8, tdict_tensor_ndim(t), tdict_tensor_shape(t), NULL, &host, err));
    memset(tdict_tensor_data(host), 0xA5, tdict_tensor_bytes(host));
    td_ok(tdict_tensor_copy(host, t, err));
    const unsigned char *bytes = tdict_tensor_const_data(host);
    for (size_t k = 0; k < tdict_tensor_bytes(host); k++) assert_int_equal(bytes[k], 0);
    td_release(host, td);
  }
}

typedef struct refusal {
  tdict_field field; /* the third field, after "a" and "n.x" */
  tdict_status status;
  const char *text;
} refusal;

CASE(tree_create_from_refuses) {
  static const refusal refusals[] = {
      {{"a", TDICT_F32, 1, {3}}, TDICT_EEXIST, "two fields"},
      {{"n.x", TDICT_F32, 1, {3}}, TDICT_EEXIST, "two fields"},
      {{"a.b", TDICT_F32, 1, {3}}, TDICT_ETYPE, "'a' is a tensor"},
      {{"n", TDICT_F32, 1, {3}}, TDICT_ETYPE, "another field"},
      {{"", TDICT_F32, 1, {3}}, TDICT_EINVAL, "empty key"},
      {{"b..c", TDICT_F32, 1, {3}}, TDICT_EINVAL, "empty key"},
      {{"b", 12345, 1, {3}}, TDICT_EDTYPE, ""},
      {{"b", TDICT_F32, 1, {-3}}, TDICT_EINVAL, ""},
      {{"b", TDICT_F32, 7, {3}}, TDICT_EINVAL, "7 dimensions, wanted 0 to 6"},
      {{"b", TDICT_F32, -1, {3}}, TDICT_EINVAL, "-1 dimensions"},
      {{"b", TDICT_F32, 2, {INT64_MAX, 3}}, TDICT_EOVERFLOW, ""},
      {{"b", TDICT_U8, 1, {INT64_MAX / 4}}, TDICT_EOVERFLOW, ""},
  };
  tdict_tree *const none = (tdict_tree *)(uintptr_t)0xA5A5, *td = none;
  tdict_field three[3] = {{"a", TDICT_F32, 1, {3}}, {"n.x", TDICT_U8, 1, {5}}, {"", 0, 0, {0}}};
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    three[2] = refusals[i].field;
    td_fails(refusals[i].status, refusals[i].text, tdict_create_from(three, 3, COUNTS(4), NULL, &td, err));
    assert_string_equal(td_last_error.path, refusals[i].field.path);
    assert_ptr_equal(td, none);
  }
  three[2] = (tdict_field){NULL, TDICT_F32, 0, {0}};
  td_fails(TDICT_EINVAL, "path is NULL", tdict_create_from(three, 3, COUNTS(4), NULL, &td, err));
  three[2] = (tdict_field){"b", TDICT_U8, 1, {INT64_MAX - 100}};
  td_fails(TDICT_EOVERFLOW, "", tdict_create_from(three, 3, COUNTS(1), NULL, &td, err)); /* only the sum is too large */
  td_fails(TDICT_EINVAL, "17 batch dimensions",
           tdict_create_from(three, 3, 17, (const int64_t[17]){0}, NULL, &td, err));
  td_fails(TDICT_EINVAL, "is -1", tdict_create_from(three, 3, COUNTS(-1), NULL, &td, err));
  td_fails(TDICT_EINVAL, "is NULL", tdict_create_from(three, 3, 1, NULL, NULL, &td, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_create_from(fields, FIELDS, COUNTS(4), NULL, NULL, err));
  td_fails(TDICT_EINVAL, "fields is NULL", tdict_create_from(NULL, 3, COUNTS(4), NULL, &td, err));
  assert_ptr_equal(td, none);
}

CASE(field_macro_counts) {
  static const tdict_field table[] = {TDICT_FIELD("scalar", TDICT_F64),
                                      TDICT_FIELD("a", TDICT_U8, 1),
                                      TDICT_FIELD("b", TDICT_U8, 1, 2),
                                      TDICT_FIELD("c", TDICT_U8, 1, 2, 3),
                                      TDICT_FIELD("d", TDICT_U8, 1, 2, 3, 4),
                                      TDICT_FIELD("e", TDICT_U8, 1, 2, 3, 4, 5),
                                      TDICT_FIELD("f", TDICT_U8, 1, 2, 3, 4, 5, 6)};
  for (int i = 0; i < 7; i++) {
    assert_int_equal(table[i].ndim, i);
    for (int d = 0; d < 6; d++) assert_int_equal(table[i].shape[d], d < i ? d + 1 : 0);
    assert_int_equal(table[i].dtype, i ? TDICT_U8 : TDICT_F64);
  }
  assert_string_equal(table[6].path, "f");
}

/* A nonzero size after the first `ndim` sizes is refused, because the program has probably forgotten to set ndim. */
CASE(tree_create_from_refuses_shape_beyond_ndim) {
  for (int32_t ndim = 0; ndim < 6; ndim++) {
    for (int extra = ndim; extra < 6; extra++) {
      tdict_field field = {"a", TDICT_F32, ndim, {0}};
      tdict_tree *td = NULL;
      for (int i = 0; i < ndim; i++) field.shape[i] = 2;
      tdict_release(td_made(tree, tdict_create_from(&field, 1, 0, NULL, NULL, &made, err)));
      td = NULL;
      field.shape[extra] = 17;
      const char *text = td_text("ndim is %d, but shape[%d] is 17", (int)ndim, extra);
      td_fails_at(TDICT_EINVAL, text, "a", tdict_create_from(&field, 1, 0, NULL, NULL, &td, err));
      assert_null(td);
    }
  }
}
