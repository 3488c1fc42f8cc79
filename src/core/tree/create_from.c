/* Creates a tree from a list of fields. First checks the shapes and dtypes of all fields. Then makes one storage and
 * one slab of tensors, and adds the tensors to a new tree. tdict_place_add() checks the path of each tensor. The tree
 * owns the tensors, and the tensors own the storage. Thread rule: thread-safe, since only new trees are written. */

#include "core/tree/create_from.h"
#include "core/base/error.h"
#include "core/tensor/tensor_builder.h"
#include "core/tree/place.h"

static const char what[] = "create_from";

/* The tree to create, and the builder that measures and then creates its tensors. */
typedef struct plan {
  bool zero;
  int batch_ndim;
  const int64_t *batch_size;
  tdict_tensor_builder builder;
} plan;

/* Writes the shape of a field, batch dimensions first. Returns the number of dimensions. */
static int write_field_shape(const plan *p, const tdict_field *field, int64_t *shape) {
  for (int i = 0; i < p->batch_ndim; i++) shape[i] = p->batch_size[i];
  for (int i = 0; i < field->ndim; i++) shape[p->batch_ndim + i] = field->shape[i];
  return p->batch_ndim + field->ndim;
}

tdict_status tdict_field_check(const char *caller, const char *path, int ndim, const int64_t *shape, tdict_error *err) {
  if (!path) return tdict_fail(err, TDICT_EINVAL, "%s: a field's path is NULL", caller);
  if (ndim < 0 || ndim > TDICT_FIELD_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: the field has %d dimensions, wanted 0 to %d", caller, ndim,
                      (int)TDICT_FIELD_NDIM);
  /* Without this check, a program that forgot to set `ndim` would silently get tensors of another shape. */
  for (int i = ndim; i < TDICT_FIELD_NDIM; i++)
    if (shape[i])
      return tdict_fail(err, TDICT_EINVAL, "%s: ndim is %d, but shape[%d] is %lld: wanted 0 from shape[ndim] on",
                        caller, ndim, i, (long long)shape[i]);
  return TDICT_OK;
}

/* Checks a field and adds its tensor to the builder. */
static tdict_status plan_field(plan *p, const tdict_field *field, tdict_error *err) {
  int64_t shape[TDICT_MAX_BATCH_NDIM + TDICT_FIELD_NDIM];
  tdict_status status = tdict_field_check(what, field->path, field->ndim, field->shape, err);
  if (status != TDICT_OK) return status;
  int ndim = write_field_shape(p, field, shape);
  return tdict_tensor_builder_measure(&p->builder, what, field->dtype, ndim, shape, err);
}

static tdict_status plan_fields(plan *p, const tdict_fields *list, tdict_error *err) {
  tdict_status status = tdict_batch_check(what, p->batch_ndim, p->batch_size, err);
  if (status == TDICT_OK && list->count && !list->fields) status = tdict_fail_null(err, what, "fields");
  for (size_t i = 0; i < list->count && status == TDICT_OK; i++) {
    status = plan_field(p, &list->fields[i], err);
    if (status != TDICT_OK) tdict_error_at(err, status, list->fields[i].path);
  }
  return status;
}

/* Makes the tensors one after another and adds them to the tree. */
static tdict_status add_field_tensors(tdict_tree *td, plan *p, const tdict_fields *list, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < list->count && status == TDICT_OK; i++) {
    const tdict_field *field = &list->fields[i];
    int64_t shape[TDICT_MAX_BATCH_NDIM + TDICT_FIELD_NDIM];
    int ndim = write_field_shape(p, field, shape);
    tdict_tensor *tensor = tdict_tensor_builder_add(&p->builder, field->dtype, ndim, shape);
    status = tdict_place_add(td, field->path, tensor, what, err);
    tdict_tensor_release(tensor);
  }
  return status;
}

/* Checks the fields, then creates the tree that they describe. On failure nothing is left allocated. */
static tdict_status create_planned_tree(plan *p, const tdict_fields *list, tdict_memory *memory, tdict_tree **out,
                                        tdict_error *err) {
  tdict_tree *td = NULL;
  tdict_status status = plan_fields(p, list, err);
  if (status == TDICT_OK) status = tdict_create(p->batch_ndim, p->batch_size, &td, err);
  if (status == TDICT_OK) status = tdict_tensor_builder_allocate(&p->builder, memory, p->zero, err);
  if (status == TDICT_OK) status = add_field_tensors(td, p, list, err);
  /* The tensors in the tree hold the slab from now on. */
  tdict_tensor_builder_reset(&p->builder);
  return TDICT_HAND_OVER(status, td, out, tdict_release);
}

tdict_status tdict_fields_check(const tdict_fields *list, int64_t count, tdict_error *err) {
  plan p = {.batch_ndim = 1, .batch_size = &count};
  return plan_fields(&p, list, err);
}

tdict_status tdict_create_from(const tdict_field *fields, size_t num_fields, int batch_ndim, const int64_t *batch_size,
                               tdict_memory *memory, tdict_tree **out, tdict_error *err) {
  if (!out) return tdict_fail_null(err, what, "out");
  plan p = {.zero = true, .batch_ndim = batch_ndim, .batch_size = batch_size};
  return create_planned_tree(&p, &(tdict_fields){fields, num_fields}, memory, out, err);
}

tdict_status tdict_create_unset(const tdict_fields *list, int batch_ndim, const int64_t *batch_size,
                                tdict_memory *memory, tdict_tree **out, tdict_error *err) {
  plan p = {.zero = false, .batch_ndim = batch_ndim, .batch_size = batch_size};
  return create_planned_tree(&p, list, memory, out, err);
}

tdict_status tdict_create_numbered(const char *caller, tdict_tree *const *trees, size_t count, tdict_tree **out,
                                   tdict_error *err) {
  tdict_tree *parent;
  tdict_status status = tdict_create(0, NULL, &parent, err);
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    char key[24];
    const tdict_name name = tdict_name_of(key, (size_t)snprintf(key, sizeof key, "%zu", i));
    if (tdict_node_add_name(parent, &name, tdict_leaf_of_tree(tdict_retain(trees[i])))) continue;
    tdict_release(trees[i]);
    tdict_release(parent);
    status = tdict_fail_memory(err, caller, NULL, "%zu trees", count);
  }
  if (status == TDICT_OK) *out = parent;
  return status;
}
