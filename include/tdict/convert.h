/* Converts elements to another dtype. tdict_to_dtype() and tdict_tensor_to_dtype() also convert tensors on a device:
 * one launch converts all tensors of one memory. tdict_convert() needs elements in host memory, plain or pinned.
 *
 * The floats are F16, BF16, F32, F64, F8E4M3 and F8E5M2. The integers are the signed and unsigned dtypes of 8 to 64
 * bits. These are the rules for each pair of dtypes:
 *
 * - float to float: the nearest number, ties to even, rounded once.
 * - integer or bool to float: the nearest number, ties to even, rounded once.
 * - float to integer: truncated toward zero. If the truncated number is outside the range, the conversion fails.
 * - integer to integer: the same number. If the number is outside the range, the conversion fails.
 * - bool to integer or float: 0 or 1. Every bool byte other than 0 counts as 1.
 * - integer or float to bool: false for 0 and -0, true for all other numbers and for NaN.
 * - complex to complex: the real and the imaginary part are converted as float to float.
 * - float, integer or bool to complex: the number becomes the real part, as in a conversion to float. The imaginary
 *   part is 0.
 * - complex to float, integer or bool: #TDICT_ENOTSUP.
 * - a dtype with several lanes, as source or destination: #TDICT_ENOTSUP if the dtypes differ.
 *
 * A number that is too large for a float dtype becomes infinity. F8E4M3 has no infinity, so infinities and numbers that
 * are too large become NaN. A NaN stays NaN, but its sign and payload are unspecified.
 *
 * The error for a number outside the range of an integer dtype is #TDICT_EOVERFLOW. Infinities and NaN are outside the
 * range of every integer dtype. The message names the first element outside the range in C order: its index, its value
 * and the range.
 *
 * PyTorch 2.11 gives the same results, with two exceptions. PyTorch does not check the range of integers. From F64 or a
 * large integer to a float of 8 or 16 bits, PyTorch rounds twice, first to float32. PyTorch 2.15 has one more
 * difference: a number that is too large for F8E4M3 becomes the largest F8E4M3 number.
 *
 * The floating-point environment of the calling thread, such as its rounding mode, changes no result. If the processor
 * has AVX2 or AVX-512, the library uses these instructions for frequent pairs of dtypes.
 * Thread rule: as in tdict/tensor.h and tdict/tree.h. */
#ifndef TDICT_CONVERT_H
#define TDICT_CONVERT_H

#include "tdict/visit.h"

TDICT_BEGIN_DECLS

/** @brief Converts a tensor to @p dtype. The elements of the result are in C order.
 *
 *  If @p tensor has this dtype already, the function returns @p tensor itself with a new reference. A tensor on a
 *  device is converted on this device, as by tdict_to_dtype().
 *  Before a conversion, the call waits for transfers that write @p tensor.
 *  @param[in]  run  Used as in tdict_to_dtype(); NULL for the defaults.
 *  @param[out] out  One reference, owned by the caller. Written on success only.
 *  @return The errors of tdict_to_dtype(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_to_dtype(const tdict_tensor *tensor, tdict_dtype dtype,
                                                             const tdict_run *run, tdict_tensor **out,
                                                             tdict_error *err);
/** @brief Converts all elements of @p src to the dtype of @p dst, and writes the results to @p dst.
 *
 *  Both tensors must have the same shape; their strides may differ. If the tensors overlap, the result is unspecified.
 *  If the dtypes are equal, the call copies the elements. The call first waits for the same transfers as
 *  tdict_tensor_copy().
 *  @return #TDICT_OK; #TDICT_EINVAL a pointer is NULL, or a transfer into @p src has failed; #TDICT_ESHAPE the shapes
 *          differ; #TDICT_EREADONLY @p dst is read-only; #TDICT_ENOTSUP the pair of dtypes is not supported;
 *          #TDICT_EWRONGDEVICE a tensor is not in host memory; #TDICT_EOVERFLOW an element is out of range. After
 *          #TDICT_EOVERFLOW the elements of @p dst are unspecified. After any other error the elements are
 *          unchanged. */
TDICT_API TDICT_NODISCARD tdict_status tdict_convert(tdict_tensor *dst, const tdict_tensor *src, tdict_error *err);

typedef struct tdict_dtype_options {
  size_t struct_size;
  /** Returns true if tdict_to_dtype() must convert the tensor. NULL (default): all tensors are converted. Before the
   *  conversion, the calling thread calls `filter` once for each tensor, in the order of tdict_visit(). */
  tdict_leaf_predicate filter;
  void *user;       /**< Passed to `filter`. */
  bool floats_only; /**< true: only floats are converted. false (default): all dtypes are converted. */
} tdict_dtype_options;
static inline tdict_dtype_options tdict_dtype_options_default(void) {
  tdict_dtype_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

/** @brief Makes a tree whose tensors are converted to @p dtype.
 *
 *  The result has the keys, batch sizes, devices and locks of @p tree. The result shares tensors that already have this
 *  dtype. The result also shares tensors that `filter` or `floats_only` excludes from the conversion. All new tensors
 *  are in C order. The new tensors in one memory share one storage. An object is converted through its tensors, as
 *  tdict/object.h describes. The result shares an object without `flatten`.
 *  @param[in]  options  NULL for the defaults.
 *  @param[in]  run  Uses `stream` and `memory`; NULL for the defaults. Conversions on a stream are ordered as
 *                   tdict/index.h describes, but the call waits for conversions to integers that can be out of range.
 *                   `memory` must be on the device of each converted tensor. If `memory` is NULL, tensors on a device
 *                   are converted in their own memory, and other tensors in plain host memory.
 *  @param[out] out  New tree, owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a pointer is NULL, an option is not used, or a transfer into a tensor has failed;
 *          #TDICT_EDTYPE @p dtype
 *          is unknown; #TDICT_ENOTSUP a pair of dtypes is not supported, or the driver of a device cannot compile
 *          kernels; #TDICT_EWRONGDEVICE `memory` or `stream` is not of the device of a tensor to convert, or the tensor
 *          is in device memory of the program; #TDICT_EOVERFLOW an element is out of range; the errors of
 *          tdict_tensor_empty() and of a device's driver; the errors of objects, see tdict/object.h. With `stream`:
 *          #TDICT_ENOTSUP also for an object other than text, numbers and JSON; #TDICT_ECAPTURE the stream is being
 *          captured. err->path names the tensor or object.
 *  @note Cost: one read and one write of the converted elements, plus O(tensors + nodes). If `filter` is set, the call
 *        also allocates a list of all paths. */
TDICT_API TDICT_NODISCARD tdict_status tdict_to_dtype(const tdict_tree *tree, tdict_dtype dtype,
                                                      const tdict_dtype_options *options, const tdict_run *run,
                                                      tdict_tree **out, tdict_error *err);

TDICT_END_DECLS
#endif
