/* The bodies of the kernels. kernels.cu compiles the bodies for GPUs, and host.c compiles them for the host. A unit is
 * some bytes (COPY, FILL, UNPACK), one or four elements (CONVERT) or a position (CHECK). A thread handles its units in
 * batches, except single elements. The loads of different units in a batch do not depend on each other, so their
 * latencies overlap. Pure functions; thread-safe. */
#ifndef TDICT_DEVICE_KERNELS_BODY_H
#define TDICT_DEVICE_KERNELS_BODY_H

#include "core/kernel/number.h"

#ifdef __CUDA__
#define TDICT_GLOBAL __attribute__((address_space(1))) /* global memory, not local or shared memory of the GPU */
#define TDICT_UNROLL _Pragma("unroll")
#else
#define TDICT_GLOBAL
#define TDICT_UNROLL
#endif

/* How a body accesses memory. On a GPU, addresses are pointers. On the host, a function translates each address. */
typedef struct tdict_kernel_env {
#ifdef __CUDA__
  char unused;
#else
  /* Returns the host address of `bytes` bytes at `address`, or NULL if these bytes are not accessible. */
  void *(*at)(void *user, uint64_t address, size_t bytes);
  void *user;
  bool failed; /* an address was not accessible */
#endif
} tdict_kernel_env;

#ifdef __CUDA__
TDICT_BODY TDICT_GLOBAL void *tdict_kernel_at(tdict_kernel_env *env, uint64_t address, unsigned bytes) {
  TDICT_GLOBAL void *at = (TDICT_GLOBAL void *)address;
  (void)env;
  (void)bytes;
  __builtin_assume(at != nullptr); /* removes the callers' comparisons with NULL */
  return at;
}
/* Reads first, because an atomic operation on host memory takes long. */
TDICT_BODY void tdict_kernel_lower(uint64_t *result, uint64_t value) {
  if (result && value < *(volatile uint64_t *)result) (void)__atomic_fetch_min(result, value, __ATOMIC_RELAXED);
}
#else
TDICT_BODY void *tdict_kernel_at(tdict_kernel_env *env, uint64_t address, unsigned bytes) {
  void *found = env->at(env->user, address, bytes);
  if (!found) env->failed = true;
  return found;
}
TDICT_BODY void tdict_kernel_lower(uint64_t *result, uint64_t value) {
  if (result && value < *result) *result = value;
}
#endif

#ifndef __CUDA__
__extension__ typedef unsigned __int128 tdict_u128;
#endif

/* Units of memory. The memory may hold elements of any type. */
typedef uint8_t tdict_unit1;
typedef uint16_t __attribute__((may_alias)) tdict_unit2;
typedef uint32_t __attribute__((may_alias)) tdict_unit4;
typedef uint64_t __attribute__((may_alias)) tdict_unit8;
typedef uint64_t __attribute__((may_alias, vector_size(16))) tdict_unit16;

TDICT_BODY unsigned tdict_form(const uint64_t *layout, int field) {
  return (unsigned)(layout[TDICT_WORD_FORM] >> field) & 0xffu;
}

/* Returns the number of the entry that a block works on: the last entry whose first block is at or before this
 * block. */
TDICT_BODY uint64_t tdict_kernel_find(const uint64_t *table, uint64_t num_entries, uint64_t block) {
  uint64_t low = 0, high = num_entries;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    if (table[TDICT_WORDS_PER_ENTRY * middle + TDICT_ENTRY_BLOCK] <= block)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* Returns the high word of a product. */
TDICT_BODY uint64_t tdict_kernel_multiply_high(uint64_t a, uint64_t b) {
#ifdef __CUDA__
  return __nvvm_mulhi_ull(a, b);
#else
  return (uint64_t)((tdict_u128)a * b >> 64);
#endif
}
/* Divides units by a count with the two words of the count's divider. */
TDICT_BODY uint64_t tdict_kernel_divide(uint64_t units, uint64_t count, const uint64_t *divider) {
  return count == 1 ? units : tdict_kernel_multiply_high(units, divider[0]) >> divider[1];
}

/* Divides like tdict_kernel_divide(). The units and the count must be below 2^32. */
TDICT_BODY uint32_t tdict_kernel_divide_small(uint32_t units, uint32_t count, const uint64_t *divider) {
  const uint64_t low = (uint64_t)units * (uint32_t)divider[0] >> 32;
  const uint64_t high = (uint64_t)units * (uint32_t)(divider[0] >> 32) + low;
  return count == 1 ? units : (uint32_t)(high >> 32) >> divider[1];
}

/* The units of one thread. Batch b has the units first + b * TDICT_KERNEL_BLOCK_UNITS + k * TDICT_KERNEL_THREADS, for k
 * below TDICT_KERNEL_BATCH. */
typedef struct tdict_kernel_span {
  const uint64_t *body, *layout;
  uint64_t dst, src; /* TDICT_ENTRY_DST and TDICT_ENTRY_SRC of the entry */
  uint64_t first;
  uint64_t *result; /* NULL: the entry has no result */
} tdict_kernel_span;

/* Makes the span of a thread of a block. `number` is the number of the block's entry. Does not set `result`. */
TDICT_BODY tdict_kernel_span tdict_kernel_span_of(const uint64_t *table, uint64_t num_entries, uint64_t number,
                                                  uint64_t block, uint64_t thread) {
  const uint64_t *entry = table + TDICT_WORDS_PER_ENTRY * number;
  tdict_kernel_span span;
  span.body = table + TDICT_WORDS_PER_ENTRY * num_entries;
  span.layout = span.body + entry[TDICT_ENTRY_LAYOUT];
  span.dst = entry[TDICT_ENTRY_DST];
  span.src = entry[TDICT_ENTRY_SRC];
  block -= entry[TDICT_ENTRY_BLOCK];
  span.first = block * TDICT_KERNEL_BLOCK_UNITS * tdict_form(span.layout, TDICT_FORM_BATCHES) + thread;
  span.result = 0;
  return span;
}

/* Loops over the batches of a span that have a unit. `at` is this thread's first unit of the batch. */
#define TDICT_EACH_BATCH(span, at)                                                                               \
  for (uint64_t at = (span)->first,                                                                              \
                end_ = at + (uint64_t)TDICT_KERNEL_BLOCK_UNITS * tdict_form((span)->layout, TDICT_FORM_BATCHES); \
       at < end_ && at < (span)->layout[TDICT_WORD_UNITS]; at += TDICT_KERNEL_BLOCK_UNITS)
#define TDICT_EACH_IN_BATCH(k) TDICT_UNROLL for (int k = 0; k < TDICT_KERNEL_BATCH; k++)

/* Returns unit k of a batch. If the entry ends before this unit, returns the first unit of the batch. */
TDICT_BODY uint64_t tdict_kernel_unit(const tdict_kernel_span *span, uint64_t first, int k) {
  const uint64_t unit = first + (uint64_t)k * TDICT_KERNEL_THREADS;
  return unit < span->layout[TDICT_WORD_UNITS] ? unit : first;
}
TDICT_BODY int tdict_kernel_has_unit(const tdict_kernel_span *span, uint64_t first, int k) {
  return first + (uint64_t)k * TDICT_KERNEL_THREADS < span->layout[TDICT_WORD_UNITS];
}

/* Reads position `i` of a list. Returns 0 if the list is not accessible. */
TDICT_BODY int64_t tdict_kernel_position(tdict_kernel_env *env, const uint64_t *body, uint64_t positions, uint64_t i) {
  if (positions & 1) return (int64_t)body[(positions >> 1) + i];
  const TDICT_GLOBAL tdict_unit8 *at = (const TDICT_GLOBAL tdict_unit8 *)tdict_kernel_at(env, positions + 8 * i, 8);
  return at ? (int64_t)*at : 0;
}

/* Returns the number of bytes that a position of a list adds to an address. If the entry is checked and the position is
 * outside its dimension, lowers the result of the entry to `i`, and uses position 0. `i` is the index of the position
 * in the list. */
TDICT_BODY uint64_t tdict_kernel_offset(const tdict_kernel_span *span, const uint64_t *list, int64_t position,
                                        uint64_t i) {
  const uint64_t size = list[1];
  uint64_t at = (uint64_t)position + (position < 0 ? size : 0);
  if (tdict_form(span->layout, TDICT_FORM_FLAGS) & TDICT_FLAG_CHECKED && at >= size) {
    tdict_kernel_lower(span->result, i);
    at = 0;
  }
  return at * list[2];
}

/* The addresses at which a unit is read and written. */
typedef struct tdict_kernel_place {
  uint64_t dst, src;
  uint64_t inner; /* index in the innermost dimension */
} tdict_kernel_place;

/* Computes the place of a unit. `dims` are the words of the entry's dimensions. */
TDICT_BODY tdict_kernel_place tdict_kernel_locate(tdict_kernel_env *env, const tdict_kernel_span *span,
                                                  const uint64_t *dims, uint64_t unit) {
  const unsigned ndim = tdict_form(span->layout, TDICT_FORM_NDIM), listed = tdict_form(span->layout, TDICT_FORM_LISTED);
  const unsigned num_lists = tdict_form(span->layout, TDICT_FORM_LISTS);
  const int scatters = (tdict_form(span->layout, TDICT_FORM_FLAGS) & TDICT_FLAG_SCATTER) != 0;
  tdict_kernel_place place = {span->dst, span->src, 0};
  for (unsigned d = ndim; d-- > 0;) {
    const uint64_t *dim = dims + (uint64_t)TDICT_WORDS_PER_DIM * d;
    uint64_t index = unit, offset = 0;
    if (d > 0) { /* the outermost index needs no division */
      unit = tdict_kernel_divide(unit, dim[0], dim + 3);
      index -= unit * dim[0];
    }
    if (d == ndim - 1) place.inner = index;
    for (unsigned n = 0; n < num_lists && d == listed; n++) {
      const uint64_t *list = dims + (uint64_t)TDICT_WORDS_PER_DIM * ndim + (uint64_t)TDICT_WORDS_PER_LIST * n;
      offset += tdict_kernel_offset(span, list, tdict_kernel_position(env, span->body, list[0], index), index);
    }
    /* On the indexed side, the stride of the listed dimension is 0. */
    place.dst += index * dim[1] + (scatters ? offset : 0);
    place.src += index * dim[2] + (scatters ? 0 : offset);
  }
  return place;
}

typedef struct tdict_kernel_batch {
  tdict_kernel_place at[TDICT_KERNEL_BATCH];
} tdict_kernel_batch;

/* Computes the places of a batch of an entry with TDICT_FLAG_ROWS. */
TDICT_BODY void tdict_kernel_locate_rows(tdict_kernel_env *env, const tdict_kernel_span *span, const uint64_t *dims,
                                         uint64_t first, tdict_kernel_batch *batch) {
  const unsigned ndim = tdict_form(span->layout, TDICT_FORM_NDIM), listed = tdict_form(span->layout, TDICT_FORM_LISTED);
  const int scatters = (tdict_form(span->layout, TDICT_FORM_FLAGS) & TDICT_FLAG_SCATTER) != 0;
  const uint64_t *inner = dims + TDICT_WORDS_PER_DIM, *list = dims + (uint64_t)TDICT_WORDS_PER_DIM * ndim;
  const uint32_t count = ndim == 2 ? (uint32_t)inner[0] : 1;
  uint32_t row[TDICT_KERNEL_BATCH], column[TDICT_KERNEL_BATCH];
  int64_t position[TDICT_KERNEL_BATCH];
  TDICT_EACH_IN_BATCH(k) {
    const uint32_t unit = (uint32_t)tdict_kernel_unit(span, first, k);
    row[k] = ndim == 2 ? tdict_kernel_divide_small(unit, count, inner + 3) : unit;
    column[k] = unit - row[k] * count;
  }
  if (listed != TDICT_FORM_NO_LIST) TDICT_EACH_IN_BATCH(k)
  position[k] = tdict_kernel_position(env, span->body, list[0], listed ? column[k] : row[k]);
  TDICT_EACH_IN_BATCH(k) {
    tdict_kernel_place *p = &batch->at[k];
    p->dst = span->dst + row[k] * dims[1];
    p->src = span->src + row[k] * dims[2];
    p->inner = ndim == 2 ? column[k] : row[k];
    if (ndim == 2) {
      p->dst += column[k] * inner[1];
      p->src += column[k] * inner[2];
    }
    if (listed == TDICT_FORM_NO_LIST) continue;
    const uint64_t offset = tdict_kernel_offset(span, list, position[k], listed ? column[k] : row[k]);
    p->dst += scatters ? offset : 0;
    p->src += scatters ? 0 : offset;
  }
}

/* Computes the places of a batch. */
TDICT_BODY void tdict_kernel_locate_batch(tdict_kernel_env *env, const tdict_kernel_span *span, const uint64_t *dims,
                                          uint64_t first, tdict_kernel_batch *batch) {
  if (tdict_form(span->layout, TDICT_FORM_FLAGS) & TDICT_FLAG_ROWS) {
    tdict_kernel_locate_rows(env, span, dims, first, batch);
    return;
  }
  TDICT_EACH_IN_BATCH(k) batch->at[k].dst = batch->at[k].src = batch->at[k].inner = 0;
  /* This loop is not unrolled, because its code is long. A GPU keeps the batch in registers only if all indices are
   * constants. Each iteration therefore moves all places by one and writes the last place. */
  for (int k = 0; k < TDICT_KERNEL_BATCH; k++) {
    TDICT_UNROLL for (int to = 1; to < TDICT_KERNEL_BATCH; to++) batch->at[to - 1] = batch->at[to];
    batch->at[TDICT_KERNEL_BATCH - 1] = tdict_kernel_locate(env, span, dims, tdict_kernel_unit(span, first, k));
  }
}

/* Checks positions of the lists of an entry: the positions `first`, `first` + `step` and so on. Lowers the result of
 * the entry to the index of a position outside its dimension. Returns 1 if there is such a position. */
TDICT_BODY int tdict_kernel_finds_bad(tdict_kernel_env *env, const tdict_kernel_span *span, uint64_t first,
                                      uint64_t step) {
  const unsigned ndim = tdict_form(span->layout, TDICT_FORM_NDIM), listed = tdict_form(span->layout, TDICT_FORM_LISTED);
  const uint64_t *dims = span->layout + TDICT_COPY_DIMS, count = dims[TDICT_WORDS_PER_DIM * listed];
  int found = 0;
  for (unsigned n = 0; n < tdict_form(span->layout, TDICT_FORM_LISTS); n++) {
    const uint64_t *list = dims + (uint64_t)TDICT_WORDS_PER_DIM * ndim + (uint64_t)TDICT_WORDS_PER_LIST * n;
    for (uint64_t at = first; at < count; at += step * TDICT_KERNEL_BATCH) {
      uint64_t unit[TDICT_KERNEL_BATCH];
      int64_t position[TDICT_KERNEL_BATCH];
      TDICT_EACH_IN_BATCH(k) {
        unit[k] = at + (uint64_t)k * step < count ? at + (uint64_t)k * step : at;
        position[k] = tdict_kernel_position(env, span->body, list[0], unit[k]);
      }
      TDICT_EACH_IN_BATCH(k) {
        if ((uint64_t)position[k] + (position[k] < 0 ? list[1] : 0) < list[1]) continue;
        tdict_kernel_lower(span->result, unit[k]);
        found = 1;
      }
    }
  }
  return found;
}

/* Returns true if all positions of the entry must be checked before the copy. */
TDICT_BODY int tdict_kernel_is_guarded(const tdict_kernel_span *span) {
  return (tdict_form(span->layout, TDICT_FORM_FLAGS) & TDICT_FLAG_GUARDED) != 0;
}

/* Copies the units of a batch. */
#define TDICT_COPY_BATCH(type)                                                                                       \
  {                                                                                                                  \
    type value[TDICT_KERNEL_BATCH];                                                                                  \
    TDICT_EACH_IN_BATCH(k) {                                                                                         \
      const TDICT_GLOBAL type *src = (const TDICT_GLOBAL type *)tdict_kernel_at(env, batch.at[k].src, sizeof(type)); \
      if (!src) return;                                                                                              \
      value[k] = *src;                                                                                               \
    }                                                                                                                \
    TDICT_EACH_IN_BATCH(k) {                                                                                         \
      if (!tdict_kernel_has_unit(span, at, k)) continue;                                                             \
      TDICT_GLOBAL type *dst = (TDICT_GLOBAL type *)tdict_kernel_at(env, batch.at[k].dst, sizeof(type));             \
      if (dst) *dst = value[k];                                                                                      \
    }                                                                                                                \
    break;                                                                                                           \
  }

TDICT_BODY void tdict_kernel_copy(tdict_kernel_env *env, const tdict_kernel_span *span) {
  const unsigned width = tdict_form(span->layout, TDICT_FORM_WIDTH);
  TDICT_EACH_BATCH(span, at) {
    tdict_kernel_batch batch;
    tdict_kernel_locate_batch(env, span, span->layout + TDICT_COPY_DIMS, at, &batch);
    switch (width) {
    case 1:
      TDICT_COPY_BATCH(tdict_unit1)
    case 2:
      TDICT_COPY_BATCH(tdict_unit2)
    case 4:
      TDICT_COPY_BATCH(tdict_unit4)
    case 8:
      TDICT_COPY_BATCH(tdict_unit8)
    default:
      TDICT_COPY_BATCH(tdict_unit16)
    }
  }
}

/* Writes a unit of at most 8 bytes. The low bytes of `bits` are the unit. */
#define TDICT_FILL_UNIT(type)                                                                  \
  {                                                                                            \
    TDICT_GLOBAL type *dst = (TDICT_GLOBAL type *)tdict_kernel_at(env, address, sizeof(type)); \
    if (dst) *dst = (type)bits;                                                                \
    break;                                                                                     \
  }

/* Writes unit `index` of a pattern to an address. */
TDICT_BODY void tdict_kernel_fill_unit(tdict_kernel_env *env, uint64_t address, unsigned width, const uint64_t *pattern,
                                       unsigned index) {
  const uint64_t bits = pattern[index * width / 8] >> index * width % 8 * 8;
  switch (width) {
  case 1:
    TDICT_FILL_UNIT(tdict_unit1)
  case 2:
    TDICT_FILL_UNIT(tdict_unit2)
  case 4:
    TDICT_FILL_UNIT(tdict_unit4)
  case 8:
    TDICT_FILL_UNIT(tdict_unit8)
  default: {
    TDICT_GLOBAL tdict_unit16 *dst = (TDICT_GLOBAL tdict_unit16 *)tdict_kernel_at(env, address, sizeof *dst);
    const tdict_unit16 item = {pattern[0], pattern[1]};
    if (dst) *dst = item;
  }
  }
}

TDICT_BODY void tdict_kernel_fill(tdict_kernel_env *env, const tdict_kernel_span *span) {
  const unsigned width = tdict_form(span->layout, TDICT_FORM_WIDTH);
  const uint64_t *period = span->layout + TDICT_FILL_PERIOD;
  TDICT_EACH_BATCH(span, at) {
    tdict_kernel_batch batch;
    tdict_kernel_locate_batch(env, span, span->layout + TDICT_FILL_DIMS, at, &batch);
    TDICT_EACH_IN_BATCH(k) {
      if (!tdict_kernel_has_unit(span, at, k)) continue;
      const uint64_t repeats = tdict_kernel_divide(batch.at[k].inner, period[0], period + 1);
      const unsigned index = (unsigned)(batch.at[k].inner - repeats * period[0]);
      tdict_kernel_fill_unit(env, batch.at[k].dst, width, span->layout + TDICT_FILL_PATTERN, index);
    }
  }
}

TDICT_BODY void tdict_kernel_check(tdict_kernel_env *env, const tdict_kernel_span *span) {
  const int64_t size = (int64_t)span->layout[TDICT_CHECK_SIZE];
  TDICT_EACH_BATCH(span, at) {
    int64_t position[TDICT_KERNEL_BATCH];
    TDICT_EACH_IN_BATCH(k)
    position[k] = tdict_kernel_position(env, span->body, span->src, tdict_kernel_unit(span, at, k));
    TDICT_EACH_IN_BATCH(k)
    if (position[k] < -size || position[k] >= size) tdict_kernel_lower(span->result, tdict_kernel_unit(span, at, k));
  }
}

#endif
