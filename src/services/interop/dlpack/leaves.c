/* Lists the tensors of a tree with their paths. See leaves.h for ownership and threads. */
#include "services/interop/dlpack/leaves.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/tree/objects.h"

/* Writes the escaped key and a final 0. If `mark` is not 0, writes a dot before the key. Returns the address of the
 * final 0. */
static char *write_key(char *to, size_t mark, const tdict_key *key) {
  if (mark) *to++ = '.';
  for (const char *c = key->name; *c; c++) {
    if (*c == '.' || *c == '\\') *to++ = '\\';
    *to++ = *c;
  }
  *to = 0;
  return to;
}

/* Returns the largest number of bytes that write_key() writes. */
static size_t measure_key(const tdict_key *key) { return 2 + 2 * (size_t)key->length; }

/* Adds a tensor to the list. The path of the tensor is the first `mark` bytes of list->path, and then the key. */
static bool add_leaf(tdict_dlpack_leaves *list, size_t mark, const tdict_key *key, const tdict_tensor *tensor) {
  if (!TDICT_RESERVE(list->leaves, list->cap, list->count + 1)) return false;
  if (!TDICT_RESERVE(list->names, list->cap_names, list->name_bytes + mark + measure_key(key))) return false;
  char *name = list->names + list->name_bytes;
  if (mark) memcpy(name, list->path, mark);
  list->leaves[list->count++] = (tdict_dlpack_leaf){tensor, list->name_bytes};
  list->name_bytes = (size_t)(write_key(name + mark, mark, key) + 1 - list->names);
  return true;
}

/* Puts a key after the first `mark` bytes of list->path. Writes the length of the new path to *length. */
static bool enter_path(tdict_dlpack_leaves *list, size_t mark, const tdict_key *key, size_t *length) {
  if (!TDICT_RESERVE(list->path, list->cap_path, mark + measure_key(key))) return false;
  *length = (size_t)(write_key(list->path + mark, mark, key) - list->path);
  return true;
}

static tdict_status add_below(tdict_dlpack_leaves *list, const tdict_tree *tree, size_t mark, tdict_error *err);

/* Flattens the object whose path is list->path, and adds the tensors. */
static tdict_status add_object(tdict_dlpack_leaves *list, const tdict_box *box, size_t length, tdict_error *err) {
  const tdict_flatten_rule rule = {.what = "dlpack", .way = TDICT_OBJECT_AS_TENSORS};
  tdict_tree **grown = realloc(list->flattened, (list->num_flattened + 1) * sizeof *grown), *flat;
  if (!grown) return tdict_fail(err, TDICT_ENOMEM, "dlpack: no host memory to flatten an object");
  list->flattened = grown;
  tdict_status status = tdict_box_flatten(&rule, box, list->path, &flat, err);
  if (status != TDICT_OK) return status;
  list->flattened[list->num_flattened++] = flat;
  return add_below(list, flat, length, err);
}

static tdict_status add_below(tdict_dlpack_leaves *list, const tdict_tree *tree, size_t mark, tdict_error *err) {
  tdict_status status = TDICT_OK;
  tdict_cursor cursor;
  bool has_memory = true;
  tdict_cursor_init(&cursor, tree, false);
  cursor.frames[0].mark = mark; /* the mark of a frame is the length of the path of its node */
  for (tdict_leaf leaf; status == TDICT_OK && has_memory && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    const tdict_key *key = tdict_cursor_key(&cursor);
    const size_t above = cursor.frames[cursor.depth - 1].mark;
    const tdict_tensor *tensor = tdict_leaf_tensor(leaf);
    tdict_tree *child = tdict_leaf_tree(leaf);
    size_t length = 0;
    has_memory = tensor ? add_leaf(list, above, key, tensor) : enter_path(list, above, key, &length);
    if (tensor || !has_memory) continue;
    if (!child) {
      status = add_object(list, tdict_leaf_box(leaf), length, err);
      continue;
    }
    has_memory = tdict_cursor_enter(&cursor, child);
    if (has_memory) cursor.frames[cursor.depth - 1].mark = length;
  }
  tdict_cursor_reset(&cursor);
  return has_memory ? status : tdict_fail(err, TDICT_ENOMEM, "dlpack: no host memory to list the leaves");
}

tdict_status tdict_dlpack_leaves_add(tdict_dlpack_leaves *list, const tdict_tree *tree, tdict_error *err) {
  return add_below(list, tree, 0, err);
}

void tdict_dlpack_leaves_reset(tdict_dlpack_leaves *list) {
  for (size_t i = 0; i < list->num_flattened; i++) tdict_release(list->flattened[i]);
  free(list->flattened);
  free(list->leaves);
  free(list->names);
  free(list->path);
}
