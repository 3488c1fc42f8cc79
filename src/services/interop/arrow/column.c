/* Checks columns of an imported array, and reads their buffers. The buffers belong to the holder of the array. The last
 * tensor over the buffers releases the array. Thread rule: as in import.h. */
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/tensor/tensor.h"
#include "services/interop/arrow/import.h"

/* Checks the members of an array. The validity bitmap may be NULL if null_count is not positive. */
static tdict_status check_array(const tdict_arrow_importer *m, const struct ArrowArray *a, const tdict_arrow_type *type,
                                tdict_error *err) {
  int64_t end;
  if (!a->release) return tdict_fail(err, TDICT_EFORMAT, "%s: the array is released", m->what);
  if (a->length < 0 || a->offset < 0 || !tdict_add_i64(a->length, a->offset, &end))
    return tdict_fail(err, TDICT_EFORMAT, "%s: length %lld and offset %lld, wanted 0 or more", m->what,
                      (long long)a->length, (long long)a->offset);
  if (a->null_count < -1 || a->null_count > a->length)
    return tdict_fail(err, TDICT_EFORMAT, "%s: %lld nulls in %lld elements", m->what, (long long)a->null_count,
                      (long long)a->length);
  /* Old versions of Arrow wrote a validity bitmap for the null type. */
  if (a->n_buffers != type->num_buffers && !(type->kind == TDICT_ARROW_NULL && a->n_buffers == 1))
    return tdict_fail(err, TDICT_EFORMAT, "%s: %lld buffers, wanted %d", m->what, (long long)a->n_buffers,
                      (int)type->num_buffers);
  if (a->n_buffers && !a->buffers) return tdict_fail(err, TDICT_EFORMAT, "%s: the array of buffers is NULL", m->what);
  if (a->n_buffers && a->null_count > 0 && !a->buffers[0] && type->kind != TDICT_ARROW_NULL)
    return tdict_fail(err, TDICT_EFORMAT, "%s: %lld nulls, but the buffer of validity is NULL", m->what,
                      (long long)a->null_count);
  if (a->dictionary) return tdict_fail(err, TDICT_EFORMAT, "%s: only the array has a dictionary", m->what);
  return TDICT_OK;
}

static int64_t count_children(const tdict_arrow_column *c) {
  if (c->type.kind == TDICT_ARROW_STRUCT) return c->schema->n_children;
  return c->type.kind == TDICT_ARROW_LIST || c->type.kind == TDICT_ARROW_FIXED_LIST ? 1 : 0;
}

/* Checks the number of children in both structs, and that no child is NULL. */
static tdict_status check_children(const tdict_arrow_importer *m, const tdict_arrow_column *c, tdict_error *err) {
  const struct ArrowSchema *s = c->schema;
  const struct ArrowArray *a = c->array;
  const int64_t wanted = count_children(c);
  if (s->n_children != wanted || wanted < 0 || (a && a->n_children != wanted))
    return tdict_fail(err, TDICT_EFORMAT, "%s: %lld children in the schema and %lld in the array, wanted %lld", m->what,
                      (long long)s->n_children, (long long)(a ? a->n_children : s->n_children),
                      (long long)(wanted < 0 ? 0 : wanted));
  bool complete = wanted == 0 || (s->children && (!a || a->children));
  for (int64_t i = 0; complete && i < wanted; i++) complete = s->children[i] && (!a || a->children[i]);
  return complete ? TDICT_OK : tdict_fail(err, TDICT_EFORMAT, "%s: a child is NULL", m->what);
}

tdict_status tdict_arrow_column_open(const tdict_arrow_importer *m, const struct ArrowSchema *schema,
                                     const struct ArrowArray *array, tdict_arrow_range range, tdict_arrow_column *out,
                                     tdict_error *err) {
  *out = (tdict_arrow_column){.schema = schema, .array = array, .count = range.count};
  if (!schema->release) return tdict_fail(err, TDICT_EFORMAT, "%s: the schema is released", m->what);
  tdict_status status = tdict_arrow_type_read(m->what, schema, &out->type, err);
  if (status == TDICT_OK && array) status = check_array(m, array, &out->type, err);
  if (status == TDICT_OK) status = check_children(m, out, err);
  if (status != TDICT_OK || !array) return status;
  int64_t end;
  if (!tdict_add_i64(range.first, range.count, &end) || end > array->length)
    return tdict_fail(err, TDICT_EFORMAT, "%s: the array has %lld elements, its parent needs %lld", m->what,
                      (long long)array->length, (long long)end);
  out->start = array->offset + range.first;
  /* A column without elements needs no buffer of elements or offsets. */
  if (out->type.num_buffers > 1 && range.count > 0 && !array->buffers[1])
    return tdict_fail(err, TDICT_EFORMAT, "%s: the buffer of %s is NULL", m->what,
                      out->type.kind <= TDICT_ARROW_BOOL ? "elements" : "offsets");
  return TDICT_OK;
}

tdict_status tdict_arrow_column_child(const tdict_arrow_importer *m, const tdict_arrow_column *c, int64_t i,
                                      tdict_arrow_range range, tdict_arrow_column *out, tdict_error *err) {
  return tdict_arrow_column_open(m, c->schema->children[i], c->array ? c->array->children[i] : NULL, range, out, err);
}

const void *tdict_arrow_column_buffer(const tdict_arrow_column *c, int i) {
  return c->array && i < c->array->n_buffers ? c->array->buffers[i] : NULL;
}

void tdict_arrow_holder_release(void *user) {
  tdict_arrow_holder *holder = user;
  if (atomic_fetch_sub_explicit(&holder->refs, 1, memory_order_acq_rel) != 1) return;
  if (holder->array.release) holder->array.release(&holder->array);
  free(holder);
}

static tdict_status wrap_elements(const tdict_arrow_importer *m, const void *elements, tdict_dtype dtype, int64_t count,
                                  tdict_tensor **out, tdict_error *err) {
  tdict_tensor_desc desc = tdict_tensor_desc_default();
  desc.data = (void *)(uintptr_t)elements;
  desc.device = m->device;
  desc.dtype = dtype;
  desc.ndim = 1;
  desc.shape = &count;
  desc.flags = m->flags;
  atomic_fetch_add_explicit(&m->holder->refs, 1, memory_order_relaxed);
  tdict_status status = tdict_tensor_from_data(&desc, tdict_arrow_holder_release, m->holder, out, err);
  if (status != TDICT_OK) tdict_arrow_holder_release(m->holder);
  return status;
}

tdict_status tdict_arrow_host_copy(const tdict_arrow_importer *m, const tdict_tensor *from, tdict_tensor **out,
                                   tdict_error *err) {
  tdict_tensor *own = NULL;
  tdict_status status = TDICT_OK;
  /* Only the library's own device memory can be copied to the host. */
  if (from->storage->device.type != TDICT_DEVICE_CPU) {
    status = tdict_tensor_clone(from, m->memory, &own, err);
    from = own;
  }
  if (status == TDICT_OK) status = tdict_tensor_clone(from, NULL, out, err);
  tdict_tensor_release(own);
  return status;
}

/* Copies elements to new host memory as bytes. */
static tdict_status copy_to_host(const tdict_arrow_importer *m, const void *bytes, int64_t count, tdict_tensor **out,
                                 tdict_error *err) {
  tdict_tensor *over;
  tdict_status status = wrap_elements(m, bytes, TDICT_U8, count, &over, err);
  if (status != TDICT_OK) return status;
  status = tdict_arrow_host_copy(m, over, out, err);
  tdict_tensor_release(over);
  return status;
}

tdict_status tdict_arrow_to_host(const tdict_arrow_importer *m, const void *buffer, int64_t bytes, tdict_tensor **copy,
                                 const void **out, tdict_error *err) {
  *copy = NULL;
  *out = buffer;
  if (!m->memory || bytes == 0) return TDICT_OK;
  tdict_status status = copy_to_host(m, buffer, bytes, copy, err);
  if (status == TDICT_OK) *out = (*copy)->data;
  return status;
}

tdict_status tdict_arrow_unpack(const tdict_arrow_importer *m, const void *buffer, int64_t first, int64_t count,
                                uint8_t *out, tdict_error *err) {
  tdict_tensor *copy;
  const void *bytes;
  if (count == 0) return TDICT_OK;
  const int64_t begin = first / 8, shift = first % 8;
  const int64_t num_bytes = count / 8 + (count % 8 + shift + 7) / 8;
  tdict_status status = tdict_arrow_to_host(m, (const char *)buffer + begin, num_bytes, &copy, &bytes, err);
  if (status != TDICT_OK) return status;
  const uint8_t *bits = bytes;
  for (int64_t i = 0; i < count; i++) out[i] = (uint8_t)(bits[(shift + i) / 8] >> (shift + i) % 8 & 1);
  tdict_tensor_release(copy);
  return TDICT_OK;
}

/* Writes 0 for each null element and 1 for every other element. Ignores the nulls of parents. */
static tdict_status read_validity(const tdict_arrow_importer *m, const tdict_arrow_column *c, uint8_t *valid,
                                  tdict_error *err) {
  if (c->type.kind == TDICT_ARROW_NULL) {
    memset(valid, 0, (size_t)c->count);
    return TDICT_OK;
  }
  const void *bits = c->array->null_count ? tdict_arrow_column_buffer(c, 0) : NULL;
  if (bits) return tdict_arrow_unpack(m, bits, c->start, c->count, valid, err);
  memset(valid, 1, (size_t)c->count);
  return TDICT_OK;
}

/* Returns true if no element can be null. If true, the column needs no validity bytes. */
static bool has_no_nulls(const tdict_arrow_column *c) {
  if (c->count == 0) return true;
  return c->type.kind != TDICT_ARROW_NULL && (c->array->null_count == 0 || !tdict_arrow_column_buffer(c, 0));
}

tdict_status tdict_arrow_column_nulls(const tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *above,
                                      uint8_t **out, tdict_error *err) {
  int64_t nulls = 0;
  *out = NULL;
  if (!above && has_no_nulls(c)) return TDICT_OK;
  uint8_t *valid = malloc((size_t)c->count + 1);
  if (!valid) return tdict_fail_memory(err, m->what, NULL, "the nulls of %lld rows", (long long)c->count);
  tdict_status status = read_validity(m, c, valid, err);
  for (int64_t i = 0; status == TDICT_OK && i < c->count; i++) {
    if (above && !above[i]) valid[i] = 0;
    nulls += !valid[i];
  }
  if (status == TDICT_OK && nulls && m->options.nulls == TDICT_ARROW_NULLS_REFUSE)
    status = tdict_fail(err, TDICT_EINVAL, "%s: %lld of %lld rows are null; the option nulls can fill or mask them",
                        m->what, (long long)nulls, (long long)c->count);
  if (status == TDICT_OK && nulls)
    *out = valid;
  else
    free(valid);
  return status;
}

tdict_status tdict_arrow_wrap(const tdict_arrow_importer *m, const void *elements, tdict_dtype dtype, int64_t count,
                              tdict_tensor **out, tdict_error *err) {
  const size_t item = tdict_dtype_bytes(dtype);
  int64_t bytes;
  tdict_tensor *host;
  if (count == 0) return tdict_tensor_empty(dtype, 1, &count, m->memory, out, err);
  if ((uintptr_t)elements % item == 0) return wrap_elements(m, elements, dtype, count, out, err);
  if (!tdict_mul_i64(count, (int64_t)item, &bytes))
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: the bytes of %lld elements do not fit 63 bits", m->what,
                      (long long)count);
  /* Tensors need aligned elements, so copy elements that are not aligned. */
  tdict_status status = copy_to_host(m, elements, bytes, &host, err);
  if (status != TDICT_OK) return status;
  status = tdict_tensor_from_array(dtype, 1, &count, host->data, out, err);
  tdict_tensor_release(host);
  if (status != TDICT_OK) return status;
  tdict_tensor *tensor = *out;
  status = tdict_arrow_place(m, &tensor, err);
  return TDICT_HAND_OVER(status, tensor, out, tdict_tensor_release);
}

tdict_status tdict_arrow_place(const tdict_arrow_importer *m, tdict_tensor **tensor, tdict_error *err) {
  tdict_tensor *placed;
  if (!m->memory || (*tensor)->storage->device.type != TDICT_DEVICE_CPU) return TDICT_OK;
  tdict_status status = tdict_tensor_clone(*tensor, m->memory, &placed, err);
  if (status != TDICT_OK) return status;
  tdict_tensor_release(*tensor);
  *tensor = placed;
  return TDICT_OK;
}
