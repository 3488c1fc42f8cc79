/* Tests that a loader survives a callback that leaves with longjmp() on the program's thread: the batch fails, no call
 * hangs, and later batches are correct. */

#include "numbers.h"

/* The callbacks of the program that can call longjmp(). */
typedef enum place { FETCH, FETCH_BATCH, FETCH_SAMPLE, COLLATE, SAMPLE_LENGTH, PLAN_EPOCH, PLACES } place;
typedef enum next_call { NEXT, RESTART, SET_STATE, DESTROY, CALLS } next_call;

static jmp_buf back;
static place left_at;
static int64_t calls_until_jump; /* negative: no jump */

static void leave(place at) {
  if (at == left_at && calls_until_jump >= 0 && calls_until_jump-- == 0) longjmp(back, 1);
}
static tdict_status fetch(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree *batch, int64_t row,
                          tdict_error *err) {
  leave(FETCH);
  return numbers_fetch(self, info, index, batch, row, err);
}
static tdict_status fetch_batch(void *self, const tdict_fetch_info *info, const int64_t *indices, int64_t count,
                                tdict_tree *batch, tdict_error *err) {
  leave(FETCH_BATCH);
  return numbers_fetch_batch(self, info, indices, count, batch, err);
}
static tdict_status fetch_sample(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                 tdict_error *err) {
  leave(FETCH_SAMPLE);
  return numbers_sample(self, info, index, out, err);
}
static tdict_status collate(void *user, const tdict_fetch_info *info, const tdict_tree *const *samples, size_t count,
                            tdict_tree **out, tdict_error *err) {
  (void)user;
  leave(COLLATE);
  tdict_run join = td_with(tdict_run, memory = info->memory);
  return tdict_stack(samples, count, NULL, &join, out, err);
}
static int64_t sample_length(void *self, int64_t index) {
  (void)self, (void)index;
  leave(SAMPLE_LENGTH);
  return 1;
}

static tdict_status plan_epoch(void *user, const tdict_epoch_info *info, tdict_epoch *epoch, tdict_error *err) {
  (void)user, (void)err;
  for (int64_t i = 0; i < info->num_indices; i++) tdict_epoch_add(epoch, i);
  leave(PLAN_EPOCH);
  return TDICT_OK;
}

/* Calls tdict_loader_next(). Returns true if a callback jumped out of this call. */
static bool was_left(tdict_loader *l) {
  if (setjmp(back)) return true;
  tdict_release(td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err)));
  return false;
}
static tdict_loader *loader_left_at(const yard *y, numbers *n, place at) {
  tdict_dataset_table d = dataset_of(n);
  tdict_loader_options o = td_with(tdict_loader_options, num_workers = 0, batch_size = 4);
  if (at == FETCH || at == FETCH_BATCH || at >= SAMPLE_LENGTH) give_fields(&d);
  if (at == FETCH || at >= SAMPLE_LENGTH) d.fetch = fetch;
  if (at == PLAN_EPOCH) o.plan_epoch = plan_epoch;
  if (at == FETCH_BATCH) d.fetch_batch = fetch_batch;
  if (at == FETCH_SAMPLE || at == COLLATE) d.fetch_sample = fetch_sample;
  if (at == FETCH_SAMPLE) d.in_order = true;
  if (at == COLLATE) o.collate = collate;
  if (at == SAMPLE_LENGTH) {
    d.sample_length = sample_length;
    o.max_tokens = 1000;
  }
  left_at = at;
  calls_until_jump = -1;
  return open_loader(y, &d, &o);
}

/* Each callback in turn calls longjmp() in its second call, and plan_epoch in its first call after the creation.
 * Then the case tries each call of the loader. */
CASE(loader_survives_functions_that_do_not_return) {
  scoped_yard y = open_yard();
  alarm(20); /* ends the program if a call waits forever */
  for (int at = FETCH; at < PLACES; at++) {
    const bool plans = at >= SAMPLE_LENGTH;
    if (SANITIZED && plans) continue; /* the jump leaks the list of batches */
    for (int call = NEXT; call < CALLS; call++) {
      int64_t ids[12];
      numbers n = numbers_of(12);
      tdict_loader *l = loader_left_at(&y, &n, (place)at);
      tdict_tree *batch = NULL;
      tdict_loader_state start = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
      calls_until_jump = at != PLAN_EPOCH;
      /* The loader plans the first epoch when it is created, and the second epoch when that epoch begins. */
      for (int k = 0; k < 4 && !was_left(l); k++) assert_true(k < 3 || plans);
      if (plans && calls_until_jump >= 0) assert_true(was_left(l));
      assert_int_equal(calls_until_jump, -1);
      if (call == NEXT && !plans) {
        td_fails(TDICT_EHOOK, "a function of the program did not return",
                 tdict_loader_next(l, tdict_no_stream(), &batch, err));
        td_fails(TDICT_EHOOK, "a function of the program did not return",
                 tdict_loader_next(l, tdict_no_stream(), &batch, err));
        td_ok(tdict_loader_restart(l, err));
      }
      if (call == RESTART) td_ok(tdict_loader_restart(l, err));
      if (call == SET_STATE) td_ok(tdict_loader_set_state(l, &start, err));
      if (call != DESTROY) {
        assert_int_equal(read_epoch(&y, l, ids, 12), 12);
        for (int64_t i = 0; i < 12; i++) assert_int_equal(ids[i], i);
      }
      tdict_loader_destroy(l);
      assert_int_equal(n.released, 1);
    }
  }
  alarm(0);
}

/* With on_error CONTINUE, only the batch whose callback did not return is lost. */
CASE(loader_continues_after_an_abandoned_batch) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(12);
  tdict_dataset_table d = dataset_of(&n);
  scoped_loader l = NULL;
  tdict_tree *batch = NULL;
  int64_t ids[12];
  d.fetch_sample = fetch_sample;
  left_at = FETCH_SAMPLE;
  calls_until_jump = 6;
  l = open_loader(
      &y, &d, td_options(tdict_loader_options, num_workers = 0, batch_size = 4, on_error = TDICT_ON_ERROR_CONTINUE));
  assert_false(was_left(l));
  assert_true(was_left(l));
  td_fails(TDICT_EHOOK, "batch 1", tdict_loader_next(l, tdict_no_stream(), &batch, err));
  assert_int_equal(read_epoch(&y, l, ids, 12), 4);
  assert_int_equal(ids[0], 8);
}

static pthread_t program;
static tdict_status plan_on_threads(void *user, const tdict_epoch_info *info, tdict_epoch *epoch, tdict_error *err) {
  (void)user, (void)err;
  for (int64_t i = 0; i < info->num_indices; i++) tdict_epoch_add(epoch, i);
  if (pthread_equal(pthread_self(), program)) leave(PLAN_EPOCH);
  return TDICT_OK;
}
static bool state_was_left(tdict_loader *l, const tdict_loader_state *state) {
  if (setjmp(back)) return true;
  td_ok(tdict_loader_set_state(l, state, err));
  return false;
}

/* Only tdict_loader_set_state() plans on the thread of the program if there are workers. */
CASE(loader_survives_a_state_whose_plan_does_not_return) {
  scoped_yard y = open_yard();
  alarm(20); /* ends the program if a call waits forever */
  program = pthread_self();
  for (int call = NEXT; call < CALLS; call++) {
    int64_t ids[12];
    numbers n = numbers_of(12);
    tdict_dataset_table d = dataset_of(&n);
    give_fields(&d);
    d.fetch = fetch;
    left_at = PLAN_EPOCH;
    calls_until_jump = -1;
    tdict_loader *l = open_loader(
        &y, &d, td_options(tdict_loader_options, num_workers = 2, batch_size = 4, plan_epoch = plan_on_threads));
    const tdict_loader_state start = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
    if (!SANITIZED) { /* the jump leaks the list of batches */
      calls_until_jump = 0;
      assert_true(state_was_left(l, &start));
    }
    if (call == RESTART) td_ok(tdict_loader_restart(l, err));
    if (call == SET_STATE) td_ok(tdict_loader_set_state(l, &start, err));
    for (int epoch = 0; epoch < 3 && call != DESTROY; epoch++) assert_int_equal(read_epoch(&y, l, ids, 12), 12);
    tdict_loader_destroy(l);
    assert_int_equal(n.released, 1);
  }
  alarm(0);
}
