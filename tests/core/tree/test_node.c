/* Tests nodes: creation, reference counts, shared key tables, deleted keys, paths and depth. */
#include "core/tree/node.h"

#include "help.h"
#include "support/threads.h"
#include "tdict/debug.h"
#include "tdict/path.h"

CASE(tree_create_refuses) {
  scoped_tree td = NULL;
  const int64_t good[TDICT_MAX_BATCH_NDIM + 1] = {0}, bad[] = {4, -1};
  td_fails(TDICT_EINVAL, "-1 batch dimensions", tdict_create(-1, good, &td, err));
  td_fails(TDICT_EINVAL, "17 batch dimensions, wanted 0 to 16", tdict_create(17, good, &td, err));
  td_fails(TDICT_EINVAL, "batch dimension 1 is -1", tdict_create(2, bad, &td, err));
  td_fails(TDICT_EINVAL, "batch_size is NULL", tdict_create(1, NULL, &td, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_create(0, NULL, NULL, err));
  assert_int_equal(tdict_create(-1, good, &td, NULL), TDICT_EINVAL);
  for (int64_t n = 0; n < 2; n++) {
    td_fail_alloc(n, true);
    tdict_error error = {0};
    tdict_status status = tdict_create(1, good, &td, &error);
    assert_true(td_fail_alloc_stop());
    assert_int_equal(status, TDICT_ENOMEM);
  }
  assert_null(td);
  td_ok(tdict_create(TDICT_MAX_BATCH_NDIM, good, &td, err));
  assert_int_equal(tdict_num_keys(td), 0);
}

static void count_release(void *user) { ++*(int *)user; }

static tdict_tensor *counted_tensor(int *releases) {
  static unsigned char bytes[16];
  const int64_t shape[] = {4};
  tdict_tensor_desc view = td_with(tdict_tensor_desc, data = bytes, dtype = TDICT_U8, ndim = 1, shape = shape);
  return td_made(tensor, tdict_tensor_from_data(&view, count_release, releases, &made, err));
}

CASE(tree_reference_counts) {
  int releases = 0, kept = 0;
  tdict_tree *td = TREE(4), *child = TREE(4);
  td_put(td, "a", counted_tensor(&releases));
  td_put(child, "b", counted_tensor(&releases));
  tdict_tensor *mine = counted_tensor(&kept);
  td_ok(tdict_set(child, "c", mine, err));
  td_ok(tdict_set_tree(td, "child", child, err));
  td_put_tree(td, "again", child);
  assert_ptr_equal(tdict_retain(td), td);
  tdict_release(td);
  assert_int_equal(releases, 0);
  tdict_tree *held = tdict_retain(td_child(td, "child"));
  tdict_release(td);
  assert_int_equal(releases, 1); /* `held` keeps the child */
  tdict_release(held);
  assert_int_equal(releases, 2);
  assert_int_equal(kept, 0);
  tdict_tensor_release(mine);
  assert_int_equal(kept, 1);
  tdict_release(NULL);
}

CASE(node_like_shares_keys_until_a_change) {
  tdict_tree *td = TREE(4), *like = NULL;
  const tdict_device cpu = tdict_cpu();
  for (int i = 0; i < 20; i++) td_put(td, td_text("k%d", i), TENSOR(4, 2));
  td_ok(tdict_delete(td, "k3", err));
  td_ok(tdict_set_device(td, &cpu, err));
  tdict_lock(td);
  td_ok(tdict_node_create_like(td, &like, err));
  assert_ptr_equal(like->keys, td->keys);
  assert_int_equal(tdict_batch_ndim(like), 1);
  assert_int_equal(tdict_batch_size(like)[0], 4);
  assert_true(tdict_get_device(like, NULL));
  assert_false(tdict_is_locked(like));
  td_ok(tdict_unlock(td, err));
  for (uint32_t i = 0; i < td->keys->num_slots; i++) {
    assert_int_equal(like->leaves[i], 0);
    like->leaves[i] = tdict_leaf_retain(td->leaves[i]);
  }
  char *before = help_snapshot(td);
  td_put(like, "new", TENSOR(4));
  td_ok(tdict_delete(like, "k0", err));
  td_ok(tdict_rename(like, "k1", "other", false, err));
  assert_ptr_not_equal(like->keys, td->keys);
  help_unchanged(td, before);
  assert_ptr_equal(td_leaf(like, "other"), td_leaf(td, "k1"));
  assert_ptr_equal(td_leaf(like, "k19"), td_leaf(td, "k19"));
  tdict_release(td);
  assert_true(tdict_has(like, "new"));
  tdict_release(like);
}

/* Slots of deleted keys must be reclaimed, and the other keys must keep their order. */
CASE(node_compacts_deleted_slots) {
  scoped_tree td = help_tree_without_batch();
  scoped_tensor t = TENSOR(1);
  char name[16];
  for (int i = 0; i < 1000; i++) {
    snprintf(name, sizeof name, "k%d", i);
    td_ok(tdict_set(td, name, t, err));
    if (i < 10) continue;
    snprintf(name, sizeof name, "k%d", i - 5);
    td_ok(tdict_delete(td, name, err));
    assert_true(td->keys->num_slots <= 2 * td->keys->num_live + 1);
    assert_true(td->cap_leaves <= 64);
  }
  assert_int_equal(tdict_num_keys(td), 10);
  help_paths(td, "k0 k1 k2 k3 k4 k995 k996 k997 k998 k999");
  for (int i = 0; i < 1000; i++) { /* a rename that replaces a key also leaves a hole */
    td_ok(tdict_set(td, "over", t, err));
    td_ok(tdict_rename(td, "k4", "over", false, err));
    td_ok(tdict_rename(td, "over", "k4", true, err));
    assert_true(td->keys->num_slots <= 2 * td->keys->num_live + 1);
  }
  help_paths(td, "k0 k1 k2 k3 k4 k995 k996 k997 k998 k999");
}

CASE(node_path_is_cut_like_error_paths) {
  char name[400], path[248], text[800];
  for (size_t length = 1; length < sizeof name; length += 13) {
    memset(name, 'n', length);
    for (size_t i = 0; i < length; i++) name[i] = (char)('a' + i % 26);
    name[length / 2] = '.';
    name[length] = 0;
    const tdict_key key = {name, (uint32_t)length, 0};
    for (size_t above = 0; above < 300; above += 50) {
      const char *separator = above ? "." : "";
      memset(text, 'A', above);
      text[above] = 0;
      memset(path, 0xA5, sizeof path);
      tdict_node_path(text, &key, path, sizeof path);
      size_t at = (size_t)snprintf(text + above, sizeof text - above, "%s", separator) + above;
      tdict_path_escape(name, text + at, sizeof text - at);
      if (strlen(text) < sizeof path) {
        assert_string_equal(path, text);
        continue;
      }
      /* Only the first 122 and the last 122 bytes remain, as in tdict_error.path. */
      assert_int_equal(strlen(path), 247);
      assert_memory_equal(path, text, 122);
      assert_memory_equal(path + 122, "...", 3);
      assert_string_equal(path + 125, text + strlen(text) - 122);
    }
  }
  tdict_node_path(NULL, NULL, path, sizeof path);
  assert_string_equal(path, "");
}

enum { THREADS = 4, ROUNDS = 2000 };
typedef struct worker {
  tdict_tree *shared;
  tdict_tree *mine[ROUNDS]; /* locked trees that contain `shared` */
  int64_t failures;
} worker;

static void *count_and_read(void *user) {
  worker *w = user;
  for (int i = 0; i < ROUNDS; i++) {
    tdict_tensor *t = NULL;
    scoped_tree held = tdict_retain(w->shared);
    if (tdict_get(held, "n.x", &t, NULL) != TDICT_OK || tdict_num_leaves(held) != 1) w->failures++;
    if (!tdict_is_locked(w->mine[i])) w->failures++;
    tdict_release(w->mine[i]);
  }
  return NULL;
}

/* Several threads read a shared tree, and release locked trees that contain it. */
CASE(tree_reference_counts_are_thread_safe) {
  static worker workers[THREADS];
  pthread_t threads[THREADS];
  scoped_tree shared = td_tree("[2] n.x:f32[2]");
  tdict_tree *n = td_child(shared, "n");
  for (int t = 0; t < THREADS; t++) {
    workers[t].shared = shared;
    for (int i = 0; i < ROUNDS; i++) {
      workers[t].mine[i] = TREE(2);
      td_ok(tdict_set_tree(workers[t].mine[i], "a.way.down", shared, err));
      tdict_lock(workers[t].mine[i]);
    }
  }
  assert_int_equal(shared->locks_above, THREADS * ROUNDS);
  for (int t = 0; t < THREADS; t++) threads[t] = td_start(count_and_read, &workers[t]);
  for (int t = 0; t < THREADS; t++) {
    pthread_join(threads[t], NULL);
    assert_int_equal(workers[t].failures, 0);
  }
  assert_int_equal(shared->refs, 1);
  assert_false(tdict_is_locked(shared) || tdict_is_locked(n));
  assert_int_equal(n->locks_above, 0);
}

/* Functions that visit all nodes must not overflow the stack in a tree of 100,000 levels. */
CASE(tree_of_great_depth_needs_no_recursion) {
  enum { LEVELS = 100000 };
  scoped_tree td = td_tree("[2] leaf:f32[2,3]");
  for (int i = 0; i < 101; i++) { /* each call looks for cycles in all nodes below, so make only a few levels here */
    tdict_tree *above = TREE(2);
    td_put_tree(above, "d", td);
    td = above;
  }
  tdict_tree *low = td;
  while (tdict_has(low, "d")) low = td_child(low, "d");
  for (int i = 101; i < LEVELS; i++) {
    td_put_tree(low, "d", TREE(2));
    low = td_child(low, "d");
  }
  td_put(low, "last", TENSOR(2, 5));
  assert_int_equal(tdict_num_leaves(td), 2);
  assert_int_equal(tdict_bytes(td), 2 * 3 * 4 + 2 * 5 * 4);
  size_t bytes = 0;
  td_ok(tdict_unique_bytes(td, &bytes, err));
  assert_int_equal(bytes, 64);
  td_fail_alloc(0, true); /* both calls must succeed although allocations fail */
  size_t leaves = tdict_num_leaves(td), length = tdict_format(td, NULL, 0);
  assert_true(td_fail_alloc_stop());
  assert_int_equal(leaves, 2);
  assert_int_equal(length, tdict_format(td, NULL, 0));
  tdict_lock(td);
  assert_true(tdict_is_locked(low));
  td_ok(tdict_unlock(td, err));
  assert_false(tdict_is_locked(low));
  const int64_t wrong[] = {2, 4};
  td_fails(TDICT_ESHAPE, "batch size is [2, 4], tensor has shape [2, 3]", tdict_set_batch_size(td, 2, wrong, err));
  assert_int_equal(strlen(td_last_error.path), 101 * 2 + 4);
  const int64_t later[] = {2, 3};
  td_fails(TDICT_ESHAPE, "batch size is [2, 3], tensor has shape [2, 5]", tdict_set_batch_size(td, 2, later, err));
  assert_int_equal(strlen(td_last_error.path), sizeof td_last_error.path - 1);
  assert_memory_equal(td_last_error.path, "d.d.d", 5);
  assert_string_equal(strstr(td_last_error.path, "d.last"), "d.last");
  td_fails(TDICT_EINVAL, "the child is, or contains, the tree", tdict_set_tree(low, "x", td, err));
  const tdict_device cpu = tdict_cpu();
  td_ok(tdict_set_device(td, &cpu, err));
  assert_true(tdict_get_device(low, NULL));
}

/* A clone that is changed gets its own list of leaves. In a chain of such clones, the list must not grow. */
CASE(node_copies_do_not_grow) {
  scoped_tree td = td_tree("[3] a:f32[3]");
  for (int i = 0; i < 100; i++) {
    tdict_tree *copy = td_made(tree, tdict_clone(td, &made, err));
    td_put(copy, "b", TENSOR(3));
    td_ok(tdict_delete(copy, "b", err));
    tdict_release(td);
    td = copy;
  }
  assert_true(td->cap_leaves < 64);
}
