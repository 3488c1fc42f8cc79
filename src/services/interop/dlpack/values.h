/* Converts devices and dtypes to and from DLPack's codes. Errors name a code without counterpart. Thread-safe. */
#ifndef TDICT_SERVICES_INTEROP_DLPACK_VALUES_H
#define TDICT_SERVICES_INTEROP_DLPACK_VALUES_H

#include "core/tensor/tensor.h"
#include "services/interop/dlpack/abi.h"

/* Fills *out except shape and strides. `pinned_as_cpu`: reports pinned memory as ordinary. Returns TDICT_EDTYPE for
 * several lanes, and TDICT_ENOTSUP for a device other than the cpu, cuda and the simulated one. */
tdict_status tdict_dlpack_describe(const tdict_tensor *tensor, bool pinned_as_cpu, tdict_dl_tensor *out,
                                   tdict_error *err);
/* Describes a tensor of a producer, and borrows its shape and strides. CUDA managed memory is on the device of the
 * tensor's index. Returns TDICT_EINVAL for a bad shape or byte offset, TDICT_EDTYPE for an unknown dtype or several
 * lanes, and TDICT_ENOTSUP for another device. */
tdict_status tdict_dlpack_read(const tdict_dl_tensor *from, bool read_only, tdict_tensor_desc *out, tdict_error *err);

#endif
