/* Makes managed tensors over the bytes of tensors. All managed tensors of one call lie in one block, which holds the
 * references to the storages. The block of a tree also holds the entries. The block is freed after all deleters have
 * run and the entries have been released. Thread rule: see tdict/dlpack.h. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/tree/cursor.h"
#include "core/tree/objects.h"
#include "services/interop/dlpack/stream.h"
#include "services/interop/dlpack/values.h"
#include "services/io/text.h"
#include "tdict/dlpack.h"

typedef union export_leaf {
  tdict_dl_versioned versioned;
  tdict_dl_legacy legacy;
} export_leaf;

/* The block of one call. The managed tensors, the storages, and the shapes and strides follow the struct. */
typedef struct export_block {
  _Atomic(int64_t) refs; /* counts managed tensors whose deleters have not run, and the array of entries */
  tdict_gpu *gpu;        /* retained; the gpu of the consumer's stream. NULL: no use is recorded */
  tdict_cu_stream handle;
  char *names; /* owned; NULL for a single tensor */
  export_leaf *leaves;
  tdict_storage **storages; /* retained; a storage of several consecutive leaves is listed once */
  size_t num_storages;
  int64_t *dims;
  tdict_dlpack_entry entries[];
} export_block;

/* Drops `count` references. The last one records the consumer's work as a use of the storages, releases them, and frees
 * the block. */
static void drop_block(export_block *b, int64_t count) {
  if (atomic_fetch_sub_explicit(&b->refs, count, memory_order_acq_rel) != count) return;
  if (b->gpu) tdict_dlpack_record_consumer(b->gpu, b->handle, b->storages, b->num_storages);
  for (size_t i = 0; i < b->num_storages; i++) tdict_storage_release(b->storages[i]);
  tdict_gpu_release(b->gpu);
  free(b->names);
  free(b);
}

static void delete_versioned(tdict_dl_versioned *self) { drop_block(self->manager_ctx, 1); }
static void delete_legacy(tdict_dl_legacy *self) { drop_block(self->manager_ctx, 1); }

enum { USUAL_NAME = 8 }; /* bytes of a name for which space is made in advance */

/* A tensor to export. */
typedef struct listed {
  const tdict_tensor *tensor; /* borrowed from the tree, or from a tree in `flattened` */
  size_t name;                /* offset of the tensor's path in `names` */
} listed;

/* The tensors of a tree in order. An object is replaced by the tensors that its `flatten` returns. */
typedef struct leaf_list {
  listed *leaves;
  size_t count, cap;
  tdict_io_text names;    /* paths, each ended by 0 */
  tdict_io_text path;     /* path of the tree or object that was entered last */
  tdict_tree **flattened; /* owned; the trees of the objects */
  size_t num_flattened, cap_flattened;
} leaf_list;

/* Adds a tensor with the path that is the first `mark` bytes of list->path, and then the key. */
static bool add_leaf(leaf_list *list, size_t mark, const tdict_key *key, const tdict_tensor *tensor) {
  const size_t name = list->names.length;
  char *begin = tdict_io_text_reserve(&list->names, mark + 2 + 2 * (size_t)key->length), *to = begin;
  if (!begin || !TDICT_RESERVE(list->leaves, list->cap, list->count + 1)) return false;
  if (mark) {
    memcpy(to, list->path.bytes, mark);
    to += mark;
    *to++ = '.';
  }
  list->names.length += (size_t)(tdict_key_write(to, key) + 1 - begin);
  list->leaves[list->count++] = (listed){tensor, name};
  return true;
}

/* Cuts list->path to its first `mark` bytes, and appends a key. */
static bool enter_path(leaf_list *list, size_t mark, const tdict_key *key) {
  list->path.length = mark;
  char *begin = tdict_io_text_reserve(&list->path, 2 + 2 * (size_t)key->length), *to = begin;
  if (!begin) return false;
  if (mark) *to++ = '.';
  list->path.length += (size_t)(tdict_key_write(to, key) - begin);
  return true;
}

static tdict_status add_tree(leaf_list *list, const tdict_tree *tree, size_t mark, tdict_error *err);

/* Flattens the object at list->path, and adds its tensors. */
static tdict_status add_object(leaf_list *list, const tdict_box *box, tdict_error *err) {
  const tdict_flatten_rule rule = {.what = "dlpack", .way = TDICT_OBJECT_AS_TENSORS};
  tdict_tree *flat;
  if (!TDICT_RESERVE(list->flattened, list->cap_flattened, list->num_flattened + 1))
    return tdict_fail(err, TDICT_ENOMEM, "dlpack: no host memory to flatten an object");
  tdict_status status = tdict_box_flatten(&rule, box, list->path.bytes, &flat, err);
  if (status != TDICT_OK) return status;
  list->flattened[list->num_flattened++] = flat;
  return add_tree(list, flat, list->path.length, err);
}

/* Adds the tensors of a tree, whose path is the first `mark` bytes of list->path. Flattened objects contain no objects,
 * so the recursion is one level deep. A walk with a visitor would take longer. */
static tdict_status add_tree(leaf_list *list, const tdict_tree *tree, size_t mark, tdict_error *err) {
  tdict_cursor cursor;
  tdict_status status = TDICT_OK;
  const size_t num_keys = tree->keys->num_live;
  bool has_memory = TDICT_RESERVE(list->leaves, list->cap, list->count + num_keys) &&
                    tdict_io_text_reserve(&list->names, USUAL_NAME * num_keys);
  tdict_cursor_init(&cursor, tree, false);
  cursor.frames[0].mark = mark; /* the mark of a frame is the length of the path of its node */
  for (tdict_leaf leaf; has_memory && status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    const tdict_key *key = tdict_cursor_key(&cursor);
    const size_t above = cursor.frames[cursor.depth - 1].mark;
    const tdict_tensor *tensor = tdict_leaf_tensor(leaf);
    has_memory = tensor ? add_leaf(list, above, key, tensor) : enter_path(list, above, key);
    if (tensor || !has_memory) continue;
    if (tdict_leaf_tree(leaf))
      tdict_cursor_descend(&cursor, tdict_leaf_tree(leaf), list->path.length);
    else
      status = add_object(list, tdict_leaf_box(leaf), err);
  }
  if (!has_memory) status = tdict_fail(err, TDICT_ENOMEM, "dlpack: no host memory to list the leaves");
  return tdict_cursor_end(&cursor, "dlpack", status, err);
}

static void reset_list(leaf_list *list) {
  for (size_t i = 0; i < list->num_flattened; i++) tdict_release(list->flattened[i]);
  free(list->flattened);
  free(list->leaves);
  tdict_io_text_reset(&list->names);
  tdict_io_text_reset(&list->path);
}

typedef struct exporter {
  tdict_dlpack_export_options o;
  tdict_dlpack_stream consumer;
  const listed *leaves;
  size_t count;
  const char *names; /* NULL for a single tensor */
} exporter;

static tdict_status fail_at_leaf(const exporter *e, size_t i, tdict_status status, tdict_error *err) {
  return e->names ? tdict_error_at(err, status, e->names + e->leaves[i].name) : status;
}

/* Allocates the block, and lists the storages in it. The size cannot overflow: all leaves are in memory. */
static export_block *allocate_block(const exporter *e) {
  size_t num_storages = 0, num_dims = 0;
  const tdict_storage *last = NULL;
  for (size_t i = 0; i < e->count; i++) {
    const tdict_tensor *t = e->leaves[i].tensor;
    num_storages += t->storage != last;
    num_dims += 2 * (size_t)t->ndim;
    last = t->storage;
  }
  const size_t num_entries = e->names ? e->count : 0;
  export_block *b = malloc(sizeof *b + num_entries * sizeof b->entries[0] + e->count * sizeof b->leaves[0] +
                           num_storages * sizeof *b->storages + (num_dims + 1) * sizeof *b->dims);
  if (!b) return NULL;
  b->leaves = (export_leaf *)(void *)(b->entries + num_entries);
  b->storages = (tdict_storage **)(void *)(b->leaves + e->count);
  b->dims = (int64_t *)(void *)(b->storages + num_storages);
  b->num_storages = 0;
  for (size_t i = 0; i < e->count; i++) {
    tdict_storage *s = e->leaves[i].tensor->storage;
    if (b->num_storages == 0 || b->storages[b->num_storages - 1] != s) b->storages[b->num_storages++] = s;
  }
  return b;
}

/* Fills one managed tensor. `dims` receives the shape and the strides. */
static tdict_status fill_leaf(const exporter *e, export_block *b, size_t i, int64_t *dims, tdict_error *err) {
  const tdict_tensor *t = e->leaves[i].tensor;
  const bool read_only = e->o.read_only || (t->storage->flags & TDICT_STORAGE_READ_ONLY);
  export_leaf *leaf = &b->leaves[i];
  if (read_only && e->o.legacy && !e->o.read_only)
    return tdict_fail(
        err, TDICT_EREADONLY,
        "dlpack: the tensor is read-only, and the legacy struct cannot say so; wanted the option read_only");
  tdict_dl_tensor *out = e->o.legacy ? &leaf->legacy.tensor : &leaf->versioned.tensor;
  tdict_status status = tdict_dlpack_check_device(&e->consumer, t->storage, err);
  if (status == TDICT_OK) status = tdict_dlpack_describe(t, e->o.pinned_as_cpu, out, err);
  if (status != TDICT_OK) return status;
  for (int k = 0; k < 2 * t->ndim; k++) dims[k] = t->dims[k];
  out->shape = dims;
  out->strides = dims + t->ndim;
  if (e->o.legacy) {
    leaf->legacy.manager_ctx = b;
    leaf->legacy.deleter = delete_legacy;
    return TDICT_OK;
  }
  leaf->versioned.major = TDICT_DL_MAJOR;
  leaf->versioned.minor = TDICT_DL_MINOR;
  leaf->versioned.manager_ctx = b;
  leaf->versioned.deleter = delete_versioned;
  leaf->versioned.flags = read_only ? TDICT_DL_READ_ONLY : 0;
  return TDICT_OK;
}

/* Fills all managed tensors, and orders the consumer after earlier work. Returns TDICT_EINVAL for lost bytes. */
static tdict_status fill_block(const exporter *e, export_block *b, tdict_error *err) {
  int64_t *dims = b->dims;
  for (size_t i = 0; i < e->count; i++) {
    tdict_status status = fill_leaf(e, b, i, dims, err);
    if (status != TDICT_OK) return fail_at_leaf(e, i, status, err);
    dims += 2 * e->leaves[i].tensor->ndim;
  }
  tdict_status status = tdict_dlpack_order_consumer(&e->consumer, b->storages, b->num_storages, !e->o.read_only, err);
  /* Check after the wait, since a transfer may fail during the wait. */
  for (size_t i = 0; i < e->count && status == TDICT_OK; i++) {
    const tdict_tensor *t = e->leaves[i].tensor;
    if (tdict_tensor_is_lost(t))
      status = fail_at_leaf(e, i, tdict_tensor_refuse_lost("dlpack", "the bytes", t, err), err);
  }
  return status;
}

/* Makes the block. Each managed tensor holds a reference, and the entries of a tree together hold one more. */
static tdict_status make_block(const exporter *e, export_block **out, tdict_error *err) {
  export_block *b = allocate_block(e);
  if (!b) return tdict_fail_memory(err, "dlpack", NULL, "%zu managed tensors", e->count);
  tdict_status status = fill_block(e, b, err);
  if (status != TDICT_OK) {
    free(b);
    return status;
  }
  for (size_t i = 0; i < b->num_storages; i++) tdict_storage_retain(b->storages[i]);
  b->gpu = e->consumer.gpu ? tdict_gpu_retain(e->consumer.gpu) : NULL;
  b->handle = e->consumer.handle;
  b->names = NULL;
  atomic_init(&b->refs, (int64_t)e->count + (e->names != NULL));
  *out = b;
  return TDICT_OK;
}

/* Reads the options and opens the consumer's stream. */
static tdict_status begin_export(exporter *e, tdict_context *context, const tdict_dlpack_export_options *options,
                                 tdict_error *err) {
  *e = (exporter){.o = tdict_dlpack_export_options_default()};
  tdict_status status = tdict_options_read(&e->o, sizeof e->o, options, "dlpack export options", err);
  return status == TDICT_OK ? tdict_dlpack_stream_open(context, e->o.stream, &e->consumer, err) : status;
}

static tdict_dlpack_entry entry_of(const exporter *e, export_leaf *leaf, const char *name) {
  tdict_dlpack_entry entry = {.name = name};
  if (e->o.legacy)
    entry.legacy = (struct DLManagedTensor *)(void *)&leaf->legacy;
  else
    entry.versioned = (struct DLManagedTensorVersioned *)(void *)&leaf->versioned;
  return entry;
}

tdict_status tdict_dlpack_export(tdict_context *context, const tdict_tensor *tensor,
                                 const tdict_dlpack_export_options *options, tdict_dlpack_entry *out,
                                 tdict_error *err) {
  exporter e;
  export_block *b;
  if (!tensor || !out) return tdict_fail_null(err, "dlpack", tensor ? "out" : "tensor");
  const listed leaf = {tensor, 0};
  tdict_status status = begin_export(&e, context, options, err);
  e.leaves = &leaf;
  e.count = 1;
  if (status == TDICT_OK) status = make_block(&e, &b, err);
  if (status == TDICT_OK) *out = entry_of(&e, &b->leaves[0], "");
  return status;
}

tdict_status tdict_dlpack_export_tree(tdict_context *context, const tdict_tree *tree,
                                      const tdict_dlpack_export_options *options, tdict_dlpack_entry **entries,
                                      size_t *count, tdict_error *err) {
  exporter e;
  export_block *b = NULL;
  leaf_list list = {0};
  if (!tree || !entries || !count)
    return tdict_fail_null(err, "dlpack", !tree ? "tree" : !entries ? "entries" : "count");
  tdict_status status = begin_export(&e, context, options, err);
  if (status == TDICT_OK) status = add_tree(&list, tree, 0, err);
  e.leaves = list.leaves;
  e.count = list.count;
  e.names = list.names.bytes ? list.names.bytes : "";
  if (status == TDICT_OK) status = make_block(&e, &b, err);
  if (status == TDICT_OK) {
    b->names = list.names.bytes; /* the block owns the names now */
    list.names.bytes = NULL;
    for (size_t i = 0; i < e.count; i++) b->entries[i] = entry_of(&e, &b->leaves[i], e.names + list.leaves[i].name);
    *entries = b->entries;
    *count = e.count;
  }
  reset_list(&list);
  return status;
}

void tdict_dlpack_release_entries(tdict_dlpack_entry *entries, size_t count) {
  if (!entries) return;
  for (size_t i = 0; i < count; i++) {
    tdict_dl_versioned *versioned = (tdict_dl_versioned *)(void *)entries[i].versioned;
    tdict_dl_legacy *legacy = (tdict_dl_legacy *)(void *)entries[i].legacy;
    if (versioned && versioned->deleter) versioned->deleter(versioned);
    if (legacy && legacy->deleter) legacy->deleter(legacy);
  }
  drop_block((export_block *)(void *)((char *)entries - offsetof(export_block, entries)), 1);
}
