/* Joins nested keys into flat keys. The caller owns the results, which share leaves. Threads: as in tdict/keysets.h. */
#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/ops/map.h"
#include "core/tree/agree.h"
#include "tdict/keysets.h"

/* Holds a prefix: the path of the current node and the separator, whose length is a frame's mark. There is space for
 * one more key, and the whole word that append_key() copies for a short key. */
typedef struct name_buffer {
  char *text;
  size_t cap;
} name_buffer;

/* Allocates the buffer, so that callers need no check for NULL. Returns false if out of memory. */
static bool init_name_buffer(name_buffer *name) {
  enum { BYTES = 64 };
  name->text = calloc(1, BYTES);
  name->cap = name->text ? BYTES : 0;
  return name->text != NULL;
}

/* Appends a key at offset `mark` and leaves space for `more` bytes after the key. Returns false if out of memory. */
static inline bool append_key(name_buffer *name, size_t mark, const tdict_key *key, size_t more) {
  const size_t bytes = mark + key->length + TDICT_WORD_BYTES + more;
  if (bytes > name->cap) {
    name_buffer grown = *name; /* a copy, since the compiler keeps *name in registers if no other function sees it */
    /* Twice the bytes, so that long paths do not reallocate the buffer for every key. */
    if (!tdict_array_grow(&grown.text, &grown.cap, 2 * bytes, 1)) return false;
    *name = grown;
  }
  if (key->length > TDICT_WORD_BYTES) /* key tables pad short names, so a whole word may be read */
    memcpy(name->text + mark, key->name, key->length);
  else
    memcpy(name->text + mark, key->name, TDICT_WORD_BYTES);
  return true;
}

/* Returns the next child tree of a frame's node, or NULL after the last child tree. */
static tdict_tree *get_next_child(tdict_frame *top) {
  const tdict_tree *node = top->node;
  for (const uint32_t end = node->keys->num_slots; top->slot < end;) {
    tdict_tree *tree = tdict_leaf_tree(node->leaves[top->slot++]);
    if (tree) return tree;
  }
  return NULL;
}

/* Reserves space in a new tree for all keys of the result, so that adding keys does not reallocate. */
static bool reserve_flat_keys(tdict_cursor *cursor, size_t between, tdict_tree *made) {
  size_t slots = cursor->frames[0].node->keys->num_live, bytes = cursor->frames[0].node->keys->name_bytes;
  while (cursor->depth) {
    tdict_frame *top = &cursor->frames[cursor->depth - 1];
    const tdict_keys *keys;
    tdict_tree *tree = get_next_child(top);
    if (!tree) {
      cursor->depth--;
      continue;
    }
    keys = tree->keys;
    size_t mark = top->mark + tdict_cursor_key(cursor)->length + between;
    slots += keys->num_live;
    slots--; /* the key of the child tree itself is not in the result */
    bytes += keys->name_bytes + mark * keys->num_live;
    if (!tdict_cursor_enter(cursor, tree)) return false;
    cursor->frames[cursor->depth - 1].mark = mark;
  }
  return tdict_node_reserve(made, slots) && tdict_keys_reserve(made->keys, slots, bytes);
}

/* Checks that a leaf of a child begins with the batch size of the result and has the device of the result. */
static tdict_status check_flat_leaf(const char *what, const tdict_tree *made, tdict_leaf leaf, tdict_error *err) {
  const tdict_demand demand = tdict_demand_of(made, what, NULL);
  return tdict_agree_leaf(&demand, leaf, NULL, err);
}

/* Adds a leaf under its full name. Returns TDICT_EEXIST if the result already has this name. */
static tdict_status add_flat_leaf(const char *what, tdict_tree *made, const tdict_name *name, tdict_leaf leaf,
                                  tdict_error *err) {
  if (tdict_keys_find_name(made->keys, name) >= 0)
    return tdict_fail(err, TDICT_EEXIST, "%s: another entry has the key %.*s", what,
                      (int)(name->length < 80 ? name->length : 80), name->text);
  if (!tdict_node_add_name(made, name, leaf)) return tdict_fail_memory(err, what, NULL, "the tree");
  (void)tdict_leaf_retain_inline(leaf);
  return TDICT_OK;
}

/* Returns the full name of a key that append_key() put after a prefix of `mark` bytes. Computes the hash from words if
 * the prefix has fewer than 8 bytes and the key has 1 to 8 bytes. `prefix` then holds the bytes of the prefix. */
static inline tdict_name make_flat_name(const char *text, uint64_t prefix, size_t mark, const tdict_key *key) {
  const size_t length = key->length;
  if (mark >= TDICT_WORD_BYTES || length > TDICT_WORD_BYTES || length == 0) return tdict_name_of(text, mark + length);
  const uint64_t word = tdict_word_load(key->name) & tdict_word_mask(length);
  return tdict_name_join(text, prefix, mark, word, length);
}

/* Adds the leaves of a node up to its next child tree. Sets *below to that tree, or to NULL after the last key. */
static tdict_status flatten_node(const char *what, tdict_frame *top, name_buffer *name, tdict_tree *made,
                                 tdict_tree **below, tdict_error *err) {
  const tdict_tree *node = top->node;
  const size_t mark = top->mark;
  const uint64_t prefix = mark < TDICT_WORD_BYTES ? tdict_word_load_part(name->text, mark) : 0;
  const bool is_covered = tdict_node_covers(node, made);
  *below = NULL;
  for (const uint32_t end = node->keys->num_slots; top->slot < end;) {
    const tdict_key *key = &node->keys->slots[top->slot];
    tdict_leaf leaf = node->leaves[top->slot++];
    if (!leaf) continue;
    *below = tdict_leaf_tree(leaf);
    if (*below) return TDICT_OK;
    if (!append_key(name, mark, key, 0)) return tdict_fail_memory(err, what, NULL, "the tree");
    const tdict_name whole = make_flat_name(name->text, prefix, mark, key);
    tdict_status status = add_flat_leaf(what, made, &whole, leaf, err);
    if (status == TDICT_OK && !is_covered) status = check_flat_leaf(what, made, leaf, err);
    if (status != TDICT_OK) return status;
  }
  return TDICT_OK;
}

/* Adds all tensors and objects of the cursor's tree to a new node, in the order of tdict_walk(). */
static tdict_status flatten_into(const char *what, tdict_cursor *cursor, const char *separator, name_buffer *name,
                                 tdict_tree *made, tdict_error *err) {
  /* Measure the result first. */
  const size_t between = strlen(separator);
  if (!reserve_flat_keys(cursor, between, made) || !init_name_buffer(name))
    return tdict_fail_memory(err, what, NULL, "the tree");
  tdict_cursor_rewind(cursor, cursor->frames[0].node);
  while (cursor->depth) {
    tdict_frame *top = &cursor->frames[cursor->depth - 1];
    tdict_tree *below;
    tdict_status status = flatten_node(what, top, name, made, &below, err);
    if (status == TDICT_ENOMEM) return status;
    if (status != TDICT_OK) return tdict_cursor_fail(cursor, NULL, status, err);
    if (!below) {
      cursor->depth--;
      continue;
    }
    /* Append the key of the child tree and a separator, then descend. */
    const tdict_key *key = tdict_cursor_key(cursor);
    const size_t mark = top->mark + key->length;
    if (!append_key(name, top->mark, key, between)) return tdict_fail_memory(err, what, NULL, "the tree");
    memcpy(name->text + mark, separator, between);
    if (!tdict_cursor_enter(cursor, below)) return tdict_fail_memory(err, what, NULL, "the tree");
    cursor->frames[cursor->depth - 1].mark = mark + between;
  }
  return TDICT_OK;
}

tdict_status tdict_flatten_keys(const tdict_tree *tree, const char *separator, tdict_tree **out, tdict_error *err) {
  static const char what[] = "flatten_keys";
  if (!tree || !out) return tdict_fail_null(err, what, tree ? "out" : "tree");
  if (!separator) separator = ".";
  if (!*separator) return tdict_fail(err, TDICT_EINVAL, "%s: the separator is empty", what);
  tdict_tree *made = tdict_node_create_under(tree);
  if (!made) return tdict_fail_memory(err, what, NULL, "the tree");
  tdict_cursor cursor;
  name_buffer name = {NULL, 0};
  tdict_cursor_init(&cursor, tree, false);
  tdict_status status = flatten_into(what, &cursor, separator, &name, made, err);
  tdict_cursor_reset(&cursor);
  free(name.text);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}
