/* The part of client.c that uses tdict/dlpack.h. */
static void use_dlpack(tdict_tensor *tensor) {
  tdict_dlpack_export_options give = tdict_dlpack_export_options_default();
  tdict_dlpack_import_options take = tdict_dlpack_import_options_default();
  tdict_dlpack_entry managed = tdict_dlpack_entry_default(), legacy = managed, *entries = NULL;
  tdict_tensor *back[2] = {NULL, NULL};
  tdict_tree *tree = NULL, *again = NULL;
  tdict_stream unordered;
  size_t count = 0;
  unordered.device = tdict_cpu();
  unordered.handle = TDICT_DLPACK_UNORDERED;
  give.stream = take.stream = unordered;
  OK(tdict_dlpack_export(NULL, tensor, &give, &managed, &last_error));
  OK(tdict_dlpack_import(NULL, &managed, &take, &back[0], &last_error));
  give.legacy = true;
  OK(tdict_dlpack_export(NULL, tensor, &give, &legacy, &last_error));
  OK(tdict_dlpack_import(NULL, &legacy, NULL, &back[1], &last_error));
  TRUE(!managed.versioned && !legacy.legacy && tdict_tensor_data(back[0]) == tdict_tensor_data(back[1]));
  OK(tdict_create(0, NULL, &tree, &last_error));
  OK(tdict_set(tree, "a.b", tensor, &last_error));
  OK(tdict_dlpack_export_tree(NULL, tree, NULL, &entries, &count, &last_error));
  OK(tdict_dlpack_import_tree(NULL, entries, count, NULL, &again, &last_error));
  TRUE(count == 1 && tdict_data(again, "a.b") == tdict_tensor_data(tensor));
  tdict_dlpack_release_entries(entries, count);
  tdict_release(tree);
  tdict_release(again);
  tdict_tensor_release(back[0]);
  tdict_tensor_release(back[1]);
}
