/* Tests setting trees in other trees. A child gets the batch size and device of its parent, or is refused. */
#include "core/tree/agree.h"

#include "help.h"

CASE(tree_set_tree_grows_batch) {
  const tdict_device cpu = tdict_cpu();
  scoped_tree td = TREE(4, 3), child = TREE(4), exact = TREE(4, 3), longer = TREE(4, 3, 2);
  td_ok(tdict_set_device(td, &cpu, err));
  tdict_tensor *x = td_put(child, "x", TENSOR(4, 3, 2)), *z = td_put(child, "n.m.z", TENSOR(4, 3));
  td_put_tree(child, "long", TREE(4, 3, 5));
  td_put(child, "long.y", TENSOR(4, 3, 5));
  tdict_lock(child);
  char *before = help_snapshot(child);
  td_ok(tdict_set_tree(td, "c", child, err));
  help_unchanged(child, before);
  tdict_tree *copy = td_child(td, "c");
  assert_ptr_not_equal(copy, child);
  assert_false(tdict_is_locked(copy));
  static const char *const nodes[] = {"c", "c.n", "c.n.m", "c.long"};
  for (size_t i = 0; i < 4; i++) {
    const tdict_tree *node = td_child(td, nodes[i]);
    tdict_device device = {0, 0};
    assert_int_equal(tdict_batch_ndim(node), i == 3 ? 3 : 2);
    assert_memory_equal(tdict_batch_size(node), ((const int64_t[]){4, 3, 5}), i == 3 ? 24 : 16);
    assert_true(tdict_get_device(node, &device) && tdict_device_equal(device, cpu));
  }
  assert_ptr_equal(td_leaf(td, "c.x"), x); /* the tensors are shared */
  assert_ptr_equal(td_leaf(td, "c.n.m.z"), z);
  help_paths(td, "c c.x c.n c.n.m c.n.m.z c.long c.long.y");
  td_put(td, "c.new", TENSOR(4, 3)); /* `child` is independent of its copy */
  assert_false(tdict_has(child, "new"));
  /* A child that already has the batch size and the device is not copied. */
  td_ok(tdict_set_device(exact, &cpu, err));
  td_ok(tdict_set_device(longer, &cpu, err));
  td_ok(tdict_set_tree(td, "exact", exact, err));
  td_ok(tdict_set_tree(td, "way.longer", longer, err));
  assert_ptr_equal(td_child(td, "exact"), exact);
  assert_ptr_equal(td_child(td, "way.longer"), longer);
  td_put(exact, "later", TENSOR(4, 3));
  assert_true(tdict_has(td, "exact.later"));
}

/* If an allocation fails, the error has the path of the child or of a tree below it. */
CASE(tree_set_tree_names_the_child_without_memory) {
  enum { DEPTH = 40 };
  scoped_tree td = TREE(4, 3), child = TREE(4);
  tdict_tree *at = child;
  td_put_tree(td, "a", TREE(4, 3));
  for (int i = 0; i < DEPTH; i++) {
    td_put(at, "x", TENSOR(4, 3));
    at = td_put_tree(at, "n", TREE(4));
  }
  char *before = help_snapshot(child);
  TD_WITHOUT_MEMORY_THEN(tdict_set_tree(td, "a.c", child, err), assert_int_equal(strncmp(err->path, "a.c", 3), 0));
  help_unchanged(child, before);
  assert_int_equal(tdict_batch_ndim(td_child(td, "a.c")), 2);
}

/* A tree without tensors fits everywhere. If necessary, a copy with the parent's batch size is set. */
CASE(tree_set_tree_takes_empty_children) {
  scoped_tree td = TREE(4), child = TREE(5, 2);
  td_put_tree(child, "n", TREE(5, 2, 1));
  td_ok(tdict_set_tree(td, "c", child, err));
  const tdict_tree *copy = td_child(td, "c"), *below = td_child(td, "c.n");
  assert_int_equal(tdict_batch_ndim(copy), 1);
  assert_int_equal(tdict_batch_size(copy)[0], 4);
  assert_int_equal(tdict_batch_ndim(below), 1);
  assert_int_equal(tdict_batch_size(below)[0], 4);
  assert_int_equal(tdict_batch_size(child)[0], 5);
  assert_int_equal(tdict_batch_size(td_child(child, "n"))[0], 5);
}

/* A tree that is at two paths of a child is copied only once, and its copy is at both paths. */
CASE(tree_set_tree_copies_shared_trees_once) {
  enum { LEVELS = 60 }; /* 2^60 paths lead to the last tree */
  scoped_tree td = TREE(2, 3), child = td_tree("[2] x:f32[2,3]");
  for (int i = 0; i < LEVELS; i++) {
    tdict_tree *above = TREE(2);
    td_ok(tdict_set_tree(above, "left", child, err));
    td_put_tree(above, "right", child);
    child = above;
  }
  td_ok(tdict_set_tree(td, "c", child, err));
  tdict_tree *node = td_child(td, "c");
  for (int i = 0; i < LEVELS; i++) {
    assert_ptr_equal(td_child(node, "left"), td_child(node, "right"));
    node = td_child(node, "left");
    assert_int_equal(tdict_batch_ndim(node), 2);
  }
  tdict_lock(td);
  assert_true(tdict_is_locked(node));
  td_ok(tdict_unlock(td, err));
  assert_false(tdict_is_locked(node));
  td_ok(tdict_set_batch_size(td, 1, (const int64_t[]){2}, err));
  td_fails(TDICT_EINVAL, "is, or contains, the tree", tdict_set_tree(node, "x", td, err));
}

CASE(tree_set_tree_refuses) {
  const tdict_device sim = tdict_sim(0), other = tdict_sim(1);
  scoped_tree td = TREE(4, 3), child = TREE(4), wrong = TREE(4, 2), empty = TREE(4, 3);
  td_put(child, "n.good", TENSOR(4, 3));
  td_put(child, "n.bad", TENSOR(4, 2, 7));
  td_put(wrong, "x", TENSOR(4, 2));
  char *before = help_snapshot(td);
  td_fails(TDICT_ESHAPE, "batch size is [4, 3], tensor has shape [4, 2, 7]", tdict_set_tree(td, "a.c", child, err));
  assert_string_equal(td_last_error.path, "a.c.n.bad");
  td_fails_at(TDICT_ESHAPE, "batch size is [4, 3], the tree has [4, 2]", "c", tdict_set_tree(td, "c", wrong, err));
  td_ok(tdict_set_tree(child, "wrong", wrong, err));
  td_ok(tdict_delete(child, "n.bad", err));
  td_fails_at(TDICT_ESHAPE, "the tree has [4, 2]", "c.wrong", tdict_set_tree(td, "c", child, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_set_tree(NULL, "c", child, err));
  td_fails(TDICT_EINVAL, "path is NULL", tdict_set_tree(td, NULL, child, err));
  td_fails(TDICT_EINVAL, "child is NULL", tdict_set_tree(td, "c", NULL, err));
  help_unchanged(td, before);
  td_ok(tdict_delete(child, "wrong", err));
  td_ok(tdict_set_device(td, &sim, err));
  td_fails(TDICT_EWRONGDEVICE, "device is sim:0, the tensor is on cpu", tdict_set_tree(td, "c", child, err));
  assert_string_equal(td_last_error.path, "c.n.good");
  td_ok(tdict_set_device(empty, &other, err));
  td_fails(TDICT_EWRONGDEVICE, "device is sim:0, the tree put below it is on sim:1",
           tdict_set_tree(td, "c", empty, err));
  assert_int_equal(tdict_num_keys(td), 0);
  assert_false(tdict_get_device(child, NULL));
}

CASE(tree_set_tree_refuses_cycle) {
  scoped_tree td = td_tree("[2] n.m.x:f32[2]"), other = TREE(2);
  tdict_tree *n = td_child(td, "n"), *m = td_child(td, "n.m");
  td_ok(tdict_set_tree(other, "deep.td", td, err));
  char *before = help_snapshot(other);
  td_fails_at(TDICT_EINVAL, "is, or contains, the tree", "self", tdict_set_tree(td, "self", td, err));
  td_fails(TDICT_EINVAL, "is, or contains, the tree", tdict_set_tree(td, "new.way.self", td, err));
  td_fails(TDICT_EINVAL, "is, or contains, the tree", tdict_set_tree(td, "n.m.up", n, err));
  td_fails(TDICT_EINVAL, "is, or contains, the tree", tdict_set_tree(td, "n.m.new.up", td, err));
  td_fails(TDICT_EINVAL, "is, or contains, the tree", tdict_set_tree(m, "up", m, err));
  td_fails(TDICT_EINVAL, "is, or contains, the tree", tdict_set_tree(n, "up", other, err));
  td_fails(TDICT_EINVAL, "is, or contains, the tree", tdict_set_tree(n, "m", td, err)); /* even if td would replace m */
  help_unchanged(other, before);
  td_ok(tdict_set_tree(td, "n", m, err)); /* m does not contain td, so m can replace n */
  help_paths(td, "n n.x");
  td_ok(tdict_set_tree(td, "twice", m, err)); /* m can also be in td twice */
}

/* A copy with more batch dimensions shares no nodes, so later keys and locks of the original do not affect it. */
CASE(tree_set_tree_copies_all_nodes) {
  scoped_tree td = TREE(2, 3), child = td_tree("[2] short.x:f32[2,3]"), renamed = TREE(2);
  td_put_tree(child, "long", TREE(2, 3));
  td_put(child, "long.deep.y", TENSOR(2, 3));
  assert_int_equal(tdict_batch_ndim(td_child(child, "long.deep")), 2);
  td_ok(tdict_set_tree(td, "c", child, err));
  static const char *const nodes[] = {"short", "long", "long.deep"};
  for (int i = 0; i < 3; i++) assert_ptr_not_equal(td_child(td_child(td, "c"), nodes[i]), td_child(child, nodes[i]));
  assert_ptr_equal(td_leaf(td, "c.long.deep.y"), td_leaf(child, "long.deep.y"));
  td_put(child, "long.deep.new", TENSOR(2, 3));
  assert_false(tdict_has(td, "c.long.deep.new"));
  tdict_lock(child);
  td_put(td, "c.long.deep.mine", TENSOR(2, 3));
  assert_false(tdict_has(child, "long.deep.mine"));
  tdict_lock(td);
  td_ok(tdict_unlock(child, err));
  assert_false(tdict_is_locked(td_child(child, "long.deep")));
  assert_true(tdict_is_locked(td_child(td, "c.long.deep")));
  td_ok(tdict_unlock(td, err));
  /* The same is true if tdict_rename() moves the tree. */
  td_ok(tdict_set_tree(renamed, "from", child, err));
  td_ok(tdict_set_tree(renamed, "to", td, err));
  td_ok(tdict_rename(renamed, "from", "to.c2", false, err));
  assert_ptr_not_equal(td_child(renamed, "to.c2.long.deep"), td_child(child, "long.deep"));
}
