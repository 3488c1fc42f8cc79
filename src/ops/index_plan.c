/* Reading an index, and what it does with a tensor. A plan owns the positions of its lists and masks. Thread rule: one
 * thread. */
#include "ops/index_plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "tree/text.h"

enum { SHAPE_BYTES = 96 };

typedef struct reader {
  tdict_index_plan *plan;
  int ndim; /* of what is indexed */
  const int64_t *shape;
  int next;  /* the dimension that comes next */
  int whole; /* what the rest stands for */
  bool rest_seen;
} reader;

/* How many dimensions an item takes; -1 for one that is none. */
static int taken_by(const tdict_index *item) {
  switch (item->kind) {
  case TDICT_INDEX_AT:
  case TDICT_INDEX_RANGE:
  case TDICT_INDEX_LIST:
    return 1;
  case TDICT_INDEX_NEW_AXIS:
  case TDICT_INDEX_REST:
    return 0;
  case TDICT_INDEX_MASK:
    return item->data ? tdict_tensor_ndim(item->data) : -1;
  default:
    return -1;
  }
}

/* Adds a dimension to the affine result. */
static tdict_status add_axis(reader *r, tdict_axis axis, tdict_error *err) {
  tdict_affine *a = &r->plan->affine;
  if (a->ndim_out == TDICT_MAX_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: the result would have more than %d dimensions", r->plan->what,
                      TDICT_MAX_NDIM);
  a->axes[a->ndim_out++] = axis;
  return TDICT_OK;
}

static tdict_status add_whole(reader *r, int count, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (; count > 0 && status == TDICT_OK; count--, r->next++)
    status = add_axis(r, (tdict_axis){r->next, r->shape[r->next], 1}, err);
  return status;
}

static tdict_status find_position(const reader *r, int64_t at, int64_t *out, tdict_error *err) {
  int64_t count = r->shape[r->next], found = at < 0 ? at + count : at;
  if (found < 0 || found >= count)
    return tdict_fail(err, TDICT_EINVAL, "%s: position %lld of dimension %d, which has %lld elements", r->plan->what,
                      (long long)at, r->next, (long long)count);
  *out = found;
  return TDICT_OK;
}

static tdict_status add_at(reader *r, const tdict_index *item, tdict_error *err) {
  tdict_status status = find_position(r, item->start, &r->plan->affine.starts[r->next], err);
  r->next++;
  return status;
}

/* A bound cut to [low, high], counted from the end where it is negative. */
static int64_t bound(int64_t value, int64_t missing, int64_t count, bool back) {
  int64_t low = back ? -1 : 0, high = back ? count - 1 : count;
  if (value == TDICT_NONE) return missing;
  if (value < 0) value += count;
  return value < low ? low : value > high ? high : value;
}

static tdict_status add_range(reader *r, const tdict_index *item, tdict_error *err) {
  int64_t count = r->shape[r->next], step = item->step;
  if (step == 0) return tdict_fail(err, TDICT_EINVAL, "%s: the step of dimension %d is 0", r->plan->what, r->next);
  bool back = step < 0;
  int64_t start = bound(item->start, back ? count - 1 : 0, count, back);
  int64_t stop = bound(item->stop, back ? -1 : count, count, back);
  uint64_t span = back ? (uint64_t)(start - stop) : (uint64_t)(stop - start);
  uint64_t stride = back ? 0 - (uint64_t)step : (uint64_t)step;
  bool some = back ? start > stop : start < stop;
  int64_t found = some ? (int64_t)((span + stride - 1) / stride) : 0;
  if (some && stride > span) found = 1; /* the sum above may not fit */
  r->plan->affine.starts[r->next] = found ? start : 0;
  return add_axis(r, (tdict_axis){r->next++, found, step}, err);
}

static tdict_status begin_gather(reader *r, int dims, int64_t count, tdict_error *err) {
  tdict_index_plan *p = r->plan;
  tdict_gather *g = &p->gathers[p->num_gathers]; /* there are no more of them than items */
  size_t numbers, bytes;
  if (!tdict_mul_size((size_t)count, (size_t)dims, &numbers) || !tdict_mul_size(numbers, sizeof *g->positions, &bytes))
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: a list of %lld positions does not fit", p->what, (long long)count);
  *g = (tdict_gather){p->affine.ndim_out, dims, count, malloc(bytes ? bytes : 1)};
  if (!g->positions)
    return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for %lld positions", p->what, (long long)count);
  if (p->num_gathers++ == 0) p->gather_count = count;
  if (p->gather_count == count || count == 1) return TDICT_OK;
  if (p->gather_count != 1)
    return tdict_fail(err, TDICT_ESHAPE, "%s: a list or mask of %lld positions beside one of %lld", p->what,
                      (long long)count, (long long)p->gather_count);
  p->gather_count = count;
  return TDICT_OK;
}

static tdict_status add_list(reader *r, const tdict_index *item, tdict_error *err) {
  const int64_t *positions = item->data;
  if (item->start < 0 || (item->start > 0 && !positions))
    return tdict_fail(err, TDICT_EINVAL, "%s: a list of %lld positions%s", r->plan->what, (long long)item->start,
                      positions ? "" : " at NULL");
  tdict_status status = begin_gather(r, 1, item->start, err);
  for (int64_t i = 0; i < item->start && status == TDICT_OK; i++)
    status = find_position(r, positions[i], &r->plan->gathers[r->plan->num_gathers - 1].positions[i], err);
  return status == TDICT_OK ? add_whole(r, 1, err) : status;
}

static tdict_status check_mask(const reader *r, const tdict_tensor *mask, tdict_error *err) {
  char wanted[SHAPE_BYTES], found[SHAPE_BYTES];
  const char *what = r->plan->what;
  if (mask->dtype != TDICT_BOOL && mask->dtype != TDICT_U8)
    return tdict_fail(err, TDICT_EDTYPE, "%s: a mask of %s, wanted bool", what,
                      tdict_dtype_format(mask->dtype, found, sizeof found));
  if (mask->ndim == 0) return tdict_fail(err, TDICT_ESHAPE, "%s: a mask without dimensions", what);
  if (memcmp(mask->dims, r->shape + r->next, (size_t)mask->ndim * sizeof *mask->dims) != 0)
    return tdict_fail(err, TDICT_ESHAPE, "%s: a mask of %s for dimensions of %s", what,
                      tdict_text_shape(mask->ndim, mask->dims, found, sizeof found),
                      tdict_text_shape(mask->ndim, r->shape + r->next, wanted, sizeof wanted));
  if (mask->storage->device.type != TDICT_DEVICE_CPU)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the mask is on %s, wanted host memory", what,
                      tdict_device_format(mask->storage->device, found, sizeof found));
  return TDICT_OK;
}

/* One row of a mask: the elements that are set; without `row` only their number. Words of 8 elements that are not set are
 * passed by. */
static int64_t scan_row(const unsigned char *mask, int64_t count, int64_t stride, int64_t *row, int dims) {
  int64_t found = 0;
  for (int64_t i = 0; i < count; i++) {
    uint64_t word = 1;
    if (stride == 1 && count - i >= (int64_t)sizeof word) memcpy(&word, mask + i, sizeof word);
    if (word == 0) i += (int64_t)sizeof word - 1;
    if (!mask[i * stride]) continue;
    if (row) row[found * dims] = i;
    found++;
  }
  return found;
}

/* Goes through the mask's elements in C order; without `positions` only counts those that are set. */
static int64_t scan_mask(const tdict_tensor *mask, int64_t *positions) {
  const int64_t *strides = tdict_tensor_dims_strides(mask);
  const int dims = mask->ndim, last = dims - 1;
  int64_t at[TDICT_MAX_NDIM] = {0}, found = 0;
  for (int64_t left = mask->numel; left > 0; left -= mask->dims[last]) {
    const unsigned char *row = mask->data;
    for (int d = 0; d < last; d++) row += at[d] * strides[d];
    int64_t *to = positions ? positions + found * dims : NULL;
    int64_t here = scan_row(row, mask->dims[last], strides[last], to ? to + last : NULL, dims);
    for (int64_t i = 0; to && i < here; i++)
      for (int d = 0; d < last; d++) to[i * dims + d] = at[d];
    found += here;
    for (int d = last - 1; d >= 0 && ++at[d] == mask->dims[d]; d--) at[d] = 0;
  }
  return found;
}

static tdict_status add_mask(reader *r, const tdict_index *item, tdict_error *err) {
  const tdict_tensor *mask = item->data;
  tdict_status status = check_mask(r, mask, err);
  if (status != TDICT_OK) return status;
  tdict_tensor_await(mask, false);
  if (tdict_tensor_is_lost(mask))
    return tdict_fail(err, TDICT_EINVAL, "%s: the mask's bytes never came, a transfer into them failed", r->plan->what);
  status = begin_gather(r, mask->ndim, scan_mask(mask, NULL), err);
  if (status != TDICT_OK) return status;
  scan_mask(mask, r->plan->gathers[r->plan->num_gathers - 1].positions);
  return add_whole(r, mask->ndim, err);
}

static tdict_status add_item(reader *r, const tdict_index *item, tdict_error *err) {
  switch (item->kind) {
  case TDICT_INDEX_AT:
    return add_at(r, item, err);
  case TDICT_INDEX_RANGE:
    return add_range(r, item, err);
  case TDICT_INDEX_NEW_AXIS:
    return add_axis(r, (tdict_axis){-1, 1, 0}, err);
  case TDICT_INDEX_LIST:
    return add_list(r, item, err);
  case TDICT_INDEX_MASK:
    return add_mask(r, item, err);
  default: /* the rest */
    if (r->rest_seen) return tdict_fail(err, TDICT_EINVAL, "%s: two rests in one index", r->plan->what);
    r->rest_seen = true;
    return add_whole(r, r->whole, err);
  }
}

static tdict_status read_items(reader *r, const tdict_indices *index, tdict_error *err) {
  int taken = 0;
  if (index->count < 0 || index->count > TDICT_MAX_INDEX)
    return tdict_fail(err, TDICT_EINVAL, "%s: %d items in an index, wanted 0 to %d", r->plan->what, (int)index->count,
                      TDICT_MAX_INDEX);
  for (int i = 0; i < index->count; i++) {
    int dims = taken_by(&index->item[i]);
    if (dims < 0)
      return tdict_fail(err, TDICT_EINVAL, "%s: item %d is no index (kind %d, or a mask at NULL)", r->plan->what, i,
                        (int)index->item[i].kind);
    taken += dims;
  }
  if (taken > r->ndim)
    return tdict_fail(err, TDICT_EINVAL, "%s: the index takes %d dimensions, and there are %d", r->plan->what, taken,
                      r->ndim);
  r->whole = r->ndim - taken;
  tdict_status status = TDICT_OK;
  for (int i = 0; i < index->count && status == TDICT_OK; i++) status = add_item(r, &index->item[i], err);
  return status == TDICT_OK ? add_whole(r, r->ndim - r->next, err) : status;
}

/* Whether the affine result's dimension is one that lists and masks take. */
static bool is_gathered(const tdict_index_plan *p, int dim) {
  for (int i = 0; i < p->num_gathers; i++)
    if (dim >= p->gathers[i].axis && dim < p->gathers[i].axis + p->gathers[i].dims) return true;
  return false;
}

/* Where the dimension of all lists and masks comes: where the first one was when they stand side by side, else first. */
static int place_gathered(const tdict_index_plan *p) {
  for (int i = 1; i < p->num_gathers; i++)
    if (p->gathers[i].axis != p->gathers[i - 1].axis + p->gathers[i - 1].dims) return 0;
  return p->gathers[0].axis;
}

/* Puts one dimension in the place of those that lists and masks take, of `ndim` counts; answers how many there are. */
static int gather_shape(const tdict_index_plan *p, int ndim, int64_t *shape) {
  int kept = 0;
  for (int d = 0; d < ndim; d++)
    if (!is_gathered(p, d)) shape[kept++] = shape[d];
  for (int d = kept; d > p->gather_at; d--) shape[d] = shape[d - 1];
  shape[p->gather_at] = p->gather_count;
  return kept + 1;
}

tdict_status tdict_index_plan_init(tdict_index_plan *plan, const char *what, int ndim, const int64_t *shape,
                                   const tdict_indices *index, tdict_error *err) {
  reader r = {plan, ndim, shape, 0, 0, false};
  plan->what = what;
  plan->affine.ndim_in = ndim;
  plan->affine.ndim_out = 0;
  plan->affine.grows = false;
  for (int i = 0; i < ndim; i++) plan->affine.starts[i] = 0;
  plan->num_gathers = plan->gather_at = 0;
  plan->gather_count = 0;
  tdict_status status = read_items(&r, index, err);
  if (status != TDICT_OK) {
    tdict_index_plan_reset(plan);
    return status;
  }
  plan->ndim = plan->affine.ndim_out;
  for (int i = 0; i < plan->ndim; i++) plan->shape[i] = plan->affine.axes[i].count;
  if (plan->num_gathers) {
    plan->gather_at = place_gathered(plan);
    plan->ndim = gather_shape(plan, plan->ndim, plan->shape);
  }
  return TDICT_OK;
}

void tdict_index_plan_reset(tdict_index_plan *plan) {
  for (int i = 0; i < plan->num_gathers; i++) free(plan->gathers[i].positions);
  plan->num_gathers = 0;
}

tdict_status tdict_index_plan_describe(const tdict_index_plan *plan, const tdict_tensor *t, tdict_made *made,
                                       tdict_error *err) {
  tdict_status status = tdict_affine_apply(&plan->affine, t, plan->what, made, err);
  if (status != TDICT_OK || !plan->num_gathers) return status;
  if (t->storage->device.type != TDICT_DEVICE_CPU) {
    char device[32];
    return tdict_fail(err, TDICT_ENOTSUP, "%s: a list or mask of a tensor on %s; only host memory is gathered",
                      plan->what, tdict_device_format(t->storage->device, device, sizeof device));
  }
  made->ndim = gather_shape(plan, made->ndim, made->shape);
  made->fresh = true;
  return TDICT_OK;
}
