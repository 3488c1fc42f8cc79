/* Declares simulated devices, which behave like a GPU, but run on any machine. Many mistakes fail as on a GPU.
 *
 * Reading or writing a device address on the host causes a segmentation fault. Streams are queues, whose work runs on
 * threads of the library. Copies from pinned memory are asynchronous. The speed says nothing about the speed of a GPU.
 *
 * A context has simulated devices if its options set `sim`, or if its device is tdict_sim(n). The device
 * sim:0 of another context is a different device. With its tensors, memory or streams, transfers return
 * #TDICT_EWRONGDEVICE, and copies without a context return #TDICT_EDEVICE.
 *
 * Errors of all functions: #TDICT_EINVAL a pointer is NULL; #TDICT_ENODEVICE the context has no simulated device;
 * #TDICT_EFORKED in a forked child. Thread rule: any thread may call all functions but tdict_sim_host_pointer(). */
#ifndef TDICT_SIM_H
#define TDICT_SIM_H

#include "tdict/values.h"

TDICT_BEGIN_DECLS

/** Says which simulated devices have peer access to each other, and so copy directly from each other. */
typedef enum tdict_sim_peers {
  TDICT_SIM_PEERS_PAIRS, /**< devices 0 and 1, 2 and 3, and so on (default) */
  TDICT_SIM_PEERS_ALL,
  TDICT_SIM_PEERS_NONE
} tdict_sim_peers;

/** Options of the simulated devices of a context. docs/howto/testing.md describes `virtual_time`. */
typedef struct tdict_sim_options {
  size_t struct_size;
  int32_t num_devices; /**< 1 to 8; default 1 */
  bool held;           /**< true: all queues are stopped at first, as after tdict_sim_hold() */
  size_t memory_bytes; /**< memory of each device in bytes, at least 1 MiB; default 16 GiB */
  double h2d_bytes_per_second, d2h_bytes_per_second; /**< bandwidth of copies; 0 (default): no limit */
  int64_t latency_ns;         /**< nanoseconds that are added to each copy, fill and launch; default 0 */
  bool reads_pageable_memory; /**< true: queued copies read ordinary host memory when they run, as on GPUs that read the
                                   page tables of the host; default false */
  int32_t peers;              /**< a tdict_sim_peers */
  bool virtual_time;          /**< true: bandwidth and latency use a virtual clock; default false */
} tdict_sim_options;
static inline tdict_sim_options tdict_sim_options_default(void) {
  tdict_sim_options o;
  tdict_init_struct_(o);
  o.num_devices = 1;
  o.memory_bytes = tdict_cast_(size_t, 16) << 30;
  return o;
}

/** @brief Stops all queues of the context's simulated devices. The program can still queue operations, but no operation
 *  finishes until tdict_sim_step() or tdict_sim_resume() is called. */
TDICT_API TDICT_NODISCARD tdict_status tdict_sim_hold(tdict_context *context, tdict_error *err);
/** @brief Lets up to @p count operations finish while the queues are stopped.
 *  Operations finish in the order in which they were queued, unless a stream waits for an event. The call returns after
 *  @p count operations, or earlier if no other operation can run.
 *  @return #TDICT_EINVAL @p count is negative, or the queues are not stopped. */
TDICT_API TDICT_NODISCARD tdict_status tdict_sim_step(tdict_context *context, int64_t count, tdict_error *err);
/** @brief Lets all queues run again after tdict_sim_hold(), or after a start with the option `held`. */
TDICT_API TDICT_NODISCARD tdict_status tdict_sim_resume(tdict_context *context, tdict_error *err);
/** @brief Queues the call of @p fn on @p stream, as a kernel launch does.
 *  A thread of the device runs @p fn. Of this library, it may call only tdict_sim_host_pointer().
 *  @return #TDICT_EINVAL @p stream is not from tdict_stream_create() on a simulated device; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_sim_launch(tdict_stream stream, void (*fn)(void *user), void *user,
                                                        tdict_error *err);
/** @brief Returns the host address of the bytes at an address of simulated device memory.
 *  Call it only in a function that tdict_sim_launch() queued. Other accesses are not ordered with the device.
 *  @return Borrowed; NULL if @p device_address is not an address of the stream's device, or in a forked child. */
TDICT_API void *tdict_sim_host_pointer(tdict_stream stream, const void *device_address);

TDICT_END_DECLS
#endif
