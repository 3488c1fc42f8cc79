/* Several trees made one: stack, cat, ragged sequences padded. The trees have the same keys, in any order, and their
 * tensors the same dtypes; the first tree's order, nested batch sizes and device are the result's. All elements of a
 * result lie in one storage for each memory; results are not locked. Objects of one type go along as tdict/object.h
 * says. The tensors of one key are on one device in all trees; the result may lie in another memory.
 * Cost of each: the bytes of the result are copied once, and O(tensors of all trees); one storage for each memory, one
 * allocation for all tensors and one a node. Into `out` nothing is made but a list of what stands where.
 * All answer #TDICT_ESHAPE where a child of a tree no longer agrees (see tdict/tree.h).
 * Thread rule: as in tdict/tree.h: the trees are read, `out` trees are written. */
#ifndef TDICT_COMBINE_H
#define TDICT_COMBINE_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** Where a result goes and along which dimension. */
typedef struct tdict_join_options {
  size_t struct_size;
  int32_t dim; /**< stack: the new batch dimension; cat: the one that grows; negative from the end; default 0 */
  tdict_memory *memory; /**< of the result; NULL (default): that of the first tree's tensors on a device, else plain
                             host memory */
} tdict_join_options;
static inline tdict_join_options tdict_join_options_default(void) {
  tdict_join_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

/** @brief A new batch dimension of @p count elements, each a copy of one tree. Result: the trees' batch size with @p
 *  count put in at `dim`.
 *  @param[in] options  NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_EINVAL no tree, NULL, or no such dimension; #TDICT_ENOTFOUND a key that not all have;
 *          #TDICT_ETYPE a tensor meets a tree, or an object one of another type; #TDICT_ESHAPE, #TDICT_EDTYPE batch
 *          sizes, shapes or dtypes differ, err->path naming the key and the message the tree; #TDICT_EWRONGDEVICE the
 *          tensors of a key are on different devices; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_stack(const tdict_tree *const *items, size_t count,
                                                   const tdict_join_options *options, tdict_tree **out,
                                                   tdict_error *err);
/** @brief The trees one behind the other along one batch dimension, in which alone they may differ. Result: the trees'
 *  batch size, that dimension being the sum.
 *  @return as tdict_stack(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_cat(const tdict_tree *const *items, size_t count,
                                                 const tdict_join_options *options, tdict_tree **out, tdict_error *err);
/** @brief As tdict_stack(), into the storage of @p out, which has the same keys and the batch size and shapes of the
 *  result: addresses stay, and it may be locked. All is checked before the first byte is written. Of the options `dim`
 *  is used. If tensors of @p out share bytes, the last write remains.
 *  @return as tdict_stack(); #TDICT_EREADONLY. */
TDICT_API TDICT_NODISCARD tdict_status tdict_stack_into(const tdict_tree *const *items, size_t count,
                                                        const tdict_join_options *options, tdict_tree *out,
                                                        tdict_error *err);
/** @brief As tdict_cat(), into the storage of @p out; as tdict_stack_into(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_cat_into(const tdict_tree *const *items, size_t count,
                                                      const tdict_join_options *options, tdict_tree *out,
                                                      tdict_error *err);
/** @brief Stacks sequences of different lengths, which are the trees' first batch dimension: batch size [count,
 *  longest, ...], what lies behind a sequence's end filled with @p value (converted to each dtype, 0 or 1 for bool).
 *  @param[in] options  `memory` is used; `dim` must be 0.
 *  @return as tdict_stack(); #TDICT_EINVAL a tree without batch dimension; #TDICT_EOVERFLOW an integer dtype that does
 *          not hold @p value; #TDICT_ENOTSUP a value whose bytes differ, on a device. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pad_sequence(const tdict_tree *const *items, size_t count, double value,
                                                          const tdict_join_options *options, tdict_tree **out,
                                                          tdict_error *err);

TDICT_END_DECLS
#endif
