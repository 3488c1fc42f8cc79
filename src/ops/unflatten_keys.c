/* Flat names made nested. The new tree is built beside the old one, which is left as it is when something fails. Thread
 * rule: as in tdict/keysets.h. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ops/changes.h"
#include "ops/map.h"
#include "tdict/keysets.h"
#include "tree/agree.h"

typedef struct unflattener {
  const char *what, *separator;
  const tdict_tree *td;
  tdict_changes changes;
  tdict_tree *root; /* the replacement of td */
  bool *placed;     /* one a slot of td */
} unflattener;

static tdict_status no_memory(const unflattener *u, tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for the tree", u->what);
}

/* The length of the part of a name that begins at `text`. */
static size_t part_of(const unflattener *u, const char *text) {
  const char *end = strstr(text, u->separator);
  return end ? (size_t)(end - text) : strlen(text);
}

static int64_t find(const tdict_tree *node, const char *name, size_t length) {
  return tdict_keys_find_hashed(node->keys, name, length, tdict_keys_hash(name, length));
}

/* Goes from a replacement to that of the tree at a part of a name that is not the last, made when it is not there. */
static tdict_status step_into(unflattener *u, tdict_tree **node, const char *part, size_t length, tdict_error *err) {
  const int64_t slot = find(*node, part, length);
  if (slot >= 0) {
    tdict_tree *tree = tdict_leaf_tree((*node)->leaves[slot]);
    if (!tree) return tdict_fail(err, TDICT_EEXIST, "%s: a tensor stands where a tree would", u->what);
    return tdict_changes_of(&u->changes, tree, TDICT_CHANGES_COPY, node, err);
  }
  tdict_tree *made = tdict_changes_new(&u->changes, *node);
  if (!made || !tdict_node_add(*node, part, length, tdict_keys_hash(part, length), tdict_leaf_of_tree(made))) {
    tdict_release(made);
    return no_memory(u, err);
  }
  *node = made;
  return TDICT_OK;
}

/* A leaf as it is put into a replacement, with a reference of the caller's: a tree may be a copy with a longer batch
 * size. */
static tdict_status adopt(unflattener *u, const tdict_tree *under, tdict_leaf leaf, tdict_leaf *out, tdict_error *err) {
  const tdict_demand demand = tdict_demand_of(under, u->what, NULL);
  tdict_tree *tree = tdict_leaf_tree(leaf), *adopted = NULL;
  tdict_status status = TDICT_OK;
  if (tree) {
    status = tdict_changes_check_cycle(&u->changes, tree, under, err);
    if (status == TDICT_OK) status = tdict_agree_adopt(&demand, tree, &adopted, err);
    if (status == TDICT_OK) *out = tdict_leaf_of_tree(adopted);
    return status;
  }
  if (tdict_leaf_tensor(leaf)) status = tdict_agree_tensor(&demand, tdict_leaf_tensor(leaf), NULL, err);
  if (status == TDICT_OK) *out = tdict_leaf_retain(leaf);
  return status;
}

/* Puts what stands at a slot of the tree where its key leads. */
static tdict_status put(unflattener *u, size_t slot, tdict_error *err) {
  const char *name = u->td->keys->slots[slot].name;
  const bool whole = !name[part_of(u, name)]; /* the key stays, and so does what it holds */
  tdict_tree *node = u->root;
  tdict_leaf held;
  tdict_status status = TDICT_OK;
  for (;;) {
    const size_t length = part_of(u, name);
    if (length == 0) return tdict_fail(err, TDICT_EINVAL, "%s: the key has an empty part", u->what);
    if (!name[length]) break;
    status = step_into(u, &node, name, length, err);
    if (status != TDICT_OK) return status;
    name += length + strlen(u->separator);
  }
  const size_t length = strlen(name);
  if (find(node, name, length) >= 0)
    return tdict_fail(err, TDICT_EEXIST, "%s: another key leads there already", u->what);
  if (whole)
    held = tdict_leaf_retain(u->td->leaves[slot]);
  else
    status = adopt(u, node, u->td->leaves[slot], &held, err);
  if (status != TDICT_OK) return status;
  if (tdict_node_add(node, name, length, tdict_keys_hash(name, length), held)) return TDICT_OK;
  tdict_leaf_release(held);
  return no_memory(u, err);
}

/* The same, once for each slot, with the key in errors. */
static tdict_status place(unflattener *u, size_t slot, tdict_error *err) {
  if (u->placed[slot]) return TDICT_OK;
  u->placed[slot] = true;
  tdict_status status = put(u, slot, err);
  if (status == TDICT_OK) return TDICT_OK;
  char path[sizeof err->path];
  tdict_node_path(NULL, &u->td->keys->slots[slot], path, sizeof path);
  return tdict_error_at(err, status, path);
}

/* Places a key after every other key that leads to a tree on its way, so that the order of the keys makes no difference:
 * before "a.b.c" come "a" and "a.b". */
static tdict_status place_in_turn(unflattener *u, size_t slot, tdict_error *err) {
  const char *name = u->td->keys->slots[slot].name;
  tdict_status status = TDICT_OK;
  for (const char *end = name; status == TDICT_OK && (end = strstr(end, u->separator)) != NULL;
       end += strlen(u->separator)) {
    const int64_t above = find(u->td, name, (size_t)(end - name));
    if (above >= 0) status = place(u, (size_t)above, err);
  }
  return status == TDICT_OK ? place(u, slot, err) : status;
}

static bool has_parts(const tdict_tree *td, const char *separator) {
  for (uint32_t i = 0; i < td->keys->num_slots; i++)
    if (td->keys->slots[i].name && strstr(td->keys->slots[i].name, separator)) return true;
  return false;
}

static tdict_status unflatten(const char *what, tdict_tree *td, const char *separator, tdict_error *err) {
  const uint32_t slots = td->keys->num_slots;
  unflattener u = {.what = what, .separator = separator, .td = td};
  if (!has_parts(td, separator)) return TDICT_OK;
  tdict_changes_init(&u.changes, what);
  tdict_status status = tdict_changes_of(&u.changes, td, TDICT_CHANGES_EMPTY, &u.root, err);
  if (status == TDICT_OK) {
    u.placed = calloc(slots, sizeof *u.placed);
    if (!u.placed) status = no_memory(&u, err);
  }
  for (uint32_t i = 0; i < slots && status == TDICT_OK; i++)
    if (td->keys->slots[i].name) status = place_in_turn(&u, i, err);
  free(u.placed);
  return tdict_changes_end(&u.changes, status);
}

static tdict_status check_separator(const char *what, const char *separator, tdict_error *err) {
  if (*separator) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: the separator is empty", what);
}

tdict_status tdict_unflatten_keys_in_place(tdict_tree *td, const char *separator, tdict_error *err) {
  static const char what[] = "unflatten_keys_in_place";
  if (!td) return tdict_fail(err, TDICT_EINVAL, "%s: td is NULL", what);
  if (!separator) separator = ".";
  tdict_status status = check_separator(what, separator, err);
  return status == TDICT_OK ? unflatten(what, td, separator, err) : status;
}

tdict_status tdict_unflatten_keys(const tdict_tree *td, const char *separator, tdict_tree **out, tdict_error *err) {
  static const char what[] = "unflatten_keys";
  tdict_tree *made = NULL;
  if (!td || !out) return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, td ? "out" : "td");
  if (!separator) separator = ".";
  tdict_status status = check_separator(what, separator, err);
  if (status == TDICT_OK) status = tdict_map_share(td, what, &made, err);
  if (status == TDICT_OK) status = unflatten(what, made, separator, err);
  if (status != TDICT_OK) {
    tdict_release(made);
    return status;
  }
  *out = made;
  return TDICT_OK;
}
