/* Implements the engines of the simulated driver. An engine's thread waits for the simulated duration of work, stops
 * while the driver is held, and copies the bytes or runs the kernel. Each address that the kernel accesses must be in
 * live memory and aligned. See queue.h for ownership and threads. */
#include <stdlib.h>
#include <string.h>

#include "core/base/thread.h"
#include "device/kernels/host.h"
#include "device/sim/entries.h"

void tdict_sim_engines_wake(tdict_sim_driver *d) {
  tdict_sim_engine *engine;
  for (int n = 0; (engine = tdict_sim_engine_at(d, n)); n++) pthread_cond_signal(&engine->wake);
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

/* Memory that a kernel has accessed: [start, start + bytes), whose bytes are at `host`. */
typedef struct window {
  uint64_t start;
  size_t bytes;
  char *host;
} window;
enum { NUM_WINDOWS = 4 };

/* The state of a running launch. The windows spare the lock and the search for most accesses. */
typedef struct running_launch {
  tdict_sim_device *device;
  window windows[NUM_WINDOWS];
  unsigned next; /* the window that is replaced next */
} running_launch;

/* Finds the live memory that contains an address. Call with the driver's lock held. */
static bool find_window(const tdict_sim_device *device, const void *address, window *out) {
  tdict_sim_driver *d = device->driver;
  const tdict_sim_device *owner = tdict_sim_device_of(d, address);
  const tdict_sim_range *range = tdict_sim_ranges_find(owner ? &owner->space.live : &d->hosts, address);
  if (!range || (owner && !tdict_sim_has_access(device, owner, range))) return false;
  const void *start = (const void *)range->start;
  *out =
      (window){range->start, range->bytes, owner ? tdict_sim_space_bytes(&owner->space, start) : (void *)range->start};
  return true;
}

static char *at_window(const window *w, uint64_t address, size_t bytes) {
  const uint64_t offset = address - w->start; /* wraps to a large number if the address is lower */
  return offset < w->bytes && bytes <= w->bytes - offset ? w->host + offset : NULL;
}

/* Implements tdict_kernel_access.at. */
static void *access_memory(void *user, uint64_t address, size_t bytes) {
  running_launch *l = user;
  tdict_sim_driver *d = l->device->driver;
  if (address % bytes != 0) return NULL; /* a GPU reports a misaligned address */
  for (int i = 0; i < NUM_WINDOWS; i++) {
    char *found = at_window(&l->windows[i], address, bytes);
    if (found) return found;
  }
  window *w = &l->windows[l->next++ % NUM_WINDOWS];
  tdict_sim_lock(d);
  bool is_live = find_window(l->device, (const void *)(uintptr_t)address, w);
  tdict_sim_unlock(d);
  return is_live ? at_window(w, address, bytes) : NULL;
}

/* Runs a launch, without the driver's lock. Returns false if the kernel accessed memory that is not allocated. */
static bool run_launch(tdict_sim_device *device, const tdict_sim_op *op) {
  running_launch l = {.device = device};
  const tdict_kernel_access access = {access_memory, &l};
  return tdict_kernel_run_host((tdict_kernel_op)op->work.kernel, op->buffer, op->work.blocks, &access);
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
    is_valid = run_launch(device, op);
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
  static const char *const names[TDICT_SIM_NUM_ENGINES] = {"in", "out", "run"};
  tdict_thread_set_name("sim%d-%s", (int)engine->device->ordinal, names[engine - engine->device->engines]);
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
  tdict_sim_engine *engine;
  tdict_sim_lock(d);
  d->closing = true;
  tdict_sim_engines_wake(d);
  tdict_sim_unlock(d);
  for (int n = 0; (engine = tdict_sim_engine_at(d, n)); n++)
    if (engine->running) tdict_thread_join(engine->thread);
}
