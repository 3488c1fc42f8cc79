/* Makes short texts about leaves for messages. Writes to buffers of the caller. Thread-safe. */
#include "core/tree/text.h"

#include <stdio.h>

#include "core/base/error.h"

char *tdict_text_leaf(tdict_leaf leaf, char buffer[TDICT_TEXT_LEAF_BYTES]) {
  const tdict_box *box = tdict_leaf_box(leaf);
  if (box)
    snprintf(buffer, TDICT_TEXT_LEAF_BYTES, "an object of type %.60s", box->type->name);
  else
    snprintf(buffer, TDICT_TEXT_LEAF_BYTES, "%s", tdict_leaf_tree(leaf) ? "a tree" : "a tensor");
  return buffer;
}

tdict_status tdict_leaf_check(tdict_leaf leaf, int kind, const char *what, const char *path, tdict_error *err) {
  if (tdict_leaf_kind(leaf) == kind) return TDICT_OK;
  return tdict_fail_at(err, TDICT_ETYPE, path, "%s: found %s, wanted a %s", what, TDICT_LEAF_TEXT(leaf),
                       kind == TDICT_LEAF_TREE ? "tree" : "tensor");
}
