/* Tests objects in every operation. An operation uses the hooks or the tensors of an object. If it can use neither, it
 * fails and names the missing hook. Each operation runs on a tree with an object and on a tree that has the object's
 * tensors in its place. Both results must be equal. */
#include "twins.h"

typedef tdict_status (*operation)(const tdict_tree *td, tdict_tree **out, tdict_error *err);
#define OPERATION(name, call) \
  static tdict_status name(const tdict_tree *td, tdict_tree **out, tdict_error *err) { return call; }
static const int64_t six[] = {3, 2}, wide[] = {2, 2, 3}, parts[] = {1, 2}, list_of[] = {1, 0, 1};
static const int order[] = {1, 0};
OPERATION(do_at, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(-1)), NULL, out, err))
OPERATION(do_at_at, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(1), TDICT_AT(2)), NULL, out, err))
OPERATION(do_at_second, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_ALL, TDICT_AT(2)), NULL, out, err))
OPERATION(do_range, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_ALL, TDICT_RANGE(2, TDICT_NONE, -2)), NULL, out, err))
OPERATION(do_new_axis, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_NEW_AXIS, TDICT_REST), NULL, out, err))
OPERATION(do_list, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list_of, 3)), NULL, out, err))
OPERATION(do_lists,
          tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list_of, 3), TDICT_LIST(list_of, 1)), NULL, out, err))
OPERATION(do_view, tdict_reshape_view(td, 2, six, out, err))
OPERATION(do_reshape, tdict_reshape(td, 2, six, out, err))
OPERATION(do_flatten, tdict_merge_dims(td, 0, 1, out, err))
OPERATION(do_unflatten, tdict_split_dim(td, 1, 2, (const int64_t[]){3, 1}, out, err))
OPERATION(do_unsqueeze, tdict_unsqueeze(td, 1, out, err))
OPERATION(do_expand, tdict_expand(td, 3, wide, out, err))
OPERATION(do_permute, tdict_permute(td, 2, order, out, err))
OPERATION(do_transpose, tdict_transpose(td, 0, 1, out, err))
OPERATION(do_clone_deep, tdict_clone_deep(td, NULL, out, err))

/* Returns the last piece in *out and releases the others. */
static tdict_status last_of(tdict_tree **pieces, size_t count, tdict_status status, tdict_tree **out) {
  if (status != TDICT_OK) return status;
  for (size_t i = 0; i + 1 < count; i++) tdict_release(pieces[i]);
  *out = pieces[count - 1];
  return status;
}
static tdict_status do_split(const tdict_tree *td, tdict_tree **out, tdict_error *err) {
  tdict_tree *p[4] = {NULL};
  return last_of(p, 2, tdict_split(td, 1, parts, p, &(size_t){2}, err), out);
}
static tdict_status do_split_every(const tdict_tree *td, tdict_tree **out, tdict_error *err) {
  tdict_tree *p[4] = {NULL};
  size_t count = 4;
  tdict_status status = tdict_split_every(td, 1, 2, p, &count, err);
  return last_of(p, count, status, out);
}
static tdict_status do_chunks(const tdict_tree *td, tdict_tree **out, tdict_error *err) {
  tdict_tree *p[4] = {NULL};
  size_t count = 2;
  tdict_status status = tdict_split_every(td, 0, 1, p, &count, err);
  return last_of(p, count, status, out);
}
static tdict_status do_unbind(const tdict_tree *td, tdict_tree **out, tdict_error *err) {
  tdict_tree *p[4] = {NULL};
  size_t count = 4;
  tdict_status status = tdict_unbind(td, 0, p, &count, err);
  return last_of(p, count, status, out);
}
static tdict_status do_unbind_second(const tdict_tree *td, tdict_tree **out, tdict_error *err) {
  tdict_tree *p[4] = {NULL};
  size_t count = 4;
  tdict_status status = tdict_unbind(td, 1, p, &count, err);
  return last_of(p, count, status, out);
}
static tdict_status join(const tdict_tree *td, int dim, bool stacks, tdict_tree **out, tdict_error *err) {
  const tdict_tree *both[] = {td, td, td};
  tdict_join_options o = td_with(tdict_join_options, dim = dim);
  return stacks ? tdict_stack(both, 3, &o, NULL, out, err) : tdict_cat(both, 3, &o, NULL, out, err);
}
OPERATION(do_stack, join(td, 0, true, out, err))
OPERATION(do_stack_second, join(td, 1, true, out, err))
OPERATION(do_cat, join(td, 1, false, out, err))
OPERATION(do_pad, tdict_pad_sequence((const tdict_tree *const[]){td, td}, 2, NULL, NULL, out, err))
static tdict_status copy_leaf(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)user;
  return tdict_tensor_clone(at->tensors[0], NULL, out, err);
}
OPERATION(do_apply, tdict_apply(NULL, &td, 1, copy_leaf, NULL, NULL, out, err))
static bool keep_all(void *user, const tdict_leaves *at) {
  (void)user, (void)at;
  return true;
}
OPERATION(do_filter, tdict_filter(td, keep_all, NULL, out, err))

typedef struct named {
  const char *name;
  operation run;
  int hook;       /* the hook that the operation prefers; -1: it only uses flatten */
  bool host_only; /* trees on a device are refused */
} named;
static const named operations[] = {{"at", do_at, HOOK_INDEX, false},
                                   {"at_at", do_at_at, HOOK_INDEX, false},
                                   {"unbind", do_unbind, HOOK_INDEX, false},
                                   {"clone_deep", do_clone_deep, HOOK_CLONE, false},
                                   {"stack", do_stack, HOOK_STACK, false},
                                   {"at_second", do_at_second, -1, false},
                                   {"range", do_range, -1, false},
                                   {"new_axis", do_new_axis, -1, false},
                                   {"list", do_list, -1, true},
                                   {"lists", do_lists, -1, true},
                                   {"view", do_view, -1, false},
                                   {"reshape", do_reshape, -1, false},
                                   {"flatten", do_flatten, -1, false},
                                   {"unflatten", do_unflatten, -1, false},
                                   {"unsqueeze", do_unsqueeze, -1, false},
                                   {"expand", do_expand, -1, false},
                                   {"permute", do_permute, -1, false},
                                   {"transpose", do_transpose, -1, false},
                                   {"split", do_split, -1, false},
                                   {"split_every", do_split_every, -1, false},
                                   {"chunks", do_chunks, -1, false},
                                   {"unbind_second", do_unbind_second, -1, false},
                                   {"stack_second", do_stack_second, -1, false},
                                   {"cat", do_cat, -1, false},
                                   {"pad", do_pad, -1, false},
                                   {"apply", do_apply, -1, false},
                                   {"filter", do_filter, -1, false}};
enum { OPERATIONS = sizeof operations / sizeof *operations };
static bool skipped(const rig *r, const named *o) { return r->memory && o->host_only; }

static void run_both(const named *o, const twins *w, const tdict_type *type) {
  scoped_tree got = NULL, wanted = NULL;
  print_message("%s\n", o->name);
  td_ok(o->run(w->td, &got, err));
  td_ok(o->run(w->plain, &wanted, err));
  agree(got, wanted, w, type);
}

DEVICE_CASE(objects_pass_as_tensors) {
  scoped_thing_rig r = rig_open();
  scoped_twins w = make_twins(&r, &flat_type);
  for (int i = 0; i < OPERATIONS; i++)
    if (!skipped(&r, &operations[i])) run_both(&operations[i], &w, &flat_type);
  scoped_tree copy = NULL;
  td_ok(tdict_clone_deep(w.td, TD_IN(r.memory), &copy, err)); /* the clone also accepts a memory */
  assert_true(tdict_device_equal(tdict_tensor_device(thing_at(copy, &flat_type)->b), td_device()));
}

DEVICE_CASE(objects_pass_by_hooks) {
  scoped_thing_rig r = rig_open();
  for (int second = 0; second < 2; second++) {
    const tdict_type *type = second ? &both_type : &hooks_type;
    scoped_twins w = make_twins(&r, type);
    for (int i = 0; operations[i].hook >= 0; i++) {
      int before = calls[operations[i].hook];
      run_both(&operations[i], &w, type);
      assert_true(calls[operations[i].hook] > before);
    }
    assert_int_equal(calls[HOOK_FLATTEN] + calls[HOOK_UNFLATTEN], 0); /* the other hooks are preferred to these */
  }
}

/* Hooks cannot allocate from a given memory, so the tensors of objects that have `flatten` are copied instead. */
CASE(objects_are_copied_to_the_given_memory) {
  rig r = {NULL, NULL};
  tdict_context *context = NULL;
  tdict_tree *copy = NULL, *stacked = NULL;
  td_ok(tdict_context_create(td_options(tdict_context_options, device = tdict_sim(0)), &context, err));
  tdict_run j = td_with(tdict_run, memory = tdict_pinned_memory(context));
  twins w = make_twins(&r, &both_type);
  td_ok(tdict_clone_deep(w.td, TD_IN(j.memory), &copy, err));
  assert_true(tdict_tensor_is_pinned(thing_at(copy, &both_type)->a));
  td_ok(tdict_stack((const tdict_tree *const[]){w.td, w.td}, 2, NULL, &j, &stacked, err));
  assert_true(tdict_tensor_is_pinned(thing_at(stacked, &both_type)->b));
  assert_int_equal(calls[HOOK_CLONE] + calls[HOOK_STACK], 0);
  td_release(copy, stacked);
  end_twins(&w);
  w = make_twins(&r, &hooks_type);
  td_ok(tdict_clone_deep(w.td, TD_IN(j.memory), &copy, err)); /* the type has no flatten, so its clone hook is used */
  assert_false(tdict_tensor_is_pinned(thing_at(copy, &hooks_type)->a));
  assert_int_equal(calls[HOOK_CLONE], 1);
  tdict_release(copy);
  end_twins(&w);
  tdict_context_destroy(context);
  assert_int_equal(thing_count(), 0);
}

DEVICE_CASE(objects_refused_by_name) {
  static const char *const names[] = {[HOOK_CLONE] = "neither a clone hook nor flatten",
                                      [HOOK_INDEX] = "neither a index hook nor flatten",
                                      [HOOK_STACK] = "neither a stack hook nor flatten"};
  scoped_thing_rig r = rig_open();
  for (int second = 0; second < 2; second++) {
    scoped_twins w = make_twins(&r, second ? &hooks_type : &bare_type);
    char *before = help_snapshot(w.td);
    for (int i = 0; i < OPERATIONS; i++) {
      tdict_tree *const untouched = (tdict_tree *)(uintptr_t)0xA5A5, *out = untouched;
      const char *wanted = operations[i].hook >= 0 ? names[operations[i].hook] : "no flatten hook";
      if (skipped(&r, &operations[i]) || (second && operations[i].hook >= 0)) continue;
      print_message("%s\n", operations[i].name);
      td_fails(TDICT_ENOTSUP, wanted, operations[i].run(w.td, &out, err));
      assert_non_null(strstr(td_last_error.message, second ? "type hooks" : "type bare"));
      assert_string_equal(td_last_error.path, "n.o");
      assert_ptr_equal(out, untouched);
    }
    help_unchanged(w.td, before);
  }
}

CASE(objects_are_shared_if_no_element_moves) {
  scoped_thing_rig r = rig_open();
  scoped_twins w = make_twins(&r, &bare_type);
  const thing *before = thing_at(w.td, &bare_type);
  const int64_t same[] = {2, 3};
  const int straight[] = {0, 1};
  tdict_tree *outs[8] = {NULL};
  size_t count = 1;
  td_ok(tdict_index_get(NULL, w.td, TDICT_INDEX(TDICT_ALL), NULL, &outs[0], err));
  td_ok(tdict_reshape_view(w.td, 2, same, &outs[1], err));
  td_ok(tdict_reshape(w.td, 2, (const int64_t[]){2, -1}, &outs[2], err));
  td_ok(tdict_squeeze(w.td, TDICT_EVERY_DIM, &outs[3], err));
  td_ok(tdict_expand(w.td, 2, same, &outs[4], err));
  td_ok(tdict_permute(w.td, 2, straight, &outs[5], err));
  td_ok(tdict_split_every(w.td, 0, 4, &outs[6], &count, err));
  td_ok(tdict_clone(w.td, &outs[7], err));
  for (int i = 0; i < 8; i++) {
    assert_ptr_equal(thing_at(outs[i], &bare_type), before);
    tdict_release(outs[i]);
  }
  assert_int_equal(thing_count(), 1);
}

CASE(objects_keep_locks) {
  scoped_rig r = rig_open();
  scoped_twins w = make_twins(&r, &flat_type);
  tdict_lock(td_child(w.td, "n"));
  scoped_tree out = td_made(tree, tdict_transpose(w.td, 0, 1, &made, err));
  assert_false(tdict_is_locked(out));
  assert_true(tdict_is_locked(td_child(out, "n")));
  tdict_release(out);
  td_ok(tdict_index_get(NULL, w.td, TDICT_INDEX(TDICT_AT(0)), NULL, &out, err));
  assert_false(tdict_is_locked(td_child(out, "n")));
}

static void expect_failure(const named *o, const twins *w, tdict_status wanted, const char *text) {
  tdict_tree *const untouched = (tdict_tree *)(uintptr_t)0xA5A5, *out = untouched;
  int64_t alive = thing_count();
  char *before = help_snapshot(w->td);
  td_fails_at(wanted, text, "n.o", o->run(w->td, &out, err));
  assert_ptr_equal(out, untouched);
  assert_int_equal(thing_count(), alive);
  help_unchanged(w->td, before);
}

CASE(object_hook_errors_are_returned) {
  scoped_thing_rig r = rig_open();
  for (int i = 0; i < OPERATIONS; i++) {
    const named *o = &operations[i];
    print_message("%s\n", o->name);
    for (int hook = 0; hook < HOOKS; hook++) {
      if (hook > HOOK_UNFLATTEN && hook != o->hook) continue;
      scoped_twins w = make_twins(&r, hook > HOOK_UNFLATTEN ? &hooks_type : &flat_type);
      failing = hook;
      failure = TDICT_EIO;
      expect_failure(o, &w, TDICT_EIO, "the disk is gone");
      failure = -7;
      expect_failure(o, &w, TDICT_EHOOK, "returned -7");
      failure = TDICT_OK; /* now the hook returns TDICT_OK, but no object */
      expect_failure(o, &w, TDICT_EHOOK, "and no result");
      failing = -1;
    }
  }
}

DEVICE_CASE(objects_survive_enomem) {
  scoped_thing_rig r = rig_open();
  for (int i = 0; i < OPERATIONS; i++)
    for (int way = 0; way < 2; way++) {
      if (skipped(&r, &operations[i]) || (way && operations[i].hook < 0)) continue;
      scoped_twins w = make_twins(&r, way ? &hooks_type : &flat_type);
      tdict_tree *out = NULL;
      int64_t alive = thing_count();
      print_message("%s\n", operations[i].name);
      RIG_WITHOUT_MEMORY(w.td, (assert_int_equal(thing_count(), alive), operations[i].run(w.td, &out, err)));
      tdict_release(out);
      assert_int_equal(thing_count(), alive);
    }
}

CASE(objects_of_two_types_are_refused) {
  scoped_rig r = rig_open();
  scoped_twins w = make_twins(&r, &flat_type), other = make_twins(&r, &both_type);
  const tdict_tree *both[] = {w.td, other.td};
  tdict_tree *out = NULL;
  td_fails(TDICT_ETYPE, "of type flat in one tree, and of type both", tdict_stack(both, 2, NULL, NULL, &out, err));
  assert_string_equal(td_last_error.path, "n.o");
  td_fails(TDICT_ETYPE, "of type flat", tdict_cat(both, 2, NULL, NULL, &out, err));
  td_fails(TDICT_ETYPE, "of type flat", tdict_pad_sequence(both, 2, NULL, NULL, &out, err));
  td_fails(TDICT_ETYPE, "of type flat", tdict_apply(NULL, both, 2, copy_leaf, NULL, NULL, &out, err));
  both[1] = w.plain;
  td_fails(TDICT_ETYPE, "the key holds a tree in tree 1, but an object of type flat in tree 0",
           tdict_stack(both, 2, NULL, NULL, &out, err));
  td_fails(TDICT_ETYPE, "the key holds a tree in the source", tdict_copy(w.td, w.plain, NULL, err));
  td_fails(TDICT_ETYPE, "a tree in the value", tdict_index_set(NULL, w.td, TDICT_INDEX(TDICT_ALL), w.plain, NULL, err));
  assert_null(out);
}

/* If an operation uses the tensors of an object, these tensors must have the batch size of the tree. */
CASE(objects_with_another_batch_size_are_refused) {
  tdict_tree *td = TREE(2, 3), *out = NULL;
  td_ok(tdict_set_object(td, "o", &flat_type, thing_create(TENSOR(2, 3), TENSOR(5)), err));
  for (int i = 0; i < OPERATIONS; i++) {
    operation run = operations[i].run;
    if (run == do_clone_deep || run == do_apply || run == do_filter) continue;
    td_fails_at(TDICT_ESHAPE, "batch size is [2, 3], tensor has shape [5]", "o.b", run(td, &out, err));
  }
  td_fails(TDICT_ESHAPE, "[5]", tdict_index_set(NULL, td, TDICT_INDEX(TDICT_ALL), td, NULL, err));
  td_ok(do_clone_deep(td, &out, err)); /* any shape is allowed if the batch dimensions do not change */
  assert_true(tdict_equal(td, out));
  td_ok(tdict_copy(td, out, NULL, err));
  tdict_release(out);
  flat_has_object = true;
  td_fails(TDICT_EHOOK, "the tree from flatten holds an object of type inner", do_clone_deep(td, &out, err));
  flat_has_object = false;
  assert_string_equal(td_last_error.path, "o");
  tdict_release(td);
  assert_int_equal(thing_count(), 0);
}

DEVICE_CASE(objects_compared) {
  scoped_thing_rig r = rig_open();
  scoped_twins w = make_twins(&r, &flat_type), bare = make_twins(&r, &bare_type), other = make_twins(&r, &both_type);
  tdict_difference found;
  tdict_tree *copy = td_made(tree, tdict_clone_deep(w.td, NULL, &made, err));
  assert_true(tdict_equal(w.td, copy));
  td_ok(tdict_tensor_copy(thing_at(copy, &flat_type)->b, td_leaf(bare.plain, "n.o.b"), err));
  td_ok(tdict_get_difference(w.td, copy, NULL, &found, err));
  assert_true(found.differs);
  assert_string_equal(found.path, "n.o.b");
  assert_int_equal(found.ndim, 2);
  td_ok(tdict_get_difference(w.td, copy, td_options(tdict_difference_options, absolute = 255), &found, err));
  assert_false(found.differs);
  td_ok(tdict_copy(other.td, other.td, NULL, err)); /* itself */
  td_ok(tdict_update(copy, other.td, NULL, 0, err));
  td_ok(tdict_copy(copy, copy, NULL, err));
  td_ok(tdict_set(copy, "t", td_leaf(w.td, "t"), err));
  td_ok(tdict_get_difference(w.td, copy, NULL, &found, err));
  assert_string_equal(found.message, "objects of type flat and both");
  td_ok(tdict_get_difference(w.td, w.plain, NULL, &found, err));
  assert_string_equal(found.message, "an object of type flat and a tree");
  assert_true(tdict_equal(bare.td, bare.td)); /* an object equals itself; no hook is called */
  tdict_release(copy);
  td_ok(tdict_clone(bare.td, &copy, err));
  td_ok(tdict_set_object(copy, "n.o", &bare_type,
                         thing_create(tdict_tensor_retain(td_leaf(bare.plain, "n.o.a")),
                                      tdict_tensor_retain(td_leaf(bare.plain, "n.o.b"))),
                         err));
  td_fails(TDICT_ENOTSUP, "type bare have no flatten hook", tdict_get_difference(bare.td, copy, NULL, &found, err));
  assert_string_equal(td_last_error.path, "n.o");
  assert_false(tdict_equal(bare.td, copy));
  tdict_release(copy);
}

static tdict_status note_path(void *user, const tdict_leaves *at, tdict_error *err) {
  (void)err;
  help_add(user, "%s ", at->path);
  return TDICT_OK;
}
static tdict_status drop(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)err;
  if (!strstr(at->path, user)) *out = tdict_tensor_retain(at->tensors[0]);
  return TDICT_OK;
}

CASE(objects_visited) {
  scoped_thing_rig r = rig_open();
  scoped_twins w = make_twins(&r, &flat_type);
  help_text seen = {NULL, 0, 0, false};
  const tdict_tree *both[] = {w.td, w.td};
  td_ok(tdict_visit(NULL, both, 2, note_path, &seen, NULL, err));
  assert_string_equal(seen.text, "t n.o.a n.o.b ");
  free(seen.text);
  tdict_tree *out = td_made(tree, tdict_apply(NULL, both, 2, drop, (void *)(uintptr_t) "n.o", NULL, &made, err));
  help_paths(out, "t n");
  tdict_release(out);
  td_fails_at(TDICT_EINVAL, "1 tensors of an object of type flat are dropped, wanted all or none", "n.o",
              tdict_apply(NULL, both, 2, drop, (void *)(uintptr_t) "n.o.b", NULL, &out, err));
}
