/* Tests REPLICATE of small trees: all results have the layout of the first result, and equal the results of
 * tdict_to_device(). */
#include "several.h"

static size_t offset_of(const tdict_tensor *t) { return (size_t)((char *)t->data - (char *)t->storage->data); }

/* Checks that two trees on one device have the same keys, layouts and objects, but share no bytes. */
static void check_alike(const tdict_tree *want, const tdict_tree *got) {
  assert_int_equal(tdict_is_locked(got), tdict_is_locked(want));
  assert_int_equal(tdict_is_consolidated(got), tdict_is_consolidated(want));
  assert_int_equal(tdict_num_keys(got), tdict_num_keys(want));
  for (size_t i = 0; i < tdict_num_keys(want); i++) {
    tdict_entry a, b;
    tdict_device at, other;
    a = tdict_get_entry_at(want, i);
    b = tdict_get_entry_at(got, i);
    assert_string_equal(b.key, a.key);
    assert_int_equal(!b.tensor, !a.tensor);
    assert_int_equal(!b.tree, !a.tree);
    assert_ptr_equal(b.object, a.object); /* values are in host memory, and are shared */
    if (a.tree) {
      assert_int_equal(tdict_get_device(b.tree, &at), tdict_get_device(a.tree, &other));
      assert_true(tdict_device_equal(at, other));
      check_alike(a.tree, b.tree);
    }
    if (!a.tensor) continue;
    check_same_shape(a.tensor, b.tensor);
    assert_true(tdict_device_equal(tdict_tensor_device(a.tensor), tdict_tensor_device(b.tensor)));
    assert_true(tdict_tensor_is_contiguous(b.tensor));
    assert_ptr_not_equal(a.tensor->storage, b.tensor->storage);
    assert_int_equal(b.tensor->storage->bytes, a.tensor->storage->bytes);
    assert_int_equal(b.tensor->storage->flags, a.tensor->storage->flags);
    assert_int_equal(offset_of(b.tensor), offset_of(a.tensor));
  }
}

/* Replicates a tree in several ways, and compares each result with the result of a plain transfer to the same
 * device. */
static void check_small(const several *s, const tdict_tree *src) {
  tdict_tree *plain[MOST_DEVICES], *trees[MOST_DEVICES];
  for (size_t i = 0; i < s->count; i++) plain[i] = to_device(&s->at[i], src, s->devices[i]);
  for (int i = 0; i < NUM_WAYS; i += 3 * WAYS_STEP) {
    const way v = way_at(i);
    tdict_transfer_stats stats = tdict_transfer_stats_default();
    way counted = v;
    if (!v.async) counted.o.stats = &stats;
    spread_tree(s, src, NULL, &counted, trees);
    check_replicas(s, src, trees);
    for (size_t j = 0; j < s->count; j++) check_alike(plain[j], trees[j]);
    if (!v.async) assert_in_range(stats.peer_bytes, 1, SIZE_MAX); /* the devices copied from each other */
    for (size_t j = 0; j < s->count; j++) spoil_tree(&s->at[j], trees[j]);
    release_all(s, trees);
  }
  for (size_t i = 0; i < s->count; i++) tdict_release(plain[i]);
}

/* Makes a tree with texts at two depths, between tensors. */
static tdict_tree *values_tree(void) {
  tdict_tree *td = rows_tree(3, NULL);
  td_ok(tdict_set_text(td, "name", "a name", err));
  td_ok(tdict_set_text(td, "next.name", "another", err));
  td_put(td, "next.last", random_tensor(TDICT_I16, SHAPE(3, 7), NULL));
  return td;
}
static tdict_tree *small_strided_tree(void) {
  const int turn[] = {1, 0};
  tdict_tree *td = new_tree();
  td_put(td, "a.turned", permuted(random_tensor(TDICT_F64, SHAPE(30, 11), NULL), turn));
  td_put(td, "a.none", random_tensor(TDICT_F64, SHAPE(4, 0), NULL));
  td_put(td, "backwards", sliced(random_tensor(TDICT_F32, SHAPE(900), NULL), (tdict_tensor_range){0, 899, 900, -1}));
  td_put(td, "repeated",
         restrided(random_tensor(TDICT_F16, SHAPE(20), NULL), 0, SHAPE(15, 20), (const int64_t[]){0, 1}));
  return td;
}
static tdict_tree *consolidated_tree(void) {
  tdict_tree *td = rows_tree(5, NULL), *out = td_made(tree, tdict_consolidate(td, NULL, &made, err));
  tdict_release(td);
  return out;
}
static tdict_tree *single_leaf(void) {
  tdict_tree *td = td_tree("x.y:u8[1001]");
  return td;
}
static tdict_tree *tiny(void) { return tiny_tree(NULL); }
static tdict_tree *rows(void) { return rows_tree(9, NULL); }

static void check_all_trees(size_t count, int32_t peers) {
  tdict_tree *(*const make[])(void) = {
      tiny, rows, odd_tree, shared_tree, values_tree, small_strided_tree, consolidated_tree, single_leaf};
  static const char *const below[] = {"group3", "next", "none", "left", "next", "a", "next", "x"};
  scoped_several s = several_open(count, peers);
  for (size_t i = 0; i < sizeof make / sizeof *make; i++) {
    tdict_tree *src = make[i](), *child = NULL;
    check_small(&s, src);
    td_ok(tdict_get_tree(src, below[i], &child, err));
    tdict_lock(child); /* first one child is locked, then the whole tree */
    check_small(&s, src);
    tdict_lock(src);
    check_small(&s, src);
    tdict_release(src);
  }
}
GPU_CASE(replicate_small_trees_like_plain_transfers) { check_all_trees(2, TDICT_SIM_PEERS_ALL); }
SIM_CASE(replicate_small_trees_on_four_devices_like_plain_transfers) { check_all_trees(4, TDICT_SIM_PEERS_ALL); }
