/* Makes the blocks of messages. Thread rule: see message.h. */
#include "comm/message.h"

#include "base/checked.h"
#include "base/error.h"
#include "schema/create.h"
#include "schema/schema.h"
#include "tdict/write.h"
#include "transfer/plan/plan.h"
#include "tree/cursor.h"

enum { LEAF_ALIGNMENT = 256, PATH_BYTES = sizeof((tdict_error *)NULL)->path };

tdict_memory *tdict_comm_memory(const tdict_comm *comm) {
  return comm->gpu ? tdict_device_memory(comm->context, comm->table.device) : NULL;
}

/* Calls `visit` for every tensor and object of the tree, until a call returns an error. `tensor` is NULL for an
 * object. */
static tdict_status for_leaves(const tdict_tree *tree, const char *what,
                               tdict_status (*visit)(void *user, const tdict_tensor *tensor, tdict_error *err),
                               void *user, tdict_error *err) {
  tdict_cursor cursor;
  tdict_status status = TDICT_OK;
  tdict_cursor_init(&cursor, tree, false);
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    tdict_tree *child = tdict_leaf_tree(leaf);
    if (child && !tdict_cursor_enter(&cursor, child))
      status = tdict_fail(err, TDICT_ENOMEM, "%s: no host memory to walk the tree", what);
    if (child) continue;
    status = visit(user, tdict_leaf_tensor(leaf), err);
    if (status == TDICT_OK) continue;
    char path[PATH_BYTES];
    tdict_cursor_path(&cursor, NULL, path, sizeof path);
    tdict_error_at(err, status, path);
  }
  tdict_cursor_reset(&cursor);
  return status;
}

typedef struct tree_check {
  const tdict_comm *comm;
  const char *what;
  int use;
} tree_check;

static tdict_status check_leaf(void *user, const tdict_tensor *t, tdict_error *err) {
  const tree_check *c = user;
  const tdict_device wanted = c->comm->table.device;
  char found_name[40], wanted_name[40];
  if (!t) return tdict_fail(err, TDICT_ENOTSUP, "%s: the entry is an object, wanted a tensor", c->what);
  const bool writes = c->use & TDICT_COMM_WRITES;
  const bool is_unloaded = tdict_storage_is_unloaded(t->storage) && !tdict_storage_is_sink(t->storage);
  if (c->use & TDICT_COMM_READS && (writes || !is_unloaded) && tdict_tensor_is_lost(t))
    return tdict_tensor_refuse_lost(c->what, "the tensor's bytes", t, err);
  if (!tdict_devices_own_storage(tdict_context_devices(c->comm->context), t->storage))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the tensor is on a simulated device of another context", c->what);
  if (!writes) return TDICT_OK;
  if (!tdict_device_equal(t->storage->device, wanted))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the tensor is on %s, but the communicator is on %s", c->what,
                      tdict_device_format(t->storage->device, found_name, sizeof found_name),
                      tdict_device_format(wanted, wanted_name, sizeof wanted_name));
  if (t->storage->flags & TDICT_STORAGE_READ_ONLY)
    return tdict_fail(err, TDICT_EREADONLY, "%s: the tensor is read-only", c->what);
  return TDICT_OK;
}

tdict_status tdict_comm_check_tree(const tdict_comm *comm, const char *what, const tdict_tree *tree, int use,
                                   tdict_error *err) {
  tree_check c = {comm, what, use};
  return for_leaves(tree, what, check_leaf, &c, err);
}

size_t tdict_comm_entry_bytes(const tdict_schema_entry *entry) {
  size_t bytes = entry->kind == TDICT_SCHEMA_TENSOR ? tdict_dtype_bytes(entry->dtype) : 0;
  for (int d = 0; d < entry->batch_ndim; d++) bytes *= (size_t)entry->batch_size[d];
  for (int d = 0; d < entry->ndim; d++) bytes *= (size_t)entry->shape[d];
  return bytes;
}

tdict_status tdict_comm_block_bytes(const tdict_tree_schema *schema, size_t *out, tdict_error *err) {
  tdict_status status = tdict_schema_measure(schema, out, err);
  if (status != TDICT_OK) return status;
  /* leave out the padding after the last tensor with elements, which the storage of a tree may lack */
  for (size_t i = schema->num_entries; i > 0; i--) {
    const size_t bytes = tdict_comm_entry_bytes(&schema->entries[i - 1]);
    if (bytes == 0) continue;
    *out -= tdict_align(bytes, LEAF_ALIGNMENT) - bytes;
    break;
  }
  return TDICT_OK;
}

/* The tensors that were visited so far, as one block. */
typedef struct block {
  const tdict_comm *comm;
  tdict_storage *storage; /* NULL before the first tensor with elements */
  char *data;
  size_t end;       /* offset of the end of the last tensor with elements */
  bool gap_is_free; /* the bytes after this tensor up to the next multiple of 256 belong to no tensor */
  bool is_whole;    /* every tensor so far follows the last tensor in the layout */
  bool is_near;     /* every tensor so far is in memory of the communicator's device */
} block;

static tdict_status add_to_block(void *user, const tdict_tensor *t, tdict_error *err) {
  block *b = user;
  (void)err;
  const size_t begin = tdict_align(b->end, LEAF_ALIGNMENT), gap = begin - b->end;
  if (!tdict_device_equal(t->storage->device, b->comm->table.device) || tdict_storage_is_unloaded(t->storage))
    b->is_near = false;
  b->is_whole = b->is_whole && b->is_near;
  if (!b->is_whole || t->numel == 0) return TDICT_OK;
  if (!b->storage) {
    b->storage = t->storage;
    b->data = t->data;
  }
  b->is_whole = t->storage == b->storage && tdict_tensor_is_contiguous(t) && (char *)t->data == b->data + begin &&
                (gap == 0 || b->gap_is_free);
  b->gap_is_free = tdict_plan_gap_is_free(t);
  b->end = begin + tdict_tensor_nbytes(t);
  return TDICT_OK;
}

static tdict_status note_storage(void *user, const tdict_tensor *t, tdict_error *err) {
  tdict_storage **out = user;
  (void)err;
  if (!*out && t) *out = t->storage;
  return TDICT_OK;
}

tdict_storage *tdict_comm_storage_of(const tdict_tree *tree) {
  tdict_storage *found = NULL;
  (void)!for_leaves(tree, "", note_storage, &found, NULL);
  return found;
}

tdict_status tdict_message_allocate(const tdict_comm *comm, const tdict_tree_schema *schema, tdict_memory *memory,
                                    tdict_block_message *out, tdict_error *err) {
  tdict_tree_schema_create_options o = tdict_tree_schema_create_options_default();
  size_t bytes;
  tdict_tree *made;
  o.is_uninitialized = true;
  o.memory = memory ? memory : tdict_comm_memory(comm);
  tdict_status status = tdict_comm_block_bytes(schema, &bytes, err);
  if (status == TDICT_OK) status = tdict_tree_schema_create(schema, &o, &made, err);
  if (status != TDICT_OK) return status;
  tdict_storage *storage = tdict_comm_storage_of(made);
  *out = (tdict_block_message){.packed = made, .storage = storage, .bytes = bytes, .is_copy = true};
  out->data = storage ? storage->data : NULL;
  return TDICT_OK;
}

tdict_status tdict_message_find(const tdict_comm *comm, const tdict_tree *tree, const tdict_tree_schema *schema,
                                tdict_block_message *out, tdict_error *err) {
  block b = {.comm = comm, .is_whole = true, .is_near = true};
  size_t bytes;
  tdict_status status = tdict_comm_block_bytes(schema, &bytes, err);
  if (status == TDICT_OK) status = for_leaves(tree, "message", add_to_block, &b, err);
  if (status != TDICT_OK) return status;
  *out = (tdict_block_message){.tree = tree, .bytes = bytes, .needs_transfer = !b.is_near};
  if (!b.is_whole) return TDICT_OK;
  out->packed = tdict_retain(tree);
  out->storage = b.storage;
  out->data = b.data;
  const size_t padding = tdict_align(bytes, LEAF_ALIGNMENT) - bytes;
  out->has_padding = padding == 0 || (b.gap_is_free &&
                                      b.storage->bytes - (size_t)(b.data - (char *)b.storage->data) - bytes >= padding);
  return TDICT_OK;
}

tdict_status tdict_message_prepare(const tdict_comm *comm, const tdict_tree *tree, const tdict_tree_schema *schema,
                                   tdict_block_message *out, tdict_error *err) {
  tdict_block_message found, made;
  tdict_status status = tdict_message_find(comm, tree, schema, &found, err);
  if (status == TDICT_OK && !found.packed) {
    status = tdict_message_allocate(comm, schema, NULL, &made, err);
    made.tree = tree;
    made.needs_transfer = found.needs_transfer;
    found = made;
  }
  if (status == TDICT_OK) *out = found;
  return status;
}

/* Copies within a device with one launch, and other trees with the threads of the context. */
static tdict_status copy_tree(const tdict_comm *comm, tdict_tree *dst, const tdict_tree *src, bool is_near,
                              tdict_error *err) {
  return is_near && comm->gpu ? tdict_copy(dst, src, err) : tdict_transfer_into(comm->context, dst, src, NULL, err);
}

tdict_status tdict_comm_copy(const tdict_comm *comm, tdict_tree *dst, const tdict_tree *src, tdict_error *err) {
  block b = {.comm = comm, .is_near = true};
  tdict_status status = for_leaves(src, "message", add_to_block, &b, err);
  return status == TDICT_OK ? copy_tree(comm, dst, src, b.is_near, err) : status;
}

tdict_status tdict_message_fill(const tdict_comm *comm, tdict_block_message *message, bool writes, tdict_error *err) {
  if (message->needs_transfer || message->is_copy)
    return copy_tree(comm, message->packed, message->tree, !message->needs_transfer, err);
  if (message->storage) tdict_storage_wait(message->storage, writes);
  return TDICT_OK;
}

void tdict_message_await(const tdict_block_message *message) {
  if (message->storage) tdict_storage_wait(message->storage, true);
}

tdict_status tdict_message_unpack(const tdict_block_message *message, tdict_tree *dst, tdict_error *err) {
  return message->is_copy ? tdict_copy(dst, message->packed, err) : TDICT_OK;
}

void tdict_message_reset(tdict_block_message *message) {
  tdict_release(message->packed);
  *message = (tdict_block_message){0};
}

static tdict_status lose_leaf(void *user, const tdict_tensor *t, tdict_error *err) {
  (void)user, (void)err;
  if (t) tdict_tensor_lose(t);
  return TDICT_OK;
}
static tdict_status regain_leaf(void *user, const tdict_tensor *t, tdict_error *err) {
  (void)user, (void)err;
  if (t) tdict_tensor_regain(t);
  return TDICT_OK;
}
void tdict_comm_lose(const tdict_tree *tree) { (void)!for_leaves(tree, "", lose_leaf, NULL, NULL); }
void tdict_comm_regain(const tdict_tree *tree) { (void)!for_leaves(tree, "", regain_leaf, NULL, NULL); }
