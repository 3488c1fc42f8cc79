/* Reads lists and masks. See positions.h for ownership and threads. */
#include "core/ops/index/positions.h"

#include <string.h>

/* A mask in one piece is read in blocks of BLOCK elements. */
enum { BLOCK = 64, VECTOR = 16, MOST_ADDED = 255 };

int64_t tdict_positions_read(int64_t *to, const int64_t *from, int64_t count, int64_t step, int64_t size) {
  uint64_t outside = 0; /* the highest bit: a position is outside the dimension */
  for (int64_t i = 0; i < count; i++) {
    const int64_t at = from[i * step], found = at + (at < 0 ? size : 0);
    to[i] = found;
    outside |= (uint64_t)found | ((uint64_t)size - 1 - (uint64_t)found);
  }
  if ((int64_t)outside >= 0) return -1;
  int64_t bad = 0;
  while (to[bad] >= 0 && to[bad] < size) bad++;
  return bad;
}

/* Returns a bit for each of BLOCK elements: 1 if the element is not 0. */
#ifdef __SSE2__
#include <emmintrin.h>
static uint64_t find_bits(const unsigned char *mask) {
  const __m128i zero = _mm_setzero_si128();
  uint64_t zeros = 0;
  for (int i = 0; i < BLOCK; i += VECTOR) {
    const __m128i part = _mm_loadu_si128((const __m128i *)(const void *)(mask + i));
    zeros |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(part, zero)) << i;
  }
  return ~zeros;
}
#else
static uint64_t find_bits(const unsigned char *mask) {
  uint64_t bits = 0;
  for (int i = 0; i < BLOCK; i++) bits |= (uint64_t)(mask[i] != 0) << i;
  return bits;
}
#endif

/* Returns the number of elements that are not 0 in a part of a mask. The elements are adjacent. */
static int64_t count_adjacent(const unsigned char *mask, int64_t count) {
  typedef unsigned char vector __attribute__((vector_size(VECTOR)));
  const int64_t whole = count / VECTOR * VECTOR;
  int64_t i = 0, zeros = 0;
  while (i < whole) {
    vector sums = {0}; /* each sum counts zeros, and has room for MOST_ADDED */
    const int64_t end = whole - i > MOST_ADDED * VECTOR ? i + MOST_ADDED * VECTOR : whole;
    for (; i < end; i += VECTOR) {
      vector part;
      memcpy(&part, mask + i, VECTOR);
      sums -= (vector)(part == 0); /* subtracts -1 for each zero */
    }
    for (int k = 0; k < VECTOR; k++) zeros += sums[k];
  }
  for (; i < count; i++) zeros += mask[i] == 0;
  return count - zeros;
}

/* Writes the positions of the elements of a mask that are not 0. The elements are adjacent. Writes groups of positions
 * without a branch for each of them, since a branch on random bits is often predicted wrongly. */
static void find_adjacent(const unsigned char *mask, int64_t count, int64_t *positions) {
  int64_t i = 0;
  for (; count - i >= BLOCK; i += BLOCK) {
    uint64_t bits = find_bits(mask + i);
    int64_t *group = positions;
    positions += __builtin_popcountll(bits);
    while (group < positions) {
#pragma GCC unroll 8
      for (int k = 0; k < TDICT_POSITIONS_SLACK; k++) {
        *group++ = i + __builtin_ctzll(bits | (uint64_t)1 << (BLOCK - 1));
        bits &= bits - 1;
      }
    }
  }
  for (; i < count; i++) {
    *positions = i;
    positions += mask[i] != 0;
  }
}

/* Returns the number of elements of a mask row that are not 0. Writes the position of each such element to row[0],
 * row[dims], row[2 * dims] and so on. If `row` is NULL, only counts. Skips 8 zero bytes at a time if the row is
 * contiguous. */
static int64_t scan_row(const unsigned char *mask, int64_t count, int64_t stride, int64_t *row, int dims) {
  int64_t found = 0;
  for (int64_t i = 0; i < count; i++) {
    uint64_t word = 1;
    if (stride == 1 && count - i >= (int64_t)sizeof word) memcpy(&word, mask + i, sizeof word);
    if (word == 0) i += (int64_t)sizeof word - 1;
    if (!mask[i * stride]) continue;
    if (row) row[found * dims] = i;
    found++;
  }
  return found;
}

/* Returns the number of elements of a mask of any layout that are not 0. Writes the positions of these elements. If
 * `positions` is NULL, only counts. */
static int64_t scan_mask(const tdict_tensor *mask, int64_t *positions) {
  const int64_t *strides = tdict_tensor_dims_strides(mask);
  const int dims = mask->ndim, last = dims - 1;
  int64_t at[TDICT_MAX_NDIM] = {0}, found = 0;
  for (int64_t left = mask->numel; left > 0; left -= mask->dims[last]) {
    const unsigned char *row = mask->data;
    for (int d = 0; d < last; d++) row += at[d] * strides[d];
    int64_t *to = positions ? positions + found * dims : NULL;
    int64_t found_in_row = scan_row(row, mask->dims[last], strides[last], to ? to + last : NULL, dims);
    for (int64_t i = 0; to && i < found_in_row; i++)
      for (int d = 0; d < last; d++) to[i * dims + d] = at[d];
    found += found_in_row;
    for (int d = last - 1; d >= 0 && ++at[d] == mask->dims[d]; d--) at[d] = 0;
  }
  return found;
}

int64_t tdict_mask_count(const tdict_tensor *mask) {
  return tdict_tensor_is_contiguous(mask) ? count_adjacent(mask->data, mask->numel) : scan_mask(mask, NULL);
}

void tdict_mask_positions(const tdict_tensor *mask, int64_t *positions) {
  if (mask->ndim == 1 && tdict_tensor_is_contiguous(mask))
    find_adjacent(mask->data, mask->numel, positions);
  else
    (void)scan_mask(mask, positions);
}
