/* The part of client.c that uses tdict/schema.h. */
static void use_schema(void) {
  static const int64_t sizes[] = {4};
  tdict_tree *tree = NULL, *made = NULL;
  tdict_schema *schema = NULL, *read = NULL;
  tdict_create_options options = tdict_create_options_default();
  tdict_schema_difference difference;
  tdict_schema_entry entry;
  tdict_schema_info info;
  tdict_schema_kind kind = TDICT_SCHEMA_TREE;
  tdict_hash128 hash;
  unsigned char blob[64];
  char path[8];
  size_t bytes;
  OK(tdict_create(1, sizes, &tree, &last_error));
  OK(tdict_schema_from_tree(tree, &schema, &last_error));
  bytes = tdict_schema_write(schema, blob, sizeof blob);
  OK(tdict_schema_read(blob, bytes, &read, &last_error));
  TRUE(tdict_schema_equal(schema, read, &difference) && !difference.message[0]);
  hash = tdict_schema_get_info(schema).hash;
  TRUE(hash.lo != hash.hi);
  info = tdict_schema_get_info(schema);
  TRUE(info.batch_ndim == 1 && info.batch_size[0] == 4);
  TRUE(info.num_entries == 0 && info.num_leaves == 0 && info.num_objects == 0);
  TRUE(tdict_schema_get_entry(schema, 0, &entry, NULL) == TDICT_ENOTFOUND);
  TRUE(tdict_schema_get_path(schema, 0, path, sizeof path) == 0);
  TRUE(kind != TDICT_SCHEMA_TENSOR && kind != TDICT_SCHEMA_OBJECT);
  TRUE(TDICT_SCHEMA_VERSION == 1 && TDICT_SCHEMA_MAX_DEPTH == 1024);
  options.batch_ndim = 0;
  OK(tdict_create_from_schema(schema, &options, &made, &last_error));
  TRUE(tdict_batch_ndim(made) == 0);
  tdict_release(made);
  tdict_release(tree);
  tdict_schema_release(tdict_schema_retain(read));
  tdict_schema_release(read);
  tdict_schema_release(schema);
}
