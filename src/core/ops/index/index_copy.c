/* Copies between the elements that an index selects and another tensor. Large copies are divided among the caller and
 * threads of a pool. Copies on a device are added to moves. Thread rule: as in tdict/index.h. */
#include <string.h>

#include "core/kernel/work.h"
#include "core/ops/index/index_plan.h"
#include "core/tensor/layout.h"

enum { MAX_ROWS = 256 }; /* maximum number of positions whose offsets are computed at once, on the stack */
/* If a position has at least LARGE_POSITION bytes, each part of the copy has a range of the bytes of every position.
 * The range has at least PIECE_BYTES bytes. */
enum { LARGE_POSITION = 64 << 10, PIECE_BYTES = 4096, PARTS_PER_THREAD = 4 };

/* Narrows the affine result to position i of the lists and masks. Starts at the last dimension, because removing a
 * dimension changes the numbers of later dimensions. */
static void select_gathered(const tdict_index_plan *plan, tdict_made *made, int64_t i, size_t item) {
  for (int n = plan->num_gathers - 1; n >= 0; n--) {
    const tdict_index_gather *g = &plan->gathers[n];
    const int64_t *at = g->positions + (g->count == 1 ? 0 : i) * g->dims;
    for (int d = g->dims - 1; d >= 0; d--) tdict_made_select(made, g->axis + d, at[d], item);
  }
}

tdict_status tdict_index_plan_check_not_lost(tdict_index_plan *plan, const tdict_tensor *t, tdict_error *err) {
  tdict_made affine_view, row_view;
  tdict_temp temp;
  if (!tdict_moves_are_queued(plan->moves, t)) tdict_tensor_await(t, false);
  if (!tdict_tensor_is_lost(t)) return TDICT_OK; /* the common case */
  tdict_status status = tdict_affine_apply(&plan->affine, t, plan->what, &affine_view, err);
  if (status == TDICT_OK) status = tdict_index_plan_read_lists(plan, err);
  const int64_t count = plan->num_gathers ? plan->gather_count : 1;
  for (int64_t i = 0; i < count && status == TDICT_OK; i++) {
    row_view = affine_view;
    select_gathered(plan, &row_view, i, tdict_dtype_bytes(t->dtype));
    const tdict_tensor *row = tdict_temp_over(&temp, t, &row_view);
    if (tdict_tensor_is_lost(row)) status = tdict_tensor_refuse_lost(plan->what, "the source's bytes", row, err);
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

/* A copy in host memory. All threads only read this struct. */
typedef struct gathering {
  const tdict_index_plan *plan;
  const int64_t *strides;  /* strides of the affine result, in elements */
  int64_t item, step;      /* item: bytes of an element; step: bytes between two positions in the other tensor */
  tdict_pair one_position; /* the elements of one position, in both tensors */
  tdict_pair_span all;     /* all bytes of position 0 */
  bool writes_indexed, position_by_position;
  /* The copy is divided into parts that write different bytes. If divides_bytes is true, each part has a range of the
   * bytes of all positions, in order. Otherwise each part has a range of the positions. */
  bool divides_bytes;
  int num_parts;
} gathering;

/* Multiplies and wraps around on overflow, because signed overflow is undefined. The unused stride of a dimension of
 * one element can be any number. */
static int64_t wrapping_multiply(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

/* Computes the byte offsets of `count` positions in the indexed tensor. `first` is the first of these positions. */
static void find_offsets(const gathering *g, int64_t first, int64_t count, int64_t *offsets) {
  for (int64_t i = 0; i < count; i++) offsets[i] = 0;
  for (int n = 0; n < g->plan->num_gathers; n++) {
    const tdict_index_gather *list = &g->plan->gathers[n];
    const int64_t next = list->count == 1 ? 0 : list->dims;
    for (int d = 0; d < list->dims; d++) {
      const int64_t *at = list->positions + first * next + d,
                    bytes = wrapping_multiply(g->strides[list->axis + d], g->item);
      for (int64_t i = 0; i < count; i++) offsets[i] += wrapping_multiply(at[i * next], bytes);
    }
  }
}

/* Positions that are copied at once. */
typedef struct chunk {
  tdict_rows rows;
  bool writes_indexed;
} chunk;

static void copy_run(const chunk *c, void *dst, const void *src, size_t width) {
  if (c->writes_indexed)
    tdict_rows_write(dst, src, &c->rows, width);
  else
    tdict_rows_read(dst, src, &c->rows, width);
}

/* Copies one run of bytes at every position, for each row of the rectangle. A callback of tdict_pair_walk(). */
static tdict_status copy_runs(void *user, const tdict_rect *rect, tdict_error *err) {
  (void)err;
  uintptr_t dst = (uintptr_t)rect->dst, src = (uintptr_t)rect->src;
  for (size_t i = 0; i < rect->height; i++) {
    copy_run(user, (void *)dst, (const void *)src, rect->width);
    dst += (uintptr_t)rect->dst_pitch, src += (uintptr_t)rect->src_pitch;
  }
  return TDICT_OK;
}

/* Copies the given bytes of all positions of a chunk. */
static void copy_chunk(const gathering *g, chunk *c, const tdict_pair_span *bytes) {
  if (g->one_position.run_bytes == g->all.end) { /* the common case: the elements of a position are adjacent */
    const size_t begin = bytes->begin;
    copy_run(c, (void *)((uintptr_t)bytes->dst + begin), (const void *)((uintptr_t)bytes->src + begin),
             bytes->end - begin);
    return;
  }
  if (!g->position_by_position) {
    (void)tdict_pair_walk(&g->one_position, bytes, copy_runs, c, NULL);
    return;
  }
  for (int64_t i = 0; i < c->rows.count; i++) {
    const uintptr_t listed = (uintptr_t)wrapping_multiply(c->rows.positions[i], c->rows.pitch),
                    other = (uintptr_t)wrapping_multiply(i, c->rows.step);
    tdict_pair_span one = *bytes;
    one.dst = (void *)((uintptr_t)bytes->dst + (c->writes_indexed ? listed : other));
    one.src = (const void *)((uintptr_t)bytes->src + (c->writes_indexed ? other : listed));
    tdict_pair_copy(&g->one_position, &one);
  }
}

/* Returns the start of part i of the numbers [0, total). */
static int64_t part_start(const gathering *g, int64_t total, long i) {
  const int64_t n = g->num_parts;
  return total / n * i + total % n * i / n;
}

/* Returns the list whose positions alone select the elements, or NULL. */
static const tdict_index_gather *find_only_list(const tdict_index_plan *plan) {
  const tdict_index_gather *list = &plan->gathers[0];
  return plan->num_gathers == 1 && list->dims == 1 ? list : NULL;
}

/* Copies one part. Runs on the calling thread or on a thread of the pool. */
static void copy_part(void *user, long part) {
  const gathering *g = user;
  const tdict_index_gather *list = find_only_list(g->plan);
  int64_t offsets[MAX_ROWS], begin = 0, end = g->plan->gather_count;
  chunk c = {.rows = {.positions = offsets, .pitch = 1, .step = g->step}, .writes_indexed = g->writes_indexed};
  tdict_pair_span bytes = g->all;
  if (g->divides_bytes) {
    bytes.begin = (size_t)part_start(g, (int64_t)g->all.end, part);
    bytes.end = (size_t)part_start(g, (int64_t)g->all.end, part + 1);
  } else {
    begin = part_start(g, g->plan->gather_count, part);
    end = part_start(g, g->plan->gather_count, part + 1);
  }
  if (list) c.rows.pitch = wrapping_multiply(g->strides[list->axis], g->item);
  /* Copy in chunks of MAX_ROWS positions. */
  for (int64_t i = begin; i < end; i += c.rows.count) {
    tdict_pair_span moved = bytes;
    const uintptr_t other = (uintptr_t)wrapping_multiply(i, g->step);
    c.rows.count = end - i < MAX_ROWS ? end - i : MAX_ROWS;
    if (list)
      c.rows.positions = list->positions + i;
    else
      find_offsets(g, i, c.rows.count, offsets);
    if (g->writes_indexed)
      moved.src = (const void *)((uintptr_t)bytes.src + other);
    else
      moved.dst = (void *)((uintptr_t)bytes.dst + other);
    copy_chunk(g, &c, &moved);
  }
}

static uint64_t magnitude(int64_t stride) { return stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride; }

/* Returns false only if all elements of the tensor have different addresses. */
static bool may_repeat_elements(const tdict_tensor *t) {
  const int64_t *strides = tdict_tensor_dims_strides(t);
  bool visited[TDICT_MAX_NDIM] = {false};
  uint64_t reach = 0; /* the distance between the first and the last element in the visited dimensions */
  for (int n = 0; n < t->ndim; n++) {
    int next = -1; /* the dimension with the smallest stride that is not visited yet */
    for (int d = 0; d < t->ndim; d++)
      if (!visited[d] && t->dims[d] > 1 && (next < 0 || magnitude(strides[d]) < magnitude(strides[next]))) next = d;
    if (next < 0) return false;
    if (magnitude(strides[next]) <= reach) return true;
    reach += (uint64_t)(t->dims[next] - 1) * magnitude(strides[next]);
    visited[next] = true;
  }
  return false;
}

/* Returns false only if the tensors have no byte in common. Both tensors have elements. */
static bool may_overlap(const tdict_tensor *a, const tdict_tensor *b) {
  int64_t a_low, a_end, b_low, b_end;
  if (!tdict_layout_extent(a->ndim, a->dims, tdict_tensor_dims_strides(a), tdict_dtype_bytes(a->dtype), &a_low,
                           &a_end) ||
      !tdict_layout_extent(b->ndim, b->dims, tdict_tensor_dims_strides(b), tdict_dtype_bytes(b->dtype), &b_low, &b_end))
    return true;
  const uintptr_t a_data = (uintptr_t)a->data, b_data = (uintptr_t)b->data;
  return a_data + (uintptr_t)a_low < b_data + (uintptr_t)b_end && b_data + (uintptr_t)b_low < a_data + (uintptr_t)a_end;
}

/* Returns true only if no two positions of the result select the same element. */
static bool positions_are_distinct(const tdict_index_plan *plan) {
  for (int n = 0; n < plan->num_gathers; n++)
    if (plan->gathers[n].is_distinct && plan->gathers[n].count == plan->gather_count) return true;
  return plan->gather_count < 2;
}

/* Returns the number of threads that the size of the copy is worth, with the caller. Can be 0. */
static int choose_threads(const tdict_index_plan *plan, const tdict_index_helpers *helpers, const tdict_tensor *other) {
  const int available = helpers ? helpers->count + 1 : 1;
  if (available == 1) return 1;
  const size_t most = tdict_tensor_nbytes(other) / TDICT_INDEX_BYTES_PER_THREAD +
                      (size_t)plan->gather_count / (TDICT_INDEX_BYTES_PER_THREAD / TDICT_INDEX_POSITION_BYTES);
  return (size_t)available < most ? available : (int)most;
}

/* Divides the copy among the caller and the helpers. A small copy has one part. The same holds if two parts could write
 * the same byte, or one part could read what another part writes. */
static void divide(gathering *g, const tdict_index_helpers *helpers, const tdict_tensor *t, const tdict_tensor *other) {
  const size_t count = (size_t)g->plan->gather_count;
  const int threads = choose_threads(g->plan, helpers, other);
  g->num_parts = 1;
  if (threads < 2 || may_repeat_elements(g->writes_indexed ? t : other) || may_overlap(t, other)) return;
  g->divides_bytes = g->all.end >= LARGE_POSITION;
  if (!g->divides_bytes && g->writes_indexed && !positions_are_distinct(g->plan)) return;
  const size_t most_parts = g->divides_bytes ? g->all.end / PIECE_BYTES : count;
  g->num_parts = threads * PARTS_PER_THREAD;
  if ((size_t)g->num_parts > most_parts) g->num_parts = (int)most_parts;
}

/* Copies rows on the calling thread. Returns false if the copy needs gather_on_host(). */
static bool copy_plain_rows(const tdict_index_plan *plan, const tdict_index_helpers *helpers, const tdict_tensor *t,
                            const tdict_tensor *other, bool writes_indexed) {
  if (!plan->selects_rows || !tdict_tensor_is_contiguous(t) || !tdict_tensor_is_contiguous(other) ||
      choose_threads(plan, helpers, other) > 1)
    return false;
  if (other->numel == 0) return true;
  const size_t row = tdict_tensor_nbytes(other) / (size_t)plan->gather_count;
  const tdict_rows rows = {plan->gathers[0].positions, plan->gather_count, (int64_t)row, (int64_t)row};
  if (writes_indexed)
    tdict_rows_write(t->data, other->data, &rows, row);
  else
    tdict_rows_read(other->data, t->data, &rows, row);
  return true;
}

/* Copies in host memory. The caller has waited for the transfers of both tensors, and has checked that neither tensor
 * has lost bytes. */
static tdict_status gather_on_host(const tdict_index_plan *plan, const tdict_index_helpers *helpers,
                                   const tdict_tensor *t, const tdict_tensor *other, bool writes_indexed,
                                   tdict_error *err) {
  tdict_made affine_view, row_view, other_view;
  const size_t item = tdict_dtype_bytes(t->dtype);
  tdict_status status = tdict_affine_apply(&plan->affine, t, plan->what, &affine_view, err);
  if (status != TDICT_OK || other->numel == 0) return status;
  /* Describe the elements of one position as a pair of layouts. */
  gathering g = {.plan = plan, .strides = affine_view.strides, .item = (int64_t)item, .writes_indexed = writes_indexed};
  g.step = wrapping_multiply(tdict_tensor_dims_strides(other)[plan->gather_at], g.item);
  row_view = affine_view;
  for (int n = plan->num_gathers - 1; n >= 0; n--)
    for (int d = plan->gathers[n].dims - 1; d >= 0; d--)
      tdict_made_select(&row_view, plan->gathers[n].axis + d, 0, item);
  tdict_made_of(other, &other_view);
  tdict_made_select(&other_view, plan->gather_at, 0, item);
  tdict_made *dst = writes_indexed ? &row_view : &other_view, *src = writes_indexed ? &other_view : &row_view;
  tdict_pair_init(&g.one_position, row_view.ndim, row_view.shape, dst->strides, src->strides, item);
  const int64_t row = other->numel / plan->gather_count;
  g.all = (tdict_pair_span){dst->data, src->data, 0, (size_t)row * item};
  /* The inner loop goes over the runs of one position, or over the positions, whichever are more. */
  g.position_by_position = g.all.end / g.one_position.run_bytes > (size_t)plan->gather_count;
  divide(&g, helpers, t, other);
  if (g.num_parts == 1)
    copy_part(&g, 0);
  else
    tdict_parallel_for(helpers->pool, helpers->count, g.num_parts, copy_part, &g);
  return TDICT_OK;
}

/* Waits for the transfers of both tensors, unless the moves are queued on a stream. Checks that no source bytes are
 * lost. */
static tdict_status prepare_listed(tdict_index_plan *plan, const tdict_tensor *t, const tdict_tensor *other,
                                   bool writes_indexed, tdict_error *err) {
  if (!plan->moves->stream) {
    tdict_tensor_await(t, writes_indexed);
    tdict_tensor_await(other, !writes_indexed);
  }
  if (!writes_indexed) return tdict_index_plan_check_not_lost(plan, t, err);
  if (!tdict_tensor_is_lost(other)) return TDICT_OK;
  return tdict_tensor_refuse_lost(plan->what, "the source's bytes", other, err);
}

/* Returns true if the host needs the positions of lists on devices: if a launch cannot read the lists, or if bytes of
 * the indexed tensor's storage are lost and the rows must be handled one by one. */
static bool needs_positions(const tdict_index_plan *plan, const tdict_tensor *t, const tdict_tensor *other) {
  bool needed = plan->lists.count > TDICT_KERNEL_MAX_LISTS || tdict_storage_has_lost(t->storage);
  for (int n = 0; n < plan->num_gathers; n++) {
    const tdict_index_gather *g = &plan->gathers[n];
    needed = needed || (!g->positions && !tdict_moves_reach_list(t, other, g->tensor));
  }
  return needed;
}

/* Returns true if the copy differs from the last move in its addresses only. */
static bool is_like_last(const tdict_index_plan *plan, const tdict_tensor *t, const tdict_tensor *other,
                         bool writes_indexed) {
  const tdict_index_move *last = &plan->last;
  return last->is_set && last->number + 1 == plan->moves->count && last->writes_indexed == writes_indexed &&
         last->dtype == t->dtype && last->ndim == t->ndim && last->other_ndim == other->ndim &&
         last->memory == t->storage->memory && last->other_memory == other->storage->memory &&
         tdict_sizes_equal(t->dims, last->layout, 2 * t->ndim) &&
         tdict_sizes_equal(other->dims, last->other_layout, 2 * other->ndim);
}

/* Remembers the last move if later copies can be compared with it. */
static void remember(tdict_index_plan *plan, const tdict_listed_copy *copy) {
  const tdict_tensor *t = copy->indexed, *other = copy->other;
  tdict_index_move *last = &plan->last;
  last->is_set = t->storage->memory && other->storage->memory;
  if (!last->is_set) return;
  last->number = plan->moves->count - 1;
  last->writes_indexed = copy->writes_indexed;
  last->dtype = t->dtype;
  last->ndim = t->ndim;
  last->other_ndim = other->ndim;
  last->memory = t->storage->memory;
  last->other_memory = other->storage->memory;
  last->offset = (uintptr_t)copy->position->data - (uintptr_t)t->data;
  memcpy(last->layout, t->dims, 2 * (size_t)t->ndim * sizeof *last->layout);
  memcpy(last->other_layout, other->dims, 2 * (size_t)other->ndim * sizeof *last->layout);
}

/* Adds the copy of all positions to the moves. `repeats` is the result of is_like_last(). */
static tdict_status add_listed(tdict_index_plan *plan, const tdict_tensor *t, const tdict_tensor *other,
                               bool writes_indexed, bool repeats, tdict_error *err) {
  tdict_made view;
  int64_t strides[TDICT_MAX_NDIM];
  int num_lists = 0;
  tdict_status status = prepare_listed(plan, t, other, writes_indexed, err);
  if (status == TDICT_OK && repeats && !tdict_storage_has_lost(t->storage)) {
    plan->last.number++;
    return tdict_moves_repeat_listed(plan->moves, t, other, plan->last.offset, err);
  }
  if (status == TDICT_OK && needs_positions(plan, t, other)) status = tdict_index_plan_read_lists(plan, err);
  if (status == TDICT_OK) status = tdict_affine_apply(&plan->affine, t, plan->what, &view, err);
  if (status != TDICT_OK || other->numel == 0) return status;
  for (int n = 0; n < plan->num_gathers; n++)
    for (int d = 0; d < plan->gathers[n].dims && plan->gathers[n].count != 1; d++)
      strides[num_lists++] = view.strides[plan->gathers[n].axis + d];
  for (int n = plan->num_gathers - 1; n >= 0; n--) {
    const tdict_index_gather *g = &plan->gathers[n];
    for (int d = g->dims - 1; d >= 0; d--)
      tdict_made_select(&view, g->axis + d, g->count == 1 ? g->positions[d] : 0, tdict_dtype_bytes(t->dtype));
  }
  const tdict_listed_copy copy = {t, other, writes_indexed, &view, plan->gather_at, strides};
  status = tdict_moves_add_listed(plan->moves, &copy, err);
  if (status == TDICT_OK) remember(plan, &copy);
  return status;
}

tdict_status tdict_index_plan_copy(tdict_index_plan *plan, const tdict_index_helpers *helpers, const tdict_tensor *t,
                                   const tdict_tensor *other, bool writes_indexed, tdict_error *err) {
  tdict_made affine_view, other_view;
  tdict_temp a, b;
  const bool repeats = plan->num_gathers && is_like_last(plan, t, other, writes_indexed);
  if (repeats || (plan->num_gathers && tdict_moves_take_listed(plan->moves, t, other)))
    return add_listed(plan, t, other, writes_indexed, repeats, err);
  if (plan->num_gathers) {
    tdict_status read =
        tdict_moves_check_devices(plan->moves, plan->what, writes_indexed ? t : other, writes_indexed ? other : t, err);
    if (read == TDICT_OK && tdict_index_plan_has_unread_lists(plan)) read = tdict_index_plan_read_lists(plan, err);
    if (read != TDICT_OK) return read;
    tdict_tensor_await(t, writes_indexed);
    tdict_tensor_await(other, !writes_indexed);
    /* A failed transfer can lose only some of the positions. Copy each position separately: each copy checks that the
     * bytes to read are not lost, and notes that the written bytes are no longer lost. */
    const bool lost = tdict_tensor_is_lost(t) || tdict_tensor_is_lost(other);
    if (lost || !tdict_is_on_host(t) || !tdict_is_on_host(other))
      return copy_each_position(plan, t, other, writes_indexed, err);
    return copy_plain_rows(plan, helpers, t, other, writes_indexed)
               ? TDICT_OK
               : gather_on_host(plan, helpers, t, other, writes_indexed, err);
  }
  tdict_status status = tdict_affine_apply(&plan->affine, t, plan->what, &affine_view, err);
  if (status != TDICT_OK) return status;
  tdict_made_of(other, &other_view);
  tdict_tensor *indexed = tdict_temp_over(&a, t, &affine_view), *other_side = tdict_temp_over(&b, other, &other_view);
  return tdict_moves_copy(plan->moves, writes_indexed ? indexed : other_side, writes_indexed ? other_side : indexed,
                          err);
}
