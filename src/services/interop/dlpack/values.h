/* Converts devices and dtypes to and from DLPack's codes. A code without a counterpart is an error, and the message
 * names the code. The functions keep no state. Thread-safe. */
#ifndef TDICT_SERVICES_INTEROP_DLPACK_VALUES_H
#define TDICT_SERVICES_INTEROP_DLPACK_VALUES_H

#include "core/tensor/tensor.h"
#include "services/interop/dlpack/abi.h"

/* Fills all members of *out except shape and strides. If `pinned_as_cpu` is true, reports pinned memory as ordinary
 * host memory. Returns TDICT_EDTYPE for several lanes, and TDICT_ENOTSUP for a device other than the cpu, cuda and the
 * simulated device. */
tdict_status tdict_dlpack_describe(const tdict_tensor *tensor, bool pinned_as_cpu, tdict_dl_tensor *out,
                                   tdict_error *err);
/* Converts a tensor of a producer to a description. The description borrows the shape and the strides. The cuda device
 * of CUDA managed memory is the device with the tensor's device index. Returns TDICT_EINVAL for a NULL shape, an
 * invalid number of dimensions or an invalid byte offset. Returns TDICT_EDTYPE for an unknown dtype or several lanes,
 * and TDICT_ENOTSUP for another device. */
tdict_status tdict_dlpack_read(const tdict_dl_tensor *from, bool read_only, tdict_tensor_desc *out, tdict_error *err);

#endif
