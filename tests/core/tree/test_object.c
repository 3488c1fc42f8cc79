/* Tests objects in trees: setting, reading, replacing and releasing them, and how other functions treat them. */
#include "help.h"
#include "tdict/debug.h"

static int asked; /* number of calls to hooks that must not be called */
static tdict_status never_move(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  (void)self, (void)hook, (void)out, (void)err;
  asked++;
  return TDICT_EHOOK;
}
static tdict_status never_flatten(const void *self, tdict_tree **out, tdict_error *err) {
  (void)self, (void)out, (void)err;
  asked++;
  return TDICT_EHOOK;
}
static tdict_status never_unflatten(const void *self, const tdict_tree *tree, void **out, tdict_error *err) {
  (void)self, (void)tree, (void)out, (void)err;
  asked++;
  return TDICT_EHOOK;
}
static bool never_pinned(const void *self) {
  (void)self;
  asked++;
  return false;
}

static const tdict_type thing_type =
    TD_TYPE(.name = "thing", .release = help_end_thing, .pin_memory = never_move, .to_device = never_move,
            .is_pinned = never_pinned, .flatten = never_flatten, .unflatten = never_unflatten,
            .bytes = help_thing_bytes, .print = help_thing_print);
static const tdict_type bare_type = TD_TYPE(.name = "bare", .release = help_end_thing);
static const tdict_type twin_type = TD_TYPE(.name = "thing", .release = help_end_thing);

/* Sets a new object of thing_type. Its release hook increments *ends. */
static help_thing *put(tdict_tree *td, const char *path, int *ends) {
  help_thing *thing = help_make_thing(ends, 0, NULL);
  td_ok(tdict_set_object(td, path, &thing_type, thing, err));
  return thing;
}
static void *get(const tdict_tree *td, const char *path) {
  void *object = NULL;
  td_ok(tdict_get_object(td, path, &thing_type, &object, err));
  return object;
}

CASE(object_set_takes_ownership) {
  int first = 0, second = 0;
  tdict_tree *td = td_tree("[4,3] a:f32[4,3]");
  help_thing *thing = put(td, "n.m\\.0.o", &first);
  td_put(td, "z", TENSOR(4, 3));
  help_paths(td, "a n n.m\\.0 n.m\\.0.o z");
  assert_ptr_equal(get(td, "n.m\\.0.o"), thing);
  assert_int_equal(tdict_batch_ndim(td_child(td, "n.m\\.0")), 2); /* nodes are created as for a tensor */
  for (int i = 0; i < 3; i++) td_ok(tdict_set_object(td, "n.m\\.0.o", &thing_type, thing, err)); /* itself */
  assert_ptr_equal(get(td, "n.m\\.0.o"), thing);
  assert_int_equal(first, 0);
  thing = put(td, "a", &second); /* replaces a tensor, and then a tree */
  assert_ptr_equal(get(td, "a"), thing);
  thing = put(td, "n", &second);
  assert_int_equal(first, 1); /* the object was in the replaced tree */
  help_paths(td, "a n z");
  assert_ptr_equal(get(td, "n"), thing);
  assert_int_equal(second, 0);
  tdict_release(td);
  assert_int_equal(first, 1);
  assert_int_equal(second, 2);
}

CASE(object_released_once) {
  enum { WAYS = 9 };
  int ends[WAYS] = {0}, kept = 0, n = 0;
  tdict_tree *td = TREE(2), *popped = NULL;
  scoped_tensor t = TENSOR(2);
  put(td, "o", &ends[n]);
  td_ok(tdict_delete(td, "o", err));
  assert_int_equal(ends[n++], 1);
  put(td, "o", &ends[n]);
  td_ok(tdict_set(td, "o", t, err));
  assert_int_equal(ends[n++], 1);
  put(td, "o", &ends[n]);
  td_put_tree(td, "o", TREE(2));
  assert_int_equal(ends[n++], 1);
  put(td, "o", &ends[n]);
  put(td, "o", &kept);
  assert_int_equal(ends[n++], 1);
  put(td, "x", &ends[n]);
  td_ok(tdict_rename(td, "o", "x", false, err)); /* within one node */
  assert_int_equal(ends[n++], 1);
  put(td, "n.x", &ends[n]);
  td_ok(tdict_rename(td, "x", "n.x", false, err)); /* to another node */
  assert_int_equal(ends[n++], 1);
  put(td, "m.x", &ends[n]);
  td_ok(tdict_delete(td, "m", err)); /* together with its tree */
  assert_int_equal(ends[n++], 1);
  put(td, "m.x", &ends[n]);
  td_ok(tdict_pop_tree(td, "m", &popped, err));
  assert_int_equal(ends[n], 0);
  tdict_release(popped);
  assert_int_equal(ends[n++], 1);
  put(td, "last.of.all", &ends[n]);
  assert_int_equal(kept, 0); /* the object was renamed twice, but not released */
  tdict_release(td);
  assert_int_equal(ends[n++], 1);
  assert_int_equal(n, WAYS);
  assert_int_equal(kept, 1);
  for (int i = 0; i < WAYS; i++) assert_int_equal(ends[i], 1);
}

/* Trees that contain the same node, and nodes that share leaves, share the box of the object. */
CASE(object_shared_by_trees) {
  int ends = 0;
  tdict_tree *one = TREE(4), *two = TREE(4), *child = TREE(4), *longer = TREE(4, 3);
  help_thing *thing = put(child, "deep.o", &ends);
  td_put(child, "deep.t", TENSOR(4, 3, 2));
  td_ok(tdict_set_tree(one, "c", child, err));
  td_ok(tdict_set_tree(two, "c", child, err));
  td_ok(tdict_set_tree(longer, "c", child, err)); /* makes a shallow copy with another batch size */
  assert_ptr_not_equal(td_child(longer, "c.deep"), td_child(child, "deep"));
  assert_ptr_equal(get(longer, "c.deep.o"), thing);
  assert_ptr_equal(get(two, "c.deep.o"), thing);
  tdict_release(one);
  td_ok(tdict_delete(child, "deep.o", err));
  assert_false(tdict_has(two, "c.deep.o"));
  td_release(two, child);
  assert_int_equal(ends, 0);
  assert_ptr_equal(get(longer, "c.deep.o"), thing);
  tdict_release(longer);
  assert_int_equal(ends, 1);
}

/* Releasing an object may release trees, which may hold objects. */
static void end_holder(void *self) { tdict_release(self); }
CASE(object_may_hold_trees) {
  static const tdict_type holder_type = TD_TYPE(.name = "holder", .release = end_holder);
  int ends = 0;
  tdict_tree *inner = TREE(2);
  put(inner, "o", &ends);
  for (int i = 0; i < 100; i++) {
    tdict_tree *outer = td_tree("[2] n.t:f32[2]");
    td_ok(tdict_set_object(outer, "n.holder", &holder_type, inner, err));
    put(outer, "n.m.o", &ends);
    inner = outer;
  }
  tdict_release(inner);
  assert_int_equal(ends, 101);
}

static void refuse(tdict_tree *td, const tdict_type *type, const char *text) {
  int ends = 0;
  TD_FREED help_thing *thing = help_make_thing(&ends, 0, NULL);
  td_fails_at(TDICT_EINVAL, text, "n.o", tdict_set_object(td, "n.o", type, thing, err));
  assert_int_equal(ends, 0);
}

CASE(object_set_refuses) {
  int ends = 0, kept = 0;
  tdict_tree *td = td_tree("[2] n.t:f32[2]");
  put(td, "n.kept", &kept);
  char *before = help_snapshot(td);
  help_thing *thing = help_make_thing(&ends, 0, NULL);
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_set_object(NULL, "o", &thing_type, thing, err));
  td_fails(TDICT_EINVAL, "path is NULL", tdict_set_object(td, NULL, &thing_type, thing, err));
  td_fails(TDICT_EINVAL, "type is NULL", tdict_set_object(td, "o", NULL, thing, err));
  td_fails(TDICT_EINVAL, "self is NULL", tdict_set_object(td, "o", &thing_type, NULL, err));
  td_fails(TDICT_EINVAL, "empty key", tdict_set_object(td, "n..o", &thing_type, thing, err));
  td_fails(TDICT_EINVAL, "empty key", tdict_set_object(td, "", &thing_type, thing, err));
  td_fails_at(TDICT_ETYPE, "'t' is a tensor", "n.t.o", tdict_set_object(td, "n.t.o", &thing_type, thing, err));
  td_fails(TDICT_ETYPE, "'kept' is an object of type thing", tdict_set_object(td, "n.kept.o", &thing_type, thing, err));
  td_fails(TDICT_EINVAL, "already at the path", tdict_set_object(td, "n.kept", &twin_type, get(td, "n.kept"), err));
  assert_string_equal(td_last_error.path, "n.kept");
  assert_int_equal(kept, 0);
  const size_t least = offsetof(tdict_type, release) + sizeof thing_type.release;
  tdict_type bad = thing_type;
  for (bad.struct_size = 0; bad.struct_size < least; bad.struct_size++) refuse(td, &bad, "struct_size");
  bad = thing_type, bad.name = NULL, refuse(td, &bad, "has no name");
  bad = thing_type, bad.name = "", refuse(td, &bad, "has no name");
  bad = thing_type, bad.release = NULL, refuse(td, &bad, "thing has no release");
  bad = thing_type, bad.flatten = NULL, refuse(td, &bad, "has unflatten and no flatten");
  bad = thing_type, bad.unflatten = NULL, refuse(td, &bad, "has flatten and no unflatten");
  bad = thing_type, bad.struct_size = offsetof(tdict_type, unflatten), refuse(td, &bad, "has flatten and no unflatten");
  assert_int_equal(tdict_set_object(td, "o", &bad, thing, NULL), TDICT_EINVAL);
  help_unchanged(td, before);
  tdict_lock(td);
  before = help_snapshot(td);
  td_fails(TDICT_ELOCKED, "'o' cannot be changed", tdict_set_object(td, "n.o", &thing_type, thing, err));
  td_fails(TDICT_ELOCKED, "locked", tdict_set_object(td, "n.kept", &thing_type, get(td, "n.kept"), err));
  td_fails(TDICT_ELOCKED, "locked", tdict_delete(td, "n.kept", err));
  help_unchanged(td, before);
  assert_int_equal(ends + kept, 0);
  free(thing);
  tdict_release(td);
  assert_int_equal(kept, 1);
}

CASE(object_get_checks_type) {
  int ends = 0;
  void *const nothing = &ends, *object = nothing;
  scoped_tree td = td_tree("[2] n.t:f32[2]");
  help_thing *thing = put(td, "n.o", &ends);
  td_fails_at(TDICT_ETYPE, "found an object of type thing, wanted an object of type bare", "n.o",
              tdict_get_object(td, "n.o", &bare_type, &object, err));
  td_fails(TDICT_ETYPE, "found an object of type thing, wanted an object of another type named thing",
           tdict_get_object(td, "n.o", &twin_type, &object, err));
  td_fails(TDICT_ETYPE, "found a tensor, wanted an object of type thing",
           tdict_get_object(td, "n.t", &thing_type, &object, err));
  td_fails(TDICT_ETYPE, "found a tree, wanted an object of type thing",
           tdict_get_object(td, "n", &thing_type, &object, err));
  td_fails(TDICT_ETYPE, "'o' is an object of type thing", tdict_get_object(td, "n.o.x", &thing_type, &object, err));
  td_fails(TDICT_ENOTFOUND, "'x'", tdict_get_object(td, "n.x", &thing_type, &object, err));
  td_fails(TDICT_EINVAL, "empty key", tdict_get_object(td, "n.", &thing_type, &object, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_get_object(NULL, "n.o", &thing_type, &object, err));
  td_fails(TDICT_EINVAL, "path is NULL", tdict_get_object(td, NULL, &thing_type, &object, err));
  td_fails(TDICT_EINVAL, "type is NULL", tdict_get_object(td, "n.o", NULL, &object, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_get_object(td, "n.o", &thing_type, NULL, err));
  assert_ptr_equal(object, nothing);
  assert_ptr_equal(tdict_object_type(td, "n.o"), &thing_type);
  static const char *const none[] = {"n", "n.t", "n.x", "n.o.x", "n..o", ""};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) assert_null(tdict_object_type(td, none[i]));
  assert_null(tdict_object_type(td, NULL));
  assert_null(tdict_object_type(NULL, "n.o"));
  td_ok(tdict_get_object(td, "n.o", &thing_type, &object, err));
  assert_ptr_equal(object, thing);
  assert_int_equal(ends, 0); /* borrowed */
}

CASE(object_is_refused_as_tree_and_as_tensor) {
  int ends = 0;
  tdict_tree *td = TREE(2), *child = TREE(2), *const no_tree = (tdict_tree *)(uintptr_t)0xA5A5, *tree = no_tree;
  tdict_tensor *t = TENSOR(2), *const no_tensor = (tdict_tensor *)(uintptr_t)0xA5A5, *got = no_tensor;
  put(td, "n.o", &ends);
  td_put(td, "a", TENSOR(2));
  char *before = help_snapshot(td);
  static const char through[] = "'o' is an object of type thing, and the path leads through it";
  td_fails_at(TDICT_ETYPE, through, "n.o.x", tdict_set(td, "n.o.x", t, err));
  td_fails(TDICT_ETYPE, through, tdict_set_tree(td, "n.o.x.y", child, err));
  td_fails(TDICT_ETYPE, through, tdict_get(td, "n.o.x", &got, err));
  td_fails(TDICT_ETYPE, through, tdict_get_tree(td, "n.o.x", &tree, err));
  td_fails(TDICT_ETYPE, through, tdict_delete(td, "n.o.x", err));
  td_fails(TDICT_ETYPE, through, tdict_rename(td, "n.o.x", "b", false, err));
  td_fails(TDICT_ETYPE, through, tdict_rename(td, "a", "n.o.x", false, err));
  td_fails_at(TDICT_ETYPE, "found an object of type thing, wanted a tensor", "n.o", tdict_get(td, "n.o", &got, err));
  td_fails(TDICT_ETYPE, "found an object of type thing, wanted a tree", tdict_get_tree(td, "n.o", &tree, err));
  td_fails(TDICT_EINVAL, "below", tdict_rename(td, "n.o", "n.o.x", false, err));
  assert_null(tdict_data(td, "n.o"));
  assert_null(tdict_const_data(td, "n.o"));
  assert_true(tdict_has(td, "n.o"));
  assert_false(tdict_has(td, "n.o.x"));
  help_unchanged(td, before);
  assert_ptr_equal(got, no_tensor);
  assert_ptr_equal(tree, no_tree);
  td_release(t, child, td);
  assert_int_equal(ends, 1);
}

CASE(object_is_not_popped) {
  int ends = 0;
  tdict_tree *td = TREE(2), *const no_tree = (tdict_tree *)(uintptr_t)0xA5A5, *tree = no_tree;
  tdict_tensor *const no_tensor = (tdict_tensor *)(uintptr_t)0xA5A5, *t = no_tensor;
  put(td, "n.o", &ends);
  char *before = help_snapshot(td);
  td_fails_at(TDICT_ETYPE, "pop: found an object of type thing, wanted a tensor", "n.o", tdict_pop(td, "n.o", &t, err));
  td_fails(TDICT_ETYPE, "pop_tree: found an object of type thing, wanted a tree",
           tdict_pop_tree(td, "n.o", &tree, err));
  assert_ptr_equal(t, no_tensor);
  assert_ptr_equal(tree, no_tree);
  help_unchanged(td, before);
  tdict_release(td);
  assert_int_equal(ends, 1);
}

CASE(object_rename) {
  const tdict_device sim = tdict_sim(1);
  int ends = 0, over = 0;
  tdict_tree *td = td_tree("[2] a:f32[2]"), *other = TREE(2, 5);
  help_thing *thing = put(td, "o", &ends);
  td_put(td, "b", TENSOR(2));
  td_ok(tdict_set_device(other, &sim, err));
  td_put_tree(td, "other", other);
  td_ok(tdict_rename(td, "o", "p", true, err)); /* keeps its place */
  help_paths(td, "a p b other");
  td_fails(TDICT_EEXIST, "safe", tdict_rename(td, "p", "a", true, err));
  td_fails(TDICT_EEXIST, "safe", tdict_rename(td, "a", "p", true, err));
  td_ok(tdict_rename(td, "p", "other.n.p", true, err)); /* objects need not fit a batch size or a device */
  help_paths(td, "a b other other.n other.n.p");
  assert_ptr_equal(get(td, "other.n.p"), thing);
  put(td, "c", &over);
  td_ok(tdict_rename(td, "other.n.p", "c", false, err));
  assert_int_equal(over, 1);
  assert_ptr_equal(get(td, "c"), thing);
  assert_int_equal(ends, 0);
  tdict_release(td);
  assert_int_equal(ends, 1);
}

CASE(object_is_exempt_from_batch_size_and_device) {
  const tdict_device sim = tdict_sim(1), cpu = tdict_cpu();
  int ends = 0;
  tdict_tree *td = TREE(4, 3), *child = TREE(7);
  td_ok(tdict_set_device(td, &sim, err));
  help_thing *thing = put(td, "n.o", &ends);
  td_ok(tdict_set_batch_size(td, 1, (const int64_t[]){9}, err));
  td_ok(tdict_set_device(td, &cpu, err));
  td_ok(tdict_set_device(td, NULL, err));
  put(child, "m.o", &ends);
  td_ok(tdict_set_tree(td, "child", child, err)); /* `child` has another batch size, but no tensors */
  assert_int_equal(tdict_batch_size(td_child(td, "child.m"))[0], 9);
  assert_int_equal(tdict_batch_size(child)[0], 7);
  td_put(child, "m.t", TENSOR(7));
  td_fails(TDICT_ESHAPE, "batch size is [9]", tdict_set_tree(td, "again", child, err));
  tdict_lock(td);
  td_ok(tdict_unlock(td, err));
  assert_ptr_equal(get(td, "n.o"), thing);
  assert_int_equal(asked, 0);
  td_release(child, td);
  assert_int_equal(ends, 2);
}

/* The program's tdict_type may be shorter than the library's. Each struct is in a buffer of its exact size. */
CASE(object_type_with_a_shorter_struct) {
  const size_t least = offsetof(tdict_type, release) + sizeof thing_type.release;
  for (size_t bytes = least; bytes <= sizeof thing_type; bytes++) {
    bool half = bytes >= offsetof(tdict_type, flatten) + sizeof thing_type.flatten &&
                bytes < offsetof(tdict_type, unflatten) + sizeof thing_type.unflatten;
    int ends = 0;
    tdict_tree *td = TREE(2);
    TD_FREED tdict_type *type = malloc(bytes);
    help_thing *thing = help_make_thing(&ends, 1000, "I am long");
    memcpy(type, &thing_type, bytes);
    memcpy(type, &bytes, sizeof bytes);
    tdict_status status = tdict_set_object(td, "o", type, thing, NULL);
    assert_int_equal(status, half ? TDICT_EINVAL : TDICT_OK);
    if (half) help_end_thing(thing);
    bool counts = bytes >= offsetof(tdict_type, bytes) + sizeof thing_type.bytes;
    bool prints = bytes >= offsetof(tdict_type, print) + sizeof thing_type.print;
    size_t unique = 0;
    char text[256];
    td_ok(tdict_unique_bytes(td, &unique, err));
    assert_int_equal(tdict_bytes(td), counts ? 1000 : 0);
    assert_int_equal(unique, counts ? 1000 : 0);
    tdict_format(td, text, sizeof text);
    assert_true((strstr(text, "I am long") != NULL) == prints);
    tdict_release(td);
    assert_int_equal(ends, 1);
  }
  struct {
    tdict_type type;
    char fields[64];
  } longer = {.type = thing_type}; /* a struct of a later version of the library */
  longer.type.struct_size = sizeof longer;
  int ends = 0;
  tdict_tree *td = TREE(2);
  td_ok(tdict_set_object(td, "o", &longer.type, help_make_thing(&ends, 7, NULL), err));
  assert_int_equal(tdict_bytes(td), 7);
  tdict_release(td);
  assert_int_equal(ends, 1);
  assert_int_equal(asked, 0);
}

typedef struct seen {
  const void *object;
  int count;
} seen;
static tdict_status see(void *user, const tdict_entry *entry, tdict_error *err) {
  seen *s = user;
  (void)err;
  assert_int_equal((entry->tensor != NULL) + (entry->tree != NULL) + (entry->object != NULL), 1);
  assert_ptr_equal(entry->type, entry->object ? &thing_type : NULL);
  if (!entry->object) return TDICT_OK;
  s->count++;
  assert_ptr_equal(entry->object, s->object);
  assert_string_equal(entry->path, "n.h\\.0");
  assert_string_equal(entry->key, "h.0");
  assert_int_equal(entry->depth, 1);
  return TDICT_OK;
}

CASE(object_is_visited_by_walk) {
  int ends = 0;
  tdict_tree *td = td_tree("[2] a:f32[2]");
  seen s = {put(td, "n.h\\.0", &ends), 0};
  td_put(td, "n.b", TENSOR(2));
  td_ok(tdict_walk(td, see, &s, err));
  assert_int_equal(s.count, 1);
  help_paths(td, "a n n.h\\.0 n.b");
  tdict_release(td);
  assert_int_equal(ends, 1);
}

static size_t unique_bytes(const tdict_tree *td) {
  size_t bytes = 0;
  td_ok(tdict_unique_bytes(td, &bytes, err));
  return bytes;
}

CASE(object_is_counted_in_leaves_and_bytes) {
  int ends = 0;
  tdict_tree *td = TREE(2), *longer = TREE(2, 3);
  assert_int_equal(tdict_num_objects(td), 0);
  td_put(td, "n.t", TENSOR(2, 3, 5));
  td_ok(tdict_set_object(td, "n.o", &thing_type, help_make_thing(&ends, 1000, NULL), err));
  td_ok(tdict_set_object(td, "n.m.o", &bare_type, help_make_thing(&ends, 500, NULL), err)); /* no bytes hook */
  td_ok(tdict_set_object(td, "o", &thing_type, help_make_thing(&ends, 20, NULL), err));
  const size_t tensor = 30 * sizeof(float);
  assert_int_equal(tdict_num_leaves(td), 1);
  assert_int_equal(tdict_num_objects(td), 3);
  assert_int_equal(tdict_bytes(td), tensor + 1020);
  assert_int_equal(unique_bytes(td), tensor + 1020);
  td_ok(tdict_set_tree(td, "again", td_child(td, "n"), err)); /* the same node */
  assert_int_equal(tdict_num_leaves(td), 2);
  assert_int_equal(tdict_num_objects(td), 5);
  assert_int_equal(tdict_bytes(td), 2 * tensor + 2020);
  assert_int_equal(unique_bytes(td), tensor + 1020);
  td_put_tree(td, "longer", longer);
  td_ok(tdict_set_tree(td, "longer.n", td_child(td, "n"), err)); /* a copy that shares the leaves */
  assert_int_equal(tdict_num_objects(td), 7);
  assert_int_equal(unique_bytes(td), tensor + 1020);
  td_fail_alloc(0, true); /* remembering which objects were counted needs memory */
  size_t bytes = 77;
  tdict_status status = tdict_unique_bytes(td, &bytes, NULL);
  assert_true(td_fail_alloc_stop());
  assert_int_equal(status, TDICT_ENOMEM);
  assert_int_equal(bytes, 77);
  assert_int_equal(asked, 0);
  tdict_release(td);
  assert_int_equal(ends, 3);
}

/* A print hook that breaks its contract: the string is not terminated, and the returned length is wrong. */
static size_t bad_print(const void *self, char *buffer, size_t bytes) {
  (void)self;
  memset(buffer, 'x', bytes);
  return 0;
}

CASE(object_is_printed) {
  static const tdict_type named = TD_TYPE(.name = "cr\ropper", .release = help_end_thing);
  static const tdict_type loud = TD_TYPE(.name = "loud", .release = help_end_thing, .print = bad_print);
  int ends = 0;
  char text[2048], many[301];
  tdict_tree *td = td_tree("[2] obs:f32[2,3]");
  td_ok(tdict_set_object(td, "episode", &thing_type, help_make_thing(&ends, 40, "7 steps\n\xe5\xad\x97 C:\\x"), err));
  td_ok(tdict_set_object(td, "n.o", &named, help_make_thing(&ends, 0, NULL), err));
  td_ok(tdict_set_object(td, "n.e", &thing_type, help_make_thing(&ends, 0, ""), err));
  size_t length = tdict_format(td, text, sizeof text);
  assert_int_equal(length, strlen(text));
  assert_string_equal(text, "tree batch=[2]\n"
                            "  obs      float32 [2, 3] cpu\n"
                            "  episode  object thing  7 steps\\x0a\xe5\xad\x97 C:\\x\n"
                            "  n: tree batch=[2]\n"
                            "    o      object cr\\x0dopper\n"
                            "    e      object thing\n"
                            "1 tensor, 3 objects, 64 bytes\n");
  for (size_t bytes = 0; bytes < sizeof text / 8; bytes++) { /* truncated as by snprintf() */
    char cut[sizeof text / 8 + 1];
    memset(cut, 0xA5, sizeof cut);
    assert_int_equal(tdict_format(td, cut, bytes), strlen(text));
    size_t shown = bytes == 0 ? 0 : bytes - 1 < strlen(text) ? bytes - 1 : strlen(text);
    assert_memory_equal(cut, text, shown);
    if (bytes) assert_int_equal(cut[shown], 0);
    assert_int_equal((unsigned char)cut[bytes], 0xA5);
  }
  td_ok(tdict_delete(td, "n", err));
  memset(many, 'm', sizeof many - 1);
  many[sizeof many - 1] = 0;
  td_ok(tdict_set_object(td, "episode", &thing_type, help_make_thing(&ends, 40, many), err));
  tdict_format(td, text, sizeof text);
  many[255] = 0;
  const char *line = strstr(text, many);
  assert_non_null(line);
  assert_memory_equal(line + 255, "...\n", 4);
  assert_non_null(strstr(text, "1 tensor, 1 object, 64 bytes\n"));
  td_ok(tdict_set_object(td, "episode", &loud, help_make_thing(&ends, 40, NULL), err));
  tdict_format(td, text, sizeof text);
  memset(many, 'x', 255);
  line = strstr(text, many);
  assert_non_null(line);
  assert_int_equal(line[255], '\n');
  tdict_release(td);
  assert_int_equal(ends, 5);
}

CASE(object_set_survives_enomem) {
  int ends = 0, old_ends = 0;
  char path[400];
  tdict_tree *td = TREE(2), *holder = TREE(2, 3);
  for (int i = 0; i < 8; i++) { /* eight keys fill the key table, so one more needs memory */
    td_put(td, td_text("n.k%d", i), TENSOR(2, 3));
  }
  td_ok(tdict_set_tree(holder, "n", td_child(td, "n"), err)); /* a copy that shares the key table */
  memset(path, 'k', sizeof path - 1);
  memcpy(path, "n.a.\\b", 6); /* the escaped key is too long for the buffer in a tdict_path */
  path[sizeof path - 1] = 0;
  put(td, "old", &old_ends);
  static const char *const old = "old";
  const char *const paths[] = {path, old};
  int64_t met[2] = {0, 0};
  for (size_t i = 0; i < 2; i++) {
    char *before = help_snapshot(td);
    help_thing *thing = help_make_thing(&ends, 0, NULL);
    for (;; met[i]++) {
      tdict_error error = {0};
      td_fail_alloc(met[i], met[i] % 2 == 1);
      tdict_status status = tdict_set_object(td, paths[i], &thing_type, thing, &error);
      if (!td_fail_alloc_stop()) {
        assert_int_equal(status, TDICT_OK);
        break;
      }
      assert_int_equal(status, TDICT_ENOMEM);
      assert_int_equal(error.status, TDICT_ENOMEM);
      assert_int_equal(strncmp(error.path, paths[i], 3), 0);
      char *after = help_snapshot(td);
      assert_string_equal(after, before);
      free(after);
      assert_int_equal(ends + old_ends, 0);
    }
    free(before);
    assert_ptr_equal(get(td, paths[i]), thing);
  }
  assert_true(met[0] > 5);
  assert_int_equal(met[1], 1); /* the only allocation is the box */
  assert_int_equal(old_ends, 1);
  help_paths(holder, "n n.k0 n.k1 n.k2 n.k3 n.k4 n.k5 n.k6 n.k7");
  td_release(holder, td);
  assert_int_equal(ends, 2);
}

/* Functions that only move keys share the box, and call no hook. */
CASE(object_moves_with_keys) {
  int ends = 0;
  tdict_tree *td = TREE(2), *to = TREE(2), *outs[8] = {NULL};
  help_thing *thing = put(td, "n.o", &ends);
  td_put(td, "n.t", TENSOR(2));
  const char *const paths[] = {"n.o"}, *const others[] = {"n.t"};
  const tdict_key_set sets[] = {{paths, 1}};
  asked = 0;
  td_ok(tdict_clone(td, &outs[0], err));
  td_ok(tdict_select(td, paths, 1, true, &outs[1], err));
  td_ok(tdict_exclude(td, others, 1, &outs[2], err));
  td_ok(tdict_split_keys(td, sets, 1, &outs[3], &(size_t){2}, err)); /* outs[4] has the other keys */
  td_ok(tdict_clone(to, &outs[5], err));
  td_ok(tdict_update(outs[5], td, NULL, 0, err));
  td_ok(tdict_flatten_keys(td, "/", &outs[6], err));
  td_ok(tdict_unflatten_keys(outs[6], "/", &outs[7], err));
  for (int i = 0; i < 8; i++) {
    if (i != 4) assert_ptr_equal(get(outs[i], i == 6 ? "n/o" : "n.o"), thing);
    tdict_release(outs[i]);
  }
  td_ok(tdict_update(to, td, NULL, 0, err));
  assert_ptr_equal(get(to, "n.o"), thing);
  tdict_release(td);
  assert_int_equal(ends + asked, 0);
  tdict_release(to);
  assert_int_equal(ends, 1);
}
