/* Declares wrappers of driver calls that create or destroy a resource. The wrappers update the counts in tdict_driver,
 * which tdict_context_get_counts() reports. A call that fails changes no count. Every call returns the driver's code.
 * Every call needs a current context, except the calls that destroy a stream or an event. Thread rule: safe from any
 * thread. */
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
