/* Declares ragged leaves. A ragged leaf holds rows of different lengths, for example sequences. The tensor `values`
 * contains the rows one after another. Row i has the elements values[offsets[i]] to values[offsets[i + 1] - 1].
 * PyTorch's jagged layout and Arrow's large list also store values and offsets in this way.
 *
 * The tensors, the number of rows and the row lengths of a ragged leaf never change. The program may write the elements
 * of `values`, but must not write the elements of `offsets`. Each leaf keeps a copy of its offsets in host memory, so
 * the functions of this header find a row without reading device memory.
 *
 * Ownership. A ragged leaf is reference-counted. A function that creates a ragged leaf returns one reference; release
 * the reference with tdict_ragged_release(). A tree that holds a ragged leaf owns another reference.
 *
 * Trees. A ragged leaf is an object of the type tdict_ragged_type(), so tdict_walk() and tdict_get_entry() report the
 * leaf as an object. The leaf has one batch dimension, whose size is the number of rows. The batch size of the tree
 * must be [] or [number of rows].
 *
 * - tdict_index_get() with TDICT_AT returns one row as a tensor. tdict_unbind() returns every row as a tensor. These
 *   tensors are views of `values`.
 * - tdict_index_get() with a TDICT_RANGE of step 1, tdict_split() and tdict_split_every() return leaves whose values
 *   are views of `values`. If the first row of a result does not begin at element 0 of `values`, the result has new
 *   offsets.
 * - tdict_index_get() with a list, a mask or a range of another step copies the selected rows. For a leaf on a device,
 *   the call returns #TDICT_ENOTSUP.
 * - tdict_cat() makes a leaf with the rows of all given leaves, one leaf after another. The offsets of the result have
 *   the dtype of the first leaf's offsets.
 * - tdict_cat_into() writes the rows of all leaves, one leaf after another. The destination must be a ragged leaf with
 *   the same number of rows, and the rows must have the same lengths. Otherwise the call returns #TDICT_ESHAPE.
 * - If the option `ragged` is set, tdict_stack() makes a ragged leaf from tensors of different lengths.
 * - Functions that write rows in place, such as tdict_index_set(), accept only a row of the length of the old row. For
 *   a row of another length, the functions return #TDICT_ESHAPE. The tree with the new elements must have a ragged leaf
 *   at the same path, with one row for each selected row. If the batch size of this tree is [], the tree may have a
 *   tensor at the path instead. In this case, the call writes the tensor to each selected row.
 * - tdict_index_into() with TDICT_AT copies the row into a tensor. With other indices, the call copies the selected
 *   rows into a ragged leaf whose rows have the lengths of the selected rows.
 * - tdict_fill(), tdict_zero(), tdict_to_dtype(), tdict_visit(), tdict_apply() and tdict_filter() use only the tensor
 *   `values`. The path of this tensor is the path of the leaf, followed by the key `values`. A new tensor that
 *   tdict_apply() receives for `values` must have as many elements in dimension 0 as `values`.
 * - tdict_clone_deep() and transfers copy `values` and `offsets`. tdict_transfer_into() copies only `values`, because
 *   the rows of the source and of the destination must have the same lengths.
 * - Operations that would add, remove or reorder batch dimensions in any other way return #TDICT_ENOTSUP. Examples are
 *   tdict_unsqueeze(), tdict_pad_sequence(), and tdict_stack() of ragged leaves. The reason is that `values` and
 *   `offsets` can describe only one batch dimension. err->path names the leaf.
 *
 * Thread rule: many threads may read a ragged leaf at the same time. Retain and release are safe from any thread. For
 * the elements of `values`, the thread rule of tdict/tensor.h applies. */
#ifndef TDICT_RAGGED_H
#define TDICT_RAGGED_H

#include "tdict/object.h"

TDICT_BEGIN_DECLS

typedef struct tdict_ragged tdict_ragged;

/** Options for creating a ragged leaf. */
typedef struct tdict_ragged_options {
  size_t struct_size;
  tdict_dtype offsets_dtype; /**< TDICT_I64 (default) or TDICT_I32 */
  tdict_memory *memory;      /**< Allocates `values` and `offsets`. NULL (default): the memory of the given tensors if
                                  these tensors are on a device, else plain host memory. */
} tdict_ragged_options;
static inline tdict_ragged_options tdict_ragged_options_default(void) {
  tdict_ragged_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.offsets_dtype = TDICT_I64;
  return o;
}

/** @brief Creates a ragged leaf over two tensors. Retains both tensors and copies no elements of @p values.
 *
 *  Cost: one copy of the offsets to host memory. The call first waits for transfers that write @p offsets. The copy is
 *  done when the call returns.
 *  @param[in] values  One dimension or more. Dimension 0 has the elements of all rows.
 *  @param[in] offsets  int64 or int32, of shape [number of rows + 1], on the device of @p values. The first offset must
 *          be 0. No offset may be less than the offset before it. The last offset must be the size of dimension 0 of @p
 *          values.
 *  @param[out] out  Owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL if an argument is NULL, or a transfer into @p offsets failed or was cancelled;
 *          #TDICT_EINVAL also if the first offset is not 0, or an offset is less than the offset before it (the message
 *          has the index); #TDICT_ESHAPE if @p values has no dimension, or @p offsets has another shape; #TDICT_ESHAPE
 *          also if the last offset differs from the size of dimension 0 of @p values; #TDICT_EDTYPE if @p offsets is
 *          neither int64 nor int32; #TDICT_EWRONGDEVICE if the tensors are on different devices, or @p offsets is in
 *          device memory that the program owns; #TDICT_ENOMEM; for @p offsets on a device also #TDICT_EDEVICE,
 *          #TDICT_ELOST and #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_ragged_create(tdict_tensor *values, tdict_tensor *offsets,
                                                           tdict_ragged **out, tdict_error *err);
/** @brief Creates a ragged leaf from one tensor per row. Copies the elements into one new storage.
 *
 *  Cost: one tdict_tensor_copy() per row.
 *  @param[in] rows  @p count tensors, at least one, borrowed. The size of dimension 0 of each tensor is the length of
 *          the row. The other sizes, the dtype and the device must be equal in all rows.
 *  @param[in] options  NULL for the defaults.
 *  @param[out] out  Owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL if there are no rows, a pointer is NULL, or a transfer into a row failed or was
 *          cancelled; #TDICT_ESHAPE, #TDICT_EDTYPE or #TDICT_EWRONGDEVICE if a row differs from row 0 (the message has
 *          the index of the row); #TDICT_ESHAPE if a row has no dimension; #TDICT_EDTYPE if `offsets_dtype` is neither
 *          int64 nor int32; #TDICT_EOVERFLOW if `offsets_dtype` cannot hold the last offset; #TDICT_EWRONGDEVICE if the
 *          program owns the device memory of the rows and the option `memory` is NULL, or if the rows and `memory` are
 *          on two different devices other than the cpu; the errors of tdict_tensor_empty(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_ragged_from_rows(tdict_tensor *const *rows, size_t count,
                                                              const tdict_ragged_options *options, tdict_ragged **out,
                                                              tdict_error *err);
/** @brief Creates a ragged leaf from the first elements of each row of a padded tensor. Copies the elements.
 *
 *  Cost: one copy of @p lengths, and one tdict_tensor_copy() per row.
 *  @param[in] padded  A tensor of shape [rows, longest, ...], borrowed.
 *  @param[in] lengths  The lengths or a mask, on any device. Lengths are an int64 or int32 tensor of shape [rows]. A
 *          mask is a bool or uint8 tensor of shape [rows, longest]. An element of the mask is not 0 if the element of
 *          @p padded belongs to the row, and 0 if the element is padding. In each row of the mask, no 0 may come before
 *          another value. The call copies @p lengths to host memory.
 *  @param[in] options  NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_EINVAL for NULL; #TDICT_EINVAL also if a length is below 0 or above `longest` (the
 *          message names the row); #TDICT_EINVAL also if a 0 comes before another value in a row of the mask;
 *          #TDICT_ESHAPE if @p padded has fewer than two dimensions, or the shapes of the two tensors do not match;
 *          #TDICT_EDTYPE if @p lengths has another dtype; the errors of tdict_ragged_from_rows(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_ragged_from_padded(const tdict_tensor *padded, const tdict_tensor *lengths,
                                                                const tdict_ragged_options *options, tdict_ragged **out,
                                                                tdict_error *err);
/** @brief Copies the rows into a new tensor of shape [rows, longest row, ...], and fills the elements after the end of
 *  each row.
 *
 *  Cost: one tdict_tensor_copy() and one fill per row.
 *  @param[in] value  Number that fills the elements after the end of each row; converted as tdict_fill() does.
 *  @param[in] memory  Allocates @p padded and @p mask. NULL: the memory of the leaf if the leaf is on a device, else
 *          plain host memory.
 *  @param[out] padded  Owned by the caller; written on success only.
 *  @param[out] mask  A bool tensor of shape [rows, longest row] that is true for the elements of the rows. Owned by the
 *          caller; written on success only. NULL: no mask is made.
 *  @return #TDICT_OK; #TDICT_EINVAL @p ragged or @p padded is NULL, or a transfer into the tensor `values` failed or
 *          was cancelled; #TDICT_EOVERFLOW if an integer dtype cannot hold @p value; #TDICT_ENOTSUP as tdict_fill();
 *          #TDICT_EWRONGDEVICE as tdict_ragged_from_rows(); the errors of tdict_tensor_empty(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_ragged_to_padded(const tdict_ragged *ragged, double value,
                                                              tdict_memory *memory, tdict_tensor **padded,
                                                              tdict_tensor **mask, tdict_error *err);

/** @brief Adds a reference and returns @p ragged. */
TDICT_API tdict_ragged *tdict_ragged_retain(const tdict_ragged *ragged);
/** @brief Releases a reference. NULL is allowed. */
TDICT_API void tdict_ragged_release(tdict_ragged *ragged);

/** @brief Returns the elements of all rows, borrowed from the leaf. */
TDICT_API tdict_tensor *tdict_ragged_get_values(const tdict_ragged *ragged);
/** @brief Returns the offsets, borrowed from the leaf. The program must not write the elements of the offsets. */
TDICT_API const tdict_tensor *tdict_ragged_get_offsets(const tdict_ragged *ragged);
/** @brief Returns the number of rows. */
TDICT_API int64_t tdict_ragged_num_rows(const tdict_ragged *ragged);
/** @brief Returns the length of row @p i, or -1 if there is no row @p i. Never reads device memory. */
TDICT_API int64_t tdict_ragged_row_length(const tdict_ragged *ragged, int64_t i);
/** @brief Returns the length of the longest row; 0 if there are no rows. Cost: O(rows). */
TDICT_API int64_t tdict_ragged_max_length(const tdict_ragged *ragged);
/** @brief Creates a tensor that is a view of the elements of row @p i.
 *  @param[out] out  Owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL if an argument is NULL or there is no row @p i; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_ragged_get_row(const tdict_ragged *ragged, int64_t i, tdict_tensor **out,
                                                            tdict_error *err);

/** @brief Returns the type of ragged leaves. Compare this type with the result of tdict_object_type(), or with the type
 *  of an entry in tdict_walk(). */
TDICT_API const tdict_type *tdict_ragged_type(void);
/** @brief Sets the ragged leaf at a path, as tdict_set() sets a tensor. The tree retains the leaf.
 *  @return The same errors as tdict_set(). #TDICT_ESHAPE means that the batch size is neither [] nor [number of rows].
 *          The call does not compare the device of the leaf with the device of the tree. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_ragged(tdict_tree *tree, const char *path, tdict_ragged *ragged,
                                                        tdict_error *err);
/** @brief Returns the ragged leaf at a path.
 *  @param[out] out  Borrowed from the tree. Written on success only.
 *  @return The same errors as tdict_get(). Here, #TDICT_ETYPE means that the entry at the path is not a ragged leaf, or
 *          that the path leads through a tensor or an object. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_ragged(const tdict_tree *tree, const char *path, tdict_ragged **out,
                                                        tdict_error *err);

TDICT_END_DECLS
#endif
