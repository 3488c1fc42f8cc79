/* Datasets: where a loader's samples come from - a table of the program's own functions, or one of those made here.
 *
 * A sample is named by an index from 0; equal indices give equal samples. There are three ways to give one, and a
 * dataset has at least one of `fetch` with `schema`, `fetch_batch` with `schema`, `fetch_sample`: a row written
 * straight into the batch that will travel, a whole batch of rows, or a tree of its own, which the loader stacks, pads
 * or collates.
 * Thread rule: the functions of one dataset are called from several threads at once, unless `in_order` is set;
 * `release` is called once, when no other call runs or follows. */
#ifndef TDICT_DATASET_H
#define TDICT_DATASET_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** A dataset. A function that is given one takes ownership of it and of `self`. If a member function returns a number
 *  that is not a tdict_status, the error is #TDICT_EHOOK. */
typedef struct tdict_dataset {
  size_t struct_size;
  const char *name; /**< for messages; lives as long as the dataset; NULL: "dataset" */
  void *self;       /**< handed to every function */
  /** Samples in an epoch; negative: a stream, whose end is told by #TDICT_ENOTFOUND from `fetch` or `fetch_sample` for
   *  every index from the first that it lacks. NULL is a stream, too. */
  int64_t (*length)(void *self);
  /** The fields of a sample, without the batch dimension; borrowed from the dataset, never changed. NULL: none. */
  const tdict_schema *(*schema)(void *self);
  /** Writes sample @p index to row @p row of @p batch, whose tensors are those of the schema with the batch's size
   *  before them, in host memory. Elements that are not written are unspecified. Several rows of one batch are never
   *  written at once. */
  tdict_status (*fetch)(void *self, int64_t index, tdict_tree *batch, int64_t row, tdict_error *err);
  /** Writes @p count samples to rows 0, 1, ... of @p batch; preferred to `fetch` where both are there. Not for streams.
   *  What it says when it fails should name the sample: the loader knows the batch only. */
  tdict_status (*fetch_batch)(void *self, const int64_t *indices, int64_t count, tdict_tree *batch, tdict_error *err);
  /** A new tree that is the sample, handed over. Used where there is no schema, and for `pad` and `collate`. */
  tdict_status (*fetch_sample)(void *self, int64_t index, tdict_tree **out, tdict_error *err);
  void (*release)(void *self); /**< NULL: nothing is to be released */
  bool in_order;               /**< calls are made one at a time and in the order of delivery */
} tdict_dataset;
static inline tdict_dataset tdict_dataset_default(void) {
  tdict_dataset d;
  memset(&d, 0, sizeof d);
  d.struct_size = sizeof d;
  return d;
}

/** @brief Calls `release` of a dataset that no loader took, and empties it; NULL is allowed. */
TDICT_API void tdict_dataset_reset(tdict_dataset *dataset);

/** @brief A dataset of the elements of a tree's first batch dimension: sample i is td[i]; batches are gathered row by
 *  row. The dataset holds a shallow clone: it reads elements that are written later, and does not see keys that are set
 *  or deleted later.
 *  @param[out] out  written on success; the caller owns it.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL, or no batch dimension; #TDICT_ESHAPE a tensor does not begin with the
 *          tree's batch size; #TDICT_EWRONGDEVICE a tensor is not in host memory; #TDICT_ENOTSUP an object, or a tensor
 *          with more than six further dimensions, err->path naming it; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dataset_from_tree(const tdict_tree *td, tdict_dataset *out,
                                                               tdict_error *err);

/** How a file of tokens is laid out. */
typedef enum tdict_token_format {
  TDICT_TOKENS_AUTO, /**< by its first bytes: an llm.c shard, else 16-bit tokens */
  TDICT_TOKENS_LLMC, /**< llm.c's: 256 little-endian int32 - magic 20240520 and version 1 (16-bit tokens) or 20240801
                          and 7 (32-bit), the number of tokens - then the tokens */
  TDICT_TOKENS_U16,  /**< little-endian 16-bit tokens and nothing else */
  TDICT_TOKENS_U32   /**< little-endian 32-bit tokens and nothing else */
} tdict_token_format;
typedef struct tdict_token_options {
  size_t struct_size;
  const char *const *paths; /**< files; all are mapped into memory, and must not be cut while the dataset lives */
  int64_t num_paths;
  int32_t format;    /**< a tdict_token_format, of all files */
  int64_t window;    /**< tokens in a sample */
  int64_t step;      /**< tokens from one window to the next of a file; 0 (default): `window` */
  tdict_dtype dtype; /**< of what comes out: TDICT_I64 (default) or TDICT_I32 */
} tdict_token_options;
static inline tdict_token_options tdict_token_options_default(void) {
  tdict_token_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.dtype = TDICT_I64;
  return o;
}
/** @brief A dataset of windows over files of token ids: sample i has `tokens` and `targets`, each of `window` elements,
 *  `targets` being one token further on; no window spans two files, so a file of n tokens gives
 *  (n - 1 - window) / step + 1 samples, or none.
 *  @return #TDICT_OK; #TDICT_EINVAL no file, window below 1, step below 0, another dtype; #TDICT_EIO a file cannot be
 *          read, err->path its name and err->native the errno; #TDICT_EFORMAT its size or header is wrong, or it is no
 *          regular file, err->path its name; #TDICT_ESHAPE no file holds one window; #TDICT_EOVERFLOW a 32-bit token
 *          above what int32 holds is told when its sample is fetched; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dataset_from_tokens(const tdict_token_options *options, tdict_dataset *out,
                                                                 tdict_error *err);

/** Makes sample @p index, a new tree; #TDICT_ENOTFOUND ends a stream. */
typedef tdict_status (*tdict_make_sample)(void *user, int64_t index, tdict_tree **out, tdict_error *err);
/** @brief A dataset of trees that a callback makes, called one at a time and in order: a stream when @p length is
 *  negative.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dataset_from_callback(tdict_make_sample make, void *user, int64_t length,
                                                                   tdict_dataset *out, tdict_error *err);

TDICT_END_DECLS
#endif
