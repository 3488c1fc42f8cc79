/* Declares the context, which holds a program's devices, memories, thread pool and staging buffers. A program usually
 * creates one context and uses this context for all calls. The functions of the program, `log` and those of an
 * allocator, must return and must not throw: see docs/callbacks.md.
 *
 * The library reads no environment variables. Other libraries that it loads, such as the CUDA driver and NCCL, have
 * environment variables of their own.
 *
 * Thread rule: every function is thread-safe, except that tdict_context_destroy() must be the last call on a
 * context. */
#ifndef TDICT_CONTEXT_H
#define TDICT_CONTEXT_H

#include "tdict/memory.h"
#include "tdict/sim.h"

TDICT_BEGIN_DECLS

#define TDICT_LOG_ERROR 1   /**< level of a message: an error that no call returned */
#define TDICT_LOG_WARNING 2 /**< level of a message: the library works, but less well than it could */
#define TDICT_LOG_INFO 3    /**< level of a message: a choice of the library */

typedef struct tdict_context_options {
  size_t struct_size;
  /** The default device of the context. All zero (default) means "auto": cuda:0 if it can be opened, else sim:0 if
   *  `sim` is set, else the cpu. If cuda:0 cannot be opened, the log receives a warning with the reason. */
  tdict_device device;
  /** Number of threads in the pool, 1 to 1024. -1 (default): one thread for each CPU in the affinity mask of the thread
   *  that creates the context, but at least 8 and at most 1024. The threads of the pool block all signals, and start in
   *  the default floating-point environment. Debuggers show their names: tdict-pool-0, tdict-pool-1 and so on. */
  int32_t num_threads;
  size_t staging_bytes; /**< bytes of each device's pinned staging ring; default 64 MiB, at least 64 KiB */
  /** Maximum number of bytes in the pool of pinned memory. Freed bytes that the pool keeps for reuse also count. 0
   *  (default): no limit. */
  size_t pinned_bytes;
  /** Maximum number of freed bytes that each device keeps for reuse. Default: SIZE_MAX, which means no limit.
   *
   *  The library allocates device memory from a pool of the driver. For a block of 512 MiB or more, the pool needs many
   *  milliseconds. The library therefore allocates such a block with cuMemAlloc() if the block does not exceed this
   *  limit. If a block of cuMemAlloc() is freed and not kept, the free waits until the device is idle. If two devices
   *  can access each other's memory, the first copy between the devices enables peer access between their contexts with
   *  cuCtxEnablePeerAccess(). */
  size_t device_cache_bytes;
  /** Receives log messages; NULL (default): no log. The library can call `log` on any thread. `log` must not call the
   *  library, because the library can hold a lock during the call. tdict_context_destroy() waits until running calls of
   *  `log` have returned. The library does not call `log` after tdict_context_destroy(). */
  void (*log)(void *user, int32_t level, const char *text);
  void *user; /**< passed to `log` */
  /** Path of a tuning table that `tdict-bench tune` wrote; NULL (default): the built-in table.
   *  tdict_context_create() reads the file. */
  const char *tuning_file;
  /** If `sim` is set, the new context has simulated devices with these options. Borrowed for the call. NULL (default):
   *  the default options if `device` names a simulated device, and no simulated device for any other `device`. */
  const tdict_sim_options *sim;
  /** Number of bytes of pinned memory that one driver call registers. The library rounds the number up to a multiple of
   *  4 MiB. 0 (default): one driver call registers a whole block. See tdict_pinned_memory(). */
  size_t pin_piece_bytes;
} tdict_context_options;
static inline tdict_context_options tdict_context_options_default(void) {
  tdict_context_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.num_threads = -1;
  o.staging_bytes = tdict_cast_(size_t, 64) << 20;
  o.device_cache_bytes = tdict_cast_(size_t, -1);
  return o;
}

/** @brief Creates a context: starts its threads and opens its default device.
 *  @param[in]  options  Borrowed for the call; NULL for the defaults. `struct_size` says which fields the struct has.
 *                       If the struct lacks a field, the field gets its default. Fields that this library does not know
 *                       must be zero.
 *  @param[out] out      New context, destroyed with tdict_context_destroy(); untouched on failure.
 *  @return #TDICT_OK; #TDICT_EINVAL @p out is NULL or an option is out of range; #TDICT_ENODEVICE the named device is
 *          absent (the message gives the reason); #TDICT_EIO the tuning file cannot be read; #TDICT_EFORMAT the tuning
 *          file is malformed (the message names file and line); #TDICT_ENOTSUP an unknown field is not zero;
 *          #TDICT_ENOMEM; #TDICT_EDEVICE the driver failed. */
TDICT_API TDICT_NODISCARD tdict_status tdict_context_create(const tdict_context_options *options, tdict_context **out,
                                                            tdict_error *err);
/** @brief Destroys a context: waits for running transfers, joins the threads and frees unused memory. NULL is allowed.
 *  Trees, tensors and futures stay valid after this call. The program must still release these objects. No other call
 *  on the context may run at the same time or later. */
TDICT_API void tdict_context_destroy(tdict_context *context);

/** @brief Returns the default device.
 *  @param[out] why  If the default device is not a CUDA device, the call writes the reason and the status
 *          #TDICT_ENODEVICE to @p why. If the default device is a CUDA device, @p why is unchanged. NULL: no reason is
 *          written. */
TDICT_API tdict_device tdict_context_device(const tdict_context *context, tdict_error *why);
/** @brief Returns the number of threads in the pool. */
TDICT_API int tdict_context_num_threads(const tdict_context *context);
/** @brief Frees memory that is kept for reuse, until at most @p keep_bytes bytes are kept.
 *
 *  For tdict_cpu(), the function frees pinned memory. Pinned memory is not freed if unfinished work uses this memory,
 *  or if a block that is in use was registered together with this memory. For another device, the function frees memory
 *  of that device, and waits for work that still uses freed blocks. If the device is absent, the function does
 *  nothing. */
TDICT_API void tdict_context_trim(tdict_context *context, tdict_device device, size_t keep_bytes);

/** @brief Returns the context's pool of pinned (page-locked) host memory.
 *  The context owns the memory. The result is never NULL. If the context has no device that can read pinned memory,
 *  every allocation fails with #TDICT_ENODEVICE, and the message gives the reason. If the default device is a GPU, the
 *  library asks the system to place new blocks of 2 MiB or more on the NUMA node of this GPU.
 *
 *  **Your own copies.** This part concerns copies that the program makes, for example with cudaMemcpyAsync() or NCCL.
 *  If a copy spans two registrations, the driver returns CUDA_ERROR_INVALID_VALUE. By default each block lies in
 *  one registration, so one copy may span any bytes of a block. If the driver refuses to register a block, the library
 *  falls back:
 *  - The driver allocates the block (#TDICT_PIN_DRIVER). One copy may still span the whole block.
 *  - If the driver cannot allocate the block, the library registers the block in pieces of 4 MiB
 *    (#TDICT_PIN_SMALL_PIECES). Split your copies at addresses that are multiples of 4 MiB.
 *
 *  At the first use of each fallback, the library writes a warning to the log.
 *
 *  **Cost of large blocks.** While the driver registers or unregisters a block, no other thread can queue a copy or a
 *  kernel. If `pin_piece_bytes` is set, the library registers and unregisters a block piece by piece, and pauses
 *  between two pieces.
 *  `bench/pinning` measured this cost on an NVIDIA H200, with pieces of 32 MiB. The longest wait is the longest time
 *  that a small copy on another thread waited.
 *  - Pinning 1 GiB at once takes 49 ms, with a longest wait of 28 ms. Pinning 1 GiB in pieces takes 36 ms, with a
 *    longest wait of 1.2 ms.
 *  - Pinning 4 GiB at once takes 194 ms, with a longest wait of 110 ms. Pinning 4 GiB in pieces takes 151 ms, with a
 *    longest wait of 1.3 ms.
 *  - Unpinning 4 GiB at once takes 88 ms, with a longest wait of 74 ms. Unpinning 4 GiB in pieces takes 135 ms, with a
 *    longest wait of 1 ms.
 *
 *  If `pin_piece_bytes` is set, a block of at most the piece size lies in one registration. For a larger block, split
 *  your own copies at addresses that are multiples of the piece size. The library splits its own copies at the same
 *  addresses. If the driver refuses pieces of this size, the library first tries pieces of 4 MiB
 *  (#TDICT_PIN_SMALL_PIECES), and then lets the driver allocate the block (#TDICT_PIN_DRIVER). */
TDICT_API tdict_memory *tdict_pinned_memory(tdict_context *context);
/** @brief Returns the memory of a device. The memory of tdict_cpu() is plain host memory.
 *  The context owns the memory. The result is never NULL. If the device is absent, every allocation fails with
 *  #TDICT_ENODEVICE, and the message gives the reason. */
TDICT_API tdict_memory *tdict_device_memory(tdict_context *context, tdict_device device);

/** The program's allocator, which the program passes to tdict_memory_create(). */
typedef struct tdict_allocator {
  size_t struct_size;
  tdict_device
      device;  /**< device of the allocated memory: the cpu or a device of the context; "auto": the default device */
  bool pinned; /**< true: the memory is page-locked for the context's devices; allowed only for the cpu */
  /** Returns a block of @p bytes bytes, aligned to 256 bytes, or NULL if out of memory. The library can call the
   *  function on any thread, and holds no lock during the call. */
  void *(*allocate)(void *user, size_t bytes);
  /** Frees the block @p data of @p bytes bytes. The library calls the function after all copies and recorded uses of
   *  the block are done. The call can be on any thread, and the library holds no lock during the call. In a forked
   *  child process, the library does not call the function for device memory. */
  void (*release)(void *user, void *data, size_t bytes);
  void *user; /**< passed to both functions */
} tdict_allocator;
/** @brief Creates a memory that calls the program's allocator. The memory can be passed to every function and option
 *  that takes a tdict_memory.
 *  @param[in]  allocator  Copied. Its functions and `user` must live as long as the memory.
 *  @param[out] out        New memory, released with tdict_memory_release(). Each storage allocated from the memory
 *                         keeps the memory alive.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument or a function is NULL, the device is invalid, or `pinned` is set for a
 *          device other than the cpu; #TDICT_ENODEVICE the device is absent; #TDICT_EDEVICE the driver failed;
 *          #TDICT_EFORKED the process is a fork of the process that created the context; #TDICT_ENOTSUP an unknown
 *          field is not zero; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_memory_create(tdict_context *context, const tdict_allocator *allocator,
                                                           tdict_memory **out, tdict_error *err);
/** @brief Drops the program's reference to a memory that tdict_memory_create() returned. NULL is allowed. */
TDICT_API void tdict_memory_release(tdict_memory *memory);

/** @brief Creates a non-blocking stream on a cuda or simulated device.
 *  @param[out] out  New stream. Destroy it with tdict_stream_destroy() before the context is destroyed.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL or @p device is the cpu; #TDICT_ENODEVICE the device is absent;
 *          #TDICT_EDEVICE the driver failed; #TDICT_EFORKED; #TDICT_ELOST; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_stream_create(tdict_context *context, tdict_device device,
                                                           tdict_stream *out, tdict_error *err);
/** @brief Destroys a stream. Work that is queued on the stream still runs. In a forked child process, the function does
 *  nothing. */
TDICT_API void tdict_stream_destroy(tdict_context *context, tdict_stream stream);
/** @brief Waits until all work that is queued on a stream is done, as cudaStreamSynchronize() does. A NULL handle means
 *  the device's legacy stream. If the device of @p stream is the cpu, the call returns immediately.
 *  @return #TDICT_OK; #TDICT_EINVAL @p context is NULL; #TDICT_EWRONGDEVICE the context does not have the stream's
 *          device, or the stream belongs to a simulated device of another context; #TDICT_ECAPTURE the stream is being
 *          captured; #TDICT_ELOST the device is lost; #TDICT_EDEVICE the driver failed; #TDICT_EFORKED the process is a
 *          fork of the process that created the context; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_stream_synchronize(tdict_context *context, tdict_stream stream,
                                                                tdict_error *err);

/** Driver resources that a context holds. Pinned memory, streams and events are counted for all devices of one driver
 *  together: all CUDA devices, or all simulated devices. */
typedef struct tdict_device_counts {
  size_t pinned_bytes, peak_pinned_bytes; /**< bytes of pinned memory now, and the maximum so far */
  size_t device_bytes;                    /**< bytes of device memory that storages use; freed blocks do not count */
  int64_t num_streams, num_events;        /**< streams and events that the library has created and not destroyed */
} tdict_device_counts;
/** @brief Reads how many driver resources a context holds on a device.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL or @p device is the cpu; #TDICT_ENODEVICE the device is absent;
 *          #TDICT_EDEVICE the driver failed; #TDICT_EFORKED; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_context_get_counts(tdict_context *context, tdict_device device,
                                                                tdict_device_counts *out, tdict_error *err);

TDICT_END_DECLS
#endif
