/* Writes elements in place. The functions own nothing. Thread rule: as in tdict/write.h. */
#include "tdict/write.h"

#include "core/base/error.h"
#include "core/memory/run.h"
#include "core/ops/check_copy.h"
#include "core/ops/index/index_plan.h"
#include "core/ops/select.h"
#include "core/ops/write.h"
#include "core/tensor/element.h"
#include "core/tensor/layout.h"
#include "core/tree/place.h"
#include "core/tree/suggest.h"
#include "core/tree/text.h"

enum { PATH_BYTES = sizeof((tdict_error *)NULL)->path };

/* Returns true if two tensors of equal shape have the same addresses, and need no copy. */
static bool is_same_view(const tdict_tensor *a, const tdict_tensor *b) {
  if (a->data != b->data || a->storage != b->storage) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->dims[i] > 1 && tdict_tensor_dims_strides(a)[i] != tdict_tensor_dims_strides(b)[i]) return false;
  return true;
}

static tdict_status check_tensor_copy(const tdict_moves *moves, const char *what, const tdict_tensor *to,
                                      const tdict_tensor *from, tdict_error *err) {
  if (!tdict_shapes_equal(from->ndim, from->dims, to->ndim, to->dims))
    return tdict_check_shape(what, from, to->ndim, to->dims, err);
  return tdict_moves_check_copy(moves, what, to, from, err);
}

static tdict_status write_whole(tdict_tensor *to, const tdict_tensor *value, tdict_error *err) {
  tdict_status status = check_tensor_copy(NULL, "write", to, value, err);
  return status == TDICT_OK && !is_same_view(to, value) ? tdict_tensor_copy(to, value, err) : status;
}

/* Writes the value to the elements of `to` that the plan selects. */
static tdict_status write_planned(tdict_tensor *to, tdict_index_plan *plan, const tdict_tensor *value,
                                  tdict_error *err) {
  tdict_made wanted, made;
  tdict_temp temp;
  tdict_status status = tdict_index_plan_describe(plan, to, &wanted, err);
  if (status == TDICT_OK) status = tdict_check_copy(plan->what, to, value, err);
  if (status != TDICT_OK) return status;
  if (!tdict_repeat_leading(value, wanted.ndim, wanted.shape, &made))
    return tdict_check_shape(plan->what, value, wanted.ndim, wanted.shape, err);
  status = tdict_index_plan_copy(plan, NULL, to, tdict_temp_over(&temp, value, &made), true, err);
  return status == TDICT_OK ? tdict_moves_run(plan->moves, err) : status;
}

static tdict_status write_indexed(tdict_tensor *to, const tdict_indices *index, const tdict_tensor *value,
                                  tdict_error *err) {
  tdict_moves moves = {.what = "write"};
  tdict_index_plan plan;
  tdict_status status = tdict_index_plan_init(&plan, &moves, to->ndim, to->dims, index, err);
  if (status != TDICT_OK) return status;
  status = write_planned(to, &plan, value, err);
  tdict_moves_reset(&moves);
  tdict_index_plan_reset(&plan);
  return status;
}

tdict_status tdict_write(tdict_tree *tree, const char *path, const tdict_indices *index, const tdict_tensor *value,
                         tdict_error *err) {
  tdict_tensor *to = NULL;
  if (!tree || !path || !value)
    return tdict_fail_null_at(err, "write", path, !tree ? "tree" : !path ? "path" : "value");
  tdict_status status = tdict_get(tree, path, &to, err);
  if (status != TDICT_OK) return status;
  status = index ? write_indexed(to, index, value, err) : write_whole(to, value, err);
  return status == TDICT_OK ? status : tdict_error_at(err, status, path);
}

/* A fill, with the value as an element of the last tensor's dtype. */
typedef struct filling {
  tdict_moves *moves;
  double value;
  tdict_dtype dtype; /* 0: no tensor yet */
  unsigned char element[TDICT_ELEMENT_ROOM];
} filling;

static tdict_status convert_value(filling *f, tdict_dtype dtype, tdict_error *err) {
  tdict_status status = tdict_element_from_double("fill", dtype, f->value, f->element, err);
  f->dtype = status == TDICT_OK ? dtype : 0;
  return status;
}

/* Fills a tensor. If `checks_only` is true, only checks whether the tensor can be filled. */
static tdict_status fill_tensor(filling *f, const tdict_tensor *t, bool checks_only, tdict_error *err) {
  tdict_status status = t->dtype == f->dtype ? TDICT_OK : convert_value(f, t->dtype, err);
  if (status != TDICT_OK) return status;
  return checks_only ? tdict_moves_check_fill(f->moves, t, f->element, err)
                     : tdict_moves_fill(f->moves, t, f->element, err);
}

/* Fills all tensors that the cursor reaches. If `found_object` is not NULL, only checks whether the tensors can be
 * filled: sets *found_object to true and stops if there is an object with elements. */
static tdict_status fill_leaves(filling *f, tdict_cursor *cursor, const char *parent_path, bool *found_object,
                                tdict_error *err) {
  for (tdict_leaf leaf; (leaf = tdict_cursor_next_leaf(cursor)) != 0;) {
    const tdict_tensor *tensor = tdict_leaf_tensor(leaf);
    if (found_object && tdict_leaf_box(leaf) && tdict_box_has_elements(tdict_leaf_box(leaf))) {
      *found_object = true;
      return TDICT_OK;
    }
    tdict_status status = tensor ? fill_tensor(f, tensor, found_object != NULL, err) : TDICT_OK;
    if (status != TDICT_OK) return tdict_cursor_fail(cursor, parent_path, status, err);
  }
  return tdict_cursor_check(cursor, "fill", err);
}

/* Checks that all tensors and objects of a tree can be filled, and fills them. `parent_path` is its path. */
static tdict_status fill_tree(filling *f, const tdict_tree *td, const char *parent_path, tdict_error *err) {
  const tdict_flatten_rule opening = {.what = "fill", .way = TDICT_OBJECT_ELEMENTS, .above = parent_path};
  tdict_cursor cursor;
  tdict_tree *opened = NULL;
  bool found_object = false;
  tdict_cursor_init(&cursor, td, true);
  tdict_status status = tdict_moves_check_objects(f->moves, td, err);
  if (status == TDICT_OK) status = fill_leaves(f, &cursor, parent_path, &found_object, err);
  /* Flatten the objects, and check their tensors. */
  if (status == TDICT_OK && found_object) {
    status = tdict_objects_flatten(&opening, td, &opened, err);
    found_object = false;
    if (status == TDICT_OK) tdict_cursor_rewind(&cursor, opened);
    if (status == TDICT_OK) status = fill_leaves(f, &cursor, parent_path, &found_object, err);
  }
  /* Write after all checks have passed. */
  tdict_cursor_rewind(&cursor, opened ? opened : td);
  if (status == TDICT_OK) status = fill_leaves(f, &cursor, parent_path, NULL, err);
  if (status == TDICT_OK) status = tdict_moves_run(f->moves, err);
  tdict_cursor_reset(&cursor);
  tdict_release(opened);
  return status;
}

/* Fills the tensor, tree or object at a path. If `path` is NULL, fills the whole tree. */
static tdict_status fill_at(filling *f, tdict_tree *tree, const char *path, tdict_error *err) {
  static const tdict_flatten_rule opening = {.what = "fill", .way = TDICT_OBJECT_ELEMENTS};
  tdict_place place;
  tdict_tree *opened = NULL;
  if (!path) return fill_tree(f, tree, NULL, err);
  tdict_status status = tdict_place_get(&place, tree, path, "fill", err);
  if (status != TDICT_OK) return status;
  tdict_leaf leaf = tdict_place_leaf(&place);
  tdict_place_reset(&place);
  if (tdict_leaf_tree(leaf)) return fill_tree(f, tdict_leaf_tree(leaf), path, err);
  if (tdict_leaf_box(leaf) && f->moves->stream)
    return tdict_fail_at(err, TDICT_ENOTSUP, path,
                         "fill: an object of type %.60s; on a stream, only tensors are supported",
                         tdict_leaf_box(leaf)->type->name);
  if (tdict_leaf_box(leaf)) {
    status = tdict_box_flatten(&opening, tdict_leaf_box(leaf), path, &opened, err);
    if (status == TDICT_OK) status = fill_tree(f, opened, path, err);
    tdict_release(opened);
    return status;
  }
  status = fill_tensor(f, tdict_leaf_tensor(leaf), true, err);
  if (status == TDICT_OK) status = fill_tensor(f, tdict_leaf_tensor(leaf), false, err);
  if (status == TDICT_OK) status = tdict_moves_run(f->moves, err);
  return status == TDICT_OK ? status : tdict_error_at(err, status, path);
}

tdict_status tdict_fill(tdict_tree *tree, const char *path, double value, const tdict_run *run, tdict_error *err) {
  tdict_run r;
  if (!tree) return tdict_fail_null(err, "fill", "tree");
  tdict_status status = tdict_run_read(&r, run, TDICT_USES_STREAM, "fill", err);
  if (status != TDICT_OK) return status;
  tdict_moves moves = {.what = "fill", .stream = tdict_run_stream(&r)};
  status = fill_at(&(filling){.moves = &moves, .value = value}, tree, path, err);
  tdict_moves_reset(&moves);
  return status;
}

/* Returns TDICT_ENOTFOUND if both trees must have the same keys, but `to` has more keys than `from`. */
static tdict_status check_extra_keys(const tdict_tree_write *w, const tdict_tree *to, const tdict_tree *from,
                                     tdict_error *err) {
  if (!w->needs_same_keys || to->keys->num_live <= from->keys->num_live) return TDICT_OK;
  return tdict_fail(err, TDICT_ENOTFOUND, "%s: %s has %zu keys, but %s has %zu", w->objects.what, w->to_name,
                    tdict_num_keys(to), w->from_name, tdict_num_keys(from));
}

static tdict_status copy_tensor(const tdict_tree_write *w, tdict_tensor *to, const tdict_tensor *from, bool checks_only,
                                tdict_error *err) {
  if (checks_only) return check_tensor_copy(w->moves, w->objects.what, to, from, err);
  return is_same_view(to, from) ? TDICT_OK : tdict_moves_copy(w->moves, to, from, err);
}

/* Returns true for one element of an object of a built-in type, in a tree without batch dimensions. */
static bool is_element_of(const tdict_tree_write *w, tdict_leaf to, tdict_leaf from) {
  const int picked = w->objects.picked;
  const tdict_box *box = tdict_leaf_box(picked ? from : to);
  const tdict_builtin *builtin = box ? tdict_builtin_of(box->type) : NULL;
  const int64_t *sizes;
  return builtin && builtin->pair && !w->objects.is_whole && builtin->batch(box->self, &sizes) > 0 &&
         tdict_leaf_tensor(picked ? to : from) && (picked ? w->to : w->from)->batch_ndim == 0;
}

/* Returns TDICT_ENOTFOUND for a key that `to` does not have. The message lists similar keys. */
static TDICT_COLD tdict_status fail_missing_key(const tdict_tree_write *w, const tdict_tree *to, const tdict_key *key,
                                                tdict_error *err) {
  const tdict_name name = tdict_name_of(key->name, key->length);
  char similar[160] = "";
  if (err) tdict_suggest(to->keys, &name, similar, sizeof similar);
  return tdict_fail(err, TDICT_ENOTFOUND, "%s: the destination has no such key%s", w->objects.what, similar);
}

static tdict_status find_written_leaf(const tdict_tree_write *w, const tdict_cursor *c, tdict_leaf leaf,
                                      tdict_leaf *out, tdict_error *err) {
  const tdict_frame *top = &c->frames[c->depth - 1];
  const tdict_tree *to = (const tdict_tree *)top->mark;
  int64_t slot = top->slot - 1;
  if (to->keys != top->node->keys) {
    const tdict_key *key = tdict_cursor_key(c);
    slot = tdict_keys_find_near(to->keys, key, slot);
    if (slot < 0) return fail_missing_key(w, to, key, err);
  }
  *out = to->leaves[slot];
  if (tdict_leaf_kind(*out) == tdict_leaf_kind(leaf) || is_element_of(w, *out, leaf)) return TDICT_OK;
  return tdict_fail(err, TDICT_ETYPE, "%s: the key holds %s in %s, but %s in the destination", w->objects.what,
                    TDICT_LEAF_TEXT(leaf), w->from_name, TDICT_LEAF_TEXT(*out));
}

static tdict_status write_leaves(tdict_tree_write *w, tdict_cursor *c, const char *parent_path, bool checks_only,
                                 tdict_error *err);

/* Writes one object to another. The write pass uses the pairs of the check pass again, in the same order. */
static tdict_status write_object(tdict_tree_write *w, const tdict_leaf leaves[2], const char *path, bool checks_only,
                                 tdict_error *err) {
  if (leaves[0] == leaves[1] && w->objects.is_whole) return TDICT_OK;
  tdict_pairing how = w->objects;
  how.path = path;
  tdict_status status = checks_only ? tdict_flat_pairs_add(&w->pairs, &how, leaves, err) : TDICT_OK;
  if (status != TDICT_OK) return status;
  const tdict_flat_pair pair = tdict_flat_pairs_take(&w->pairs, checks_only);
  const tdict_box *box = tdict_leaf_box(leaves[w->objects.picked]);
  if (tdict_builtin_of(box->type)) return tdict_write_pair(w->objects.what, w->moves, &pair, path, checks_only, err);
  tdict_cursor inner;
  tdict_cursor_init(&inner, pair.from, false);
  inner.frames[0].mark = (size_t)pair.to;
  status = check_extra_keys(w, pair.to, pair.from, err);
  status = status == TDICT_OK ? write_leaves(w, &inner, path, checks_only, err) : tdict_error_at(err, status, path);
  tdict_cursor_reset(&inner);
  return status;
}

/* Writes all leaves that the cursor reaches, or only checks. A frame's mark is the node of `to` at its path. Flattened
 * objects contain no objects, so the recursion is one level deep. */
static tdict_status write_leaves(tdict_tree_write *w, tdict_cursor *c, const char *parent_path, bool checks_only,
                                 tdict_error *err) {
  for (tdict_leaf leaf, to = 0; (leaf = tdict_cursor_next(c)) != 0;) {
    tdict_status status = find_written_leaf(w, c, leaf, &to, err);
    tdict_tensor *tensor = tdict_leaf_tensor(leaf), *to_tensor = tdict_leaf_tensor(to);
    tdict_tree *tree = tdict_leaf_tree(leaf);
    if (status == TDICT_OK && tensor && to_tensor) {
      status = w->tensor ? w->tensor(w, to_tensor, tensor, checks_only, err)
                         : copy_tensor(w, to_tensor, tensor, checks_only, err);
      if (status == TDICT_OK) continue;
    } else if (status == TDICT_OK && tree) {
      status = check_extra_keys(w, tdict_leaf_tree(to), tree, err);
    }
    if (status != TDICT_OK) return tdict_cursor_fail(c, parent_path, status, err);
    if (!tree) {
      char path[PATH_BYTES];
      tdict_cursor_path(c, parent_path, path, sizeof path);
      status = write_object(w, (const tdict_leaf[]){to, leaf}, path, checks_only, err);
      if (status != TDICT_OK) return status;
      continue;
    }
    tdict_cursor_descend(c, tree, (size_t)tdict_leaf_tree(to));
  }
  return tdict_cursor_check(c, w->objects.what, err);
}

tdict_status tdict_tree_write_run(tdict_tree_write *w, tdict_error *err) {
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, w->from, false);
  tdict_status status = tdict_moves_check_objects(w->moves, w->from, err);
  if (status == TDICT_OK) status = check_extra_keys(w, w->to, w->from, err);
  /* Check everything before the first element is written. */
  for (int pass = 0; pass < 2 && status == TDICT_OK; pass++) {
    tdict_cursor_rewind(&cursor, w->from);
    cursor.frames[0].mark = (size_t)w->to;
    status = write_leaves(w, &cursor, NULL, pass == 0, err);
  }
  if (status == TDICT_OK) status = tdict_moves_run(w->moves, err);
  tdict_cursor_reset(&cursor);
  tdict_flat_pairs_reset(&w->pairs);
  if (w->moves) tdict_moves_reset(w->moves);
  return status;
}

tdict_status tdict_write_pair(const char *what, tdict_moves *moves, const tdict_flat_pair *pair, const char *path,
                              bool checks_only, tdict_error *err) {
  tdict_tree_write w = {.to = pair->to, .from = pair->from, .objects.what = what, .moves = moves};
  tdict_cursor cursor;
  if (!pair->to) return TDICT_OK;
  tdict_cursor_init(&cursor, pair->from, false);
  cursor.frames[0].mark = (size_t)pair->to;
  tdict_status status = write_leaves(&w, &cursor, path, checks_only, err);
  tdict_cursor_reset(&cursor);
  return status;
}

static tdict_status copy_tree_elements(tdict_moves *moves, bool needs_same_keys, tdict_tree *dst, const tdict_tree *src,
                                       tdict_error *err) {
  static const tdict_pick whole = {.selects = false};
  tdict_tree_write w = {.to = dst,
                        .from = src,
                        .to_name = "the destination",
                        .from_name = "the source",
                        .needs_same_keys = needs_same_keys,
                        .objects = {.what = moves->what, .pick = &whole, .is_whole = true},
                        .moves = moves};
  return tdict_tree_write_run(&w, err);
}

tdict_status tdict_copy(tdict_tree *dst, const tdict_tree *src, const tdict_run *run, tdict_error *err) {
  tdict_run r;
  if (!dst || !src) return tdict_fail_null(err, "copy", dst ? "src" : "dst");
  tdict_status status = tdict_run_read(&r, run, TDICT_USES_STREAM, "copy", err);
  if (status != TDICT_OK) return status;
  tdict_moves moves = {.what = "copy", .stream = tdict_run_stream(&r)};
  return copy_tree_elements(&moves, true, dst, src, err);
}

tdict_status tdict_update_in_place(tdict_tree *dst, const tdict_tree *src, const char *const *paths, size_t num_paths,
                                   tdict_error *err) {
  static const char what[] = "update_in_place";
  tdict_tree *part = NULL;
  if (!dst || !src) return tdict_fail_null(err, what, dst ? "src" : "dst");
  if (paths) {
    const tdict_selection selection = {paths, num_paths, true};
    tdict_status status = tdict_select_paths(what, src, &selection, &part, err);
    if (status != TDICT_OK) return status;
  }
  tdict_moves moves = {.what = what};
  tdict_status status = copy_tree_elements(&moves, false, dst, part ? part : src, err);
  tdict_release(part);
  return status;
}
