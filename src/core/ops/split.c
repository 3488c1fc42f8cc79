/* Cuts trees along a batch dimension into views. On failure no result is written. The caller owns the results. Thread
 * rule: as in tdict/tree.h. */
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/ops/shape.h"
#include "tdict/shape.h"

typedef struct cutter {
  const char *what;
  const tdict_tree *td;
  int dim;
  bool drops_dim; /* true: the results do not have the dimension that is cut */
} cutter;

/* Checks the pointers that the functions of this file take, and finds the dimension to cut. Functions without a
 * parameter `trees` pass any other pointer that is not NULL. */
static tdict_status find_cut_dim(cutter *c, int dim, const void *trees, const size_t *count, tdict_error *err) {
  const char *missing = !c->td ? "tree" : !trees ? "trees" : !count ? "count" : NULL;
  if (missing) return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", c->what, missing);
  return tdict_dim_find(c->what, dim, c->td->batch_ndim, &c->dim, err);
}

/* Makes the view of the elements [at, at + count) of the dimension. */
static tdict_status cut_piece(const cutter *c, int64_t at, int64_t count, tdict_tree **out, tdict_error *err) {
  tdict_affine a;
  tdict_affine_init(&a, c->td->batch_ndim, c->td->batch_size);
  a.starts[c->dim] = at;
  a.axes[c->dim].count = count;
  if (c->drops_dim) {
    a.ndim_out--;
    for (int i = c->dim; i < a.ndim_out; i++) a.axes[i] = a.axes[i + 1];
  }
  return tdict_dims_run(c->what, c->td, &a, c->drops_dim, out, err);
}

/* Makes `count` consecutive pieces. Piece i has the size sizes[i], or `size` if `sizes` is NULL. The last piece is
 * smaller if fewer elements are left. On failure releases the pieces made so far. */
static tdict_status cut_pieces(const cutter *c, const int64_t *sizes, int64_t size, size_t count, tdict_tree **trees,
                               tdict_error *err) {
  const int64_t whole = c->td->batch_size[c->dim];
  int64_t at = 0;
  for (size_t i = 0; i < count; i++) {
    int64_t wanted = sizes ? sizes[i] : size, left = whole - at;
    tdict_tree *piece;
    tdict_status status = cut_piece(c, at, wanted < left ? wanted : left, &piece, err);
    if (status != TDICT_OK) {
      while (i) tdict_release(trees[--i]);
      return status;
    }
    trees[i] = piece;
    at += wanted < left ? wanted : left;
  }
  return TDICT_OK;
}

/* Makes the pieces in a temporary array first, so that `trees` is written only on success. */
static tdict_status cut_all_or_nothing(const cutter *c, const int64_t *sizes, int64_t size, size_t count,
                                       tdict_tree **trees, tdict_error *err) {
  tdict_tree **made = NULL;
  size_t bytes;
  if (count == 0) return TDICT_OK;
  if (tdict_mul_size(count, sizeof *made, &bytes)) made = malloc(bytes);
  if (!made) return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for %zu trees", c->what, count);
  tdict_status status = cut_pieces(c, sizes, size, count, made, err);
  if (status == TDICT_OK) memcpy(trees, made, bytes);
  free(made);
  return status;
}

tdict_status tdict_split(const tdict_tree *tree, int dim, const int64_t *sizes, tdict_tree **trees, size_t *count,
                         tdict_error *err) {
  cutter c = {"split", tree, 0, false};
  tdict_status status = find_cut_dim(&c, dim, trees, count, err);
  if (status != TDICT_OK) return status;
  if (*count && !sizes) return tdict_fail(err, TDICT_EINVAL, "split: sizes is NULL");
  int64_t sum = 0;
  bool fits = true;
  for (size_t i = 0; i < *count; i++) {
    if (sizes[i] < 0)
      return tdict_fail(err, TDICT_EINVAL, "split: size %zu is %lld, wanted 0 or more", i, (long long)sizes[i]);
    fits = fits && tdict_add_i64(sum, sizes[i], &sum);
  }
  if (!fits || sum != tree->batch_size[c.dim])
    return tdict_fail(err, TDICT_ESHAPE, "split: sizes sum to %lld, but dimension %d has %lld elements",
                      fits ? (long long)sum : -1LL, c.dim, (long long)tree->batch_size[c.dim]);
  return cut_all_or_nothing(&c, sizes, 0, *count, trees, err);
}

static tdict_status check_capacity(const char *what, size_t capacity, int64_t wanted, tdict_error *err) {
  if ((uint64_t)wanted <= capacity) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: trees has room for %zu trees, wanted %lld", what, capacity,
                    (long long)wanted);
}

/* Returns the number of pieces of size `size`. An empty dimension gives one empty piece, also if `size` is 0. */
static int64_t count_pieces(int64_t whole, int64_t size) { return whole ? (whole - 1) / size + 1 : 1; }

static tdict_status check_piece_size(const cutter *c, int64_t size, tdict_error *err) {
  const int64_t least = c->td->batch_size[c->dim] ? 1 : 0;
  if (size >= least) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: size is %lld, wanted %lld or more", c->what, (long long)size,
                    (long long)least);
}

tdict_status tdict_split_every_count(const tdict_tree *tree, int dim, int64_t size, size_t *count, tdict_error *err) {
  cutter c = {"split_every_count", tree, 0, false};
  tdict_status status = find_cut_dim(&c, dim, &c, count, err);
  if (status == TDICT_OK) status = check_piece_size(&c, size, err);
  if (status == TDICT_OK) *count = (size_t)count_pieces(tree->batch_size[c.dim], size);
  return status;
}

tdict_status tdict_unbind_count(const tdict_tree *tree, int dim, size_t *count, tdict_error *err) {
  cutter c = {"unbind_count", tree, 0, true};
  tdict_status status = find_cut_dim(&c, dim, &c, count, err);
  if (status == TDICT_OK) *count = (size_t)tree->batch_size[c.dim];
  return status;
}

tdict_status tdict_split_every(const tdict_tree *tree, int dim, int64_t size, tdict_tree **trees, size_t *count,
                               tdict_error *err) {
  cutter c = {"split_every", tree, 0, false};
  tdict_status status = find_cut_dim(&c, dim, trees, count, err);
  if (status == TDICT_OK) status = check_piece_size(&c, size, err);
  if (status != TDICT_OK) return status;
  const int64_t pieces = count_pieces(tree->batch_size[c.dim], size);
  status = check_capacity(c.what, *count, pieces, err);
  if (status == TDICT_OK) status = cut_all_or_nothing(&c, NULL, size, (size_t)pieces, trees, err);
  if (status == TDICT_OK) *count = (size_t)pieces;
  return status;
}

tdict_status tdict_chunks(const tdict_tree *tree, int dim, tdict_tree **trees, size_t *count, tdict_error *err) {
  cutter c = {"chunk", tree, 0, false};
  tdict_status status = find_cut_dim(&c, dim, trees, count, err);
  if (status != TDICT_OK) return status;
  if (*count < 1 || *count > INT64_MAX)
    return tdict_fail(err, TDICT_EINVAL, "chunk: %zu pieces, wanted 1 or more", *count);
  int64_t whole = tree->batch_size[c.dim], size = whole ? (whole - 1) / (int64_t)*count + 1 : 1;
  const int64_t pieces = count_pieces(whole, size);
  status = cut_all_or_nothing(&c, NULL, size, (size_t)pieces, trees, err);
  if (status == TDICT_OK) *count = (size_t)pieces;
  return status;
}

tdict_status tdict_unbind(const tdict_tree *tree, int dim, tdict_tree **trees, size_t *count, tdict_error *err) {
  cutter c = {"unbind", tree, 0, true};
  tdict_status status = find_cut_dim(&c, dim, trees, count, err);
  if (status != TDICT_OK) return status;
  int64_t pieces = tree->batch_size[c.dim];
  status = check_capacity(c.what, *count, pieces, err);
  if (status == TDICT_OK) status = cut_all_or_nothing(&c, NULL, 1, (size_t)pieces, trees, err);
  if (status == TDICT_OK) *count = (size_t)pieces;
  return status;
}
