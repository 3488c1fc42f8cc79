/* Converts devices and dtypes to and from DLPack's codes, and refuses the others by name. Pure functions;
 * thread-safe. */
#ifndef TDICT_INTEROP_DLPACK_VALUES_H
#define TDICT_INTEROP_DLPACK_VALUES_H

#include "interop/dlpack/abi.h"
#include "tensor/tensor.h"

/* Describes the elements of `tensor`, except shape and strides. If `pinned_as_cpu` is true, pinned memory becomes
 * ordinary host memory. Returns TDICT_EDTYPE for several lanes, and TDICT_ENOTSUP for a device other than the cpu, cuda
 * and the simulated device. */
tdict_status tdict_dlpack_describe(const tdict_tensor *tensor, bool pinned_as_cpu, tdict_dl_tensor *out,
                                   tdict_error *err);
/* Converts a tensor of a producer to a description whose shape and strides are borrowed. Managed memory belongs to the
 * cuda device with the index of the tensor's device. Returns TDICT_EINVAL for a NULL shape, or an invalid number of
 * dimensions or byte offset; TDICT_EDTYPE; TDICT_ENOTSUP for another device. */
tdict_status tdict_dlpack_read(const tdict_dl_tensor *from, bool read_only, tdict_tensor_desc *out, tdict_error *err);

#endif
