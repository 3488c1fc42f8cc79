/* tdict_record_stream(): a use of every storage of a tree by a stream. */
#include "base/error.h"
#include "device/stream.h"
#include "device/use.h"
#include "memory/pinned_pool.h"
#include "tdict/transfer.h"
#include "tree/cursor.h"

/* The gpu that the storage knows; NULL: none. */
static tdict_gpu *gpu_of(const tdict_storage *s) {
  tdict_gpu *gpu = tdict_gpu_of_memory(s->memory);
  return gpu ? gpu : tdict_pinned_pool_pinner_self(s->memory);
}

typedef tdict_status (*storage_fn)(void *user, tdict_storage *s, tdict_error *err);

static tdict_status each_storage(const tdict_tree *td, storage_fn fn, void *user, tdict_error *err);

/* The storages of an object that can show its tensors; of others the library knows nothing. */
static tdict_status each_of_object(const tdict_box *box, storage_fn fn, void *user, tdict_error *err) {
  tdict_status (*flatten)(const void *self, tdict_tree **out, tdict_error *err) = TDICT_HOOK_OF(box->type, flatten);
  tdict_tree *flat = NULL;
  if (!flatten) return TDICT_OK;
  tdict_error said = {0};
  tdict_status status = flatten(box->self, &flat, &said);
  if (status == TDICT_OK && !flat) status = (tdict_status)-1;
  if (status != TDICT_OK) {
    status = tdict_hook_failed(box->type, "flatten", status, &said);
    if (err) *err = said;
    return status;
  }
  status = each_storage(flat, fn, user, err);
  tdict_release(flat);
  return status;
}

/* Every tensor's storage, neighbours that share one only once. */
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
    if (tdict_leaf_box(leaf)) status = each_of_object(tdict_leaf_box(leaf), fn, user, err);
    if (child && !tdict_cursor_enter(&cursor, child))
      status = tdict_fail(err, TDICT_ENOMEM, "record_stream: no host memory to go through the tree");
  }
  tdict_cursor_reset(&cursor);
  return status;
}

typedef struct finding {
  tdict_stream stream;
  tdict_gpu *gpu;
} finding;
static tdict_status find_gpu(void *user, tdict_storage *s, tdict_error *err) {
  finding *f = user;
  (void)err;
  tdict_gpu *gpu = gpu_of(s);
  if (!f->gpu && gpu && tdict_stream_is_of(f->stream, gpu)) f->gpu = gpu;
  return TDICT_OK;
}

static tdict_status add_use(void *user, tdict_storage *s, tdict_error *err) {
  return tdict_storage_add_use(s, user, err);
}

tdict_status tdict_record_stream(const tdict_tree *td, tdict_stream s, tdict_error *err) {
  if (!td) return tdict_fail(err, TDICT_EINVAL, "record_stream: td is NULL");
  finding f = {s, NULL};
  char name[32];
  tdict_status status = each_storage(td, find_gpu, &f, err);
  if (status != TDICT_OK) return status;
  if (!f.gpu)
    return tdict_fail(
        err, TDICT_EWRONGDEVICE,
        "record_stream: the stream is of %s, and no tensor of the tree is in memory that its context made "
        "there or pinned for it",
        tdict_device_format(s.device, name, sizeof name));
  tdict_fence *use;
  status = tdict_use_create(f.gpu, s.handle, &use, err);
  if (status != TDICT_OK) return status;
  status = each_storage(td, add_use, use, err);
  use->ops->release(use);
  return status;
}
