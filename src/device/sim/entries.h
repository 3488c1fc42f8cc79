/* Declares the entries of the simulated driver's table, grouped by file, and helpers that several files use.
 * device/driver.h describes the entries. Thread rule: safe from any thread, unless a comment requires the driver's
 * lock. */
#ifndef TDICT_DEVICE_SIM_ENTRIES_H
#define TDICT_DEVICE_SIM_ENTRIES_H

#include "device/sim/queue.h"

/* context.c */
tdict_cu tdict_sim_ctx_retain(tdict_driver *base, int ordinal, tdict_cu_context *out);
tdict_cu tdict_sim_ctx_release(tdict_driver *base, int ordinal);
tdict_cu tdict_sim_ctx_push(tdict_driver *base, tdict_cu_context context);
tdict_cu tdict_sim_ctx_pop(tdict_driver *base, tdict_cu_context *out);
tdict_cu tdict_sim_ctx_current(tdict_driver *base, tdict_cu_context *out);
tdict_cu tdict_sim_ctx_allow_peer(tdict_driver *base, tdict_cu_context peer);
tdict_cu tdict_sim_capture_mode(tdict_driver *base, int *mode);
/* Returns the device whose context is current on the calling thread, or NULL. */
tdict_sim_device *tdict_sim_current(tdict_sim_driver *d);
/* Returns the device with this ordinal, or NULL. */
tdict_sim_device *tdict_sim_device_at(tdict_sim_driver *d, int ordinal);
/* Converts a handle to its stream. Handles 0 to 2 are streams of the current device. For these handles, returns
 * INVALID_CONTEXT if no context is current. Returns INVALID_HANDLE if any other handle is not a stream of this driver.
 * If the stream's device has a sticky error, returns this error. Call with the driver's lock held. */
tdict_cu tdict_sim_resolve(tdict_sim_driver *d, tdict_cu_stream handle, tdict_sim_stream **out);
/* Returns true if two devices have peer access to each other, as the option `peers` says. */
bool tdict_sim_are_linked(const tdict_sim_driver *d, int32_t one, int32_t other);
/* Returns true if the handle points to a stream of a simulated driver. Reads the memory at the handle, but never
 * dereferences small or unaligned values. */
bool tdict_sim_is_stream(const void *handle);
/* Frees the state of all threads. Call when no thread uses the driver. */
void tdict_sim_threads_free(tdict_sim_driver *d);

/* stream.c */
tdict_cu tdict_sim_stream_create(tdict_driver *base, tdict_cu_stream *out, unsigned flags);
tdict_cu tdict_sim_stream_destroy(tdict_driver *base, tdict_cu_stream handle);
tdict_cu tdict_sim_stream_query(tdict_driver *base, tdict_cu_stream handle);
tdict_cu tdict_sim_stream_synchronize(tdict_driver *base, tdict_cu_stream handle);
tdict_cu tdict_sim_stream_wait_event(tdict_driver *base, tdict_cu_stream handle, tdict_cu_event event);
tdict_cu tdict_sim_stream_capture_status(tdict_driver *base, tdict_cu_stream handle, int *status);
tdict_cu tdict_sim_event_create(tdict_driver *base, tdict_cu_event *out, unsigned flags);
tdict_cu tdict_sim_event_destroy(tdict_driver *base, tdict_cu_event event);
tdict_cu tdict_sim_event_record(tdict_driver *base, tdict_cu_event event, tdict_cu_stream handle);
tdict_cu tdict_sim_event_query(tdict_driver *base, tdict_cu_event event);
tdict_cu tdict_sim_event_synchronize(tdict_driver *base, tdict_cu_event event);
tdict_cu tdict_sim_event_elapsed(tdict_driver *base, float *milliseconds, tdict_cu_event from, tdict_cu_event to);

/* alloc.c */
tdict_cu tdict_sim_pool_create(tdict_driver *base, int ordinal, tdict_cu_pool *out);
tdict_cu tdict_sim_pool_destroy(tdict_driver *base, tdict_cu_pool pool);
tdict_cu tdict_sim_pool_trim_to(tdict_driver *base, tdict_cu_pool pool, size_t keep_bytes);
tdict_cu tdict_sim_pool_set(tdict_driver *base, tdict_cu_pool pool, int attribute, uint64_t value);
tdict_cu tdict_sim_pool_get(tdict_driver *base, tdict_cu_pool pool, int attribute, uint64_t *value);
tdict_cu tdict_sim_pool_allow_peer(tdict_driver *base, tdict_cu_pool pool, int ordinal);
tdict_cu tdict_sim_mem_alloc_async(tdict_driver *base, void **out, size_t bytes, tdict_cu_pool pool,
                                   tdict_cu_stream handle);
tdict_cu tdict_sim_mem_free_async(tdict_driver *base, void *address, tdict_cu_stream handle);
tdict_cu tdict_sim_mem_alloc(tdict_driver *base, void **out, size_t bytes);
tdict_cu tdict_sim_mem_free(tdict_driver *base, void *address);
tdict_cu tdict_sim_host_alloc(tdict_driver *base, void **out, size_t bytes, unsigned flags);
tdict_cu tdict_sim_host_free(tdict_driver *base, void *host, size_t bytes);
tdict_cu tdict_sim_host_register(tdict_driver *base, void *host, size_t bytes, unsigned flags);
tdict_cu tdict_sim_host_unregister(tdict_driver *base, void *host, size_t bytes);
tdict_cu tdict_sim_pointer(tdict_driver *base, const void *address, tdict_cu_pointer *out);
/* Unmaps host memory that is still allocated. Call when no thread uses the driver. */
void tdict_sim_hosts_free(tdict_sim_driver *d);

/* Returns true if a copy or a kernel on `device` may access the range. A device other than the owner needs permission
 * to access memory of a pool. All devices may access memory of mem_alloc(). */
static inline bool tdict_sim_has_access(const tdict_sim_device *device, const tdict_sim_device *owner,
                                        const tdict_sim_range *range) {
  return owner == device || !range->pool || (range->pool->allowed_peers >> device->ordinal & 1);
}

/* launch.c */
tdict_cu tdict_sim_module_load(tdict_driver *base, const char *image, tdict_cu_module *out);
tdict_cu tdict_sim_module_unload(tdict_driver *base, tdict_cu_module module);
tdict_cu tdict_sim_module_function(tdict_driver *base, tdict_cu_module module, const char *name,
                                   tdict_cu_function *out);
tdict_cu tdict_sim_launch_kernel(tdict_driver *base, const tdict_cu_launch *launch, tdict_cu_stream handle);

/* copy.c */
tdict_cu tdict_sim_copy_h2d(tdict_driver *base, void *device, const void *host, size_t bytes);
tdict_cu tdict_sim_copy_d2h(tdict_driver *base, void *host, const void *device, size_t bytes);
tdict_cu tdict_sim_copy_h2d_async(tdict_driver *base, void *device, const void *host, size_t bytes,
                                  tdict_cu_stream handle);
tdict_cu tdict_sim_copy_d2h_async(tdict_driver *base, void *host, const void *device, size_t bytes,
                                  tdict_cu_stream handle);
tdict_cu tdict_sim_copy_d2d_async(tdict_driver *base, void *dst, const void *src, size_t bytes, tdict_cu_stream handle);
tdict_cu tdict_sim_copy_peer_async(tdict_driver *base, const tdict_cu_rect *rect, tdict_cu_context to,
                                   tdict_cu_context from, tdict_cu_stream handle);
tdict_cu tdict_sim_copy_rect_async(tdict_driver *base, const tdict_cu_rect *rect, tdict_cu_stream handle);
tdict_cu tdict_sim_copy_batch_async(tdict_driver *base, tdict_cu_kind kind, const tdict_cu_copy *lines, size_t count,
                                    tdict_cu_stream handle);
tdict_cu tdict_sim_fill_async(tdict_driver *base, void *address, unsigned char byte, size_t bytes,
                              tdict_cu_stream handle);

#endif
