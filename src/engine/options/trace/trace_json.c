/* Writes a recording as a timeline in Chrome's "Trace Event Format", which Perfetto also reads. Times are microseconds
 * since the recording began. Numbers are written without "%f", which writes a comma in some locales. The struct writer
 * lives for one call. Slices that are not complete are left out, because another thread may still write these slices.
 * Thread rule: see trace.h. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "engine/options/trace/ranges.h"
#include "engine/options/trace/recording.h"

enum { HOST_PID = 1, FIRST_GPU_PID = 10, FIRST_WORKER_TID = 1000, MAX_STREAMS = 1024, PIECE = 1 << 16, LINE = 512 };

typedef struct stream_track {
  tdict_cu_stream stream;
  int64_t last_ns; /* end of the stream's last slice, since the recording began */
} stream_track;

typedef struct writer {
  tdict_recording *r;
  tdict_trace_sink write;
  void *user;
  tdict_status status;             /* the first status of `write` that was not TDICT_OK */
  int64_t num_slices, num_written; /* slices taken, and slices written */
  bool comma;
  int num_streams;
  stream_track streams[MAX_STREAMS]; /* tracks of the current GPU */
  size_t used;
  char text[PIECE];
} writer;

static void flush_text(writer *w) {
  if (w->status == TDICT_OK && w->used)
    w->status = tdict_callback_status(w->write(w->user, w->text, w->used), "trace: write", NULL);
  w->used = 0;
}

static void put_text(writer *w, const char *format, ...) TDICT_PRINTF(2, 3);
static void put_text(writer *w, const char *format, ...) {
  va_list list;
  if (w->used + LINE > PIECE) flush_text(w);
  va_start(list, format);
  int length = vsnprintf(w->text + w->used, LINE, format, list);
  va_end(list);
  if (length > 0) w->used += (size_t)length < LINE ? (size_t)length : LINE - 1;
}

/* Returns the separator before an event. */
static const char *event_separator(writer *w) {
  const char *text = w->comma ? ",\n" : "\n";
  w->comma = true;
  return text;
}

static void put_name(writer *w, int pid, int tid, const char *what, const char *name) {
  put_text(w, "%s{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":\"%s\"}}", event_separator(w),
           pid, tid, what, name);
  if (tid)
    put_text(w, "%s{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}",
             event_separator(w), pid, tid, tid);
}

static int tid_of(const tdict_track *track) { return track->worker ? FIRST_WORKER_TID + track->number : track->number; }

static void put_threads(writer *w) {
  put_name(w, HOST_PID, 0, "process_name", "host threads");
  for (int i = 0; i < TDICT_TRACE_TRACKS; i++) {
    tdict_track *track = &w->r->tracks[i];
    int32_t id = atomic_load_explicit(&track->id, memory_order_acquire);
    char name[64];
    if (!id) continue;
    snprintf(name, sizeof name, "%s %d (thread %d)", track->worker ? "worker" : "caller", (int)track->number, (int)id);
    put_name(w, HOST_PID, tid_of(track), "thread_name", name);
  }
}

/* Writes nanoseconds as microseconds with three decimals, and returns the text. */
enum { US_BYTES = 32 };
static const char *format_us(int64_t ns, char text[US_BYTES]) {
  const uint64_t magnitude = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
  snprintf(text, US_BYTES, "%s%" PRIu64 ".%03d", ns < 0 ? "-" : "", magnitude / 1000, (int)(magnitude % 1000));
  return text;
}

/* Times are nanoseconds since the recording began. */
typedef struct slice_place {
  int pid, tid;
  int64_t begin_ns, end_ns;
} slice_place;

static void put_slice(writer *w, const tdict_slice *s, const slice_place *p) {
  char begin[US_BYTES], took[US_BYTES];
  put_text(w,
           "%s{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"ts\":%s,\"dur\":%s,\"args\":{\"transfer\":%" PRIu32
           ",\"bytes\":%zu}}",
           event_separator(w), p->pid, p->tid, tdict_range_name((tdict_range)s->range), format_us(p->begin_ns, begin),
           format_us(p->end_ns - p->begin_ns, took), s->transfer, s->bytes);
}

/* Writes the whole transfer as an asynchronous event, because transfers may overlap in any way. */
static void put_transfer(writer *w, const tdict_slice *s) {
  static const char *const edges[] = {"b", "e"};
  const int64_t at_ns[] = {s->begin_ns - w->r->begin_ns, s->end_ns - w->r->begin_ns};
  char at[US_BYTES];
  for (int i = 0; i < 2; i++)
    put_text(w,
             "%s{\"ph\":\"%s\",\"cat\":\"transfer\",\"id\":%" PRIu32
             ",\"pid\":%d,\"tid\":0,\"name\":\"transfer\",\"ts\":%s,\"args\":{\"transfer\":%" PRIu32 ",\"bytes\":%zu}}",
             event_separator(w), edges[i], s->transfer, HOST_PID, format_us(at_ns[i], at), s->transfer, s->bytes);
}

static void put_count(writer *w, const tdict_slice *s) {
  char at[US_BYTES];
  put_text(w, "%s{\"ph\":\"C\",\"pid\":%d,\"tid\":0,\"name\":\"%s\",\"ts\":%s,\"args\":{\"batches\":%zu}}",
           event_separator(w), HOST_PID, tdict_range_name((tdict_range)s->range),
           format_us(s->end_ns - w->r->begin_ns, at), s->bytes);
}

static void put_host_slices(writer *w) {
  for (int64_t i = 0; i < w->num_slices && w->status == TDICT_OK; i++) {
    tdict_slice *s = &w->r->slices[i];
    bool complete = atomic_load_explicit(&s->complete, memory_order_acquire);
    if (!complete || s->gpu >= 0) continue;
    w->num_written++;
    const slice_place p = {HOST_PID, tid_of(&w->r->tracks[s->track]), s->begin_ns - w->r->begin_ns,
                           s->end_ns - w->r->begin_ns};
    if (s->range == TDICT_RANGE_TRANSFER)
      put_transfer(w, s);
    else if (s->range == TDICT_RANGE_READY)
      put_count(w, s);
    else
      put_slice(w, s, &p);
  }
}

/* Reads when a copy began and ended, and converts the times to the host's clock. The caller must still add the result
 * of find_shift(). Returns false if the copy has not ended, or if the driver cannot read the times. */
static bool read_times(const writer *w, const tdict_trace_gpu *g, const tdict_slice *s, slice_place *p) {
  float after_ms, took_ms;
  if (tdict_gpu_elapsed(g->gpu, g->base, s->from, &after_ms, NULL) != TDICT_OK) return false;
  if (tdict_gpu_elapsed(g->gpu, s->from, s->to, &took_ms, NULL) != TDICT_OK) return false;
  p->begin_ns = g->base_ns - w->r->begin_ns + (int64_t)(1e6 * (double)after_ms);
  p->end_ns = p->begin_ns + (int64_t)(1e6 * (double)took_ms);
  return true;
}

static stream_track *find_stream(writer *w, int pid, tdict_cu_stream stream) {
  for (int i = 0; i < w->num_streams; i++)
    if (w->streams[i].stream == stream) return &w->streams[i];
  if (w->num_streams == MAX_STREAMS) return NULL;
  char name[32];
  w->streams[w->num_streams++] = (stream_track){stream, 0};
  snprintf(name, sizeof name, "stream %d", w->num_streams);
  put_name(w, pid, w->num_streams, "thread_name", name);
  return &w->streams[w->num_streams - 1];
}

static bool is_on(const tdict_slice *s, int index) {
  return atomic_load_explicit(&s->complete, memory_order_acquire) && s->gpu == index;
}

/* Returns the smallest shift of a GPU's slices with which no copy begins before that copy was queued. */
static int64_t find_shift(const writer *w, int index) {
  int64_t shift = 0;
  slice_place p;
  for (int64_t i = 0; i < w->num_slices; i++) {
    const tdict_slice *s = &w->r->slices[i];
    if (!is_on(s, index) || !read_times(w, &w->r->gpus[index], s, &p)) continue;
    const int64_t late_ns = s->begin_ns - w->r->begin_ns - p.begin_ns;
    if (late_ns > shift) shift = late_ns;
  }
  return shift;
}

/* Writes the slices of a GPU. Slices of a stream must not overlap, so overlaps from rounding are removed. */
static void put_gpu_slices(writer *w, int index) {
  const tdict_trace_gpu *g = &w->r->gpus[index];
  tdict_gpu_scope scope;
  char name[64];
  slice_place p = {.pid = FIRST_GPU_PID + index};
  w->num_streams = 0;
  snprintf(name, sizeof name, "%s streams", TDICT_DEVICE_TEXT(g->gpu->memory.device));
  put_name(w, p.pid, 0, "process_name", name);
  (void)!tdict_gpu_enter(g->gpu, &scope, NULL); /* if the device is lost, no times can be read */
  const int64_t shift = find_shift(w, index);
  for (int64_t i = 0; i < w->num_slices && w->status == TDICT_OK; i++) {
    const tdict_slice *s = &w->r->slices[i];
    if (!is_on(s, index)) continue;
    stream_track *track = read_times(w, g, s, &p) ? find_stream(w, p.pid, s->stream) : NULL;
    if (!track) continue;
    w->num_written++;
    p.tid = (int)(track - w->streams) + 1;
    p.begin_ns += shift;
    p.end_ns += shift;
    /* Remove overlaps. */
    if (p.begin_ns < track->last_ns) p.begin_ns = track->last_ns;
    if (p.end_ns < p.begin_ns) p.end_ns = p.begin_ns;
    track->last_ns = p.end_ns;
    put_slice(w, s, &p);
  }
  tdict_gpu_leave(g->gpu, &scope);
}

static void put_end(writer *w) {
  tdict_recording *r = w->r;
  int64_t beyond = atomic_load_explicit(&r->next, memory_order_relaxed) - r->capacity;
  int64_t dropped = (beyond > 0 ? beyond : 0) + atomic_load_explicit(&r->dropped, memory_order_relaxed);
  put_text(w,
           "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{\"library\":\"tdict\",\"transfers\":%" PRIu32
           ",\"dropped_events\":%" PRId64 ",\"unfinished_events\":%" PRId64 ",",
           atomic_load_explicit(&r->num_transfers, memory_order_relaxed), dropped, w->num_slices - w->num_written);
  put_text(w,
           "\"stream_times\":\"device events before and after each copy; waiting for the copy engine is within\"}}\n");
}

tdict_status tdict_recording_write(tdict_recording *r, tdict_trace_sink write, void *user, tdict_error *err) {
  writer *w = calloc(1, sizeof *w);
  if (!w) return tdict_fail(err, TDICT_ENOMEM, "trace: no host memory to write it");
  w->r = r;
  w->write = write;
  w->user = user;
  /* Acquire before reading tracks and GPUs, see recording.h. Slices that are taken later are not written. */
  int64_t taken = atomic_load_explicit(&r->next, memory_order_acquire);
  w->num_slices = taken < r->capacity ? taken : r->capacity;
  pthread_mutex_lock(&r->lock);
  int num_gpus = r->num_gpus;
  pthread_mutex_unlock(&r->lock);
  put_text(w, "{\"traceEvents\":[");
  put_threads(w);
  put_host_slices(w);
  for (int i = 0; i < num_gpus; i++) put_gpu_slices(w, i);
  put_end(w);
  flush_text(w);
  tdict_status status = w->status;
  free(w);
  return status == TDICT_OK ? TDICT_OK : tdict_fail(err, status, "trace: the write function failed");
}
