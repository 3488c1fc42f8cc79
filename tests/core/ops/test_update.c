/* Tests that a tree is merged into another completely or not at all. */
#include "rig.h"

DEVICE_CASE(update_merges) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4), *s = SAMPLE(4);
  m_array *z = rig_array(TDICT_I16, s, 0, NULL);
  m_put(m_find(s, "n")->tree, "z", z, NULL);
  m_drop(m_find(s, "n")->tree, "b");
  m_drop(s, "a");
  scoped_tree td = rig_tree(&r, t), from = rig_tree(&r, s);
  tdict_tree *n = td_child(td, "n");
  tdict_tensor *a = td_leaf(td, "a");
  rig_check(&r, t, td);
  rig_check(&r, s, from);
  td_ok(tdict_update(td, from, NULL, 0, err));
  m_put(m_find(m_find(t, "n")->tree, "m")->tree, "u", m_find(m_find(m_find(s, "n")->tree, "m")->tree, "u")->array,
        NULL);
  m_put(m_find(t, "n")->tree, "z", z, NULL);
  rig_check(&r, t, td);
  help_paths(td, "a n n.b n.m n.m.u n.z e");
  assert_ptr_equal(td_child(td, "n"), n); /* the existing child is kept */
  assert_ptr_equal(td_leaf(td, "a"), a);
  assert_ptr_equal(td_leaf(td, "n.z"), td_leaf(from, "n.z"));
  assert_ptr_not_equal(td_child(td, "n.m"), td_child(from, "n.m"));
  char *before = help_snapshot(td);
  td_ok(tdict_update(td, td, NULL, 0, err));
  help_unchanged(td, before);
}

CASE(update_takes_paths) {
  scoped_tree td = TREE(4), from = ops_tree(SAMPLE(4));
  const char *const paths[] = {"n.m", "a"};
  td_ok(tdict_update(td, from, paths, 2, err));
  help_paths(td, "n n.m n.m.u a");
  assert_int_equal(tdict_batch_ndim(td_child(td, "n.m")), 2);
}

CASE(update_replaces_leaves_of_another_kind) {
  scoped_tree td = td_tree("[2] x:f32[2]"), from = TREE(2);
  td_put_tree(td, "y", TREE(2));
  td_put_tree(from, "x", TREE(2));
  td_put(from, "y", TENSOR(2));
  td_ok(tdict_update(td, from, NULL, 0, err));
  assert_ptr_equal(td_leaf(td, "y"), td_leaf(from, "y"));
  (void)td_child(td, "x");
}

CASE(update_makes_no_cycle) {
  /* without copies, p and q would contain each other */
  scoped_tree td = TREE(2), from = TREE(2), p = td_tree("[2] t:f32[2]"), q = td_tree("[2] t:f32[2]");
  td_ok(tdict_set_tree(td, "p", p, err));
  td_ok(tdict_set_tree(td, "q", q, err));
  td_ok(tdict_set_tree(from, "p.k", q, err));
  td_ok(tdict_set_tree(from, "q.k", p, err));
  td_ok(tdict_update(td, from, NULL, 0, err));
  help_paths(td, "p p.t p.k p.k.t q q.t q.k q.k.t");
  td_ok(tdict_update(td, td_child(td, "p"), NULL, 0, err)); /* the source is a child of the destination */
  help_paths(td, "p p.t p.k p.k.t q q.t q.k q.k.t t k k.t");
  td_ok(tdict_update(p, td, NULL, 0, err)); /* the source contains the destination */
  assert_true(tdict_has(p, "p.k.t") && !tdict_has(p, "p.p"));
}

CASE(update_merges_twice_into_one_child) {
  /* a tree at two paths of the destination gets the source's keys from each of these paths */
  scoped_tree td = TREE(2), from = TREE(2), n = TREE(2);
  td_ok(tdict_set_tree(td, "x", n, err));
  td_ok(tdict_set_tree(td, "y", n, err));
  td_put(from, "x.a", TENSOR(2));
  td_put(from, "y.b", TENSOR(2));
  td_ok(tdict_update(td, from, NULL, 0, err));
  help_paths(n, "a b");
}

CASE(update_is_atomic) {
  scoped_tree td = ops_tree(SAMPLE(4)), from = ops_tree(SAMPLE(4));
  char *before = help_snapshot(td);
  td_put_tree(from, "z", help_tree(0, NULL));
  scoped_tree wrong = help_tree(0, NULL);
  td_put(wrong, "deep.t", TENSOR(9));
  scoped_tree loose = help_tree(0, NULL);
  const char *const keep[] = {"a"};
  td_ok(tdict_update(loose, from, keep, 1, err)); /* `loose` has no batch size, so any shape is allowed */
  td_ok(tdict_set_tree(loose, "z", wrong, err));
  td_fails_at(TDICT_ESHAPE, "batch size is [4]", "z.deep.t", tdict_update(td, loose, NULL, 0, err));
  help_unchanged(td, before);
  before = help_snapshot(td);
  tdict_lock(td_child(td, "n.m"));
  free(before);
  before = help_snapshot(td);
  td_fails_at(TDICT_ELOCKED, "locked", "n.m.u", tdict_update(td, from, NULL, 0, err));
  help_unchanged(td, before);
}

CASE(update_refuses) {
  scoped_tree td = ops_tree(SAMPLE(4)), from = ops_tree(SAMPLE(4)), other = TREE(5);
  const char *const missing[] = {"a", "q"};
  char *before = help_snapshot(td);
  td_fails(TDICT_EINVAL, "src is NULL", tdict_update(td, NULL, NULL, 0, err));
  td_fails(TDICT_EINVAL, "dst is NULL", tdict_update(NULL, td, NULL, 0, err));
  td_fails(TDICT_ENOTFOUND, "not a key", tdict_update(td, from, missing, 2, err));
  td_put(other, "w", TENSOR(5));
  td_fails_at(TDICT_ESHAPE, "[5]", "w", tdict_update(td, other, NULL, 0, err));
  tdict_device cpu = tdict_cpu();
  td_ok(tdict_set_device(td, &cpu, err));
  free(before);
  before = help_snapshot(td);
  td_put(from, "d", help_tensor_on(tdict_sim(3), COUNTS(4)));
  td_fails(TDICT_EWRONGDEVICE, "sim:3", tdict_update(td, from, NULL, 0, err));
  help_unchanged(td, before);
}

CASE(update_survives_enomem) {
  scoped_tree td = ops_tree(SAMPLE(4)), from = ops_tree(SAMPLE(4));
  td_put(from, "new.deep.t", TENSOR(4));
  td_ok(tdict_delete(td, "n.m", err));
  RIG_WITHOUT_MEMORY(td, tdict_update(td, from, NULL, 0, err));
  help_paths(td, "a n n.b n.m n.m.u e new new.deep new.deep.t");
}

/* One call adds a tree "k", merges another tree into it, and replaces it. The parent of "k" is at three paths. */
CASE(update_of_a_child_at_several_paths) {
  scoped_tree dst = TREE(2), node = TREE(2), src = TREE(2);
  static const char *const places[] = {"p", "q", "r"};
  for (int i = 0; i < 3; i++) td_ok(tdict_set_tree(dst, places[i], node, err));
  td_release(node);
  td_put_tree(src, "p.k", TREE(2));
  td_put(src, "q.k.x", TENSOR(2));
  tdict_tensor *last = td_put(src, "r.k", TENSOR(2));
  td_ok(tdict_update(dst, src, NULL, 0, err));
  for (int i = 0; i < 3; i++) assert_ptr_equal(td_leaf(td_child(dst, places[i]), "k"), last);
}
