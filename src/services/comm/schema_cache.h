/* Declares a cache of schemas. A cache of schemas that have passed between ranks has the same order on all ranks: the
 * sender and the receivers put the same schemas into their caches in the same order, so each rank knows which schemas
 * the other ranks have. A cache of the schemas of a rank's own trees serves this rank alone. The owner of the struct
 * initializes it with zeros. Thread rule: one thread at a time. */
#ifndef TDICT_SERVICES_COMM_SCHEMA_CACHE_H
#define TDICT_SERVICES_COMM_SCHEMA_CACHE_H

#include "tdict/schema.h"

/* TRIED: how many schemas tdict_schema_cache_match() compares. A comparison that fails at the last entry takes as long
 * as one that succeeds. */
enum { TDICT_SCHEMA_CACHE_SIZE = 64, TDICT_SCHEMA_CACHE_TRIED = 8 };
typedef struct tdict_schema_cache {
  int count;
  tdict_schema *schemas[TDICT_SCHEMA_CACHE_SIZE]; /* retained; the one that was used last comes first */
} tdict_schema_cache;

/* Returns the schema with this hash and size of the blob, borrowed from the cache, or NULL. Changes nothing. */
tdict_schema *tdict_schema_cache_find(const tdict_schema_cache *cache, tdict_hash128 hash, size_t blob_bytes);
/* Returns the schema of a tree, borrowed from the cache, or NULL if the cache does not have it. Changes nothing. */
tdict_schema *tdict_schema_cache_match(const tdict_schema_cache *cache, const tdict_tree *tree);
/* Puts a schema at the first place. If the schema is not in the cache, retains it; if the cache is full, the schema
 * that was used least recently is dropped. */
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

/* Finds or makes the schema that has `rows` as the size of batch dimension `dim` of the root. *out is a new reference.
 * Returns TDICT_ENOMEM, and TDICT_EINVAL if the dimension does not exist. The message of an error begins with
 * `what`. */
tdict_status tdict_row_schemas_get(tdict_row_schemas *schemas, const char *what, const tdict_row_schema *wanted,
                                   tdict_schema **out, tdict_error *err);
void tdict_row_schemas_reset(tdict_row_schemas *schemas);

#endif
