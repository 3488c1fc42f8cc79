/* Copies between the elements that an index selects and another tensor. Allocates nothing.
 * Thread rule: as in tdict/index.h. */
#include "ops/check_copy.h"
#include "ops/index/index_plan.h"
#include "tensor/layout.h"
#include "tensor/rows.h"

enum { MAX_ROWS = 256 }; /* maximum number of positions whose offsets are computed at once, on the stack */

/* Narrows the affine result to position i of the lists and masks. Starts at the last dimension, because removing a
 * dimension changes the numbers of later dimensions. */
static void select_gathered(const tdict_index_plan *plan, tdict_made *made, int64_t i, size_t item) {
  for (int n = plan->num_gathers - 1; n >= 0; n--) {
    const tdict_gather *g = &plan->gathers[n];
    const int64_t *at = g->positions + (g->count == 1 ? 0 : i) * g->dims;
    for (int d = g->dims - 1; d >= 0; d--) tdict_made_select(made, g->axis + d, at[d], item);
  }
}

tdict_status tdict_index_plan_check_not_lost(const tdict_index_plan *plan, const tdict_tensor *t, tdict_error *err) {
  tdict_made affine_view, row_view;
  tdict_temp temp;
  tdict_tensor_await(t, false);
  if (!tdict_tensor_is_lost(t)) return TDICT_OK; /* the common case */
  tdict_status status = tdict_affine_apply(&plan->affine, t, plan->what, &affine_view, err);
  if (status != TDICT_OK) return status;
  if (!plan->num_gathers) return tdict_check_not_lost(plan->what, tdict_temp_over(&temp, t, &affine_view), err);
  for (int64_t i = 0; i < plan->gather_count && status == TDICT_OK; i++) {
    row_view = affine_view;
    select_gathered(plan, &row_view, i, tdict_dtype_bytes(t->dtype));
    status = tdict_check_not_lost(plan->what, tdict_temp_over(&temp, t, &row_view), err);
  }
  return status;
}

/* Makes one tensor copy for each position. Also works for device memory. */
static tdict_status copy_each_position(const tdict_index_plan *plan, const tdict_tensor *t, const tdict_tensor *other,
                                       bool writes_indexed, tdict_error *err) {
  tdict_made affine_view, row_view, other_view;
  tdict_temp a, b;
  const size_t item = tdict_dtype_bytes(t->dtype);
  tdict_status status = tdict_affine_apply(&plan->affine, t, plan->what, &affine_view, err);
  for (int64_t i = 0; i < plan->gather_count && status == TDICT_OK; i++) {
    row_view = affine_view;
    select_gathered(plan, &row_view, i, item);
    tdict_made_of(other, &other_view);
    tdict_made_select(&other_view, plan->gather_at, i, item);
    tdict_tensor *indexed = tdict_temp_over(&a, t, &row_view), *other_side = tdict_temp_over(&b, other, &other_view);
    status = tdict_tensor_copy(writes_indexed ? indexed : other_side, writes_indexed ? other_side : indexed, err);
  }
  return status;
}

/* The state of a copy in host memory. */
typedef struct gathering {
  const tdict_index_plan *plan;
  const int64_t *strides;  /* strides of the affine result, in elements */
  int64_t item, step;      /* item: bytes of an element; step: bytes between two positions in the other tensor */
  tdict_pair one_position; /* the elements of one position, in both tensors */
  tdict_rows rows;
} gathering;

/* Multiplies and wraps around on overflow, because signed overflow is undefined. The unused stride of a dimension of
 * one element can be any number. */
static int64_t wrapping_multiply(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

/* Computes the byte offsets of `count` positions from position `first` on, in the indexed tensor and in the other
 * tensor. */
static void find_offsets(const gathering *g, int64_t first, int64_t count, int64_t *indexed, int64_t *other_side) {
  for (int64_t i = 0; i < count; i++) {
    indexed[i] = 0;
    other_side[i] = wrapping_multiply(first + i, g->step);
  }
  for (int n = 0; n < g->plan->num_gathers; n++) {
    const tdict_gather *list = &g->plan->gathers[n];
    const int64_t next = list->count == 1 ? 0 : list->dims;
    for (int d = 0; d < list->dims; d++) {
      const int64_t *at = list->positions + first * next + d,
                    bytes = wrapping_multiply(g->strides[list->axis + d], g->item);
      for (int64_t i = 0; i < count; i++) indexed[i] += wrapping_multiply(at[i * next], bytes);
    }
  }
}

static tdict_status copy_position_rect(void *user, const tdict_rect *rect, tdict_error *err) {
  (void)user, (void)err;
  tdict_rect_copy(rect);
  return TDICT_OK;
}

/* Copies one run of bytes at every position, for each row of the rectangle. A callback of tdict_pair_walk(). */
static tdict_status copy_rows(void *user, const tdict_rect *rect, tdict_error *err) {
  (void)err;
  uintptr_t dst = (uintptr_t)rect->dst, src = (uintptr_t)rect->src;
  for (size_t i = 0; i < rect->height; i++) {
    tdict_rows_copy((void *)dst, (const void *)src, user, rect->width);
    dst += (uintptr_t)rect->dst_pitch, src += (uintptr_t)rect->src_pitch;
  }
  return TDICT_OK;
}

/* Copies the elements of a chunk of positions. The offsets are in g->rows. */
static void copy_chunk(gathering *g, const tdict_pair_part *all, bool position_by_position) {
  if (!position_by_position) {
    (void)tdict_pair_walk(&g->one_position, all, copy_rows, &g->rows, NULL);
    return;
  }
  for (int64_t i = 0; i < g->rows.count; i++) {
    tdict_pair_part one = *all;
    one.dst = (void *)((uintptr_t)all->dst + (uintptr_t)g->rows.dst[i]);
    one.src = (const void *)((uintptr_t)all->src + (uintptr_t)g->rows.src[i]);
    (void)tdict_pair_walk(&g->one_position, &one, copy_position_rect, NULL, NULL);
  }
}

/* Copies in host memory. The caller has waited for the transfers of both tensors, and none of their bytes are lost. */
static tdict_status gather_on_host(const tdict_index_plan *plan, const tdict_tensor *t, const tdict_tensor *other,
                                   bool writes_indexed, tdict_error *err) {
  tdict_made affine_view, row_view, other_view;
  int64_t indexed[MAX_ROWS], other_side[MAX_ROWS];
  const size_t item = tdict_dtype_bytes(t->dtype);
  tdict_status status = tdict_affine_apply(&plan->affine, t, plan->what, &affine_view, err);
  if (status != TDICT_OK || other->numel == 0) return status;
  /* Describe the elements of one position as a pair of layouts. */
  gathering g = {.plan = plan, .strides = affine_view.strides, .item = (int64_t)item};
  g.step = wrapping_multiply(tdict_tensor_dims_strides(other)[plan->gather_at], g.item);
  g.rows = writes_indexed ? (tdict_rows){indexed, other_side, 0} : (tdict_rows){other_side, indexed, 0};
  row_view = affine_view;
  for (int n = plan->num_gathers - 1; n >= 0; n--)
    for (int d = plan->gathers[n].dims - 1; d >= 0; d--)
      tdict_made_select(&row_view, plan->gathers[n].axis + d, 0, item);
  tdict_made_of(other, &other_view);
  tdict_made_select(&other_view, plan->gather_at, 0, item);
  tdict_made *dst = writes_indexed ? &row_view : &other_view, *src = writes_indexed ? &other_view : &row_view;
  tdict_pair_init(&g.one_position, row_view.ndim, row_view.shape, dst->strides, src->strides, item);
  const int64_t row = other->numel / plan->gather_count;
  const tdict_pair_part all = {dst->data, src->data, 0, (size_t)row * item};
  /* The inner loop goes over the runs of one position, or over the positions, whichever are more. */
  const bool position_by_position = all.end / g.one_position.run_bytes > (size_t)plan->gather_count;
  /* Copy in chunks of MAX_ROWS positions. */
  for (int64_t i = 0; i < plan->gather_count; i += g.rows.count) {
    g.rows.count = plan->gather_count - i < MAX_ROWS ? plan->gather_count - i : MAX_ROWS;
    find_offsets(&g, i, g.rows.count, indexed, other_side);
    copy_chunk(&g, &all, position_by_position);
  }
  return TDICT_OK;
}

tdict_status tdict_index_plan_copy(const tdict_index_plan *plan, const tdict_tensor *t, const tdict_tensor *other,
                                   bool writes_indexed, tdict_error *err) {
  tdict_made affine_view, other_view;
  tdict_temp a, b;
  if (plan->num_gathers) {
    tdict_tensor_await(t, writes_indexed);
    tdict_tensor_await(other, !writes_indexed);
    /* A failed transfer can lose only some of the positions. Copy each position separately: each copy checks the bytes
     * that are read, and removes the written bytes from the lost bytes. */
    const bool lost = tdict_tensor_is_lost(t) || tdict_tensor_is_lost(other);
    return tdict_is_on_host(t) && tdict_is_on_host(other) && !lost
               ? gather_on_host(plan, t, other, writes_indexed, err)
               : copy_each_position(plan, t, other, writes_indexed, err);
  }
  tdict_status status = tdict_affine_apply(&plan->affine, t, plan->what, &affine_view, err);
  if (status != TDICT_OK) return status;
  tdict_made_of(other, &other_view);
  tdict_tensor *indexed = tdict_temp_over(&a, t, &affine_view), *other_side = tdict_temp_over(&b, other, &other_view);
  return tdict_tensor_copy(writes_indexed ? indexed : other_side, writes_indexed ? other_side : indexed, err);
}
