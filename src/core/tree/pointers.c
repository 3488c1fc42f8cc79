/* A map of pointers by open addressing, at least half free. Its initializer owns it. Thread rule: one at a time. */
#include "core/tree/pointers.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 16 };

void tdict_pointers_init(tdict_pointers *map) {
  map->pairs = NULL;
  map->count = map->cap = 0;
}

void tdict_pointers_reset(tdict_pointers *map) {
  free(map->pairs);
  tdict_pointers_init(map);
}

void tdict_pointers_clear(tdict_pointers *map) {
  if (map->count) memset(map->pairs, 0, map->cap * sizeof *map->pairs);
  map->count = 0;
}

/* Returns the pair of a key, or the free pair where the key belongs. The map must have allocated pairs. */
static tdict_pointer_pair *find_pair(const tdict_pointers *map, const void *key) {
  /* The low bits of most pointers are equal, so multiply the pointer and use high bits of the product. */
  uint64_t mixed = (uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15u;
  size_t i = (size_t)(mixed >> 32) & (map->cap - 1);
  while (map->pairs[i].key && map->pairs[i].key != key) i = (i + 1) & (map->cap - 1);
  return &map->pairs[i];
}

static bool grow_pairs(tdict_pointers *map) {
  tdict_pointers larger = {NULL, map->count, map->cap ? map->cap * 2 : FIRST_CAP};
  larger.pairs = calloc(larger.cap, sizeof *larger.pairs);
  if (!larger.pairs) return false;
  for (size_t i = 0; i < map->cap; i++)
    if (map->pairs[i].key) *find_pair(&larger, map->pairs[i].key) = map->pairs[i];
  free(map->pairs);
  *map = larger;
  return true;
}

int tdict_pointers_add(tdict_pointers *map, const void *key, void *value) {
  if (map->cap && find_pair(map, key)->key) return 0;
  /* At least half of the pairs are free, so every search ends. */
  if ((map->count + 1) * 2 > map->cap && !grow_pairs(map)) return -1;
  tdict_pointer_pair *pair = find_pair(map, key);
  pair->key = key;
  pair->value = value;
  map->count++;
  return 1;
}

void *tdict_pointers_get(const tdict_pointers *map, const void *key) {
  return map->cap ? find_pair(map, key)->value : NULL;
}
