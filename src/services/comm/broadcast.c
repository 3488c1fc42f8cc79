/* Implements tdict_comm_broadcast_async() and tdict_comm_broadcast_into_async(). Thread rule: as in tdict/comm.h. */
#include "services/comm/agree.h"
#include "services/comm/table.h"
#include "tdict/write.h"

static tdict_status run_broadcast(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  const bool is_root = call->comm->table.rank == call->root;
  tdict_schema *schema = NULL;
  if (is_root) {
    tdict_comm_check_source(call, call->src, TDICT_COMM_READS);
    TDICT_COMM_ALONE(call, tdict_message_prepare(call, &call->local));
  } else if (call->src) {
    TDICT_COMM_ALONE(
        call, tdict_fail(&call->local, TDICT_EINVAL, "broadcast: this rank is not the root, and its tree is not NULL"));
  }
  tdict_status status = tdict_comm_agree(call, false, err);
  if (status == TDICT_OK) status = tdict_comm_share_schema(call, call->source.schema, call->root, &schema, err);
  if (status == TDICT_OK && is_root) status = tdict_comm_send_message(call, err);
  if (status == TDICT_OK && !is_root) {
    status = tdict_message_allocate(call, schema, call->memory, err);
    if (status == TDICT_OK) status = tdict_comm_receive_message(call, schema, err);
  }
  if (status == TDICT_OK) *out = tdict_retain(!is_root ? call->message.packed : call->given ? call->given : call->src);
  return status;
}

static tdict_status receive_into(tdict_comm_call *call, tdict_error *err) {
  const tdict_block_message *message = &call->message;
  tdict_status status = tdict_comm_await_stream(call, err);
  if (status != TDICT_OK) return status;
  tdict_message_await(message);
  if (message->bytes) status = tdict_table_broadcast(call, message->data, message->bytes, call->root, err);
  if (status == TDICT_OK && message->bytes) status = tdict_table_finish(call, err);
  /* a copy leaves the tree unchanged until all bytes have arrived */
  const bool writes_tree = status == TDICT_OK || !message->is_copy;
  if (status == TDICT_OK && message->is_copy) status = tdict_copy(call->tree, message->packed, NULL, err);
  if (status == TDICT_OK)
    tdict_comm_regain(&call->source);
  else if (writes_tree)
    tdict_comm_lose(call->tree);
  return status;
}

static tdict_status run_broadcast_into(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  const bool is_root = call->comm->table.rank == call->root;
  (void)out;
  tdict_comm_check_source(call, call->tree, is_root ? TDICT_COMM_READS : TDICT_COMM_WRITES);
  TDICT_COMM_ALONE(call, tdict_message_prepare(call, &call->local));
  tdict_status status = tdict_comm_agree(call, true, err);
  if (status != TDICT_OK) return status;
  return is_root ? tdict_comm_send_message(call, err) : receive_into(call, err);
}

tdict_status tdict_comm_broadcast_async(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                        const tdict_comm_options *options, tdict_future **out, tdict_error *err) {
  const tdict_comm_call call = {
      .comm = comm, .op = TDICT_COMM_BROADCAST, .run = run_broadcast, .src = src, .has_root = true, .root = root};
  return tdict_comm_start(&call, options, out, err);
}

tdict_status tdict_comm_broadcast_into_async(tdict_comm *comm, tdict_tree *tree, int32_t root,
                                             const tdict_comm_options *options, tdict_future **out, tdict_error *err) {
  const tdict_comm_call call = {.comm = comm,
                                .op = TDICT_COMM_BROADCAST_INTO,
                                .run = run_broadcast_into,
                                .tree = tree,
                                .has_root = true,
                                .root = root};
  return tdict_comm_start(&call, options, out, err);
}
