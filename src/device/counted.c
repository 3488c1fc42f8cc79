/* Counts the streams, events and pinned bytes that exist, in the driver's struct. See counted.h for threads. */
#include "device/counted.h"

/* Adds pinned bytes, and raises the peak by compare-exchange: another thread may raise it, too. */
static void add_pinned(tdict_driver *d, size_t bytes) {
  size_t now = atomic_fetch_add_explicit(&d->pinned_bytes, bytes, memory_order_relaxed) + bytes;
  size_t peak = atomic_load_explicit(&d->peak_pinned_bytes, memory_order_relaxed);
  while (now > peak && !atomic_compare_exchange_weak_explicit(&d->peak_pinned_bytes, &peak, now, memory_order_relaxed,
                                                              memory_order_relaxed)) {}
}

/* Counts `bytes` pinned bytes more, or fewer if `adds` is false, unless the call has failed. */
static tdict_cu count_pinned(tdict_driver *d, tdict_cu result, size_t bytes, bool adds) {
  if (result == TDICT_CU_SUCCESS && adds) add_pinned(d, bytes);
  if (result == TDICT_CU_SUCCESS && !adds) atomic_fetch_sub_explicit(&d->pinned_bytes, bytes, memory_order_relaxed);
  return result;
}
tdict_cu tdict_counted_host_alloc(tdict_driver *d, void **out, size_t bytes) {
  return count_pinned(d, d->ops->host_alloc(d, out, bytes, TDICT_CU_HOST_PORTABLE), bytes, true);
}
tdict_cu tdict_counted_host_free(tdict_driver *d, void *host, size_t bytes) {
  return count_pinned(d, d->ops->host_free(d, host, bytes), bytes, false);
}
tdict_cu tdict_counted_host_register(tdict_driver *d, void *host, size_t bytes) {
  return count_pinned(d, d->ops->host_register(d, host, bytes, TDICT_CU_HOST_PORTABLE), bytes, true);
}
tdict_cu tdict_counted_host_unregister(tdict_driver *d, void *host, size_t bytes) {
  return count_pinned(d, d->ops->host_unregister(d, host, bytes), bytes, false);
}

/* Adds `by` to the number of streams or events, unless the call has failed. */
static tdict_cu count(_Atomic(int64_t) *number, tdict_cu result, int by) {
  if (result == TDICT_CU_SUCCESS) atomic_fetch_add_explicit(number, by, memory_order_relaxed);
  return result;
}
tdict_cu tdict_counted_stream_create(tdict_driver *d, tdict_cu_stream *out) {
  return count(&d->num_streams, d->ops->stream_create(d, out, TDICT_CU_STREAM_NON_BLOCKING), 1);
}
tdict_cu tdict_counted_stream_destroy(tdict_driver *d, tdict_cu_stream stream) {
  return count(&d->num_streams, d->ops->stream_destroy(d, stream), -1);
}
tdict_cu tdict_counted_event_create(tdict_driver *d, tdict_cu_event *out) {
  return count(&d->num_events, d->ops->event_create(d, out, TDICT_CU_EVENT_DISABLE_TIMING), 1);
}
tdict_cu tdict_counted_timing_event_create(tdict_driver *d, tdict_cu_event *out) {
  return count(&d->num_events, d->ops->event_create(d, out, TDICT_CU_EVENT_DEFAULT), 1);
}
tdict_cu tdict_counted_event_destroy(tdict_driver *d, tdict_cu_event event) {
  return count(&d->num_events, d->ops->event_destroy(d, event), -1);
}
