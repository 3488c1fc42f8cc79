/* Declares the streams, operations and engines of the simulated driver, and the driver's own struct.
 *
 * A stream is a queue of operations. An operation is a marker (wait, record, free) or work (copy, fill, launch, call).
 * When a marker reaches the head of a stream, the thread that holds the driver's lock executes the marker. A wait stays
 * at the head until the operation that it waits for is done. Work is done by an engine's thread. Each device has one
 * engine for copies to the device, one for copies to the host, and one for all other work. An engine moves all bytes of
 * a copy together, when the simulated time of the copy has passed.
 *
 * An operation is reference counted. The operation's stream holds a reference, and so does the event that the operation
 * records. Waiting operations and waiting threads also hold references. Thread rule: the driver's lock guards
 * everything. The lock is released while bytes are copied or a function runs. */
#ifndef TDICT_DEVICE_SIM_QUEUE_H
#define TDICT_DEVICE_SIM_QUEUE_H

#include <pthread.h>

#include "core/base/clock.h"
#include "core/base/forkmark.h"
#include "device/sim/memory.h"
#include "tdict/sim.h"

typedef struct tdict_sim_driver tdict_sim_driver;
typedef struct tdict_cu_context tdict_sim_device; /* this struct is a device and the primary context of the device */
typedef struct tdict_cu_stream tdict_sim_stream;
typedef struct tdict_cu_event tdict_sim_event;
typedef struct tdict_sim_op tdict_sim_op;
typedef struct tdict_sim_thread tdict_sim_thread; /* defined in device/sim/context.c */

typedef enum tdict_sim_engine_index {
  TDICT_SIM_ENGINE_IN,
  TDICT_SIM_ENGINE_OUT,
  TDICT_SIM_ENGINE_OTHER,
  TDICT_SIM_NUM_ENGINES
} tdict_sim_engine_index;

typedef enum tdict_sim_op_kind {
  TDICT_SIM_OP_WAIT,   /* waits until another operation is done */
  TDICT_SIM_OP_RECORD, /* records an event: stores the current time */
  TDICT_SIM_OP_FREE,   /* frees device memory */
  TDICT_SIM_OP_COPY,   /* copies bytes. COPY and the kinds below are work, not markers */
  TDICT_SIM_OP_FILL,
  TDICT_SIM_OP_LAUNCH, /* runs a kernel */
  TDICT_SIM_OP_CALL
} tdict_sim_op_kind;

/* Device memory that work accesses. The engine checks that the memory is still allocated when the work runs. */
typedef struct tdict_sim_use {
  tdict_sim_space *space; /* NULL: host memory */
  const void *address;
  uint64_t id;
} tdict_sim_use;

/* The parameters of work. The parameters do not change after the operation is queued. */
typedef struct tdict_sim_work {
  char *dst;
  const char *src;
  size_t dst_pitch, src_pitch, width, height;
  tdict_sim_use dst_use, src_use;
  unsigned char byte;
  int kernel; /* LAUNCH: a tdict_kernel_op */
  uint64_t blocks;
  void (*fn)(void *user);
  void *user;
} tdict_sim_work;

struct tdict_sim_op {
  int64_t refs;
  int32_t kind, engine;
  bool started; /* true: the operation was given to an engine, or is in the `blocked` list of the operation that must be
                 * done first */
  bool done;
  uint64_t seq; /* number in the order of queueing, unique among all streams */
  tdict_sim_stream *stream;
  tdict_sim_op *next;    /* next operation of the stream */
  tdict_sim_op *link;    /* next operation in an engine's queue or in a `blocked` list */
  tdict_sim_op *blocked; /* list of the WAIT operations, each at the head of a stream, that wait for this operation */
  tdict_sim_op *after;   /* WAIT: the operation that must be done first; retained */
  void *memory;          /* FREE: the start of the allocation; work.dst_use.space contains the allocation */
  void *buffer;          /* owned; copy of a pageable source, or the parameters of a launch; or NULL */
  int64_t ready_ns;      /* simulated time before which the operation cannot start; unused if no rate or latency is
                          * set */
  int64_t finish_ns;     /* simulated time at which the operation ends */
  int64_t done_ns;       /* RECORD: time of tdict_sim_now() at which the record was done */
  tdict_sim_work work;
};

struct tdict_cu_stream {
  uint64_t magic; /* constant while the stream lives */
  tdict_sim_device *device;
  bool non_blocking, destroyed, is_runnable; /* is_runnable: in the driver's list `runnable` */
  tdict_sim_op *head, *tail;
  uint64_t seen_seq;             /* this stream waits for all operations of the legacy stream up to this number */
  uint64_t legacy_seen_seq;      /* the legacy stream waits for all operations of this stream up to this number */
  int64_t clock_ns;              /* simulated time at which the last operation ended */
  tdict_sim_stream *prev, *next; /* links of the device's list */
  tdict_sim_stream *next_runnable;
};
enum { TDICT_SIM_STREAM_MAGIC = 0x7364737 };

struct tdict_cu_event {
  uint64_t magic;
  tdict_sim_device *device;
  bool timing;
  tdict_sim_op *record;         /* the latest record, retained; or NULL */
  tdict_sim_event *prev, *next; /* links of the device's list */
};
enum { TDICT_SIM_EVENT_MAGIC = 0x7364765 };

typedef struct tdict_sim_engine {
  tdict_sim_device *device;
  pthread_t thread;
  pthread_cond_t wake; /* signalled for new work, a step, a resume or a close; uses CLOCK_MONOTONIC */
  bool running, idle;  /* running: the engine has a thread. idle: the thread waits for work */
  bool may_finish;     /* true: a step lets the current work finish while the driver is held */
  tdict_sim_op *head;  /* work that can start, sorted by seq */
  tdict_sim_op *current;
  double bytes_per_second; /* 0: no limit */
  int64_t free_ns;         /* earliest simulated time at which the engine can begin its next work */
} tdict_sim_engine;

struct tdict_cu_context {
  tdict_sim_driver *driver;
  int32_t ordinal;
  int64_t context_refs;
  /* Sticky: the first error of queued work. Later calls that use streams or allocate memory return this error. */
  tdict_cu fault;
  tdict_sim_space space;
  tdict_sim_stream legacy, per_thread;
  tdict_sim_stream *streams; /* all streams of the device, including legacy and per_thread */
  tdict_sim_event *events;
  int64_t num_streams, num_events; /* numbers of streams and events that the program created and has not destroyed */
  tdict_sim_engine engines[TDICT_SIM_NUM_ENGINES];
};

enum { TDICT_SIM_MAX_DEVICES = 8 };

struct tdict_sim_driver {
  tdict_driver base;    /* first member, so that a tdict_driver * is also a tdict_sim_driver * */
  tdict_driver_ops ops; /* the table of `base`; constant */
  tdict_sim_options options;
  tdict_forkmark *mark;     /* retained; constant. Stored here because tdict_sim_launch() has no context parameter */
  pthread_key_t thread_key; /* the calling thread's tdict_sim_thread; constant */
  pthread_mutex_t lock;     /* guards all later fields and what these fields point to, except the threads' states */
  pthread_cond_t changed;   /* signalled when an operation is done, and when a step or a hold ends */
  int64_t num_waiting;      /* number of threads that wait for `changed` */
  bool held, stepping, closing;
  uint64_t hold_number; /* number of holds so far */
  int64_t virtual_ns;   /* time of the virtual clock; unused without the option `virtual_time` */
  int64_t num_copying;  /* number of engines that are copying bytes */
  int64_t num_finished; /* number of copies, fills and calls finished since the driver was opened */
  int64_t num_pending;
  uint64_t next_seq;
  tdict_sim_stream *runnable; /* streams whose head may be able to run */
  tdict_sim_ranges hosts;     /* ranges of host memory that are registered or allocated */
  uint64_t next_host_id;
  size_t pinned_bytes; /* bytes of host memory in `hosts` */
  tdict_sim_pool *pools;
  tdict_sim_thread *threads, *unused_threads;
  int32_t num_devices; /* constant */
  tdict_sim_device devices[TDICT_SIM_MAX_DEVICES];
};

static inline tdict_sim_driver *tdict_sim_driver_of(tdict_driver *d) { return (tdict_sim_driver *)d; }
/* Returns engine number `n` of all engines of the driver, or NULL after the last one. */
static inline tdict_sim_engine *tdict_sim_engine_at(tdict_sim_driver *d, int n) {
  const int device = n / TDICT_SIM_NUM_ENGINES;
  return device < d->num_devices ? &d->devices[device].engines[n % TDICT_SIM_NUM_ENGINES] : NULL;
}
/* Adds an item with the links `prev` and `next` to the front of a list, or removes the item from the list. */
#define TDICT_SIM_LINK(list, item)                 \
  do {                                             \
    (item)->prev = NULL;                           \
    (item)->next = (list);                         \
    if ((item)->next) (item)->next->prev = (item); \
    (list) = (item);                               \
  } while (0)
#define TDICT_SIM_UNLINK(list, item)                     \
  do {                                                   \
    if ((item)->prev)                                    \
      (item)->prev->next = (item)->next;                 \
    else                                                 \
      (list) = (item)->next;                             \
    if ((item)->next) (item)->next->prev = (item)->prev; \
  } while (0)
static inline void tdict_sim_lock(tdict_sim_driver *d) { pthread_mutex_lock(&d->lock); }
static inline void tdict_sim_unlock(tdict_sim_driver *d) { pthread_mutex_unlock(&d->lock); }
/* Marks a variable that holds the result of tdict_sim_lock_of(): the lock is held until the end of the variable's
 * block. */
#define TDICT_SIM_LOCKED __attribute__((cleanup(tdict_sim_unlock_at_end)))
static inline void tdict_sim_unlock_at_end(tdict_sim_driver **d) { tdict_sim_unlock(*d); }
static inline tdict_sim_driver *tdict_sim_lock_of(tdict_driver *base) {
  tdict_sim_lock(tdict_sim_driver_of(base));
  return tdict_sim_driver_of(base);
}
/* Returns the device whose address space contains the address, or NULL. Needs no lock. */
tdict_sim_device *tdict_sim_device_of(tdict_sim_driver *d, const void *address);
/* Call all functions below with the lock held, except tdict_sim_op_new(). */

/* Returns the time of the driver's clock in nanoseconds: of the virtual clock with `virtual_time`, else of the real
 * one. */
static inline int64_t tdict_sim_now(const tdict_sim_driver *d) {
  return d->options.virtual_time ? d->virtual_ns : tdict_now_ns();
}
/* Moves the virtual clock, if the driver has one and is not held, and if no engine can run. tdict_sim_clock_advance()
 * sets the clock to the earliest time at which work ends, if a thread waits in the driver. tdict_sim_clock_query() adds
 * the time of a query that found work unfinished. */
void tdict_sim_clock_advance(tdict_sim_driver *d);
void tdict_sim_clock_query(tdict_sim_driver *d);
/* Waits until another thread calls tdict_sim_changed(). */
void tdict_sim_wait_change(tdict_sim_driver *d);
/* Wakes all threads in tdict_sim_wait_change(). */
void tdict_sim_changed(tdict_sim_driver *d);

/* Creates an operation with one reference. Returns NULL if memory is exhausted. */
tdict_sim_op *tdict_sim_op_new(tdict_sim_op_kind kind);
tdict_sim_op *tdict_sim_op_retain(tdict_sim_op *op);
void tdict_sim_op_release(tdict_sim_op *op); /* NULL is allowed */

/* Queues an operation on a stream. First queues the waits that CUDA requires between the legacy stream and blocking
 * streams. The caller keeps its reference to the operation. If memory is exhausted, returns OUT_OF_MEMORY and does not
 * queue the operation. Some of the waits are then possibly queued, which is harmless. */
tdict_cu tdict_sim_push(tdict_sim_stream *stream, tdict_sim_op *op);
/* Waits until the operation is done. */
void tdict_sim_wait_op(tdict_sim_driver *d, tdict_sim_op *op);

/* Returns true if the stream has unfinished work. Work of all blocking streams counts as work of the legacy stream. */
bool tdict_sim_stream_busy(const tdict_sim_stream *stream);
/* Waits until the work that is queued on the stream now is done. On the legacy stream, also waits for all blocking
 * streams. */
void tdict_sim_wait_stream(tdict_sim_stream *stream);
/* Waits until the work that is queued on all streams of the device now is done. */
void tdict_sim_wait_device(tdict_sim_device *device);

/* Fills in the stream and adds the stream to the device's list. */
void tdict_sim_stream_init(tdict_sim_stream *stream, tdict_sim_device *device, bool non_blocking);
/* Destroys a stream. The stream is freed after its queued work has run. */
void tdict_sim_stream_end(tdict_sim_stream *stream);

/* Frees an allocation of device memory. Also frees the allocation's pool if the pool is destroyed and now empty. */
void tdict_sim_release_memory(tdict_sim_driver *d, tdict_sim_space *space, void *start);
/* Removes a pool from the driver and frees the struct. */
void tdict_sim_pool_free(tdict_sim_driver *d, tdict_sim_pool *pool);

/* Removes a finished operation from the head of its stream. Starts the operations that waited for this operation. */
void tdict_sim_op_finish(tdict_sim_op *op);

/* engine.c */
/* Starts the missing threads of the device's engines. Returns OUT_OF_MEMORY if a thread cannot be created. */
tdict_cu tdict_sim_engines_start(tdict_sim_device *device);
/* Stops and joins the threads of all engines. All work must be done. Call without the driver's lock. */
void tdict_sim_engines_stop(tdict_sim_driver *d);
/* Wakes the threads of all engines, so that they check the driver's flags again. */
void tdict_sim_engines_wake(tdict_sim_driver *d);

#endif
