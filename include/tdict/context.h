/* The context: devices, memories, threads and staging of one program, made once and used everywhere.
 *
 * Thread rule: every call but create and destroy may be made from any thread at any time. */
#ifndef TDICT_CONTEXT_H
#define TDICT_CONTEXT_H

#include "tdict/memory.h"
#include "tdict/sim.h"

TDICT_BEGIN_DECLS

#define TDICT_LOG_ERROR 1
#define TDICT_LOG_WARNING 2
#define TDICT_LOG_INFO 3

typedef struct tdict_context_options {
  size_t struct_size;
  /** The default device. All zero (default) is "auto": cuda:0 when there is one, else sim:0 when `sim` is given, else
   *  the cpu. */
  tdict_device device;
  /** Threads of the pool, 1 to 1024; -1 (default): one for each CPU of the process's mask, at least 8. They take none
   *  of the program's signals. */
  int32_t num_threads;
  size_t staging_bytes; /**< pinned bytes of the staging ring of each device; default 64 MiB, at least 64 KiB */
  size_t pinned_bytes;  /**< the most that the pinned pool holds, live and cached; 0 (default): no limit */
  /** Freed device memory kept for reuse, per device; default SIZE_MAX: all of it. */
  size_t device_cache_bytes;
  /** NULL (default): silence. Called from any thread, with no lock held; must not call the library.
   *  tdict_context_destroy() waits for calls that are running, and none begins after it. */
  void (*log)(void *user, int32_t level, const char *text);
  void *user; /**< for `log` */
  /** Threads, chunks and stores for each size, as `tdict-bench tune` measured them; NULL (default): a built-in table.
   *  Read by the call. */
  const char *tuning_file;
  /** Simulated devices beside the others; borrowed for the call; NULL: none, unless `device` is one. */
  const tdict_sim_options *sim;
  /** 0 (default): each block of pinned memory is one registration. Else blocks are registered in pieces of so many
   *  bytes, rounded up to a multiple of 4 MiB: see tdict_pinned_memory(). */
  size_t pin_piece_bytes;
} tdict_context_options;
static inline tdict_context_options tdict_context_options_default(void) {
  tdict_context_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.num_threads = -1;
  o.staging_bytes = (size_t)64 << 20;
  o.device_cache_bytes = (size_t)-1;
  return o;
}

/** @brief Makes a context: starts its threads and opens its default device.
 *  @param[in] options  NULL for the defaults. A struct that an older or newer header made is taken by its struct_size:
 *                      missing fields have their defaults, unknown ones must be zero.
 *  @return #TDICT_OK; #TDICT_EINVAL an option out of range; #TDICT_ENODEVICE the device that was named is absent, the
 *          message says why; #TDICT_EIO the tuning file cannot be read, #TDICT_EFORMAT it is none, the message names
 *          file, line, what was wanted and found; #TDICT_ENOTSUP a field that this library does not know;
 *          #TDICT_ENOMEM, #TDICT_EDEVICE. */
TDICT_API TDICT_NODISCARD tdict_status tdict_context_create(const tdict_context_options *options, tdict_context **out,
                                                            tdict_error *err);
/** @brief Waits for transfers that are under way, joins the threads, frees what nobody uses; NULL is allowed.
 *  Trees, tensors and finished futures outlive it and are released as ever. No other call on the context may run or
 *  follow. */
TDICT_API void tdict_context_destroy(tdict_context *context);

/** @brief The default device.
 *  @param[out] why  may be NULL; if the device is no GPU, says why none is used (#TDICT_ENODEVICE), else untouched. */
TDICT_API tdict_device tdict_context_device(const tdict_context *context, tdict_error *why);
/** @brief The number of threads in the pool. */
TDICT_API int tdict_context_num_threads(const tdict_context *context);
/** @brief Gives cached memory that is not in use back until at most @p keep_bytes are cached: of the pinned pool for
 *  tdict_cpu(), else of the device's memory. Does nothing for an absent device. */
TDICT_API void tdict_context_trim(tdict_context *context, tdict_device device, size_t keep_bytes);

/** @brief Page-locked host memory, pooled, for all devices of the context. Never NULL; without a device that could read
 *  it every allocation fails with #TDICT_ENODEVICE and the reason. Owned by the context. Where the machine has several
 *  memory nodes, blocks from 2 MiB on are asked for on that of the default device's GPU, if it is known.
 *
 *  **Copies that the program makes by itself** (cudaMemcpyAsync, NCCL, a DLPack consumer): the driver refuses a copy
 *  that crosses the border of two registrations with CUDA_ERROR_INVALID_VALUE. Each block is one registration, so one
 *  copy may take any leaf, and all leaves of a tree that share a block. If the driver refuses the registration, the
 *  driver allocates the block (#TDICT_PIN_DRIVER): that block has no border either. If this fails, too, the block is
 *  registered in pieces of 4 MiB (#TDICT_PIN_SMALL_PIECES), and copies must be cut at multiples of 4 MiB. The context's
 *  log gets a warning at the first block of either kind.
 *
 *  **The price of large blocks.** While a block is registered or unregistered, no other thread can queue a copy or
 *  kernel. With `pin_piece_bytes`, the library registers piece by piece and pauses after each. The times below are of
 *  an NVIDIA H200, by `bench/pinning`: medians of nine new processes. A wait is the longest of another thread's small
 *  copies.
 *  - 1 GiB takes 49 ms, and others wait 28 ms. In pieces of 32 MiB it takes 36 ms, and others wait 1.2 ms.
 *  - 4 GiB take 194 ms, and others wait 110 ms. In pieces of 32 MiB they take 151 ms, and others wait 1.3 ms.
 *  - Unpinning 4 GiB takes 88 ms, and others wait 74 ms. In pieces it takes 135 ms, and others wait 1 ms.
 *
 *  In return, the program must cut its own copies from blocks larger than a piece. The cuts are at addresses that are
 *  multiples of the piece. tdict's own copies are cut there. A block of up to a piece crosses no border. If the driver
 *  refuses the pieces, pieces of 4 MiB are tried before the driver allocates. */
TDICT_API tdict_memory *tdict_pinned_memory(tdict_context *context);
/** @brief Memory of a device; plain host memory for tdict_cpu(). Never NULL; for an absent device every allocation
 *  fails with #TDICT_ENODEVICE and the reason. Owned by the context. */
TDICT_API tdict_memory *tdict_device_memory(tdict_context *context, tdict_device device);

/** A program's own allocator. */
typedef struct tdict_allocator {
  size_t struct_size;
  tdict_device device; /**< where its memory is: the cpu, or a device of the context; "auto": the default device */
  bool pinned;         /**< on the cpu: it is page-locked for the context's devices */
  /** Aligned to 256; NULL: there is none. Any thread, no lock held. */
  void *(*allocate)(void *user, size_t bytes);
  /** Copies and recorded uses are done; any thread, no lock held. */
  void (*release)(void *user, void *data, size_t bytes);
  void *user;
} tdict_allocator;
/** @brief A memory over the program's own allocator, for tensors, trees and the `memory` of a transfer. Ended by
 *  tdict_memory_release(); storage made from it keeps it alive, and the allocator must live as long.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL, a device that is no place, or pinned memory on a device; #TDICT_ENODEVICE;
 *          #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_memory_create(tdict_context *context, const tdict_allocator *allocator,
                                                           tdict_memory **out, tdict_error *err);
/** @brief Drops the program's reference to a memory that tdict_memory_create() made; NULL is allowed. */
TDICT_API void tdict_memory_release(tdict_memory *memory);

/** @brief A new non-blocking stream of a cuda or simulated device; the program ends it with tdict_stream_destroy()
 *  before it destroys the context.
 *  @return #TDICT_OK; #TDICT_ENODEVICE; #TDICT_EDEVICE; #TDICT_EINVAL for the cpu. */
TDICT_API TDICT_NODISCARD tdict_status tdict_stream_create(tdict_context *context, tdict_device device,
                                                           tdict_stream *out, tdict_error *err);
/** @brief Ends a stream; what is queued on it still runs. Does nothing in a fork. */
TDICT_API void tdict_stream_destroy(tdict_context *context, tdict_stream stream);
/** @brief Waits until all work that is queued on a stream has run, as cudaStreamSynchronize() does. A handle of NULL is
 *  the device's legacy stream. Returns at once for the cpu.
 *  @return #TDICT_OK; #TDICT_EINVAL @p context is NULL; #TDICT_EWRONGDEVICE the stream is of a device that the context
 *          does not have, as another context's simulated device is; #TDICT_ECAPTURE it is being captured; #TDICT_ELOST,
 *          #TDICT_EDEVICE; #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_stream_synchronize(tdict_context *context, tdict_stream stream,
                                                                tdict_error *err);

/** What a device has in use, for programs that watch themselves: bytes registered or allocated as pinned memory,
 *  bytes of device memory, live streams and events, all as counted at the driver's table. */
typedef struct tdict_device_counts {
  size_t pinned_bytes, peak_pinned_bytes; /**< bytes; of the whole driver, not of one device */
  size_t device_bytes;
  int64_t num_streams, num_events;
} tdict_device_counts;
/** @brief Reads the counts of a device.
 *  @return #TDICT_OK; #TDICT_ENODEVICE; #TDICT_EINVAL for the cpu. */
TDICT_API TDICT_NODISCARD tdict_status tdict_context_get_counts(tdict_context *context, tdict_device device,
                                                                tdict_device_counts *out, tdict_error *err);

TDICT_END_DECLS
#endif
