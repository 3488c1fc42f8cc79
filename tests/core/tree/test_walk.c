/* Tests walks: the order and contents of entries, visitors that stop a walk, and the numbers of leaves and bytes. */
#include "help.h"
#include "tdict/debug.h"

typedef struct step {
  const char *path, *key;
  int depth;
  bool tree;
} step;
static const step steps[] = {
    {"b", "b", 0, false},         {"n", "n", 0, true},        {"n.z", "z", 1, false},      {"n.h\\.0", "h.0", 1, true},
    {"n.h\\.0.x", "x", 2, false}, {"n.\\\\", "\\", 1, false}, {"empty", "empty", 0, true}, {"a", "a", 0, false},
};
enum { STEPS = sizeof steps / sizeof *steps };

static tdict_tree *sample(void) {
  tdict_tree *td = td_tree("[2] b:f32[2,3] n.z:f32[2] n.h\\.0.x:f32[2,1,5] n.\\\\:f32[2,0]");
  td_put_tree(td, "empty", TREE(2));
  td_put(td, "a", TENSOR(2, 2));
  return td;
}

typedef struct visit {
  const tdict_tree *td;
  int shown, stop_at;
} visit;

static tdict_status compare(void *user, const tdict_entry *entry, tdict_error *err) {
  visit *v = user;
  assert_in_range(v->shown, 0, STEPS - 1);
  const step *wanted = &steps[v->shown++];
  (void)err;
  assert_string_equal(entry->path, wanted->path);
  assert_string_equal(entry->key, wanted->key);
  assert_int_equal(entry->depth, wanted->depth);
  if (wanted->tree) {
    assert_null(entry->tensor);
    assert_ptr_equal(entry->tree, td_child(v->td, entry->path)); /* a visitor may read the tree */
  } else {
    assert_null(entry->tree);
    assert_null(entry->object);
    assert_null(entry->type);
    assert_ptr_equal(entry->tensor, td_leaf(v->td, entry->path));
  }
  return TDICT_OK;
}

CASE(tree_walk_order) {
  scoped_tree td = sample();
  visit v = {td, 0, 0};
  td_ok(tdict_walk(td, compare, &v, err));
  assert_int_equal(v.shown, STEPS);
  scoped_tree empty = help_tree_without_batch();
  v.shown = 0;
  td_ok(tdict_walk(empty, compare, &v, err));
  assert_int_equal(v.shown, 0);
}

static tdict_status stop_silently(void *user, const tdict_entry *entry, tdict_error *err) {
  visit *v = user;
  (void)entry;
  (void)err;
  return v->shown++ == v->stop_at ? TDICT_EHOOK : TDICT_OK;
}

/* Stops the walk with an error in which all public fields are set. */
static tdict_status stop_with_words(void *user, const tdict_entry *entry, tdict_error *err) {
  visit *v = user;
  (void)entry;
  if (v->shown++ != v->stop_at) return TDICT_OK;
  if (err) {
    err->status = TDICT_ECANCELLED;
    err->native = 42;
    snprintf(err->path, sizeof err->path, "my path");
    snprintf(err->message, sizeof err->message, "my words");
  }
  return TDICT_ECANCELLED;
}

/* Stops the walk with an error that has only a message. */
static tdict_status stop_with_message(void *user, const tdict_entry *entry, tdict_error *err) {
  (void)user, (void)entry;
  memcpy(err->message, "only a message", sizeof "only a message");
  return TDICT_EIO;
}
static tdict_status stop_with_status(void *user, const tdict_entry *entry, tdict_error *err) {
  (void)user;
  (void)entry;
  err->status = TDICT_EIO;
  return TDICT_EIO;
}

/* Fills the stack with bytes that are not zero, so that uninitialized variables of later calls are not zero. */
__attribute__((noinline)) static void dirty_stack(void) {
  volatile unsigned char bytes[8192];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = 0xA5;
}

CASE(tree_walk_stops) {
  scoped_tree td = sample();
  for (int at = 0; at < STEPS; at++) {
    visit v = {td, 0, at};
    tdict_error error;
    memset(&error, 0xA5, sizeof error); /* the walk must overwrite this */
    assert_int_equal(tdict_walk(td, stop_silently, &v, &error), TDICT_EHOOK);
    assert_int_equal(v.shown, at + 1);
    assert_int_equal(error.status, TDICT_EHOOK);
    assert_int_equal(error.native, 0);
    assert_string_equal(error.path, steps[at].path);
    assert_non_null(strstr(error.message, "visitor"));
    v.shown = 0;
    td_fails_at(TDICT_ECANCELLED, "my words", "my path", tdict_walk(td, stop_with_words, &v, err));
    assert_int_equal(td_last_error.native, 42);
    v.shown = 0;
    assert_int_equal(tdict_walk(td, stop_with_words, &v, NULL), TDICT_ECANCELLED);
    assert_int_equal(v.shown, at + 1);
  }
  tdict_error bare;
  dirty_stack();
  assert_int_equal(tdict_walk(td, stop_with_status, NULL, &bare), TDICT_EIO);
  assert_string_equal(bare.path, "b");
  assert_string_equal(bare.message, "walk: the visitor returned TDICT_EIO without a message");
  dirty_stack();
  assert_int_equal(tdict_walk(td, stop_with_message, NULL, &bare), TDICT_EIO);
  assert_int_equal(bare.status, TDICT_EIO);
  assert_string_equal(bare.path, "b");
  assert_string_equal(bare.message, "only a message");
  visit v = {td, 0, -1};
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_walk(NULL, stop_silently, &v, err));
  td_fails(TDICT_EINVAL, "visit is NULL", tdict_walk(td, NULL, &v, err));
  assert_int_equal(v.shown, 0);
  td_fail_alloc(0, true);
  tdict_error error = {0};
  tdict_status status = tdict_walk(td, stop_silently, &v, &error);
  assert_true(td_fail_alloc_stop());
  assert_int_equal(status, TDICT_ENOMEM);
}

CASE(tree_counts_leaves) {
  scoped_tree td = sample();
  assert_int_equal(tdict_num_leaves(td), 5);
  tdict_tensor *t = td_leaf(td, "b");
  td_ok(tdict_set(td, "same", t, err));
  td_ok(tdict_set_tree(td, "n2", td_child(td, "n"), err));
  assert_int_equal(tdict_num_leaves(td), 9);
  td_ok(tdict_delete(td, "n", err));
  assert_int_equal(tdict_num_leaves(td), 6);
}

static size_t unique_bytes(const tdict_tree *td) {
  size_t bytes = 0;
  td_ok(tdict_unique_bytes(td, &bytes, err));
  return bytes;
}

CASE(tree_counts_bytes) {
  scoped_tree td = sample();
  const size_t leaves = (6 + 2 + 10 + 0 + 4) * sizeof(float);
  assert_int_equal(tdict_bytes(td), leaves);
  assert_int_equal(unique_bytes(td), leaves);
  td_ok(tdict_set(td, "same", td_leaf(td, "b"), err));
  td_ok(tdict_set_tree(td, "n2", td_child(td, "n"), err));
  assert_int_equal(tdict_bytes(td), leaves + (6 + 12) * sizeof(float));
  assert_int_equal(unique_bytes(td), leaves);
  /* For a view, tdict_bytes() counts only its elements, but tdict_unique_bytes() counts the whole storage. */
  tdict_tensor *whole = TENSOR(2, 100), *part = NULL;
  const tdict_tensor_range range = {1, 10, 5, 2};
  td_ok(tdict_tensor_slice(whole, &range, &part, err));
  td_put(td, "n.part", part);
  tdict_tensor_release(whole);
  assert_int_equal(tdict_bytes(td), leaves + (6 + 12 + 20) * sizeof(float)); /* the third tensor is also in n2 */
  assert_int_equal(unique_bytes(td), leaves + 200 * sizeof(float));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_unique_bytes(td, NULL, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_unique_bytes(NULL, &(size_t){0}, err));
}

CASE(tree_unique_bytes_survives_enomem) {
  scoped_tree td = TREE(2);
  size_t wanted = 0, bytes = 77;
  for (int i = 0; i < 100; i++) {
    td_put(td, td_text("n%d.k%d", i % 7, i), TENSOR(2, i));
    wanted += 2 * (size_t)i * sizeof(float);
  }
  tdict_tree *shared = td_child(td, "n3");
  td_ok(tdict_set_tree(td, "n5.again", shared, err));
  char *before = help_snapshot(td);
  int64_t n = 0;
  for (;; n++) {
    tdict_error error = {0};
    td_fail_alloc(n, n % 2 == 1);
    tdict_status status = tdict_unique_bytes(td, &bytes, &error);
    if (!td_fail_alloc_stop()) {
      assert_int_equal(status, TDICT_OK);
      break;
    }
    assert_int_equal(status, TDICT_ENOMEM);
    assert_int_equal(error.status, TDICT_ENOMEM);
    assert_int_equal(bytes, 77);
  }
  assert_true(n > 3);
  assert_int_equal(bytes, wanted);
  help_unchanged(td, before);
}
