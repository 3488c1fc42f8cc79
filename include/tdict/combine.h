/* Joins several trees into one tree: stack, cat, stack with padding, and pack.
 *
 * The trees must have the same keys, in any order. Tensors at one path must have the same dtype and be on the same
 * device. The result has the key order of the first tree, and is not locked. All new tensors in one memory share one
 * storage, except masks, ragged leaves, and tensors that hooks make. tdict_pack_sequence() refuses objects. The other
 * functions join objects as tdict/object.h describes. If a child of the first tree has additional batch dimensions, the
 * child of the result at the same path has these dimensions too. The result and its children have the devices of the
 * first tree and its children. If `memory` of the tdict_run is set, the device of `memory` replaces each of these
 * devices. The result of tdict_pack_sequence() and its children have no batch dimensions and no device.
 *
 * Cost of each function: O(tensors of all trees), plus one copy of the bytes of the result. A new tree consists of one
 * storage per memory, one block for the structs of all tensors, and one block per node. The functions also allocate
 * temporary lists. The functions that write into `dst` allocate only such lists, and views of the rows of ragged
 * leaves. Hooks of objects can allocate more. On a device, one launch makes all copies between tensors of one memory.
 * If the driver cannot compile kernels, driver copies are used instead.
 *
 * Changes to a child. A program can change a child tree so that a tensor of the child no longer begins with the batch
 * size of the parent (see tdict/tree.h). For such trees, all functions except tdict_pack_sequence() return
 * #TDICT_ESHAPE.
 *
 * Thread rule: as in tdict/tree.h. The functions read the trees of `items` and write `dst`. */
#ifndef TDICT_COMBINE_H
#define TDICT_COMBINE_H

#include "tdict/run.h"
#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** Options of the functions that join trees. */
typedef struct tdict_join_options {
  size_t struct_size;
  /** Stack: position of the new batch dimension. Cat: the dimension along which trees are joined. Negative values count
   *  from the end: -1 is the last batch dimension of the result. Default 0. */
  int32_t dim;
  /** true: if the tensors at a key differ in the size of their first dimension, tdict_stack() makes a ragged leaf
   *  (tdict/ragged.h). In the other functions, and with a stream, #TDICT_EINVAL. Default false. */
  bool ragged;
} tdict_join_options;
static inline tdict_join_options tdict_join_options_default(void) {
  tdict_join_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

/** @brief Stacks the @p count trees of @p items along a new batch dimension.
 *
 *  The trees must have equal batch sizes. The result has this batch size, with the size @p count inserted at dimension
 *  `dim`. Element i of the new dimension is a copy of tree i.
 *  If the option `ragged` is set, the trees must have no batch dimension. The tensors at one key may then differ in the
 *  size of their first dimension. If these sizes differ, the result has a ragged leaf with int64 offsets at the key.
 *  @param[in] items  @p count trees, borrowed.
 *  @param[in] options  NULL for the defaults.
 *  @param[in] run  Uses `stream` and `memory`; NULL for the defaults. Copies on a stream are ordered as tdict/index.h
 *                  describes. If `memory` is NULL, tensors on a device are joined in the memory of the first tree's
 *                  tensor, and other tensors in plain host memory.
 *  @param[out] out  New tree, owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL if there are no trees, a pointer is NULL, `dim` does not exist, an option is not
 *          used, or `ragged` is set for trees with batch dimensions; #TDICT_EINVAL also if the result would have too
 *          many dimensions, or if a transfer into a tensor has failed; #TDICT_ENOTFOUND if a key is missing in one of
 *          the trees; #TDICT_ETYPE if the entries at a key differ in kind (tensor, tree, object) or in the type of the
 *          object; #TDICT_ESHAPE if batch sizes or shapes differ; #TDICT_ESHAPE also if a child tree would have too
 *          many batch dimensions, or if a ragged leaf would be in a child tree with a batch dimension; #TDICT_EDTYPE if
 *          dtypes differ; #TDICT_EWRONGDEVICE if the tensors of one key are on different devices, or if `memory` is
 *          NULL and the first tree's tensor is in device memory of the program; #TDICT_ENOTSUP if the result would be
 *          in more than 16 memories; #TDICT_ENOTSUP also if `ragged` is set and the tensors of an object are used
 *          instead of its `stack` hook; #TDICT_EOVERFLOW if the size of the result does not fit in 63 bits;
 *          #TDICT_ENOMEM; the errors of tdict_tensor_empty() and tdict_tensor_copy(); the errors of objects, see
 *          tdict/object.h. err->path names the key, and the message gives the index of the tree in @p items. With
 *          `stream`: #TDICT_EINVAL also if `ragged` is set; #TDICT_ENOTSUP also for a copy that cannot be queued, for
 *          an object other than text, numbers and JSON, and if the driver cannot compile kernels; #TDICT_EWRONGDEVICE
 *          also if the stream is not of the device of a tensor; #TDICT_ECAPTURE if the stream is being captured. */
TDICT_API TDICT_NODISCARD tdict_status tdict_stack(const tdict_tree *const *items, size_t count,
                                                   const tdict_join_options *options, const tdict_run *run,
                                                   tdict_tree **out, tdict_error *err);
/** @brief Concatenates the @p count trees of @p items along an existing batch dimension.
 *
 *  The batch sizes of the trees may differ only in this dimension. In the result, the size of this dimension is the sum
 *  of the sizes in the trees.
 *  @return The same errors as tdict_stack(); #TDICT_EINVAL also if `ragged` is set; #TDICT_EOVERFLOW also if the sum of
 *          the sizes is too large. */
TDICT_API TDICT_NODISCARD tdict_status tdict_cat(const tdict_tree *const *items, size_t count,
                                                 const tdict_join_options *options, const tdict_run *run,
                                                 tdict_tree **out, tdict_error *err);
/** @brief Stacks trees like tdict_stack(), but writes the result into the storages of @p dst.
 *
 *  Addresses of elements of @p dst stay valid, and @p dst may be locked. The call checks all tensors before it writes
 *  the first byte. If tensors of @p dst share bytes, these bytes keep the values that are written last. On a device,
 *  the shared bytes are unspecified.
 *  @param[in,out] dst  Must have the keys of the trees in @p items, and the batch size, shapes and dtypes of the
 *          result.
 *  @param[in] run  Uses `stream`; NULL for the defaults.
 *  @return The same errors as tdict_stack(); #TDICT_EINVAL also if `ragged` is set; #TDICT_EREADONLY if a tensor of @p
 *          dst is read-only; #TDICT_EWRONGDEVICE also as for tdict_tensor_copy(); #TDICT_ENOTSUP also if a leaf that
 *          cannot be written in place, such as a text, would change. */
TDICT_API TDICT_NODISCARD tdict_status tdict_stack_into(tdict_tree *dst, const tdict_tree *const *items, size_t count,
                                                        const tdict_join_options *options, const tdict_run *run,
                                                        tdict_error *err);
/** @brief Concatenates trees like tdict_cat(), but writes the result into the storages of @p dst. tdict_stack_into()
 *  describes the rules for @p dst and the errors.
 *
 *  If a ragged leaf of @p dst (tdict/ragged.h) does not have the offsets of the result, the call returns
 *  #TDICT_ESHAPE. */
TDICT_API TDICT_NODISCARD tdict_status tdict_cat_into(tdict_tree *dst, const tdict_tree *const *items, size_t count,
                                                      const tdict_join_options *options, const tdict_run *run,
                                                      tdict_error *err);
/** Options of tdict_pad_sequence(). */
typedef struct tdict_pad_options {
  size_t struct_size;
  double value;      /**< written to the padding, converted to the dtype of each tensor; default 0 */
  const char *masks; /**< path at which a tree of masks is added; NULL (default): no masks */
} tdict_pad_options;
static inline tdict_pad_options tdict_pad_options_default(void) {
  tdict_pad_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}
/** @brief Stacks the @p count trees of @p items, which are sequences of different lengths, and pads the shorter
 *  sequences.
 *
 *  The first dimension of each tensor is the sequence dimension. If the trees have batch dimensions, the result has the
 *  batch size [count, length of the longest sequence, ...]. If the trees have no batch dimensions, the tensors of a
 *  tree may have different lengths. The result then has the batch size [count], and the tensor at a path has the shape
 *  [count, length of the longest sequence at this path, ...]. Elements after the end of a sequence are set to
 *  the option `value`. For bool, 0 is false and every other number is true.
 *
 *  If the option `masks` is set, the result also has a tree of masks at the path `masks`. The tree of masks has one
 *  bool tensor for each tensor of the result, at the same path. If the result has leaves of tdict/nontensor.h or
 *  tdict/unbatched.h, the tree of masks has the same leaves. The shape of each mask is the batch size of the result. If
 *  the trees have no batch dimensions, the shape is [count, length of the longest sequence at this path]. A mask is
 *  true where an element belongs to a sequence, and false in the padding. All masks in one memory share one storage.
 *  @param[in] options  NULL for the defaults.
 *  @param[in] run  Uses `memory`, as tdict_stack() does; NULL for the defaults.
 *  @return The same errors as tdict_stack(); #TDICT_ESHAPE
 *          also if a tensor has no dimension; #TDICT_EOVERFLOW also if an integer dtype cannot hold `value`;
 *          #TDICT_ENOTSUP if a tensor is on a device and the bytes of the padding element are not all equal;
 *          #TDICT_ENOTSUP also if `value` is not 0 and a dtype has several lanes, or if an element has more than 64
 *          bytes; #TDICT_EEXIST if the trees have an entry at the path `masks`; the errors of tdict_set_tree() for that
 *          path. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pad_sequence(const tdict_tree *const *items, size_t count,
                                                          const tdict_pad_options *options, const tdict_run *run,
                                                          tdict_tree **out, tdict_error *err);

/** Options of tdict_pack_sequence(). */
typedef struct tdict_pack_options {
  size_t struct_size;
  const char *cu_seqlens;         /**< path of the tensor of offsets; default "cu_seqlens" */
  const char *max_seqlen;         /**< path of the tensor that holds the largest length; default "max_seqlen" */
  const char *position_ids;       /**< path of the tensor of positions; NULL (default): no positions */
  const char *const *stack_paths; /**< paths of tensors that are stacked instead of concatenated */
  size_t num_stack_paths;
  /** Size of the first dimension of the concatenated tensors. Elements after the last sequence are set to `pad_value`.
   *  0 (default): the sum of the lengths. */
  int64_t num_tokens;
  /** Number of sequences that `cu_seqlens` describes. Sequences for which there is no tree have length 0. 0 (default):
   *  the number of trees. */
  int64_t num_sequences;
  double pad_value; /**< converted to each dtype, as in tdict_pad_sequence(); default 0 */
} tdict_pack_options;
static inline tdict_pack_options tdict_pack_options_default(void) {
  tdict_pack_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.cu_seqlens = "cu_seqlens";
  o.max_seqlen = "max_seqlen";
  return o;
}
/** @brief Concatenates sequences of different lengths, without padding between sequences. Attention kernels for
 *  sequences of variable length read this layout.
 *
 *  Each tree is one sequence. The first dimension of its tensors is the sequence dimension. The size of this dimension
 *  is the length of the sequence. In one tree, all tensors with a sequence dimension must have the same length. The
 *  call concatenates the tensors of all trees at each path into a tensor of shape [sum of lengths, ...]. Tensors
 *  without dimensions and tensors at `stack_paths` have no sequence dimension. The call stacks such tensors into a
 *  tensor of shape [count, ...].
 *
 *  The result also has these int32 tensors:
 *  - `cu_seqlens` of shape [count + 1]: 0, the first length, the sum of the first two lengths, and so on;
 *  - `max_seqlen` without dimensions: the largest length;
 *  - `position_ids` of shape [sum of lengths], if the option `position_ids` is set: the positions 0, 1, 2, ... of each
 *    sequence.
 *
 *  If `num_tokens` is set, this number replaces the sum of lengths in the shapes of the result. If `num_sequences` is
 *  set, this number replaces count in the shapes. If both are set, the shapes do not depend on the lengths. Elements
 *  that belong to no sequence are set to `pad_value`, or to 0 in `position_ids`.
 *
 *  All tensors of the result share one storage. Each element of the source trees is copied once.
 *  @param[in] items  @p count trees in host memory, borrowed. The call does not use the batch sizes of the trees.
 *  @param[in] options  NULL for the defaults. The strings are borrowed for the call.
 *  @param[in] run  Uses `memory`, which must be host memory, and NULL stands for plain host memory. NULL for the
 *                  defaults.
 *  @param[out] out  New tree, owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL there are no trees, a pointer is NULL, no tensor has a sequence dimension, an
 *          option is out of range, or `stack_paths` has a path twice; #TDICT_EINVAL also if a tensor of the result
 *          would have more than six dimensions, or if a transfer into a tensor has failed; #TDICT_ESHAPE the lengths in
 *          one tree differ, other dimensions differ between trees, the sum of the lengths exceeds `num_tokens`, or
 *          there are more than `num_sequences` trees; #TDICT_ENOTFOUND a key is missing in one of the trees, or no
 *          tensor is at one of the `stack_paths`; #TDICT_EEXIST the trees have an entry at the path of a new tensor, or
 *          two new tensors have the same path; #TDICT_ETYPE and #TDICT_EDTYPE as tdict_stack(); #TDICT_ETYPE also if
 *          the path of a new tensor leads through a tensor; #TDICT_EWRONGDEVICE a tensor, or `memory`, is not in host
 *          memory; #TDICT_EOVERFLOW the sum of the lengths or `num_tokens` does not fit int32, or an integer dtype
 *          cannot hold `pad_value`; #TDICT_ENOTSUP a tree has an object, or a dtype as in tdict_pad_sequence();
 *          #TDICT_ENOMEM. err->path names the key. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pack_sequence(const tdict_tree *const *items, size_t count,
                                                           const tdict_pack_options *options, const tdict_run *run,
                                                           tdict_tree **out, tdict_error *err);

TDICT_END_DECLS
#endif
