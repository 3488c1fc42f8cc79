/* Makes schemas from blobs. docs/neighbours.md describes the format of a blob. A blob comes from a tree of this process
 * or from an untrusted source. Thread rule: thread-safe, since only new schemas are written. */
#ifndef TDICT_CORE_SCHEMA_BLOB_H
#define TDICT_CORE_SCHEMA_BLOB_H

#include "core/schema/schema.h"

#define TDICT_BLOB_MAGIC "tdsc"
enum { TDICT_BLOB_HEAD = 8, TDICT_BLOB_END = 0 }; /* number of bytes of magic and version; the byte that ends a tree */
#define TDICT_BLOB_MAX_BYTES ((size_t)INT32_MAX)

/* Makes a schema with one reference from a copy of the blob. `is_trusted`: the blob was written from a tree, so the
 * keys of each tree are not checked to be unique. Returns TDICT_EFORMAT, TDICT_ENOTSUP or TDICT_ENOMEM. */
tdict_status tdict_blob_parse(const uint8_t *bytes, size_t count, bool is_trusted, tdict_schema **out,
                              tdict_error *err);

#endif
