/* Prints trees with a summary of the elements of each tensor, in programs and in debuggers.
 *
 * The text has the lines of tdict_format(). The line of each tensor ends with the summary:
 *
 * - Integers and floats: `min`, `max` and `mean`. The mean is computed from a sum of type long double, which does not
 *   overflow.
 * - Floats also: `nan`, the number of NaN elements. NaN elements do not count for `min`, `max` and `mean`.
 * - Bool: the number of true elements. Complex: the number of elements with a NaN part.
 * - `empty`: the tensor has no elements.
 * - `not read`, and the reason: the tensor is on a device, the elements are not loaded from a file yet, or a transfer
 *   into the tensor has failed. For debuggers, there are two more reasons, see tdict_describe().
 *
 * The functions read only host memory, and transfer nothing. In types with several lanes, each lane counts as an
 * element. Objects are printed as tdict_format() prints them.
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_DEBUG_H
#define TDICT_DEBUG_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** @brief Writes the text to @p file, or for a debugger to the standard error output.
 *
 *  With a file, the call waits for transfers that write a host tensor of the tree. To get a text in memory, pass a file
 *  of open_memstream().
 *  In GDB, enter `call tdict_describe(tree, 0, 0)`. If @p file is NULL, the call waits for no transfer and takes no
 *  lock, because the debugger may have stopped the other threads of the process. A host tensor is marked `not read: in
 *  transfer` if a transfer reads or writes its storage, and `not read: in use by a stream` if a stream uses it. The
 *  call then calls no hook of the program's objects, and does not change errno. It allocates memory only if the tree
 *  has more than 24 levels. @p tree may be NULL.
 *  @param[in] file  Borrowed. NULL: the standard error output, for debuggers.
 *  @return #TDICT_OK; #TDICT_EINVAL @p tree is NULL and @p file is not; #TDICT_EIO the file could not be written, and
 *          err->native is errno.
 *  @note Cost: the cost of tdict_format(), plus at most one read of each element in host memory. */
TDICT_API TDICT_NODISCARD tdict_status tdict_describe(const tdict_tree *tree, FILE *file, tdict_error *err);

/** The numbers of a summary. */
typedef struct tdict_tensor_summary {
  size_t struct_size;
  int64_t num_elements; /**< number of elements; each lane counts */
  int64_t num_nans;     /**< number of elements that are NaN, or have a NaN part */
  int64_t num_true;     /**< number of true elements of a bool tensor; 0 for other dtypes */
  /** Minimum, maximum and mean of the elements that are not NaN. 0 if all elements are NaN, if the tensor has no
   *  elements, and for bool and complex. The mean of inf and -inf is NaN. */
  double min, max, mean;
  /** Exact minimum and maximum of an integer dtype; 0 for other dtypes. For #TDICT_U64, the uint64_t number converted
   *  to int64_t. */
  int64_t min_integer, max_integer;
} tdict_tensor_summary;
static inline tdict_tensor_summary tdict_tensor_summary_default(void) {
  tdict_tensor_summary s;
  memset(&s, 0, sizeof s);
  s.struct_size = sizeof s;
  return s;
}
/** @brief Computes the numbers of the summary of one tensor. Waits for transfers that write the tensor.
 *  @param[in,out] out  Initialized by tdict_tensor_summary_default(). At most out->struct_size bytes are written, on
 *                      success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer, a wrong `struct_size`, or a transfer into the tensor has failed;
 *          #TDICT_EWRONGDEVICE the tensor is not in host memory; #TDICT_ENOTSUP the elements are not loaded from a file
 *          yet.
 *  @note Cost: one read of each element. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_get_summary(const tdict_tensor *tensor, tdict_tensor_summary *out,
                                                                tdict_error *err);

TDICT_END_DECLS
#endif
