/* Uses tdict/nontensor.h and tdict/unbatched.h. Included by client.c. */
static void use_leaves(void) {
  static const int64_t batch[1] = {2}, sizes[1] = {5};
  static const char *const texts[2] = {"a", "b"};
  const tdict_value_kind kinds[] = {TDICT_VALUE_NULL, TDICT_VALUE_BOOL, TDICT_VALUE_INTEGER,
                                    TDICT_VALUE_REAL, TDICT_VALUE_TEXT, TDICT_VALUE_JSON};
  tdict_value value, values[2];
  tdict_tree *td = NULL;
  tdict_tensor *tensor = NULL, *got = NULL;
  const tdict_nontensor *column;
  const int64_t *shape = NULL;
  const char *text = NULL;
  size_t i, length = 0;
  void *object = NULL;
  memset(values, 0, sizeof values);
  OK(tdict_create(1, batch, &td, &last_error));
  for (i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    memset(&value, 0, sizeof value);
    value.kind = (int32_t)kinds[i];
    value.text = "1";
    value.length = 1;
    OK(tdict_set_values(td, "value", &value, TDICT_WHOLE_TREE, &last_error));
    OK(tdict_get_value(td, "value", -1, &value, &last_error));
    TRUE(value.kind == (int32_t)kinds[i] && value.integer == 0 && value.real == 0);
  }
  OK(tdict_set_values(td, "values", values, 2, &last_error));
  OK(tdict_get_value(td, "values", 1, &value, &last_error));
  OK(tdict_set_text(td, "text", "hello", &last_error));
  OK(tdict_get_text(td, "text", -1, &text, &length, &last_error));
  TRUE(length == 5 && strcmp(text, "hello") == 0);
  OK(tdict_set_texts(td, "texts", texts, 2, &last_error));
  OK(tdict_get_text(td, "texts", 1, &text, NULL, &last_error));
  OK(tdict_get_object(td, "texts", tdict_nontensor_type(), &object, &last_error));
  column = (const tdict_nontensor *)object;
  TRUE(tdict_nontensor_shape(column, &shape) == 1 && shape[0] == 2);
  OK(tdict_nontensor_get(column, 0, &value, &last_error));
  TRUE(strcmp(value.text, "a") == 0);
  OK(tdict_tensor_empty(TDICT_F32, 1, sizes, NULL, &tensor, &last_error));
  OK(tdict_set_unbatched(td, "unbatched", tensor, &last_error));
  OK(tdict_get_unbatched(td, "unbatched", &got, &last_error));
  TRUE(got == tensor && tdict_object_type(td, "unbatched") == tdict_unbatched_type());
  tdict_tensor_release(tensor);
  tdict_release(td);
}
