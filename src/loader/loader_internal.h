/* What a loader is inside. The loader owns its slots, threads, dataset and sampler; a slot's contents belong to the worker
 * that fills it until it is READY, then to the consumer. Thread rule: fields name their guard. */
#ifndef TDICT_LOADER_INTERNAL_H
#define TDICT_LOADER_INTERNAL_H

#include <pthread.h>

#include "base/forkmark.h"
#include "memory/fence.h"
#include "tdict/loader.h"
#include "transfer/trace.h"

/* A batch of an epoch; the one behind the last is the epoch's end. */
typedef struct tdict_batch_position {
  int64_t epoch, batch;
} tdict_batch_position;

typedef enum tdict_loader_slot_state { TDICT_SLOT_FREE, TDICT_SLOT_BUSY, TDICT_SLOT_READY } tdict_loader_slot_state;
/* One batch on its way. */
typedef struct tdict_loader_slot {
  tdict_loader_slot_state state; /* guarded by the loader's lock, like what follows down to worker */
  tdict_batch_position position;
  int64_t ticket, num_requested; /* its number since the last set_state; samples asked for */
  int64_t began_ns;
  int64_t waited_ns; /* of that, until others had been sent; the worker's while BUSY */
  int32_t worker;
  int64_t count;        /* samples that it has, from here on the worker's while BUSY */
  bool ends_epoch;      /* the epoch is over: behind its samples, if it has any */
  tdict_tree *tree;     /* in host memory, or NULL */
  tdict_future *future; /* to the device, or NULL */
  size_t bytes;
  tdict_status status; /* of the whole, with */
  tdict_error error;
  int64_t *indices;     /* room for batch_size */
  tdict_tree **samples; /* the same */
} tdict_loader_slot;

typedef struct tdict_loader_worker {
  struct tdict_loader *loader;
  pthread_t thread;
  int32_t number;
} tdict_loader_worker;

/* More transfers at once gain nothing on the link, and each keeps a thread of the pool until its copies end. */
enum { TDICT_LOADER_MAX_IN_FLIGHT = 4 };

struct tdict_loader {
  tdict_context *context; /* borrowed; what follows is fixed when the threads start */
  tdict_forkmark *mark;   /* counted */
  tdict_loader_options options;
  tdict_dataset dataset;
  const tdict_schema *schema; /* the dataset's, when rows are written; else NULL */
  tdict_sampler *sampler;     /* NULL: a stream */
  tdict_device device;
  tdict_memory *memory; /* of host batches; NULL: plain */
  tdict_tracer *tracer; /* the engine's, like the pool, which tells its threads' tracks */
  const tdict_pool *pool;
  int64_t dataset_length;     /* -1: a stream */
  int64_t num_batches;        /* of an epoch; -1: nobody knows */
  int32_t depth, num_threads; /* slots; threads that were started */
  tdict_loader_worker *workers;
  tdict_loader_slot *slots;

  pthread_mutex_t send_lock; /* whose turn it is to send; taken before `lock`. Guards: num_sent */
  int64_t num_sent;          /* the next batch takes the place num_sent modulo the places in in_flight */

  pthread_mutex_t lock;                               /* guards all that follows, and the slots' states */
  tdict_fence *in_flight[TDICT_LOADER_MAX_IN_FLIGHT]; /* counted: transfers that may not have ended; or NULL */
  pthread_cond_t can_begin;                           /* a batch may be begun, or the end has come */
  pthread_cond_t batch_done;    /* a batch is whole, or no worker is busy; by the monotonic clock */
  pthread_cond_t can_fetch;     /* in_order: the next call may be made */
  int64_t num_begun, num_taken; /* tickets, since the last set_state */
  int64_t num_fetched;          /* in_order: the ticket whose turn it is */
  tdict_batch_position next_to_begin, next_to_take;
  size_t prefetched_bytes, last_batch_bytes; /* of batches that are whole and not taken; of the last one that was */
  int32_t num_busy, num_ready;
  bool is_stopping, is_paused; /* the end; set_state is at work */
  bool epoch_ended;            /* a stream is over: nothing is begun until that is taken */
  tdict_error failure;         /* what every further call answers; status 0: nothing */
  tdict_loader_stats stats;
  int64_t ready_sum, num_calls;

  tdict_tree *previous; /* the consumer's: the batch that it has now */
  tdict_stream previous_stream;
};

/* batch.c: fetches, collates, pins and sends one batch; writes the slot's result. No lock held. */
void tdict_loader_fill_slot(tdict_loader *loader, tdict_loader_slot *slot);
/* Releases what a slot holds; it is FREE then. */
void tdict_loader_empty_slot(tdict_loader_slot *slot);

/* saved_state.c: where the loader stands, and what its order depends on. */
tdict_loader_state tdict_loader_describe_state(const tdict_loader *loader, tdict_batch_position at);
/* TDICT_EINVAL: the state is another loader's, or names no batch. */
tdict_status tdict_loader_check_state(const tdict_loader *loader, const tdict_loader_state *state, tdict_error *err);

/* workers.c. Threads: TDICT_ENOMEM, and none is left. */
tdict_status tdict_loader_start_workers(tdict_loader *loader, tdict_error *err);
void tdict_loader_stop_workers(tdict_loader *loader);
/* Begins the next batch and fills it on the calling thread; the lock is held on entry and return. */
void tdict_loader_fill_next(tdict_loader *loader, int32_t worker, int64_t since_ns);
/* Drops everything that is ahead and goes on from a place; waits for busy workers; the lock is held. */
void tdict_loader_seek(tdict_loader *loader, tdict_batch_position to);
/* The count of ready batches goes on the timeline; the lock is held. */
void tdict_loader_trace_ready(const tdict_loader *loader);
/* The place behind this one. */
tdict_batch_position tdict_loader_next_position(const tdict_loader *loader, tdict_batch_position position);

/* deliver.c: lets go of the batch that the consumer had. */
tdict_status tdict_loader_finish_previous(tdict_loader *loader, tdict_error *err);

/* dataset.c: TDICT_EINVAL when there is no way to fetch; reads the struct by its size. */
tdict_status tdict_dataset_read(tdict_dataset *out, const tdict_dataset *given, tdict_error *err);

#endif
