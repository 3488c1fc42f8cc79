/* A tree with an object, and its twin, which has a tree with the object's tensors in its place. Operations on both must
 * have equal results. Hooks count their calls and can be made to fail. Each case releases what it makes. */
#ifndef TDICT_TESTS_CORE_OPS_TWINS_H
#define TDICT_TESTS_CORE_OPS_TWINS_H

#include "rig.h"
#include "support/things.h"

enum { HOOK_FLATTEN, HOOK_UNFLATTEN, HOOK_CLONE, HOOK_INDEX, HOOK_STACK, HOOKS };
static int calls[HOOKS];
static int failing = -1;        /* the hook that fails */
static int failure = TDICT_EIO; /* the status that this hook returns; with TDICT_OK, it sets no result */
static bool flat_has_object;

static inline bool fails(int hook, tdict_status *status, tdict_error *err) {
  calls[hook]++;
  if (failing != hook) return false;
  *status = (tdict_status)failure;
  if (err && failure == TDICT_EIO) {
    err->status = TDICT_EIO;
    snprintf(err->message, sizeof err->message, "the disk is gone");
    snprintf(err->path, sizeof err->path, "inside");
  }
  return true;
}

static inline tdict_status hook_flatten(const void *self, tdict_tree **out, tdict_error *err) {
  static const tdict_type inner = TD_TYPE(.name = "inner", .release = help_end_thing);
  static int ends;
  tdict_status status;
  if (fails(HOOK_FLATTEN, &status, err)) return status;
  status = thing_flat.flatten(self, out, err);
  if (status == TDICT_OK && flat_has_object)
    status = tdict_set_object(*out, "deep.x", &inner, help_make_thing(&ends, 0, NULL), err);
  return status;
}
static inline tdict_status hook_unflatten(const void *self, const tdict_tree *tree, void **out, tdict_error *err) {
  tdict_status status;
  return fails(HOOK_UNFLATTEN, &status, err) ? status : thing_flat.unflatten(self, tree, out, err);
}

/* Makes an object from a tree if `status` is TDICT_OK, and releases the tree. */
static inline tdict_status thing_of(tdict_tree *tree, tdict_status status, void **out, tdict_error *err) {
  if (status == TDICT_OK) status = thing_flat.unflatten(NULL, tree, out, err);
  tdict_release(tree);
  return status;
}
static inline tdict_status hook_clone(const void *self, void **out, tdict_error *err) {
  tdict_tree *flat = NULL, *copy = NULL;
  tdict_status status;
  if (fails(HOOK_CLONE, &status, err)) return status;
  status = thing_flat.flatten(self, &flat, err);
  if (status == TDICT_OK) status = tdict_clone_deep(flat, NULL, &copy, err);
  tdict_release(flat);
  return thing_of(copy, status, out, err);
}
static inline tdict_status hook_index(const void *self, int64_t i, void **out, tdict_error *err) {
  tdict_tree *flat = NULL, *part = NULL;
  tdict_status status;
  if (fails(HOOK_INDEX, &status, err)) return status;
  status = thing_flat.flatten(self, &flat, err);
  if (status == TDICT_OK) status = tdict_set_batch_size(flat, 1, tdict_tensor_shape(((const thing *)self)->a), err);
  if (status == TDICT_OK) status = tdict_index_get(NULL, flat, TDICT_INDEX(TDICT_AT(i)), NULL, &part, err);
  tdict_release(flat);
  return thing_of(part, status, out, err);
}
static inline tdict_status hook_stack(const void *const *items, size_t count, void **out, tdict_error *err) {
  tdict_tree *flat[8] = {NULL}, *all = NULL;
  tdict_status status;
  assert_in_range(count, 1, 8);
  if (fails(HOOK_STACK, &status, err)) return status;
  status = TDICT_OK;
  for (size_t i = 0; i < count && status == TDICT_OK; i++) status = thing_flat.flatten(items[i], &flat[i], err);
  if (status == TDICT_OK) status = tdict_stack((const tdict_tree *const *)flat, count, NULL, NULL, &all, err);
  for (size_t i = 0; i < count; i++) tdict_release(flat[i]);
  return thing_of(all, status, out, err);
}
static inline void end_thing(void *self) { thing_flat.release(self); }

static const tdict_type flat_type =
    TD_TYPE(.name = "flat", .release = end_thing, .flatten = hook_flatten, .unflatten = hook_unflatten);
static const tdict_type hooks_type =
    TD_TYPE(.name = "hooks", .release = end_thing, .clone = hook_clone, .index = hook_index, .stack = hook_stack);
static const tdict_type both_type =
    TD_TYPE(.name = "both", .release = end_thing, .flatten = hook_flatten, .unflatten = hook_unflatten,
            .clone = hook_clone, .index = hook_index, .stack = hook_stack);
static const tdict_type bare_type = TD_TYPE(.name = "bare", .release = end_thing);

/* A tree [2, 3] with "t" and an object of two tensors at "n.o", and its twin with a tree of the same tensors there. */
typedef struct twins {
  tdict_tree *td, *plain;
} twins;

static inline twins make_twins(const rig *r, const tdict_type *type) {
  const int64_t shape[] = {2, 3, 2};
  tdict_tensor *t = tensor_on(r, TDICT_I32, 2, shape), *a = tensor_on(r, TDICT_I64, 3, shape);
  tdict_tensor *b = tensor_on(r, TDICT_U8, 2, shape);
  twins w = {TREE(2, 3), TREE(2, 3)};
  td_ok(tdict_set(w.td, "t", t, err));
  td_ok(tdict_set(w.plain, "t", t, err));
  td_ok(tdict_set(w.plain, "n.o.a", a, err));
  td_ok(tdict_set(w.plain, "n.o.b", b, err));
  td_ok(tdict_set_object(w.td, "n.o", type, thing_create(a, b), err));
  tdict_tensor_release(t);
  for (int i = 0; i < HOOKS; i++) calls[i] = 0;
  failing = -1;
  return w;
}
static inline void end_twins(twins *w) { td_release(w->td, w->plain); }
#define scoped_twins TD_SCOPED(end_twins, twins)
/* Closes a rig and checks that no object of the tests is left. */
static inline void rig_close_without_things(rig *r) {
  rig_close(r);
  assert_int_equal(thing_count(), 0);
}
#define scoped_thing_rig TD_SCOPED(rig_close_without_things, rig)

static inline const thing *thing_at(const tdict_tree *td, const tdict_type *type) {
  void *object = NULL;
  td_ok(tdict_get_object(td, "n.o", type, &object, err));
  return object;
}

/* Checks that two results have equal shapes and elements. Tensor `a` must share its storage with the source in `of`
 * either in both results or in neither. */
static inline void agree(const tdict_tree *td, const tdict_tree *plain, const twins *of, const tdict_type *type) {
  const thing *object = thing_at(td, type), *before = thing_at(of->td, type);
  scoped_tree got = help_tree_without_batch(), wanted = help_tree_without_batch();
  td_ok(tdict_set(got, "a", object->a, err));
  td_ok(tdict_set(got, "b", object->b, err));
  td_ok(tdict_set(got, "t", td_leaf(td, "t"), err));
  td_ok(tdict_set(wanted, "a", td_leaf(plain, "n.o.a"), err));
  td_ok(tdict_set(wanted, "b", td_leaf(plain, "n.o.b"), err));
  td_ok(tdict_set(wanted, "t", td_leaf(plain, "t"), err));
  tdict_difference found;
  td_ok(tdict_get_difference(got, wanted, NULL, &found, err));
  if (found.differs) fail_msg("%s: %s", found.path, found.message);
  assert_int_equal(tdict_batch_ndim(td), tdict_batch_ndim(plain));
  assert_int_equal(tdict_tensor_shares_storage(object->a, before->a),
                   tdict_tensor_shares_storage(td_leaf(plain, "n.o.a"), td_leaf(of->plain, "n.o.a")));
}

#endif
