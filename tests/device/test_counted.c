/* Tests the counts of driver calls. */
#include "device/counted.h"

#include "device/gpu_help.h"
#include "support/threads.h"

typedef struct totals {
  size_t pinned, peak;
  int64_t streams, events;
} totals;
static totals read_totals(const tdict_driver *d) {
  return (totals){atomic_load(&d->pinned_bytes), atomic_load(&d->peak_pinned_bytes), atomic_load(&d->num_streams),
                  atomic_load(&d->num_events)};
}

GPU_CASE(counts_follow_create_and_destroy) {
  scoped_fixture b = fixture_open(NULL);
  tdict_driver *d = b.d;
  totals begin = read_totals(d), now;
  tdict_cu_stream stream;
  tdict_cu_event events[2];
  void *host, *more, *pages = aligned_alloc(4096, 3 * 4096);
  assert_non_null(pages);
  assert_int_equal(tdict_counted_stream_create(d, &stream), TDICT_CU_SUCCESS);
  for (int i = 0; i < 2; i++) assert_int_equal(tdict_counted_event_create(d, &events[i]), TDICT_CU_SUCCESS);
  assert_int_equal(tdict_counted_host_alloc(d, &host, 8192), TDICT_CU_SUCCESS);
  assert_int_equal(tdict_counted_host_register(d, pages, 3 * 4096), TDICT_CU_SUCCESS);
  now = read_totals(d);
  assert_int_equal(now.streams - begin.streams, 1);
  assert_int_equal(now.events - begin.events, 2);
  assert_int_equal(now.pinned - begin.pinned, 8192 + 3 * 4096);
  assert_true(now.peak >= now.pinned);
  assert_int_equal(tdict_counted_host_unregister(d, pages, 3 * 4096), TDICT_CU_SUCCESS);
  assert_int_equal(tdict_counted_host_alloc(d, &more, 4096), TDICT_CU_SUCCESS);
  assert_int_equal(read_totals(d).pinned - begin.pinned, 8192 + 4096);
  assert_int_equal(read_totals(d).peak, now.peak); /* the peak does not change */
  assert_int_equal(tdict_counted_host_free(d, host, 8192), TDICT_CU_SUCCESS);
  assert_int_equal(tdict_counted_host_free(d, more, 4096), TDICT_CU_SUCCESS);
  assert_int_equal(tdict_counted_stream_destroy(d, stream), TDICT_CU_SUCCESS);
  for (int i = 0; i < 2; i++) assert_int_equal(tdict_counted_event_destroy(d, events[i]), TDICT_CU_SUCCESS);
  now = read_totals(d);
  assert_int_equal(now.streams, begin.streams);
  assert_int_equal(now.events, begin.events);
  assert_int_equal(now.pinned, begin.pinned);
  free(pages);
}

SIM_CASE(counts_ignore_failed_calls) {
  fixture b = fixture_open(NULL);
  tdict_driver *d = b.d;
  tdict_cu_stream stream = NULL;
  tdict_cu_event event = NULL;
  void *host = NULL;
  static uint64_t page[512]; /* neither a stream nor pinned memory */
  totals begin = read_totals(d);
  assert_int_not_equal(tdict_counted_host_alloc(d, &host, SIZE_MAX / 2), TDICT_CU_SUCCESS);
  assert_int_not_equal(tdict_counted_host_free(d, page, 64), TDICT_CU_SUCCESS);
  assert_int_not_equal(tdict_counted_host_register(d, NULL, 64), TDICT_CU_SUCCESS);
  assert_int_not_equal(tdict_counted_host_unregister(d, page, 64), TDICT_CU_SUCCESS);
  assert_int_not_equal(tdict_counted_stream_destroy(d, (tdict_cu_stream)(void *)page), TDICT_CU_SUCCESS);
  tdict_gpu_leave(b.gpu, &b.scope);
  assert_int_not_equal(tdict_counted_stream_create(d, &stream), TDICT_CU_SUCCESS);
  assert_int_not_equal(tdict_counted_event_create(d, &event), TDICT_CU_SUCCESS);
  totals end = read_totals(d);
  assert_memory_equal(&begin, &end, sizeof begin);
  tdict_context_destroy(b.context);
}

static void *make_often(void *user) {
  fixture *b = user;
  tdict_gpu_scope scope;
  if (tdict_gpu_enter(b->gpu, &scope, NULL) != TDICT_OK) return user;
  for (int i = 0; i < 100; i++) {
    tdict_cu_stream stream;
    tdict_cu_event event;
    void *host;
    if (tdict_counted_stream_create(b->d, &stream) || tdict_counted_event_create(b->d, &event)) return user;
    if (tdict_counted_host_alloc(b->d, &host, 4096)) return user;
    if (tdict_counted_host_free(b->d, host, 4096)) return user;
    if (tdict_counted_stream_destroy(b->d, stream) || tdict_counted_event_destroy(b->d, event)) return user;
  }
  tdict_gpu_leave(b->gpu, &scope);
  return NULL;
}

GPU_CASE(counts_from_many_threads) {
  scoped_fixture b = fixture_open(NULL);
  totals begin = read_totals(b.d);
  assert_null(td_in_threads(4, make_often, &b, 0));
  totals end = read_totals(b.d);
  assert_true(end.peak >= begin.pinned + 4096 && end.peak <= begin.pinned + 4 * 4096);
  end.peak = begin.peak;
  assert_memory_equal(&begin, &end, sizeof begin);
}
