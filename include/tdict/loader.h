/* Declares the loader. Its worker threads prepare batches before the program needs them, and tdict_loader_next()
 * delivers them in the order of the sampler. docs/loader.md explains batches, epochs, ranks and saved states.
 *
 * Errors of all functions that return a tdict_status:
 * - #TDICT_EINVAL: an argument is NULL, struct_size is wrong, or an option is out of range or contradicts another one.
 * - #TDICT_EFORKED: the process is a fork of the process that created the loader. #TDICT_ENOMEM.
 *
 * Thread rule: tdict_loader_next(), tdict_loader_set_state(), tdict_loader_restart() and tdict_loader_get_batch_info()
 * must not run at the same time. Any thread may call the other functions at any time. Destroy a loader before its
 * context, in the process that created the loader, and make no other call during or after the destruction. */
#ifndef TDICT_LOADER_H
#define TDICT_LOADER_H

#include "tdict/dataset.h"
#include "tdict/epoch.h"
#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

typedef struct tdict_loader tdict_loader;
struct tdict_sampler;      /* tdict/sampler.h */
struct tdict_pack_options; /* tdict/combine.h */

/** Makes a batch of samples: a new tree of any tensors and objects. Several workers may call the function at the same
 *  time. The samples are borrowed. @p info has the memory for the tensors. A number that is not a tdict_status, and
 *  #TDICT_OK without a tree, become #TDICT_EHOOK. */
typedef tdict_status (*tdict_collate)(void *user, const tdict_fetch_info *info, const tdict_tree *const *samples,
                                      size_t count, tdict_tree **out, tdict_error *err);

/** What happens if the samples of a batch cannot be fetched or collated. The two kinds that skip count each skip, and
 *  log it with the reason; a sample only once. A resumed loader skips the same ones. They skip at most 64 in a row.
 *  Other errors are handled as with FAIL, such as #TDICT_ENOMEM and errors of `open_worker` or of the device. */
typedef enum tdict_on_error {
  TDICT_ON_ERROR_FAIL,     /**< each call returns the error until the loader is restarted or moved */
  TDICT_ON_ERROR_CONTINUE, /**< one call returns the error, and the next call returns the next batch or plans again */
  /** The sample with the next index takes the place of a sample that cannot be fetched; index 0 follows the last one.
   *  Needs a dataset with a length, and with `fetch` or `fetch_sample`. Not with `max_tokens`. */
  TDICT_ON_ERROR_SKIP_SAMPLE,
  TDICT_ON_ERROR_SKIP_BATCH /**< the batch is left out; ranks can then have different numbers of batches */
} tdict_on_error;

typedef struct tdict_loader_options {
  size_t struct_size;
  int64_t batch_size;    /**< samples in a batch; default 1 */
  int32_t num_workers;   /**< worker threads, default 4. 0: tdict_loader_next() makes the batch itself */
  int32_t prefetch;      /**< most batches that workers have begun and the program has not received;
                              0 (default): two for each worker. No effect without workers */
  size_t prefetch_bytes; /**< no batch begins while prefetched batches have this many bytes or more; 0 (default): no
                              limit. A batch that is being made counts with the size of the last one */
  bool drop_last;        /**< true: leaves out the last batch of an epoch if it has fewer than `batch_size` samples and
                              `plan_epoch` has not ended it */
  bool shuffle;          /**< true: random order by `seed`; false (default): by index. Not with `sampler` or a stream */
  uint64_t seed;         /**< of `shuffle`, and of tdict_sample_seed() */
  /** Gives the order of samples; retained. NULL (default): see `shuffle`. If `length_varies`, each epoch uses the
   *  options of the sampler with the current length, and the kind must not be WEIGHTED. Not with a stream. */
  const struct tdict_sampler *sampler;
  tdict_device device;   /**< of the delivered batches; all zero (default): the context's default device */
  bool pin_memory;       /**< true: pins batches on the cpu and their objects, see tdict_pin_memory(). The context must
                            have a device that reads pinned memory. Batches for a device are always pinned */
  tdict_collate collate; /**< makes batches of samples; NULL (default): see `pad`, `pack` and the dataset */
  void *user;            /**< passed to `collate` */
  bool pad;              /**< true: pads samples of different lengths, as tdict_pad_sequence() does */
  double pad_value;
  int32_t on_error;   /**< a tdict_on_error; default TDICT_ON_ERROR_FAIL */
  int64_t timeout_ns; /**< longest wait for a worker, and without a stream for the device; 0 (default): no limit */
  /** This process draws the samples at the positions rank, rank + world_size, and so on. All ranks draw the same
   *  number. With `max_tokens` or `plan_epoch`, both hold for batches. Default: rank 0, world_size 1. With a `sampler`
   *  or a stream, world_size must be 1. */
  int32_t rank, world_size;
  bool endless;      /**< true: tdict_loader_next() returns no NULL batch, but the first batch of the next epoch */
  bool narrow;       /**< true: integers and bools of batches of `collate` in ordinary memory travel in fewer bits */
  bool keep_objects; /**< true: objects that no hook can move stay on the cpu; false (default): their batch fails */
  /** Path of the tree of masks, as in tdict_pad_sequence(); borrowed. Needs `pad`. NULL (default): none */
  const char *pad_masks;
  /** Packs samples, see tdict_pack_sequence(). Copied, but its strings are borrowed. NULL (default): no packing. */
  const struct tdict_pack_options *pack;
  /** Most tokens of a batch, by `sample_length` of the dataset; with `pad`, padding counts. A longer sample is an
   *  error. 0 (default): no limit. docs/loader.md says how ranks share such batches. */
  int64_t max_tokens;
  /** Dtypes of tensors of the batches, see tdict/wire.h; borrowed by the loader. */
  const tdict_conversion *conversions;
  size_t num_conversions; /**< number of elements in `conversions`; default 0 */
  /** Chooses the samples and batches of each epoch, see tdict/epoch.h. NULL (default): see `shuffle`. Not with
   *  `sampler`, `shuffle`, `max_tokens` or a stream. */
  tdict_plan_epoch plan_epoch;
  void *plan_user; /**< passed to `plan_epoch` */
} tdict_loader_options;
static inline tdict_loader_options tdict_loader_options_default(void) {
  tdict_loader_options o;
  tdict_init_struct_(o);
  o.batch_size = 1;
  o.num_workers = 4;
  o.world_size = 1;
  return o;
}

/** @brief Creates a loader and starts its workers. NULL options are the defaults.
 *  @param[in]  dataset  retained until tdict_loader_destroy().
 *  @param[out] out      the new loader; destroy it with tdict_loader_destroy().
 *  @return #TDICT_OK; #TDICT_EINVAL the dataset lacks indices of the sampler or a function that the options need, or
 *          `endless` is true and an epoch has no batch; #TDICT_ENODEVICE the device is absent, or none reads pinned
 *          memory; errors of tdict_create_from() for the fields of the dataset, of a conversion, and of `plan_epoch`;
 *          #TDICT_EDEVICE. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_create(tdict_context *context, const tdict_dataset *dataset,
                                                           const tdict_loader_options *options, tdict_loader **out,
                                                           tdict_error *err);
/** @brief Stops the workers, and releases the dataset and the batches that were not delivered. NULL is allowed.
 *
 *  Waits until running functions of the dataset and `collate` have returned. Running copies are cancelled, and their
 *  memory is freed after they have stopped. Delivered batches stay valid. */
TDICT_API void tdict_loader_destroy(tdict_loader *loader);

/** @brief Returns the next batch, or NULL at the end of an epoch. The next call then begins the next epoch.
 *
 *  If there is a stream, the program may release the batch as soon as it has queued the work that uses the batch. The
 *  loader keeps the batch until the next call, which records this work, see tdict_record_stream().
 *  @param[in]  stream  a stream of the device of the batches, or of the GPU that pins them. Work queued later may use
 *                      the batch. tdict_no_stream(): waits for the batch, and the program calls tdict_record_stream().
 *  @param[out] out     a new reference; NULL at the end of an epoch, and always if epochs have no batches.
 *  @return #TDICT_OK; the error of fetching, collating, pinning or moving the batch (the message names the sample or
 *          the batch); #TDICT_ETIMEDOUT not ready within `timeout_ns`, and the call may be repeated; #TDICT_ENOMEM
 *          before a batch was taken, and the call may be repeated; #TDICT_EINVAL `endless` is true and an epoch had
 *          no batch, or the dataset returned a wrong length; #TDICT_EWRONGDEVICE @p stream belongs to another
 *          device; #TDICT_ECAPTURE @p stream is being captured; errors of tdict_record_stream() for the previous
 *          batch. The stream is checked first, so no batch is lost. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_next(tdict_loader *loader, tdict_stream stream, tdict_tree **out,
                                                         tdict_error *err);
/** @brief Returns the number of batches in an epoch, or -1 for a stream.
 *  If epochs differ, of the epoch that began last; with `max_tokens` or `plan_epoch`, of that of the last batch. */
TDICT_API int64_t tdict_loader_length(const tdict_loader *loader);
/** @brief Begins a new epoch, drops prefetched batches, and clears a failure.
 *
 *  If a batch of the current epoch was delivered or failed, the next epoch begins, else the current one begins again.
 *  Waits until running functions of the dataset and `collate` have returned. Later batches are fetched after it. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_restart(tdict_loader *loader, tdict_error *err);

/** Describes the last batch. All numbers are 0 if the last call of tdict_loader_next() returned no batch. */
typedef struct tdict_batch_info {
  size_t struct_size;
  int64_t epoch, batch; /**< the epoch, and the number of the batch in the epoch; both count from 0 */
  int64_t num_samples;
  int64_t num_tokens; /**< packed or padded batches: the sum of all lengths, see docs/loader.md; else 0 */
  int64_t max_seqlen; /**< packed or padded batches: the largest length, on the host for attention kernels; else 0 */
} tdict_batch_info;
static inline tdict_batch_info tdict_batch_info_default(void) {
  tdict_batch_info i;
  tdict_init_struct_(i);
  return i;
}
/** @brief Describes the last batch of tdict_loader_next(). Writes at most `out->struct_size` bytes. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_get_batch_info(const tdict_loader *loader, tdict_batch_info *out,
                                                                   tdict_error *err);

/** The position of a loader, and the settings that determine the order of samples. A program may save the numbers, or
 *  the bytes for the same byte order and version of the library. One state serves all ranks. See docs/loader.md. */
typedef struct tdict_loader_state {
  size_t struct_size;
  int64_t epoch, batch;   /**< the epoch, from 0, and how many batches of this epoch were delivered or failed */
  int64_t dataset_length; /**< samples in the dataset; -1: a stream */
  int64_t batch_size;
  int64_t num_indices;   /**< the number of indices of the sampler; -1: a stream */
  int64_t num_samples;   /**< samples of an epoch, for all ranks together; -1: a stream or `plan_epoch` */
  int64_t rank_samples;  /**< samples that each rank draws in an epoch; -1: a stream or `plan_epoch` */
  uint64_t seed;         /**< seed of the sampler; 0 if the sampler is SEQUENTIAL */
  uint64_t weights_hash; /**< a hash of the weights of a WEIGHTED sampler; else 0 */
  int32_t sampler_kind;  /**< a tdict_sampler_kind; -1: a stream; -2: `plan_epoch` */
  int32_t world_size;
  int64_t max_tokens;     /**< the option `max_tokens`; 0: no limit */
  int64_t counts_padding; /**< 1: `max_tokens` counts padding; else 0 */
  uint64_t loader_seed;   /**< the option `seed`, from which the seeds of samples are made */
  int64_t order_version;  /**< rises if a version of the library draws samples in other orders; now 2 */
  uint64_t plan_hash;     /**< a hash of what `plan_epoch` planned for the epoch; 0: not compared, as if `batch` is 0 */
} tdict_loader_state;
static inline tdict_loader_state tdict_loader_state_default(void) {
  tdict_loader_state s;
  tdict_init_struct_(s);
  return s;
}
/** @brief Reads the state. Prefetched batches do not count. Writes at most `out->struct_size` bytes. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_get_state(tdict_loader *loader, tdict_loader_state *out,
                                                              tdict_error *err);
/** @brief Moves the loader to a saved position, drops prefetched batches, and clears a failure.
 *
 *  If `length_varies`, `dataset_length` may differ from the current length. An epoch with a `batch` above 0 continues
 *  with `dataset_length` samples, which the dataset must have. Another number of ranks may continue the epoch if it
 *  divides the number of batches that all ranks have taken.
 *  @param[in] state  from tdict_loader_get_state(). A program may change the fields `epoch` and `batch`. If it changes
 *                    `epoch`, it must also set `plan_hash` to 0.
 *  @return #TDICT_OK; #TDICT_EINVAL another version saved the state; the order of samples differs (the message says
 *          how); the epoch is negative or has fewer batches; or a sample is longer than `max_tokens`; errors of
 *          `plan_epoch`. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_set_state(tdict_loader *loader, const tdict_loader_state *state,
                                                              tdict_error *err);

/** Statistics of a loader since its creation. A timeline (tdict/trace.h) shows fetches and ready batches over time. */
typedef struct tdict_loader_stats {
  size_t struct_size;
  int64_t num_batches, num_samples, num_errors; /**< delivered batches, their samples, and failed batches */
  size_t total_bytes;                           /**< bytes of delivered batches */
  double wait_seconds;                          /**< time that the program spent in tdict_loader_next() */
  double fetch_seconds;                         /**< time that workers spent making batches, summed over all workers */
  double idle_seconds;                          /**< time of all workers that waited to begin, fetch or send a batch */
  double mean_ready;                            /**< mean number of ready batches at the calls of tdict_loader_next() */
  int32_t num_ready;                            /**< batches that are ready now */
  int64_t num_skipped_samples, num_skipped_batches; /**< by `on_error`; a sample counts each time that it is skipped */
  /** Objects of delivered batches that were pinned, could not be pinned, and stayed on the cpu by `keep_objects`. */
  int64_t num_objects_pinned, num_objects_unpinned, num_objects_kept;
} tdict_loader_stats;
static inline tdict_loader_stats tdict_loader_stats_default(void) {
  tdict_loader_stats s;
  tdict_init_struct_(s);
  return s;
}
/** @brief Reads the statistics. Writes at most `out->struct_size` bytes. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_get_stats(tdict_loader *loader, tdict_loader_stats *out,
                                                              tdict_error *err);

TDICT_END_DECLS
#endif
