/* Tests delivery on a stream: kernels see complete batches, and no memory is reused while a kernel reads it. */
#include "numbers.h"

/* A read of a batch's ids that runs in stream order, like a kernel. */
typedef struct reading {
  tdict_stream stream;
  const void *address;
  int64_t *out;
  size_t bytes;
  _Atomic(bool) done;
} reading;

static void read_ids(void *user) {
  reading *r = user;
  td_rest(); /* a copy that reuses the bytes would be queued by now */
  memcpy(r->out, tdict_sim_host_pointer(r->stream, r->address), r->bytes);
  atomic_store(&r->done, true);
}

/* Batches are released while slow kernels still read them, but each kernel must read its own batch. Two of three
 * batches are delivered while the device is held. Each transfer occupies one of the pool's eight threads until the
 * device has completed it, so the device catches up before it is held again. */
SIM_CASE(loader_records_stream_use) {
  enum { COUNT = 120, BATCH = 4, WINDOW = 3 };
  yard y = open_yard();
  numbers n = numbers_of(COUNT);
  tdict_dataset_table d = by_row(&n);
  tdict_loader_options o = td_with(tdict_loader_options, batch_size = BATCH, num_workers = 3, prefetch = 3);
  tdict_loader *l = open_loader(&y, &d, &o);
  tdict_stream s;
  td_ok(tdict_stream_create(y.c, y.device, &s, err));
  static reading readings[COUNT / BATCH];
  static int64_t ids[COUNT];
  memset(ids, 0xA5, sizeof ids);
  for (int i = 0; i < COUNT / BATCH; i++) {
    if (i % WINDOW == 0) td_ok(tdict_sim_hold(y.c, err));
    if (i % WINDOW == WINDOW - 1) td_ok(tdict_sim_resume(y.c, err));
    tdict_tree *batch = td_made(tree, tdict_loader_next(l, s, &made, err));
    tdict_tensor_desc v = tdict_tensor_desc_default();
    tdict_tensor_get_desc(td_made(tensor, tdict_get(batch, "id", &made, err)), &v);
    readings[i] = (reading){s, v.data, ids + BATCH * i, BATCH * sizeof *ids, false};
    td_ok(tdict_sim_launch(s, read_ids, &readings[i], err));
    tdict_release(batch);
    while (i % WINDOW == WINDOW - 1 && !atomic_load(&readings[i].done)) usleep(100);
  }
  td_ok(tdict_sim_resume(y.c, err));
  tdict_tree *batch = td_made(tree, tdict_loader_next(l, s, &made, err));
  assert_null(batch);
  tdict_loader_destroy(l);
  tdict_stream_destroy(y.c, s);
  close_yard(&y);
  for (int i = 0; i < COUNT; i++) assert_int_equal(ids[i], i);
}

static void refuse_streams(tdict_loader *l, const tdict_stream *wrong, int count) {
  tdict_tree *batch = NULL;
  for (int i = 0; i < count; i++) td_fails(TDICT_EWRONGDEVICE, "loader", tdict_loader_next(l, wrong[i], &batch, err));
  assert_null(batch);
}

/* The loader refuses a wrong stream before and after the batch has arrived. The next call returns the batch. */
SIM_CASE(loader_checks_the_stream_first) {
  scoped_yard y = open_yard(), other = open_yard();
  TD_STREAM(s, y.c, y.device);
  TD_STREAM(foreign, other.c, y.device);
  const tdict_stream wrong[] = {{tdict_cpu(), NULL}, {tdict_cuda(63), s.handle}, {tdict_sim(1), NULL}, foreign};
  numbers n = numbers_of(8);
  tdict_dataset_table d = by_row(&n);
  tdict_loader_options o = td_with(tdict_loader_options, batch_size = 4, num_workers = 0);
  tdict_loader *l = open_loader(&y, &d, &o);
  for (int i = 0; i < 2; i++) {
    scoped_tree batch = NULL;
    int64_t ids[4];
    refuse_streams(l, wrong, 4);
    td_ok(tdict_loader_next(l, s, &batch, err));
    td_ok(tdict_stream_synchronize(y.c, s, err));
    assert_int_equal(read_batch(&y, batch, ids, 4), 4);
    for (int k = 0; k < 4; k++) assert_int_equal(ids[k], 4 * i + k);
  }
  tdict_loader_destroy(l);
  /* batches on the CPU accept a stream only if they are pinned: a GPU can then read them */
  for (int pinned = 0; pinned < 2; pinned++) {
    tdict_tree *batch = NULL;
    o.device = tdict_cpu();
    o.pin_memory = pinned;
    n = numbers_of(8);
    d = by_row(&n);
    l = open_loader(&y, &d, &o);
    refuse_streams(l, &wrong[3], 1);
    if (pinned)
      td_ok(tdict_loader_next(l, s, &batch, err));
    else
      refuse_streams(l, &s, 1);
    td_release(batch, l);
  }
}

/* However many batches are delivered, the pool needs memory only for those that are prefetched or in use. */
GPU_CASE(loader_reuses_memory) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(4000);
  tdict_dataset_table d = by_row(&n);
  scoped_loader l = open_loader(&y, &d, td_options(tdict_loader_options, batch_size = 10, num_workers = 2));
  static int64_t ids[4000];
  read_epoch(&y, l, ids, 4000);
  tdict_device_counts early = td_device_counts(y.c, y.device);
  for (int i = 0; i < 3; i++) read_epoch(&y, l, ids, 4000);
  tdict_device_counts late = td_device_counts(y.c, y.device);
  assert_true(late.peak_pinned_bytes <= early.peak_pinned_bytes + (4 << 20));
}

typedef struct text {
  char *bytes;
  size_t count;
} text;
static tdict_status take_text(void *user, const char *bytes, size_t count) {
  text *t = user;
  char *grown = realloc(t->bytes, t->count + count + 1);
  if (!grown) return TDICT_ENOMEM;
  memcpy(grown + t->count, bytes, count);
  t->bytes = grown;
  t->count += count;
  t->bytes[t->count] = 0;
  return TDICT_OK;
}
static int times(const text *t, const char *word) {
  int count = 0;
  for (const char *at = t->bytes; (at = strstr(at, word)) != NULL; at++) count++;
  return count;
}

/* The timeline has a slice for each fetch, with its bytes, and a count when a batch becomes ready or is taken. */
DEVICE_CASE(loader_is_on_the_timeline) {
  scoped_yard y = open_yard();
  for (int workers = 0; workers < 3; workers += 2) {
    numbers n = numbers_of(40);
    tdict_dataset_table d = by_row(&n);
    text t = {0};
    tdict_loader_options o = td_with(tdict_loader_options, batch_size = 10, num_workers = workers, prefetch = 2);
    td_ok(tdict_trace_start(y.c, NULL, err));
    tdict_loader *l = open_loader(&y, &d, &o);
    for (int i = 0; i < 4; i++) tdict_release(td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err)));
    tdict_loader_destroy(l);
    tdict_trace_stop(y.c);
    td_ok(tdict_trace_write_to(y.c, take_text, &t, err));
    int fetches = times(&t, "\"name\":\"fetch\""), counts = times(&t, "\"ph\":\"C\"");
    assert_in_range(fetches, 4, workers ? 6 : 4); /* the next epoch may have begun */
    assert_int_equal(times(&t, "\"name\":\"fetch\"") - times(&t, "\"transfer\":0,\"bytes\":280}"), 0);
    assert_in_range(counts, 8, 4 + 7);
    int none = times(&t, "\"args\":{\"batches\":0}}"), one = times(&t, "\"args\":{\"batches\":1}}");
    if (workers == 0)
      assert_true(none == 4 && one == 4);
    else
      assert_true(one >= 1); /* when the first batch became ready */
    free(t.bytes);
  }
}
