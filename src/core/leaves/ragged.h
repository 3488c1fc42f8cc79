/* Defines a ragged leaf, which owns references to its tensors, and makes its parts. Threads: as in tdict/ragged.h. */
#ifndef TDICT_CORE_LEAVES_RAGGED_H
#define TDICT_CORE_LEAVES_RAGGED_H

#include <stdatomic.h>

#include "core/tensor/affine.h"
#include "tdict/ragged.h"

struct tdict_ragged {
  _Atomic(int64_t) refs;
  tdict_tensor *values, *offsets;
  int64_t num_rows;
  int64_t at[]; /* the num_rows + 1 offsets in host memory */
};
static inline int64_t tdict_ragged_length(const tdict_ragged *r, int64_t row) { return r->at[row + 1] - r->at[row]; }

/* Creates a leaf without tensors. The caller writes `at`, where at[0] is 0 already, and then sets both tensors. Returns
 * TDICT_ENOMEM. */
tdict_status tdict_ragged_new(const char *what, int64_t num_rows, tdict_ragged **out, tdict_error *err);
/* Creates the tensor of the offsets from `at`, in `memory`. Returns TDICT_EOVERFLOW if `dtype` is int32 and cannot hold
 * the last offset. Also returns the errors of tdict_tensor_empty() and tdict_tensor_clone(). */
tdict_status tdict_ragged_make_offsets(const tdict_ragged *r, const char *what, tdict_dtype dtype, tdict_memory *memory,
                                       tdict_tensor **out, tdict_error *err);
/* Creates both tensors of a leaf whose `at` is complete. `values` gets the dtype of `like`. Dimension 0 of `values` has
 * all elements of all rows. The other dimensions of `values` are the dimensions from_dim, from_dim + 1, ... of `like`.
 * The comment of tdict_ragged_options says which memory is used. Returns the errors of tdict_tensor_choose_memory(),
 * tdict_tensor_empty() and tdict_ragged_make_offsets(). */
tdict_status tdict_ragged_allocate(tdict_ragged *r, const char *what, const tdict_tensor *like, int from_dim,
                                   const tdict_ragged_options *options, tdict_error *err);
/* Joins tensors along their first dimension. The caller has written r->at. Creates both tensors of `r`, and copies the
 * elements. Returns TDICT_ESHAPE, TDICT_EDTYPE or TDICT_EWRONGDEVICE if a tensor does not match the first tensor. Also
 * returns the errors of tdict_ragged_allocate() and tdict_tensor_copy(). */
tdict_status tdict_ragged_join(tdict_ragged *r, const char *what, tdict_tensor *const *parts, size_t count,
                               const tdict_ragged_options *options, tdict_error *err);
/* Makes a leaf of at least one row, for several public calls. Returns the errors of tdict_ragged_from_rows(). */
tdict_status tdict_ragged_of_rows(const char *what, tdict_tensor *const *rows, size_t count,
                                  const tdict_ragged_options *options, tdict_ragged **out, tdict_error *err);
/* Makes a temporary view of the elements [first, first + count) of the first dimension. */
tdict_tensor *tdict_ragged_part(tdict_temp *temp, const tdict_tensor *values, int64_t first, int64_t count);
/* Reads a tensor of int64 or int32, on any device. `out` has room for all its elements. Returns the errors of
 * tdict_tensor_clone(). */
tdict_status tdict_ragged_read_integers(const tdict_tensor *tensor, int64_t *out, tdict_error *err);
/* Reads the caller's options. Returns TDICT_EDTYPE if the dtype for the offsets is neither int64 nor int32, and the
 * errors of tdict_options_read(). */
tdict_status tdict_ragged_read_options(const char *what, const tdict_ragged_options *options, tdict_ragged_options *out,
                                       tdict_error *err);

#endif
