/* Tests the worker threads: limits of prefetching, datasets in order, stuck workers and devices, and destruction at any
 * time. */
#include "numbers.h"
#include "support/threads.h"

static void await_ready(tdict_loader *l, int32_t wanted) {
  for (int i = 0; i < 5000; i++) {
    tdict_loader_stats s = td_filled(tdict_loader_stats, tdict_loader_get_stats(l, &made, err));
    if (s.num_ready == wanted) return;
    usleep(1000);
  }
  fail_msg("the number of ready batches did not become %d within 5 s", (int)wanted);
}

DEVICE_CASE(loader_bounds_prefetched_bytes) {
  scoped_yard y = open_yard();
  size_t one = 4 * (8 + 4 * X_COUNT);
  for (int limit = 0; limit < 2; limit++) {
    numbers n = numbers_of(400);
    tdict_dataset_table d = by_row(&n);
    tdict_loader_options o = td_with(tdict_loader_options, batch_size = 4, num_workers = 1, prefetch = 7,
                                     prefetch_bytes = limit ? 3 * one : 0);
    int32_t ahead = limit ? 3 : 7;
    scoped_loader l = open_loader(&y, &d, &o);
    await_ready(l, ahead);
    td_rest(); /* any further fetch would have begun by now */
    assert_int_equal(n.fetches, 4 * ahead);
    scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
    await_ready(l, ahead);
    td_rest();
    assert_int_equal(n.fetches, 4 * ahead + 4);
  }
}

/* While the device is held, four batches are sent, and a worker with a fifth batch waits. The loader can still be
 * destroyed, and the next loader on the device returns every batch. */
SIM_CASE(loader_limits_transfers_in_flight) {
  enum { SENT = 4, WORKERS = 3, LENGTH = 60 };
  scoped_yard y = open_yard();
  for (int ends = 0; ends < 2; ends++) {
    numbers n = numbers_of(LENGTH);
    tdict_dataset_table d = by_row(&n);
    tdict_loader_options o = td_with(tdict_loader_options, batch_size = 2, num_workers = WORKERS, prefetch = 20);
    td_ok(tdict_sim_hold(y.c, err));
    tdict_loader *l = open_loader(&y, &d, &o);
    await_ready(l, SENT);
    td_rest(); /* any further batch would have been sent by now */
    await_ready(l, SENT);
    for (int i = 0; i < 5000 && n.fetches < 2 * SENT + 2; i++) usleep(1000);
    assert_in_range(n.fetches, 2 * SENT + 2, 2 * (SENT + WORKERS));
    if (ends == 0) td_ok(tdict_sim_resume(y.c, err));
    int64_t ids[LENGTH];
    if (ends == 0) assert_int_equal(read_epoch(&y, l, ids, LENGTH), LENGTH);
    for (int64_t i = 0; i < LENGTH && ends == 0; i++) assert_int_equal(ids[i], i);
    tdict_loader_destroy(l);
    assert_int_equal(n.released, 1);
    td_ok(tdict_sim_resume(y.c, err));
  }
}

DEVICE_CASE(loader_in_order_dataset) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(200);
  n.delay_us = 100;
  tdict_dataset_table d = by_sample(&n);
  d.in_order = true;
  scoped_loader l = open_loader(&y, &d, td_options(tdict_loader_options, batch_size = 3, num_workers = 5));
  int64_t ids[200];
  assert_int_equal(read_epoch(&y, l, ids, 200), 200);
  assert_int_equal(n.most_running, 1);
  assert_int_equal(n.out_of_order, 0);
}

static tdict_status make_one(void *user, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                             tdict_error *err) {
  return numbers_sample(user, info, index, out, err);
}

DEVICE_CASE(loader_stream_ends) {
  scoped_yard y = open_yard();
  for (int way = 0; way < 3; way++) {
    for (int64_t end = 0; end < 14; end += 1 + end % 3) {
      for (int workers = 0; workers < 5; workers += 2) {
        for (int drop = 0; drop < 2; drop++) {
          numbers n = numbers_of(-1);
          n.end = end;
          n.delay_us = 50;
          tdict_dataset_table d = way == 0 ? by_row(&n) : by_sample(&n);
          tdict_dataset *made = NULL;
          if (way == 2) td_ok(tdict_dataset_from_callback(make_one, &n, -1, &made, err));
          tdict_loader_options o =
              td_with(tdict_loader_options, batch_size = 4, num_workers = workers, drop_last = drop);
          scoped_loader l = made ? open_loader_on(&y, made, &o) : open_loader(&y, &d, &o);
          assert_int_equal(tdict_loader_length(l), -1);
          for (int epoch = 0; epoch < 3; epoch++) {
            int64_t ids[16], wanted = drop ? end / 4 * 4 : end;
            assert_int_equal(read_epoch(&y, l, ids, 16), wanted);
            for (int64_t i = 0; i < wanted; i++) assert_int_equal(ids[i], i);
          }
        }
      }
    }
  }
}

CASE(dataset_callback_refuses) {
  tdict_dataset *d = NULL;
  td_fails(TDICT_EINVAL, "the callback is NULL", tdict_dataset_from_callback(NULL, NULL, 3, &d, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_dataset_from_callback(make_one, NULL, 3, NULL, err));
}

static void take_in_time(tdict_loader *l, tdict_tree **out) {
  tdict_status status = TDICT_ETIMEDOUT;
  for (int i = 0; i < 1000 && status == TDICT_ETIMEDOUT; i++)
    status = tdict_loader_next(l, tdict_no_stream(), out, NULL);
  assert_int_equal(status, TDICT_OK);
}

DEVICE_CASE(loader_reports_stuck_worker) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(20);
  n.gated = 9;
  tdict_dataset_table d = by_row(&n);
  tdict_loader_options o = td_with(tdict_loader_options, batch_size = 2, num_workers = 2, timeout_ns = 50000000);
  pthread_mutex_lock(&n.gate);
  scoped_loader l = open_loader(&y, &d, &o);
  int64_t ids[2];
  scoped_tree batch = NULL;
  for (int i = 0; i < 4; i++) {
    take_in_time(l, &batch); /* the first transfer of a context may take longer than the loader waits */
    tdict_release(batch);
  }
  for (int i = 0; i < 5000 && !atomic_load(&n.at_gate); i++) usleep(1000);
  td_fails(TDICT_ETIMEDOUT, "positions 8 to 9", tdict_loader_next(l, tdict_no_stream(), &batch, err));
  td_fails(TDICT_ETIMEDOUT, "batch 4 of epoch 0", tdict_loader_next(l, tdict_no_stream(), &batch, err));
  pthread_mutex_unlock(&n.gate);
  take_in_time(l, &batch);
  read_batch(&y, batch, ids, 2);
  assert_int_equal(ids[0], 8);
}

/* The worker is done, but the device is held. The call fails when the host would have to wait, and no batch is lost. */
SIM_CASE(loader_reports_stuck_device) {
  for (int workers = 0; workers < 3; workers += 2) {
    scoped_yard y = open_yard();
    numbers n = numbers_of(20);
    tdict_dataset_table d = by_row(&n);
    tdict_loader_options o =
        td_with(tdict_loader_options, batch_size = 2, num_workers = workers, prefetch = 2, timeout_ns = 30000000);
    td_ok(tdict_sim_hold(y.c, err));
    tdict_loader *l = open_loader(&y, &d, &o);
    int64_t ids[20];
    tdict_tree *batch = NULL;
    if (workers) await_ready(l, 2);
    for (int i = 0; i < 3; i++) {
      td_fails(TDICT_ETIMEDOUT, "batch 0 of epoch 0 has not arrived on the device",
               tdict_loader_next(l, tdict_no_stream(), &batch, err));
      tdict_loader_state s = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
      assert_int_equal(s.batch, 0);
    }
    tdict_loader_stats stats = td_filled(tdict_loader_stats, tdict_loader_get_stats(l, &made, err));
    assert_int_equal(stats.num_batches, 0);
    assert_int_equal(stats.num_errors, 0);
    td_ok(tdict_sim_resume(y.c, err));
    take_in_time(l, &batch);
    assert_int_equal(read_batch(&y, batch, ids, 2), 2);
    assert_int_equal(ids[0], 0);
    tdict_release(batch);
    take_in_time(l, &batch);
    assert_int_equal(read_batch(&y, batch, ids, 2), 2);
    assert_int_equal(ids[0], 2);
    tdict_release(batch);
    if (workers) td_ok(tdict_sim_hold(y.c, err)); /* the loader is destroyed while the device is held */
    tdict_loader_destroy(l);
    td_ok(tdict_sim_resume(y.c, err));
  }
}

/* Each call waits for a worker or for the device until it times out. */
SIM_CASE(loader_counts_waiting) {
  enum { TIMES = 4, WAIT_NS = 10000000 };
  for (int at_device = 0; at_device < 2; at_device++) {
    scoped_yard y = open_yard();
    numbers n = numbers_of(20);
    n.gated = at_device ? -1 : 0;
    tdict_dataset_table d = by_row(&n);
    pthread_mutex_lock(&n.gate);
    td_ok(tdict_sim_hold(y.c, err));
    scoped_loader l = open_loader(&y, &d, td_options(tdict_loader_options, num_workers = 1, timeout_ns = WAIT_NS));
    if (at_device) await_ready(l, 2);
    tdict_tree *batch = NULL;
    for (int i = 0; i < TIMES; i++) td_fails(TDICT_ETIMEDOUT, "", tdict_loader_next(l, tdict_no_stream(), &batch, err));
    tdict_loader_stats s = td_filled(tdict_loader_stats, tdict_loader_get_stats(l, &made, err));
    assert_true(s.wait_seconds >= TIMES * WAIT_NS * 1e-9);
    pthread_mutex_unlock(&n.gate);
    td_ok(tdict_sim_resume(y.c, err));
  }
}

/* If a dataset is read in order, a worker is idle while it waits until another worker has fetched an earlier batch. */
SIM_CASE(loader_counts_waiting_to_fetch_in_order) {
  enum { WAIT_NS = 50000000 };
  scoped_yard y = open_yard();
  numbers n = numbers_of(200);
  n.gated = 0;
  tdict_dataset_table d = by_row(&n);
  d.in_order = true;
  pthread_mutex_lock(&n.gate);
  scoped_loader l = open_loader(&y, &d, td_options(tdict_loader_options, num_workers = 2));
  td_rest(); /* one worker is at the gate, and the other waits for it */
  assert_true(n.at_gate);
  usleep(WAIT_NS / 1000);
  pthread_mutex_unlock(&n.gate);
  for (int i = 0; i < 2; i++) {
    scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
  }
  tdict_loader_stats s = td_filled(tdict_loader_stats, tdict_loader_get_stats(l, &made, err));
  assert_true(s.idle_seconds >= WAIT_NS * 1e-9);
  assert_true(s.fetch_seconds >= WAIT_NS * 1e-9);
}

typedef struct helper {
  tdict_loader *loader;
  tdict_context *c;
  atomic_int failed;
} helper;
enum { HELD_NS = 20000000 };

/* Waits until the statistics show that tdict_loader_next() was called, and resumes the device some time later. */
static void *resume_later(void *user) {
  helper *h = user;
  tdict_loader_stats s = tdict_loader_stats_default();
  while (tdict_loader_get_stats(h->loader, &s, NULL) == TDICT_OK && s.mean_ready == 0) usleep(100);
  usleep(HELD_NS / 1000);
  if (tdict_sim_resume(h->c, NULL) != TDICT_OK) atomic_store(&h->failed, 1);
  return NULL;
}

SIM_CASE(loader_counts_waiting_for_the_device) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(20);
  tdict_dataset_table d = by_row(&n);
  td_ok(tdict_sim_hold(y.c, err));
  scoped_loader l = open_loader(&y, &d, td_options(tdict_loader_options, num_workers = 1));
  await_ready(l, 2);
  helper h = {.loader = l, .c = y.c};
  tdict_tree *batch = NULL;
  pthread_t thread = td_start(resume_later, &h);
  td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
  pthread_join(thread, NULL);
  assert_int_equal(atomic_load(&h.failed), 0);
  tdict_release(batch);
  tdict_loader_stats s = td_filled(tdict_loader_stats, tdict_loader_get_stats(l, &made, err));
  assert_true(s.wait_seconds >= HELD_NS * 1e-9);
}

/* Calls of the consumer time out several times before the worker reaches the end of the stream. */
DEVICE_CASE(loader_reports_stuck_stream) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(-1);
  n.end = 1;
  n.delay_us = 200000;
  tdict_dataset_table d = by_row(&n);
  tdict_loader_options o = td_with(tdict_loader_options, batch_size = 2, num_workers = 1, timeout_ns = 1000000);
  scoped_loader l = open_loader(&y, &d, &o);
  int64_t ids[2];
  tdict_tree *batch = NULL;
  tdict_status status = TDICT_ETIMEDOUT;
  for (int i = 0; i < 5000 && status == TDICT_ETIMEDOUT; i++)
    status = tdict_loader_next(l, tdict_no_stream(), &batch, NULL);
  assert_int_equal(status, TDICT_OK);
  assert_int_equal(read_batch(&y, batch, ids, 2), 1);
  tdict_release(batch);
  td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
  assert_null(batch);
}

/* Destroys loaders before the first batch, within an epoch, at its end, after an error, and during a fetch. */
DEVICE_CASE(loader_destroy_in_any_state) {
  scoped_yard y = open_yard();
  for (int taken = 0; taken < 12; taken++) {
    for (int workers = 0; workers < 5; workers += 2) {
      numbers n = numbers_of(20);
      n.delay_us = 400;
      n.fail_at = taken % 3 == 2 ? 11 : -1;
      tdict_dataset_table d = taken % 2 ? by_row(&n) : by_sample(&n);
      scoped_tree kept = NULL;
      tdict_loader *l = open_loader(&y, &d, td_options(tdict_loader_options, batch_size = 2, num_workers = workers));
      for (int i = 0; i < taken; i++) {
        tdict_tree *batch = NULL;
        tdict_status status = tdict_loader_next(l, tdict_no_stream(), &batch, NULL);
        assert_true(status == TDICT_OK || n.fail_at >= 0);
        if (!kept)
          kept = batch;
        else
          tdict_release(batch);
      }
      tdict_loader_destroy(l);
      assert_int_equal(n.released, 1);
      assert_int_equal(n.running, 0);
      int64_t ids[2];
      if (kept) assert_int_equal(read_batch(&y, kept, ids, 2), 2);
    }
  }
}
