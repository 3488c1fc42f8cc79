/* Declares functions that use an array of C structs as a tree.
 *
 * A program describes the members of its struct by a table of fields. tdict_records_view() creates a tree whose tensors
 * are views of the members. All tensors share one storage, which is the array. tdict_records_write() copies the tensors
 * of another tree to the members.
 *
 * The tree has one batch dimension, the number of records. tdict_reshape() of tdict/shape.h gives the tree more batch
 * dimensions without a copy. The tensors are strided: the distance between two elements of the batch is the size of the
 * struct. Transfers to a device gather such tensors in staging buffers. tdict_transfer_into() copies from a device into
 * a view of records, and does not change the padding.
 * Thread rule: as in tdict/tensor.h. */
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
/** Initializes a tdict_record_field from a struct type, a member, a path, a dtype and up to six sizes:
 *  `TDICT_RECORD_FIELD(struct particle, state.pos, "pos", TDICT_F32, 3)`. As in this example, the member may belong to
 *  a nested struct. Works in C99 and C++11. */
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
  memset(&r, 0, sizeof r);
  r.struct_size = sizeof r;
  return r;
}

/** @brief Creates a tree over an array of structs. Copies no element.
 *
 *  The tensor of a field has the shape [num_records, sizes of the field...]. A write to the tensor writes the member.
 *  Members need not be aligned to the size of their elements, for example in a packed struct.
 *  @param[in]  records  Borrowed for the call.
 *  @param[in]  release  Called once with @p user after the last tensor of the array is released. NULL: nothing is
 *                       called. The rules of tdict_tensor_from_data() apply. If tdict_records_view() fails, the
 *                       callback is not called.
 *  @param[out] out      New tree with one reference, written on success only.
 *  @return #TDICT_OK; #TDICT_ENOTSUP `record_bytes` is not a multiple of the size of a field's element; #TDICT_ESHAPE a
 *          field reaches outside the record, or `member_bytes` differs from the size of the field; #TDICT_EDTYPE a
 *          dtype is unknown; #TDICT_EEXIST two fields have the same path; #TDICT_ETYPE the path of a field leads
 *          through the tensor of another field; #TDICT_EOVERFLOW the array does not fit into the address space;
 *          #TDICT_EINVAL a NULL pointer, an invalid size, flag or path, or no fields; #TDICT_ENOMEM. If a field is
 *          wrong, err->path names the field.
 *  @note Cost: O(fields), for any number of records. */
TDICT_API TDICT_NODISCARD tdict_status tdict_records_view(const tdict_records *records, void (*release)(void *user),
                                                          void *user, tdict_tree **out, tdict_error *err);
/** @brief Writes the tensors of a tree to the members of an array of structs.
 *
 *  For each field, @p src must have a tensor with the path, dtype and shape that tdict_records_view() gives the field.
 *  Other entries of @p src are ignored. Padding and members without a field do not change. If fields overlap, the last
 *  field in the table is written last. The call checks all fields before it writes the first byte. The call waits for
 *  transfers that write @p src.
 *  @param[in] records  Borrowed for the call. The call does not wait for transfers that use views of the same array. If
 *                      such transfers exist, call tdict_update_in_place() with the view as the destination.
 *  @param[in] src      In plain or pinned host memory, with any strides. To write from a device, call
 *                      tdict_transfer_into() with a view of the records as the destination.
 *  @return The errors of tdict_records_view(); #TDICT_ENOTFOUND @p src lacks a path; #TDICT_ETYPE the entry of @p src
 *          at a path is not a tensor; #TDICT_ESHAPE or #TDICT_EDTYPE a tensor does not match its field;
 *          #TDICT_EWRONGDEVICE a tensor is on a device; #TDICT_EREADONLY the flag #TDICT_DESC_READ_ONLY is set;
 *          #TDICT_EINVAL also if a transfer into a tensor failed or was cancelled. If the error is about a field,
 *          err->path names the field.
 *  @note Cost: O(fields), plus one strided copy of the elements. */
TDICT_API TDICT_NODISCARD tdict_status tdict_records_write(const tdict_records *records, const tdict_tree *src,
                                                           tdict_error *err);

TDICT_END_DECLS
#endif
