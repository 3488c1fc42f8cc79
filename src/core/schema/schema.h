/* Defines a schema: its blob, and a table of the entries in the blob. A schema is one block of memory. Keys and type
 * names are pointers into the blob. Thread rule: safe from any thread, since a schema never changes, except for its
 * reference count and the pointer `tables`, which are atomic. */
#ifndef TDICT_CORE_SCHEMA_SCHEMA_H
#define TDICT_CORE_SCHEMA_SCHEMA_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/tree/keys.h"
#include "tdict/schema.h"

/* The key tables that the trees of a schema share. The tables do not change after the schema has them. */
typedef struct tdict_schema_tables {
  size_t count;
  tdict_keys *tables[]; /* retained: the root, then all trees in the order of the entries */
} tdict_schema_tables;

/* Releases the key tables. NULL is allowed. */
void tdict_schema_tables_free(tdict_schema_tables *tables);

/* The size of the storage that tdict_schema_create_over() needs, and what else all entries have in common. */
typedef struct tdict_schema_size {
  size_t num_dims;                  /* the sum of the tensors' ndim */
  size_t bytes;                     /* of all tensors, each padded to a multiple of 256; at most INT64_MAX */
  size_t padding;                   /* of the last tensor with elements; included in `bytes` */
  bool is_too_large;                /* true: the sum does not fit, and the numbers above are not valid */
  tdict_dtype dtype;                /* of all tensors; 0: the tensors have several dtypes, or there are no tensors */
  int32_t max_ndim, max_batch_ndim; /* of the tensors, and of the root and all trees below the root */
} tdict_schema_size;

struct tdict_schema {
  _Atomic(int64_t) refs;
  tdict_hash128 hash;
  size_t num_entries, num_tensors, num_objects, num_bytes;
  tdict_schema_size size;
  int32_t batch_ndim;
  const int64_t *batch_size;
  const uint8_t *bytes; /* the blob */
  /* owned; the key tables of trees with this schema. NULL until a tree is created (acquire/release) */
  _Atomic(tdict_schema_tables *) tables;
  tdict_schema_entry entries[];
};

/* Returns true if tdict_schema_from_tree() would make a schema that is equal to `schema`. Returns false also if
 * memory for the walk is exhausted, which only a tree of more than 24 levels needs. */
bool tdict_schema_matches(const tdict_schema *schema, const tdict_tree *tree);

enum { TDICT_SCHEMA_PATH_BYTES = sizeof((tdict_error *)NULL)->path };
/* Writes the path of entry `i` and returns the buffer. Replaces the middle of a long path by "...". */
char *tdict_schema_cut_path(const tdict_schema *schema, size_t i, char buffer[TDICT_SCHEMA_PATH_BYTES]);

#endif
