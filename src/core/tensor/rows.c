/* Copies rows of bytes, and fills memory with an element. Owns nothing. Thread rule: see layout.h. */
#include "core/tensor/layout.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Copies by registers if the constant width fits, else by memmove(), which allows overlap. */
INLINE void copy_row(uintptr_t to, uintptr_t from, size_t width) {
  unsigned char value[16];
  if (!__builtin_constant_p(width)) {
    memmove((void *)to, (const void *)from, width);
    return;
  }
  memcpy(value, (const void *)from, width);
  memcpy((void *)to, value, width);
}

/* Calls copy(first, second, third, width) with constants for short rows, which memmove() would copy slower. */
#define COPY_BY_WIDTH(copy, width, ...)       \
  ((width) > 16    ? copy(__VA_ARGS__, width) \
   : (width) == 4  ? copy(__VA_ARGS__, 4)     \
   : (width) == 8  ? copy(__VA_ARGS__, 8)     \
   : (width) == 1  ? copy(__VA_ARGS__, 1)     \
   : (width) == 2  ? copy(__VA_ARGS__, 2)     \
   : (width) == 16 ? copy(__VA_ARGS__, 16)    \
                   : copy(__VA_ARGS__, width))

INLINE void copy_rows(uintptr_t to, uintptr_t from, const tdict_rows *rows, size_t width) {
  const int64_t *there = rows->dst, *at = rows->src;
  for (int64_t i = 0; i < rows->count; i++) copy_row(to + (uintptr_t)there[i], from + (uintptr_t)at[i], width);
}

INLINE void copy_rect(uintptr_t to, uintptr_t from, const tdict_rect *rect, size_t width) {
  for (size_t i = 0; i < rect->height; i++) {
    copy_row(to, from, width);
    to += (uintptr_t)rect->dst_pitch, from += (uintptr_t)rect->src_pitch;
  }
}

void tdict_rows_copy(void *dst, const void *src, const tdict_rows *rows, size_t width) {
  COPY_BY_WIDTH(copy_rows, width, (uintptr_t)dst, (uintptr_t)src, rows);
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
