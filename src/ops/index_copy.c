/* Copies between the elements that an index names and another tensor. Takes no memory. Thread rule: as in tdict/index.h. */
#include "ops/check_copy.h"
#include "ops/index_plan.h"
#include "tensor/layout.h"
#include "tensor/rows.h"

enum { MOST_ROWS = 256 }; /* that offsets are computed for at a time */

/* Takes element i of what the lists and masks name; the last dimensions first, so that the others keep their numbers. */
static void select_gathered(const tdict_index_plan *plan, tdict_made *made, int64_t i, size_t item) {
  for (int n = plan->num_gathers - 1; n >= 0; n--) {
    const tdict_gather *g = &plan->gathers[n];
    const int64_t *at = g->positions + (g->count == 1 ? 0 : i) * g->dims;
    for (int d = g->dims - 1; d >= 0; d--) tdict_made_select(made, g->axis + d, at[d], item);
  }
}

tdict_status tdict_index_plan_check_came(const tdict_index_plan *plan, const tdict_tensor *t, tdict_error *err) {
  tdict_made whole, here;
  tdict_temp temp;
  tdict_tensor_await(t, false);
  if (!tdict_tensor_is_lost(t)) return TDICT_OK; /* nearly always */
  tdict_status status = tdict_affine_apply(&plan->affine, t, plan->what, &whole, err);
  if (status != TDICT_OK) return status;
  if (!plan->num_gathers) return tdict_check_came(plan->what, tdict_temp_over(&temp, t, &whole), err);
  for (int64_t i = 0; i < plan->gather_count && status == TDICT_OK; i++) {
    here = whole;
    select_gathered(plan, &here, i, tdict_dtype_bytes(t->dtype));
    status = tdict_check_came(plan->what, tdict_temp_over(&temp, t, &here), err);
  }
  return status;
}

/* One tensor copy for each position. Serves devices too. */
static tdict_status copy_singly(const tdict_index_plan *plan, const tdict_tensor *t, const tdict_tensor *other,
                                bool set, tdict_error *err) {
  tdict_made whole, here, there;
  tdict_temp a, b;
  const size_t item = tdict_dtype_bytes(t->dtype);
  tdict_status status = tdict_affine_apply(&plan->affine, t, plan->what, &whole, err);
  for (int64_t i = 0; i < plan->gather_count && status == TDICT_OK; i++) {
    here = whole;
    select_gathered(plan, &here, i, item);
    tdict_made_of(other, &there);
    tdict_made_select(&there, plan->gather_at, i, item);
    tdict_tensor *mine = tdict_temp_over(&a, t, &here), *others = tdict_temp_over(&b, other, &there);
    status = tdict_tensor_copy(set ? mine : others, set ? others : mine, err);
  }
  return status;
}

/* A host copy under way. */
typedef struct gathering {
  const tdict_index_plan *plan;
  const int64_t *strides; /* of the affine result, in elements */
  int64_t item, step;     /* bytes of an element, and from one position of the other tensor to the next */
  tdict_pair rest;        /* what each position holds, on both sides */
  tdict_rows rows;
} gathering;

/* Where there is one element only, its stride means nothing and may wrap. */
static int64_t times(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

/* Offsets of `count` positions from position `first` on: in the tensor that is indexed, and in the other one. */
static void find_offsets(const gathering *g, int64_t first, int64_t count, int64_t *mine, int64_t *others) {
  for (int64_t i = 0; i < count; i++) {
    mine[i] = 0;
    others[i] = times(first + i, g->step);
  }
  for (int n = 0; n < g->plan->num_gathers; n++) {
    const tdict_gather *list = &g->plan->gathers[n];
    const int64_t next = list->count == 1 ? 0 : list->dims;
    for (int d = 0; d < list->dims; d++) {
      const int64_t *at = list->positions + first * next + d, bytes = times(g->strides[list->axis + d], g->item);
      for (int64_t i = 0; i < count; i++) mine[i] += times(at[i * next], bytes);
    }
  }
}

static tdict_status copy_rect(void *user, const tdict_rect *rect, tdict_error *err) {
  (void)user, (void)err;
  tdict_rect_copy(rect);
  return TDICT_OK;
}

/* The same run of every position, for each run of a rectangle. */
static tdict_status copy_rows(void *user, const tdict_rect *rect, tdict_error *err) {
  (void)err;
  uintptr_t dst = (uintptr_t)rect->dst, src = (uintptr_t)rect->src;
  for (size_t i = 0; i < rect->height; i++) {
    tdict_rows_copy((void *)dst, (const void *)src, user, rect->width);
    dst += (uintptr_t)rect->dst_pitch, src += (uintptr_t)rect->src_pitch;
  }
  return TDICT_OK;
}

static void copy_chunk(gathering *g, const tdict_pair_part *all, bool position_by_position) {
  if (!position_by_position) {
    (void)tdict_pair_walk(&g->rest, all, copy_rows, &g->rows, NULL);
    return;
  }
  for (int64_t i = 0; i < g->rows.count; i++) {
    tdict_pair_part one = *all;
    one.dst = (void *)((uintptr_t)all->dst + (uintptr_t)g->rows.dst[i]);
    one.src = (const void *)((uintptr_t)all->src + (uintptr_t)g->rows.src[i]);
    (void)tdict_pair_walk(&g->rest, &one, copy_rect, NULL, NULL);
  }
}

/* Both sides on the host, waited for, and no byte of them lost: copies nothing but rows. */
static tdict_status copy_on_host(const tdict_index_plan *plan, const tdict_tensor *t, const tdict_tensor *other,
                                 bool set, tdict_error *err) {
  tdict_made whole, here, there;
  int64_t mine[MOST_ROWS], others[MOST_ROWS];
  const size_t item = tdict_dtype_bytes(t->dtype);
  tdict_status status = tdict_affine_apply(&plan->affine, t, plan->what, &whole, err);
  if (status != TDICT_OK || other->numel == 0) return status;
  gathering g = {.plan = plan, .strides = whole.strides, .item = (int64_t)item};
  g.step = times(tdict_tensor_dims_strides(other)[plan->gather_at], g.item);
  g.rows = set ? (tdict_rows){mine, others, 0} : (tdict_rows){others, mine, 0};
  here = whole;
  for (int n = plan->num_gathers - 1; n >= 0; n--)
    for (int d = plan->gathers[n].dims - 1; d >= 0; d--) tdict_made_select(&here, plan->gathers[n].axis + d, 0, item);
  tdict_made_of(other, &there);
  tdict_made_select(&there, plan->gather_at, 0, item);
  tdict_made *dst = set ? &here : &there, *src = set ? &there : &here;
  tdict_pair_init(&g.rest, here.ndim, here.shape, dst->strides, src->strides, item);
  const int64_t row = other->numel / plan->gather_count;
  const tdict_pair_part all = {dst->data, src->data, 0, (size_t)row * item};
  /* Whichever is more of runs in a position and positions is the inner loop. */
  const bool position_by_position = all.end / g.rest.run_bytes > (size_t)plan->gather_count;
  for (int64_t i = 0; i < plan->gather_count; i += g.rows.count) {
    g.rows.count = plan->gather_count - i < MOST_ROWS ? plan->gather_count - i : MOST_ROWS;
    find_offsets(&g, i, g.rows.count, mine, others);
    copy_chunk(&g, &all, position_by_position);
  }
  return TDICT_OK;
}

static bool on_host(const tdict_tensor *t) { return t->storage->device.type == TDICT_DEVICE_CPU; }

tdict_status tdict_index_plan_copy(const tdict_index_plan *plan, const tdict_tensor *t, const tdict_tensor *other,
                                   bool set, tdict_error *err) {
  tdict_made whole, there;
  tdict_temp a, b;
  if (plan->num_gathers) {
    tdict_tensor_await(t, set);
    tdict_tensor_await(other, !set);
    /* Where bytes were lost each position is asked for by itself: those that are not lost may be read, and those that
     * are written are there again. */
    const bool lost = tdict_tensor_is_lost(t) || tdict_tensor_is_lost(other);
    return on_host(t) && on_host(other) && !lost ? copy_on_host(plan, t, other, set, err)
                                                 : copy_singly(plan, t, other, set, err);
  }
  tdict_status status = tdict_affine_apply(&plan->affine, t, plan->what, &whole, err);
  if (status != TDICT_OK) return status;
  tdict_made_of(other, &there);
  tdict_tensor *mine = tdict_temp_over(&a, t, &whole), *others = tdict_temp_over(&b, other, &there);
  return tdict_tensor_copy(set ? mine : others, set ? others : mine, err);
}
