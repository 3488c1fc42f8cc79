/* Converts tensors of any strides to another dtype. tdict/convert.h describes the results. Thread rule: as in
 * tdict/tensor.h. */
#ifndef TDICT_TENSOR_CONVERT_TENSOR_H
#define TDICT_TENSOR_CONVERT_TENSOR_H

#include "tensor/tensor.h"

/* Checks that the elements of `from` can be converted to `to`. Returns TDICT_EDTYPE if `to` is unknown, TDICT_ENOTSUP
 * if the pair of dtypes is not supported, and TDICT_EWRONGDEVICE if the tensor is on a device. The error message begins
 * with `what`. */
tdict_status tdict_convert_check(const char *what, tdict_dtype to, const tdict_tensor *from, tdict_error *err);
/* Checks that converted elements can be written to `memory`. NULL means plain host memory. Returns TDICT_EWRONGDEVICE
 * if `memory` is on a device. */
tdict_status tdict_convert_check_memory(const char *what, const tdict_memory *memory, tdict_error *err);
/* Converts all elements of `src` to the dtype of `dst`, and returns the errors of tdict_convert(). The error messages
 * begin with `what`. If the dtypes are equal, the message about lost bytes begins with "copy". */
tdict_status tdict_convert_tensor(const char *what, tdict_tensor *dst, const tdict_tensor *src, tdict_error *err);

/* An element that an integer dtype cannot hold. */
typedef struct tdict_convert_element {
  tdict_dtype to, from;
  size_t at;         /* index in C order */
  const void *value; /* the element, a `from` */
} tdict_convert_element;
/* Returns TDICT_EOVERFLOW with the element's index in a tensor of the shape of `like`, its value and the range of
 * `to`. */
tdict_status tdict_convert_fail_element(const char *what, const tdict_convert_element *element,
                                        const tdict_tensor *like, tdict_error *err);

#endif
