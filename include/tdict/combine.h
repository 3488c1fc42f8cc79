/* Joins several trees into one tree: stack, cat, stack with padding, and pack.
 *
 * The trees have the same keys, in any order. Tensors at one path have the same dtype and device. The result is not
 * locked. It has the key order, the children and the devices of the first tree, or the device of `memory`. All new
 * tensors in one memory share one storage, except masks, ragged leaves and tensors of hooks. Objects are joined as
 * tdict/object.h describes. On a device, one launch makes all copies between tensors of one memory, or driver copies if
 * the driver cannot compile kernels. Cost: O(tensors of all trees), plus one copy of the bytes of the result.
 * docs/elements.md says what is allocated. Thread rule: as in tdict/tree.h.
 *
 * @p items: @p count trees, borrowed. @p options, @p run: NULL for the defaults. @p run: uses `stream` and `memory`. If
 * `memory` is NULL, device tensors are joined in the memory of the first tree's tensor, others in plain host memory.
 * @p out: new tree, owned by the caller; written on success only.
 *
 * Errors of all functions, where err->path is the key, and the message has the number of the tree:
 * - #TDICT_EINVAL: NULL; no trees; an option that is not used or out of range; too many dimensions;
 * - #TDICT_EINVAL also: a transfer into a tensor has failed;
 * - #TDICT_ENOTFOUND: a tree lacks a key; #TDICT_ETYPE: entries differ in kind or type; #TDICT_EDTYPE: dtypes differ;
 * - #TDICT_ESHAPE: batch sizes or shapes do not fit, or a child does not begin with the batch size of its tree;
 * - #TDICT_EWRONGDEVICE: tensors of a key on different devices, or device memory of the program without `memory`;
 * - #TDICT_ENOTSUP: too many memories (docs/limits.md); #TDICT_EOVERFLOW: the result is too large; #TDICT_ENOMEM;
 * - with `stream`: #TDICT_ENOTSUP also for what cannot be queued, and for a driver without kernels;
 * - with `stream`: #TDICT_EWRONGDEVICE also for a stream of another device; #TDICT_ECAPTURE if it is being captured;
 * - the errors of tdict_tensor_empty(), of tdict_tensor_copy() and of objects. */
#ifndef TDICT_COMBINE_H
#define TDICT_COMBINE_H

#include "tdict/run.h"
#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** Options of the functions that join trees. */
typedef struct tdict_join_options {
  size_t struct_size;
  /** Stack: place of the new batch dimension in the result. Cat: the joined one. Below 0: from the end. Default 0 */
  int32_t dim;
  /** true: tdict_stack() makes a ragged leaf (tdict/ragged.h) of tensors whose first dimensions differ in size. The
   *  trees then have no batch dimension, and there is no stream. Default false. */
  bool ragged;
} tdict_join_options;
static inline tdict_join_options tdict_join_options_default(void) {
  tdict_join_options o;
  tdict_init_struct_(o);
  return o;
}

/** @brief Stacks trees of equal batch sizes along a new batch dimension, `dim`, whose element i is a copy of tree i. */
TDICT_API TDICT_NODISCARD tdict_status tdict_stack(const tdict_tree *const *items, size_t count,
                                                   const tdict_join_options *options, const tdict_run *run,
                                                   tdict_tree **out, tdict_error *err);
/** @brief Concatenates trees along batch dimension `dim`, in which alone their batch sizes may differ. */
TDICT_API TDICT_NODISCARD tdict_status tdict_cat(const tdict_tree *const *items, size_t count,
                                                 const tdict_join_options *options, const tdict_run *run,
                                                 tdict_tree **out, tdict_error *err);
/** @brief Stacks trees like tdict_stack(), but writes the result into the storages of @p dst.
 *
 *  Addresses of elements stay, and @p dst may be locked. All tensors are checked before the first byte is written. If
 *  tensors of @p dst share bytes, the last write remains on the host, and is unspecified on a device.
 *  @param[in,out] dst  Has the keys of the trees, and the batch size, shapes and dtypes of the result.
 *  @param[in] run      Uses `stream`.
 *  @return Also #TDICT_EREADONLY; #TDICT_ENOTSUP: a leaf that cannot be written in place, such as text, differs. */
TDICT_API TDICT_NODISCARD tdict_status tdict_stack_into(tdict_tree *dst, const tdict_tree *const *items, size_t count,
                                                        const tdict_join_options *options, const tdict_run *run,
                                                        tdict_error *err);
/** @brief Concatenates trees like tdict_cat() into the storages of @p dst, by the rules of tdict_stack_into(). A ragged
 *  leaf of @p dst must have the offsets of the result. */
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
  tdict_init_struct_(o);
  return o;
}
/** @brief Stacks sequences of different lengths, and pads the shorter ones.
 *
 *  The first dimension of each tensor is the sequence. With batch dimensions, the result has the batch size [count,
 *  longest length, ...]. Without them, the tensors of a tree may have different lengths. The result then has the batch
 *  size [count], and each tensor the shape [count, longest length at this path, ...].
 *
 *  The tree of masks has a bool tensor for each tensor of the result, at the same path. It has the shape of the batch
 *  size or [count, longest length], and is true for elements of a sequence. Leaves that are not tensors are shared.
 *  @param[in] run  Uses `memory`.
 *  @return Also #TDICT_ESHAPE: a tensor without dimensions; #TDICT_EOVERFLOW: an integer dtype cannot hold `value`;
 *          #TDICT_ENOTSUP: a device tensor and a `value` whose bytes are not all equal, several lanes unless it is 0,
 *          or elements that are too large; #TDICT_EEXIST: an entry at `masks`; the errors of tdict_set_tree(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_pad_sequence(const tdict_tree *const *items, size_t count,
                                                          const tdict_pad_options *options, const tdict_run *run,
                                                          tdict_tree **out, tdict_error *err);

/** Options of tdict_pack_sequence(). The strings are borrowed for the call. */
typedef struct tdict_pack_options {
  size_t struct_size;
  const char *cu_seqlens;         /**< path of the tensor of offsets; default "cu_seqlens" */
  const char *max_seqlen;         /**< path of the tensor that holds the largest length; default "max_seqlen" */
  const char *position_ids;       /**< path of the tensor of positions; NULL (default): no positions */
  const char *const *stack_paths; /**< paths of tensors that are stacked instead of concatenated */
  size_t num_stack_paths;
  int64_t num_tokens;    /**< size of the concatenated dimension, with padding; 0 (default): the sum of the lengths */
  int64_t num_sequences; /**< sequences of `cu_seqlens`, of length 0 without a tree; 0 (default): number of trees */
  double pad_value;      /**< elements after the last sequence, converted to each dtype; default 0 */
} tdict_pack_options;
static inline tdict_pack_options tdict_pack_options_default(void) {
  tdict_pack_options o;
  tdict_init_struct_(o);
  o.cu_seqlens = "cu_seqlens";
  o.max_seqlen = "max_seqlen";
  return o;
}
/** @brief Concatenates sequences of different lengths without padding between them, as attention kernels read them.
 *
 *  Each tree in host memory is one sequence. Its tensors have one length, the size of their first dimension, and its
 *  batch size is not used. The tensors at a path become one of shape [sum of lengths, ...]. Tensors without dimensions
 *  and those at `stack_paths` are stacked to [count, ...]. The result has no batch dimensions and no device. It also
 *  has these int32 tensors:
 *  - `cu_seqlens` of shape [count + 1]: 0, the first length, the sum of the first two lengths, and so on;
 *  - `max_seqlen` without dimensions: the largest length;
 *  - `position_ids` of shape [sum of lengths], if the option is set: the positions 0, 1, 2, ... of each sequence.
 *
 *  With `num_tokens` and `num_sequences` in place of the sum and of count, the shapes do not depend on the lengths.
 *  @param[in] run  Uses `memory`, which must be host memory.
 *  @return Also #TDICT_ESHAPE: lengths of one tree differ, or exceed `num_tokens`, or too many trees; #TDICT_EEXIST: an
 *          entry at the path of a new tensor; #TDICT_EOVERFLOW: a number does not fit its dtype; #TDICT_ENOTSUP: an
 *          object, or a dtype as in tdict_pad_sequence(); #TDICT_EWRONGDEVICE: not in host memory. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pack_sequence(const tdict_tree *const *items, size_t count,
                                                           const tdict_pack_options *options, const tdict_run *run,
                                                           tdict_tree **out, tdict_error *err);

TDICT_END_DECLS
#endif
