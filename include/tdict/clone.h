/* Copies and consolidates trees, and compares two trees. Thread rule: as in tdict/tree.h. */
#ifndef TDICT_CLONE_H
#define TDICT_CLONE_H

#include "tdict/run.h"
#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** @brief Makes a shallow copy: new nodes that share the tensors and objects of @p tree.
 *
 *  Changes to the keys of either tree do not affect the other tree. Writes to elements are visible in both trees. The
 *  copy is not locked. During the call, other threads may read @p tree, and may change earlier clones of @p tree.
 *  @param[out] out  New tree with one reference. Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer; #TDICT_ENOMEM.
 *  @note Cost: O(nodes), plus O(keys) of each node that has child trees. No element is read or copied. A node and its
 *        copy share the table of keys. If the node has no child trees, the two nodes also share the list of tensors and
 *        objects. The first change to either node copies the shared table or list. This change may therefore return
 *        #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_clone(const tdict_tree *tree, tdict_tree **out, tdict_error *err);
/** @brief Makes a deep copy: new nodes and new elements. Each new tensor is in C order. All new tensors in one memory
 *  share one storage, except tensors that hooks make. The copy is not locked.
 *
 *  The `clone` hook of a type copies the objects of this type. If the type has no `clone` hook, the call copies the
 *  tensors of the object. If `memory` is set and the type has `flatten`, the call copies the tensors instead of
 *  calling the hook, because the hook cannot allocate from `memory`.
 *  @param[in]  run  Uses `stream` and `memory`; NULL for the defaults. On a stream, one launch copies all tensors of
 *                   one memory, in the order that tdict/index.h describes. If `memory` is NULL, a device tensor is
 *                   copied within its own memory, and a host tensor to plain host memory.
 *  @param[out] out  New tree with one reference. Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer, or an option that is not used; #TDICT_ENOTSUP the tensors are in
 *          more than 16 memories; #TDICT_EOVERFLOW the size does not fit in 63 bits; #TDICT_ENOMEM; the errors of
 *          tdict_tensor_clone() and of objects, see tdict/object.h. With `stream`: #TDICT_ENOTSUP also for an object
 *          other than text, numbers and JSON, for a tensor whose copy would be on another device, and if the driver
 *          cannot compile kernels; #TDICT_EWRONGDEVICE the stream is not of the device of a tensor; #TDICT_ECAPTURE the
 *          stream is being captured.
 *  @note Cost: one copy of all bytes, plus O(tensors + nodes). */
TDICT_API TDICT_NODISCARD tdict_status tdict_clone_deep(const tdict_tree *tree, const tdict_run *run, tdict_tree **out,
                                                        tdict_error *err);
/** @brief Makes a tree whose tensors are all contiguous: the tensors of @p tree, or copies of tensors that are not
 *  contiguous.
 *
 *  The copy of a device tensor is in the memory of this tensor. The copy of a host tensor is in plain host memory.
 *  Objects are made again from contiguous tensors if the type has `flatten`, and shared otherwise. The result is not
 *  locked.
 *  @param[in]  run  Uses `stream`, as tdict_clone_deep() does; NULL for the defaults.
 *  @param[out] out  New tree with one reference. Written on success only.
 *  @return The same errors as tdict_clone_deep().
 *  @note Cost: one copy of the bytes of tensors that are not contiguous, plus O(tensors + nodes). */
TDICT_API TDICT_NODISCARD tdict_status tdict_contiguous(const tdict_tree *tree, const tdict_run *run, tdict_tree **out,
                                                        tdict_error *err);

/** @brief Copies all tensors of a tree into one storage, and locks the new tree.
 *
 *  The storage holds the tensors in the order of tdict_walk(), each in C order. Each tensor begins at a multiple of 256
 *  bytes from the start of the storage. The padding bytes after a tensor are zero. Tensors that share bytes in @p tree
 *  get separate bytes. The result has the keys, batch sizes and child trees of @p tree, and shares its text, numbers
 *  and JSON. If @p tree has a device, the result has the device of @p memory.
 *
 *  The result is consolidated until the program calls tdict_unlock(). A later tdict_lock() does not consolidate the
 *  tree again. A program may write the elements of a consolidated tree. Clones, views and child trees of a consolidated
 *  tree are not consolidated.
 *
 *  A transfer copies the storage of a consolidated tree as one block. If the source is consolidated, the results of
 *  tdict_to_device() and tdict_pin_memory() are consolidated too. tdict/transfer.h describes the exceptions.
 *  @param[in]  tree    Borrowed. The call also copies a tree that is already consolidated.
 *  @param[in]  memory  Memory of the result. NULL: plain host memory.
 *  @param[out] out     New tree with one reference. Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer; #TDICT_ENOTSUP the tree holds an object other than text, numbers
 *          and JSON, and err->path names the object; #TDICT_EOVERFLOW the size does not fit in 63 bits; #TDICT_ENOMEM;
 *          the errors of tdict_tensor_empty() and tdict_tensor_copy().
 *  @note Cost: one copy of all bytes, plus O(tensors + nodes). Copies from or to a device run one after another. The
 *        call copies between host memory and a device, and within one device. The call cannot copy from one device to
 *        another device. To obtain a consolidated tree on another device, consolidate the tree on its own device first,
 *        and then call tdict_to_device(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_consolidate(const tdict_tree *tree, tdict_memory *memory, tdict_tree **out,
                                                         tdict_error *err);
/** @brief Returns true if the tree is consolidated. NULL is not consolidated. */
TDICT_API bool tdict_is_consolidated(const tdict_tree *tree);
/** @brief Returns the storage of a consolidated tree as one tensor of #TDICT_U8. The tensor shares the storage.
 *  @param[out] out  New reference. The tensor stays valid after the tree is unlocked or released. Written on success
 *          only.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer, or @p tree is not consolidated. */
TDICT_API TDICT_NODISCARD tdict_status tdict_consolidated_bytes(const tdict_tree *tree, tdict_tensor **out,
                                                                tdict_error *err);

typedef struct tdict_compare_options {
  size_t struct_size;
  /** Element x of the first tree and element y of the second tree are equal if |x - y| <= absolute + relative*|y|. Both
   * tolerances are 0 by default. */
  double relative, absolute;
  bool nan_equal; /**< true: NaN equals NaN; default false */
} tdict_compare_options;
static inline tdict_compare_options tdict_compare_options_default(void) {
  tdict_compare_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}
/** The first difference that tdict_compare() finds. For each pair of trees at one path, the batch sizes are compared
 *  first. If the second tree of the pair has more keys than the first tree, the next difference is a key that only the
 *  second tree has. The entries follow in the order of the first tree. Elements are compared in C order. */
typedef struct tdict_difference {
  bool differs;
  int32_t ndim;                  /**< length of `index`; 0 if the difference is not between two elements */
  int64_t index[TDICT_MAX_NDIM]; /**< index of the element that differs */
  char path[248];                /**< "" if the batch sizes of `a` and `b` differ; long paths are cut in the middle */
  char message[256];             /**< describes the difference */
} tdict_difference;
/** @brief Compares the keys (in any order), batch sizes, dtypes, shapes and elements of two trees.
 *
 *  The devices, locks and strides of the trees may differ. Tensors on a device are copied to the host one after
 *  another. Two different objects of one type are compared by their tensors. Leaves of tdict/nontensor.h are compared
 *  by their values. An object is always equal to itself.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out  The first difference. If there is no difference, `differs` is false. Written on success only.
 *  @return #TDICT_OK, also if the trees differ; #TDICT_EINVAL a NULL pointer, a negative tolerance, or a tensor with
 *          lost bytes (see tdict/transfer.h), and err->path names the tensor; #TDICT_EWRONGDEVICE a tensor is in device
 *          memory of the program (see tdict_tensor_from_data()); #TDICT_ENOTSUP two different objects have a type
 *          without `flatten`; #TDICT_ENOMEM; the errors of tdict_tensor_clone() for a tensor on a device; the errors of
 *          `flatten`.
 *  @note Cost: O(keys), plus at most two reads of the tensors up to the first difference, plus the copies of device
 *        tensors. */
TDICT_API TDICT_NODISCARD tdict_status tdict_compare(const tdict_tree *a, const tdict_tree *b,
                                                     const tdict_compare_options *options, tdict_difference *out,
                                                     tdict_error *err);
/** @brief Returns true if tdict_compare() with the default options succeeds and finds no difference. A tree with NaN
 *  elements or with lost bytes (see tdict/transfer.h) is not equal to itself. */
TDICT_API bool tdict_equal(const tdict_tree *a, const tdict_tree *b);

TDICT_END_DECLS
#endif
