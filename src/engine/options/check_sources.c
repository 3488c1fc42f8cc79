/* Hashes sources in C order, with 64 bits, for check_sources. See check_sources.h for ownership and threads. */
#include "engine/options/check_sources.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/tensor/layout.h"

static uint64_t hash_bytes(uint64_t h, const unsigned char *bytes, size_t count) {
  size_t at = 0;
  for (uint64_t word; at + sizeof word <= count; at += sizeof word) {
    memcpy(&word, bytes + at, sizeof word);
    h = tdict_mix_hash(h, word);
  }
  for (; at < count; at++) h = tdict_mix_hash(h, bytes[at]);
  return h;
}

static tdict_status hash_rect(void *user, const tdict_rect *r, tdict_error *err) {
  (void)err;
  uint64_t *h = user;
  for (size_t i = 0; i < r->height; i++)
    *h = hash_bytes(*h, (const unsigned char *)r->src + (int64_t)i * r->src_pitch, r->width);
  return TDICT_OK;
}

static uint64_t hash_item(const tdict_item *item) {
  const tdict_tensor *t = item->src;
  uint64_t h = 0x243f6a8885a308d3u;
  if (item->src_plain) return hash_bytes(h, t->data, tdict_tensor_nbytes(t));
  tdict_pair pair;
  tdict_pair_init(&pair, t->ndim, t->dims, NULL, tdict_tensor_dims_strides(t), tdict_dtype_bytes(t->dtype));
  tdict_pair_span span = {NULL, t->data, 0, tdict_tensor_nbytes(t)};
  (void)!tdict_pair_walk(&pair, &span, hash_rect, &h, NULL);
  return h;
}

static bool is_in_host_memory(const tdict_item *item) {
  const tdict_storage *s = item->src->storage;
  return s->device.type == TDICT_DEVICE_CPU && !tdict_storage_is_unloaded(s);
}

/* A consolidated tree has one item, but a hash for each leaf, so that an error can name the leaf. */
static uint32_t count_hashes(const tdict_plan *p) {
  return p->block ? (uint32_t)p->block->layout->num_leaves : p->num_items;
}

/* Returns the hash of an item, or of a leaf if the tree is consolidated. 0: not in host memory. */
static uint64_t hash_nth(const tdict_plan *p, uint32_t i) {
  const tdict_item *item = &p->items[p->block ? 0 : i];
  if (!is_in_host_memory(item)) return 0;
  if (!p->block) return hash_item(item);
  const tdict_leaf_span *leaf = &p->block->layout->leaves[i];
  if (!leaf->bytes) return 0; /* a block of empty leaves has no address */
  return hash_bytes(0, (const unsigned char *)item->src_data + leaf->begin, leaf->bytes);
}

tdict_status tdict_check_sources_prepare(tdict_transfer *t, tdict_error *err) {
  t->hashes = calloc((size_t)count_hashes(&t->plan) + 1, sizeof *t->hashes);
  return t->hashes ? TDICT_OK : tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory to check its sources");
}

void tdict_check_sources_before(tdict_transfer *t) {
  const uint32_t count = count_hashes(&t->plan);
  for (uint32_t i = 0; i < count; i++) t->hashes[i] = hash_nth(&t->plan, i);
}

void tdict_check_sources_after(tdict_transfer *t) {
  if (tdict_future_has_failed(&t->future)) return;
  const tdict_plan *p = &t->plan;
  const uint32_t count = count_hashes(p);
  for (uint32_t i = 0; i < count; i++) {
    if (hash_nth(p, i) == t->hashes[i]) continue;
    tdict_error err;
    (void)!tdict_fail(&err, TDICT_ECHANGED,
                      "transfer: the source changed during the copy; call tdict_future_wait_source() first");
    tdict_future_fail(&t->future, p->block ? i : p->items[i].leaf, "", &err);
    return;
  }
}
