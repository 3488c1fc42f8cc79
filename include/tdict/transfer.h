/* Declares transfers. A transfer copies a tree to a device, to the host, or into another tree.
 *
 * Lifetime. A call reads the keys and shapes of its source before the call returns. Until all bytes are copied, the
 * transfer retains the storages of the source and of the result. The program may therefore release both trees at any
 * time.
 * Host memory. While a copy reads a host storage, tdict_tensor_data() waits. While a copy writes a host storage, the
 * accessors tdict_tensor_data() and tdict_tensor_const_data() wait. The accessors do not protect pointers that the
 * program obtained before the transfer. Before you write to the source through such a pointer, call
 * tdict_future_wait_source().
 * Device memory. Accessors of device tensors never wait. To order work of the program relative to transfers, use the
 * option `after`, tdict_future_wait_on_stream() and tdict_record_stream(). Some calls of the library read or write
 * elements on a device, for example tdict_zero(), tdict_copy() and tdict_write_rows(). Such a call first waits for
 * all earlier transfers that use the same bytes. All reads and writes of the call are complete when the call returns.
 * Order among transfers. Transfers conflict if they share bytes and at least one of them writes these bytes.
 * Conflicting transfers run in the order in which they were started. A transfer with hooks counts as started when all
 * of its hooks have returned.
 * Failure. If a transfer fails or is cancelled, the bytes that the transfer had to write are lost. Accessors return
 * NULL for tensors with lost bytes, and no call of the library reads lost bytes. If several leaves share a storage,
 * only those leaves are lost whose own bytes the transfer had to write. A leaf is valid again after a transfer or
 * another call has written all of its bytes. There are two exceptions: a strided tensor that consists of more than 2^20
 * separate runs of bytes, and a tensor whose bytes are written in more than 4096 separate parts. Such a tensor is valid
 * again only after one call writes the tensor itself, or a contiguous tensor that covers all of its bytes.
 * Objects. The hooks of an object's type pin and move the object before the copies begin. Hooks of several objects run
 * at the same time. The result has objects of the same types at the same paths. tdict/object.h says which hooks a call
 * uses. A transfer fails if an object's type has neither `to_device` nor `flatten`, unless the option `keep_objects` is
 * set. An object whose type has neither `pin_memory` nor `flatten` is not pinned, which is no error. The statistics
 * count both kinds of objects.
 * Blocks. If all tensors of a locked tree lie in one storage in the layout of tdict_create_from(), the storage is
 * copied as one block. The source itself must be locked with tdict_lock(), and must have no objects. The first transfer
 * compares the tensors with this layout. If they have it, the tree keeps a record until the tree is unlocked or freed.
 * The calls tdict_transfer_into_async(), tdict_pin_memory() and tdict_save_async() copy such a tree leaf by leaf, and
 * so do calls with the option `keep`, `conversions` or `narrow`. A lock speeds up no other transfer. The time until an
 * asynchronous call returns grows with the number of tensors. On the host of an H200 it grew by at most 0.01 us for
 * each tensor of a block. It grew by 0.02 to 0.05 us for each tensor of other trees with 1000 or more tensors.
 * Consolidated trees. tdict_consolidate() makes a tree whose tensors are in one storage. The storage of a consolidated
 * tree is copied as one block, too, and the result is consolidated. The function tdict_transfer_into_async() also
 * copies one block if both trees are consolidated and equal in keys, order of keys, dtypes and shapes. If a block is in
 * pinned memory on the host and has at most 16 MiB, one driver copy moves the block. A larger block is copied in pieces
 * of 16 MiB. If a block was copied, the byte counts of the statistics include the padding between leaves. If the copy
 * of a block fails, the error names no leaf. If a consolidated tree is a child of the source, the transfer copies the
 * child leaf by leaf. This child of the result is not consolidated.
 * Cost. O(keys of all trees), plus the copies.
 * Thread rule: any thread may call any function of this header. Several transfers can run at the same time. */
#ifndef TDICT_TRANSFER_H
#define TDICT_TRANSFER_H

#include "tdict/context.h"
#include "tdict/object.h"
#include "tdict/tree.h"
#include "tdict/wire.h"

TDICT_BEGIN_DECLS

typedef enum tdict_mode {
  TDICT_MODE_AUTO,            /**< as NON_BLOCKING_PIN (default). If the device reads ordinary host memory through the
                                   page tables of the host, contiguous leaves in memory that the library allocated are
                                   copied without pinned memory. The effect on speed was not measured */
  TDICT_MODE_BLOCKING,        /**< copies one leaf at a time and waits for each copy */
  TDICT_MODE_NON_BLOCKING,    /**< queues the copies of all leaves, then waits once */
  TDICT_MODE_NON_BLOCKING_PIN /**< threads copy pageable leaves into pinned memory in parallel, while queued
                                   copies run */
} tdict_mode;

/** Says how the library obtained the pinned memory of a transfer. */
typedef enum tdict_pin_path {
  TDICT_PIN_NONE,        /**< no pinned memory was needed, or all leaves were pinned already */
  TDICT_PIN_REGISTER,    /**< the library allocated pages and registered them with the driver */
  TDICT_PIN_DRIVER,      /**< the driver allocated the memory */
  TDICT_PIN_PAGEABLE,    /**< pinned memory was unavailable; the driver copied from ordinary memory */
  TDICT_PIN_SMALL_PIECES /**< as TDICT_PIN_REGISTER, but in pieces of 4 MiB, because the driver refused larger
                               registrations; see tdict_pinned_memory() */
} tdict_pin_path;

/** Statistics of a transfer. total_bytes, direct_bytes, staged_bytes, pageable_bytes and host_bytes count the bytes of
 *  tensors, without the padding in the staging ring. For a tree that is copied as one block, see the top of this
 *  header. */
typedef struct tdict_transfer_stats {
  size_t struct_size;
  int64_t num_leaves;         /**< tensors in the tree */
  int64_t num_shared_leaves;  /**< tensors that were not copied separately: already in place, kept, or the same bytes as
                                  another leaf */
  int64_t num_objects;        /**< objects in the tree */
  int64_t num_objects_pinned; /**< objects for which `pin_memory` was called, or whose tensors were copied into a
                                     pinned result on the cpu */
  int64_t num_objects_unpinned; /**< objects that the call had to pin and could not pin, see tdict/object.h */
  int64_t num_objects_kept;     /**< objects that `keep_objects` left where they are */
  size_t total_bytes;           /**< bytes that were copied */
  size_t direct_bytes;          /**< bytes that driver copies moved directly from or to pinned memory, or between
                                  devices, and converted bytes that kernels read from pinned memory. Also bytes of
                                  ordinary memory that #TDICT_MODE_AUTO let the device read */
  size_t staged_bytes;          /**< bytes copied through the staging ring */
  size_t pageable_bytes;        /**< bytes that driver copies read from ordinary memory */
  size_t host_bytes;            /**< bytes copied from host memory to host memory */
  int64_t num_chunks;           /**< chunks that the work was divided into */
  size_t peak_staging_bytes;    /**< largest number of bytes of the staging ring that this transfer held at once */
  size_t peak_pinned_bytes;     /**< tdict_memory_counts.peak_bytes of the context's pinned pool at the end of the
                                  transfer */
  int32_t num_threads;          /**< threads that copied, including the calling thread if the calling thread copied */
  int32_t mode;                 /**< the tdict_mode that was used */
  int32_t pin_path;             /**< a tdict_pin_path, of the staging ring or of the pinned result */
  double plan_seconds, copy_seconds, wait_seconds; /**< time spent planning, copying on host threads, and waiting for
                                                        slots of the staging ring. Copying and waiting are summed over
                                                        all threads */
  double cpu_seconds;       /**< processor time of the threads that copied, from their first chunk to their last byte,
                             without planning */
  double total_seconds;     /**< time from the call to the last byte */
  size_t peak_queued_bytes; /**< largest number of bytes that the option `max_queued_bytes` counted at once; 0 without
                                 this option */
  size_t wire_bytes; /**< bytes that driver copies moved or kernels read from host memory: from or to a device, or
                                 between devices. Differs from the other byte counts if elements are converted or
                                 narrowed. The other counts contain the bytes of the result */
  size_t peer_bytes; /**< bytes that were copied from one device to another device */
  int64_t num_keep_matches;       /**< entries that a pattern of `keep` matched; a kept child tree counts once */
  int64_t num_conversion_matches; /**< tensors that a pattern of `conversions` matched, also if they had the dtype */
} tdict_transfer_stats;
static inline tdict_transfer_stats tdict_transfer_stats_default(void) {
  tdict_transfer_stats s;
  memset(&s, 0, sizeof s);
  s.struct_size = sizeof s;
  return s;
}

typedef struct tdict_transfer_options {
  size_t struct_size;
  int32_t mode; /**< a tdict_mode */
  /** Number of threads that copy. 0: the calling thread copies. n > 0: at most n threads of the context's pool copy;
   *  the pool must have at least n threads. -1 (default): the library chooses. It uses at most one thread for each CPU
   *  of the process, and at most as many as the quota of the process's cgroup. With -1, the calling thread of a
   *  blocking call may copy too, so the call makes progress even if all threads of the pool are busy. The calling
   *  thread does not copy if 2048 leaves or more are copied, and in other cases that docs/engine.md lists. In the modes
   *  BLOCKING and NON_BLOCKING, only one thread copies: the calling thread if the call is blocking or the value is 0,
   *  else a thread of the pool. */
  int32_t num_threads;
  /** A stream. Copies from and to devices wait for the work that is queued on the stream at the time of the call. None
   *  (default): copies from the host into new device memory wait for nothing, and other copies from or to a device wait
   *  for the legacy stream of this device.
   *  While the first copy waits for a stream, the transfer leaves an eighth of the staging ring free for other
   *  transfers. An _async call with num_threads 0 may use the whole ring.
   *  The option `after` orders only accesses to device memory. Host threads read host sources without waiting for the
   *  stream. If a stream still writes a host source, wait for that stream before the call. Host destinations are
   *  written after the work that tdict_record_stream() recorded for these destinations. */
  tdict_stream after;
  tdict_memory *memory; /**< allocates the result; must belong to the target device. NULL (default): the context's
                             memory of the target device */
  bool pinned_result;   /**< for results on the cpu: allocate pinned memory, on the NUMA node of the source's device */
  /** true: the result shares an object whose type has neither `to_device` nor `flatten`. The tensors of the object stay
   *  where they are. If such a type has `pin_memory`, the call pins the object if it pins other objects. For
   *  tdict_transfer_into_async(), an object of a type without `flatten` stays in the destination as it is. false
   *  (default): for such an object, the call returns #TDICT_ENOTSUP. */
  bool keep_objects;
  /** true: host sources are hashed before and after the copies. If a source has changed, the transfer fails with
   *  #TDICT_ECHANGED and the leaf's path. The option costs two additional reads of the sources. */
  bool check_sources;
  tdict_transfer_stats *stats; /**< written when a blocking call succeeds; NULL (default): no statistics. Must be NULL
                                    for _async calls: use tdict_future_get_stats() */
  /** Patterns for entries that are not copied: tensors, objects and whole child trees. Borrowed for the call. The
   *  result shares the kept tensors and objects. tdict_transfer_into_async() does not write kept entries. The
   *  destination must have the keys of kept entries; types, shapes and dtypes of kept entries are not compared.
   *  A pattern is an escaped path. In a pattern, the key `*` stands for any one key. The key `**` stands for zero or
   *  more keys. Examples: "meta", "meta.*", "**.text". To match a star itself, write a backslash before the star.
   *  Patterns do not match the tensors inside an object.
   *  If a pattern matches no entry, the call returns #TDICT_ENOTFOUND, and err->path is the pattern. A `?` before the
   *  pattern, such as "?meta", allows this. For a key that begins with `?`, write a backslash before the `?`.
   *  A pattern must not have an empty key, a backslash at its end that escapes nothing, or a star that is only a part
   *  of a key. For such a pattern, the call returns #TDICT_EINVAL, and err->path is the pattern.
   *  If a kept tensor is not on the target device, the trees of the result that contain this tensor have no device.
   *  If `num_keep` is not 0, a consolidated tree is copied leaf by leaf, and the result is not consolidated. Cost:
   *  each pattern is compared with the path of each entry. */
  const char *const *keep;
  size_t num_keep; /**< number of patterns in `keep`; default 0 */
  /** Limit in bytes of this transfer's copies that are queued on streams and not finished. 0 (default): no limit. With
   *  a limit, the program's own copies wait less for this transfer, and the transfer may take longer. The limit counts
   *  all copies from, to and between devices, on all devices together, with the padding between leaves. The limit
   *  applies in every mode. Copies within the host are not limited. A copy is cut into chunks of at most a quarter of
   *  the limit, so four chunks fit. If the limit is below 1 MiB, two or three chunks fit. Values from 1 to 131071 are
   *  an error (#TDICT_EINVAL). A call that queues its copies itself, such as an _async call with num_threads 0, waits
   *  for its first copies before it queues more than the limit. */
  size_t max_queued_bytes;
  const tdict_conversion
      *conversions;       /**< tensors to convert to other dtypes, see tdict/wire.h. Borrowed for the call */
  size_t num_conversions; /**< number of elements in `conversions`; default 0 */
  /** true: integers and bools travel from the host to a device in fewer bytes if their values allow this, see
   *  tdict/wire.h. The results do not change. false (default): the elements travel with all bytes. */
  bool narrow;
} tdict_transfer_options;
static inline tdict_transfer_options tdict_transfer_options_default(void) {
  tdict_transfer_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
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
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.num_threads = -1;
  return o;
}

/** Work that a call has started: a transfer, a load, a save, or a call of a communicator. In the functions of futures,
 *  "transfer" means any such work. */
typedef struct tdict_future tdict_future;
typedef enum tdict_future_phase {
  TDICT_FUTURE_PENDING,
  TDICT_FUTURE_DONE,
  TDICT_FUTURE_FAILED,
  TDICT_FUTURE_CANCELLED
} tdict_future_phase;

/** @brief Sets the tensor at a path like tdict_set(). If the tree has a device and @p tensor is on another device, the
 *  call first copies @p tensor to the tree's device.
 *
 *  The tree then holds the copy instead of @p tensor. The copy is complete when the call returns, and costs as much as
 *  tdict_to_device() for one leaf.
 *  @return Errors of tdict_set() and tdict_to_device(), with err->path set to @p path. On failure nothing changes. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_to(tdict_context *context, tdict_tree *tree, const char *path,
                                                    tdict_tensor *tensor, tdict_error *err);

/** @brief Copies a tree to a device, and waits until the copies are done.
 *
 *  The result has the keys, batch size and locks of @p src, and @p device as its device. The result shares every leaf
 *  that is already on @p device, unless `pinned_result`, pinned `memory` or `conversions` requires a copy. All other
 *  leaves are copied into one new storage, contiguous and in tree order. Each of these leaves begins at a multiple of
 *  256 bytes; bytes between leaves are unspecified. If all leaves are shared and no hook runs, the call returns @p src
 *  itself, retained and unchanged. For a tree without tensors, the call returns @p src only if the device of @p src is
 *  @p device. If several leaves of @p src have the same bytes of one storage, these bytes are copied once. Leaves may
 *  be on another device of the context, and may be strided. If two devices have a direct link, copies between the
 *  devices use the link.
 *  @param[in]  src     Borrowed. The transfer retains the storages of @p src until the copies have ended.
 *  @param[in]  device  tdict_cpu() or a device of the context. TDICT_DEVICE_AUTO means the default device of the
 *                      context. An index that cannot exist, such as {TDICT_DEVICE_CPU, 5}, is an error (#TDICT_EINVAL).
 *  @param[in]  options       NULL for the defaults.
 *  @param[out] out     A new reference, written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a pointer is NULL, or an option is out of range; #TDICT_ENODEVICE the context has
 *          no such device; #TDICT_EWRONGDEVICE a leaf is on a simulated device of another context, or the options name
 *          memory or a stream of another device; #TDICT_ECAPTURE the stream `after` is being captured, even if nothing
 *          is to be copied; #TDICT_EINVAL the bytes of a leaf are lost, because an earlier transfer into the leaf
 *          failed (err->path names the leaf); #TDICT_ENOTSUP `keep_objects` is false, and an object's type has neither
 *          `to_device` nor `flatten` (err->path names the object); #TDICT_ENOTFOUND a pattern of
 *          `keep` or `conversions` matches nothing (err->path is the pattern); #TDICT_ECHANGED `check_sources` is true,
 *          and a source has changed (err->path names the leaf); #TDICT_EFORKED; #TDICT_ENOMEM; #TDICT_EDEVICE and
 *          #TDICT_ELOST with the leaf's path; the status that a hook returned, or #TDICT_EHOOK, with the object's
 *          path. */
TDICT_API TDICT_NODISCARD tdict_status tdict_to_device(tdict_context *context, const tdict_tree *src,
                                                       tdict_device device, const tdict_transfer_options *options,
                                                       tdict_tree **out, tdict_error *err);
/** @brief Starts the transfer of tdict_to_device() and returns a future. The call does not wait until the copies are
 *  done.
 *
 *  The call returns after the work is planned and submitted to the pool. If num_threads is 0, the call returns after
 *  the last copy is queued. If num_threads is -1 and the transfer copies at most 16 pinned leaves, of at most 64 MiB in
 *  all, the call may queue these copies itself. The call leaves the copies to a thread of the pool if the transfer must
 *  wait for another transfer, or if the call would have to wait to queue the copies.
 *  @param[out] out  A new future, released with tdict_future_release().
 *  @return Errors of tdict_to_device() that occur before the call returns. tdict_future_wait() returns all later
 *          errors. */
TDICT_API TDICT_NODISCARD tdict_status tdict_to_device_async(tdict_context *context, const tdict_tree *src,
                                                             tdict_device device, const tdict_transfer_options *options,
                                                             tdict_future **out, tdict_error *err);
/** @brief Copies all tensors of @p src into the tensors of @p dst, and returns a future.
 *
 *  The result of the future is @p dst. @p dst must have the keys, shapes and dtypes of @p src. @p dst may be locked.
 *  The addresses of tensors in @p dst do not change. Two tensors of @p dst may share bytes only if their sources share
 *  bytes in the same way. If strided tensors of @p dst overlap only in part, the call may fail to detect the overlap,
 *  and the common bytes are then unspecified. The call can miss an overlap if the strides of the tensors differ, or if
 *  more than 16 other tensors begin between the two tensors. If tensors of @p dst and @p src share bytes, these bytes
 *  are unspecified.
 *
 *  The call compares both trees before it copies. If they differ, nothing is written, and err->path names the leaf.
 *  @param[in] options  NULL for the defaults. `memory` and `pinned_result` must not be set.
 *  @return Errors of tdict_to_device(); #TDICT_ENOTFOUND a key is missing in one of the trees; #TDICT_ETYPE one path
 *          names entries of different kinds or objects of different types; #TDICT_ESHAPE two shapes differ;
 *          #TDICT_EDTYPE two dtypes differ; #TDICT_EREADONLY a tensor of @p dst must not be written; #TDICT_ENOTSUP
 *          `keep_objects` is false, and an object's type has no `flatten`; #TDICT_EINVAL two tensors
 *          of @p dst are the same or share bytes, but have different sources (err->path names the second tensor).
 *  @note If the transfer fails after the comparison, the bytes of @p dst are lost until a later call writes these
 *        bytes. Transfers that read lost bytes fail, including transfers that were started before the failure. */
TDICT_API TDICT_NODISCARD tdict_status tdict_transfer_into_async(tdict_context *context, tdict_tree *dst,
                                                                 const tdict_tree *src,
                                                                 const tdict_transfer_options *options,
                                                                 tdict_future **out, tdict_error *err);
/** @brief Copies a tree into pinned host memory. The result shares leaves that are already pinned. All other leaves are
 *  copied into one new pinned storage. An object is pinned by the hook `pin_memory`, else through the tensors that
 *  `flatten` returns. The result shares an object whose type has neither hook.
 *  @param[out] out  A new reference, written on success only.
 *  @return #TDICT_OK; #TDICT_EWRONGDEVICE a leaf is on a device, and err->path names the leaf; #TDICT_ENODEVICE the
 *          context has no device that can read pinned memory; #TDICT_ENOTFOUND a pattern of `keep` matches no entry;
 *          #TDICT_EINVAL an option is invalid, or the bytes of a
 *          leaf are lost; #TDICT_ENOMEM pinned memory is exhausted; #TDICT_EDEVICE; #TDICT_EFORKED; the status that a
 *          hook returned, or #TDICT_EHOOK. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pin_memory(tdict_context *context, const tdict_tree *src,
                                                        const tdict_pin_options *options, tdict_tree **out,
                                                        tdict_error *err);
/** @brief Pins one object, as tdict_pin_memory() pins the objects of a tree. The caller still owns @p self.
 *  @param[out] out  A new object of the type, owned by the caller. If the hook `pin_memory` returned @p self, *@p out
 *                   is @p self. For a type without this hook, *@p out is @p self if the type has no `flatten`, or if
 *                   all tensors of the object are pinned already.
 *  @return Errors of tdict_pin_memory(); #TDICT_EINVAL an argument is NULL, or tdict_set_object() does not accept the
 *           type. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pin_object(tdict_context *context, const tdict_type *type, void *self,
                                                        const tdict_pin_options *options, void **out, tdict_error *err);
/** @brief Returns true if every host tensor of the tree is pinned, and the hook `is_pinned` returns true for every
 *  object whose type has this hook. Returns true for a tree without host tensors and without objects of such types. */
TDICT_API bool tdict_is_pinned(const tdict_tree *tree);

/** @brief Records that the work that is already queued on @p stream uses the tree.
 *
 *  The library does not free, reuse or overwrite any byte of the tree before this work is done. The bytes of an object
 *  are the bytes of the tensors that `flatten` returns. The work is also recorded for memory of the program and for
 *  imported tensors. The library calls the release functions of such memory after the work is done. The library finds
 *  the GPU of @p stream through the memory of a context, so the tree needs at least one tensor in such memory. The call
 *  never waits. If the call fails, the work may be recorded for only some storages of the tree.
 *  @return #TDICT_OK; #TDICT_EINVAL @p tree is NULL; #TDICT_EWRONGDEVICE no tensor of the tree is in memory that a
 *          context allocated on the stream's device or pinned for this device; #TDICT_ECAPTURE the stream is being
 *          captured; #TDICT_EDEVICE; #TDICT_ELOST; #TDICT_EFORKED; #TDICT_ENOMEM; the status that `flatten` returned,
 *          or #TDICT_EHOOK. */
TDICT_API TDICT_NODISCARD tdict_status tdict_record_stream(const tdict_tree *tree, tdict_stream stream,
                                                           tdict_error *err);

/** @brief Waits until the transfer has ended. A program may call tdict_future_wait() several times.
 *  @param[out] out  May be NULL. A new reference to the result, written on success only. NULL if there is none.
 *  @return #TDICT_OK; the error of the transfer on every call, with the path of the leaf if the error is about one
 *          leaf; #TDICT_ECANCELLED; #TDICT_EDEADLOCK a hook of this transfer waits for the transfer; #TDICT_EFORKED the
 *          process is a fork and the transfer had not ended; #TDICT_EINVAL @p future is NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_wait(tdict_future *future, tdict_tree **out, tdict_error *err);
/** @brief Waits like tdict_future_wait(), and then releases the caller's reference, also after an error.
 *  @param[out] out  May be NULL. A new reference to the result, written on success only.
 *  @return Errors of tdict_future_wait(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_take(tdict_future *future, tdict_tree **out, tdict_error *err);
/** @brief Waits like tdict_future_wait(), for at most @p timeout_ns nanoseconds.
 *  @return Errors of tdict_future_wait(); #TDICT_ETIMEDOUT the transfer has not ended (the program may wait again);
 *          #TDICT_EINVAL @p timeout_ns is negative. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_wait_for(tdict_future *future, int64_t timeout_ns, tdict_tree **out,
                                                             tdict_error *err);
/** @brief Makes a stream wait for the transfer. The call itself waits only until every copy is queued.
 *
 *  If the staging ring can hold all bytes of the transfer, all copies are queued soon after the start. Otherwise the
 *  last copy is queued only shortly before the transfer ends. If the result is in host memory, tdict_tensor_data() and
 *  tdict_tensor_const_data() of its tensors wait until the bytes are written.
 *  @param[out] out  May be NULL. A new reference to the result, written on success only.
 *  @return Errors of tdict_future_wait(); #TDICT_EWRONGDEVICE the stream belongs to the cpu, to a device that the
 *          context does not have, or to a kind of device (cuda or sim) that the transfer does not use; #TDICT_ECAPTURE
 *          the stream is being captured; #TDICT_EDEVICE. The stream is checked first, even if the transfer has ended.
 *  @note If the transfer fails after tdict_future_wait_on_stream() has returned, tdict_future_wait() returns the error.
 *        If the result is a new tree, the error can be without a path, because the program may have changed the tree.
 *        Accessors of tensors of the result then return NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_wait_on_stream(tdict_future *future, tdict_stream stream,
                                                                   tdict_tree **out, tdict_error *err);
/** @brief Waits until the transfer no longer reads the source. Then the program may write or free the source, even
 *  through pointers that the program obtained before the transfer. For a save, waits for the snapshot only.
 *  @return Errors of tdict_future_wait(). If the transfer has failed, the program may write or free the source too. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_wait_source(tdict_future *future, tdict_error *err);
/** @brief Asks the transfer to stop, and returns immediately.
 *
 *  The transfer starts no new copies and no longer waits for slots of the staging ring. Copies in flight are completed.
 *  The transfer ends in the state #TDICT_FUTURE_CANCELLED. If the transfer ended or failed before the request, its
 *  state does not change. NULL is allowed. */
TDICT_API void tdict_future_cancel(tdict_future *future);
/** @brief Returns true if the transfer has ended, with success or failure. Never waits. */
TDICT_API bool tdict_future_is_ready(const tdict_future *future);
/** @brief Returns the state of the transfer. Never waits, not even in a forked process. */
TDICT_API tdict_future_phase tdict_future_state(const tdict_future *future);
/** @brief Writes the statistics of a transfer that has ended.
 *  @param[in,out] out  From tdict_transfer_stats_default(). At most out->struct_size bytes are written.
 *  @return #TDICT_OK; #TDICT_EINVAL the transfer has not ended, an argument is NULL, or out->struct_size is invalid. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_get_stats(const tdict_future *future, tdict_transfer_stats *out,
                                                              tdict_error *err);
/** @brief Adds a reference and returns @p future. */
TDICT_API tdict_future *tdict_future_retain(const tdict_future *future);
/** @brief Drops a reference. A running transfer continues. NULL is allowed. If no call has written the error of a
 *  failed transfer to a tdict_error, dropping the last reference writes the error to the context's log. Cancelled
 *  transfers are not logged. */
TDICT_API void tdict_future_release(tdict_future *future);

TDICT_END_DECLS
#endif
