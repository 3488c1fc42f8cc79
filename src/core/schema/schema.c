/* Counts references to schemas, returns their entries, and writes their blobs. Thread rule: see schema.h. */
#include "core/schema/schema.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/tree/node.h"
#include "tdict/path.h"

void tdict_schema_tables_free(tdict_schema_tables *tables) {
  for (size_t i = 0; tables && i < tables->count; i++) tdict_keys_release(tables->tables[i]);
  free(tables);
}

tdict_schema *tdict_schema_retain(const tdict_schema *schema) {
  tdict_schema *s = (tdict_schema *)(uintptr_t)schema;
  atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
  return s;
}

void tdict_schema_release(tdict_schema *schema) {
  if (!schema || atomic_fetch_sub_explicit(&schema->refs, 1, memory_order_acq_rel) != 1) return;
  tdict_schema_tables_free(atomic_load_explicit(&schema->tables, memory_order_relaxed));
  free(schema);
}

tdict_schema_info tdict_schema_get_info(const tdict_schema *schema) {
  return (tdict_schema_info){.batch_ndim = schema->batch_ndim,
                             .batch_size = schema->batch_size,
                             .num_entries = schema->num_entries,
                             .num_leaves = schema->num_tensors,
                             .num_objects = schema->num_objects,
                             .hash = schema->hash};
}

tdict_status tdict_schema_get_entry(const tdict_schema *schema, size_t i, tdict_schema_entry *out, tdict_error *err) {
  if (!schema || !out) return tdict_fail_null(err, "schema_get_entry", schema ? "out" : "schema");
  if (i >= schema->num_entries)
    return tdict_fail(err, TDICT_ENOTFOUND, "schema_get_entry: entry %zu of %zu entries", i, schema->num_entries);
  *out = schema->entries[i];
  return TDICT_OK;
}

/* Writes the keys of the path of entry `i` to `keys`, and returns the number of keys. */
static int list_keys(const tdict_schema *schema, size_t i, const char *keys[TDICT_SCHEMA_MAX_DEPTH]) {
  const tdict_schema_entry *entry = &schema->entries[i];
  const int count = entry->depth + 1;
  for (int k = count - 1; k >= 0; k--) {
    keys[k] = entry->key;
    if (k) entry = &schema->entries[entry->parent];
  }
  return count;
}

size_t tdict_schema_get_path(const tdict_schema *schema, size_t i, char *buffer, size_t bytes) {
  const char *keys[TDICT_SCHEMA_MAX_DEPTH];
  int count = i < schema->num_entries ? list_keys(schema, i, keys) : 0;
  return tdict_path_join(keys, (size_t)count, buffer, bytes);
}

char *tdict_schema_cut_path(const tdict_schema *schema, size_t i, char buffer[TDICT_SCHEMA_PATH_BYTES]) {
  const char *keys[TDICT_SCHEMA_MAX_DEPTH];
  int count = list_keys(schema, i, keys);
  buffer[0] = 0;
  for (int k = 0; k < count; k++) {
    const tdict_key key = {.name = keys[k]};
    tdict_node_path(buffer, &key, buffer, TDICT_SCHEMA_PATH_BYTES);
  }
  return buffer;
}

size_t tdict_schema_write(const tdict_schema *schema, void *buffer, size_t bytes) {
  if (bytes) memcpy(buffer, schema->bytes, bytes < schema->num_bytes ? bytes : schema->num_bytes);
  return schema->num_bytes;
}
