/* Implements the cache as a short list in the order of use. Thread rule: see schema_cache.h. */
#include "services/comm/schema_cache.h"

#include <string.h>

#include "core/schema/match.h"

static int find(const tdict_schema_cache *cache, tdict_hash128 hash, size_t blob_bytes) {
  for (int i = 0; i < cache->count; i++) {
    const tdict_hash128 other = tdict_schema_get_info(cache->schemas[i]).hash;
    if (other.lo == hash.lo && other.hi == hash.hi && tdict_schema_write(cache->schemas[i], NULL, 0) == blob_bytes)
      return i;
  }
  return -1;
}

tdict_schema *tdict_schema_cache_find(const tdict_schema_cache *cache, tdict_hash128 hash, size_t blob_bytes) {
  const int i = find(cache, hash, blob_bytes);
  return i < 0 ? NULL : cache->schemas[i];
}

tdict_schema *tdict_schema_cache_match(const tdict_schema_cache *cache, const tdict_tree *tree) {
  for (int i = 0; i < cache->count && i < TDICT_SCHEMA_CACHE_TRIED; i++)
    if (tdict_schema_matches(cache->schemas[i], tree)) return cache->schemas[i];
  return NULL;
}

void tdict_schema_cache_use(tdict_schema_cache *cache, tdict_schema *schema) {
  int at = find(cache, tdict_schema_get_info(schema).hash, tdict_schema_write(schema, NULL, 0));
  tdict_schema *kept = at < 0 ? tdict_schema_retain(schema) : cache->schemas[at];
  if (at < 0 && cache->count == TDICT_SCHEMA_CACHE_SIZE) tdict_schema_release(cache->schemas[--cache->count]);
  if (at < 0) at = cache->count++;
  memmove(&cache->schemas[1], &cache->schemas[0], (size_t)at * sizeof *cache->schemas);
  cache->schemas[0] = kept;
}

void tdict_schema_cache_reset(tdict_schema_cache *cache) {
  while (cache->count) tdict_schema_release(cache->schemas[--cache->count]);
}
