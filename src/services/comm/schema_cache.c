/* Implements the caches as short lists in the order of use. Thread rule: see schema_cache.h. */
#include "services/comm/schema_cache.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/schema/blob.h"
#include "core/schema/schema.h"

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

enum { MOST_INT_BYTES = 10 };
static uint8_t *write_int(uint8_t *at, uint64_t value) {
  for (; value > 0x7f; value >>= 7) *at++ = (uint8_t)(value | 0x80);
  *at++ = (uint8_t)value;
  return at;
}
static const uint8_t *skip_int(const uint8_t *at) {
  while (*at & 0x80) at++;
  return at + 1;
}

/* Replaces the size of batch dimension `dim` of the root. */
static tdict_status set_rows(const tdict_schema *schema, const char *what, int dim, int64_t rows, tdict_schema **out,
                             tdict_error *err) {
  const size_t bytes = schema->num_bytes;
  if (dim < 0 || dim >= schema->batch_ndim)
    return tdict_fail(err, TDICT_EINVAL, "%s: dimension %d does not exist", what, dim);
  uint8_t *blob = malloc(bytes + MOST_INT_BYTES);
  if (!blob) return tdict_fail_memory(err, what, NULL, "a schema of %zu bytes", bytes);
  /* only the batch size of the root has the size: all other sizes in a blob are sizes of additional dimensions */
  const uint8_t *from = skip_int(schema->bytes + TDICT_BLOB_HEAD);
  for (int i = 0; i < dim; i++) from = skip_int(from);
  const size_t before = (size_t)(from - schema->bytes);
  memcpy(blob, schema->bytes, before);
  uint8_t *to = write_int(blob + before, (uint64_t)rows);
  from = skip_int(from);
  const size_t after = bytes - (size_t)(from - schema->bytes);
  memcpy(to, from, after);
  tdict_status status = tdict_blob_parse(blob, (size_t)(to - blob) + after, true, out, err);
  free(blob);
  return status;
}

static void drop(tdict_row_schema *s) {
  tdict_schema_release(s->from);
  tdict_schema_release(s->made);
}

tdict_status tdict_row_schemas_get(tdict_row_schemas *schemas, const char *what, const tdict_row_schema *wanted,
                                   tdict_schema **out, tdict_error *err) {
  tdict_row_schema used = *wanted, *list = schemas->list;
  int at = 0;
  while (at < schemas->count &&
         (list[at].from != wanted->from || list[at].dim != wanted->dim || list[at].rows != wanted->rows))
    at++;
  if (at < schemas->count) {
    used = list[at];
  } else {
    tdict_status status = set_rows(wanted->from, what, wanted->dim, wanted->rows, &used.made, err);
    if (status != TDICT_OK) return status;
    used.from = tdict_schema_retain(wanted->from);
    if (schemas->count == TDICT_ROW_SCHEMAS) drop(&list[--schemas->count]);
    at = schemas->count++;
  }
  memmove(&list[1], &list[0], (size_t)at * sizeof *list);
  list[0] = used;
  *out = tdict_schema_retain(used.made);
  return TDICT_OK;
}

void tdict_row_schemas_reset(tdict_row_schemas *schemas) {
  while (schemas->count) drop(&schemas->list[--schemas->count]);
}
