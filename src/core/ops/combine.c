/* Implements stack and cat, into new or existing trees. The caller owns the results. Threads: as in tdict/combine.h. */
#include "tdict/combine.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/leaves/ragged.h"
#include "core/memory/run.h"
#include "core/ops/align.h"
#include "core/ops/check_copy.h"
#include "core/ops/pad.h"
#include "core/ops/shape.h"
#include "core/ops/write.h"

typedef struct joiner {
  const char *what;
  const tdict_tree *const *items;
  size_t count;
  bool is_stack; /* true: stack, which adds a dimension; false: cat, which extends a dimension */
  int dim, ndim;
  int64_t batch_size[TDICT_MAX_BATCH_NDIM + 1]; /* batch size of the result */
  tdict_run run;                                /* run.memory: memory of the result; NULL: as tdict/combine.h says */
  tdict_moves moves;                            /* collects copies on devices */
  bool makes_ragged;                            /* true: tensors with different lengths are stacked as a ragged leaf */
  tdict_aligned aligned;                        /* the items; if an existing tree is written, this tree comes first */
  size_t num_checked;     /* the tensors of all entries before this one match in shape, dtype and device */
  size_t first_item;      /* index of item 0 in an entry of `aligned`: 1 if an existing tree is written, else 0 */
  tdict_flat_pairs pairs; /* pairs of elements, for objects whose elements overwrite an existing object */
} joiner;

/* Checks that a tree has the batch size of the first tree. For cat, the size of the joined dimension may differ. */
static tdict_status check_batch_size(const joiner *j, size_t item, tdict_error *err) {
  const tdict_tree *first = j->items[0], *td = j->items[item];
  bool is_equal = td->batch_ndim == first->batch_ndim;
  for (int i = 0; is_equal && i < td->batch_ndim; i++)
    is_equal = td->batch_size[i] == first->batch_size[i] || (!j->is_stack && i == j->dim);
  if (is_equal) return TDICT_OK;
  return tdict_fail(err, TDICT_ESHAPE, "%s: tree %zu has batch size %s, tree 0 has %s", j->what, item,
                    TDICT_SHAPE_TEXT(td->batch_ndim, td->batch_size),
                    TDICT_SHAPE_TEXT(first->batch_ndim, first->batch_size));
}

/* Computes the batch size of the result, and checks that the batch sizes of the trees match. */
static tdict_status plan_joined_batch_size(joiner *j, tdict_error *err) {
  const tdict_tree *first = j->items[0];
  if (j->is_stack && first->batch_ndim == TDICT_MAX_BATCH_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: the trees have %d batch dimensions, the maximum", j->what,
                      TDICT_MAX_BATCH_NDIM);
  tdict_status status = tdict_dim_find(j->what, j->dim, first->batch_ndim + j->is_stack, &j->dim, err);
  if (status != TDICT_OK) return status;
  j->ndim = first->batch_ndim + j->is_stack;
  for (int i = 0, from = 0; i < j->ndim; i++)
    j->batch_size[i] = j->is_stack && i == j->dim ? (int64_t)j->count : first->batch_size[from++];
  for (size_t i = 1; i < j->count && status == TDICT_OK; i++) {
    status = check_batch_size(j, i, err);
    if (status == TDICT_OK && !j->is_stack &&
        !tdict_add_i64(j->batch_size[j->dim], j->items[i]->batch_size[j->dim], &j->batch_size[j->dim]))
      status =
          tdict_fail(err, TDICT_EOVERFLOW, "%s: the size of dimension %d does not fit in 63 bits", j->what, j->dim);
  }
  return status;
}

/* The options of a call that the program passed. */
typedef struct join_options {
  const tdict_join_options *join;
  const tdict_run *run;
  unsigned uses; /* options of the run that the call uses */
} join_options;

/* Checks the arguments, reads the options, and computes the batch size of the result. */
static tdict_status read_join_options(joiner *j, const join_options *given, const void *out, tdict_error *err) {
  tdict_join_options o = tdict_join_options_default();
  if (!out) return tdict_fail_null(err, j->what, "out");
  if (!j->items || j->count == 0) return tdict_fail(err, TDICT_EINVAL, "%s: no trees", j->what);
  for (size_t i = 0; i < j->count; i++)
    if (!j->items[i]) return tdict_fail(err, TDICT_EINVAL, "%s: tree %zu is NULL", j->what, i);
  tdict_status status = tdict_options_read(&o, sizeof o, given->join, "join options", err);
  if (status == TDICT_OK) status = tdict_run_read(&j->run, given->run, given->uses, j->what, err);
  if (status != TDICT_OK) return status;
  j->dim = o.dim;
  if (o.ragged && !j->makes_ragged)
    return tdict_fail(err, TDICT_EINVAL, "%s: the option ragged is set, and only stack makes ragged leaves", j->what);
  j->makes_ragged = o.ragged;
  if (o.ragged && j->items[0]->batch_ndim != 0)
    return tdict_fail(err, TDICT_EINVAL,
                      "%s: the option ragged is set, and the trees have %d batch dimensions, wanted 0", j->what,
                      (int)j->items[0]->batch_ndim);
  if (o.ragged && tdict_run_stream(&j->run))
    return tdict_fail(err, TDICT_EINVAL, "%s: the options ragged and stream are set, wanted at most one of them",
                      j->what);
  j->moves = (tdict_moves){.what = j->what, .stream = tdict_run_stream(&j->run)};
  for (size_t i = 0; i < j->count && status == TDICT_OK; i++)
    status = tdict_moves_check_objects(&j->moves, j->items[i], err);
  return status == TDICT_OK ? plan_joined_batch_size(j, err) : status;
}

static const tdict_tensor *get_joined_part(const joiner *j, size_t entry, size_t item) {
  return tdict_leaf_tensor(j->aligned.leaves[entry * j->aligned.count + j->first_item + item]);
}

/* Returns true if a part has the shape of the first part, but for the dimension along which cat joins. */
static inline bool fits_first(const joiner *j, const tdict_tensor *t, const tdict_tensor *first) {
  const int after = j->dim + 1;
  if (t->ndim != first->ndim) return false;
  if (j->is_stack) return tdict_sizes_equal(t->dims, first->dims, t->ndim);
  return tdict_sizes_equal(t->dims, first->dims, j->dim) &&
         tdict_sizes_equal(t->dims + after, first->dims + after, t->ndim - after);
}

/* Computes the shape of the result's tensor at an entry. The first call for an entry also checks that all parts match
 * in shape, dtype and device. A map makes all first calls, in the order of the entries, before the others. */
static tdict_status describe_joined(joiner *j, size_t entry, tdict_made *made, tdict_error *err) {
  const tdict_tensor *first = get_joined_part(j, entry, 0);
  if (first->ndim + j->is_stack > TDICT_MAX_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: a tensor would have more than %d dimensions", j->what, TDICT_MAX_NDIM);
  made->fresh = true;
  made->ndim = first->ndim + j->is_stack;
  for (int i = 0; i < made->ndim; i++)
    made->shape[i] = i == j->dim ? j->batch_size[i] : first->dims[i - (j->is_stack && i > j->dim)];
  if (entry < j->num_checked) return TDICT_OK;
  for (size_t i = 1; i < j->count; i++) {
    const tdict_tensor *t = get_joined_part(j, entry, i);
    const bool is_equal = fits_first(j, t, first);
    if (is_equal && t->dtype == first->dtype && tdict_storage_devices_equal(t->storage, first->storage)) continue;
    return tdict_check_part(j->what, t, i, first, is_equal, err);
  }
  j->num_checked = entry + 1;
  return TDICT_OK;
}

/* Copies the tensors of all trees at an entry into their slices of `made`. */
static tdict_status copy_parts(joiner *j, size_t entry, const tdict_tensor *made, tdict_error *err) {
  if (!made->numel) return TDICT_OK;
  const size_t item = tdict_tensor_item_bytes(made);
  tdict_made place;
  tdict_temp temp;
  tdict_tensor *slice = NULL;
  int64_t count = 1;
  tdict_status status = TDICT_OK;
  tdict_made_of(made, &place);
  const uintptr_t step = (uintptr_t)place.strides[j->dim] * item;
  uintptr_t at = (uintptr_t)place.data;
  if (j->is_stack) tdict_made_select(&place, j->dim, 0, item);
  for (size_t i = 0; i < j->count && status == TDICT_OK; i++) {
    const tdict_tensor *part = get_joined_part(j, entry, i);
    if (!j->is_stack) count = part->dims[j->dim];
    if (!slice || (!j->is_stack && count != place.shape[j->dim])) {
      if (!j->is_stack) place.shape[j->dim] = count;
      slice = tdict_temp_over(&temp, made, &place);
    }
    slice->data = (void *)at;
    status = tdict_moves_copy(&j->moves, slice, part, err);
    at += (uintptr_t)count * step;
  }
  /* Each copy wrote a part of the tensor, so together no byte is lost. Copies on a device come later. */
  if (status == TDICT_OK && tdict_is_on_host(made)) tdict_tensor_regain(made);
  return status;
}

static tdict_status describe_joined_leaf(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                         tdict_error *err) {
  (void)from;
  return describe_joined(map->user, entry, made, err);
}

static tdict_status fill_joined(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                                tdict_error *err) {
  (void)from;
  return copy_parts(map->user, entry, made, err);
}

/* Returns true if stack makes a ragged leaf, because first sizes differ. The leaf checks the other sizes. */
static bool has_different_lengths(const tdict_map *map, size_t entry) {
  const joiner *j = map->user;
  const tdict_tensor *first = get_joined_part(j, entry, 0);
  bool is_equal = true;
  for (size_t i = 1; i < j->count; i++) {
    const tdict_tensor *t = get_joined_part(j, entry, i);
    if (t->ndim != first->ndim || t->ndim == 0) return false;
    is_equal = is_equal && t->dims[0] == first->dims[0];
  }
  return !is_equal;
}

static tdict_status stack_as_ragged(const joiner *j, size_t entry, tdict_box **out, tdict_error *err) {
  tdict_ragged_options options = tdict_ragged_options_default();
  tdict_ragged *made;
  options.memory = j->run.memory;
  tdict_tensor **rows = malloc(j->count * sizeof *rows); /* cannot overflow: j->items has j->count pointers */
  if (!rows) return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for a list of %zu tensors", j->what, j->count);
  for (size_t i = 0; i < j->count; i++) rows[i] = tdict_leaf_tensor(j->aligned.leaves[entry * j->count + i]);
  tdict_status status = tdict_ragged_of_rows(j->what, rows, j->count, &options, &made, err);
  free((void *)rows);
  return status == TDICT_OK ? tdict_box_give(tdict_ragged_type(), made, out, err) : status;
}

static tdict_status join_objects(const tdict_map *map, size_t entry, tdict_box *from, const tdict_tree *node,
                                 tdict_box **out, tdict_error *err) {
  const joiner *j = map->user;
  if (!from) return stack_as_ragged(j, entry, out, err);
  const tdict_joining how = {j->dim, j->is_stack, node, j->items, j->run.memory};
  return tdict_box_join(j->aligned.leaves + entry * j->count, j->count, &how, out, err);
}

static tdict_status join_into_new_tree(joiner *j, const join_options *options, tdict_tree **out, tdict_error *err) {
  tdict_tree **opened = NULL, *made = NULL;
  tdict_status status = read_join_options(j, options, out, err);
  if (status == TDICT_OK) status = tdict_align_trees(j->what, j->items, j->count, true, &j->aligned, err);
  if (status != TDICT_OK) return status;
  const tdict_tree *first = j->items[0];
  const tdict_object_method way = j->is_stack && j->dim == 0 ? TDICT_OBJECT_STACK : TDICT_OBJECT_AS_TENSORS;
  /* Flatten the program's objects that no `stack` hook can stack. If the caller passed a memory, flatten all that have
   * `flatten`. */
  if (j->aligned.has_objects) {
    const tdict_flatten_rule opening = {.what = j->what, .way = way, .tensors_first = j->run.memory != NULL};
    status = tdict_aligned_open(&j->aligned, &opening, true, j->items, &opened, err);
  }
  /* A flattened object must be made again from tensors, not from ragged leaves. */
  if (status == TDICT_OK && j->makes_ragged && opened && tdict_num_objects(opened[0]) != tdict_num_objects(first))
    status = tdict_fail(err, TDICT_ENOTSUP, "%s: the option ragged is set, and an object has no stack hook", j->what);
  /* Build the result from the first tree; the callbacks read the other trees at the same entry. */
  const tdict_map map = {.what = j->what,
                         .batch_in = first->batch_ndim,
                         .batch_out = j->ndim,
                         .batch_size = j->batch_size,
                         .more_dims = j->is_stack,
                         .drops_locks = true,
                         .memory = j->run.memory,
                         .describe = describe_joined_leaf,
                         .fill = fill_joined,
                         .user = j,
                         .moves = &j->moves,
                         .way = way,
                         .join = join_objects,
                         .becomes_object = j->makes_ragged ? has_different_lengths : NULL,
                         .objects_opened = opened != NULL};
  if (status == TDICT_OK) status = tdict_map_run(&map, opened ? opened[0] : first, &made, err);
  if (status == TDICT_OK && opened) status = tdict_objects_unflatten(j->what, first, made, err);
  tdict_aligned_reset(&j->aligned);
  tdict_aligned_close(opened, j->count);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}

tdict_status tdict_stack(const tdict_tree *const *items, size_t count, const tdict_join_options *options,
                         const tdict_run *run, tdict_tree **out, tdict_error *err) {
  joiner j = {.what = "stack", .items = items, .count = count, .is_stack = true, .makes_ragged = true};
  return join_into_new_tree(&j, &(join_options){options, run, TDICT_USES_STREAM | TDICT_USES_MEMORY}, out, err);
}

tdict_status tdict_cat(const tdict_tree *const *items, size_t count, const tdict_join_options *options,
                       const tdict_run *run, tdict_tree **out, tdict_error *err) {
  joiner j = {.what = "cat", .items = items, .count = count};
  return join_into_new_tree(&j, &(join_options){options, run, TDICT_USES_STREAM | TDICT_USES_MEMORY}, out, err);
}

/* Writes the elements of all objects at an entry to the object of `out`, one tree after another. The write pass uses
 * the pairs of the check pass again, in the same order. */
static tdict_status write_joined_objects(joiner *j, const tdict_tree *out, size_t entry, const char *path,
                                         bool checks_only, tdict_error *err) {
  const tdict_leaf *leaves = j->aligned.leaves + entry * j->aligned.count;
  const bool is_cat = !j->is_stack && j->dim == 0;
  tdict_pick pick = {.selects = true, .step = 1};
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < j->count && status == TDICT_OK; i++, pick.start += pick.count) {
    const tdict_leaf both[2] = {leaves[0], leaves[j->first_item + i]};
    const tdict_pairing how = {
        .what = j->what, .path = path, .pick = is_cat ? &pick : NULL, .trees = {out, j->items[i]}};
    if (is_cat) pick.count = j->items[i]->batch_size[0];
    if (checks_only) status = tdict_flat_pairs_add(&j->pairs, &how, both, err);
    if (status != TDICT_OK) break;
    const tdict_flat_pair pair = tdict_flat_pairs_take(&j->pairs, checks_only);
    status = tdict_write_pair(j->what, &j->moves, &pair, path, checks_only, err);
  }
  return status;
}

/* Checks that the tensors of all trees at an entry can be copied into the existing tensor `to`. */
static tdict_status check_joined_into(joiner *j, size_t entry, const tdict_tensor *to, tdict_error *err) {
  tdict_made made;
  tdict_status status = describe_joined(j, entry, &made, err);
  if (status == TDICT_OK) status = tdict_check_shape(j->what, to, made.ndim, made.shape, err);
  for (size_t i = 0; i < j->count && status == TDICT_OK; i++)
    status = tdict_moves_check_copy(&j->moves, j->what, to, get_joined_part(j, entry, i), err);
  return status;
}

/* Writes the leaves of `out`, the first tree in `aligned`, or with `checks_only` checks that it can. */
static tdict_status write_joined_leaves(joiner *j, const tdict_tree *out, bool checks_only, tdict_error *err) {
  char path[sizeof((tdict_error *)NULL)->path];
  tdict_cursor cursor;
  tdict_status status = TDICT_OK;
  size_t entry = 0;
  tdict_cursor_init(&cursor, out, false);
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0; entry++) {
    tdict_tensor *to = tdict_leaf_tensor(leaf);
    if (tdict_leaf_tree(leaf)) {
      tdict_cursor_descend(&cursor, tdict_leaf_tree(leaf), 0);
      continue;
    }
    if (!to) {
      tdict_cursor_path(&cursor, NULL, path, sizeof path);
      status = write_joined_objects(j, out, entry, path, checks_only, err);
    } else {
      status = checks_only ? check_joined_into(j, entry, to, err) : copy_parts(j, entry, to, err);
    }
    if (status != TDICT_OK && err && !err->path[0]) status = tdict_cursor_fail(&cursor, NULL, status, err);
  }
  return tdict_cursor_end(&cursor, j->what, status, err);
}

static tdict_status join_into(joiner *j, const join_options *options, tdict_tree *out, tdict_error *err) {
  if (!out) return tdict_fail_null(err, j->what, "dst");
  tdict_status status = read_join_options(j, options, out, err);
  if (status != TDICT_OK) return status;
  status = tdict_check_batch_size(j->what, out, j->ndim, j->batch_size, err);
  if (status != TDICT_OK) return status;
  /* Match the entries of `out` and of the trees. `out` is the first tree in `aligned`. */
  size_t bytes;
  const tdict_tree **all = NULL;
  tdict_tree **opened = NULL;
  if (tdict_mul_size(j->count + 1, sizeof *all, &bytes)) all = malloc(bytes);
  if (!all) return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for a list of %zu trees", j->what, j->count);
  all[0] = out;
  memcpy(all + 1, j->items, j->count * sizeof *all);
  j->first_item = 1;
  status = tdict_align_trees(j->what, all, j->count + 1, true, &j->aligned, err);
  if (status == TDICT_OK && j->aligned.has_objects) {
    const tdict_flatten_rule opening = {.what = j->what, .way = TDICT_OBJECT_AS_TENSORS};
    status = tdict_aligned_open(&j->aligned, &opening, true, all, &opened, err);
    if (status != TDICT_OK) tdict_aligned_reset(&j->aligned);
  }
  free(all);
  if (status != TDICT_OK) return status;
  /* Check everything before the first byte is written. */
  const tdict_tree *to = opened ? opened[0] : out;
  status = write_joined_leaves(j, to, true, err);
  if (status == TDICT_OK) status = write_joined_leaves(j, to, false, err);
  if (status == TDICT_OK) status = tdict_moves_run(&j->moves, err);
  tdict_moves_reset(&j->moves);
  tdict_flat_pairs_reset(&j->pairs);
  tdict_aligned_reset(&j->aligned);
  tdict_aligned_close(opened, j->count + 1);
  return status;
}

tdict_status tdict_stack_into(tdict_tree *dst, const tdict_tree *const *items, size_t count,
                              const tdict_join_options *options, const tdict_run *run, tdict_error *err) {
  joiner j = {.what = "stack_into", .items = items, .count = count, .is_stack = true};
  return join_into(&j, &(join_options){options, run, TDICT_USES_STREAM}, dst, err);
}

tdict_status tdict_cat_into(tdict_tree *dst, const tdict_tree *const *items, size_t count,
                            const tdict_join_options *options, const tdict_run *run, tdict_error *err) {
  joiner j = {.what = "cat_into", .items = items, .count = count};
  return join_into(&j, &(join_options){options, run, TDICT_USES_STREAM}, dst, err);
}
