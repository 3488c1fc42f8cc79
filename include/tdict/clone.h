/* Copies and consolidates trees, and compares two trees. New trees have one reference of the caller, and are written on
 * success only. docs/elements.md says more about consolidated trees. Thread rule: as in tdict/tree.h.
 *
 * Errors of all functions:
 * - #TDICT_EINVAL: NULL, or an option that is not used; #TDICT_EOVERFLOW: the result is too large; #TDICT_ENOMEM;
 * - #TDICT_ENOTSUP: an object that the function cannot handle, or too many memories (docs/limits.md);
 * - with a stream: #TDICT_ENOTSUP also for what cannot be queued, and for a driver without kernels;
 * - with a stream: #TDICT_EWRONGDEVICE if it is of another device, and #TDICT_ECAPTURE if it is being captured;
 * - the errors of tdict_tensor_clone() and of objects, see tdict/object.h. */
#ifndef TDICT_CLONE_H
#define TDICT_CLONE_H

#include "tdict/run.h"
#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** @brief Makes a shallow copy: new nodes that share the tensors and objects of @p tree. The copy is not locked.
 *
 *  Changes to the keys of either tree do not affect the other tree. Writes to elements are visible in both. Other
 *  threads may read @p tree, and may change earlier clones of it, during the call.
 *  @note Cost: O(nodes), plus O(keys) of nodes with children. A later first change to either tree copies shared tables,
 *        and may therefore return #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_clone(const tdict_tree *tree, tdict_tree **out, tdict_error *err);
/** @brief Makes a deep copy: new nodes, and new tensors in C order, in one storage for each memory. It is not locked.
 *  Objects are copied by the `clone` hook, or by their tensors if there is no hook or if `memory` is set.
 *  @param[in] run  Uses `stream` and `memory`. NULL for `memory`: a device tensor stays in its memory, and a host
 *                  tensor is copied to plain host memory.
 *  @note Cost: one copy of all bytes, plus O(tensors + nodes). On a device, one launch for each memory. */
TDICT_API TDICT_NODISCARD tdict_status tdict_clone_deep(const tdict_tree *tree, const tdict_run *run, tdict_tree **out,
                                                        tdict_error *err);
/** @brief Makes a tree that shares contiguous tensors, and has copies of the others as tdict_clone_deep() makes them.
 *  Objects are made again from contiguous tensors if the type has `flatten`, and shared otherwise. It is not locked.
 *  @param[in] run  Uses `stream`. */
TDICT_API TDICT_NODISCARD tdict_status tdict_contiguous(const tdict_tree *tree, const tdict_run *run, tdict_tree **out,
                                                        tdict_error *err);

/** @brief Copies all tensors of a tree into one storage, and locks the new tree. A transfer copies it as one block.
 *
 *  The tensors are in the order of tdict_walk(), each in C order and at a multiple of 256 bytes. The result shares
 *  texts, numbers and JSON; other objects are #TDICT_ENOTSUP, and err->path names them. The result stays consolidated
 *  until tdict_unlock(). Its clones, views and children are not consolidated.
 *  @param[in] memory  Where the result is: on the host or the device of the tensors. NULL: plain host memory.
 *  @note Cost: one copy of all bytes, plus O(tensors + nodes). Copies from or to a device run one after another. */
TDICT_API TDICT_NODISCARD tdict_status tdict_consolidate(const tdict_tree *tree, tdict_memory *memory, tdict_tree **out,
                                                         tdict_error *err);
/** @brief Returns true if the tree is consolidated. NULL is not consolidated. */
TDICT_API bool tdict_is_consolidated(const tdict_tree *tree);
/** @brief Returns the storage of a consolidated tree as one tensor of #TDICT_U8, which stays valid without the tree.
 *  @param[out] out  New reference; written on success only.
 *  @return #TDICT_EINVAL also if @p tree is not consolidated. */
TDICT_API TDICT_NODISCARD tdict_status tdict_consolidated_bytes(const tdict_tree *tree, tdict_tensor **out,
                                                                tdict_error *err);

typedef struct tdict_difference_options {
  size_t struct_size;
  /** Elements x and y are equal if |x - y| <= absolute + relative*|y|, where y is of the second tree. 0 by default. */
  double relative, absolute;
  bool nan_equal; /**< true: NaN equals NaN; default false */
} tdict_difference_options;
static inline tdict_difference_options tdict_difference_options_default(void) {
  tdict_difference_options o;
  tdict_init_struct_(o);
  return o;
}
/** The first difference in the order of the first tree: batch sizes, then missing keys, then entries in C order. */
typedef struct tdict_difference {
  bool differs;
  int32_t ndim;                  /**< length of `index`; 0 if the difference is not between two elements */
  int64_t index[TDICT_MAX_NDIM]; /**< index of the element that differs */
  char path[248];                /**< "" if the batch sizes of `a` and `b` differ; long paths are cut in the middle */
  char message[256];             /**< describes the difference */
} tdict_difference;
/** @brief Compares the keys (in any order), batch sizes, dtypes, shapes and elements of two trees.
 *
 *  Devices, locks and strides may differ. Objects of one type are compared by their values or tensors.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out  The first difference. If there is no difference, `differs` is false. Written on success only.
 *  @return #TDICT_OK also if the trees differ; #TDICT_EINVAL also for a tolerance below 0, or a tensor with lost bytes;
 *          #TDICT_EWRONGDEVICE a tensor is in device memory of the program; the errors of `flatten`.
 *  @note Cost: at most two reads of the tensors up to the first difference, plus the copies of device tensors. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_difference(const tdict_tree *a, const tdict_tree *b,
                                                            const tdict_difference_options *options,
                                                            tdict_difference *out, tdict_error *err);
/** @brief Returns true if tdict_get_difference() with the default options succeeds and finds no difference. A tree
 *  with NaN elements or with lost bytes (see tdict/transfer.h) is not equal to itself. */
TDICT_API bool tdict_equal(const tdict_tree *a, const tdict_tree *b);

TDICT_END_DECLS
#endif
