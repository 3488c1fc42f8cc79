/* The part of client.c that uses tdict/replay.h. */
static void use_replay(void) {
  const int64_t capacity = 4;
  tdict_tree *tree = NULL, *rows = NULL;
  tdict_replay *replay = NULL;
  tdict_dataset dataset = tdict_dataset_default();
  tdict_replay_state state = tdict_replay_state_default();
  tdict_field field;
  tdict_schema schema;
  memset(&field, 0, sizeof field);
  field.path = "x";
  field.dtype = TDICT_F32;
  schema.fields = &field;
  schema.num_fields = 1;
  OK(tdict_create_from(&schema, 1, &capacity, NULL, &tree, &last_error));
  OK(tdict_create_from(&schema, 1, &capacity, NULL, &rows, &last_error));
  OK(tdict_zero(rows, &last_error));
  OK(tdict_replay_create(tree, 0, &replay, &last_error));
  OK(tdict_replay_append(replay, rows, &last_error));
  OK(tdict_replay_write(replay, 0, rows, &last_error));
  TRUE(tdict_replay_length(replay) == 4 && tdict_replay_capacity(replay) == 4 && tdict_replay_total(replay) == 4);
  OK(tdict_replay_get_state(replay, &state, &last_error));
  OK(tdict_replay_set_state(replay, &state, &last_error));
  tdict_replay_lock(replay);
  tdict_replay_unlock(replay);
  OK(tdict_replay_dataset(replay, &dataset, &last_error));
  TRUE(dataset.length_varies && dataset.length(dataset.self) == 4);
  tdict_replay_clear(replay);
  TRUE(dataset.length(dataset.self) == 0);
  tdict_dataset_reset(&dataset);
  tdict_replay_release(tdict_replay_retain(replay));
  tdict_replay_release(replay);
  tdict_release(rows);
  tdict_release(tree);
}
