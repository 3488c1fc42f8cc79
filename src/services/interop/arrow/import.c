/* Imports Arrow arrays as trees, from host memory and from device memory. Tensors over the buffers share one
 * reference-counted holder of the array. See tdict/arrow.h for ownership and threads. */
#include "services/interop/arrow/import.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/options.h"
#include "device/devices.h"

tdict_status tdict_arrow_import_begin(tdict_arrow_importer *m, const tdict_arrow_import_options *options,
                                      tdict_error *err) {
  const char *what = m->what;
  tdict_arrow_import_options *out = &m->options;
  m->flags = TDICT_DESC_READ_ONLY;
  m->device = tdict_cpu();
  *out = tdict_arrow_import_options_default();
  tdict_status status = tdict_options_read(out, sizeof *out, options, "arrow import options", err);
  if (status != TDICT_OK) return status;
  if (out->nulls < TDICT_ARROW_NULLS_REFUSE || out->nulls > TDICT_ARROW_NULLS_MASK)
    return tdict_fail(err, TDICT_EINVAL, "%s: nulls is %d, wanted a tdict_arrow_nulls", what, (int)out->nulls);
  if (out->mask_all && out->nulls != TDICT_ARROW_NULLS_MASK)
    return tdict_fail(err, TDICT_EINVAL, "%s: mask_all is set, but nulls is not MASK", what);
  if (out->nulls == TDICT_ARROW_NULLS_MASK && (!out->mask_path || !*out->mask_path))
    return tdict_fail(err, TDICT_EINVAL, "%s: mask_path is %s", what, out->mask_path ? "empty" : "NULL");
  return TDICT_OK;
}

/* Adds the mask of a leaf to the tree of masks, if the options ask for this mask. */
static tdict_status add_mask(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                             tdict_error *err) {
  tdict_tensor *mask;
  if (!m->masks || (!valid && !m->options.mask_all)) return TDICT_OK;
  tdict_status status = tdict_tensor_empty(TDICT_BOOL, 1, &c->count, NULL, &mask, err);
  if (status != TDICT_OK) return status;
  uint8_t *bools = tdict_tensor_data(mask);
  if (valid && c->count)
    memcpy(bools, valid, (size_t)c->count);
  else if (c->count)
    memset(bools, 1, (size_t)c->count);
  status = tdict_arrow_place(m, &mask, err);
  if (status == TDICT_OK) status = tdict_set(m->masks, m->path.bytes, mask, err);
  tdict_tensor_release(mask);
  return status;
}

static tdict_status import_fields(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                                  tdict_error *err);

static tdict_status import_struct(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                                  tdict_error *err) {
  tdict_tree *child;
  tdict_status status = tdict_create(1, &c->count, &child, err);
  if (status != TDICT_OK) return status;
  status = tdict_set_tree(m->tree, m->path.bytes, child, err);
  tdict_release(child);
  return status == TDICT_OK ? import_fields(m, c, valid, err) : status;
}

/* Imports a column and sets the leaf or the child tree at m->path. */
static tdict_status import_column(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                                  tdict_error *err) {
  tdict_tensor *tensor;
  if (c->type.kind == TDICT_ARROW_STRUCT) return import_struct(m, c, valid, err);
  tdict_status status = add_mask(m, c, valid, err);
  if (status != TDICT_OK) return status;
  if (c->type.kind == TDICT_ARROW_LIST) return tdict_arrow_import_list(m, c, valid, err);
  if (c->type.kind == TDICT_ARROW_TEXT || c->type.kind == TDICT_ARROW_NULL)
    return tdict_arrow_import_text(m, c, valid, err);
  status = tdict_arrow_import_tensor(m, c, valid, &tensor, err);
  if (status != TDICT_OK) return status;
  status = tdict_set(m->tree, m->path.bytes, tensor, err);
  tdict_tensor_release(tensor);
  return status;
}

/* Imports field `i` of a struct. The field is named by the last key of m->path. */
static tdict_status import_field(tdict_arrow_importer *m, const tdict_arrow_column *parent, int64_t i,
                                 const uint8_t *above, tdict_error *err) {
  const char *name = parent->schema->children[i]->name;
  const tdict_arrow_range rows = {parent->start, parent->count};
  tdict_arrow_column column;
  uint8_t *valid = NULL;
  if (!name || !*name)
    return tdict_fail(err, TDICT_EINVAL, "%s: the name of field %lld is empty", m->what, (long long)i);
  if (tdict_has(m->tree, m->path.bytes))
    return tdict_fail(err, TDICT_EEXIST, "%s: two fields have the same name", m->what);
  /* The offset of a struct also applies to its children. */
  tdict_status status = tdict_arrow_column_child(m, parent, i, rows, &column, err);
  if (status == TDICT_OK) status = tdict_arrow_column_nulls(m, &column, above, &valid, err);
  if (status == TDICT_OK) status = import_column(m, &column, valid, err);
  free(valid);
  return status;
}

/* Imports the fields of a struct. The tree at m->path exists. */
static tdict_status import_fields(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                                  tdict_error *err) {
  tdict_status status = TDICT_OK;
  if (m->depth == TDICT_ARROW_MOST_DEPTH)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: more than %d levels", m->what, TDICT_ARROW_MOST_DEPTH);
  m->depth++;
  for (int64_t i = 0; i < c->schema->n_children && status == TDICT_OK; i++) {
    const char *name = c->schema->children[i]->name;
    const size_t mark = m->path.length;
    status = tdict_arrow_path_push(&m->path, name ? name : "", err);
    if (status != TDICT_OK) break;
    status = import_field(m, c, i, valid, err);
    if (status != TDICT_OK && !m->is_located) tdict_error_at(err, status, m->path.bytes);
    m->is_located = status != TDICT_OK;
    tdict_io_text_cut(&m->path, mark);
  }
  m->depth--;
  return status;
}

static tdict_status set_masks(const tdict_arrow_importer *m, tdict_error *err) {
  const char *path = m->options.mask_path;
  if (!m->masks || tdict_num_keys(m->masks) == 0) return TDICT_OK;
  if (!tdict_has(m->tree, path)) return tdict_set_tree(m->tree, path, m->masks, err);
  return tdict_fail_at(err, TDICT_EEXIST, path, "%s: the array has a field at the path of the masks", m->what);
}

/* Imports the columns. Each tensor over the array retains the holder. */
static tdict_status import_columns(tdict_arrow_importer *m, const struct ArrowSchema *schema,
                                   const struct ArrowArray *array, tdict_tree **out, tdict_error *err) {
  const tdict_arrow_range all = {0, array && array->length > 0 ? array->length : 0};
  tdict_arrow_column column;
  uint8_t *valid = NULL;
  tdict_status status = tdict_arrow_column_open(m, schema, array, all, &column, err);
  if (status == TDICT_OK && column.type.kind != TDICT_ARROW_STRUCT)
    status = tdict_fail(err, TDICT_ETYPE, "%s: the format of the array is '%.20s', wanted a struct '+s'", m->what,
                        schema->format);
  if (status == TDICT_OK) status = tdict_create(1, &column.count, &m->tree, err);
  if (status == TDICT_OK && m->options.nulls == TDICT_ARROW_NULLS_MASK)
    status = tdict_create(1, &column.count, &m->masks, err);
  if (status == TDICT_OK) status = tdict_arrow_column_nulls(m, &column, NULL, &valid, err);
  if (status == TDICT_OK) status = import_fields(m, &column, valid, err);
  free(valid);
  if (status == TDICT_OK) status = set_masks(m, err);
  if (status == TDICT_OK && m->memory) status = tdict_set_device(m->tree, &m->device, err);
  tdict_release(m->masks);
  tdict_io_text_reset(&m->path);
  return TDICT_HAND_OVER(status, m->tree, out, tdict_release);
}

tdict_status tdict_arrow_import_tree(tdict_arrow_importer *m, const struct ArrowSchema *schema,
                                     struct ArrowArray *array, tdict_tree **out, tdict_error *err) {
  tdict_arrow_holder *holder = calloc(1, sizeof *holder);
  if (!holder) return tdict_fail_memory(err, m->what, NULL, "the array's record");
  atomic_init(&holder->refs, 1);
  m->holder = holder;
  tdict_status status = import_columns(m, schema, array, out, err);
  if (status == TDICT_OK && array) {
    holder->array = *array;
    array->release = NULL;
  }
  tdict_arrow_holder_release(holder);
  return status;
}

static tdict_status begin_import(tdict_arrow_importer *m, const struct ArrowSchema *schema,
                                 const struct ArrowArray *array, const tdict_arrow_import_options *options,
                                 const void *out, tdict_error *err) {
  if (!schema || !array || !out) return tdict_fail_null(err, m->what, !schema ? "schema" : array ? "out" : "array");
  if (!schema->release || !array->release)
    return tdict_fail(err, TDICT_EINVAL, "%s: the %s is released", m->what, schema->release ? "array" : "schema");
  return tdict_arrow_import_begin(m, options, err);
}

tdict_status tdict_arrow_import(const struct ArrowSchema *schema, struct ArrowArray *array,
                                const tdict_arrow_import_options *options, tdict_tree **out, tdict_error *err) {
  tdict_arrow_importer m = {.what = "arrow_import"};
  tdict_status status = begin_import(&m, schema, array, options, out, err);
  return status == TDICT_OK ? tdict_arrow_import_tree(&m, schema, array, out, err) : status;
}

/* Finds the gpu whose memory or event the array uses. *gpu is NULL for host memory, if pinned without an event. */
static tdict_status find_gpu(const char *what, tdict_devices *devices, const struct ArrowDeviceArray *array,
                             tdict_gpu **gpu, tdict_error *err) {
  tdict_device device = {array->device_type, (int32_t)array->device_id};
  *gpu = NULL;
  if (array->device_type == ARROW_DEVICE_CPU) return TDICT_OK;
  if (array->device_type == ARROW_DEVICE_CUDA_HOST && !array->sync_event) return TDICT_OK;
  if (array->device_type == ARROW_DEVICE_CUDA_HOST) device.type = TDICT_DEVICE_CUDA;
  if (device.type != TDICT_DEVICE_CUDA && device.type != TDICT_DEVICE_SIM)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: the Arrow device type is %d, wanted cpu, cuda, cuda_host or ext_dev",
                      what, (int)array->device_type);
  if (array->device_id != device.index || device.index < 0)
    return tdict_fail(err, TDICT_ENODEVICE, "%s: the device id is %lld", what, (long long)array->device_id);
  return tdict_devices_gpu(devices, device, gpu, err);
}

/* Waits for the event of an array. Arrow's event is a pointer to the handle of the driver's event. */
static tdict_status wait_for_event(tdict_gpu *gpu, void *sync_event, tdict_error *err) {
  tdict_gpu_scope scope;
  if (!gpu || !sync_event) return TDICT_OK;
  tdict_status status = tdict_gpu_enter(gpu, &scope, err);
  if (status == TDICT_OK) status = tdict_gpu_sync_event(gpu, *(tdict_cu_event *)sync_event, err);
  tdict_gpu_leave(gpu, &scope);
  return status;
}

tdict_status tdict_arrow_import_device(tdict_context *context, const struct ArrowSchema *schema,
                                       struct ArrowDeviceArray *array, const tdict_arrow_import_options *options,
                                       tdict_tree **out, tdict_error *err) {
  tdict_arrow_importer m = {.what = "arrow_import_device"};
  tdict_gpu *gpu;
  if (!context) return tdict_fail(err, TDICT_EINVAL, "%s: context is NULL", m.what);
  tdict_status status = begin_import(&m, schema, array ? &array->array : NULL, options, out, err);
  if (status == TDICT_OK) status = find_gpu(m.what, tdict_context_devices(context), array, &gpu, err);
  if (status == TDICT_OK) status = wait_for_event(gpu, array->sync_event, err);
  if (status != TDICT_OK) return status;
  if (array->device_type == ARROW_DEVICE_CUDA_HOST) {
    m.flags |= TDICT_DESC_PINNED;
  } else if (gpu) {
    m.device = gpu->memory.device;
    m.memory = &gpu->memory;
  }
  return tdict_arrow_import_tree(&m, schema, &array->array, out, err);
}
