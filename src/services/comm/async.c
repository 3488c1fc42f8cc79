/* Queues the calls of a communicator, and makes them one after another. A queued call is a kind of future. The queue
 * owns the calls that have not been made, and each future retains the queue. Thread rule: any thread. */
#include "services/comm/agree.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/memory/memory.h"
#include "engine/future.h"
#include "tdict/clone.h"

typedef struct queued_call {
  tdict_future future; /* first member, so that a pointer to the call is also a pointer to the future */
  struct queued_call *next;
  tdict_comm_queue *queue; /* retained */
  tdict_comm_call call;
  tdict_tree *given; /* retained; the tree of the program; NULL: none */
  tdict_tree *copy;  /* retained; a shallow copy of `given`, so that the program may change the keys of `given` */
  int64_t *counts;   /* owned */
  bool keeps_memory; /* true: the memory of the call is retained */
} queued_call;

struct tdict_comm_queue {
  _Atomic(int32_t) refs; /* acq_rel: one of the communicator, and one of each future */
  bool has_thread;       /* false: each call is made before the function that started it returns */
  pthread_t thread;
  pthread_mutex_t lock; /* guards all fields below */
  pthread_cond_t changed;
  queued_call *first, **end;
  bool is_running; /* a thread makes a call */
  bool stops;
};

static void release_queue(tdict_comm_queue *queue) {
  if (atomic_fetch_sub_explicit(&queue->refs, 1, memory_order_acq_rel) != 1) return;
  pthread_mutex_destroy(&queue->lock);
  pthread_cond_destroy(&queue->changed);
  free(queue);
}

static void reset_queued(queued_call *q) {
  if (q->call.after) q->call.after->ops->release(q->call.after);
  tdict_tree_facts_release(q->call.facts);
  if (q->keeps_memory) q->call.memory->ops->release(q->call.memory);
  tdict_release(q->given);
  tdict_release(q->copy);
  free(q->counts);
  q->keeps_memory = false;
  q->call.after = NULL;
  q->call.facts = NULL;
  q->given = q->copy = NULL;
  q->counts = NULL;
}

static void free_queued(tdict_future *f) {
  queued_call *q = (queued_call *)f;
  reset_queued(q);
  if (q->queue) release_queue(q->queue);
}

/* Drops the references that the steps of a call have taken. */
static void release_memory(tdict_comm_call *call) {
  tdict_message_reset(&call->message);
  tdict_comm_source_reset(&call->source);
  for (int i = 0; i < 2; i++) tdict_storage_release(call->held[i]);
}

/* Makes the call. If the call fails, aborts the communicator unless all ranks know the error. On failure *out is
 * unchanged. */
static tdict_status perform(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  TDICT_UNCANCELLED;
  tdict_error failure = {0};
  tdict_tree *result = NULL;
  tdict_status status = tdict_comm_check(call->comm, tdict_comm_what(call), &failure);
  if (status == TDICT_OK) {
    status = call->run(call, &result, &failure);
    failure.status = (int32_t)status; /* a table may leave the error empty */
    if (status != TDICT_OK && !call->keeps_comm && !tdict_comm_fail(call->comm, &failure))
      status = tdict_comm_check(call->comm, tdict_comm_what(call), &failure); /* another thread has aborted */
    release_memory(call); /* after the abort, which ends work that may use the memory */
  }
  if (status == TDICT_OK)
    *out = result;
  else
    *err = failure;
  return status;
}

/* Makes the call, and ends its future. The caller must not use the struct afterwards. */
static void run_queued(queued_call *q) {
  tdict_error error;
  tdict_tree *result = NULL;
  const bool gives_back = q->call.tree || q->call.op == TDICT_COMM_SEND;
  tdict_status status = perform(&q->call, &result, &error);
  if (status == TDICT_OK && gives_back) result = tdict_retain(q->given);
  reset_queued(q); /* before the end of the future, so that the program may then destroy what the call used */
  tdict_future_end(&q->future, result, status == TDICT_OK ? NULL : &error);
}

/* Takes the next call, unless a thread makes a call already. The caller holds the lock. */
static queued_call *take_queued(tdict_comm_queue *queue) {
  queued_call *q = queue->is_running ? NULL : queue->first;
  if (!q) return NULL;
  queue->first = q->next;
  if (!queue->first) queue->end = &queue->first;
  queue->is_running = true;
  return q;
}

/* Makes a call that was taken. The caller holds the lock, which is not held while the call is made. */
static void run_taken(tdict_comm_queue *queue, queued_call *q) {
  pthread_mutex_unlock(&queue->lock);
  run_queued(q);
  pthread_mutex_lock(&queue->lock);
  queue->is_running = false;
  if (queue->first || queue->stops) pthread_cond_broadcast(&queue->changed);
}

static void *run_queue(void *argument) {
  tdict_comm_queue *queue = argument;
  tdict_thread_set_name("comm");
  pthread_mutex_lock(&queue->lock);
  while (queue->first || queue->is_running || !queue->stops) {
    queued_call *q = take_queued(queue);
    if (q)
      run_taken(queue, q);
    else
      tdict_cond_wait(&queue->changed, &queue->lock);
  }
  pthread_mutex_unlock(&queue->lock);
  return NULL;
}

/* Makes the calls up to that of the future, unless another thread is making a call. The waiting thread then need not
 * wait until the queue's thread wakes up. */
static void help(tdict_future *f) {
  TDICT_UNCANCELLED; /* the queue would stop */
  tdict_comm_queue *queue = ((queued_call *)f)->queue;
  queued_call *q;
  pthread_mutex_lock(&queue->lock);
  while (!tdict_future_is_open(f, &f->ended) && (q = take_queued(queue)) != NULL) run_taken(queue, q);
  pthread_mutex_unlock(&queue->lock);
}

/* Waits until the call has ended, because a table has no event for a stream to wait for. */
static tdict_status wait_on_stream(tdict_future *f, tdict_stream stream, tdict_error *err) {
  (void)stream, (void)err;
  help(f);
  tdict_future_wait_latch(f, &f->ended, INT64_MAX);
  return TDICT_OK;
}

/* A call has no hooks. */
static bool is_inside(const tdict_future *f) {
  (void)f;
  return false;
}

static const tdict_future_kind queued_kind = {
    .fence = {tdict_future_fence_poll, tdict_future_fence_wait, NULL, tdict_future_fence_retain,
              tdict_future_fence_release},
    .name = "call of a communicator",
    .help = help,
    .wait_on_stream = wait_on_stream,
    .decides_cancel = true, /* the other ranks continue, so only tdict_comm_abort() stops a call */
    .is_inside = is_inside,
    .free = free_queued,
};

static void stop_queue(tdict_comm *comm) {
  tdict_comm_queue *queue = comm->queue;
  pthread_mutex_lock(&queue->lock);
  queue->stops = true;
  pthread_cond_broadcast(&queue->changed);
  pthread_mutex_unlock(&queue->lock);
  if (queue->has_thread) tdict_thread_join(queue->thread);
  release_queue(queue);
}

/* Creates the queue, and its thread if the table may be used on this thread. The caller holds comm->lock. */
static tdict_status create_queue(tdict_comm *comm, tdict_error *err) {
  tdict_comm_queue *queue = calloc(1, sizeof *queue);
  if (!queue) return tdict_fail_memory(err, "comm", NULL, "the queue of calls");
  atomic_init(&queue->refs, 1);
  queue->has_thread = !comm->table.on_calling_thread;
  queue->end = &queue->first;
  pthread_mutex_init(&queue->lock, NULL);
  pthread_cond_init(&queue->changed, NULL);
  const int code = queue->has_thread ? tdict_thread_create(&queue->thread, run_queue, queue) : 0;
  if (code != 0) {
    release_queue(queue);
    return tdict_fail_native(err, TDICT_EIO, code, "comm: no thread for the calls: %s", strerror(code));
  }
  comm->queue = queue;
  comm->stop_queue = stop_queue;
  return TDICT_OK;
}

static tdict_status open_queue(queued_call *q, tdict_error *err) {
  tdict_comm *comm = q->call.comm;
  pthread_mutex_lock(&comm->lock);
  tdict_status status = comm->queue ? TDICT_OK : create_queue(comm, err);
  q->queue = comm->queue;
  pthread_mutex_unlock(&comm->lock);
  if (q->queue) atomic_fetch_add_explicit(&q->queue->refs, 1, memory_order_relaxed);
  return status;
}

/* Copies what the program may change before the call is made. */
static tdict_status copy_arguments(queued_call *q, tdict_error *err) {
  const tdict_comm_call *call = &q->call;
  const tdict_tree *given = call->tree ? call->tree : call->src;
  const size_t bytes = (size_t)call->comm->table.world_size * sizeof *q->counts;
  tdict_status status = TDICT_OK;
  q->call.facts = tdict_tree_facts_get(given);
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
  if (!q->counts) return tdict_fail_memory(err, tdict_comm_what(call), NULL, "the counts");
  memcpy(q->counts, call->counts, bytes);
  q->call.counts = q->counts;
  return TDICT_OK;
}

static void append(queued_call *q) {
  tdict_comm_queue *queue = q->queue;
  tdict_engine *engine = q->future.engine;
  pthread_mutex_lock(&engine->lock);
  tdict_future_count_live(&q->future);
  pthread_mutex_unlock(&engine->lock);
  pthread_mutex_lock(&queue->lock);
  *queue->end = q;
  queue->end = &q->next;
  if (!queue->is_running) pthread_cond_signal(&queue->changed);
  pthread_mutex_unlock(&queue->lock);
}

tdict_status tdict_comm_start(const tdict_comm_call *call, const tdict_comm_options *options, tdict_future **out,
                              tdict_error *err) {
  TDICT_UNCANCELLED;
  const char *what = tdict_comm_what(call);
  if (!call->comm || !out) return tdict_fail_null(err, what, call->comm ? "out" : "comm");
  queued_call *q = calloc(1, sizeof *q);
  if (!q) return tdict_fail_memory(err, what, NULL, "the call");
  tdict_future *f = &q->future;
  tdict_future_init(f, tdict_context_engine(call->comm->context), &queued_kind);
  f->begin_ns = tdict_now_ns();
  q->call = *call;
  tdict_status status = tdict_comm_prepare(&q->call, options, err);
  if (status == TDICT_OK) status = copy_arguments(q, err);
  if (status == TDICT_OK) status = open_queue(q, err);
  if (status != TDICT_OK) {
    tdict_future_release(f);
    return status;
  }
  append(q);
  if (!q->queue->has_thread) (void)!wait_on_stream(f, (tdict_stream){{0, 0}, NULL}, NULL);
  *out = f;
  return TDICT_OK;
}
