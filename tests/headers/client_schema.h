/* The part of client.c that uses tdict/schema.h. */
static void use_schema(void) {
  static const int64_t sizes[] = {4};
  tdict_tree *tree = NULL, *made = NULL;
  tdict_tree_schema *schema = NULL, *read = NULL;
  tdict_tree_schema_create_options options = tdict_tree_schema_create_options_default();
  tdict_schema_difference difference;
  tdict_schema_entry entry;
  tdict_schema_kind kind = TDICT_SCHEMA_TREE;
  tdict_hash128 hash;
  unsigned char blob[64];
  char path[8];
  size_t bytes;
  OK(tdict_create(1, sizes, &tree, &last_error));
  OK(tdict_tree_schema_export(tree, &schema, &last_error));
  bytes = tdict_tree_schema_write(schema, blob, sizeof blob);
  OK(tdict_tree_schema_read(blob, bytes, &read, &last_error));
  TRUE(tdict_tree_schema_equal(schema, read));
  OK(tdict_tree_schema_compare(schema, read, &difference, &last_error));
  TRUE(!difference.differs);
  hash = tdict_tree_schema_hash(schema);
  TRUE(hash.lo != hash.hi);
  TRUE(tdict_tree_schema_batch_ndim(schema) == 1 && tdict_tree_schema_batch_size(schema)[0] == 4);
  TRUE(tdict_tree_schema_num_entries(schema) == 0 && tdict_tree_schema_num_leaves(schema) == 0);
  TRUE(tdict_tree_schema_num_objects(schema) == 0);
  TRUE(tdict_tree_schema_get_entry_at(schema, 0, &entry, NULL) == TDICT_ENOTFOUND);
  TRUE(tdict_tree_schema_path(schema, 0, path, sizeof path) == 0);
  TRUE(kind != TDICT_SCHEMA_TENSOR && kind != TDICT_SCHEMA_OBJECT);
  TRUE(TDICT_SCHEMA_VERSION == 1 && TDICT_SCHEMA_MAX_DEPTH == 1024);
  options.batch_ndim = 0;
  OK(tdict_tree_schema_create(schema, &options, &made, &last_error));
  TRUE(tdict_batch_ndim(made) == 0);
  tdict_release(made);
  tdict_release(tree);
  tdict_tree_schema_release(tdict_tree_schema_retain(read));
  tdict_tree_schema_release(read);
  tdict_tree_schema_release(schema);
}
