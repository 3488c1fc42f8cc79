/* Copies rows by offsets. Owns nothing. Thread rule: see rows.h. */
#include "core/tensor/rows.h"

#include <string.h>

typedef struct bytes16 {
  uint64_t low, high;
} bytes16;

/* Copies each row with one load and one store. A call of memmove() would cost more than the copy. */
#define COPY_ROWS(type)                                                      \
  do {                                                                       \
    for (int64_t i = 0; i < rows->count; i++) {                              \
      type value;                                                            \
      memcpy(&value, (const void *)(from + (uintptr_t)at[i]), sizeof value); \
      memcpy((void *)(to + (uintptr_t)there[i]), &value, sizeof value);      \
    }                                                                        \
  } while (0)

void tdict_rows_copy(void *dst, const void *src, const tdict_rows *rows, size_t width) {
  const uintptr_t to = (uintptr_t)dst, from = (uintptr_t)src;
  const int64_t *there = rows->dst, *at = rows->src;
  switch (width) {
  case 1:
    COPY_ROWS(uint8_t);
    break;
  case 2:
    COPY_ROWS(uint16_t);
    break;
  case 4:
    COPY_ROWS(uint32_t);
    break;
  case 8:
    COPY_ROWS(uint64_t);
    break;
  case 16:
    COPY_ROWS(bytes16);
    break;
  default:
    for (int64_t i = 0; i < rows->count; i++)
      memmove((void *)(to + (uintptr_t)there[i]), (const void *)(from + (uintptr_t)at[i]), width);
  }
}
