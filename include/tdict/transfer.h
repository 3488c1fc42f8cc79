/* Transfers: a tree moves to a device, to the host, or into another tree.
 *
 * A transfer reads the structure of its source before the call returns; it keeps source and result storages alive
 * until their bytes are through, whoever releases the trees [T:transfer_keeps_source_alive]. While a copy reads a host
 * storage tdict_tensor_data() waits, while a copy writes it both accessors wait; a pointer kept from before the
 * transfer is the program's own.
 * Thread rule: every call may be made from any thread; several transfers run at once. */
#ifndef TDICT_TRANSFER_H
#define TDICT_TRANSFER_H

#include "tdict/context.h"
#include "tdict/tree.h"

TDICT_BEGIN_DECLS

typedef enum tdict_mode {
  TDICT_MODE_AUTO,            /**< the library chooses (default) */
  TDICT_MODE_BLOCKING,        /**< copies and waits leaf by leaf: the reference */
  TDICT_MODE_NON_BLOCKING,    /**< queues every leaf's copy, waits once */
  TDICT_MODE_NON_BLOCKING_PIN /**< workers bring pageable leaves into pinned memory in parallel while copies that are
                                   queued already run */
} tdict_mode;

/** How pinned memory was come by. */
typedef enum tdict_pin_path {
  TDICT_PIN_NONE,     /**< none was needed, or it was there already */
  TDICT_PIN_REGISTER, /**< pages of our own, registered with the driver */
  TDICT_PIN_DRIVER,   /**< allocated by the driver */
  TDICT_PIN_PAGEABLE  /**< none was to be had; copied from ordinary memory */
} tdict_pin_path;

/** What a transfer did. Bytes are bytes of leaves; the ring's padding is not counted. */
typedef struct tdict_transfer_stats {
  size_t struct_size;
  int64_t num_leaves;          /**< tensors in the tree */
  int64_t num_shared_leaves;   /**< of those, shared: already there, or the same bytes as another leaf */
  size_t total_bytes;          /**< bytes that travelled */
  size_t direct_bytes;         /**< from or to pinned memory, or between devices, by the driver alone */
  size_t staged_bytes;         /**< through the staging ring */
  size_t pageable_bytes;       /**< by driver copies from ordinary memory */
  size_t host_bytes;           /**< copied from host memory to host memory */
  int64_t num_chunks;          /**< pieces that the work was cut into */
  size_t peak_staging_bytes;   /**< the most of the ring that this transfer held at once */
  size_t peak_pinned_bytes;    /**< the most that the pinned pool held so far, live and cached */
  int32_t num_threads;         /**< threads that worked, the caller counted when it did */
  int32_t mode;                /**< the tdict_mode taken */
  int32_t pin_path;            /**< the tdict_pin_path of the ring or of the pinned result */
  double plan_seconds, copy_seconds, wait_seconds; /**< planning; copying on host threads; waiting for slots: summed
                                                        over threads but for planning */
  double cpu_seconds;          /**< processor time of all threads on this transfer */
  double total_seconds;        /**< from the call to the last byte */
} tdict_transfer_stats;
static inline tdict_transfer_stats tdict_transfer_stats_default(void) {
  tdict_transfer_stats s;
  memset(&s, 0, sizeof s);
  s.struct_size = sizeof s;
  return s;
}

typedef struct tdict_transfer_options {
  size_t struct_size;
  int32_t mode;              /**< a tdict_mode */
  int32_t num_threads;       /**< 0: the calling thread works; n: n threads of the context's pool, which has as many;
                                  -1 (default): the library chooses. BLOCKING and NON_BLOCKING use one thread: the
                                  caller in calls that wait, else one of the pool unless 0 is given */
  const tdict_stream *after; /**< the transfer waits for what is queued on this stream; NULL: from the host into new
                                  device memory it waits for nothing, else for the device's legacy stream */
  tdict_memory *memory;      /**< where the result comes from, on the device that is moved to; NULL: the context's */
  bool pinned_result;        /**< to the cpu: the result is in pinned memory */
  bool strict_objects;       /**< no effect: trees hold tensors and trees alone */
  bool check_sources;        /**< must be false: #TDICT_ENOTSUP */
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
  TDICT_FUTURE_FAILED
} tdict_future_state_code;

/** @brief Moves a tree; its data is there on return.
 *
 *  The result has the keys, batch size and lock of @p src and @p device as its device. A leaf that is on @p device
 *  already is shared, and a tree all of whose leaves are comes back retained [T:transfer_same_place_shares]. All
 *  others are contiguous and lie in one storage, in tree order, each beginning on a multiple of 256 bytes
 *  [T:transfer_one_arena]; leaves that are the same bytes of one storage are sent once [T:transfer_shared_leaves_sent_once].
 *  Bytes between leaves are unspecified.
 *  @param[in]  device  tdict_cpu(), or a device of the context; TDICT_DEVICE_AUTO is the context's own.
 *  @param[in]  o       NULL for the defaults.
 *  @param[out] out     a new reference, written on success only.
 *  @return #TDICT_OK [T:transfer_every_mode] [T:transfer_round_trip]; #TDICT_EINVAL num_threads or another option out
 *          of range [T:transfer_refuses_bad_options]; #TDICT_ENODEVICE [T:transfer_refuses_absent_device];
 *          #TDICT_EWRONGDEVICE a leaf lives on a device that is not the context's, or options name memory of another
 *          device [T:transfer_refuses_foreign_device]; #TDICT_ENOTSUP check_sources [T:transfer_refuses_bad_options];
 *          #TDICT_ENOMEM; #TDICT_EDEVICE with the leaf's path. */
TDICT_API TDICT_NODISCARD tdict_status tdict_to_device(tdict_context *c, const tdict_tree *src, tdict_device device,
                                                       const tdict_transfer_options *o, tdict_tree **out,
                                                       tdict_error *err);
/** @brief As tdict_to_device(), and returns a future once the work is planned and handed to the pool, before bytes
 *  have moved; with num_threads 0 when the last copy is queued [T:transfer_async_returns_early].
 *  @return as tdict_to_device() for what can be seen at once; the rest is the future's. */
TDICT_API TDICT_NODISCARD tdict_status tdict_to_device_async(tdict_context *c, const tdict_tree *src,
                                                             tdict_device device, const tdict_transfer_options *o,
                                                             tdict_future **out, tdict_error *err);
/** @brief Copies all tensors of @p src into those of @p dst, which has the same keys, shapes and dtypes and may be
 *  locked; no address of @p dst changes; its data is there on return [T:copy_into_keeps_addresses].
 *  @return as tdict_to_device(); #TDICT_ENOTFOUND a key is missing on either side; #TDICT_ETYPE; #TDICT_ESHAPE;
 *          #TDICT_EDTYPE; #TDICT_EREADONLY, err->path naming the leaf, and nothing is written in all these cases
 *          [T:copy_into_checks_first]. `memory` and `pinned_result` must not be set
 *          [T:transfer_refuses_bad_options]. Where storages of @p dst overlap those of @p src, bytes are unspecified. */
TDICT_API TDICT_NODISCARD tdict_status tdict_copy_into(tdict_context *c, const tdict_tree *src, tdict_tree *dst,
                                                       const tdict_transfer_options *o, tdict_error *err);
/** @brief As tdict_copy_into(), with a future whose tree is @p dst [T:copy_into_async]. */
TDICT_API TDICT_NODISCARD tdict_status tdict_copy_into_async(tdict_context *c, const tdict_tree *src, tdict_tree *dst,
                                                             const tdict_transfer_options *o, tdict_future **out,
                                                             tdict_error *err);
/** @brief A tree of the same contents in pinned host memory: leaves that are pinned already are shared, the others
 *  copied into one block [T:pin_memory_pins_and_shares].
 *  @return #TDICT_OK; #TDICT_EWRONGDEVICE a leaf is on a device, err->path naming it [T:pin_memory_refuses_device_leaf];
 *          #TDICT_ENODEVICE the context has no device that could read pinned memory [T:pin_memory_without_device];
 *          #TDICT_EINVAL [T:transfer_refuses_bad_options]; #TDICT_ENOMEM pinned memory is short
 *          [T:pinned_pool_limit]. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pin_memory(tdict_context *c, const tdict_tree *src,
                                                        const tdict_pin_options *o, tdict_tree **out, tdict_error *err);
/** @brief True when every host tensor of the tree is pinned; true for a tree without any [T:is_pinned_asks_host_leaves]. */
TDICT_API bool tdict_is_pinned(const tdict_tree *td);

/** @brief Waits until the transfer has ended.
 *  @param[out] out  may be NULL; else a new reference to the result, written on success only.
 *  @return #TDICT_OK; the transfer's own status, with the path of the leaf, as often as it is asked
 *          [T:future_reports_failure]; #TDICT_EINVAL NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_wait(tdict_future *f, tdict_tree **out, tdict_error *err);
/** @brief As tdict_future_wait(), for at most @p timeout_ns nanoseconds.
 *  @return as there; #TDICT_ETIMEDOUT it has not ended, and may be waited for again [T:future_wait_for_times_out];
 *          #TDICT_EINVAL a negative time. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_wait_for(tdict_future *f, int64_t timeout_ns, tdict_tree **out,
                                                             tdict_error *err);
/** @brief True once the transfer has ended, well or ill; never waits [T:future_poll]. */
TDICT_API bool tdict_future_is_ready(const tdict_future *f);
/** @brief Where it stands; never waits [T:future_poll]. */
TDICT_API tdict_future_state_code tdict_future_state(const tdict_future *f);
/** @brief What the transfer did.
 *  @param[in,out] out  its struct_size says how much is written.
 *  @return #TDICT_OK; #TDICT_EINVAL it has not ended, or NULL [T:future_stats]. */
TDICT_API TDICT_NODISCARD tdict_status tdict_future_stats(const tdict_future *f, tdict_transfer_stats *out,
                                                          tdict_error *err);
/** @brief Adds a reference and returns @p f [T:future_released_early]. */
TDICT_API tdict_future *tdict_future_retain(const tdict_future *f);
/** @brief Drops a reference; the transfer goes on to its end without it; NULL is allowed [T:future_released_early]. */
TDICT_API void tdict_future_release(tdict_future *f);

TDICT_END_DECLS
#endif
