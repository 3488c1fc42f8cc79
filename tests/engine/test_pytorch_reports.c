/* Tests cases from issue reports about PyTorch. In the reports, pinning in a data loader loses the type of a custom
 * batch, or does not call its hook. PyTorch rebuilds a mapping or sequence as a dict or list before it looks for a
 * method `pin_memory`. This library calls the hook of an object first. */
#include "named_batch.h"

static batch *batch_make(probe *p, int number) {
  pair *x = pair_make(p, number, NULL);
  batch like = {.base = *x, .names = {"left camera", "lidar"}, .sizes = {640, 480}};
  batch *made = batch_around(&like, tdict_tensor_retain(x->inp), tdict_tensor_retain(x->tgt));
  assert_non_null(made);
  pair_release(x);
  return made;
}
/* A type with its own hook pin_memory. */
static const tdict_type training_batch =
    TD_TYPE(.name = "TrainingBatch", .release = pair_release, .pin_memory = batch_pin, .is_pinned = pair_is_pinned,
            .flatten = pair_flatten, .unflatten = batch_unflatten);
static batch *put_batch(tdict_tree *td, const char *path, const tdict_type *type, probe *p, int number) {
  batch *made = batch_make(p, number);
  td_ok(tdict_set_object(td, path, type, made, err));
  return made;
}
static batch *batch_at(const tdict_tree *td, const char *path, const tdict_type *type) {
  void *self = NULL;
  assert_ptr_equal(tdict_object_type(td, path), type);
  td_ok(tdict_get_object(td, path, type, &self, err));
  return self;
}
static void check_pinned(const place *w, const batch *b, int number) {
  check_pair(w, &b->base, number, tdict_cpu());
  assert_true(tdict_tensor_is_pinned(b->base.inp));
  assert_true(tdict_tensor_is_pinned(b->base.tgt));
}

/* "pin_memory may change the type of instance returned by collate_fn": the batch's class is derived from dict and has
 * methods `pin_memory` and `to`. With pin_memory=True, the result is a plain dict. */
GPU_CASE(pytorch_32150_pin_keeps_the_type_of_the_batch) {
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  batch *b = batch_make(&p, 1);
  void *out = NULL;
  td_ok(tdict_pin_object(w.c, &training_batch, b, NULL, &out, err)); /* the batch alone */
  assert_ptr_not_equal(out, b);
  check_pinned(&w, out, 1);
  assert_int_equal(batch_area(out), 640 * 480 + 1);
  assert_int_equal(atomic_load(&p.pins), 1);
  pair_release(out);
  pair_release(b);
  scoped_tree td = new_tree(), pinned = NULL; /* as the only entry of a tree */
  put_batch(td, "batch", &training_batch, &p, 2);
  td_ok(tdict_pin_memory(w.c, td, NULL, &pinned, err));
  check_pinned(&w, batch_at(pinned, "batch", &training_batch), 2);
  assert_true(tdict_is_pinned(pinned));
  assert_int_equal(atomic_load(&p.pins), 2);
}

/* "DataLoader w/ memory pinning doesn't allow returning custom dict objects from custom data collator": the class has
 * no `pin_memory`, but another method. The result of pinning is a dict without this method. */
GPU_CASE(pytorch_67831_a_batch_without_hook_keeps_its_methods) {
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  scoped_tree td = new_tree(), pinned = NULL;
  put_batch(td, "values", &container, &p, 3);
  td_ok(tdict_pin_memory(w.c, td, NULL, &pinned, err));
  const batch *made = batch_at(pinned, "values", &container);
  check_pinned(&w, made, 3);
  assert_int_equal(batch_area(made), 640 * 480 + 3);
  scoped_tree there = moved(&w, pinned, w.device);
  check_pair(&w, &batch_at(there, "values", &container)->base, 3, w.device);
  assert_int_equal(batch_area(batch_at(there, "values", &container)), 640 * 480 + 3);
}

/* "pin_memory *still* destroys custom containers": containers with tensors and metadata (names, sizes) lose the
 * metadata. The containers may be inside lists and dicts. */
GPU_CASE(pytorch_70158_containers_keep_what_they_carry) {
  static const char *const paths[] = {"list.0", "list.1", "dict.a.b", "top"};
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  scoped_tree td = numbered_tree(&w, NULL, 3), pinned = NULL;
  for (int i = 0; i < 4; i++) put_batch(td, paths[i], &container, &p, i)->sizes[0] = 100 + i;
  td_ok(tdict_pin_memory(w.c, td, NULL, &pinned, err));
  scoped_tree there = moved(&w, pinned, w.device), back = moved(&w, there, tdict_cpu());
  const tdict_tree *all[] = {pinned, there, back};
  for (int k = 0; k < 3; k++) {
    check_tree_number(&w, all[k], 3);
    for (int i = 0; i < 4; i++) {
      const batch *made = batch_at(all[k], paths[i], &container);
      check_pair(&w, &made->base, i, k == 1 ? w.device : tdict_cpu());
      assert_string_equal(made->names[0], "left camera");
      assert_string_equal(made->names[1], "lidar");
      assert_int_equal(made->sizes[0], 100 + i);
      if (k == 0) check_pinned(&w, made, i);
    }
  }
}

/* "DataLoader: `pin_memory` should respect object attributes before object collection type". The class is a mapping and
 * has its own `pin_memory`. PyTorch does not call this method, but pins the members one by one. */
GPU_CASE(pytorch_82185_own_hook_is_asked_before_the_container_rule) {
  static const char *const paths[] = {"batch", "in.a.dict.of.dicts", "list.0", "list.1"};
  scoped_place w = place_open(4);
  for (int num_threads = -1; num_threads <= 4; num_threads++) {
    scoped_probe p = {0};
    scoped_tree td = new_tree(), pinned = NULL;
    for (int i = 0; i < 4; i++) put_batch(td, paths[i], &training_batch, &p, i);
    assert_false(tdict_is_pinned(td));
    td_ok(tdict_pin_memory(w.c, td, td_options(tdict_pin_options, num_threads = num_threads), &pinned, err));
    assert_int_equal(atomic_load(&p.pins), 4);
    assert_int_equal(atomic_load(&p.flattens), 0); /* the batch could also be flattened, but was not */
    for (int i = 0; i < 4; i++) check_pinned(&w, batch_at(pinned, paths[i], &training_batch), i);
    assert_true(tdict_is_pinned(pinned));
  }
}
