/* Declares the context, which holds a program's devices, memories, thread pool and staging buffers. A program usually
 * creates one context and uses it for all calls. Functions of the program must return and must not throw: see
 * docs/callbacks.md. The library reads no environment variables; the CUDA driver and NCCL have their own.
 *
 * Errors of all functions:
 * - #TDICT_EINVAL: NULL, or an argument or option out of range; #TDICT_ENOTSUP: an unknown field is not zero;
 * - #TDICT_ENODEVICE: the device is absent, and the message has the reason; #TDICT_EDEVICE; #TDICT_ELOST;
 * - #TDICT_EFORKED: the process is a fork of the process of the context; #TDICT_ENOMEM.
 *
 * Thread rule: every function is thread-safe, but tdict_context_destroy() must be the last call on a context. */
#ifndef TDICT_CONTEXT_H
#define TDICT_CONTEXT_H

#include "tdict/values.h"

TDICT_BEGIN_DECLS
struct tdict_sim_options; /* tdict/sim.h */

#define TDICT_LOG_ERROR 1   /**< level of a message: an error that no call returned */
#define TDICT_LOG_WARNING 2 /**< level of a message: the library works, but less well than it could */
#define TDICT_LOG_INFO 3    /**< level of a message: a choice of the library */

typedef struct tdict_context_options {
  size_t struct_size;
  /** The default device. All zero (default) means "auto": cuda:0 if it can be opened, else sim:0 if `sim` is set, else
   *  the cpu. The log has a warning with the reason if cuda:0 cannot be opened. */
  tdict_device device;
  /** Threads of the pool, 1 to 1024. -1 (default): one for each CPU that the calling thread may use, at least 8. They
   *  block all signals, start in the default floating-point environment, and are named tdict-pool-0 and so on. */
  int32_t num_threads;
  size_t staging_bytes; /**< bytes of each device's pinned staging ring; default 64 MiB, at least 64 KiB */
  /** Limit in bytes of the pool of pinned memory, with freed bytes that it keeps. 0 (default): no limit. */
  size_t pinned_bytes;
  /** Limit in bytes of the freed memory that each device keeps for reuse. Default: SIZE_MAX, which means no limit. */
  size_t device_cache_bytes;
  /** Receives log messages on any thread, until tdict_context_destroy() returns. It must not call the library. NULL
   *  (default): no log. */
  void (*log)(void *user, int32_t level, const char *text);
  void *user; /**< passed to `log` */
  /** Path of a tuning table of `tdict-bench tune`, read by the call; NULL (default): the built-in table. */
  const char *tuning_file;
  /** Options of simulated devices, see tdict/sim.h; borrowed. NULL (default): they exist only if `device` names one. */
  const struct tdict_sim_options *sim;
  /** Bytes of pinned memory that one driver call registers, rounded up to 4 MiB. 0 (default): a whole block. */
  size_t pin_piece_bytes;
} tdict_context_options;
static inline tdict_context_options tdict_context_options_default(void) {
  tdict_context_options o;
  tdict_init_struct_(o);
  o.num_threads = -1;
  o.staging_bytes = tdict_cast_(size_t, 64) << 20;
  o.device_cache_bytes = tdict_cast_(size_t, -1);
  return o;
}

/** @brief Creates a context: starts its threads and opens its default device.
 *  @param[in]  options  Borrowed for the call; NULL for the defaults, as for fields that a shorter `struct_size` lacks.
 *  @param[out] out      New context, destroyed with tdict_context_destroy(); untouched on failure.
 *  @return Also #TDICT_EIO: cannot read the tuning file; #TDICT_EFORMAT: it is malformed (the message has the line). */
TDICT_API TDICT_NODISCARD tdict_status tdict_context_create(const tdict_context_options *options, tdict_context **out,
                                                            tdict_error *err);
/** @brief Destroys a context: waits for running transfers, joins the threads and frees unused memory. NULL is allowed.
 *  Trees, tensors and futures stay valid, and are still to be released. */
TDICT_API void tdict_context_destroy(tdict_context *context);

/** @brief Returns the default device.
 *  @param[out] why  If this is not a CUDA device, #TDICT_ENODEVICE and the reason; else unchanged. May be NULL. */
TDICT_API tdict_device tdict_context_device(const tdict_context *context, tdict_error *why);
/** @brief Returns the number of threads in the pool. */
TDICT_API int tdict_context_num_threads(const tdict_context *context);

/** @brief Returns the context's pool of pinned (page-locked) host memory, which the context owns. Never NULL.
 *
 *  Without a device that can read pinned memory, every allocation fails with #TDICT_ENODEVICE. For copies of your own,
 *  for example with cudaMemcpyAsync(), docs/learn/pinned_memory.md says which bytes one copy may span. */
TDICT_API tdict_memory *tdict_pinned_memory(tdict_context *context);
/** @brief Returns the memory of a device, which the context owns. Never NULL. For tdict_cpu(), plain host memory. If
 *  the device is absent, every allocation fails with #TDICT_ENODEVICE. */
TDICT_API tdict_memory *tdict_device_memory(tdict_context *context, tdict_device device);

/** @brief Creates a non-blocking stream on a cuda or simulated device. Destroy it before the context. */
TDICT_API TDICT_NODISCARD tdict_status tdict_stream_create(tdict_context *context, tdict_device device,
                                                           tdict_stream *out, tdict_error *err);
/** @brief Destroys a stream. Queued work still runs. Does nothing in a forked process. */
TDICT_API void tdict_stream_destroy(tdict_context *context, tdict_stream stream);
/** @brief Waits until all work that is queued on a stream is done, as cudaStreamSynchronize() does.
 *  A NULL handle is the device's legacy stream. For the cpu, the call returns immediately.
 *  @return Also #TDICT_EWRONGDEVICE: a stream of no device of this context; #TDICT_ECAPTURE: it is being captured. */
TDICT_API TDICT_NODISCARD tdict_status tdict_stream_synchronize(tdict_context *context, tdict_stream stream,
                                                                tdict_error *err);

TDICT_END_DECLS
#endif
