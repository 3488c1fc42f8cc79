/* Tests the option plan_epoch: the batches of a plan, ranks, states, and functions that plan wrongly or fail. */
#include "tickets.h"

enum { LENGTH = 50, BATCH = 5, EPOCHS = 3 };

/* A function of the program that plans batches of random sizes. */
typedef struct planner {
  tickets data;
  uint64_t other;               /* changes the plan */
  int64_t num_samples;          /* of an epoch */
  bool is_cut;                  /* true: ends batches at random places */
  _Atomic(tdict_status) status; /* what the function returns */
  atomic_int calls;
  _Atomic(int64_t) num_indices; /* of the last call */
  pthread_mutex_t gate;         /* held by a test: the function waits here, if `waits` is set */
  atomic_bool waits, at_gate, is_entered;
  atomic_int running, overlaps; /* calls that run now; calls that began while another one ran */
} planner;

static planner planner_of(int64_t num_samples) {
  return (planner){.data = {LENGTH}, .num_samples = num_samples, .is_cut = true, .gate = PTHREAD_MUTEX_INITIALIZER};
}

static tdict_status plan(void *user, const tdict_epoch_info *info, tdict_epoch *epoch, tdict_error *err) {
  planner *p = user;
  atomic_fetch_add(&p->calls, 1);
  if (atomic_fetch_add(&p->running, 1) > 0) atomic_fetch_add(&p->overlaps, 1);
  atomic_store(&p->num_indices, info->num_indices);
  if (atomic_load(&p->waits)) {
    atomic_store(&p->at_gate, true);
    pthread_mutex_lock(&p->gate);
    pthread_mutex_unlock(&p->gate);
  }
  tdict_random random = tdict_random_from(info->seed ^ p->other);
  for (int64_t i = 0; i < p->num_samples && info->num_indices > 0; i++) {
    tdict_epoch_add(epoch, tdict_random_below(&random, info->num_indices));
    if (p->is_cut && tdict_random_below(&random, 3) == 0) tdict_epoch_end_batch(epoch);
  }
  const tdict_status status = atomic_load(&p->status);
  atomic_fetch_sub(&p->running, 1);
  return status == TDICT_OK ? TDICT_OK : tdict_error_set(err, status, "labels.bin", "the labels are gone");
}

/* Returns what plan() plans: repeats its draws, and cuts batches of at most BATCH samples. */
static ticket_epoch expect(const planner *p, uint64_t seed, int64_t epoch) {
  tdict_fetch_info info = td_with(tdict_fetch_info, seed = seed, epoch = epoch);
  tdict_random random = tdict_random_from(tdict_sample_seed(&info, -1) ^ p->other);
  ticket_epoch e = {0};
  bool ends = true;
  for (int64_t i = 0; i < p->num_samples; i++) {
    if (ends || i - e.begins[e.num_batches - 1] == BATCH) e.begins[e.num_batches++] = i;
    e.all[i].index = tdict_random_below(&random, LENGTH);
    e.all[i].seed = (int64_t)tdict_sample_seed(&info, e.all[i].index);
    e.all[i].position = i;
    ends = p->is_cut && tdict_random_below(&random, 3) == 0;
  }
  e.begins[e.num_batches] = p->num_samples;
  return e;
}

static tdict_loader_options options_of(planner *p, int32_t workers) {
  return td_with(tdict_loader_options, plan_epoch = plan, plan_user = p, batch_size = BATCH, seed = 9,
                 num_workers = workers);
}
static tdict_loader *open_planned(const yard *y, planner *p, const tdict_loader_options *o) {
  const tdict_dataset_table table = tickets_dataset(&p->data);
  return open_loader(y, &table, o);
}
static tdict_loader *open_varying(const yard *y, planner *p, int32_t workers) {
  tdict_dataset_table table = tickets_dataset(&p->data);
  table.length_varies = true;
  const tdict_loader_options o = options_of(p, workers);
  return open_loader(y, &table, &o);
}
static tdict_loader *open_rank(const yard *y, planner *p, int32_t workers, int32_t rank, int32_t world_size) {
  tdict_loader_options o = options_of(p, workers);
  o.rank = rank;
  o.world_size = world_size;
  return open_planned(y, p, &o);
}

CASE(epoch_plan_gives_the_batches_of_the_program) {
  scoped_yard y = open_yard();
  for (int32_t workers = 0; workers <= 3; workers += workers ? 2 : 1)
    for (int cut = 0; cut < 2; cut++) {
      planner p = planner_of(83);
      p.is_cut = cut;
      scoped_loader l = open_rank(&y, &p, workers, 0, 1);
      for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        const ticket_epoch want = expect(&p, 9, epoch);
        if (epoch == 0) assert_int_equal(tdict_loader_length(l), want.num_batches);
        for (int64_t b = 0; b < want.num_batches; b++) {
          ticket found[BATCH];
          check_tickets(&want, b, found, take_tickets(l, found, BATCH));
          assert_int_equal(tdict_loader_length(l), want.num_batches);
          const tdict_batch_info info = td_filled(tdict_batch_info, tdict_loader_get_batch_info(l, &made, err));
          assert_true(info.epoch == epoch && info.batch == b);
        }
        assert_int_equal(take_tickets(l, NULL, 0), -1);
      }
    }
}

/* Rank r takes the batches r, r + world_size and so on. The first batches complete the last round. */
CASE(epoch_plan_is_divided_among_ranks) {
  scoped_yard y = open_yard();
  planner p = planner_of(83);
  const ticket_epoch want = expect(&p, 9, 0);
  for (int32_t world = 1; world <= 4; world++)
    for (int32_t rank = 0; rank < world; rank++) {
      scoped_loader l = open_rank(&y, &p, 2, rank, world);
      for (int64_t b = 0; b < (want.num_batches + world - 1) / world; b++) {
        ticket found[BATCH];
        check_tickets(&want, (b * world + rank) % want.num_batches, found, take_tickets(l, found, BATCH));
      }
      assert_int_equal(take_tickets(l, NULL, 0), -1);
    }
}

CASE(epoch_plan_continues_after_a_resume) {
  scoped_yard y = open_yard();
  planner p = planner_of(40);
  for (int32_t workers = 0; workers <= 3; workers += 3)
    for (int64_t taken = 0; taken < 2 * expect(&p, 9, 0).num_batches; taken++) {
      ticket_epoch rest, whole;
      scoped_loader first = open_rank(&y, &p, workers, 0, 1);
      scoped_loader second = open_rank(&y, &p, 3 - workers, 0, 1);
      ticket found[BATCH];
      for (int64_t i = 0; i < taken; i++) take_tickets(first, found, BATCH);
      tdict_loader_state state = state_of(first);
      assert_int_equal(state.plan_hash != 0, state.batch > 0);
      td_ok(tdict_loader_set_state(second, &state, err));
      const tdict_loader_state again = state_of(second);
      assert_memory_equal(&again, &state, sizeof state);
      take_ticket_epoch(first, &whole);
      take_ticket_epoch(second, &rest);
      assert_int_equal(rest.num_batches, whole.num_batches);
      assert_memory_equal(rest.all, whole.all, (size_t)whole.begins[whole.num_batches] * sizeof *whole.all);
    }
}

CASE(epoch_plan_of_another_program_is_refused) {
  scoped_yard y = open_yard();
  planner p = planner_of(40), q = planner_of(40);
  scoped_loader first = open_rank(&y, &p, 0, 0, 1);
  scoped_loader second = open_rank(&y, &q, 0, 0, 1);
  scoped_loader plain = open_planned(&y, &p, td_options(tdict_loader_options, seed = 9, batch_size = BATCH));
  ticket_epoch e;
  ticket found[BATCH];
  take_ticket_epoch(first, &e);
  tdict_loader_state state = state_of(first);
  q.other = 1;
  td_ok(tdict_loader_set_state(second, &state, err)); /* no batch of the epoch was taken */
  take_tickets(first, found, BATCH);
  state = state_of(first);
  assert_true(state.epoch == 1 && state.batch == 1);
  const tdict_loader_state before = state_of(second);
  td_fails(TDICT_EINVAL, "loader state: plan_epoch planned epoch 1 differently before",
           tdict_loader_set_state(second, &state, err));
  q.other = 0;
  q.is_cut = false; /* the same samples in other batches */
  td_fails(TDICT_EINVAL, "planned epoch 1 differently", tdict_loader_set_state(second, &state, err));
  const tdict_loader_state after = state_of(second);
  assert_memory_equal(&after, &before, sizeof before);
  td_fails(TDICT_EINVAL, "saved for plan_epoch, this loader has a sequential sampler",
           tdict_loader_set_state(plain, &state, err));
  q.is_cut = true;
  td_ok(tdict_loader_set_state(second, &state, err));
  state.plan_hash = 0; /* a program that saved only epoch and batch */
  q.other = 1;
  td_ok(tdict_loader_set_state(second, &state, err));
}

/* The ranks have taken the first batches of the plan, so another number of ranks can take the others. */
CASE(epoch_plan_continues_with_other_ranks) {
  scoped_yard y = open_yard();
  planner p = planner_of(90);
  const ticket_epoch want = expect(&p, 9, 0);
  const int64_t all = want.num_batches;
  assert_true(all > 24);
  for (int32_t from = 1; from <= 4; from++)
    for (int32_t to = 1; to <= 4; to++)
      for (int64_t taken = 0; taken <= (all + from - 1) / from; taken++) {
        ticket found[BATCH];
        scoped_loader first = open_rank(&y, &p, 0, from - 1, from);
        scoped_loader second = open_rank(&y, &p, 1, to - 1, to);
        for (int64_t i = 0; i < taken; i++) take_tickets(first, found, BATCH);
        const tdict_loader_state state = state_of(first);
        const bool is_end = taken * from >= all;
        if (!is_end && taken * from % to) {
          char text[120];
          snprintf(text, sizeof text, "%d ranks have taken %d batches of epoch 0, which is no multiple of the %d ranks",
                   (int)from, (int)(taken * from), (int)to);
          td_fails(TDICT_EINVAL, text, tdict_loader_set_state(second, &state, err));
          continue;
        }
        td_ok(tdict_loader_set_state(second, &state, err));
        if (!is_end) check_tickets(&want, (taken * from + to - 1) % all, found, take_tickets(second, found, BATCH));
        if (is_end) assert_int_equal(take_tickets(second, found, BATCH), -1);
      }
  scoped_loader l = open_rank(&y, &p, 0, 0, 1);
  tdict_loader_state bad = state_of(l);
  bad.world_size = 0;
  td_fails(TDICT_EINVAL, "saved for 0 ranks, wanted 1 or more", tdict_loader_set_state(l, &bad, err));
  bad.world_size = 2;
  bad.batch = all;
  td_fails(TDICT_EINVAL, "of 2 ranks, wanted 0 to", tdict_loader_set_state(l, &bad, err));
  bad.batch = -1;
  td_fails(TDICT_EINVAL, "batch is -1 of 2 ranks", tdict_loader_set_state(l, &bad, err));
}

CASE(epoch_plan_can_leave_out_a_short_last_batch) {
  scoped_yard y = open_yard();
  planner p = planner_of(12);
  p.is_cut = false;
  tdict_loader_options o = options_of(&p, 0);
  o.drop_last = true;
  scoped_loader short_last = open_planned(&y, &p, &o);
  assert_int_equal(tdict_loader_length(short_last), 2);
  p.num_samples = 15;
  scoped_loader full = open_planned(&y, &p, &o);
  assert_int_equal(tdict_loader_length(full), 3);
  p.is_cut = true;
  p.num_samples = 40;
  for (p.other = 0; p.other < 20; p.other++) { /* a batch that the program has ended stays */
    const ticket_epoch want = expect(&p, 9, 0);
    scoped_loader l = open_planned(&y, &p, &o);
    const int64_t last = want.begins[want.num_batches] - want.begins[want.num_batches - 1];
    const int64_t length = tdict_loader_length(l);
    assert_true(length == want.num_batches || (length == want.num_batches - 1 && last < BATCH));
  }
}

CASE(epoch_plan_may_be_empty) {
  scoped_yard y = open_yard();
  for (int32_t workers = 0; workers < 3; workers += 2) {
    planner p = planner_of(0);
    scoped_loader l = open_rank(&y, &p, workers, 1, 2);
    assert_int_equal(tdict_loader_length(l), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(take_tickets(l, NULL, 0), -1);
    assert_int_equal(state_of(l).epoch, 3);
    tdict_loader_options o = options_of(&p, workers);
    tdict_loader *none = NULL;
    const tdict_dataset_table table = tickets_dataset(&p.data);
    o.endless = true;
    td_fails(TDICT_EINVAL, "endless is set, but an epoch has no batch", create_loader_of(y.c, &table, &o, &none, err));
  }
}

/* Ends batches that have no sample, before the first sample and after the last one. */
static tdict_status plan_with_empty_batches(void *user, const tdict_epoch_info *info, tdict_epoch *epoch,
                                            tdict_error *err) {
  (void)user, (void)err;
  for (int64_t i = 0; i < info->num_indices; i++) {
    if (i % 4 == 0)
      for (int k = 0; k < 3; k++) tdict_epoch_end_batch(epoch);
    tdict_epoch_add(epoch, i);
  }
  tdict_epoch_end_batch(epoch);
  return TDICT_OK;
}
CASE(epoch_plan_has_no_empty_batches) {
  scoped_yard y = open_yard();
  planner p = planner_of(0);
  tdict_loader_options o = options_of(&p, 2);
  o.plan_epoch = plan_with_empty_batches;
  scoped_loader l = open_planned(&y, &p, &o);
  ticket_epoch e;
  take_ticket_epoch(l, &e);
  assert_int_equal(e.num_batches, (LENGTH + 3) / 4);
  for (int64_t i = 0; i < LENGTH; i++) assert_true(e.all[i].index == i && e.begins[i / 4] == i / 4 * 4);
}

/* ---- functions that fail ---- */

/* Adds `user`, which is no index, after some indices. */
static tdict_status plan_wrong_index(void *user, const tdict_epoch_info *info, tdict_epoch *epoch, tdict_error *err) {
  (void)info, (void)err;
  for (int64_t i = 0; i < 7; i++) tdict_epoch_add(epoch, i);
  tdict_epoch_add(epoch, *(int64_t *)user);
  for (int64_t i = 0; i < 7; i++) tdict_epoch_add(epoch, i);
  return TDICT_OK;
}
static tdict_status plan_without_status(void *user, const tdict_epoch_info *info, tdict_epoch *epoch,
                                        tdict_error *err) {
  (void)user, (void)info, (void)epoch, (void)err;
  int code = 12345;
  tdict_status status;
  memcpy(&status, &code, sizeof status);
  return status;
}
CASE(epoch_plan_that_is_wrong_is_refused) {
  scoped_yard y = open_yard();
  planner p = planner_of(20);
  const tdict_dataset_table table = tickets_dataset(&p.data);
  tdict_loader *l = NULL;
  int64_t wrong = LENGTH;
  tdict_loader_options o = options_of(&p, 0);
  o.plan_epoch = plan_wrong_index;
  o.plan_user = &wrong;
  td_fails(TDICT_EINVAL, "loader: plan_epoch for epoch 0: sample 50 was added, but the dataset has 50 samples",
           create_loader_of(y.c, &table, &o, &l, err));
  wrong = -1;
  td_fails(TDICT_EINVAL, "sample -1 was added", create_loader_of(y.c, &table, &o, &l, err));
  o.plan_epoch = plan_without_status;
  td_fails(TDICT_EHOOK, "plan_epoch returned 12345, which is not a tdict_status",
           create_loader_of(y.c, &table, &o, &l, err));
  o = options_of(&p, 0);
  p.status = TDICT_EIO;
  td_fails_at(TDICT_EIO, "loader: plan_epoch for epoch 0: the labels are gone", "labels.bin",
              create_loader_of(y.c, &table, &o, &l, err));
}
CASE(epoch_plan_contradicts_other_options) {
  scoped_yard y = open_yard();
  planner p = planner_of(20);
  tdict_dataset_table table = tickets_dataset(&p.data);
  tdict_loader *l = NULL;
  scoped_sampler s = td_made(sampler, tdict_sampler_create(LENGTH, NULL, &made, err));
  tdict_loader_options o = options_of(&p, 0), good = o;
  o.shuffle = true;
  td_fails(TDICT_EINVAL, "both plan_epoch and shuffle are set", create_loader_of(y.c, &table, &o, &l, err));
  o = good;
  o.sampler = s;
  td_fails(TDICT_EINVAL, "both plan_epoch and sampler are set", create_loader_of(y.c, &table, &o, &l, err));
  o = good;
  o.max_tokens = 7;
  td_fails(TDICT_EINVAL, "both plan_epoch and max_tokens are set", create_loader_of(y.c, &table, &o, &l, err));
  table.length = NULL;
  td_fails(TDICT_EINVAL, "plan_epoch and world_size must not be set", create_loader_of(y.c, &table, &good, &l, err));
}

/* If a later epoch cannot be planned, a restart or the state plan this epoch again. No sample is lost. */
CASE(epoch_plan_that_fails_loses_nothing) {
  scoped_yard y = open_yard();
  for (int32_t workers = 0; workers < 3; workers++)
    for (int way = 0; way < 3; way++) {
      planner p = planner_of(20);
      tdict_loader_options o = options_of(&p, workers);
      o.prefetch = 1;
      scoped_loader l = open_planned(&y, &p, &o);
      ticket_epoch found;
      tdict_tree *batch = NULL;
      const int64_t num_batches = tdict_loader_length(l);
      tdict_loader_state state = state_of(l);
      state.batch = num_batches; /* the next call ends the epoch */
      td_ok(tdict_loader_set_state(l, &state, err));
      p.status = TDICT_EIO;
      assert_int_equal(take_tickets(l, NULL, 0), -1);
      for (int i = 0; i < 2; i++)
        td_fails_at(TDICT_EIO, "loader: plan_epoch for epoch 1: the labels are gone", "labels.bin",
                    tdict_loader_next(l, tdict_no_stream(), &batch, err));
      state = state_of(l);
      assert_true(state.epoch == 1 && state.batch == 0);
      if (way == 1) td_fails(TDICT_EIO, "the labels are gone", tdict_loader_set_state(l, &state, err));
      p.status = TDICT_OK;
      if (way == 0) td_ok(tdict_loader_restart(l, err));
      if (way > 0) td_ok(tdict_loader_set_state(l, &state, err));
      const ticket_epoch want = expect(&p, 9, 1);
      take_ticket_epoch(l, &found);
      assert_int_equal(found.num_batches, want.num_batches);
      assert_memory_equal(found.all, want.all, (size_t)want.begins[want.num_batches] * sizeof *want.all);
      assert_int_equal(td_filled(tdict_loader_stats, tdict_loader_get_stats(l, &made, err)).num_errors, 1);
    }
}

/* With on_error FAIL, workers do not plan the epoch again before the program says so. Each round gives a worker the
 * time in which tdict_loader_next() reports the error. */
CASE(epoch_plan_that_fails_is_called_once) {
  enum { ROUNDS = 200 };
  scoped_yard y = open_yard();
  for (int32_t workers = 0; workers < 4; workers++) {
    planner p = planner_of(20);
    tdict_loader_options o = options_of(&p, workers);
    o.prefetch = 1;
    if (workers == 3) o.on_error = TDICT_ON_ERROR_SKIP_BATCH;
    scoped_loader l = open_planned(&y, &p, &o);
    tdict_tree *batch = NULL;
    tdict_loader_state state = state_of(l);
    state.batch = tdict_loader_length(l); /* the next call ends the epoch */
    for (int round = 0; round < ROUNDS; round++) {
      p.status = TDICT_OK;
      td_ok(tdict_loader_set_state(l, &state, err));
      p.status = TDICT_EIO;
      const int calls = atomic_load(&p.calls);
      assert_int_equal(take_tickets(l, NULL, 0), -1);
      for (int i = 0; i < 2; i++)
        td_fails(TDICT_EIO, "the labels are gone", tdict_loader_next(l, tdict_no_stream(), &batch, err));
      td_rest();
      assert_int_equal(atomic_load(&p.calls), calls + 1);
    }
  }
}

/* With on_error CONTINUE, each call plans the epoch again, until that succeeds. */
CASE(epoch_plan_that_fails_is_made_again) {
  scoped_yard y = open_yard();
  for (int32_t workers = 0; workers < 3; workers++) {
    planner p = planner_of(20);
    tdict_loader_options o = options_of(&p, workers);
    o.on_error = TDICT_ON_ERROR_CONTINUE;
    scoped_loader l = open_planned(&y, &p, &o);
    tdict_loader_state state = state_of(l);
    tdict_tree *batch = NULL;
    tdict_error error = {0};
    ticket found[BATCH];
    state.epoch = 1;
    td_ok(tdict_loader_set_state(l, &state, err));
    p.status = TDICT_EIO; /* epoch 2 may be planned already */
    state.epoch = 4;
    state.batch = 0;
    td_fails(TDICT_EIO, "for epoch 4: the labels are gone", tdict_loader_set_state(l, &state, err));
    while (tdict_loader_next(l, tdict_no_stream(), &batch, &error) == TDICT_OK) tdict_release(batch);
    assert_int_equal(error.status, TDICT_EIO);
    const tdict_loader_state stuck = state_of(l);
    assert_true(stuck.epoch >= 2 && stuck.batch == 0);
    for (int i = 0; i < 3; i++)
      td_fails(TDICT_EIO, "the labels are gone", tdict_loader_next(l, tdict_no_stream(), &batch, err));
    assert_int_equal(state_of(l).epoch, stuck.epoch);
    p.status = TDICT_OK; /* a worker may have failed once more already */
    while (tdict_loader_next(l, tdict_no_stream(), &batch, &error) != TDICT_OK)
      assert_int_equal(error.status, TDICT_EIO);
    const ticket_epoch want = expect(&p, 9, stuck.epoch);
    check_tickets(&want, 0, tdict_const_data(batch, "ticket"), tdict_batch_size(batch)[0]);
    tdict_release(batch);
    for (int64_t b = 1; b < want.num_batches; b++) check_tickets(&want, b, found, take_tickets(l, found, BATCH));
    assert_int_equal(take_tickets(l, NULL, 0), -1);
  }
}

CASE(epoch_plan_that_hangs_is_reported) {
  scoped_yard y = open_yard();
  planner p = planner_of(20);
  tdict_loader_options o = options_of(&p, 2);
  o.timeout_ns = 20000000;
  scoped_loader l = open_planned(&y, &p, &o);
  tdict_tree *batch = NULL;
  tdict_loader_state state = state_of(l);
  pthread_mutex_lock(&p.gate);
  td_ok(tdict_loader_set_state(l, &state, err)); /* drops the batches and plans of later epochs */
  atomic_store(&p.waits, true);
  tdict_error error = {0};
  while (!strstr(error.message, "loader: the plan of epoch 1 was not ready within 0.020 s")) {
    tdict_status status = tdict_loader_next(l, tdict_no_stream(), &batch, &error);
    assert_true(status == TDICT_OK || status == TDICT_ETIMEDOUT);
    if (status == TDICT_OK) td_release(batch);
  }
  state = state_of(l); /* does not wait for the plan */
  assert_true(atomic_load(&p.at_gate) && state.epoch == 1 && state.batch == 0);
  atomic_store(&p.waits, false);
  pthread_mutex_unlock(&p.gate);
  const ticket_epoch want = expect(&p, 9, 1);
  while (tdict_loader_next(l, tdict_no_stream(), &batch, &error) == TDICT_ETIMEDOUT) continue;
  check_tickets(&want, 0, tdict_const_data(batch, "ticket"), tdict_batch_size(batch)[0]);
  tdict_release(batch);
}

/* Closes the gate. When `is_entered` is set and all other threads sleep, opens the gate. */
static void *close_for_a_while(void *user) {
  planner *p = user;
  pthread_mutex_lock(&p->gate);
  atomic_store(&p->waits, true);
  while (!atomic_load(&p->is_entered)) usleep(100);
  td_rest();
  atomic_store(&p->waits, false);
  pthread_mutex_unlock(&p->gate);
  return NULL;
}
/* If a worker plans an epoch, tdict_loader_set_state() waits until it has, so the program needs no lock. */
CASE(epoch_plan_is_called_by_one_thread_at_a_time) {
  scoped_yard y = open_yard();
  for (int wrong = 0; wrong < 2; wrong++) {
    planner p = planner_of(20);
    pthread_t thread;
    tdict_loader_options o = options_of(&p, 2);
    o.prefetch = 1;
    scoped_loader l = open_planned(&y, &p, &o);
    tdict_loader_state state = state_of(l);
    state.batch = tdict_loader_length(l); /* the next call ends the epoch */
    td_ok(tdict_loader_set_state(l, &state, err));
    assert_int_equal(pthread_create(&thread, NULL, close_for_a_while, &p), 0);
    while (!atomic_load(&p.waits)) usleep(100);
    assert_int_equal(take_tickets(l, NULL, 0), -1);
    while (!atomic_load(&p.at_gate)) usleep(100); /* a worker plans epoch 1 */
    state.batch += wrong;
    atomic_store(&p.is_entered, true);
    if (wrong)
      td_fails(TDICT_EINVAL, "loader state: batch is", tdict_loader_set_state(l, &state, err));
    else
      td_ok(tdict_loader_set_state(l, &state, err));
    pthread_join(thread, NULL);
    if (!wrong) assert_int_equal(take_tickets(l, NULL, 0), -1);
    for (int64_t epoch = 1; epoch < EPOCHS; epoch++) {
      ticket_epoch found;
      const ticket_epoch want = expect(&p, 9, epoch);
      take_ticket_epoch(l, &found);
      assert_int_equal(found.num_batches, want.num_batches);
      assert_memory_equal(found.all, want.all, (size_t)want.begins[want.num_batches] * sizeof *want.all);
    }
    assert_int_equal(atomic_load(&p.overlaps), 0);
  }
}

/* The length of the dataset changes between epochs. */
CASE(epoch_plan_follows_the_length) {
  scoped_yard y = open_yard();
  for (int32_t workers = 0; workers < 3; workers += 2) {
    planner p = planner_of(60);
    scoped_loader l = open_varying(&y, &p, workers);
    tdict_loader_state state = {0};
    ticket found[BATCH];
    for (int64_t length = 4; length < 40; length *= 2) {
      ticket_epoch e;
      int64_t most = 0;
      atomic_store(&p.data.length, length);
      take_ticket_epoch(l, &e);
      assert_int_equal(e.begins[e.num_batches], 60);
      for (int i = 0; i < 60; i++) most = e.all[i].index > most ? e.all[i].index : most;
      assert_in_range(most, length / 2, length - 1);
    }
    take_tickets(l, found, BATCH);
    state = state_of(l);
    atomic_store(&p.data.length, 48);
    td_ok(tdict_loader_set_state(l, &state, err)); /* the epoch keeps the length that it began with */
    atomic_store(&p.data.length, state.dataset_length - 1);
    td_fails(TDICT_EINVAL, "the epoch has 32 samples", tdict_loader_set_state(l, &state, err));
  }
}

/* A state at the beginning of an epoch has the length of the epoch before. The new epoch has the current length, so
 * nothing is planned for the old one. */
CASE(epoch_plan_of_a_new_epoch_ignores_the_saved_length) {
  scoped_yard y = open_yard();
  for (int32_t workers = 0; workers < 3; workers += 2) {
    planner p = planner_of(30);
    scoped_loader l = open_varying(&y, &p, workers);
    ticket_epoch e;
    take_ticket_epoch(l, &e);
    const tdict_loader_state state = state_of(l);
    assert_true(state.dataset_length == LENGTH && state.epoch == 1 && state.batch == 0);
    for (int64_t length = 10; length <= 80; length += 70) {
      const int calls = atomic_load(&p.calls);
      atomic_store(&p.data.length, length);
      td_ok(tdict_loader_set_state(l, &state, err));
      take_ticket_epoch(l, &e);
      assert_int_equal(atomic_load(&p.num_indices), length);
      assert_int_equal(atomic_load(&p.calls), calls + 1);
      assert_int_equal(e.begins[e.num_batches], 30);
    }
  }
}

CASE(epoch_plan_needs_memory) {
  scoped_yard y = open_yard();
  planner p = planner_of(40);
  const tdict_loader_options o = options_of(&p, 0);
  const tdict_dataset_table table = tickets_dataset(&p.data);
  expect_no_memory_in_two_epochs(&y, &table, &o);
}
