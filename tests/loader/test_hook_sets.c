/* What loaders do with objects whose types have each subset of the hooks pin_memory, to_device and flatten. */
#include "numbers.h"
#include "transfer/hook_sets.h"

enum { SAMPLES = 8, ROWS = 2, BATCHES = SAMPLES / ROWS };
static const char *const paths[] = {"one", "n.two"};
enum { NUM_PATHS = sizeof paths / sizeof *paths };

typedef struct run {
  int set, num_workers;
  bool on_host, pins, keeps;
  probe p;
} run;

/* Makes a batch with two objects in ordinary memory. Runs on threads of the loader, and therefore does not assert. */
static tdict_status collate(void *user, const tdict_tree *const *samples, int64_t count, tdict_memory *memory,
                            tdict_tree **out, tdict_error *err) {
  static const int64_t shape[] = {PAIR_ROWS, PAIR_COLUMNS};
  run *r = user;
  tdict_tree *td = NULL;
  (void)memory;
  const int first = (int)*(const int64_t *)tdict_const_data(samples[0], "id");
  tdict_status status = tdict_create(0, NULL, &td, err);
  for (int k = 0; k < NUM_PATHS && status == TDICT_OK; k++) {
    pair like = {.label = "a batch", .number = first + k, .p = &r->p}, *made;
    tdict_tensor *t[2] = {NULL, NULL};
    for (int i = 0; i < 2 && status == TDICT_OK; i++) {
      status = tdict_tensor_empty(TDICT_F32, 2, shape, NULL, &t[i], err);
      if (status != TDICT_OK) break;
      td_fill_random(tdict_tensor_data(t[i]), tdict_tensor_bytes(t[i]), pair_seed(like.number, i));
    }
    if (status != TDICT_OK) break; /* the case then fails, so the tensors need not be released */
    made = pair_around(&like, t[0], t[1]);
    status = tdict_set_object(td, paths[k], &hook_sets[r->set], made, err);
  }
  tdict_tensor *number = NULL;
  if (status == TDICT_OK) status = tdict_tensor_empty(TDICT_I64, 0, NULL, NULL, &number, err);
  if (status == TDICT_OK) *(int64_t *)tdict_tensor_data(number) = count;
  if (status == TDICT_OK) status = tdict_set(td, "count", number, err);
  tdict_tensor_release(number);
  *out = td;
  return status;
}

static tdict_loader *open_set(const place *w, run *r, numbers *n) {
  tdict_dataset d = by_sample(n);
  tdict_loader_options o = tdict_loader_options_default();
  tdict_loader *l = NULL;
  o.batch_size = ROWS;
  o.num_workers = r->num_workers;
  o.collate = collate;
  o.user = r;
  o.pin_memory = r->pins;
  o.keep_objects = r->keeps;
  if (r->on_host) o.device = tdict_cpu();
  td_ok(tdict_loader_create(w->c, &d, &o, &l, err));
  return l;
}

static void check_stats(tdict_loader *l, const run *r) {
  enum { OBJECTS = BATCHES * NUM_PATHS };
  tdict_loader_stats s = tdict_loader_stats_default();
  const bool asks = !r->on_host || r->pins;
  const bool by_hook = r->set & PINS, is_flat = r->set & FLATTENS && (r->on_host || !(r->set & MOVES));
  td_ok(tdict_loader_get_stats(l, &s, err));
  assert_int_equal(s.num_objects_pinned, asks && (by_hook || (is_flat && r->on_host)) ? OBJECTS : 0);
  assert_int_equal(s.num_objects_unpinned, asks && !by_hook && !is_flat ? OBJECTS : 0);
  assert_int_equal(s.num_objects_kept, !r->on_host && !can_move(r->set) ? OBJECTS : 0);
}

/* One epoch. Objects that cannot be moved fail a loader whose batches go to a device. */
static void load(const place *w, run *r) {
  numbers n = numbers_of(SAMPLES);
  tdict_loader *l = open_set(w, r, &n);
  tdict_tree *td = NULL;
  const bool moves = !r->on_host && can_move(r->set), asks = !r->on_host || r->pins;
  if (!r->on_host && !can_move(r->set) && !r->keeps) {
    td_fails(TDICT_ENOTSUP, "has no hook to_device or flatten", tdict_loader_next(l, NULL, &td, err));
    assert_string_equal(td_last_error.path, "one");
    check_hook_calls(&r->p, r->set, 0, false, false);
    tdict_loader_destroy(l);
    return;
  }
  const bool is_pinned = asks && (r->on_host ? r->set & (PINS | FLATTENS) : r->set == PINS);
  for (int i = 0; i < BATCHES; i++) {
    td_ok(tdict_loader_next(l, NULL, &td, err));
    for (int k = 0; k < NUM_PATHS; k++) {
      const pair *x = pair_at(td, paths[k], &hook_sets[r->set]);
      check_pair(w, x, ROWS * i + k, moves ? w->device : tdict_cpu());
      assert_int_equal(tdict_tensor_is_pinned(x->inp), is_pinned);
      assert_int_equal(tdict_tensor_is_pinned(x->tgt), is_pinned);
    }
    tdict_release(td);
  }
  check_stats(l, r);
  if (r->num_workers == 0) /* workers may have begun the next epoch */
    check_hook_calls(&r->p, r->set, BATCHES * NUM_PATHS, asks, moves);
  tdict_loader_destroy(l);
}

GPU_CASE(loader_hook_sets) {
  for (int way = 0; way < NUM_HOOK_SETS * 16; way++) {
    run r = {.set = way / 16, .num_workers = way & 1 ? 2 : 0, .on_host = way & 2, .pins = way & 4, .keeps = way & 8};
    place w = place_open(3);
    load(&w, &r);
    place_close(&w); /* transfers that were under way when a loader ended hold their objects until now */
    check_gone(&r.p);
  }
}

/* Conversions on the cpu leave objects where they are, because the batch was made there. */
GPU_CASE(loader_converts_beside_objects) {
  place w = place_open(3);
  run r = {.set = 0, .on_host = true};
  numbers n = numbers_of(SAMPLES);
  tdict_dataset d = by_sample(&n);
  tdict_conversion c = tdict_conversion_default();
  tdict_loader_options o = tdict_loader_options_default();
  tdict_loader *l = NULL;
  tdict_tree *td = NULL;
  c.pattern = "count";
  c.dtype = TDICT_F32;
  o.batch_size = ROWS;
  o.num_workers = 0;
  o.collate = collate;
  o.user = &r;
  o.device = tdict_cpu();
  o.conversions = &c;
  o.num_conversions = 1;
  td_ok(tdict_loader_create(w.c, &d, &o, &l, err));
  td_ok(tdict_loader_next(l, NULL, &td, err));
  check_pair(&w, pair_at(td, "one", &hook_sets[0]), 0, tdict_cpu());
  assert_float_equal(*(const float *)tdict_const_data(td, "count"), ROWS, 0);
  tdict_release(td);
  tdict_loader_destroy(l);
  place_close(&w);
  check_gone(&r.p);
}
