/* Streams, operations and virtual clock of the simulated driver. See queue.h for ownership and threads. */
#include "device/sim/queue.h"

#include <stdlib.h>

#include "core/base/thread.h"
#include "tdict/sim.h"

tdict_sim_device *tdict_sim_device_of(tdict_sim_driver *d, const void *address) {
  for (int32_t i = 0; i < d->num_devices; i++)
    if (tdict_sim_space_has(&d->devices[i].space, address)) return &d->devices[i];
  return NULL;
}

/* Returns true if the engine can make progress without a later time: it does work, or it has work to begin. */
static bool can_run(const tdict_sim_engine *engine) {
  if (engine->current) return engine->may_finish || engine->current->finish_ns <= engine->device->driver->virtual_ns;
  return engine->running && engine->head;
}

/* Sets the virtual clock, and wakes the engines whose work ends by then. */
static void set_virtual_clock(tdict_sim_driver *d, int64_t ns) {
  tdict_sim_engine *engine;
  d->virtual_ns = ns;
  for (int n = 0; (engine = tdict_sim_engine_at(d, n)); n++)
    if (engine->current && can_run(engine)) pthread_cond_signal(&engine->wake);
}

/* Returns true if the virtual clock may move: no engine can run, and the driver is not held. */
static bool may_move_clock(tdict_sim_driver *d) {
  tdict_sim_engine *engine;
  if (!d->options.virtual_time || d->held) return false;
  for (int n = 0; (engine = tdict_sim_engine_at(d, n)); n++)
    if (can_run(engine)) return false;
  return true;
}

void tdict_sim_clock_query(tdict_sim_driver *d) {
  enum { QUERY_NS = 1000 };
  if (may_move_clock(d)) set_virtual_clock(d, d->virtual_ns + QUERY_NS);
}

void tdict_sim_clock_advance(tdict_sim_driver *d) {
  tdict_sim_engine *engine;
  int64_t next_ns = INT64_MAX;
  if (d->num_waiting == 0 || !may_move_clock(d)) return;
  for (int n = 0; (engine = tdict_sim_engine_at(d, n)); n++)
    if (engine->current && engine->current->finish_ns < next_ns) next_ns = engine->current->finish_ns;
  if (next_ns != INT64_MAX) set_virtual_clock(d, next_ns);
}

void tdict_sim_wait_change(tdict_sim_driver *d) {
  d->num_waiting++;
  tdict_sim_clock_advance(d);
  tdict_cond_wait(&d->changed, &d->lock);
  d->num_waiting--;
}

void tdict_sim_changed(tdict_sim_driver *d) {
  if (d->num_waiting) pthread_cond_broadcast(&d->changed);
}

tdict_sim_op *tdict_sim_op_new(tdict_sim_op_kind kind) {
  tdict_sim_op *op = calloc(1, sizeof *op);
  if (!op) return NULL;
  op->refs = 1;
  op->kind = (int32_t)kind;
  return op;
}

tdict_sim_op *tdict_sim_op_retain(tdict_sim_op *op) {
  op->refs++;
  return op;
}

void tdict_sim_op_release(tdict_sim_op *op) {
  if (!op || --op->refs) return;
  free(op->buffer);
  free(op);
}

void tdict_sim_pool_free(tdict_sim_driver *d, tdict_sim_pool *pool) {
  tdict_sim_pool **at = &d->pools;
  while (*at != pool) at = &(*at)->next;
  *at = pool->next;
  tdict_sim_pool_trim(pool, 0);
  pool->magic = 0;
  free(pool);
}

void tdict_sim_release_memory(tdict_sim_driver *d, tdict_sim_space *space, void *start) {
  tdict_sim_pool *pool = tdict_sim_ranges_find(&space->live, start)->pool;
  tdict_sim_space_free(space, start);
  if (pool && pool->destroyed && pool->used == 0) tdict_sim_pool_free(d, pool);
}

void tdict_sim_stream_init(tdict_sim_stream *stream, tdict_sim_device *device, bool non_blocking) {
  stream->magic = TDICT_SIM_STREAM_MAGIC;
  stream->device = device;
  stream->non_blocking = non_blocking;
  TDICT_SIM_LINK(device->streams, stream);
}

static void free_stream(tdict_sim_stream *stream) {
  TDICT_SIM_UNLINK(stream->device->streams, stream);
  stream->magic = 0;
  free(stream);
}

void tdict_sim_stream_end(tdict_sim_stream *stream) {
  stream->destroyed = true;
  if (!stream->head) free_stream(stream);
}

/* Adds a stream whose head may run. The list avoids recursion, for one operation can free a long chain. */
static void add_runnable(tdict_sim_stream *stream) {
  tdict_sim_driver *d = stream->device->driver;
  if (stream->is_runnable) return;
  stream->is_runnable = true;
  stream->next_runnable = d->runnable;
  d->runnable = stream;
}

/* Removes the finished head of the stream, and unblocks the operations that wait for it. */
static void remove_head(tdict_sim_stream *stream) {
  tdict_sim_op *op = stream->head;
  tdict_sim_driver *d = stream->device->driver;
  stream->head = op->next;
  if (!stream->head) stream->tail = NULL;
  if (stream->clock_ns < op->finish_ns) stream->clock_ns = op->finish_ns;
  op->done = true;
  op->stream = NULL;
  tdict_sim_op_release(op->after);
  op->after = NULL;
  while (op->blocked) {
    tdict_sim_op *waiter = op->blocked;
    op->blocked = waiter->link;
    waiter->started = false;
    add_runnable(waiter->stream);
  }
  tdict_sim_changed(d);
  tdict_sim_op_release(op);
}

/* Gives work that can start to its engine. The engine's list is sorted by the order of queueing. */
static void push_work(tdict_sim_engine *engine, tdict_sim_op *op) {
  tdict_sim_op **at = &engine->head; /* at most one operation for each stream, so the list is short */
  while (*at && (*at)->seq < op->seq) at = &(*at)->link;
  op->link = *at;
  *at = op;
  if (engine->idle) pthread_cond_signal(&engine->wake);
}

/* Runs markers at the head of a stream, and gives the next work to an engine. Stops at a wait that is not done. */
static void run_heads(tdict_sim_stream *stream) {
  tdict_sim_driver *d = stream->device->driver;
  tdict_sim_op *op;
  while ((op = stream->head) && !op->started) {
    op->finish_ns = stream->clock_ns;
    if (op->after && !op->after->done) {
      op->started = true;
      op->link = op->after->blocked;
      op->after->blocked = op;
    } else if (op->after) {
      if (op->finish_ns < op->after->finish_ns) op->finish_ns = op->after->finish_ns;
      remove_head(stream);
    } else if (op->kind == TDICT_SIM_OP_RECORD) {
      op->done_ns = tdict_sim_now(d);
      remove_head(stream);
    } else if (op->kind == TDICT_SIM_OP_FREE) {
      tdict_sim_release_memory(d, op->work.dst_use.space, op->memory);
      remove_head(stream);
    } else {
      op->started = true;
      if (op->ready_ns < stream->clock_ns) op->ready_ns = stream->clock_ns;
      push_work(&stream->device->engines[op->engine], op);
    }
  }
  if (!op && stream->destroyed) free_stream(stream);
}

/* Runs the heads of all streams in the list `runnable`, until no stream can make progress. */
static void run_runnable(tdict_sim_driver *d) {
  while (d->runnable) {
    tdict_sim_stream *stream = d->runnable;
    d->runnable = stream->next_runnable;
    stream->is_runnable = false;
    run_heads(stream);
  }
}

void tdict_sim_op_finish(tdict_sim_op *op) {
  tdict_sim_stream *stream = op->stream;
  tdict_sim_driver *d = stream->device->driver;
  d->num_finished++;
  d->num_pending--;
  add_runnable(stream);
  remove_head(stream);
  run_runnable(d);
}

/* Appends an operation to the stream and gives the operation the next number. */
static void append_op(tdict_sim_stream *stream, tdict_sim_op *op) {
  tdict_sim_driver *d = stream->device->driver;
  op->stream = stream;
  op->seq = ++d->next_seq;
  tdict_sim_op_retain(op);
  if (stream->tail)
    stream->tail->next = op;
  else
    stream->head = op;
  stream->tail = op;
  if (op->kind >= TDICT_SIM_OP_COPY) d->num_pending++;
}

/* Appends a wait for another operation. Returns false if memory is exhausted. */
static bool append_wait(tdict_sim_stream *stream, tdict_sim_op *after) {
  tdict_sim_op *wait = tdict_sim_op_new(TDICT_SIM_OP_WAIT);
  if (!wait) return false;
  wait->after = tdict_sim_op_retain(after);
  append_op(stream, wait);
  tdict_sim_op_release(wait);
  return true;
}

/* Appends the waits between the legacy stream and the blocking streams. The legacy stream waits for all blocking
 * streams, and each blocking stream waits for the legacy stream. Returns false if memory is exhausted. */
static bool append_legacy_waits(tdict_sim_stream *stream) {
  tdict_sim_device *device = stream->device;
  tdict_sim_op *last = device->legacy.tail;
  if (stream->non_blocking) return true;
  if (stream != &device->legacy) {
    if (!last || last->seq <= stream->seen_seq) return true;
    if (!append_wait(stream, last)) return false;
    stream->seen_seq = last->seq;
    return true;
  }
  for (tdict_sim_stream *s = device->streams; s; s = s->next) {
    if (s == stream || s->non_blocking || !s->tail || s->tail->seq <= s->legacy_seen_seq) continue;
    if (!append_wait(stream, s->tail)) return false;
    s->legacy_seen_seq = s->tail->seq;
  }
  return true;
}

tdict_cu tdict_sim_push(tdict_sim_stream *stream, tdict_sim_op *op) {
  tdict_sim_driver *d = stream->device->driver;
  const tdict_sim_options *o = &d->options;
  bool timed = o->latency_ns > 0 || o->h2d_bytes_per_second > 0 || o->d2h_bytes_per_second > 0;
  if (timed)
    op->ready_ns = tdict_sim_now(d); /* if no rate and no latency is set, the time is not needed, and the system call
                                      * is saved */
  bool queued = append_legacy_waits(stream);
  if (queued) append_op(stream, op);
  add_runnable(stream);
  run_runnable(d);
  return queued ? TDICT_CU_SUCCESS : TDICT_CU_OUT_OF_MEMORY;
}

void tdict_sim_wait_op(tdict_sim_driver *d, tdict_sim_op *op) {
  tdict_sim_op_retain(op);
  while (!op->done) tdict_sim_wait_change(d);
  tdict_sim_op_release(op);
}

/* True if a stream of the device, blocking if `blocking_only`, has unfinished work up to number `seq`. */
static bool has_ops_up_to(const tdict_sim_device *device, bool blocking_only, uint64_t seq) {
  for (const tdict_sim_stream *s = device->streams; s; s = s->next)
    if (s->head && s->head->seq <= seq && !(blocking_only && s->non_blocking)) return true;
  return false;
}

bool tdict_sim_stream_busy(const tdict_sim_stream *stream) {
  if (stream == &stream->device->legacy) return has_ops_up_to(stream->device, true, UINT64_MAX);
  return stream->head != NULL;
}

void tdict_sim_wait_stream(tdict_sim_stream *stream) {
  tdict_sim_device *device = stream->device;
  tdict_sim_driver *d = device->driver;
  if (stream == &device->legacy) {
    uint64_t seq = d->next_seq;
    while (has_ops_up_to(device, true, seq)) tdict_sim_wait_change(d);
  } else if (stream->tail) {
    tdict_sim_wait_op(d, stream->tail); /* wait for the operation and not for the stream, because another thread may
                                         * free the stream */
  }
}

void tdict_sim_wait_device(tdict_sim_device *device) {
  uint64_t seq = device->driver->next_seq;
  while (has_ops_up_to(device, false, seq)) tdict_sim_wait_change(device->driver);
}
