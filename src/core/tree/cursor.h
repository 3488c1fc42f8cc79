/* A cursor walks a tree in insertion order, a tree before its children. The cursor uses no recursion, because trees can
 * be deep. The function that initializes the cursor owns the cursor. The cursor borrows the trees and does not change
 * them. Thread rule: used by one thread at a time. */
#ifndef TDICT_CORE_TREE_CURSOR_H
#define TDICT_CORE_TREE_CURSOR_H

#include "core/tree/node.h"
#include "core/tree/pointers.h"

/* The state of a walk in one node, called a frame. The cursor has one frame for each level. */
typedef struct tdict_frame {
  tdict_tree *node;
  uint32_t slot;  /* the next slot to visit */
  bool is_shared; /* used only by the owner of the cursor, like `mark`; false when the cursor enters the node */
  size_t mark;
} tdict_frame;
enum { TDICT_CURSOR_LOCAL = 24 };
typedef struct tdict_cursor {
  tdict_frame *frames;
  size_t depth, cap;    /* frames[depth - 1] belongs to the node that is being walked */
  bool once, no_memory; /* no_memory: true if the walk has ended early, see tdict_cursor_descend() */
  tdict_pointers seen;  /* entered nodes with more than one reference; used if `once` is true */
  tdict_frame local[TDICT_CURSOR_LOCAL];
} tdict_cursor;

/* Starts a walk of the entries of `td`. If `once` is true, a node at several places is entered only once. */
void tdict_cursor_init(tdict_cursor *cursor, const tdict_tree *td, bool once);
void tdict_cursor_reset(tdict_cursor *cursor);
/* Starts a new walk. After a full walk of the same tree, reuses its memory and cannot fail. */
void tdict_cursor_rewind(tdict_cursor *cursor, const tdict_tree *td);
/* Returns the same result as tdict_cursor_next(), but also leaves nodes and skips empty slots. */
tdict_leaf tdict_cursor_leave(tdict_cursor *cursor);
/* Returns the next leaf, or 0 after the last leaf. To walk the entries of a child tree, call tdict_cursor_enter(). */
static inline tdict_leaf tdict_cursor_next(tdict_cursor *cursor) {
  tdict_frame *top = cursor->depth ? &cursor->frames[cursor->depth - 1] : NULL;
  if (top && top->slot < top->node->keys->num_slots && top->node->leaves[top->slot])
    return top->node->leaves[top->slot++];
  return tdict_cursor_leave(cursor);
}
/* Continues with the entries of `td`, the tree that tdict_cursor_next() returned last. If `once` is true, skips a tree
 * that was entered before. Returns false if memory is exhausted. */
bool tdict_cursor_enter(tdict_cursor *cursor, tdict_tree *td);
/* Enters a tree with a mark. Without memory, ends the walk: tdict_cursor_check() and _end() return TDICT_ENOMEM. */
void tdict_cursor_descend(tdict_cursor *cursor, tdict_tree *td, size_t mark);
/* Returns the next tensor or object, and descends into all trees on the way. Returns 0 after the last one. */
static inline tdict_leaf tdict_cursor_next_leaf(tdict_cursor *cursor) {
  tdict_leaf leaf;
  while (tdict_leaf_tree(leaf = tdict_cursor_next(cursor))) tdict_cursor_descend(cursor, tdict_leaf_tree(leaf), 0);
  return leaf;
}
/* Returns TDICT_ENOMEM. The message begins with `what`. */
tdict_status tdict_cursor_refuse(const char *what, tdict_error *err);
/* Returns the error of tdict_cursor_refuse() if the walk has ended early. */
static inline tdict_status tdict_cursor_check(const tdict_cursor *cursor, const char *what, tdict_error *err) {
  return cursor->no_memory ? tdict_cursor_refuse(what, err) : TDICT_OK;
}
/* Resets the cursor after a walk with the result `status`. Returns `status`, or the error of tdict_cursor_check(). */
tdict_status tdict_cursor_end(tdict_cursor *cursor, const char *what, tdict_status status, tdict_error *err);
/* Returns the key of the leaf returned last. No tree may have been entered since. */
static inline const tdict_key *tdict_cursor_key(const tdict_cursor *cursor) {
  const tdict_frame *top = &cursor->frames[cursor->depth - 1];
  return &top->node->keys->slots[top->slot - 1];
}
/* Writes the path of the leaf returned last, below `above` (NULL or "": none). Cuts it as tdict_error does. */
void tdict_cursor_path(const tdict_cursor *cursor, const char *above, char *buffer, size_t bytes);
/* Sets err->path to this path, as tdict_error_at() does. Returns `status`. */
tdict_status tdict_cursor_fail(const tdict_cursor *cursor, const char *above, tdict_status status, tdict_error *err)
    __attribute__((cold));

#endif
