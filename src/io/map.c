/* Maps files, and makes tensors over the mappings. See map.h for ownership and threads. */
#include "io/map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "tensor/arena.h"

typedef struct mapping {
  void *address;
  size_t bytes;
} mapping;

/* The tensors of one file. */
typedef struct group {
  size_t num_tensors, num_dims;
  tdict_slab *slab;
} group;

static void unmap(void *user) {
  mapping *m = user;
  munmap(m->address, m->bytes);
  free(m);
}

static tdict_status fail_memory(const tdict_contents *c, const char *path, tdict_error *err) {
  return tdict_fail_file(err, TDICT_ENOMEM, path, "%s: no host memory for the tensors of the file", c->what);
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
  if (!m) return fail_memory(c, file->path, err);
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

/* Returns true if the elements lie at a multiple of the size of their numbers. A complex element has two numbers. */
static bool is_aligned(const tdict_item *item) {
  const bool is_complex = (item->dtype & 0xff) == (TDICT_C64 & 0xff);
  const size_t bytes = tdict_dtype_bytes(item->dtype) / (is_complex ? 2 : 1);
  return item->span.bytes == 0 || item->span.offset % bytes == 0;
}

/* Maps the file and creates the slab of its tensors. */
static tdict_status open_group(const tdict_contents *c, size_t file, group *g, tdict_error *err) {
  tdict_storage *storage = NULL;
  tdict_status status = g->num_tensors ? map_file(c, file, &storage, err) : TDICT_OK;
  if (status != TDICT_OK || !storage) return status;
  if (tdict_slab_create(g->num_tensors, g->num_dims, storage, &g->slab, NULL) != TDICT_OK)
    status = fail_memory(c, c->files[file].path, err);
  tdict_storage_release(storage);
  return status;
}

static tdict_status map_aligned(const tdict_contents *c, group *groups, tdict_tensor **leaves, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < c->num_items; i++) {
    const tdict_item *item = &c->items[i];
    if (!tdict_item_has_tensor(item) || !is_aligned(item)) continue;
    groups[item->span.file].num_tensors++;
    groups[item->span.file].num_dims += (size_t)item->ndim;
  }
  for (size_t f = 0; f < c->num_files && status == TDICT_OK; f++) status = open_group(c, f, &groups[f], err);
  for (size_t i = 0; i < c->num_items && status == TDICT_OK; i++) {
    const tdict_item *item = &c->items[i];
    if (!tdict_item_has_tensor(item) || !is_aligned(item)) continue;
    leaves[i] =
        tdict_slab_add(groups[item->span.file].slab, item->dtype, item->ndim, item->shape, (size_t)item->span.offset);
  }
  return status;
}

/* Reads the tensors that are not aligned in the file to one storage. */
static tdict_status read_unaligned(const tdict_contents *c, tdict_tensor **leaves, tdict_error *err) {
  tdict_arena arena = {0};
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < c->num_items && status == TDICT_OK; i++) {
    const tdict_item *item = &c->items[i];
    if (tdict_item_has_tensor(item) && !is_aligned(item))
      status = tdict_arena_measure(&arena, c->what, item->dtype, item->ndim, item->shape, err);
  }
  if (status == TDICT_OK) status = tdict_arena_allocate(&arena, NULL, false, err);
  for (size_t i = 0; i < c->num_items && status == TDICT_OK; i++) {
    const tdict_item *item = &c->items[i];
    if (!tdict_item_has_tensor(item) || is_aligned(item)) continue;
    leaves[i] = tdict_arena_add(&arena, item->dtype, item->ndim, item->shape);
    status = tdict_contents_read(c, item->span, leaves[i]->data, err);
  }
  if (arena.slab) arena.slab->storage->flags |= TDICT_STORAGE_READ_ONLY;
  tdict_arena_reset(&arena);
  return err && status != TDICT_OK && !err->path[0] ? tdict_error_at(err, status, c->path) : status;
}

tdict_status tdict_map_leaves(const tdict_contents *contents, tdict_tensor **leaves, tdict_error *err) {
  for (size_t i = 0; i < contents->num_items; i++) leaves[i] = NULL;
  group *groups = calloc(contents->num_files + 1, sizeof *groups);
  if (!groups) return fail_memory(contents, contents->path, err);
  tdict_status status = map_aligned(contents, groups, leaves, err);
  if (status == TDICT_OK) status = read_unaligned(contents, leaves, err);
  for (size_t f = 0; f < contents->num_files; f++)
    if (groups[f].slab) tdict_slab_release(groups[f].slab, 1);
  free(groups);
  for (size_t i = 0; i < contents->num_items && status != TDICT_OK; i++) {
    tdict_tensor_release(leaves[i]);
    leaves[i] = NULL;
  }
  return status;
}
