/* A way through a tree, in insertion order, a tree before its children, that needs no recursion: trees may be deep.
 * Owned by one call; the trees are borrowed and not changed by it. Thread rule: one thread. */
#ifndef TDICT_TREE_CURSOR_H
#define TDICT_TREE_CURSOR_H

#include "tree/node.h"
#include "tree/pointers.h"

typedef struct tdict_frame {
  tdict_tree *node;
  uint32_t slot;  /* the next one to be shown */
  bool is_shared; /* the walker's own, like the mark: false when the frame begins */
  size_t mark;
} tdict_frame;
enum { TDICT_CURSOR_LOCAL = 24 };
typedef struct tdict_cursor {
  tdict_frame *frames;
  size_t depth, cap; /* frames[depth - 1] is the node that is being shown */
  bool once;
  tdict_pointers seen; /* nodes with more than one reference that were entered, when `once` */
  tdict_frame local[TDICT_CURSOR_LOCAL];
} tdict_cursor;

/* `once`: a node that hangs at several places is entered once. */
void tdict_cursor_init(tdict_cursor *cursor, const tdict_tree *td, bool once);
void tdict_cursor_reset(tdict_cursor *cursor);
/* Begins anew. A second way through the same tree finds the memory of the first one and cannot fail. */
void tdict_cursor_rewind(tdict_cursor *cursor, const tdict_tree *td);
/* The next leaf, or 0 at the end. Does not enter trees by itself. */
tdict_leaf tdict_cursor_next(tdict_cursor *cursor);
/* Goes into the tree that was shown last; false without memory. */
bool tdict_cursor_enter(tdict_cursor *cursor, tdict_tree *td);
/* The key of the leaf that was shown last, before it is entered. */
static inline const tdict_key *tdict_cursor_key(const tdict_cursor *cursor) {
  const tdict_frame *top = &cursor->frames[cursor->depth - 1];
  return &top->node->keys->slots[top->slot - 1];
}
/* The path of the leaf that was shown last, below the path `above` (NULL or "": none), cut as errors' paths are. */
void tdict_cursor_path(const tdict_cursor *cursor, const char *above, char *buffer, size_t bytes);

#endif
