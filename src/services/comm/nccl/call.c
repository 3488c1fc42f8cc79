/* Implements calls of NCCL and the waits for their work. See link.h for ownership and threads. */
#include <time.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/thread.h"
#include "services/comm/nccl/link.h"

static tdict_status fail_ended(const tdict_nccl_link *link, tdict_error *err) {
  return tdict_fail(err, TDICT_ECANCELLED, "%s: the communicator was aborted", link->where);
}

tdict_status tdict_nccl_refuse_ended(tdict_nccl_link *link, tdict_error *err) {
  return atomic_load(&link->ended) ? fail_ended(link, err) : TDICT_OK;
}

/* Lets other threads run, for longer the longer the wait lasts. A short message takes some ten microseconds, but other
 * ranks may take up to 200 to prepare a tree of 1000 leaves. */
static void pause_since(int64_t begun_ns) {
  enum { SPIN_NS = 200000, SHORT_NS = 5000000 };
  const int64_t elapsed = tdict_now_ns() - begun_ns;
  if (elapsed < SPIN_NS) {
    for (int i = 0; i < 16; i++) tdict_spin_pause();
    return;
  }
  const struct timespec pause = {0, elapsed < SHORT_NS ? 20000 : 200000};
  tdict_sleep(&pause);
}

static tdict_status fail_late(const tdict_nccl_link *link, const char *what, int64_t begun_ns, tdict_error *err) {
  return tdict_fail(err, TDICT_ETIMEDOUT, "%s: rank %d of %d waited %.3g s for the other ranks in %s", link->where,
                    (int)link->rank, (int)link->world, (double)(tdict_now_ns() - begun_ns) / 1e9, what);
}

/* Reads the state of a communicator. Returns an error that NCCL reports, or TDICT_ECANCELLED after `abort`. */
static tdict_status read_state(tdict_nccl_link *link, const tdict_nccl_comm *comm, const char *name, bool *in_progress,
                               tdict_error *err) {
  if (atomic_load(&link->ended)) return fail_ended(link, err);
  pthread_mutex_lock(&link->lock);
  tdict_nccl_result state = TDICT_NCCL_SUCCESS;
  tdict_status status = TDICT_OK;
  if (!*comm) {
    status = fail_ended(link, err);
  } else {
    tdict_nccl_result result = link->api.async_error(*comm, &state);
    status = tdict_nccl_check(&link->api, *comm, result, link->where, "ncclCommGetAsyncError", err);
    if (status == TDICT_OK) status = tdict_nccl_check(&link->api, *comm, state, link->where, name, err);
  }
  pthread_mutex_unlock(&link->lock);
  *in_progress = state == TDICT_NCCL_IN_PROGRESS;
  return status;
}

tdict_status tdict_nccl_settle(tdict_nccl_link *link, const tdict_nccl_comm *comm, const char *name,
                               int64_t deadline_ns, tdict_error *err) {
  const int64_t begun = tdict_now_ns();
  for (;;) {
    bool in_progress = false;
    tdict_status status = read_state(link, comm, name, &in_progress, err);
    if (status != TDICT_OK || !in_progress) return status;
    if (tdict_now_ns() >= deadline_ns) return fail_late(link, name, begun, err);
    pause_since(begun);
  }
}

/* Enters the gpu, unless the current operation has entered it. */
static tdict_status enter(tdict_nccl_link *link, tdict_gpu_scope *scope, tdict_error *err) {
  scope->entered = false;
  return link->is_entered ? TDICT_OK : tdict_gpu_enter(link->gpu, scope, err);
}

tdict_status tdict_nccl_begin(tdict_nccl_call *call, tdict_error *err) {
  tdict_nccl_link *link = call->link;
  if (atomic_load(&link->ended)) return fail_ended(link, err);
  tdict_status status = enter(link, &call->scope, err);
  if (status != TDICT_OK) return status;
  pthread_mutex_lock(&link->lock);
  call->begun_ns = tdict_now_ns();
  if (link->comm) {
    tdict_nccl_watch_begin(&link->watch, call->deadline_ns);
    return TDICT_OK;
  }
  pthread_mutex_unlock(&link->lock);
  tdict_gpu_leave(link->gpu, &call->scope);
  return fail_ended(link, err);
}

tdict_status tdict_nccl_end(tdict_nccl_call *call, tdict_nccl_result result, tdict_error *err) {
  tdict_nccl_link *link = call->link;
  const bool is_late = tdict_nccl_watch_end(&link->watch), is_aborted = atomic_load(&link->ended);
  if (is_late) atomic_store(&link->ended, true);
  tdict_status status = is_late      ? fail_late(link, call->name, call->begun_ns, err)
                        : is_aborted ? fail_ended(link, err)
                                     : tdict_nccl_check(&link->api, link->comm, result, link->where, call->name, err);
  pthread_mutex_unlock(&link->lock);
  if (status == TDICT_OK && result == TDICT_NCCL_IN_PROGRESS)
    status = tdict_nccl_settle(link, &link->comm, call->name, call->deadline_ns, err);
  tdict_gpu_leave(link->gpu, &call->scope);
  return status;
}

/* Calls NCCL for one message. Call inside of tdict_nccl_begin() and tdict_nccl_end(). */
static tdict_nccl_result queue_move(tdict_nccl_call *call, const tdict_nccl_move *move, tdict_cu_stream stream) {
  const tdict_nccl_api *api = &call->link->api;
  tdict_nccl_comm comm = call->link->comm;
  tdict_nccl_stream s = (tdict_nccl_stream)(void *)stream;
  switch (move->kind) {
  case TDICT_NCCL_SEND:
    call->name = "ncclSend";
    return api->send(move->src, move->num_bytes, TDICT_NCCL_U8, move->peer, comm, s);
  case TDICT_NCCL_RECEIVE:
    call->name = "ncclRecv";
    return api->receive(move->dst, move->num_bytes, TDICT_NCCL_U8, move->peer, comm, s);
  case TDICT_NCCL_BROADCAST:
    call->name = "ncclBroadcast";
    return api->broadcast(move->src, move->dst, move->num_bytes, TDICT_NCCL_U8, move->peer, comm, s);
  default:
    call->name = "ncclAllGather";
    return api->all_gather(move->src, move->dst, move->num_bytes, TDICT_NCCL_U8, comm, s);
  }
}

static bool has_failed(tdict_nccl_result result) {
  return result != TDICT_NCCL_SUCCESS && result != TDICT_NCCL_IN_PROGRESS;
}

/* Calls NCCL for a group of messages. Ends the group also after a failure, since the group belongs to the thread. */
static tdict_nccl_result queue_group(tdict_nccl_call *call, const tdict_nccl_move *moves, size_t count,
                                     tdict_cu_stream stream) {
  tdict_nccl_result result = call->link->api.group_start();
  if (has_failed(result)) return result;
  for (size_t i = 0; i < count && !has_failed(result); i++)
    if (moves[i].num_bytes > 0) result = queue_move(call, &moves[i], stream);
  tdict_nccl_result end = call->link->api.group_end();
  if (has_failed(result)) return result;
  call->name = "ncclGroupEnd";
  return end;
}

tdict_status tdict_nccl_queue(tdict_nccl_link *link, const tdict_nccl_move *moves, size_t count, tdict_cu_stream stream,
                              int64_t deadline_ns, tdict_error *err) {
  tdict_nccl_call call = {.link = link, .name = "ncclGroupStart", .deadline_ns = deadline_ns};
  tdict_status status = tdict_nccl_begin(&call, err);
  if (status != TDICT_OK) return status;
  tdict_nccl_result result = TDICT_NCCL_SUCCESS;
  if (count > 1)
    result = queue_group(&call, moves, count, stream);
  else if (count == 1 && moves->num_bytes > 0)
    result = queue_move(&call, moves, stream);
  return tdict_nccl_end(&call, result, err);
}

static tdict_status wait_event(tdict_nccl_link *link, int64_t deadline_ns, tdict_error *err) {
  const int64_t begun = tdict_now_ns();
  for (;;) {
    /* Query the event before the state: work that `abort` has stopped must not count as finished. */
    tdict_cu done = tdict_gpu_query_event(link->gpu, link->event);
    bool in_progress = false;
    tdict_status status = read_state(link, &link->comm, "an operation on the device", &in_progress, err);
    if (status != TDICT_OK || done == TDICT_CU_SUCCESS) return status;
    if (done != TDICT_CU_NOT_READY) return tdict_gpu_check(link->gpu, done, "cuEventQuery", err);
    if (tdict_now_ns() >= deadline_ns) return fail_late(link, "an operation on the device", begun, err);
    pause_since(begun);
  }
}

tdict_status tdict_nccl_wait(tdict_nccl_link *link, tdict_cu_stream stream, int64_t deadline_ns, tdict_error *err) {
  tdict_gpu_scope scope;
  if (atomic_load(&link->ended)) return fail_ended(link, err);
  tdict_status status = enter(link, &scope, err);
  if (status != TDICT_OK) return status;
  status = tdict_gpu_record(link->gpu, link->event, stream, err);
  if (status == TDICT_OK) status = wait_event(link, deadline_ns, err);
  tdict_gpu_leave(link->gpu, &scope);
  return status;
}
