/* Stacks trees whose tensors differ in size, and pads the smaller ones. Thread rule: as in tdict/combine.h. */
#include "core/ops/pad.h"

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/memory/run.h"
#include "core/ops/align.h"
#include "core/ops/map.h"
#include "core/tensor/element.h"
#include "tdict/combine.h"

typedef struct padder {
  const tdict_pad_rule *rule;
  const tdict_tree *const *items;
  size_t count;
  bool is_mask; /* true: writes a mask instead of the elements */
  int ndim;     /* number of sizes in `batch_size`, the batch size of the result */
  int64_t batch_size[TDICT_MAX_BATCH_NDIM + 1];
  tdict_aligned aligned;
} padder;

static const tdict_tensor *get_sequence(const padder *p, size_t entry, size_t item) {
  return tdict_leaf_tensor(p->aligned.leaves[entry * p->count + item]);
}

/* Returns true if the sizes of dimension `dim` of the trees' tensors may differ. */
static bool is_padded_dim(const padder *p, int dim) {
  return p->rule->pads_sequence ? dim == 0 : dim >= p->items[0]->batch_ndim;
}

/* Returns true if two lists of sizes are equal, except in dimensions that are padded. */
static bool sizes_match(const padder *p, int ndim, const int64_t *sizes, int wanted_ndim, const int64_t *wanted) {
  bool is_equal = ndim == wanted_ndim;
  for (int d = 0; is_equal && d < ndim; d++) is_equal = sizes[d] == wanted[d] || is_padded_dim(p, d);
  return is_equal;
}

/* Computes the batch size of the result: the number of trees, then the largest size of each batch dimension. Checks
 * that the sizes of batch dimensions are equal in all trees, except in dimensions that are padded. */
static tdict_status plan_padded_batch_size(padder *p, tdict_error *err) {
  const tdict_tree *first = p->items[0];
  const char *what = p->rule->what;
  if (first->batch_ndim == TDICT_MAX_BATCH_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: the trees have %d batch dimensions, the maximum", what,
                      TDICT_MAX_BATCH_NDIM);
  p->ndim = first->batch_ndim + 1;
  p->batch_size[0] = (int64_t)p->count;
  for (int i = 0; i < first->batch_ndim; i++) p->batch_size[i + 1] = first->batch_size[i];
  for (size_t i = 0; i < p->count; i++) {
    const tdict_tree *td = p->items[i];
    if (!sizes_match(p, td->batch_ndim, td->batch_size, first->batch_ndim, first->batch_size)) {
      return tdict_fail(err, TDICT_ESHAPE, "%s: tree %zu has batch size %s, tree 0 has %s", what, i,
                        TDICT_SHAPE_TEXT(td->batch_ndim, td->batch_size),
                        TDICT_SHAPE_TEXT(first->batch_ndim, first->batch_size));
    }
    if (p->rule->pads_sequence && td->batch_ndim && td->batch_size[0] > p->batch_size[1])
      p->batch_size[1] = td->batch_size[0];
  }
  return TDICT_OK;
}

tdict_status tdict_check_part(const char *what, const tdict_tensor *t, size_t i, const tdict_tensor *from,
                              bool sizes_match, tdict_error *err) {
  if (!sizes_match)
    return tdict_fail(err, TDICT_ESHAPE, "%s: the tensor has shape %s in tree %zu, but %s in tree 0", what,
                      TDICT_SHAPE_TEXT(t->ndim, t->dims), i, TDICT_SHAPE_TEXT(from->ndim, from->dims));
  if (t->dtype != from->dtype)
    return tdict_fail(err, TDICT_EDTYPE, "%s: the tensor has dtype %s in tree %zu, but %s in tree 0", what,
                      TDICT_DTYPE_TEXT(t->dtype), i, TDICT_DTYPE_TEXT(from->dtype));
  if (!tdict_device_equal(tdict_tensor_device(t), tdict_tensor_device(from)))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the tensor is on %s in tree %zu, but on %s in tree 0", what,
                      TDICT_DEVICE_TEXT(tdict_tensor_device(t)), i, TDICT_DEVICE_TEXT(tdict_tensor_device(from)));
  return TDICT_OK;
}

/* Computes the shape of the result's tensor. Checks that the tensors match and the dtype can hold the value. */
static tdict_status describe_padded(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                    tdict_error *err) {
  const padder *p = map->user;
  const char *what = p->rule->what;
  unsigned char element[TDICT_ELEMENT_ROOM];
  /* The mask has the batch dimensions, and then all up to the last dimension in which tensors differ. The mask of a
   * sequence always has the sequence dimension. */
  int num_masked = p->rule->pads_sequence && p->ndim == 1 ? 2 : p->ndim;
  if (from->ndim == TDICT_MAX_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: a tensor would have more than %d dimensions", what, TDICT_MAX_NDIM);
  if (p->rule->pads_sequence && from->ndim == 0)
    return tdict_fail(err, TDICT_ESHAPE, "%s: the tensor has no dimension to pad", what);
  made->fresh = true;
  made->ndim = from->ndim + 1;
  made->shape[0] = p->batch_size[0];
  for (int d = 0; d < from->ndim; d++) made->shape[d + 1] = from->dims[d];
  for (size_t i = 1; i < p->count; i++) {
    const tdict_tensor *t = get_sequence(p, entry, i);
    bool matches = sizes_match(p, t->ndim, t->dims, from->ndim, from->dims);
    tdict_status status = tdict_check_part(what, t, i, from, matches, err);
    if (status != TDICT_OK) return status;
    for (int d = 0; d < from->ndim; d++) {
      if (t->dims[d] == from->dims[d]) continue;
      if (t->dims[d] > made->shape[d + 1]) made->shape[d + 1] = t->dims[d];
      if (d + 2 > num_masked) num_masked = d + 2;
    }
  }
  if (p->is_mask) made->ndim = num_masked;
  /* Check that the dtype can hold the value. */
  return tdict_element_from_double(what, from->dtype, p->rule->value, element, err);
}

static tdict_status fill_with(const padder *p, const tdict_tensor *t, unsigned char byte, tdict_error *err) {
  tdict_status status = tdict_element_check(p->rule->what, t, &byte, err);
  return status == TDICT_OK ? tdict_element_fill(t, &byte, err) : status;
}

/* Writes 1 for the indices that `part` has, and 0 for all other indices. */
static tdict_status write_mask(const padder *p, const tdict_tensor *row, const tdict_tensor *part, tdict_error *err) {
  tdict_made used;
  tdict_temp temp;
  tdict_status status = fill_with(p, row, 0, err);
  tdict_made_of(row, &used);
  for (int d = 0; d < row->ndim; d++) tdict_made_narrow(&used, d, 0, part->dims[d], 1);
  return status == TDICT_OK ? fill_with(p, tdict_temp_over(&temp, row, &used), 1, err) : status;
}

static tdict_status fill_padded(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                                tdict_error *err) {
  const padder *p = map->user;
  const char *what = p->rule->what;
  unsigned char element[TDICT_ELEMENT_ROOM];
  tdict_status status = tdict_element_from_double(what, from->dtype, p->rule->value, element, err);
  tdict_made row;
  tdict_temp temp;
  for (size_t i = 0; i < p->count && status == TDICT_OK; i++) {
    const tdict_tensor *part = get_sequence(p, entry, i);
    tdict_made_of(made, &row);
    tdict_made_select(&row, 0, (int64_t)i, tdict_dtype_bytes(made->dtype));
    const tdict_tensor *to = tdict_temp_over(&temp, made, &row);
    status = p->is_mask ? write_mask(p, to, part, err) : tdict_element_pad(what, to, part, element, err);
  }
  return status;
}

static tdict_status stack_objects(const tdict_map *map, size_t entry, tdict_box *from, const tdict_tree *node,
                                  tdict_box **out, tdict_error *err) {
  const padder *p = map->user;
  (void)from;
  const tdict_joining how = {0, true, node, p->items, map->memory};
  return tdict_box_join(p->aligned.leaves + entry * p->count, p->count, &how, out, err);
}

/* Returns true if batch sizes of children are equal but for the sequence dimension, whose largest size is *longest. */
static bool measure_children(const padder *p, size_t entry, int64_t *longest) {
  const tdict_leaf *row = p->aligned.leaves + entry * p->count;
  const tdict_tree *first = tdict_leaf_tree(row[0]);
  bool matches = first->batch_ndim > 0;
  *longest = 0;
  for (size_t i = 0; i < p->count && matches; i++) {
    const tdict_tree *child = tdict_leaf_tree(row[i]);
    matches = sizes_match(p, child->batch_ndim, child->batch_size, first->batch_ndim, first->batch_size);
    if (matches && child->batch_size[0] > *longest) *longest = child->batch_size[0];
  }
  return matches;
}

/* Sets the batch sizes of the result's children. If the trees have no batch dimensions, a child whose own first batch
 * dimension is the sequence dimension gets the largest size of this dimension. If the batch sizes of the children
 * differ otherwise, the child gets the batch size of the result. So does each child of a tree of masks, because a mask
 * need not have the additional batch dimensions of its node. Returns TDICT_ENOMEM if memory is exhausted. */
static tdict_status set_child_batch_sizes(const padder *p, tdict_tree *made, tdict_error *err) {
  tdict_cursor cursor;
  size_t entry = 0;
  tdict_cursor_init(&cursor, made, false);
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(&cursor)) != 0; entry++) {
    tdict_tree *node = tdict_leaf_tree(leaf);
    if (!node) continue;
    if (p->is_mask || !measure_children(p, entry, &node->batch_size[1])) node->batch_ndim = p->ndim;
    tdict_cursor_descend(&cursor, node, 0);
  }
  return tdict_cursor_end(&cursor, p->rule->what, TDICT_OK, err);
}

/* Builds the padded tree or its masks. `opened`: copies with flattened objects, or NULL without objects. */
static tdict_status make_padded(padder *p, tdict_tree **opened, bool is_mask, tdict_tree **out, tdict_error *err) {
  tdict_tree *made = NULL;
  p->is_mask = is_mask;
  /* Build the result from the first tree; the callbacks read the other trees at the same entry. */
  const tdict_map map = {.what = p->rule->what,
                         .batch_in = p->items[0]->batch_ndim,
                         .batch_out = p->ndim,
                         .batch_size = p->batch_size,
                         .more_dims = 1,
                         .drops_locks = true,
                         .memory = p->rule->memory,
                         .dtype = is_mask ? TDICT_BOOL : 0,
                         .describe = describe_padded,
                         .fill = fill_padded,
                         .user = p,
                         .join = stack_objects,
                         .objects_opened = opened != NULL};
  tdict_status status = tdict_map_run(&map, opened ? opened[0] : p->items[0], &made, err);
  if (status == TDICT_OK && (is_mask || (p->rule->pads_sequence && p->ndim == 1)))
    status = set_child_batch_sizes(p, made, err);
  /* Masks of objects stay trees. */
  if (status == TDICT_OK && opened && !is_mask) status = tdict_objects_unflatten(p->rule->what, p->items[0], made, err);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}

tdict_status tdict_pad_trees(const tdict_pad_rule *rule, const tdict_tree *const *items, size_t count, tdict_tree **out,
                             tdict_tree **mask, tdict_error *err) {
  padder p = {.rule = rule, .items = items, .count = count};
  tdict_status status = tdict_align_trees(rule->what, items, count, true, &p.aligned, err);
  if (status != TDICT_OK) return status;
  tdict_tree **opened = NULL, *made = NULL, *made_mask = NULL;
  /* Flatten the objects, so that their tensors are padded too. */
  status = plan_padded_batch_size(&p, err);
  if (status == TDICT_OK && p.aligned.has_objects) {
    const tdict_flatten_rule opening = {.what = rule->what, .way = TDICT_OBJECT_AS_TENSORS};
    status = tdict_aligned_open(&p.aligned, &opening, true, items, &opened, err);
  }
  if (status == TDICT_OK) status = make_padded(&p, opened, false, &made, err);
  if (status == TDICT_OK && mask) status = make_padded(&p, opened, true, &made_mask, err);
  tdict_aligned_reset(&p.aligned);
  tdict_aligned_close(opened, count);
  if (status != TDICT_OK) {
    tdict_release(made);
    return status;
  }
  *out = made;
  if (mask) *mask = made_mask;
  return TDICT_OK;
}

static tdict_status add_masks(const char *what, const char *path, tdict_tree *made, tdict_tree *masks,
                              tdict_error *err) {
  if (!tdict_has(made, path)) return tdict_set_tree(made, path, masks, err);
  return tdict_fail_at(err, TDICT_EEXIST, path, "%s: the trees have an entry at the path of the masks", what);
}

tdict_status tdict_pad_sequence(const tdict_tree *const *items, size_t count, const tdict_pad_options *options,
                                const tdict_run *run, tdict_tree **out, tdict_error *err) {
  static const char what[] = "pad_sequence";
  tdict_pad_options o = tdict_pad_options_default();
  tdict_run r;
  if (!out) return tdict_fail_null(err, what, "out");
  tdict_status status = tdict_options_read(&o, sizeof o, options, "pad options", err);
  if (status == TDICT_OK) status = tdict_run_read(&r, run, TDICT_USES_MEMORY, what, err);
  if (status != TDICT_OK) return status;
  const tdict_pad_rule rule = {.what = what, .pads_sequence = true, .value = o.value, .memory = r.memory};
  tdict_tree *made = NULL, *masks = NULL;
  status = tdict_pad_trees(&rule, items, count, &made, o.masks ? &masks : NULL, err);
  if (status == TDICT_OK && o.masks) status = add_masks(what, o.masks, made, masks, err);
  tdict_release(masks);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}
