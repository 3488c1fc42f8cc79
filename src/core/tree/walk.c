/* Walks whole trees, for visitors and sums. Changes nothing. Visitors borrow. Thread rule: as in tdict/tree.h. */
#include <stdlib.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/tree/cursor.h"
#include "tdict/debug.h"

/* The path of the current entry. The buffer is reused for all entries and grows with the depth. */
typedef struct path_buffer {
  char *text;
  size_t length, cap;
} path_buffer;

/* Cuts the path to its first `mark` bytes, which lead to a node, and appends a key of that node. */
static bool append_key(path_buffer *path, size_t mark, const tdict_key *key) {
  size_t most = mark + 2 + 2 * (size_t)key->length; /* a dot, each byte of the key escaped, the 0 */
  if (most > path->cap) {
    path_buffer grown = *path; /* a copy, since the compiler keeps *path in registers if no other function sees it */
    if (!tdict_array_grow(&grown.text, &grown.cap, most, 1)) return false;
    *path = grown;
  }
  char *to = path->text + mark;
  if (mark) *to++ = '.';
  path->length = (size_t)(tdict_key_write(to, key) - path->text);
  return true;
}

/* Calls the visitor with a new error, since the caller's can have an old message that would look like its own. */
static tdict_status call_visitor(const tdict_entry *entry, tdict_visitor visit, void *user, tdict_error *err) {
  static const char what[] = "walk: the visitor";
  if (!err) return tdict_callback_status(visit(user, entry, NULL), what, NULL);
  tdict_error own;
  tdict_error_clear(&own);
  tdict_status status = tdict_callback_status(visit(user, entry, &own), what, &own);
  if (status == TDICT_OK) return TDICT_OK;
  if (!own.path[0]) tdict_error_at(&own, status, entry->path);
  *err = own;
  return status;
}

static tdict_status walk_cursor(tdict_cursor *cursor, path_buffer *path, tdict_visitor visit, void *user,
                                tdict_error *err) {
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(cursor)) != 0;) {
    const tdict_key *key = tdict_cursor_key(cursor);
    if (!append_key(path, cursor->frames[cursor->depth - 1].mark, key))
      return tdict_fail(err, TDICT_ENOMEM, "walk: no memory for a path");
    const tdict_box *box = tdict_leaf_box(leaf);
    const tdict_entry entry = {path->text,
                               key->name,
                               (int32_t)(cursor->depth - 1),
                               tdict_leaf_tensor(leaf),
                               tdict_leaf_tree(leaf),
                               box ? box->self : NULL,
                               box ? box->type : NULL};
    tdict_status status = call_visitor(&entry, visit, user, err);
    if (status != TDICT_OK) return status;
    if (!entry.tree) continue;
    /* The frame's mark is the length of the path of the entered tree. */
    tdict_cursor_descend(cursor, entry.tree, path->length);
  }
  return TDICT_OK;
}

tdict_status tdict_walk(const tdict_tree *tree, tdict_visitor visit, void *user, tdict_error *err) {
  if (!tree || !visit) return tdict_fail_null(err, "walk", tree ? "visit" : "tree");
  path_buffer path = {NULL, 0, 0};
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, tree, false);
  tdict_status status = tdict_cursor_end(&cursor, "walk", walk_cursor(&cursor, &path, visit, user, err), err);
  free(path.text);
  return status;
}

static size_t object_bytes(const tdict_box *box) {
  size_t (*bytes)(const void *self) = TDICT_HOOK_OF(box->type, bytes);
  return bytes ? bytes(box->self) : 0;
}

typedef enum sum_kind { SUM_TENSORS, SUM_OBJECTS, SUM_BYTES } sum_kind;

static size_t measure_leaf(tdict_leaf leaf, sum_kind what) {
  const tdict_box *box = tdict_leaf_box(leaf);
  if (what != SUM_BYTES) return (what == SUM_OBJECTS) == (box != NULL);
  return box ? object_bytes(box) : tdict_tensor_nbytes(tdict_leaf_tensor(leaf));
}

/* Adds up measure_leaf() for all leaves. Recurses only without memory for a cursor, since no error can be returned. */
static size_t sum_leaves(const tdict_tree *td, sum_kind what) {
  size_t total = 0;
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, td, false);
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(&cursor)) != 0;) {
    tdict_tree *tree = tdict_leaf_tree(leaf);
    if (!tree)
      total += measure_leaf(leaf, what);
    else if (!tdict_cursor_enter(&cursor, tree))
      total += sum_leaves(tree, what);
  }
  tdict_cursor_reset(&cursor);
  return total;
}

size_t tdict_num_leaves(const tdict_tree *tree) { return sum_leaves(tree, SUM_TENSORS); }
size_t tdict_num_objects(const tdict_tree *tree) { return sum_leaves(tree, SUM_OBJECTS); }
size_t tdict_bytes(const tdict_tree *tree) { return sum_leaves(tree, SUM_BYTES); }

/* Adds the bytes of each storage and object once. `seen` holds the storages and boxes that were counted. */
static bool add_unique_bytes(tdict_cursor *cursor, tdict_pointers *seen, size_t *total) {
  const void *last = NULL; /* skip the map for consecutive tensors of one storage, which are frequent */
  for (tdict_leaf leaf; (leaf = tdict_cursor_next_leaf(cursor)) != 0;) {
    /* Objects are counted by box, tensors by storage. */
    const tdict_box *box = tdict_leaf_box(leaf);
    const tdict_storage *storage = box ? NULL : tdict_leaf_tensor(leaf)->storage;
    const void *counted = box ? (const void *)box : storage;
    if (counted == last) continue;
    last = counted;
    int added = tdict_pointers_add(seen, counted, NULL);
    if (added < 0) return false;
    if (added > 0) *total += box ? object_bytes(box) : storage->bytes;
  }
  return !cursor->no_memory;
}

tdict_status tdict_unique_bytes(const tdict_tree *tree, size_t *out, tdict_error *err) {
  if (!tree || !out) return tdict_fail_null(err, "unique_bytes", tree ? "out" : "tree");
  size_t total = 0;
  tdict_pointers seen;
  tdict_cursor cursor;
  tdict_pointers_init(&seen);
  tdict_cursor_init(&cursor, tree, true);
  bool ok = add_unique_bytes(&cursor, &seen, &total);
  tdict_cursor_reset(&cursor);
  tdict_pointers_reset(&seen);
  if (!ok) return tdict_fail(err, TDICT_ENOMEM, "unique_bytes: no memory for the set of counted storages");
  *out = total;
  return TDICT_OK;
}
