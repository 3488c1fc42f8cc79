/* Streams, operations and engines of the simulated driver, and the driver's own struct.
 *
 * A stream is a queue of operations. The one at its head is either a marker (wait, record, free), which is done at once
 * by whoever made it the head, or work (a copy, a fill, a call), which an engine's thread does: one engine a device for
 * copies in, one for copies out, one for the rest. Work is done at the end of the time that it takes, so its bytes are
 * read and written together.
 * One lock, the driver's, guards everything; bytes are copied and functions called without it. An operation is
 * counted: its stream, the event that it recorded, waits for it and waiting threads hold references. */
#ifndef TDICT_SIM_QUEUE_H
#define TDICT_SIM_QUEUE_H

#include <pthread.h>

#include "base/forkmark.h"
#include "sim/memory.h"
#include "tdict/sim.h"

typedef struct tdict_sim_driver tdict_sim_driver;
typedef struct tdict_cu_context tdict_sim_device; /* a device is its own primary context */
typedef struct tdict_cu_stream tdict_sim_stream;
typedef struct tdict_cu_event tdict_sim_event;
typedef struct tdict_sim_op tdict_sim_op;
typedef struct tdict_sim_thread tdict_sim_thread; /* sim/context.c */

typedef enum tdict_sim_engine_index {
  TDICT_SIM_ENGINE_IN,
  TDICT_SIM_ENGINE_OUT,
  TDICT_SIM_ENGINE_OTHER,
  TDICT_SIM_NUM_ENGINES
} tdict_sim_engine_index;

typedef enum tdict_sim_op_kind {
  TDICT_SIM_OP_WAIT,   /* for another operation */
  TDICT_SIM_OP_RECORD, /* notes the time */
  TDICT_SIM_OP_FREE,   /* of device memory */
  TDICT_SIM_OP_COPY,   /* from here on: work */
  TDICT_SIM_OP_FILL,
  TDICT_SIM_OP_CALL
} tdict_sim_op_kind;

/* Device memory that work touches, for the check that it is still there when the work runs. */
typedef struct tdict_sim_use {
  tdict_sim_space *space; /* NULL: host memory */
  const void *address;
  uint64_t id;
} tdict_sim_use;

/* What work does; constant once it is queued. */
typedef struct tdict_sim_work {
  char *dst;
  const char *src;
  size_t dst_pitch, src_pitch, width, height;
  tdict_sim_use dst_use, src_use;
  unsigned char byte;
  void (*fn)(void *user);
  void *user;
} tdict_sim_work;

struct tdict_sim_op {
  int64_t refs;
  int32_t kind, engine;
  bool started; /* with an engine, or in the list of what it waits for */
  bool done;
  uint64_t seq; /* the order in which operations were queued, over all streams */
  tdict_sim_stream *stream;
  tdict_sim_op *next;    /* in its stream */
  tdict_sim_op *link;    /* in its engine's queue, or in the list `blocked` of another */
  tdict_sim_op *blocked; /* waits at the head of their streams for this one */
  tdict_sim_op *after;   /* WAIT */
  void *memory;          /* FREE: where it begins; its space is in work.dst_use */
  void *buffer;          /* malloc'd copy of a pageable source */
  int64_t ready_ns;      /* simulated time: could begin, has ended; not used without rates and latency */
  int64_t finish_ns;
  int64_t done_ns; /* RECORD: real time */
  tdict_sim_work work;
};

struct tdict_cu_stream {
  uint64_t magic; /* constant while the stream lives */
  tdict_sim_device *device;
  bool non_blocking, destroyed, is_runnable; /* is_runnable: in the driver's list of streams to settle */
  tdict_sim_op *head, *tail;
  uint64_t seen_seq;             /* it waits already for the legacy stream up to this operation */
  uint64_t legacy_seen_seq;      /* the legacy stream waits already for it up to this operation */
  int64_t clock_ns;              /* simulated time: when its last operation ended */
  tdict_sim_stream *prev, *next; /* of the device */
  tdict_sim_stream *next_runnable;
};
enum { TDICT_SIM_STREAM_MAGIC = 0x7364737 };

struct tdict_cu_event {
  uint64_t magic;
  tdict_sim_device *device;
  bool timing;
  tdict_sim_op *record;         /* the latest, or NULL */
  tdict_sim_event *prev, *next; /* of the device */
};
enum { TDICT_SIM_EVENT_MAGIC = 0x7364765 };

typedef struct tdict_sim_engine {
  tdict_sim_device *device;
  pthread_t thread;
  pthread_cond_t wake; /* work came, the gate opened, or the driver closes; CLOCK_MONOTONIC */
  bool running, idle;  /* has a thread; it waits for work */
  bool may_finish;     /* the work at hand may end although the driver is held */
  tdict_sim_op *head;  /* work that can begin, in the order in which it was queued */
  tdict_sim_op *current;
  double bytes_per_second; /* 0: no limit */
  int64_t free_ns;         /* simulated time: when its last work ended */
} tdict_sim_engine;

struct tdict_cu_context {
  tdict_sim_driver *driver;
  int32_t ordinal;
  int64_t context_refs;
  tdict_cu fault; /* the first error of queued work: every later call answers it */
  tdict_sim_space space;
  tdict_sim_stream legacy, per_thread;
  tdict_sim_stream *streams; /* all, those two included */
  tdict_sim_event *events;
  int64_t num_streams, num_events; /* that the user made */
  tdict_sim_engine engines[TDICT_SIM_NUM_ENGINES];
};

enum { TDICT_SIM_MAX_DEVICES = 8 };

struct tdict_sim_driver {
  tdict_driver base; /* first */
  tdict_sim_options options;
  tdict_forkmark *mark;     /* counted; constant, like the key: tdict_sim_launch() is given no context */
  pthread_key_t thread_key; /* the calling thread's tdict_sim_thread; constant */
  pthread_mutex_t lock;     /* guards all that follows and all that hangs from it */
  pthread_cond_t changed;   /* an operation is done, or one of the counts and flags below has changed */
  int64_t num_waiting;      /* for `changed` */
  bool held, stepping, closing;
  uint64_t hold_number; /* of the latest hold */
  int64_t num_copying;  /* engines that move bytes now */
  int64_t num_finished; /* copies, fills and calls */
  int64_t num_pending;
  uint64_t next_seq;
  tdict_sim_stream *runnable; /* streams to settle */
  tdict_sim_ranges hosts;     /* registrations */
  uint64_t next_host_id;
  size_t pinned_bytes; /* their bytes */
  tdict_sim_pool *pools;
  tdict_sim_thread *threads, *unused_threads;
  int32_t num_devices; /* constant */
  tdict_sim_device devices[TDICT_SIM_MAX_DEVICES];
};

static inline tdict_sim_driver *tdict_sim_driver_of(tdict_driver *d) { return (tdict_sim_driver *)d; }
static inline void tdict_sim_lock(tdict_sim_driver *d) { pthread_mutex_lock(&d->lock); }
static inline void tdict_sim_unlock(tdict_sim_driver *d) { pthread_mutex_unlock(&d->lock); }
/* All below are called with the lock held. */

/* Waits for a change. */
void tdict_sim_wait_change(tdict_sim_driver *d);
/* Wakes those that wait for one. */
void tdict_sim_changed(tdict_sim_driver *d);

/* A new operation with one reference; NULL: no memory. */
tdict_sim_op *tdict_sim_op_new(tdict_sim_op_kind kind);
tdict_sim_op *tdict_sim_op_retain(tdict_sim_op *op);
void tdict_sim_op_release(tdict_sim_op *op); /* NULL is allowed */

/* Queues the operation behind what the stream must wait for; the caller keeps its reference. OUT_OF_MEMORY: it was not
 * queued (waits may have been, and do no harm). */
tdict_cu tdict_sim_push(tdict_sim_stream *stream, tdict_sim_op *op);
void tdict_sim_wait_op(tdict_sim_driver *d, tdict_sim_op *op);

/* What the legacy stream stands for is its own work and that of all blocking streams. */
bool tdict_sim_stream_busy(const tdict_sim_stream *stream);
void tdict_sim_wait_stream(tdict_sim_stream *stream);
/* Waits for what is queued on all streams now. */
void tdict_sim_wait_device(tdict_sim_device *device);

void tdict_sim_stream_init(tdict_sim_stream *stream, tdict_sim_device *device, bool non_blocking);
/* Ends it; what is queued still runs, then it is freed. */
void tdict_sim_stream_end(tdict_sim_stream *stream);

/* Frees device memory, and its pool when that was waiting for it. */
void tdict_sim_release_memory(tdict_sim_driver *d, tdict_sim_space *space, void *start);
void tdict_sim_pool_free(tdict_sim_driver *d, tdict_sim_pool *pool);

/* Takes finished work from the head of its stream and lets everything go on that waited for it. */
void tdict_sim_op_finish(tdict_sim_op *op);

#endif
