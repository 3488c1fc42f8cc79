/* Declares datasets. A loader obtains its samples from a dataset. The samples come from a tree, files of tokens
 * (tdict/tokens.h), a callback, a replay buffer (tdict/replay.h), or a table of functions.
 *
 * Each sample has an index of 0 or more. A dataset should return equal samples for equal indices, so that a loader with
 * a restored state repeats its batches. For random samples, see docs/howto/augmentation.md.
 *
 * Errors of all functions: #TDICT_EINVAL an argument is NULL, or an option is out of range; #TDICT_ENOMEM.
 *
 * Ownership: reference counted. `out` is a new reference, written on success only. A loader retains its dataset, and
 * several loaders may use one dataset. Thread rule: any thread may call any function of this header. */
#ifndef TDICT_DATASET_H
#define TDICT_DATASET_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

typedef struct tdict_dataset tdict_dataset;

/** Says for which batch a loader calls a function of the dataset, or `collate`. Valid during the call. */
typedef struct tdict_fetch_info {
  size_t struct_size;
  int64_t epoch, batch; /**< the epoch, and the number of the batch in this rank's part of it; both count from 0 */
  /** The position of the sample in the order of the epoch, counted over all ranks. In a function for several samples,
   *  the position of the first one. The positions in a batch are `world_size` apart, or 1 apart with
   *  `max_tokens` or `plan_epoch`. */
  int64_t position;
  int32_t rank, world_size; /**< of the loader or its sampler */
  int32_t worker;           /**< number of the loader's worker thread, from 0; 0 without workers */
  uint64_t seed;            /**< the option `seed` of the loader */
  void *worker_state;       /**< what `open_worker` of the dataset has returned; NULL without this function */
  tdict_memory *memory;     /**< for tensors of the batch: pinned memory if batches are pinned or sent to a device, else
                               NULL */
} tdict_fetch_info;
static inline tdict_fetch_info tdict_fetch_info_default(void) {
  tdict_fetch_info i;
  tdict_init_struct_(i);
  i.world_size = 1;
  return i;
}
/** @brief Returns the seed of sample @p index in this epoch, for random choices such as crops; see tdict/random.h.
 *  The seed depends on `seed`, `epoch` and @p index alone, so it is the same for any number of workers and ranks, and
 *  after a resume. It is the first 64 bits of tdict_philox() for the counter (index, epoch) and the key `seed`. */
TDICT_API uint64_t tdict_sample_seed(const tdict_fetch_info *info, int64_t index);

/** The functions of a dataset: one or more of `fetch`, `fetch_batch` and `fetch_sample`. They report errors with
 *  tdict_error_set(), and the loader puts the number of the sample before the message. A number that is not a
 *  tdict_status, and #TDICT_OK without a tree, become #TDICT_EHOOK. All functions must return, and must not throw: see
 *  docs/callbacks.md. Thread rule: if `in_order` is false, several threads can call the functions at once. */
typedef struct tdict_dataset_table {
  size_t struct_size;
  const char *name; /**< for error messages; must live as long as the dataset; NULL: "dataset" */
  void *self;       /**< passed to every function */
  /** The `num_fields` tensors of a sample, without the batch dimension. The array must outlive the dataset and must not
   *  change. NULL (default): the dataset only has `fetch_sample`. */
  const tdict_field *fields;
  size_t num_fields;
  /** Returns the number of samples. If it is negative, or `length` is NULL, the dataset is a stream. `fetch` and
   *  `fetch_sample` then return #TDICT_ENOTFOUND for every index from the end on. */
  int64_t (*length)(void *self);
  /** Writes sample @p index to row @p row of @p batch, which has the tensors of `fields` in host memory. Elements that
   *  are not written have unspecified values. The rows of one batch are fetched one after another. Needs `fields`. */
  tdict_status (*fetch)(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree *batch, int64_t row,
                        tdict_error *err);
  /** Writes @p count samples to rows 0 to @p count - 1 of @p batch. Preferred to `fetch`, but never called for a
   *  stream. An error message should name the sample, because the loader knows only the batch. Needs `fields`. */
  tdict_status (*fetch_batch)(void *self, const tdict_fetch_info *info, const int64_t *indices, int64_t count,
                              tdict_tree *batch, tdict_error *err);
  /** Returns sample @p index as a new tree, owned by the caller. Called if the other two cannot be used, or if the
   *  loader's option `pad`, `pack` or `collate` is set. */
  tdict_status (*fetch_sample)(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                               tdict_error *err);
  /** Makes what a worker thread needs for itself, such as a decoder. Called on the thread before its first fetch, once
   *  for each thread and loader. If it fails, the batch fails, and the next batch calls it again. NULL: not needed. */
  tdict_status (*open_worker)(void *self, int32_t worker, void **state, tdict_error *err);
  /** Ends what `open_worker` made. Called on the same thread before it ends. Without workers, the program's thread
   *  calls both functions, this one in tdict_loader_destroy(). NULL: not needed. */
  void (*close_worker)(void *self, void *state);
  /** Releases `self`. Called once, after all other calls have returned. NULL: the dataset needs no release. */
  void (*release)(void *self);
  /** true: a loader fetches with one thread at a time, in the order of its batches; only `sample_length` can run
   *  meanwhile. Default false. */
  bool in_order;
  /** true: the result of `length` may change between epochs, but is never negative. The program's thread calls `length`
   *  in tdict_loader_create(), in tdict_loader_set_state(), and when an epoch begins. Default false. */
  bool length_varies;
  /** Returns the number of tokens of sample @p index, 0 or more, for the loader's option `max_tokens`. Called for all
   *  samples of an epoch before its first batch. NULL: not known. */
  int64_t (*sample_length)(void *self, int64_t index);
} tdict_dataset_table;
static inline tdict_dataset_table tdict_dataset_table_default(void) {
  tdict_dataset_table t;
  tdict_init_struct_(t);
  return t;
}

/** @brief Creates a dataset from a table of functions.
 *  @param[in] table  Copied. On success, the dataset owns `self`, and its last release calls `release`.
 *  @return #TDICT_OK; #TDICT_EINVAL the table lacks a function that fetches samples, or its fields. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dataset_create(const tdict_dataset_table *table, tdict_dataset **out,
                                                            tdict_error *err);
/** @brief Adds a reference and returns @p dataset, which must not be NULL. */
TDICT_API tdict_dataset *tdict_dataset_retain(const tdict_dataset *dataset);
/** @brief Releases a reference. NULL is allowed. */
TDICT_API void tdict_dataset_release(tdict_dataset *dataset);
/** @brief Returns the functions of a dataset, borrowed from the dataset. A dataset of the program can call them to
 *  change the samples of another dataset. Functions that the dataset does not have are NULL. */
TDICT_API const tdict_dataset_table *tdict_dataset_get_table(const tdict_dataset *dataset);

/** @brief Creates a dataset from a tree. Sample i is element i of the first batch dimension.
 *
 *  The dataset owns a shallow clone of the tree: later writes to elements are visible, later changes of keys are not.
 *  While a loader uses the dataset, the program must not write elements, because workers read them at any time. To
 *  write rows meanwhile, use a replay buffer (tdict/replay.h). If the tree has text, values, ragged or unbatched
 *  leaves, the dataset has only `fetch_sample`, see docs/loader.md.
 *  @return #TDICT_EINVAL no batch dimension; #TDICT_ESHAPE a leaf does not begin with the batch size;
 *          #TDICT_EWRONGDEVICE a tensor is not in host memory; #TDICT_ENOTSUP an object of the program, or more than
 *          seven dimensions; #TDICT_EOVERFLOW the size of a sample does not fit 64 bits. err->path names the leaf. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dataset_from_tree(const tdict_tree *tree, tdict_dataset **out,
                                                               tdict_error *err);

/** Returns sample @p index as a new tree owned by the caller. Returns #TDICT_ENOTFOUND at the end of a stream. */
typedef tdict_status (*tdict_make_sample)(void *user, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                          tdict_error *err);
/** @brief Creates a dataset that obtains its samples from a callback.
 *  One loader calls the callback once at a time, in the order in which it delivers the batches.
 *  @param[in] user    passed to @p make; must live as long as the dataset.
 *  @param[in] length  number of samples; negative: the dataset is a stream. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dataset_from_callback(tdict_make_sample make, void *user, int64_t length,
                                                                   tdict_dataset **out, tdict_error *err);

TDICT_END_DECLS
#endif
