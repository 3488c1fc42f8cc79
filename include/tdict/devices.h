/* Declares transfers of one tree to several devices of one process, and the gathering of trees from several devices.
 * docs/scale.md says which call serves which need.
 *
 * Several devices. tdict_to_devices_async() gives each device the whole tree, or a part of the tree. The rules of
 * tdict/transfer.h for lifetime, order, failure and the option `after` hold for the source and for all results.
 * Replicate. Devices with peer access to each other form a group. If the source is in host memory, each group reads
 * host memory once. Each device of the group receives a part of the bytes over its own link. The devices then copy the
 * parts from each other. A tree of at most an eighth of the staging ring goes to the first device as a whole. From
 * there, it goes to the other devices. tdict_transfer_stats.peer_bytes counts the bytes that were copied between
 * devices. The driver says which devices have peer access. A device without peer access receives all bytes from the
 * host.
 * In some cases, each device receives all bytes from the source. This holds if the tree has objects of the program's
 * types, or a tensor on a device or in a file. This also holds if the option `keep`, `conversions`, `narrow`,
 * `max_queued_bytes`, `pinned_result` or `check_sources` is set.
 * Results. A result has the keys, batch sizes and locks of the source, and its device. In a group, all tensors of a
 * result are in one new storage, and tensors with the same bytes may be copied separately. A device that receives all
 * bytes from the source gets the result of tdict_to_device().
 * Errors. The path of an error begins with the position of the device, for example "1.obs.image".
 * Statistics. The counts are sums over all devices, so total_bytes contains the bytes of all results.
 * Thread rule: any thread may call any function of this header. */
#ifndef TDICT_DEVICES_H
#define TDICT_DEVICES_H

#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

/** Maximum number of devices, and of trees, in one call. */
#define TDICT_MAX_DEVICES 64

typedef enum tdict_spread_kind {
  TDICT_REPLICATE, /**< every device receives the whole tree */
  TDICT_SPLIT      /**< every device receives a part of the tree, along a batch dimension */
} tdict_spread_kind;

/** Says which devices receive a tree, and what each device receives. */
typedef struct tdict_spread {
  size_t struct_size;
  const tdict_device *devices; /**< different devices of the context; tdict_cpu() is allowed. Borrowed for the call */
  size_t num_devices;          /**< from 1 to #TDICT_MAX_DEVICES */
  int32_t kind;                /**< a tdict_spread_kind; default #TDICT_REPLICATE */
  int32_t dim;                 /**< SPLIT: the batch dimension to split; -1 is the last one; default 0 */
  /** SPLIT: number of elements of the dimension for each device; 0 is allowed. The sum must be the size of the
   *  dimension. NULL (default): the sizes differ by at most 1, and the first devices get the larger parts. Borrowed for
   *  the call. */
  const int64_t *counts;
} tdict_spread;
/** @brief Returns the description of a whole tree for each of @p num_devices devices. */
static inline tdict_spread tdict_spread_replicate(const tdict_device *devices, size_t num_devices) {
  tdict_spread s;
  memset(&s, 0, sizeof s);
  s.struct_size = sizeof s;
  s.devices = devices;
  s.num_devices = num_devices;
  return s;
}
/** @brief Returns the description of equal parts along batch dimension @p dim for @p num_devices devices. */
static inline tdict_spread tdict_spread_split(const tdict_device *devices, size_t num_devices, int32_t dim) {
  tdict_spread s = tdict_spread_replicate(devices, num_devices);
  s.kind = TDICT_SPLIT;
  s.dim = dim;
  return s;
}

/** @brief Starts to copy a tree to several devices, and returns one future for all copies.
 *
 *  The result of the future is a tree without batch dimensions. The tree holds the tree of device i at the key that is
 *  the number i, for example "0". tdict_get_tree() returns these trees. Cancelling stops the transfers to all devices.
 *  @param[in]  src      Borrowed. The transfer retains the storages of @p src until the copies have ended.
 *  @param[in]  spread   The devices and their parts.
 *  @param[in]  options  NULL for the defaults. `memory` must be NULL if there are several devices. The limit
 *                       `max_queued_bytes` holds for each device.
 *  @param[out] out      A new future, released with tdict_future_release().
 *  @return Errors of tdict_to_device_async(). Also #TDICT_EINVAL @p spread is invalid, a device occurs twice, or the
 *          batch dimension does not exist; #TDICT_ESHAPE the sum of `counts` is wrong; errors of tdict_split() for
 *          objects. tdict_future_wait() returns all later errors. */
TDICT_API TDICT_NODISCARD tdict_status tdict_to_devices_async(tdict_context *context, const tdict_tree *src,
                                                              const tdict_spread *spread,
                                                              const tdict_transfer_options *options, tdict_future **out,
                                                              tdict_error *err);

/** Says where the result of tdict_gather_devices_async() is. */
typedef struct tdict_gather_devices_options {
  size_t struct_size;
  tdict_device device; /**< tdict_cpu() (default) or a device of the context */
  int32_t dim;         /**< the batch dimension along which the trees are joined; -1 is the last one; default 0 */
  /** NULL (default) for the defaults. With `memory`, the result is in this memory of `device`. Without `memory` and
   *  with `pinned_result`, the result is in pinned memory. `keep` and `conversions` must not be set. Borrowed for the
   *  call. */
  const tdict_transfer_options *transfer;
} tdict_gather_devices_options;
static inline tdict_gather_devices_options tdict_gather_devices_options_default(void) {
  tdict_gather_devices_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.device = tdict_cpu();
  return o;
}

/** @brief Starts to join trees of several devices along a batch dimension, into one tree on a device or on the host.
 *         Returns a future, whose result is this tree.
 *
 *  The batch sizes of the trees may differ only in this dimension. The result has the sum of their sizes. Its keys and
 *  their order are those of the first tree. The other trees may have another order.
 *  @param[in]  trees    Array of @p count trees, on any devices of the context and on the host.
 *  @param[in]  count    From 1 to #TDICT_MAX_DEVICES.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      A new future, released with tdict_future_release().
 *  @return Errors of tdict_transfer_into_async(). Also #TDICT_EINVAL the batch dimension does not exist; #TDICT_ENOTSUP
 *          an object. For these errors, and if trees differ in keys, dtypes or other sizes, err->path begins with the
 *          position of the tree in @p trees, and names the leaf. tdict_future_wait() returns all later errors. */
TDICT_API TDICT_NODISCARD tdict_status tdict_gather_devices_async(tdict_context *context,
                                                                  const tdict_tree *const *trees, size_t count,
                                                                  const tdict_gather_devices_options *options,
                                                                  tdict_future **out, tdict_error *err);

TDICT_END_DECLS
#endif
