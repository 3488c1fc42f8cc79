/* Declares transfers of one tree to several devices of one process, and of trees of several devices into one tree.
 *
 * docs/scale.md says which call to use. docs/transfers.md has the rules of lifetime, order and failure, and the bytes
 * that devices copy from each other. The counts of statistics are sums over all devices. NULL options are the defaults.
 * The caller releases the futures. Errors: those of tdict/transfer.h. err->path begins with the position of the device,
 * for example "1.obs.image". Thread rule: any thread may call any function of this header. */
#ifndef TDICT_DEVICES_H
#define TDICT_DEVICES_H

#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

#define TDICT_MAX_DEVICES 64 /**< the largest number of devices, and of trees, in one call */

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
  /** SPLIT: elements for each device, with the size of the dimension as their sum; 0 is allowed. NULL (default): sizes
   *  that differ by at most 1, the larger ones first. Borrowed for the call. */
  const int64_t *counts;
} tdict_spread;
static inline tdict_spread tdict_spread_default(void) {
  tdict_spread s;
  tdict_init_struct_(s);
  return s;
}
/** @brief Returns the description of a whole tree for each of @p num_devices devices. */
static inline tdict_spread tdict_spread_replicate(const tdict_device *devices, size_t num_devices) {
  tdict_spread s = tdict_spread_default();
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
 *  The result is a tree without batch dimensions. Its children "0", "1", ... are the trees of the devices. Cancelling
 *  stops the transfers to all devices.
 *  @param[in]  src      Borrowed. The transfer retains the storages of @p src until the copies have ended.
 *  @param[in]  options  `max_queued_bytes` and `max_bytes_per_second` hold for each device. With several devices,
 *                       `memory` must be NULL. `pinned_result` is for the tree on the cpu: docs/transfers.md.
 *  @return Errors of tdict_to_device_async(), and of tdict_split() for objects; #TDICT_EINVAL an invalid @p spread, a
 *          device that occurs twice, or no such batch dimension; #TDICT_ESHAPE the sum of `counts` is wrong. */
TDICT_API TDICT_NODISCARD tdict_status tdict_to_devices_async(tdict_context *context, const tdict_tree *src,
                                                              const tdict_spread *spread,
                                                              const tdict_transfer_options *options, tdict_future **out,
                                                              tdict_error *err);

/** Says where the result of tdict_gather_devices_async() is. */
typedef struct tdict_gather_devices_options {
  size_t struct_size;
  tdict_device device; /**< tdict_cpu() (default) or a device of the context */
  int32_t dim;         /**< the batch dimension along which the trees are joined; -1 is the last one; default 0 */
  /** NULL (default) for the defaults. With `memory`, the result is in this memory of `device`. Without `memory`,
   *  `pinned_result` makes it pinned. `keep` and `conversions` must not be set. Borrowed for the call. */
  const tdict_transfer_options *transfer;
} tdict_gather_devices_options;
static inline tdict_gather_devices_options tdict_gather_devices_options_default(void) {
  tdict_gather_devices_options o;
  tdict_init_struct_(o);
  o.device = tdict_cpu();
  return o;
}

/** @brief Starts to join trees of several devices along a batch dimension, and returns a future for the joined tree.
 *  Batch sizes may differ only in this dimension. The keys have the order of the first tree; other orders are allowed.
 *  @param[in]  trees    @p count trees, from 1 to #TDICT_MAX_DEVICES, on any devices of the context and on the host.
 *  @return Errors of tdict_transfer_into(); #TDICT_EINVAL no such batch dimension; #TDICT_ENOTSUP an object. If a
 *          tree is wrong or differs, err->path begins with its position in @p trees, and names the leaf. */
TDICT_API TDICT_NODISCARD tdict_status tdict_gather_devices_async(tdict_context *context,
                                                                  const tdict_tree *const *trees, size_t count,
                                                                  const tdict_gather_devices_options *options,
                                                                  tdict_future **out, tdict_error *err);

TDICT_END_DECLS
#endif
