/* A cache of schemas, which the owner of the struct initializes with zeros. For schemas that pass between ranks, all
 * ranks put the same ones in the same order, so each knows which the others have. A cache of a rank's own trees serves
 * this rank alone. Thread rule: one thread at a time. */
#ifndef TDICT_SERVICES_COMM_SCHEMA_CACHE_H
#define TDICT_SERVICES_COMM_SCHEMA_CACHE_H

#include "tdict/schema.h"

/* TRIED: schemas that a search compares, since a comparison that fails at the last entry is slow. */
enum { TDICT_SCHEMA_CACHE_SIZE = 64, TDICT_SCHEMA_CACHE_TRIED = 8 };
typedef struct tdict_schema_cache {
  int count;
  tdict_schema *schemas[TDICT_SCHEMA_CACHE_SIZE]; /* retained; the one that was used last comes first */
} tdict_schema_cache;

/* Returns the schema with this hash and size of the blob, borrowed from the cache, or NULL. Changes nothing. */
tdict_schema *tdict_schema_cache_find(const tdict_schema_cache *cache, tdict_hash128 hash, size_t blob_bytes);
/* Returns the schema of a tree, borrowed from the cache, or NULL if the cache does not have it. Changes nothing. */
tdict_schema *tdict_schema_cache_match(const tdict_schema_cache *cache, const tdict_tree *tree);
/* Puts a schema first, and retains it if it is new. A full cache drops the schema that was used least recently. */
void tdict_schema_cache_use(tdict_schema_cache *cache, tdict_schema *schema);
void tdict_schema_cache_reset(tdict_schema_cache *cache);

/* The schemas that this rank has made last by changing the number of rows of another schema. */
enum { TDICT_ROW_SCHEMAS = 8 };
typedef struct tdict_row_schema {
  tdict_schema *from, *made; /* retained, so that no other schema gets the address of `from` */
  int dim;
  int64_t rows;
} tdict_row_schema;
typedef struct tdict_row_schemas {
  int count;
  tdict_row_schema list[TDICT_ROW_SCHEMAS]; /* the one that was used last comes first */
} tdict_row_schemas;

/* Finds or makes the schema with `rows` as batch dimension `dim` of the root. *out is a new reference. Errors begin
 * with `what`. Returns TDICT_ENOMEM, and TDICT_EINVAL if the dimension does not exist. */
tdict_status tdict_row_schemas_get(tdict_row_schemas *schemas, const char *what, const tdict_row_schema *wanted,
                                   tdict_schema **out, tdict_error *err);
void tdict_row_schemas_reset(tdict_row_schemas *schemas);

#endif
