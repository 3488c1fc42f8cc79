/* Creates trees from schemas in a storage of the caller. Thread rule: thread-safe, since only new trees are written. */
#ifndef TDICT_CORE_SCHEMA_CREATE_H
#define TDICT_CORE_SCHEMA_CREATE_H

#include "core/tree/node.h"
#include "tdict/schema.h"

/* Computes the bytes of a schema's tensors, each padded to a multiple of 256. Returns TDICT_ENOTSUP for an object and
 * TDICT_EOVERFLOW, with the path. */
tdict_status tdict_schema_measure(const tdict_schema *schema, size_t *out, tdict_error *err);
/* Where tdict_schema_create_at() creates a tree. */
typedef struct tdict_schema_place {
  tdict_storage *storage;    /* borrowed; NULL if the schema has no tensors */
  size_t offset;             /* of the first tensor; a multiple of 256 */
  const int64_t *batch_size; /* of the root, as many sizes as the schema's; NULL: the schema's batch size */
} tdict_schema_place;
/* Computes the size like tdict_schema_measure(), for a root with another batch size. `batch_size` is as in
 * tdict_schema_place. If `last_padding` is not NULL, writes the padding after the last tensor with elements. */
tdict_status tdict_schema_measure_batch(const tdict_schema *schema, const int64_t *batch_size, size_t *out,
                                        size_t *last_padding, tdict_error *err);
/* Creates a tree like tdict_schema_create_over(), from an offset of the storage on. The caller must have called
 * tdict_schema_measure_batch() for the batch size without an error. Returns TDICT_ENOMEM. */
tdict_status tdict_schema_create_at(const tdict_schema *schema, const tdict_schema_place *place, tdict_tree **out,
                                    tdict_error *err);
/* Creates a tree whose tensors lie in `storage` and retain it. The elements stay. `storage` begins at a multiple of 256
 * bytes, and has the size of tdict_schema_measure(). Returns the errors of tdict_create_from_schema(). */
tdict_status tdict_schema_create_over(const tdict_schema *schema, tdict_storage *storage, tdict_tree **out,
                                      tdict_error *err);
#endif
