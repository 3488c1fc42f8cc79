/* Declares ragged leaves. A ragged leaf holds rows of different lengths, for example sequences. The rows are stored one
 * after another in one tensor `values`. Row i has the elements values[offsets[i]] to values[offsets[i + 1] - 1].
 * PyTorch's jagged layout and Arrow's large list use the same two buffers.
 *
 * A ragged leaf never changes after its creation. The elements of `values` may change, the elements of `offsets` must
 * not change. Each leaf keeps a copy of its offsets in host memory, so the functions of this header find a row without
 * reading device memory.
 *
 * Ownership. A ragged leaf is reference-counted. A function that creates a ragged leaf returns one reference; release
 * the reference with tdict_ragged_release(). A tree that holds a ragged leaf has a reference of its own.
 *
 * Trees. A ragged leaf is an object of the type tdict_ragged_type(), so tdict_walk() and tdict_get_entry() return it as
 * an object. The leaf has one batch dimension, its rows. The batch size of its tree must be [] or [number of rows].
 *
 * - TDICT_AT returns the row as a tensor, which is a view of `values`. tdict_unbind() does the same for all rows.
 * - A range of step 1 shares `values` and has new offsets. tdict_split() does the same.
 * - Lists, masks and other ranges copy the rows. They return #TDICT_ENOTSUP for a leaf on a device.
 * - tdict_cat() joins the rows of the leaves. The offsets of the result have the dtype of the first leaf.
 * - tdict_stack() makes a ragged leaf of tensors with different lengths if the option `ragged` is set.
 * - Writes in place replace a row by a row of equal length, else they return #TDICT_ESHAPE. The value is a ragged leaf
 *   with as many rows as the index selects. If the batch size of the value is [], the value may also be a tensor, which
 *   is written to each selected row.
 * - tdict_index_into() reads one row into a tensor, and several rows into a ragged leaf with rows of equal lengths.
 * - tdict_fill(), tdict_zero(), tdict_to_dtype(), tdict_visit(), tdict_apply() and tdict_filter() use only `values`,
 *   at the path "leaf.values". If tdict_apply() returns another tensor for `values`, its first size must be the same.
 * - tdict_clone_deep() and transfers copy both tensors. tdict_transfer_into() copies `values` only, because the lengths
 *   of the rows must be equal.
 * - Operations that would add, remove or reorder other batch dimensions return #TDICT_ENOTSUP. The same is true for
 *   stacking ragged leaves, tdict_pad_sequence(), tdict_stack_into() and tdict_cat_into().
 *
 * Thread rule: many threads may read a ragged leaf. Retain and release are safe from any thread. Elements of `values`
 * follow the rule of tdict/tensor.h. */
#ifndef TDICT_RAGGED_H
#define TDICT_RAGGED_H

#include "tdict/object.h"

TDICT_BEGIN_DECLS

typedef struct tdict_ragged tdict_ragged;

/** Selects the memory and the offsets of a new ragged leaf. */
typedef struct tdict_ragged_options {
  size_t struct_size;
  tdict_dtype offsets_dtype; /**< TDICT_I64 (default) or TDICT_I32 */
  tdict_memory *memory;      /**< Memory of values and offsets. NULL (default): the memory of the given elements if they
                                  are on a device, else plain host memory. */
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
 *  Cost: one copy of the offsets to host memory. The call waits for transfers that write @p offsets, and for this copy.
 *  @param[in] values  One dimension or more. Its first dimension has the elements of all rows.
 *  @param[in] offsets  int64 or int32, of shape [number of rows + 1], on the device of @p values. The first offset must
 *          be 0, no offset may be less than its predecessor, and the last offset must be the first size of @p values.
 *  @param[out] out  Owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL if an argument is NULL, an offset breaks the rules above (the message has its
 *          index), or a transfer into @p offsets has failed; #TDICT_ESHAPE if @p values has no dimension, @p offsets
 *          does not have one dimension of at least one element, or the last offset differs from the size of @p values;
 *          #TDICT_EDTYPE for other offsets; #TDICT_EWRONGDEVICE if the tensors are on different devices, or @p offsets
 *          is in device memory of the program; #TDICT_ENOMEM; #TDICT_EDEVICE. */
TDICT_API TDICT_NODISCARD tdict_status tdict_ragged_create(tdict_tensor *values, tdict_tensor *offsets,
                                                           tdict_ragged **out, tdict_error *err);
/** @brief Creates a ragged leaf from one tensor per row. Copies the elements into one new storage.
 *
 *  Cost: one tdict_tensor_copy() per row.
 *  @param[in] rows  @p count tensors, at least one, borrowed. The first dimension of each tensor is the length of the
 *          row. The other dimensions, the dtype and the device must be equal.
 *  @param[in] options  NULL for the defaults.
 *  @param[out] out  Owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL if there are no rows, a pointer is NULL, or a transfer into a row has failed;
 *          #TDICT_ESHAPE, #TDICT_EDTYPE or #TDICT_EWRONGDEVICE if a row differs from row 0 (the message has its index);
 *          #TDICT_ESHAPE for rows without a dimension; #TDICT_EDTYPE if the offsets would be neither int64 nor int32;
 *          #TDICT_EOVERFLOW if the offsets do not fit their dtype; #TDICT_EWRONGDEVICE if the rows are in device memory
 *          of the program and no memory is given; the errors of tdict_tensor_empty(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_ragged_from_rows(tdict_tensor *const *rows, size_t count,
                                                              const tdict_ragged_options *options, tdict_ragged **out,
                                                              tdict_error *err);
/** @brief Creates a ragged leaf from the first elements of each row of a padded tensor. Copies the elements.
 *
 *  Cost: one copy of @p lengths, and one tdict_tensor_copy() per row.
 *  @param[in] padded  A tensor of shape [rows, longest, ...], borrowed.
 *  @param[in] lengths  An int64 or int32 tensor of shape [rows] with the lengths. Or a bool or uint8 tensor of shape
 *          [rows, longest], which is not 0 for the elements of the row. These elements must come first: a mask with a
 *          gap returns #TDICT_EINVAL. The tensor may be on any device; it is copied to host memory.
 *  @param[in] options  NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_EINVAL for NULL, a length below 0 or above the second size of @p padded, or a gap in the
 *          mask (the message has the row); #TDICT_ESHAPE if the shapes of the two tensors do not match; #TDICT_EDTYPE
 *          for other lengths; otherwise the errors of tdict_ragged_from_rows(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_ragged_from_padded(const tdict_tensor *padded, const tdict_tensor *lengths,
                                                                const tdict_ragged_options *options, tdict_ragged **out,
                                                                tdict_error *err);
/** @brief Copies the rows into a tensor of shape [rows, longest row, ...], and fills the rest of each row.
 *
 *  Cost: one tdict_tensor_copy() and one fill per row.
 *  @param[in] value  Written after the end of each row; converted as tdict_fill() does.
 *  @param[in] memory  Memory of the results. NULL: the memory of the leaf if the leaf is on a device, else plain host
 *          memory.
 *  @param[out] padded  Owned by the caller; written on success only.
 *  @param[out] mask  May be NULL. A bool tensor of shape [rows, longest row], true for the elements of a row; owned by
 *          the caller, written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL for NULL, or if a transfer into the values has failed; #TDICT_EOVERFLOW if an
 *          integer dtype cannot hold @p value; #TDICT_ENOTSUP as tdict_fill(); #TDICT_EWRONGDEVICE as
 *          tdict_ragged_from_rows(); the errors of tdict_tensor_empty(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_ragged_to_padded(const tdict_ragged *ragged, double value,
                                                              tdict_memory *memory, tdict_tensor **padded,
                                                              tdict_tensor **mask, tdict_error *err);

/** @brief Adds a reference and returns @p ragged. */
TDICT_API tdict_ragged *tdict_ragged_retain(const tdict_ragged *ragged);
/** @brief Releases a reference. NULL is allowed. */
TDICT_API void tdict_ragged_release(tdict_ragged *ragged);

/** @brief Returns the elements of all rows, borrowed from the leaf. */
TDICT_API tdict_tensor *tdict_ragged_values(const tdict_ragged *ragged);
/** @brief Returns the offsets, borrowed from the leaf. Their elements must not be written. */
TDICT_API const tdict_tensor *tdict_ragged_offsets(const tdict_ragged *ragged);
/** @brief Returns the number of rows. */
TDICT_API int64_t tdict_ragged_num_rows(const tdict_ragged *ragged);
/** @brief Returns the length of row @p i, or -1 if there is no row @p i. Never reads device memory. */
TDICT_API int64_t tdict_ragged_row_length(const tdict_ragged *ragged, int64_t i);
/** @brief Returns the length of the longest row; 0 if there are no rows. Cost: O(rows). */
TDICT_API int64_t tdict_ragged_max_length(const tdict_ragged *ragged);
/** @brief Creates a view of the elements of row @p i.
 *  @param[out] out  Owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL if an argument is NULL or there is no row @p i; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_ragged_row(const tdict_ragged *ragged, int64_t i, tdict_tensor **out,
                                                        tdict_error *err);

/** @brief Returns the type of ragged leaves, to recognize them in tdict_walk() and by tdict_object_type(). */
TDICT_API const tdict_type *tdict_ragged_type(void);
/** @brief Sets the ragged leaf at a path, as tdict_set() sets a tensor. The tree adds a reference.
 *  @return The same errors as tdict_set(). #TDICT_ESHAPE means that the batch size is neither [] nor the number of
 *          rows. The device of the tree is not checked. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_ragged(tdict_tree *tree, const char *path, tdict_ragged *ragged,
                                                        tdict_error *err);
/** @brief Returns the ragged leaf at a path.
 *  @param[out] out  Borrowed from the tree. Written on success only.
 *  @return The same errors as tdict_get(); #TDICT_ETYPE also if the path names anything but a ragged leaf. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_ragged(const tdict_tree *tree, const char *path, tdict_ragged **out,
                                                        tdict_error *err);

TDICT_END_DECLS
#endif
