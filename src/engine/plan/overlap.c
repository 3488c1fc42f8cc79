/* Finds overlapping destinations. Sorts the destinations by address, and compares each destination with up to
 * COMPARED_BEFORE + 1 preceding destinations. See overlap.h for ownership and threads. */
#include "engine/plan/overlap.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "engine/plan/result.h"

enum { COMPARED_BEFORE = 16 }; /* number of preceding destinations with which a destination is compared */

typedef struct span {
  uintptr_t begin, end; /* addresses */
  uint32_t item;
} span;

/* Sorts spans with a stable radix sort: qsort of very many would take an eighth of the copies' time. */
static void sort_spans(span *spans, span *spare, uint32_t count) {
  for (unsigned shift = 0; shift < 8 * sizeof spans->begin; shift += 8) {
    uint32_t starts[257] = {0};
    for (uint32_t i = 0; i < count; i++) starts[1 + (spans[i].begin >> shift & 0xff)]++;
    bool all_equal = false;
    for (int i = 1; i <= 256; i++) {
      all_equal = all_equal || starts[i] == count;
      starts[i] += starts[i - 1];
    }
    if (all_equal) continue;
    for (uint32_t i = 0; i < count; i++) spare[starts[spans[i].begin >> shift & 0xff]++] = spans[i];
    memcpy(spans, spare, count * sizeof *spans);
  }
}

/* Returns the addresses of a destination's elements. */
static tdict_extent extent_of(const tdict_tensor *t) {
  const uintptr_t base = (uintptr_t)t->storage->data;
  tdict_extent e = tdict_tensor_extent(t);
  e.begin += base;
  e.end += base;
  e.origin += base;
  return e;
}

static span make_span(const tdict_item *item, uint32_t n) {
  const uintptr_t begin = (uintptr_t)item->dst_data;
  const tdict_extent e = item->dst_plain ? tdict_extent_all(begin, begin + item->bytes) : extent_of(item->dst);
  return (span){e.begin, e.end, n};
}

static bool have_same_strides(const tdict_tensor *a, const tdict_tensor *b) {
  for (int i = 0; i < a->ndim; i++)
    if (a->dims[i] > 1 && tdict_tensor_dims_strides(a)[i] != tdict_tensor_dims_strides(b)[i]) return false;
  return true;
}

static bool is_same_view(const tdict_tensor *a, const tdict_tensor *b) {
  return a->data == b->data && a->storage == b->storage && a->dtype == b->dtype && a->ndim == b->ndim &&
         memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof *a->dims) == 0 && have_same_strides(a, b);
}

/* Returns true only if both items write the same value to each byte that both items write. Both sources must be in one
 * storage. If the destinations are the same view, the sources must also be the same view. Otherwise, each source must
 * have the strides of its destination, and the sources must be as far apart as the destinations. */
static bool have_same_source(const tdict_item *a, const tdict_item *b) {
  if (a->src->storage != b->src->storage) return false;
  if (is_same_view(a->dst, b->dst)) return is_same_view(a->src, b->src);
  return (uintptr_t)a->src->data - (uintptr_t)b->src->data == (uintptr_t)a->dst->data - (uintptr_t)b->dst->data &&
         have_same_strides(a->src, a->dst) && have_same_strides(b->src, b->dst);
}

/* Returns true if both items are copied unchanged, or the same view is converted in the same way. */
static bool converts_alike(const tdict_plan *plan, const tdict_item *a, const tdict_item *b) {
  if (!plan->wire) return true;
  const uint32_t rule = plan->wire->casts[a - plan->items].rule;
  return rule == plan->wire->casts[b - plan->items].rule && (rule == 0 || is_same_view(a->dst, b->dst));
}

/* Returns TDICT_EINVAL if the destinations of two spans share bytes and their sources differ. */
static tdict_status check_spans(const tdict_plan *plan, const span *x, const span *y, const tdict_tree *mirror,
                                tdict_error *err) {
  const tdict_item *a = &plan->items[x->item < y->item ? x->item : y->item];
  const tdict_item *b = &plan->items[x->item < y->item ? y->item : x->item];
  if (x->end <= y->begin || y->end <= x->begin) return TDICT_OK;
  if (!tdict_device_equal(a->dst->storage->device, b->dst->storage->device)) return TDICT_OK;
  const tdict_extent ea = extent_of(a->dst), eb = extent_of(b->dst);
  if (tdict_extent_overlap(&ea, &eb) != TDICT_OVERLAP_YES) return TDICT_OK;
  if (converts_alike(plan, a, b) && have_same_source(a, b)) return TDICT_OK;
  char first[sizeof err->path] = "", second[sizeof err->path] = "";
  tdict_leaf_path(mirror, a->leaf, first, sizeof first);
  tdict_leaf_path(mirror, b->leaf, second, sizeof second);
  tdict_status status = tdict_fail(
      err, TDICT_EINVAL, "transfer_into: the destination's tensor %s that at '%.150s', and their sources differ",
      is_same_view(a->dst, b->dst) ? "is" : "shares bytes with", first);
  return tdict_error_at(err, status, second);
}

tdict_status tdict_overlap_check(const tdict_plan *plan, const tdict_tree *mirror, tdict_error *err) {
  span *spans = malloc(2 * (size_t)plan->num_items * sizeof *spans);
  if (!spans) return tdict_fail(err, TDICT_ENOMEM, "transfer_into: no host memory to compare the destination's leaves");
  uint32_t count = 0, last_dense = UINT32_MAX; /* the span without gaps that ends last */
  uintptr_t end = 0;
  for (uint32_t i = 0; i < plan->num_items; i++)
    if (plan->items[i].bytes) spans[count++] = make_span(&plan->items[i], i);
  sort_spans(spans, spans + count, count);
  tdict_status status = TDICT_OK;
  for (uint32_t i = 0; i < count && status == TDICT_OK; i++) {
    if (spans[i].begin < end)
      for (uint32_t k = i > COMPARED_BEFORE ? i - COMPARED_BEFORE : 0; k < i && status == TDICT_OK; k++)
        status = check_spans(plan, &spans[k], &spans[i], mirror, err);
    if (status == TDICT_OK && last_dense != UINT32_MAX)
      status = check_spans(plan, &spans[last_dense], &spans[i], mirror, err);
    if (spans[i].end > end) end = spans[i].end;
    if (plan->items[spans[i].item].dst_plain && (last_dense == UINT32_MAX || spans[i].end > spans[last_dense].end))
      last_dense = i;
  }
  free(spans);
  return status;
}
