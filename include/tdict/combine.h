/* Joins several trees into one tree: stack, cat, stack with padding, and pack.
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
  const char *masks; /**< tdict_pad_sequence() adds a tree of masks at this path; NULL (default): no masks. The other
                          functions return #TDICT_EINVAL. */
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
 *
 *  If the option `masks` is set, the result also has a tree of bool tensors at this path, as TensorDict's pad_sequence
 *  makes it. Each mask has the path of a tensor and the batch size of the result, in a storage that the masks share. A
 *  mask is true where an element belongs to a sequence, and false in the padding.
 *  @param[in] options  Only `memory` and `masks` are used; `dim` must be 0.
 *  @return The same errors as tdict_stack(); #TDICT_EINVAL if a tree has no batch dimension; #TDICT_EOVERFLOW if an
 *          integer dtype cannot hold @p value; #TDICT_ENOTSUP if tensors are on a device and the bytes of the
 *          padding element are not all equal; #TDICT_EEXIST if the trees have an entry at the path of the masks; the
 *          errors of tdict_set_tree() for that path. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pad_sequence(const tdict_tree *const *items, size_t count, double value,
                                                          const tdict_join_options *options, tdict_tree **out,
                                                          tdict_error *err);

/** Options of tdict_pack_sequence(). */
typedef struct tdict_pack_options {
  size_t struct_size;
  const char *cu_seqlens;         /**< path of the offsets in the result; default "cu_seqlens" */
  const char *max_seqlen;         /**< path of the largest length in the result; default "max_seqlen" */
  const char *position_ids;       /**< path of the positions in the result; NULL (default): none */
  const char *const *stack_paths; /**< paths of tensors that are stacked although they have dimensions */
  size_t num_stack_paths;
  /** The length of the row. The elements after the last sequence are set to `pad_value`, and belong to no sequence. 0
   *  (default): the sum of the lengths. */
  int64_t num_tokens;
  /** The number of lengths that `cu_seqlens` describes. Sequences after the last one have length 0. 0 (default): the
   *  number of trees. */
  int64_t num_sequences;
  double pad_value;     /**< converted to each dtype (bool: 0 or 1) */
  tdict_memory *memory; /**< host memory of the result; NULL (default): plain host memory */
} tdict_pack_options;
static inline tdict_pack_options tdict_pack_options_default(void) {
  tdict_pack_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.cu_seqlens = "cu_seqlens";
  o.max_seqlen = "max_seqlen";
  return o;
}
/** @brief Joins sequences of different lengths into one row without padding, as attention kernels for variable lengths
 *  read them.
 *
 *  The first dimension of each tensor is the sequence dimension. In one tree, all tensors must have the same length.
 *  The result has the tensors of all trees, one after another, with shape [sum of lengths, ...]. Tensors without
 *  dimensions are stacked instead, and tensors named by `stack_paths` too. Their shape in the result is [count, ...].
 *
 *  The result also has these int32 tensors:
 *  - `cu_seqlens` of shape [count + 1]: 0, the first length, the sum of the first two lengths, and so on;
 *  - `max_seqlen` without dimensions: the largest length. The program can read it before the tree moves to a device;
 *  - `position_ids` of shape [sum of lengths], if the option is set: the positions 0, 1, 2, ... of each sequence.
 *
 *  If `num_tokens` and `num_sequences` are set, the shapes of the result are constant. Stacked tensors then have shape
 *  [num_sequences, ...]. Elements without a sequence are set to `pad_value`, or to 0 in `position_ids`.
 *
 *  All trees of the result have no batch dimension. The result has no device, and one storage. Each element of the
 *  trees is copied once.
 *  @param[in] items  @p count trees in host memory, borrowed. Their batch sizes are not used.
 *  @param[in] options  NULL for the defaults. The strings are borrowed for the call.
 *  @param[out] out  New tree, owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL there are no trees, a pointer is NULL, no tensor is joined, an option is out of
 *          range, or a tensor has more than six dimensions; #TDICT_ESHAPE the lengths in one tree differ, other
 *          dimensions differ between trees, the lengths exceed `num_tokens`, or there are more than `num_sequences`
 *          trees; #TDICT_ENOTFOUND a key is missing in one of the trees, or no tensor is at one of the `stack_paths`;
 *          #TDICT_EEXIST the trees have an entry at the path of a new tensor; #TDICT_ETYPE and #TDICT_EDTYPE as
 *          tdict_stack(); #TDICT_EWRONGDEVICE a tensor, or `memory`, is not in host memory; #TDICT_EOVERFLOW the sum of
 *          the lengths does not fit int32, or an integer dtype cannot hold `pad_value`; #TDICT_ENOTSUP a tree has an
 *          object; #TDICT_ENOMEM. err->path names the key. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pack_sequence(const tdict_tree *const *items, size_t count,
                                                           const tdict_pack_options *options, tdict_tree **out,
                                                           tdict_error *err);

TDICT_END_DECLS
#endif
