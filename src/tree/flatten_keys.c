/* Nested names made flat and back. Results belong to the caller; leaves are shared. Thread rule: as in
 * tdict/keysets.h. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "tdict/keysets.h"
#include "tree/cursor.h"
#include "tree/map.h"

/* The name that leads to what the cursor shows; a frame's mark is the length that its node's own name has. */
typedef struct name_buffer {
  char *text;
  size_t cap;
} name_buffer;

static bool set_name(name_buffer *name, size_t mark, const char *separator, size_t length, const tdict_key *key,
                     size_t *out) {
  size_t between = mark ? length : 0, total = mark + between + key->length;
  if (total > name->cap) {
    size_t cap = total * 2 > 64 ? total * 2 : 64;
    char *text = realloc(name->text, cap);
    if (!text) return false;
    name->text = text;
    name->cap = cap;
  }
  memcpy(name->text + mark, separator, between);
  memcpy(name->text + mark + between, key->name, key->length);
  *out = total;
  return true;
}

static tdict_status at_cursor(const tdict_cursor *cursor, tdict_status status, tdict_error *err) {
  char path[sizeof((tdict_error *)NULL)->path];
  tdict_cursor_path(cursor, NULL, path, sizeof path);
  return tdict_at(err, status, path);
}

static tdict_status no_memory(const char *what, tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for the tree", what);
}

static tdict_status flatten(tdict_cursor *cursor, const char *separator, name_buffer *name, tdict_tree *made,
                            tdict_error *err) {
  static const char what[] = "flatten_keys";
  const size_t between = strlen(separator);
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(cursor)) != 0;) {
    size_t mark = cursor->frames[cursor->depth - 1].mark, length;
    const tdict_key *key = tdict_cursor_key(cursor);
    tdict_tree *tree = tdict_leaf_tree(leaf);
    if (!set_name(name, mark, separator, between, key, &length)) return no_memory(what, err);
    if (tree) {
      if (!tdict_cursor_enter(cursor, tree)) return no_memory(what, err);
      cursor->frames[cursor->depth - 1].mark = length;
      continue;
    }
    uint32_t hash = mark ? tdict_keys_hash(name->text, length) : key->hash;
    if (tdict_keys_find_hashed(made->keys, name->text, length, hash) >= 0) {
      tdict_fail(err, TDICT_EEXIST, "%s: another tensor has the key %.*s already", what,
                 (int)(length < 80 ? length : 80), name->text);
      return at_cursor(cursor, TDICT_EEXIST, err);
    }
    if (!tdict_node_add(made, name->text, length, hash, tdict_leaf_retain(leaf))) {
      tdict_leaf_release(leaf);
      return no_memory(what, err);
    }
  }
  return TDICT_OK;
}

static tdict_status check_separator(const char *what, const char *separator, tdict_error *err) {
  if (*separator) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: the separator is empty", what);
}

tdict_status tdict_flatten_keys(const tdict_tree *td, const char *separator, tdict_tree **out, tdict_error *err) {
  static const char what[] = "flatten_keys";
  if (!td || !out) return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, td ? "out" : "td");
  if (!separator) separator = ".";
  tdict_status status = check_separator(what, separator, err);
  if (status != TDICT_OK) return status;
  tdict_tree *made = tdict_node_create_under(td);
  if (!made) return no_memory(what, err);
  tdict_cursor cursor;
  name_buffer name = {NULL, 0};
  tdict_cursor_init(&cursor, td, false);
  status = flatten(&cursor, separator, &name, made, err);
  tdict_cursor_reset(&cursor);
  free(name.text);
  if (status != TDICT_OK) {
    tdict_release(made);
    return status;
  }
  *out = made;
  return TDICT_OK;
}

/* The length of the part of a name that begins at `text`. */
static size_t part_of(const char *text, const char *separator) {
  const char *end = strstr(text, separator);
  return end ? (size_t)(end - text) : strlen(text);
}

/* Goes to the node of a part that is not the last, making it when it is not there. */
static tdict_status step_into(tdict_tree **node, const char *part, size_t length, tdict_error *err) {
  static const char what[] = "unflatten_keys";
  uint32_t hash = tdict_keys_hash(part, length);
  int64_t slot = tdict_keys_find_hashed((*node)->keys, part, length, hash);
  if (slot >= 0) {
    tdict_tree *tree = tdict_leaf_tree((*node)->leaves[slot]);
    if (!tree) return tdict_fail(err, TDICT_EEXIST, "%s: a tensor stands where a tree would", what);
    *node = tree;
    return TDICT_OK;
  }
  tdict_tree *made = tdict_node_create_under(*node);
  if (!made || !tdict_node_add(*node, part, length, hash, tdict_leaf_of_tree(made))) {
    tdict_release(made);
    return no_memory(what, err);
  }
  *node = made;
  return TDICT_OK;
}

static tdict_status unflatten_key(tdict_tree *node, const char *name, const char *separator, tdict_leaf leaf,
                                  tdict_error *err) {
  static const char what[] = "unflatten_keys";
  for (;;) {
    size_t length = part_of(name, separator);
    if (length == 0) return tdict_fail(err, TDICT_EINVAL, "%s: the key has an empty part", what);
    if (!name[length]) {
      uint32_t hash = tdict_keys_hash(name, length);
      tdict_tree *tree = tdict_leaf_tree(leaf), *copy = NULL;
      if (tdict_keys_find_hashed(node->keys, name, length, hash) >= 0)
        return tdict_fail(err, TDICT_EEXIST, "%s: another key leads there already", what);
      tdict_status status = tree ? tdict_map_share(tree, what, &copy, err) : TDICT_OK;
      if (status != TDICT_OK) return status;
      tdict_leaf held = tree ? tdict_leaf_of_tree(copy) : tdict_leaf_retain(leaf);
      if (tdict_node_add(node, name, length, hash, held)) return TDICT_OK;
      tdict_leaf_release(held);
      return no_memory(what, err);
    }
    tdict_status status = step_into(&node, name, length, err);
    if (status != TDICT_OK) return status;
    name += length + strlen(separator);
  }
}

tdict_status tdict_unflatten_keys(const tdict_tree *td, const char *separator, tdict_tree **out, tdict_error *err) {
  static const char what[] = "unflatten_keys";
  if (!td || !out) return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, td ? "out" : "td");
  if (!separator) separator = ".";
  tdict_status status = check_separator(what, separator, err);
  if (status != TDICT_OK) return status;
  tdict_tree *made = tdict_node_create_under(td);
  if (!made) return no_memory(what, err);
  for (uint32_t i = 0; i < td->keys->num_slots && status == TDICT_OK; i++) {
    const tdict_key *key = &td->keys->slots[i];
    if (!key->name) continue;
    status = unflatten_key(made, key->name, separator, td->leaves[i], err);
    if (status != TDICT_OK) {
      char path[sizeof err->path];
      tdict_node_path(NULL, key, path, sizeof path);
      status = tdict_at(err, status, path);
    }
  }
  if (status != TDICT_OK) {
    tdict_release(made);
    return status;
  }
  *out = made;
  return TDICT_OK;
}
