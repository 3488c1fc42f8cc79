/* Tests loaders with objects whose types have each subset of the hooks pin_memory, to_device and flatten. */
#include "context.h"
#include "engine/hook_sets.h"
#include "numbers.h"
#include "support/driver_fault.h"

enum { SAMPLES = 8, ROWS = 2, BATCHES = SAMPLES / ROWS };
static const char *const paths[] = {"one", "n.two"};
enum { NUM_PATHS = sizeof paths / sizeof *paths };

typedef struct run {
  int set, num_workers;
  bool on_host, pins, keeps;
  probe p;
} run;

/* Puts the object with this number into a batch. */
static tdict_status put_object(run *r, tdict_tree *td, const char *path, int number, tdict_error *err) {
  static const int64_t shape[] = {PAIR_ROWS, PAIR_COLUMNS};
  const pair like = {.label = "a batch", .number = number, .p = &r->p};
  tdict_tensor *t[2] = {NULL, NULL};
  tdict_status status = TDICT_OK;
  for (int i = 0; i < 2 && status == TDICT_OK; i++) {
    status = tdict_tensor_empty(TDICT_F32, 2, shape, NULL, &t[i], err);
    if (status == TDICT_OK) td_fill_random(tdict_tensor_data(t[i]), tdict_tensor_bytes(t[i]), pair_seed(number, i));
  }
  if (status != TDICT_OK) {
    tdict_tensor_release(t[0]);
    return status;
  }
  pair *made = pair_around(&like, t[0], t[1]);
  if (!made) return tdict_error_set(err, TDICT_ENOMEM, path, "no memory for a pair");
  status = tdict_set_object(td, path, &hook_sets[r->set], made, err);
  if (status != TDICT_OK) pair_release(made);
  return status;
}

/* Makes a batch with two objects in ordinary memory. Runs on threads of the loader, and therefore does not assert. */
static tdict_status collate(void *user, const tdict_fetch_info *info, const tdict_tree *const *samples, size_t count,
                            tdict_tree **out, tdict_error *err) {
  run *r = user;
  tdict_tree *td = NULL;
  (void)info;
  const int first = (int)*(const int64_t *)tdict_const_data(samples[0], "id");
  tdict_status status = tdict_create(0, NULL, &td, err);
  for (int k = 0; k < NUM_PATHS && status == TDICT_OK; k++) status = put_object(r, td, paths[k], first + k, err);
  tdict_tensor *number = NULL;
  if (status == TDICT_OK) status = tdict_tensor_empty(TDICT_I64, 0, NULL, NULL, &number, err);
  if (status == TDICT_OK) *(int64_t *)tdict_tensor_data(number) = (int64_t)count;
  if (status == TDICT_OK) status = tdict_set(td, "count", number, err);
  tdict_tensor_release(number);
  if (status == TDICT_OK)
    *out = td;
  else
    tdict_release(td);
  return status;
}

static tdict_status create_loader(const place *w, run *r, numbers *n, tdict_loader **out, tdict_error *err) {
  tdict_dataset_table d = by_sample(n);
  tdict_loader_options o = td_with(tdict_loader_options, batch_size = ROWS, num_workers = r->num_workers,
                                   collate = collate, user = r, pin_memory = r->pins, keep_objects = r->keeps);
  if (r->on_host) o.device = tdict_cpu();
  return create_loader_of(w->c, &d, &o, out, err);
}

static void check_stats(tdict_loader *l, const run *r) {
  enum { OBJECTS = BATCHES * NUM_PATHS };
  const bool asks = !r->on_host || r->pins;
  const bool by_hook = r->set & PINS, is_flat = r->set & FLATTENS && (r->on_host || !(r->set & MOVES));
  tdict_loader_stats s = td_filled(tdict_loader_stats, tdict_loader_get_stats(l, &made, err));
  assert_int_equal(s.num_objects_pinned, asks && (by_hook || (is_flat && r->on_host)) ? OBJECTS : 0);
  assert_int_equal(s.num_objects_unpinned, asks && !by_hook && !is_flat ? OBJECTS : 0);
  assert_int_equal(s.num_objects_kept, !r->on_host && !can_move(r->set) ? OBJECTS : 0);
}

/* Loads one epoch. It must fail if objects without a hook must move to a device, and keep_objects is not set. */
static void load(const place *w, run *r) {
  numbers n = numbers_of(SAMPLES);
  tdict_tree *td = NULL;
  tdict_loader *l = td_made(loader, create_loader(w, r, &n, &made, err));
  const bool moves = !r->on_host && can_move(r->set), asks = !r->on_host || r->pins;
  if (!r->on_host && !can_move(r->set) && !r->keeps) {
    td_fails(TDICT_ENOTSUP, "has no hook to_device or flatten", tdict_loader_next(l, tdict_no_stream(), &td, err));
    assert_string_equal(td_last_error.path, "one");
    check_hook_calls(&r->p, r->set, 0, false, false);
    tdict_loader_destroy(l);
    return;
  }
  const bool is_pinned = asks && (r->on_host ? r->set & (PINS | FLATTENS) : r->set == PINS);
  for (int i = 0; i < BATCHES; i++) {
    td_ok(tdict_loader_next(l, tdict_no_stream(), &td, err));
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
  scoped_context beside = td_context(NULL); /* so that a GPU keeps its primary context between the rounds */
  for (int way = 0; way < NUM_HOOK_SETS * 16; way++) {
    run r = {.set = way / 16, .num_workers = way & 1 ? 2 : 0, .on_host = way & 2, .pins = way & 4, .keeps = way & 8};
    place w = place_open(3);
    load(&w, &r);
    place_close(&w); /* transfers that still ran when a loader was destroyed retain their objects until now */
    check_gone(&r.p);
  }
}

/* Conversions on the CPU leave objects where they are, because the batch was made there. */
GPU_CASE(loader_converts_beside_objects) {
  place w = place_open(3);
  run r = {.set = 0, .on_host = true};
  numbers n = numbers_of(SAMPLES);
  tdict_dataset_table d = by_sample(&n);
  tdict_loader *l = NULL;
  tdict_tree *td = NULL;
  tdict_conversion c = td_with(tdict_conversion, pattern = "count", dtype = TDICT_F32);
  tdict_loader_options o = td_with(tdict_loader_options, batch_size = ROWS, num_workers = 0, collate = collate,
                                   user = &r, device = tdict_cpu(), conversions = &c, num_conversions = 1);
  td_ok(create_loader_of(w.c, &d, &o, &l, err));
  td_ok(tdict_loader_next(l, tdict_no_stream(), &td, err));
  check_pair(&w, pair_at(td, "one", &hook_sets[0]), 0, tdict_cpu());
  assert_float_equal(*(const float *)tdict_const_data(td, "count"), ROWS, 0);
  td_release(td, l);
  place_close(&w);
  check_gone(&r.p);
}

/* A loader with keep_objects, its first batch, and a driver that fails on demand. */
typedef struct first_batch {
  tdict_driver *inner, *driver;
  place w;
  run r;
  numbers n;
  tdict_loader *l;
  tdict_loader_state begin;
  tdict_tree *td;
} first_batch;

static void open_first(first_batch *b, int set, bool on_host) {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = place_options(1);
  tdict_context *context = NULL;
  *b = (first_batch){.r = {.set = set, .on_host = on_host, .pins = true, .keeps = true}, .n = numbers_of(SAMPLES)};
  b->begin = tdict_loader_state_default();
  o.device = td_device();
  td_ok(tdict_driver_sim_open(&sim, &b->inner, err));
  td_ok(tdict_driver_fault_open(b->inner, &b->driver, err));
  td_ok(tdict_context_create_over(&o, b->driver, &context, err));
  b->w = place_around(context);
}
/* Releases everything, and checks that nothing has leaked. */
static void close_first(first_batch *b) {
  tdict_fault_live live, none = {0};
  td_release(b->td, b->l);
  place_close(&b->w);
  check_gone(&b->r.p);
  tdict_driver_fault_get_live(b->driver, &live);
  assert_memory_equal(&live, &none, sizeof live);
  td_release(b->driver, b->inner);
}

/* Creates the loader at the first call. Later calls load the same batch again. */
static tdict_status load_first(first_batch *b, tdict_error *err) {
  tdict_status status = TDICT_OK;
  if (b->l)
    status = tdict_loader_set_state(b->l, &b->begin, err);
  else
    status = create_loader(&b->w, &b->r, &b->n, &b->l, err);
  if (status == TDICT_OK) status = tdict_loader_get_state(b->l, &b->begin, err);
  return status == TDICT_OK ? tdict_loader_next(b->l, tdict_no_stream(), &b->td, err) : status;
}

/* Makes the n-th driver call, or the n-th allocation of this thread, fail in load_first(). Returns false if there are
 * fewer. */
static bool fail_first(first_batch *b, bool in_driver, int64_t n, int *num_failed) {
  const tdict_fault fault = {.kinds = TDICT_FAULT_ALL, .n = n, .code = TDICT_CU_UNKNOWN};
  tdict_error why = {0};
  if (in_driver)
    tdict_driver_fault_arm(b->driver, &fault);
  else
    td_fail_alloc(n - 1, false);
  const tdict_status status = load_first(b, &why);
  const bool has_fired = in_driver ? tdict_driver_fault_fired(b->driver) : td_fail_alloc_stop();
  tdict_driver_fault_arm(b->driver, NULL);
  if (status != TDICT_OK) {
    if (!has_fired || status != (in_driver ? TDICT_EDEVICE : TDICT_ENOMEM))
      fail_msg("set %d, call %d: %s: %s", b->r.set, (int)n, tdict_status_name(status), why.message);
    assert_int_equal(why.status, status);
    assert_true(why.message[0] != 0);
    assert_null(b->td);
    ++*num_failed;
    td_ok(load_first(b, err));
  }
  const bool moves = !b->r.on_host && can_move(b->r.set);
  for (int k = 0; k < NUM_PATHS; k++)
    check_pair(&b->w, pair_at(b->td, paths[k], &hook_sets[b->r.set]), k, moves ? b->w.device : tdict_cpu());
  return has_fired;
}
static void fail_each(bool in_driver) {
  for (int way = 0; way < NUM_HOOK_SETS * 2; way++) {
    int num_failed = 0;
    bool has_fired = true;
    for (int64_t n = 1 + sanitized_first(way); has_fired; n += SANITIZED_STEP) {
      first_batch b;
      open_first(&b, way / 2, way % 2);
      has_fired = fail_first(&b, in_driver, n, &num_failed);
      close_first(&b);
    }
    if (way % 2 == 0 && num_failed * SANITIZED_STEP < 5) fail_msg("set %d: only %d calls failed", way / 2, num_failed);
  }
}
SIM_CASE(loader_keeps_objects_without_memory) { fail_each(false); }
SIM_CASE(loader_keeps_objects_with_failing_driver_calls) { fail_each(true); }
