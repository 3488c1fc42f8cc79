/* Handing over on a stream: kernels see whole batches, and no batch is used again under them. */
#include "numbers.h"

/* What a kernel would read: the batch's ids as they are when the stream comes to it. */
typedef struct reading {
  tdict_stream stream;
  const void *address;
  int64_t *out;
  size_t bytes;
  _Atomic(bool) done;
} reading;

static void read_ids(void *user) {
  reading *r = user;
  usleep(300); /* a copy into the same bytes that does not wait comes first */
  memcpy(r->out, tdict_sim_bytes(r->stream, r->address), r->bytes);
  atomic_store(&r->done, true);
}

/* Slow kernels, batches released at once: each kernel still reads its own batch. Two batches in three are handed over
 * while the device stands still. A transfer keeps one of the pool's eight threads until the device has done it, so the
 * device catches up before it is held again. */
SIM_CASE(loader_orders_the_stream) {
  enum { COUNT = 120, BATCH = 4, WINDOW = 3 };
  yard y = open_yard();
  numbers n = numbers_of(COUNT);
  tdict_dataset d = by_row(&n);
  tdict_loader_options o = tdict_loader_options_default();
  o.batch_size = BATCH;
  o.num_workers = 3;
  o.prefetch = 3;
  tdict_loader *l = open_loader(&y, &d, &o);
  tdict_stream s;
  td_ok(tdict_stream_create(y.c, y.device, &s, err));
  static reading readings[COUNT / BATCH];
  static int64_t ids[COUNT];
  memset(ids, 0xA5, sizeof ids);
  for (int i = 0; i < COUNT / BATCH; i++) {
    tdict_tree *batch = NULL;
    if (i % WINDOW == 0) td_ok(tdict_sim_hold(y.c, err));
    if (i % WINDOW == WINDOW - 1) td_ok(tdict_sim_resume(y.c, err));
    td_ok(tdict_loader_next(l, &s, &batch, err));
    tdict_tensor *t = NULL;
    tdict_tensor_view v = tdict_tensor_view_default();
    td_ok(tdict_get(batch, "id", &t, err));
    tdict_tensor_get_view(t, &v);
    readings[i] = (reading){s, v.data, ids + BATCH * i, BATCH * sizeof *ids, false};
    td_ok(tdict_sim_launch(s, read_ids, &readings[i], err));
    tdict_release(batch);
    while (i % WINDOW == WINDOW - 1 && !atomic_load(&readings[i].done)) usleep(100);
  }
  td_ok(tdict_sim_resume(y.c, err));
  tdict_tree *batch = NULL;
  td_ok(tdict_loader_next(l, &s, &batch, err));
  assert_null(batch);
  tdict_loader_destroy(l);
  tdict_stream_destroy(y.c, s);
  close_yard(&y);
  for (int i = 0; i < COUNT; i++) assert_int_equal(ids[i], i);
}

/* The pool's peak stays what is ahead and in use, however many batches pass. */
GPU_CASE(loader_reuses_memory) {
  yard y = open_yard();
  numbers n = numbers_of(4000);
  tdict_dataset d = by_row(&n);
  tdict_loader_options o = tdict_loader_options_default();
  o.batch_size = 10;
  o.num_workers = 2;
  tdict_loader *l = open_loader(&y, &d, &o);
  static int64_t ids[4000];
  read_epoch(&y, l, ids, 4000);
  tdict_device_counts early, late;
  td_ok(tdict_context_get_counts(y.c, y.device, &early, err));
  for (int i = 0; i < 3; i++) read_epoch(&y, l, ids, 4000);
  td_ok(tdict_context_get_counts(y.c, y.device, &late, err));
  assert_true(late.peak_pinned_bytes <= early.peak_pinned_bytes + (4 << 20));
  tdict_loader_destroy(l);
  close_yard(&y);
}
