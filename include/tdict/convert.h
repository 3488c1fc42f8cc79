/* Converts elements to another dtype. Works in host memory, plain or pinned.
 *
 * A float is F16, BF16, F32, F64, F8E4M3 or F8E5M2. An integer is signed or unsigned. The following rules apply to the
 * conversion of each pair of dtypes:
 *
 * - float to float: the nearest number, ties to even, rounded once.
 * - integer or bool to float: the nearest number, ties to even, rounded once.
 * - float to integer: truncated toward zero, checked.
 * - integer to integer: the same number, checked.
 * - bool to integer or float: 0 or 1. A byte that is neither counts as 1.
 * - integer or float to bool: false for 0 and -0, true for all other numbers and for NaN.
 * - complex to complex: each part as float to float.
 * - float, integer or bool to complex: the real part as float. The imaginary part is 0.
 * - complex to any other dtype: #TDICT_ENOTSUP.
 * - several lanes, in the source or the destination: #TDICT_ENOTSUP, unless both dtypes are equal.
 *
 * A number that is too large for a float dtype becomes infinity. F8E4M3 has no infinity, so the number becomes NaN. A
 * NaN stays NaN; its other bits are unspecified.
 * For an integer dtype, the call returns #TDICT_EOVERFLOW if a number is outside the range of the dtype, or is an
 * infinity or a NaN. The message has the index of the first such element in C order, its value and the range.
 * PyTorch 2.11 gives the same results, with these exceptions. PyTorch does not check integers. PyTorch rounds twice,
 * first to float32, when it converts F64 or a large integer to a float of 8 or 16 bits. PyTorch 2.15 converts numbers
 * too large for F8E4M3 to the largest number.
 * The calls assume the default floating-point environment: numbers are rounded to nearest, and subnormal numbers are
 * not flushed to zero. If the processor has AVX2 or AVX-512, frequent pairs of dtypes are converted with these
 * instructions. Thread rule: as in tdict/tensor.h and tdict/tree.h. */
#ifndef TDICT_CONVERT_H
#define TDICT_CONVERT_H

#include "tdict/visit.h"

TDICT_BEGIN_DECLS

/** @brief Returns a tensor with the elements of @p tensor converted to @p dtype, in C order.
 *
 *  If @p tensor has the dtype already, returns @p tensor with a new reference, wherever its memory is.
 *  The call first waits for transfers that write @p tensor.
 *  @param[in]  memory  Host memory of the result. NULL for plain host memory.
 *  @param[out] out  One reference, owned by the caller. Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL for NULL, or if a transfer into @p tensor has failed; #TDICT_EDTYPE if @p dtype is
 *          unknown; #TDICT_ENOTSUP for a pair that is not supported; #TDICT_EWRONGDEVICE if @p tensor or @p memory is
 *          not host memory; #TDICT_EOVERFLOW if an element is out of range; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_to_dtype(const tdict_tensor *tensor, tdict_dtype dtype,
                                                             tdict_memory *memory, tdict_tensor **out,
                                                             tdict_error *err);
/** @brief Converts all elements of @p src to the dtype of @p dst and writes them to @p dst.
 *
 *  Both tensors must have the same shape; their strides may differ. If the tensors overlap, the result is unspecified.
 *  The call waits like tdict_tensor_copy(). If the dtypes are equal, copies the elements.
 *  @return #TDICT_OK; #TDICT_EINVAL for NULL, or if a transfer into @p src has failed; #TDICT_ESHAPE if the shapes
 *          differ; #TDICT_EREADONLY; #TDICT_ENOTSUP for a pair that is not supported; #TDICT_EWRONGDEVICE if a tensor
 *          is not in host memory; #TDICT_EOVERFLOW if an element is out of range. After #TDICT_EOVERFLOW the elements
 *          of @p dst are unspecified; after any other error they are unchanged. */
TDICT_API TDICT_NODISCARD tdict_status tdict_convert(tdict_tensor *dst, const tdict_tensor *src, tdict_error *err);

typedef struct tdict_dtype_options {
  size_t struct_size;
  /** Host memory of the new elements. NULL (default): plain host memory. */
  tdict_memory *memory;
  /** Selects the tensors to convert: returns true for a tensor that is to be converted. NULL (default): all. Called on
   *  the calling thread, once for each tensor in the order of tdict_visit(), before anything is converted. */
  tdict_leaf_predicate filter;
  void *user;       /**< Passed to `filter`. */
  bool floats_only; /**< true: keeps integers, bools and complex numbers. false (default): converts them too. */
} tdict_dtype_options;
static inline tdict_dtype_options tdict_dtype_options_default(void) {
  tdict_dtype_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

/** @brief Returns a tree whose tensors are converted to @p dtype.
 *
 *  The result has the keys, batch sizes, devices and locks of @p tree. Tensors that are not converted are shared: those
 *  with this dtype, and those that the options leave out. All new elements are in C order in one storage. An object is
 *  converted through its tensors, as tdict/object.h describes.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out  New tree, owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL for NULL, or if a transfer into a tensor has failed; #TDICT_EDTYPE if @p dtype is
 *          unknown; #TDICT_ENOTSUP for a pair that is not supported, or an object without `flatten`;
 *          #TDICT_EWRONGDEVICE if a tensor to convert, or `memory`, is not host memory; #TDICT_EOVERFLOW if an
 *          element is out of range; #TDICT_ENOMEM. err->path names the tensor or object.
 *  @note Cost: reading and writing the converted elements once, plus O(tensors + nodes). A filter adds one list of all
 *        paths. */
TDICT_API TDICT_NODISCARD tdict_status tdict_to_dtype(const tdict_tree *tree, tdict_dtype dtype,
                                                      const tdict_dtype_options *options, tdict_tree **out,
                                                      tdict_error *err);

TDICT_END_DECLS
#endif
