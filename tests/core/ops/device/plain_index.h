/* Indices for the plain model of plain.h. By PyTorch's rules, a plan maps each element of a result to its source
 * element. Thread rule: one thread. */
#ifndef TDICT_TESTS_CORE_OPS_DEVICE_PLAIN_INDEX_H
#define TDICT_TESTS_CORE_OPS_DEVICE_PLAIN_INDEX_H

#include "core/ops/device/plain.h"

enum { PLAIN_NEW_AXIS = -1, PLAIN_LISTED = -2, PLAIN_LISTS = 8 };

/* A batch dimension of a result. */
typedef struct plain_dim {
  int src; /* the dimension of the indexed tree, PLAIN_NEW_AXIS or PLAIN_LISTED */
  int64_t size, start, step;
} plain_dim;
/* Positions in one dimension. If there is one position, it is used for all elements. */
typedef struct plain_list {
  int src;
  int64_t count, *positions; /* not negative; owned */
} plain_list;
typedef struct plain_plan {
  int ndim_in, ndim, num_lists;
  plain_dim dim[PLAIN_DIMS];
  plain_list list[PLAIN_LISTS];
  int64_t fixed[PLAIN_DIMS]; /* the position in each dimension that TDICT_AT() removes */
} plain_plan;

static inline void plain_plan_drop(plain_plan *p) {
  for (int k = 0; k < p->num_lists; k++) free(p->list[k].positions);
}

/* Adds the dimension that all lists share to the result. `ranges_before` counts the dimensions before the first list.
 * `is_split` is true if a dimension without a list is between two lists. */
static inline void plain_place_lists(plain_plan *p, int ranges_before, bool is_split) {
  int64_t count = 1;
  if (p->num_lists == 0) return;
  for (int k = 0; k < p->num_lists; k++)
    if (p->list[k].count != 1) count = p->list[k].count;
  const int at = is_split ? 0 : ranges_before;
  for (int d = p->ndim++; d > at; d--) p->dim[d] = p->dim[d - 1];
  p->dim[at] = (plain_dim){.src = PLAIN_LISTED, .size = count};
}

/* Computes the start and the size of a range as Python's slice.indices() does. */
static inline plain_dim plain_range(int src, int64_t size, int64_t start, int64_t stop, int64_t step) {
  const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? size - 1 : size;
  plain_dim d = {.src = src, .step = step};
  int64_t *const bounds[2] = {&start, &stop}, absent[2] = {step < 0 ? high : low, step < 0 ? low : high};
  for (int i = 0; i < 2; i++) {
    if (*bounds[i] == TDICT_NONE) {
      *bounds[i] = absent[i];
      continue;
    }
    if (*bounds[i] < 0) *bounds[i] += size;
    if (*bounds[i] < low) *bounds[i] = low;
    if (*bounds[i] > high) *bounds[i] = high;
  }
  d.start = start;
  for (int64_t at = start; step < 0 ? at > stop : at < stop; at += step) d.size++;
  return d;
}

static inline int plain_shape_of(const plain_plan *p, const plain_array *a, int64_t *shape) {
  int ndim = 0;
  for (int d = 0; d < p->ndim; d++) shape[ndim++] = p->dim[d].size;
  for (int d = p->ndim_in; d < a->ndim; d++) shape[ndim++] = a->shape[d];
  return ndim;
}

/* Converts an index into the result to an index into the source array. */
static inline void plain_locate(const plain_plan *p, const plain_array *a, const int64_t *result, int64_t *indexed) {
  memcpy(indexed, p->fixed, (size_t)p->ndim_in * sizeof *indexed);
  for (int d = 0; d < p->ndim; d++) {
    const plain_dim *dim = &p->dim[d];
    if (dim->src >= 0) indexed[dim->src] = dim->start + result[d] * dim->step;
    for (int k = 0; dim->src == PLAIN_LISTED && k < p->num_lists; k++)
      indexed[p->list[k].src] = p->list[k].positions[p->list[k].count == 1 ? 0 : result[d]];
  }
  for (int d = p->ndim_in; d < a->ndim; d++) indexed[d] = result[p->ndim + d - p->ndim_in];
}

/* Applies an index. Returns a view if the index has no lists, else a copy. */
static inline plain_array plain_get(const plain_plan *p, const plain_array *a) {
  int64_t shape[PLAIN_DIMS];
  const int ndim = plain_shape_of(p, a, shape);
  if (p->num_lists) {
    plain_array made = plain_new(a->dtype, ndim, shape, a->on_host);
    PLAIN_EACH(ndim, shape, i) {
      int64_t from[PLAIN_DIMS];
      plain_locate(p, a, i, from);
      plain_copy_element(&made, i, a, from);
    }
    return made;
  }
  plain_array view = plain_share(a);
  view.ndim = ndim;
  memcpy(view.shape, shape, sizeof shape);
  for (int d = 0; d < p->ndim_in; d++) view.first += p->fixed[d] * a->strides[d];
  for (int d = 0; d < ndim; d++) {
    const plain_dim *dim = &p->dim[d];
    if (d >= p->ndim) {
      view.strides[d] = a->strides[p->ndim_in + d - p->ndim];
    } else if (dim->src < 0) {
      view.strides[d] = 0;
    } else {
      /* A step can be so large that the stride overflows. The dimension then has at most one element. */
      view.strides[d] = (int64_t)((uint64_t)dim->step * (uint64_t)a->strides[dim->src]);
      if (dim->size > 0) view.first += dim->start * a->strides[dim->src];
    }
  }
  return view;
}

/* Writes `value` to the selected elements. If `value` lacks leading dimensions, it is repeated along them. */
static inline void plain_set(const plain_plan *p, plain_array *a, const plain_array *value) {
  int64_t shape[PLAIN_DIMS];
  const int ndim = plain_shape_of(p, a, shape), missing = ndim - value->ndim;
  PLAIN_EACH(ndim, shape, i) {
    int64_t to[PLAIN_DIMS];
    plain_locate(p, a, i, to);
    plain_copy_element(a, to, value, i + missing);
  }
}

#endif
