/* Nested names made flat. Results belong to the caller; leaves are shared. Thread rule: as in
 * tdict/keysets.h. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "ops/map.h"
#include "tdict/keysets.h"
#include "tree/agree.h"

/* The name that leads to a node, with the separator that follows; a frame's mark is its length. Behind it is room for
 * one key more, which is copied by words. */
typedef struct name_buffer {
  char *text;
  size_t cap;
} name_buffer;

/* An empty name in a buffer of its own, so that there is always one to read from and write to. */
static bool first_name(name_buffer *name) {
  enum { BYTES = 64 };
  name->text = calloc(1, BYTES);
  name->cap = name->text ? BYTES : 0;
  return name->text != NULL;
}

static bool grow(name_buffer *name, size_t bytes) {
  char *text = realloc(name->text, bytes * 2);
  if (!text) return false;
  name->text = text;
  name->cap = bytes * 2;
  return true;
}

/* Puts a key behind a name of `mark` bytes, with room for `more`; false without memory. */
static inline bool put_key(name_buffer *name, size_t mark, const tdict_key *key, size_t more) {
  const size_t bytes = mark + key->length + TDICT_WORD_BYTES + more;
  if (bytes > name->cap && !grow(name, bytes)) return false;
  if (key->length > TDICT_WORD_BYTES) /* of shorter ones eight bytes may be read */
    memcpy(name->text + mark, key->name, key->length);
  else
    memcpy(name->text + mark, key->name, TDICT_WORD_BYTES);
  return true;
}

static tdict_status at_cursor(const tdict_cursor *cursor, tdict_status status, tdict_error *err) {
  char path[sizeof((tdict_error *)NULL)->path];
  tdict_cursor_path(cursor, NULL, path, sizeof path);
  return tdict_error_at(err, status, path);
}

static tdict_status no_memory(const char *what, tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for the tree", what);
}

/* The next tree among the children of a frame's node, or NULL. */
static tdict_tree *next_tree(tdict_frame *top) {
  const tdict_tree *node = top->node;
  for (const uint32_t end = node->keys->num_slots; top->slot < end;) {
    tdict_tree *tree = tdict_leaf_tree(node->leaves[top->slot++]);
    if (tree) return tree;
  }
  return NULL;
}

/* Makes room in a new tree for all keys that it will have. */
static bool reserve(tdict_cursor *cursor, size_t between, tdict_tree *made) {
  size_t slots = cursor->frames[0].node->keys->num_live, bytes = cursor->frames[0].node->keys->name_bytes;
  while (cursor->depth) {
    tdict_frame *top = &cursor->frames[cursor->depth - 1];
    const tdict_keys *keys;
    tdict_tree *tree = next_tree(top);
    if (!tree) {
      cursor->depth--;
      continue;
    }
    keys = tree->keys;
    size_t mark = top->mark + tdict_cursor_key(cursor)->length + between;
    slots += keys->num_live;
    slots--; /* the tree's own key */
    bytes += keys->name_bytes + mark * keys->num_live;
    if (!tdict_cursor_enter(cursor, tree)) return false;
    cursor->frames[cursor->depth - 1].mark = mark;
  }
  return tdict_node_reserve(made, slots) && tdict_keys_reserve(made->keys, slots, bytes);
}

static tdict_status check_leaf(const char *what, const tdict_tree *made, tdict_leaf leaf, tdict_error *err) {
  const tdict_tensor *tensor = tdict_leaf_tensor(leaf);
  const tdict_demand demand = tdict_demand_of(made, what, NULL);
  return tensor ? tdict_agree_tensor(&demand, tensor, NULL, err) : TDICT_OK;
}

static tdict_status add_leaf(const char *what, tdict_tree *made, const tdict_name *name, tdict_leaf leaf,
                             tdict_error *err) {
  if (tdict_keys_find_name(made->keys, name) >= 0)
    return tdict_fail(err, TDICT_EEXIST, "%s: another tensor has the key %.*s already", what,
                      (int)(name->length < 80 ? name->length : 80), name->text);
  if (!tdict_node_add_name(made, name, leaf)) return no_memory(what, err);
  (void)tdict_leaf_hold(leaf);
  return TDICT_OK;
}

/* The name of a key that was put behind a prefix; `prefix` holds one of up to 7 bytes. */
static inline tdict_name name_of(const char *text, uint64_t prefix, size_t mark, const tdict_key *key) {
  const size_t length = key->length;
  if (mark >= TDICT_WORD_BYTES || length > TDICT_WORD_BYTES || length == 0) return tdict_name_of(text, mark + length);
  const uint64_t word = tdict_word_load(key->name) & tdict_word_mask(length);
  return tdict_name_join(text, prefix, mark, word, length);
}

/* Adds what hangs at a node up to the next tree, which *below is; NULL: there is none. */
static tdict_status flatten_node(const char *what, tdict_frame *top, name_buffer *name, tdict_tree *made,
                                 tdict_tree **below, tdict_error *err) {
  const tdict_tree *node = top->node;
  const size_t mark = top->mark;
  const uint64_t prefix = mark < TDICT_WORD_BYTES ? tdict_word_load_part(name->text, mark) : 0;
  const bool covered = tdict_node_covers(node, made);
  *below = NULL;
  for (const uint32_t end = node->keys->num_slots; top->slot < end;) {
    const tdict_key *key = &node->keys->slots[top->slot];
    tdict_leaf leaf = node->leaves[top->slot++];
    if (!leaf) continue;
    *below = tdict_leaf_tree(leaf);
    if (*below) return TDICT_OK;
    if (!put_key(name, mark, key, 0)) return no_memory(what, err);
    const tdict_name whole = name_of(name->text, prefix, mark, key);
    tdict_status status = add_leaf(what, made, &whole, leaf, err);
    if (status == TDICT_OK && !covered) status = check_leaf(what, made, leaf, err);
    if (status != TDICT_OK) return status;
  }
  return TDICT_OK;
}

static tdict_status flatten(const char *what, tdict_cursor *cursor, const char *separator, name_buffer *name,
                            tdict_tree *made, tdict_error *err) {
  const size_t between = strlen(separator);
  if (!reserve(cursor, between, made) || !first_name(name)) return no_memory(what, err);
  tdict_cursor_rewind(cursor, cursor->frames[0].node);
  while (cursor->depth) {
    tdict_frame *top = &cursor->frames[cursor->depth - 1];
    tdict_tree *below;
    tdict_status status = flatten_node(what, top, name, made, &below, err);
    if (status == TDICT_ENOMEM) return status;
    if (status != TDICT_OK) return at_cursor(cursor, status, err);
    if (!below) {
      cursor->depth--;
      continue;
    }
    const tdict_key *key = tdict_cursor_key(cursor);
    const size_t mark = top->mark + key->length;
    if (!put_key(name, top->mark, key, between)) return no_memory(what, err);
    memcpy(name->text + mark, separator, between);
    if (!tdict_cursor_enter(cursor, below)) return no_memory(what, err);
    cursor->frames[cursor->depth - 1].mark = mark + between;
  }
  return TDICT_OK;
}

static tdict_status check_separator(const char *what, const char *separator, tdict_error *err) {
  if (*separator) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: the separator is empty", what);
}

/* A new node with all leaves of the tree. */
static tdict_status make_flat(const char *what, const tdict_tree *td, const char *separator, tdict_tree **out,
                              tdict_error *err) {
  if (!separator) separator = ".";
  tdict_status status = check_separator(what, separator, err);
  if (status != TDICT_OK) return status;
  tdict_tree *made = tdict_node_create_under(td);
  if (!made) return no_memory(what, err);
  tdict_cursor cursor;
  name_buffer name = {NULL, 0};
  tdict_cursor_init(&cursor, td, false);
  status = flatten(what, &cursor, separator, &name, made, err);
  tdict_cursor_reset(&cursor);
  free(name.text);
  if (status != TDICT_OK) {
    tdict_release(made);
    return status;
  }
  *out = made;
  return TDICT_OK;
}

tdict_status tdict_flatten_keys(const tdict_tree *td, const char *separator, tdict_tree **out, tdict_error *err) {
  static const char what[] = "flatten_keys";
  if (!td || !out) return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, td ? "out" : "td");
  return make_flat(what, td, separator, out, err);
}

tdict_status tdict_flatten_keys_in_place(tdict_tree *td, const char *separator, tdict_error *err) {
  static const char what[] = "flatten_keys_in_place";
  tdict_tree *made = NULL;
  if (!td) return tdict_fail(err, TDICT_EINVAL, "%s: td is NULL", what);
  if (tdict_node_is_locked(td)) return tdict_fail(err, TDICT_ELOCKED, "%s: the tree is locked", what);
  tdict_status status = make_flat(what, td, separator, &made, err);
  if (status != TDICT_OK) return status;
  tdict_node_swap(td, made);
  tdict_release(made); /* last: a callback may run then */
  return TDICT_OK;
}
