/* Tests objects in transfers: which hooks are called, the results, the statistics, and failures. */
#include "pair.h"

static const tdict_type pair_pins = PAIR_TYPE(.pin_memory = pair_pin);
static const tdict_type pair_moves = PAIR_TYPE(.to_device = pair_move);
static const tdict_type pair_all =
    PAIR_TYPE(.pin_memory = pair_pin, .to_device = pair_move, .is_pinned = pair_is_pinned, .flatten = pair_flatten,
              .unflatten = pair_unflatten);
static const tdict_type pair_pins_flat =
    PAIR_TYPE(.pin_memory = pair_pin, .flatten = pair_flatten, .unflatten = pair_unflatten);

enum { NUM_TYPES = 7 };
static const tdict_type *const types[NUM_TYPES] = {&pair_hooked, &pair_flat, &pair_bare,     &pair_pins,
                                                   &pair_moves,  &pair_all,  &pair_pins_flat};
static const char *path_of(int i) {
  static const char *const paths[NUM_TYPES] = {"first", "n.hooked", "n.m.k", "z", "n.m.l", "y.y", "last"};
  return paths[i];
}
/* Makes a tree with tensors and one pair of each type. */
static tdict_tree *tree_of_all(const place *w, probe *p, uint64_t number, pair **pairs) {
  tdict_tree *td = numbered_tree(w, NULL, number);
  for (int i = 0; i < NUM_TYPES; i++) pairs[i] = put_pair(td, path_of(i), types[i], p, i);
  return td;
}

typedef struct path_list {
  char text[1024];
  size_t at;
} path_list;
static tdict_status note_path(void *user, const tdict_entry *entry, tdict_error *err) {
  path_list *l = user;
  (void)err;
  l->at += (size_t)snprintf(l->text + l->at, sizeof l->text - l->at, "%s%s ", entry->path,
                            entry->object   ? "*"
                            : entry->tensor ? ""
                                            : "/");
  return TDICT_OK;
}
static void check_same_paths(const tdict_tree *a, const tdict_tree *b) {
  path_list one = {.at = 0}, two = {.at = 0};
  td_ok(tdict_walk(a, note_path, &one, err));
  td_ok(tdict_walk(b, note_path, &two, err));
  assert_string_equal(one.text, two.text);
}

/* Returns true if pairs of this type cannot be moved. */
static bool stays_behind(const tdict_type *type) { return type == &pair_bare || type == &pair_pins; }

GPU_CASE(objects_keep_their_type) {
  for (int way = 0; way < 3 * 3; way++) {
    place w = place_open(3);
    probe p = {0};
    pair *pairs[NUM_TYPES];
    tdict_tree *src = tree_of_all(&w, &p, 3, pairs);
    tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = way % 3 == 2 ? 3 : way % 3 - 1,
                                       mode = TDICT_MODE_BLOCKING + way / 3, keep_objects = true);
    tdict_tree *out = finish(move_async(&w, src, w.device, &o));
    check_same_paths(src, out);
    check_tree_number(&w, out, 3);
    for (int i = 0; i < NUM_TYPES; i++) {
      assert_ptr_equal(tdict_object_type(out, path_of(i)), types[i]);
      pair *made = pair_at(out, path_of(i), types[i]);
      const bool is_pinned = types[i] == &pair_pins && o.mode == TDICT_MODE_NON_BLOCKING_PIN;
      assert_int_equal(made == pairs[i], stays_behind(types[i]) && !is_pinned);
      if (stays_behind(types[i])) assert_int_equal(tdict_tensor_is_pinned(made->inp), is_pinned);
      check_pair(&w, made, i, stays_behind(types[i]) ? tdict_cpu() : w.device);
      check_pair(&w, pairs[i], i, tdict_cpu());
    }
    tdict_tree *back = finish(move_async(&w, out, tdict_cpu(), &o));
    check_same_paths(src, back);
    check_tree_number(&w, back, 3);
    for (int i = 0; i < NUM_TYPES; i++) check_pair(&w, pair_at(back, path_of(i), types[i]), i, tdict_cpu());
    td_release(src, out, back);
    close_pairs(&w, &p);
  }
}

GPU_CASE(objects_are_pinned_by_hook_or_flatten) {
  scoped_probe p = {0};
  scoped_place w = place_open(3);
  pair *pairs[NUM_TYPES];
  scoped_tree src = tree_of_all(&w, &p, 4, pairs), out = NULL;
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  td_ok(tdict_pin_memory(w.c, src, td_options(tdict_pin_options, stats = &stats), &out, err));
  check_same_paths(src, out);
  check_tree_number(&w, out, 4);
  for (int i = 0; i < NUM_TYPES; i++) {
    bool kept = types[i] == &pair_bare || types[i] == &pair_moves;
    pair *made = pair_at(out, path_of(i), types[i]);
    assert_int_equal(made == pairs[i], kept);
    assert_int_equal(tdict_tensor_is_pinned(made->inp) && tdict_tensor_is_pinned(made->tgt), !kept);
    check_pair(&w, made, i, tdict_cpu());
  }
  assert_int_equal(atomic_load(&p.pins), 4);
  assert_int_equal(atomic_load(&p.flattens), 1); /* for pair_flat, which has no hook pin_memory */
  assert_int_equal(stats.num_objects, NUM_TYPES);
  assert_int_equal(stats.num_objects_pinned, 5);
  assert_int_equal(stats.num_objects_unpinned, 2);
  assert_int_equal(stats.num_objects_kept, 0);
}

/* Hooks of `wanted` objects wait here until all of them run at the same time. */
typedef struct meeting {
  gate gate;
  int wanted;
} meeting;
static tdict_status wait_for_all_hooks(const pair *self, const tdict_hook *hook, tdict_error *err) {
  meeting *m = self->user;
  (void)err;
  if (hook->device.type == TDICT_DEVICE_CPU && self->number >= 0 && m->wanted == 0) return TDICT_OK;
  if (atomic_fetch_add(&m->gate.entered, 1) + 1 >= m->wanted) atomic_store(&m->gate.open, true);
  return wait_flag(&m->gate.open) ? TDICT_OK : TDICT_ETIMEDOUT;
}

/* Runs the hooks. `way` is 0 or 1: asynchronous, 2 or 3: blocking, 4: pin_memory. Ways 1 and 3 use COUNT threads. */
static void run_meeting(int way) {
  enum { COUNT = 4 };
  scoped_probe p = {0};
  scoped_place w = place_open(COUNT);
  meeting m = {.wanted = COUNT};
  scoped_tree src = new_tree(), out = NULL;
  for (int i = 0; i < COUNT; i++) put_pair_with(src, td_text("p%d", i), &p, i, wait_for_all_hooks, &m);
  tdict_transfer_options o = threads(way % 2 ? COUNT : -1);
  if (way < 2)
    out = finish(move_async(&w, src, w.device, &o));
  else if (way < 4)
    td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  else
    td_ok(tdict_pin_memory(w.c, src, NULL, &out, err));
  assert_int_equal(atomic_load(&p.most_inside), COUNT);
}
GPU_CASE(objects_hooks_run_in_parallel) {
  for (int way = 0; way < 5; way++) run_meeting(way);
}

GPU_CASE(objects_flatten_moves_in_one_plan) {
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  scoped_tree src = numbered_tree(&w, NULL, 5), out = NULL;
  pair *x = put_pair(src, "n.pair", &pair_flat, &p, 1), *y = put_pair(src, "same", &pair_flat, &p, 2);
  td_ok(tdict_set(src, "inp_again", y->inp, err));
  tdict_transfer_options o = threads(-1);
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  o.stats = &stats;
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  pair *a = pair_at(out, "n.pair", &pair_flat), *b = pair_at(out, "same", &pair_flat);
  assert_ptr_not_equal(a, x);
  check_pair(&w, a, 1, w.device);
  check_pair(&w, b, 2, w.device);
  check_tree_number(&w, out, 5);
  /* all tensors are in one storage in tree order, and a tensor with two paths is copied once */
  const tdict_tensor *order[] = {
      td_leaf(out, "a"), td_leaf(out, "n.b"), td_leaf(out, "n.m.c"), a->inp, a->tgt, td_leaf(out, "d"), b->inp, b->tgt};
  for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
    assert_true(tdict_tensor_shares_storage(order[i], order[0]));
    assert_int_equal((uintptr_t)order[i]->data % 256, 0);
    if (i) assert_true((uintptr_t)order[i]->data >= (uintptr_t)order[i - 1]->data + tdict_tensor_bytes(order[i - 1]));
  }
  assert_ptr_equal(td_leaf(out, "inp_again")->data, b->inp->data);
  assert_int_equal(stats.num_leaves, NUM_NUMBERED + 5);
  assert_int_equal(stats.num_shared_leaves, 1);
  assert_int_equal(stats.num_objects, 2);
  assert_int_equal(stats.num_objects_kept, 0);
  assert_int_equal(stats.total_bytes, tdict_bytes(out) + 3 * sizeof(float) * PAIR_ROWS * PAIR_COLUMNS);
  assert_int_equal(stats.staged_bytes, stats.total_bytes);
  assert_int_equal(atomic_load(&p.flattens), 2);
  assert_int_equal(atomic_load(&p.unflattens), 2);
}

/* An object that is already on the device is shared: it is neither flattened nor copied. */
GPU_CASE(objects_already_in_place_are_shared) {
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  scoped_tree src = new_tree(), again = NULL;
  put_pair(src, "x", &pair_flat, &p, 1);
  scoped_tree out = moved(&w, src, w.device);
  again = moved(&w, out, w.device);
  assert_ptr_equal(again, out);
  assert_int_equal(atomic_load(&p.unflattens), 1);
  tdict_release(again);
  /* the tree also has a tensor that is not on the device */
  td_ok(tdict_set_device(out, NULL, err));
  td_put(out, "new", new_bytes(100, NULL));
  put_number(&w, td_leaf(out, "new"), 77);
  again = moved(&w, out, w.device);
  assert_ptr_not_equal(again, out);
  assert_ptr_equal(pair_at(again, "x", &pair_flat), pair_at(out, "x", &pair_flat));
  assert_true(has_number(&w, td_leaf(again, "new"), 77));
  assert_int_equal(atomic_load(&p.unflattens), 1);
}

/* If an object has no hook that can move it, the call fails before it calls any hook. With keep_objects, it is kept. */
GPU_CASE(objects_without_hooks_are_kept_if_asked) {
  scoped_place w = place_open(2);
  for (int way = 0; way < 2 * 4; way++) {
    scoped_probe p = {0};
    const tdict_type *type = way % 2 ? &pair_pins : &pair_bare;
    tdict_tree *src = numbered_tree(&w, NULL, 6), *out = NULL;
    put_pair(src, "one", &pair_hooked, &p, 2);
    pair *x = put_pair(src, "n.m.x", type, &p, 1);
    tdict_transfer_stats stats = tdict_transfer_stats_default();
    tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = -1, mode = way / 2);
    tdict_future *f = NULL;
    td_fails_at(TDICT_ENOTSUP, "type pair has no hook to_device or flatten", "n.m.x",
                tdict_to_device(w.c, src, w.device, &o, &out, err));
    assert_non_null(strstr(td_last_error.message, "keep_objects"));
    td_fails(TDICT_ENOTSUP, "type pair has no hook to_device or flatten",
             tdict_to_device_async(w.c, src, w.device, &o, &f, err));
    td_fails_at(TDICT_ENOTSUP, "cpu", "n.m.x", tdict_to_device(w.c, src, tdict_cpu(), &o, &out, err));
    assert_null(out);
    assert_null(f);
    assert_int_equal(atomic_load(&p.moves) + atomic_load(&p.pins), 0);
    o.keep_objects = true;
    o.stats = &stats;
    td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
    const bool pins = o.mode == TDICT_MODE_AUTO || o.mode == TDICT_MODE_NON_BLOCKING_PIN;
    const bool is_pinned = pins && type == &pair_pins;
    assert_int_equal(stats.num_objects, 2);
    assert_int_equal(stats.num_objects_kept, 1);
    assert_int_equal(stats.num_objects_pinned, pins + is_pinned);
    assert_int_equal(stats.num_objects_unpinned, pins && !is_pinned);
    assert_int_equal(atomic_load(&p.pins), pins + is_pinned);
    pair *kept = pair_at(out, "n.m.x", type);
    assert_int_equal(kept == x, !is_pinned);
    assert_int_equal(tdict_tensor_is_pinned(kept->inp), is_pinned);
    tdict_release(src);
    check_pair(&w, kept, 1, tdict_cpu()); /* the result keeps the kept object alive */
    check_number_and_release(&w, out, 6);
  }
}

/* What a hook returns instead of an object. */
typedef enum answer {
  SAY_STATUS,
  SAY_MESSAGE,
  SAY_SILENT,
  SAY_NO_STATUS,
  SAY_NEGATIVE,
  SAY_NO_OBJECT,
  NUM_ANSWERS
} answer;
static tdict_status say(const pair *self, tdict_error *err) {
  switch (*(const answer *)self->user) {
  case SAY_STATUS:
    if (err) {
      memset(err, 0, sizeof *err);
      err->status = TDICT_EIO;
      snprintf(err->message, sizeof err->message, "the file of pair %d does not exist", self->number);
    }
    return TDICT_EIO;
  case SAY_MESSAGE: /* only a message, no status */
    if (err) snprintf(err->message, sizeof err->message, "the file of pair %d does not exist", self->number);
    return TDICT_EIO;
  case SAY_SILENT:
    return TDICT_EFORMAT;
  case SAY_NO_STATUS:
    return (tdict_status)4711;
  case SAY_NEGATIVE:
    return (tdict_status)-3;
  default:
    return TDICT_OK;
  }
}
static tdict_status bad_hook(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  (void)hook, (void)out;
  return say(self, err);
}
static tdict_status bad_flatten(const void *self, tdict_tree **out, tdict_error *err) {
  (void)out;
  return say(self, err);
}
static tdict_status bad_unflatten(const void *self, const tdict_tree *tree, void **out, tdict_error *err) {
  (void)tree, (void)out;
  return say(self, err);
}
static const tdict_type bad_pin = PAIR_TYPE(.pin_memory = bad_hook, .to_device = pair_move);
static const tdict_type bad_move = PAIR_TYPE(.pin_memory = pair_pin, .to_device = bad_hook);
static const tdict_type bad_flat = PAIR_TYPE(.flatten = bad_flatten, .unflatten = pair_unflatten);
static const tdict_type bad_unflat = PAIR_TYPE(.flatten = pair_flatten, .unflatten = bad_unflatten);

static void check_answer(answer a) {
  assert_string_equal(td_last_error.path, "n.bad");
  const bool says = a == SAY_STATUS || a == SAY_MESSAGE;
  assert_int_equal(td_last_error.status, says ? TDICT_EIO : a == SAY_SILENT ? TDICT_EFORMAT : TDICT_EHOOK);
  if (says) assert_string_equal(td_last_error.message, "the file of pair 9 does not exist");
  if (!says) assert_non_null(strstr(td_last_error.message, "pair"));
  if (a == SAY_NO_OBJECT) assert_non_null(strstr(td_last_error.message, "returned TDICT_OK and no result"));
}

GPU_CASE(objects_failing_hook) {
  static const tdict_type *const bad[] = {&bad_pin, &bad_move, &bad_flat, &bad_unflat};
  scoped_place w = place_open(2);
  for (int k = 0; k < 4 * NUM_ANSWERS * 3; k++) {
    scoped_probe p = {0};
    answer a = (answer)(k % NUM_ANSWERS);
    scoped_tree src = numbered_tree(&w, NULL, 8);
    tdict_tree *out = NULL;
    scoped_future f = NULL;
    put_pair(src, "n.before", &pair_hooked, &p, 1);
    put_pair(src, "flat", &pair_flat, &p, 2);
    put_pair(src, "n.bad", bad[k / NUM_ANSWERS % 4], &p, 9)->user = &a;
    put_pair(src, "behind", &pair_hooked, &p, 3);
    tdict_transfer_options o = threads(k / NUM_ANSWERS / 4 - 1);
    memset(&td_last_error, 0, sizeof td_last_error);
    assert_true(tdict_to_device(w.c, src, w.device, &o, &out, &td_last_error) != TDICT_OK);
    check_answer(a);
    assert_null(out);
    if (tdict_to_device_async(w.c, src, w.device, &o, &f, &td_last_error) == TDICT_OK) {
      assert_true(tdict_future_wait(f, &out, &td_last_error) != TDICT_OK);
      assert_int_equal(tdict_future_state(f), TDICT_FUTURE_FAILED);
    }
    check_answer(a);
    assert_null(out);
  }
}

/* Flattens a pair to a tree that contains an object, which is not allowed. */
static tdict_status nest_flatten(const void *self, tdict_tree **out, tdict_error *err) {
  const pair *own = self;
  tdict_status status = pair_flatten(self, out, err);
  pair *inner = pair_around(own, tdict_tensor_retain(own->inp), tdict_tensor_retain(own->tgt));
  if (status == TDICT_OK) status = tdict_set_object(*out, "deep.object", &pair_flat, inner, err);
  return status;
}
static const tdict_type nest_flat = PAIR_TYPE(.flatten = nest_flatten, .unflatten = pair_unflatten);
GPU_CASE(objects_flatten_refuses_objects) {
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  scoped_tree src = new_tree(), out = NULL;
  put_pair(src, "outer", &nest_flat, &p, 1);
  td_fails(TDICT_EHOOK, "flatten", tdict_to_device(w.c, src, w.device, NULL, &out, err));
  assert_non_null(strstr(td_last_error.path, "outer"));
  assert_null(out);
}

/* Checks that an object without the hook flatten is refused before anything is written. With keep_objects, the
 * destination's object is left unchanged. */
static void refuse_bare_pairs(const place *w, tdict_tree *dst, tdict_tree *src, probe *p) {
  pair *there = pair_at(dst, "n.pair", &pair_flat);
  put_pair(src, "bare", &pair_bare, p, 3);
  put_pair(dst, "bare", &pair_bare, p, 4);
  td_fails_at(TDICT_ENOTSUP, "type pair has no hook flatten", "bare", tdict_transfer_into(w->c, dst, src, NULL, err));
  check_pair(w, there, 2, w->device);
  /* with keep_objects, the object of the destination is unchanged */
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_transfer_options keep = td_with(tdict_transfer_options, keep_objects = true, stats = &stats);
  td_ok(tdict_transfer_into(w->c, dst, src, &keep, err));
  assert_int_equal(stats.num_objects_kept, 1);
  check_pair(w, pair_at(dst, "bare", &pair_bare), 4, tdict_cpu());
  assert_true(has_number(w, there->inp, pair_seed(1, 0)));
  put_pair(dst, "bare", &pair_moves, p, 4);
  td_fails(TDICT_ETYPE, "type pair", tdict_transfer_into(w->c, dst, src, &keep, err));
  td_ok(tdict_delete(src, "bare", err));
  td_ok(tdict_delete(dst, "bare", err));
}

GPU_CASE(objects_transfer_into) {
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  scoped_tree src = numbered_tree(&w, NULL, 10), like = numbered_tree(&w, NULL, 11);
  put_pair(src, "n.pair", &pair_flat, &p, 1);
  put_pair(like, "n.pair", &pair_flat, &p, 2);
  scoped_tree dst = moved(&w, like, w.device);
  pair *there = pair_at(dst, "n.pair", &pair_flat);
  const void *places[] = {there->inp->data, there->tgt->data, td_leaf(dst, "a")->data};
  tdict_lock(dst);
  td_ok(tdict_transfer_into(w.c, dst, src, NULL, err));
  assert_ptr_equal(pair_at(dst, "n.pair", &pair_flat), there);
  assert_ptr_equal(there->inp->data, places[0]);
  assert_ptr_equal(there->tgt->data, places[1]);
  assert_ptr_equal(td_leaf(dst, "a")->data, places[2]);
  check_tree_number(&w, dst, 10);
  for (int i = 0; i < 2; i++) assert_true(has_number(&w, i ? there->tgt : there->inp, pair_seed(1, i)));
  assert_int_equal(there->number, 2); /* the destination keeps its own object */
  td_ok(tdict_transfer_into(w.c, dst, like, NULL, err));
  check_pair(&w, there, 2, w.device);
  td_ok(tdict_unlock(dst, err));
  refuse_bare_pairs(&w, dst, src, &p);
  td_ok(tdict_transfer_into(w.c, dst, like, NULL, err));
  put_pair(src, "x", &pair_flat, &p, 5);
  td_fails_at(TDICT_ENOTFOUND, "", "x", tdict_transfer_into(w.c, dst, src, NULL, err));
  put_pair(dst, "x", &pair_all, &p, 6);
  td_fails_at(TDICT_ETYPE, "", "x", tdict_transfer_into(w.c, dst, src, NULL, err));
  td_ok(tdict_set_device(dst, NULL, err));
  td_put(dst, "x", new_bytes(5, NULL));
  td_fails(TDICT_ETYPE, "", tdict_transfer_into(w.c, dst, src, NULL, err));
  td_put(src, "x", new_bytes(5, NULL));
  put_pair(dst, "x", &pair_flat, &p, 6);
  td_fails_at(TDICT_ETYPE, "", "x", tdict_transfer_into(w.c, dst, src, NULL, err));
  pair *wide = put_pair(src, "x", &pair_flat, &p, 7);
  tdict_tensor_release(wide->tgt);
  wide->tgt = new_bytes(3, NULL);
  td_fails_at(TDICT_EDTYPE, "", "x.deep.tgt", tdict_transfer_into(w.c, dst, src, NULL, err));
  check_tree_number(&w, dst, 11);
  check_pair(&w, there, 2, w.device);
}

GPU_CASE(objects_is_pinned) {
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  scoped_tree td = new_tree();
  assert_true(tdict_is_pinned(td));
  put_pair(td, "n.bare", &pair_bare, &p, 1); /* has no hook is_pinned */
  assert_true(tdict_is_pinned(td));
  pair *x = put_pair(td, "n.x", &pair_hooked, &p, 2);
  assert_false(tdict_is_pinned(td));
  assert_int_equal(atomic_load(&p.asks), 1);
  for (int i = 0; i < 2; i++) { /* tdict_is_pinned() is true only if both tensors are pinned */
    tdict_tensor **t = i ? &x->tgt : &x->inp, *pinned = NULL;
    td_ok(tdict_tensor_clone(*t, w.pinned, &pinned, err));
    tdict_tensor_release(*t);
    *t = pinned;
    assert_int_equal(tdict_is_pinned(td), i == 1);
  }
  td_put(td, "t", new_bytes(8, NULL));
  assert_false(tdict_is_pinned(td));
}

/* A hook that returns the object itself. */
static tdict_status keep_itself(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  const pair *own = self;
  (void)hook, (void)err;
  atomic_fetch_add(&own->p->pins, 1);
  *out = (void *)(uintptr_t)self;
  return TDICT_OK;
}
static const tdict_type keeps = PAIR_TYPE(.pin_memory = keep_itself, .to_device = keep_itself);

GPU_CASE(object_that_a_hook_keeps_is_retained) {
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  tdict_tree *src = new_tree();
  pair *x = put_pair(src, "x", &keeps, &p, 1);
  for (int i = -1; i < 2; i++) {
    tdict_transfer_options o = threads(i);
    scoped_tree out = finish(move_async(&w, src, w.device, &o));
    assert_ptr_equal(pair_at(out, "x", &keeps), x);
  }
  scoped_tree out = moved(&w, src, w.device);
  tdict_release(src);
  assert_int_equal(atomic_load(&p.live), 1);
  check_pair(&w, pair_at(out, "x", &keeps), 1, tdict_cpu());
}

GPU_CASE(pin_object) {
  static const tdict_type *const ways[] = {&pair_hooked, &pair_flat, &pair_pins, &keeps, &pair_bare, &pair_moves};
  place w = place_open(2);
  for (int i = 0; i < 6; i++) {
    scoped_probe p = {0};
    pair *x = pair_make(&p, i, NULL);
    void *out = NULL, *again = NULL;
    bool makes = i < 3;
    td_ok(tdict_pin_object(w.c, ways[i], x, NULL, &out, err));
    assert_int_equal(out != x, makes);
    check_pair(&w, x, i, tdict_cpu()); /* x still belongs to the program */
    check_pair(&w, out, i, tdict_cpu());
    if (makes) {
      pair *made = out;
      assert_true(tdict_tensor_is_pinned(made->inp) && tdict_tensor_is_pinned(made->tgt));
      td_ok(tdict_pin_object(w.c, ways[i], made, NULL, &again, err)); /* the tensors are already pinned */
      check_pair(&w, again, i, tdict_cpu());
      assert_ptr_equal(((pair *)again)->inp, made->inp);
      if (again != made) pair_release(again);
      pair_release(made);
    }
    pair_release(x);
  }
  probe p = {0};
  pair *x = pair_make(&p, 1, NULL);
  void *out = &p;
  answer a = SAY_STATUS;
  x->user = &a;
  td_fails(TDICT_EIO, "does not exist", tdict_pin_object(w.c, &bad_pin, x, NULL, &out, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_pin_object(NULL, &pair_hooked, x, NULL, &out, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_pin_object(w.c, NULL, x, NULL, &out, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_pin_object(w.c, &pair_hooked, NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_pin_object(w.c, &pair_hooked, x, NULL, NULL, err));
  const tdict_type no_name = TD_TYPE(.release = pair_release);
  const tdict_type no_release = TD_TYPE(.name = "pair");
  const tdict_type no_size = {.name = "pair", .release = pair_release};
  const tdict_type half = PAIR_TYPE(.flatten = pair_flatten);
  const tdict_type *const refused[] = {&no_name, &no_release, &no_size, &half};
  for (int i = 0; i < 4; i++) td_fails(TDICT_EINVAL, "", tdict_pin_object(w.c, refused[i], x, NULL, &out, err));
  tdict_pin_options o = td_with(tdict_pin_options, num_threads = 77);
  td_fails(TDICT_EINVAL, "num_threads", tdict_pin_object(w.c, &pair_hooked, x, &o, &out, err));
  assert_ptr_equal(out, &p);
  check_pair(&w, x, 1, tdict_cpu());
  pair_release(x);
  close_pairs(&w, &p);
}

/* No hook is called for objects whose paths match the option keep, or for objects below a kept tree. */
GPU_CASE(objects_are_kept_by_patterns) {
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  tdict_tree *src = numbered_tree(&w, NULL, 1), *out = NULL;
  put_pair(src, "hooked", &pair_hooked, &p, 1);
  put_pair(src, "n.flat", &pair_flat, &p, 2);
  put_pair(src, "meta.hooked", &pair_hooked, &p, 3);
  put_pair(src, "meta.deep.flat", &pair_flat, &p, 4);
  put_pair(src, "bare", &pair_bare, &p, 5);
  put_pair(src, "last", &pair_flat, &p, 6);
  static const char *const keep[] = {"hooked", "n.flat", "meta", "bare", "last.**"};
  static const char *const paths[] = {"hooked", "n.flat", "meta.hooked", "meta.deep.flat", "bare", "last"};
  const tdict_type *const of_paths[] = {&pair_hooked, &pair_flat, &pair_hooked, &pair_flat, &pair_bare, &pair_flat};
  tdict_transfer_stats s = tdict_transfer_stats_default();
  tdict_transfer_options o = td_with(tdict_transfer_options, stats = &s, keep = keep, num_keep = 5);
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  for (int i = 0; i < 6; i++)
    assert_ptr_equal(pair_at(out, paths[i], of_paths[i]), pair_at(src, paths[i], of_paths[i]));
  check_tree_number(&w, out, 1);
  assert_int_equal(atomic_load(&p.pins) + atomic_load(&p.moves) + atomic_load(&p.flattens), 0);
  assert_int_equal(s.num_objects, 6);
  assert_int_equal(s.num_objects_pinned + s.num_objects_unpinned + s.num_objects_kept, 0);
  /* Objects in a destination are not touched, even without flatten. */
  number_tree(&w, src, 2);
  td_ok(tdict_transfer_into(w.c, out, src, &o, err));
  check_tree_number(&w, out, 2);
  assert_int_equal(atomic_load(&p.flattens), 0);
  tdict_release(out);
  /* Patterns do not match the tensors of an object, but they match entries that follow a flattened object. */
  static const char *const inside[] = {"?**.inp", "?n.flat.*", "last", "bare", "meta", "hooked"};
  o.keep = inside;
  o.num_keep = 6;
  td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
  check_pair(&w, pair_at(out, "n.flat", &pair_flat), 2, w.device);
  assert_ptr_equal(pair_at(out, "last", &pair_flat), pair_at(src, "last", &pair_flat));
  assert_ptr_equal(pair_at(out, "meta.deep.flat", &pair_flat), pair_at(src, "meta.deep.flat", &pair_flat));
  check_number_and_release(&w, out, 2);
  tdict_release(src);
}
