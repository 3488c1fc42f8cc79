/* Defines the loader's private struct, and declares the functions that several files of the loader use. Ownership: the
 * loader owns its slots, its threads, and references to the dataset and the sampler. A BUSY slot belongs to the worker
 * that fills the slot. A READY slot belongs to the consumer.
 * Thread rule: the comments of the fields name the locks. The consumer is the thread that calls tdict_loader_next(). */
#ifndef TDICT_SERVICES_LOADER_LOADER_INTERNAL_H
#define TDICT_SERVICES_LOADER_LOADER_INTERNAL_H

#include <pthread.h>

#include "core/base/forkmark.h"
#include "core/memory/fence.h"
#include "engine/options/trace/trace.h"
#include "services/loader/dataset.h"
#include "services/loader/division.h"
#include "tdict/combine.h"
#include "tdict/loader.h"
#include "tdict/sampler.h"

typedef struct tdict_epoch_plan {
  int64_t epoch;              /* -1: the plan is out of date */
  int64_t num_batches;        /* number of batches of this rank */
  int64_t num_batches_of_all; /* number of batches of all ranks together */
  tdict_batch_range *ranges;  /* the batches of this rank, as positions among the samples of all ranks */
  int64_t *indices;           /* the samples of all ranks, if plan_epoch is set; else NULL */
  uint64_t hash;              /* of the indices and of the ends of batches, if plan_epoch is set; else 0 */
  tdict_error failure;        /* if failure.status is not 0, the epoch has one batch, which fails with this error */
} tdict_epoch_plan;

/* The position of a batch. The position after the last batch of an epoch is the end of that epoch. */
typedef struct tdict_batch_position {
  int64_t epoch, batch;
} tdict_batch_position;

/* The samples that the loader draws in an epoch. */
typedef struct tdict_loader_epoch {
  tdict_sampler *sampler; /* retained; NULL for a stream */
  int64_t dataset_length; /* -1 for a stream */
  /* Number of batches in the epoch; -1 for a stream. If epochs have plans, the epoch is the epoch of the batch that was
   * taken last. In this case, the consumer sets both fields, under the lock, whenever the consumer takes a batch */
  int64_t num_batches;
  uint64_t plan_hash; /* the hash of the plan; 0 before a batch was taken */
} tdict_loader_epoch;

typedef enum tdict_loader_slot_state { TDICT_SLOT_FREE, TDICT_SLOT_BUSY, TDICT_SLOT_READY } tdict_loader_slot_state;
/* Holds a batch from the time at which a worker begins the batch until the consumer takes the batch. The loader's lock
 * guards the fields up to `worker`. While the slot is BUSY, its worker owns `waited_ns` and the fields after
 * `worker`. */
typedef struct tdict_loader_slot {
  tdict_loader_slot_state state;
  tdict_batch_position position;
  int64_t epoch_batches; /* number of batches in the epoch; -1: a stream */
  uint64_t plan_hash;    /* of the plan of the epoch */
  int64_t first;         /* position of the first sample among this rank's samples; if epochs have plans, among the
                          * samples of all ranks */
  int64_t ticket;        /* number of batches begun before this batch, since the last tdict_loader_seek() */
  int64_t num_requested;
  int64_t began_ns;
  int64_t waited_ns; /* time in which the worker waited before sending; part of the time since began_ns */
  int32_t worker;
  int64_t count;        /* number of samples in the batch; less than num_requested if a stream ended */
  bool has_no_plan;     /* true: the epoch could not be planned, and the error says why */
  bool ends_epoch;      /* true: the epoch ends after the samples of this slot; count may be 0 */
  tdict_tree *tree;     /* the batch in host memory, or NULL */
  tdict_future *future; /* the transfer of the batch to the device, or NULL */
  size_t bytes;
  int64_t num_tokens; /* packed or padded batch: sum of the samples' lengths; else 0 */
  int64_t max_seqlen; /* packed or padded batch: largest length of a sample; else 0 */
  int64_t num_objects_pinned, num_objects_unpinned, num_objects_kept; /* as in tdict_loader_stats */
  tdict_status status;                                                /* the result of the whole batch */
  tdict_error error;                                                  /* set if status is not TDICT_OK */
  bool is_skippable;     /* true: the batch failed while its samples were fetched or collated */
  tdict_fetch_info info; /* for the functions of the program */
  int64_t *indices;      /* array of batch_size elements */
  tdict_tree **samples;  /* array of batch_size elements */
  int64_t num_fetched;   /* number of trees in `samples`, which the slot owns */
} tdict_loader_slot;

typedef struct tdict_loader_worker {
  struct tdict_loader *loader;
  pthread_t thread;
  int32_t number;
  bool is_open; /* true: the dataset's `open_worker` has made `state`. Only the thread of the worker uses both fields */
  void *state;
} tdict_loader_worker;

/* A worker starts a transfer after the transfer that many places before has ended. More concurrent transfers would not
 * make the link faster, and each transfer can keep a pool thread busy until the copies of the transfer end. */
enum { TDICT_LOADER_MAX_IN_FLIGHT = 4 };
/* `on_error` skips at most this many samples or batches in a row. Otherwise a dataset whose samples all fail would keep
 * a worker or the program for ever. */
enum { TDICT_LOADER_MOST_SKIPS = 64 };

struct tdict_loader {
  /* The following fields are constant after the threads have started. */
  tdict_context *context; /* borrowed */
  tdict_forkmark *mark;   /* retained */
  tdict_loader_options options;
  tdict_pack_options pack;          /* a copy of options.pack; used if options.pack is set */
  tdict_dataset *dataset;           /* retained */
  const tdict_dataset_table *table; /* of the dataset */
  bool by_row; /* true: the dataset writes rows into batches; false: samples are fetched as trees */
  tdict_device device;
  tdict_memory *memory; /* allocates host batches; NULL: pageable memory */
  tdict_tracer *tracer; /* borrowed from the engine */
  int32_t depth;        /* number of slots */
  int32_t num_threads;  /* number of threads that were started */
  tdict_loader_worker *workers;
  tdict_loader_slot *slots;

  /* The consumer changes `epoch` under `lock`, while no slot is in use and no batch may begin. The consumer, a worker
   * with a BUSY slot and a worker that makes a plan read `epoch` without the lock. Exception: if epochs have plans, the
   * consumer changes num_batches and plan_hash under the lock when the consumer takes a batch. No worker reads these
   * without the lock. */
  tdict_loader_epoch epoch;

  pthread_mutex_t lock;                               /* guards: the slots as described above, and all fields up to
                                                       * num_calls */
  int64_t num_sent;                                   /* number of transfers that workers have begun to start */
  tdict_fence *in_flight[TDICT_LOADER_MAX_IN_FLIGHT]; /* retained: the latest transfers; NULL: none. Transfer n is
                                                       * stored at n % TDICT_LOADER_MAX_IN_FLIGHT */
  pthread_cond_t can_begin;                           /* signalled if a batch may begin or the loader stops */
  pthread_cond_t batch_done;                          /* signalled if a slot became READY or a plan was made; uses
                                                       * the monotonic clock */
  pthread_cond_t can_fetch;                           /* signalled if num_fetched changed and the dataset is in_order */
  int64_t num_begun, num_taken;                       /* numbers of batches since the last tdict_loader_seek() */
  int64_t num_fetched;                                /* ticket of the batch that an in_order dataset fetches next */
  tdict_batch_position next_to_begin, next_to_take;
  tdict_epoch_plan plan;   /* owned; if epochs have plans: the plan for the epoch of next_to_begin, or an outdated
                            * plan */
  size_t prefetched_bytes; /* number of bytes in READY slots */
  size_t last_batch_bytes; /* size of the batch that was completed last */
  int32_t num_busy, num_ready;
  bool is_stopping; /* true: workers must return */
  bool is_paused;   /* true: tdict_loader_seek() runs, or tdict_loader_set_state() plans, so no batch or plan begins */
  bool is_planning; /* true: a plan is being made without the lock, so no batch begins */
  /* true: a stream has ended or an epoch could not be planned, so no batch begins. After a stream, and with CONTINUE,
   * until the consumer has taken the slot that says so; otherwise until tdict_loader_seek() */
  bool epoch_ended;
  /* true: the length of the dataset varies, and the last slot of the epoch has begun or no epoch has begun. No batch
   * begins until tdict_loader_begin_epoch() */
  bool awaits_epoch;
  tdict_error failure; /* the error that tdict_loader_next() returns until tdict_loader_seek(); status 0: none */
  tdict_loader_stats stats;
  int64_t *logged; /* owned, ascending: the samples whose skipping was logged */
  size_t num_logged, logged_capacity;
  int64_t ready_sum, num_calls;

  /* Only the consumer's thread uses the following fields. */
  tdict_tree *previous; /* retained: the batch that the last call returned, if the call had a stream; else NULL */
  tdict_stream previous_stream;
  tdict_batch_info info; /* of the batch that the last call returned */
};

/* batch.c */

/* Fetches and collates the batch of a BUSY slot, and pins the batch or sends the batch to the device. Writes the result
 * to the slot. Call without the lock. */
void tdict_loader_fill_slot(tdict_loader *loader, tdict_loader_slot *slot);
/* Releases the samples that were fetched for a batch. */
void tdict_loader_release_samples(tdict_loader_slot *slot);
/* Ends the state that the dataset has made for a worker. Call on the thread of the worker. */
void tdict_loader_close_worker(const tdict_loader *loader, tdict_loader_worker *worker);
/* Releases the batch of a slot, cancels the transfer of the batch, and makes the slot FREE. */
void tdict_loader_empty_slot(tdict_loader_slot *slot);

/* epoch_plan.c: with the option max_tokens, divides an epoch into batches that have at most max_tokens tokens and at
 * most batch_size samples. If the option pad is set, a batch has (number of samples) * (largest length) tokens, else
 * the sum of the lengths. With the option plan_epoch, the program makes the batches. A plan depends on the sampler, the
 * epoch, the options and what the functions of the program return, but not on the workers. The plan owns its arrays.
 * The functions take no lock. */

/* Returns true if one of the two options is set, so that each epoch has a plan. */
static inline bool tdict_loader_has_plans(const tdict_loader *l) {
  return l->options.max_tokens > 0 || l->options.plan_epoch;
}
/* Makes the plan of an epoch. Calls plan_epoch, or `sample_length` of the dataset for each sample of the epoch, so the
 * caller must hold no lock. Returns the error of plan_epoch, or TDICT_EINVAL for a length that is negative or above
 * max_tokens. Returns TDICT_ENOMEM if host memory is exhausted. After a failure, the plan has one batch that fails with
 * the same error. */
tdict_status tdict_epoch_plan_make(tdict_epoch_plan *plan, const tdict_loader *loader, const tdict_sampler *sampler,
                                   int64_t epoch);
/* Returns the samples of a batch. The count is 0 at the end of the epoch, and for a batch that fails. */
tdict_batch_range tdict_epoch_plan_at(const tdict_epoch_plan *plan, int64_t batch);
void tdict_epoch_plan_reset(tdict_epoch_plan *plan);

/* epoch.c */

/* Plans an epoch over `num_indices` samples with the option plan_epoch. Fills the division, whose ranges the caller
 * frees also after a failure, and the plan's indices and hash. */
tdict_status tdict_epoch_call_program(tdict_epoch_plan *plan, tdict_division *division, const tdict_loader_options *o,
                                      int64_t num_indices, tdict_error *err);

/* epochs.c */

/* Makes an epoch over `length` samples. A negative `length` means a stream. The caller owns the reference out->sampler.
 * Returns TDICT_EINVAL if the options do not allow this length, for example because the sampler draws higher indices.
 * Also returns the errors of tdict_sampler_create(). */
tdict_status tdict_loader_plan_epoch(const tdict_loader *loader, int64_t length, tdict_loader_epoch *out,
                                     tdict_error *err);
/* Replaces the epoch of the loader. Takes over the reference epoch->sampler. The caller holds the lock, and no slot is
 * in use. */
void tdict_loader_replace_epoch(tdict_loader *loader, const tdict_loader_epoch *epoch);
/* Begins the next epoch with the current length of the dataset. Does nothing if the length does not vary, if the
 * current epoch has not been delivered to its end, or if `failure` is set. Call on the consumer's thread, without the
 * lock. Returns the errors of tdict_loader_plan_epoch(). */
tdict_status tdict_loader_begin_epoch(tdict_loader *loader, tdict_error *err);

/* workers.c */

/* Starts the threads. Returns TDICT_ENOMEM if a thread cannot start; the threads already started are then stopped. */
tdict_status tdict_loader_start_workers(tdict_loader *loader, tdict_error *err);
/* Stops and joins the threads. */
void tdict_loader_stop_workers(tdict_loader *loader);
/* Returns true if the next batch needs no plan, or if the plan exists. Otherwise makes the plan and returns false.
 * After false, the caller must check again whether a batch may begin. The caller holds the lock. The function releases
 * the lock while planning. */
bool tdict_loader_plan_next(tdict_loader *loader);
/* Begins the next batch and fills its slot on the calling thread. The plan must exist. The caller holds the lock. The
 * function releases the lock while fetching. Adds the time from `since_ns` to the fetch to the idle time. */
void tdict_loader_fill_next(tdict_loader *loader, int32_t worker, int64_t since_ns);
/* Ends the batch or plan that a function of the program has left by a C++ exception or a jump, so that the batch fails
 * and no call waits for it. Only a loader without workers can have such a batch. Also ends a pause that a function left
 * in this way. Call on the consumer's thread, at the begin of a call, with the lock. */
void tdict_loader_end_abandoned(tdict_loader *loader);
/* Waits until no worker is busy, drops all prefetched batches and continues at position `to`. The caller holds the
 * lock. The function releases the lock while waiting. */
void tdict_loader_seek(tdict_loader *loader, tdict_batch_position to);
/* Records the number of ready batches on the timeline. The caller holds the lock. */
void tdict_loader_trace_ready(const tdict_loader *loader);
/* Returns the position that follows `position` in an epoch of `num_batches`. If `position` is the end of an epoch,
 * returns the first batch of the next epoch. */
tdict_batch_position tdict_loader_next_position(int64_t num_batches, tdict_batch_position position);
static inline bool tdict_loader_is_stream(const tdict_loader *loader) { return !loader->epoch.sampler; }

/* skip.c */

/* Counts a sample or batch that is skipped because of the error `why`, and logs it; a sample only the first time. */
void tdict_loader_skip_sample(tdict_loader *loader, int64_t index, const tdict_error *why);
void tdict_loader_skip_batch(tdict_loader *loader, const tdict_error *why);

/* deliver.c */

/* Records the consumer's stream as a user of the previous batch, then releases the loader's reference to that batch.
 * Does nothing if there is no such batch. If tdict_record_stream() fails, returns its error and keeps the batch. */
tdict_status tdict_loader_finish_previous(tdict_loader *loader, tdict_error *err);

#endif
