/* Tests stack and cat into a new or an existing tree, on each device. */
#include "rig.h"

enum { ITEMS = 3 };
typedef struct items {
  m_tree *model[ITEMS];
  tdict_tree *td[ITEMS];
} items;

static void items_open(const rig *r, items *all, int64_t step) {
  for (int i = 0; i < ITEMS; i++) {
    all->model[i] = SAMPLE(2 + step * i, 3);
    all->td[i] = rig_tree(r, all->model[i]);
  }
}
static void items_close(items *all) {
  for (int i = 0; i < ITEMS; i++) tdict_release(all->td[i]);
}
#define scoped_items TD_SCOPED(items_close, items)
#define TREES(all) (const tdict_tree *const *)(all).td

/* The argument of join_array(): what to join and how, and the index of the next array. */
typedef struct joining {
  const items *all;
  int dim, next;
  bool stacks;
} joining;
static m_array *join_array(const m_array *first, void *user) {
  joining *j = user;
  m_array *all[8];
  const m_array *parts[ITEMS];
  (void)first;
  for (int i = 0; i < ITEMS; i++) {
    m_arrays(j->all->model[i], all, NULL, 8);
    parts[i] = all[j->next];
  }
  j->next++;
  return ops_joined_array(parts, ITEMS, j->dim, j->stacks);
}
static m_tree *joined(const items *all, int dim, bool stacks) {
  joining j = {all, dim, 0, stacks};
  const m_tree *t = all->model[0];
  int64_t shape[M_DIMS];
  for (int d = 0; d < t->nb + stacks; d++) shape[d] = t->bs[d - (stacks && d > dim)];
  shape[dim] = stacks ? ITEMS : 0;
  for (int i = 0; i < ITEMS && !stacks; i++) shape[dim] += all->model[i]->bs[dim];
  return m_tree_each(t, t->nb, t->nb + stacks, shape, join_array, &j);
}
static tdict_join_options along(int dim) { return td_with(tdict_join_options, dim = dim); }

DEVICE_CASE(stack_stacks) {
  scoped_rig r = rig_open();
  scoped_items all;
  items_open(&r, &all, 0);
  for (int dim = -3; dim < 3; dim++) {
    scoped_tree out = NULL;
    const tdict_join_options o = along(dim);
    tdict_lock(all.td[0]); /* the result is not locked */
    td_ok(tdict_stack(TREES(all), ITEMS, &o, NULL, &out, err));
    rig_check(&r, joined(&all, dim < 0 ? dim + 3 : dim, true), out);
    rig_shares(out, all.td[0], false);
    assert_true(tdict_device_equal(tdict_tensor_device(td_leaf(out, "n.m.u")), td_device()));
  }
}

DEVICE_CASE(stack_one_storage) {
  scoped_rig r = rig_open();
  scoped_items all;
  items_open(&r, &all, 0);
  tdict_tree *out = NULL;
  tdict_join_options o = along(0);
  tdict_run run = tdict_run_default();
  td_ok(tdict_stack(TREES(all), ITEMS, NULL, NULL, &out, err));
  assert_true(tdict_tensor_shares_storage(td_leaf(out, "a"), td_leaf(out, "n.m.u")));
  tdict_release(out);
  if (r.context) { /* a result in pinned memory, whatever the device of the trees */
    run.memory = tdict_pinned_memory(r.context);
    td_ok(tdict_stack(TREES(all), ITEMS, &o, &run, &out, err));
    assert_true(tdict_tensor_is_pinned(td_leaf(out, "a")));
    m_tree *wanted = joined(&all, 0, true);
    rig_check(&r, wanted, out);
    tdict_release(out);
  }
}

CASE(stack_keys_in_any_order) {
  scoped_tree a = td_tree("[2] x:f32[2] y:f32[2]"), b = td_tree("[2] gone:f32[2] y:f32[2] x:f32[2]"), out = NULL;
  td_ok(tdict_delete(b, "gone", err));
  const tdict_tree *both[] = {a, b};
  td_ok(tdict_stack(both, 2, NULL, NULL, &out, err));
  help_paths(out, "x y");
  const float *x = tdict_const_data(out, "x");
  assert_memory_equal(x, tdict_const_data(a, "x"), 2 * sizeof(float));
  assert_memory_equal(x + 2, tdict_const_data(b, "x"), 2 * sizeof(float));
}

DEVICE_CASE(stack_refuses) {
  scoped_rig r = rig_open();
  scoped_items all;
  tdict_tree *out = NULL, *kept;
  items_open(&r, &all, 0);
  const tdict_join_options far = along(3);
  char *before = help_snapshot(all.td[0]);
  td_fails(TDICT_EINVAL, "no trees", tdict_stack(TREES(all), 0, NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "no trees", tdict_stack(NULL, 1, NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_stack(TREES(all), ITEMS, NULL, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "dimension 3", tdict_stack(TREES(all), ITEMS, &far, NULL, &out, err));
  kept = all.td[2];
  all.td[2] = NULL;
  td_fails(TDICT_EINVAL, "tree 2 is NULL", tdict_stack(TREES(all), ITEMS, NULL, NULL, &out, err));
  all.td[2] = TREE(2, 4);
  td_fails(TDICT_ESHAPE, "tree 2 has batch size [2, 4]", tdict_stack(TREES(all), ITEMS, NULL, NULL, &out, err));
  tdict_release(all.td[2]);
  all.td[2] = kept;
  td_put(kept, "n.b", TENSOR(2, 3, 3));
  td_fails_at(TDICT_EDTYPE, "tree 2", "n.b", tdict_stack(TREES(all), ITEMS, NULL, NULL, &out, err));
  td_put(kept, "n.b", TENSOR(2, 3, 4));
  td_fails(TDICT_ESHAPE, "[2, 3, 4] in tree 2", tdict_stack(TREES(all), ITEMS, NULL, NULL, &out, err));
  td_put_tree(kept, "n.b", TREE(2, 3));
  td_fails_at(TDICT_ETYPE, "tree 2", "n.b", tdict_stack(TREES(all), ITEMS, NULL, NULL, &out, err));
  td_ok(tdict_delete(kept, "n.b", err));
  td_fails_at(TDICT_ENOTFOUND, "tree 2 lacks", "n.b", tdict_stack(TREES(all), ITEMS, NULL, NULL, &out, err));
  td_put(all.td[1], "n.z", TENSOR(2, 3));
  td_fails_at(TDICT_ENOTFOUND, "tree 1 has a key", "n.z", tdict_stack(TREES(all), 2, NULL, NULL, &out, err));
  assert_null(out);
  help_unchanged(all.td[0], before);
}

GPU_CASE(stack_refuses_mixed_devices) {
  scoped_rig r = rig_open();
  m_tree *model = SAMPLE(2, 3);
  scoped_tree host = ops_tree(model), there = rig_tree(&r, model), out = NULL, into = NULL;
  const tdict_tree *both[] = {there, host}, *same[] = {host, host};
  tdict_run o = tdict_run_default();
  for (int way = 0; way < 2; way++) { /* the second round passes a memory for the result */
    td_fails_at(TDICT_EWRONGDEVICE, "on cpu in tree 1", "a", tdict_stack(both, 2, NULL, &o, &out, err));
    td_fails(TDICT_EWRONGDEVICE, "on cpu in tree 1", tdict_cat(both, 2, NULL, &o, &out, err));
    td_fails(TDICT_EWRONGDEVICE, "on cpu in tree 1", tdict_pad_sequence(both, 2, NULL, &o, &out, err));
    assert_null(out);
    o.memory = r.memory;
  }
  td_ok(tdict_stack(same, 2, NULL, &o, &out, err)); /* host trees, but a result on the device */
  td_ok(tdict_stack(same, 2, NULL, NULL, &into, err));
  td_fails(TDICT_EWRONGDEVICE, "on cpu in tree 1", tdict_stack_into(into, both, 2, NULL, NULL, err));
  td_ok(tdict_stack_into(out, same, 2, NULL, NULL, err));
}

CASE(stack_survives_enomem) {
  scoped_rig r = rig_open();
  scoped_items all;
  items_open(&r, &all, 0);
  scoped_tree out = NULL, into = NULL;
  RIG_WITHOUT_MEMORY(all.td[0], tdict_stack(TREES(all), ITEMS, NULL, NULL, &out, err));
  td_ok(tdict_clone_deep(out, NULL, &into, err));
  RIG_WITHOUT_MEMORY(into, tdict_stack_into(into, TREES(all), ITEMS, NULL, NULL, err));
  rig_check(&r, joined(&all, 0, true), into);
}

DEVICE_CASE(stack_into_keeps_addresses) {
  scoped_rig r = rig_open();
  scoped_items all;
  items_open(&r, &all, 0);
  m_tree *made = joined(&all, 1, true), *old = rig_like(made);
  scoped_tree out = rig_tree(&r, old);
  rig_check(&r, old, out);
  tdict_lock(out);
  char *before = help_snapshot(out);
  const tdict_join_options o = along(1);
  td_ok(tdict_stack_into(out, TREES(all), ITEMS, &o, NULL, err));
  help_unchanged(out, before);
  m_array *to[8], *from[8];
  int count = m_arrays(old, to, NULL, 8);
  m_arrays(made, from, NULL, 8);
  for (int i = 0; i < count; i++)
    for (int64_t k = 0; k < to[i]->n; k++) m_write(to[i]->cells[k], m_value(from[i]->cells[k]));
  old->locked = true;
  rig_check(&r, old, out); /* on the host, this also checks that no address has changed */
}

DEVICE_CASE(stack_into_refuses) {
  scoped_rig r = rig_open();
  scoped_items all;
  items_open(&r, &all, 0);
  m_tree *old = rig_like(joined(&all, 0, true));
  scoped_tree out = rig_tree(&r, old), small = TREE(2, 2, 3);
  rig_check(&r, old, out);
  td_fails(TDICT_EINVAL, "NULL", tdict_stack_into(NULL, TREES(all), ITEMS, NULL, NULL, err));
  td_fails(TDICT_ESHAPE, "wanted [3, 2, 3]", tdict_stack_into(small, TREES(all), ITEMS, NULL, NULL, err));
  td_fails(TDICT_ESHAPE, "dst has batch size", tdict_cat_into(out, TREES(all), ITEMS, NULL, NULL, err));
  td_put(all.td[2], "n.b", TENSOR(2, 3, 3));
  td_fails_at(TDICT_EDTYPE, "float32", "n.b", tdict_stack_into(out, TREES(all), ITEMS, NULL, NULL, err));
  td_ok(tdict_delete(all.td[2], "n.b", err));
  td_fails(TDICT_ENOTFOUND, "lacks", tdict_stack_into(out, TREES(all), ITEMS, NULL, NULL, err));
  rig_check(&r, old, out); /* nothing was written */
}

DEVICE_CASE(cat_joins) {
  scoped_rig r = rig_open();
  scoped_items all;
  items_open(&r, &all, 1); /* 2, 3 and 4 rows */
  scoped_tree out = NULL;
  const tdict_join_options o = along(-2);
  td_ok(tdict_cat(TREES(all), ITEMS, &o, NULL, &out, err));
  assert_int_equal(tdict_batch_size(out)[0], 9);
  rig_check(&r, joined(&all, 0, false), out);
  tdict_release(out);
  items_close(&all);
  items_open(&r, &all, 0);
  const tdict_join_options second = along(1);
  td_ok(tdict_cat(TREES(all), ITEMS, &second, NULL, &out, err));
  rig_check(&r, joined(&all, 1, false), out);
}

CASE(cat_refuses) {
  scoped_rig r = rig_open();
  scoped_items all;
  items_open(&r, &all, 1);
  scoped_tree out = NULL, scalar = help_tree(0, NULL);
  const tdict_join_options second = along(1), far = along(2);
  const tdict_tree *scalars[] = {scalar, scalar};
  td_fails(TDICT_ESHAPE, "batch size", tdict_cat(TREES(all), ITEMS, &second, NULL, &out, err));
  td_fails(TDICT_EINVAL, "dimension 2", tdict_cat(TREES(all), ITEMS, &far, NULL, &out, err));
  td_fails(TDICT_EINVAL, "dimension 0", tdict_cat(scalars, 2, NULL, NULL, &out, err));
  td_put(all.td[1], "n.b", TENSOR(3, 3, 4));
  td_fails_at(TDICT_ESHAPE, "tree 1", "n.b", tdict_cat(TREES(all), ITEMS, NULL, NULL, &out, err));
  assert_null(out);
}

DEVICE_CASE(cat_into_keeps_addresses) {
  scoped_rig r = rig_open();
  scoped_items all;
  items_open(&r, &all, 1);
  m_tree *made = joined(&all, 0, false), *old = rig_like(made);
  scoped_tree out = rig_tree(&r, old);
  rig_check(&r, old, out);
  char *before = help_snapshot(out);
  td_ok(tdict_cat_into(out, TREES(all), ITEMS, NULL, NULL, err));
  help_unchanged(out, before);
  m_ignore_places = false;
  rig_check(&r, made, out);
}
