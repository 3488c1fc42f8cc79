/* Slow, simple versions of library functions, for comparison. They locate each element by its index, and do not use the
 * library's layout code. Thread rule: one thread. */
#ifndef TDICT_TESTS_CORE_TENSOR_NAIVE_H
#define TDICT_TESTS_CORE_TENSOR_NAIVE_H

#include "support/test.h"

typedef struct naive_random {
  uint64_t state;
} naive_random;
static inline uint64_t naive_next(naive_random *r) {
  uint64_t value;
  td_fill_random(&value, sizeof value, ++r->state);
  return value;
}
/* Returns a random number from 0 to count - 1. */
static inline int64_t naive_below(naive_random *r, int64_t count) { return (int64_t)(naive_next(r) % (uint64_t)count); }

/* A layout in elements. Random layouts have shuffled dimensions, gaps, negative strides and, on request, strides of
 * 0. */
typedef struct naive_layout {
  int ndim;
  int64_t shape[8], strides[8];
  int64_t numel;
  int64_t low, end; /* the lowest offset and the end offset, relative to the first element */
} naive_layout;

static inline void naive_strides(naive_random *r, bool zeros, naive_layout *out) {
  int order[8];
  for (int i = 0; i < out->ndim; i++) order[i] = i;
  for (int i = out->ndim - 1; i > 0; i--) {
    int j = naive_below(r, 3) ? i : (int)naive_below(r, i + 1), kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
  int64_t step = naive_below(r, 4) ? 1 : 1 + naive_below(r, 3);
  out->low = 0;
  out->end = out->numel ? 1 : 0;
  for (int i = out->ndim - 1; i >= 0; i--) {
    int dim = order[i];
    int64_t sign = naive_below(r, 5) ? 1 : -1, last = out->shape[dim] - 1;
    bool zero = zeros && naive_below(r, 6) == 0;
    out->strides[dim] = zero ? 0 : sign * step;
    if (out->numel && out->strides[dim] < 0) out->low += last * out->strides[dim];
    if (out->numel && out->strides[dim] > 0) out->end += last * out->strides[dim];
    if (!zero) step = step * (out->shape[dim] ? out->shape[dim] : 1) + (naive_below(r, 4) ? 0 : naive_below(r, 3));
  }
}

static inline void naive_shape(naive_random *r, int most_dims, naive_layout *out) {
  out->ndim = (int)naive_below(r, most_dims + 1);
  out->numel = 1;
  for (int i = 0; i < out->ndim; i++) {
    out->shape[i] = naive_below(r, 40) == 0 ? 0 : 1 + naive_below(r, naive_below(r, 4) ? 4 : 9);
    out->numel *= out->shape[i];
  }
}

/* Sets the index to the next element in C order. Returns false after the last element. */
static inline bool naive_step(int ndim, const int64_t *shape, int64_t *index) {
  for (int i = ndim - 1; i >= 0; i--) {
    if (++index[i] < shape[i]) return true;
    index[i] = 0;
  }
  return false;
}

static inline int64_t naive_offset(int ndim, const int64_t *strides, const int64_t *index) {
  int64_t at = 0;
  for (int i = 0; i < ndim; i++) at += strides[i] * index[i];
  return at;
}

/* Copies element by element, or row by row if the rows of both layouts are contiguous. */
static inline void naive_copy(const naive_layout *dst_layout, void *dst, const naive_layout *src_layout,
                              const void *src, size_t item) {
  const int last = dst_layout->ndim - 1;
  const bool by_rows = last >= 0 && dst_layout->strides[last] == 1 && src_layout->strides[last] == 1;
  const int ndim = by_rows ? last : dst_layout->ndim;
  const size_t bytes = by_rows ? (size_t)dst_layout->shape[last] * item : item;
  int64_t index[8] = {0};
  if (dst_layout->numel == 0) return;
  do {
    int64_t to = naive_offset(ndim, dst_layout->strides, index) * (int64_t)item;
    int64_t from = naive_offset(ndim, src_layout->strides, index) * (int64_t)item;
    memcpy((unsigned char *)dst + to, (const unsigned char *)src + from, bytes);
  } while (naive_step(ndim, dst_layout->shape, index));
}

static inline naive_layout naive_layout_of(const tdict_tensor *t) {
  naive_layout layout = {.ndim = tdict_tensor_ndim(t), .numel = tdict_tensor_numel(t)};
  for (int i = 0; i < layout.ndim; i++) {
    layout.shape[i] = tdict_tensor_shape(t)[i];
    layout.strides[i] = tdict_tensor_strides(t)[i];
  }
  return layout;
}

/* Makes a tensor in plain memory. Its elements are random bytes that depend only on the seed. */
static inline tdict_tensor *naive_tensor(tdict_dtype dtype, int ndim, const int64_t *shape, uint64_t seed) {
  tdict_tensor *t = td_made(tensor, tdict_tensor_empty(dtype, ndim, shape, NULL, &made, err));
  if (tdict_tensor_bytes(t)) td_fill_random(tdict_tensor_data(t), tdict_tensor_bytes(t), seed);
  return t;
}

#endif
