/* Fills recordings, and implements the public calls. See trace.h for ownership and threads. */
#include "engine/options/trace/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "device/counted.h"
#include "engine/options/trace/recording.h"
#include "tdict/trace.h"

enum { MIN_EVENTS = 16, MAX_EVENTS = 1 << 24 };

static tdict_recording *retain_recording(tdict_recording *r) {
  atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
  return r;
}

static int64_t num_slices(tdict_recording *r) {
  int64_t taken = atomic_load_explicit(&r->next, memory_order_relaxed);
  return taken < r->capacity ? taken : r->capacity;
}

static void destroy_event(tdict_gpu *gpu, tdict_cu_event event) {
  if (event) tdict_counted_event_destroy(gpu->driver, event);
}

static void destroy_events(tdict_recording *r, int index) {
  tdict_gpu *gpu = r->gpus[index].gpu;
  tdict_gpu_scope scope;
  (void)!tdict_gpu_enter(gpu, &scope, NULL);
  for (int64_t i = 0; i < num_slices(r); i++) {
    if (r->slices[i].gpu != index) continue;
    destroy_event(gpu, r->slices[i].from);
    destroy_event(gpu, r->slices[i].to);
  }
  destroy_event(gpu, r->gpus[index].base);
  tdict_gpu_leave(gpu, &scope);
  tdict_gpu_release(gpu);
}

static void release_recording(tdict_recording *r) {
  if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1) return;
  for (int i = 0; i < r->num_gpus; i++) destroy_events(r, i);
  pthread_mutex_destroy(&r->lock);
  free(r);
}

static tdict_recording *create_recording(int64_t capacity, const tdict_pool *pool) {
  tdict_recording *r = calloc(1, sizeof *r + (size_t)capacity * sizeof r->slices[0]);
  if (!r) return NULL;
  atomic_init(&r->refs, 1);
  atomic_init(&r->on, true);
  pthread_mutex_init(&r->lock, NULL);
  r->capacity = capacity;
  r->pool = pool;
  r->begin_ns = tdict_now_ns();
  return r;
}

void tdict_tracer_init(tdict_tracer *tracer, const tdict_forkmark *mark, const tdict_pool *pool) {
  tracer->mark = mark;
  tracer->pool = pool;
  pthread_mutex_init(&tracer->lock, NULL);
}

void tdict_tracer_reset(tdict_tracer *tracer) {
  release_recording(tracer->recording);
  pthread_mutex_destroy(&tracer->lock);
}

void tdict_trace_join(tdict_traced *traced, tdict_tracer *tracer) {
  pthread_mutex_lock(&tracer->lock);
  tdict_recording *r = tracer->recording;
  if (r && atomic_load_explicit(&r->on, memory_order_relaxed)) {
    traced->recording = retain_recording(r);
    traced->number = 1 + atomic_fetch_add_explicit(&r->num_transfers, 1, memory_order_relaxed);
  }
  pthread_mutex_unlock(&tracer->lock);
}

void tdict_trace_leave(tdict_traced *traced, int64_t begin_ns, size_t bytes) {
  if (!traced->recording) return;
  tdict_trace_add(traced, TDICT_RANGE_TRANSFER, begin_ns, bytes);
  release_recording(traced->recording);
  traced->recording = NULL;
}

/* Takes the next slice. Returns NULL if the recording is off, or full: then counts it as dropped. */
static tdict_slice *take_slice(tdict_recording *r) {
  if (!atomic_load_explicit(&r->on, memory_order_relaxed)) return NULL;
  int64_t n = atomic_fetch_add_explicit(&r->next, 1, memory_order_release);
  if (n >= r->capacity) return NULL;
  r->slices[n].gpu = -1;
  return &r->slices[n];
}

/* Fills in a new track. Workers and callers are numbered separately. The id is stored last, so a reader that sees it
 * also sees the other fields. */
static void name_track(tdict_recording *r, tdict_track *track) {
  track->worker = tdict_pool_is_worker(r->pool);
  track->number =
      1 + atomic_fetch_add_explicit(track->worker ? &r->num_workers : &r->num_callers, 1, memory_order_relaxed);
  atomic_store_explicit(&track->id, (int32_t)gettid(), memory_order_release);
}

/* Returns the index of the calling thread's track, or -1 if all tracks belong to other threads. The tracks are a hash
 * table with the thread as the key. No track is ever removed. */
static int find_track(tdict_recording *r) {
  uintptr_t self = (uintptr_t)pthread_self();
  size_t first = (size_t)((self >> 12) * 2654435761u);
  for (size_t i = 0; i < TDICT_TRACE_TRACKS; i++) {
    size_t at = (first + i) % TDICT_TRACE_TRACKS;
    tdict_track *track = &r->tracks[at];
    uintptr_t owner = atomic_load_explicit(&track->thread, memory_order_acquire);
    if (owner == self) return (int)at;
    if (owner == 0 && atomic_compare_exchange_strong_explicit(&track->thread, &owner, self, memory_order_acq_rel,
                                                              memory_order_acquire)) {
      name_track(r, track);
      return (int)at;
    }
  }
  return -1;
}

void tdict_trace_add(const tdict_traced *traced, tdict_range range, int64_t begin_ns, size_t bytes) {
  tdict_recording *r = traced->recording;
  int64_t end_ns = tdict_now_ns();
  int track = find_track(r);
  if (track < 0) {
    atomic_fetch_add_explicit(&r->dropped, 1, memory_order_relaxed);
    return;
  }
  tdict_slice *s = take_slice(r);
  if (!s) return;
  s->range = (uint8_t)range;
  s->track = (uint16_t)track;
  s->transfer = traced->number;
  s->begin_ns = begin_ns < r->begin_ns ? r->begin_ns : begin_ns;
  s->end_ns = end_ns;
  s->bytes = bytes;
  atomic_store_explicit(&s->complete, true, memory_order_release);
}

/* Retains the recording while the slice is written, because a new start may replace the recording. */
void tdict_trace_note(tdict_tracer *tracer, tdict_range range, int64_t begin_ns, size_t value) {
  if (!atomic_load_explicit(&tracer->on, memory_order_relaxed)) return;
  pthread_mutex_lock(&tracer->lock);
  tdict_recording *r = tracer->recording;
  if (r) retain_recording(r);
  pthread_mutex_unlock(&tracer->lock);
  if (!r) return;
  tdict_trace_add(&(tdict_traced){.recording = r}, range, begin_ns, value);
  release_recording(r);
}

static bool create_timing_event(tdict_gpu *gpu, tdict_cu_event *out) {
  return tdict_counted_timing_event_create(gpu->driver, out) == TDICT_CU_SUCCESS;
}

/* Records an event on an idle stream and reads the host's clock at nearly the same time. Never waits. */
static void set_base(tdict_trace_gpu *g) {
  tdict_cu_stream idle;
  tdict_cu_event event = NULL;
  if (!create_timing_event(g->gpu, &event)) return;
  bool good = tdict_gpu_take_stream(g->gpu, &idle, NULL) == TDICT_OK;
  if (good) {
    good = tdict_gpu_record(g->gpu, event, idle, NULL) == TDICT_OK;
    g->base_ns = tdict_now_ns();
    tdict_gpu_give_stream(g->gpu, idle);
  }
  if (good)
    g->base = event;
  else
    destroy_event(g->gpu, event);
}

/* Returns the GPU's index, or -1 for too many GPUs, or one whose clock could not be read. */
static int find_traced_gpu(tdict_recording *r, tdict_gpu *gpu) {
  int found = -1;
  pthread_mutex_lock(&r->lock);
  for (int i = 0; i < r->num_gpus && found < 0; i++)
    if (r->gpus[i].gpu == gpu) found = i;
  if (found < 0 && r->num_gpus < TDICT_TRACE_GPUS) {
    found = r->num_gpus++;
    r->gpus[found] = (tdict_trace_gpu){.gpu = tdict_gpu_retain(gpu)};
    set_base(&r->gpus[found]);
  }
  bool timed = found >= 0 && r->gpus[found].base;
  pthread_mutex_unlock(&r->lock);
  return timed ? found : -1;
}

tdict_slice *tdict_trace_open(const tdict_traced *traced, tdict_gpu *gpu, tdict_cu_stream stream, size_t bytes) {
  tdict_recording *r = traced->recording;
  int index = find_traced_gpu(r, gpu);
  tdict_slice *s = take_slice(r);
  if (!s) return NULL;
  s->range = TDICT_RANGE_TRANSFER;
  s->transfer = traced->number;
  s->bytes = bytes;
  s->stream = stream;
  s->begin_ns = tdict_now_ns();
  bool good = index >= 0;
  if (good) s->gpu = index; /* the recording now destroys the slice's events */
  if (good) good = create_timing_event(gpu, &s->from) && create_timing_event(gpu, &s->to);
  if (good) good = tdict_gpu_record(gpu, s->from, stream, NULL) == TDICT_OK;
  return good ? s : NULL; /* an incomplete slice is counted as unfinished */
}

/* If the event cannot be recorded, the slice stays incomplete and is not written to the file. */
void tdict_trace_close(tdict_slice *s, tdict_gpu *gpu) {
  if (tdict_gpu_record(gpu, s->to, s->stream, NULL) != TDICT_OK) return;
  atomic_store_explicit(&s->complete, true, memory_order_release);
}

static tdict_status check_call(tdict_context *c, const char *what, tdict_error *err) {
  if (!c) return tdict_fail(err, TDICT_EINVAL, "%s: the context is NULL", what);
  return tdict_forkmark_check(tdict_context_tracer(c)->mark, what, err);
}

tdict_status tdict_trace_start(tdict_context *context, const tdict_trace_options *options, tdict_error *err) {
  tdict_trace_options o = tdict_trace_options_default();
  tdict_status status = check_call(context, "trace_start", err);
  if (status == TDICT_OK) status = tdict_options_read(&o, sizeof o, options, "trace options", err);
  if (status != TDICT_OK) return status;
  if (o.max_events < MIN_EVENTS || o.max_events > MAX_EVENTS)
    return tdict_fail(err, TDICT_EINVAL, "trace_start: max_events is %lld, wanted %d to %d", (long long)o.max_events,
                      MIN_EVENTS, MAX_EVENTS);
  tdict_tracer *tracer = tdict_context_tracer(context);
  /* Make the new recording before taking the lock. `old` is released at the end: the replaced recording, or on failure
   * the new one. */
  tdict_recording *made = create_recording(o.max_events, tracer->pool), *old = made;
  if (!made) return tdict_fail_memory(err, "trace_start", NULL, "%lld events", (long long)o.max_events);
  pthread_mutex_lock(&tracer->lock);
  bool busy = atomic_load_explicit(&tracer->on, memory_order_relaxed);
  if (!busy) {
    old = tracer->recording;
    tracer->recording = made;
    atomic_store_explicit(&tracer->on, true, memory_order_relaxed);
  }
  pthread_mutex_unlock(&tracer->lock);
  release_recording(old);
  return busy ? tdict_fail(err, TDICT_EINVAL, "trace_start: a recording is on: stop it first") : TDICT_OK;
}

void tdict_trace_stop(tdict_context *context) {
  tdict_tracer *tracer = context ? tdict_context_tracer(context) : NULL;
  if (!context || tdict_forkmark_forked(tracer->mark)) return;
  pthread_mutex_lock(&tracer->lock);
  atomic_store_explicit(&tracer->on, false, memory_order_relaxed);
  if (tracer->recording) atomic_store_explicit(&tracer->recording->on, false, memory_order_relaxed);
  pthread_mutex_unlock(&tracer->lock);
}

static tdict_status find_recording(tdict_context *c, const char *what, tdict_recording **out, tdict_error *err) {
  tdict_status status = check_call(c, what, err);
  if (status != TDICT_OK) return status;
  tdict_tracer *tracer = tdict_context_tracer(c);
  pthread_mutex_lock(&tracer->lock);
  tdict_recording *r = tracer->recording ? retain_recording(tracer->recording) : NULL;
  pthread_mutex_unlock(&tracer->lock);
  if (!r) return tdict_fail(err, TDICT_EINVAL, "%s: nothing was recorded: call tdict_trace_start() first", what);
  *out = r;
  return TDICT_OK;
}

tdict_status tdict_trace_write_to(tdict_context *context,
                                  tdict_status (*write)(void *user, const char *text, size_t bytes), void *user,
                                  tdict_error *err) {
  tdict_recording *r;
  if (!write) return tdict_fail(err, TDICT_EINVAL, "trace_write_to: write is NULL");
  tdict_status status = find_recording(context, "trace_write_to", &r, err);
  if (status != TDICT_OK) return status;
  status = tdict_recording_write(r, write, user, err);
  release_recording(r);
  return status;
}

/* Writes text to a file. Returns TDICT_EIO if not all bytes were written. */
static tdict_status write_file(void *user, const char *text, size_t bytes) {
  return fwrite(text, 1, bytes, user) == bytes ? TDICT_OK : TDICT_EIO;
}

tdict_status tdict_trace_write(tdict_context *context, const char *path, tdict_error *err) {
  TDICT_UNCANCELLED;
  tdict_recording *r;
  if (!path) return tdict_fail(err, TDICT_EINVAL, "trace_write: path is NULL");
  tdict_status status = find_recording(context, "trace_write", &r, err);
  if (status != TDICT_OK) return status;
  FILE *file = NULL;
  status = tdict_file_stream_to_write("trace_write", path, &file, err);
  if (status == TDICT_OK) status = tdict_recording_write(r, write_file, file, err);
  /* Keep errno: releasing the recording may change errno. */
  int code = errno;
  release_recording(r);
  if (!file) return status;
  if (status != TDICT_OK && status != TDICT_EIO) {
    fclose(file);
    return status;
  }
  bool good = status == TDICT_OK;
  if (fclose(file) != 0 && good) good = false, code = errno;
  return good ? TDICT_OK : tdict_fail_native(err, TDICT_EIO, code, "trace_write: %.150s: %s", path, strerror(code));
}
