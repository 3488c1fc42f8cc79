/* Tests transfers of objects whose types have each subset of the hooks pin_memory, to_device and flatten. */
#include "engine/hook_sets.h"

enum { NUM_PAIRS = 3 };

static tdict_tree *tree_of_pairs(const place *w, probe *p, int set) {
  tdict_tree *td = numbered_tree(w, NULL, 20);
  put_pair(td, "first", &hook_sets[set], p, 1);
  put_pair(td, "n.x", &hook_sets[set], p, 2);
  put_pair(td, "z", &hook_sets[set], p, 3);
  return td;
}

static void check_pairs(const place *w, const tdict_tree *td, int set, tdict_device device, bool is_pinned) {
  static const char *const paths[NUM_PAIRS] = {"first", "n.x", "z"};
  for (int i = 0; i < NUM_PAIRS; i++) {
    const pair *x = pair_at(td, paths[i], &hook_sets[set]);
    check_pair(w, x, i + 1, device);
    assert_int_equal(tdict_tensor_is_pinned(x->inp), is_pinned);
    assert_int_equal(tdict_tensor_is_pinned(x->tgt), is_pinned);
  }
}

static void check_counts(const tdict_transfer_stats *s, int64_t pinned, int64_t unpinned, int64_t kept) {
  assert_int_equal(s->num_objects, NUM_PAIRS);
  assert_int_equal(s->num_objects_pinned, pinned);
  assert_int_equal(s->num_objects_unpinned, unpinned);
  assert_int_equal(s->num_objects_kept, kept);
}

/* Moves a tree of objects with a blocking call if `waits` is true, otherwise with an asynchronous call. */
static tdict_tree *move_pairs(const place *w, const tdict_tree *src, tdict_device device, tdict_transfer_options *o,
                              bool waits, tdict_transfer_stats *stats) {
  tdict_tree *out = NULL;
  *stats = tdict_transfer_stats_default();
  o->stats = waits ? stats : NULL;
  if (waits) {
    td_ok(tdict_to_device(w->c, src, device, o, &out, err));
    return out;
  }
  scoped_future f = move_async(w, src, device, o);
  td_ok(tdict_future_wait(f, &out, err));
  td_ok(tdict_future_get_stats(f, stats, err));
  return out;
}

static void run_move(const place *w, int set, tdict_transfer_options *o, tdict_device device, bool waits) {
  const bool to_gpu = device.type != TDICT_DEVICE_CPU;
  const bool pins = to_gpu ? o->mode == TDICT_MODE_AUTO || o->mode == TDICT_MODE_NON_BLOCKING_PIN : o->pinned_result;
  scoped_probe p = {0};
  tdict_transfer_stats stats;
  scoped_tree src = tree_of_pairs(w, &p, set), out = NULL;
  o->keep_objects = false;
  o->stats = NULL;
  if (!can_move(set)) {
    td_fails(TDICT_ENOTSUP, "has no hook to_device or flatten", tdict_to_device(w->c, src, device, o, &out, err));
    assert_string_equal(td_last_error.path, "n.x"); /* the first object in tree order */
    check_hook_calls(&p, set, NUM_PAIRS, false, false);
    o->keep_objects = true;
  }
  out = move_pairs(w, src, device, o, waits, &stats);
  check_tree_number(w, out, 20);
  /* On the host, a pinned result needs the hook pin_memory, or flatten without to_device. For a device, only objects
   * that stay on the host are pinned. */
  const bool is_pinned = pins && (to_gpu ? set == PINS : set & PINS || set == FLATTENS);
  check_pairs(w, out, set, can_move(set) ? device : tdict_cpu(), is_pinned);
  if (to_gpu || pins) {
    check_hook_calls(&p, set, NUM_PAIRS, pins, can_move(set));
  } else { /* tensors already on the CPU are not moved, so only to_device makes new objects */
    assert_int_equal(atomic_load(&p.pins) + atomic_load(&p.unflattens), 0);
    assert_int_equal(atomic_load(&p.moves), set & MOVES ? NUM_PAIRS : 0);
  }
  const bool is_flat = set & FLATTENS && !(set & MOVES), is_copied_pinned = !to_gpu && pins && is_flat;
  check_counts(&stats, (pins && set & PINS) || is_copied_pinned ? NUM_PAIRS : 0,
               pins && !(set & PINS) && !is_flat ? NUM_PAIRS : 0, can_move(set) ? 0 : NUM_PAIRS);
}

/* Moves objects in each mode. When run on the host, the context has no device. */
DEVICE_CASE(hook_sets_move_in_each_mode) {
  scoped_place w = td_device().type != TDICT_DEVICE_CPU ? place_open(2) : place_around(td_context(NULL));
  for (int set = 0; set < NUM_HOOK_SETS; set++)
    for (int mode = TDICT_MODE_AUTO; mode <= TDICT_MODE_NON_BLOCKING_PIN; mode++)
      for (int way = 0; way < 2 * 3; way++) {
        tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = way / 2 - 1, mode = mode);
        run_move(&w, set, &o, w.device, way % 2);
        run_move(&w, set, &o, tdict_cpu(), way % 2);
      }
}

/* For a pinned result on the CPU, an object is first moved. The moved object's hook pin_memory then makes the
 * result. */
GPU_CASE(hook_sets_are_pinned_on_the_cpu) {
  scoped_place w = place_open(2);
  for (int set = 0; set < NUM_HOOK_SETS; set++)
    for (int mode = TDICT_MODE_AUTO; mode <= TDICT_MODE_NON_BLOCKING_PIN; mode++)
      for (int way = 0; way < 2 * 3; way++) {
        tdict_transfer_options o =
            td_with(tdict_transfer_options, num_threads = way / 2 - 1, mode = mode, pinned_result = true);
        run_move(&w, set, &o, tdict_cpu(), way % 2);
      }
}

GPU_CASE(hook_sets_in_pin_memory) {
  scoped_place w = place_open(2);
  for (int set = 0; set < NUM_HOOK_SETS; set++)
    for (int num_threads = -1; num_threads < 3; num_threads++) {
      scoped_probe p = {0};
      scoped_tree src = tree_of_pairs(&w, &p, set), out = NULL;
      tdict_transfer_stats stats = tdict_transfer_stats_default();
      tdict_pin_options o = td_with(tdict_pin_options, num_threads = num_threads, stats = &stats);
      td_ok(tdict_pin_memory(w.c, src, &o, &out, err));
      check_tree_number(&w, out, 20);
      const bool is_pinned = set & (PINS | FLATTENS);
      check_pairs(&w, out, set, tdict_cpu(), is_pinned);
      check_hook_calls(&p, set, NUM_PAIRS, true, false);
      check_counts(&stats, is_pinned ? NUM_PAIRS : 0, is_pinned ? 0 : NUM_PAIRS, 0);
    }
}

/* Moves objects from a device to the same device, and then to the host. Device tensors are not pinned. */
GPU_CASE(hook_sets_are_not_pinned_on_a_device) {
  scoped_place w = place_open(2);
  for (int set = 0; set < NUM_HOOK_SETS; set++)
    for (int has_device = 0; has_device < 2; has_device++) {
      if (!can_move(set)) continue;
      scoped_probe p = {0};
      scoped_tree src = tree_of_pairs(&w, &p, set);
      scoped_tree there = moved(&w, src, w.device);
      if (!has_device) td_ok(tdict_set_device(there, NULL, err));
      atomic_store(&p.pins, 0);
      scoped_tree again = moved(&w, there, w.device);
      check_pairs(&w, again, set, w.device, false);
      assert_int_equal(atomic_load(&p.pins), !has_device && set & PINS ? NUM_PAIRS : 0);
      scoped_tree back = moved(&w, again, tdict_cpu());
      check_pairs(&w, back, set, tdict_cpu(), false);
      tdict_release(back);
      tdict_transfer_options o = threads(-1);
      o.pinned_result = true; /* pin_memory is called on the moved object, because a device tensor cannot be pinned */
      td_ok(tdict_to_device(w.c, again, tdict_cpu(), &o, &back, err));
      check_pairs(&w, back, set, tdict_cpu(), set & PINS || set == FLATTENS);
    }
}

typedef struct meeting {
  gate gate;
  atomic_int num_inside;
} meeting;
static tdict_status wait_for_all_hooks(const pair *self, const tdict_hook *hook, tdict_error *err) {
  meeting *m = self->user;
  (void)hook, (void)err;
  if (atomic_fetch_add(&m->num_inside, 1) + 1 >= NUM_PAIRS) atomic_store(&m->gate.open, true);
  return wait_flag(&m->gate.open) ? TDICT_OK : TDICT_ETIMEDOUT;
}
/* Checks that the hooks of several objects run at the same time: each waits until all have begun. */
GPU_CASE(hook_sets_pin_several_objects_at_once) {
  for (int set = 0; set < NUM_HOOK_SETS; set++) {
    if (!(set & PINS) || set & MOVES) continue;
    for (int way = 0; way < 3; way++) {
      place w = place_open(NUM_PAIRS);
      probe p = {0};
      meeting m = {.num_inside = 0};
      tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = -1, keep_objects = true);
      tdict_tree *src = tree_of_pairs(&w, &p, set), *out = NULL;
      static const char *const paths[] = {"first", "n.x", "z"};
      for (int i = 0; i < NUM_PAIRS; i++) {
        pair *x = pair_at(src, paths[i], &hook_sets[set]);
        x->also = wait_for_all_hooks;
        x->user = &m;
      }
      if (way == 0)
        td_ok(tdict_pin_memory(w.c, src, NULL, &out, err));
      else if (way == 1)
        td_ok(tdict_to_device(w.c, src, w.device, &o, &out, err));
      else
        out = finish(move_async(&w, src, w.device, &o));
      assert_int_equal(atomic_load(&p.most_inside), NUM_PAIRS);
      check_pairs(&w, out, set, way && can_move(set) ? w.device : tdict_cpu(), !way || !can_move(set));
      td_release(out, src);
      close_pairs(&w, &p);
    }
  }
}

typedef struct shortage {
  meeting meeting;
  int number; /* the object in whose hook an allocation fails */
  int64_t n;  /* the allocation that fails */
  atomic_bool has_failed;
} shortage;
static tdict_status pin_without_memory(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  const pair *own = self;
  shortage *s = own->user;
  const bool is_short = own->number == s->number;
  const pair met = {.user = &s->meeting};
  tdict_status status = wait_for_all_hooks(&met, hook, err);
  if (status != TDICT_OK) return status;
  if (is_short) td_fail_alloc(s->n, false);
  status = pair_pin(self, hook, out, err);
  if (is_short) atomic_store(&s->has_failed, td_fail_alloc_stop());
  return status;
}
/* One allocation in one hook fails while the hooks of all objects run at the same time. Tries every allocation. */
GPU_CASE(hook_sets_pin_several_objects_without_memory) {
  static const tdict_type type = PAIR_TYPE(.pin_memory = pin_without_memory);
  static const char *const paths[] = {"first", "n.x", "z"};
  scoped_place w = place_open(NUM_PAIRS);
  for (int k = 0; k < NUM_PAIRS; k++) {
    bool has_failed = true;
    for (int64_t n = 0; has_failed; n++) {
      scoped_probe p = {0};
      shortage s = {.number = k + 1, .n = n};
      scoped_tree src = numbered_tree(&w, NULL, 20), out = NULL;
      tdict_error why = {0};
      for (int i = 0; i < NUM_PAIRS; i++) put_pair(src, paths[i], &type, &p, i + 1)->user = &s;
      const tdict_status status = tdict_pin_memory(w.c, src, NULL, &out, &why);
      has_failed = atomic_load(&s.has_failed);
      assert_int_equal(atomic_load(&p.pins), NUM_PAIRS);
      assert_true(has_failed || n > 0);
      assert_int_equal(status, has_failed ? TDICT_ENOMEM : TDICT_OK);
      assert_int_equal(why.status, status);
      assert_true(!out == has_failed);
      if (has_failed) {
        assert_string_equal(why.path, paths[k]);
        assert_true(why.message[0] != 0);
        s.number = 0;
        td_ok(tdict_pin_memory(w.c, src, NULL, &out, err));
      }
      for (int i = 0; i < NUM_PAIRS; i++) check_pair(&w, pair_at(out, paths[i], &type), i + 1, tdict_cpu());
    }
  }
}

/* An unflatten hook that always fails. */
static tdict_status no_unflatten(const void *self, const tdict_tree *tree, void **out, tdict_error *err) {
  (void)self, (void)tree, (void)out, (void)err;
  return TDICT_EFORMAT;
}
GPU_CASE(hook_sets_fail_after_the_pin_hook) {
  static const tdict_type bad = PAIR_TYPE(.pin_memory = pair_pin, .flatten = pair_flatten, .unflatten = no_unflatten);
  scoped_place w = place_open(2);
  for (int num_threads = -1; num_threads < 3; num_threads++) {
    scoped_probe p = {0};
    tdict_transfer_options o = threads(num_threads);
    scoped_tree src = numbered_tree(&w, NULL, 20);
    tdict_tree *out = NULL;
    put_pair(src, "n.bad", &bad, &p, 1);
    put_pair(src, "good", &hook_sets[PINS | FLATTENS], &p, 2);
    td_fails_at(TDICT_EFORMAT, "unflatten of type pair", "n.bad", tdict_to_device(w.c, src, w.device, &o, &out, err));
  }
}

/* A flatten hook that fails at a path of its own tree. */
static tdict_status flatten_at_path(const void *self, tdict_tree **out, tdict_error *err) {
  (void)self, (void)out;
  return tdict_error_set(err, TDICT_EIO, "good", "the first tensor is gone");
}
GPU_CASE(hook_sets_name_the_object_that_fails) {
  static const tdict_type bad = PAIR_TYPE(.flatten = flatten_at_path, .unflatten = no_unflatten);
  scoped_place w = place_open(2);
  scoped_probe p = {0};
  scoped_tree src = numbered_tree(&w, NULL, 20), dst = numbered_tree(&w, NULL, 20);
  tdict_tree *out = NULL;
  put_pair(src, "n.bad", &bad, &p, 1);
  put_pair(dst, "n.bad", &bad, &p, 2);
#define FAILS(call) td_fails_at(TDICT_EIO, "the first tensor is gone", "n.bad", call)
  FAILS(tdict_to_device(w.c, src, w.device, NULL, &out, err));
  FAILS(tdict_transfer_into(w.c, dst, src, NULL, err));
  FAILS(tdict_pin_memory(w.c, src, NULL, &out, err));
  FAILS(tdict_record_stream(src, (tdict_stream){w.device, NULL}, err));
#undef FAILS
}
