/* Copies rows of bytes, and fills memory with an element. Owns nothing. Thread rule: see layout.h. */
#include "core/tensor/layout.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Up to MAX_PIECES pieces of a row are held in registers. A longer row is copied by memmove(). */
enum { PIECE = 16, MAX_PIECES = 8, MAX_SHORT_ROW = PIECE * MAX_PIECES };

/* A register with a piece of a row, of any of the sizes 1, 2, 4, 8 and PIECE. */
typedef struct piece {
  unsigned char bytes[PIECE] __attribute__((aligned(PIECE)));
} piece;

/* Copies a row as `count` pieces of `size` bytes, where both are constants. The last piece ends at the end of the row
 * and overlaps the piece before, unless `width` is a multiple of `size`. If `count` is 0, calls memmove(). Overlapping
 * rows give unspecified bytes, but no undefined behaviour. */
INLINE void copy_row(uintptr_t to, uintptr_t from, size_t width, size_t count, size_t size) {
  piece p[MAX_PIECES];
  if (count == 0) {
    memmove((void *)to, (const void *)from, width);
    return;
  }
#pragma GCC unroll 8
  for (size_t k = 0; k < count; k++)
    memcpy(p[k].bytes, (const void *)(from + (k + 1 < count ? k * size : width - size)), size);
#pragma GCC unroll 8
  for (size_t k = 0; k < count; k++) memcpy((void *)(to + (k + 1 < count ? k * size : width - size)), p[k].bytes, size);
}

/* Calls copy(first, second, third, width, count, size) with constants for short rows, because a call of memmove() would
 * take longer than the copy of a short row. */
#define COPY_BY_WIDTH(copy, width, ...)                                  \
  switch ((width) > MAX_SHORT_ROW ? 0 : ((width) + PIECE - 1) / PIECE) { \
  case 1:                                                                \
    COPY_UP_TO_PIECE(copy, width, __VA_ARGS__);                          \
    break;                                                               \
  case 2:                                                                \
    copy(__VA_ARGS__, width, 2, PIECE);                                  \
    break;                                                               \
  case 3:                                                                \
    copy(__VA_ARGS__, width, 3, PIECE);                                  \
    break;                                                               \
  case 4:                                                                \
    copy(__VA_ARGS__, width, 4, PIECE);                                  \
    break;                                                               \
  case 5:                                                                \
    copy(__VA_ARGS__, width, 5, PIECE);                                  \
    break;                                                               \
  case 6:                                                                \
    copy(__VA_ARGS__, width, 6, PIECE);                                  \
    break;                                                               \
  case 7:                                                                \
    copy(__VA_ARGS__, width, 7, PIECE);                                  \
    break;                                                               \
  case 8:                                                                \
    copy(__VA_ARGS__, width, 8, PIECE);                                  \
    break;                                                               \
  default:                                                               \
    copy(__VA_ARGS__, width, 0, 0);                                      \
  }
#define COPY_UP_TO_PIECE(copy, width, ...)          \
  ((width) == 4    ? copy(__VA_ARGS__, 4, 1, 4)     \
   : (width) == 8  ? copy(__VA_ARGS__, 8, 1, 8)     \
   : (width) == 1  ? copy(__VA_ARGS__, 1, 1, 1)     \
   : (width) == 2  ? copy(__VA_ARGS__, 2, 1, 2)     \
   : (width) == 16 ? copy(__VA_ARGS__, 16, 1, 16)   \
   : (width) > 8   ? copy(__VA_ARGS__, width, 2, 8) \
   : (width) > 4   ? copy(__VA_ARGS__, width, 2, 4) \
                   : copy(__VA_ARGS__, width, 2, 2))

INLINE void read_rows(uintptr_t to, uintptr_t from, const tdict_rows *rows, size_t width, size_t count, size_t size) {
  const int64_t *at = rows->positions;
  const uintptr_t pitch = (uintptr_t)rows->pitch, step = (uintptr_t)rows->step;
  const int64_t *const end = at + rows->count;
  if (count == 1)
#pragma GCC unroll 4
    for (; at < end; at++, to += step) copy_row(to, from + (uintptr_t)*at * pitch, width, count, size);
  else
    for (; at < end; at++, to += step) copy_row(to, from + (uintptr_t)*at * pitch, width, count, size);
}

INLINE void write_rows(uintptr_t to, uintptr_t from, const tdict_rows *rows, size_t width, size_t count, size_t size) {
  const int64_t *at = rows->positions;
  const uintptr_t pitch = (uintptr_t)rows->pitch, step = (uintptr_t)rows->step;
  const int64_t *const end = at + rows->count;
  if (count == 1)
#pragma GCC unroll 4
    for (; at < end; at++, from += step) copy_row(to + (uintptr_t)*at * pitch, from, width, count, size);
  else
    for (; at < end; at++, from += step) copy_row(to + (uintptr_t)*at * pitch, from, width, count, size);
}

INLINE void copy_rect(uintptr_t to, uintptr_t from, const tdict_rect *rect, size_t width, size_t count, size_t size) {
  for (size_t i = 0; i < rect->height; i++) {
    copy_row(to, from, width, count, size);
    to += (uintptr_t)rect->dst_pitch, from += (uintptr_t)rect->src_pitch;
  }
}

void tdict_rows_read(void *dst, const void *src, const tdict_rows *rows, size_t width) {
  COPY_BY_WIDTH(read_rows, width, (uintptr_t)dst, (uintptr_t)src, rows);
}

void tdict_rows_write(void *dst, const void *src, const tdict_rows *rows, size_t width) {
  COPY_BY_WIDTH(write_rows, width, (uintptr_t)dst, (uintptr_t)src, rows);
}

void tdict_rect_copy(const tdict_rect *rect) {
  const size_t width = rect->width;
  if (rect->height == 1 || (rect->dst_pitch == (int64_t)width && rect->src_pitch == (int64_t)width))
    memmove(rect->dst, rect->src, width * rect->height);
  else
    COPY_BY_WIDTH(copy_rect, width, (uintptr_t)rect->dst, (uintptr_t)rect->src, rect);
}

void tdict_rows_fill(void *to, const void *element, size_t item, size_t bytes) {
  memcpy(to, element, item);
  /* Copy the part that is already filled. The filled part doubles each time. */
  for (size_t done = item; done < bytes;) {
    const size_t more = done < bytes - done ? done : bytes - done;
    memcpy((char *)to + done, to, more);
    done += more;
  }
}
