/* Reading one node or one path. What is given out is borrowed from the tree. Thread rule: as in tdict/tree.h. */
#include "base/error.h"
#include "tree/place.h"
#include "tree/text.h"

/* The leaf at a path. */
static tdict_status find_leaf(const tdict_tree *td, const char *path, const char *what, tdict_leaf *out,
                              tdict_error *err) {
  if (!td || !path) return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, td ? "path" : "td");
  tdict_place place;
  tdict_status status = tdict_place_get(&place, td, path, what, err);
  if (status != TDICT_OK) return status;
  *out = tdict_place_leaf(&place);
  tdict_place_reset(&place);
  return TDICT_OK;
}

static tdict_status wrong_kind(const char *what, tdict_leaf leaf, const char *wanted, const char *path,
                               tdict_error *err) {
  char found[TDICT_TEXT_LEAF_BYTES];
  tdict_fail(err, TDICT_ETYPE, "%s: %s stands there, wanted %s", what, tdict_text_leaf(leaf, found), wanted);
  return tdict_at(err, TDICT_ETYPE, path);
}

tdict_status tdict_get(const tdict_tree *td, const char *path, tdict_tensor **out, tdict_error *err) {
  tdict_leaf leaf = 0;
  if (!out) return tdict_fail(err, TDICT_EINVAL, "get: out is NULL");
  tdict_status status = find_leaf(td, path, "get", &leaf, err);
  if (status != TDICT_OK) return status;
  tdict_tensor *tensor = tdict_leaf_tensor(leaf);
  if (!tensor) return wrong_kind("get", leaf, "a tensor", path, err);
  *out = tensor;
  return TDICT_OK;
}

tdict_status tdict_get_tree(const tdict_tree *td, const char *path, tdict_tree **out, tdict_error *err) {
  tdict_leaf leaf = 0;
  if (!out) return tdict_fail(err, TDICT_EINVAL, "get_tree: out is NULL");
  tdict_status status = find_leaf(td, path, "get_tree", &leaf, err);
  if (status != TDICT_OK) return status;
  tdict_tree *tree = tdict_leaf_tree(leaf);
  if (!tree) return wrong_kind("get_tree", leaf, "a tree", path, err);
  *out = tree;
  return TDICT_OK;
}

void *tdict_data(tdict_tree *td, const char *path) {
  tdict_tensor *tensor = NULL;
  return tdict_get(td, path, &tensor, NULL) == TDICT_OK ? tdict_tensor_data(tensor) : NULL;
}

const void *tdict_const_data(const tdict_tree *td, const char *path) {
  tdict_tensor *tensor = NULL;
  return tdict_get(td, path, &tensor, NULL) == TDICT_OK ? tdict_tensor_const_data(tensor) : NULL;
}

bool tdict_has(const tdict_tree *td, const char *path) {
  tdict_leaf leaf = 0;
  return find_leaf(td, path, "has", &leaf, NULL) == TDICT_OK;
}

size_t tdict_num_keys(const tdict_tree *td) { return td ? td->keys->num_live : 0; }

const char *tdict_key_at(const tdict_tree *td, size_t i) {
  if (!td || i >= td->keys->num_live) return NULL;
  const tdict_keys *keys = td->keys;
  if (keys->num_live == keys->num_slots) return keys->slots[i].name;
  for (uint32_t slot = 0; slot < keys->num_slots; slot++)
    if (keys->slots[slot].name && i-- == 0) return keys->slots[slot].name;
  return NULL;
}
