/* Adds conversions to a work, see core/kernel/work.h. The caller owns all memory. Thread rule: as for works. */
#ifndef TDICT_ENGINE_KINDS_DEVICE_CAST_H
#define TDICT_ENGINE_KINDS_DEVICE_CAST_H

#include "core/kernel/work.h"

/* Adds the conversion of `count` adjacent elements from `src` to `dst`, both on the device. Errors:
 * tdict_kernel_add_convert(). */
static inline tdict_status tdict_device_cast_add(tdict_kernel_work *work, const tdict_cast *c, void *dst,
                                                 const void *src, size_t count, tdict_error *err) {
  const int64_t shape = (int64_t)count;
  const int64_t to = (int64_t)tdict_dtype_bytes(c->to), from = (int64_t)tdict_dtype_bytes(c->from);
  const tdict_kernel_move move = {
      .dst = dst, .src = src, .ndim = 1, .shape = &shape, .dst_strides = &to, .src_strides = &from};
  return tdict_kernel_add_convert(work, &move, c, err);
}

#endif
