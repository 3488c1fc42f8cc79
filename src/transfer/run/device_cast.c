/* Adds conversions to a work. See device_cast.h for ownership and threads. */
#include "transfer/run/device_cast.h"

tdict_status tdict_device_cast_add(tdict_kernel_work *work, const tdict_cast *c, void *dst, const void *src,
                                   size_t count, tdict_error *err) {
  const int64_t shape = (int64_t)count, to = (int64_t)tdict_dtype_bytes(c->to),
                from = (int64_t)tdict_dtype_bytes(c->from);
  const tdict_kernel_move move = {
      .dst = dst, .src = src, .ndim = 1, .shape = &shape, .dst_strides = &to, .src_strides = &from};
  const tdict_kernel_cast cast = {c->to, c->from, c->is_scaled, c->scale, c->offset};
  return tdict_kernel_add_convert(work, &move, &cast, err);
}
