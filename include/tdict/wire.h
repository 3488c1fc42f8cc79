/* Declares conversions: during its copies, a transfer converts tensors to other dtypes.
 *
 * tdict_transfer_options.conversions is an array of conversions. The first one whose pattern matches a tensor is used.
 * Except for images, the results are those of tdict_to_dtype(). Converted tensors are always copied, and consolidated
 * trees leaf by leaf.
 * Errors of the call, in addition to those of tdict/transfer.h:
 * - #TDICT_ENOTSUP: docs/elements.md has no conversion for the dtypes, or a kernel is needed but cannot run.
 * - #TDICT_EDTYPE: an unknown dtype.
 * - #TDICT_EINVAL: `scale` or `offset` is not a finite float32 number.
 * - #TDICT_EOVERFLOW, of the transfer: an integer dtype cannot hold an element.
 * - For images also #TDICT_EDTYPE, #TDICT_ESHAPE, #TDICT_EINVAL and #TDICT_EWRONGDEVICE, see tdict_image.
 *
 * docs/transfers.md says where elements are converted, and what the option `narrow` does. docs/howto/images.md has a
 * program that converts images. */
#ifndef TDICT_WIRE_H
#define TDICT_WIRE_H

#include "tdict/values.h"

TDICT_BEGIN_DECLS

/** The place of a window in an image, and whether its columns are reversed. */
typedef struct tdict_window {
  int64_t top, left; /**< the first row and the first column of the window */
  bool flip;         /**< true: the first column of the result is the last column of the window */
} tdict_window;

/** Cuts a window out of each image of a leaf, normalizes it by channel, and can move the channels to the front.
 *
 *  The leaf has the dtype uint8 and the shape [..., H, W, C] with 1 to 4 channels. Batch dimensions must be before H.
 *  The result is float16, bfloat16 or float32. Only the windows travel to a device. The other errors of the call:
 *  - #TDICT_EDTYPE: another dtype; `windows` has no integers.
 *  - #TDICT_ESHAPE: another shape, a window larger than the images, or not as many windows as images.
 *  - #TDICT_EINVAL: a window that is partly outside its image; an option that the message names.
 *  - #TDICT_EWRONGDEVICE: `windows` is on a device.
 *  - #TDICT_ENOTFOUND, #TDICT_ETYPE: `windows` names no tensor. #TDICT_EOVERFLOW: a position does not fit into int64.
 *  - #TDICT_ENOTSUP: from a device to the host or to another device, a strided tensor on a device, a leaf in a file. */
typedef struct tdict_image {
  size_t struct_size;
  int64_t height, width;         /**< of all windows; default 0: those of the images */
  bool channels_first;           /**< true (default): [..., C, height, width]. false: [..., height, width, C] */
  const float *scales, *offsets; /**< x * scale + offset by channel. NULL (default): those of the conversion */
  size_t num_channels;           /**< number of elements in `scales` and in `offsets`; default 0 */
  /** Path of a tensor of integers: [..., 2] for top and left, or [..., 3] with flip. The starting call reads it, after
   *  transfers that write it. NULL (default): `window_array`. */
  const char *windows;
  const tdict_window *window_array; /**< one for each image. NULL (default): the middle of each image, not flipped */
  size_t num_windows;               /**< number of elements in `window_array`; default 0 */
} tdict_image;
static inline tdict_image tdict_image_default(void) {
  tdict_image i;
  tdict_init_struct_(i);
  i.channels_first = true;
  return i;
}

/** Converts the tensors whose path matches a pattern. The elements of an array must have equal `struct_size`. */
typedef struct tdict_conversion {
  size_t struct_size;
  const char *pattern;    /**< as in the option `keep`; "meta.**" for all tensors below "meta". Borrowed for the call */
  tdict_dtype dtype;      /**< the dtype of the result */
  double scale, offset;   /**< x * scale + offset, of integers and bools to floats of 16 to 64 bits; default 1 and 0.
                             One pair for the whole tensor, except with `image` */
  tdict_dtype wire_dtype; /**< on the link, even if it loses information. 0 (default): the narrower of both dtypes */
  /** Not NULL: the tensors are images. It, and what it points to, must live as long as the conversion. Default: NULL */
  const tdict_image *image;
} tdict_conversion;
static inline tdict_conversion tdict_conversion_default(void) {
  tdict_conversion c;
  tdict_init_struct_(c);
  c.scale = 1;
  return c;
}

TDICT_END_DECLS
#endif
