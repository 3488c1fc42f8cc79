/* Writing elements in place. Nothing is made and nothing is kept. Thread rule: as in tdict/write.h. */
#include "tdict/write.h"

#include "base/error.h"
#include "ops/check_copy.h"
#include "ops/index_plan.h"
#include "ops/select.h"
#include "tensor/element.h"
#include "tree/objects.h"
#include "tree/place.h"
#include "tree/text.h"

enum { PATH_BYTES = sizeof((tdict_error *)NULL)->path };

static tdict_status is_null(const char *what, const char *name, tdict_error *err) {
  return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, name);
}

static tdict_status at_cursor(const tdict_cursor *cursor, const char *above, tdict_status status, tdict_error *err) {
  char path[PATH_BYTES];
  tdict_cursor_path(cursor, above, path, sizeof path);
  return tdict_error_at(err, status, path);
}

static bool same_elements(const tdict_tensor *a, const tdict_tensor *b) {
  if (a->data != b->data || a->storage != b->storage) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->dims[i] > 1 && tdict_tensor_dims_strides(a)[i] != tdict_tensor_dims_strides(b)[i]) return false;
  return true;
}

static tdict_status check_tensor(const char *what, const tdict_tensor *to, const tdict_tensor *from, tdict_error *err) {
  tdict_status status = tdict_check_shape(what, from, to->ndim, to->dims, err);
  return status == TDICT_OK ? tdict_check_copy(what, to, from, err) : status;
}

tdict_status tdict_write(tdict_tree *td, const char *path, const tdict_tensor *value, tdict_error *err) {
  tdict_tensor *to = NULL;
  if (!td || !path || !value) return is_null("write", !td ? "td" : !path ? "path" : "value", err);
  tdict_status status = tdict_get(td, path, &to, err);
  if (status != TDICT_OK) return status;
  status = check_tensor("write", to, value, err);
  if (status == TDICT_OK && !same_elements(to, value)) status = tdict_tensor_copy(to, value, err);
  return status == TDICT_OK ? status : tdict_error_at(err, status, path);
}

static tdict_status write_at(tdict_tensor *to, const tdict_index_plan *plan, const tdict_tensor *value,
                             tdict_error *err) {
  tdict_made wanted, made;
  tdict_temp temp;
  tdict_status status = tdict_index_plan_describe(plan, to, &wanted, err);
  if (status == TDICT_OK) status = tdict_check_copy(plan->what, to, value, err);
  if (status != TDICT_OK) return status;
  if (!tdict_repeat(value, wanted.ndim, wanted.shape, &made))
    return tdict_check_shape(plan->what, value, wanted.ndim, wanted.shape, err);
  return tdict_index_plan_copy(plan, to, tdict_temp_over(&temp, value, &made), true, err);
}

tdict_status tdict_write_at(tdict_tree *td, const char *path, tdict_indices index, const tdict_tensor *value,
                            tdict_error *err) {
  tdict_tensor *to = NULL;
  tdict_index_plan plan;
  if (!td || !path || !value) return is_null("write_at", !td ? "td" : !path ? "path" : "value", err);
  tdict_status status = tdict_get(td, path, &to, err);
  if (status != TDICT_OK) return status;
  status = tdict_index_plan_init(&plan, "write_at", to->ndim, to->dims, &index, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, path);
  status = write_at(to, &plan, value, err);
  tdict_index_plan_reset(&plan);
  return status == TDICT_OK ? status : tdict_error_at(err, status, path);
}

enum { MOST_ELEMENT = 4 * TDICT_ELEMENT_BYTES };

static tdict_status fill_tensor(const tdict_tensor *t, double value, bool dry, tdict_error *err) {
  unsigned char element[MOST_ELEMENT];
  if (tdict_dtype_bytes(t->dtype) > sizeof element)
    return tdict_fail(err, TDICT_ENOTSUP, "fill: elements of %zu bytes", tdict_dtype_bytes(t->dtype));
  tdict_status status = tdict_element_from_double("fill", t->dtype, value, element, err);
  if (status == TDICT_OK && dry) return tdict_element_check("fill", t, element, err);
  return status == TDICT_OK ? tdict_element_fill(t, element, err) : status;
}

/* All tensors below a node; `dry`: only looks whether they can be filled, and ends at an object, which *met says. */
static tdict_status fill_below(tdict_cursor *cursor, const char *above, double value, bool *met, tdict_error *err) {
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(cursor)) != 0;) {
    const tdict_tensor *tensor = tdict_leaf_tensor(leaf);
    if (met && tdict_leaf_box(leaf)) {
      *met = true;
      return TDICT_OK;
    }
    if (tdict_leaf_tree(leaf) && !tdict_cursor_enter(cursor, tdict_leaf_tree(leaf)))
      return tdict_fail(err, TDICT_ENOMEM, "fill: no memory to look through the tree");
    tdict_status status = tensor ? fill_tensor(tensor, value, met != NULL, err) : TDICT_OK;
    if (status != TDICT_OK) return at_cursor(cursor, above, status, err);
  }
  return TDICT_OK;
}

static tdict_status fill_tree(const tdict_tree *td, const char *above, double value, tdict_error *err) {
  const tdict_opening opening = {.what = "fill", .way = TDICT_WAY_TENSORS, .above = above};
  tdict_cursor cursor;
  tdict_tree *opened = NULL;
  bool met = false;
  tdict_cursor_init(&cursor, td, true);
  tdict_status status = fill_below(&cursor, above, value, &met, err);
  if (status == TDICT_OK && met) {
    status = tdict_objects_open(&opening, td, &opened, err);
    met = false;
    if (status == TDICT_OK) tdict_cursor_rewind(&cursor, opened);
    if (status == TDICT_OK) status = fill_below(&cursor, above, value, &met, err);
  }
  tdict_cursor_rewind(&cursor, opened ? opened : td);
  if (status == TDICT_OK) status = fill_below(&cursor, above, value, NULL, err);
  tdict_cursor_reset(&cursor);
  tdict_release(opened);
  return status;
}

tdict_status tdict_fill(tdict_tree *td, const char *path, double value, tdict_error *err) {
  static const tdict_opening opening = {.what = "fill", .way = TDICT_WAY_TENSORS};
  tdict_place place;
  tdict_tree *opened = NULL;
  if (!td) return is_null("fill", "td", err);
  if (!path) return fill_tree(td, NULL, value, err);
  tdict_status status = tdict_place_get(&place, td, path, "fill", err);
  if (status != TDICT_OK) return status;
  tdict_leaf leaf = tdict_place_leaf(&place);
  tdict_place_reset(&place);
  if (tdict_leaf_tree(leaf)) return fill_tree(tdict_leaf_tree(leaf), path, value, err);
  if (tdict_leaf_box(leaf)) {
    status = tdict_box_open(&opening, tdict_leaf_box(leaf), path, &opened, err);
    if (status == TDICT_OK) status = fill_tree(opened, path, value, err);
    tdict_release(opened);
    return status;
  }
  status = fill_tensor(tdict_leaf_tensor(leaf), value, true, err);
  if (status == TDICT_OK) status = fill_tensor(tdict_leaf_tensor(leaf), value, false, err);
  return status == TDICT_OK ? status : tdict_error_at(err, status, path);
}

tdict_status tdict_zero(tdict_tree *td, tdict_error *err) { return tdict_fill(td, NULL, 0, err); }

/* A copy between trees under way. A frame's mark is the node that is written. */
typedef struct copier {
  const char *what;
  bool all; /* the keys are the same */
  tdict_open_pairs pairs;
} copier;

static tdict_status check_count(const copier *c, const tdict_tree *to, const tdict_tree *from, tdict_error *err) {
  if (!c->all || to->keys->num_live <= from->keys->num_live) return TDICT_OK;
  return tdict_fail(err, TDICT_ENOTFOUND, "%s: the destination has %zu keys, the source %zu", c->what,
                    tdict_num_keys(to), tdict_num_keys(from));
}

/* What stands in the destination where the cursor stands in the source. Tensors are looked at, or copied. */
static tdict_status copy_leaf(const copier *c, const tdict_cursor *cursor, tdict_leaf leaf, bool dry, tdict_leaf *out,
                              tdict_error *err) {
  const tdict_frame *top = &cursor->frames[cursor->depth - 1];
  const tdict_key *key = tdict_cursor_key(cursor);
  const tdict_tree *to = (const tdict_tree *)top->mark;
  int64_t slot = top->slot - 1;
  if (to->keys != top->node->keys) slot = tdict_keys_find_hashed(to->keys, key->name, key->length, key->hash);
  if (slot < 0) return tdict_fail(err, TDICT_ENOTFOUND, "%s: the destination has no such key", c->what);
  tdict_leaf there = *out = to->leaves[slot];
  if (tdict_leaf_kind(there) != tdict_leaf_kind(leaf)) {
    char one[TDICT_TEXT_LEAF_BYTES], other[TDICT_TEXT_LEAF_BYTES];
    return tdict_fail(err, TDICT_ETYPE, "%s: %s stands in the source, and %s in the destination", c->what,
                      tdict_text_leaf(leaf, one), tdict_text_leaf(there, other));
  }
  if (tdict_leaf_tree(there)) return check_count(c, tdict_leaf_tree(there), tdict_leaf_tree(leaf), err);
  const tdict_tensor *from = tdict_leaf_tensor(leaf);
  if (!from) return TDICT_OK;
  tdict_tensor *tensor = tdict_leaf_tensor(there);
  if (dry) return check_tensor(c->what, tensor, from, err);
  return same_elements(tensor, from) ? TDICT_OK : tdict_tensor_copy(tensor, from, err);
}

static tdict_status go(copier *c, tdict_cursor *cursor, const char *above, bool dry, tdict_error *err);

/* An object's tensors, to another's. */
static tdict_status copy_object(copier *c, const tdict_leaf boxes[2], const char *path, bool dry, tdict_error *err) {
  const tdict_opening opening = {.what = c->what, .way = TDICT_WAY_TENSORS};
  tdict_status status = TDICT_OK;
  if (boxes[0] == boxes[1]) return status;
  if (dry) status = tdict_open_pairs_add(&c->pairs, &opening, &opening, boxes, path, err);
  if (status != TDICT_OK) return status;
  const tdict_open_pair pair = tdict_open_pairs_take(&c->pairs, dry);
  tdict_cursor inner;
  tdict_cursor_init(&inner, pair.from, false);
  inner.frames[0].mark = (size_t)pair.to;
  status = check_count(c, pair.to, pair.from, err);
  status = status == TDICT_OK ? go(c, &inner, path, dry, err) : tdict_error_at(err, status, path);
  tdict_cursor_reset(&inner);
  return status;
}

/* Goes through the source from the cursor's beginning, one level down at an object. */
static tdict_status go(copier *c, tdict_cursor *cursor, const char *above, bool dry, tdict_error *err) {
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(cursor)) != 0;) {
    tdict_leaf there = 0;
    tdict_status status = copy_leaf(c, cursor, leaf, dry, &there, err);
    if (status != TDICT_OK) return at_cursor(cursor, above, status, err);
    if (tdict_leaf_box(leaf)) {
      char path[PATH_BYTES];
      tdict_cursor_path(cursor, above, path, sizeof path);
      status = copy_object(c, (const tdict_leaf[]){there, leaf}, path, dry, err);
      if (status != TDICT_OK) return status;
    }
    if (!tdict_leaf_tree(leaf)) continue;
    if (!tdict_cursor_enter(cursor, tdict_leaf_tree(leaf)))
      return tdict_fail(err, TDICT_ENOMEM, "%s: no memory to look through the tree", c->what);
    cursor->frames[cursor->depth - 1].mark = (size_t)tdict_leaf_tree(there);
  }
  return TDICT_OK;
}

static tdict_status copy(const char *what, bool all, tdict_tree *dst, const tdict_tree *src, tdict_error *err) {
  copier c = {.what = what, .all = all};
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, src, false);
  tdict_status status = check_count(&c, dst, src, err);
  for (int dry = 1; dry >= 0 && status == TDICT_OK; dry--) {
    tdict_cursor_rewind(&cursor, src);
    cursor.frames[0].mark = (size_t)dst;
    status = go(&c, &cursor, NULL, dry, err);
  }
  tdict_cursor_reset(&cursor);
  tdict_open_pairs_reset(&c.pairs);
  return status;
}

tdict_status tdict_copy(tdict_tree *dst, const tdict_tree *src, tdict_error *err) {
  if (!dst || !src) return is_null("copy", dst ? "src" : "dst", err);
  return copy("copy", true, dst, src, err);
}

tdict_status tdict_update_in_place(tdict_tree *dst, const tdict_tree *src, const char *const *paths, size_t num_paths,
                                   tdict_error *err) {
  static const char what[] = "update_in_place";
  tdict_tree *part = NULL;
  if (!dst || !src) return is_null(what, dst ? "src" : "dst", err);
  if (paths) {
    const tdict_selection selection = {paths, num_paths, true};
    tdict_status status = tdict_select_paths(what, src, &selection, &part, err);
    if (status != TDICT_OK) return status;
  }
  tdict_status status = copy(what, false, dst, part ? part : src, err);
  tdict_release(part);
  return status;
}
