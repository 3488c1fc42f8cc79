/* Elements as numbers: writing one value everywhere, and reading. Pure functions of their arguments but for the bytes
 * they write; thread-safe. */
#ifndef TDICT_TENSOR_ELEMENT_H
#define TDICT_TENSOR_ELEMENT_H

#include "tensor/tensor.h"

enum { TDICT_ELEMENT_BYTES = 16 };
/* One element with a value: numbers as tdict_convert_double(), bool 0 or 1, complex with an imaginary part of 0, 8-bit
 * floats and types of several lanes 0 only. TDICT_ENOTSUP; TDICT_EOVERFLOW an integer type does not hold it. `element`
 * has room for tdict_dtype_bytes() bytes. */
tdict_status tdict_element_from_double(const char *what, tdict_dtype dtype, double value, void *element,
                                       tdict_error *err);
/* TDICT_ENOTSUP when the tensor lies on a device and the element's bytes are not all one; TDICT_EREADONLY;
 * TDICT_EWRONGDEVICE a device's bytes that belong to no context. */
tdict_status tdict_element_check(const char *what, const tdict_tensor *t, const void *element, tdict_error *err);
/* Writes the element everywhere, after the check. Waits as tdict_tensor_copy() does. TDICT_EDEVICE. */
tdict_status tdict_element_fill(const tdict_tensor *t, const void *element, tdict_error *err);
/* Elements as tdict_element_at() reads them: real and imaginary part, NaN and infinities kept. False for a type that it
 * cannot read: several lanes. Integers of 64 bits are rounded. */
bool tdict_element_read(tdict_dtype dtype, const void *element, double *real, double *imaginary);

#endif
