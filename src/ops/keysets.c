/* Parts of trees by paths, and merges. Results belong to the caller; leaves are shared. Thread rule: as in
 * tdict/keysets.h. */
#include "tdict/keysets.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "ops/changes.h"
#include "ops/map.h"
#include "ops/select.h"
#include "tdict/write.h"
#include "tree/cursor.h"
#include "tree/place.h"

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

/* Where a path leads; the place is then to be reset. A path that leads nowhere has no node, and is an error when
 * strict. */
static tdict_status resolve(const char *what, const tdict_tree *td, const char *path, bool strict, tdict_place *place,
                            tdict_error *err) {
  tdict_status status =
      tdict_place_get(place, td, path, what, strict ? err : NULL); /* without a text that nobody reads */
  const bool ignored = !strict && (status == TDICT_ENOTFOUND || status == TDICT_ETYPE);
  if (!strict && status != TDICT_OK && !ignored) status = tdict_place_get(place, td, path, what, err); /* says why */
  if (status != TDICT_OK) place->node = NULL;
  return ignored ? TDICT_OK : status;
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
    status = resolve(what, td, paths[i], selection->strict, &place, err);
    if (!place.node) continue;
    tdict_place_reset(&place);
    status = take_path(what, td, made, paths[i], err);
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

/* Keeps the keys on the way to a path that leads somewhere, up to a tree that is kept whole. */
static tdict_status keep_path(tdict_changes *c, const tdict_pointers *whole, tdict_tree *node, const char *text,
                              tdict_error *err) {
  tdict_path path;
  tdict_path_init(&path, text, c->what);
  tdict_status status = tdict_path_next(&path, err);
  while (status == TDICT_OK) {
    const tdict_leaf leaf = node->leaves[tdict_keys_find_name(node->keys, &path.name)];
    tdict_tree *kept;
    status = tdict_changes_of(c, node, TDICT_CHANGES_EMPTY, &kept, err);
    if (status != TDICT_OK) break;
    if (tdict_keys_find_name(kept->keys, &path.name) < 0) {
      if (!tdict_node_add_name(kept, &path.name, leaf)) {
        status = no_memory(c->what, err);
        break;
      }
      (void)tdict_leaf_retain(leaf);
    }
    node = tdict_leaf_tree(leaf);
    if (path.last || tdict_pointers_get(whole, node)) break;
    status = tdict_path_next(&path, err);
  }
  tdict_path_reset(&path);
  return status == TDICT_OK ? status : tdict_error_at(err, status, text);
}

/* Marks the paths that lead somewhere in `found`, and the trees that they lead to in `whole`. */
static tdict_status find_paths(const char *what, const tdict_tree *td, const tdict_selection *selection, bool *found,
                               tdict_pointers *whole, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < selection->count && status == TDICT_OK; i++) {
    tdict_place place;
    status = resolve(what, td, selection->paths[i], selection->strict, &place, err);
    found[i] = place.node != NULL;
    if (!found[i]) continue;
    tdict_tree *tree = tdict_leaf_tree(tdict_place_leaf(&place));
    if (tree && tdict_pointers_add(whole, tree, tree) < 0) status = no_memory(what, err);
    tdict_place_reset(&place);
  }
  return status;
}

tdict_status tdict_select_in_place(tdict_tree *td, const char *const *paths, size_t count, bool strict,
                                   tdict_error *err) {
  static const char what[] = "select_in_place";
  if (!td) return tdict_fail(err, TDICT_EINVAL, "%s: td is NULL", what);
  tdict_status status = check_paths(what, paths, count, err);
  if (status != TDICT_OK) return status;
  const tdict_selection selection = {paths, count, strict};
  tdict_changes changes;
  tdict_pointers whole;
  tdict_tree *root;
  bool *found = calloc(count ? count : 1, sizeof *found);
  if (!found) return no_memory(what, err);
  tdict_changes_init(&changes, what);
  tdict_pointers_init(&whole);
  status = find_paths(what, td, &selection, found, &whole, err);
  if (status == TDICT_OK) status = tdict_changes_of(&changes, td, TDICT_CHANGES_EMPTY, &root, err);
  for (size_t i = 0; i < count && status == TDICT_OK; i++)
    if (found[i]) status = keep_path(&changes, &whole, td, paths[i], err);
  tdict_pointers_reset(&whole);
  free(found);
  return tdict_changes_end(&changes, status);
}

/* Takes the paths out of a tree; those that lead nowhere are ignored. */
static tdict_status drop_paths(tdict_changes *c, tdict_tree *td, const char *const *paths, size_t count,
                               tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    tdict_place place;
    tdict_tree *left;
    status = resolve(c->what, td, paths[i], false, &place, err);
    if (!place.node) continue;
    status = tdict_changes_of(c, place.node, TDICT_CHANGES_COPY, &left, err);
    if (status == TDICT_OK && !tdict_node_own(left)) status = no_memory(c->what, err);
    int64_t slot = status == TDICT_OK ? tdict_keys_find_name(left->keys, &place.path.name) : -1;
    tdict_leaf leaf = slot >= 0 ? left->leaves[slot] : 0; /* 0: a path that was given twice */
    if (leaf) {
      tdict_node_remove(left, (uint32_t)slot);
      tdict_leaf_release(leaf); /* not its last reference */
    }
    tdict_place_reset(&place);
    if (status != TDICT_OK) status = tdict_error_at(err, status, paths[i]);
  }
  return status;
}

static tdict_status exclude(const char *what, tdict_tree *td, const char *const *paths, size_t count,
                            tdict_error *err) {
  tdict_changes changes;
  tdict_changes_init(&changes, what);
  return tdict_changes_end(&changes, drop_paths(&changes, td, paths, count, err));
}

tdict_status tdict_exclude_in_place(tdict_tree *td, const char *const *paths, size_t count, tdict_error *err) {
  static const char what[] = "exclude_in_place";
  if (!td) return tdict_fail(err, TDICT_EINVAL, "%s: td is NULL", what);
  tdict_status status = check_paths(what, paths, count, err);
  return status == TDICT_OK ? exclude(what, td, paths, count, err) : status;
}

/* Takes the trees without a tensor or object out of a tree that no one else has. */
static tdict_status drop_empty(const char *what, tdict_tree *made, tdict_error *err) {
  tdict_cursor cursor;
  tdict_status status = TDICT_OK;
  tdict_cursor_init(&cursor, made, false);
  while (cursor.depth && status == TDICT_OK) {
    tdict_frame *top = &cursor.frames[cursor.depth - 1];
    tdict_tree *below = NULL;
    while (!below && top->slot < top->node->keys->num_slots) below = tdict_leaf_tree(top->node->leaves[top->slot++]);
    if (below) {
      if (!tdict_cursor_enter(&cursor, below)) status = no_memory(what, err);
      continue;
    }
    tdict_tree *done = top->node;
    cursor.depth--;
    if (!cursor.depth || done->keys->num_live) continue;
    top = &cursor.frames[cursor.depth - 1];
    if (!tdict_node_own(top->node)) {
      status = no_memory(what, err);
      continue;
    }
    /* The slots stay where they are: the node is gone through. */
    tdict_keys_delete(top->node->keys, top->slot - 1);
    top->node->leaves[top->slot - 1] = 0;
    tdict_release(done);
  }
  tdict_cursor_reset(&cursor);
  return status;
}

tdict_status tdict_exclude(const tdict_tree *td, const char *const *paths, size_t count, tdict_tree **out,
                           tdict_error *err) {
  tdict_tree *made = NULL;
  if (!td || !out) return tdict_fail(err, TDICT_EINVAL, "exclude: %s is NULL", td ? "out" : "td");
  tdict_status status = check_paths("exclude", paths, count, err);
  if (status == TDICT_OK) status = tdict_map_share(td, "exclude", &made, err);
  if (status == TDICT_OK) status = exclude("exclude", made, paths, count, err);
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
    if (status == TDICT_OK) status = exclude(what, made[count], sets[i].paths, sets[i].count, err);
  }
  if (status == TDICT_OK) status = drop_empty(what, made[count], err);
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
