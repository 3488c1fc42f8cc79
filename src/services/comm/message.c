/* Makes the blocks of messages. Thread rule: see message.h. */
#include "services/comm/message.h"

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/schema/create.h"
#include "core/schema/schema.h"
#include "core/tree/cursor.h"
#include "engine/plan/plan.h"
#include "services/comm/table.h"
#include "tdict/write.h"

enum { LEAF_ALIGNMENT = 256 };

tdict_memory *tdict_comm_memory(const tdict_comm *comm) {
  return comm->gpu ? tdict_device_memory(comm->context, comm->table.device) : NULL;
}

/* Calls `visit` for each tensor and object of the tree, until a call fails. `tensor` is NULL for an object. */
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
    tdict_cursor_fail(&cursor, NULL, status, err);
  }
  tdict_cursor_reset(&cursor);
  return status;
}

typedef struct tree_check {
  const tdict_comm *comm;
  const char *what;
  int use;
  const tdict_storage *checked; /* the storage that was checked last */
  size_t end;                   /* offset of the end of the last tensor with elements in the block */
  tdict_comm_source *found;
} tree_check;

/* Checks what the tensors of one storage have in common. */
static tdict_status check_storage(tree_check *c, const tdict_storage *storage, tdict_error *err) {
  const tdict_device wanted = c->comm->table.device;
  const bool is_here = tdict_device_equal(storage->device, wanted);
  if (!tdict_devices_own_storage(tdict_context_devices(c->comm->context), storage))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the tensor is on a simulated device of another context", c->what);
  if (c->use & TDICT_COMM_WRITES && !is_here)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the tensor is on %s, but the communicator is on %s", c->what,
                      TDICT_DEVICE_TEXT(storage->device), TDICT_DEVICE_TEXT(wanted));
  if (c->use & TDICT_COMM_WRITES && storage->flags & TDICT_STORAGE_READ_ONLY)
    return tdict_fail(err, TDICT_EREADONLY, "%s: the tensor is read-only", c->what);
  c->found->common = c->checked ? NULL : storage;
  c->checked = storage;
  if (!is_here || tdict_storage_is_unloaded(storage)) c->found->is_near = false;
  return TDICT_OK;
}

/* Adds a tensor with elements to the block, if the tensor follows the last tensor in the layout. */
static void add_to_block(tree_check *c, const tdict_tensor *t) {
  tdict_comm_source *found = c->found;
  const size_t begin = tdict_align(c->end, LEAF_ALIGNMENT);
  if (!found->storage) {
    found->storage = t->storage;
    found->data = t->data;
  }
  found->is_block = t->storage == found->storage && (char *)t->data == found->data + begin &&
                    (begin == c->end || found->gap_is_free) && tdict_tensor_is_contiguous(t);
  found->gap_is_free = tdict_plan_gap_is_free(t);
  c->end = begin + tdict_tensor_nbytes(t);
}

static tdict_status check_leaf(void *user, const tdict_tensor *t, tdict_error *err) {
  tree_check *c = user;
  if (!t) return tdict_fail(err, TDICT_ENOTSUP, "%s: the entry is an object, wanted a tensor", c->what);
  const bool writes = c->use & TDICT_COMM_WRITES;
  const bool is_unloaded = tdict_storage_is_unloaded(t->storage) && !tdict_storage_is_sink(t->storage);
  if (c->use & TDICT_COMM_READS && (writes || !is_unloaded) && tdict_tensor_is_lost(t))
    return tdict_tensor_refuse_lost(c->what, "the tensor's bytes", t, err);
  tdict_status status = t->storage == c->checked ? TDICT_OK : check_storage(c, t->storage, err);
  if (status == TDICT_OK && c->found->is_block && t->numel != 0) add_to_block(c, t);
  return status;
}

tdict_status tdict_comm_check_tree(const tdict_comm *comm, const char *what, const tdict_tree *tree, int use,
                                   tdict_comm_source *out, tdict_error *err) {
  tree_check c = {.comm = comm, .what = what, .use = use, .found = out};
  *out = (tdict_comm_source){.tree = tree, .is_block = true, .is_near = true};
  return for_leaves(tree, what, check_leaf, &c, err);
}

bool tdict_comm_check_common(const tdict_comm *comm, int use, tdict_comm_source *source) {
  tree_check c = {.comm = comm, .what = "", .use = use, .found = source};
  const tdict_storage *storage = source->common;
  source->is_near = true;
  if (use & TDICT_COMM_READS && tdict_storage_has_lost(storage)) return false;
  return check_storage(&c, storage, NULL) == TDICT_OK;
}

void tdict_comm_source_reset(tdict_comm_source *source) {
  tdict_schema_release(source->schema);
  *source = (tdict_comm_source){0};
}

tdict_status tdict_message_allocate(tdict_comm_call *call, const tdict_schema *schema, tdict_memory *memory,
                                    tdict_error *err) {
  tdict_block_message *out = &call->message;
  size_t padded;
  tdict_status status = tdict_schema_measure(schema, &padded, err);
  if (status == TDICT_OK && schema->num_tensors)
    status = tdict_storage_create(memory ? memory : tdict_comm_memory(call->comm), padded, false, &out->storage, err);
  if (status != TDICT_OK) return status;
  out->bytes = padded - schema->size.padding;
  out->data = out->storage ? out->storage->data : NULL;
  out->is_copy = true;
  return TDICT_OK;
}

tdict_status tdict_message_find(tdict_comm_call *call, tdict_error *err) {
  const tdict_comm_source *source = &call->source;
  tdict_block_message *out = &call->message;
  const size_t padding = source->schema->size.padding; /* which the storage of a tree may lack */
  size_t bytes;
  tdict_status status = tdict_schema_measure(source->schema, &bytes, err);
  if (status != TDICT_OK) return status;
  bytes -= padding;
  *out = (tdict_block_message){.tree = source->tree, .bytes = bytes, .needs_transfer = !source->is_near};
  if (!source->is_block || !source->is_near) return TDICT_OK;
  out->packed = tdict_retain(source->tree);
  out->storage = source->storage ? tdict_storage_retain(source->storage) : NULL;
  out->data = source->data;
  out->has_padding =
      padding == 0 || (source->gap_is_free &&
                       out->storage->bytes - (size_t)(out->data - (char *)out->storage->data) - bytes >= padding);
  return TDICT_OK;
}

tdict_status tdict_message_prepare(tdict_comm_call *call, tdict_error *err) {
  const tdict_schema *schema = call->source.schema;
  tdict_block_message *m = &call->message;
  tdict_status status = tdict_message_find(call, err);
  if (status != TDICT_OK || m->packed) return status;
  status = tdict_message_allocate(call, schema, NULL, err);
  return status == TDICT_OK ? tdict_schema_create_over(schema, m->storage, &m->packed, err) : status;
}

/* Copies within a device with one launch, and other trees with the threads of the context. */
tdict_status tdict_comm_copy(const tdict_comm *comm, tdict_tree *dst, const tdict_tree *src, bool is_near,
                             tdict_error *err) {
  return is_near && comm->gpu ? tdict_copy(dst, src, NULL, err)
                              : tdict_transfer_into(comm->context, dst, src, NULL, err);
}

tdict_status tdict_message_fill(tdict_comm_call *call, tdict_error *err) {
  const tdict_block_message *message = &call->message;
  if (message->needs_transfer || message->is_copy)
    return tdict_comm_copy(call->comm, message->packed, message->tree, !message->needs_transfer, err);
  if (message->storage) (void)tdict_storage_wait(message->storage, false, INT64_MAX);
  return TDICT_OK;
}

void tdict_message_await(const tdict_block_message *message) {
  if (message->storage) (void)tdict_storage_wait(message->storage, true, INT64_MAX);
}

tdict_status tdict_comm_send_message(tdict_comm_call *call, tdict_error *err) {
  const tdict_block_message *message = &call->message;
  const bool to_all = call->op == TDICT_COMM_BROADCAST || call->op == TDICT_COMM_BROADCAST_INTO;
  tdict_status status = tdict_comm_await_stream(call, err);
  if (status == TDICT_OK) status = tdict_message_fill(call, err);
  if (status != TDICT_OK || message->bytes == 0) return status;
  status = to_all ? tdict_table_broadcast(call, message->data, message->bytes, call->root, err)
                  : tdict_table_send(call, message->data, message->bytes, call->root, err);
  return status == TDICT_OK ? tdict_table_finish(call, err) : status;
}

tdict_status tdict_comm_receive_message(tdict_comm_call *call, const tdict_schema *schema, tdict_error *err) {
  tdict_block_message *message = &call->message;
  tdict_error local;
  tdict_status status = tdict_comm_await_stream(call, err);
  if (status != TDICT_OK) return status;
  if (message->bytes == 0) return tdict_schema_create_over(schema, message->storage, &message->packed, err);
  status = call->op == TDICT_COMM_BROADCAST
               ? tdict_table_broadcast(call, message->data, message->bytes, call->root, err)
               : tdict_table_receive(call, message->data, message->bytes, call->root, err);
  if (status != TDICT_OK) return status;
  const tdict_status made = tdict_schema_create_over(schema, message->storage, &message->packed, &local);
  return tdict_table_finish_step(call, made, &local, err);
}

void tdict_message_reset(tdict_block_message *message) {
  tdict_release(message->packed);
  if (message->storage) tdict_storage_release(message->storage);
  *message = (tdict_block_message){0};
}

/* Marks a tensor as valid, or as lost if `user` is NULL. */
static tdict_status mark_leaf(void *user, const tdict_tensor *t, tdict_error *err) {
  (void)err;
  if (t && user) tdict_tensor_regain(t);
  if (t && !user) tdict_tensor_lose(t);
  return TDICT_OK;
}
void tdict_comm_lose(const tdict_tree *tree) { (void)!for_leaves(tree, "", mark_leaf, NULL, NULL); }
void tdict_comm_regain(const tdict_comm_source *source) {
  bool is_valid = true;
  if (source->common && !tdict_storage_has_lost(source->common)) return;
  (void)!for_leaves(source->tree, "", mark_leaf, &is_valid, NULL);
}
