/* The bodies of the kernels. kernels.cu compiles the bodies for GPUs, and host.c compiles them for the host. A body
 * handles one unit: some bytes (COPY, FILL, UNPACK), an element (CONVERT) or a position (CHECK). Pure functions;
 * thread-safe. */
#ifndef TDICT_KERNEL_BODY_H
#define TDICT_KERNEL_BODY_H

#include "kernel/words.h"

#ifdef __CUDA__
#define TDICT_BODY static inline __attribute__((device, always_inline))
#else
#define TDICT_BODY static inline __attribute__((always_inline))
#endif

/* How a body accesses memory. On a GPU, addresses are pointers. On the host, a function translates each address. */
typedef struct tdict_kernel_env {
#ifdef __CUDA__
  char unused;
#else
  /* Returns the host address of `bytes` bytes, or NULL if they are not accessible. */
  void *(*at)(void *user, uint64_t address, size_t bytes);
  void *user;
  bool failed; /* an address was not accessible */
#endif
} tdict_kernel_env;

#ifdef __CUDA__
TDICT_BODY void *tdict_kernel_at(tdict_kernel_env *env, uint64_t address, unsigned bytes) {
  (void)env;
  (void)bytes;
  return (void *)address;
}
TDICT_BODY void tdict_kernel_lower(uint64_t *result, uint64_t value) {
  (void)__atomic_fetch_min(result, value, __ATOMIC_RELAXED);
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

/* Units of memory. Any type may be behind them. */
typedef uint8_t tdict_unit1;
typedef uint16_t __attribute__((may_alias)) tdict_unit2;
typedef uint32_t __attribute__((may_alias)) tdict_unit4;
typedef uint64_t __attribute__((may_alias)) tdict_unit8;
typedef uint64_t __attribute__((may_alias, vector_size(16))) tdict_unit16;

TDICT_BODY unsigned tdict_form(const uint64_t *entry, int field) {
  return (unsigned)(entry[TDICT_WORD_FORM] >> field) & 0xffu;
}

/* Returns the number of the entry that a block works on: the last entry whose first block is not after the block. */
TDICT_BODY uint64_t tdict_kernel_find(const uint64_t *table, uint64_t num_entries, uint64_t block) {
  uint64_t low = 0, high = num_entries;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    if (table[2 * middle] <= block)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* Reads position `i` of a list. Returns 0 if the list is not accessible. */
TDICT_BODY int64_t tdict_kernel_position(tdict_kernel_env *env, const uint64_t *body, uint64_t positions, uint64_t i) {
  if (positions & 1) return (int64_t)body[(positions >> 1) + i];
  const tdict_unit8 *at = (const tdict_unit8 *)tdict_kernel_at(env, positions + 8 * i, 8);
  return at ? (int64_t)*at : 0;
}

/* Returns the bytes that the lists of an entry add for index `i` of the listed dimension. */
TDICT_BODY uint64_t tdict_kernel_offset(tdict_kernel_env *env, const uint64_t *body, const uint64_t *lists,
                                        unsigned num_lists, uint64_t i) {
  uint64_t offset = 0;
  for (unsigned k = 0; k < num_lists; k++) {
    const uint64_t *list = lists + TDICT_WORDS_PER_LIST * k;
    const int64_t position = tdict_kernel_position(env, body, list[0], i);
    offset += ((uint64_t)position + (position < 0 ? list[1] : 0)) * list[2];
  }
  return offset;
}

/* Where a unit is read and written. */
typedef struct tdict_kernel_place {
  uint64_t dst, src;
  uint64_t inner; /* index in the innermost dimension */
} tdict_kernel_place;

/* Computes the place of a unit. `dims` are the words of the entry's dimensions. */
TDICT_BODY tdict_kernel_place tdict_kernel_locate(tdict_kernel_env *env, const uint64_t *body, const uint64_t *entry,
                                                  const uint64_t *dims, uint64_t unit) {
  const unsigned ndim = tdict_form(entry, TDICT_FORM_NDIM), listed = tdict_form(entry, TDICT_FORM_LISTED);
  tdict_kernel_place place = {entry[TDICT_WORD_DST], entry[TDICT_WORD_SRC], 0};
  for (unsigned d = ndim; d-- > 0;) {
    const uint64_t *dim = dims + TDICT_WORDS_PER_DIM * d;
    uint64_t index = unit, to, from;
    if (d > 0) { /* the outermost index needs no division */
      unit /= dim[0];
      index -= unit * dim[0];
    }
    if (d == ndim - 1) place.inner = index;
    to = index * dim[1];
    from = index * dim[2];
    if (d == listed) {
      const uint64_t offset =
          tdict_kernel_offset(env, body, dims + TDICT_WORDS_PER_DIM * ndim, tdict_form(entry, TDICT_FORM_LISTS), index);
      if (tdict_form(entry, TDICT_FORM_SCATTER))
        to = offset;
      else
        from = offset;
    }
    place.dst += to;
    place.src += from;
  }
  return place;
}

/* The units of one thread: first, first + TDICT_KERNEL_THREADS, and so on, up to TDICT_KERNEL_THREAD_UNITS units. */
typedef struct tdict_kernel_span {
  const uint64_t *body, *entry;
  uint64_t first;
  uint64_t *result; /* NULL: the entry has no result */
} tdict_kernel_span;

#define TDICT_EACH_UNIT(span, unit)                                      \
  for (uint64_t unit = (span)->first, left_ = TDICT_KERNEL_THREAD_UNITS; \
       left_ > 0 && unit < (span)->entry[TDICT_WORD_UNITS]; unit += TDICT_KERNEL_THREADS, left_--)

/* Copies a unit. */
#define TDICT_COPY_UNIT(type)                                                  \
  {                                                                            \
    type *dst = (type *)tdict_kernel_at(env, p.dst, sizeof(type));             \
    const type *src = (const type *)tdict_kernel_at(env, p.src, sizeof(type)); \
    if (dst && src) *dst = *src;                                               \
    break;                                                                     \
  }

TDICT_BODY void tdict_kernel_copy(tdict_kernel_env *env, const tdict_kernel_span *span) {
  const unsigned width = tdict_form(span->entry, TDICT_FORM_WIDTH);
  TDICT_EACH_UNIT(span, unit) {
    const tdict_kernel_place p = tdict_kernel_locate(env, span->body, span->entry, span->entry + TDICT_COPY_DIMS, unit);
    switch (width) {
    case 1:
      TDICT_COPY_UNIT(tdict_unit1)
    case 2:
      TDICT_COPY_UNIT(tdict_unit2)
    case 4:
      TDICT_COPY_UNIT(tdict_unit4)
    case 8:
      TDICT_COPY_UNIT(tdict_unit8)
    default:
      TDICT_COPY_UNIT(tdict_unit16)
    }
  }
}

/* Writes a unit of at most 8 bytes. `bits` begins with the unit. */
#define TDICT_FILL_UNIT(type)                                      \
  {                                                                \
    type *dst = (type *)tdict_kernel_at(env, p.dst, sizeof(type)); \
    if (dst) *dst = (type)bits;                                    \
    break;                                                         \
  }

TDICT_BODY void tdict_kernel_fill(tdict_kernel_env *env, const tdict_kernel_span *span) {
  const unsigned width = tdict_form(span->entry, TDICT_FORM_WIDTH);
  const uint64_t *pattern = span->entry + TDICT_FILL_PATTERN;
  TDICT_EACH_UNIT(span, unit) {
    const tdict_kernel_place p = tdict_kernel_locate(env, span->body, span->entry, span->entry + TDICT_FILL_DIMS, unit);
    const unsigned byte = (unsigned)(p.inner % span->entry[TDICT_FILL_PERIOD]) * width;
    const uint64_t bits = pattern[byte / 8] >> byte % 8 * 8;
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
      tdict_unit16 *dst = (tdict_unit16 *)tdict_kernel_at(env, p.dst, sizeof *dst);
      const tdict_unit16 item = {pattern[0], pattern[1]};
      if (dst) *dst = item;
    }
    }
  }
}

TDICT_BODY void tdict_kernel_check(tdict_kernel_env *env, const tdict_kernel_span *span) {
  const int64_t size = (int64_t)span->entry[TDICT_CHECK_SIZE];
  TDICT_EACH_UNIT(span, unit) {
    const int64_t position = tdict_kernel_position(env, span->body, span->entry[TDICT_WORD_SRC], unit);
    if (position < -size || position >= size) tdict_kernel_lower(span->result, unit);
  }
}

#endif
