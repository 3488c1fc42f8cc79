/* Implements the cursor. It contains 24 frames, one for each level, so usual trees need no allocation. A deeper walk
 * moves them to the heap. See cursor.h for ownership and threads. */
#include "core/tree/cursor.h"
#include "core/base/error.h"

#include <stdlib.h>
#include <string.h>

void tdict_cursor_init(tdict_cursor *cursor, const tdict_tree *td, bool once) {
  cursor->frames = cursor->local;
  cursor->cap = TDICT_CURSOR_LOCAL;
  cursor->once = once;
  cursor->no_memory = false;
  cursor->seen = (tdict_pointers){0};
  cursor->depth = 1;
  cursor->frames[0] = (tdict_frame){.node = (tdict_tree *)(uintptr_t)td};
}

void tdict_cursor_reset(tdict_cursor *cursor) {
  if (cursor->frames != cursor->local) free(cursor->frames);
  if (cursor->seen.pairs) tdict_pointers_reset(&cursor->seen);
}

void tdict_cursor_rewind(tdict_cursor *cursor, const tdict_tree *td) {
  tdict_pointers_clear(&cursor->seen);
  cursor->no_memory = false;
  cursor->depth = 1;
  cursor->frames[0] = (tdict_frame){.node = (tdict_tree *)(uintptr_t)td};
}

tdict_leaf tdict_cursor_leave(tdict_cursor *cursor) {
  /* Leave each node whose slots were all visited. */
  for (; cursor->depth; cursor->depth--) {
    tdict_frame *top = &cursor->frames[cursor->depth - 1];
    const uint32_t end = top->node->keys->num_slots;
    while (top->slot < end) {
      tdict_leaf leaf = top->node->leaves[top->slot++];
      if (leaf) return leaf;
    }
  }
  return 0;
}

/* Doubles the capacity for frames. Returns false if memory is exhausted; the cursor is then unchanged. */
static bool grow_frames(tdict_cursor *cursor) {
  size_t cap = cursor->cap * 2;
  bool local = cursor->frames == cursor->local;
  tdict_frame *frames = realloc(local ? NULL : cursor->frames, cap * sizeof *frames);
  if (!frames) return false;
  /* realloc() copied nothing, because the local frames are not on the heap. */
  if (local) memcpy(frames, cursor->local, sizeof cursor->local);
  cursor->frames = frames;
  cursor->cap = cap;
  return true;
}

bool tdict_cursor_enter(tdict_cursor *cursor, tdict_tree *td) {
  /* Grow before adding to `seen`: a failed call must not mark the node as entered. */
  if (cursor->depth == cursor->cap && !grow_frames(cursor)) return false;
  /* A node with one reference is at one place only, so the map needs no entry for such a node. */
  if (cursor->once && atomic_load_explicit(&td->refs, memory_order_relaxed) > 1) {
    int added = tdict_pointers_add(&cursor->seen, td, td);
    if (added <= 0) return added == 0;
  }
  cursor->frames[cursor->depth++] = (tdict_frame){.node = td};
  return true;
}

void tdict_cursor_descend(tdict_cursor *cursor, tdict_tree *td, size_t mark) {
  const size_t depth = cursor->depth;
  cursor->no_memory = !tdict_cursor_enter(cursor, td);
  if (cursor->no_memory) cursor->depth = 0;
  if (cursor->depth > depth) cursor->frames[depth].mark = mark;
}

tdict_status tdict_cursor_refuse(const char *what, tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "%s: no memory to walk the tree", what);
}

tdict_status tdict_cursor_end(tdict_cursor *cursor, const char *what, tdict_status status, tdict_error *err) {
  tdict_cursor_reset(cursor);
  return status == TDICT_OK ? tdict_cursor_check(cursor, what, err) : status;
}

void tdict_cursor_path(const tdict_cursor *cursor, const char *above, char *buffer, size_t bytes) {
  /* tdict_node_path() appends a key to the text in `buffer`, one level per call. */
  buffer[0] = 0;
  tdict_node_path(above, NULL, buffer, bytes);
  for (size_t i = 0; i < cursor->depth; i++) {
    const tdict_frame *frame = &cursor->frames[i];
    if (frame->slot) tdict_node_path(buffer, &frame->node->keys->slots[frame->slot - 1], buffer, bytes);
  }
}

tdict_status tdict_cursor_fail(const tdict_cursor *cursor, const char *above, tdict_status status, tdict_error *err) {
  char path[sizeof err->path];
  tdict_cursor_path(cursor, above, path, sizeof path);
  return tdict_error_at(err, status, path);
}
