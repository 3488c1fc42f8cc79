/* Implements the wrappers of counted.h, which count the streams, events and pinned bytes that exist. The driver's
 * struct holds the counts. Thread rule: see counted.h. */
#include "device/counted.h"

/* Adds to the pinned bytes and raises the peak. Uses compare-exchange, because another thread may raise the peak
 * meanwhile. */
static void add_pinned(tdict_driver *d, size_t bytes) {
  size_t now = atomic_fetch_add_explicit(&d->pinned_bytes, bytes, memory_order_relaxed) + bytes;
  size_t peak = atomic_load_explicit(&d->peak_pinned_bytes, memory_order_relaxed);
  while (now > peak && !atomic_compare_exchange_weak_explicit(&d->peak_pinned_bytes, &peak, now, memory_order_relaxed,
                                                              memory_order_relaxed)) {}
}
static void remove_pinned(tdict_driver *d, size_t bytes) {
  atomic_fetch_sub_explicit(&d->pinned_bytes, bytes, memory_order_relaxed);
}

tdict_cu tdict_counted_host_alloc(tdict_driver *d, void **out, size_t bytes) {
  tdict_cu result = d->ops->host_alloc(d, out, bytes, TDICT_CU_HOST_PORTABLE);
  if (result == TDICT_CU_SUCCESS) add_pinned(d, bytes);
  return result;
}
tdict_cu tdict_counted_host_free(tdict_driver *d, void *host, size_t bytes) {
  tdict_cu result = d->ops->host_free(d, host, bytes);
  if (result == TDICT_CU_SUCCESS) remove_pinned(d, bytes);
  return result;
}
tdict_cu tdict_counted_host_register(tdict_driver *d, void *host, size_t bytes) {
  tdict_cu result = d->ops->host_register(d, host, bytes, TDICT_CU_HOST_PORTABLE);
  if (result == TDICT_CU_SUCCESS) add_pinned(d, bytes);
  return result;
}
tdict_cu tdict_counted_host_unregister(tdict_driver *d, void *host, size_t bytes) {
  tdict_cu result = d->ops->host_unregister(d, host, bytes);
  if (result == TDICT_CU_SUCCESS) remove_pinned(d, bytes);
  return result;
}

tdict_cu tdict_counted_stream_create(tdict_driver *d, tdict_cu_stream *out) {
  tdict_cu result = d->ops->stream_create(d, out, TDICT_CU_STREAM_NON_BLOCKING);
  if (result == TDICT_CU_SUCCESS) atomic_fetch_add_explicit(&d->num_streams, 1, memory_order_relaxed);
  return result;
}
tdict_cu tdict_counted_stream_destroy(tdict_driver *d, tdict_cu_stream stream) {
  tdict_cu result = d->ops->stream_destroy(d, stream);
  if (result == TDICT_CU_SUCCESS) atomic_fetch_sub_explicit(&d->num_streams, 1, memory_order_relaxed);
  return result;
}

/* Creates an event and counts the event if the call succeeds. */
static tdict_cu create_counted_event(tdict_driver *d, tdict_cu_event *out, unsigned flags) {
  tdict_cu result = d->ops->event_create(d, out, flags);
  if (result == TDICT_CU_SUCCESS) atomic_fetch_add_explicit(&d->num_events, 1, memory_order_relaxed);
  return result;
}
tdict_cu tdict_counted_event_create(tdict_driver *d, tdict_cu_event *out) {
  return create_counted_event(d, out, TDICT_CU_EVENT_DISABLE_TIMING);
}
tdict_cu tdict_counted_timing_event_create(tdict_driver *d, tdict_cu_event *out) {
  return create_counted_event(d, out, TDICT_CU_EVENT_DEFAULT);
}
tdict_cu tdict_counted_event_destroy(tdict_driver *d, tdict_cu_event event) {
  tdict_cu result = d->ops->event_destroy(d, event);
  if (result == TDICT_CU_SUCCESS) atomic_fetch_sub_explicit(&d->num_events, 1, memory_order_relaxed);
  return result;
}
