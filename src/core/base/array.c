/* Enlarges arrays. Owns nothing. Thread rule: see array.h. */
#include "core/base/array.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"

enum { LEAST_ITEMS = 16 };

bool tdict_array_grow(void *array, size_t *capacity, size_t wanted, size_t bytes) {
  void *items;
  size_t total;
  memcpy(&items, array, sizeof items);
  if (wanted < LEAST_ITEMS) wanted = LEAST_ITEMS;
  if (*capacity <= SIZE_MAX / 2 && wanted < 2 * *capacity) wanted = 2 * *capacity;
  items = tdict_mul_size(wanted, bytes, &total) ? realloc(items, total) : NULL;
  if (!items) return false;
  memcpy(array, &items, sizeof items);
  *capacity = wanted;
  return true;
}
