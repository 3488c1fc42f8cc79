/* Copies bytes of leaves that are strided, unloaded or in sinks. See leaf_bytes.h for ownership and threads. */
#include "engine/kinds/leaf_bytes.h"

void tdict_leaf_pair(tdict_pair *pair, const tdict_item *item, bool use_dst, bool use_src) {
  const tdict_tensor *t = use_src || !item->dst ? item->src : item->dst;
  const int64_t *dst = use_dst && item->dst ? tdict_tensor_dims_strides(item->dst) : NULL;
  const int64_t *src = use_src ? tdict_tensor_dims_strides(item->src) : NULL;
  tdict_pair_init(pair, t->ndim, t->dims, dst, src, tdict_dtype_bytes(t->dtype));
}

/* Reads the rows of a rectangle from an unloaded storage. */
static tdict_status read_rect(void *user, const tdict_rect *rect, tdict_error *err) {
  const tdict_storage *s = user;
  uintptr_t dst = (uintptr_t)rect->dst, src = (uintptr_t)rect->src;
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < rect->height && status == TDICT_OK; i++) {
    status = tdict_storage_read(s, src - (uintptr_t)s->data, (void *)dst, rect->width, err);
    dst += (uintptr_t)rect->dst_pitch, src += (uintptr_t)rect->src_pitch;
  }
  return status;
}

tdict_status tdict_leaf_copy(const tdict_item *item, bool use_dst, bool use_src, const tdict_pair_span *span,
                             tdict_error *err) {
  tdict_storage *s = item->src->storage;
  tdict_pair pair;
  tdict_leaf_pair(&pair, item, use_dst, use_src);
  if (use_src && tdict_storage_is_unloaded(s)) return tdict_pair_walk(&pair, span, read_rect, s, err);
  tdict_pair_copy(&pair, span);
  return TDICT_OK;
}

tdict_status tdict_leaf_write_sink(const tdict_item *item, size_t at, const char *bytes, size_t count,
                                   tdict_error *err) {
  const tdict_storage *s = item->dst->storage;
  return tdict_storage_write(s, (uintptr_t)item->dst_data - (uintptr_t)s->data + at, bytes, count, err);
}
