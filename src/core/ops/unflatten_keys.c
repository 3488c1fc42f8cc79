/* Splits flat keys into nested trees. All changes go to copies of the nodes, so a failure changes no tree. The caller
 * owns the results, which share tensors and objects with the source. Thread rule: as in tdict/keysets.h. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/ops/map.h"
#include "core/ops/select.h"
#include "tdict/keysets.h"

typedef struct unflattener {
  const char *separator;
  const tdict_tree *td; /* a copy of the source; each of its nodes is at one place only, and may be changed */
  tdict_tree *root;     /* the new root; its children are new nodes or nodes of td */
  bool *placed;         /* for each slot of td: true after the leaf of the slot was placed */
} unflattener;

static const char what[] = "unflatten_keys";

/* Returns the length of the part of a name that begins at `text`, up to a separator or the name's end. */
static size_t get_part_length(const unflattener *u, const char *text) {
  const char *end = strstr(text, u->separator);
  return end ? (size_t)(end - text) : strlen(text);
}

/* Sets *node to its child with the key `part`, which may be new. TDICT_EEXIST: a tensor or object has the key. */
static tdict_status enter_part(tdict_tree **node, const tdict_name *part, tdict_error *err) {
  const int64_t slot = tdict_keys_find_name((*node)->keys, part);
  if (slot >= 0) {
    tdict_tree *tree = tdict_leaf_tree((*node)->leaves[slot]);
    if (!tree) return tdict_fail(err, TDICT_EEXIST, "%s: a tensor or object is at the path of a tree", what);
    *node = tree;
    return TDICT_OK;
  }
  tdict_tree *made = tdict_node_create_under(*node);
  if (!made) return tdict_fail_memory(err, what, NULL, "the tree");
  tdict_status status = tdict_put_leaf(what, *node, part, -1, tdict_leaf_of_tree(made), err);
  *node = made;
  return status;
}

/* Puts the leaf of a slot at the path that the parts of the slot's key form. */
static tdict_status put_leaf(const unflattener *u, size_t slot, tdict_error *err) {
  const char *name = u->td->keys->slots[slot].name;
  /* true: the key has no separator, so its leaf remains in this node */
  const bool is_unchanged = !name[get_part_length(u, name)];
  tdict_tree *node = u->root;
  tdict_leaf held;
  tdict_status status = TDICT_OK;
  /* Descend through all parts but the last. */
  for (;;) {
    const size_t length = get_part_length(u, name);
    if (length == 0) return tdict_fail(err, TDICT_EINVAL, "%s: the key has an empty part", what);
    if (!name[length]) break;
    const tdict_name part = tdict_name_of(name, length);
    status = enter_part(&node, &part, err);
    if (status != TDICT_OK) return status;
    name += length + strlen(u->separator);
  }
  /* Add the last part as a key. */
  const tdict_name last = tdict_name_of(name, strlen(name));
  if (tdict_keys_find_name(node->keys, &last) >= 0)
    return tdict_fail(err, TDICT_EEXIST, "%s: another key has the same path", what);
  if (is_unchanged)
    held = tdict_leaf_retain(u->td->leaves[slot]);
  else
    status = tdict_map_adopt(node, u->td->leaves[slot], what, &held, err);
  return status == TDICT_OK ? tdict_put_leaf(what, node, &last, -1, held, err) : status;
}

/* Places the leaf of a slot, unless this leaf has been placed before. On failure, sets err->path to the key. */
static tdict_status place_once(unflattener *u, size_t slot, tdict_error *err) {
  if (u->placed[slot]) return TDICT_OK;
  u->placed[slot] = true;
  tdict_status status = put_leaf(u, slot, err);
  if (status == TDICT_OK) return TDICT_OK;
  char path[sizeof err->path];
  tdict_node_path(NULL, &u->td->keys->slots[slot], path, sizeof path);
  return tdict_error_at(err, status, path);
}

/* Places prefixes of a key before it: "a" and "a.b" before "a.b.c". Then the order of the keys does not matter. */
static tdict_status place_after_prefixes(unflattener *u, size_t slot, tdict_error *err) {
  const char *name = u->td->keys->slots[slot].name;
  tdict_status status = TDICT_OK;
  for (const char *end = name; status == TDICT_OK && (end = strstr(end, u->separator)) != NULL;
       end += strlen(u->separator)) {
    const int64_t above = tdict_keys_find(u->td->keys, name, (size_t)(end - name));
    if (above >= 0) status = place_once(u, (size_t)above, err);
  }
  return status == TDICT_OK ? place_once(u, slot, err) : status;
}

/* Returns true if a key of this node contains the separator. */
static bool has_parts(const tdict_tree *td, const char *separator) {
  for (uint32_t i = 0; i < td->keys->num_slots; i++)
    if (td->keys->slots[i].name && strstr(td->keys->slots[i].name, separator)) return true;
  return false;
}

/* Puts all leaves of `td` under a new root. Keys without a separator come first. */
static tdict_status place_all(unflattener *u, tdict_error *err) {
  const uint32_t slots = u->td->keys->num_slots;
  tdict_status status = TDICT_OK;
  u->root = tdict_node_create_under(u->td);
  u->placed = calloc(slots ? slots : 1, sizeof *u->placed);
  if (!u->root || !u->placed) status = tdict_fail_memory(err, what, NULL, "the tree");
  for (int splits = 0; splits < 2; splits++) {
    for (uint32_t i = 0; i < slots && status == TDICT_OK; i++) {
      const char *name = u->td->keys->slots[i].name;
      if (name && (strstr(name, u->separator) != NULL) == (splits == 1)) status = place_after_prefixes(u, i, err);
    }
  }
  free(u->placed);
  return status;
}

tdict_status tdict_unflatten_keys(const tdict_tree *tree, const char *separator, tdict_tree **out, tdict_error *err) {
  tdict_tree *copy = NULL;
  if (!tree || !out) return tdict_fail_null(err, what, tree ? "out" : "tree");
  if (!separator) separator = ".";
  if (!*separator) return tdict_fail(err, TDICT_EINVAL, "%s: the separator is empty", what);
  tdict_status status = tdict_map_share(tree, what, &copy, err);
  if (status != TDICT_OK) return status;
  if (!has_parts(copy, separator)) {
    *out = copy;
    return TDICT_OK;
  }
  unflattener u = {.separator = separator, .td = copy};
  status = place_all(&u, err);
  tdict_release(copy);
  if (status != TDICT_OK) {
    tdict_release(u.root);
    return status;
  }
  *out = u.root;
  return TDICT_OK;
}
