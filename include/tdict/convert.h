/* Converts elements to another dtype, on the host and on devices. docs/elements.md has the rules for each pair of
 * dtypes. Numbers are rounded as in PyTorch. The floating-point environment of the calling thread changes no result.
 * Thread rule: as in tdict/tensor.h and tdict/tree.h.
 *
 * Errors of all functions:
 * - #TDICT_EINVAL: NULL, an option that is not used, or a failed transfer into a source; #TDICT_ENOMEM;
 * - #TDICT_EDTYPE: an unknown dtype; #TDICT_ENOTSUP: a pair of dtypes that is not supported;
 * - #TDICT_EOVERFLOW: an integer dtype cannot hold an element. The message names the first one. */
#ifndef TDICT_CONVERT_H
#define TDICT_CONVERT_H

#include "tdict/visit.h"

TDICT_BEGIN_DECLS

/** @brief Converts a tensor to @p dtype, in C order. A tensor of this dtype is returned itself, with a new reference.
 *  @param[out] out  One reference, owned by the caller; written on success only.
 *  @return The errors of tdict_to_dtype(), whose @p run is the same. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_to_dtype(const tdict_tensor *tensor, tdict_dtype dtype,
                                                             const tdict_run *run, tdict_tensor **out,
                                                             tdict_error *err);
/** @brief Writes the elements of @p src to @p dst, converted to its dtype. Both are in host memory.
 *  The shapes are equal; strides may differ. The call waits for the same transfers as tdict_tensor_copy().
 *  @return #TDICT_ESHAPE; #TDICT_EREADONLY; #TDICT_EWRONGDEVICE. After #TDICT_EOVERFLOW the elements of @p dst are
 *          unspecified, and after any other error unchanged. */
TDICT_API TDICT_NODISCARD tdict_status tdict_convert(tdict_tensor *dst, const tdict_tensor *src, tdict_error *err);

typedef struct tdict_dtype_options {
  size_t struct_size;
  /** Returns true if a tensor must be converted. Called once for each tensor, in the order of tdict_visit(), on the
   *  calling thread, before the conversion. NULL (default): all tensors are converted. */
  tdict_leaf_predicate filter;
  void *user;       /**< Passed to `filter`. */
  bool floats_only; /**< true: only floats are converted. false (default): all dtypes are converted. */
} tdict_dtype_options;
static inline tdict_dtype_options tdict_dtype_options_default(void) {
  tdict_dtype_options o;
  tdict_init_struct_(o);
  return o;
}

/** @brief Makes a tree with the keys, batch sizes, devices and locks of @p tree, and tensors of @p dtype.
 *
 *  Tensors that need no conversion are shared, and new ones are in C order in one storage for each memory. Objects are
 *  converted through their tensors; one without `flatten` is shared.
 *  @param[in]  options  NULL for the defaults.
 *  @param[in]  run  Uses `stream` and `memory`; NULL for the defaults. With a stream, the call still waits for
 *                   conversions to integers that can be out of range. `memory` is on the device of each converted
 *                   tensor. NULL: a device tensor stays in its memory, a host tensor goes to plain host memory.
 *  @param[out] out  New tree, owned by the caller; written on success only.
 *  @return Also #TDICT_EWRONGDEVICE: `memory` or `stream` is of another device, or device memory of the program; with
 *          `stream`, #TDICT_ENOTSUP: an object other than text, numbers and JSON; #TDICT_ECAPTURE; the errors of
 *          tdict_tensor_empty(), of the driver and of objects. err->path names the tensor or object. */
TDICT_API TDICT_NODISCARD tdict_status tdict_to_dtype(const tdict_tree *tree, tdict_dtype dtype,
                                                      const tdict_dtype_options *options, const tdict_run *run,
                                                      tdict_tree **out, tdict_error *err);

TDICT_END_DECLS
#endif
