/* Destinations are sorted by address; leaves whose bytes overlap are then neighbours, or nearly so. See twice.h. */
#include "transfer/plan/overlap.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "transfer/plan/result.h"

enum { NEAR = 16 }; /* so many leaves before it is a leaf with gaps compared with */

typedef struct span {
  uintptr_t begin, end; /* addresses */
  uint32_t item;
} span;

/* By where they begin, those that begin together as they came. A byte of the addresses at a time, the lowest first: the
 * library's own sort would take an eighth of the time of copying very many leaves. */
static void sort(span *spans, span *spare, uint32_t count) {
  for (unsigned shift = 0; shift < 8 * sizeof spans->begin; shift += 8) {
    uint32_t starts[257] = {0};
    for (uint32_t i = 0; i < count; i++) starts[1 + (spans[i].begin >> shift & 0xff)]++;
    bool same = false;
    for (int i = 1; i <= 256; i++) {
      same = same || starts[i] == count;
      starts[i] += starts[i - 1];
    }
    if (same) continue;
    for (uint32_t i = 0; i < count; i++) spare[starts[spans[i].begin >> shift & 0xff]++] = spans[i];
    memcpy(spans, spare, count * sizeof *spans);
  }
}

/* Where the elements of a destination lie, with addresses. */
static tdict_extent extent_of(const tdict_tensor *t) {
  const uintptr_t base = (uintptr_t)t->storage->data;
  tdict_extent e = tdict_tensor_extent(t);
  e.begin += base;
  e.end += base;
  e.origin += base;
  return e;
}

static span span_of(const tdict_item *item, uint32_t n) {
  const uintptr_t begin = (uintptr_t)item->dst_data;
  const tdict_extent e = item->dst_plain ? tdict_extent_all(begin, begin + item->bytes) : extent_of(item->dst);
  return (span){e.begin, e.end, n};
}

static bool have_strides(const tdict_tensor *a, const tdict_tensor *b) {
  for (int i = 0; i < a->ndim; i++)
    if (a->dims[i] > 1 && tdict_tensor_dims_strides(a)[i] != tdict_tensor_dims_strides(b)[i]) return false;
  return true;
}

static bool is_same(const tdict_tensor *a, const tdict_tensor *b) {
  return a->data == b->data && a->storage == b->storage && a->dtype == b->dtype && a->ndim == b->ndim &&
         memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof *a->dims) == 0 && have_strides(a, b);
}

/* Each byte that both write gets the same value from both: the sources are one tensor, or lie to each other as the
 * destinations do. */
static bool agree(const tdict_item *a, const tdict_item *b) {
  if (a->src->storage != b->src->storage) return false;
  if (is_same(a->dst, b->dst)) return is_same(a->src, b->src);
  return (uintptr_t)a->src->data - (uintptr_t)b->src->data == (uintptr_t)a->dst->data - (uintptr_t)b->dst->data &&
         have_strides(a->src, a->dst) && have_strides(b->src, b->dst);
}

static tdict_status check(const tdict_plan *plan, const span *x, const span *y, const tdict_tree *mirror,
                          tdict_error *err) {
  const tdict_item *a = &plan->items[x->item < y->item ? x->item : y->item];
  const tdict_item *b = &plan->items[x->item < y->item ? y->item : x->item];
  if (x->end <= y->begin || y->end <= x->begin) return TDICT_OK;
  if (!tdict_device_equal(a->dst->storage->device, b->dst->storage->device)) return TDICT_OK;
  const tdict_extent ea = extent_of(a->dst), eb = extent_of(b->dst);
  if (tdict_extent_overlap(&ea, &eb) != TDICT_OVERLAP_YES || agree(a, b)) return TDICT_OK;
  char first[sizeof err->path] = "", second[sizeof err->path] = "";
  tdict_leaf_path(mirror, a->leaf, first, sizeof first);
  tdict_leaf_path(mirror, b->leaf, second, sizeof second);
  tdict_status status =
      tdict_fail(err, TDICT_EINVAL, "copy_into: the destination's tensor %s that at '%.150s', and their sources differ",
                 is_same(a->dst, b->dst) ? "is" : "shares bytes with", first);
  return tdict_error_at(err, status, second);
}

tdict_status tdict_overlap_check(const tdict_plan *plan, const tdict_tree *mirror, tdict_error *err) {
  if (!plan->may_overlap) return TDICT_OK;
  span *spans = malloc(2 * (size_t)plan->num_items * sizeof *spans);
  if (!spans) return tdict_fail(err, TDICT_ENOMEM, "copy_into: no host memory to compare the destination's leaves");
  uint32_t count = 0, whole = UINT32_MAX; /* of those without gaps the one that ends last */
  uintptr_t end = 0;
  for (uint32_t i = 0; i < plan->num_items; i++)
    if (plan->items[i].bytes) spans[count++] = span_of(&plan->items[i], i);
  sort(spans, spans + count, count);
  tdict_status status = TDICT_OK;
  for (uint32_t i = 0; i < count && status == TDICT_OK; i++) {
    if (spans[i].begin < end)
      for (uint32_t k = i > NEAR ? i - NEAR : 0; k < i && status == TDICT_OK; k++)
        status = check(plan, &spans[k], &spans[i], mirror, err);
    if (status == TDICT_OK && whole != UINT32_MAX) status = check(plan, &spans[whole], &spans[i], mirror, err);
    if (spans[i].end > end) end = spans[i].end;
    if (plan->items[spans[i].item].dst_plain && (whole == UINT32_MAX || spans[i].end > spans[whole].end)) whole = i;
  }
  free(spans);
  return status;
}
