/* Replay buffers whose rows identify themselves, as the samples of numbers.h do. Only the main thread calls these
 * functions. */
#ifndef TDICT_TESTS_SERVICES_LOADER_REPLAY_ROWS_H
#define TDICT_TESTS_SERVICES_LOADER_REPLAY_ROWS_H

#include "numbers.h"

enum { CAPACITY = 23, MAX_ROWS = 64 };

/* Makes `count` rows with the leaves "id" and "deep.x" of numbers.h. */
static inline tdict_tree *rows_of(int64_t count) {
  return td_made(tree, tdict_create_from(numbers_fields, 2, 1, &count, NULL, &made, err));
}
/* Writes sample `id` to a row. */
static inline void put_id(tdict_tree *rows, int64_t row, int64_t id) {
  ((int64_t *)tdict_data(rows, "id"))[row] = id;
  for (int i = 0; i < X_COUNT; i++) ((float *)tdict_data(rows, "deep.x"))[row * X_COUNT + i] = number_of(id, i);
}
/* Makes rows with the ids first, first + 1, ... */
static inline tdict_tree *rows_from(int64_t first, int64_t count) {
  tdict_tree *td = rows_of(count);
  for (int64_t i = 0; i < count; i++) put_id(td, i, first + i);
  return td;
}
static inline void append_ids(tdict_replay *r, int64_t first, int64_t count) {
  scoped_tree rows = rows_from(first, count);
  td_ok(tdict_replay_append(r, rows, err));
}
static inline void write_ids(tdict_replay *r, int64_t row, int64_t first, int64_t count) {
  scoped_tree rows = rows_from(first, count);
  td_ok(tdict_replay_write(r, row, rows, err));
}
static inline tdict_replay_state state_of(const tdict_replay *r) {
  tdict_replay_state s = td_filled(tdict_replay_state, tdict_replay_get_state(r, &made, err));
  return s;
}
static inline tdict_replay *replay_over(const tdict_tree *tree, int64_t num_filled) {
  return td_made(replay, tdict_replay_create(tree, num_filled, &made, err));
}
static inline tdict_loader *loader_over(const yard *y, tdict_replay *r, const tdict_loader_options *o) {
  tdict_dataset *d = td_made(dataset, tdict_dataset_from_replay(r, &made, err));
  return open_loader_on(y, d, o);
}

/* A collate function. With it, the loader fetches each sample as a tree. */
static inline tdict_status stack_rows(void *user, const tdict_fetch_info *info, const tdict_tree *const *samples,
                                      size_t count, tdict_tree **out, tdict_error *err) {
  (void)user;
  tdict_run join = td_with(tdict_run, memory = info->memory);
  return tdict_stack(samples, count, NULL, &join, out, err);
}

#endif
