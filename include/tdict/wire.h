/* Declares how elements travel during a transfer: conversions to other dtypes, and the option `narrow`.
 *
 * Conversions. With the option `conversions` of tdict_transfer_options, a transfer converts tensors to other dtypes
 * during the copies.
 *
 * Patterns. A pattern has the syntax of the option `keep`. A pattern is compared with the path of each tensor. The
 * pattern of a child tree does not match the tensors below; use "meta.**" for these tensors. The first conversion whose
 * pattern matches is used. If a pattern matches no tensor, the call returns #TDICT_ENOTFOUND, and err->path is the
 * pattern. A `?` before the pattern, such as "?image", allows this. Patterns do not match the tensors inside an object.
 * Kept tensors are not converted.
 *
 * Elements. The results are those of tdict_to_dtype(), see docs/elements.md. With a `scale` or an `offset`, the result
 * is x * scale + offset. The integer x is first rounded to float32. The product is rounded to float32, the sum is
 * rounded to float32, and the sum is then rounded to `dtype`. With a scale or an offset, the source must have an
 * integer dtype or bool, and `dtype` must be F16, BF16, F32 or F64. The scale and the offset are rounded to float32.
 * If an integer dtype cannot hold an element, the transfer fails with #TDICT_EOVERFLOW. The error has the path of the
 * tensor, and names one such element. The bytes that the transfer had to write are then lost. The call returns
 * #TDICT_ENOTSUP for a pair of dtypes that tdict_to_dtype() does not support, and #TDICT_EDTYPE for an unknown dtype.
 * The call returns #TDICT_EINVAL for a NULL or invalid pattern, and for a scale or an offset that is not a finite
 * float32 number.
 *
 * Results. The result has the tensor with the dtype of the conversion. If a tensor has this dtype already, the tensor
 * is converted only if a scale, an offset or another `wire_dtype` is set. A converted tensor is always copied, even if
 * the tensor is on the target device already. For tdict_transfer_into_async(), the destination must have the dtype of
 * the conversion. If destination and source share bytes, the result is unspecified. Tensors with the same bytes share
 * their converted bytes if they have one dtype and the same conversion. A consolidated tree is copied leaf by leaf, and
 * the result is not consolidated.
 *
 * Where elements are converted. Between host and device, the link carries the narrower of the two dtypes, for example
 * the bytes of images that become floats. If this dtype is the dtype on the device, threads of the host convert while
 * they fill or read the slots of the staging ring. Otherwise a kernel converts on the device. The kernel itself reads
 * up to 1 MiB of a transfer from pinned tensors, without a slot. Other pinned tensors are copied through slots.
 * tdict_transfer_stats.wire_bytes has the number of bytes on the link.
 * A kernel needs a contiguous tensor on the device, a conversion in which no element can be out of range, and a driver
 * that can compile kernels. Otherwise threads of the host do the whole conversion, and the link carries the wider
 * dtype. The results are the same. If `wire_dtype` is set and a kernel is needed but cannot run, the call returns
 * #TDICT_ENOTSUP.
 * Tensors that stay on a device are converted by kernels only. If a kernel cannot run, the call returns #TDICT_ENOTSUP.
 * For tensors that move from one device to another device, the call also returns #TDICT_ENOTSUP.
 * The first transfer that uses kernels on a device loads the kernels, which takes some milliseconds or more. Each slot
 * that such transfers use also needs device memory of the size of a slot, until the context is destroyed.
 *
 * Narrow. With the option `narrow` of tdict_transfer_options, integers and bools travel from the host to a device in
 * fewer bytes, if their values allow it. The results are the same, bit by bit.
 * Threads of the host divide a tensor into blocks of 32 KiB while they fill slots. For each block, the link carries the
 * smallest element, and for every element the difference from the smallest element. Each difference takes 0, 1, 2 or 4
 * bytes, the fewest that are enough for all differences of the block. If the differences do not save bytes, the
 * elements travel unchanged. A block of bools travels as bits. If a byte in the block is neither 0 nor 1, the block
 * travels unchanged. A kernel restores the elements on the device.
 * The option applies to tensors of 4 KiB or more with an integer dtype of at least 2 bytes or the dtype bool. Such a
 * tensor must be in ordinary memory, in a file, or not contiguous. The result must be contiguous on the device.
 * Contiguous pinned tensors travel unchanged, because the driver copies pinned memory without work of host threads. The
 * option does not apply to converted tensors. Copies to the host, between devices and within the host do not change. If
 * the driver cannot run the library's kernels, tensors travel unchanged. A consolidated tree is copied leaf by leaf,
 * and the result is not consolidated. tdict_transfer_stats.wire_bytes has the number of bytes on the link.
 * docs/tuning.md says when `narrow` saves time. */
#ifndef TDICT_WIRE_H
#define TDICT_WIRE_H

#include <string.h>

#include "tdict/values.h"

TDICT_BEGIN_DECLS

/** Converts the tensors whose path matches a pattern. The elements of an array must have equal sizes. */
typedef struct tdict_conversion {
  size_t struct_size;
  const char *pattern;  /**< borrowed for the call */
  tdict_dtype dtype;    /**< the dtype of the result */
  double scale, offset; /**< the result is x * scale + offset. Defaults: 1 and 0 */
  /** The dtype of the elements on the link between host and device. 0 (default): the narrower of the source's dtype and
   *  `dtype`. A named dtype is used even if it loses information: F32 tensors can travel as BF16. The elements are then
   *  converted twice. Copies within the host and within a device do not use the field, but refuse, with
   *  #TDICT_ENOTSUP, a dtype to which or from which tdict_to_dtype() cannot convert. */
  tdict_dtype wire_dtype;
} tdict_conversion;
static inline tdict_conversion tdict_conversion_default(void) {
  tdict_conversion c;
  memset(&c, 0, sizeof c);
  c.struct_size = sizeof c;
  c.scale = 1;
  return c;
}

TDICT_END_DECLS
#endif
