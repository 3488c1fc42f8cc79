/* Implements the stream and event entries of the simulated driver's table. The caller owns its streams and events.
 * Closing the driver frees the remaining streams and events. Thread rule: safe from any thread. */
#include <stdlib.h>

#include "device/sim/entries.h"

static tdict_cu stream_create(tdict_driver *base, tdict_cu_stream *out, unsigned flags) {
  tdict_sim_driver *d = tdict_sim_driver_of(base);
  tdict_sim_device *device = tdict_sim_current(d);
  if (!device) return TDICT_CU_INVALID_CONTEXT;
  if (flags > TDICT_CU_STREAM_NON_BLOCKING) return TDICT_CU_INVALID_VALUE;
  tdict_sim_stream *stream = calloc(1, sizeof *stream);
  if (!stream) return TDICT_CU_OUT_OF_MEMORY;
  tdict_sim_lock(d);
  tdict_sim_stream_init(stream, device, flags == TDICT_CU_STREAM_NON_BLOCKING);
  device->num_streams++;
  tdict_sim_unlock(d);
  *out = stream;
  return TDICT_CU_SUCCESS;
}

static tdict_cu stream_destroy(tdict_driver *base, tdict_cu_stream handle) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  if (!tdict_sim_is_stream(handle) || handle->device->driver != d || handle->destroyed) return TDICT_CU_INVALID_HANDLE;
  handle->device->num_streams--;
  tdict_sim_stream_end(handle);
  return TDICT_CU_SUCCESS;
}

static tdict_cu stream_query(tdict_driver *base, tdict_cu_stream handle) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  tdict_sim_stream *stream;
  const tdict_cu result = tdict_sim_resolve(d, handle, &stream);
  if (result != TDICT_CU_SUCCESS || !tdict_sim_stream_busy(stream)) return result;
  tdict_sim_clock_query(d);
  return TDICT_CU_NOT_READY;
}

static tdict_cu stream_synchronize(tdict_driver *base, tdict_cu_stream handle) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  tdict_sim_stream *stream;
  const tdict_cu result = tdict_sim_resolve(d, handle, &stream);
  if (result != TDICT_CU_SUCCESS) return result;
  tdict_sim_device *device = stream->device;
  tdict_sim_wait_stream(stream);
  return device->fault; /* some work before this wait may have failed */
}

/* Returns true if the handle is a live event of this driver. Small and unaligned values are never dereferenced. */
static bool is_event(const tdict_sim_driver *d, const tdict_sim_event *event) {
  if ((uintptr_t)event < 4096 || (uintptr_t)event % _Alignof(tdict_sim_event) != 0) return false;
  return event->magic == TDICT_SIM_EVENT_MAGIC && event->device->driver == d;
}

static tdict_cu stream_wait_event(tdict_driver *base, tdict_cu_stream handle, tdict_cu_event event) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  tdict_sim_stream *stream;
  if (!is_event(d, event)) return TDICT_CU_INVALID_HANDLE;
  tdict_sim_op *op = tdict_sim_op_new(TDICT_SIM_OP_WAIT);
  if (!op) return TDICT_CU_OUT_OF_MEMORY;
  tdict_cu result = tdict_sim_resolve(d, handle, &stream);
  /* As in CUDA, a stream does not wait for an event that was never recorded. */
  if (result == TDICT_CU_SUCCESS && event->record && !event->record->done) {
    op->after = tdict_sim_op_retain(event->record);
    result = tdict_sim_push(stream, op);
    if (result != TDICT_CU_SUCCESS) {
      tdict_sim_op_release(op->after);
      op->after = NULL;
    }
  }
  tdict_sim_op_release(op);
  return result;
}

static tdict_cu stream_capture_status(tdict_driver *base, tdict_cu_stream handle, int *status) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  tdict_sim_stream *stream;
  const tdict_cu result = tdict_sim_resolve(d, handle, &stream);
  if (result == TDICT_CU_SUCCESS) *status = TDICT_CU_CAPTURE_STATUS_NONE; /* graphs are not simulated */
  return result;
}

static tdict_cu event_create(tdict_driver *base, tdict_cu_event *out, unsigned flags) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  tdict_sim_device *device = tdict_sim_current(d);
  if (!device) return TDICT_CU_INVALID_CONTEXT;
  if (flags > (TDICT_CU_EVENT_BLOCKING_SYNC | TDICT_CU_EVENT_DISABLE_TIMING)) return TDICT_CU_INVALID_VALUE;
  tdict_sim_event *event = calloc(1, sizeof *event);
  if (!event) return TDICT_CU_OUT_OF_MEMORY;
  event->magic = TDICT_SIM_EVENT_MAGIC;
  event->device = device;
  event->timing = !(flags & TDICT_CU_EVENT_DISABLE_TIMING);
  TDICT_SIM_LINK(device->events, event);
  device->num_events++;
  *out = event;
  return TDICT_CU_SUCCESS;
}

static tdict_cu event_destroy(tdict_driver *base, tdict_cu_event event) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  if (!is_event(d, event)) return TDICT_CU_INVALID_HANDLE;
  TDICT_SIM_UNLINK(event->device->events, event);
  event->device->num_events--;
  tdict_sim_op_release(event->record); /* operations that wait for this record hold their own references */
  event->magic = 0;
  free(event);
  return TDICT_CU_SUCCESS;
}

static tdict_cu event_record(tdict_driver *base, tdict_cu_event event, tdict_cu_stream handle) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  tdict_sim_stream *stream;
  if (!is_event(d, event)) return TDICT_CU_INVALID_HANDLE;
  tdict_cu result = tdict_sim_resolve(d, handle, &stream);
  if (result != TDICT_CU_SUCCESS) return result;
  if (stream->device != event->device) return TDICT_CU_INVALID_HANDLE;
  tdict_sim_op *op = tdict_sim_op_new(TDICT_SIM_OP_RECORD);
  if (!op) return TDICT_CU_OUT_OF_MEMORY;
  result = tdict_sim_push(stream, op);
  if (result == TDICT_CU_SUCCESS) {
    tdict_sim_op_release(event->record);
    event->record = tdict_sim_op_retain(op);
  }
  tdict_sim_op_release(op);
  return result;
}

static tdict_cu event_query(tdict_driver *base, tdict_cu_event event) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  if (!is_event(d, event)) return TDICT_CU_INVALID_HANDLE;
  if (event->device->fault || !event->record || event->record->done) return event->device->fault;
  tdict_sim_clock_query(d);
  return TDICT_CU_NOT_READY;
}

static tdict_cu event_synchronize(tdict_driver *base, tdict_cu_event event) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  if (!is_event(d, event)) return TDICT_CU_INVALID_HANDLE;
  tdict_sim_device *device = event->device;
  if (event->record) tdict_sim_wait_op(d, event->record);
  return device->fault;
}

static tdict_cu event_elapsed(tdict_driver *base, float *milliseconds, tdict_cu_event from, tdict_cu_event to) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  if (!is_event(d, from) || !is_event(d, to) || from->device != to->device) return TDICT_CU_INVALID_HANDLE;
  if (!from->timing || !to->timing || !from->record || !to->record) return TDICT_CU_INVALID_HANDLE;
  if (!from->record->done || !to->record->done) return TDICT_CU_NOT_READY;
  *milliseconds = (float)((double)(to->record->done_ns - from->record->done_ns) / 1e6);
  return TDICT_CU_SUCCESS;
}

void tdict_sim_add_streams(tdict_driver_ops *ops) { TDICT_DRIVER_STREAM_ENTRIES(TDICT_SIM_FILL) }
