/* A plain model of tensors and trees: bytes in host memory, with elements located by their index. Views share the bytes
 * of their tensor, as in the library. The model uses no library code. Thread rule: one thread. */
#ifndef TDICT_TESTS_CORE_OPS_DEVICE_PLAIN_H
#define TDICT_TESTS_CORE_OPS_DEVICE_PLAIN_H

#include "core/tensor/naive_convert.h"
#include "support/random.h"
#include "support/test.h"

enum { PLAIN_DIMS = 14, PLAIN_LEAVES = 5, PLAIN_ITEM = 32 /* bytes of the largest element */ };

/* The bytes of one storage, or of a part of a storage that no other tensor uses. */
typedef struct plain_bytes {
  int refs;
  bool has_loose_nans; /* NaNs may have any payload, because a conversion wrote them */
  unsigned char *at;
} plain_bytes;
typedef struct plain_array {
  plain_bytes *bytes;
  int64_t first; /* offset of the element whose indices are all 0, in bytes */
  tdict_dtype dtype;
  int ndim;
  int64_t shape[PLAIN_DIMS], strides[PLAIN_DIMS]; /* strides in bytes */
  bool on_host;
} plain_array;

/* A tree with some or all of five leaves. Leaf 2 is in a child tree with one more batch dimension. */
static const char *const plain_paths[PLAIN_LEAVES] = {"a", "n.b", "n.m.c", "d", "e"};
typedef struct plain_tree {
  int nb;
  int64_t bs[PLAIN_DIMS];
  int64_t more; /* size of the additional batch dimension */
  bool has[PLAIN_LEAVES];
  plain_array leaf[PLAIN_LEAVES];
} plain_tree;

static inline size_t plain_item(tdict_dtype dtype) { return (size_t)((dtype >> 8 & 0xff) * (dtype >> 16)) / 8; }

static inline int64_t plain_count(int ndim, const int64_t *shape) {
  int64_t count = 1;
  for (int d = 0; d < ndim; d++) count *= shape[d];
  return count;
}

/* Sets the index to the next element in C order. Returns false after the last element. */
static inline bool plain_next(int ndim, const int64_t *shape, int64_t *index) {
  for (int d = ndim - 1; d >= 0; d--) {
    if (++index[d] < shape[d]) return true;
    index[d] = 0;
  }
  return false;
}
/* Loops over the indices of a shape in C order. */
#define PLAIN_EACH(ndim_, shape_, index_)                                  \
  int64_t index_[PLAIN_DIMS] = {0};                                        \
  for (bool more_##index_ = plain_count(ndim_, shape_) > 0; more_##index_; \
       more_##index_ = plain_next(ndim_, shape_, index_))

static inline unsigned char *plain_at(const plain_array *a, const int64_t *index) {
  int64_t offset = a->first;
  for (int d = 0; d < a->ndim; d++) offset += index[d] * a->strides[d];
  return a->bytes->at + offset;
}

/* Makes an array in C order. The bytes are uninitialized. */
static inline plain_array plain_new(tdict_dtype dtype, int ndim, const int64_t *shape, bool on_host) {
  plain_array a = {.dtype = dtype, .ndim = ndim, .on_host = on_host};
  int64_t step = (int64_t)plain_item(dtype);
  for (int d = ndim; d-- > 0;) {
    a.shape[d] = shape[d];
    a.strides[d] = step;
    step *= shape[d];
  }
  a.bytes = td_zeros(1, sizeof *a.bytes);
  a.bytes->refs = 1;
  a.bytes->at = td_alloc((size_t)step + 1);
  return a;
}
static inline plain_array plain_share(const plain_array *a) {
  a->bytes->refs++;
  return *a;
}
static inline void plain_drop(plain_array *a) {
  if (--a->bytes->refs > 0) return;
  free(a->bytes->at);
  free(a->bytes);
}
static inline void plain_tree_drop(plain_tree *p) {
  for (int i = 0; i < PLAIN_LEAVES; i++)
    if (p->has[i]) plain_drop(&p->leaf[i]);
  memset(p, 0, sizeof *p);
}

static inline void plain_copy_element(plain_array *dst, const int64_t *to, const plain_array *src,
                                      const int64_t *from) {
  memmove(plain_at(dst, to), plain_at(src, from), plain_item(dst->dtype));
  dst->bytes->has_loose_nans |= src->bytes->has_loose_nans;
}
/* Copies all elements. The arrays must have the same shape. */
static inline void plain_copy(plain_array *dst, const plain_array *src) {
  PLAIN_EACH(dst->ndim, dst->shape, i) plain_copy_element(dst, i, src, i);
}
static inline plain_array plain_clone(const plain_array *a) {
  plain_array made = plain_new(a->dtype, a->ndim, a->shape, a->on_host);
  plain_copy(&made, a);
  return made;
}

static inline bool plain_is_contiguous(const plain_array *a) {
  int64_t step = (int64_t)plain_item(a->dtype);
  if (plain_count(a->ndim, a->shape) == 0) return true;
  for (int d = a->ndim; d-- > 0; step *= a->shape[d])
    if (a->shape[d] != 1 && a->strides[d] != step) return false;
  return true;
}
/* Returns true if elements of a leaf share an address. */
static inline bool plain_repeats(const plain_tree *p) {
  for (int i = 0; i < PLAIN_LEAVES; i++)
    for (int d = 0; p->has[i] && d < p->leaf[i].ndim; d++)
      if (p->leaf[i].strides[d] == 0 && p->leaf[i].shape[d] > 1) return true;
  return false;
}
static inline int64_t plain_total(const plain_tree *p) {
  int64_t total = 0;
  for (int i = 0; i < PLAIN_LEAVES; i++)
    if (p->has[i]) total += plain_count(p->leaf[i].ndim, p->leaf[i].shape);
  return total;
}

/* Describes a dtype, or the two parts of a complex dtype. plain_parts() returns NULL if the dtype has several lanes. */
static inline bool plain_is_complex(tdict_dtype dtype) { return dtype == TDICT_C64 || dtype == TDICT_C128; }
static inline const naive_dtype *plain_parts(tdict_dtype dtype) {
  if (dtype == TDICT_C64) return naive_find(TDICT_F32);
  if (dtype == TDICT_C128) return naive_find(TDICT_F64);
  for (int i = 0; i < NAIVE_DTYPES; i++)
    if (naive_dtypes[i].dtype == dtype) return &naive_dtypes[i];
  return NULL;
}
static inline bool plain_is_float(tdict_dtype dtype) {
  const naive_dtype *d = plain_parts(dtype);
  return d && d->kind == 'f' && !plain_is_complex(dtype);
}
static inline bool plain_converts(tdict_dtype to, tdict_dtype from) {
  return plain_parts(to) && plain_parts(from) && (plain_is_complex(to) || !plain_is_complex(from));
}
/* Converts an element. Returns false if the destination cannot hold the number. */
static inline bool plain_convert(tdict_dtype to, void *dst, tdict_dtype from, const void *src) {
  const naive_dtype *t = plain_parts(to), *f = plain_parts(from);
  for (int part = 0; part <= plain_is_complex(to); part++) {
    uint64_t bits = 0, from_bits = part == 0 || plain_is_complex(from) ? naive_load(f, src, (size_t)part) : 0;
    if (part && !plain_is_complex(from)) /* the source is real, so the imaginary part is 0 */
      bits = 0;
    else if (!naive_convert(t, f, from_bits, &bits))
      return false;
    naive_store(t, dst, (size_t)part, bits);
  }
  return true;
}
/* Returns true if the bits are equal, or differ only in payloads of NaNs that a conversion may have changed. */
static inline bool plain_equal(const plain_array *a, const void *x, const void *y) {
  const naive_dtype *d = plain_parts(a->dtype);
  if (memcmp(x, y, plain_item(a->dtype)) == 0) return true;
  if (!a->bytes->has_loose_nans || !d) return false;
  for (size_t part = 0; part <= (size_t)plain_is_complex(a->dtype); part++)
    if (!naive_equal(d, naive_load(d, x, part), naive_load(d, y, part))) return false;
  return true;
}

#endif
