/* Implements tdict_comm_broadcast_async() and tdict_comm_broadcast_into_async(). Thread rule: as in tdict/comm.h. */
#include "services/comm/agree.h"
#include "services/comm/table.h"
#include "tdict/write.h"

static tdict_status run_broadcast(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  const bool is_root = call->comm->table.rank == call->root;
  tdict_comm_source source = {0};
  tdict_schema *schema = NULL;
  tdict_block_message message = {0};
  if (is_root) {
    tdict_comm_check_source(call, call->src, TDICT_COMM_READS, &source);
    TDICT_COMM_ALONE(call, tdict_message_prepare(call->comm, &source, &message, &call->local));
  } else if (call->src) {
    TDICT_COMM_ALONE(
        call, tdict_fail(&call->local, TDICT_EINVAL, "broadcast: this rank is not the root, and its tree is not NULL"));
  }
  tdict_status status = tdict_comm_agree(call, &(tdict_comm_offer){.schema = source.schema}, false, err);
  if (status == TDICT_OK) status = tdict_comm_share_schema(call, source.schema, call->root, &schema, err);
  if (status == TDICT_OK && is_root) status = tdict_comm_send_message(call, &message, err);
  if (status == TDICT_OK && !is_root) {
    status = tdict_message_allocate(call->comm, schema, call->memory, &message, err);
    if (status == TDICT_OK) status = tdict_comm_receive_message(call, schema, &message, err);
  }
  if (status == TDICT_OK) *out = tdict_retain(!is_root ? message.packed : call->given ? call->given : call->src);
  tdict_message_reset(&message);
  tdict_comm_source_reset(&source);
  return status;
}

/* Receives into the tree of this rank. */
static tdict_status receive_into(tdict_comm_call *call, const tdict_comm_source *source, tdict_block_message *message,
                                 tdict_error *err) {
  tdict_status status = tdict_comm_await_stream(call, err);
  if (status != TDICT_OK) return status;
  tdict_message_await(message);
  if (message->bytes) status = tdict_table_broadcast(call, message->data, message->bytes, call->root, err);
  if (status == TDICT_OK && message->bytes) status = tdict_table_finish(call, err);
  /* a copy leaves the tree unchanged until all bytes have arrived */
  const bool writes_tree = status == TDICT_OK || !message->is_copy;
  if (status == TDICT_OK && message->is_copy) status = tdict_copy(call->tree, message->packed, NULL, err);
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
  TDICT_COMM_ALONE(call, tdict_message_prepare(call->comm, &source, &message, &call->local));
  tdict_status status = tdict_comm_agree(call, &(tdict_comm_offer){.schema = source.schema}, true, err);
  if (status == TDICT_OK)
    status = is_root ? tdict_comm_send_message(call, &message, err) : receive_into(call, &source, &message, err);
  tdict_message_reset(&message);
  tdict_comm_source_reset(&source);
  return status;
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
