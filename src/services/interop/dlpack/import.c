/* Makes tensors over managed tensors. Each storage owns its managed tensor, and calls the deleter when it is freed. A
 * failed call leaves all to the caller, except those of a newer major version. Thread rule: see tdict/dlpack.h. */
#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/options.h"
#include "services/interop/dlpack/stream.h"
#include "services/interop/dlpack/values.h"
#include "tdict/dlpack.h"

static void delete_versioned(void *user) {
  tdict_dl_versioned *managed = user;
  if (managed->deleter) managed->deleter(managed);
}
static void delete_legacy(void *user) {
  tdict_dl_legacy *managed = user;
  if (managed->deleter) managed->deleter(managed);
}

/* A managed tensor of either struct, borrowed from the caller until the import has succeeded. */
typedef struct incoming {
  const tdict_dl_tensor *tensor;
  bool read_only;
  void (*delete_managed)(void *managed);
  void *managed;
} incoming;

static incoming open_entry(const tdict_dlpack_entry *entry) {
  tdict_dl_versioned *m = (tdict_dl_versioned *)(void *)entry->versioned;
  tdict_dl_legacy *old = (tdict_dl_legacy *)(void *)entry->legacy;
  if (m) return (incoming){&m->tensor, (m->flags & TDICT_DL_READ_ONLY) != 0, delete_versioned, m};
  return (incoming){&old->tensor, false, delete_legacy, old};
}

/* Returns TDICT_EFORMAT for another major version. Deletes a newer tensor, as DLPack requires, and sets *managed to
 * NULL. */
static tdict_status check_version(struct DLManagedTensorVersioned **managed, tdict_error *err) {
  tdict_dl_versioned *m = (tdict_dl_versioned *)(void *)*managed;
  const uint32_t major = m->major, minor = m->minor;
  if (major == TDICT_DL_MAJOR) return TDICT_OK;
  if (major > TDICT_DL_MAJOR) {
    *managed = NULL;
    delete_versioned(m);
  }
  return tdict_fail(err, TDICT_EFORMAT, "dlpack: the tensor has version %u.%u, and the library knows version %d.%d",
                    (unsigned)major, (unsigned)minor, TDICT_DL_MAJOR, TDICT_DL_MINOR);
}

typedef struct importer {
  tdict_context *context;
  tdict_dlpack_import_options o;
  tdict_dlpack_stream producer;
  tdict_fence *filler; /* owned; fence of the work on the producer's stream. NULL: no stream */
  bool host_has_waited;
} importer;

static tdict_status begin_import(importer *im, tdict_context *context, const tdict_dlpack_import_options *options,
                                 tdict_error *err) {
  *im = (importer){.context = context, .o = tdict_dlpack_import_options_default()};
  tdict_status status = tdict_options_read(&im->o, sizeof im->o, options, "dlpack import options", err);
  if (status == TDICT_OK) status = tdict_dlpack_stream_open(context, im->o.stream, &im->producer, err);
  return status == TDICT_OK ? tdict_dlpack_note_producer(&im->producer, &im->filler, err) : status;
}

static void end_import(importer *im) {
  if (im->filler) im->filler->ops->release(im->filler);
}

/* Orders later uses of the bytes after the producer. Waits here for host memory, which any thread may read. */
static tdict_status order_after_producer(importer *im, tdict_storage *s, tdict_error *err) {
  if (!im->filler) return TDICT_OK;
  if (s->device.type != TDICT_DEVICE_CPU) return tdict_storage_add(s, im->filler, TDICT_USE_FILLS, err);
  if (!im->host_has_waited) im->filler->ops->wait(im->filler, INT64_MAX);
  im->host_has_waited = true;
  return TDICT_OK;
}

/* Copies a read-only tensor to memory of the library on the same device. */
static tdict_status copy_tensor(const importer *im, const tdict_tensor *tensor, tdict_tensor **out, tdict_error *err) {
  tdict_memory *memory = NULL;
  if (tensor->storage->device.type != TDICT_DEVICE_CPU) {
    if (!im->context)
      return tdict_fail(err, TDICT_EINVAL, "dlpack: context is NULL, and the option copy_read_only needs its memory");
    memory = tdict_device_memory(im->context, tensor->storage->device);
  }
  return tdict_tensor_clone(tensor, memory, out, err);
}

/* Makes the tensor. Its storage does not own the managed tensor yet. */
static tdict_status make_tensor(importer *im, const incoming *in, tdict_tensor **out, tdict_error *err) {
  tdict_tensor_desc desc;
  tdict_tensor *tensor, *copy;
  tdict_status status = tdict_dlpack_read(in->tensor, in->read_only, &desc, err);
  /* DLPack gives CUDA managed memory no device index, so take the device of the producer's stream. */
  if (status == TDICT_OK && in->tensor->device.type == TDICT_DL_CUDA_MANAGED && im->producer.gpu)
    desc.device = im->producer.device;
  if (status == TDICT_OK) status = tdict_tensor_from_data(&desc, NULL, NULL, &tensor, err);
  if (status != TDICT_OK) return status;
  status = tdict_dlpack_check_device(&im->producer, tensor->storage, err);
  if (status == TDICT_OK) status = order_after_producer(im, tensor->storage, err);
  if (status == TDICT_OK && in->read_only && im->o.copy_read_only) {
    status = copy_tensor(im, tensor, &copy, err);
    tdict_tensor_release(tensor);
    tensor = copy;
    if (status != TDICT_OK) return status;
  }
  return TDICT_HAND_OVER(status, tensor, out, tdict_tensor_release);
}

/* Moves an entry's managed tensor to the storage of the tensor, or deletes it if the tensor is a copy. */
static void take_managed(tdict_dlpack_entry *entry, const tdict_tensor *tensor) {
  const incoming in = open_entry(entry);
  tdict_storage *s = tensor->storage;
  entry->versioned = NULL;
  entry->legacy = NULL;
  if (s->flags & TDICT_STORAGE_FOREIGN) {
    s->user = in.managed;
    s->release = in.delete_managed;
  } else {
    in.delete_managed(in.managed);
  }
}

/* Returns TDICT_EINVAL if the entry does not have exactly one managed tensor. */
static tdict_status check_managed(const tdict_dlpack_entry *entry, tdict_error *err) {
  if (!entry->versioned != !entry->legacy) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "dlpack: the entry has %s, wanted one managed tensor",
                    entry->legacy ? "two managed tensors" : "no managed tensor");
}

tdict_status tdict_dlpack_import(tdict_context *context, tdict_dlpack_entry *entry,
                                 const tdict_dlpack_import_options *options, tdict_tensor **out, tdict_error *err) {
  importer im;
  tdict_tensor *tensor;
  if (!entry || !out) return tdict_fail_null(err, "dlpack", entry ? "out" : "entry");
  tdict_status status = check_managed(entry, err);
  if (status == TDICT_OK && entry->versioned) status = check_version(&entry->versioned, err);
  if (status != TDICT_OK) return status;
  const incoming in = open_entry(entry);
  status = begin_import(&im, context, options, err);
  if (status == TDICT_OK) status = make_tensor(&im, &in, &tensor, err);
  end_import(&im);
  if (status != TDICT_OK) return status;
  take_managed(entry, tensor);
  *out = tensor;
  return TDICT_OK;
}

/* Checks the versions of all entries, deletes tensors of newer major versions, and reports the first error. */
static tdict_status check_versions(tdict_dlpack_entry *entries, size_t count, tdict_error *err) {
  tdict_status first = TDICT_OK;
  for (size_t i = 0; i < count; i++) {
    if (!entries[i].versioned) continue;
    const tdict_status status = check_version(&entries[i].versioned, first == TDICT_OK ? err : NULL);
    if (status == TDICT_OK || first != TDICT_OK) continue;
    first = tdict_error_at(err, status, entries[i].name);
  }
  return first;
}

/* Makes the tensors and sets each tensor in the tree. The caller releases the tensors, on success and on failure. */
static tdict_status make_leaves(importer *im, const tdict_dlpack_entry *entries, size_t count, tdict_tree *tree,
                                tdict_tensor **tensors, tdict_error *err) {
  for (size_t i = 0; i < count; i++) {
    const char *name = entries[i].name;
    if (!name) return tdict_fail(err, TDICT_EINVAL, "dlpack: the name of entry %zu is NULL", i);
    tdict_status status = check_managed(&entries[i], err);
    if (status != TDICT_OK) return tdict_error_at(err, status, name);
    const incoming in = open_entry(&entries[i]);
    status = make_tensor(im, &in, &tensors[i], err);
    if (status != TDICT_OK) return tdict_error_at(err, status, name);
    status = tdict_set(tree, name, tensors[i], err);
    if (status != TDICT_OK) return status;
  }
  return TDICT_OK;
}

/* Fails if an entry has replaced another in the tree, which then has fewer leaves than there are entries. */
static tdict_status check_names(const tdict_dlpack_entry *entries, size_t count, const tdict_tree *tree,
                                tdict_tensor *const *tensors, tdict_error *err) {
  if (tdict_num_leaves(tree) == count) return TDICT_OK;
  size_t i = 0;
  tdict_tensor *found = NULL;
  tdict_status status = TDICT_OK;
  while (i < count && (status = tdict_get(tree, entries[i].name, &found, NULL)) == TDICT_OK && found == tensors[i]) i++;
  if (status == TDICT_OK)
    return tdict_fail_at(err, TDICT_EEXIST, entries[i].name, "dlpack: two entries have this name");
  return tdict_fail_at(err, TDICT_ETYPE, entries[i].name,
                       "dlpack: the name of another entry is the beginning of this name");
}

/* Makes the tree. Takes the managed tensors only after all steps that can fail. */
static tdict_status import_entries(importer *im, tdict_dlpack_entry *entries, size_t count, tdict_tree **out,
                                   tdict_error *err) {
  tdict_tree *tree = NULL;
  tdict_tensor **tensors = calloc(count ? count : 1, sizeof *tensors);
  if (!tensors) return tdict_fail_memory(err, "dlpack", NULL, "%zu tensors", count);
  tdict_status status = tdict_create(0, NULL, &tree, err);
  if (status == TDICT_OK) status = make_leaves(im, entries, count, tree, tensors, err);
  if (status == TDICT_OK) status = check_names(entries, count, tree, tensors, err);
  for (size_t i = 0; i < count && status == TDICT_OK; i++) take_managed(&entries[i], tensors[i]);
  for (size_t i = 0; i < count; i++) tdict_tensor_release(tensors[i]);
  free(tensors);
  return TDICT_HAND_OVER(status, tree, out, tdict_release);
}

tdict_status tdict_dlpack_import_tree(tdict_context *context, tdict_dlpack_entry *entries, size_t count,
                                      const tdict_dlpack_import_options *options, tdict_tree **out, tdict_error *err) {
  importer im;
  if ((!entries && count) || !out) return tdict_fail_null(err, "dlpack", out ? "entries" : "out");
  tdict_status status = check_versions(entries, count, err);
  if (status != TDICT_OK) return status;
  status = begin_import(&im, context, options, err);
  if (status == TDICT_OK) status = import_entries(&im, entries, count, out, err);
  end_import(&im);
  return status;
}
