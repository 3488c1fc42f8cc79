/* Tests the loader: batches and their order for every kind of dataset, saved states, and errors. */
#include "numbers.h"
#include "support/thread_name.h"

DEVICE_CASE(loader_same_batches_for_any_workers) {
  scoped_yard y = open_yard();
  int64_t wanted[203], ids[203];
  for (int way = 0; way < 3; way++) {
    for (int workers = 0; workers < 8; workers += workers ? 3 : 1) {
      numbers n = numbers_of(101);
      n.delay_us = 300;
      tdict_dataset_table d = way == 0 ? by_row(&n) : by_sample(&n);
      if (way == 2) {
        give_fields(&d);
        d.fetch_batch = numbers_fetch_batch;
      }
      tdict_loader_options o =
          td_with(tdict_loader_options, batch_size = 8, num_workers = workers, shuffle = true, seed = 11);
      tdict_loader *l = open_loader(&y, &d, &o);
      assert_int_equal(tdict_loader_length(l), 13);
      for (int epoch = 0; epoch < 2; epoch++) {
        bool seen[101] = {false};
        assert_int_equal(read_epoch(&y, l, ids + 101 * epoch, 102), 101);
        for (int i = 0; i < 101; i++) seen[ids[101 * epoch + i]] = true;
        for (int i = 0; i < 101; i++) assert_true(seen[i]);
      }
      if (way == 0 && workers == 0) memcpy(wanted, ids, sizeof wanted);
      assert_memory_equal(ids, wanted, 202 * sizeof *ids);
      assert_true(memcmp(ids, ids + 101, 101 * sizeof *ids) != 0);
      tdict_loader_destroy(l);
      assert_int_equal(n.released, 1);
    }
  }
}

/* Loads as rank 1 of 2 with a sampler of each kind. Some kinds draw more samples than the dataset has. A second loader
 * continues in the middle of an epoch. */
DEVICE_CASE(loader_follows_the_sampler) {
  enum { DRAWN = 31, BATCH = 4, STOP = 2 };
  scoped_yard y = open_yard();
  double weights[20];
  for (int i = 0; i < 20; i++) weights[i] = i % 5;
  for (int32_t kind = TDICT_SAMPLER_SEQUENTIAL; kind <= TDICT_SAMPLER_WEIGHTED; kind++) {
    for (int workers = 0; workers < 5; workers += 2) {
      tdict_sampler_options so =
          td_with(tdict_sampler_options, kind = kind, seed = 3, weights = weights, num_weights = 20,
                  num_samples = kind >= TDICT_SAMPLER_WITH_REPLACEMENT ? DRAWN : 0, rank = 1, world_size = 2);
      scoped_sampler sampler = td_made(sampler, tdict_sampler_create(20, &so, &made, err));
      int64_t length = tdict_sampler_length(sampler), ids[DRAWN];
      numbers n = numbers_of(20);
      n.delay_us = 100;
      tdict_dataset_table d = by_row(&n);
      tdict_loader_options o =
          td_with(tdict_loader_options, batch_size = BATCH, num_workers = workers, sampler = sampler);
      scoped_loader l = open_loader(&y, &d, &o);
      for (int epoch = 0; epoch < 2; epoch++) {
        assert_int_equal(read_epoch(&y, l, ids, DRAWN), length);
        for (int64_t i = 0; i < length; i++) assert_int_equal(ids[i], tdict_sampler_get(sampler, epoch, i));
      }
      tdict_loader_state s = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
      tdict_loader_destroy(l);
      s.batch = STOP;
      l = open_loader(&y, &d, &o);
      td_ok(tdict_loader_set_state(l, &s, err));
      assert_int_equal(read_epoch(&y, l, ids, DRAWN), length - STOP * BATCH);
      for (int64_t i = 0; i < length - STOP * BATCH; i++)
        assert_int_equal(ids[i], tdict_sampler_get(sampler, 2, STOP * BATCH + i));
    }
  }
}

DEVICE_CASE(loader_keeps_order) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(64);
  n.delay_us = 2000;
  tdict_dataset_table d = by_row(&n);
  scoped_loader l = open_loader(&y, &d, td_options(tdict_loader_options, num_workers = 6));
  int64_t ids[64];
  assert_int_equal(read_epoch(&y, l, ids, 64), 64);
  for (int64_t i = 0; i < 64; i++) assert_int_equal(ids[i], i);
  assert_true(n.most_running > 1);
}

DEVICE_CASE(loader_ends_epochs) {
  scoped_yard y = open_yard();
  for (int workers = 0; workers < 3; workers += 2) {
    for (int64_t length = 0; length < 5; length += 4) {
      numbers n = numbers_of(length);
      tdict_dataset_table d = by_row(&n);
      scoped_loader l = open_loader(&y, &d, td_options(tdict_loader_options, batch_size = 2, num_workers = workers));
      int64_t ids[8];
      for (int epoch = 0; epoch < 4; epoch++) {
        tdict_loader_state s = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
        assert_int_equal(s.epoch, epoch);
        assert_int_equal(s.batch, 0);
        assert_int_equal(read_epoch(&y, l, ids, 8), length);
        for (int64_t i = 0; i < length; i++) assert_int_equal(ids[i], i);
      }
    }
  }
}

DEVICE_CASE(loader_drop_last) {
  scoped_yard y = open_yard();
  for (int drop = 0; drop < 2; drop++) {
    numbers n = numbers_of(23);
    tdict_dataset_table d = by_row(&n);
    scoped_loader l = open_loader(&y, &d, td_options(tdict_loader_options, batch_size = 5, drop_last = drop));
    int64_t ids[32];
    assert_int_equal(tdict_loader_length(l), drop ? 4 : 5);
    assert_int_equal(read_epoch(&y, l, ids, 32), drop ? 20 : 23);
    assert_int_equal(read_epoch(&y, l, ids, 32), drop ? 20 : 23);
  }
}

DEVICE_CASE(loader_prefers_fetch_batch) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(20);
  tdict_dataset_table d = by_row(&n);
  d.fetch_batch = numbers_fetch_batch;
  d.fetch_sample = numbers_sample;
  scoped_loader l = open_loader(&y, &d, td_options(tdict_loader_options, batch_size = 6, num_workers = 0));
  int64_t ids[20];
  assert_int_equal(read_epoch(&y, l, ids, 20), 20);
  assert_int_equal(n.batches, 4);
}

DEVICE_CASE(loader_state_restores) {
  scoped_yard y = open_yard();
  for (int workers = 0; workers < 5; workers += 2) {
    int64_t whole[120], rest[120], ids[8];
    numbers n = numbers_of(40);
    tdict_loader_options o =
        td_with(tdict_loader_options, batch_size = 3, num_workers = workers, shuffle = true, seed = 9);
    tdict_dataset_table d = by_row(&n);
    tdict_loader *l = open_loader(&y, &d, &o);
    for (int i = 0; i < 3; i++) assert_int_equal(read_epoch(&y, l, whole + 40 * i, 40), 40);
    tdict_loader_destroy(l);
    for (int stop = 0; stop <= 14; stop += 7) { /* number of batches of the second epoch that were returned */
      l = open_loader(&y, &d, &o);
      read_epoch(&y, l, rest, 120);
      for (int i = 0; i < stop; i++) {
        scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
        read_batch(&y, batch, ids, 8);
      }
      tdict_loader_state s = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
      tdict_loader_destroy(l);
      l = open_loader(&y, &d, &o);
      td_ok(tdict_loader_set_state(l, &s, err));
      int64_t skipped = stop == 14 ? 40 : 3 * stop;
      int64_t count = read_epoch(&y, l, rest, 120);
      assert_int_equal(count, 40 - skipped);
      assert_memory_equal(rest, whole + 40 + skipped, (size_t)count * sizeof *rest);
      assert_int_equal(read_epoch(&y, l, rest, 120), 40);
      assert_memory_equal(rest, whole + 80, 40 * sizeof *rest);
      s.epoch = 0; /* a loader that has run can go back to the start */
      s.batch = 0;
      td_ok(tdict_loader_set_state(l, &s, err));
      assert_int_equal(read_epoch(&y, l, rest, 120), 40);
      assert_memory_equal(rest, whole, 40 * sizeof *rest);
      tdict_loader_destroy(l);
    }
  }
}

CASE(loader_state_refuses) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(40);
  tdict_dataset_table d = by_row(&n);
  scoped_loader l = open_loader(&y, &d, NULL);
  tdict_loader_state s = tdict_loader_state_default(), was;
  td_fails(TDICT_EINVAL, "saved for version 0 of the orders, this library has 2", tdict_loader_set_state(l, &s, err));
  s.order_version = 2;
  td_fails(TDICT_EINVAL, "saved for 0 samples, this loader has 40", tdict_loader_set_state(l, &s, err));
  was = tdict_loader_state_default();
  td_ok(tdict_loader_get_state(l, &was, err));
  s = was;
  s.batch = 41;
  td_fails(TDICT_EINVAL, "batch is 41", tdict_loader_set_state(l, &s, err));
  s.batch = -1;
  td_fails(TDICT_EINVAL, "batch is -1", tdict_loader_set_state(l, &s, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_loader_set_state(l, NULL, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_loader_get_state(l, NULL, err));
  td_ok(tdict_loader_get_state(l, &s, err));
  assert_memory_equal(&s, &was, sizeof s);
}

CASE(loader_refuses) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(4);
  tdict_dataset_table d = by_row(&n), empty = dataset_of(&n);
  tdict_loader *l = NULL;
  tdict_loader_options o = tdict_loader_options_default();
#define REFUSED(field, value, text)   \
  o = tdict_loader_options_default(); \
  o.field = value;                    \
  td_fails(TDICT_EINVAL, text, create_loader_of(y.c, &d, &o, &l, err))
  REFUSED(batch_size, 0, "batch_size is 0");
  REFUSED(num_workers, -1, "num_workers is -1");
  REFUSED(prefetch, -2, "prefetch is -2");
  REFUSED(timeout_ns, -1, "timeout_ns is -1");
  REFUSED(pad, true, "pad needs a dataset with fetch_sample");
  td_fails(TDICT_EINVAL, "it has neither fetch_sample, nor fields", create_loader_of(y.c, &empty, NULL, &l, err));
  td_fails(TDICT_EINVAL, "the dataset is NULL", tdict_loader_create(y.c, NULL, NULL, &l, err));
  td_fails(TDICT_EINVAL, "the context is NULL", create_loader_of(NULL, &d, NULL, &l, err));
  td_fails(TDICT_EINVAL, "out is NULL", create_loader_of(y.c, &d, NULL, NULL, err));
  o = tdict_loader_options_default();
  o.device = tdict_cuda(99);
  td_fails(TDICT_ENODEVICE, "", create_loader_of(y.c, &d, &o, &l, err));
  REFUSED(device, ((tdict_device){TDICT_DEVICE_CPU, 1}), "cpu:1 cannot hold memory");
  n.length = -1;
  REFUSED(shuffle, true, "a stream");
  tdict_loader_destroy(NULL);
}

/* Several loaders may use one dataset, and the program may release the dataset as soon as they exist. */
CASE(loader_retains_dataset) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(4);
  tdict_dataset_table t = by_row(&n);
  tdict_loader *first = NULL, *second = NULL, *none = NULL;
  tdict_loader_options wrong = td_with(tdict_loader_options, batch_size = 0);
  tdict_dataset *d = td_made(dataset, tdict_dataset_create(&t, &made, err));
  td_ok(tdict_loader_create(y.c, d, NULL, &first, err));
  td_ok(tdict_loader_create(y.c, d, NULL, &second, err));
  td_fails(TDICT_EINVAL, "batch_size is 0", tdict_loader_create(y.c, d, &wrong, &none, err));
  td_release(d, first);
  assert_int_equal(n.released, 0);
  int64_t ids[4];
  assert_int_equal(read_epoch(&y, second, ids, 4), 4);
  tdict_loader_destroy(second);
  assert_int_equal(n.released, 1);
  assert_int_equal(n.running, 0);
}

CASE(loader_that_fails_releases_dataset) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(4);
  tdict_dataset_table t = by_row(&n);
  tdict_loader *l = NULL;
  tdict_loader_options o = td_with(tdict_loader_options, pad = true);
  td_fails(TDICT_EINVAL, "pad needs a dataset with fetch_sample", create_loader_of(y.c, &t, &o, &l, err));
  assert_int_equal(n.released, 1);
}

CASE(dataset_counts_references) {
  numbers n = numbers_of(4);
  tdict_dataset_table t = by_row(&n);
  tdict_dataset *d = td_made(dataset, tdict_dataset_create(&t, &made, err));
  t.name = "changed";
  assert_string_equal(tdict_dataset_get_table(d)->name, "numbers");
  assert_ptr_equal(tdict_dataset_get_table(d)->self, &n);
  assert_ptr_equal(tdict_dataset_retain(d), d);
  tdict_dataset_release(d);
  assert_int_equal(n.released, 0);
  tdict_dataset_release(d);
  assert_int_equal(n.released, 1);
  tdict_dataset_release(NULL);
}

CASE(dataset_create_refuses) {
  numbers n = numbers_of(4);
  tdict_dataset_table t = by_row(&n);
  tdict_dataset *d = NULL;
  td_fails(TDICT_EINVAL, "dataset: the table is NULL", tdict_dataset_create(NULL, &d, err));
  td_fails(TDICT_EINVAL, "dataset: out is NULL", tdict_dataset_create(&t, NULL, err));
  t.fields = NULL;
  td_fails(TDICT_EINVAL, "numbers: num_fields is 2, but fields is NULL", tdict_dataset_create(&t, &d, err));
  t.num_fields = 0;
  td_fails(TDICT_EINVAL, "numbers: it has neither fetch_sample, nor fields with fetch or fetch_batch",
           tdict_dataset_create(&t, &d, err));
  t = by_row(&n);
  t.fetch = NULL;
  td_fails(TDICT_EINVAL, "numbers: it has neither", tdict_dataset_create(&t, &d, err));
  t.struct_size = 1;
  td_fails(TDICT_EINVAL, "dataset table", tdict_dataset_create(&t, &d, err));
  assert_null(d);
  assert_int_equal(n.released, 0); /* a failed call does not take ownership of `self` */
}

DEVICE_CASE(loader_counts_batches) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(21);
  tdict_dataset_table d = by_row(&n);
  scoped_loader l = open_loader(&y, &d, td_options(tdict_loader_options, batch_size = 4));
  int64_t ids[21];
  read_epoch(&y, l, ids, 21);
  tdict_loader_stats s = td_filled(tdict_loader_stats, tdict_loader_get_stats(l, &made, err));
  assert_int_equal(s.num_batches, 6);
  assert_int_equal(s.num_samples, 21);
  assert_int_equal(s.num_errors, 0);
  assert_int_equal(s.total_bytes, 21 * (8 + 4 * X_COUNT));
  assert_true(s.wait_seconds > 0 && s.fetch_seconds > 0 && s.idle_seconds >= 0);
  assert_true(s.mean_ready >= 0 && s.num_ready >= 0);
  td_fails(TDICT_EINVAL, "NULL", tdict_loader_get_stats(l, NULL, err));
}

DEVICE_CASE(loader_workers_have_names) {
  enum { WORKERS = 3 };
  scoped_yard y = open_yard();
  numbers n = numbers_of(40);
  tdict_dataset_table d = by_row(&n);
  scoped_loader l = open_loader(&y, &d, td_options(tdict_loader_options, batch_size = 2, num_workers = WORKERS));
  td_rest();
  for (int i = 0; i < WORKERS; i++) assert_int_equal(td_threads_named(td_text("tdict-load-%d", i)), 1);
  assert_int_equal(td_threads_named("tdict-load-*"), WORKERS);
}
