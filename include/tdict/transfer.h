/* Declares transfers. A transfer copies a tree to a device, to the host, or into another tree.
 *
 * The program may release the source and the result at any time. Accessors of host memory, such as tdict_tensor_data(),
 * wait for running copies. Accessors of device tensors never wait. Transfers that share bytes run in the order of their
 * calls. See docs/transfers.md for these rules, the effect of failures, and trees that are copied as one block.
 *
 * Errors of all calls that start a transfer. err->path names the leaf, the object or the pattern:
 * - #TDICT_EINVAL: a NULL pointer, an invalid option or pattern, or a leaf whose bytes a failed transfer has lost.
 * - #TDICT_ENODEVICE: the context has no such device.
 * - #TDICT_EWRONGDEVICE: a leaf is on a simulated device of another context, or an option belongs to another device.
 * - #TDICT_ECAPTURE: the stream `after` is being captured, even if nothing is to be copied.
 * - #TDICT_ENOTSUP: an object cannot be moved, and `keep_objects` is false.
 * - #TDICT_ENOTFOUND: a pattern of `keep` or `conversions` matches nothing.
 * - #TDICT_ECHANGED: `check_sources` is true, and a source has changed.
 * - The status of a hook, or #TDICT_EHOOK; #TDICT_EFORKED, #TDICT_ENOMEM, #TDICT_EDEVICE, #TDICT_ELOST.
 * An _async call returns the errors that occur before it returns. The functions that wait return all later errors.
 *
 * Results are new references, written on success only. NULL options are the defaults. Cost: O(keys of all trees), plus
 * the copies. Thread rule: any thread may call any function of this header. Several transfers can run at once. */
#ifndef TDICT_TRANSFER_H
#define TDICT_TRANSFER_H

#include "tdict/context.h"
#include "tdict/object.h"
#include "tdict/tree.h"
#include "tdict/wire.h"

TDICT_BEGIN_DECLS

typedef enum tdict_mode {
  TDICT_MODE_AUTO,            /**< as NON_BLOCKING_PIN (default), except on devices that read ordinary host memory */
  TDICT_MODE_BLOCKING,        /**< copies one leaf at a time and waits for each copy */
  TDICT_MODE_NON_BLOCKING,    /**< queues the copies of all leaves, then waits once */
  TDICT_MODE_NON_BLOCKING_PIN /**< threads copy pageable leaves into pinned memory, while queued copies run */
} tdict_mode;

/** Says how the library obtained the pinned memory of a transfer. */
typedef enum tdict_pin_path {
  TDICT_PIN_NONE,        /**< no pinned memory was needed, or all leaves were pinned already */
  TDICT_PIN_REGISTER,    /**< the library allocated pages and registered them with the driver */
  TDICT_PIN_DRIVER,      /**< the driver allocated the memory */
  TDICT_PIN_PAGEABLE,    /**< pinned memory was unavailable; the driver copied from ordinary memory */
  TDICT_PIN_SMALL_PIECES /**< as REGISTER, in pieces of 4 MiB, because the driver refused larger registrations */
} tdict_pin_path;

/** Statistics of a transfer. Sizes are in bytes of tensors, without padding in the staging ring. If elements are
 *  converted, all but `wire_bytes` count bytes of the result. docs/transfers.md describes blocks. */
typedef struct tdict_transfer_stats {
  size_t struct_size;
  int64_t num_leaves;           /**< tensors in the tree */
  int64_t num_shared_leaves;    /**< tensors in place, kept, or with the same bytes as another leaf */
  int64_t num_objects;          /**< objects in the tree */
  int64_t num_objects_pinned;   /**< objects pinned by `pin_memory`, or by their tensors for a pinned result */
  int64_t num_objects_unpinned; /**< objects that the call had to pin and could not pin */
  int64_t num_objects_kept;     /**< objects that `keep_objects` left where they are */
  size_t total_bytes;           /**< bytes that were copied */
  size_t direct_bytes;          /**< bytes of driver copies without the staging ring, from or to pinned memory or
                                   between devices; also bytes that kernels or #TDICT_MODE_AUTO read directly */
  size_t staged_bytes;          /**< bytes copied through the staging ring */
  size_t pageable_bytes;        /**< bytes that driver copies read from ordinary memory */
  size_t host_bytes;            /**< bytes copied from host memory to host memory */
  int64_t num_chunks;           /**< chunks that the work was divided into */
  size_t peak_staging_bytes;    /**< most bytes of the staging ring that this transfer held at once */
  size_t peak_pinned_bytes;     /**< tdict_memory_counts.peak_bytes of the pinned pool at the end of the transfer */
  int32_t num_threads;          /**< threads that copied, with the calling thread if it copied */
  int32_t mode;                 /**< the tdict_mode that was used */
  int32_t pin_path;             /**< a tdict_pin_path, of the staging ring or of the pinned result */
  /** Time to plan. Summed over threads: time to copy on the host; to wait for slots, queued copies and the pace. */
  double plan_seconds, copy_seconds, wait_seconds;
  double cpu_seconds;             /**< processor time of the threads that copied, without planning */
  double total_seconds;           /**< time from the call to the last byte */
  size_t peak_queued_bytes;       /**< most bytes that `max_queued_bytes` counted at once; 0 without a limit */
  size_t wire_bytes;              /**< bytes on the link: moved by driver copies, or read from host memory by kernels */
  size_t peer_bytes;              /**< bytes that were copied from one device to another device */
  int64_t num_keep_matches;       /**< entries that a pattern of `keep` matched; a kept child tree counts once */
  int64_t num_conversion_matches; /**< tensors that `conversions` matched, also if they had the dtype */
} tdict_transfer_stats;
static inline tdict_transfer_stats tdict_transfer_stats_default(void) {
  tdict_transfer_stats s;
  tdict_init_struct_(s);
  return s;
}

typedef struct tdict_transfer_options {
  size_t struct_size;
  int32_t mode; /**< a tdict_mode */
  /** Most threads that copy. -1 (default): the library chooses, see docs/engine.md. 0: the calling thread copies alone.
   *  n > 0: at most n threads of the context's pool, which must have as many. See docs/howto/threads.md. */
  int32_t num_threads;
  /** A stream. Accesses to device memory wait for its queued work. Host accesses do not wait. None (default): copies
   *  from the host into new device memory do not wait, and others wait for the legacy stream of their device. */
  tdict_stream after;
  tdict_memory *memory; /**< allocates the result, on the target device. NULL (default): the context's memory */
  bool pinned_result;   /**< for results on the cpu: pinned memory, on the NUMA node of the source's device */
  bool keep_objects;    /**< true: objects without `to_device` and `flatten` stay where they are, and are shared, or
                             stay in an existing destination. false (default): they are errors */
  bool check_sources;   /**< true: hashes host sources before and after the copies, which reads them twice more */
  tdict_transfer_stats *stats; /**< written when a blocking call succeeds; NULL (default): none. Must be NULL for _async
                                    calls: use tdict_future_get_stats() */
  /** Patterns for tensors, objects and child trees that the result shares and no copy writes. A pattern is a path in
   *  which `*` is any one key, and `**` is zero or more keys. See docs/transfers.md. Borrowed for the call. */
  const char *const *keep;
  size_t num_keep; /**< number of patterns in `keep`; default 0 */
  /** Most bytes of queued, unfinished copies, 131072 or more; SIZE_MAX: no limit. 0 (default): the library chooses a
   *  limit for large transfers from ordinary host memory to a device, and none for others. See docs/tuning.md. */
  size_t max_queued_bytes;
  const tdict_conversion *conversions; /**< dtypes of tensors, see tdict/wire.h. Borrowed for the call */
  size_t num_conversions;              /**< number of elements in `conversions`; default 0 */
  bool narrow; /**< true: integers and bools travel to a device in fewer bits, see tdict/wire.h. Default: false */
  int64_t max_bytes_per_second; /**< limit of the rate, 1000000 or more, see docs/tuning.md; 0 (default): no limit */
} tdict_transfer_options;
static inline tdict_transfer_options tdict_transfer_options_default(void) {
  tdict_transfer_options o;
  tdict_init_struct_(o);
  o.mode = TDICT_MODE_AUTO;
  o.num_threads = -1;
  return o;
}

typedef struct tdict_pin_options {
  size_t struct_size;
  int32_t num_threads;         /**< see tdict_transfer_options */
  tdict_transfer_stats *stats; /**< see tdict_transfer_options */
  const char *const *keep;     /**< see tdict_transfer_options; kept tensors may be on any device */
  size_t num_keep;             /**< see tdict_transfer_options */
} tdict_pin_options;
static inline tdict_pin_options tdict_pin_options_default(void) {
  tdict_pin_options o;
  tdict_init_struct_(o);
  o.num_threads = -1;
  return o;
}

/** Work that a call has started: a transfer, a load, a save, or a call of a communicator, below called a transfer. */
typedef struct tdict_future tdict_future;
typedef enum tdict_future_phase {
  TDICT_FUTURE_PENDING,
  TDICT_FUTURE_DONE,
  TDICT_FUTURE_FAILED,
  TDICT_FUTURE_CANCELLED
} tdict_future_phase;

/** @brief Sets the tensor at a path, as a copy on the tree's device if it is on another device.
 *  Without a copy, as tdict_set(). The copy costs a blocking transfer of one leaf.
 *  @return Errors of tdict_set() and tdict_to_device(), with err->path set to @p path. On failure nothing changes. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_to(tdict_context *context, tdict_tree *tree, const char *path,
                                                    tdict_tensor *tensor, tdict_error *err);

/** @brief Copies a tree to a device, and waits until the copies are done.
 *
 *  The result has the keys, batch size and locks of @p src, and shares leaves that are in place. Leaves to copy may be
 *  strided or on another device. They are contiguous in one new storage, in tree order, at multiples of 256 bytes.
 *  If nothing is to be done, the result is @p src itself, retained. docs/transfers.md has the details.
 *  @param[in]  src      Borrowed. The transfer retains its storages until the copies have ended.
 *  @param[in]  device   tdict_cpu() or a device of the context. TDICT_DEVICE_AUTO is the context's default device.
 *  @return The errors at the top; #TDICT_EINVAL an index that cannot exist, such as {TDICT_DEVICE_CPU, 5}. */
TDICT_API TDICT_NODISCARD tdict_status tdict_to_device(tdict_context *context, const tdict_tree *src,
                                                       tdict_device device, const tdict_transfer_options *options,
                                                       tdict_tree **out, tdict_error *err);
/** @brief Starts the transfer of tdict_to_device(), and returns a future without waiting for the copies. The call
 *  returns after the work is submitted to the pool or, with `num_threads` 0, after the last copy is queued.
 *  @param[out] out  A new future, released with tdict_future_release().
 *  @return The errors of tdict_to_device(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_to_device_async(tdict_context *context, const tdict_tree *src,
                                                             tdict_device device, const tdict_transfer_options *options,
                                                             tdict_future **out, tdict_error *err);
/** @brief Copies all tensors of @p src into the tensors of @p dst.
 *
 *  @p dst must have the keys, shapes and dtypes of @p src, and may be locked. The addresses of its tensors stay. Its
 *  tensors may share bytes only as their sources do. Bytes that @p dst and @p src share are unspecified afterwards.
 *  @param[in] options  `memory` and `pinned_result` must not be set.
 *  @return The errors at the top. These occur before anything is written: #TDICT_ENOTFOUND a key is missing in a tree;
 *          #TDICT_ETYPE entries of different kinds, or objects of different types; #TDICT_ESHAPE; #TDICT_EDTYPE;
 *          #TDICT_EREADONLY a tensor of @p dst; #TDICT_ENOTSUP an object without `flatten`, and `keep_objects` is
 *          false; #TDICT_EINVAL a tensor of @p dst shares bytes with an earlier one that has another source.
 *  @note If the transfer fails later, the bytes of @p dst are lost until a later call writes them. */
TDICT_API TDICT_NODISCARD tdict_status tdict_transfer_into(tdict_context *context, tdict_tree *dst,
                                                           const tdict_tree *src, const tdict_transfer_options *options,
                                                           tdict_error *err);
/** @brief Starts the transfer of tdict_transfer_into(), and returns a future, whose result is @p dst.
 *  @return The errors of tdict_transfer_into(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_transfer_into_async(tdict_context *context, tdict_tree *dst,
                                                                 const tdict_tree *src,
                                                                 const tdict_transfer_options *options,
                                                                 tdict_future **out, tdict_error *err);
/** @brief Copies a tree into pinned host memory. The result shares leaves that are pinned already.
 *  The other leaves are copied into one new pinned storage. An object is pinned by the hook `pin_memory`,
 *  else through the tensors of `flatten`, else it is shared.
 *  @return The errors at the top; #TDICT_EWRONGDEVICE a leaf is on a device; #TDICT_ENODEVICE no device to pin for. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pin_memory(tdict_context *context, const tdict_tree *src,
                                                        const tdict_pin_options *options, tdict_tree **out,
                                                        tdict_error *err);
/** @brief Returns true if all host tensors are pinned, and all objects by their hook `is_pinned`.
 *  Objects without this hook do not count. Returns true if there are no such tensors and objects. */
TDICT_API bool tdict_is_pinned(const tdict_tree *tree);

/** @brief Records that the work that is already queued on @p stream uses the tree. Never waits.
 *
 *  The library does not free, reuse or overwrite the bytes of the tree before this work is done. That includes tensors
 *  of objects with `flatten`, memory of the program, and imported tensors. On failure, wait for the stream instead.
 *  @return #TDICT_EINVAL @p tree is NULL; #TDICT_EWRONGDEVICE no tensor of the tree is in memory that a context
 *          allocated on the stream's device or pinned for this device; #TDICT_ECAPTURE @p stream is being captured;
 *          #TDICT_EDEVICE; #TDICT_ELOST; #TDICT_EFORKED; #TDICT_ENOMEM; the status of `flatten`, or #TDICT_EHOOK. */
TDICT_API TDICT_NODISCARD tdict_status tdict_record_stream(const tdict_tree *tree, tdict_stream stream,
                                                           tdict_error *err);

/** @brief Waits until the transfer has ended. May be called several times.
 *  @param[out] out  May be NULL. A new reference to the result; NULL if there is none.
 *  @return The error of the transfer, on every call; #TDICT_ECANCELLED; #TDICT_EDEADLOCK a hook waits for its own
 *          transfer; #TDICT_EFORKED in a fork, the transfer had not ended; #TDICT_EINVAL @p future is NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_wait(tdict_future *future, tdict_tree **out, tdict_error *err);
/** @brief Waits as tdict_future_wait(), and then releases the caller's reference, also after an error.
 *  @return The errors of tdict_future_wait(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_take(tdict_future *future, tdict_tree **out, tdict_error *err);
/** @brief Waits as tdict_future_wait(), for at most @p timeout_ns nanoseconds.
 *  @return Errors of tdict_future_wait(); #TDICT_ETIMEDOUT not ended: wait again; #TDICT_EINVAL @p timeout_ns < 0. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_wait_for(tdict_future *future, int64_t timeout_ns, tdict_tree **out,
                                                             tdict_error *err);
/** @brief Makes a stream wait for the transfer. The call itself waits only until every copy is queued.
 *
 *  If the staging ring cannot hold all bytes, the last copy is queued only shortly before the transfer ends. Accessors
 *  of a result in host memory wait until the bytes are written.
 *  @param[out] out  As in tdict_future_wait().
 *  @return Errors of tdict_future_wait(). The stream is checked first, even if the transfer has ended;
 *          #TDICT_EWRONGDEVICE a stream of the cpu, of no device of the context, or of another kind (cuda or sim) than
 *          the transfer uses; #TDICT_ECAPTURE the stream is being captured; #TDICT_EDEVICE.
 *  @note If the transfer fails later, tdict_future_wait() returns the error, for a new tree perhaps without a path.
 *        Accessors of tensors of the result then return NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_wait_on_stream(tdict_future *future, tdict_stream stream,
                                                                   tdict_tree **out, tdict_error *err);
/** @brief Waits until the program may write or free the source, even through pointers from before the transfer.
 *  For a save, waits for the snapshot only.
 *  @return Errors of tdict_future_wait(). If the transfer has failed, the program may write or free the source too. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_wait_source(tdict_future *future, tdict_error *err);
/** @brief Asks the transfer to stop, and returns immediately. NULL is allowed. Copies in flight are completed, and no
 *  others start. The state becomes #TDICT_FUTURE_CANCELLED, unless the transfer has ended. */
TDICT_API void tdict_future_cancel(tdict_future *future);
/** @brief Returns the state of the transfer. Never waits, not even in a forked process. */
TDICT_API tdict_future_phase tdict_future_state(const tdict_future *future);
/** @brief Returns true if the transfer has ended, with success or failure. Never waits. */
static inline bool tdict_future_is_ready(const tdict_future *future) {
  return tdict_future_state(future) != TDICT_FUTURE_PENDING;
}
/** @brief Writes the statistics of a transfer that has ended, at most `out->struct_size` bytes.
 *  @return #TDICT_EINVAL the transfer has not ended, an argument is NULL, or `struct_size` is invalid. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_get_stats(const tdict_future *future, tdict_transfer_stats *out,
                                                              tdict_error *err);
/** @brief Adds a reference and returns @p future. */
TDICT_API tdict_future *tdict_future_retain(const tdict_future *future);
/** @brief Drops a reference. A running transfer continues. NULL is allowed.
 *  The last release logs the error of a failed transfer, if no call has returned it. Cancelling is not logged. */
TDICT_API void tdict_future_release(tdict_future *future);

TDICT_END_DECLS
#endif
