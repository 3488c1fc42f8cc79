/* Tests loaders over replay buffers: the length of each epoch, restarts, states, and datasets whose length varies. */
#include "replay_rows.h"

/* An epoch draws only from rows that were filled when it began. Tests every sampler with every way of fetching. */
DEVICE_CASE(replay_epochs_follow_the_length) {
  enum { DRAWN = 40, BATCH = 4 };
  scoped_yard y = open_yard();
  for (int kind = -1; kind <= TDICT_SAMPLER_WITH_REPLACEMENT; kind++)
    for (int way = 0; way < 4; way++) {
      scoped_tree tree = rows_of(CAPACITY);
      scoped_replay r = replay_over(tree, 0);
      tdict_sampler *sampler = NULL;
      tdict_sampler_options so = td_with(tdict_sampler_options, kind = kind, seed = 5, num_samples = DRAWN);
      if (kind >= 0) td_ok(tdict_sampler_create(DRAWN, &so, &sampler, err));
      tdict_loader_options o = td_with(tdict_loader_options, sampler = sampler, batch_size = BATCH,
                                       num_workers = way % 2 ? 3 : 0, collate = way / 2 ? stack_rows : NULL);
      scoped_loader l = loader_over(&y, r, &o);
      tdict_sampler_release(sampler);
      assert_int_equal(tdict_loader_length(l), 0);
      int64_t ids[MAX_ROWS], appended = 0;
      for (int epoch = 0; epoch < 8; epoch++) {
        td_rest(); /* Workers that begin too early have begun by now. */
        int64_t length = appended < CAPACITY ? appended : CAPACITY, seen[CAPACITY] = {0};
        int64_t wanted = kind == TDICT_SAMPLER_WITH_REPLACEMENT && length > 0 ? DRAWN : length;
        assert_int_equal(read_epoch(&y, l, ids, MAX_ROWS), wanted);
        assert_int_equal(tdict_loader_length(l), (wanted + BATCH - 1) / BATCH);
        for (int64_t i = 0; i < wanted; i++) {
          assert_in_range(ids[i], (LargestIntegralType)(appended - length), (LargestIntegralType)(appended - 1));
          if (kind == TDICT_SAMPLER_SEQUENTIAL && appended <= CAPACITY) assert_int_equal(ids[i], i);
          seen[ids[i] % CAPACITY]++;
        }
        for (int64_t i = 0; i < CAPACITY && kind != TDICT_SAMPLER_WITH_REPLACEMENT; i++)
          assert_int_equal(seen[i], i < length ? 1 : 0);
        append_ids(r, appended, 5);
        appended += 5;
      }
    }
}

/* All rows are rewritten between epochs, as in PPO. No batch may have rows of an earlier epoch. */
DEVICE_CASE(replay_epochs_see_new_rows) {
  scoped_yard y = open_yard();
  for (int workers = 0; workers < 4; workers += 3)
    for (int endless = 0; endless < 2; endless++) {
      scoped_tree tree = rows_from(0, CAPACITY);
      scoped_replay r = replay_over(tree, CAPACITY);
      tdict_loader_options o = tdict_loader_options_default();
      o.batch_size = 2; /* so small that the end of the epoch is not prefetched */
      o.num_workers = workers;
      o.shuffle = true;
      o.endless = endless;
      scoped_loader l = loader_over(&y, r, &o);
      int64_t ids[MAX_ROWS];
      for (int64_t round = 0; round < 6; round++) {
        int64_t count = 0;
        for (int i = 0; i < 3 && endless; i++) { /* Leave the epoch in the middle. */
          scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
          count += read_batch(&y, batch, ids + count, MAX_ROWS - count);
        }
        if (!endless) count = read_epoch(&y, l, ids, MAX_ROWS);
        assert_int_equal(count, endless ? 6 : CAPACITY);
        for (int64_t i = 0; i < count; i++) assert_int_equal(ids[i] / 100, round);
        if (endless) td_ok(tdict_loader_restart(l, err));
        td_rest(); /* The workers have prefetched as much as they may. */
        if (round % 2) {
          write_ids(r, 0, 100 * (round + 1), CAPACITY);
        } else {
          tdict_replay_lock(r);
          for (int64_t i = 0; i < CAPACITY; i++) put_id(tree, i, 100 * (round + 1) + i);
          tdict_replay_unlock(r);
        }
        tdict_loader_state s = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
        assert_int_equal(s.epoch, round + 1);
        assert_int_equal(s.batch, 0);
      }
    }
}

/* A state saved in the middle of an epoch keeps the length of the epoch. A state saved at the start does not. */
CASE(replay_states) {
  scoped_yard y = open_yard();
  for (int workers = 0; workers < 4; workers += 3) {
    scoped_tree tree = rows_of(CAPACITY), batch = NULL;
    scoped_replay r = replay_over(tree, 0);
    tdict_loader_options o = td_with(tdict_loader_options, batch_size = 3, shuffle = true, num_workers = workers);
    scoped_loader l = loader_over(&y, r, &o);
    tdict_loader_state start = tdict_loader_state_default(), middle = start, bad;
    int64_t ids[MAX_ROWS], again[MAX_ROWS];
    td_ok(tdict_loader_get_state(l, &start, err));
    assert_int_equal(start.dataset_length, 0);
    append_ids(r, 0, 10);
    td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
    td_release(batch);
    td_ok(tdict_loader_get_state(l, &middle, err));
    assert_int_equal(middle.dataset_length, 10);
    assert_int_equal(middle.batch, 1);
    append_ids(r, 10, 5);
    assert_int_equal(read_epoch(&y, l, ids, MAX_ROWS), 7);
    for (int k = 0; k < 2; k++) {
      assert_int_equal(read_epoch(&y, l, again, MAX_ROWS), 15);
      td_ok(tdict_loader_set_state(l, &middle, err));
      assert_int_equal(tdict_loader_length(l), 4);
      assert_int_equal(read_epoch(&y, l, again, MAX_ROWS), 7);
      assert_memory_equal(ids, again, 7 * sizeof *ids);
    }
    td_ok(tdict_loader_set_state(l, &start, err));
    assert_int_equal(read_epoch(&y, l, again, MAX_ROWS), 15);
    assert_int_equal(tdict_loader_length(l), 5);
    middle.batch = 4; /* the end of the epoch */
    td_ok(tdict_loader_set_state(l, &middle, err));
    assert_int_equal(read_epoch(&y, l, again, MAX_ROWS), 0);
    middle.batch = 5;
    td_fails(TDICT_EINVAL, "batch is 5, wanted 0 to 4", tdict_loader_set_state(l, &middle, err));
    middle.batch = 1;
    bad = middle;
    bad.seed = 4;
    td_fails(TDICT_EINVAL, "saved for seed 4", tdict_loader_set_state(l, &bad, err));
    bad = middle;
    bad.dataset_length = -1;
    td_fails(TDICT_EINVAL, "saved for -1 samples", tdict_loader_set_state(l, &bad, err));
    tdict_replay_clear(r);
    td_fails(TDICT_EINVAL, "the epoch has 10 samples, but the dataset has 0", tdict_loader_set_state(l, &middle, err));
    td_ok(tdict_loader_set_state(l, &start, err));
    assert_int_equal(read_epoch(&y, l, again, MAX_ROWS), 0);
  }
}

/* Rows that were cleared are not delivered. A restart begins an epoch with the rows that are filled at that time. */
CASE(replay_clear_in_an_epoch) {
  scoped_yard y = open_yard();
  for (int by_sample = 0; by_sample < 2; by_sample++) {
    scoped_tree tree = rows_from(0, CAPACITY), batch = NULL;
    scoped_replay r = replay_over(tree, CAPACITY);
    tdict_loader_options o =
        td_with(tdict_loader_options, num_workers = 0, endless = true, collate = by_sample ? stack_rows : NULL);
    scoped_loader l = loader_over(&y, r, &o);
    int64_t ids[MAX_ROWS];
    for (int i = 0; i < 3; i++) {
      td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
      assert_int_equal(read_batch(&y, batch, ids, 1), 1);
      assert_int_equal(ids[0], i);
      td_release(batch);
    }
    tdict_replay_clear(r);
    append_ids(r, 100, 2);
    td_fails(TDICT_ECHANGED, "row 3, but 2 rows are filled; call tdict_loader_restart()",
             tdict_loader_next(l, tdict_no_stream(), &batch, err));
    td_ok(tdict_loader_restart(l, err));
    td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
    assert_int_equal(read_batch(&y, batch, ids, 1), 1);
    assert_int_equal(ids[0], 100);
    td_release(batch);
    tdict_replay_clear(r);
    td_ok(tdict_loader_restart(l, err));
    td_fails(TDICT_EINVAL, "endless is set, but the dataset returned no batch in epoch 2",
             tdict_loader_next(l, tdict_no_stream(), &batch, err));
    append_ids(r, 200, 1);
    td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
    assert_int_equal(read_batch(&y, batch, ids, 1), 1);
    assert_int_equal(ids[0], 200);
  }
}

/* A failed allocation at the beginning of an epoch is reported, and the call may be repeated. */
CASE(replay_epoch_survives_enomem) {
  scoped_yard y = open_yard();
  scoped_tree tree = rows_from(0, CAPACITY);
  scoped_replay r = replay_over(tree, CAPACITY);
  scoped_loader l = loader_over(&y, r, td_options(tdict_loader_options, batch_size = CAPACITY, num_workers = 0));
  tdict_tree *batch = NULL;
  tdict_error why;
  td_fail_alloc(0, false);
  tdict_status status = tdict_loader_next(l, tdict_no_stream(), &batch, &why);
  assert_true(td_fail_alloc_stop());
  assert_int_equal(status, TDICT_ENOMEM);
  int64_t ids[MAX_ROWS];
  assert_int_equal(read_epoch(&y, l, ids, MAX_ROWS), CAPACITY);
  tdict_loader_state s = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
  td_fail_alloc(0, false);
  status = tdict_loader_set_state(l, &s, &why);
  assert_true(td_fail_alloc_stop());
  assert_int_equal(status, TDICT_ENOMEM);
  assert_int_equal(read_epoch(&y, l, ids, MAX_ROWS), CAPACITY);
}

CASE(loader_refuses_bad_varying_datasets) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(-1);
  tdict_dataset_table d = by_row(&n);
  tdict_loader_options o = tdict_loader_options_default();
  scoped_loader l = NULL;
  tdict_tree *batch = NULL;
  const double weights[] = {1, 2};
  d.length_varies = true;
  td_fails(TDICT_EINVAL, "must not be negative or missing", create_loader_of(y.c, &d, &o, &l, err));
  tdict_sampler_options so =
      td_with(tdict_sampler_options, kind = TDICT_SAMPLER_WEIGHTED, weights = weights, num_weights = 2);
  scoped_sampler sampler = td_made(sampler, tdict_sampler_create(2, &so, &made, err));
  o.sampler = sampler;
  n.length = 2;
  td_fails(TDICT_EINVAL, "must not be WEIGHTED", create_loader_of(y.c, &d, &o, &l, err));
  o.sampler = NULL;
  l = open_loader(&y, &d, &o);
  n.length = -1;
  td_fails(TDICT_EINVAL, "must not be negative or missing", tdict_loader_next(l, tdict_no_stream(), &batch, err));
  n.length = 1;
  int64_t ids[4];
  assert_int_equal(read_epoch(&y, l, ids, 4), 1);
}

/* The sampler's ranks and its option drop_uneven apply to every length. */
CASE(replay_sampler_keeps_its_options) {
  scoped_yard y = open_yard();
  for (int drop = 0; drop < 2; drop++) {
    int64_t seen[CAPACITY] = {0};
    for (int32_t rank = 0; rank < 3; rank++) {
      scoped_tree tree = rows_from(0, CAPACITY);
      scoped_replay r = replay_over(tree, 10);
      scoped_sampler sampler = NULL;
      tdict_sampler_options so = td_with(tdict_sampler_options, kind = TDICT_SAMPLER_SHUFFLED, rank = rank,
                                         world_size = 3, drop_uneven = drop);
      td_ok(tdict_sampler_create(0, &so, &sampler, err));
      scoped_loader l = loader_over(&y, r, td_options(tdict_loader_options, sampler = sampler));
      int64_t ids[MAX_ROWS], count = read_epoch(&y, l, ids, MAX_ROWS);
      assert_int_equal(count, drop ? 3 : 4);
      for (int64_t i = 0; i < count; i++) seen[ids[i]]++;
    }
    int64_t once = 0, twice = 0;
    for (int i = 0; i < CAPACITY; i++) {
      once += seen[i] == 1;
      twice += seen[i] == 2;
    }
    assert_int_equal(once, drop ? 9 : 8);
    assert_int_equal(twice, drop ? 0 : 2);
  }
}

/* Restarts loaders of a dataset with a fixed length and of a stream. Later batches must be fetched after the
 * restart. */
DEVICE_CASE(loader_restart) {
  scoped_yard y = open_yard();
  for (int stream = 0; stream < 2; stream++)
    for (int workers = 0; workers < 4; workers += 3) {
      numbers n = numbers_of(stream ? -1 : 30);
      n.end = 30;
      n.fail_at = 25;
      tdict_dataset_table d = by_row(&n);
      tdict_tree *batch = NULL;
      scoped_loader l = open_loader(&y, &d, td_options(tdict_loader_options, batch_size = 10, num_workers = workers));
      int64_t ids[MAX_ROWS];
      td_fails(TDICT_EINVAL, "the loader is NULL", tdict_loader_restart(NULL, err));
      td_ok(tdict_loader_restart(l, err));
      tdict_loader_state s = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
      assert_int_equal(s.epoch, 0); /* nothing was delivered */
      for (int i = 0; i < 2; i++) tdict_release(td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err)));
      td_fails(TDICT_EIO, "worn", tdict_loader_next(l, tdict_no_stream(), &batch, err));
      td_rest();
      n.fail_at = -1;
      td_fails(TDICT_EIO, "worn", tdict_loader_next(l, tdict_no_stream(), &batch, err));
      td_rest();
      int before = atomic_load(&n.fetches);
      td_ok(tdict_loader_restart(l, err));
      td_ok(tdict_loader_get_state(l, &s, err));
      assert_int_equal(s.epoch, 1);
      assert_int_equal(read_epoch(&y, l, ids, MAX_ROWS), 30);
      for (int i = 0; i < 30; i++) assert_int_equal(ids[i], i);
      assert_true(atomic_load(&n.fetches) >= before + 30);
    }
}
