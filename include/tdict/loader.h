/* Declares the loader. Its worker threads prepare batches ahead of the training loop. tdict_loader_next() delivers the
 * batches in order.
 *
 * A worker fetches samples into pinned memory and queues the copy to the device as soon as its batch is complete.
 * Batches are delivered in the order of the sampler, regardless of which worker finishes first. The samples of a batch
 * depend on the dataset, the sampler, the batch size and `max_tokens`, not on the number of workers. Near the end of
 * an epoch the workers begin batches of the next epoch, unless the dataset's `length_varies` is true.
 *
 * Each batch is a new tree, allocated from the pinned pool and the device's cache. The memory of a batch is reused
 * after the last reference is released and the streams that used the batch have finished. At most four batches are
 * copied to the device at once. The loader may keep the memory of up to four batches that the program has released,
 * until it sends later batches.
 *
 * Thread rule: one thread at a time calls tdict_loader_next(), tdict_loader_set_state() or tdict_loader_restart(); any
 * thread may call the other functions. Destroy a loader before its context, in the process that created it. */
#ifndef TDICT_LOADER_H
#define TDICT_LOADER_H

#include "tdict/combine.h"
#include "tdict/dataset.h"
#include "tdict/sampler.h"
#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

typedef struct tdict_loader tdict_loader;

/** Makes a batch from samples: a new tree of any tensors and objects, owned by the caller. Several threads call the
 *  function at once. The samples are borrowed for the call. The tensors of the batch should be allocated from @p
 *  memory. @p memory is pinned memory if batches are pinned or sent to a device. */
typedef tdict_status (*tdict_collate)(void *user, const tdict_tree *const *samples, int64_t count, tdict_memory *memory,
                                      tdict_tree **out, tdict_error *err);

typedef struct tdict_loader_options {
  size_t struct_size;
  int64_t batch_size; /**< samples in a batch; default 1 */
  /** Worker threads, 0 to 1024; default 4. If the number is 0, tdict_loader_next() makes the batch on the calling
   *  thread. */
  int32_t num_workers;
  /** Maximum number of batches that are begun and not yet delivered, up to 1048576; 0 (default): two for each
   *  worker. */
  int32_t prefetch;
  /** While prefetched batches hold at least this many bytes, the loader begins no other batch; 0 (default): no
   *  limit. */
  size_t prefetch_bytes;
  bool drop_last; /**< true: leaves out the last batch of an epoch if that batch has fewer than `batch_size` samples */
  /** true: draws samples in the order of a SHUFFLED sampler with `seed`. false (default): draws samples in sequence.
   *  `shuffle` must not be set together with `sampler`. */
  bool shuffle;
  uint64_t seed;
  /** The sampler that gives the order of samples; retained. NULL (default): see `shuffle`. The sampler's length must
   *  not exceed the dataset's length. For streams, `sampler` must be NULL. If the dataset's `length_varies` is true,
   *  the loader ignores the sampler's length: each epoch has a sampler with the same options and the length of the
   *  dataset. `num_samples` is then reduced where the length is too short, and the kind must not be WEIGHTED. */
  const tdict_sampler *sampler;
  tdict_device device; /**< device on which batches are delivered; all zero (default): the context's device */
  /** true: pins batches that are delivered on the cpu. Objects are pinned by their hooks. The context must have a
   *  device that reads pinned memory. Batches for a device are always fetched into pinned memory. */
  bool pin_memory;
  /** Makes batches from samples. NULL (default): the dataset writes rows into the batch, or the loader stacks the
   *  samples. */
  tdict_collate collate;
  void *user; /**< passed to `collate` */
  bool pad;   /**< true: pads samples of different lengths with `pad_value`, as tdict_pad_sequence() does */
  double pad_value;
  /** true: after an error, the next call of tdict_loader_next() returns the following batch. false (default): every
   *  call returns the error until tdict_loader_set_state(). */
  bool continue_on_error;
  /** Maximum time in nanoseconds that tdict_loader_next() waits for a worker, and for the device if `stream` is NULL; 0
   *  (default): no limit. */
  int64_t timeout_ns;
  /** This process takes the positions rank, rank + world_size, ... of each epoch. Default: rank 0, world_size 1. All
   *  ranks draw the same number of samples: the first samples of the epoch complete the last round. For streams, both
   *  fields must have their defaults. The same is required if `sampler` is set, because the sampler has a rank. */
  int32_t rank, world_size;
  /** true: tdict_loader_next() never returns a NULL batch. After the last batch of an epoch, it returns the first batch
   *  of the next epoch. tdict_loader_get_state() returns the number of the epoch. */
  bool endless;
  /** `pad`: the path of a tree of masks in the batch, as in tdict_pad_sequence(). NULL (default): no masks. Must live
   *  as long as the loader. */
  const char *pad_masks;
  /** Packs samples, as tdict_pack_sequence() does. The loader copies the struct, and replaces `memory`. The strings
   *  must live as long as the loader. NULL (default): does not pack. */
  const tdict_pack_options *pack;
  /** Maximum number of tokens in a batch; 0 (default): no limit. A batch takes samples in the order of the sampler
   *  until the next sample would exceed `max_tokens`, or the batch has `batch_size` samples. The dataset needs
   *  `sample_length`. The tokens of a batch are the sum of the lengths. If `pad` is set, they are the number of
   *  samples times the largest length. A sample that is longer than `max_tokens` is an error. With `drop_last`, the
   *  last batch is full if it has `batch_size` samples or exactly `max_tokens` tokens.
   *
   *  With several ranks, the samples of all ranks are divided into batches first. Each rank then takes the batches
   *  rank, rank + world_size, and so on. All ranks get the same number of batches: the first batches of the epoch
   *  complete the last round. If the sampler option `drop_uneven` is true, the last round is left out. */
  int64_t max_tokens;
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
 *  @param[in]  dataset  on success, the loader owns the dataset and calls its `release` when the loader is destroyed.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      the new loader; destroy it with tdict_loader_destroy().
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, an option is out of range, or two options contradict each
 *          other; #TDICT_EINVAL also if the sampler is longer than the dataset, the dataset has no function that
 *          fetches, or `endless` is set and an epoch has no batch; #TDICT_EINVAL also if `length_varies` is true
 *          and the length is negative or the sampler is WEIGHTED; an error of tdict_create_from() for the dataset's
 *          schema (err->path names the field); #TDICT_EINVAL a sample is longer than `max_tokens`, or
 *          `sample_length` returned a negative number; #TDICT_ENODEVICE the device is absent, or `pin_memory` is set
 *  and no device reads pinned memory; #TDICT_EFORKED the process is a fork of the process that created the context;
 *  #TDICT_ENOMEM host memory is exhausted, or a thread cannot be started. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_create(tdict_context *context, const tdict_dataset *dataset,
                                                           const tdict_loader_options *options, tdict_loader **out,
                                                           tdict_error *err);
/** @brief Stops the workers, and releases the dataset and the batches that were not delivered. NULL is allowed. Waits
 *  until running functions of the dataset have returned. Delivered batches are valid afterwards. Running copies to a
 *  device are cancelled, and their memory is kept until they have stopped. */
TDICT_API void tdict_loader_destroy(tdict_loader *loader);

/** @brief Returns the next batch, or NULL at the end of an epoch. After NULL the next epoch begins.
 *
 *  If the dataset's `length_varies` is true, an epoch begins with the call that returns its first batch. This call
 *  reads the length of the dataset, and then lets the workers fetch. The length is constant until the end of the epoch.
 *
 *  If @p stream is not NULL, the program may release the batch as soon as it has queued the work that uses the batch.
 *  The loader keeps the batch until the next call. The next call records the work queued on @p stream as a use of the
 *  batch.
 *  @param[in]  stream  a stream of the device that batches are delivered on. Work queued on the stream after this call
 *                      may use the batch. NULL: the call waits until the batch has arrived. The program then calls
 *                      tdict_record_stream() for each stream that uses the batch.
 *  @param[out] out     a new reference; NULL at the end of an epoch. If epochs have no batches, every call returns
 *                      NULL.
 *  @return #TDICT_OK; the error of fetching, collating, pinning or the transfer: its message begins with the index of
 *          the sample or the number of the batch; #TDICT_ETIMEDOUT the batch was not ready within `timeout_ns`, and the
 *          call may be repeated (the message names the worker and its samples, or the batch that has not arrived);
 *          #TDICT_EINVAL @p loader or @p out is NULL; #TDICT_EINVAL also if `endless` is set and an epoch had no batch,
 *          or if a length that varies is negative; #TDICT_ENOMEM an epoch cannot begin, and the call may be repeated;
 *          #TDICT_EWRONGDEVICE @p stream does not belong to the device of the batches; #TDICT_ECAPTURE @p stream is
 *          being captured; #TDICT_EFORKED the process is a fork of the process that created the loader.
 *  @note The stream is checked before a batch is taken, so an error does not lose a batch. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_next(tdict_loader *loader, const tdict_stream *stream,
                                                         tdict_tree **out, tdict_error *err);
/** @brief Returns the number of batches in an epoch; -1 for a stream. If the dataset's `length_varies` is true: in the
 *  epoch that began last, and before the first epoch, for the length at creation.
 *
 *  If `max_tokens` is set, epochs have different numbers of batches. The result then belongs to the epoch of the batch
 *  that was taken last. Before the first batch, the result belongs to the epoch that begins. */
TDICT_API int64_t tdict_loader_length(const tdict_loader *loader);
/** @brief Begins a new epoch, and drops prefetched batches. Clears an earlier failure.
 *
 *  If a batch of the current epoch was delivered, or failed, the next epoch begins. Otherwise the current epoch begins
 *  again. Waits until running functions of the dataset have returned. No batch that is returned later was fetched
 *  before the call. If the dataset's `length_varies` is true, the next call of tdict_loader_next() reads the length and
 *  lets the workers fetch.
 *  @return #TDICT_OK; #TDICT_EINVAL @p loader is NULL; #TDICT_EFORKED as for tdict_loader_next(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_restart(tdict_loader *loader, tdict_error *err);

/** Numbers of the batch that the last call of tdict_loader_next() returned. All numbers are 0 if that call returned no
 *  batch. */
typedef struct tdict_batch_info {
  size_t struct_size;
  int64_t epoch, batch; /**< the epoch, and the number of the batch in the epoch */
  int64_t num_samples;
  int64_t num_tokens; /**< packed or padded batches: the sum of the lengths of the samples; else 0 */
  int64_t max_seqlen; /**< packed or padded batches: the largest length; else 0 */
} tdict_batch_info;
static inline tdict_batch_info tdict_batch_info_default(void) {
  tdict_batch_info i;
  memset(&i, 0, sizeof i);
  i.struct_size = sizeof i;
  return i;
}
/** @brief Reads numbers of the last batch. The program need not copy `max_seqlen` from the device: attention kernels
 *  take it as a number of the host. Only the thread that calls tdict_loader_next() may call this function.
 *  @param[in,out] out  from tdict_batch_info_default(). At most `out->struct_size` bytes are written.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or struct_size is wrong. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_get_batch_info(const tdict_loader *loader, tdict_batch_info *out,
                                                                   tdict_error *err);

/** The position of a loader, and the settings that its order of samples depends on. All fields are numbers, so a
 *  program may save the struct in any format. The rank is not part of the state, so one state serves all ranks. */
typedef struct tdict_loader_state {
  size_t struct_size;
  int64_t epoch, batch;   /**< the epoch, and how many of its batches were delivered */
  int64_t dataset_length; /**< samples in the dataset; -1: a stream */
  int64_t batch_size;
  int64_t num_indices;   /**< the length of the sampler; -1: a stream */
  int64_t num_samples;   /**< samples of an epoch, before its last round is completed or left out; -1: a stream */
  int64_t rank_samples;  /**< samples that each rank draws in an epoch; -1: a stream */
  uint64_t seed;         /**< seed of the sampler; 0 if its order is not random */
  uint64_t weights_hash; /**< a hash of the weights of a WEIGHTED sampler; else 0 */
  int32_t sampler_kind;  /**< a tdict_sampler_kind; -1: a stream */
  int32_t world_size;
  int64_t max_tokens;     /**< tokens in a batch; 0: no limit */
  int64_t counts_padding; /**< 1: `max_tokens` counts padding; else 0 */
} tdict_loader_state;
static inline tdict_loader_state tdict_loader_state_default(void) {
  tdict_loader_state s;
  memset(&s, 0, sizeof s);
  s.struct_size = sizeof s;
  return s;
}
/** @brief Reads the state of the loader. Prefetched batches do not count as delivered.
 *  @param[in,out] out  from tdict_loader_state_default(). At most `out->struct_size` bytes are written.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or struct_size is wrong; #TDICT_EFORKED as for
 *          tdict_loader_next(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_get_state(tdict_loader *loader, tdict_loader_state *out,
                                                              tdict_error *err);
/** @brief Moves the loader to the position of a saved state, and drops prefetched batches. Clears an earlier failure.
 *
 *  If the dataset's `length_varies` is true, `dataset_length` may differ from the current length. If `batch` is above
 *  0, the epoch continues with `dataset_length` samples, which the dataset must have. If `batch` is 0, the epoch begins
 *  with the length that the dataset has at the next call of tdict_loader_next().
 *  @param[in] state  from tdict_loader_get_state(). A program may change `epoch` and `batch` in it.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or an older version saved the state; #TDICT_EINVAL also if the
 *          state belongs to a loader with another order of samples (the message names the difference); #TDICT_EINVAL
 *          also if the epoch is negative or above INT64_MAX / 2, or has fewer batches than `batch`; #TDICT_EINVAL
 *          also if `batch` is above 0 and `dataset_length` exceeds a length that varies; #TDICT_ENOMEM; #TDICT_EFORKED
 *          as for tdict_loader_next(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_set_state(tdict_loader *loader, const tdict_loader_state *state,
                                                              tdict_error *err);

/** Statistics of a loader since it was created. A timeline (tdict/trace.h) shows fetches and ready batches over
 *  time. */
typedef struct tdict_loader_stats {
  size_t struct_size;
  int64_t num_batches, num_samples, num_errors; /**< batches delivered, their samples, and errors returned */
  size_t total_bytes;                           /**< bytes of delivered batches */
  double wait_seconds;                          /**< time that the program spent in tdict_loader_next() */
  double fetch_seconds;                         /**< time spent fetching and collating, summed over all workers */
  double idle_seconds; /**< time that workers waited to begin or to send a batch, summed over all workers */
  double mean_ready;   /**< mean number of ready batches at the calls of tdict_loader_next() */
  int32_t num_ready;   /**< batches that are ready now */
} tdict_loader_stats;
static inline tdict_loader_stats tdict_loader_stats_default(void) {
  tdict_loader_stats s;
  memset(&s, 0, sizeof s);
  s.struct_size = sizeof s;
  return s;
}
/** @brief Reads the statistics.
 *  @param[in,out] out  from tdict_loader_stats_default(). At most `out->struct_size` bytes are written.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or struct_size is wrong; #TDICT_EFORKED as for
 *          tdict_loader_next(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_get_stats(tdict_loader *loader, tdict_loader_stats *out,
                                                              tdict_error *err);

TDICT_END_DECLS
#endif
