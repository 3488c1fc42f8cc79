/* Implements the simulated driver: its table, opening and closing, hold, step and resume, and the public calls for
 * simulated devices. The driver owns its devices, their memory, streams, events and threads. Closing the driver frees
 * all of these. Thread rule: safe from any thread. No thread may use a driver while the driver closes. */
#include "device/sim/driver.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/thread.h"
#include "device/devices.h"
#include "device/sim/entries.h"
#include "tdict/sim.h"

enum { NO_PCI_DOMAIN = 0xffff, MIN_MEMORY_BYTES = 1 << 20 };

/* Returns CUDA's name of a code, and a text that fits the simulated device. */
static tdict_cu error_text(tdict_driver *base, tdict_cu result, const char **name, const char **text) {
  static const struct {
    tdict_cu code;
    const char *name, *text;
  } known[] = {
      {TDICT_CU_SUCCESS, "CUDA_SUCCESS", "no error"},
      {TDICT_CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
      {TDICT_CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
      {TDICT_CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "the driver is not initialized"},
      {TDICT_CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "there is no device"},
      {TDICT_CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "no device has this ordinal"},
      {TDICT_CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "no context, or the wrong one, is current"},
      {TDICT_CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid handle"},
      {TDICT_CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "not found"},
      {TDICT_CU_NOT_READY, "CUDA_ERROR_NOT_READY", "not done yet"},
      {TDICT_CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "queued work used memory that was freed before it ran"},
      {TDICT_CU_PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is on already"},
      {TDICT_CU_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
       "part of the host memory is registered already"},
      {TDICT_CU_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
       "no registration begins at this address"},
      {TDICT_CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "not supported"},
      {TDICT_CU_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not allowed while capturing"},
      {TDICT_CU_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
  };
  (void)base;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (known[i].code != result) continue;
    *name = known[i].name;
    *text = known[i].text;
    return TDICT_CU_SUCCESS;
  }
  return TDICT_CU_INVALID_VALUE;
}

static tdict_cu device_count(tdict_driver *base, int *count) {
  *count = tdict_sim_driver_of(base)->num_devices;
  return TDICT_CU_SUCCESS;
}

static tdict_cu device_name(tdict_driver *base, int ordinal, char *buffer, int bytes) {
  if (!tdict_sim_device_at(tdict_sim_driver_of(base), ordinal)) return TDICT_CU_INVALID_DEVICE;
  if (!buffer || bytes <= 0) return TDICT_CU_INVALID_VALUE;
  snprintf(buffer, (size_t)bytes, "simulated device %d", ordinal);
  return TDICT_CU_SUCCESS;
}

static tdict_cu device_attribute(tdict_driver *base, int ordinal, int attribute, int *value) {
  if (!tdict_sim_device_at(tdict_sim_driver_of(base), ordinal)) return TDICT_CU_INVALID_DEVICE;
  switch (attribute) {
  case TDICT_CU_ATTRIBUTE_MULTIPROCESSOR_COUNT:
  case TDICT_CU_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    *value = 1;
    break;
  case TDICT_CU_ATTRIBUTE_ASYNC_ENGINE_COUNT:
    *value = 2;
    break;
  case TDICT_CU_ATTRIBUTE_PCI_DOMAIN_ID:
    *value = NO_PCI_DOMAIN; /* no machine has this PCI domain, so sysfs has no node for the device */
    break;
  case TDICT_CU_ATTRIBUTE_PCI_DEVICE_ID:
    *value = ordinal;
    break;
  case TDICT_CU_ATTRIBUTE_PCI_BUS_ID:
  case TDICT_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
  case TDICT_CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    *value = 0;
    break;
  case TDICT_CU_ATTRIBUTE_READS_HOST_PAGE_TABLES:
    *value = tdict_sim_driver_of(base)->options.reads_pageable_memory;
    break;
  default:
    return TDICT_CU_INVALID_VALUE;
  }
  return TDICT_CU_SUCCESS;
}

static tdict_cu device_can_reach(tdict_driver *base, int ordinal, int peer, int *can) {
  tdict_sim_driver *d = tdict_sim_driver_of(base);
  if (!tdict_sim_device_at(d, ordinal) || !tdict_sim_device_at(d, peer)) return TDICT_CU_INVALID_DEVICE;
  *can = tdict_sim_are_linked(d, ordinal, peer);
  return TDICT_CU_SUCCESS;
}

tdict_status tdict_driver_sim_check(const tdict_sim_options *o, tdict_error *err) {
  if (o->num_devices < 1 || o->num_devices > TDICT_SIM_MAX_DEVICES)
    return tdict_fail(err, TDICT_EINVAL, "sim: num_devices is %d, wanted 1 to %d", (int)o->num_devices,
                      (int)TDICT_SIM_MAX_DEVICES);
  if (o->peers < TDICT_SIM_PEERS_PAIRS || o->peers > TDICT_SIM_PEERS_NONE)
    return tdict_fail(err, TDICT_EINVAL, "sim: peers is %d, wanted a tdict_sim_peers", (int)o->peers);
  if (o->memory_bytes < MIN_MEMORY_BYTES)
    return tdict_fail(err, TDICT_EINVAL, "sim: memory_bytes is %zu, wanted at least %d", o->memory_bytes,
                      (int)MIN_MEMORY_BYTES);
  if (!isfinite(o->h2d_bytes_per_second) || o->h2d_bytes_per_second < 0)
    return tdict_fail(err, TDICT_EINVAL, "sim: h2d_bytes_per_second is %g, wanted 0 or more", o->h2d_bytes_per_second);
  if (!isfinite(o->d2h_bytes_per_second) || o->d2h_bytes_per_second < 0)
    return tdict_fail(err, TDICT_EINVAL, "sim: d2h_bytes_per_second is %g, wanted 0 or more", o->d2h_bytes_per_second);
  if (o->latency_ns < 0)
    return tdict_fail(err, TDICT_EINVAL, "sim: latency_ns is %lld, wanted 0 or more", (long long)o->latency_ns);
  return TDICT_OK;
}

/* Frees a device's events, streams and memory. Call after all work is done and all engines have stopped. */
static void close_device(tdict_sim_device *device) {
  while (device->events) {
    tdict_sim_event *event = device->events;
    device->events = event->next;
    tdict_sim_op_release(event->record);
    free(event);
  }
  while (device->streams) {
    tdict_sim_stream *stream = device->streams;
    device->streams = stream->next;
    if (stream != &device->legacy && stream != &device->per_thread) free(stream);
  }
  tdict_sim_space_close(&device->space);
  for (int k = 0; k < TDICT_SIM_NUM_ENGINES; k++) pthread_cond_destroy(&device->engines[k].wake);
}

static void close_driver(tdict_driver *base) {
  tdict_sim_driver *d = tdict_sim_driver_of(base);
  /* Finish all work first, because the work uses the streams and the memory. */
  tdict_driver_sim_resume(base);
  tdict_sim_lock(d);
  for (int32_t i = 0; i < d->num_devices; i++) tdict_sim_wait_device(&d->devices[i]);
  tdict_sim_unlock(d);
  tdict_sim_engines_stop(d);
  while (d->pools) tdict_sim_pool_free(d, d->pools);
  for (int32_t i = 0; i < d->num_devices; i++) close_device(&d->devices[i]);
  tdict_sim_hosts_free(d);
  tdict_sim_threads_free(d);
  pthread_key_delete(d->thread_key);
  tdict_forkmark_release(d->mark);
  pthread_cond_destroy(&d->changed);
  pthread_mutex_destroy(&d->lock);
  free(d);
}

/* Takes no lock, because the device and the driver of a stream are constant. */
static const tdict_driver *stream_owner(const void *handle, int32_t *ordinal) {
  const tdict_sim_stream *stream = handle;
  if (!tdict_sim_is_stream(stream)) return NULL;
  *ordinal = stream->device->ordinal;
  return &stream->device->driver->base;
}

static void fill_table(tdict_driver_ops *ops) {
  ops->close = close_driver;
  ops->stream_owner = stream_owner;
  TDICT_DRIVER_DEVICE_ENTRIES(TDICT_SIM_FILL)
  tdict_sim_add_contexts(ops);
  tdict_sim_add_memory(ops);
  tdict_sim_add_copies(ops);
  tdict_sim_add_launches(ops);
  tdict_sim_add_streams(ops);
}

/* Opens a device, whose engines start with its context. Returns false without address space. */
static bool open_device(tdict_sim_driver *d, int32_t ordinal) {
  tdict_sim_device *device = &d->devices[ordinal];
  if (!tdict_sim_space_open(&device->space, d->options.memory_bytes)) return false;
  device->driver = d;
  device->ordinal = ordinal;
  tdict_sim_stream_init(&device->legacy, device, false);
  tdict_sim_stream_init(&device->per_thread, device, false);
  for (int k = 0; k < TDICT_SIM_NUM_ENGINES; k++) {
    device->engines[k].device = device;
    tdict_cond_init_monotonic(&device->engines[k].wake);
  }
  device->engines[TDICT_SIM_ENGINE_IN].bytes_per_second = d->options.h2d_bytes_per_second;
  device->engines[TDICT_SIM_ENGINE_OUT].bytes_per_second = d->options.d2h_bytes_per_second;
  return true;
}

tdict_status tdict_driver_sim_open(const tdict_sim_options *options, tdict_driver **out, tdict_error *err) {
  tdict_status status = tdict_driver_sim_check(options, err);
  if (status != TDICT_OK) return status;
  tdict_sim_driver *d = calloc(1, sizeof *d);
  if (!d) return tdict_fail_memory(err, "sim", NULL, "the driver");
  status = tdict_forkmark_create(&d->mark, err);
  if (status != TDICT_OK) {
    free(d);
    return status;
  }
  if (pthread_key_create(&d->thread_key, NULL) != 0) {
    tdict_forkmark_release(d->mark);
    free(d);
    return tdict_fail(err, TDICT_ENOMEM, "sim: the process has no thread key left");
  }
  fill_table(&d->ops);
  d->base.ops = &d->ops;
  d->base.device_type = TDICT_DEVICE_SIM;
  atomic_init(&d->base.refs, 1);
  d->options = *options;
  d->held = options->held;
  pthread_mutex_init(&d->lock, NULL);
  pthread_cond_init(&d->changed, NULL);
  /* Open the devices. If a device cannot be opened, close_driver() closes the devices that are open. */
  while (d->num_devices < options->num_devices && open_device(d, d->num_devices)) d->num_devices++;
  if (d->num_devices < options->num_devices) {
    int failed = d->num_devices;
    close_driver(&d->base);
    return tdict_fail(err, TDICT_ENOMEM, "sim: no address space for twice the %zu bytes of simulated device %d",
                      options->memory_bytes, failed);
  }
  *out = &d->base;
  return TDICT_OK;
}

void tdict_driver_sim_hold(tdict_driver *base) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  if (!d->held) d->hold_number++; /* an engine compares this number after it has run a function, to detect a new hold */
  d->held = true;
  /* After the call no copy or fill may change memory. Another thread may resume meanwhile. */
  while (d->held && d->num_copying) tdict_sim_wait_change(d);
}

void tdict_driver_sim_resume(tdict_driver *base) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  tdict_sim_engine *engine;
  int64_t now = tdict_sim_now(d);
  for (int n = 0; (engine = tdict_sim_engine_at(d, n)); n++) /* the simulated time of held work begins now */
    if (d->held && engine->free_ns < now) engine->free_ns = now;
  d->held = false;
  tdict_sim_engines_wake(d);
  tdict_sim_changed(d);
}

/* Finds the work queued first of all that is running or can start, and its engine. NULL: there is none. */
static tdict_sim_op *find_next(tdict_sim_driver *d, tdict_sim_engine **out) {
  tdict_sim_op *found = NULL;
  tdict_sim_engine *engine;
  for (int n = 0; (engine = tdict_sim_engine_at(d, n)); n++) {
    tdict_sim_op *op = engine->current ? engine->current : engine->head;
    if (!op || (found && found->seq < op->seq)) continue;
    found = op;
    *out = engine;
  }
  return found;
}

tdict_status tdict_driver_sim_step(tdict_driver *base, int64_t count, tdict_error *err) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  if (count < 0) return tdict_fail(err, TDICT_EINVAL, "sim: a step of %lld, wanted 0 or more", (long long)count);
  while (d->held && d->stepping) tdict_sim_wait_change(d); /* only one thread at a time may step */
  if (!d->held) return tdict_fail(err, TDICT_EINVAL, "sim: a step, but nothing is held");
  d->stepping = true;
  for (int64_t n = 0; n < count && d->held; n++) {
    tdict_sim_engine *engine;
    tdict_sim_op *op = find_next(d, &engine);
    if (!op) break;
    /* Let one engine finish its work, and wait for the end of that work, so that steps keep the order of queueing. */
    engine->may_finish = true;
    pthread_cond_signal(&engine->wake);
    tdict_sim_wait_op(d, op);
  }
  d->stepping = false;
  tdict_sim_changed(d);
  return TDICT_OK;
}

void tdict_driver_sim_counts(tdict_driver *base, int ordinal, tdict_driver_sim_count *out) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  const tdict_sim_device *device = &d->devices[ordinal];
  out->pinned_bytes = d->pinned_bytes;
  out->num_pending = d->num_pending;
  out->num_finished = d->num_finished;
  out->device_bytes = device->space.reserved;
  out->num_allocations = (int64_t)device->space.live.count;
  out->num_streams = device->num_streams;
  out->num_events = device->num_events;
}

tdict_status tdict_sim_launch(tdict_stream stream, void (*fn)(void *user), void *user, tdict_error *err) {
  const tdict_sim_stream *known = stream.handle;
  if (!fn) return tdict_fail(err, TDICT_EINVAL, "sim: the function to launch is NULL");
  if (stream.device.type != TDICT_DEVICE_SIM || !tdict_sim_is_stream(known) ||
      known->device->ordinal != stream.device.index)
    return tdict_fail(err, TDICT_EINVAL,
                      "sim: the stream is not one that tdict_stream_create() made on a simulated device");
  tdict_sim_driver *d = known->device->driver;
  tdict_status status = tdict_forkmark_check(d->mark, "sim", err);
  if (status != TDICT_OK) return status;
  tdict_sim_op *op = tdict_sim_op_new(TDICT_SIM_OP_CALL);
  if (!op) return tdict_fail_memory(err, "sim", NULL, "an operation");
  op->engine = TDICT_SIM_ENGINE_OTHER;
  op->work.fn = fn;
  op->work.user = user;
  tdict_sim_lock(d);
  tdict_cu result = tdict_sim_push(stream.handle, op);
  tdict_sim_op_release(op);
  tdict_sim_unlock(d);
  return result == TDICT_CU_SUCCESS ? TDICT_OK : tdict_fail_memory(err, "sim", NULL, "an operation");
}

void *tdict_sim_host_pointer(tdict_stream stream, const void *device_address) {
  const tdict_sim_stream *known = stream.handle;
  if (stream.device.type != TDICT_DEVICE_SIM || !tdict_sim_is_stream(known)) return NULL;
  if (tdict_forkmark_forked(known->device->driver->mark)) return NULL; /* the bytes belong to the parent process */
  const tdict_sim_space *space = &known->device->space; /* constant after the device is opened, so no lock is needed */
  return tdict_sim_space_has(space, device_address) ? tdict_sim_space_bytes(space, device_address) : NULL;
}

/* Finds the simulated driver of a context. Fails in a forked child, where the driver's threads do not exist. */
static tdict_status find_sim_driver(tdict_context *context, tdict_driver **out, tdict_error *err) {
  if (!context) return tdict_fail(err, TDICT_EINVAL, "sim: context is NULL");
  tdict_status status = tdict_devices_check_fork(tdict_context_devices(context), "sim", err);
  if (status != TDICT_OK) return status;
  *out = tdict_devices_sim(tdict_context_devices(context));
  if (!*out) return tdict_fail(err, TDICT_ENODEVICE, "sim: this context has no simulated devices");
  *out = tdict_driver_innermost(*out); /* a test may have wrapped the simulated driver */
  return TDICT_OK;
}

tdict_status tdict_sim_hold(tdict_context *context, tdict_error *err) {
  tdict_driver *sim;
  tdict_status status = find_sim_driver(context, &sim, err);
  if (status == TDICT_OK) tdict_driver_sim_hold(sim);
  return status;
}

tdict_status tdict_sim_step(tdict_context *context, int64_t count, tdict_error *err) {
  tdict_driver *sim;
  tdict_status status = find_sim_driver(context, &sim, err);
  return status == TDICT_OK ? tdict_driver_sim_step(sim, count, err) : status;
}

tdict_status tdict_sim_resume(tdict_context *context, tdict_error *err) {
  tdict_driver *sim;
  tdict_status status = find_sim_driver(context, &sim, err);
  if (status == TDICT_OK) tdict_driver_sim_resume(sim);
  return status;
}
