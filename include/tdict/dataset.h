/* Declares datasets. A dataset supplies the samples of a loader. It is a table of functions. A program fills the table
 * itself, or calls a function of this header that creates a dataset.
 *
 * The index of a sample is 0 or more. Equal indices must give equal samples. A dataset has one or more of these
 * functions:
 * - `fetch`, with `schema`, writes a sample into a row of the batch.
 * - `fetch_batch`, with `schema`, writes all samples of a batch into its rows.
 * - `fetch_sample` returns a sample as a new tree. The loader stacks, pads, packs or collates these trees.
 *
 * Thread rule: several threads call the functions of a dataset at once, unless `in_order` is set. `release` is called
 * once, after all other calls have returned. */
#ifndef TDICT_DATASET_H
#define TDICT_DATASET_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** A dataset. Its owner calls `release` once. tdict_loader_create() takes ownership on success. If a member function
 *  returns a number that is not a tdict_status, the error is #TDICT_EHOOK. */
typedef struct tdict_dataset {
  size_t struct_size;
  const char *name; /**< for error messages; must live as long as the dataset; NULL: "dataset" */
  void *self;       /**< passed to every function */
  /** Returns the number of samples in an epoch. If the number is negative, or `length` is NULL, the dataset is a
   *  stream. The `fetch` or `fetch_sample` of a stream returns #TDICT_ENOTFOUND for every index at or after the end. */
  int64_t (*length)(void *self);
  /** Returns the fields of a sample, without the batch dimension. The schema belongs to the dataset and must not
   *  change. NULL: the dataset has no schema. */
  const tdict_schema *(*schema)(void *self);
  /** Writes sample @p index to row @p row of @p batch. The batch has the tensors of the schema, in host memory. The
   *  first dimension of each tensor is the row. Elements that are not written have unspecified values. The rows of one
   *  batch are fetched one after the other. */
  tdict_status (*fetch)(void *self, int64_t index, tdict_tree *batch, int64_t row, tdict_error *err);
  /** Writes @p count samples to rows 0 to @p count - 1 of @p batch. The loader prefers `fetch_batch` to `fetch`, but
   *  does not call it for streams. An error message of `fetch_batch` should name the sample, since the loader knows
   *  only the batch. */
  tdict_status (*fetch_batch)(void *self, const int64_t *indices, int64_t count, tdict_tree *batch, tdict_error *err);
  /** Returns sample @p index as a new tree, owned by the caller. The loader calls `fetch_sample` if the dataset has no
   *  schema, or if the loader's option `pad`, `pack` or `collate` is set. */
  tdict_status (*fetch_sample)(void *self, int64_t index, tdict_tree **out, tdict_error *err);
  void (*release)(void *self); /**< releases `self`; NULL: does nothing */
  /** true: calls run one at a time, in the order of delivery. Calls of `sample_length` may run at the same time. */
  bool in_order;
  /** true: the result of `length` may change, but is never negative. The loader calls `length` at the beginning of each
   *  epoch, on a thread that called one of the loader's functions. See tdict_loader_next(). Default false. */
  bool length_varies;
  /** Returns the length of sample @p index, 0 or more, in the unit of the loader's option `max_tokens`. NULL: the
   *  lengths are unknown. At the beginning of each epoch, the loader calls the function once for each sample of the
   *  epoch, so the function should be fast. */
  int64_t (*sample_length)(void *self, int64_t index);
} tdict_dataset;
static inline tdict_dataset tdict_dataset_default(void) {
  tdict_dataset d;
  memset(&d, 0, sizeof d);
  d.struct_size = sizeof d;
  return d;
}

/** @brief Calls `release` of a dataset that no loader owns, and resets the struct. NULL is allowed. */
TDICT_API void tdict_dataset_reset(tdict_dataset *dataset);

/** @brief Creates a dataset from a tree. Sample i is element i of the first batch dimension.
 *
 *  The dataset owns a shallow clone of the tree. If the program later writes elements of the tree, the samples show the
 *  new values. If the program later sets or deletes keys of the tree, the samples do not change. Elements must not be
 *  written while a loader uses the dataset, because its workers may read them at any time. tdict/replay.h has a dataset
 *  whose rows may be rewritten.
 *  @param[out] out  a dataset owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or the tree has no batch dimension; #TDICT_ESHAPE a tensor
 *          does not begin with the tree's batch size; #TDICT_EWRONGDEVICE a tensor is not in host memory;
 *          #TDICT_ENOTSUP the tree has an object, or a tensor with more than seven dimensions (err->path names it);
 *          #TDICT_ENOMEM host memory is exhausted. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dataset_from_tree(const tdict_tree *tree, tdict_dataset *out,
                                                               tdict_error *err);

/** The layout of a file of tokens. */
typedef enum tdict_token_format {
  TDICT_TOKENS_AUTO, /**< LLMC if the file begins with a magic number of llm.c, otherwise U16 */
  /** A shard of llm.c: a header of 256 little-endian int32, then the tokens. The header begins with a magic number, a
   *  version and the number of tokens. For 16-bit tokens, the magic number is 20240520 and the version is 1. For 32-bit
   *  tokens, the magic number is 20240801 and the version is 7. */
  TDICT_TOKENS_LLMC,
  TDICT_TOKENS_U16, /**< little-endian 16-bit tokens without a header */
  TDICT_TOKENS_U32  /**< little-endian 32-bit tokens without a header */
} tdict_token_format;
typedef struct tdict_token_options {
  size_t struct_size;
  const char *const *paths; /**< names of files, borrowed for the call; the files must not be shortened while mapped */
  int64_t num_paths;
  int32_t format;    /**< a tdict_token_format, the same for all files */
  int64_t window;    /**< tokens in a sample, 1 or more */
  int64_t step;      /**< tokens between the starts of two adjacent windows; 0 (default): `window` */
  tdict_dtype dtype; /**< dtype of the samples: TDICT_I64 (default) or TDICT_I32 */
} tdict_token_options;
static inline tdict_token_options tdict_token_options_default(void) {
  tdict_token_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.dtype = TDICT_I64;
  return o;
}
/** @brief Creates a dataset whose samples are windows over files of token ids. The files are mapped into memory.
 *
 *  A sample has the tensors `tokens` and `targets`, each with `window` elements. `targets` begins one token after
 *  `tokens`. A window never spans two files. A file of n tokens has (n - 1 - window) / step + 1 samples. If n is below
 *  window + 1, the file has no sample.
 *  @param[in]  options  @p paths, @p num_paths and @p window are required.
 *  @param[out] out      a dataset owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument or path is NULL, or an option is out of range; #TDICT_EIO a file cannot
 *          be read (err->path is its name, err->native the errno); #TDICT_EFORMAT a file's size or header is wrong, or
 *          the file is not a regular file (err->path is its name); #TDICT_ESHAPE every file is shorter than window + 1
 *          tokens; #TDICT_ENOMEM host memory is exhausted.
 *  @note If the dtype is TDICT_I32 and a 32-bit token does not fit int32, fetching the sample fails with
 *  #TDICT_EOVERFLOW. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dataset_from_tokens(const tdict_token_options *options, tdict_dataset *out,
                                                                 tdict_error *err);

/** Returns sample @p index as a new tree owned by the caller. Returns #TDICT_ENOTFOUND at the end of a stream. */
typedef tdict_status (*tdict_make_sample)(void *user, int64_t index, tdict_tree **out, tdict_error *err);
/** @brief Creates a dataset that obtains its samples from a callback. At most one call of the callback runs at a time,
 *  and the calls are in order.
 *  @param[in]  user    passed to @p make; must live as long as the dataset.
 *  @param[in]  length  samples in an epoch; negative: a stream.
 *  @param[out] out     a dataset owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL @p make or @p out is NULL; #TDICT_ENOMEM host memory is exhausted. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dataset_from_callback(tdict_make_sample make, void *user, int64_t length,
                                                                   tdict_dataset *out, tdict_error *err);

TDICT_END_DECLS
#endif
