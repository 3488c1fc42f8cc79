/* Makes trees over arrays of structs, and writes trees to such arrays. The tensors of a view retain one storage over
 * the array. The program owns the array. Thread rule: as in tdict/records.h. */
#include "tdict/records.h"

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/ops/check_copy.h"
#include "core/tensor/layout.h"
#include "core/tree/create_from.h"
#include "core/tree/place.h"

/* Checks the sizes and the dtype of a field, and that the field lies in the record. */
static tdict_status check_field(const char *what, const tdict_records *r, const tdict_record_field *field,
                                tdict_error *err) {
  char dtype[TDICT_DTYPE_TEXT_BYTES];
  tdict_layout_size size;
  size_t end;
  tdict_status status = tdict_field_check(what, field->path, field->ndim, field->shape, err);
  if (status == TDICT_OK) status = tdict_layout_check(what, field->dtype, field->ndim, field->shape, &size, err);
  if (status != TDICT_OK) return status;
  const size_t bytes = size.bytes;
  tdict_dtype_format(field->dtype, dtype, sizeof dtype);
  if (field->member_bytes && field->member_bytes != bytes)
    return tdict_fail(err, TDICT_ESHAPE, "%s: the member has %zu bytes, but %s with these sizes has %zu", what,
                      field->member_bytes, dtype, bytes);
  if (!tdict_add_size(field->offset, bytes, &end) || end > r->record_bytes)
    return tdict_fail(err, TDICT_ESHAPE, "%s: %zu bytes at offset %zu reach outside the record of %zu bytes", what,
                      bytes, field->offset, r->record_bytes);
  /* Strides are counted in elements, so the next record must be a whole number of elements away. */
  const size_t item = tdict_dtype_bytes(field->dtype);
  if (r->record_bytes % item == 0) return TDICT_OK;
  return tdict_fail(err, TDICT_ENOTSUP,
                    "%s: the record has %zu bytes, wanted a multiple of the %zu bytes of %s; add %zu bytes of padding "
                    "to the struct, or describe the member by a smaller dtype",
                    what, r->record_bytes, item, dtype, item - r->record_bytes % item);
}

/* Checks the array and all fields. Writes the array's bytes, and the dimensions of all tensors together. */
static tdict_status check_records(const char *what, const tdict_records *r, size_t *bytes, size_t *num_dims,
                                  tdict_error *err) {
  uintptr_t end;
  if (r->num_records < 0 || !r->record_bytes)
    return tdict_fail(err, TDICT_EINVAL, "%s: %lld records of %zu bytes; wanted 0 or more records of 1 byte or more",
                      what, (long long)r->num_records, r->record_bytes);
  if (!r->fields || !r->num_fields)
    return tdict_fail(err, TDICT_EINVAL, "%s: %s", what, r->fields ? "there are no fields" : "fields is NULL");
  if (!r->data && r->num_records) return tdict_fail(err, TDICT_EINVAL, "%s: data is NULL and there are records", what);
  if (r->flags & ~(TDICT_DESC_PINNED | TDICT_DESC_READ_ONLY))
    return tdict_fail(err, TDICT_EINVAL, "%s: flags are 0x%x, wanted TDICT_DESC_PINNED and _READ_ONLY only", what,
                      (unsigned)r->flags);
  if (!tdict_mul_size((size_t)r->num_records, r->record_bytes, bytes) || *bytes > INT64_MAX ||
      __builtin_add_overflow((uintptr_t)r->data, *bytes, &end))
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: %lld records of %zu bytes do not fit the address space", what,
                      (long long)r->num_records, r->record_bytes);
  *num_dims = 0;
  for (size_t i = 0; i < r->num_fields; i++) {
    tdict_status status = check_field(what, r, &r->fields[i], err);
    if (status != TDICT_OK) return tdict_error_at(err, status, r->fields[i].path);
    *num_dims += 1 + (size_t)r->fields[i].ndim;
  }
  return TDICT_OK;
}

static tdict_tensor *view_field(tdict_slab *slab, tdict_storage *storage, const tdict_records *r,
                                const tdict_record_field *field) {
  int64_t shape[1 + TDICT_FIELD_NDIM], strides[1 + TDICT_FIELD_NDIM];
  shape[0] = r->num_records;
  strides[0] = (int64_t)(r->record_bytes / tdict_dtype_bytes(field->dtype));
  for (int i = 0; i < field->ndim; i++) shape[1 + i] = field->shape[i];
  tdict_layout_strides(field->ndim, field->shape, strides + 1);
  const tdict_tensor_desc view = {.data = r->data ? (char *)r->data + field->offset : NULL,
                                  .dtype = field->dtype,
                                  .ndim = 1 + field->ndim,
                                  .shape = shape,
                                  .strides = strides};
  return tdict_slab_add_view(slab, storage, &view);
}

static tdict_status make_tree(const char *what, const tdict_records *r, size_t num_dims, tdict_storage *storage,
                              tdict_tree **out, tdict_error *err) {
  tdict_slab *slab;
  tdict_tree *td = NULL;
  tdict_status status = tdict_slab_create(r->num_fields, num_dims, NULL, &slab, err);
  if (status != TDICT_OK) return status;
  status = tdict_create(1, &r->num_records, &td, err);
  for (size_t i = 0; i < r->num_fields && status == TDICT_OK; i++) {
    tdict_tensor *tensor = view_field(slab, storage, r, &r->fields[i]);
    status = tdict_place_add(td, r->fields[i].path, tensor, what, err);
    tdict_tensor_release(tensor);
  }
  tdict_slab_release(slab, 1);
  return TDICT_HAND_OVER(status, td, out, tdict_release);
}

/* Reads the caller's description into `r`, and makes a tree over the array. *storage is borrowed from the tree. */
static tdict_status view_records(const char *what, const tdict_records *records, tdict_records *r,
                                 tdict_storage **storage, tdict_tree **out, tdict_error *err) {
  size_t bytes, num_dims;
  if (!records) return tdict_fail(err, TDICT_EINVAL, "%s: records is NULL", what);
  *r = tdict_records_default();
  tdict_status status = tdict_options_read(r, sizeof *r, records, "tdict_records", err);
  if (status == TDICT_OK) status = check_records(what, r, &bytes, &num_dims, err);
  if (status != TDICT_OK) return status;
  uint32_t flags = 0;
  if (r->flags & TDICT_DESC_PINNED) flags |= TDICT_STORAGE_CLAIMED;
  if (r->flags & TDICT_DESC_READ_ONLY) flags |= TDICT_STORAGE_READ_ONLY;
  status = tdict_storage_wrap(r->data, bytes, tdict_cpu(), flags, storage, err);
  if (status != TDICT_OK) return status;
  status = make_tree(what, r, num_dims, *storage, out, err);
  tdict_storage_release(*storage);
  return status;
}

tdict_status tdict_records_view(const tdict_records *records, void (*release)(void *user), void *user, tdict_tree **out,
                                tdict_error *err) {
  tdict_records r;
  tdict_storage *storage;
  if (!out) return tdict_fail(err, TDICT_EINVAL, "records_view: out is NULL");
  tdict_status status = view_records("records_view", records, &r, &storage, out, err);
  if (status != TDICT_OK) return status;
  /* Set the callback only on success. If the call fails, the caller still owns the array. */
  storage->release = release;
  storage->user = user;
  return TDICT_OK;
}

/* Checks the tensor of one field if `checks_only` is true. Otherwise copies the tensor to the records. */
static tdict_status write_field(const char *path, const tdict_tree *dst, const tdict_tree *src, bool checks_only,
                                tdict_error *err) {
  static const char what[] = "records_write";
  tdict_tensor *to = NULL, *from = NULL;
  tdict_status status = tdict_get(dst, path, &to, err);
  if (status == TDICT_OK) status = tdict_get(src, path, &from, err);
  if (status != TDICT_OK) return status;
  if (!checks_only) return tdict_tensor_copy(to, from, err);
  if (!tdict_is_on_host(from))
    return tdict_fail(err, TDICT_EWRONGDEVICE,
                      "%s: the tensor is on %s, wanted host memory; call tdict_to_device() with the cpu first, or "
                      "tdict_transfer_into_async() with a view of the records",
                      what, TDICT_DEVICE_TEXT(from->storage->device));
  status = tdict_check_shape(what, from, to->ndim, to->dims, err);
  return status == TDICT_OK ? tdict_check_copy(what, to, from, err) : status;
}

tdict_status tdict_records_write(const tdict_records *records, const tdict_tree *src, tdict_error *err) {
  tdict_records r;
  tdict_storage *storage;
  tdict_tree *dst = NULL;
  if (!src) return tdict_fail(err, TDICT_EINVAL, "records_write: src is NULL");
  tdict_status status = view_records("records_write", records, &r, &storage, &dst, err);
  if (status != TDICT_OK) return status;
  /* Check all fields before the first byte is written. */
  for (int pass = 0; pass < 2; pass++)
    for (size_t i = 0; i < r.num_fields && status == TDICT_OK; i++) {
      status = write_field(r.fields[i].path, dst, src, pass == 0, err);
      if (status != TDICT_OK) tdict_error_at(err, status, r.fields[i].path);
    }
  tdict_release(dst);
  return status;
}
