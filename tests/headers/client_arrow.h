/* The part of client.c that exchanges trees with Arrow. */
static void use_arrow_stream(const tdict_tree *tree) {
  struct ArrowArrayStream stream;
  tdict_tree *next = NULL, *all = NULL;
  OK(tdict_arrow_export_stream(&tree, 1, &stream, &last_error));
  OK(tdict_arrow_stream_next(&stream, NULL, &next, &last_error));
  OK(tdict_arrow_import_stream(&stream, NULL, &all, &last_error));
  TRUE(tdict_equal(tree, next) && tdict_batch_size(all)[0] == 0);
  stream.release(&stream);
  tdict_release(next);
  tdict_release(all);
}

static void use_arrow(tdict_context *context) {
  static const tdict_arrow_nulls all[] = {TDICT_ARROW_NULLS_REFUSE, TDICT_ARROW_NULLS_FILL, TDICT_ARROW_NULLS_MASK};
  const int64_t two = 2;
  tdict_arrow_import_options options = tdict_arrow_import_options_default();
  struct ArrowSchema schema;
  struct ArrowArray array;
  struct ArrowDeviceArray there;
  tdict_tensor *x = NULL;
  tdict_tree *tree = NULL, *back = NULL;
  options.nulls = (int32_t)all[1];
  OK(tdict_create(1, &two, &tree, &last_error));
  OK(tdict_tensor_arange(TDICT_F32, 0, 1, 2, &x, &last_error));
  OK(tdict_set(tree, "x", x, &last_error));
  OK(tdict_arrow_export(tree, &schema, &array, &last_error));
  OK(tdict_arrow_import(&schema, &array, &options, &back, &last_error));
  TRUE(tdict_equal(tree, back) && !array.release);
  tdict_release(back);
  schema.release(&schema);
  OK(tdict_arrow_export_device(tree, &schema, &there, &last_error));
  TRUE(there.device_type == ARROW_DEVICE_CPU);
  OK(tdict_arrow_import_device(context, &schema, &there, NULL, &back, &last_error));
  TRUE(tdict_equal(tree, back));
  tdict_release(back);
  schema.release(&schema);
  use_arrow_stream(tree);
  tdict_tensor_release(x);
  tdict_release(tree);
}
