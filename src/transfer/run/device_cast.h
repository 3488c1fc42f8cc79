/* Adds conversions to a work, see kernel/work.h. The caller owns all memory. Thread rule: as for works. */
#ifndef TDICT_TRANSFER_RUN_DEVICE_CAST_H
#define TDICT_TRANSFER_RUN_DEVICE_CAST_H

#include "kernel/work.h"
#include "tensor/cast.h"

/* Adds the conversion of `count` adjacent elements from `src` to `dst`, both addresses of the device. Returns the
 * errors of tdict_kernel_add_convert(). */
tdict_status tdict_device_cast_add(tdict_kernel_work *work, const tdict_cast *cast, void *dst, const void *src,
                                   size_t count, tdict_error *err);

#endif
