/* Stacks sequences of different lengths and pads the shorter sequences. The result is owned by the caller.
 * Thread rule: as in tdict/combine.h. */
#include "base/error.h"
#include "base/options.h"
#include "ops/align.h"
#include "ops/map.h"
#include "tdict/combine.h"
#include "tensor/element.h"
#include "tree/text.h"

static const char what[] = "pad_sequence";

typedef struct padder {
  const tdict_tree *const *items;
  size_t count;
  double value;
  int ndim;
  int64_t batch_size[TDICT_MAX_BATCH_NDIM + 1];
  tdict_aligned aligned;
} padder;

static const tdict_tensor *get_sequence(const padder *p, size_t entry, size_t item) {
  return tdict_leaf_tensor(p->aligned.leaves[entry * p->count + item]);
}

/* Computes the batch size of the result: [count, longest, ...]. Checks that the other batch dimensions are equal. */
static tdict_status plan_padded_batch_size(padder *p, tdict_error *err) {
  const tdict_tree *first = p->items[0];
  if (first->batch_ndim == TDICT_MAX_BATCH_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: the trees have %d batch dimensions, the maximum", what,
                      TDICT_MAX_BATCH_NDIM);
  p->ndim = first->batch_ndim + 1;
  p->batch_size[0] = (int64_t)p->count;
  for (int i = 0; i < first->batch_ndim; i++) p->batch_size[i + 1] = first->batch_size[i];
  for (size_t i = 0; i < p->count; i++) {
    const tdict_tree *td = p->items[i];
    if (td->batch_ndim == 0)
      return tdict_fail(err, TDICT_EINVAL, "%s: tree %zu has no batch dimension to pad", what, i);
    bool is_equal = td->batch_ndim == first->batch_ndim;
    for (int d = 1; is_equal && d < td->batch_ndim; d++) is_equal = td->batch_size[d] == first->batch_size[d];
    if (!is_equal) {
      char wanted[96], found[96];
      return tdict_fail(err, TDICT_ESHAPE, "%s: tree %zu has batch size %s, tree 0 has %s", what, i,
                        tdict_text_shape(td->batch_ndim, td->batch_size, found, sizeof found),
                        tdict_text_shape(first->batch_ndim, first->batch_size, wanted, sizeof wanted));
    }
    if (td->batch_size[0] > p->batch_size[1]) p->batch_size[1] = td->batch_size[0];
  }
  return TDICT_OK;
}

/* Computes the shape of the result's tensor at an entry. Checks that the tensors match and that the dtype can hold
 * the value. */
static tdict_status describe_padded(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                    tdict_error *err) {
  const padder *p = map->user;
  unsigned char element[4 * TDICT_ELEMENT_BYTES];
  if (from->ndim == TDICT_MAX_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: a tensor would have more than %d dimensions", what, TDICT_MAX_NDIM);
  made->fresh = true;
  made->ndim = from->ndim + 1;
  made->shape[0] = p->batch_size[0];
  made->shape[1] = p->batch_size[1];
  for (int i = 1; i < from->ndim; i++) made->shape[i + 1] = from->dims[i];
  /* Check that all tensors match the first tensor, except in the length of the sequence. */
  for (size_t i = 1; i < p->count; i++) {
    const tdict_tensor *t = get_sequence(p, entry, i);
    bool is_equal = t->ndim == from->ndim;
    for (int d = 1; is_equal && d < t->ndim; d++) is_equal = t->dims[d] == from->dims[d];
    if (!is_equal) {
      char wanted[96], found[96];
      return tdict_fail(err, TDICT_ESHAPE, "%s: the tensor has shape %s in tree %zu, but %s in tree 0", what,
                        tdict_text_shape(t->ndim, t->dims, found, sizeof found), i,
                        tdict_text_shape(from->ndim, from->dims, wanted, sizeof wanted));
    }
    if (t->dtype != from->dtype) {
      char wanted[TDICT_DTYPE_TEXT_BYTES], found[TDICT_DTYPE_TEXT_BYTES];
      return tdict_fail(err, TDICT_EDTYPE, "%s: the tensor has dtype %s in tree %zu, but %s in tree 0", what,
                        tdict_dtype_format(t->dtype, found, sizeof found), i,
                        tdict_dtype_format(from->dtype, wanted, sizeof wanted));
    }
    if (!tdict_device_equal(tdict_tensor_device(t), tdict_tensor_device(from))) {
      char wanted[32], found[32];
      return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the tensor is on %s in tree %zu, but on %s in tree 0", what,
                        tdict_device_format(tdict_tensor_device(t), found, sizeof found), i,
                        tdict_device_format(tdict_tensor_device(from), wanted, sizeof wanted));
    }
  }
  /* Check that the dtype can hold the value. */
  if (tdict_dtype_bytes(from->dtype) > sizeof element)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: elements of %zu bytes are not supported", what,
                      tdict_dtype_bytes(from->dtype));
  return tdict_element_from_double(what, from->dtype, p->value, element, err);
}

static tdict_status fill_padded(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                                tdict_error *err) {
  const padder *p = map->user;
  unsigned char element[4 * TDICT_ELEMENT_BYTES];
  tdict_status status = tdict_element_from_double(what, from->dtype, p->value, element, err);
  tdict_made row;
  tdict_temp temp;
  for (size_t i = 0; i < p->count && status == TDICT_OK; i++) {
    tdict_made_of(made, &row);
    tdict_made_select(&row, 0, (int64_t)i, tdict_dtype_bytes(made->dtype));
    status = tdict_element_pad(what, tdict_temp_over(&temp, made, &row), get_sequence(p, entry, i), element, err);
  }
  return status;
}

static tdict_status stack_builtins(const tdict_map *map, size_t entry, tdict_box *from, const tdict_tree *node,
                                   tdict_box **out, tdict_error *err) {
  const padder *p = map->user;
  (void)from;
  const tdict_joining how = {0, true, node, p->items, map->memory};
  return tdict_box_join(p->aligned.leaves + entry * p->count, p->count, &how, out, err);
}

tdict_status tdict_pad_sequence(const tdict_tree *const *items, size_t count, double value,
                                const tdict_join_options *options, tdict_tree **out, tdict_error *err) {
  tdict_join_options o = tdict_join_options_default();
  padder p = {.items = items, .count = count, .value = value};
  if (!out) return tdict_fail(err, TDICT_EINVAL, "%s: out is NULL", what);
  tdict_status status = tdict_options_read(&o, sizeof o, options, "join options", err);
  if (status == TDICT_OK && o.ragged)
    status = tdict_fail(err, TDICT_EINVAL, "%s: the option ragged is set, and only stack makes ragged leaves", what);
  if (status == TDICT_OK && o.dim != 0)
    status = tdict_fail(err, TDICT_EINVAL, "%s: dim is %d, wanted 0", what, (int)o.dim);
  if (status == TDICT_OK) status = tdict_align_trees(what, items, count, true, &p.aligned, err);
  if (status != TDICT_OK) return status;
  tdict_tree **opened = NULL, *made = NULL;
  /* Flatten the objects, so that their tensors are padded too. */
  status = plan_padded_batch_size(&p, err);
  if (status == TDICT_OK && p.aligned.has_objects) {
    const tdict_flatten_rule opening = {.what = what, .way = TDICT_OBJECT_AS_TENSORS};
    status = tdict_aligned_open(&p.aligned, &opening, true, items, &opened, err);
  }
  /* Build the result from the first tree; the callbacks read the other trees at the same entry. */
  const tdict_map map = {.what = what,
                         .batch_in = items[0]->batch_ndim,
                         .batch_out = p.ndim,
                         .batch_size = p.batch_size,
                         .more_dims = 1,
                         .drops_locks = true,
                         .memory = o.memory,
                         .describe = describe_padded,
                         .fill = fill_padded,
                         .user = &p,
                         .join = stack_builtins,
                         .objects_opened = opened != NULL};
  if (status == TDICT_OK) status = tdict_map_run(&map, opened ? opened[0] : items[0], &made, err);
  if (status == TDICT_OK && opened) status = tdict_objects_unflatten(what, items[0], made, err);
  tdict_aligned_reset(&p.aligned);
  tdict_aligned_close(opened, count);
  if (status == TDICT_OK)
    *out = made;
  else
    tdict_release(made);
  return status;
}
