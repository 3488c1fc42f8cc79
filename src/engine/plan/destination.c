/* Compares source and destination, by leaf or as consolidated trees. See destination.h for ownership and threads. */
#include "engine/plan/destination.h"

#include "core/base/error.h"
#include "core/tree/suggest.h"
#include "core/tree/text.h"

tdict_status tdict_destination_check_leaf(const tdict_tensor *src, tdict_dtype dtype, const tdict_tensor *dst,
                                          tdict_error *err) {
  if (dtype != dst->dtype)
    return tdict_fail(err, TDICT_EDTYPE, "transfer_into: the source %s %s, the destination %s",
                      dtype == src->dtype ? "is" : "is converted to", TDICT_DTYPE_TEXT(dtype),
                      TDICT_DTYPE_TEXT(dst->dtype));
  if (!tdict_shapes_equal(src->ndim, src->dims, dst->ndim, dst->dims))
    return tdict_fail(err, TDICT_ESHAPE, "transfer_into: the source %s shape %s, the destination %s",
                      dtype == src->dtype ? "has" : "is converted to", TDICT_SHAPE_TEXT(src->ndim, src->dims),
                      TDICT_SHAPE_TEXT(dst->ndim, dst->dims));
  if (dst->storage->flags & TDICT_STORAGE_READ_ONLY)
    return tdict_fail(err, TDICT_EREADONLY, "transfer_into: the destination is read-only");
  return TDICT_OK;
}

/* Returns the leaf of `other` with the key of the cursor's current leaf, or 0 if `other` has no such key. */
static tdict_leaf find_other(const tdict_cursor *cursor, const tdict_tree *other) {
  const tdict_frame *top = &cursor->frames[cursor->depth - 1];
  const tdict_key *key = tdict_cursor_key(cursor);
  const bool shares_keys = top->node->keys == other->keys;
  const int64_t slot = shares_keys ? (int64_t)top->slot - 1 : tdict_keys_find(other->keys, key->name, key->length);
  return slot < 0 ? 0 : other->leaves[slot];
}

tdict_status tdict_destination_find(const tdict_cursor *cursor, tdict_leaf *out, tdict_error *err) {
  const tdict_tree *other = (const tdict_tree *)cursor->frames[cursor->depth - 1].mark;
  *out = find_other(cursor, other);
  if (*out) return TDICT_OK;
  const tdict_key *key = tdict_cursor_key(cursor);
  const tdict_name name = tdict_name_of(key->name, key->length);
  char similar[160] = "";
  if (err) tdict_suggest(other->keys, &name, similar, sizeof similar);
  return tdict_fail(err, TDICT_ENOTFOUND, "transfer_into: the destination has no such key%s", similar);
}

tdict_status tdict_destination_check_keys(tdict_cursor *cursor, const tdict_tree *node, const tdict_tree *other,
                                          tdict_error *err) {
  if (other->keys->num_live <= node->keys->num_live) return TDICT_OK;
  for (uint32_t i = 0; i < other->keys->num_slots; i++) {
    const tdict_key *key = &other->keys->slots[i];
    if (!key->name || tdict_keys_find(node->keys, key->name, key->length) >= 0) continue;
    char path[sizeof err->path];
    tdict_cursor_path(cursor, NULL, path, sizeof path);
    tdict_node_path(path, key, path, sizeof path);
    return tdict_error_at(err, tdict_fail(err, TDICT_ENOTFOUND, "transfer_into: the source has no such key"), path);
  }
  return TDICT_OK;
}

/* Returns true if the tensors have the same dtype and shape, and begin at the same offset of their storages. */
static bool tensors_match(const tdict_tensor *a, const tdict_tensor *b) {
  if (!a || !b || a->dtype != b->dtype || !tdict_shapes_equal(a->ndim, a->dims, b->ndim, b->dims)) return false;
  /* an empty tensor has no bytes, so its offset does not matter */
  return a->numel == 0 ||
         (uintptr_t)a->data - (uintptr_t)a->storage->data == (uintptr_t)b->data - (uintptr_t)b->storage->data;
}

bool tdict_destination_matches(const tdict_tree *dst, const tdict_tree *src) {
  if (!dst->consolidated || !src->consolidated || dst->keys->num_live != src->keys->num_live) return false;
  if (dst->consolidated->bytes->numel != src->consolidated->bytes->numel) return false;
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, src, false);
  cursor.frames[0].mark = (size_t)(uintptr_t)dst;
  bool matches = true;
  for (tdict_leaf leaf; matches && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    tdict_tree *child = tdict_leaf_tree(leaf);
    const tdict_leaf other = find_other(&cursor, (const tdict_tree *)cursor.frames[cursor.depth - 1].mark);
    if (child) {
      const tdict_tree *matching = tdict_leaf_tree(other);
      matches = matching && matching->keys->num_live == child->keys->num_live && tdict_cursor_enter(&cursor, child);
      cursor.frames[cursor.depth - 1].mark = (size_t)(uintptr_t)matching;
    } else {
      matches = tensors_match(tdict_leaf_tensor(leaf), tdict_leaf_tensor(other));
    }
  }
  tdict_cursor_reset(&cursor);
  return matches;
}
