/* Declares the `self` of the table of NCCL, and the functions that its operations share. A link owns two communicators
 * of NCCL (see watch.h), a stream, an event and the memory for host messages. A link retains its gpu. Thread rule: as
 * in tdict/comm_table.h: one operation at a time, and `abort` at any time from any thread. */
#ifndef TDICT_SERVICES_COMM_NCCL_LINK_H
#define TDICT_SERVICES_COMM_NCCL_LINK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "device/gpu.h"
#include "services/comm/nccl/watch.h"
#include "tdict/comm_table.h"

/* A message between the devices of all ranks. */
typedef struct tdict_nccl_move {
  enum { TDICT_NCCL_SEND, TDICT_NCCL_RECEIVE, TDICT_NCCL_BROADCAST, TDICT_NCCL_GATHER } kind;
  int32_t peer;     /* the other rank, or the root; unused if the kind is GATHER */
  const void *src;  /* memory that the device can access; unused if the kind is RECEIVE */
  void *dst;        /* the same; unused if the kind is SEND */
  size_t num_bytes; /* bytes of one rank */
} tdict_nccl_move;

typedef struct tdict_nccl_link {
  tdict_nccl_api api;
  tdict_gpu *gpu; /* retained */
  char where[32]; /* the device as a text, with which messages begin */
  int32_t rank, world;
  int64_t timeout_ns;  /* limit of `destroy` */
  bool has_float8;     /* NCCL and the device reduce 8-bit floats */
  _Atomic(bool) ended; /* true: `abort` was called. Set before NCCL stops the work, so that no operation takes stopped
                         * work for finished work */
  tdict_nccl_watch watch; /* owns the parent of `comm` */
  pthread_mutex_t lock; /* guards: comm. Held during each call of NCCL, so that `abort` frees no communicator in use */
  tdict_nccl_comm comm; /* split from the parent, and blocks; NULL after `abort` */
  tdict_cu_stream stream; /* for host messages */
  tdict_cu_event event;   /* marks the work that the current operation waits for */
  char *stage;            /* pinned memory for host messages, of stage_bytes; the device has the same address for it */
  size_t stage_bytes;
  bool uses_stage;        /* the device may still use the stage, for a host message that has failed */
  bool is_entered;        /* the current operation is inside a scope of the gpu, so its steps need no scope */
  bool is_grouping;       /* between group_begin and group_end */
  tdict_nccl_move *moves; /* the messages that the group has collected */
  size_t num_moves, cap_moves;
} tdict_nccl_link;

/* A scope of a call of NCCL: the gpu is entered and the lock is held. */
typedef struct tdict_nccl_call {
  tdict_nccl_link *link;
  const char *name;    /* NCCL's function */
  int64_t begun_ns;    /* set by tdict_nccl_begin() */
  int64_t deadline_ns; /* time until which the call may last, see tdict_deadline_ns() */
  tdict_gpu_scope scope;
} tdict_nccl_call;
/* Returns TDICT_ECANCELLED after `abort`. */
tdict_status tdict_nccl_refuse_ended(tdict_nccl_link *link, tdict_error *err);
/* Begins a call of NCCL, which tdict_nccl_end() ends. Returns TDICT_ECANCELLED after `abort`. See tdict_gpu_enter(). */
tdict_status tdict_nccl_begin(tdict_nccl_call *call, tdict_error *err);
/* Ends a call of NCCL that has returned `result`. If the call is in progress, waits until NCCL has queued the work.
 * Returns TDICT_ETIMEDOUT after the deadline; the communicator is then as after `abort`. Other errors: of
 * tdict_nccl_check() and tdict_nccl_begin(). */
tdict_status tdict_nccl_end(tdict_nccl_call *call, tdict_nccl_result result, tdict_error *err);
/* Queues messages as one group, and skips those without bytes. Returns errors of tdict_nccl_begin() and its end. */
tdict_status tdict_nccl_queue(tdict_nccl_link *link, const tdict_nccl_move *moves, size_t count, tdict_cu_stream stream,
                              int64_t deadline_ns, tdict_error *err);
/* Waits until the work that is queued on `stream` is done. Returns TDICT_ETIMEDOUT after the deadline. Returns an error
 * as soon as NCCL reports one, and TDICT_ECANCELLED after `abort`. Other errors: tdict_gpu_check(). */
tdict_status tdict_nccl_wait(tdict_nccl_link *link, tdict_cu_stream stream, int64_t deadline_ns, tdict_error *err);
/* Waits until NCCL is not in progress. Call outside of tdict_nccl_begin() and tdict_nccl_end(), which have this wait.
 * `comm` points to a communicator of the link, which becomes NULL under the lock of the link. `name` is NCCL's
 * function, for messages. Returns the errors of tdict_nccl_end(). */
tdict_status tdict_nccl_settle(tdict_nccl_link *link, const tdict_nccl_comm *comm, const char *name,
                               int64_t deadline_ns, tdict_error *err);

/* Fill in the operations on host memory and on device memory. Defined in host.c and operations.c. */
void tdict_nccl_add_host_operations(tdict_comm_table *table);
void tdict_nccl_add_operations(tdict_comm_table *table);
/* Allocates the memory for host messages, inside a scope of the gpu. The size never changes, since allocating pinned
 * memory during an operation can wait for other ranks of this process, and they for this one. If it fails, call
 * tdict_nccl_free_stage(). Returns TDICT_ENOMEM and the errors of tdict_gpu_check(). Defined in host.c. */
tdict_status tdict_nccl_make_stage(tdict_nccl_link *link, tdict_error *err);
/* Frees the memory for host messages, inside a scope of the gpu, after all work of the stream is done. See host.c. */
void tdict_nccl_free_stage(tdict_nccl_link *link);
#endif
