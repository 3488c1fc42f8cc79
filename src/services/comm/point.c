/* Implements tdict_comm_send_async() and tdict_comm_receive_async(). The sender sends its header, and the schema if the
 * receiver lacks the schema. The receiver answers with its own header when it is ready, or with an error. Then the
 * block follows. Thread rule: as in tdict/comm.h. */
#include <stdlib.h>

#include "services/comm/agree.h"
#include "services/comm/table.h"

/* Returns true if there is no other rank that waits for this call. */
static bool has_no_peer(tdict_comm_call *call) {
  const tdict_comm_table *t = &call->comm->table;
  if (call->root == t->rank)
    TDICT_COMM_ALONE(call, tdict_fail(&call->local, TDICT_EINVAL, "%s: rank %d is this rank, wanted another rank",
                                      tdict_comm_what(call), (int)call->root));
  return call->root < 0 || call->root >= t->world_size || call->root == t->rank;
}

/* Returns the error of this rank's own checks. The communicator stays usable. */
static tdict_status return_local(tdict_comm_call *call, tdict_error *err) {
  call->keeps_comm = true;
  *err = call->local;
  return (tdict_status)call->local.status;
}

/* Sends the header, and the error of this rank if there is one. */
static tdict_status send_header(const tdict_comm_call *call, tdict_error *err) {
  tdict_comm_header mine;
  tdict_comm_write_header(call, &mine);
  tdict_status status = tdict_table_send_host(call, &mine, sizeof mine, call->root, err);
  if (status == TDICT_OK && !tdict_comm_is_fine(call))
    status = tdict_table_send_host(call, &call->local, sizeof call->local, call->root, err);
  return status;
}

/* Receives the header of the other rank, which must call `op`. If the other rank has an error, returns this error. */
static tdict_status receive_header(tdict_comm_call *call, tdict_comm_op op, tdict_comm_header *out, tdict_error *err) {
  tdict_error shared;
  const int peer = call->root;
  tdict_status status = tdict_table_receive_host(call, out, sizeof *out, call->root, err);
  if (status != TDICT_OK) return status;
  if (out->magic != TDICT_COMM_MAGIC || out->version != TDICT_COMM_VERSION)
    return tdict_fail(err, TDICT_EFORMAT, "%s: rank %d uses another version of the protocol, wanted %d",
                      tdict_comm_what(call), peer, TDICT_COMM_VERSION);
  if (out->op != (int32_t)op)
    return tdict_fail(err, TDICT_EINVAL, "%s: rank %d calls %s, wanted %s", tdict_comm_what(call), peer,
                      tdict_comm_op_name(out->op), tdict_comm_op_name((int32_t)op));
  if (out->status == TDICT_OK) return TDICT_OK;
  status = tdict_table_receive_host(call, &shared, sizeof shared, call->root, err);
  if (status != TDICT_OK) return status;
  return tdict_comm_return_error(call, call->root, out->status, &shared, err);
}

static tdict_status send_schema(const tdict_comm_call *call, tdict_schema *schema, tdict_error *err) {
  const tdict_schema_cache *cache = &call->comm->peers[call->root].sent;
  const size_t bytes = tdict_schema_write(schema, NULL, 0);
  if (tdict_schema_cache_find(cache, tdict_schema_get_info(schema).hash, bytes)) return TDICT_OK;
  void *blob;
  tdict_status status = tdict_comm_allocate_blob(call, bytes, &blob, err);
  if (status != TDICT_OK) return status;
  tdict_schema_write(schema, blob, bytes);
  status = tdict_table_send_host(call, blob, bytes, call->root, err);
  free(blob);
  return status;
}

static tdict_status run_send(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  tdict_comm_header answer;
  (void)out;
  if (has_no_peer(call)) return return_local(call, err);
  tdict_comm_check_source(call, call->src, TDICT_COMM_READS);
  TDICT_COMM_ALONE(call, tdict_message_prepare(call, &call->local));
  tdict_status status = send_header(call, err);
  if (status == TDICT_OK && !tdict_comm_is_fine(call)) status = return_local(call, err);
  if (status == TDICT_OK) status = send_schema(call, call->source.schema, err);
  if (status == TDICT_OK) status = receive_header(call, TDICT_COMM_RECEIVE, &answer, err);
  if (status != TDICT_OK) return status;
  tdict_schema_cache_use(&call->comm->peers[call->root].sent, call->source.schema);
  return tdict_comm_send_message(call, err);
}

/* Receives the header's schema or finds it in the cache. Errors after the blob has arrived are noted in the call. */
static tdict_status receive_schema(tdict_comm_call *call, const tdict_comm_header *h, tdict_schema **out,
                                   tdict_error *err) {
  const tdict_schema_cache *cache = &call->comm->peers[call->root].received;
  tdict_schema *found = tdict_schema_cache_find(cache, h->hash, h->blob_bytes);
  void *blob;
  *out = found ? tdict_schema_retain(found) : NULL;
  if (found) return TDICT_OK;
  tdict_status status = tdict_comm_allocate_blob(call, h->blob_bytes, &blob, err);
  if (status != TDICT_OK) return status;
  status = tdict_table_receive_host(call, blob, h->blob_bytes, call->root, err);
  if (status == TDICT_OK) TDICT_COMM_ALONE(call, tdict_comm_read_schema(call, blob, h, call->root, out, &call->local));
  free(blob);
  return status;
}

static tdict_status run_receive(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  tdict_schema *schema = NULL;
  tdict_comm_header header;
  if (has_no_peer(call)) return return_local(call, err);
  tdict_status status = receive_header(call, TDICT_COMM_SEND, &header, err);
  if (status == TDICT_OK) status = receive_schema(call, &header, &schema, err);
  if (status != TDICT_OK) return status;
  TDICT_COMM_ALONE(call, tdict_message_allocate(call, schema, call->memory, &call->local));
  status = send_header(call, err);
  if (status == TDICT_OK && !tdict_comm_is_fine(call)) status = return_local(call, err);
  if (status == TDICT_OK) {
    tdict_schema_cache_use(&call->comm->peers[call->root].received, schema);
    status = tdict_comm_receive_message(call, schema, err);
  }
  if (status == TDICT_OK) *out = tdict_retain(call->message.packed);
  tdict_schema_release(schema);
  return status;
}

tdict_status tdict_comm_send_async(tdict_comm *comm, const tdict_tree *src, int32_t peer,
                                   const tdict_comm_options *options, tdict_future **out, tdict_error *err) {
  const tdict_comm_call call = {
      .comm = comm, .op = TDICT_COMM_SEND, .run = run_send, .src = src, .has_root = true, .root = peer};
  return tdict_comm_start(&call, options, out, err);
}

tdict_status tdict_comm_receive_async(tdict_comm *comm, int32_t peer, const tdict_comm_options *options,
                                      tdict_future **out, tdict_error *err) {
  const tdict_comm_call call = {
      .comm = comm, .op = TDICT_COMM_RECEIVE, .run = run_receive, .has_root = true, .root = peer};
  return tdict_comm_start(&call, options, out, err);
}
