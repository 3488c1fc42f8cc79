/* Copies of trees, and whether two trees are the same. Thread rule: as in tdict/tree.h. */
#ifndef TDICT_CLONE_H
#define TDICT_CLONE_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** @brief New nodes over the same tensors, unlocked: keys can be changed without the other tree seeing it, elements are
 *  and objects shared. Result: as the tree, not locked. Cost: O(nodes), and O(keys) of nodes with trees below them; no
 *  element is touched. A node without trees below it costs the same however many tensors it has: both trees hold one
 *  list of them, which the first change of keys in either copies. A tree may be cloned, and the clones changed, while
 *  other threads read it.
 *  @return #TDICT_OK; #TDICT_EINVAL NULL; #TDICT_ENOMEM, which a change may answer later. */
TDICT_API TDICT_NODISCARD tdict_status tdict_clone(const tdict_tree *td, tdict_tree **out, tdict_error *err);
/** @brief A copy of all elements as well, in C order, unlocked, in one storage for each memory; objects by their
 *  `clone`, or as their tensors.
 *  Cost: all bytes are copied, and O(tensors + nodes).
 *  @param[in] memory  where to; NULL: that of the tensors on a device, plain host memory for those on the host.
 *  @return #TDICT_OK; #TDICT_EINVAL NULL; #TDICT_ENOMEM; as tdict_tensor_clone(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_clone_deep(const tdict_tree *td, tdict_memory *memory, tdict_tree **out,
                                                        tdict_error *err);

/** What two trees are compared by. */
typedef struct tdict_compare_options {
  size_t struct_size;
  double relative, absolute; /**< numbers are close when |a - b| <= absolute + relative * |b|; both 0 (default): equal
                                  values */
  bool nan_equal;            /**< NaN is the same as NaN; default false */
} tdict_compare_options;
static inline tdict_compare_options tdict_compare_options_default(void) {
  tdict_compare_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}
/** The first difference, in the order of a walk through the first tree and of C order in a tensor. */
typedef struct tdict_difference {
  bool differs;
  int32_t ndim;                  /**< of `index`; 0 when it is not about an element */
  int64_t index[TDICT_MAX_NDIM]; /**< the element */
  char path[248];                /**< the key, "" for the trees themselves; long paths are cut in the middle */
  char message[256];             /**< what differs */
} tdict_difference;
/** @brief Compares keys (in any order), batch sizes, dtypes, shapes and elements, wherever the tensors are: those on a
 *  device are copied to the host one by one. Objects of one type are compared by their tensors. Devices, locks and
 *  strides may differ. Cost: O(keys), and the bytes up to the first difference are read.
 *  @param[in] options  NULL for the defaults.
 *  @return #TDICT_OK whether they differ or not; #TDICT_EINVAL NULL or a negative tolerance, #TDICT_EWRONGDEVICE a
 *          device's bytes that belong to no context; #TDICT_EINVAL with its path a tensor's bytes never came, because a
 *          transfer into them failed; #TDICT_ENOTSUP two objects of a type without `flatten`; #TDICT_ENOMEM;
 *          #TDICT_EDEVICE. */
TDICT_API TDICT_NODISCARD tdict_status tdict_compare(const tdict_tree *a, const tdict_tree *b,
                                                     const tdict_compare_options *options, tdict_difference *out,
                                                     tdict_error *err);
/** @brief True when tdict_compare() by default finds no difference, and nothing failed. A tree whose bytes never came
 *  equals none, itself included. */
TDICT_API bool tdict_equal(const tdict_tree *a, const tdict_tree *b);

TDICT_END_DECLS
#endif
