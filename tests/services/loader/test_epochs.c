/* Tests training loops: endless epochs, ranks, and options that tdict_loader_create() refuses. */
#include "numbers.h"

/* Calls tdict_loader_next(), which must return a batch. Returns the first id of the batch. */
static int64_t next_id(const yard *y, tdict_loader *l, int64_t *count) {
  int64_t ids[64];
  scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
  assert_non_null(batch);
  *count = read_batch(y, batch, ids, 64);
  return ids[0];
}

DEVICE_CASE(loader_endless) {
  enum { LENGTH = 11, BATCH = 4, EPOCHS = 4 };
  scoped_yard y = open_yard();
  for (int stream = 0; stream < 2; stream++) {
    for (int drop = 0; drop < 2; drop++) {
      for (int workers = 0; workers < 4; workers += 3) {
        numbers n = numbers_of(stream ? -1 : LENGTH);
        n.end = LENGTH;
        tdict_dataset_table d = by_row(&n);
        tdict_loader_options o =
            td_with(tdict_loader_options, batch_size = BATCH, num_workers = workers, drop_last = drop, endless = true);
        scoped_loader l = open_loader(&y, &d, &o);
        tdict_loader_state s = tdict_loader_state_default();
        int64_t batches = drop ? LENGTH / BATCH : LENGTH / BATCH + 1, count;
        for (int64_t i = 0; i < EPOCHS * batches; i++) {
          int64_t number = i % batches;
          assert_int_equal(next_id(&y, l, &count), number * BATCH);
          assert_int_equal(count, number < LENGTH / BATCH ? BATCH : LENGTH % BATCH);
          td_ok(tdict_loader_get_state(l, &s, err)); /* the position after this batch */
          assert_int_equal(s.epoch, i / batches);
          assert_int_equal(s.batch - 1, number);
        }
        td_ok(tdict_loader_set_state(l, &s, err)); /* the last batch of an epoch was returned */
        assert_int_equal(next_id(&y, l, &count), 0);
        tdict_loader_stats stats = td_filled(tdict_loader_stats, tdict_loader_get_stats(l, &made, err));
        assert_int_equal(stats.num_batches, EPOCHS * batches + 1);
        assert_int_equal(stats.num_errors, 0);
      }
    }
  }
}

DEVICE_CASE(loader_endless_needs_a_batch) {
  scoped_yard y = open_yard();
  for (int workers = 0; workers < 3; workers += 2) {
    numbers n = numbers_of(3);
    tdict_dataset_table d = by_row(&n);
    tdict_loader *l = NULL;
    tdict_tree *batch = NULL;
    tdict_loader_options o =
        td_with(tdict_loader_options, endless = true, num_workers = workers, batch_size = 4, drop_last = true);
    td_fails(TDICT_EINVAL, "an epoch has no batch: 3 samples for this rank, batch_size is 4 and drop_last is set",
             create_loader_of(y.c, &d, &o, &l, err));
    n.length = 0;
    o.drop_last = false;
    td_fails(TDICT_EINVAL, "an epoch has no batch: 0 samples", create_loader_of(y.c, &d, &o, &l, err));
    for (int drop = 0; drop < 2; drop++) { /* the length of a stream is not known in advance */
      n = numbers_of(-1);
      n.end = drop ? 3 : 0;
      o.drop_last = drop;
      l = open_loader(&y, &d, &o);
      td_fails(TDICT_EINVAL, "the stream returned no batch in epoch 0",
               tdict_loader_next(l, tdict_no_stream(), &batch, err));
      td_fails(TDICT_EINVAL, "the stream returned no batch in epoch 1",
               tdict_loader_next(l, tdict_no_stream(), &batch, err));
      assert_null(batch);
      tdict_loader_destroy(l);
    }
  }
}

/* Together, the ranks get every sample, and one of them twice, so that all ranks get the same number of samples. */
DEVICE_CASE(loader_splits_by_rank) {
  enum { LENGTH = 23, WORLD = 4 };
  scoped_yard y = open_yard();
  for (int shuffle = 0; shuffle < 2; shuffle++) {
    int seen[LENGTH] = {0};
    tdict_sampler_options so = tdict_sampler_options_default();
    tdict_loader_options o = td_with(tdict_loader_options, batch_size = 5, shuffle = shuffle);
    o.seed = so.seed = 8;
    o.world_size = so.world_size = WORLD;
    so.kind = shuffle ? TDICT_SAMPLER_SHUFFLED : TDICT_SAMPLER_SEQUENTIAL;
    for (o.rank = 0; o.rank < WORLD; o.rank++) {
      int64_t ids[LENGTH];
      numbers n = numbers_of(LENGTH);
      tdict_dataset_table d = by_row(&n);
      so.rank = o.rank;
      scoped_sampler sampler = td_made(sampler, tdict_sampler_create(LENGTH, &so, &made, err));
      scoped_loader l = open_loader(&y, &d, &o);
      assert_int_equal(tdict_loader_length(l), 2);
      assert_int_equal(read_epoch(&y, l, ids, LENGTH), (LENGTH + WORLD - 1) / WORLD);
      for (int64_t i = 0; i < (LENGTH + WORLD - 1) / WORLD; i++) {
        assert_int_equal(ids[i], tdict_sampler_get(sampler, 0, i));
        seen[ids[i]]++;
      }
    }
    int total = 0;
    for (int i = 0; i < LENGTH; i++) {
      assert_in_range(seen[i], 1, 2);
      total += seen[i];
    }
    assert_int_equal(total, 24);
  }
}

CASE(loader_refuses_contradictions) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(30);
  tdict_dataset_table d = by_row(&n);
  tdict_loader *l = NULL;
  scoped_sampler longer = td_made(sampler, tdict_sampler_create(31, NULL, &made, err)), shorter = NULL;
  td_ok(tdict_sampler_create(29, NULL, &shorter, err));
  tdict_loader_options o = td_with(tdict_loader_options, sampler = shorter, shuffle = true);
  td_fails(TDICT_EINVAL, "both sampler and shuffle are set", create_loader_of(y.c, &d, &o, &l, err));
  o.shuffle = false;
  o.world_size = 2;
  td_fails(TDICT_EINVAL, "both sampler and world_size are set", create_loader_of(y.c, &d, &o, &l, err));
  o.world_size = 1;
  o.sampler = longer;
  td_fails(TDICT_EINVAL, "the sampler draws from 31 samples, but the dataset has 30",
           create_loader_of(y.c, &d, &o, &l, err));
  o.sampler = shorter; /* draws from a part of the dataset */
  l = open_loader(&y, &d, &o);
  td_release(l);
  static const int32_t bad[][2] = {{0, 0}, {0, -1}, {-1, 1}, {1, 1}, {2, 2}, {INT32_MAX, INT32_MAX}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    o = tdict_loader_options_default();
    o.rank = bad[i][0];
    o.world_size = bad[i][1];
    td_fails(TDICT_EINVAL, "wanted 0 to world_size - 1", create_loader_of(y.c, &d, &o, &l, err));
  }
  n.length = -1;
  o = tdict_loader_options_default();
  o.world_size = 2;
  td_fails(TDICT_EINVAL, "the dataset is a stream", create_loader_of(y.c, &d, &o, &l, err));
}

/* A machine with a GPU has pinned memory, so the option is valid there. */
CASE(loader_refuses_pinning) {
  scoped_context c = NULL;
  tdict_tensor *t = NULL;
  td_ok(tdict_context_create(td_options(tdict_context_options, device = tdict_cpu()), &c, err));
  bool can_pin = tdict_tensor_empty(TDICT_U8, 0, NULL, tdict_pinned_memory(c), &t, NULL) == TDICT_OK;
  tdict_tensor_release(t);
  numbers n = numbers_of(4);
  tdict_dataset_table d = by_row(&n);
  scoped_loader l = NULL;
  tdict_loader_options o = td_with(tdict_loader_options, pin_memory = true);
  if (can_pin) {
    td_ok(create_loader_of(c, &d, &o, &l, err));
  } else {
    td_fails(TDICT_ENODEVICE, "loader: pin_memory: pinned memory needs a device that reads it",
             create_loader_of(c, &d, &o, &l, err));
    assert_int_equal(n.fetches, 0);
  }
  assert_int_equal(l != NULL, can_pin);
}

CASE(loader_refuses_bad_fields) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(4);
  tdict_dataset_table d = by_row(&n);
  tdict_loader *l = NULL;
  tdict_field bad_field = (tdict_field){"id", TDICT_I64, 0, {17}};
  d.fields = &bad_field;
  d.num_fields = 1;
  td_fails_at(TDICT_EINVAL, "the dataset's fields: create_from: ndim is 0, but shape[0] is 17", "id",
              create_loader_of(y.c, &d, NULL, &l, err));
  bad_field = (tdict_field){"id", TDICT_I64, 2, {INT64_MAX, INT64_MAX}};
  td_fails(TDICT_EOVERFLOW, "the dataset's fields", create_loader_of(y.c, &d, NULL, &l, err));
  bad_field = (tdict_field){NULL, TDICT_I64, 0, {0}};
  td_fails(TDICT_EINVAL, "a field's path is NULL", create_loader_of(y.c, &d, NULL, &l, err));
  assert_int_equal(n.fetches, 0);
}
