/* Declares conversions: during its copies, a transfer converts tensors to other dtypes.
 *
 * tdict_transfer_options.conversions is an array of conversions. The first one whose pattern matches a tensor is used.
 * The results are those of tdict_to_dtype(). Converted tensors are always copied, and consolidated trees leaf by leaf.
 * Errors of the call, in addition to those of tdict/transfer.h:
 * - #TDICT_ENOTSUP: docs/elements.md has no conversion for the dtypes, or a kernel is needed but cannot run.
 * - #TDICT_EDTYPE: an unknown dtype.
 * - #TDICT_EINVAL: `scale` or `offset` is not a finite float32 number.
 * - #TDICT_EOVERFLOW, of the transfer: an integer dtype cannot hold an element.
 *
 * docs/transfers.md says where elements are converted, and what the option `narrow` does. */
#ifndef TDICT_WIRE_H
#define TDICT_WIRE_H

#include "tdict/values.h"

TDICT_BEGIN_DECLS

/** Converts the tensors whose path matches a pattern. The elements of an array must have equal `struct_size`. */
typedef struct tdict_conversion {
  size_t struct_size;
  const char *pattern;    /**< as in the option `keep`; "meta.**" for all tensors below "meta". Borrowed for the call */
  tdict_dtype dtype;      /**< the dtype of the result */
  double scale, offset;   /**< x * scale + offset, of integers and bools to floats of 16 to 64 bits; default 1 and 0.
                             One pair for the whole tensor: channels with pairs of their own need one leaf each */
  tdict_dtype wire_dtype; /**< on the link, even if it loses information. 0 (default): the narrower of both dtypes */
} tdict_conversion;
static inline tdict_conversion tdict_conversion_default(void) {
  tdict_conversion c;
  tdict_init_struct_(c);
  c.scale = 1;
  return c;
}

TDICT_END_DECLS
#endif
