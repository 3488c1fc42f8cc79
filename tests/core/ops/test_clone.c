/* Tests shallow, deep and consolidated copies of trees on each device. */

#include "core/tree/cursor.h"
#include "support/threads.h"
#include "twins.h"

DEVICE_CASE(clone_shallow_shares) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(3);
  scoped_tree td = rig_tree(&r, t), out = NULL;
  rig_check(&r, t, td);
  tdict_lock(td);
  char *before = help_snapshot(td);
  td_ok(tdict_clone(td, &out, err));
  assert_false(tdict_is_locked(out));
  rig_check(&r, t, out);
  assert_ptr_equal(td_leaf(out, "n.m.u"), td_leaf(td, "n.m.u"));
  assert_ptr_not_equal(td_child(out, "n.m"), td_child(td, "n.m"));
  td_ok(tdict_delete(out, "n.b", err));
  td_put(out, "n.new", TENSOR(3));
  td_ok(tdict_rename(out, "a", "z", false, err));
  help_unchanged(td, before);
  help_paths(out, "z n n.m n.m.u n.new e");
  td_fails(TDICT_EINVAL, "NULL", tdict_clone(NULL, &out, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_clone(td, NULL, err));
}

DEVICE_CASE(clone_deep_copies) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4, 3);
  scoped_tree td = rig_tree(&r, t), turned = NULL, out = NULL;
  tdict_device device = td_device();
  td_ok(tdict_set_device(td, &device, err));
  m_map map = m_map_whole(t->nb, t->bs);
  map.shape[0] = 3, map.shape[1] = 4;
  map.out[0] = 1, map.out[1] = 0;
  map.copies = true;
  td_ok(tdict_transpose(td, 0, 1, &turned, err));
  tdict_lock(turned);
  td_ok(tdict_clone_deep(turned, NULL, &out, err));
  td_release(turned);
  assert_false(tdict_is_locked(out));
  rig_shares(td, out, false);
  assert_true(tdict_tensor_is_contiguous(td_leaf(out, "n.b")));
  assert_true(tdict_tensor_shares_storage(td_leaf(out, "a"), td_leaf(out, "n.b")));
  assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(out, "a")), td_device()));
  m_tree *made = rig_mapped(t, &map);
  assert_true(tdict_get_device(out, &device) && tdict_device_equal(device, td_device()));
  td_ok(tdict_set_device(out, NULL, err));
  td_ok(tdict_fill(td, NULL, 0, NULL, err)); /* the copy must not change */
  rig_check(&r, made, out);
  td_release(out);
  if (r.context) { /* pinned memory is on the host, so the tree's device becomes the CPU */
    td_ok(tdict_clone_deep(td, TD_IN(tdict_pinned_memory(r.context)), &out, err));
    assert_true(tdict_tensor_is_pinned(td_leaf(out, "n.m.u")));
    assert_true(tdict_get_device(out, &device) && tdict_device_equal(device, tdict_cpu()));
    td_release(out);
  }
  td_fails(TDICT_EINVAL, "NULL", tdict_clone_deep(NULL, NULL, &out, err));
}

CASE(clone_survives_enomem) {
  scoped_tree td = ops_tree(SAMPLE(3)), out = NULL;
  RIG_WITHOUT_MEMORY(td, tdict_clone(td, &out, err));
  td_release(out);
  RIG_WITHOUT_MEMORY(td, tdict_clone_deep(td, NULL, &out, err));
}

CASE(clone_of_a_deep_tree) {
  /* too deep for a recursive function */
  enum { LEVELS = 10000 / SANITIZED_STEP };
  scoped_tree td = td_tree("[2] x:f32[2]"), out = NULL;
  for (int i = 0; i < LEVELS; i++) {
    tdict_tree *above = TREE(2);
    td_put_tree(above, "d", td);
    td = above;
  }
  td_ok(tdict_clone_deep(td, NULL, &out, err));
  assert_int_equal(tdict_depth(out), LEVELS);
  assert_true(tdict_equal(td, out));
  tdict_release(out);
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(0)), NULL, &out, err));
  assert_int_equal(tdict_depth(out), LEVELS);
}

enum { SHARED_KEYS = 20 };
static tdict_tree *flat_tree(void) {
  tdict_tree *td = TREE(3);
  for (int i = 0; i < SHARED_KEYS; i++) td_put(td, td_text("key %d", i), TENSOR(3));
  return td;
}

/* The tensor and the trees that the changes need. They are made before allocations are set to fail. */
typedef struct material {
  tdict_tensor *tensor;
  tdict_tree *tree, *part;
} material;
typedef tdict_status (*change)(tdict_tree *td, const material *m, tdict_error *err);

static tdict_status set_there(tdict_tree *td, const material *m, tdict_error *err) {
  return tdict_set(td, "key 7", m->tensor, err);
}
static tdict_status set_new(tdict_tree *td, const material *m, tdict_error *err) {
  return tdict_set(td, "new", m->tensor, err);
}
static tdict_status set_below(tdict_tree *td, const material *m, tdict_error *err) {
  return tdict_set(td, "a.way", m->tensor, err);
}
static tdict_status set_tree(tdict_tree *td, const material *m, tdict_error *err) {
  return tdict_set_tree(td, "key 3", m->tree, err);
}
static tdict_status delete_one(tdict_tree *td, const material *m, tdict_error *err) {
  (void)m;
  return tdict_delete(td, "key 0", err);
}
static tdict_status rename_one(tdict_tree *td, const material *m, tdict_error *err) {
  (void)m;
  return tdict_rename(td, "key 1", "z", false, err);
}
static tdict_status rename_over(tdict_tree *td, const material *m, tdict_error *err) {
  (void)m;
  return tdict_rename(td, "key 1", "key 2", false, err);
}
static tdict_status rename_below(tdict_tree *td, const material *m, tdict_error *err) {
  (void)m;
  return tdict_rename(td, "key 1", "a.way", false, err);
}
static tdict_status pop_one(tdict_tree *td, const material *m, tdict_error *err) {
  tdict_tensor *t = NULL;
  (void)m;
  tdict_status status = tdict_pop(td, "key 9", &t, err);
  if (status == TDICT_OK) tdict_tensor_release(t);
  return status;
}
static tdict_status update_some(tdict_tree *td, const material *m, tdict_error *err) {
  return tdict_update(td, m->part, NULL, 0, err);
}

static const change changes[] = {set_there,  set_new,     set_below,    set_tree, delete_one,
                                 rename_one, rename_over, rename_below, pop_one,  update_some};
enum { NUM_CHANGES = sizeof changes / sizeof *changes };

static material open_material(void) {
  material m = {TENSOR(3), flat_tree(), flat_tree()};
  td_ok(tdict_delete(m.part, "key 4", err));
  return m;
}
static void close_material(material *m) { td_release(m->tensor, m->tree, m->part); }

/* Clones share one list of leaves, but a change to one tree must not appear in the others. */
CASE(clone_and_original_change_independently) {
  material m = open_material();
  for (int i = 0; i < NUM_CHANGES; i++)
    for (int which = 0; which < 3; which++) {
      tdict_tree *trees[3] = {flat_tree(), NULL, NULL};
      td_ok(tdict_clone(trees[0], &trees[1], err));
      td_ok(tdict_clone(trees[1], &trees[2], err));
      assert_ptr_equal(trees[0]->leaves, trees[2]->leaves);
      scoped_chars before = help_snapshot(trees[0]);
      td_ok(changes[i](trees[which], &m, err));
      for (int t = 0; t < 3; t++) {
        if (t == which) continue;
        scoped_chars now = help_snapshot(trees[t]);
        assert_string_equal(now, before);
      }
      for (int t = 0; t < 3; t++) tdict_release(trees[(t + i) % 3]);
    }
  close_material(&m);
}

/* If a clone cannot allocate its own list of leaves, the clone and its source must stay unchanged. */
CASE(clone_changes_survive_enomem) {
  material m = open_material();
  for (int i = 0; i < NUM_CHANGES; i++) TD_SWEEP(s) {
      scoped_tree td = flat_tree(), clone = td_made(tree, tdict_clone(td, &made, err));
      scoped_chars before = help_snapshot(td);
      if (td_sweep_call(s, changes[i](clone, &m, err)) != TDICT_OK) help_is(clone, before);
      help_is(td, before);
    }
  close_material(&m);
}

typedef struct cloner {
  const tdict_tree *source;
  int number;
  bool good;
} cloner;

/* Clones a tree that other threads also read and clone, and changes the clones. */
static void *clone_and_change(void *user) {
  cloner *c = user;
  c->good = true;
  for (int i = 0; i < 200; i++) {
    scoped_tree clone = NULL;
    char name[16];
    snprintf(name, sizeof name, "key %d", (i + c->number) % SHARED_KEYS);
    c->good = c->good && tdict_clone(c->source, &clone, NULL) == TDICT_OK;
    c->good = c->good && tdict_delete(clone, name, NULL) == TDICT_OK && tdict_has(c->source, name);
    c->good = c->good && tdict_set(clone, "another", td_leaf(c->source, "key 0"), NULL) == TDICT_OK;
    c->good = c->good && tdict_num_keys(clone) == SHARED_KEYS && tdict_num_keys(c->source) == SHARED_KEYS;
  }
  return NULL;
}

CASE(clone_in_several_threads) {
  enum { THREADS = 4 };
  scoped_tree td = flat_tree();
  pthread_t threads[THREADS];
  cloner cloners[THREADS];
  for (int i = 0; i < THREADS; i++) {
    cloners[i] = (cloner){td, i, false};
    threads[i] = td_start(clone_and_change, &cloners[i]);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; i++) assert_true(cloners[i].good);
}

/* Checks that all tensors of `out` are in one storage, in tree order, each at the next multiple of 256 bytes. Returns
 * the size of the storage. */
static size_t check_one_storage(const tdict_tree *out) {
  scoped_tensor bytes = td_made(tensor, tdict_consolidated_bytes(out, &made, err));
  assert_int_equal(tdict_tensor_dtype(bytes), TDICT_U8);
  assert_int_equal(tdict_tensor_ndim(bytes), 1);
  assert_true(tdict_tensor_is_contiguous(bytes));
  size_t at = 0;
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, out, false);
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(&cursor)) != 0;) {
    const tdict_tensor *t = tdict_leaf_tensor(leaf);
    if (tdict_leaf_tree(leaf)) assert_true(tdict_cursor_enter(&cursor, tdict_leaf_tree(leaf)));
    if (!t) continue;
    assert_true(tdict_tensor_is_contiguous(t));
    assert_ptr_equal(t->storage, bytes->storage);
    assert_int_equal((char *)t->data - (char *)bytes->data, at);
    at += (tdict_tensor_bytes(t) + 255) / 256 * 256;
  }
  tdict_cursor_reset(&cursor);
  assert_int_equal(tdict_tensor_bytes(bytes), at);
  return at;
}

DEVICE_CASE(consolidate_copies_into_one_storage) {
  scoped_rig r = rig_open();
  m_tree *t = SAMPLE(4, 3);
  m_map map = m_map_whole(t->nb, t->bs);
  map.shape[0] = 3, map.shape[1] = 4;
  map.out[0] = 1, map.out[1] = 0;
  map.copies = true;
  tdict_memory *const memories[] = {r.memory, NULL, r.context ? tdict_pinned_memory(r.context) : NULL};
  for (int i = 0; i < 3; i++) {
    scoped_tree td = rig_tree(&r, t), turned = NULL, out = NULL;
    tdict_device device = td_device();
    td_ok(tdict_set_device(td, &device, err));
    td_ok(tdict_transpose(td, 0, 1, &turned, err)); /* makes the tensors strided */
    m_tree *made = rig_mapped(t, &map);
    made->locked = true;
    td_ok(tdict_consolidate(turned, memories[i], &out, err));
    assert_true(tdict_is_consolidated(out) && tdict_is_locked(out));
    assert_true(check_one_storage(out) > 0);
    assert_int_equal(tdict_tensor_is_pinned(td_leaf(out, "a")), i == 2 && r.context);
    const tdict_device wanted = i == 0 ? td_device() : tdict_cpu();
    assert_true(tdict_get_device(out, &device) && tdict_device_equal(device, wanted));
    td_ok(tdict_unlock(out, err));
    td_ok(tdict_set_device(out, NULL, err));
    tdict_lock(out);
    td_ok(tdict_fill(td, NULL, 0, NULL, err)); /* the copy must not change */
    rig there = i == 0 ? r : (rig){0};
    rig_check(&there, made, out);
  }
}

/* In the result, each tensor has its own bytes. */
CASE(consolidate_separates_shared_bytes) {
  scoped_tree td = TREE(3), child = TREE(3);
  tdict_tree *out = NULL, *again = NULL;
  tdict_tensor *x = td_put(child, "x", TENSOR(3)), *bytes = NULL;
  td_ok(tdict_set_tree(td, "left", child, err));
  td_ok(tdict_set_tree(td, "right", child, err));
  td_ok(tdict_set(td, "same", x, err));
  td_put(td, "none", TENSOR(3, 0));
  td_ok(tdict_consolidate(td, NULL, &out, err));
  assert_int_equal(check_one_storage(out), 3 * 256);
  help_paths(out, "left left.x right right.x same none");
  assert_ptr_not_equal(td_leaf(out, "left.x")->data, td_leaf(out, "right.x")->data);
  td_ok(tdict_consolidated_bytes(out, &bytes, err));
  const unsigned char *all = tdict_tensor_const_data(bytes);
  for (int i = 0; i < 3; i++) assert_memory_equal(all + 256 * i, x->data, tdict_tensor_bytes(x));
  memset(tdict_tensor_data(td_leaf(out, "left.x")), 7, tdict_tensor_bytes(x)); /* its elements may be written */
  assert_int_equal(all[0], 7);
  assert_memory_equal(all + 256, x->data, tdict_tensor_bytes(x));
  td_ok(tdict_consolidate(out, NULL, &again, err)); /* copies again */
  assert_ptr_not_equal(td_leaf(again, "left.x")->storage, td_leaf(out, "left.x")->storage);
  assert_true(tdict_equal(out, again));
  td_release(again, out);
  assert_int_equal(all[0], 7); /* the bytes outlive the tree */
  tdict_tensor_release(bytes);
}

CASE(consolidate_refuses) {
  tdict_tree *td = TREE(3), *out = NULL;
  tdict_tensor *bytes = NULL;
  td_put(td, "n.x", TENSOR(3));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_consolidate(NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_consolidate(td, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_consolidated_bytes(NULL, &bytes, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_consolidated_bytes(td, NULL, err));
  td_fails(TDICT_EINVAL, "not consolidated", tdict_consolidated_bytes(td, &bytes, err));
  assert_false(tdict_is_consolidated(NULL) || tdict_is_consolidated(td));
  static const tdict_type type = TD_TYPE(.name = "thing", .release = help_end_thing);
  int ends = 0;
  help_thing *object = help_make_thing(&ends, 8, "text");
  td_ok(tdict_set_object(td, "n.text", &type, object, err));
  char *before = help_snapshot(td);
  td_fails_at(TDICT_ENOTSUP, "wanted tensors, trees, text", "n.text", tdict_consolidate(td, NULL, &out, err));
  help_unchanged(td, before);
  assert_null(out);
  assert_null(bytes);
  tdict_release(td);
  assert_int_equal(ends, 1);
}

/* Text, numbers and JSON are shared, as in TensorDict. A tree that has only text can also be consolidated. */
CASE(consolidate_shares_values) {
  scoped_tree td = TREE(2), out = NULL;
  static const char *const texts[] = {"p", "q"};
  td_ok(tdict_set_text(td, "n.text", "hello", err));
  td_ok(tdict_set_texts(td, "m.column", texts, 2, err));
  for (int i = 0; i < 2; i++) {
    td_ok(tdict_consolidate(td, NULL, &out, err));
    assert_true(tdict_is_consolidated(out) && tdict_is_locked(out));
    assert_int_equal(check_one_storage(out), i ? 256 : 0);
    assert_true(tdict_equal(td, out));
    const char *text = NULL;
    td_ok(tdict_get_text(out, "m.column", 1, &text, NULL, err));
    assert_string_equal(text, "q");
    td_release(out);
    td_put(td, "m.x", TENSOR(2));
  }
  td_ok(tdict_set_unbatched(td, "u", td_leaf(td, "m.x"), err));
  out = NULL;
  td_fails_at(TDICT_ENOTSUP, "unbatched", "u", tdict_consolidate(td, NULL, &out, err));
  assert_null(out);
}

CASE(consolidate_empty_trees) {
  scoped_tree td = TREE(2), out = NULL;
  td_put_tree(td, "n", TREE(2));
  td_ok(tdict_consolidate(td, NULL, &out, err));
  assert_true(tdict_is_consolidated(out));
  assert_int_equal(check_one_storage(out), 0);
  tdict_release(out);
  td_put(td, "none", TENSOR(2, 0));
  td_ok(tdict_consolidate(td, NULL, &out, err));
  scoped_tensor bytes = td_made(tensor, tdict_consolidated_bytes(out, &made, err));
  assert_int_equal(tdict_tensor_bytes(bytes), 0);
}

CASE(consolidate_survives_enomem) {
  scoped_tree td = ops_tree(SAMPLE(3)), out = NULL;
  RIG_WITHOUT_MEMORY(td, tdict_consolidate(td, NULL, &out, err));
  assert_true(tdict_is_consolidated(out));
}

/* A tree stays consolidated until it or a parent is unlocked. Its copies, views and children are not consolidated. */
CASE(consolidated_until_unlocked) {
  scoped_tree td = TREE(2), parent = TREE(2), out = NULL;
  tdict_tree *other = NULL;
  scoped_tensor bytes = NULL, t = TENSOR(2);
  td_put(td, "n.x", TENSOR(2));
  td_ok(tdict_consolidate(td, NULL, &out, err));
  td_fails(TDICT_ELOCKED, "locked", tdict_set(out, "n.x", t, err));
  td_fails(TDICT_ELOCKED, "locked", tdict_delete(out, "n", err));
  td_fails(TDICT_ELOCKED, "locked", tdict_unlock(td_child(out, "n"), err));
  assert_true(tdict_is_consolidated(out));
  assert_false(tdict_is_consolidated(td_child(out, "n")));
  td_ok(tdict_clone(out, &other, err));
  assert_false(tdict_is_consolidated(other));
  tdict_release(other);
  td_ok(tdict_clone_deep(out, NULL, &other, err));
  assert_false(tdict_is_consolidated(other));
  tdict_release(other);
  td_ok(tdict_index_get(NULL, out, TDICT_INDEX(TDICT_AT(0)), NULL, &other, err));
  assert_false(tdict_is_consolidated(other));
  tdict_release(other);
  td_ok(tdict_unlock(out, err));
  assert_false(tdict_is_consolidated(out));
  tdict_lock(out); /* locking again does not make it consolidated */
  assert_false(tdict_is_consolidated(out));
  td_fails(TDICT_EINVAL, "not consolidated", tdict_consolidated_bytes(out, &bytes, err));
  tdict_release(out);
  /* After its parent is unlocked, the tree is no longer consolidated. Releasing a locked parent has no such effect. */
  td_ok(tdict_consolidate(td, NULL, &out, err));
  td_ok(tdict_set_tree(parent, "child", out, err));
  tdict_lock(parent);
  assert_true(tdict_is_consolidated(out));
  tdict_release(parent);
  assert_true(tdict_is_consolidated(out) && tdict_is_locked(out));
  parent = TREE(2);
  td_ok(tdict_set_tree(parent, "child", out, err));
  tdict_lock(parent);
  td_fails(TDICT_ELOCKED, "below a locked tree", tdict_unlock(out, err));
  assert_true(tdict_is_consolidated(out));
  td_ok(tdict_unlock(parent, err));
  assert_false(tdict_is_consolidated(out) || tdict_is_locked(out));
}

CASE(contiguous_keeps_objects) {
  const rig r = {NULL, NULL};
  scoped_twins w = make_twins(&r, &flat_type);
  tdict_tree *turned[2] = {NULL}, *out = NULL, *plain = NULL;
  td_ok(tdict_transpose(w.td, 0, 1, &turned[0], err));
  td_ok(tdict_transpose(w.plain, 0, 1, &turned[1], err));
  td_ok(tdict_contiguous(turned[0], NULL, &out, err));
  td_ok(tdict_contiguous(turned[1], NULL, &plain, err));
  assert_true(tdict_equal(plain, turned[1]) && tdict_tensor_is_contiguous(td_leaf(plain, "n.o.a")));
  agree(out, plain, &w, &flat_type);
  td_release(out);
  TD_WITHOUT_MEMORY_THEN(tdict_contiguous(turned[0], NULL, &out, err), assert_null(out));
  tdict_release(out);
  td_fails(TDICT_EINVAL, "NULL", tdict_contiguous(NULL, NULL, &out, err));
  for (int i = 0; i < 2; i++) tdict_release(turned[i]);
  tdict_release(plain);
}
