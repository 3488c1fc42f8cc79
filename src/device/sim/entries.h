/* Declares the functions that fill in the simulated driver's table, and helpers that several files use. Each file has
 * the entries of one group of device/driver.h. Thread rule: safe from any thread, unless a comment requires the
 * driver's lock. */
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
/* Converts a handle to its stream. Handles 0 to 2 are streams of the current device. For these handles, returns
 * INVALID_CONTEXT if no context is current. Returns INVALID_HANDLE if any other handle is not a stream of this driver.
 * If the stream's device has a sticky error, returns this error. Call with the driver's lock held. */
tdict_cu tdict_sim_resolve(tdict_sim_driver *d, tdict_cu_stream handle, tdict_sim_stream **out);
/* Like tdict_sim_resolve(), but returns INVALID_HANDLE if the stream is of another device. */
tdict_cu tdict_sim_resolve_on(const tdict_sim_device *device, tdict_cu_stream handle, tdict_sim_stream **out);
/* Returns true if two devices have peer access to each other, as the option `peers` says. */
bool tdict_sim_are_linked(const tdict_sim_driver *d, int32_t one, int32_t other);
/* Returns true if the handle points to a stream of a simulated driver. Reads the memory at the handle, but never
 * dereferences small or unaligned values. */
bool tdict_sim_is_stream(const void *handle);
/* Frees the state of all threads. Call when no thread uses the driver. */
void tdict_sim_threads_free(tdict_sim_driver *d);

/* alloc.c */
/* Unmaps host memory that is still allocated. Call when no thread uses the driver. */
void tdict_sim_hosts_free(tdict_sim_driver *d);

/* Returns true if a copy or a kernel on `device` may access the range. A device other than the owner needs permission
 * to access memory of a pool. All devices may access memory of mem_alloc(). */
static inline bool tdict_sim_has_access(const tdict_sim_device *device, const tdict_sim_device *owner,
                                        const tdict_sim_range *range) {
  return owner == device || !range->pool || (range->pool->allowed_peers >> device->ordinal & 1);
}

#endif
