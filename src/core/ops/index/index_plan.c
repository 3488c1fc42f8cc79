/* Translates an index into a plan, and describes the result of a plan for a tensor. A plan owns its lists of positions.
 * Thread rule: see index_plan.h. */
#include "core/ops/index/index_plan.h"

#include <stdlib.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/ops/index/positions.h"

enum { MAX_WORDS_PER_POSITION = 16 };

typedef struct index_reader {
  tdict_index_plan *plan;
  int ndim; /* number of dimensions that are indexed */
  const int64_t *shape;
  int next_dim;  /* the dimension that the next item applies to */
  int rest_dims; /* number of dimensions that TDICT_REST selects */
  bool has_rest;
} index_reader;

/* Returns the number of dimensions that an item applies to, 0 for TDICT_REST, or -1 if the item is invalid. */
static int count_dims_taken(const tdict_index *item) {
  switch (item->kind) {
  case TDICT_INDEX_AT:
  case TDICT_INDEX_RANGE:
  case TDICT_INDEX_LIST:
    return 1;
  case TDICT_INDEX_LIST_OF:
    return item->data ? 1 : -1;
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
static tdict_status add_axis(index_reader *r, tdict_axis axis, tdict_error *err) {
  tdict_affine *a = &r->plan->affine;
  if (a->ndim_out == TDICT_MAX_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: the result would have more than %d dimensions", r->plan->what,
                      TDICT_MAX_NDIM);
  a->axes[a->ndim_out++] = axis;
  return TDICT_OK;
}

/* Adds the next `count` dimensions unchanged. */
static tdict_status add_whole_dims(index_reader *r, int count, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (; count > 0 && status == TDICT_OK; count--, r->next_dim++)
    status = add_axis(r, (tdict_axis){r->next_dim, r->shape[r->next_dim], 1}, err);
  return status;
}

static tdict_status fail_outside(const char *what, int64_t at, int dim, int64_t count, tdict_error *err) {
  return tdict_fail(err, TDICT_EINVAL, "%s: position %lld is outside dimension %d, which has %lld elements", what,
                    (long long)at, dim, (long long)count);
}

/* Converts a position of the next dimension to a non-negative position. Returns TDICT_EINVAL if the position is outside
 * the dimension. */
static tdict_status find_position(const index_reader *r, int64_t at, int64_t *out, tdict_error *err) {
  int64_t count = r->shape[r->next_dim], found = at < 0 ? at + count : at;
  if (found < 0 || found >= count) return fail_outside(r->plan->what, at, r->next_dim, count, err);
  *out = found;
  return TDICT_OK;
}

static tdict_status add_at(index_reader *r, const tdict_index *item, tdict_error *err) {
  tdict_status status = find_position(r, item->start, &r->plan->affine.starts[r->next_dim], err);
  r->next_dim++;
  return status;
}

/* Counts a negative bound from the end, then clips the bound to the dimension. Returns `missing` for TDICT_NONE. */
static int64_t clip_bound(int64_t value, int64_t missing, int64_t count, bool is_reversed) {
  int64_t low = is_reversed ? -1 : 0, high = is_reversed ? count - 1 : count;
  if (value == TDICT_NONE) return missing;
  if (value < 0) value += count;
  return value < low ? low : value > high ? high : value;
}

static tdict_status add_range(index_reader *r, const tdict_index *item, tdict_error *err) {
  int64_t count = r->shape[r->next_dim], step = item->step;
  if (step == 0) return tdict_fail(err, TDICT_EINVAL, "%s: the step of dimension %d is 0", r->plan->what, r->next_dim);
  bool is_reversed = step < 0;
  int64_t start = clip_bound(item->start, is_reversed ? count - 1 : 0, count, is_reversed);
  int64_t stop = clip_bound(item->stop, is_reversed ? -1 : count, count, is_reversed);
  uint64_t span = is_reversed ? (uint64_t)(start - stop) : (uint64_t)(stop - start);
  uint64_t stride = is_reversed ? 0 - (uint64_t)step : (uint64_t)step;
  bool is_nonempty = is_reversed ? start > stop : start < stop;
  int64_t found = is_nonempty ? (int64_t)((span + stride - 1) / stride) : 0;
  if (is_nonempty && stride > span) found = 1; /* span + stride - 1 can have overflowed */
  r->plan->affine.starts[r->next_dim] = found ? start : 0;
  return add_axis(r, (tdict_axis){r->next_dim++, found, step}, err);
}

/* Allocates the array of positions of a list or mask, with TDICT_POSITIONS_SLACK more numbers. */
static tdict_status allocate_positions(const char *what, tdict_index_gather *g, tdict_error *err) {
  size_t numbers, bytes;
  if (!tdict_mul_size((size_t)g->count, (size_t)g->dims, &numbers) ||
      !tdict_add_size(numbers, TDICT_POSITIONS_SLACK, &numbers) ||
      !tdict_mul_size(numbers, sizeof *g->positions, &bytes))
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: a list of %lld positions is too long", what, (long long)g->count);
  g->positions = malloc(bytes);
  if (g->positions) return TDICT_OK;
  return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for %lld positions", what, (long long)g->count);
}

/* Adds a list or mask of `count` positions. `tensor` has the positions on a device. If `tensor` is NULL, allocates the
 * array of positions. Checks that `count` fits the counts of the other lists and masks. */
static tdict_status add_gather(index_reader *r, int dims, int64_t count, const tdict_tensor *tensor, tdict_error *err) {
  tdict_index_plan *p = r->plan;
  tdict_index_gather *g =
      &p->gathers[p->num_gathers]; /* an index has at most TDICT_MAX_INDEX items, so the array is long
                                                  * enough */
  *g = (tdict_index_gather){
      .axis = p->affine.ndim_out, .dims = dims, .count = count, .tensor = tensor, .dim = r->next_dim};
  g->size = r->shape[r->next_dim];
  tdict_status status = tensor ? TDICT_OK : allocate_positions(p->what, g, err);
  if (status != TDICT_OK) return status;
  if (p->num_gathers++ == 0) p->gather_count = count;
  if (p->gather_count == count || count == 1) return TDICT_OK;
  if (p->gather_count != 1)
    return tdict_fail(err, TDICT_ESHAPE, "%s: a list or mask has %lld positions, but another has %lld", p->what,
                      (long long)count, (long long)p->gather_count);
  p->gather_count = count;
  return TDICT_OK;
}

/* Reads the positions of a list in host memory. Returns TDICT_EINVAL if a position is outside the dimension. */
static tdict_status read_positions(const char *what, tdict_index_gather *g, const int64_t *at, int64_t step,
                                   tdict_error *err) {
  const int64_t bad = tdict_positions_read(g->positions, at, g->count, step, g->size);
  return bad < 0 ? TDICT_OK : fail_outside(what, at[bad * step], g->dim, g->size, err);
}

static tdict_status read_list_of(const char *what, tdict_index_gather *g, const tdict_tensor *list, tdict_error *err) {
  return read_positions(what, g, list->data, list->ndim ? tdict_tensor_dims_strides(list)[0] : 0, err);
}

static tdict_status add_list(index_reader *r, const tdict_index *item, tdict_error *err) {
  const int64_t *positions = item->data;
  if (item->start < 0 || (item->start > 0 && !positions))
    return tdict_fail(err, TDICT_EINVAL, "%s: a list of %lld positions%s", r->plan->what, (long long)item->start,
                      positions ? "" : " at NULL");
  tdict_status status = add_gather(r, 1, item->start, NULL, err);
  if (status == TDICT_OK)
    status = read_positions(r->plan->what, &r->plan->gathers[r->plan->num_gathers - 1], positions, 1, err);
  return status == TDICT_OK ? add_whole_dims(r, 1, err) : status;
}

/* Adds a list in host memory. */
static tdict_status add_host_list(index_reader *r, const tdict_tensor *list, tdict_error *err) {
  tdict_tensor_await(list, false);
  if (tdict_tensor_is_lost(list)) return tdict_tensor_refuse_lost(r->plan->what, "the list's bytes", list, err);
  tdict_status status = add_gather(r, 1, list->numel, NULL, err);
  if (status != TDICT_OK) return status;
  return read_list_of(r->plan->what, &r->plan->gathers[r->plan->num_gathers - 1], list, err);
}

/* Checks a list on its device. `dim` and `size` are the number and the size of the indexed dimension. */
static tdict_status check_device_list(const tdict_moves *moves, const tdict_tensor *list, int dim, int64_t size,
                                      tdict_error *err) {
  int64_t bad, position = 0;
  tdict_status status = tdict_moves_check_list(moves, list, size, &bad, err);
  /* Look for lost bytes after the check, which waits for transfers. */
  if (status == TDICT_OK && tdict_tensor_is_lost(list))
    return tdict_tensor_refuse_lost(moves->what, "the list's bytes", list, err);
  if (status != TDICT_OK || bad < 0) return status;
  const int64_t *from = (const int64_t *)list->data + bad;
  const tdict_rect one = {.dst = &position, .src = from, .width = sizeof position, .height = 1};
  status = list->storage->memory->ops->copy(list->storage->memory, &one, TDICT_COPY_OUT, err);
  return status == TDICT_OK ? fail_outside(moves->what, position, dim, size, err) : status;
}

tdict_status tdict_index_plan_check_lists(const tdict_index_plan *plan, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (int n = 0; n < plan->num_gathers && status == TDICT_OK; n++) {
    const tdict_index_gather *g = &plan->gathers[n];
    if (g->is_unchecked && !g->positions) status = check_device_list(plan->moves, g->tensor, g->dim, g->size, err);
  }
  return status;
}

/* Adds a list that stays on its device. If possible, leaves the check to tdict_moves_run(). A launch that copies cannot
 * check positions of a dimension of size 0. On a stream, a transfer can still be writing the list, and can fail. */
static tdict_status add_device_list(index_reader *r, const tdict_tensor *list, tdict_error *err) {
  const int64_t size = r->shape[r->next_dim];
  const bool on_stream = r->plan->moves->stream != NULL;
  const bool defers = size > 0 && !(on_stream && tdict_storage_has_marks(list->storage));
  tdict_status status = TDICT_OK;
  if (defers && !on_stream) tdict_tensor_await(list, false);
  if (defers && tdict_tensor_is_lost(list))
    return tdict_tensor_refuse_lost(r->plan->what, "the list's bytes", list, err);
  if (!defers) status = check_device_list(r->plan->moves, list, r->next_dim, size, err);
  if (status == TDICT_OK) status = add_gather(r, 1, list->numel, list, err);
  if (status == TDICT_OK) r->plan->gathers[r->plan->num_gathers - 1].is_unchecked = defers;
  return status;
}

/* Copies a mask or list on a device to the host, after the work that writes it. */
static tdict_status copy_to_host(const index_reader *r, const tdict_tensor *t, tdict_tensor **out, tdict_error *err) {
  tdict_status status = tdict_moves_await_source(r->plan->moves, t, err);
  return status == TDICT_OK ? tdict_tensor_clone(t, NULL, out, err) : status;
}

/* Adds the positions of a tensor. */
static tdict_status add_list_of(index_reader *r, const tdict_index *item, tdict_error *err) {
  const tdict_tensor *list = item->data;
  tdict_tensor *copy;
  tdict_status status = TDICT_OK;
  if (list->dtype != TDICT_I64)
    return tdict_fail(err, TDICT_EDTYPE, "%s: the list has dtype %s, wanted int64", r->plan->what,
                      TDICT_DTYPE_TEXT(list->dtype));
  if (list->ndim != 1)
    return tdict_fail(err, TDICT_ESHAPE, "%s: the list has shape %s, wanted one dimension", r->plan->what,
                      TDICT_SHAPE_TEXT(list->ndim, list->dims));
  if (tdict_is_on_host(list)) {
    status = add_host_list(r, list, err);
  } else if (list->numel > 1 && tdict_moves_take_list(list)) {
    status = add_device_list(r, list, err);
  } else {
    status = copy_to_host(r, list, &copy, err);
    if (status != TDICT_OK) return status;
    status = add_host_list(r, copy, err);
    tdict_tensor_release(copy);
  }
  return status == TDICT_OK ? add_whole_dims(r, 1, err) : status;
}

/* Checks the dtype and shape of a mask. */
static tdict_status check_mask(const index_reader *r, const tdict_tensor *mask, tdict_error *err) {
  const char *what = r->plan->what;
  if (mask->dtype != TDICT_BOOL && mask->dtype != TDICT_U8)
    return tdict_fail(err, TDICT_EDTYPE, "%s: the mask has dtype %s, wanted bool", what, TDICT_DTYPE_TEXT(mask->dtype));
  if (mask->ndim == 0) return tdict_fail(err, TDICT_ESHAPE, "%s: the mask has no dimensions", what);
  if (!tdict_sizes_equal(mask->dims, r->shape + r->next_dim, mask->ndim))
    return tdict_fail(err, TDICT_ESHAPE, "%s: the mask has shape %s, but its dimensions have sizes %s", what,
                      TDICT_SHAPE_TEXT(mask->ndim, mask->dims), TDICT_SHAPE_TEXT(mask->ndim, r->shape + r->next_dim));
  return TDICT_OK;
}

/* Adds a mask in host memory as the list of the positions at which the mask is not 0. */
static tdict_status add_host_mask(index_reader *r, const tdict_tensor *mask, tdict_error *err) {
  /* A transfer may still be writing the mask. */
  tdict_tensor_await(mask, false);
  if (tdict_tensor_is_lost(mask)) return tdict_tensor_refuse_lost(r->plan->what, "the mask's bytes", mask, err);
  /* Count the positions first, to allocate an array of the exact size. */
  tdict_status status = add_gather(r, mask->ndim, tdict_mask_count(mask), NULL, err);
  if (status != TDICT_OK) return status;
  tdict_index_gather *g = &r->plan->gathers[r->plan->num_gathers - 1];
  tdict_mask_positions(mask, g->positions);
  g->is_distinct = true;
  return add_whole_dims(r, mask->ndim, err);
}

static tdict_status add_mask(index_reader *r, const tdict_index *item, tdict_error *err) {
  const tdict_tensor *mask = item->data;
  tdict_tensor *copy;
  tdict_status status = check_mask(r, mask, err);
  if (status != TDICT_OK || tdict_is_on_host(mask)) return status == TDICT_OK ? add_host_mask(r, mask, err) : status;
  status = copy_to_host(r, mask, &copy, err);
  if (status != TDICT_OK) return status;
  status = add_host_mask(r, copy, err);
  tdict_tensor_release(copy);
  return status;
}

static tdict_status add_item(index_reader *r, const tdict_index *item, tdict_error *err) {
  switch (item->kind) {
  case TDICT_INDEX_AT:
    return add_at(r, item, err);
  case TDICT_INDEX_RANGE:
    return add_range(r, item, err);
  case TDICT_INDEX_NEW_AXIS:
    return add_axis(r, (tdict_axis){-1, 1, 0}, err);
  case TDICT_INDEX_LIST:
    return add_list(r, item, err);
  case TDICT_INDEX_LIST_OF:
    return add_list_of(r, item, err);
  case TDICT_INDEX_MASK:
    return add_mask(r, item, err);
  default: /* TDICT_INDEX_REST, because count_dims_taken() rejected all other kinds */
    if (r->has_rest) return tdict_fail(err, TDICT_EINVAL, "%s: TDICT_REST is used twice in one index", r->plan->what);
    r->has_rest = true;
    return add_whole_dims(r, r->rest_dims, err);
  }
}

/* Adds all items of an index. Dimensions after the last item stay whole. */
static tdict_status read_items(index_reader *r, const tdict_indices *index, tdict_error *err) {
  /* Count the dimensions of all items first, because TDICT_REST selects the remaining dimensions. */
  int taken = 0;
  if (index->count < 0 || index->count > TDICT_MAX_INDEX)
    return tdict_fail(err, TDICT_EINVAL, "%s: %d items in an index, wanted 0 to %d", r->plan->what, (int)index->count,
                      TDICT_MAX_INDEX);
  for (int i = 0; i < index->count; i++) {
    int dims = count_dims_taken(&index->item[i]);
    if (dims < 0)
      return tdict_fail(err, TDICT_EINVAL, "%s: item %d is invalid (kind %d, or a NULL tensor)", r->plan->what, i,
                        (int)index->item[i].kind);
    taken += dims;
  }
  if (taken > r->ndim)
    return tdict_fail(err, TDICT_EINVAL, "%s: the index has items for %d dimensions, but there are only %d",
                      r->plan->what, taken, r->ndim);
  r->rest_dims = r->ndim - taken;
  tdict_status status = TDICT_OK;
  for (int i = 0; i < index->count && status == TDICT_OK; i++) status = add_item(r, &index->item[i], err);
  return status == TDICT_OK ? add_whole_dims(r, r->ndim - r->next_dim, err) : status;
}

/* Returns true if a list or mask replaces dimension `dim` of the affine result. */
static bool is_gathered(const tdict_index_plan *p, int dim) {
  for (int i = 0; i < p->num_gathers; i++)
    if (dim >= p->gathers[i].axis && dim < p->gathers[i].axis + p->gathers[i].dims) return true;
  return false;
}

/* Returns the index of the result's dimension that replaces the dimensions of all lists and masks. As in PyTorch, the
 * index is 0 if the replaced dimensions are not adjacent, else the index of the first replaced dimension. */
static int find_gather_axis(const tdict_index_plan *p) {
  for (int i = 1; i < p->num_gathers; i++)
    if (p->gathers[i].axis != p->gathers[i - 1].axis + p->gathers[i - 1].dims) return 0;
  return p->gathers[0].axis;
}

/* Replaces the dimensions of lists and masks in `shape` by one dimension. Returns the new number of dimensions. */
static int replace_gathered_dims(const tdict_index_plan *p, int ndim, int64_t *shape) {
  int kept = 0;
  for (int d = 0; d < ndim; d++)
    if (!is_gathered(p, d)) shape[kept++] = shape[d];
  for (int d = kept; d > p->gather_at; d--) shape[d] = shape[d - 1];
  shape[p->gather_at] = p->gather_count;
  return kept + 1;
}

/* Returns true if the index is a list for the first dimension, and no other item changes a dimension. */
static bool selects_rows(const tdict_index_plan *p, int ndim, const int64_t *shape) {
  if (p->num_gathers != 1 || p->gathers[0].axis != 0 || p->gathers[0].dims != 1 || p->affine.ndim_out != ndim)
    return false;
  for (int d = 0; d < ndim; d++) {
    const tdict_axis *axis = &p->affine.axes[d];
    if (axis->from != d || axis->count != shape[d] || axis->step != 1 || p->affine.starts[d] != 0) return false;
  }
  return true;
}

/* Lists the positions for moves on devices. */
static void find_move_lists(tdict_index_plan *p) {
  p->lists.count = 0;
  p->lists.num_positions = p->gather_count;
  for (int n = 0; n < p->num_gathers; n++) {
    const tdict_index_gather *g = &p->gathers[n];
    for (int d = 0; d < g->dims && g->count != 1; d++)
      p->lists.list[p->lists.count++] =
          (tdict_move_list){g->positions ? g->positions + d : NULL, g->dims, g->tensor, g->size, g->is_unchecked};
  }
}

tdict_status tdict_index_plan_read_lists(tdict_index_plan *plan, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (int n = 0; n < plan->num_gathers && status == TDICT_OK; n++) {
    tdict_index_gather *g = &plan->gathers[n];
    tdict_tensor *copy;
    if (g->positions) continue;
    status = tdict_tensor_clone(g->tensor, NULL, &copy, err);
    if (status != TDICT_OK) return status;
    status = allocate_positions(plan->what, g, err);
    if (status == TDICT_OK) status = read_list_of(plan->what, g, copy, err);
    if (status != TDICT_OK) {
      free(g->positions);
      g->positions = NULL;
    }
    tdict_tensor_release(copy);
  }
  find_move_lists(plan);
  return status;
}

tdict_status tdict_index_plan_init(tdict_index_plan *plan, tdict_moves *moves, int ndim, const int64_t *shape,
                                   const tdict_indices *index, tdict_error *err) {
  index_reader r = {plan, ndim, shape, 0, 0, false};
  plan->what = moves->what;
  plan->moves = moves;
  moves->lists = &plan->lists;
  plan->affine.ndim_in = ndim;
  plan->affine.ndim_out = 0;
  plan->affine.grows = false;
  for (int i = 0; i < ndim; i++) plan->affine.starts[i] = 0;
  plan->num_gathers = plan->gather_at = 0;
  plan->gather_count = 0;
  plan->last.is_set = false;
  tdict_status status = read_items(&r, index, err);
  if (status != TDICT_OK) {
    tdict_index_plan_reset(plan);
    return status;
  }
  plan->ndim = plan->affine.ndim_out;
  for (int i = 0; i < plan->ndim; i++) plan->shape[i] = plan->affine.axes[i].count;
  if (plan->num_gathers) {
    plan->gather_at = find_gather_axis(plan);
    plan->ndim = replace_gathered_dims(plan, plan->ndim, plan->shape);
  }
  plan->selects_rows = selects_rows(plan, ndim, shape);
  find_move_lists(plan);
  return TDICT_OK;
}

/* Marks a list as distinct if no position is repeated. Uses one bit for each number from the lowest to the highest
 * position. If the positions do not ascend and are far apart, leaves the list unmarked. */
static tdict_status find_distinct_list(const char *what, tdict_index_gather *g, tdict_error *err) {
  int64_t low = g->positions[0], high = low;
  bool is_ascending = true;
  for (int64_t i = 1; i < g->count; i++) {
    if (g->positions[i] < low) low = g->positions[i];
    if (g->positions[i] > high) high = g->positions[i];
    is_ascending = is_ascending && g->positions[i] > g->positions[i - 1];
  }
  g->is_distinct = is_ascending;
  const size_t num_words = (size_t)(high - low) / 64 + 1;
  if (is_ascending || num_words / MAX_WORDS_PER_POSITION > (size_t)g->count) return TDICT_OK;
  uint64_t *found = calloc(num_words, sizeof *found);
  if (!found)
    return tdict_fail(err, TDICT_ENOMEM, "%s: no memory to examine %lld positions", what, (long long)g->count);
  uint64_t repeated = 0;
  for (int64_t i = 0; i < g->count && !repeated; i++) {
    const size_t at = (size_t)(g->positions[i] - low);
    repeated = found[at / 64] >> at % 64 & 1;
    found[at / 64] |= (uint64_t)1 << at % 64;
  }
  g->is_distinct = !repeated;
  free(found);
  return TDICT_OK;
}

tdict_status tdict_index_plan_find_distinct(tdict_index_plan *plan, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (int n = 0; n < plan->num_gathers && status == TDICT_OK; n++) {
    tdict_index_gather *g = &plan->gathers[n];
    if (g->positions && g->count == plan->gather_count && g->count > 1 && !g->is_distinct)
      status = find_distinct_list(plan->what, g, err);
    if (g->is_distinct && g->count == plan->gather_count) break; /* one distinct list is enough */
  }
  return status;
}

void tdict_index_plan_reset(tdict_index_plan *plan) {
  for (int i = 0; i < plan->num_gathers; i++) free(plan->gathers[i].positions);
  plan->num_gathers = 0;
}

tdict_status tdict_index_plan_describe(const tdict_index_plan *plan, const tdict_tensor *t, tdict_made *made,
                                       tdict_error *err) {
  tdict_status status = tdict_affine_apply(&plan->affine, t, plan->what, made, err);
  if (status != TDICT_OK || !plan->num_gathers) return status;
  made->ndim = replace_gathered_dims(plan, made->ndim, made->shape);
  made->fresh = true;
  return TDICT_OK;
}
