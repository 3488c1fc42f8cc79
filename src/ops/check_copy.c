/* What stands in the way of a copy. Nothing is kept. Thread rule: see check_copy.h. */
#include "ops/check_copy.h"

#include <string.h>

#include "base/error.h"
#include "tree/text.h"

enum { SHAPE_BYTES = 96, DEVICE_BYTES = 32 };

static bool on_host(const tdict_tensor *t) { return t->storage->device.type == TDICT_DEVICE_CPU; }
static bool copies(const tdict_tensor *t) {
  const tdict_memory *m = t->storage->memory;
  return !on_host(t) && m && m->ops->copy;
}

tdict_status tdict_check_kinds(const char *what, const tdict_tensor *dst, const tdict_tensor *src, tdict_error *err) {
  char to[DEVICE_BYTES], from[DEVICE_BYTES];
  if (dst->dtype != src->dtype)
    return tdict_fail(err, TDICT_EDTYPE, "%s: from %s to %s", what, tdict_dtype_format(src->dtype, from, sizeof from),
                      tdict_dtype_format(dst->dtype, to, sizeof to));
  if (dst->storage->flags & TDICT_STORAGE_READ_ONLY)
    return tdict_fail(err, TDICT_EREADONLY, "%s: the destination may not be written", what);
  if (on_host(dst) && on_host(src)) return TDICT_OK;
  bool apart = !on_host(dst) && !on_host(src) && !tdict_device_equal(dst->storage->device, src->storage->device);
  if (!apart && (copies(dst) || copies(src))) return TDICT_OK;
  return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: from %s to %s; %s", what,
                    tdict_device_format(src->storage->device, from, sizeof from),
                    tdict_device_format(dst->storage->device, to, sizeof to),
                    apart ? "wanted one device, or the host on one side"
                          : "the device's bytes are the program's own and belong to no context");
}

tdict_status tdict_check_came(const char *what, const tdict_tensor *src, tdict_error *err) {
  tdict_tensor_await(src, false);
  if (!tdict_tensor_is_lost(src)) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: the source's bytes never came, a transfer into them failed", what);
}

tdict_status tdict_check_copy(const char *what, const tdict_tensor *dst, const tdict_tensor *src, tdict_error *err) {
  tdict_status status = tdict_check_kinds(what, dst, src, err);
  return status == TDICT_OK ? tdict_check_came(what, src, err) : status;
}

tdict_status tdict_check_shape(const char *what, const tdict_tensor *t, int ndim, const int64_t *shape,
                               tdict_error *err) {
  bool same = t->ndim == ndim;
  for (int i = 0; same && i < ndim; i++) same = t->dims[i] == shape[i];
  if (same) return TDICT_OK;
  char wanted[SHAPE_BYTES], found[SHAPE_BYTES];
  return tdict_fail(err, TDICT_ESHAPE, "%s: a tensor of shape %s, wanted %s", what,
                    tdict_text_shape(t->ndim, t->dims, found, sizeof found),
                    tdict_text_shape(ndim, shape, wanted, sizeof wanted));
}

bool tdict_repeat(const tdict_tensor *src, int ndim, const int64_t *shape, tdict_made *made) {
  int lead = ndim - src->ndim;
  if (lead < 0) return false;
  made->fresh = false;
  made->ndim = ndim;
  made->data = src->data;
  for (int i = 0; i < ndim; i++) {
    made->shape[i] = shape[i];
    made->strides[i] = i < lead ? 0 : tdict_tensor_dims_strides(src)[i - lead];
    if (i >= lead && src->dims[i - lead] != shape[i]) return false;
  }
  return true;
}
