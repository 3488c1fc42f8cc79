/* Describes trees for programs and debuggers: as texts, also with a summary of the elements of each tensor.
 *
 * The text of tdict_describe() has the lines of tdict_print(). The line of a tensor ends with `min`, `max` and `mean`
 * of the elements that are not NaN, and `nan`, the number of NaN elements. A bool tensor has only the number of true
 * elements, a complex tensor only the number of elements with a NaN part. Each lane counts as an element. A tensor
 * without a summary has `empty`, or `not read` with the reason. Reads only host memory. Thread rule: tdict/tree.h. */
#ifndef TDICT_DEBUG_H
#define TDICT_DEBUG_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** @brief Writes the text of tdict_print() to @p buffer, cut to @p bytes and ended by 0. Reads no elements.
 *  @return the length of the full text without the 0, as snprintf does. @p buffer may be NULL if @p bytes is 0. */
TDICT_API size_t tdict_format(const tdict_tree *tree, char *buffer, size_t bytes);

/** @brief Writes a tree with summaries to @p file. Waits for transfers that write a host tensor of the tree.
 *
 *  To get the text in memory, pass a file of open_memstream(). In GDB, enter `call tdict_describe(tree, 0, 0)`. Without
 *  a file, the call writes to stderr and keeps errno. It then neither waits nor takes a lock, because other threads may
 *  be stopped. It also skips tensors that a transfer or a stream uses, calls no hook, and accepts NULL for @p tree.
 *  @return #TDICT_EINVAL @p tree is NULL and @p file is not; #TDICT_EIO the write failed, and err->native is errno.
 *  @note Cost: as tdict_format(), plus at most one read of each element in host memory. */
TDICT_API TDICT_NODISCARD tdict_status tdict_describe(const tdict_tree *tree, FILE *file, tdict_error *err);

/** @brief Returns the bytes of all storages and of the `bytes` hooks of objects. Each storage and object counts once.
 *  @return #TDICT_EINVAL a NULL pointer; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_unique_bytes(const tdict_tree *tree, size_t *out, tdict_error *err);

/** The numbers of a summary. */
typedef struct tdict_tensor_summary {
  size_t struct_size;
  int64_t num_elements; /**< number of elements; each lane counts */
  int64_t num_nans;     /**< number of elements that are NaN, or have a NaN part */
  int64_t num_true;     /**< number of true elements of a bool tensor; 0 for other dtypes */
  /** Minimum, maximum and mean of the elements that are not NaN. 0 if all elements are NaN, if the tensor has no
   *  elements, and for bool and complex. The mean of inf and -inf is NaN. */
  double min, max, mean;
  /** Exact minimum and maximum of an integer dtype, else 0. For #TDICT_U64, the uint64_t converted to int64_t. */
  int64_t min_integer, max_integer;
} tdict_tensor_summary;
static inline tdict_tensor_summary tdict_tensor_summary_default(void) {
  tdict_tensor_summary s;
  tdict_init_struct_(s);
  return s;
}
/** @brief Computes the summary of one tensor. Waits for transfers that write it, then reads each element once.
 *  @param[in,out] out  Initialized by tdict_tensor_summary_default(). At most out->struct_size bytes are written.
 *  @return #TDICT_EINVAL a NULL pointer, a wrong `struct_size`, or a failed transfer into the tensor;
 *          #TDICT_EWRONGDEVICE the tensor is not in host memory; #TDICT_ENOTSUP its elements are still in a file. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_get_summary(const tdict_tensor *tensor, tdict_tensor_summary *out,
                                                                tdict_error *err);

TDICT_END_DECLS
#endif
