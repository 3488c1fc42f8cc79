/* Parts of trees by paths, and merges. Results belong to the caller; leaves are shared. Thread rule: as in
 * tdict/keysets.h. */
#include "tdict/keysets.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "tdict/write.h"
#include "tree/map.h"
#include "tree/place.h"
#include "tree/select.h"

static tdict_status check_paths(const char *what, const char *const *paths, size_t count, tdict_error *err) {
  if (count && !paths) return tdict_fail(err, TDICT_EINVAL, "%s: paths is NULL", what);
  for (size_t i = 0; i < count; i++)
    if (!paths[i]) return tdict_fail(err, TDICT_EINVAL, "%s: path %zu is NULL", what, i);
  return TDICT_OK;
}

static tdict_status no_memory(const char *what, tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for the tree", what);
}

/* Adds or replaces a key of a private node; takes the leaf's reference, on failure too. */
static tdict_status put(const char *what, tdict_tree *to, const tdict_key *key, int64_t slot, tdict_leaf leaf,
                        tdict_error *err) {
  if (slot >= 0) {
    if (!tdict_node_own_leaves(to)) {
      tdict_leaf_release(leaf);
      return no_memory(what, err);
    }
    tdict_leaf_release(to->leaves[slot]);
    to->leaves[slot] = leaf;
    return TDICT_OK;
  }
  if (tdict_node_add(to, key->name, key->length, key->hash, leaf)) return TDICT_OK;
  tdict_leaf_release(leaf);
  return no_memory(what, err);
}

/* Puts what stands at a path of `td`, which is there, at the same path of a private tree. */
static tdict_status take_path(const char *what, const tdict_tree *td, tdict_tree *to, const char *text,
                              tdict_error *err) {
  tdict_path path;
  tdict_path_init(&path, text, what);
  tdict_status status = tdict_path_next(&path, err);
  while (status == TDICT_OK) {
    int64_t from = tdict_keys_find_name(td->keys, &path.name);
    int64_t slot = tdict_keys_find_name(to->keys, &path.name);
    const tdict_key *key = &td->keys->slots[from];
    tdict_tree *tree = tdict_leaf_tree(td->leaves[from]), *node = NULL;
    if (path.last) {
      tdict_leaf leaf = 0;
      if (tree) status = tdict_map_share(tree, what, &node, err);
      if (status == TDICT_OK) leaf = tree ? tdict_leaf_of_tree(node) : tdict_leaf_retain(td->leaves[from]);
      if (status == TDICT_OK) status = put(what, to, key, slot, leaf, err);
      break;
    }
    if (slot < 0) {
      node = tdict_node_create_under(tree);
      status = node ? put(what, to, key, slot, tdict_leaf_of_tree(node), err) : no_memory(what, err);
      if (status != TDICT_OK) break;
    } else {
      node = tdict_leaf_tree(to->leaves[slot]);
    }
    td = tree;
    to = node;
    status = tdict_path_next(&path, err);
  }
  tdict_path_reset(&path);
  return status;
}

tdict_status tdict_select_paths(const char *what, const tdict_tree *td, const tdict_selection *selection,
                                tdict_tree **out, tdict_error *err) {
  const char *const *paths = selection->paths;
  const size_t count = selection->count;
  tdict_status status = check_paths(what, paths, count, err);
  if (status != TDICT_OK) return status;
  tdict_tree *made = tdict_node_create_under(td);
  if (!made) return no_memory(what, err);
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    tdict_place place;
    tdict_error why = {0}; /* whether the caller's is written is not known yet */
    status = tdict_place_get(&place, td, paths[i], what, &why);
    if (status == TDICT_OK) {
      tdict_place_reset(&place);
      status = take_path(what, td, made, paths[i], err);
    } else if (!selection->strict && (status == TDICT_ENOTFOUND || status == TDICT_ETYPE)) {
      status = TDICT_OK;
    } else if (err) {
      *err = why;
    }
  }
  if (status != TDICT_OK) {
    tdict_release(made);
    return status;
  }
  *out = made;
  return TDICT_OK;
}

tdict_status tdict_select(const tdict_tree *td, const char *const *paths, size_t count, bool strict, tdict_tree **out,
                          tdict_error *err) {
  if (!td || !out) return tdict_fail(err, TDICT_EINVAL, "select: %s is NULL", td ? "out" : "td");
  const tdict_selection selection = {paths, count, strict};
  return tdict_select_paths("select", td, &selection, out, err);
}

/* Takes the paths out of a private tree. */
static tdict_status drop_paths(tdict_tree *made, const char *const *paths, size_t count, tdict_error *err) {
  for (size_t i = 0; i < count; i++) {
    tdict_error why = {0};
    tdict_status status = tdict_delete(made, paths[i], &why);
    if (status == TDICT_OK || status == TDICT_ENOTFOUND || status == TDICT_ETYPE) continue;
    if (err) *err = why;
    return status;
  }
  return TDICT_OK;
}

tdict_status tdict_exclude(const tdict_tree *td, const char *const *paths, size_t count, tdict_tree **out,
                           tdict_error *err) {
  tdict_tree *made = NULL;
  if (!td || !out) return tdict_fail(err, TDICT_EINVAL, "exclude: %s is NULL", td ? "out" : "td");
  tdict_status status = check_paths("exclude", paths, count, err);
  if (status == TDICT_OK) status = tdict_map_share(td, "exclude", &made, err);
  if (status == TDICT_OK) status = drop_paths(made, paths, count, err);
  if (status != TDICT_OK) {
    tdict_release(made);
    return status;
  }
  *out = made;
  return TDICT_OK;
}

tdict_status tdict_split_keys(const tdict_tree *td, const tdict_key_set *sets, size_t count, tdict_tree **out,
                              tdict_error *err) {
  static const char what[] = "split_keys";
  size_t bytes, trees;
  if (!td || !out) return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, td ? "out" : "td");
  if (count && !sets) return tdict_fail(err, TDICT_EINVAL, "%s: sets is NULL", what);
  tdict_tree **made = NULL;
  if (tdict_add_size(count, 1, &trees) && tdict_mul_size(trees, sizeof *made, &bytes)) made = calloc(1, bytes);
  if (!made) return no_memory(what, err);
  tdict_status status = tdict_map_share(td, what, &made[count], err);
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    const tdict_selection selection = {sets[i].paths, sets[i].count, true};
    status = tdict_select_paths(what, td, &selection, &made[i], err);
    if (status == TDICT_OK) status = drop_paths(made[count], sets[i].paths, sets[i].count, err);
  }
  if (status == TDICT_OK)
    memcpy(out, made, bytes);
  else
    for (size_t i = 0; i <= count; i++) tdict_release(made[i]);
  free(made);
  return status;
}

tdict_status tdict_merge(const tdict_tree *const *items, size_t count, tdict_tree **out, tdict_error *err) {
  tdict_tree *made = NULL;
  if (!out) return tdict_fail(err, TDICT_EINVAL, "merge: out is NULL");
  if (!items || count == 0) return tdict_fail(err, TDICT_EINVAL, "merge: no trees");
  for (size_t i = 0; i < count; i++)
    if (!items[i]) return tdict_fail(err, TDICT_EINVAL, "merge: tree %zu is NULL", i);
  tdict_status status = tdict_map_share(items[0], "merge", &made, err);
  for (size_t i = 1; i < count && status == TDICT_OK; i++) status = tdict_update(made, items[i], NULL, 0, err);
  if (status != TDICT_OK) {
    tdict_release(made);
    return status;
  }
  *out = made;
  return TDICT_OK;
}
