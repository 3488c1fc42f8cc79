/* Makes datasets from files of token ids, such as llm.c's. Ownership, errors and thread rule: as in tdict/dataset.h. */
#ifndef TDICT_TOKENS_H
#define TDICT_TOKENS_H

#include "tdict/dataset.h"

TDICT_BEGIN_DECLS

/** The layout of a file of tokens. */
typedef enum tdict_token_format {
  TDICT_TOKENS_AUTO, /**< LLMC if the file begins with a magic number of llm.c, otherwise U16 */
  /** A file of llm.c: 256 little-endian int32 numbers, then the tokens. The first numbers are magic, version and number
   *  of tokens. Magic and version are 20240520 and 1 for 16-bit tokens, and 20240801 and 7 for 32-bit tokens. */
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
  tdict_init_struct_(o);
  o.dtype = TDICT_I64;
  return o;
}

/** @brief Creates a dataset from files of token ids. Each sample is a window of consecutive tokens. Maps the files.
 *
 *  A sample has the tensors `tokens` and `targets`, each with `window` elements. `targets` begins one token later. A
 *  window never spans two files. A file of n tokens has (n - 1 - window) / step + 1 samples, rounded down, or none if n
 *  is below window + 1. If a token does not fit TDICT_I32, the loader reports #TDICT_EOVERFLOW for the batch.
 *  @param[in] options  `paths`, `num_paths` and `window` are required.
 *  @return #TDICT_OK; #TDICT_EIO a file cannot be read, err->native is the errno; #TDICT_EFORMAT not a regular file,
 *          or a wrong size or header; #TDICT_ESHAPE no file has a sample. If a file is wrong, err->path is its name. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dataset_from_tokens(const tdict_token_options *options,
                                                                 tdict_dataset **out, tdict_error *err);

TDICT_END_DECLS
#endif
