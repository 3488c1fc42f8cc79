/* Merges one tree into another, or changes none. Nodes that change get replacements with new keys and leaves. When all
 * are complete, swaps them, which cannot fail. tdict_update() owns them. Thread rule: as in tdict/tree.h. */

#include "core/base/error.h"
#include "core/ops/changes.h"
#include "core/ops/map.h"
#include "core/ops/select.h"
#include "tdict/write.h"

static const char what[] = "update";
enum { PATH_BYTES = sizeof((tdict_error *)NULL)->path };

typedef struct merger {
  tdict_cursor cursor; /* walks the source; a frame's mark is the node of the destination at the same path */
  tdict_changes changes;
} merger;

/* Merges the entry at the cursor. For two trees, only sets *below to the tree of the destination. */
static tdict_status merge_leaf(merger *m, tdict_leaf leaf, tdict_tree **below, tdict_error *err) {
  const tdict_name name = tdict_key_name(tdict_cursor_key(&m->cursor));
  tdict_tree *node = (tdict_tree *)m->cursor.frames[m->cursor.depth - 1].mark;
  tdict_tree *current = tdict_pointers_get(&m->changes.replacement, node);
  tdict_leaf held = 0;
  if (!current) current = node;
  int64_t slot = tdict_keys_find_name(current->keys, &name);
  tdict_leaf dst_leaf = slot < 0 ? 0 : current->leaves[slot];
  if (tdict_leaf_tree(dst_leaf) && tdict_leaf_tree(leaf)) {
    *below = tdict_leaf_tree(dst_leaf);
    return TDICT_OK;
  }
  tdict_status status = current == node ? tdict_changes_get(&m->changes, node, &current, err) : TDICT_OK;
  if (status == TDICT_OK) status = tdict_map_adopt(current, leaf, what, &held, err);
  return status == TDICT_OK ? tdict_put_leaf(what, current, &name, slot, held, err) : status;
}

/* Walks through the source and merges each entry into the replacements of the destination's nodes. */
static tdict_status merge_trees(merger *m, tdict_tree *dst, tdict_error *err) {
  tdict_cursor *c = &m->cursor;
  c->frames[0].mark = (size_t)dst;
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(c)) != 0;) {
    tdict_tree *below = NULL;
    tdict_status status = merge_leaf(m, leaf, &below, err);
    if (status != TDICT_OK) {
      char path[PATH_BYTES], full_path[PATH_BYTES];
      tdict_cursor_path(c, NULL, path, sizeof path);
      /* The error's path begins in the tree `leaf`. Put the path of this tree before it. */
      if (err && err->path[0]) {
        snprintf(full_path, sizeof full_path, "%.120s.%.120s", path, err->path);
        return tdict_error_at(err, status, full_path);
      }
      return tdict_error_at(err, status, path);
    }
    if (!below || below == tdict_leaf_tree(leaf)) continue;
    tdict_cursor_descend(c, tdict_leaf_tree(leaf), (size_t)below);
  }
  return tdict_cursor_check(c, what, err);
}

tdict_status tdict_update(tdict_tree *dst, const tdict_tree *src, const char *const *paths, size_t num_paths,
                          tdict_error *err) {
  merger m;
  tdict_tree *part = NULL;
  if (!dst || !src) return tdict_fail_null(err, what, dst ? "src" : "dst");
  if (dst == src) return TDICT_OK;
  if (paths) {
    const tdict_selection selection = {paths, num_paths, true};
    tdict_status status = tdict_select_paths(what, src, &selection, &part, err);
    if (status != TDICT_OK) return status;
  }
  tdict_cursor_init(&m.cursor, part ? part : src, false);
  tdict_changes_init(&m.changes, what);
  tdict_status status = tdict_changes_end(&m.changes, merge_trees(&m, dst, err));
  tdict_cursor_reset(&m.cursor);
  tdict_release(part);
  return status;
}
