/* Changes the batch dimensions of trees by views. tdict_reshape() and tdict_merge_dims() copy tensors whose strides
 * allow no view. The caller owns the results. Thread rule: as in tdict/tree.h. */
#include "tdict/shape.h"

#include <string.h>

#include "core/base/error.h"
#include "core/ops/shape.h"
#include "core/tensor/affine.h"
#include "core/tensor/layout.h"

tdict_status tdict_dim_find(const char *what, int dim, int ndim, int *out, tdict_error *err) {
  if (dim < -ndim || dim >= ndim)
    return tdict_fail(err, TDICT_EINVAL, "%s: dimension %d of %d batch dimensions does not exist", what, dim, ndim);
  *out = dim < 0 ? dim + ndim : dim;
  return TDICT_OK;
}

static tdict_status describe_affine(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                    tdict_error *err) {
  (void)entry;
  return tdict_affine_apply(map->user, from, map->what, made, err);
}

tdict_status tdict_dims_run(const char *what, const tdict_tree *td, const tdict_affine *a, bool drops_locks,
                            tdict_tree **out, tdict_error *err) {
  int64_t shape[TDICT_MAX_NDIM];
  tdict_pick found;
  const tdict_pick *pick = tdict_pick_of(a, td->batch_size, &found) ? &found : NULL;
  for (int i = 0; i < a->ndim_out; i++) shape[i] = a->axes[i].count;
  const tdict_map map = {.what = what,
                         .batch_in = a->ndim_in,
                         .batch_out = a->ndim_out,
                         .batch_size = shape,
                         .more_dims = a->ndim_out > a->ndim_in ? a->ndim_out - a->ndim_in : 0,
                         .drops_locks = drops_locks,
                         .describe = describe_affine,
                         .repeats_views = true,
                         .user = (void *)(uintptr_t)a,
                         .way = tdict_pick_method(pick),
                         .pick = pick};
  return tdict_map_run(&map, td, out, err);
}

/* A new batch size with the same number of elements. */
typedef struct grouping {
  int ndim;
  int64_t shape[TDICT_MAX_BATCH_NDIM];
  bool may_copy; /* true: tensors whose strides allow no view are copied */
} grouping;

/* Describes a tensor with the new batch size: a view if the strides allow a view, else a copy if copies are allowed. */
static tdict_status describe_grouping(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                      tdict_error *err) {
  const grouping *g = map->user;
  const int batch = map->batch_in, num_other = from->ndim - batch;
  (void)entry;
  if (g->ndim + num_other > TDICT_MAX_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: a tensor would have %d dimensions, wanted at most %d", map->what,
                      g->ndim + num_other, TDICT_MAX_NDIM);
  const int64_t *strides = tdict_tensor_dims_strides(from);
  made->ndim = g->ndim + num_other;
  made->data = from->data;
  made->fresh = false;
  for (int i = 0; i < g->ndim; i++) made->shape[i] = g->shape[i];
  for (int i = 0; i < num_other; i++) {
    made->shape[g->ndim + i] = from->dims[batch + i];
    made->strides[g->ndim + i] = strides[batch + i];
  }
  /* Find strides for the new shape. */
  if (from->numel == 0) {
    tdict_layout_size size; /* if one size is 0, the product of the other sizes can still be too large */
    tdict_status status = tdict_layout_check(map->what, from->dtype, made->ndim, made->shape, &size, err);
    if (status != TDICT_OK) return status;
    tdict_layout_strides(made->ndim, made->shape, made->strides);
  } else if (!tdict_layout_regroup(batch, from->dims, strides, g->ndim, g->shape, made->strides))
    made->fresh = true;
  if (!made->fresh || g->may_copy) return TDICT_OK;
  return tdict_fail(err, TDICT_ESHAPE, "%s: the tensor's strides allow no view of batch size %s; reshape copies it",
                    map->what, TDICT_SHAPE_TEXT(g->ndim, g->shape));
}

/* Copies the elements of a tensor in C order. The copy is written through a view that has the old shape. */
static tdict_status fill_grouping(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                                  tdict_error *err) {
  tdict_made like;
  tdict_temp temp;
  (void)map, (void)entry;
  tdict_made_of(from, &like); /* a view of the new elements in the old shape */
  like.data = made->data;
  tdict_layout_strides(like.ndim, like.shape, like.strides);
  return tdict_tensor_copy(tdict_temp_over(&temp, made, &like), from, err);
}

/* Makes the tree with the new batch size. If the batch size is unchanged, objects are shared. */
static tdict_status regroup(const char *what, const tdict_tree *td, const grouping *g, tdict_tree **out,
                            tdict_error *err) {
  const bool is_unchanged = tdict_shapes_equal(g->ndim, g->shape, td->batch_ndim, td->batch_size);
  const tdict_map map = {.what = what,
                         .batch_in = td->batch_ndim,
                         .batch_out = g->ndim,
                         .batch_size = g->shape,
                         .more_dims = g->ndim > td->batch_ndim ? g->ndim - td->batch_ndim : 0,
                         .describe = describe_grouping,
                         .fill = fill_grouping,
                         .user = (void *)(uintptr_t)g,
                         .way = is_unchanged ? TDICT_OBJECT_SHARE : TDICT_OBJECT_AS_TENSORS};
  return tdict_map_run(&map, td, out, err);
}

/* Computes a tree's batch size in *g: g->shape, with one -1 allowed, replaces the dimensions [first, last]. */
static tdict_status replace_dims(const char *what, const tdict_tree *td, int first, int last, grouping *g,
                                 tdict_error *err) {
  int64_t total, counts[TDICT_MAX_BATCH_NDIM];
  int ndim = g->ndim, before = first, after = td->batch_ndim - 1 - last;
  if (before + ndim + after > TDICT_MAX_BATCH_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: %d batch dimensions, wanted at most %d", what, before + ndim + after,
                      TDICT_MAX_BATCH_NDIM);
  if (!tdict_layout_count(last - first + 1, td->batch_size + first, &total))
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: the number of batch elements does not fit in 63 bits", what);
  tdict_status status = tdict_layout_complete(what, ndim, g->shape, total, err);
  if (status != TDICT_OK) return status;
  memcpy(counts, g->shape, (size_t)ndim * sizeof *counts);
  g->ndim = before + ndim + after;
  for (int i = 0; i < before; i++) g->shape[i] = td->batch_size[i];
  for (int i = 0; i < ndim; i++) g->shape[before + i] = counts[i];
  for (int i = 0; i < after; i++) g->shape[before + ndim + i] = td->batch_size[last + 1 + i];
  return TDICT_OK;
}

static tdict_status read_batch_shape(const char *what, int ndim, const int64_t *shape, int64_t *out, tdict_error *err) {
  if (ndim < 0 || ndim > TDICT_MAX_BATCH_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: %d dimensions, wanted 0 to %d", what, ndim, TDICT_MAX_BATCH_NDIM);
  if (ndim && !shape) return tdict_fail_null(err, what, "shape");
  for (int i = 0; i < ndim; i++) out[i] = shape[i];
  return TDICT_OK;
}

/* Implements tdict_reshape_view() and tdict_reshape(), which differ in g->may_copy. */
static tdict_status view_or_reshape(const char *what, const tdict_tree *td, grouping *g, const int64_t *shape,
                                    tdict_tree **out, tdict_error *err) {
  if (!td || !out) return tdict_fail_null(err, what, td ? "out" : "tree");
  tdict_status status = read_batch_shape(what, g->ndim, shape, g->shape, err);
  if (status == TDICT_OK) status = replace_dims(what, td, 0, td->batch_ndim - 1, g, err);
  return status == TDICT_OK ? regroup(what, td, g, out, err) : status;
}

tdict_status tdict_reshape_view(const tdict_tree *tree, int ndim, const int64_t *shape, tdict_tree **out,
                                tdict_error *err) {
  grouping g = {.ndim = ndim, .may_copy = false};
  return view_or_reshape("reshape_view", tree, &g, shape, out, err);
}

tdict_status tdict_reshape(const tdict_tree *tree, int ndim, const int64_t *shape, tdict_tree **out, tdict_error *err) {
  grouping g = {.ndim = ndim, .may_copy = true};
  return view_or_reshape("reshape", tree, &g, shape, out, err);
}

tdict_status tdict_merge_dims(const tdict_tree *tree, int first, int last, tdict_tree **out, tdict_error *err) {
  static const char what[] = "merge_dims";
  if (!tree || !out) return tdict_fail_null(err, what, tree ? "out" : "tree");
  tdict_status status = tdict_dim_find(what, first, tree->batch_ndim, &first, err);
  if (status == TDICT_OK) status = tdict_dim_find(what, last, tree->batch_ndim, &last, err);
  if (status != TDICT_OK) return status;
  if (first > last) return tdict_fail(err, TDICT_EINVAL, "%s: dimension %d is after dimension %d", what, first, last);
  grouping g = {.ndim = 1, .shape = {-1}, .may_copy = true};
  int64_t total;
  if (tdict_layout_count(last - first + 1, tree->batch_size + first, &total))
    g.shape[0] = total; /* if the product overflows, the size stays -1, and replace_dims() returns TDICT_EOVERFLOW */
  status = replace_dims(what, tree, first, last, &g, err);
  return status == TDICT_OK ? regroup(what, tree, &g, out, err) : status;
}

tdict_status tdict_split_dim(const tdict_tree *tree, int dim, int ndim, const int64_t *shape, tdict_tree **out,
                             tdict_error *err) {
  static const char what[] = "split_dim";
  if (!tree || !out) return tdict_fail_null(err, what, tree ? "out" : "tree");
  grouping g = {.ndim = ndim, .may_copy = false};
  tdict_status status = tdict_dim_find(what, dim, tree->batch_ndim, &dim, err);
  if (status == TDICT_OK) status = read_batch_shape(what, ndim, shape, g.shape, err);
  if (status == TDICT_OK && ndim == 0) return tdict_fail(err, TDICT_EINVAL, "%s: shape has no sizes", what);
  if (status == TDICT_OK) status = replace_dims(what, tree, dim, dim, &g, err);
  return status == TDICT_OK ? regroup(what, tree, &g, out, err) : status;
}

tdict_status tdict_unsqueeze(const tdict_tree *tree, int dim, tdict_tree **out, tdict_error *err) {
  static const char what[] = "unsqueeze";
  if (!tree || !out) return tdict_fail_null(err, what, tree ? "out" : "tree");
  tdict_affine a;
  tdict_status status = tdict_dim_find(what, dim, tree->batch_ndim + 1, &dim, err);
  if (status != TDICT_OK) return status;
  tdict_affine_init(&a, tree->batch_ndim, tree->batch_size);
  a.ndim_out++;
  for (int i = tree->batch_ndim; i > dim; i--) a.axes[i] = a.axes[i - 1];
  a.axes[dim] = (tdict_axis){-1, 1, 0};
  return tdict_dims_run(what, tree, &a, false, out, err);
}

tdict_status tdict_squeeze(const tdict_tree *tree, int dim, tdict_tree **out, tdict_error *err) {
  static const char what[] = "squeeze";
  if (!tree || !out) return tdict_fail_null(err, what, tree ? "out" : "tree");
  int only = 0;
  tdict_affine a;
  tdict_status status = dim == TDICT_EVERY_DIM ? TDICT_OK : tdict_dim_find(what, dim, tree->batch_ndim, &only, err);
  if (status != TDICT_OK) return status;
  tdict_affine_init(&a, tree->batch_ndim, tree->batch_size);
  /* Drop dimensions of size 1: all such dimensions, or only the given dimension. */
  a.ndim_out = 0;
  for (int i = 0; i < tree->batch_ndim; i++)
    if (tree->batch_size[i] != 1 || (dim != TDICT_EVERY_DIM && i != only))
      a.axes[a.ndim_out++] = (tdict_axis){i, tree->batch_size[i], 1};
  return tdict_dims_run(what, tree, &a, false, out, err);
}

tdict_status tdict_expand(const tdict_tree *tree, int ndim, const int64_t *shape, tdict_tree **out, tdict_error *err) {
  static const char what[] = "expand";
  if (!tree || !out) return tdict_fail_null(err, what, tree ? "out" : "tree");
  int64_t counts[TDICT_MAX_BATCH_NDIM];
  tdict_affine a;
  tdict_status status = read_batch_shape(what, ndim, shape, counts, err);
  if (status != TDICT_OK) return status;
  int num_new = ndim - tree->batch_ndim;
  if (num_new < 0)
    return tdict_fail(err, TDICT_EINVAL, "%s: %d dimensions, wanted at least %d", what, ndim, (int)tree->batch_ndim);
  tdict_affine_init(&a, tree->batch_ndim, tree->batch_size);
  a.ndim_out = ndim;
  a.grows = true;
  for (int i = 0; i < ndim; i++) {
    int64_t have = i < num_new ? 1 : tree->batch_size[i - num_new],
            want = counts[i] == -1 && i >= num_new ? have : counts[i];
    if (want < 0)
      return tdict_fail(err, TDICT_EINVAL, "%s: size %d is %lld, wanted 0 or more", what, i, (long long)counts[i]);
    if (have != want && have != 1)
      return tdict_fail(err, TDICT_ESHAPE,
                        "%s: dimension %d from %lld elements to %lld; only a dimension of one element can be repeated",
                        what, i - num_new, (long long)have, (long long)want);
    a.axes[i] = (tdict_axis){i < num_new ? -1 : i - num_new, want, have == want};
  }
  return tdict_dims_run(what, tree, &a, false, out, err);
}

tdict_status tdict_permute(const tdict_tree *tree, int ndim, const int *order, tdict_tree **out, tdict_error *err) {
  static const char what[] = "permute";
  if (!tree || !out) return tdict_fail_null(err, what, tree ? "out" : "tree");
  if (!order && tree->batch_ndim) return tdict_fail_null(err, what, "order");
  if (ndim != tree->batch_ndim)
    return tdict_fail(err, TDICT_EINVAL, "%s: order has %d dimensions, the tree has %d", what, ndim,
                      (int)tree->batch_ndim);
  tdict_affine a;
  /* Bit i is set after dimension i has been used. */
  uint32_t seen = 0;
  tdict_affine_init(&a, tree->batch_ndim, tree->batch_size);
  for (int i = 0; i < tree->batch_ndim; i++) {
    int from;
    tdict_status status = tdict_dim_find(what, order[i], tree->batch_ndim, &from, err);
    if (status != TDICT_OK) return status;
    if (seen >> from & 1) return tdict_fail(err, TDICT_EINVAL, "%s: dimension %d is named twice", what, from);
    seen |= (uint32_t)1 << from;
    a.axes[i] = (tdict_axis){from, tree->batch_size[from], 1};
  }
  return tdict_dims_run(what, tree, &a, false, out, err);
}

tdict_status tdict_transpose(const tdict_tree *tree, int a, int b, tdict_tree **out, tdict_error *err) {
  static const char what[] = "transpose";
  if (!tree || !out) return tdict_fail_null(err, what, tree ? "out" : "tree");
  tdict_affine affine;
  tdict_status status = tdict_dim_find(what, a, tree->batch_ndim, &a, err);
  if (status == TDICT_OK) status = tdict_dim_find(what, b, tree->batch_ndim, &b, err);
  if (status != TDICT_OK) return status;
  tdict_affine_init(&affine, tree->batch_ndim, tree->batch_size);
  tdict_axis kept = affine.axes[a];
  affine.axes[a] = affine.axes[b];
  affine.axes[b] = kept;
  return tdict_dims_run(what, tree, &affine, false, out, err);
}
