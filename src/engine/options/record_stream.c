/* Implements tdict_record_stream(): adds a use by a stream to every storage of a tree. The storages own the use.
 * Thread rule: safe from any thread, as long as no thread changes the tree. */
#include "core/base/error.h"
#include "core/memory/pinned_pool.h"
#include "core/tree/cursor.h"
#include "device/use.h"
#include "engine/plan/flatten.h"
#include "tdict/transfer.h"

/* Returns the GPU that owns or pinned the storage's memory, or NULL. */
static tdict_gpu *find_memory_gpu(const tdict_storage *s) {
  tdict_gpu *gpu = tdict_gpu_of_memory(s->memory);
  return gpu ? gpu : tdict_pinned_pool_pinner_self(s->memory);
}

typedef tdict_status (*storage_fn)(void *user, tdict_storage *s, tdict_error *err);

static tdict_status each_storage(const tdict_tree *td, storage_fn fn, void *user, tdict_error *err);

/* Visits the storages of an object's flattened tensors. An object without `flatten` has no known storages. */
static tdict_status each_object_storage(const tdict_box *box, storage_fn fn, void *user, tdict_error *err) {
  tdict_tree *flat;
  if (!TDICT_HOOK_OF(box->type, flatten)) return TDICT_OK;
  tdict_status status = tdict_flatten_object(box, &flat, err);
  if (status != TDICT_OK) return status;
  status = each_storage(flat, fn, user, err);
  tdict_release(flat);
  return status;
}

/* Visits the storage of every tensor. Consecutive tensors that share a storage cause one visit. */
static tdict_status each_storage(const tdict_tree *td, storage_fn fn, void *user, tdict_error *err) {
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, td, true);
  const tdict_storage *last = NULL;
  tdict_status status = TDICT_OK;
  tdict_leaf leaf;
  while (status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0) {
    const tdict_tensor *t = tdict_leaf_tensor(leaf);
    tdict_tree *child = tdict_leaf_tree(leaf);
    if (t && t->storage != last) status = fn(user, t->storage, err);
    if (t) last = t->storage;
    if (tdict_leaf_box(leaf)) {
      status = each_object_storage(tdict_leaf_box(leaf), fn, user, err);
      if (status != TDICT_OK) tdict_cursor_fail(&cursor, NULL, status, err);
    }
    if (child && !tdict_cursor_enter(&cursor, child))
      status = tdict_fail(err, TDICT_ENOMEM, "record_stream: no host memory to go through the tree");
  }
  tdict_cursor_reset(&cursor);
  return status;
}

typedef struct gpu_search {
  tdict_stream stream;
  tdict_gpu *gpu;
} gpu_search;
/* If the stream belongs to the GPU of the storage, stores this GPU. Only the first such GPU is stored. */
static tdict_status note_stream_gpu(void *user, tdict_storage *s, tdict_error *err) {
  gpu_search *f = user;
  (void)err;
  tdict_gpu *gpu = find_memory_gpu(s);
  if (!f->gpu && gpu && tdict_stream_is_of(f->stream, gpu)) f->gpu = gpu;
  return TDICT_OK;
}

/* Also adds the use to memory of the program, whose release function must run after the work. */
static tdict_status add_use(void *user, tdict_storage *s, tdict_error *err) {
  return tdict_storage_add(s, user, TDICT_USE_READS, err);
}

tdict_status tdict_record_stream(const tdict_tree *tree, tdict_stream stream, tdict_error *err) {
  if (!tree) return tdict_fail(err, TDICT_EINVAL, "record_stream: tree is NULL");
  gpu_search f = {stream, NULL};
  /* Find the GPU before any use is added, because a wrong stream must record nothing. */
  tdict_status status = each_storage(tree, note_stream_gpu, &f, err);
  if (status != TDICT_OK) return status;
  if (!f.gpu)
    return tdict_fail(
        err, TDICT_EWRONGDEVICE,
        "record_stream: the stream belongs to %s, but no tensor of the tree is in memory allocated or pinned for it",
        TDICT_DEVICE_TEXT(stream.device));
  tdict_fence *use;
  status = tdict_use_create(f.gpu, stream.handle, "record_stream", &use, err);
  if (status != TDICT_OK) return status;
  status = each_storage(tree, add_use, use, err);
  use->ops->release(use);
  return status;
}
