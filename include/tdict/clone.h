/* Copies and consolidates trees, and compares two trees. Thread rule: as in tdict/tree.h. */
#ifndef TDICT_CLONE_H
#define TDICT_CLONE_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** @brief Makes a shallow copy: new nodes that share the tensors and objects of @p tree.
 *
 *  Changes to the keys of either tree do not affect the other tree. Writes to elements are visible in both trees. The
 *  copy is not locked. Other threads may read @p tree, and change earlier copies, during the call.
 *  @param[out] out  New tree with one reference. Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer; #TDICT_ENOMEM.
 *  @note Cost: O(nodes), plus O(keys) of each node that has child trees. No element is read or copied. A node without
 *        child trees shares its list of tensors with its copy. The first change to the keys of either node copies that
 *        list, and may therefore return #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_clone(const tdict_tree *tree, tdict_tree **out, tdict_error *err);
/** @brief Makes a deep copy: new nodes and new elements, in C order, in one storage for each memory.
 *
 *  If the type of an object has a `clone` hook, the hook copies the object. Otherwise the tensors of the object are
 *  copied. The copy is not locked.
 *  @param[in]  memory  Memory of the copies. If NULL, a device tensor is copied within its own memory, and a host
 *                      tensor is copied to plain host memory.
 *  @param[out] out     New tree with one reference. Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer; #TDICT_ENOMEM; the errors of tdict_tensor_clone() and of objects,
 *          see tdict/object.h.
 *  @note Cost: one copy of all bytes, plus O(tensors + nodes). */
TDICT_API TDICT_NODISCARD tdict_status tdict_clone_deep(const tdict_tree *tree, tdict_memory *memory, tdict_tree **out,
                                                        tdict_error *err);

/** @brief Copies all tensors of a tree into one storage, and locks the new tree.
 *
 *  The tensors of the result are in C order, in tree order. Each tensor begins at a multiple of 256 bytes of the
 *  storage. The padding after a tensor is zero. Tensors that share bytes in @p tree get separate bytes. The result has
 *  the keys, batch sizes and child trees of @p tree. If @p tree has a device, the result has the device of @p memory.
 *
 *  The result is consolidated until tdict_unlock() unlocks it, because the structure of a locked tree cannot change.
 *  Locking the tree again does not consolidate it again. Elements may be written. Clones, views and child trees are not
 *  consolidated.
 *
 *  A transfer of a consolidated tree copies the storage as one block. tdict_to_device() and tdict_pin_memory() return a
 *  consolidated tree again. See tdict/transfer.h.
 *  @param[in]  tree    Borrowed. May be consolidated already; the call then copies it.
 *  @param[in]  memory  Memory of the result. NULL: plain host memory.
 *  @param[out] out     New tree with one reference. Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer; #TDICT_ENOTSUP an object, and err->path names it; #TDICT_EOVERFLOW
 *          the size does not fit in 63 bits; #TDICT_ENOMEM; the errors of tdict_tensor_copy(), with the path of the
 *          tensor.
 *  @note Cost: one copy of all bytes, plus O(tensors + nodes). Copies from or to a device are made one by one. A tensor
 *        may be copied between host memory and a device, or within one device. From one device to another, move the
 *        result with tdict_to_device(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_consolidate(const tdict_tree *tree, tdict_memory *memory, tdict_tree **out,
                                                         tdict_error *err);
/** @brief Returns true if the tree is consolidated. NULL is not consolidated. */
TDICT_API bool tdict_is_consolidated(const tdict_tree *tree);
/** @brief Returns the storage of a consolidated tree as one tensor of #TDICT_U8. The tensor shares the storage.
 *  @param[out] out  New reference. Remains valid if the tree is unlocked or released. Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer, or @p tree is not consolidated. */
TDICT_API TDICT_NODISCARD tdict_status tdict_consolidated_bytes(const tdict_tree *tree, tdict_tensor **out,
                                                                tdict_error *err);

/** Options of tdict_compare(). */
typedef struct tdict_compare_options {
  size_t struct_size;
  /** Two elements a and b are equal if |a - b| <= absolute + relative * |b|. Both tolerances are 0 by default. */
  double relative, absolute;
  bool nan_equal; /**< true: NaN equals NaN; default false */
} tdict_compare_options;
static inline tdict_compare_options tdict_compare_options_default(void) {
  tdict_compare_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}
/** The first difference that tdict_compare() finds. Entries are compared in the order of the first tree, and elements
 *  in C order. */
typedef struct tdict_difference {
  bool differs;
  int32_t ndim;                  /**< length of `index`; 0 if the difference is not in one element */
  int64_t index[TDICT_MAX_NDIM]; /**< index of the element that differs */
  char path[248];                /**< "" if the trees themselves differ; long paths are cut in the middle */
  char message[256];             /**< describes the difference */
} tdict_difference;
/** @brief Compares the keys (in any order), batch sizes, dtypes, shapes and elements of two trees.
 *
 *  Differences of devices, locks and strides are ignored. Tensors on a device are copied to the host one by one.
 *  Two objects of the same type are compared by their tensors.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out  The first difference. If there is no difference, `differs` is false. Written on success only.
 *  @return #TDICT_OK whether the trees differ or not; #TDICT_EINVAL a NULL pointer, a negative tolerance, or a tensor
 *          whose bytes never arrived because a transfer failed (err->path names it); #TDICT_EWRONGDEVICE a tensor is on
 *          a device that belongs to no context; #TDICT_ENOTSUP two objects of a type without `flatten`; #TDICT_ENOMEM;
 *          #TDICT_EDEVICE.
 *  @note Cost: O(keys), plus reading the bytes up to the first difference. */
TDICT_API TDICT_NODISCARD tdict_status tdict_compare(const tdict_tree *a, const tdict_tree *b,
                                                     const tdict_compare_options *options, tdict_difference *out,
                                                     tdict_error *err);
/** @brief Returns true if tdict_compare() with the default options succeeds and finds no difference. If a transfer into
 *  a tree failed and left lost bytes, the tree is not equal to any tree, not even to itself. */
TDICT_API bool tdict_equal(const tdict_tree *a, const tdict_tree *b);

TDICT_END_DECLS
#endif
