/* Tests which samples or batches the loader skips with the option `on_error`. */
#include "numbers.h"

enum { LENGTH = 40, EPOCHS = 3, BATCH = 4 };

/* The number of logged warnings, and the first 64 of them. Workers write the log. */
static struct {
  pthread_mutex_t lock;
  int count;
  char texts[64][200];
} logged = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep_message(void *user, int32_t level, const char *text) {
  (void)user;
  if (level != TDICT_LOG_WARNING) return;
  pthread_mutex_lock(&logged.lock);
  if (logged.count < 64) snprintf(logged.texts[logged.count], sizeof logged.texts[0], "%s", text);
  logged.count++;
  pthread_mutex_unlock(&logged.lock);
}

static yard open_logging_yard(void) {
  tdict_context_options o = tdict_context_options_default();
  logged.count = 0;
  o.log = keep_message;
  yard y = {.c = td_context(&o), .device = td_device()};
  y.raw = raw_open(y.c, y.device);
  return y;
}

static int times_logged(const char *text) {
  int count = 0;
  for (int i = 0; i < logged.count && i < 64; i++) count += strcmp(logged.texts[i], text) == 0;
  return count;
}

/* Returns whether a sample is damaged. Errors of fetch_undamaged(), but not of make_undamaged(), name its file. */
static bool is_damaged(int64_t index) { return index % 10 == 3 || index % 10 == 4; }

static tdict_status fetch_undamaged(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree *batch,
                                    int64_t row, tdict_error *err) {
  char path[32];
  snprintf(path, sizeof path, "images.%d", (int)index);
  if (is_damaged(index)) return tdict_error_set(err, TDICT_EIO, path, "the file is damaged");
  return numbers_fetch(self, info, index, batch, row, err);
}
static tdict_status make_undamaged(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                   tdict_error *err) {
  if (is_damaged(index)) return tdict_error_set(err, TDICT_EIO, "", "the file is damaged");
  return numbers_sample(self, info, index, out, err);
}

static tdict_dataset_table damaged(numbers *n, bool by_rows) {
  *n = numbers_of(LENGTH);
  tdict_dataset_table t = by_rows ? by_row(n) : by_sample(n);
  if (by_rows) t.fetch = fetch_undamaged;
  if (!by_rows) t.fetch_sample = make_undamaged;
  return t;
}

/* Creates a loader of a damaged dataset, and clears the messages of earlier loaders. */
static tdict_loader *open_damaged(const yard *y, numbers *n, bool by_rows, int workers, int32_t on_error) {
  const tdict_dataset_table table = damaged(n, by_rows);
  logged.count = 0;
  return open_loader(y, &table,
                     td_options(tdict_loader_options, batch_size = BATCH, num_workers = workers, on_error = on_error));
}

static tdict_loader_stats stats_of(tdict_loader *l) {
  return td_filled(tdict_loader_stats, tdict_loader_get_stats(l, &made, err));
}

DEVICE_CASE(loader_skips_samples) {
  scoped_yard y = open_logging_yard();
  for (int by_rows = 0; by_rows < 2; by_rows++)
    for (int workers = 0; workers < 4; workers += 3) {
      numbers n;
      int64_t ids[LENGTH];
      scoped_loader l = open_damaged(&y, &n, by_rows, workers, TDICT_ON_ERROR_SKIP_SAMPLE);
      for (int epoch = 0; epoch < EPOCHS; epoch++) {
        assert_int_equal(read_epoch(&y, l, ids, LENGTH), LENGTH);
        for (int64_t i = 0; i < LENGTH; i++) assert_int_equal(ids[i], is_damaged(i) ? i - i % 10 + 5 : i);
      }
      /* Of samples 0 to 9, sample 3 is skipped, then sample 4 in its place, then sample 4 itself. */
      assert_true(stats_of(l).num_skipped_samples >= EPOCHS * 3 * LENGTH / 10);
      assert_int_equal(stats_of(l).num_errors, 0);
      assert_int_equal(logged.count, 2 * LENGTH / 10);
      for (int64_t i = 0; i < LENGTH; i++) {
        char text[160];
        snprintf(text, sizeof text, "a sample is skipped: %s%.0d%sloader: sample %d of numbers: the file is damaged",
                 by_rows ? "images." : "", by_rows ? (int)i : 0, by_rows ? ": " : "", (int)i);
        assert_int_equal(times_logged(text), is_damaged(i));
      }
    }
}

/* Reads the ids of two epochs, or those after `state`. Writes the state after batch `saved_at` to `saved`. */
static int64_t read_from(const yard *y, const tdict_loader_state *state, int workers, int64_t *ids,
                         tdict_loader_state *saved, int saved_at) {
  numbers n;
  const tdict_dataset_table table = damaged(&n, true);
  scoped_loader l = open_loader(y, &table,
                                td_options(tdict_loader_options, batch_size = BATCH, num_workers = workers, seed = 3,
                                           shuffle = true, on_error = TDICT_ON_ERROR_SKIP_SAMPLE));
  int64_t count = 0;
  if (state) td_ok(tdict_loader_set_state(l, state, err));
  for (int taken = 0; taken < (state ? 2 * LENGTH / BATCH - saved_at : 2 * LENGTH / BATCH);) {
    scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
    if (!batch) continue;
    count += read_batch(y, batch, ids + count, BATCH);
    if (++taken == saved_at && saved) *saved = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
  }
  return count;
}

CASE(loader_skips_the_same_samples_again) {
  scoped_yard y = open_yard();
  int64_t whole[2 * LENGTH], other[2 * LENGTH];
  tdict_loader_state state;
  enum { SAVED = 7 };
  assert_int_equal(read_from(&y, NULL, 3, whole, &state, SAVED), 2 * LENGTH);
  assert_int_equal(read_from(&y, NULL, 0, other, NULL, SAVED), 2 * LENGTH);
  assert_memory_equal(whole, other, sizeof whole);
  assert_int_equal(read_from(&y, &state, 2, other, NULL, SAVED), 2 * LENGTH - SAVED * BATCH);
  assert_memory_equal(whole + SAVED * BATCH, other, sizeof whole - SAVED * BATCH * sizeof *whole);
}

DEVICE_CASE(loader_skips_batches) {
  scoped_yard y = open_logging_yard();
  for (int workers = 0; workers < 4; workers += 3) {
    numbers n;
    int64_t ids[LENGTH];
    scoped_loader l = open_damaged(&y, &n, true, workers, TDICT_ON_ERROR_SKIP_BATCH);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
      int64_t count = 0;
      for (int64_t first = 0; first < LENGTH; first += BATCH)
        for (int64_t i = first; i < first + BATCH; i++) {
          bool is_whole = true;
          for (int64_t k = first; k < first + BATCH; k++) is_whole = is_whole && !is_damaged(k);
          if (is_whole) ids[count++] = i;
        }
      int64_t found[LENGTH];
      assert_int_equal(read_epoch(&y, l, found, LENGTH), count);
      assert_memory_equal(found, ids, (size_t)count * sizeof *ids);
      assert_int_equal(stats_of(l).num_skipped_batches, (epoch + 1) * (LENGTH - count) / BATCH);
    }
    assert_int_equal(stats_of(l).num_errors, 0);
    assert_int_equal(times_logged("a batch is skipped: images.3: loader: sample 3 of numbers: the file is damaged"),
                     EPOCHS);
  }
}

static tdict_status fetch_nothing(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree *batch,
                                  int64_t row, tdict_error *err) {
  (void)info, (void)batch, (void)row;
  atomic_fetch_add(&((numbers *)self)->fetches, 1);
  return tdict_error_set(err, TDICT_EIO, "", index % 2 ? "odd" : "even");
}

CASE(loader_skips_only_what_helps) {
  scoped_yard y = open_logging_yard();
  tdict_tree *batch = NULL;
  numbers n = numbers_of(1000);
  tdict_dataset_table table = by_row(&n);
  table.fetch = fetch_nothing;
  for (int kind = TDICT_ON_ERROR_SKIP_SAMPLE; kind <= TDICT_ON_ERROR_SKIP_BATCH; kind++) {
    scoped_loader l = open_loader(
        &y, &table, td_options(tdict_loader_options, batch_size = 2, num_workers = 0, endless = true, on_error = kind));
    n.fetches = 0;
    td_fails(TDICT_EIO,
             kind == TDICT_ON_ERROR_SKIP_SAMPLE ? "loader: sample 64 of numbers: even" : "loader: sample 128",
             tdict_loader_next(l, tdict_no_stream(), &batch, err));
    assert_int_equal(n.fetches, 65);
    td_fails(TDICT_EIO, "loader: sample", tdict_loader_next(l, tdict_no_stream(), &batch, err)); /* the error repeats */
  }
  assert_null(batch);
}

static tdict_status open_nothing(void *self, int32_t worker, void **state, tdict_error *err) {
  (void)self, (void)worker, (void)state;
  return tdict_error_set(err, TDICT_EIO, "", "no decoder");
}
static tdict_status fetch_without_memory(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree *batch,
                                         int64_t row, tdict_error *err) {
  (void)self, (void)info, (void)index, (void)batch, (void)row;
  return tdict_error_set(err, TDICT_ENOMEM, "", "no memory");
}

CASE(loader_skips_no_errors_of_the_machine) {
  scoped_yard y = open_logging_yard();
  tdict_tree *batch = NULL;
  for (int kind = TDICT_ON_ERROR_SKIP_SAMPLE; kind <= TDICT_ON_ERROR_SKIP_BATCH; kind++)
    for (int opens = 0; opens < 2; opens++) {
      numbers n = numbers_of(100);
      tdict_dataset_table table = by_row(&n);
      if (opens) table.open_worker = open_nothing;
      if (!opens) table.fetch = fetch_without_memory;
      scoped_loader l =
          open_loader(&y, &table, td_options(tdict_loader_options, batch_size = 2, num_workers = 0, on_error = kind));
      td_fails(opens ? TDICT_EIO : TDICT_ENOMEM, opens ? "batch 0 of numbers: no decoder" : "sample 0 of numbers",
               tdict_loader_next(l, tdict_no_stream(), &batch, err));
      assert_int_equal(stats_of(l).num_skipped_samples + stats_of(l).num_skipped_batches, 0);
    }
  assert_int_equal(logged.count, 0);
}

CASE(loader_refuses_bad_skips) {
  scoped_yard y = open_yard();
  tdict_loader *l = NULL;
  numbers n = numbers_of(8);
  tdict_dataset_table table = by_row(&n);
  table.sample_length = NULL;
  td_fails(TDICT_EINVAL, "on_error is 4, which is no tdict_on_error",
           create_loader_of(y.c, &table, td_options(tdict_loader_options, on_error = 4), &l, err));
  td_fails(TDICT_EINVAL, "on_error is -1",
           create_loader_of(y.c, &table, td_options(tdict_loader_options, on_error = -1), &l, err));
  td_fails(TDICT_EINVAL, "both max_tokens and on_error SKIP_SAMPLE are set",
           create_loader_of(y.c, &table,
                            td_options(tdict_loader_options, max_tokens = 9, on_error = TDICT_ON_ERROR_SKIP_SAMPLE), &l,
                            err));
  table.fetch = NULL;
  table.fetch_batch = numbers_fetch_batch;
  const tdict_loader_options skips = td_with(tdict_loader_options, on_error = TDICT_ON_ERROR_SKIP_SAMPLE);
  td_fails(TDICT_EINVAL, "on_error SKIP_SAMPLE without fetch needs a dataset with fetch_sample",
           create_loader_of(y.c, &table, &skips, &l, err));
  n.length = -1;
  table.fetch_sample = numbers_sample;
  td_fails(TDICT_EINVAL, "on_error SKIP_SAMPLE needs a dataset with a length",
           create_loader_of(y.c, &table, &skips, &l, err));
  assert_null(l);
}
