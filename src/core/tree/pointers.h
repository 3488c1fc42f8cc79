/* A map from pointers to pointers. Walks use it to find nodes or storages visited before, and copies of nodes. Its
 * initializer owns it. Thread rule: one thread at a time. */
#ifndef TDICT_CORE_TREE_POINTERS_H
#define TDICT_CORE_TREE_POINTERS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tdict_pointer_pair {
  const void *key; /* NULL: the pair is free */
  void *value;
} tdict_pointer_pair;
typedef struct tdict_pointers {
  tdict_pointer_pair *pairs;
  size_t count, cap; /* cap is a power of two, or 0 */
} tdict_pointers;

void tdict_pointers_init(tdict_pointers *map);
void tdict_pointers_reset(tdict_pointers *map);
void tdict_pointers_clear(tdict_pointers *map);
/* Adds a pair. Returns 1 if added, 0 if the key was in the map (its value is unchanged), -1 if memory is exhausted. */
int tdict_pointers_add(tdict_pointers *map, const void *key, void *value);
/* Returns the value of a key, or NULL if the key is not in the map. */
void *tdict_pointers_get(const tdict_pointers *map, const void *key);

#endif
