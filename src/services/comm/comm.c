/* Creates, aborts and destroys communicators. Thread rule: see call.h. */
#include "services/comm/call.h"

#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"

/* Checks the parts of the table that the library relies on. */
static tdict_status check_table(const tdict_comm_table *t, tdict_error *err) {
  const bool is_complete = t->exchange && t->send_host && t->receive_host && t->broadcast && t->all_gather &&
                           t->can_reduce && t->all_reduce && t->send && t->receive && t->group_begin && t->group_end &&
                           t->finish && t->abort && t->destroy && t->name;
  if (!is_complete) return tdict_fail(err, TDICT_EINVAL, "comm: the name or a function of the table is NULL");
  if (t->world_size < 1 || t->rank < 0 || t->rank >= t->world_size)
    return tdict_fail(err, TDICT_EINVAL,
                      "comm: rank %d of %d ranks, wanted 0 or more and less than the number of ranks", (int)t->rank,
                      (int)t->world_size);
  return TDICT_OK;
}

/* Opens the device of the table and creates the stream. */
static tdict_status open_device(tdict_comm *c, tdict_error *err) {
  const tdict_device device = c->table.device;
  tdict_status status = tdict_devices_check_fork(tdict_context_devices(c->context), "comm", err);
  if (status != TDICT_OK || tdict_device_equal(device, tdict_cpu())) return status;
  if (device.type == TDICT_DEVICE_CPU || device.type == TDICT_DEVICE_AUTO) {
    return tdict_fail(err, TDICT_EINVAL, "comm: the device of the table is %s, wanted cpu, cuda or sim",
                      TDICT_DEVICE_TEXT(device));
  }
  status = tdict_devices_gpu(tdict_context_devices(c->context), device, &c->gpu, err);
  if (status == TDICT_OK) status = tdict_stream_create(c->context, device, &c->stream, err);
  return status;
}

static void free_comm(tdict_comm *c) {
  if (c->stream.handle) tdict_stream_destroy(c->context, c->stream);
  tdict_schema_cache_reset(&c->schemas);
  tdict_schema_cache_reset(&c->own_schemas);
  tdict_row_schemas_reset(&c->row_schemas);
  tdict_runs_cache_reset(&c->runs);
  for (int i = 0; c->peers && i < c->table.world_size; i++) {
    tdict_schema_cache_reset(&c->peers[i].sent);
    tdict_schema_cache_reset(&c->peers[i].received);
  }
  pthread_mutex_destroy(&c->lock);
  free(c->headers);
  free(c->peers);
  free(c);
}

tdict_status tdict_comm_create(tdict_context *context, const tdict_comm_table *table,
                               const tdict_comm_create_options *options, tdict_comm **out, tdict_error *err) {
  tdict_comm_create_options o = tdict_comm_create_options_default();
  tdict_comm_table t = tdict_comm_table_default();
  if (!context || !table || !out) return tdict_fail_null(err, "comm", !context ? "context" : !table ? "table" : "out");
  tdict_status status = tdict_options_read(&o, sizeof o, options, "comm_create options", err);
  if (status == TDICT_OK) status = tdict_options_read(&t, sizeof t, table, "comm_table", err);
  if (status == TDICT_OK) status = check_table(&t, err);
  if (status == TDICT_OK && o.timeout_ns <= 0)
    status = tdict_fail(err, TDICT_EINVAL, "comm: timeout_ns is %lld, wanted 1 or more", (long long)o.timeout_ns);
  if (status != TDICT_OK) return status;
  tdict_comm *c = calloc(1, sizeof *c);
  if (!c) return tdict_fail_memory(err, "comm", NULL, "a communicator");
  c->context = context;
  c->table = t;
  c->timeout_ns = o.timeout_ns;
  pthread_mutex_init(&c->lock, NULL);
  c->headers = calloc((size_t)t.world_size, sizeof *c->headers);
  c->peers = calloc((size_t)t.world_size, sizeof *c->peers);
  if (!c->headers || !c->peers) status = tdict_fail_memory(err, "comm", NULL, "%d ranks", (int)t.world_size);
  if (status == TDICT_OK) status = open_device(c, err);
  return TDICT_HAND_OVER(status, c, out, free_comm);
}

void tdict_comm_destroy(tdict_comm *comm) {
  TDICT_UNCANCELLED;
  if (!comm) return;
  if (comm->stop_queue) comm->stop_queue(comm);
  comm->table.destroy(comm->table.self);
  free_comm(comm);
}

tdict_status tdict_comm_check(tdict_comm *comm, const char *what, tdict_error *err) {
  pthread_mutex_lock(&comm->lock);
  const tdict_error failure = comm->failure;
  pthread_mutex_unlock(&comm->lock);
  if (failure.status == TDICT_OK) return TDICT_OK;
  return tdict_fail_at(err, (tdict_status)failure.status, failure.path, "%s: the communicator was aborted: %.180s",
                       what, failure.message);
}

bool tdict_comm_fail(tdict_comm *comm, const tdict_error *failure) {
  pthread_mutex_lock(&comm->lock);
  const bool is_first = comm->failure.status == TDICT_OK;
  if (is_first) comm->failure = *failure;
  pthread_mutex_unlock(&comm->lock);
  if (is_first) comm->table.abort(comm->table.self);
  return is_first;
}

void tdict_comm_abort(tdict_comm *comm) {
  tdict_error failure;
  if (!comm) return;
  tdict_fail(&failure, TDICT_ECANCELLED, "comm_abort: the program aborted the communicator");
  (void)tdict_comm_fail(comm, &failure);
}

tdict_comm_info tdict_comm_get_info(const tdict_comm *comm) {
  const tdict_comm_table *t = &comm->table;
  return (tdict_comm_info){.rank = t->rank, .world_size = t->world_size, .device = t->device};
}
