/* Runs loaders for a long time with random settings, delays of workers, pauses of the consumer and failing fetches, and
 * destroys loaders at any stage. Each full epoch has exactly the samples of the dataset, except those of the failed
 * batch. The environment variable TDICT_TEST_BATCHES (default 1500) sets the number of batches, and TDICT_TEST_SEED
 * sets the seed. */
#include "numbers.h"

static uint64_t state;
static uint64_t roll(uint64_t count) {
  state += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t x = (state ^ (state >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return (x ^ (x >> 31)) % count;
}

static int64_t from_environment(const char *name, int64_t otherwise) {
  const char *text = getenv(name);
  return text ? atoll(text) : otherwise;
}

enum { MOST = 400 };

/* Queues a transfer after the work on the stream, and waits for the transfer. */
static void pass_stream(const yard *y, const tdict_tree *batch, const tdict_stream *stream) {
  tdict_transfer_options o = tdict_transfer_options_default();
  if (stream) o.after = *stream;
  scoped_tree host = td_made(tree, tdict_to_device(y->c, batch, tdict_cpu(), &o, &made, err));
}

/* Checks that no sample is missing, except those of the failed batch. */
static void check_epoch(const numbers *n, const int *seen, int64_t batch_size) {
  int64_t missing = 0;
  for (int64_t i = 0; i < n->length; i++) missing += seen[i] == 0;
  if (n->fail_at < 0) {
    assert_int_equal(missing, 0);
    return;
  }
  assert_int_equal(seen[n->fail_at], 0);
  if (missing != n->length % batch_size) assert_int_equal(missing, batch_size); /* the last batch may be smaller */
}

/* Takes one epoch, or only its first `stop_at` batches. Returns the number of batches. */
static int64_t take_epoch(const yard *y, tdict_loader *l, const numbers *n, const tdict_stream *stream,
                          int64_t batch_size, int64_t stop_at) {
  int seen[MOST] = {0};
  int64_t batches = 0, ids[64], failed = 0, kept = 0;
  const bool reads = !stream || roll(4); /* otherwise, batches are released while the stream still waits for them */
  tdict_loader_state s = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
  assert_int_equal(s.batch, 0);
  for (;;) {
    tdict_tree *batch = NULL;
    if (batches == stop_at) return batches;
    bool on_stream = stream && roll(2);
    tdict_error err = {0};
    tdict_status status = tdict_loader_next(l, on_stream ? *stream : tdict_no_stream(), &batch, &err);
    if (status != TDICT_OK) { /* the batch with the bad sample; its other samples are unknown */
      assert_int_equal(status, TDICT_EIO);
      assert_true(n->fail_at >= 0);
      failed++;
      continue;
    }
    if (!batch) break;
    batches++;
    if (roll(20) == 0) usleep((useconds_t)roll(800));
    if (reads) {
      if (on_stream) pass_stream(y, batch, stream);
      int64_t count = read_batch(y, batch, ids, 64);
      assert_true(count == batch_size || count == n->length % batch_size);
      kept += count;
      for (int64_t i = 0; i < count; i++) assert_int_equal(seen[ids[i]]++, 0);
    } else {
      kept += tdict_batch_size(batch)[0];
    }
    tdict_release(batch);
  }
  if (n->fail_at < 0) assert_int_equal(kept, n->length);
  assert_int_equal(failed, n->fail_at >= 0);
  if (reads) check_epoch(n, seen, batch_size);
  return batches;
}

static int64_t one_loader(const yard *y, const tdict_stream *stream) {
  numbers n = numbers_of((int64_t)(1 + roll(MOST)));
  n.delay_us = roll(3) ? 0 : (int)(1 + roll(300));
  if (roll(3) == 0) n.fail_at = (int64_t)roll((uint64_t)n.length);
  tdict_dataset_table d = roll(2) ? by_row(&n) : by_sample(&n);
  if (d.fields && roll(2)) d.fetch_batch = numbers_fetch_batch;
  d.in_order = roll(4) == 0;
  tdict_loader_options o =
      td_with(tdict_loader_options, batch_size = (int64_t)(1 + roll(20)), num_workers = (int32_t)roll(6),
              prefetch = (int32_t)roll(9), prefetch_bytes = roll(3) ? 0 : roll(2000), shuffle = roll(2),
              seed = roll(1000), on_error = TDICT_ON_ERROR_CONTINUE);
  tdict_loader *l = open_loader(y, &d, &o);
  int64_t batches = 0, epochs = (int64_t)roll(4);
  for (int64_t e = 0; e < epochs; e++) batches += take_epoch(y, l, &n, roll(2) ? stream : NULL, o.batch_size, -1);
  if (roll(2)) batches += take_epoch(y, l, &n, NULL, o.batch_size, (int64_t)roll(10)); /* stops within this epoch */
  tdict_loader_destroy(l);
  assert_int_equal(n.released, 1);
  assert_int_equal(n.running, 0);
  return batches;
}

DEVICE_CASE(loader_soak) {
  scoped_yard y = open_yard();
  int64_t wanted = from_environment("TDICT_TEST_BATCHES", 1500), done = 0, loaders = 0;
  int64_t seed = from_environment("TDICT_TEST_SEED", 1);
  state = (uint64_t)seed;
  tdict_stream stream;
  bool gpu = y.device.type != TDICT_DEVICE_CPU;
  if (gpu) td_ok(tdict_stream_create(y.c, y.device, &stream, err));
  while (done < wanted) {
    done += one_loader(&y, gpu ? &stream : NULL);
    loaders++;
  }
  printf("loader soak: seed %lld, %lld batches of %lld loaders\n", (long long)seed, (long long)done,
         (long long)loaders);
  if (gpu) tdict_stream_destroy(y.c, stream);
}
