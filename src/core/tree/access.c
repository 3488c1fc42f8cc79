/* Reads entries of a node or at a path, which the tree owns. Changes nothing. Thread rule: as in tdict/tree.h. */
#include <string.h>

#include "core/base/error.h"
#include "core/tensor/layout.h"
#include "core/tensor/tensor.h"
#include "core/tree/place.h"
#include "core/tree/text.h"

/* Returns the leaf at a path, or 0, also for a path with a backslash or an empty key. */
static __attribute__((noinline)) tdict_leaf find_leaf_by_keys(const tdict_tree *td, const char *path, const char *end) {
  tdict_name name;
  const tdict_tree *node = tdict_place_find_fast(td, path, end, &name);
  int64_t slot = node ? tdict_keys_find_name(node->keys, &name) : -1;
  return slot < 0 ? 0 : node->leaves[slot];
}

/* Like find_leaf_by_keys(), but finds one short key of a node with an index inline, without a call. */
static inline tdict_leaf find_leaf_fast(const tdict_tree *td, const char *path) {
  const size_t length = strlen(path);
  const tdict_keys *keys = td->keys;
  if (length - 1 >= TDICT_WORD_BYTES || !keys->cap_index) return find_leaf_by_keys(td, path, path + length);
  uint64_t word = length < TDICT_WORD_BYTES ? tdict_word_load_part(path, length) : tdict_word_load(path);
  if (tdict_word_stops(word)) return find_leaf_by_keys(td, path, path + length);
  /* Compute the hash of tdict_name_of() from the word that was just checked for dots and backslashes. */
  const tdict_name name = {path, length, word, 0, (uint32_t)tdict_hash_mix(tdict_hash_begin(length), word, 0)};
  int64_t slot = tdict_keys_find_indexed(keys, &name);
  return slot < 0 ? 0 : td->leaves[slot];
}

/* Finds the leaf at any path. Reports every error. `what` is the name of the public call. */
static tdict_status find_leaf(const tdict_tree *td, const char *path, const char *what, tdict_leaf *out,
                              tdict_error *err) {
  if (!td || !path) return tdict_fail_null(err, what, td ? "path" : "tree");
  tdict_place place;
  tdict_status status = tdict_place_get(&place, td, path, what, err);
  if (status != TDICT_OK) return status;
  *out = tdict_place_leaf(&place);
  tdict_place_reset(&place);
  return TDICT_OK;
}

/* Escaped paths and errors, after find_leaf_fast(). `out` points to a pointer, `what` names the public call. */
static TDICT_COLD tdict_status get_slow(const tdict_tree *td, const char *path, const char *what, int kind, void *out,
                                        tdict_error *err) {
  tdict_leaf leaf = 0;
  if (!out) return tdict_fail_null(err, what, "out");
  tdict_status status = find_leaf(td, path, what, &leaf, err);
  if (status == TDICT_OK) status = tdict_leaf_check(leaf, kind, what, path, err);
  const void *found = tdict_leaf_pointer(leaf);
  if (status == TDICT_OK) memcpy(out, &found, sizeof found);
  return status;
}

tdict_status tdict_get(const tdict_tree *tree, const char *path, tdict_tensor **out, tdict_error *err) {
  tdict_tensor *tensor = tree && path && out ? tdict_leaf_tensor(find_leaf_fast(tree, path)) : NULL;
  if (!tensor) return get_slow(tree, path, "get", TDICT_LEAF_TENSOR, out, err);
  *out = tensor;
  return TDICT_OK;
}

tdict_status tdict_get_tree(const tdict_tree *tree, const char *path, tdict_tree **out, tdict_error *err) {
  tdict_tree *child = tree && path && out ? tdict_leaf_tree(find_leaf_fast(tree, path)) : NULL;
  if (!child) return get_slow(tree, path, "get_tree", TDICT_LEAF_TREE, out, err);
  *out = child;
  return TDICT_OK;
}

void *tdict_data(tdict_tree *tree, const char *path) {
  tdict_tensor *tensor = NULL;
  return tdict_get(tree, path, &tensor, NULL) == TDICT_OK ? tdict_tensor_data(tensor) : NULL;
}

const void *tdict_const_data(const tdict_tree *tree, const char *path) {
  tdict_tensor *tensor = NULL;
  return tdict_get(tree, path, &tensor, NULL) == TDICT_OK ? tdict_tensor_const_data(tensor) : NULL;
}

/* What a caller wants at a path. */
typedef struct wanted {
  tdict_dtype dtype;
  int ndim; /* -1: any number */
  const int64_t *shape;
} wanted;

static bool has_shape(const tdict_tensor *t, const wanted *w) {
  if (w->ndim >= 0 && t->ndim != w->ndim) return false;
  for (int i = 0; i < w->ndim; i++)
    if (w->shape[i] >= 0 && tdict_tensor_shape(t)[i] != w->shape[i]) return false;
  return true;
}

static tdict_status check_tensor(const char *what, const tdict_tensor *t, const wanted *w, tdict_error *err) {
  if (t->dtype != w->dtype)
    return tdict_fail(err, TDICT_EDTYPE, "%s: the tensor has the dtype %s, wanted %s", what, TDICT_DTYPE_TEXT(t->dtype),
                      TDICT_DTYPE_TEXT(w->dtype));
  if (!has_shape(t, w))
    return tdict_fail(err, TDICT_ESHAPE, "%s: the tensor has the shape %s, wanted %s", what,
                      TDICT_SHAPE_TEXT(t->ndim, tdict_tensor_shape(t)), TDICT_SHAPE_TEXT(w->ndim, w->shape));
  if (!tdict_is_on_host(t))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the tensor is on %s, wanted host memory; call tdict_to_device()",
                      what, TDICT_DEVICE_TEXT(t->storage->device));
  if (!tdict_tensor_is_contiguous(t))
    return tdict_fail(err, TDICT_ESHAPE, "%s: the elements are not in C order without gaps; call tdict_contiguous()",
                      what);
  return TDICT_OK;
}

/* Finds the tensor and checks everything but its bytes. */
static tdict_status find_tensor(const char *what, const tdict_tree *tree, const char *path, const wanted *w,
                                tdict_tensor **out, tdict_error *err) {
  if (w->ndim < -1 || w->ndim > TDICT_MAX_NDIM || (w->ndim > 0 && !w->shape))
    return tdict_fail(err, TDICT_EINVAL, "%s: num_dims is %d%s, wanted -1 to %d and a shape", what, w->ndim,
                      w->shape ? "" : " and shape is NULL", TDICT_MAX_NDIM);
  *out = tree && path ? tdict_leaf_tensor(find_leaf_fast(tree, path)) : NULL;
  tdict_status status = *out ? TDICT_OK : get_slow(tree, path, what, TDICT_LEAF_TENSOR, out, err);
  if (status == TDICT_OK) status = check_tensor(what, *out, w, err);
  return status == TDICT_OK ? status : tdict_error_at(err, status, path);
}

/* Returns the address of a tensor that was checked, or NULL if the bytes are lost or in a file. */
static const void *give(const char *what, const tdict_tensor *t, const void *data, const char *path, tdict_error *err) {
  static const char no_elements = 0; /* a valid address for a tensor that has none */
  if (data) return data;
  if (t->numel == 0) return &no_elements;
  (void)tdict_error_at(err, tdict_tensor_refuse_lost(what, "elements", t, err), path);
  return NULL;
}

void *tdict_checked_data(tdict_tree *tree, const char *path, tdict_dtype dtype, int num_dims, const int64_t *shape,
                         tdict_error *err) {
  static const char what[] = "checked_data";
  const wanted w = {dtype, num_dims, shape};
  tdict_tensor *t;
  if (find_tensor(what, tree, path, &w, &t, err) != TDICT_OK) return NULL;
  if (t->storage->flags & TDICT_STORAGE_READ_ONLY) {
    tdict_fail(err, TDICT_EREADONLY,
               "%s: the tensor is read-only, as in trees of tdict_open(); tdict_clone_deep() makes a copy", what);
    (void)tdict_error_at(err, TDICT_EREADONLY, path);
    return NULL;
  }
  return (void *)(uintptr_t)give(what, t, tdict_tensor_data(t), path, err);
}

const void *tdict_checked_const_data(const tdict_tree *tree, const char *path, tdict_dtype dtype, int num_dims,
                                     const int64_t *shape, tdict_error *err) {
  static const char what[] = "checked_const_data";
  const wanted w = {dtype, num_dims, shape};
  tdict_tensor *t;
  if (find_tensor(what, tree, path, &w, &t, err) != TDICT_OK) return NULL;
  return give(what, t, tdict_tensor_const_data(t), path, err);
}

/* Returns the entry of a slot with a key. The caller may set `path` and `depth`, which are NULL and 0. */
static tdict_entry make_entry(const tdict_tree *node, uint32_t slot) {
  const tdict_leaf leaf = node->leaves[slot];
  const tdict_box *box = tdict_leaf_box(leaf);
  return (tdict_entry){.key = node->keys->slots[slot].name,
                       .tensor = tdict_leaf_tensor(leaf),
                       .tree = tdict_leaf_tree(leaf),
                       .object = box ? box->self : NULL,
                       .type = box ? box->type : NULL};
}

/* Returns the depth of the last key of a valid path: the number of dots that no backslash escapes. */
static int32_t count_path_depth(const char *path) {
  int32_t depth = 0;
  for (; *path; path++) {
    if (*path == '\\')
      path++;
    else if (*path == '.')
      depth++;
  }
  return depth;
}

tdict_status tdict_get_entry(const tdict_tree *tree, const char *path, tdict_entry *out, tdict_error *err) {
  if (!tree || !path || !out) return tdict_fail_null(err, "get_entry", !tree ? "tree" : !path ? "path" : "out");
  tdict_place place;
  tdict_status status = tdict_place_get(&place, tree, path, "get_entry", err);
  if (status != TDICT_OK) return status;
  *out = make_entry(place.node, (uint32_t)place.slot);
  out->path = path;
  out->depth = count_path_depth(path);
  tdict_place_reset(&place);
  return TDICT_OK;
}

bool tdict_has(const tdict_tree *tree, const char *path) {
  tdict_leaf leaf = tree && path ? find_leaf_fast(tree, path) : 0;
  /* The fast search also returns 0 for an escaped path, so the full search decides. */
  return leaf || find_leaf(tree, path, "has", &leaf, NULL) == TDICT_OK;
}

size_t tdict_num_keys(const tdict_tree *tree) { return tree ? tree->keys->num_live : 0; }

/* Returns the slot of the i-th key, which must exist. */
static uint32_t find_nth_slot(const tdict_keys *keys, size_t i) {
  uint32_t slot = 0;
  /* If no key was deleted, the i-th key is in slot i, and no scan is needed. */
  if (keys->num_live == keys->num_slots) return (uint32_t)i;
  while (!keys->slots[slot].name || i-- > 0) slot++;
  return slot;
}

tdict_entry tdict_get_entry_at(const tdict_tree *tree, size_t i) {
  if (!tree || i >= tree->keys->num_live) return (tdict_entry){0};
  return make_entry(tree, find_nth_slot(tree->keys, i));
}
