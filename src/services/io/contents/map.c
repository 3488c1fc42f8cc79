/* Maps files, and makes tensors over the mappings. See contents.h for ownership and threads. */
#include "services/io/contents/contents.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/error.h"
#include "core/tensor/tensor_builder.h"

typedef struct mapping {
  void *address;
  size_t bytes;
} mapping;

typedef struct group {
  size_t num_tensors, num_dims;
  tdict_slab *slab;
} group;

static void unmap(void *user) {
  mapping *m = user;
  munmap(m->address, m->bytes);
  free(m);
}

/* Maps a whole file read-only. The storage unmaps the file. */
static tdict_status map_file(const tdict_contents *c, size_t number, tdict_storage **out, tdict_error *err) {
  const tdict_source_file *file = &c->files[number];
  int fd;
  tdict_status status = tdict_contents_open_file(c, number, &fd, err);
  if (status != TDICT_OK) return status;
  mapping *m = malloc(sizeof *m);
  if (m) {
    m->bytes = (size_t)file->bytes;
    m->address = mmap(NULL, m->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  }
  const int code = errno;
  tdict_contents_close_file(c, number, fd);
  if (!m) return tdict_fail_memory(err, c->what, file->path, "the tensors of the file");
  if (m->address == MAP_FAILED) {
    free(m);
    tdict_fail_native(err, code == ENOMEM ? TDICT_ENOMEM : TDICT_EIO, code, "%s: the file cannot be mapped: %s",
                      c->what, strerror(code));
    return tdict_error_at(err, code == ENOMEM ? TDICT_ENOMEM : TDICT_EIO, file->path);
  }
  status = tdict_storage_wrap(m->address, m->bytes, tdict_cpu(), TDICT_STORAGE_READ_ONLY, out, err);
  if (status != TDICT_OK) {
    unmap(m);
    return tdict_error_at(err, status, file->path);
  }
  (*out)->release = unmap;
  (*out)->user = m;
  return TDICT_OK;
}

/* The size of a number. A complex element has two numbers. */
static size_t number_bytes(tdict_dtype dtype) {
  const bool is_complex = (dtype & 0xff) == (TDICT_C64 & 0xff);
  return tdict_dtype_bytes(dtype) / (is_complex ? 2 : 1);
}

/* Returns true if the tensor can be a view of the mapping: aligned, and without a conversion. */
static bool is_mapped(const tdict_item *item) {
  return item->span.bytes == 0 || (tdict_item_is_plain(item) && item->span.offset % number_bytes(item->dtype) == 0);
}

static void swap_numbers(void *data, size_t bytes, size_t number) {
  unsigned char *at = data;
  for (size_t i = 0; i < bytes; i += number)
    for (size_t k = 0; k < number / 2; k++) {
      const unsigned char kept = at[i + k];
      at[i + k] = at[i + number - 1 - k];
      at[i + number - 1 - k] = kept;
    }
}

/* Reads elements in Fortran order, and writes the elements in C order. */
static tdict_status read_fortran(const tdict_contents *c, const tdict_item *item, void *to, tdict_error *err) {
  tdict_tensor_desc from = tdict_tensor_desc_default(), into;
  tdict_tensor *src = NULL, *dst = NULL;
  int64_t strides[TDICT_MAX_NDIM], stride = 1;
  void *bytes = malloc((size_t)item->span.bytes);
  if (!bytes) return tdict_fail_memory(err, c->what, c->files[item->span.file].path, "the tensors of the file");
  tdict_status status = tdict_contents_read(c, item->span, bytes, err);
  for (int d = 0; d < item->ndim; d++) {
    strides[d] = stride;
    stride *= item->shape[d];
  }
  from.dtype = item->dtype;
  from.ndim = item->ndim;
  from.shape = item->shape;
  into = from;
  from.data = bytes;
  from.strides = strides;
  into.data = to;
  if (status == TDICT_OK) status = tdict_tensor_from_data(&from, NULL, NULL, &src, err);
  if (status == TDICT_OK) status = tdict_tensor_from_data(&into, NULL, NULL, &dst, err);
  if (status == TDICT_OK) status = tdict_tensor_copy(dst, src, err);
  tdict_tensor_release(src);
  tdict_tensor_release(dst);
  free(bytes);
  return status;
}

tdict_status tdict_item_read(const tdict_contents *contents, const tdict_item *item, void *to, tdict_error *err) {
  if (!item->span.bytes) return TDICT_OK;
  tdict_status status =
      item->is_fortran ? read_fortran(contents, item, to, err) : tdict_contents_read(contents, item->span, to, err);
  if (status == TDICT_OK && item->is_swapped) swap_numbers(to, (size_t)item->span.bytes, number_bytes(item->dtype));
  return status;
}

/* Maps the file and creates the slab of its tensors. */
static tdict_status open_group(const tdict_contents *c, size_t file, group *g, tdict_error *err) {
  tdict_storage *storage = NULL;
  tdict_status status = g->num_tensors ? map_file(c, file, &storage, err) : TDICT_OK;
  if (status != TDICT_OK || !storage) return status;
  if (tdict_slab_create(g->num_tensors, g->num_dims, storage, &g->slab, NULL) != TDICT_OK)
    status = tdict_fail_memory(err, c->what, c->files[file].path, "the tensors of the file");
  tdict_storage_release(storage);
  return status;
}

static tdict_status map_items(const tdict_contents *c, group *groups, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < c->num_items; i++) {
    const tdict_item *item = &c->items[i];
    if (!tdict_item_has_tensor(item) || !is_mapped(item)) continue;
    groups[item->span.file].num_tensors++;
    groups[item->span.file].num_dims += (size_t)item->ndim;
  }
  for (size_t f = 0; f < c->num_files && status == TDICT_OK; f++) status = open_group(c, f, &groups[f], err);
  for (size_t i = 0; i < c->num_items && status == TDICT_OK; i++) {
    const tdict_item *item = &c->items[i];
    if (!tdict_item_has_tensor(item) || !is_mapped(item)) continue;
    c->leaves[i] =
        tdict_slab_add(groups[item->span.file].slab, item->dtype, item->ndim, item->shape, (size_t)item->span.offset);
  }
  return status;
}

/* Reads the tensors that cannot be views of a mapping into one storage. */
static tdict_status read_others(const tdict_contents *c, tdict_error *err) {
  tdict_tensor_builder builder = {0};
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < c->num_items && status == TDICT_OK; i++) {
    const tdict_item *item = &c->items[i];
    if (tdict_item_has_tensor(item) && !is_mapped(item))
      status = tdict_tensor_builder_measure(&builder, c->what, item->dtype, item->ndim, item->shape, err);
  }
  if (status == TDICT_OK) status = tdict_tensor_builder_allocate(&builder, NULL, false, err);
  for (size_t i = 0; i < c->num_items && status == TDICT_OK; i++) {
    const tdict_item *item = &c->items[i];
    if (!tdict_item_has_tensor(item) || is_mapped(item)) continue;
    c->leaves[i] = tdict_tensor_builder_add(&builder, item->dtype, item->ndim, item->shape);
    status = tdict_item_read(c, item, c->leaves[i]->data, err);
  }
  if (builder.slab) builder.slab->storage->flags |= TDICT_STORAGE_READ_ONLY;
  tdict_tensor_builder_reset(&builder);
  return err && status != TDICT_OK && !err->path[0] ? tdict_error_at(err, status, c->path) : status;
}

tdict_status tdict_contents_map(tdict_contents *contents, tdict_error *err) {
  tdict_status status = tdict_contents_add_leaves(contents, err);
  if (status != TDICT_OK) return status;
  group *groups = calloc(contents->num_files + 1, sizeof *groups);
  if (!groups) return tdict_fail_memory(err, contents->what, contents->path, "the tensors of the file");
  status = map_items(contents, groups, err);
  if (status == TDICT_OK) status = read_others(contents, err);
  for (size_t f = 0; f < contents->num_files; f++)
    if (groups[f].slab) tdict_slab_release(groups[f].slab, 1);
  free(groups);
  return status;
}
