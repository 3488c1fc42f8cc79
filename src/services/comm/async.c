/* Queues asynchronous calls and runs them on a thread. The queue owns its entries. Thread rule: see async.h. */
#include "services/comm/async.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/memory/memory.h"
#include "engine/promise.h"
#include "tdict/clone.h"

/* A call that waits in the queue. */
typedef struct queued_call {
  struct queued_call *next;
  tdict_comm_call call;
  uint64_t ticket;
  tdict_promise *promise; /* owned handle */
  tdict_tree *given;      /* retained; the tree of the program; NULL: none */
  tdict_tree *copy;       /* retained; a shallow copy of `given`, so that the program may change the keys of `given` */
  int64_t *counts;        /* owned */
  bool keeps_memory;      /* true: the memory of the call is retained */
} queued_call;

struct tdict_comm_queue {
  pthread_t thread;
  tdict_comm *comm;
  pthread_mutex_t lock; /* guards all fields below; held while a ticket is taken, so that the order of the queue is the
                         * order of the tickets */
  pthread_cond_t changed;
  queued_call *first, **end;
  bool stops;
};

static void free_queued(queued_call *q) {
  tdict_comm_reset(&q->call);
  if (q->keeps_memory) q->call.memory->ops->release(q->call.memory);
  if (q->promise) tdict_future_release(&q->promise->future);
  tdict_release(q->given);
  tdict_release(q->copy);
  free(q->counts);
  free(q);
}

/* Makes the call, and ends its future. */
static void run_queued(queued_call *q) {
  tdict_error error;
  tdict_tree *result = NULL;
  const bool gives_back = q->call.tree || q->call.op == TDICT_COMM_SEND;
  tdict_status status = tdict_comm_perform(&q->call, q->ticket, &result, &error);
  if (status == TDICT_OK && gives_back) result = tdict_retain(q->given);
  tdict_promise *promise = q->promise;
  q->promise = NULL;
  free_queued(q); /* before the end of the future, so that the program may then destroy what the call used */
  tdict_promise_close(promise, result, status == TDICT_OK ? NULL : &error);
  tdict_future_release(&promise->future);
}

/* Waits for the next call. Returns NULL if the queue is empty and must stop. */
static queued_call *take_queued(tdict_comm_queue *queue) {
  pthread_mutex_lock(&queue->lock);
  while (!queue->first && !queue->stops) tdict_cond_wait(&queue->changed, &queue->lock);
  queued_call *q = queue->first;
  if (q) queue->first = q->next;
  if (!queue->first) queue->end = &queue->first;
  pthread_mutex_unlock(&queue->lock);
  return q;
}

static void *run_queue(void *argument) {
  tdict_thread_set_name("comm");
  for (queued_call *q; (q = take_queued(argument)) != NULL;) run_queued(q);
  return NULL;
}

static void free_queue(tdict_comm_queue *queue) {
  pthread_mutex_destroy(&queue->lock);
  pthread_cond_destroy(&queue->changed);
  free(queue);
}

static void stop_queue(tdict_comm *comm) {
  tdict_comm_queue *queue = comm->queue;
  pthread_mutex_lock(&queue->lock);
  queue->stops = true;
  pthread_cond_broadcast(&queue->changed);
  pthread_mutex_unlock(&queue->lock);
  tdict_thread_join(queue->thread);
  free_queue(queue);
}

/* Creates the queue and its thread at the first call. The caller holds comm->lock. */
static tdict_status create_queue(tdict_comm *comm, tdict_error *err) {
  tdict_comm_queue *queue = calloc(1, sizeof *queue);
  if (!queue) return tdict_fail(err, TDICT_ENOMEM, "comm: no host memory for asynchronous calls");
  queue->comm = comm;
  queue->end = &queue->first;
  pthread_mutex_init(&queue->lock, NULL);
  pthread_cond_init(&queue->changed, NULL);
  const int code = tdict_thread_create(&queue->thread, run_queue, queue);
  if (code != 0) {
    free_queue(queue);
    return tdict_fail_native(err, TDICT_EIO, code, "comm: no thread for asynchronous calls: %s", strerror(code));
  }
  comm->queue = queue;
  comm->stop_queue = stop_queue;
  return TDICT_OK;
}

static tdict_status open_queue(tdict_comm *comm, tdict_error *err) {
  pthread_mutex_lock(&comm->lock);
  tdict_status status = comm->queue ? TDICT_OK : create_queue(comm, err);
  pthread_mutex_unlock(&comm->lock);
  return status;
}

/* Copies what the program may change before the call is made. */
static tdict_status copy_arguments(queued_call *q, tdict_error *err) {
  const tdict_comm_call *call = &q->call;
  const tdict_tree *given = call->tree ? call->tree : call->src;
  const size_t bytes = (size_t)call->comm->table.world * sizeof *q->counts;
  tdict_status status = TDICT_OK;
  if (call->memory) {
    call->memory->ops->retain(call->memory);
    q->keeps_memory = true;
  }
  if (given) {
    status = tdict_clone(given, &q->copy, err);
    if (status != TDICT_OK) return status;
    q->given = tdict_retain(given);
    if (call->tree) q->call.tree = q->copy;
    if (call->src) q->call.src = q->copy;
    q->call.given = q->given;
  }
  if (!call->counts || call->op != TDICT_COMM_SCATTER || call->comm->table.rank != call->root) return TDICT_OK;
  q->counts = malloc(bytes);
  if (!q->counts) return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory for the counts", tdict_comm_what(call));
  memcpy(q->counts, call->counts, bytes);
  q->call.counts = q->counts;
  return TDICT_OK;
}

static void append(tdict_comm_queue *queue, queued_call *q) {
  pthread_mutex_lock(&queue->lock);
  q->ticket = tdict_comm_take_ticket(queue->comm);
  *queue->end = q;
  queue->end = &q->next;
  pthread_cond_signal(&queue->changed);
  pthread_mutex_unlock(&queue->lock);
}

tdict_status tdict_comm_start(const tdict_comm_call *call, const tdict_comm_options *options, tdict_future **out,
                              tdict_error *err) {
  const char *what = tdict_comm_what(call);
  if (!out) return tdict_fail(err, TDICT_EINVAL, "%s: out is NULL", what);
  queued_call *q = calloc(1, sizeof *q);
  if (!q) return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory for the call", what);
  q->call = *call;
  tdict_status status = tdict_comm_prepare(&q->call, options, true, err);
  if (status == TDICT_OK) status = copy_arguments(q, err);
  if (status == TDICT_OK) status = open_queue(call->comm, err);
  if (status == TDICT_OK) status = tdict_promise_create(call->comm->context, what, 0, &q->promise, err);
  if (status != TDICT_OK) {
    free_queued(q);
    return status;
  }
  *out = tdict_future_retain(&q->promise->future);
  append(call->comm->queue, q);
  return TDICT_OK;
}
