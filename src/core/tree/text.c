/* Makes short texts about leaves for messages. Writes to buffers of the caller. Thread-safe. */
#include "core/tree/text.h"

#include <stdio.h>

char *tdict_text_leaf(tdict_leaf leaf, char buffer[TDICT_TEXT_LEAF_BYTES]) {
  const tdict_box *box = tdict_leaf_box(leaf);
  if (box)
    snprintf(buffer, TDICT_TEXT_LEAF_BYTES, "an object of type %.60s", box->type->name);
  else
    snprintf(buffer, TDICT_TEXT_LEAF_BYTES, "%s", tdict_leaf_tree(leaf) ? "a tree" : "a tensor");
  return buffer;
}
