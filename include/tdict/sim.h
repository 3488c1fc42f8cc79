/* The simulated device: a GPU's rules, traps included, on any machine.
 *
 * Its memory is not the host's: touching a device address is a segmentation fault. Streams are queues served by
 * threads, copies from pinned memory are really asynchronous, an unfinished destination holds its old bytes. What is
 * measured on it says nothing about a GPU.
 * A context has simulated devices when its options carry `sim`, or when its device is tdict_sim(n). They are its own:
 * another context's sim:0 is another device. Calls that take a context refuse its memory and streams with
 * #TDICT_EWRONGDEVICE. In a fork of the process that made the context every call below returns at once: #TDICT_EFORKED,
 * or NULL. */
#ifndef TDICT_SIM_H
#define TDICT_SIM_H

#include <string.h>

#include "tdict/values.h"

TDICT_BEGIN_DECLS

typedef struct tdict_context tdict_context;

typedef struct tdict_sim_options {
  size_t struct_size;
  int32_t num_devices; /**< 1 to 8; default 1 */
  bool held;           /**< begin as after tdict_sim_hold() */
  size_t memory_bytes; /**< of each device; address space only until used; default 16 GiB */
  double h2d_bytes_per_second, d2h_bytes_per_second; /**< 0 (default): as fast as the host copies */
  int64_t latency_ns;                                /**< added to each operation; default 0 */
} tdict_sim_options;
static inline tdict_sim_options tdict_sim_options_default(void) {
  tdict_sim_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.num_devices = 1;
  o.memory_bytes = (size_t)16 << 30;
  return o;
}

/** @brief Stops all queues of the context's simulated devices: operations are queued and none finishes.
 *  @return #TDICT_OK; #TDICT_ENODEVICE the context has none. */
TDICT_API TDICT_NODISCARD tdict_status tdict_sim_hold(tdict_context *context, tdict_error *err);
/** @brief While held: lets up to @p count further operations finish, in the order that their streams allow, and returns
 *  when that many have finished or none can.
 *  @return #TDICT_OK; #TDICT_ENODEVICE; #TDICT_EINVAL @p count is negative, or nothing is held. */
TDICT_API TDICT_NODISCARD tdict_status tdict_sim_step(tdict_context *context, int64_t count, tdict_error *err);
/** @brief Lets all queues run again.
 *  @return #TDICT_OK; #TDICT_ENODEVICE. */
TDICT_API TDICT_NODISCARD tdict_status tdict_sim_resume(tdict_context *context, tdict_error *err);
/** @brief Runs @p fn(@p user) in the order of @p stream, as a kernel would, on a thread of the device. The function
 *  reaches device memory through tdict_sim_bytes() and calls nothing else of this library.
 *  @return #TDICT_OK; #TDICT_EINVAL the stream is not one that tdict_stream_create() made on a simulated device;
 *          #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_sim_launch(tdict_stream stream, void (*fn)(void *user), void *user,
                                                        tdict_error *err);
/** @brief Where the bytes behind a simulated device address really are: for functions of tdict_sim_launch() only, since
 *  no order holds outside of them. NULL for an address that is not the device's. */
TDICT_API void *tdict_sim_bytes(tdict_stream stream, const void *device_address);

TDICT_END_DECLS
#endif
