/* Implements tdict_comm_broadcast_async() and tdict_comm_broadcast_into_async(). Thread rule: as in tdict/comm.h. */
#include "services/comm/agree.h"
#include "services/comm/async.h"
#include "services/comm/source.h"
#include "services/comm/table.h"

/* Sends or receives the block. */
static tdict_status move_block(tdict_comm_call *call, const tdict_block_message *message, tdict_error *err) {
  if (message->bytes == 0) return TDICT_OK;
  tdict_status status = tdict_table_broadcast(call, message->data, message->bytes, call->root, err);
  return status == TDICT_OK ? tdict_table_finish(call, err) : status;
}

/* Receives the block, and makes its tree while the elements are on their way. */
static tdict_status receive_tree(tdict_comm_call *call, const tdict_schema *schema, tdict_block_message *message,
                                 tdict_error *err) {
  tdict_error local;
  tdict_status status = tdict_message_allocate(call->comm, schema, call->memory, message, err);
  if (status == TDICT_OK) status = tdict_comm_await_stream(call, err);
  if (status == TDICT_OK && message->bytes)
    status = tdict_table_broadcast(call, message->data, message->bytes, call->root, err);
  if (status != TDICT_OK) return status;
  if (!message->bytes) return tdict_message_make_tree(message, schema, err);
  const tdict_status made = tdict_message_make_tree(message, schema, &local);
  return tdict_table_finish_step(call, made, &local, err);
}

/* Sends the block of the root. */
static tdict_status send_tree(tdict_comm_call *call, tdict_block_message *message, tdict_error *err) {
  tdict_status status = tdict_comm_await_stream(call, err);
  if (status == TDICT_OK) status = tdict_message_fill(call->comm, message, false, err);
  return status == TDICT_OK ? move_block(call, message, err) : status;
}

static tdict_status run_broadcast(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  const bool is_root = call->comm->table.rank == call->root;
  tdict_comm_source source = {0};
  tdict_schema *schema = NULL;
  tdict_block_message message = {0};
  tdict_error local;
  if (is_root) {
    tdict_comm_check_source(call, call->src, TDICT_COMM_READS, &source);
    tdict_comm_prepare_message(call, &source, &message);
  } else if (call->src) {
    tdict_comm_note(call,
                    tdict_fail(&local, TDICT_EINVAL, "broadcast: this rank is not the root, and its tree is not NULL"),
                    &local);
  }
  const tdict_comm_offer offer = {.schema = source.schema};
  tdict_status status = tdict_comm_agree(call, &offer, false, err);
  if (status == TDICT_OK) status = tdict_comm_share_schema(call, source.schema, call->root, &schema, err);
  if (status == TDICT_OK) status = is_root ? send_tree(call, &message, err) : receive_tree(call, schema, &message, err);
  if (status == TDICT_OK) *out = tdict_retain(!is_root ? message.packed : call->given ? call->given : call->src);
  tdict_message_reset(&message);
  tdict_comm_source_reset(&source);
  return status;
}

/* Receives into a tree of this rank, or sends the tree. */
static tdict_status move_into(tdict_comm_call *call, const tdict_comm_source *source, tdict_block_message *message,
                              tdict_error *err) {
  const bool is_root = call->comm->table.rank == call->root;
  if (is_root) return send_tree(call, message, err);
  tdict_status status = tdict_comm_await_stream(call, err);
  if (status != TDICT_OK) return status;
  tdict_message_await(message);
  status = move_block(call, message, err);
  bool writes_tree = !message->is_copy; /* a copy leaves the tree unchanged until all bytes have arrived */
  if (status == TDICT_OK) {
    writes_tree = true;
    status = tdict_message_unpack(message, call->tree, err);
  }
  if (status == TDICT_OK)
    tdict_comm_regain(source);
  else if (writes_tree)
    tdict_comm_lose(call->tree);
  return status;
}

static tdict_status run_broadcast_into(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  const bool is_root = call->comm->table.rank == call->root;
  tdict_comm_source source;
  tdict_block_message message = {0};
  (void)out;
  tdict_comm_check_source(call, call->tree, is_root ? TDICT_COMM_READS : TDICT_COMM_WRITES, &source);
  tdict_comm_prepare_message(call, &source, &message);
  const tdict_comm_offer offer = {.schema = source.schema};
  tdict_status status = tdict_comm_agree(call, &offer, true, err);
  if (status == TDICT_OK) status = move_into(call, &source, &message, err);
  tdict_message_reset(&message);
  tdict_comm_source_reset(&source);
  return status;
}

static tdict_comm_call broadcast_call(tdict_comm *comm, const tdict_tree *src, int32_t root) {
  return (tdict_comm_call){
      .comm = comm, .op = TDICT_COMM_BROADCAST, .run = run_broadcast, .src = src, .has_root = true, .root = root};
}
static tdict_comm_call broadcast_into_call(tdict_comm *comm, tdict_tree *tree, int32_t root) {
  return (tdict_comm_call){.comm = comm,
                           .op = TDICT_COMM_BROADCAST_INTO,
                           .run = run_broadcast_into,
                           .tree = tree,
                           .has_root = true,
                           .root = root};
}

tdict_status tdict_comm_broadcast_async(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                        const tdict_comm_options *options, tdict_future **out, tdict_error *err) {
  const tdict_comm_call call = broadcast_call(comm, src, root);
  return tdict_comm_start(&call, options, out, err);
}

tdict_status tdict_comm_broadcast_into_async(tdict_comm *comm, tdict_tree *tree, int32_t root,
                                             const tdict_comm_options *options, tdict_future **out, tdict_error *err) {
  const tdict_comm_call call = broadcast_into_call(comm, tree, root);
  return tdict_comm_start(&call, options, out, err);
}
