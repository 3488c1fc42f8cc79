/* Implements the contexts of the simulated driver. Each thread has a stack of current contexts and a capture mode.
 *
 * A thread's state is allocated when the state first differs from the initial state. The state is recycled when it
 * equals the initial state again, so no cleanup is needed when the thread ends. The driver owns all states, and
 * frees the states when the driver closes. Thread rule: only the thread that a state belongs to reads and writes the
 * state. The driver's lock guards the lists. */
#include <stdlib.h>

#include "device/sim/entries.h"
#include "tdict/sim.h"

enum { MAX_DEPTH = 32 };

struct tdict_sim_thread {
  tdict_sim_thread *prev, *next;
  int mode;
  int depth;
  tdict_sim_device *stack[MAX_DEPTH];
};

static tdict_sim_thread *find_thread(tdict_sim_driver *d) { return pthread_getspecific(d->thread_key); }

/* Returns the calling thread's state. Creates the state if the thread has none. Returns NULL if memory is exhausted. */
static tdict_sim_thread *find_or_create_thread(tdict_sim_driver *d) {
  tdict_sim_thread *thread = find_thread(d);
  if (thread) return thread;
  tdict_sim_lock(d);
  thread = d->unused_threads;
  if (thread) d->unused_threads = thread->next;
  tdict_sim_unlock(d);
  if (!thread && !(thread = calloc(1, sizeof *thread))) return NULL;
  /* Attach the state to the thread, then put it on a list. */
  int failed = pthread_setspecific(d->thread_key, thread);
  thread->depth = 0;
  thread->mode = TDICT_CU_CAPTURE_GLOBAL;
  tdict_sim_lock(d);
  tdict_sim_thread **list = failed ? &d->unused_threads : &d->threads;
  TDICT_SIM_LINK(*list, thread);
  tdict_sim_unlock(d);
  return failed ? NULL : thread;
}

/* Recycles the state if it equals the initial state of a thread. */
static void recycle_thread(tdict_sim_driver *d, tdict_sim_thread *thread) {
  if (thread->depth > 0 || thread->mode != TDICT_CU_CAPTURE_GLOBAL) return;
  pthread_setspecific(d->thread_key, NULL);
  tdict_sim_lock(d);
  TDICT_SIM_UNLINK(d->threads, thread);
  TDICT_SIM_LINK(d->unused_threads, thread);
  tdict_sim_unlock(d);
}

static void free_list(tdict_sim_thread *list) {
  while (list) {
    tdict_sim_thread *next = list->next;
    free(list);
    list = next;
  }
}

void tdict_sim_threads_free(tdict_sim_driver *d) {
  free_list(d->threads);
  free_list(d->unused_threads);
}

tdict_sim_device *tdict_sim_device_at(tdict_sim_driver *d, int ordinal) {
  return ordinal >= 0 && ordinal < d->num_devices ? &d->devices[ordinal] : NULL;
}

/* Takes no lock, because only the calling thread changes its own stack of contexts. */
tdict_sim_device *tdict_sim_current(tdict_sim_driver *d) {
  const tdict_sim_thread *thread = find_thread(d);
  return thread && thread->depth > 0 ? thread->stack[thread->depth - 1] : NULL;
}

static tdict_cu ctx_retain(tdict_driver *base, int ordinal, tdict_cu_context *out) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  tdict_sim_device *device = tdict_sim_device_at(d, ordinal);
  if (!device) return TDICT_CU_INVALID_DEVICE;
  /* Start the threads at the first use, so that a device that is never used needs no threads. */
  const tdict_cu result = tdict_sim_engines_start(device);
  if (result != TDICT_CU_SUCCESS) return result;
  device->context_refs++;
  *out = device;
  return TDICT_CU_SUCCESS;
}

static tdict_cu ctx_release(tdict_driver *base, int ordinal) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  tdict_sim_device *device = tdict_sim_device_at(d, ordinal);
  if (!device) return TDICT_CU_INVALID_DEVICE;
  if (device->context_refs == 0) return TDICT_CU_INVALID_CONTEXT;
  device->context_refs--;
  return TDICT_CU_SUCCESS;
}

static tdict_cu ctx_push(tdict_driver *base, tdict_cu_context context) {
  tdict_sim_driver *d = tdict_sim_driver_of(base);
  bool alive = false; /* the loop compares only addresses, because the handle may be invalid */
  tdict_sim_lock(d);
  for (int32_t i = 0; i < d->num_devices; i++)
    if (context == &d->devices[i]) alive = d->devices[i].context_refs > 0;
  tdict_sim_unlock(d);
  if (!alive) return TDICT_CU_INVALID_CONTEXT;
  tdict_sim_thread *thread = find_or_create_thread(d);
  if (!thread || thread->depth == MAX_DEPTH) return TDICT_CU_OUT_OF_MEMORY;
  thread->stack[thread->depth++] = context;
  return TDICT_CU_SUCCESS;
}

static tdict_cu ctx_pop(tdict_driver *base, tdict_cu_context *out) {
  tdict_sim_driver *d = tdict_sim_driver_of(base);
  tdict_sim_thread *thread = find_thread(d);
  if (!thread || thread->depth == 0) return TDICT_CU_INVALID_CONTEXT;
  tdict_sim_device *device = thread->stack[--thread->depth];
  recycle_thread(d, thread);
  if (out) *out = device;
  return TDICT_CU_SUCCESS;
}

static tdict_cu ctx_current(tdict_driver *base, tdict_cu_context *out) {
  *out = tdict_sim_current(tdict_sim_driver_of(base));
  return TDICT_CU_SUCCESS;
}

bool tdict_sim_are_linked(const tdict_sim_driver *d, int32_t one, int32_t other) {
  if (d->options.peers == TDICT_SIM_PEERS_NONE || one == other) return false;
  return d->options.peers == TDICT_SIM_PEERS_ALL || one / 2 == other / 2;
}

static tdict_cu ctx_allow_peer(tdict_driver *base, tdict_cu_context peer) {
  const tdict_sim_device *device = tdict_sim_current(tdict_sim_driver_of(base));
  if (!device || !peer) return TDICT_CU_INVALID_CONTEXT;
  return tdict_sim_are_linked(tdict_sim_driver_of(base), device->ordinal, peer->ordinal) ? TDICT_CU_SUCCESS
                                                                                         : TDICT_CU_INVALID_DEVICE;
}

static tdict_cu capture_mode(tdict_driver *base, int *mode) {
  tdict_sim_driver *d = tdict_sim_driver_of(base);
  int wanted = *mode;
  if (wanted < TDICT_CU_CAPTURE_GLOBAL || wanted > TDICT_CU_CAPTURE_RELAXED) return TDICT_CU_INVALID_VALUE;
  tdict_sim_thread *thread = find_or_create_thread(d);
  if (!thread) return TDICT_CU_OUT_OF_MEMORY;
  *mode = thread->mode;
  thread->mode = wanted;
  recycle_thread(d, thread);
  return TDICT_CU_SUCCESS;
}

bool tdict_sim_is_stream(const void *handle) {
  const tdict_sim_stream *stream = handle;
  if ((uintptr_t)handle < 4096 || (uintptr_t)handle % _Alignof(tdict_sim_stream) != 0) return false;
  return stream->magic == TDICT_SIM_STREAM_MAGIC;
}

tdict_cu tdict_sim_resolve(tdict_sim_driver *d, tdict_cu_stream handle, tdict_sim_stream **out) {
  if ((uintptr_t)handle <= 2) { /* 0 and CU_STREAM_LEGACY (1), CU_STREAM_PER_THREAD (2) */
    tdict_sim_device *device = tdict_sim_current(d);
    if (!device) return TDICT_CU_INVALID_CONTEXT;
    *out = (uintptr_t)handle == 2 ? &device->per_thread : &device->legacy;
  } else {
    if (!tdict_sim_is_stream(handle) || handle->device->driver != d) return TDICT_CU_INVALID_HANDLE;
    *out = handle;
  }
  return (*out)->device->fault;
}

tdict_cu tdict_sim_resolve_on(const tdict_sim_device *device, tdict_cu_stream handle, tdict_sim_stream **out) {
  tdict_cu result = tdict_sim_resolve(device->driver, handle, out);
  return result == TDICT_CU_SUCCESS && (*out)->device != device ? TDICT_CU_INVALID_HANDLE : result;
}

void tdict_sim_add_contexts(tdict_driver_ops *ops) { TDICT_DRIVER_CONTEXT_ENTRIES(TDICT_SIM_FILL) }
