/* A map from pointers to pointers, for nodes and storages that are met more than once. Owned by one call.
 * Thread rule: one thread. */
#ifndef TDICT_TREE_POINTERS_H
#define TDICT_TREE_POINTERS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tdict_pointer_pair {
  const void *key; /* NULL: free */
  void *value;
} tdict_pointer_pair;
typedef struct tdict_pointers {
  tdict_pointer_pair *pairs;
  size_t count, cap; /* cap is a power of two, or 0 */
} tdict_pointers;

void tdict_pointers_init(tdict_pointers *map);
void tdict_pointers_reset(tdict_pointers *map);
/* Forgets all and keeps the room. */
void tdict_pointers_clear(tdict_pointers *map);
/* 1: added; 0: it was there and is as it was; -1: no memory. */
int tdict_pointers_add(tdict_pointers *map, const void *key, void *value);
/* The value, or NULL. */
void *tdict_pointers_get(const tdict_pointers *map, const void *key);

#endif
