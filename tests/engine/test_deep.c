/* Tests trees with very many levels. The time of a call must be linear in the number of levels. If a transfer visited
 * all levels above each leaf, it would take minutes and exceed CTest's time limit. */
#include "promises.h"
#include "tdict/object.h"

enum { LEVELS = THREAD_SANITIZED ? 50000 : 200000 };

/* Returns a path of LEVELS + 1 keys. */
static char *deep_path(void) {
  char *path = td_alloc(2 * LEVELS + 2);
  for (int i = 0; i < LEVELS; i++) memcpy(path + 2 * i, "n.", 2);
  strcpy(path + 2 * LEVELS, "x");
  return path;
}

/* Adds a leaf at each level of the path. */
static void add_leaves(tdict_tree *td) {
  do td_put(td, "y", new_bytes(8, NULL));
  while (tdict_get_tree(td, "n", &td, NULL) == TDICT_OK);
}

static tdict_status count_entry(void *user, const tdict_entry *entry, tdict_error *err) {
  (void)err;
  *(size_t *)user += entry->tensor != NULL;
  return TDICT_OK;
}
static tdict_status count_leaves(void *user, const tdict_leaves *at, tdict_error *err) {
  (void)err;
  *(size_t *)user += at->count;
  return TDICT_OK;
}

GPU_CASE(transfers_of_deep_trees_take_time_for_each_level) {
  scoped_place w = place_open(2);
  scoped_chars path = deep_path();
  unsigned char want[16];
  scoped_tree src = new_tree(), dev = NULL, back = NULL, pinned = NULL;
  TD_STREAM(s, w.c, w.device);
  td_fill_random(want, sizeof want, 11);
  td_put(src, path, new_bytes(sizeof want, NULL));
  memcpy(tdict_data(src, path), want, sizeof want);
  add_leaves(src);
  td_ok(tdict_to_device(w.c, src, w.device, NULL, &dev, err));
  td_ok(tdict_record_stream(dev, s, err));
  td_ok(tdict_transfer_into(w.c, dev, src, NULL, err));
  tdict_future *f = move_async(&w, dev, tdict_cpu(), NULL);
  tdict_future_cancel(f);
  (void)!tdict_future_wait(f, NULL, NULL);
  tdict_future_release(f);
  td_ok(tdict_to_device(w.c, dev, tdict_cpu(), NULL, &back, err));
  assert_memory_equal(tdict_const_data(back, path), want, sizeof want);
  td_ok(tdict_transfer_into(w.c, src, dev, NULL, err)); /* the leaves of `src` are not in one arena */
  assert_memory_equal(tdict_const_data(src, path), want, sizeof want);
  td_ok(tdict_pin_memory(w.c, back, NULL, &pinned, err));
  assert_true(tdict_is_pinned(pinned));
  assert_memory_equal(tdict_const_data(pinned, path), want, sizeof want);
}

static void end_nothing(void *self) { (void)self; }

/* Moves a tree that has an object without hooks at each level. */
GPU_CASE(objects_of_deep_trees_take_time_for_each_level) {
  static const tdict_type type = TD_TYPE(.name = "still", .release = end_nothing);
  scoped_place w = place_open(2);
  scoped_chars path = deep_path();
  scoped_tree src = new_tree(), dev = NULL;
  td_put(src, path, new_bytes(16, NULL));
  tdict_tree *td = src;
  do td_ok(tdict_set_object(td, "o", &type, path, err));
  while (tdict_get_tree(td, "n", &td, NULL) == TDICT_OK);
  td_ok(tdict_to_device(w.c, src, w.device, td_options(tdict_transfer_options, keep_objects = true), &dev, err));
  assert_int_equal(tdict_num_objects(dev), LEVELS + 1);
}

CASE(deep_trees_are_seen_in_time_for_each_level) {
  scoped_chars path = deep_path();
  scoped_tree td = new_tree(), copy = NULL;
  size_t seen = 0;
  td_put(td, path, new_bytes(16, NULL));
  td_ok(tdict_clone_deep(td, NULL, &copy, err));
  td_ok(tdict_walk(td, count_entry, &seen, err));
  const tdict_tree *both[] = {td, copy};
  td_ok(tdict_visit(NULL, both, 2, count_leaves, &seen, NULL, err));
  assert_int_equal(seen, 3);
  tdict_lock(td);
  td_ok(tdict_unlock(td, err));
  assert_true(tdict_format(td, NULL, 0) > 0);
}
