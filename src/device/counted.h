/* Driver calls that create or destroy a resource, and count in tdict_driver what tdict_context_get_counts() reports.
 * They return the driver's code; failures count nothing. All but the destruction of streams and events need a current
 * context. Thread-safe. */
#ifndef TDICT_DEVICE_COUNTED_H
#define TDICT_DEVICE_COUNTED_H

#include "device/driver.h"

tdict_cu tdict_counted_host_alloc(tdict_driver *d, void **out, size_t bytes);
tdict_cu tdict_counted_host_free(tdict_driver *d, void *host, size_t bytes);
tdict_cu tdict_counted_host_register(tdict_driver *d, void *host, size_t bytes);
tdict_cu tdict_counted_host_unregister(tdict_driver *d, void *host, size_t bytes);
tdict_cu tdict_counted_stream_create(tdict_driver *d, tdict_cu_stream *out); /* non-blocking */
tdict_cu tdict_counted_stream_destroy(tdict_driver *d, tdict_cu_stream stream);
tdict_cu tdict_counted_event_create(tdict_driver *d, tdict_cu_event *out); /* without timing */
tdict_cu tdict_counted_timing_event_create(tdict_driver *d, tdict_cu_event *out);
tdict_cu tdict_counted_event_destroy(tdict_driver *d, tdict_cu_event event);

#endif
