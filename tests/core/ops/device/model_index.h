/* Makes random indices, and the plans that apply them to the plain model. Lists and masks are on the host or on the
 * device. Thread rule: the main thread. */
#ifndef TDICT_TESTS_CORE_OPS_DEVICE_MODEL_INDEX_H
#define TDICT_TESTS_CORE_OPS_DEVICE_MODEL_INDEX_H

#include "core/ops/device/model.h"
#include "core/ops/device/plain_index.h"

typedef struct model_index {
  tdict_indices index;
  plain_plan plan;
  int num_arrays, num_tensors;
  int64_t *arrays[PLAIN_LISTS];
  tdict_tensor *tensors[PLAIN_LISTS];
  bool is_distinct;   /* no element is selected twice */
  bool wants_bad;     /* the index still needs a position outside its dimension */
  char refusal[100];  /* the expected error message, or "" if all positions are valid */
  int64_t count;      /* number of positions in the lists; -1 if there is no list yet */
  int ranges, before; /* dimensions without a list: so far, and before the first list */
  int last;           /* dimensions without a list before the last list */
  bool is_split;
} model_index;

static inline void model_index_drop(model_index *x) {
  for (int i = 0; i < x->num_arrays; i++) free(x->arrays[i]);
  for (int i = 0; i < x->num_tensors; i++) tdict_tensor_release(x->tensors[i]);
  plain_plan_drop(&x->plan);
}
#define scoped_model_index TD_SCOPED(model_index_drop, model_index)

/* Returns `good` or, if the index still needs a bad position, sometimes a position outside the dimension. */
static inline int64_t maybe_bad(model *m, model_index *x, int dim, int64_t size, int64_t good) {
  if (!x->wants_bad || pick(&m->r, 0, 1)) return good;
  const int64_t bad = pick(&m->r, 0, 1) ? size + pick(&m->r, 0, 2) : -size - 1 - pick(&m->r, 0, 2);
  x->wants_bad = false;
  snprintf(x->refusal, sizeof x->refusal, "position %lld is outside dimension %d, which has %lld elements",
           (long long)bad, dim, (long long)size);
  return bad;
}

/* Updates the state of the index for a list with `count` positions. */
static inline void note_list(model_index *x, int64_t count) {
  if (x->count < 0) x->before = x->ranges;
  if (x->count >= 0 && x->ranges != x->last) x->is_split = true;
  if (x->count < 0 || x->count == 1) x->count = count;
  x->last = x->ranges;
}

/* Makes a tensor of positions on the host or the device. Its stride is 1, 3 or -1. */
static inline tdict_tensor *position_tensor(model *m, const int64_t *positions, int64_t count) {
  const bool on_host = m->delayed || pick(&m->r, 0, 2) == 0;
  const int64_t step = pick(&m->r, 0, 3) ? 1 : pick(&m->r, 0, 1) ? 3 : -1, width = step < 0 ? 1 : step;
  const int64_t all = count * width + 1;
  tdict_tensor *base = NULL, *t = NULL;
  TD_FREED int64_t *spread = td_alloc((size_t)all * sizeof *spread);
  for (int64_t i = 0; i < all; i++) spread[i] = INT64_MAX; /* an invalid position */
  for (int64_t i = 0; i < count; i++) spread[step < 0 ? count - 1 - i : i * step] = positions[i];
  td_ok(tdict_tensor_empty(TDICT_I64, 1, &all, on_host ? NULL : m->memory, &base, err));
  if (on_host)
    memcpy(tdict_tensor_data(base), spread, (size_t)all * sizeof *spread);
  else
    raw_write(m->raw, tdict_tensor_data(base), spread, (size_t)all * sizeof *spread);
  tdict_tensor_desc desc = td_with(tdict_tensor_desc, ndim = 1, shape = &count, strides = &step);
  td_ok(tdict_tensor_as_strided(base, &desc, step < 0 && count ? count - 1 : 0, &t, err));
  tdict_tensor_release(base);
  return t;
}

static inline void add_list(model *m, model_index *x, int dim, int64_t size) {
  const bool is_first = x->count < 0 || x->count == 1;
  int64_t count = is_first            ? pick(&m->r, 0, x->is_distinct || size > 100 ? size : 12)
                  : pick(&m->r, 0, 2) ? x->count
                                      : 1;
  if (size == 0) count = 0;
  int64_t *given = malloc((size_t)(count + 1) * sizeof *given), *good = malloc((size_t)(count + 1) * sizeof *good);
  int64_t *order = malloc((size_t)(size + 1) * sizeof *order);
  assert_true(given && good && order);
  for (int64_t i = 0; i < size; i++) {
    const int64_t j = pick(&m->r, 0, i);
    order[i] = order[j];
    order[j] = i;
  }
  for (int64_t i = 0; i < count; i++) {
    good[i] = x->is_distinct && is_first ? order[i] : pick(&m->r, 0, size - 1);
    given[i] = maybe_bad(m, x, dim, size, pick(&m->r, 0, 1) ? good[i] : good[i] - size);
  }
  free(order);
  note_list(x, count);
  x->plan.list[x->plan.num_lists++] = (plain_list){dim, count, good};
  x->arrays[x->num_arrays++] = given;
  tdict_index item = TDICT_LIST(given, count);
  if (pick(&m->r, 0, 2)) {
    x->tensors[x->num_tensors++] = position_tensor(m, given, count);
    item = TDICT_LIST_OF(x->tensors[x->num_tensors - 1]);
  }
  tdict_indices_add(&x->index, item);
}

/* Adds a mask for one or two dimensions. Returns the number of dimensions. */
static inline int add_mask(model *m, model_index *x, int dim, const plain_tree *p) {
  const int dims = (int)pick(&m->r, 1, p->nb - dim < 2 ? 1 : 2);
  const bool on_host = m->delayed || pick(&m->r, 0, 1);
  const tensor_form f = {pick(&m->r, 0, 1) ? TDICT_BOOL : TDICT_U8, dims, p->bs + dim, on_host, true, true};
  const int64_t most = plain_count(dims, p->bs + dim);
  plain_array mask;
  int64_t count = 0;
  x->tensors[x->num_tensors++] = model_tensor(m, &f, &mask);
  for (int i = 0; i < dims; i++) {
    int64_t *positions = td_alloc((size_t)(most + 1) * sizeof *positions);
    count = 0;
    PLAIN_EACH(dims, mask.shape, at) if (*plain_at(&mask, at)) positions[count++] = at[i];
    x->plan.list[x->plan.num_lists++] = (plain_list){dim + i, count, positions};
  }
  for (int i = 0; i < dims; i++) x->plan.list[x->plan.num_lists - dims + i].count = count;
  note_list(x, count);
  plain_drop(&mask);
  tdict_indices_add(&x->index, TDICT_MASK(x->tensors[x->num_tensors - 1]));
  return dims;
}

static inline void add_range(model *m, model_index *x, int dim, int64_t size) {
  static const int64_t steps[] = {1, -1, 2, -2, 3, -5, INT64_MAX / 2, INT64_MIN / 2};
  const int64_t start = pick(&m->r, 0, 3) ? pick(&m->r, -size - 1, size + 1) : TDICT_NONE;
  const int64_t stop = pick(&m->r, 0, 3) ? pick(&m->r, -size - 1, size + 1) : TDICT_NONE;
  const int64_t step = steps[pick(&m->r, 0, 7)];
  tdict_indices_add(&x->index, TDICT_RANGE(start, stop, step));
  x->plan.dim[x->plan.ndim++] = plain_range(dim, size, start, stop, step);
  x->ranges++;
}

/* Adds the dimensions from `from` to `end` - 1 to the plan, and selects all of their elements. */
static inline void add_whole(model_index *x, const plain_tree *p, int from, int end) {
  for (int d = from; d < end; d++, x->ranges++)
    x->plan.dim[x->plan.ndim++] = (plain_dim){.src = d, .size = p->bs[d], .step = 1};
}

/* Makes a random index for a tree with batch dimensions. The caller has set is_distinct and wants_bad. */
static inline void model_index_make(model *m, const plain_tree *p, model_index *x) {
  bool has_rest = false;
  x->count = -1;
  x->plan.ndim_in = p->nb;
  for (int d = 0; d < p->nb;) {
    const int64_t kind = pick(&m->r, 0, 9), size = p->bs[d];
    const bool takes_list = x->plan.num_lists + 2 < PLAIN_LISTS && (size > 0 || x->count <= 1);
    if (kind <= 1 && (size > 0 || x->wants_bad)) {
      const int64_t good = size ? pick(&m->r, 0, size - 1) : 0;
      const bool wanted = x->wants_bad;
      const int64_t given = maybe_bad(m, x, d, size, pick(&m->r, 0, 1) ? good : good - size);
      if (size == 0 && wanted == x->wants_bad) continue; /* an empty dimension has no good position */
      x->plan.fixed[d++] = good;
      tdict_indices_add(&x->index, TDICT_AT(given));
    } else if (kind == 2 && p->nb < 4 && x->index.count < 8) {
      tdict_indices_add(&x->index, TDICT_NEW_AXIS);
      x->plan.dim[x->plan.ndim++] = (plain_dim){.src = PLAIN_NEW_AXIS, .size = 1};
      x->ranges++;
    } else if (kind <= 6 && kind > 3 && takes_list) {
      add_list(m, x, d++, size);
    } else if (kind == 7 && takes_list && x->count < 0) {
      d += add_mask(m, x, d, p);
    } else if (kind == 8 && !has_rest) {
      const int end = (int)pick(&m->r, d, p->nb); /* the items after TDICT_REST use the dimensions from `end` on */
      tdict_indices_add(&x->index, TDICT_REST);
      add_whole(x, p, d, end);
      has_rest = true;
      d = end;
    } else {
      add_range(m, x, d, size);
      d++;
    }
    if (!has_rest && pick(&m->r, 0, 7) == 0) { /* the index ends here, so it selects all of the other dimensions */
      add_whole(x, p, d, p->nb);
      d = p->nb;
    }
  }
  plain_place_lists(&x->plan, x->before, x->is_split);
}

#endif
