/* Uses an array of C structs as a tree. A table of fields describes the members, and the tensors of the tree are views
 * of them. The array is their common storage, so two elements of the batch are one struct apart.
 *
 * The tree has one batch dimension, the number of records; tdict_reshape() gives it more without a copy. Transfers to a
 * device gather the members in staging buffers. tdict_transfer_into() copies from a device into a view of
 * records, and keeps the padding. Thread rule: as in tdict/tensor.h. */
#ifndef TDICT_RECORDS_H
#define TDICT_RECORDS_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** Describes one member of a struct. */
typedef struct tdict_record_field {
  const char *path;    /**< path of the tensor in the tree */
  size_t offset;       /**< bytes from the start of the struct to the member */
  size_t member_bytes; /**< size of the member, compared with the size that dtype and shape give; 0: not checked */
  tdict_dtype dtype;
  int32_t ndim;
  int64_t shape[6]; /**< sizes of an array member in C order; entries after the first `ndim` must be 0 */
} tdict_record_field;
/** Initializes a tdict_record_field from a struct type, a member, a path, a dtype and up to six sizes. The member may
 *  be in a nested struct: `TDICT_RECORD_FIELD(struct particle, state.pos, "pos", TDICT_F32, 3)`. For C99 and C++11. */
#define TDICT_RECORD_FIELD(type, member, path, ...)                                                             \
  tdict_field_pick_(__VA_ARGS__, tdict_record_field_6_, tdict_record_field_5_, tdict_record_field_4_,           \
                    tdict_record_field_3_, tdict_record_field_2_, tdict_record_field_1_, tdict_record_field_0_, \
                    0)(path, offsetof(type, member), sizeof(((type *)0)->member), __VA_ARGS__)
/* clang-format off */
#define tdict_record_field_0_(path, offset, bytes, dtype) {path, offset, bytes, dtype, 0, {0}}
#define tdict_record_field_1_(path, offset, bytes, dtype, a) {path, offset, bytes, dtype, 1, {a}}
#define tdict_record_field_2_(path, offset, bytes, dtype, a, b) {path, offset, bytes, dtype, 2, {a, b}}
#define tdict_record_field_3_(path, offset, bytes, dtype, a, b, c) {path, offset, bytes, dtype, 3, {a, b, c}}
#define tdict_record_field_4_(path, offset, bytes, dtype, a, b, c, d) {path, offset, bytes, dtype, 4, {a, b, c, d}}
#define tdict_record_field_5_(path, offset, bytes, dtype, a, b, c, d, e) \
  {path, offset, bytes, dtype, 5, {a, b, c, d, e}}
#define tdict_record_field_6_(path, offset, bytes, dtype, a, b, c, d, e, f) \
  {path, offset, bytes, dtype, 6, {a, b, c, d, e, f}}
/* clang-format on */

/** Describes an array of structs that the program owns. */
typedef struct tdict_records {
  size_t struct_size;
  void *data;                       /**< address of the first record; may be NULL if num_records is 0 */
  int64_t num_records;              /**< number of records */
  size_t record_bytes;              /**< bytes from a record to the next record: the size of the struct */
  const tdict_record_field *fields; /**< array of num_fields fields; borrowed for the call. Fields may overlap. */
  size_t num_fields;                /**< at least 1 */
  uint32_t flags;                   /**< #TDICT_DESC_PINNED, #TDICT_DESC_READ_ONLY, or 0 */
} tdict_records;
static inline tdict_records tdict_records_default(void) {
  tdict_records r;
  tdict_init_struct_(r);
  return r;
}

/** @brief Creates a tree over an array of structs. Copies no element, so a write to a tensor writes the members.
 *  The tensor of a field has the shape [num_records, sizes of the field...]. Members need not be aligned.
 *  @param[in] records  Borrowed for the call.
 *  @param[in] release  Called once with @p user after the last tensor of the array is released, but not if this call
 *          fails; NULL: nothing is called. The rules of tdict_tensor_from_data() apply.
 *  @return #TDICT_ENOTSUP `record_bytes` is not a multiple of the size of a field's element; #TDICT_ESHAPE a field
 *          reaches outside the record, or `member_bytes` differs; #TDICT_EDTYPE; #TDICT_EEXIST, #TDICT_ETYPE a path
 *          does not fit that of another field; #TDICT_EOVERFLOW the size of the array; #TDICT_EINVAL a NULL pointer, a
 *          size, flag or path, or no fields; #TDICT_ENOMEM. err->path names the wrong field.
 *  @note Cost: O(fields), for any number of records. */
TDICT_API TDICT_NODISCARD tdict_status tdict_records_view(const tdict_records *records, void (*release)(void *user),
                                                          void *user, tdict_tree **out, tdict_error *err);
/** @brief Writes the tensors of a tree to the members of an array of structs.
 *
 *  For each field, @p src must have a tensor with the path, dtype and shape of tdict_records_view(). Other entries,
 *  padding, and members without a field stay. Checks all fields before the first write, which follows the table.
 *  @param[in] records  Borrowed. If transfers use views of the array, call tdict_update_in_place() with a view instead.
 *  @param[in] src  In host memory; the call waits for transfers that write it. To write from a device, call
 *          tdict_transfer_into() with a view of the records.
 *  @return The errors of tdict_records_view(); #TDICT_ENOTFOUND or #TDICT_ETYPE no tensor at a path; #TDICT_ESHAPE or
 *          #TDICT_EDTYPE another shape or dtype; #TDICT_EWRONGDEVICE; #TDICT_EREADONLY by `flags`; #TDICT_EINVAL also
 *          if a transfer into a tensor failed. err->path names the wrong field. */
TDICT_API TDICT_NODISCARD tdict_status tdict_records_write(const tdict_records *records, const tdict_tree *src,
                                                           tdict_error *err);

TDICT_END_DECLS
#endif
