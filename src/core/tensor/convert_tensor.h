/* Converts tensors of any strides to another dtype: see docs/elements.md. Thread rule: as in tdict/tensor.h. */
#ifndef TDICT_CORE_TENSOR_CONVERT_TENSOR_H
#define TDICT_CORE_TENSOR_CONVERT_TENSOR_H

#include "core/tensor/tensor.h"

/* Checks that `from` can be converted. Returns TDICT_EDTYPE for an unknown dtype, TDICT_ENOTSUP for a pair without
 * conversion, and TDICT_EWRONGDEVICE on a device. `what` begins the message. */
tdict_status tdict_convert_check(const char *what, tdict_dtype to, const tdict_tensor *from, tdict_error *err);
/* Returns TDICT_ENOTSUP, with a message about an unsupported pair of dtypes. */
tdict_status tdict_convert_refuse(const char *what, tdict_dtype to, tdict_dtype from, tdict_error *err);
/* Returns the distance in bytes from the first element to element number `at` in C order. */
int64_t tdict_convert_offset(const tdict_tensor *src, size_t at);
/* Returns TDICT_EOVERFLOW. The message names the element of `src` with number `at` in C order, which the integer dtype
 * `to` cannot hold. `element` is a copy of it. */
tdict_status tdict_convert_overflow(const char *what, tdict_dtype to, const tdict_tensor *src, size_t at,
                                    const void *element, tdict_error *err);
/* Returns TDICT_EWRONGDEVICE if `memory` (NULL: the host's) is on a device, where no converted element can go. */
tdict_status tdict_convert_check_memory(const char *what, const tdict_memory *memory, tdict_error *err);
/* Converts all elements of `src` to the dtype of `dst`, and returns the errors of tdict_convert(). The error messages
 * begin with `what`. If the dtypes are equal, the message about lost bytes begins with "copy". */
tdict_status tdict_convert_tensor(const char *what, tdict_tensor *dst, const tdict_tensor *src, tdict_error *err);

#endif
