/* Reads, writes and fills elements as numbers. Keeps no state. Thread rule: as in tdict/tensor.h. */
#ifndef TDICT_CORE_TENSOR_ELEMENT_H
#define TDICT_CORE_TENSOR_ELEMENT_H

#include "core/tensor/tensor.h"

enum { TDICT_ELEMENT_BYTES = 16, TDICT_ELEMENT_ROOM = 64 };
/* Writes `value` as one element of `dtype`. `element` has TDICT_ELEMENT_ROOM bytes. Numbers are converted as by
 * tdict_convert_simple(). A bool element becomes 0 or 1. A complex element gets the imaginary part 0. For types with
 * several lanes, the value must be +0, else the function returns TDICT_ENOTSUP. It also returns TDICT_ENOTSUP for
 * elements that do not fit the room, and TDICT_EOVERFLOW if an integer type cannot hold the value. The error message
 * begins with `what`. */
tdict_status tdict_element_from_double(const char *what, tdict_dtype dtype, double value, void *element,
                                       tdict_error *err);
/* Checks that the tensor can be filled. Returns TDICT_EREADONLY, TDICT_EWRONGDEVICE for device memory of no context,
 * and TDICT_ENOTSUP on a device if the bytes of the element differ. */
tdict_status tdict_element_check(const char *what, const tdict_tensor *t, const void *element, tdict_error *err);
/* Fills a tensor that passes tdict_element_check(), after all transfers and recorded uses of its storage. Returns
 * errors of the driver, such as TDICT_EDEVICE. */
tdict_status tdict_element_fill(const tdict_tensor *t, const void *element, tdict_error *err);
/* Copies `part` to the start of `row` and fills the rest of `row` with the element. Both tensors have the same number
 * of dimensions. No dimension of `part` may be larger than the same dimension of `row`. Returns the errors of
 * tdict_tensor_copy(), tdict_element_check() and tdict_element_fill(). */
tdict_status tdict_element_pad(const char *what, const tdict_tensor *row, const tdict_tensor *part, const void *element,
                               tdict_error *err);
/* Reads the real and the imaginary part of one element. NaN and infinities are kept. Integers of 64 bits are rounded to
 * double. A bool is 0 if its byte is 0, else 1. Returns false for types with several lanes. */
bool tdict_element_read(tdict_dtype dtype, const void *element, double *real, double *imaginary);

#endif
