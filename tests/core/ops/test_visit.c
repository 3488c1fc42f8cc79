/* Tests functions that call a visitor for each tensor of trees, on the calling thread or on a pool. */
#include <pthread.h>
#include <stdatomic.h>

#include "rig.h"

typedef struct seen {
  help_text text;
  const char *stop_at; /* the visit fails at this path */
  size_t trees;
  _Atomic(int) calls;
  bool quiet;
} seen;

static tdict_status look(void *user, const tdict_leaves *at, tdict_error *err) {
  seen *s = user;
  (void)err;
  s->trees = at->count;
  s->calls++;
  help_add(&s->text, "%s%s", s->text.length ? " " : "", at->path);
  if (s->stop_at && strcmp(s->stop_at, at->path) == 0) return TDICT_EHOOK;
  return TDICT_OK;
}
static tdict_status subtract(void *user, const tdict_leaves *at, tdict_error *err) {
  (void)user, (void)err;
  float *to = tdict_tensor_data(at->tensors[0]);
  const float *by = tdict_tensor_const_data(at->tensors[1]);
  for (int64_t i = 0; i < tdict_tensor_numel(at->tensors[0]); i++) to[i] = by[i] + 1;
  return TDICT_OK;
}

CASE(visit_passes_every_tensor) {
  tdict_tree *td = ops_tree(SAMPLE(3)), *other = NULL;
  seen s = {.calls = 0};
  const char *const paths[] = {"n", "e", "a"}; /* `other` has the same keys in another order */
  td_ok(tdict_select(td, paths, 3, true, &other, err));
  const tdict_tree *both[] = {td, other};
  td_ok(tdict_visit(NULL, both, 2, look, &s, NULL, err));
  assert_string_equal(s.text.text, "a n.b n.m.u");
  assert_int_equal(s.trees, 2);
  free(s.text.text);
  td_release(td, other);
  /* each call gets the tensors at one path */
  scoped_tree x = td_tree("[4] p:f32[4] q:f32[4]"), y = td_tree("[4] q:f32[4] p:f32[4]");
  const tdict_tree *pair[] = {x, y};
  td_ok(tdict_visit(NULL, pair, 2, subtract, NULL, NULL, err));
  for (int i = 0; i < 4; i++)
    assert_true(((const float *)tdict_const_data(x, "q"))[i] == ((const float *)tdict_const_data(y, "q"))[i] + 1 ||
                ((const float *)tdict_const_data(y, "q"))[i] != ((const float *)tdict_const_data(y, "q"))[i]);
}

CASE(visit_refuses) {
  tdict_tree *td = ops_tree(SAMPLE(3)), *other = ops_tree(SAMPLE(3));
  seen s = {.calls = 0};
  const tdict_tree *both[] = {td, other}, *holes[] = {td, NULL};
  const tdict_stream cpu = {tdict_cpu(), NULL};
  tdict_context *context = NULL;
  td_ok(tdict_context_create(td_options(tdict_context_options, num_threads = 2, device = tdict_cpu()), &context, err));
  td_fails(TDICT_EINVAL, "function is NULL", tdict_visit(NULL, both, 2, NULL, &s, NULL, err));
  td_fails(TDICT_EINVAL, "no trees", tdict_visit(NULL, NULL, 0, look, &s, NULL, err));
  td_fails(TDICT_EINVAL, "tree 1 is NULL", tdict_visit(NULL, holes, 2, look, &s, NULL, err));
  td_ok(tdict_delete(other, "n.b", err));
  td_fails_at(TDICT_ENOTFOUND, "tree 1 lacks", "n.b", tdict_visit(NULL, both, 2, look, &s, NULL, err));
  td_put_tree(other, "n.b", TREE(3));
  td_fails(TDICT_ETYPE, "tree", tdict_visit(NULL, both, 2, look, &s, NULL, err));
  td_fails(TDICT_EINVAL, "num_threads is -2, but context is NULL",
           tdict_visit(NULL, both, 2, look, &s, TD_THREADS(-2), err));
  td_fails(TDICT_EINVAL, "num_threads is 1, but context is NULL",
           tdict_visit(NULL, both, 2, look, &s, TD_THREADS(1), err));
  td_fails(TDICT_EINVAL, "visit: the option memory is set",
           tdict_visit(NULL, both, 2, look, &s, TD_IN(tdict_pinned_memory(context)), err));
  td_fails(TDICT_EINVAL, "visit: the option stream is set", tdict_visit(NULL, both, 2, look, &s, TD_ON(cpu), err));
  td_fails(TDICT_EINVAL, "wanted -1 to 2, the threads of the context's pool",
           tdict_visit(context, both, 2, look, &s, TD_THREADS(3), err));
  td_fails(TDICT_EINVAL, "num_threads is -2, wanted -1 to 2",
           tdict_visit(context, both, 2, look, &s, TD_THREADS(-2), err));
  assert_int_equal(s.calls, 0);
  td_release(context, td, other);
}

CASE(visit_stops) {
  scoped_tree td = ops_tree(SAMPLE(3));
  const tdict_tree *one[] = {td};
  seen s = {.stop_at = "n.b"};
  td_fails_at(TDICT_EHOOK, "visit: the function returned TDICT_EHOOK without a message", "n.b",
              tdict_visit(NULL, one, 1, look, &s, NULL, err));
  assert_string_equal(s.text.text, "a n.b");
  free(s.text.text);
}

enum { MANY = 300 };
typedef struct crowd {
  _Atomic(int) calls, others; /* all calls, and calls on threads other than the caller */
  pthread_t caller;
  int fail_from;
} crowd;
static tdict_status count_call(void *user, const tdict_leaves *at, tdict_error *err) {
  crowd *c = user;
  (void)err;
  c->calls++;
  if (!pthread_equal(c->caller, pthread_self())) c->others++;
  struct timespec nap = {0, 100000};
  int naps = 0;
  do nanosleep(&nap, NULL);
  while (c->others == 0 && ++naps < 200000); /* waits for another thread, but not forever */
  return c->fail_from && atoi(at->path + 1) >= c->fail_from ? TDICT_EHOOK : TDICT_OK;
}
static tdict_status make_copy(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)user;
  return tdict_tensor_clone(at->tensors[0], NULL, out, err);
}

DEVICE_CASE(visit_on_pool) {
  scoped_context context = td_context(NULL);
  scoped_tree td = TREE(2), out = NULL;
  for (int i = 0; i < MANY; i++) td_put(td, td_text("k%d", i), TENSOR(2, 3));
  crowd c = {.calls = 0, .caller = pthread_self()};
  const tdict_tree *one[] = {td};
  td_ok(tdict_visit(context, one, 1, count_call, &c, NULL, err));
  assert_int_equal(c.calls, MANY);
  assert_true(c.others > 0);
  c.fail_from = 200;
  td_fails(TDICT_EHOOK, "the function returned", tdict_visit(context, one, 1, count_call, &c, NULL, err));
  assert_string_equal(td_last_error.path, "k200"); /* the first path that fails, because threads start paths in order */
  td_ok(tdict_apply(context, one, 1, make_copy, &c, NULL, &out, err));
  tdict_difference found;
  td_ok(tdict_get_difference(td, out, td_options(tdict_difference_options, nan_equal = true), &found, err));
  assert_false(found.differs);
  assert_false(tdict_tensor_shares_storage(td_leaf(td, "k7"), td_leaf(out, "k7")));
}

static tdict_status leave_out_b(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)user, (void)err;
  if (strcmp(at->path, "n.m.u") != 0) *out = tdict_tensor_retain(at->tensors[0]);
  return TDICT_OK;
}
static tdict_status make_wrong(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)at, (void)user;
  return tdict_tensor_zeros(TDICT_F32, 0, NULL, NULL, out, err);
}
static tdict_status make_then_fail(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)user;
  if (strcmp(at->path, "n.m.u") == 0) return TDICT_EHOOK;
  return tdict_tensor_clone(at->tensors[0], NULL, out, err);
}

CASE(apply_makes_a_tree) {
  scoped_tree td = ops_tree(SAMPLE(3)), out = NULL;
  const tdict_tree *one[] = {td};
  tdict_lock(td);
  td_ok(tdict_apply(NULL, one, 1, leave_out_b, NULL, NULL, &out, err));
  help_paths(out, "a n n.b n.m e");
  assert_false(tdict_is_locked(out));
  assert_ptr_equal(td_leaf(out, "n.b"), td_leaf(td, "n.b"));
  assert_int_equal(tdict_batch_ndim(td_child(out, "n.m")), 2);
  td_put(out, "n.m.v", TENSOR(3, 2)); /* keys can be added to a node that has lost one */
  help_paths(td, "a n n.b n.m n.m.u e");
}

CASE(apply_refuses) {
  scoped_tree td = ops_tree(SAMPLE(3)), out = NULL;
  const tdict_tree *one[] = {td};
  td_fails(TDICT_EINVAL, "function is NULL", tdict_apply(NULL, one, 1, NULL, NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_apply(NULL, one, 1, make_copy, NULL, NULL, NULL, err));
  td_fails_at(TDICT_ESHAPE, "batch size is [3]", "a", tdict_apply(NULL, one, 1, make_wrong, NULL, NULL, &out, err));
  td_fails(TDICT_EHOOK, "the function returned", tdict_apply(NULL, one, 1, make_then_fail, NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_filter(td, NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_filter(NULL, NULL, NULL, &out, err));
  assert_null(out);
  RIG_WITHOUT_MEMORY(td, tdict_apply(NULL, one, 1, leave_out_b, NULL, NULL, &out, err));
}

static bool is_deep(void *user, const tdict_leaves *at) {
  (void)user;
  return strchr(at->path, '.') != NULL;
}

DEVICE_CASE(filter_keeps) {
  scoped_rig r = rig_open();
  scoped_tree td = rig_tree(&r, SAMPLE(3)), out = td_made(tree, tdict_filter(td, is_deep, NULL, &made, err));
  help_paths(out, "n n.b n.m n.m.u e");
  assert_ptr_equal(td_leaf(out, "n.b"), td_leaf(td, "n.b"));
}

/* If the cursor cannot allocate memory for more levels, tdict_depth() counts the remaining levels recursively. */
CASE(tree_depth_needs_no_memory) {
  for (int has_tensor = 0; has_tensor < 2; has_tensor++) {
    scoped_tree td = help_deep_tree(100);
    tdict_tree *at = td;
    while (tdict_has(at, "d")) at = td_child(at, "d");
    if (has_tensor) td_put(at, "x", TENSOR(2));
    td_fail_alloc(0, true);
    const int depth = tdict_depth(td);
    td_fail_alloc_stop();
    assert_int_equal(depth, has_tensor ? 100 : 0);
    assert_int_equal(tdict_depth(td), depth);
  }
}

CASE(tree_depth_and_empty) {
  scoped_tree td = ops_tree(SAMPLE(3));
  assert_int_equal(tdict_depth(td), 2);
  assert_int_equal(tdict_depth(td_child(td, "n.m")), 0);
  assert_false((tdict_num_leaves(td) + tdict_num_objects(td) == 0));
  assert_true((tdict_num_leaves(td_child(td, "e")) + tdict_num_objects(td_child(td, "e")) == 0));
  scoped_tree empty = TREE(1);
  td_put_tree(empty, "x.y", TREE(1));
  assert_true((tdict_num_leaves(empty) + tdict_num_objects(empty) == 0));
  assert_int_equal(tdict_depth(empty), 0); /* as in TensorDict */
  td_put(empty, "x.z", TENSOR(1));
  assert_int_equal(tdict_depth(empty), 1);
  td_ok(tdict_delete(empty, "x.z", err));
  td_put(empty, "x.y.deep", TENSOR(1));
  assert_int_equal(tdict_depth(empty), 2);
}

/* The next visitors return the number in `user`, even if it is not a status. */
static tdict_status answer_number(void *user, const tdict_leaves *at, tdict_error *err) {
  (void)at, (void)err;
  return (tdict_status) * (int *)user;
}
static tdict_status make_number(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)at, (void)err;
  *out = NULL;
  return (tdict_status) * (int *)user;
}
static tdict_status entry_number(void *user, const tdict_entry *entry, tdict_error *err) {
  (void)entry, (void)err;
  return (tdict_status) * (int *)user;
}
static tdict_status say_message(void *user, const tdict_leaves *at, tdict_error *err) {
  (void)user, (void)at;
  memcpy(err->message, "only a message", sizeof "only a message");
  return TDICT_EIO;
}
static tdict_status make_message(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  *out = NULL;
  return say_message(user, at, err);
}
CASE(visitor_statuses_are_checked) {
  scoped_tree td = NULL, out = NULL;
  td_ok(tdict_create(0, NULL, &td, err));
  td_put(td, "n.x", td_made(tensor, tdict_tensor_zeros(TDICT_F32, 0, NULL, NULL, &made, err)));
  const tdict_tree *one = td;
  int numbers[] = {-7, 4711};
  for (int i = 0; i < 2; i++) {
    td_fails(TDICT_EHOOK, "not a tdict_status", tdict_visit(NULL, &one, 1, answer_number, &numbers[i], NULL, err));
    assert_string_equal(td_last_error.path, "n.x");
    td_fails(TDICT_EHOOK, "apply: the function returned",
             tdict_apply(NULL, &one, 1, make_number, &numbers[i], NULL, &out, err));
    td_fails_at(TDICT_EHOOK, "not a tdict_status", "n", tdict_walk(td, entry_number, &numbers[i], err));
    assert_int_equal(tdict_walk(td, entry_number, &numbers[i], NULL), TDICT_EHOOK);
  }
  td_fails_at(TDICT_EIO, "only a message", "n.x", tdict_visit(NULL, &one, 1, say_message, NULL, NULL, err));
  td_fails(TDICT_EIO, "only a message", tdict_apply(NULL, &one, 1, make_message, NULL, NULL, &out, err));
  assert_null(out);
}
