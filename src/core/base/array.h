/* Enlarges arrays, whose owner keeps address, count and capacity. Thread rule: one thread at a time grows an array. */
#ifndef TDICT_CORE_BASE_ARRAY_H
#define TDICT_CORE_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* Reallocates an array for at least `wanted` items, and twice its capacity. `array` is the address of the pointer to
 * the first item. Returns false, and changes nothing, if memory is exhausted or the size overflows. */
bool tdict_array_grow(void *array, size_t *capacity, size_t wanted, size_t bytes);
/* Makes room for `wanted` items in the array of the variables `items` and `capacity` (a size_t), or is false. */
#define TDICT_RESERVE(items, capacity, wanted) \
  ((wanted) <= (capacity) || tdict_array_grow(&(items), &(capacity), (wanted), sizeof *(items)))

/* Returns a new array of pointers to the elements of an array, which the caller frees, or NULL if memory is exhausted.
 * It is sorted by `compare`, which gets pointers to two of these pointers. */
static inline void *tdict_array_sorted(const void *array, size_t count, size_t width,
                                       int (*compare)(const void *, const void *)) {
  const char **sorted = malloc((count + 1) * sizeof *sorted);
  for (size_t i = 0; sorted && i < count; i++) sorted[i] = (const char *)array + i * width;
  if (sorted) qsort((void *)sorted, count, sizeof *sorted, compare);
  return (void *)sorted;
}

#endif
