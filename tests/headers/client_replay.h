/* The part of client.c that uses tdict/replay.h. */
static void use_replay(void) {
  const int64_t capacity = 4;
  tdict_tree *tree = NULL, *rows = NULL;
  tdict_replay *replay = NULL;
  tdict_dataset *dataset = NULL;
  const tdict_dataset_table *table;
  tdict_replay_state state = tdict_replay_state_default();
  tdict_field field;
  memset(&field, 0, sizeof field);
  field.path = "x";
  field.dtype = TDICT_F32;
  OK(tdict_create_from(&field, 1, 1, &capacity, NULL, &tree, &last_error));
  OK(tdict_create_from(&field, 1, 1, &capacity, NULL, &rows, &last_error));
  OK(tdict_fill(rows, NULL, 0, NULL, &last_error));
  OK(tdict_replay_create(tree, 0, &replay, &last_error));
  OK(tdict_replay_append(replay, rows, &last_error));
  OK(tdict_replay_write(replay, 0, rows, &last_error));
  OK(tdict_replay_get_state(replay, &state, &last_error));
  TRUE(state.num_filled == 4 && state.capacity == 4 && state.total == 4);
  OK(tdict_replay_set_state(replay, &state, &last_error));
  tdict_replay_lock(replay);
  tdict_replay_unlock(replay);
  OK(tdict_dataset_from_replay(replay, &dataset, &last_error));
  table = tdict_dataset_get_table(dataset);
  TRUE(table->length_varies && table->length(table->self) == 4);
  tdict_replay_clear(replay);
  TRUE(table->length(table->self) == 0);
  tdict_dataset_release(dataset);
  tdict_replay_release(tdict_replay_retain(replay));
  tdict_replay_release(replay);
  tdict_release(rows);
  tdict_release(tree);
}
