/* Cuts trees along a batch dimension into views that the caller owns, or none. Thread rule: as in tdict/tree.h. */
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
  /* Piece i has the size sizes[i], or `size` if `sizes` is NULL. The last piece may be smaller. */
  const int64_t *sizes;
  int64_t size;
} cutter;

/* Checks the pointers that the functions of this file take, and finds the dimension to cut. */
static tdict_status find_cut_dim(cutter *c, int dim, const size_t *count, tdict_error *err) {
  const char *missing = !c->td ? "tree" : !count ? "count" : NULL;
  if (missing) return tdict_fail_null(err, c->what, missing);
  return tdict_dim_find(c->what, dim, c->td->batch_ndim, &c->dim, err);
}

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

/* Makes `count` consecutive pieces. On failure releases the pieces made so far. */
static tdict_status cut_pieces(const cutter *c, size_t count, tdict_tree **trees, tdict_error *err) {
  const int64_t whole = c->td->batch_size[c->dim];
  int64_t at = 0;
  for (size_t i = 0; i < count; i++) {
    int64_t wanted = c->sizes ? c->sizes[i] : c->size, left = whole - at;
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

/* Writes `pieces` pieces to `trees`, which has room for *count, and their number to *count. Makes them in a temporary
 * array first, so that `trees` is written only on success. If `trees` is NULL, makes no piece. */
static tdict_status cut_all_or_nothing(const cutter *c, int64_t pieces, tdict_tree **trees, size_t *count,
                                       tdict_error *err) {
  tdict_tree **made = NULL;
  size_t bytes;
  if (trees && (uint64_t)pieces > *count)
    return tdict_fail(err, TDICT_EINVAL, "%s: trees has room for %zu trees, wanted %lld", c->what, *count,
                      (long long)pieces);
  if (trees && pieces) {
    if (tdict_mul_size((size_t)pieces, sizeof *made, &bytes)) made = malloc(bytes);
    if (!made) return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for %lld trees", c->what, (long long)pieces);
    tdict_status status = cut_pieces(c, (size_t)pieces, made, err);
    if (status == TDICT_OK) memcpy(trees, made, bytes);
    free(made);
    if (status != TDICT_OK) return status;
  }
  *count = (size_t)pieces;
  return TDICT_OK;
}

tdict_status tdict_split(const tdict_tree *tree, int dim, const int64_t *sizes, tdict_tree **trees, size_t *count,
                         tdict_error *err) {
  cutter c = {.what = "split", .td = tree, .sizes = sizes};
  tdict_status status = find_cut_dim(&c, dim, count, err);
  if (status != TDICT_OK) return status;
  if (*count && !sizes) return tdict_fail_null(err, "split", "sizes");
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
  return cut_all_or_nothing(&c, (int64_t)*count, trees, count, err);
}

tdict_status tdict_split_every(const tdict_tree *tree, int dim, int64_t size, tdict_tree **trees, size_t *count,
                               tdict_error *err) {
  cutter c = {.what = "split_every", .td = tree, .size = size};
  tdict_status status = find_cut_dim(&c, dim, count, err);
  if (status != TDICT_OK) return status;
  /* An empty dimension gives one empty piece, also if `size` is 0. */
  const int64_t whole = tree->batch_size[c.dim], least = whole ? 1 : 0;
  if (size < least)
    return tdict_fail(err, TDICT_EINVAL, "split_every: size is %lld, wanted %lld or more", (long long)size,
                      (long long)least);
  return cut_all_or_nothing(&c, whole ? (whole - 1) / size + 1 : 1, trees, count, err);
}

tdict_status tdict_unbind(const tdict_tree *tree, int dim, tdict_tree **trees, size_t *count, tdict_error *err) {
  cutter c = {.what = "unbind", .td = tree, .drops_dim = true, .size = 1};
  tdict_status status = find_cut_dim(&c, dim, count, err);
  if (status != TDICT_OK) return status;
  return cut_all_or_nothing(&c, tree->batch_size[c.dim], trees, count, err);
}
