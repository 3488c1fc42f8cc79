/* Declares the loader. Worker threads of the loader prepare batches before the program needs them. The function
 * tdict_loader_next() delivers the batches in order.
 *
 * Workers. A worker fetches the samples of a batch. If batches are delivered on a device other than the cpu, the worker
 * makes the batch in pinned memory, and queues the copy to the device when the batch is complete. Batches are delivered
 * in the order of the sampler, even if workers finish in another order. The samples of a batch do not depend on the
 * number of workers. Near the end of an epoch, the workers begin batches of the next epoch. If the dataset is a stream,
 * or if its `length_varies` is true, the workers first wait until tdict_loader_next() has reached the end of the epoch.
 *
 * Batches. Each batch is a new tree. The memory of a batch stays valid until the last reference to the batch is
 * released and the work that tdict_record_stream() has recorded is done. A worker sends a batch to the device when the
 * batch that was sent four batches before has arrived. Therefore, at most four batches and one more for each worker are
 * copied at the same time. The loader may keep the memory of as many batches that the program has released. When the
 * loader queues the copies of later batches, the loader drops this memory.
 *
 * Thread rule: tdict_loader_next(), tdict_loader_set_state(), tdict_loader_restart() and tdict_loader_get_batch_info()
 * must not run at the same time. Any thread may call the other functions at any time, but no call may run during or
 * after tdict_loader_destroy(). Destroy a loader before its context, in the process that created the loader. */
#ifndef TDICT_LOADER_H
#define TDICT_LOADER_H

#include "tdict/dataset.h"
#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

typedef struct tdict_loader tdict_loader;
struct tdict_sampler;      /* tdict/sampler.h */
struct tdict_pack_options; /* tdict/combine.h */

/** Makes a batch from samples. The batch is a new tree of any tensors and objects, and the loader owns the tree.
 *  Several workers may call the function at the same time. If the function returns a number that is not a tdict_status,
 *  the loader reports #TDICT_EHOOK. The function borrows the samples for the call. The tensors of the batch should be
 *  allocated from @p memory. If batches are pinned or sent to a device, @p memory is pinned memory. Otherwise @p memory
 *  is NULL. */
typedef tdict_status (*tdict_collate)(void *user, const tdict_tree *const *samples, size_t count, tdict_memory *memory,
                                      tdict_tree **out, tdict_error *err);

typedef struct tdict_loader_options {
  size_t struct_size;
  int64_t batch_size; /**< samples in a batch; default 1 */
  /** Number of worker threads, 0 to 1024; default 4. If the number is 0, tdict_loader_next() makes the batch on the
   *  calling thread. */
  int32_t num_workers;
  /** Maximum number of batches that workers have begun and the program has not received: 1 to 1048576. 0 (default): two
   *  batches for each worker. If `num_workers` is 0, `prefetch` has no effect. */
  int32_t prefetch;
  /** While the prefetched batches have at least this many bytes, no worker begins another batch. A batch that a worker
   *  is still making counts with the size of the last complete batch. The limit always allows one prefetched batch. 0
   *  (default): no limit. */
  size_t prefetch_bytes;
  bool drop_last; /**< true: leaves out the last batch of an epoch if it has fewer than `batch_size` samples */
  /** true: draws samples in the order of a SHUFFLED sampler with `seed`. false (default): draws samples in the order of
   *  their indices. For streams, and if `sampler` is set, `shuffle` must be false. */
  bool shuffle;
  uint64_t seed;
  /** The sampler that gives the order of samples; retained. NULL (default): see `shuffle`. All indices of the sampler
   *  must be below the length of the dataset. For streams, `sampler` must be NULL.
   *
   *  If the dataset's `length_varies` is true, each epoch uses a new sampler with the options of `sampler` and the
   *  current length of the dataset. If `num_samples` of `sampler` is too large for this length, the new sampler draws
   *  each index once. If `length_varies` is true, the kind of `sampler` must not be WEIGHTED. */
  const struct tdict_sampler *sampler;
  tdict_device device; /**< device of the delivered batches; all zero (default): the context's default device */
  /** true: pins batches that are delivered on the cpu, with their objects, see tdict_pin_memory(). The context must
   *  have a device that reads pinned memory. Batches for any other device are made in pinned memory, and their objects
   *  are pinned, even if this option is false. */
  bool pin_memory;
  /** Function that makes batches from samples. NULL (default): the dataset writes rows into the batch, or the loader
   *  stacks, pads or packs the samples. */
  tdict_collate collate;
  void *user; /**< passed to `collate` */
  bool pad;   /**< true: pads samples of different lengths with `pad_value`, as tdict_pad_sequence() does */
  double pad_value;
  /** true: after a batch has failed, the next call of tdict_loader_next() returns the next batch. If
   *  `continue_on_error` is false (default), every call returns the error of the failed batch until the program calls
   *  tdict_loader_set_state() or tdict_loader_restart(). */
  bool continue_on_error;
  /** Maximum time in nanoseconds that tdict_loader_next() waits. The call waits for a worker and, without a stream,
   *  for the device. 0 (default): no limit. */
  int64_t timeout_ns;
  /** The number of this process and the number of processes that share the samples. This process draws the samples at
   *  the positions rank, rank + world_size, ... of each epoch. Default: rank 0, world_size 1. All ranks draw the same
   *  number of samples. If the number of samples is not a multiple of `world_size`, the last ranks draw the first
   *  samples of the epoch again. For streams, and if `sampler` is set, `world_size` must be 1. A sampler has its own
   *  options `rank` and `world_size`. */
  int32_t rank, world_size;
  /** true: tdict_loader_next() never returns a NULL batch. After the last batch of an epoch, tdict_loader_next()
   *  returns the first batch of the next epoch. To learn the epoch of a batch, call tdict_loader_get_batch_info(). */
  bool endless;
  /** Path of a tree of masks in the batch, as in tdict_pad_sequence(). Requires `pad`. The string must live as long as
   *  the loader. NULL (default): no masks. */
  const char *pad_masks;
  /** Options with which the loader packs samples, see tdict_pack_sequence(). The loader copies the struct. The
   *  strings must live as long as the loader. NULL (default): samples are not packed. */
  const struct tdict_pack_options *pack;
  /** Maximum number of tokens in a batch; 0 (default): no limit. A batch takes samples in the order of the sampler,
   *  until the next sample would exceed `max_tokens` or the batch has `batch_size` samples. The dataset must have
   *  `length` and `sample_length`. The number of tokens of a batch is the sum of the results of `sample_length`. If
   *  `pad` is true, padding counts as tokens too. A sample that is longer than `max_tokens` is an error. If `drop_last`
   *  is true, a last batch with exactly `max_tokens` tokens is kept.
   *
   *  With several ranks, the samples of all ranks are divided into batches first. Each rank then takes the batches
   *  rank, rank + world_size, and so on. All ranks take the same number of batches. If the number of batches is not a
   *  multiple of `world_size`, the last ranks take the first batches of the epoch again. If the sampler option
   *  `drop_uneven` is true, the last, incomplete round of batches is left out instead. */
  int64_t max_tokens;
  /** Tensors of the batches to convert to other dtypes, see tdict/wire.h. The conversions and their strings must live
   *  as long as the loader. NULL (default): no conversions. If a pattern matches no tensor of a batch, the
   *  batch fails, unless the pattern begins with `?`. For a batch on a device, threads of the context or
   *  kernels convert during the transfer. For a batch on the cpu, the worker converts. */
  const tdict_conversion *conversions;
  size_t num_conversions; /**< number of elements in `conversions`; default 0 */
  /** true: integers and bools of batches travel to a device in fewer bytes, see tdict/wire.h. Has an effect only for
   *  batches that `collate` makes in ordinary memory. Batches that the loader itself makes are in pinned memory.
   *  Default false. */
  bool narrow;
  /** true: objects whose type has neither `to_device` nor `flatten` stay on the cpu, and tdict_loader_stats counts
   *  them. false (default): a batch with such an object fails with #TDICT_ENOTSUP. Has an effect only for batches on a
   *  device. */
  bool keep_objects;
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
 *  @param[in]  dataset  retained until tdict_loader_destroy().
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      the new loader; destroy it with tdict_loader_destroy().
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, an option is out of range, or two options contradict each
 *          other; #TDICT_EINVAL also if the sampler has indices that the dataset lacks, the dataset lacks a function
 *          that the options need, or `endless` is true and an epoch has no batch; #TDICT_EINVAL also if `length_varies`
 *          is true and the length is negative or the sampler is WEIGHTED; #TDICT_EINVAL also for an invalid conversion;
 *          #TDICT_EDTYPE a conversion names an unknown dtype; an error of tdict_create_from() for the dataset's fields
 *          (err->path names the field); #TDICT_EINVAL also if a sample of the first epoch is longer than `max_tokens`,
 *          or `sample_length` returned a negative number; #TDICT_ENODEVICE the device is absent, or `pin_memory` is set
 *          and no device reads pinned memory; #TDICT_EDEVICE the driver failed; #TDICT_EFORKED the process is a fork of
 *          the process that created the context; #TDICT_ENOMEM host memory is exhausted, or a thread cannot be
 *          started. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_create(tdict_context *context, const tdict_dataset *dataset,
                                                           const tdict_loader_options *options, tdict_loader **out,
                                                           tdict_error *err);
/** @brief Stops the workers, and releases the batches that were not delivered and the loader's reference to the
 *  dataset. NULL is allowed. The call waits until running functions of the dataset and running calls of `collate` have
 *  returned. Delivered batches stay valid. Running copies to a device are cancelled. The library frees the source and
 *  the destination of such a copy after the copy has stopped. */
TDICT_API void tdict_loader_destroy(tdict_loader *loader);

/** @brief Returns the next batch, or NULL at the end of an epoch. The call after NULL returns the first batch of the
 *  next epoch.
 *
 *  If the dataset's `length_varies` is true, an epoch begins in the call that returns its first batch. This call reads
 *  the length of the dataset. The workers fetch no batch of the epoch before this call. The loader uses this length
 *  until the end of the epoch.
 *
 *  If there is a stream, the program may release the batch as soon as the program has queued the work that uses the
 *  batch. The loader keeps the batch until the next call of tdict_loader_next() or tdict_loader_destroy(). That call
 *  records the work queued on @p stream as a use of the batch, see tdict_record_stream(), and then releases the batch.
 *  @param[in]  stream  a stream of the device of the batches. For pinned batches on the cpu, @p stream is a stream of
 *                      the GPU that pins the batches. Work queued on the stream after this call may use the batch.
 *                      tdict_no_stream(): the call waits until the batch has arrived on the device. The program then
 *                      calls tdict_record_stream() for each stream that uses the batch.
 *  @param[out] out     a new reference; NULL at the end of an epoch. If epochs have no batches, every call returns
 *                      NULL.
 *  @return #TDICT_OK; the error of fetching, collating or pinning (the message names the sample or the batch); the
 *          error of the transfer; #TDICT_ETIMEDOUT the batch was not ready within `timeout_ns`, and the call may be
 *          repeated; #TDICT_EINVAL @p loader or @p out is NULL; #TDICT_EINVAL also if `endless` is true and an epoch
 *          had no batch, or if the dataset's `length_varies` is true and the length is negative; #TDICT_EINVAL also if
 *          a sample of the epoch is longer than `max_tokens`, or `sample_length` returned a wrong number; #TDICT_ENOMEM
 *          host memory was exhausted before the call took a batch, and the call may be repeated; #TDICT_EWRONGDEVICE @p
 *          stream belongs to another device; #TDICT_ECAPTURE @p stream is being captured; the errors of
 *          tdict_record_stream() for the previous batch; #TDICT_EFORKED the process is a fork of the process that
 *          created the loader.
 *  @note The call checks @p stream before it takes a batch. If this check fails, no batch is lost. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_next(tdict_loader *loader, tdict_stream stream, tdict_tree **out,
                                                         tdict_error *err);
/** @brief Returns the number of batches in an epoch, or -1 for a stream. If the dataset's `length_varies` is true, the
 *  function returns the number for the epoch that began last. Before the first epoch, the function uses the length of
 *  the dataset at the creation of the loader.
 *
 *  If `max_tokens` is set, epochs may have different numbers of batches. In this case, the function returns the number
 *  for the epoch of the last batch that tdict_loader_next() took. Before the first batch, the function returns the
 *  number for the first epoch. After tdict_loader_set_state(), the function returns the number for the epoch of the
 *  state, until the next epoch begins. */
TDICT_API int64_t tdict_loader_length(const tdict_loader *loader);
/** @brief Begins a new epoch, and drops prefetched batches. Clears an earlier failure.
 *
 *  If a batch of the current epoch was delivered or failed, the next epoch begins. Otherwise the current epoch begins
 *  again. The call waits until running functions of the dataset and running calls of `collate` have returned. All later
 *  batches are fetched after this call. If the dataset's `length_varies` is true, the next call of tdict_loader_next()
 *  reads the length of the dataset.
 *  @return #TDICT_OK; #TDICT_EINVAL @p loader is NULL; #TDICT_EFORKED as for tdict_loader_next(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_restart(tdict_loader *loader, tdict_error *err);

/** Describes the batch that the last call of tdict_loader_next() returned. If that call returned no batch, all numbers
 *  are 0. */
typedef struct tdict_batch_info {
  size_t struct_size;
  int64_t epoch, batch; /**< the epoch, and the number of the batch in the epoch; both count from 0 */
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
/** @brief Describes the batch that the last call of tdict_loader_next() returned. Attention kernels take `max_seqlen`
 *  as an argument from the host. This function returns `max_seqlen` without a copy from the device.
 *  @param[in,out] out  from tdict_batch_info_default(). At most `out->struct_size` bytes are written.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or struct_size is wrong. */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_get_batch_info(const tdict_loader *loader, tdict_batch_info *out,
                                                                   tdict_error *err);

/** The position of a loader, and the settings that determine the order of samples. All fields are numbers, so a program
 *  may save the struct in any format. The rank is not part of the state, so all ranks may use one state.
 *
 *  If a state is read after the last batch of an epoch, and before tdict_loader_next() returns NULL, the first call
 *  after tdict_loader_set_state() returns NULL.
 *
 *  A program may save the bytes of the struct. The bytes are valid in all processes with the same byte order and
 *  the same version of the library. A later version may append fields, and then refuses the shorter struct of an
 *  earlier version. To resume with any version, save the numbers `epoch` and `batch`. Write these numbers into a
 *  state that tdict_loader_get_state() returned for the new loader. The settings of the two loaders are then not
 *  compared. If `order_version` of the two states differs, begin the epoch again with `batch` 0. The later batches
 *  of the epoch would repeat some samples and lack others. */
typedef struct tdict_loader_state {
  size_t struct_size;
  int64_t epoch, batch;   /**< the epoch, from 0, and how many batches of this epoch were delivered or failed */
  int64_t dataset_length; /**< samples in the dataset; -1: a stream */
  int64_t batch_size;
  int64_t num_indices;   /**< the number of indices of the sampler; -1: a stream */
  int64_t num_samples;   /**< samples of an epoch, for all ranks together; -1: a stream */
  int64_t rank_samples;  /**< samples that each rank draws in an epoch; -1: a stream */
  uint64_t seed;         /**< seed of the sampler; 0 if the sampler is SEQUENTIAL */
  uint64_t weights_hash; /**< a hash of the weights of a WEIGHTED sampler; else 0 */
  int32_t sampler_kind;  /**< a tdict_sampler_kind; -1: a stream */
  int32_t world_size;
  int64_t max_tokens;     /**< the option `max_tokens`; 0: no limit */
  int64_t counts_padding; /**< 1: `max_tokens` counts padding; else 0 */
  int64_t order_version;  /**< rises if a version of the library draws samples in other orders; now 2 */
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
 *  0, the epoch continues with `dataset_length` samples, and the dataset must have at least this many samples. If
 *  `batch` is 0, the next call of tdict_loader_next() reads the length of the epoch.
 *  @param[in] state  from tdict_loader_get_state(). A program may change the fields `epoch` and `batch`.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or another version saved the state; #TDICT_EINVAL also if
 *          struct_size is damaged (no byte after struct_size is then read); #TDICT_EINVAL also if the state belongs to
 *          a loader with another order of samples (the message names the difference); #TDICT_EINVAL also if the epoch
 *          is negative or above INT64_MAX / 2, or has fewer batches than `batch`; #TDICT_EINVAL also if `batch` is
 *          above 0 and `dataset_length` exceeds the current length; #TDICT_EINVAL also if a sample of the epoch is
 *          longer than `max_tokens`, or `sample_length` returned a negative number; #TDICT_ENOMEM; #TDICT_EFORKED as
 *          for tdict_loader_next(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_loader_set_state(tdict_loader *loader, const tdict_loader_state *state,
                                                              tdict_error *err);

/** Statistics of a loader since its creation. A timeline (tdict/trace.h) shows fetches and ready batches over time. */
typedef struct tdict_loader_stats {
  size_t struct_size;
  int64_t num_batches, num_samples, num_errors; /**< delivered batches, their samples, and failed batches */
  size_t total_bytes;                           /**< bytes of delivered batches */
  double wait_seconds;                          /**< time that the program spent in tdict_loader_next() */
  double fetch_seconds;                         /**< time that workers spent making batches, summed over all workers */
  double idle_seconds;                          /**< time that workers waited to begin, to fetch in order, or to send a
                                                     batch, summed over all workers */
  double mean_ready;                            /**< mean number of ready batches at the calls of tdict_loader_next() */
  int32_t num_ready;                            /**< batches that are ready now */
  /** Objects in delivered batches that the loader pinned, that it could not pin, and that `keep_objects` left on the
   *  cpu, as in tdict_transfer_stats. 0 if batches are delivered on the cpu and `pin_memory` is false. */
  int64_t num_objects_pinned, num_objects_unpinned, num_objects_kept;
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
