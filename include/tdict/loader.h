/* The loader: worker threads prepare batches ahead of the training loop, and tdict_loader_next() hands them over in
 * order.
 *
 * A worker fetches samples into pinned memory and queues the copy to the device as soon as its batch is complete.
 * Batches are handed over in the order of the sampler, whichever worker is first. The samples of a batch depend on the
 * dataset, the sampler and the batch size, not on the number of workers. Near the end of an epoch the workers start on
 * the next epoch.
 *
 * Each batch is a new tree. Its memory comes from the pinned pool and the device's cache. The memory is reused when the
 * last reference is released and the streams that used the batch have finished. At most four batches are copied to the
 * device at once. The loader may keep up to four batches that the program has released, until it sends others.
 *
 * Thread rule: one thread at a time calls tdict_loader_next() or tdict_loader_set_state(); any thread may call the
 * other functions. Destroy a loader before its context, in the process that created it. */
#ifndef TDICT_LOADER_H
#define TDICT_LOADER_H

#include "tdict/dataset.h"
#include "tdict/sampler.h"
#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

typedef struct tdict_loader tdict_loader;

/** Makes a batch from samples: a new tree of any tensors and objects. The samples stay the loader's. Several threads
 *  call it at once. @p memory is where the tensors of the batch should be allocated; it is pinned memory if the loader
 *  pins. */
typedef tdict_status (*tdict_collate)(void *user, const tdict_tree *const *samples, int64_t count, tdict_memory *memory,
                                      tdict_tree **out, tdict_error *err);

typedef struct tdict_loader_options {
  size_t struct_size;
  int64_t batch_size; /**< samples in a batch; default 1 */
  /** Threads of the loader, 0 to 1024; default 4. With 0 tdict_loader_next() does the work. */
  int32_t num_workers;
  /** The most batches that are begun and not handed over, up to 1048576; 0 (default): two for each worker. */
  int32_t prefetch;
  /** No batch is begun while the batches ahead hold this many bytes; 0 (default): no limit. */
  size_t prefetch_bytes;
  bool drop_last; /**< leaves out a last batch of an epoch that is not full */
  /** Draws samples in the order of a SHUFFLED sampler with `seed`; else in sequence. Must not be set beside
   *  `sampler`. */
  bool shuffle;
  uint64_t seed;
  /** Retained; NULL (default): see `shuffle`. Its indices must be smaller than the dataset's length. Not for
   *  streams. */
  const tdict_sampler *sampler;
  tdict_device device; /**< where batches are handed over; all zero (default): the context's device */
  /** Pins batches that are handed over on the cpu, objects by their hooks. The context must have a device that reads
   *  pinned memory. Batches for a device are always fetched into pinned memory. */
  bool pin_memory;
  /** Makes batches from samples. NULL (default): rows are written into the batch, or samples are stacked in the memory
   *  that the batch is sent from. */
  tdict_collate collate;
  void *user; /**< passed to `collate` */
  bool pad;   /**< pads samples of different lengths with `pad_value`, as tdict_pad_sequence() does */
  double pad_value;
  /** After a failed batch the next call returns the batch after it. Else (default) every call returns the error until
   *  tdict_loader_set_state(). */
  bool continue_on_error;
  /** The longest time that tdict_loader_next() waits for a worker and, without a stream, for the device; 0 (default):
   *  no limit. */
  int64_t timeout_ns;
  /** This process takes positions rank, rank + world_size, ... of each epoch; default 0 of 1. All ranks get equally
   *  many samples: the first samples of the epoch fill up the last round. Not beside `sampler`, which has its own, nor
   *  for streams. */
  int32_t rank, world_size;
  /** tdict_loader_next() never returns NULL: after an epoch it goes on with the next one. tdict_loader_get_state()
   *  tells the epoch and batch. */
  bool endless;
} tdict_loader_options;
static inline tdict_loader_options tdict_loader_options_default(void) {
  tdict_loader_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.batch_size = 1;
  o.num_workers = 4;
  o.world_size = 1;
  return o;
}

/** @brief Creates a loader and starts its workers.
 *  @param[in] dataset  taken over on success only. Its `release` is called when the loader is destroyed.
 *  @param[in] options  NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_EINVAL an option is out of range, two options contradict each other, the sampler is for
 *          more samples than the dataset has, or the dataset has no way to fetch; `endless` is set and an epoch has no
 *          batch; an error of tdict_create_from() in the dataset's schema, err->path naming the field; #TDICT_ENODEVICE
 *          the device is absent, or `pin_memory` is set and no device reads pinned memory; #TDICT_EFORKED;
 *          #TDICT_ENOMEM, also if a thread cannot be started. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_create(tdict_context *context, const tdict_dataset *dataset,
                                                           const tdict_loader_options *options, tdict_loader **out,
                                                           tdict_error *err);
/** @brief Stops the workers and releases the batches that were not handed over, and the dataset; NULL is allowed. Waits
 *  for the calls of the dataset's functions that are running. Batches that were handed over stay valid. Copies to a
 *  device that are running are cancelled; their memory is kept until they have stopped. */
TDICT_API void tdict_loader_destroy(tdict_loader *loader);

/** @brief Returns the next batch, or NULL at the end of an epoch. The call after that begins the next epoch. With
 *  `endless` the same call begins the next epoch.
 *  @param[in]  stream  a stream of the device that batches are handed over on. Work that is queued on it after this
 *                      call may use the batch. The program may release the batch as soon as it has queued that work:
 *                      the loader keeps the batch until the next call, which records the stream's work as a use of it.
 *                      NULL: the call waits until the batch has arrived, and the program calls tdict_record_stream()
 *                      where a stream uses it.
 *  @param[out] out     a new reference; NULL at the end of an epoch. An epoch of an empty dataset has no batch, nor has
 *                      one of fewer samples than a batch with `drop_last`: every call then returns NULL.
 *  @return #TDICT_OK; the error of fetching, collating, pinning or the transfer. Its message begins with the index of
 *          the sample that was fetched, else with the number of the batch; #TDICT_ETIMEDOUT, naming the worker and what
 *          it fetches, or the batch that has not arrived on the device. The call may be repeated; #TDICT_EINVAL a NULL,
 *          or with `endless` an epoch of a stream without a batch; #TDICT_EFORKED; #TDICT_EWRONGDEVICE @p stream is not
 *          of the device that batches come to, #TDICT_ECAPTURE it is being captured. The stream is checked first: no
 *          batch is lost then. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_next(tdict_loader *loader, const tdict_stream *stream,
                                                         tdict_tree **out, tdict_error *err);
/** @brief Returns the number of batches in an epoch; -1 for a stream. */
TDICT_API int64_t tdict_loader_length(const tdict_loader *loader);

/** Where a loader stands, and what its order of samples depends on. Plain numbers, which a program saves as it likes;
 *  the rank is not among them, so one state serves all ranks. */
typedef struct tdict_loader_state {
  size_t struct_size;
  int64_t epoch, batch;   /**< the epoch, and how many of its batches were handed over */
  int64_t dataset_length; /**< samples; -1: a stream */
  int64_t batch_size;
  int64_t num_indices;   /**< the sampler draws from 0 to num_indices - 1; -1: a stream */
  int64_t num_samples;   /**< drawn in an epoch by all ranks together; -1: a stream */
  int64_t rank_samples;  /**< of them, those of each rank; -1: a stream */
  uint64_t seed;         /**< 0 if the sampler uses none */
  uint64_t weights_hash; /**< of a WEIGHTED sampler's weights; else 0 */
  int32_t sampler_kind;  /**< a tdict_sampler_kind; -1: a stream */
  int32_t world_size;
} tdict_loader_state;
static inline tdict_loader_state tdict_loader_state_default(void) {
  tdict_loader_state s;
  memset(&s, 0, sizeof s);
  s.struct_size = sizeof s;
  return s;
}
/** @brief Reads where the loader stands. Batches that were prefetched do not count as handed over.
 *  @param[in,out] out  from tdict_loader_state_default(). At most its struct_size bytes are written.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL, or a struct_size that no default function wrote; #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_get_state(tdict_loader *loader, tdict_loader_state *out,
                                                              tdict_error *err);
/** @brief Moves the loader to the place that a state names, and drops prefetched batches.
 *  @param[in] state  from tdict_loader_get_state(). A program may change `epoch` and `batch` in it.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL; a state saved by an older version; a state of a loader with another order
 *          of samples, the message naming what differs; a negative epoch or batch, an epoch above half of int64's range
 *          or a batch that the epoch has not; #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_set_state(tdict_loader *loader, const tdict_loader_state *state,
                                                              tdict_error *err);

/** What a loader did since it was created. tdict/trace.h shows the same over time. */
typedef struct tdict_loader_stats {
  size_t struct_size;
  int64_t num_batches, num_samples, num_errors; /**< handed over */
  size_t total_bytes;                           /**< of batches handed over */
  double wait_seconds;                          /**< the program's, in tdict_loader_next() */
  double fetch_seconds;                         /**< fetching and collating, summed over workers */
  double idle_seconds;                          /**< workers waiting for room or for their turn to send, summed */
  double mean_ready;                            /**< batches that were ready when next was called, on average */
  int32_t num_ready;                            /**< batches that are ready now */
} tdict_loader_stats;
static inline tdict_loader_stats tdict_loader_stats_default(void) {
  tdict_loader_stats s;
  memset(&s, 0, sizeof s);
  s.struct_size = sizeof s;
  return s;
}
/** @brief Reads the statistics.
 *  @param[in,out] out  from tdict_loader_stats_default(). At most its struct_size bytes are written.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL, or a struct_size that no default function wrote; #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_get_stats(tdict_loader *loader, tdict_loader_stats *out,
                                                              tdict_error *err);

TDICT_END_DECLS
#endif
