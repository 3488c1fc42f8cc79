/* Short texts for messages and for print. Functions of their arguments; thread-safe. */
#include "tree/text.h"

#include <stdio.h>
#include <string.h>

char *tdict_text_shape(int ndim, const int64_t *shape, char *buffer, size_t bytes) {
  static const char cut[] = "...]";
  size_t length = 0, room = bytes - sizeof cut; /* "...]" fits behind it */
  buffer[length++] = '[';
  for (int i = 0; i < ndim; i++) {
    char count[32];
    int n = snprintf(count, sizeof count, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (length + (size_t)n > room) {
      memcpy(buffer + length, cut, sizeof cut);
      return buffer;
    }
    memcpy(buffer + length, count, (size_t)n);
    length += (size_t)n;
  }
  buffer[length++] = ']';
  buffer[length] = 0;
  return buffer;
}

char *tdict_text_leaf(tdict_leaf leaf, char buffer[TDICT_TEXT_LEAF_BYTES]) {
  const tdict_box *box = tdict_leaf_box(leaf);
  if (box)
    snprintf(buffer, TDICT_TEXT_LEAF_BYTES, "an object of type %.60s", box->type->name);
  else
    snprintf(buffer, TDICT_TEXT_LEAF_BYTES, "%s", tdict_leaf_tree(leaf) ? "a tree" : "a tensor");
  return buffer;
}
