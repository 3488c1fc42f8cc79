/* Joins several trees into one tree: stack, cat, and stack with padding.
 *
 * The trees must have the same keys, in any order. Tensors at the same path must have the same dtype. The result has
 * the key order, nested batch sizes and device of the first tree. The result is not locked. All tensors of the result
 * that are in one memory share one storage.
 * Tensors at the same path must be on the same device in all trees. The option `memory` may place the result in another
 * memory. Objects are joined as tdict/object.h describes.
 * Cost of each function: O(tensors of all trees), plus one copy of the bytes of the result. The functions allocate one
 * storage per memory, one block for all tensors, and one block per node. The functions that write into `dst` allocate
 * only a temporary list of the leaves.
 * A program can change a child tree so that a tensor no longer begins with the batch size of the tree (see
 * tdict/tree.h). Each function then returns #TDICT_ESHAPE.
 * Thread rule: as in tdict/tree.h. The input trees are read; a `dst` tree is written. */
#ifndef TDICT_COMBINE_H
#define TDICT_COMBINE_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** Selects the dimension along which trees are joined, and the memory of the result. */
typedef struct tdict_join_options {
  size_t struct_size;
  int32_t dim; /**< Stack: position of the new batch dimension. Cat: the dimension along which trees are joined.
                    Negative values count from the end. Default 0. */
  tdict_memory *memory; /**< Memory of the result. NULL (default): the memory of the first tree if its tensors are on
                             a device, else plain host memory. */
  bool ragged; /**< true: tdict_stack() of trees without batch dimensions makes a ragged leaf (tdict/ragged.h) of the
                    tensors at a key if their first sizes differ. The other functions return #TDICT_EINVAL. */
} tdict_join_options;
static inline tdict_join_options tdict_join_options_default(void) {
  tdict_join_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

/** @brief Stacks the @p count trees of @p items along a new batch dimension.
 *
 *  The result has the batch size of the trees with a dimension of @p count elements inserted at `dim`. Element i
 *  along that dimension is a copy of tree i.
 *  If the option `ragged` is set and the trees have no batch dimension, tensors at one key may differ in their first
 *  size. The result has a ragged leaf with int64 offsets at such a key. Other keys get tensors.
 *  @param[in] items  @p count trees, borrowed.
 *  @param[in] options  NULL for the defaults.
 *  @param[out] out  New tree, owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL if there are no trees, a pointer is NULL, `dim` does not exist, or `ragged` is
 *          set for trees with batch dimensions; #TDICT_ENOTFOUND if a key is missing in one of the trees;
 *          #TDICT_ETYPE if the entries at a key differ in kind (tensor, tree, object) or in the type of the object;
 *          #TDICT_ESHAPE if batch sizes or shapes differ, or a ragged leaf would be in a child with a batch dimension
 *          of its own; #TDICT_EDTYPE if dtypes differ; #TDICT_EWRONGDEVICE if the tensors of one key are on different
 *          devices; #TDICT_ENOTSUP if `ragged` is set and an object has no `stack` hook; #TDICT_ENOMEM. err->path
 *          names the key, and the message names the tree. */
TDICT_API TDICT_NODISCARD tdict_status tdict_stack(const tdict_tree *const *items, size_t count,
                                                   const tdict_join_options *options, tdict_tree **out,
                                                   tdict_error *err);
/** @brief Concatenates the @p count trees of @p items along an existing batch dimension.
 *
 *  The batch sizes of the trees may differ only in this dimension. Its size in the result is the sum of its sizes in
 *  the trees.
 *  @return The same errors as tdict_stack(); #TDICT_EOVERFLOW if the sum is too large. */
TDICT_API TDICT_NODISCARD tdict_status tdict_cat(const tdict_tree *const *items, size_t count,
                                                 const tdict_join_options *options, tdict_tree **out, tdict_error *err);
/** @brief Stacks trees like tdict_stack(), but writes the result into the storages of @p dst.
 *
 *  The addresses of @p dst stay valid, and @p dst may be locked. Everything is checked before the first byte is
 *  written. If tensors of @p dst share bytes, these bytes keep the values that are written last.
 *  @param[in] options  Only `dim` is used.
 *  @param[in,out] dst  Must have the keys of the trees in @p items, and the batch size, shapes and dtypes of the
 *          result.
 *  @return The same errors as tdict_stack(); #TDICT_EREADONLY if a tensor of @p dst is read-only. */
TDICT_API TDICT_NODISCARD tdict_status tdict_stack_into(const tdict_tree *const *items, size_t count,
                                                        const tdict_join_options *options, tdict_tree *dst,
                                                        tdict_error *err);
/** @brief Concatenates trees like tdict_cat(), but writes the result into the storages of @p dst. tdict_stack_into()
 *  describes the rules for @p dst and the errors. */
TDICT_API TDICT_NODISCARD tdict_status tdict_cat_into(const tdict_tree *const *items, size_t count,
                                                      const tdict_join_options *options, tdict_tree *dst,
                                                      tdict_error *err);
/** @brief Stacks the @p count trees of @p items, which are sequences of different lengths, and pads the shorter
 *  sequences.
 *
 *  The first batch dimension of each tree is the sequence dimension. The result has the batch size [count, longest,
 *  ...]. Elements after the end of a sequence are set to @p value, converted to each dtype (bool: 0 or 1).
 *  @param[in] options  Only `memory` is used; `dim` must be 0.
 *  @return The same errors as tdict_stack(); #TDICT_EINVAL if a tree has no batch dimension; #TDICT_EOVERFLOW if an
 *          integer dtype cannot hold @p value; #TDICT_ENOTSUP if tensors are on a device and the bytes of the
 *          padding element are not all equal. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pad_sequence(const tdict_tree *const *items, size_t count, double value,
                                                          const tdict_join_options *options, tdict_tree **out,
                                                          tdict_error *err);

TDICT_END_DECLS
#endif
