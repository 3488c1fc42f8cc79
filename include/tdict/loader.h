/* The loader: batches without waiting. Worker threads fetch samples straight into pinned memory, send each batch to the
 * device as soon as it is whole, and hand batches over in order, whatever the workers' speed [T:loader_keeps_order].
 *
 * Which samples make a batch depends on the sampler alone, never on the number of workers
 * [T:loader_same_batches_for_any_workers]. Workers go on into the next epoch while the last batches of this one are used.
 * Batches are new trees from the pinned pool and the device's cache, and their memory goes back there when the last
 * holder lets go and the streams that used it are done [T:loader_reuses_memory]. At most four batches travel at once
 * [T:loader_sends_few_at_once]; those of them that were released the loader may keep until it sends others.
 * Thread rule: next and set_state by one thread at a time; the others from any thread. A loader ends before its context,
 * and belongs to the process that made it. */
#ifndef TDICT_LOADER_H
#define TDICT_LOADER_H

#include "tdict/dataset.h"
#include "tdict/sampler.h"
#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

typedef struct tdict_loader tdict_loader;

/** Makes a batch of samples, which stay the loader's: a new tree, of any tensors and objects. @p memory is where its
 *  tensors should come from (pinned, where the loader pins). Called from several threads at once. */
typedef tdict_status (*tdict_collate)(void *user, const tdict_tree *const *samples, int64_t count, tdict_memory *memory,
                                      tdict_tree **out, tdict_error *err);

typedef struct tdict_loader_options {
  size_t struct_size;
  int64_t batch_size;  /**< samples in a batch; default 1 */
  int32_t num_workers; /**< threads of the loader's own, to 1024; 0: tdict_loader_next() does it all; default 4 */
  int32_t prefetch;    /**< the most batches begun and not handed over, to 1048576; 0 (default): two for each worker */
  size_t prefetch_bytes; /**< no batch is begun while those ahead hold as much; 0 (default): no limit
                              [T:loader_bounds_what_is_ahead] */
  bool drop_last;        /**< a last batch with fewer samples is left out [T:loader_drop_last] */
  bool shuffle;          /**< without `sampler`: SHUFFLED by `seed` instead of SEQUENTIAL */
  uint64_t seed;
  const tdict_sampler
      *sampler;        /**< retained; its indices must be those of the dataset [T:loader_follows_the_sampler]; NULL: see
                            `shuffle`. Not for streams */
  tdict_device device; /**< where batches are handed over; all zero (default): the context's own */
  bool pin_memory;     /**< batches handed over on the cpu are pinned, objects by their hooks [T:loader_pins_objects];
                              what goes to a device always is on its way */
  tdict_collate collate; /**< makes batches from samples; NULL (default): rows are written into the batch, or samples
                              stacked there: the one that travels [T:loader_joins_in_pinned_memory] */
  void *user;            /**< for `collate` */
  bool pad;              /**< samples of different lengths are padded as tdict_pad_sequence() does, with `pad_value` */
  double pad_value;
  bool continue_on_error; /**< after a failed batch the next call goes on with the one behind it; else (default) every
                               further call fails likewise until tdict_loader_set_state() [T:loader_errors_in_place] */
  int64_t timeout_ns;     /**< the longest that next waits for a worker [T:loader_tells_stuck_worker] and, without a
                               stream, for the device [T:loader_tells_stuck_device]; 0 (default): for ever */
} tdict_loader_options;
static inline tdict_loader_options tdict_loader_options_default(void) {
  tdict_loader_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.batch_size = 1;
  o.num_workers = 4;
  return o;
}

/** @brief Makes a loader and starts its workers.
 *  @param[in] dataset  taken, on success only: its `release` is called when the loader ends [T:loader_takes_dataset].
 *  @param[in] options  NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_EINVAL an option out of range, or a dataset without a way to fetch [T:loader_refuses];
 *          #TDICT_ENODEVICE [T:loader_refuses]; #TDICT_EFORKED [T:loader_fork_is_refused]; #TDICT_ENOMEM, also when a
 *          thread cannot be started. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_create(tdict_context *context, const tdict_dataset *dataset,
                                                           const tdict_loader_options *options, tdict_loader **out,
                                                           tdict_error *err);
/** @brief Stops the workers, waits for the calls that they are in, releases what was not handed over and the dataset; NULL
 *  is allowed. Batches that were handed over live on [T:loader_destroy_in_any_state]; what is on its way to a device is
 *  cancelled, and held until it has stopped. */
TDICT_API void tdict_loader_destroy(tdict_loader *loader);

/** @brief The next batch, or the end of an epoch; the call after an end begins the next epoch [T:loader_ends_epochs].
 *  @param[in]  stream  of the device that batches come to: the batch is ready for work queued on it from now on, and the
 *                      loader keeps the batch until its next call, which records the stream's work as its use: a program
 *                      may release the batch as soon as it has queued its kernels [T:loader_orders_the_stream]. NULL:
 *                      the batch is there on return, and is the caller's to guard (tdict_record_stream()).
 *  @param[out] out     a new reference; NULL at the end of an epoch. An epoch may have no batch at all (an empty dataset,
 *                      or with drop_last fewer samples than a batch has): every call then gives NULL.
 *  @return #TDICT_OK; what fetching, collating, pinning or the transfer answered: the message begins with the sample's
 *          index where one was fetched, else with the batch's number, and goes on with what the function said
 *          [T:loader_errors_in_place]; #TDICT_ETIMEDOUT, naming the worker and what it fetches, or the batch that the
 *          device has not got; the call may be repeated [T:loader_tells_stuck_worker] [T:loader_tells_stuck_device];
 *          #TDICT_EWRONGDEVICE @p stream is not of the device that batches come to, #TDICT_ECAPTURE it is being captured:
 *          checked first, and no batch is lost [T:loader_checks_the_stream_first]; #TDICT_EINVAL a NULL;
 *          #TDICT_EFORKED [T:loader_fork_is_refused]. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_next(tdict_loader *loader, const tdict_stream *stream,
                                                         tdict_tree **out, tdict_error *err);
/** @brief Batches in an epoch; -1 for a stream [T:loader_drop_last]. */
TDICT_API int64_t tdict_loader_length(const tdict_loader *loader);

/** Where a loader stands: plain numbers, to be saved as the program likes. */
typedef struct tdict_loader_state {
  size_t struct_size;
  int64_t epoch, batch; /**< of the batch that comes next */
  int64_t length,
      batch_size; /**< of the sampler (-1: stream) and of batches: must be those of the loader that is set */
} tdict_loader_state;
static inline tdict_loader_state tdict_loader_state_default(void) {
  tdict_loader_state s;
  memset(&s, 0, sizeof s);
  s.struct_size = sizeof s;
  return s;
}
/** @brief Reads where the loader stands: what was prefetched does not count as handed over [T:loader_state_restores].
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL; #TDICT_EFORKED [T:loader_fork_is_refused]. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_get_state(tdict_loader *loader, tdict_loader_state *out,
                                                              tdict_error *err);
/** @brief Goes on from a state, or from an epoch's beginning with epoch set and batch 0; what was prefetched is dropped
 *  [T:loader_state_restores].
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL, another length or batch size, or no such batch
 *          [T:loader_state_refuses]; #TDICT_EFORKED [T:loader_fork_is_refused]. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_set_state(tdict_loader *loader, const tdict_loader_state *state,
                                                              tdict_error *err);

/** What a loader did since it was made [T:loader_counts]. Over time, tdict/trace.h shows it. */
typedef struct tdict_loader_stats {
  size_t struct_size;
  int64_t num_batches, num_samples, num_errors; /**< handed over */
  size_t total_bytes;                           /**< of batches handed over */
  double wait_seconds;                          /**< the consumer's, in next [T:loader_counts_waiting] */
  double fetch_seconds;                         /**< fetching and collating, summed over workers */
  double idle_seconds;                          /**< workers waiting for room, or until others had been sent, summed */
  double mean_ready;                            /**< batches that were ready when next was called, on average */
  int32_t num_ready;                            /**< and now */
} tdict_loader_stats;
static inline tdict_loader_stats tdict_loader_stats_default(void) {
  tdict_loader_stats s;
  memset(&s, 0, sizeof s);
  s.struct_size = sizeof s;
  return s;
}
/** @brief Reads the statistics.
 *  @param[in,out] out  its struct_size says how much is written.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL [T:loader_counts]; #TDICT_EFORKED [T:loader_fork_is_refused]. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_get_stats(tdict_loader *loader, tdict_loader_stats *out,
                                                              tdict_error *err);

TDICT_END_DECLS
#endif
