/* Sequences of different lengths stacked, their ends filled with a value. The result belongs to the caller. Thread rule:
 * as in tdict/combine.h. */
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

static const tdict_tensor *part_of(const padder *p, size_t entry, size_t item) {
  return tdict_leaf_tensor(p->aligned.leaves[entry * p->count + item]);
}

/* The batch size of the result. */
static tdict_status plan_batch(padder *p, tdict_error *err) {
  const tdict_tree *first = p->items[0];
  if (first->batch_ndim == TDICT_MAX_BATCH_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: the trees have %d batch dimensions already", what, TDICT_MAX_BATCH_NDIM);
  p->ndim = first->batch_ndim + 1;
  p->batch_size[0] = (int64_t)p->count;
  for (int i = 0; i < first->batch_ndim; i++) p->batch_size[i + 1] = first->batch_size[i];
  for (size_t i = 0; i < p->count; i++) {
    const tdict_tree *td = p->items[i];
    if (td->batch_ndim == 0)
      return tdict_fail(err, TDICT_EINVAL, "%s: tree %zu has no batch dimension to be padded", what, i);
    bool same = td->batch_ndim == first->batch_ndim;
    for (int d = 1; same && d < td->batch_ndim; d++) same = td->batch_size[d] == first->batch_size[d];
    if (!same) {
      char wanted[96], found[96];
      return tdict_fail(err, TDICT_ESHAPE, "%s: tree %zu has batch size %s, tree 0 has %s", what, i,
                        tdict_text_shape(td->batch_ndim, td->batch_size, found, sizeof found),
                        tdict_text_shape(first->batch_ndim, first->batch_size, wanted, sizeof wanted));
    }
    if (td->batch_size[0] > p->batch_size[1]) p->batch_size[1] = td->batch_size[0];
  }
  return TDICT_OK;
}

static tdict_status describe(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
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
  for (size_t i = 1; i < p->count; i++) {
    const tdict_tensor *t = part_of(p, entry, i);
    bool same = t->ndim == from->ndim;
    for (int d = 1; same && d < t->ndim; d++) same = t->dims[d] == from->dims[d];
    if (!same) {
      char wanted[96], found[96];
      return tdict_fail(err, TDICT_ESHAPE, "%s: the tensor has shape %s in tree %zu, and %s in tree 0", what,
                        tdict_text_shape(t->ndim, t->dims, found, sizeof found), i,
                        tdict_text_shape(from->ndim, from->dims, wanted, sizeof wanted));
    }
    if (t->dtype != from->dtype) {
      char wanted[TDICT_DTYPE_TEXT_BYTES], found[TDICT_DTYPE_TEXT_BYTES];
      return tdict_fail(err, TDICT_EDTYPE, "%s: the tensor is %s in tree %zu, and %s in tree 0", what,
                        tdict_dtype_format(t->dtype, found, sizeof found), i,
                        tdict_dtype_format(from->dtype, wanted, sizeof wanted));
    }
    if (!tdict_device_equal(tdict_tensor_device(t), tdict_tensor_device(from))) {
      char wanted[32], found[32];
      return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the tensor is on %s in tree %zu, and on %s in tree 0", what,
                        tdict_device_format(tdict_tensor_device(t), found, sizeof found), i,
                        tdict_device_format(tdict_tensor_device(from), wanted, sizeof wanted));
    }
  }
  if (tdict_dtype_bytes(from->dtype) > sizeof element)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: elements of %zu bytes", what, tdict_dtype_bytes(from->dtype));
  return tdict_element_from_double(what, from->dtype, p->value, element, err);
}

/* Copies one sequence to its row and fills what is left of the row. */
static tdict_status write_part(const padder *p, const tdict_tensor *made, const tdict_tensor *part, int64_t row,
                               const void *element, tdict_error *err) {
  const size_t item = tdict_dtype_bytes(made->dtype);
  const int64_t length = part->dims[0];
  tdict_made here, end;
  tdict_temp temp;
  tdict_made_of(made, &here);
  tdict_made_select(&here, 0, row, item);
  end = here;
  tdict_made_narrow(&here, 0, 0, length, item);
  tdict_made_narrow(&end, 0, length, p->batch_size[1] - length, item);
  tdict_status status = tdict_tensor_copy(tdict_temp_over(&temp, made, &here), part, err);
  if (status != TDICT_OK || length == p->batch_size[1]) return status;
  const tdict_tensor *rest = tdict_temp_over(&temp, made, &end);
  status = tdict_element_check(what, rest, element, err);
  return status == TDICT_OK ? tdict_element_fill(rest, element, err) : status;
}

static tdict_status fill(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                         tdict_error *err) {
  const padder *p = map->user;
  unsigned char element[4 * TDICT_ELEMENT_BYTES];
  tdict_status status = tdict_element_from_double(what, from->dtype, p->value, element, err);
  for (size_t i = 0; i < p->count && status == TDICT_OK; i++)
    status = write_part(p, made, part_of(p, entry, i), (int64_t)i, element, err);
  return status;
}

tdict_status tdict_pad_sequence(const tdict_tree *const *items, size_t count, double value,
                                const tdict_join_options *options, tdict_tree **out, tdict_error *err) {
  tdict_join_options o = tdict_join_options_default();
  padder p = {.items = items, .count = count, .value = value};
  if (!out) return tdict_fail(err, TDICT_EINVAL, "%s: out is NULL", what);
  tdict_status status = tdict_options_read(&o, sizeof o, options, "join options", err);
  if (status == TDICT_OK && o.dim != 0)
    status = tdict_fail(err, TDICT_EINVAL, "%s: dim is %d, wanted 0", what, (int)o.dim);
  if (status == TDICT_OK) status = tdict_align_trees(what, items, count, true, &p.aligned, err);
  if (status != TDICT_OK) return status;
  tdict_tree **opened = NULL, *made = NULL;
  status = plan_batch(&p, err);
  if (status == TDICT_OK && p.aligned.objects) {
    const tdict_opening opening = {.what = what, .way = TDICT_WAY_TENSORS};
    status = tdict_aligned_open(&p.aligned, &opening, true, items, &opened, err);
  }
  const tdict_map map = {.what = what,
                         .batch_in = items[0]->batch_ndim,
                         .batch_out = p.ndim,
                         .batch_size = p.batch_size,
                         .more_dims = 1,
                         .unlocked = true,
                         .memory = o.memory,
                         .describe = describe,
                         .fill = fill,
                         .user = &p,
                         .opened = opened != NULL};
  if (status == TDICT_OK) status = tdict_map_run(&map, opened ? opened[0] : items[0], &made, err);
  if (status == TDICT_OK && opened) status = tdict_objects_close(what, items[0], made, err);
  tdict_aligned_reset(&p.aligned);
  tdict_aligned_close(opened, count);
  if (status == TDICT_OK)
    *out = made;
  else
    tdict_release(made);
  return status;
}
