/* Implements the built-in type of tensors without batch dimensions. An object is its tensor, and a box owns one
 * reference to it. The elements of the tensor can be written. Thread rule: as in tdict/tree.h. */
#include "tdict/unbatched.h"

#include <string.h>

#include "core/base/error.h"
#include "core/tensor/layout.h"
#include "core/tree/agree.h"
#include "core/tree/objects.h"
#include "core/tree/place.h"

static const char *const tensor_key = "tensor";

static tdict_tensor *tensor_of(const void *self) { return (tdict_tensor *)(uintptr_t)self; }

static void release_unbatched(void *self) { tdict_tensor_release(self); }

static bool is_pinned(const void *self) { return tdict_tensor_needs_no_pin(tensor_of(self)); }

static tdict_status flatten_unbatched(const void *self, tdict_tree **out, tdict_error *err) {
  return tdict_tree_of_tensors(&tensor_key, (tdict_tensor *const[]){tensor_of(self)}, 1, out, err);
}

static tdict_status unflatten_unbatched(const void *self, const tdict_tree *tree, void **out, tdict_error *err) {
  tdict_tensor *tensor;
  tdict_status status = tdict_get(tree, tensor_key, &tensor, err);
  if (status == TDICT_OK) *out = tensor == self ? tensor : tdict_tensor_retain(tensor);
  return status;
}

static size_t count_bytes(const void *self) { return tdict_tensor_nbytes(tensor_of(self)); }

static size_t print_unbatched(const void *self, char *buffer, size_t bytes) {
  const tdict_tensor *t = tensor_of(self);
  return (size_t)snprintf(buffer, bytes, "unbatched %s %s %s%s", TDICT_DTYPE_TEXT(t->dtype),
                          TDICT_SHAPE_TEXT(t->ndim, t->dims), TDICT_DEVICE_TEXT(tdict_tensor_device(t)),
                          tdict_tensor_is_pinned(t) ? " pinned" : "");
}

static int has_no_batch_dims(const void *self, const int64_t **sizes) {
  (void)self;
  *sizes = NULL;
  return 0;
}

/* Returns true if both tensors have the same elements at the same addresses. */
static bool is_same_tensor(const tdict_tensor *a, const tdict_tensor *b) {
  if (a == b) return true;
  const size_t bytes = (size_t)a->ndim * sizeof *a->dims;
  return a->storage == b->storage && a->data == b->data && a->dtype == b->dtype && a->ndim == b->ndim &&
         (bytes == 0 || memcmp(a->dims, b->dims, 2 * bytes) == 0);
}

/* Sets *out to `t` if `t` is contiguous and in host memory, else to a copy in host memory. The caller releases *out. */
static tdict_status read_on_host(tdict_tensor *t, tdict_tensor **out, tdict_error *err) {
  tdict_tensor_await(t, false);
  if (tdict_tensor_is_lost(t)) return tdict_tensor_refuse_lost("unbatched", "the bytes of the tensor", t, err);
  if (!tdict_is_on_host(t) || !tdict_tensor_is_contiguous(t)) return tdict_tensor_clone(t, NULL, out, err);
  *out = tdict_tensor_retain(t);
  return TDICT_OK;
}

static tdict_status compare_bytes(tdict_tensor *a, tdict_tensor *b, bool *are_equal, tdict_error *err) {
  tdict_tensor *x = NULL, *y = NULL;
  tdict_status status = read_on_host(a, &x, err);
  if (status == TDICT_OK) status = read_on_host(b, &y, err);
  if (status == TDICT_OK) *are_equal = a->numel == 0 || memcmp(x->data, y->data, tdict_tensor_nbytes(a)) == 0;
  tdict_tensor_release(x);
  tdict_tensor_release(y);
  return status;
}

/* Joins the objects of several trees. Sets *out to the first object if all tensors are equal, else returns an error. */
static tdict_status join_equal(const void *const *items, size_t count, const tdict_joining *how, void **out,
                               tdict_error *err) {
  tdict_tensor *first = tensor_of(items[0]);
  (void)how;
  for (size_t i = 1; i < count; i++) {
    tdict_tensor *t = tensor_of(items[i]);
    if (is_same_tensor(first, t)) continue;
    bool are_equal = first->dtype == t->dtype && tdict_shapes_equal(first->ndim, first->dims, t->ndim, t->dims);
    tdict_status status = are_equal ? compare_bytes(first, t, &are_equal, err) : TDICT_OK;
    if (status != TDICT_OK) return status;
    if (!are_equal)
      return tdict_fail(err, TDICT_EINVAL,
                        "unbatched: the tensors of tree 0 and tree %zu differ, wanted equal tensors in all trees", i);
  }
  *out = (void *)(uintptr_t)items[0];
  return TDICT_OK;
}

/* Makes the trees for a write, which must reach all elements: the tensor belongs to every one of them. */
static tdict_status pair_tensors(const void *self, const tdict_positions *positions, tdict_leaf value,
                                 tdict_tree *trees[2], tdict_error *err) {
  const tdict_box *from = tdict_leaf_box(value);
  if (!from || from->type != tdict_unbatched_type())
    return tdict_fail(err, TDICT_ETYPE, "unbatched: the value is not an unbatched tensor");
  if (positions && !is_same_tensor(tensor_of(self), tensor_of(from->self)))
    return tdict_fail(err, TDICT_ENOTSUP,
                      "unbatched: the tensor belongs to all elements of the tree, so a write of some elements cannot "
                      "change it; wanted the same tensor, or tdict_copy()");
  trees[0] = trees[1] = NULL;
  tdict_status status = flatten_unbatched(self, &trees[0], err);
  if (status == TDICT_OK) status = flatten_unbatched(from->self, &trees[1], err);
  if (status == TDICT_OK) return status;
  tdict_release(trees[0]);
  trees[0] = NULL;
  return status;
}

static const tdict_builtin unbatched_builtin = {.type = {.struct_size = sizeof(tdict_builtin),
                                                         .name = "unbatched",
                                                         .release = release_unbatched,
                                                         .is_pinned = is_pinned,
                                                         .flatten = flatten_unbatched,
                                                         .unflatten = unflatten_unbatched,
                                                         .bytes = count_bytes,
                                                         .print = print_unbatched},
                                                .mark = &tdict_builtin_mark,
                                                .batch = has_no_batch_dims,
                                                .join = join_equal,
                                                .elements = flatten_unbatched,
                                                .pair = pair_tensors};

const tdict_type *tdict_unbatched_type(void) { return &unbatched_builtin.type; }

tdict_status tdict_set_unbatched(tdict_tree *tree, const char *path, tdict_tensor *tensor, tdict_error *err) {
  static const char what[] = "set_unbatched";
  if (!tree || !path || !tensor) return tdict_fail_null_at(err, what, path, !tree ? "tree" : !path ? "path" : "tensor");
  tdict_place place;
  tdict_status status = tdict_place_find(&place, tree, path, what, err);
  if (status != TDICT_OK) return status;
  /* Check only the device, since every shape is allowed. */
  tdict_demand demand = tdict_demand_of(place.node, what, path);
  demand.batch_ndim = 0;
  status = tdict_agree_tensor(&demand, tensor, path, err);
  tdict_place_reset(&place);
  if (status != TDICT_OK) return status;
  return tdict_object_set(what, tree, path, tdict_unbatched_type(), tdict_tensor_retain(tensor), err);
}

tdict_status tdict_get_unbatched(const tdict_tree *tree, const char *path, tdict_tensor **out, tdict_error *err) {
  void *object = NULL;
  if (!tree || !path || !out) return tdict_fail_null(err, "get_unbatched", !tree ? "tree" : !path ? "path" : "out");
  tdict_status status = tdict_object_get("get_unbatched", tree, path, tdict_unbatched_type(), &object, err);
  if (status == TDICT_OK) *out = tensor_of(object);
  return status;
}
