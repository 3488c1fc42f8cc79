/* Functions that fill in the simulated driver's table, by groups of device/driver.h, and shared helpers. Thread rule:
 * safe from any thread, unless a comment requires the driver's lock. */
#ifndef TDICT_DEVICE_SIM_ENTRIES_H
#define TDICT_DEVICE_SIM_ENTRIES_H

#include "device/sim/queue.h"

/* The argument of a list of entries: sets the entry to the function with its name. */
#define TDICT_SIM_FILL(entry) ops->entry = entry;
/* Set the entries that the file implements. */
void tdict_sim_add_contexts(tdict_driver_ops *ops);
void tdict_sim_add_memory(tdict_driver_ops *ops);
void tdict_sim_add_copies(tdict_driver_ops *ops);
void tdict_sim_add_launches(tdict_driver_ops *ops);
void tdict_sim_add_streams(tdict_driver_ops *ops);

/* context.c */
/* Returns the device whose context is current on the calling thread, or NULL. */
tdict_sim_device *tdict_sim_current(tdict_sim_driver *d);
/* Returns the device with this ordinal, or NULL. */
tdict_sim_device *tdict_sim_device_at(tdict_sim_driver *d, int ordinal);
/* Converts a handle to its stream, under the driver's lock. Handles 0 to 2 are streams of the current device:
 * INVALID_CONTEXT if none is current. Returns INVALID_HANDLE for a handle that is no stream of this driver, or the
 * device's sticky error. */
tdict_cu tdict_sim_resolve(tdict_sim_driver *d, tdict_cu_stream handle, tdict_sim_stream **out);
/* Like tdict_sim_resolve(), but returns INVALID_HANDLE if the stream belongs to another device. */
tdict_cu tdict_sim_resolve_on(const tdict_sim_device *device, tdict_cu_stream handle, tdict_sim_stream **out);
/* Returns true if two devices have peer access to each other, as the option `peers` says. */
bool tdict_sim_are_linked(const tdict_sim_driver *d, int32_t one, int32_t other);
/* True if the handle points to a simulated stream. Reads there, but not at small or unaligned values. */
bool tdict_sim_is_stream(const void *handle);
/* Frees the state of all threads. Call when no thread uses the driver. */
void tdict_sim_threads_free(tdict_sim_driver *d);

/* alloc.c */
/* Unmaps host memory that is still allocated. Call when no thread uses the driver. */
void tdict_sim_hosts_free(tdict_sim_driver *d);

/* True if `device` may access the range: its own, of mem_alloc(), or of a pool that gives permission. */
static inline bool tdict_sim_has_access(const tdict_sim_device *device, const tdict_sim_device *owner,
                                        const tdict_sim_range *range) {
  return owner == device || !range->pool || (range->pool->allowed_peers >> device->ordinal & 1);
}

#endif
