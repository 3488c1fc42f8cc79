/* Tests loaders whose threads cannot all start: everything must be released. */
#include <errno.h>

#include "numbers.h"

enum { WORKERS = 5, BATCH = 64 };

/* fails_at: number of the thread start that fails, counted from 1 by the main thread; 0: none. Before it fails, the
 * workers that already run have sent a batch. */
static int fails_at, seen;
static numbers *fetched;
static tdict_memory *watched; /* NULL if batches stay on the host, where memory is not counted */
static size_t live_before;

static size_t live_bytes(const tdict_memory *m) {
  tdict_memory_counts counts = td_memory_counts(m);
  return counts.live_bytes;
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user) {
  if (fails_at == 0 || ++seen != fails_at) return __real_pthread_create(thread, attributes, fn, user);
  while (seen > 1 && (atomic_load(&fetched->fetches) < BATCH || (watched && live_bytes(watched) == live_before)))
    usleep(1000);
  return EAGAIN;
}

/* Waits until the memory has this many live bytes, because cancelled copies may still run for a moment. */
static void await_live_bytes(const tdict_memory *m, size_t wanted) {
  for (int i = 0; i < 5000 && live_bytes(m) != wanted; i++) usleep(1000);
  assert_int_equal(live_bytes(m), wanted);
}

DEVICE_CASE(loader_thread_fails_to_start) {
  scoped_yard y = open_yard();
  tdict_memory *device = y.device.type == TDICT_DEVICE_CPU ? NULL : tdict_device_memory(y.c, y.device);
  tdict_memory *pinned = tdict_pinned_memory(y.c);
  tdict_device_counts before, after;
  size_t pinned_before = live_bytes(pinned);
  if (device) before = td_device_counts(y.c, y.device);
  watched = device;
  live_before = live_bytes(device);
  for (int at = 1; at <= WORKERS; at++) {
    numbers n = numbers_of(100 * BATCH);
    tdict_dataset_table d = by_row(&n);
    tdict_loader *l = NULL;
    tdict_loader_options o = td_with(tdict_loader_options, batch_size = BATCH, num_workers = WORKERS);
    const char *text = td_text("cannot start worker %d of %d", at - 1, WORKERS);
    fetched = &n;
    seen = 0;
    fails_at = at;
    td_fails(TDICT_ENOMEM, text, create_loader_of(y.c, &d, &o, &l, err));
    fails_at = 0;
    assert_int_equal(td_last_error.native, EAGAIN);
    assert_null(l);
    assert_int_equal(n.running, 0);
    assert_int_equal(n.released, 1); /* the loader kept no reference */
    await_live_bytes(device, live_before);
    await_live_bytes(pinned, pinned_before);
    l = open_loader(&y, &d, &o);
    tdict_loader_destroy(l);
    assert_int_equal(n.released, 2);
    await_live_bytes(device, live_before);
  }
  if (device) {
    tdict_context_trim(y.c, y.device, 0);
    after = td_device_counts(y.c, y.device);
    assert_int_equal(after.device_bytes, before.device_bytes);
  }
}
