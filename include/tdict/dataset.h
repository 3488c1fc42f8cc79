/* Declares datasets. A loader obtains its samples from a dataset. A program creates a dataset from a tree, from files
 * of tokens, from a callback, from a replay buffer (tdict/replay.h), or from a table of its own functions.
 *
 * Each sample has an index of 0 or more. A dataset should return equal samples for equal indices. Otherwise a loader
 * with a restored state does not repeat the same batches.
 *
 * Ownership: reference counted. A loader retains its dataset, so the program may release the dataset as soon as the
 * loader exists. Several loaders may use one dataset.
 * Thread rule: any thread may call any function of this header. */
#ifndef TDICT_DATASET_H
#define TDICT_DATASET_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

typedef struct tdict_dataset tdict_dataset;

/** The functions of a dataset. A dataset has one or more of `fetch`, `fetch_batch` and `fetch_sample`; the first two
 *  also need `fields`. If one of these three returns a number that is not a tdict_status, the loader reports
 *  #TDICT_EHOOK. They report errors with tdict_error_set(), and the loader puts the number of the sample before the
 *  message. All functions must return, and must not throw: see docs/callbacks.md.
 *
 *  Thread rule: if `in_order` is false, several threads can call the functions at once. */
typedef struct tdict_dataset_table {
  size_t struct_size;
  const char *name; /**< for error messages; must live as long as the dataset; NULL: "dataset" */
  void *self;       /**< passed to every function */
  /** The tensors of a sample, without the batch dimension: an array of `num_fields` fields, which must live as long as
   *  the dataset and must not change. NULL (default): the dataset only has `fetch_sample`. */
  const tdict_field *fields;
  size_t num_fields;
  /** Returns the number of samples in the dataset. If the number is negative, or `length` is NULL, the dataset is a
   *  stream. The functions `fetch` and `fetch_sample` of a stream must return #TDICT_ENOTFOUND for every index at or
   *  after the end. */
  int64_t (*length)(void *self);
  /** Writes sample @p index to row @p row of @p batch. The batch has the tensors of `fields`, in host memory. Row i
   *  is element i of the first dimension of each tensor. Elements that `fetch` does not write have unspecified values.
   *  The loader fetches the rows of one batch one after another. */
  tdict_status (*fetch)(void *self, int64_t index, tdict_tree *batch, int64_t row, tdict_error *err);
  /** Writes @p count samples to rows 0 to @p count - 1 of @p batch. The loader prefers `fetch_batch` to `fetch`, but
   *  never calls `fetch_batch` of a stream. An error message of `fetch_batch` should name the sample, because the
   *  loader knows only the batch. */
  tdict_status (*fetch_batch)(void *self, const int64_t *indices, int64_t count, tdict_tree *batch, tdict_error *err);
  /** Returns sample @p index as a new tree, owned by the caller. The loader calls `fetch_sample` if neither `fetch` nor
   *  `fetch_batch` can be used, or if the loader's option `pad`, `pack` or `collate` is set. */
  tdict_status (*fetch_sample)(void *self, int64_t index, tdict_tree **out, tdict_error *err);
  /** Releases `self`. Called once, after all other calls have returned. NULL: the dataset needs no release. */
  void (*release)(void *self);
  /** true: one loader calls `fetch`, `fetch_batch` and `fetch_sample` one at a time, in the order in which it delivers
   *  the batches. A call of `sample_length` can run at the same time. Default false. */
  bool in_order;
  /** true: the result of `length` may change between epochs, but is never negative. The loader calls `length` in
   *  tdict_loader_create() and tdict_loader_set_state(), and at the beginning of each epoch (see tdict_loader_next()).
   *  These calls run on the thread of the program. Default false. */
  bool length_varies;
  /** Returns the number of tokens of sample @p index, 0 or more. NULL: the dataset does not know the number of tokens.
   *  If the loader's option `max_tokens` is set, the loader calls `sample_length` for all samples of an epoch before
   *  the first batch of the epoch. A slow `sample_length` therefore delays the first batch. */
  int64_t (*sample_length)(void *self, int64_t index);
} tdict_dataset_table;
static inline tdict_dataset_table tdict_dataset_table_default(void) {
  tdict_dataset_table t;
  memset(&t, 0, sizeof t);
  t.struct_size = sizeof t;
  return t;
}

/** @brief Creates a dataset from a table of functions.
 *  @param[in]  table  Copied. On success, the dataset owns `self`, and the last release of the dataset calls `release`.
 *                     On failure, the caller still owns `self`.
 *  @param[out] out    a new reference, released with tdict_dataset_release(); written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, struct_size is wrong, or the table lacks a function that
 *          fetches samples, or its fields; #TDICT_ENOMEM host memory is exhausted. */
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
 *  The dataset owns a shallow clone of the tree. If the program later writes elements of the tree, the samples have the
 *  new values. If the program later sets or deletes keys of the tree, the samples do not change. While a loader uses
 *  the dataset, the program must not write elements, because worker threads of the loader can read the elements at any
 *  time. To write rows while a loader reads rows, use a replay buffer (tdict/replay.h).
 *
 *  The tree may have leaves of tdict/nontensor.h, tdict/unbatched.h and tdict/ragged.h. If the tree has such leaves,
 *  the dataset has only `fetch_sample`, which returns a tree for each sample. A sample has one value of each column of
 *  values. A sample has one row of each ragged leaf, as a tensor. All samples share the tensors of leaves of
 *  tdict/unbatched.h. If the loader stacks the samples, the values become a column again. The loader's option `pack`
 *  joins ragged rows.
 *  @param[out] out  a new reference; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or the tree has no batch dimension; #TDICT_ESHAPE a leaf does
 *          not begin with the tree's batch size; #TDICT_EWRONGDEVICE a tensor is not in host memory; #TDICT_ENOTSUP the
 *          tree has an object of the program, or a tensor with more than seven dimensions; #TDICT_EOVERFLOW the size of
 *          a sample does not fit 64 bits; #TDICT_ENOMEM host memory is exhausted. If a leaf is wrong, err->path names
 *          the leaf. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dataset_from_tree(const tdict_tree *tree, tdict_dataset **out,
                                                               tdict_error *err);

/** The layout of a file of tokens. */
typedef enum tdict_token_format {
  TDICT_TOKENS_AUTO, /**< LLMC if the file begins with a magic number of llm.c, otherwise U16 */
  /** A file of llm.c: a header of 256 little-endian int32 numbers, then the tokens. The header begins with a magic
   *  number, a version and the number of tokens. For 16-bit tokens, the magic number is 20240520 and the version is 1.
   *  For 32-bit tokens, the magic number is 20240801 and the version is 7. */
  TDICT_TOKENS_LLMC,
  TDICT_TOKENS_U16, /**< little-endian 16-bit tokens without a header */
  TDICT_TOKENS_U32  /**< little-endian 32-bit tokens without a header */
} tdict_token_format;
typedef struct tdict_token_options {
  size_t struct_size;
  /** Names of files, borrowed for the call. The files must not be shortened while the dataset exists. */
  const char *const *paths;
  size_t num_paths;
  int32_t format;    /**< a tdict_token_format, for all files; default TDICT_TOKENS_AUTO */
  int64_t window;    /**< number of elements of `tokens` and of `targets` in a sample, 1 or more */
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
/** @brief Creates a dataset from files of token ids. Each sample is a window of consecutive tokens. The files are
 *  mapped into memory.
 *
 *  A sample has the tensors `tokens` and `targets`, each with `window` elements. `targets` begins one token after
 *  `tokens`. A window never spans two files. A file of n tokens has (n - 1 - window) / step + 1 samples, with the
 *  quotient rounded down. If n is below window + 1, the file has no sample.
 *  @param[in]  options  `paths`, `num_paths` and `window` are required.
 *  @param[out] out      a new reference; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument or path is NULL, or an option is out of range; #TDICT_EIO a file cannot
 *          be read (err->path is its name, err->native the errno); #TDICT_EFORMAT a file's size or header is wrong, or
 *          the file is not a regular file (err->path is its name); #TDICT_ESHAPE every file is shorter than window + 1
 *          tokens; #TDICT_ENOMEM host memory is exhausted.
 *  @note If the dtype is TDICT_I32 and a 32-bit token does not fit int32, the loader reports #TDICT_EOVERFLOW for the
 *  batch. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dataset_from_tokens(const tdict_token_options *options,
                                                                 tdict_dataset **out, tdict_error *err);

/** Returns sample @p index as a new tree owned by the caller. Returns #TDICT_ENOTFOUND at the end of a stream. */
typedef tdict_status (*tdict_make_sample)(void *user, int64_t index, tdict_tree **out, tdict_error *err);
/** @brief Creates a dataset that obtains its samples from a callback. One loader calls the callback once at a time, in
 *  the order in which it delivers the batches.
 *  @param[in]  user    passed to @p make; must live as long as the dataset.
 *  @param[in]  length  number of samples; negative: the dataset is a stream.
 *  @param[out] out     a new reference; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL @p make or @p out is NULL; #TDICT_ENOMEM host memory is exhausted. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dataset_from_callback(tdict_make_sample make, void *user, int64_t length,
                                                                   tdict_dataset **out, tdict_error *err);

TDICT_END_DECLS
#endif
