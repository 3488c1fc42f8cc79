/* Declares schemas. A schema describes a tree without the elements of its tensors. It has the keys of all trees in
 * order, the batch sizes, the dtypes and shapes of tensors, and the type names of objects. Devices, locks, strides and
 * storages are not part of a schema, because they may differ between processes. A schema never changes. The root is the
 * described tree itself. All other trees are below the root.
 *
 * A program can write a schema as bytes, called the blob, and read the blob in another process. The schema that is read
 * equals the schema that was written. The schema of a tree from tdict_create_from_schema() equals the given schema, if
 * the options are the defaults.
 *
 * In a schema, the batch size of a child begins with the batch size of its parent. In the tree, the batch size of a
 * child may begin with other sizes (see tdict/tree.h). The schema then has the parent's batch size for this child. If
 * a tensor does not begin with this batch size either, tdict_schema_from_tree() returns #TDICT_ESHAPE.
 *
 * Format of a blob, version 1. An `int` is an unsigned number below 2^63, encoded in LEB128 with as few bytes as
 * possible. A `text` is one or more bytes other than 0, followed by a byte 0. A list of `sizes` is an int n, followed
 * by n ints.
 *
 * - The blob is "tdsc", the version (4 bytes, little-endian), the batch size of the root (sizes), the entries of the
 *   root, and 0x00.
 * - A tensor is 0x01, the key (a text), the dtype, and the dimensions after the batch dimensions (sizes).
 * - A dtype is its code (1 byte), bits (1 byte) and lanes (2 bytes, little-endian).
 * - A tree is 0x02, the key (a text), the additional batch dimensions (sizes), the entries of the tree, and 0x00. The
 *   additional batch dimensions are those after the batch dimensions of the parent.
 * - An object is 0x03, the key (a text), and the name of the object's type (a text).
 *
 * Errors of all functions that return a status: #TDICT_EINVAL a pointer is NULL; #TDICT_ENOMEM. If an error is about an
 * entry, err->path names the entry.
 * Thread rule: all functions are thread-safe. While tdict_schema_from_tree() reads a tree, no other thread may write
 * the tree. */
#ifndef TDICT_SCHEMA_H
#define TDICT_SCHEMA_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

typedef struct tdict_schema tdict_schema;

/** Maximum number of keys on a path in a schema. */
#define TDICT_SCHEMA_MAX_DEPTH 1024
/** The version of the blobs that this library writes. */
#define TDICT_SCHEMA_VERSION 1

/** @brief Creates the schema of a tree. No element is read, and the call does not wait for transfers.
 *  @param[in]  tree  Borrowed for the call.
 *  @param[out] out   New schema with one reference, written on success only.
 *  @return #TDICT_OK; #TDICT_ESHAPE a tensor does not begin with the batch size of a tree above the tensor;
 *          #TDICT_ENOTSUP a path has more than #TDICT_SCHEMA_MAX_DEPTH keys; #TDICT_EOVERFLOW the blob would have more
 *          than 2^31 - 1 bytes.
 *  @note Cost: O(keys below the tree). */
TDICT_API TDICT_NODISCARD tdict_status tdict_schema_from_tree(const tdict_tree *tree, tdict_schema **out,
                                                              tdict_error *err);
/** @brief Adds a reference and returns @p schema, which must not be NULL. */
TDICT_API tdict_schema *tdict_schema_retain(const tdict_schema *schema);
/** @brief Drops a reference. Dropping the last reference frees the schema. NULL is allowed. */
TDICT_API void tdict_schema_release(tdict_schema *schema);

/** The batch size of a schema's root, and what the schema has in all. */
typedef struct tdict_schema_info {
  int32_t batch_ndim;        /**< number of batch dimensions of the root */
  const int64_t *batch_size; /**< batch size of the root, borrowed from the schema */
  size_t num_entries;        /**< number of tensors, trees and objects; the root is not an entry */
  size_t num_leaves;         /**< number of tensors */
  size_t num_objects;        /**< number of objects */
} tdict_schema_info;
/** @brief Returns the batch size and the numbers of entries of a schema: `tdict_schema_get_info(schema).num_leaves`. */
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
 *  @param[out] out  Written on success only.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND @p i is the number of entries or more. */
TDICT_API TDICT_NODISCARD tdict_status tdict_schema_get_entry(const tdict_schema *schema, size_t i,
                                                              tdict_schema_entry *out, tdict_error *err);
/** @brief Writes the escaped path of entry @p i, cut to @p bytes and ended by 0.
 *  @param[out] buffer  May be NULL if @p bytes is 0.
 *  @return the length of the full path without the 0; 0 if there is no entry @p i.
 *  @note Cost: O(length of the path). */
TDICT_API size_t tdict_schema_get_path(const tdict_schema *schema, size_t i, char *buffer, size_t bytes);

/** The first difference between two schemas, in the order of the entries. */
typedef struct tdict_schema_difference {
  char path[248];    /**< path of the entry; "" for the root; long paths are cut in the middle */
  char message[256]; /**< describes the difference; "" if the schemas are equal */
} tdict_schema_difference;
/** @brief Returns true if the schemas are equal: the same keys in the same order, with the same kinds, batch sizes,
 *  dtypes, shapes and type names.
 *  @param[out] difference  Always written. May be NULL.
 *  @note Cost: O(bytes of the blobs). */
TDICT_API bool tdict_schema_equal(const tdict_schema *a, const tdict_schema *b, tdict_schema_difference *difference);

/** A 128-bit hash. */
typedef struct tdict_hash128 {
  uint64_t lo, hi;
} tdict_hash128;
/** @brief Returns the hash of a schema. Equal schemas have equal hashes, on every machine and in all later versions.
 *
 *  The hash is the MurmurHash3_x64_128 (seed 0) of the blob in version 1 of the format, without the first 8 bytes of
 *  the blob. `lo` is the first word of the MurmurHash3 result, and `hi` is the second word. An attacker can make
 *  different schemas with equal hashes, so compare schemas from untrusted sources with tdict_schema_equal().
 *  @note Cost: constant. The hash is computed when the schema is created. */
TDICT_API tdict_hash128 tdict_schema_hash(const tdict_schema *schema);

/** @brief Writes the blob of a schema to @p buffer, cut to @p bytes. Equal schemas have equal blobs.
 *  @param[out] buffer  May be NULL if @p bytes is 0.
 *  @return the length of the whole blob in bytes. */
TDICT_API size_t tdict_schema_write(const tdict_schema *schema, void *buffer, size_t bytes);
/** @brief Reads the blob of a schema. The bytes may come from an untrusted source.
 *
 *  The call accepts only bytes that tdict_schema_write() could have written. It allocates at most 50 bytes per byte of
 *  the blob, plus 1 KiB.
 *  @param[in]  blob  @p bytes bytes, borrowed for the call.
 *  @param[out] out   New schema with one reference, written on success only.
 *  @return #TDICT_OK; #TDICT_EFORMAT the bytes are not a blob, or exceed a limit (the message has the offset and the
 *          cause); #TDICT_ENOTSUP the blob has a later version.
 *  @note The limits are 16 batch dimensions, 32 dimensions of a tensor, 2^63 - 1 bytes of a tensor,
 *        #TDICT_SCHEMA_MAX_DEPTH keys of a path, and 2^31 - 1 bytes of a blob.
 *  @note Cost: O(bytes * log(keys)). */
TDICT_API TDICT_NODISCARD tdict_status tdict_schema_read(const void *blob, size_t bytes, tdict_schema **out,
                                                         tdict_error *err);

/** Options of tdict_create_from_schema(). */
typedef struct tdict_create_options {
  size_t struct_size;
  int32_t batch_ndim;        /**< length of `batch_size`; -1 (default): the batch size of the schema; `batch_size` must
                                  then be NULL */
  bool is_uninitialized;     /**< true: the elements are unspecified; false (default): all elements are 0 */
  const int64_t *batch_size; /**< replaces the root's batch dimensions, which are the first dimensions of all
                                  trees and tensors; borrowed */
  tdict_memory *memory;      /**< allocates the storage; NULL (default): plain host memory; borrowed */
} tdict_create_options;
static inline tdict_create_options tdict_create_options_default(void) {
  tdict_create_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.batch_ndim = -1;
  return o;
}
/** @brief Creates a tree that has the given schema.
 *
 *  All tensors are views of one storage, in the order of the entries. The addresses of the storage and of each tensor
 *  are multiples of 256. The tree has no device and is not locked.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      New tree with one reference, written on success only.
 *  @return #TDICT_OK; #TDICT_ENOTSUP the schema has an object; #TDICT_EINVAL also for an invalid batch size, or for a
 *          tree or tensor with too many dimensions; #TDICT_EOVERFLOW the tensors need more than 2^63 - 1 bytes; the
 *          errors of tdict_tensor_empty(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_create_from_schema(const tdict_schema *schema,
                                                                const tdict_create_options *options, tdict_tree **out,
                                                                tdict_error *err);

TDICT_END_DECLS
#endif
