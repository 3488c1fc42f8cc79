/* Tests that writes in place write the tensors of objects, or fail before a byte is written. See also
 * test_objects.c. */
#include "twins.h"

/* A call that writes the values of `from` to the tree, and so to the object's own tensors. */
typedef tdict_status (*writing)(tdict_tree *td, const tdict_tree *from, tdict_error *err);
#define WRITING(name, call)                                                            \
  static tdict_status name(tdict_tree *td, const tdict_tree *from, tdict_error *err) { \
    (void)from;                                                                        \
    return call;                                                                       \
  }
static tdict_status with_part(tdict_tree *td, const tdict_tree *from, const tdict_indices *of, int way,
                              tdict_error *err) {
  tdict_tree *part = NULL;
  tdict_status status = tdict_index_get(NULL, from, of, NULL, &part, err);
  if (status != TDICT_OK) return status;
  const tdict_tree *rows[] = {part, part};
  if (way == 0) status = tdict_index_set(NULL, td, TDICT_INDEX(TDICT_ALL, TDICT_RANGE(0, 3, 2)), part, NULL, err);
  if (way == 1) status = tdict_write_rows(td, 1, part, err);
  if (way == 2) status = tdict_write_rows(td, 1, part, err);
  if (way == 3) status = tdict_index_set(NULL, td, TDICT_INDEX(TDICT_ALL), part, NULL, err); /* repeated */
  if (way == 4) status = tdict_stack_into(td, rows, 2, NULL, NULL, err);
  if (way == 5) status = tdict_cat_into(td, rows, 2, NULL, NULL, err);
  tdict_release(part);
  return status;
}
WRITING(set_range, with_part(td, from, TDICT_INDEX(TDICT_ALL, TDICT_RANGE(1, 3, 1)), 0, err))
WRITING(set_row, with_part(td, from, TDICT_INDEX(TDICT_AT(0)), 1, err))
WRITING(set_rows, with_part(td, from, TDICT_INDEX(TDICT_RANGE(0, 1, 1)), 2, err))
WRITING(set_repeated, with_part(td, from, TDICT_INDEX(TDICT_AT(0)), 3, err))
WRITING(set_stacked, with_part(td, from, TDICT_INDEX(TDICT_AT(0)), 4, err))
WRITING(set_joined, with_part(td, from, TDICT_INDEX(TDICT_RANGE(0, 1, 1)), 5, err))
WRITING(set_picked, tdict_index_into(NULL, td, from, TDICT_INDEX(TDICT_RANGE(TDICT_NONE, TDICT_NONE, -1)), NULL, err))
WRITING(set_all, tdict_copy(td, from, NULL, err))
WRITING(set_some, tdict_update_in_place(td, from, (const char *const[]){"n"}, 1, err))
WRITING(set_zero, tdict_fill(td, NULL, 0, NULL, err))
WRITING(set_filled, tdict_fill(td, "n", 7 * (td_device().type == TDICT_DEVICE_CPU), NULL, err))
WRITING(set_object, tdict_fill(td, "n.o", 0, NULL, err))
static const struct {
  const char *name;
  writing run;
  bool device_kept; /* also accepts device trees */
} writings[] = {{"range", set_range, true},       {"row", set_row, true},       {"rows", set_rows, true},
                {"repeated", set_repeated, true}, {"stack", set_stacked, true}, {"cat", set_joined, true},
                {"picked", set_picked, true},     {"copy", set_all, true},      {"update", set_some, true},
                {"zero", set_zero, true},         {"fill", set_filled, true},   {"fill object", set_object, true}};
enum { WRITINGS = sizeof writings / sizeof *writings };

DEVICE_CASE(objects_written_as_tensors) {
  scoped_thing_rig r = rig_open();
  for (int i = 0; i < WRITINGS; i++) {
    scoped_twins w = make_twins(&r, &flat_type), from = make_twins(&r, &flat_type);
    const thing *object = thing_at(w.td, &flat_type);
    tdict_tensor *a = object->a, *b = object->b;
    scoped_tree mine = NULL; /* a copy of the plain twin with its own elements */
    td_ok(tdict_clone_deep(w.plain, NULL, &mine, err));
    print_message("%s\n", writings[i].name);
    tdict_lock(w.td); /* locked trees may be written */
    td_ok(writings[i].run(w.td, from.td, err));
    td_ok(writings[i].run(mine, from.plain, err));
    assert_ptr_equal(thing_at(w.td, &flat_type), object);
    assert_ptr_equal(object->a, a);
    assert_ptr_equal(object->b, b);
    tdict_difference found;
    td_ok(tdict_get_difference(w.plain, mine, NULL, &found, err)); /* `w.plain` shares the object's tensors */
    if (found.differs) fail_msg("%s: %s", found.path, found.message);
  }
}

CASE(objects_are_written_all_or_none) {
  scoped_thing_rig r = rig_open();
  for (int i = 0; i < WRITINGS; i++)
    for (int way = 0; way < 4; way++) {
      const tdict_type *type = way == 0 ? &bare_type : &flat_type;
      scoped_twins w = make_twins(&r, type), from = make_twins(&r, way == 1 ? &both_type : type);
      bool fills = i >= 8;
      if (fills && way == 1) continue; /* a fill has no second tree */
      scoped_tree before = td_made(tree, tdict_clone_deep(w.plain, NULL, &made, err));
      print_message("%s %d\n", writings[i].name, way);
      if (way == 2) failing = HOOK_FLATTEN, failure = TDICT_EIO;
      char *shape = help_snapshot(w.td);
      if (way == 0) td_fails(TDICT_ENOTSUP, "type bare", writings[i].run(w.td, from.td, err));
      if (way == 1) td_fails(TDICT_ETYPE, "type", writings[i].run(w.td, from.td, err));
      if (way == 2) td_fails(TDICT_EIO, "the disk", writings[i].run(w.td, from.td, err));
      if (way < 3) assert_string_equal(td_last_error.path, "n.o");
      failing = -1;
      if (way < 3) {
        assert_true(tdict_equal(before, w.plain)); /* no element was written */
      } else {
        int64_t alive = thing_count();
        RIG_WITHOUT_MEMORY(w.td, (assert_int_equal(thing_count(), alive), writings[i].run(w.td, from.td, err)));
      }
      help_unchanged(w.td, shape);
    }
}

/* The first tdict_write_rows() to an empty tree creates objects with all rows. */
DEVICE_CASE(objects_are_preallocated) {
  scoped_thing_rig r = rig_open();
  scoped_twins w = make_twins(&r, &flat_type);
  scoped_tree td = TREE(4, 2, 3), plain = TREE(4, 2, 3);
  td_ok(tdict_write_rows(td, 2, w.td, err));
  td_ok(tdict_write_rows(plain, 2, w.plain, err));
  assert_int_equal(tdict_tensor_shape(thing_at(td, &flat_type)->a)[0], 4);
  agree(td, plain, &w, &flat_type);
  td_ok(tdict_write_rows(td, 0, w.td, err));
  td_ok(tdict_write_rows(plain, 0, w.plain, err));
  agree(td, plain, &w, &flat_type);
}
