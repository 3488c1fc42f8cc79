/* Tests the path and the message of the first difference between two schemas. */
#include "rig.h"

static void differ(tdict_tree *a, tdict_tree *b, const char *path, const char *message) {
  scoped_schema s = rig_export(a), t = rig_export(b);
  tdict_schema_difference d;
  memset(&d, 'x', sizeof d); /* the call must overwrite this */
  assert_int_equal(tdict_schema_equal(s, t, &d), message == NULL);
  assert_string_equal(d.path, path);
  assert_string_equal(d.message, message ? message : "");
  assert_int_equal(tdict_schema_equal(t, s, &d), message == NULL);
  assert_int_equal(d.message[0] != 0, message != NULL);
  assert_int_equal(tdict_schema_equal(s, t, NULL), message == NULL);
}

static void put_zeros(tdict_tree *td, const char *path, tdict_dtype dtype, int ndim, const int64_t *shape) {
  td_put(td, path, td_made(tensor, tdict_tensor_zeros(dtype, ndim, shape, NULL, &made, err)));
}

CASE(schema_equal_names_the_difference) {
  int ends = 0;
  tdict_type other = rig_type;
  other.name = "other";
  scoped_tree a = TREE(2), b = TREE(2);
  tdict_tree *c = TREE(3);
  differ(a, b, "", NULL);
  differ(a, c, "", "the batch size is [2] in the first schema, [3] in the second");
  tdict_release(c);
  put_zeros(a, "n.x", TDICT_F32, COUNTS(2, 3));
  differ(a, b, "n", "this key is only in the first schema");
  differ(b, a, "n", "this key is only in the second schema");
  put_zeros(b, "n.x", TDICT_F32, COUNTS(2, 4));
  differ(a, b, "n.x", "the shape after the batch dimensions is [3] in the first schema, [4] in the second");
  put_zeros(b, "n.x", TDICT_BF16, COUNTS(2, 3));
  differ(a, b, "n.x", "the dtype is float32 in the first schema, bfloat16 in the second");
  put_zeros(b, "n.x", TDICT_F32, COUNTS(2, 3));
  differ(a, b, "", NULL);
  put_zeros(a, "n.y", TDICT_F32, COUNTS(2));
  put_zeros(b, "z", TDICT_F32, COUNTS(2));
  differ(a, b, "n.y", "this key is only in the first schema");
  differ(b, a, "n.y", "this key is only in the second schema");
  put_zeros(b, "n.w\\.", TDICT_F32, COUNTS(2));
  differ(a, b, "n.y", "this key of the first schema is 'w.' in the second");
  td_ok(tdict_rename(b, "n.w\\.", "n.y", true, err));
  td_ok(tdict_delete(b, "z", err));
  differ(a, b, "", NULL);
  td_ok(tdict_set_object(a, "o", &rig_type, help_make_thing(&ends, 0, ""), err));
  td_put_tree(b, "o", TREE(2));
  differ(a, b, "o", "an object in the first schema, a tree in the second");
  td_ok(tdict_set_object(b, "o", &other, help_make_thing(&ends, 0, ""), err));
  differ(a, b, "o", "the type is thing in the first schema, other in the second");
  put_zeros(b, "o", TDICT_U8, COUNTS(2));
  differ(b, a, "o", "a tensor in the first schema, an object in the second");
  tdict_tree *n = td_child(b, "n");
  td_ok(tdict_delete(n, "y", err));
  td_ok(tdict_set_batch_size(n, COUNTS(2, 3), err));
  differ(a, b, "n", "the batch size is [2] in the first schema, [2, 3] in the second");
}
