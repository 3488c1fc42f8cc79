/* Transfers: a tree moves to a device, to the host, or into another tree.
 *
 * A transfer reads the structure of its source before the call returns; it keeps source and result storages alive until
 * their bytes are through, whoever releases the trees. While a copy reads a host storage tdict_tensor_data() waits,
 * while a copy writes it both accessors wait; a pointer kept from before the transfer is the program's own. Device
 * addresses never wait: `after`, tdict_future_wait_on_stream() and tdict_record_stream() order what the program does
 * with them. The library's own calls on device trees (tdict_zero(), tdict_clone_deep(), tdict_write_row() and all
 * others that touch elements) are ordered: they run after the transfers that have started on their bytes, and have
 * finished when they return.
 * If a transfer fails or is cancelled, the bytes that it was to write never came. Accessors give NULL for them, and no
 * call of the library reads them. Leaves that share a storage are told apart. A leaf becomes valid again when a
 * transfer or another call has written all of its bytes. Exceptions, which stay lost until a call writes the tensor
 * itself or a dense one over it: strided tensors of more than a million rows, and those rewritten in more than 4096
 * separate parts. Transfers that share bytes run in the order in which they were started, if one of them writes; one
 * with hooks takes its place when its hooks have run.
 * Objects are moved by their type's hooks before the copies begin, several at once: by `to_device` (given the pinned
 * object if the type pins, too) or `pin_memory`; else by `flatten`, their tensors in one plan with all others; else
 * they pass untouched and are counted. The result has objects of the same type at the same paths.
 * The cost of a transfer grows linearly with the depth of the tree.
 * Thread rule: every call may be made from any thread; several transfers run at once. */
#ifndef TDICT_TRANSFER_H
#define TDICT_TRANSFER_H

#include "tdict/context.h"
#include "tdict/object.h"
#include "tdict/tree.h"

TDICT_BEGIN_DECLS

typedef enum tdict_mode {
  TDICT_MODE_AUTO,            /**< the library chooses (default) */
  TDICT_MODE_BLOCKING,        /**< copies and waits leaf by leaf: the reference */
  TDICT_MODE_NON_BLOCKING,    /**< queues every leaf's copy, waits once */
  TDICT_MODE_NON_BLOCKING_PIN /**< workers bring pageable leaves into pinned memory in parallel while copies that are
                                   queued already run */
} tdict_mode;

/** How pinned memory was obtained. */
typedef enum tdict_pin_path {
  TDICT_PIN_NONE,        /**< none was needed, or it was there already */
  TDICT_PIN_REGISTER,    /**< pages of our own, registered with the driver */
  TDICT_PIN_DRIVER,      /**< allocated by the driver */
  TDICT_PIN_PAGEABLE,    /**< pinned memory was unavailable; copied from ordinary memory */
  TDICT_PIN_SMALL_PIECES /**< as TDICT_PIN_REGISTER, in pieces of 4 MiB, because the driver refused larger
                               registrations: see tdict_pinned_memory() */
} tdict_pin_path;

/** What a transfer did. Bytes are bytes of leaves; the ring's padding is not counted. */
typedef struct tdict_transfer_stats {
  size_t struct_size;
  int64_t num_leaves;        /**< tensors in the tree */
  int64_t num_shared_leaves; /**< of those, shared: already there, or the same bytes as another leaf */
  /** Objects; those pinned by hook or flatten; those passed as they were for want of a hook. */
  int64_t num_objects, num_objects_pinned, num_objects_untouched;
  size_t total_bytes;        /**< bytes that travelled */
  size_t direct_bytes;       /**< from or to pinned memory, or between devices, by the driver alone */
  size_t staged_bytes;       /**< through the staging ring */
  size_t pageable_bytes;     /**< by driver copies from ordinary memory */
  size_t host_bytes;         /**< copied from host memory to host memory */
  int64_t num_chunks;        /**< pieces that the work was cut into */
  size_t peak_staging_bytes; /**< the most of the ring that this transfer held at once */
  size_t peak_pinned_bytes;  /**< the most that the pinned pool held so far, live and cached */
  int32_t num_threads;       /**< threads that worked, the caller counted when it did */
  int32_t mode;              /**< the tdict_mode taken */
  int32_t pin_path;          /**< the tdict_pin_path of the ring or of the pinned result */
  double plan_seconds, copy_seconds, wait_seconds; /**< planning; copying on host threads; waiting for slots: summed
                                                        over threads but for planning */
  double cpu_seconds;   /**< processor time of the threads that worked, from their first chunk to their last byte;
                             planning is in plan_seconds */
  double total_seconds; /**< from the call to the last byte */
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
  /** 0: the calling thread works; n: n threads of the context's pool, if it has as many; -1 (default): the library
   *  chooses; in calls that wait the caller may work too, and then needs no free thread: not for trees of 2048 leaves
   *  and more, and others named in docs/engine.md. BLOCKING and NON_BLOCKING use one thread: the caller in calls that
   *  wait, else one of the pool unless 0 is given. */
  int32_t num_threads;
  /** Copies to and from devices wait for what is queued on this stream; NULL: from the host into new device memory they
   *  wait for nothing, else for the device's legacy stream. While the stream does not come to them an eighth of the
   *  staging ring, less one slot at most, is left to other transfers, unless an _async call has num_threads 0. Only
   *  device memory is ordered so: threads read host sources meanwhile, so wait first for a stream that still writes
   *  them; host destinations are written once what tdict_record_stream() noted there is done. */
  const tdict_stream *after;
  tdict_memory *memory; /**< where the result comes from, on the device that is moved to; NULL: the context's */
  bool pinned_result;   /**< to the cpu: the result is in pinned memory, asked for on the memory node of the device
                             that it comes from */
  bool strict_objects;  /**< an object that would pass untouched is #TDICT_ENOTSUP */
  bool check_sources; /**< hashes host sources before and after: a change is #TDICT_ECHANGED with the leaf's path. Costs
                           two readings of them */
  tdict_transfer_stats *stats; /**< written when a call that waits succeeds; must be NULL for _async calls, which have
                                    tdict_future_stats() */
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
  int32_t num_threads;         /**< as in tdict_transfer_options */
  tdict_transfer_stats *stats; /**< as in tdict_transfer_options */
} tdict_pin_options;
static inline tdict_pin_options tdict_pin_options_default(void) {
  tdict_pin_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.num_threads = -1;
  return o;
}

typedef struct tdict_future tdict_future;
typedef enum tdict_future_state_code {
  TDICT_FUTURE_PENDING,
  TDICT_FUTURE_DONE,
  TDICT_FUTURE_FAILED,
  TDICT_FUTURE_CANCELLED
} tdict_future_state_code;

/** @brief As tdict_set(), but a tensor on another device than the tree's is moved there first, and the tree gets what
 *  that made; its data is there on return. Cost: tdict_to_device() of one leaf.
 *  @return as tdict_set() and tdict_to_device(), err->path being @p path; nothing has changed. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_to(tdict_context *c, tdict_tree *td, const char *path,
                                                    tdict_tensor *tensor, tdict_error *err);

/** @brief Moves a tree; its data is there on return.
 *
 *  The result has the keys, batch size and lock of @p src and @p device as its device. A leaf that is on @p device
 *  already is shared, and a tree all of whose leaves are comes back retained. All others are contiguous and lie in one
 *  storage, in tree order, each beginning on a multiple of 256 bytes; leaves that are the same bytes of one storage are
 *  sent once. Bytes between leaves are unspecified. Leaves on another device of the context are moved from there, with
 *  strides too, over the link of the two where there is one.
 *  @param[in]  device  tdict_cpu(), or a device of the context; TDICT_DEVICE_AUTO is the context's own. One that is no
 *                      place, such as {TDICT_DEVICE_CPU, 5}, is #TDICT_EINVAL.
 *  @param[in]  o       NULL for the defaults.
 *  @param[out] out     a new reference, written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL num_threads or another option out of range; #TDICT_ENODEVICE; #TDICT_EWRONGDEVICE a
 *          leaf lives on a device that is not the context's, or options name memory or a stream of another device;
 *          #TDICT_ECAPTURE `after` is being captured; this is checked first, even if nothing is to be copied;
 *          #TDICT_EINVAL with its path a leaf's bytes never came, because an earlier transfer into them failed and none
 *          has written them since; #TDICT_EFORKED; #TDICT_ENOMEM; #TDICT_EDEVICE and #TDICT_ELOST with the leaf's path;
 *          what a hook answered, or #TDICT_EHOOK, with the object's path. */
TDICT_API TDICT_NODISCARD tdict_status tdict_to_device(tdict_context *c, const tdict_tree *src, tdict_device device,
                                                       const tdict_transfer_options *o, tdict_tree **out,
                                                       tdict_error *err);
/** @brief As tdict_to_device(), and returns a future once the work is planned and handed to the pool, before bytes have
 *  moved; with num_threads 0 when the last copy is queued. A few pinned leaves, up to 64 MiB of them, are queued by
 *  this call itself, unless other transfers come first or they are more copies than a stream takes without waiting.
 *  @return as tdict_to_device() for what can be seen at once; the rest is the future's. */
TDICT_API TDICT_NODISCARD tdict_status tdict_to_device_async(tdict_context *c, const tdict_tree *src,
                                                             tdict_device device, const tdict_transfer_options *o,
                                                             tdict_future **out, tdict_error *err);
/** @brief Copies all tensors of @p src into those of @p dst, which has the same keys, shapes and dtypes and may be
 *  locked; no address of @p dst changes; its data is there on return.
 *  @return as tdict_to_device(); #TDICT_ENOTFOUND a key is missing on either side; #TDICT_ETYPE; #TDICT_ESHAPE;
 *          #TDICT_EDTYPE; #TDICT_EREADONLY, err->path naming the leaf, and nothing is written in all these cases;
 *          #TDICT_EINVAL two tensors of @p dst are the same or share bytes, but have different sources. err->path names
 *          the second one, and nothing is written. Sources that share bytes in the same way are allowed. Strided
 *          tensors that overlap only in part may not be detected if their strides differ, or if more than 16 other
 *          tensors begin between them. Their common bytes are then unspecified. `memory` and `pinned_result` must not
 *          be set. An object without flatten is #TDICT_ENOTSUP. If a later step fails, the bytes of @p dst are
 *          unspecified. Accessors then give NULL until a later call has written these bytes. Transfers that read them
 *          fail, also those queued before the failure. Where storages of @p dst overlap those of @p src, bytes are
 *          unspecified. */
TDICT_API TDICT_NODISCARD tdict_status tdict_copy_into(tdict_context *c, const tdict_tree *src, tdict_tree *dst,
                                                       const tdict_transfer_options *o, tdict_error *err);
/** @brief As tdict_copy_into(), with a future whose tree is @p dst. */
TDICT_API TDICT_NODISCARD tdict_status tdict_copy_into_async(tdict_context *c, const tdict_tree *src, tdict_tree *dst,
                                                             const tdict_transfer_options *o, tdict_future **out,
                                                             tdict_error *err);
/** @brief A tree of the same contents in pinned host memory: leaves that are pinned already are shared, the others
 *  copied into one block.
 *  @return #TDICT_OK; #TDICT_EWRONGDEVICE a leaf is on a device, err->path naming it; #TDICT_ENODEVICE the context has
 *          no device that could read pinned memory; #TDICT_EINVAL; #TDICT_ENOMEM pinned memory is short. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pin_memory(tdict_context *c, const tdict_tree *src,
                                                        const tdict_pin_options *o, tdict_tree **out, tdict_error *err);
/** @brief Pins one object as tdict_pin_memory() pins those of a tree; @p self stays the program's.
 *  @param[out] out  a new object of the type, or @p self when its hook says so or there is no way.
 *  @return as tdict_pin_memory(); #TDICT_EINVAL a NULL, or a type as tdict_set_object() refuses it. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pin_object(tdict_context *c, const tdict_type *type, void *self,
                                                        const tdict_pin_options *o, void **out, tdict_error *err);
/** @brief True when every host tensor of the tree is pinned, and every object whose type has `is_pinned` says so; true
 *  for a tree without any. */
TDICT_API bool tdict_is_pinned(const tdict_tree *td);

/** @brief Work queued on @p s so far uses the tree: none of its bytes is freed, reused or overwritten by the library
 *  before that work is done; tensors of objects are those that their `flatten` shows. Never waits.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL; #TDICT_EWRONGDEVICE the library knows no device of the stream's from the
 *          tree; #TDICT_ECAPTURE; #TDICT_EDEVICE; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_record_stream(const tdict_tree *td, tdict_stream s, tdict_error *err);

/** @brief Waits until the transfer has ended. In a hook of the same transfer, and in a fork, all waits fail at once.
 *  @param[out] out  may be NULL; else a new reference to the result, written on success only.
 *  @return #TDICT_OK; the transfer's own status, with the path of the leaf, as often as it is asked; #TDICT_ECANCELLED;
 *          #TDICT_EDEADLOCK; #TDICT_EFORKED; #TDICT_EINVAL NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_wait(tdict_future *f, tdict_tree **out, tdict_error *err);
/** @brief As tdict_future_wait(), for at most @p timeout_ns nanoseconds.
 *  @return as there; #TDICT_ETIMEDOUT it has not ended, and may be waited for again; #TDICT_EINVAL a negative time. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_wait_for(tdict_future *f, int64_t timeout_ns, tdict_tree **out,
                                                             tdict_error *err);
/** @brief Orders a stream behind the transfer: returns when every copy is queued - at once for what fits the staging
 *  ring, near the end for what does not - then the stream waits, not the host. Until its bytes are there the result's
 *  host memory is waited for by its accessors.
 *  @param[out] out  may be NULL; else a new reference to the result.
 *  @return as tdict_future_wait() for a transfer that has ended; #TDICT_EWRONGDEVICE the stream is of the cpu, of a
 *          device that the context does not have, or of another kind of device than took part; #TDICT_ECAPTURE it is
 *          being captured; #TDICT_EDEVICE. The stream is checked first, also when the transfer has ended. A failure
 *          after the return shows in tdict_future_wait() and as NULL from accessors. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_wait_on_stream(tdict_future *f, tdict_stream s, tdict_tree **out,
                                                                   tdict_error *err);
/** @brief Waits until the source, through pointers kept from before too, may be written or freed.
 *  @return as tdict_future_wait(); the source is free whatever it says of the transfer. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_wait_source(tdict_future *f, tdict_error *err);
/** @brief Asks the transfer to stop, and returns at once: nothing new starts, what is in flight is drained, and it ends
 *  CANCELLED, or DONE if it was too late; slots of the staging ring are not waited for. NULL is allowed. */
TDICT_API void tdict_future_cancel(tdict_future *f);
/** @brief True once the transfer has ended, well or ill; never waits. */
TDICT_API bool tdict_future_is_ready(const tdict_future *f);
/** @brief Where it stands; never waits, in a fork neither. */
TDICT_API tdict_future_state_code tdict_future_state(const tdict_future *f);
/** @brief What the transfer did.
 *  @param[in,out] out  from tdict_transfer_stats_default(). At most its struct_size bytes are written.
 *  @return #TDICT_OK; #TDICT_EINVAL it has not ended, NULL, or a struct_size that no default function wrote. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_stats(const tdict_future *f, tdict_transfer_stats *out,
                                                          tdict_error *err);
/** @brief Adds a reference and returns @p f. */
TDICT_API tdict_future *tdict_future_retain(const tdict_future *f);
/** @brief Drops a reference; the transfer goes on to its end without it; NULL is allowed. An error that nobody was told
 *  goes to the context's log. */
TDICT_API void tdict_future_release(tdict_future *f);

TDICT_END_DECLS
#endif
