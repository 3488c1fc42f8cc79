/* Implements the engines of the simulated driver. An engine's thread waits for the simulated duration of work, stops
 * while the driver is held, and copies the bytes. See queue.h for ownership and threads. */
#include "sim/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"

void tdict_sim_engines_wake(tdict_sim_driver *d) {
  for (int32_t i = 0; i < d->num_devices; i++)
    for (int k = 0; k < TDICT_SIM_NUM_ENGINES; k++) pthread_cond_signal(&d->devices[i].engines[k].wake);
}

/* Returns true if the engine can make progress without a later time: it does work, or it has work to begin. */
static bool can_run(const tdict_sim_engine *engine) {
  if (engine->current) return engine->may_finish || engine->current->finish_ns <= engine->device->driver->virtual_ns;
  return engine->running && engine->head;
}

/* Sets the virtual clock, and wakes the engines whose work ends by then. */
static void set_virtual_clock(tdict_sim_driver *d, int64_t ns) {
  d->virtual_ns = ns;
  for (int32_t i = 0; i < d->num_devices; i++) {
    for (int k = 0; k < TDICT_SIM_NUM_ENGINES; k++) {
      tdict_sim_engine *engine = &d->devices[i].engines[k];
      if (engine->current && can_run(engine)) pthread_cond_signal(&engine->wake);
    }
  }
}

/* Returns true if the virtual clock may move: no engine can run, and the driver is not held. */
static bool may_move_clock(const tdict_sim_driver *d) {
  if (!d->options.virtual_time || d->held) return false;
  for (int32_t i = 0; i < d->num_devices; i++)
    for (int k = 0; k < TDICT_SIM_NUM_ENGINES; k++)
      if (can_run(&d->devices[i].engines[k])) return false;
  return true;
}

void tdict_sim_clock_query(tdict_sim_driver *d) {
  enum { QUERY_NS = 1000 };
  if (may_move_clock(d)) set_virtual_clock(d, d->virtual_ns + QUERY_NS);
}

void tdict_sim_clock_advance(tdict_sim_driver *d) {
  int64_t next_ns = INT64_MAX;
  if (d->num_waiting == 0 || !may_move_clock(d)) return;
  for (int32_t i = 0; i < d->num_devices; i++) {
    for (int k = 0; k < TDICT_SIM_NUM_ENGINES; k++) {
      const tdict_sim_op *op = d->devices[i].engines[k].current;
      if (op && op->finish_ns < next_ns) next_ns = op->finish_ns;
    }
  }
  if (next_ns != INT64_MAX) set_virtual_clock(d, next_ns);
}

/* Waits until the simulated time `finish_ns`, or until a step lets the work finish. */
static void sleep_until(tdict_sim_engine *engine, int64_t finish_ns) {
  tdict_sim_driver *d = engine->device->driver;
  struct timespec until = {.tv_sec = (time_t)(finish_ns / 1000000000), .tv_nsec = (long)(finish_ns % 1000000000)};
  while (!engine->may_finish && tdict_sim_now(d) < finish_ns) {
    if (!d->options.virtual_time) {
      tdict_cond_wait_until(&engine->wake, &d->lock, &until);
      continue;
    }
    tdict_sim_clock_advance(d);
    if (d->virtual_ns < finish_ns) tdict_cond_wait(&engine->wake, &d->lock);
  }
}

/* Sleeps for the simulated duration of the work. The duration begins at the latest of three times: the work is queued,
 * the engine's earlier work has ended, and the stream's earlier work has ended. The time at which this thread wakes up
 * does not matter, so late wakeups do not add up. A step ends the sleep. */
static void sleep_for_duration(tdict_sim_engine *engine, tdict_sim_op *op) {
  tdict_sim_driver *d = engine->device->driver;
  int64_t duration_ns = d->options.latency_ns;
  if (op->kind == TDICT_SIM_OP_COPY && engine->bytes_per_second > 0) {
    double ns = (double)op->work.width * (double)op->work.height / engine->bytes_per_second * 1e9;
    duration_ns += ns < 1e15 ? (int64_t)ns : (int64_t)1e15;
  }
  int64_t begin = engine->free_ns > op->ready_ns ? engine->free_ns : op->ready_ns;
  op->finish_ns = engine->free_ns = begin + duration_ns;
  if (duration_ns == 0 || op->finish_ns <= tdict_sim_now(d)) return;
  sleep_until(engine, op->finish_ns);
  if (engine->may_finish) op->finish_ns = engine->free_ns = tdict_sim_now(d); /* a step ignores simulated time */
}

/* Waits while the driver is held, until a step lets this engine finish its work. */
static void wait_while_held(tdict_sim_engine *engine) {
  tdict_sim_driver *d = engine->device->driver;
  while (d->held && !engine->may_finish) tdict_cond_wait(&engine->wake, &d->lock);
  engine->may_finish = false;
}

/* Returns true if the memory is host memory, or device memory that was not freed after the work was queued. */
static bool is_still_allocated(const tdict_sim_use *use) {
  if (!use->space) return true;
  const tdict_sim_range *range = tdict_sim_ranges_find(&use->space->live, use->address);
  return range && range->id == use->id;
}

static void move_bytes(const tdict_sim_op *op) {
  const tdict_sim_work *w = &op->work;
  if (op->kind == TDICT_SIM_OP_FILL) {
    memset(w->dst, w->byte, w->width);
    return;
  }
  for (size_t row = 0; row < w->height; row++)
    memmove(w->dst + row * w->dst_pitch, w->src + row * w->src_pitch, w->width);
}

/* Waits until the work may run, and does the work. If the work uses memory that was freed, sets the device's fault
 * instead. Call with the driver's lock held. The function unlocks while bytes are copied or a function runs. */
static void do_work(tdict_sim_engine *engine, tdict_sim_op *op) {
  tdict_sim_device *device = engine->device;
  tdict_sim_driver *d = device->driver;
  sleep_for_duration(engine, op);
  wait_while_held(engine);
  /* Like a GPU, report the use of freed memory as a sticky error. */
  if (!is_still_allocated(&op->work.dst_use) || !is_still_allocated(&op->work.src_use)) {
    if (!device->fault) device->fault = TDICT_CU_ILLEGAL_ADDRESS;
    return;
  }
  if (op->kind == TDICT_SIM_OP_CALL) {
    uint64_t hold_number = d->hold_number;
    tdict_sim_unlock(d);
    op->work.fn(op->work.user);
    tdict_sim_lock(d);
    if (hold_number != d->hold_number)
      wait_while_held(engine); /* a hold began while the function ran, so wait for a step or for the end of the hold */
    return;
  }
  bool is_valid = true;
  d->num_copying++;
  tdict_sim_unlock(d);
  if (op->kind == TDICT_SIM_OP_LAUNCH)
    is_valid = tdict_sim_run_launch(device, op);
  else
    move_bytes(op);
  free(op->buffer);
  tdict_sim_lock(d);
  op->buffer = NULL;
  d->num_copying--;
  if (!is_valid && !device->fault) device->fault = TDICT_CU_ILLEGAL_ADDRESS;
}

static void *run_engine(void *argument) {
  tdict_sim_engine *engine = argument;
  tdict_sim_driver *d = engine->device->driver;
  tdict_sim_lock(d);
  for (;;) {
    while (!d->closing && (!engine->head || (d->held && !engine->may_finish))) {
      engine->idle = true;
      tdict_sim_clock_advance(d);
      tdict_cond_wait(&engine->wake, &d->lock);
      engine->idle = false;
    }
    tdict_sim_op *op = engine->head;
    if (!op) break;
    engine->head = op->link;
    engine->current = op;
    do_work(engine, op);
    engine->current = NULL;
    engine->may_finish = false; /* a step may have set this flag after the work passed its last check */
    tdict_sim_op_finish(op);
  }
  tdict_sim_unlock(d);
  return NULL;
}

tdict_cu tdict_sim_engines_start(tdict_sim_device *device) {
  tdict_cu result = TDICT_CU_SUCCESS;
  for (int k = 0; k < TDICT_SIM_NUM_ENGINES && result == TDICT_CU_SUCCESS; k++) {
    tdict_sim_engine *engine = &device->engines[k];
    if (engine->running) continue;
    if (tdict_thread_create(&engine->thread, run_engine, engine) == 0)
      engine->running = true;
    else
      result = TDICT_CU_OUT_OF_MEMORY;
  }
  return result;
}

void tdict_sim_engines_stop(tdict_sim_driver *d) {
  tdict_sim_lock(d);
  d->closing = true;
  tdict_sim_engines_wake(d);
  tdict_sim_unlock(d);
  for (int32_t i = 0; i < d->num_devices; i++)
    for (int k = 0; k < TDICT_SIM_NUM_ENGINES; k++)
      if (d->devices[i].engines[k].running) tdict_thread_join(d->devices[i].engines[k].thread);
}
