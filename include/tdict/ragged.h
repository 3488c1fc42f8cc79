/* Declares ragged leaves, whose rows have different lengths, for example sequences. The tensor `values` holds the rows
 * one after another: row i is values[offsets[i]] to values[offsets[i + 1] - 1], as in PyTorch's jagged layout.
 *
 * The tensors and lengths of a leaf never change. The program may write the elements of `values`, but not of `offsets`,
 * of which the leaf also keeps a copy in host memory. A leaf is reference counted, and the functions that create a leaf
 * return one reference. In a tree, a leaf is an object with one batch dimension, so the batch size of the tree must be
 * [] or [number of rows]. docs/leaves.md says what operations on trees do with a leaf.
 *
 * NULL options are the defaults. Errors of all functions: #TDICT_EINVAL a NULL pointer; #TDICT_ENOMEM. Results are
 * written on success only, and owned by the caller unless the comment says otherwise. Thread rule: many threads may
 * read a leaf. For the elements of `values`, the rule of tdict/tensor.h applies. */
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
  tdict_init_struct_(o);
  o.offsets_dtype = TDICT_I64;
  return o;
}

/** @brief Creates a ragged leaf over two tensors, which it retains. Copies the offsets to host memory, but no values.
 *  Waits for transfers that write @p offsets, and for the copy.
 *  @param[in] values  One dimension or more. Dimension 0 has the elements of all rows.
 *  @param[in] offsets  int64 or int32 of shape [rows + 1], on the device of @p values. The first is 0, the last is the
 *                      size of dimension 0 of @p values, and none is less than the one before.
 *  @return #TDICT_EINVAL also for a wrong offset (the message has the index) or a failed transfer into @p offsets;
 *          #TDICT_ESHAPE; #TDICT_EDTYPE; #TDICT_EWRONGDEVICE different devices, or offsets in device memory of the
 *          program; for a device also #TDICT_EDEVICE, #TDICT_ELOST, #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_ragged_create(tdict_tensor *values, tdict_tensor *offsets,
                                                           tdict_ragged **out, tdict_error *err);
/** @brief Creates a ragged leaf from one tensor per row. Copies the elements into one new storage.
 *  @param[in] rows  @p count tensors, at least one, borrowed. Dimension 0 is the length of the row. The other sizes,
 *          the dtype and the device must be equal in all rows.
 *  @return #TDICT_ESHAPE, #TDICT_EDTYPE, #TDICT_EWRONGDEVICE a row differs from row 0 (the message has its index), or
 *          an option does not fit; #TDICT_EINVAL also after a failed transfer into a row; #TDICT_EOVERFLOW the last
 *          offset does not fit `offsets_dtype`; the errors of tdict_tensor_empty(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_ragged_from_rows(tdict_tensor *const *rows, size_t count,
                                                              const tdict_ragged_options *options, tdict_ragged **out,
                                                              tdict_error *err);
/** @brief Creates a ragged leaf from the first elements of each row of a padded tensor. Copies the elements.
 *  @param[in] padded  A tensor of shape [rows, longest, ...], borrowed.
 *  @param[in] lengths  int64 or int32 lengths of shape [rows], or a bool or uint8 mask of shape [rows, longest], on any
 *          device. Each row of a mask has nonzero elements for the row, and then zeros for the padding.
 *  @return #TDICT_EINVAL for a wrong length or mask (the message names the row); errors of tdict_ragged_from_rows(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_ragged_from_padded(const tdict_tensor *padded, const tdict_tensor *lengths,
                                                                const tdict_ragged_options *options, tdict_ragged **out,
                                                                tdict_error *err);
/** @brief Copies the rows into a new tensor of shape [rows, longest row, ...], and fills the rest.
 *  @param[in] value  Fills the elements after the end of each row; converted as by tdict_fill().
 *  @param[in] memory  Allocates the results. NULL: the memory of a leaf on a device, else plain host memory.
 *  @param[out] mask  A bool tensor of shape [rows, longest row], true for the elements of the rows. NULL: none.
 *  @return #TDICT_EINVAL also after a failed transfer into `values`; #TDICT_EOVERFLOW and #TDICT_ENOTSUP as
 *          tdict_fill(); #TDICT_EWRONGDEVICE as tdict_ragged_from_rows(); the errors of tdict_tensor_empty(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_ragged_to_padded(const tdict_ragged *ragged, double value,
                                                              tdict_memory *memory, tdict_tensor **padded,
                                                              tdict_tensor **mask, tdict_error *err);

/** @brief Adds a reference and returns @p ragged. Thread-safe. */
TDICT_API tdict_ragged *tdict_ragged_retain(const tdict_ragged *ragged);
/** @brief Releases a reference. NULL is allowed. Thread-safe. */
TDICT_API void tdict_ragged_release(tdict_ragged *ragged);

/** The parts of a ragged leaf. */
typedef struct tdict_ragged_info {
  tdict_tensor *values;        /**< the elements of all rows, borrowed from the leaf */
  const tdict_tensor *offsets; /**< borrowed from the leaf; the program must not write the elements */
  int64_t num_rows;            /**< the number of rows */
} tdict_ragged_info;
/** @brief Returns the parts of a leaf: `tdict_ragged_get_info(ragged).num_rows`. */
TDICT_API tdict_ragged_info tdict_ragged_get_info(const tdict_ragged *ragged);
/** @brief Returns the length of row @p i, or -1 if there is no row @p i. Never reads device memory. */
TDICT_API int64_t tdict_ragged_row_length(const tdict_ragged *ragged, int64_t i);
/** @brief Returns the length of the longest row; 0 if there are no rows. Cost: O(rows). */
TDICT_API int64_t tdict_ragged_max_length(const tdict_ragged *ragged);
/** @brief Makes a view of row @p i, owned by the caller. #TDICT_EINVAL also if there is no row @p i. */
TDICT_API TDICT_NODISCARD tdict_status tdict_ragged_get_row(const tdict_ragged *ragged, int64_t i, tdict_tensor **out,
                                                            tdict_error *err);

/** @brief Returns the type of ragged leaves, to recognize them. Static. Thread-safe. */
TDICT_API const tdict_type *tdict_ragged_type(void);
/** @brief Sets the ragged leaf at a path, as tdict_set() sets a tensor. The tree retains it, on any device.
 *  @return The errors of tdict_set(). #TDICT_ESHAPE the batch size is neither [] nor [number of rows]. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_ragged(tdict_tree *tree, const char *path, tdict_ragged *ragged,
                                                        tdict_error *err);
/** @brief Returns the ragged leaf at a path, borrowed from the tree.
 *  @return The errors of tdict_get(). #TDICT_ETYPE means that the entry is not a ragged leaf. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_ragged(const tdict_tree *tree, const char *path, tdict_ragged **out,
                                                        tdict_error *err);

TDICT_END_DECLS
#endif
