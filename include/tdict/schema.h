/* Declares schemas. A schema describes a tree without the elements of its tensors. It has the keys of all trees in
 * order, the batch sizes, the dtypes and shapes of tensors, and the type names of objects. Devices, locks, strides and
 * storages are not part of a schema. A schema never changes. The root is the described tree itself.
 *
 * A program can write a schema as bytes, called the blob, and read the blob in another process. docs/neighbours.md has
 * the format. The batch size of a child begins with that of its parent. If the tree breaks this rule, the schema has
 * the parent's batch size for the child.
 *
 * Errors of all functions: #TDICT_EINVAL a pointer is NULL; #TDICT_ENOMEM. If an error is about an entry, err->path
 * names the entry. Results are written on success only. Thread rule: all functions are thread-safe. While
 * tdict_schema_from_tree() reads a tree, no other thread may write the tree. */
#ifndef TDICT_SCHEMA_H
#define TDICT_SCHEMA_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

typedef struct tdict_schema tdict_schema;

/** Maximum number of keys on a path in a schema. */
#define TDICT_SCHEMA_MAX_DEPTH 1024
/** The version of the blobs that this library writes. */
#define TDICT_SCHEMA_VERSION 1

/** @brief Creates the schema of a tree. Reads no elements, and does not wait for transfers. Cost: O(keys).
 *  @return #TDICT_ESHAPE a tensor does not begin with the batch size of a tree above the tensor; #TDICT_ENOTSUP a path
 *          has more than #TDICT_SCHEMA_MAX_DEPTH keys; #TDICT_EOVERFLOW the blob would be too long. */
TDICT_API TDICT_NODISCARD tdict_status tdict_schema_from_tree(const tdict_tree *tree, tdict_schema **out,
                                                              tdict_error *err);
/** @brief Adds a reference and returns @p schema, which must not be NULL. */
TDICT_API tdict_schema *tdict_schema_retain(const tdict_schema *schema);
/** @brief Drops a reference. NULL is allowed. */
TDICT_API void tdict_schema_release(tdict_schema *schema);

/** A 128-bit hash. */
typedef struct tdict_hash128 {
  uint64_t lo, hi;
} tdict_hash128;
/** The batch size of a schema's root, and what the schema has in all. */
typedef struct tdict_schema_info {
  int32_t batch_ndim;        /**< number of batch dimensions of the root */
  const int64_t *batch_size; /**< batch size of the root, borrowed from the schema */
  size_t num_entries;        /**< number of tensors, trees and objects; the root is not an entry */
  size_t num_leaves;         /**< number of tensors */
  size_t num_objects;        /**< number of objects */
  /** Equal for equal schemas, on every machine and in all later versions. An attacker can make different schemas with
   *  equal hashes, so compare schemas from untrusted sources with tdict_schema_equal(). */
  tdict_hash128 hash;
} tdict_schema_info;
/** @brief Returns the batch size, the numbers of entries and the hash: `tdict_schema_get_info(schema).num_leaves`.
 *  Cost: constant. docs/neighbours.md has the algorithm of the hash. */
TDICT_API tdict_schema_info tdict_schema_get_info(const tdict_schema *schema);

/** The kind of an entry of a schema. The blob contains the same numbers. */
typedef enum tdict_schema_kind {
  TDICT_SCHEMA_TENSOR = 1,
  TDICT_SCHEMA_TREE = 2,
  TDICT_SCHEMA_OBJECT = 3
} tdict_schema_kind;
/** An entry of a schema. All pointers are borrowed from the schema. */
typedef struct tdict_schema_entry {
  const char *key; /**< the last key of the path, unescaped */
  tdict_schema_kind kind;
  int32_t depth;             /**< 0 for the keys of the root */
  int64_t parent;            /**< entry number of the tree that holds this entry; -1: the root */
  int32_t batch_ndim;        /**< length of `batch_size` */
  const int64_t *batch_size; /**< batch size of a tree; for other entries, the batch size of the tree above */
  tdict_dtype dtype;         /**< dtype of a tensor; 0 for other entries */
  int32_t ndim;              /**< length of `shape`; 0 if the entry is not a tensor */
  const int64_t *shape;      /**< sizes of a tensor after the batch dimensions */
  const char *type_name;     /**< name of the type of an object; NULL for other entries */
} tdict_schema_entry;
/** @brief Writes entry @p i to @p out. The entries have the order of tdict_walk(): a tree comes before its children.
 *  @return #TDICT_ENOTFOUND @p i is the number of entries or more. */
TDICT_API TDICT_NODISCARD tdict_status tdict_schema_get_entry(const tdict_schema *schema, size_t i,
                                                              tdict_schema_entry *out, tdict_error *err);
/** @brief Writes the escaped path of entry @p i, cut to @p bytes and ended by 0. @p buffer may be NULL for 0 bytes.
 *  @return the length of the full path without the 0; 0 if there is no entry @p i. */
TDICT_API size_t tdict_schema_get_path(const tdict_schema *schema, size_t i, char *buffer, size_t bytes);

/** The first difference between two schemas, in the order of the entries. */
typedef struct tdict_schema_difference {
  char path[248];    /**< path of the entry; "" for the root; long paths are cut in the middle */
  char message[256]; /**< describes the difference; "" if the schemas are equal */
} tdict_schema_difference;
/** @brief Returns true if the schemas are equal, that is, their blobs are equal.
 *  @param[out] difference  Always written. May be NULL. */
TDICT_API bool tdict_schema_equal(const tdict_schema *a, const tdict_schema *b, tdict_schema_difference *difference);

/** @brief Writes the blob of a schema to @p buffer, cut to @p bytes. If @p bytes is 0, @p buffer may be NULL.
 *  @return the length of the whole blob in bytes. */
TDICT_API size_t tdict_schema_write(const tdict_schema *schema, void *buffer, size_t bytes);
/** @brief Reads the blob of a schema, also from an untrusted source. Cost: O(bytes * log(keys)). Accepts only bytes
 *  that tdict_schema_write() could have written. Allocates at most 50 bytes per byte of the blob, plus 1 KiB.
 *  @return #TDICT_EFORMAT no blob, or over a limit (the message has offset and why); #TDICT_ENOTSUP a later version. */
TDICT_API TDICT_NODISCARD tdict_status tdict_schema_read(const void *blob, size_t bytes, tdict_schema **out,
                                                         tdict_error *err);

/** Options of tdict_create_from_schema(). */
typedef struct tdict_create_options {
  size_t struct_size;
  int32_t batch_ndim;        /**< length of `batch_size`; -1 (default): that of the schema, and `batch_size` is NULL */
  bool is_uninitialized;     /**< true: the elements are unspecified; false (default): all elements are 0 */
  const int64_t *batch_size; /**< replaces the first dimensions of all trees and tensors; borrowed */
  tdict_memory *memory;      /**< allocates the storage; NULL (default): plain host memory; borrowed */
} tdict_create_options;
static inline tdict_create_options tdict_create_options_default(void) {
  tdict_create_options o;
  tdict_init_struct_(o);
  o.batch_ndim = -1;
  return o;
}
/** @brief Creates a tree that has the given schema, with one storage for all tensors as tdict_create_from().
 *  @return The errors of tdict_tensor_empty(); #TDICT_ENOTSUP the schema has an object; #TDICT_EINVAL an invalid batch
 *          size, or too many dimensions; #TDICT_EOVERFLOW the tensors need more than 2^63 - 1 bytes. */
TDICT_API TDICT_NODISCARD tdict_status tdict_create_from_schema(const tdict_schema *schema,
                                                                const tdict_create_options *options, tdict_tree **out,
                                                                tdict_error *err);

TDICT_END_DECLS
#endif
