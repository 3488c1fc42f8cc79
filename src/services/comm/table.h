/* Calls the operations of a table with its stream and a call's time limit. A program's table may return a number that
 * is not a tdict_status: it becomes TDICT_EHOOK. `err` must be one of the library, because its contents are
 * overwritten. Thread rule: only the call whose turn it is. */
#ifndef TDICT_SERVICES_COMM_TABLE_H
#define TDICT_SERVICES_COMM_TABLE_H

#include "core/base/error.h"
#include "services/comm/call.h"

/* Calls the operation `name` with `self` and the given arguments. */
#define TDICT_COMM_TABLE(call, name, err, ...)                                                                   \
  (tdict_error_clear(err),                                                                                       \
   tdict_callback_status((call)->comm->table.name((call)->comm->table.self, __VA_ARGS__, (err)), "comm: " #name, \
                         (err)))

static inline tdict_status tdict_table_exchange(const tdict_comm_call *c, const void *src, void *dst, size_t bytes,
                                                tdict_error *err) {
  return TDICT_COMM_TABLE(c, exchange, err, src, dst, bytes, c->timeout_ns);
}
static inline tdict_status tdict_table_send_host(const tdict_comm_call *c, const void *src, size_t bytes, int32_t peer,
                                                 tdict_error *err) {
  return TDICT_COMM_TABLE(c, send_host, err, src, bytes, peer, c->timeout_ns);
}
static inline tdict_status tdict_table_receive_host(const tdict_comm_call *c, void *dst, size_t bytes, int32_t peer,
                                                    tdict_error *err) {
  return TDICT_COMM_TABLE(c, receive_host, err, dst, bytes, peer, c->timeout_ns);
}
static inline tdict_status tdict_table_broadcast(const tdict_comm_call *c, void *buffer, size_t bytes, int32_t root,
                                                 tdict_error *err) {
  return TDICT_COMM_TABLE(c, broadcast, err, buffer, bytes, root, c->comm->stream, c->timeout_ns);
}
static inline tdict_status tdict_table_all_gather(const tdict_comm_call *c, const void *src, void *dst, size_t bytes,
                                                  tdict_error *err) {
  return TDICT_COMM_TABLE(c, all_gather, err, src, dst, bytes, c->comm->stream, c->timeout_ns);
}
static inline tdict_status tdict_table_all_reduce(const tdict_comm_call *c, void *buffer, size_t count,
                                                  tdict_dtype dtype, tdict_error *err) {
  return TDICT_COMM_TABLE(c, all_reduce, err, buffer, count, dtype, (tdict_reduce_op)c->reduce, c->comm->stream,
                          c->timeout_ns);
}
static inline tdict_status tdict_table_send(const tdict_comm_call *c, const void *src, size_t bytes, int32_t peer,
                                            tdict_error *err) {
  return TDICT_COMM_TABLE(c, send, err, src, bytes, peer, c->comm->stream, c->timeout_ns);
}
static inline tdict_status tdict_table_receive(const tdict_comm_call *c, void *dst, size_t bytes, int32_t peer,
                                               tdict_error *err) {
  return TDICT_COMM_TABLE(c, receive, err, dst, bytes, peer, c->comm->stream, c->timeout_ns);
}
static inline tdict_status tdict_table_group_begin(const tdict_comm_call *c, tdict_error *err) {
  tdict_error_clear(err);
  return tdict_callback_status(c->comm->table.group_begin(c->comm->table.self, err), "comm: group_begin", err);
}
static inline tdict_status tdict_table_group_end(const tdict_comm_call *c, tdict_error *err) {
  return TDICT_COMM_TABLE(c, group_end, err, c->comm->stream, c->timeout_ns);
}
/* Waits until the queued work is done. */
static inline tdict_status tdict_table_finish(const tdict_comm_call *c, tdict_error *err) {
  return TDICT_COMM_TABLE(c, finish, err, c->comm->stream, c->timeout_ns);
}

/* Waits like tdict_table_finish(). `step` is the result of a step that this rank made meanwhile, and *step_err its
 * error. Returns the error of the table first. */
static inline tdict_status tdict_table_finish_step(const tdict_comm_call *c, tdict_status step,
                                                   const tdict_error *step_err, tdict_error *err) {
  tdict_status status = tdict_table_finish(c, err);
  if (status != TDICT_OK || step == TDICT_OK) return status;
  *err = *step_err;
  return step;
}

#endif
