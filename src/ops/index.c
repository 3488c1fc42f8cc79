/* Reading and writing what an index names. Results belong to the caller. Thread rule: as in tdict/index.h. */
#include "tdict/index.h"

#include <string.h>

#include "base/error.h"
#include "ops/check_copy.h"
#include "ops/index_plan.h"
#include "ops/map.h"
#include "tree/agree.h"
#include "tree/text.h"

enum { PATH_BYTES = sizeof((tdict_error *)NULL)->path };

static tdict_status plan_for(tdict_index_plan *plan, const char *what, const tdict_tree *td, const tdict_indices *index,
                             tdict_error *err) {
  if (td->batch_ndim == 0) return tdict_fail(err, TDICT_EINVAL, "%s: the tree has no batch dimension", what);
  tdict_status status = tdict_index_plan_init(plan, what, td->batch_ndim, td->batch_size, index, err);
  if (status == TDICT_OK && plan->ndim > TDICT_MAX_BATCH_NDIM) {
    tdict_index_plan_reset(plan);
    return tdict_fail(err, TDICT_EINVAL, "%s: the result would have %d batch dimensions, and may have %d", what,
                      plan->ndim, TDICT_MAX_BATCH_NDIM);
  }
  return status;
}

typedef struct getter {
  tdict_index_plan plan;
  tdict_pick pick;
} getter;

static tdict_status describe_get(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                 tdict_error *err) {
  const getter *g = map->user;
  (void)entry;
  return tdict_index_plan_describe(&g->plan, from, made, err);
}

static tdict_status fill_get(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                             tdict_error *err) {
  const getter *g = map->user;
  (void)entry;
  return tdict_index_plan_copy(&g->plan, from, made, false, err);
}

static tdict_status index_object(const tdict_map *map, size_t entry, tdict_box *from, tdict_box **out,
                                 tdict_error *err) {
  const getter *g = map->user;
  (void)entry;
  return tdict_box_index(from, &g->pick, out, err);
}

tdict_status tdict_index_get(const tdict_tree *td, tdict_indices index, tdict_tree **out, tdict_error *err) {
  getter g;
  if (!td || !out) return tdict_fail(err, TDICT_EINVAL, "index: %s is NULL", td ? "out" : "td");
  tdict_status status = plan_for(&g.plan, "index", td, &index, err);
  if (status != TDICT_OK) return status;
  const tdict_index_plan *plan = &g.plan;
  const bool copies = plan->num_gathers > 0;
  const tdict_map map = {.what = "index",
                         .batch_in = td->batch_ndim,
                         .batch_out = plan->ndim,
                         .batch_size = plan->shape,
                         .more_dims = plan->ndim > td->batch_ndim ? plan->ndim - td->batch_ndim : 0,
                         .unlocked = true,
                         .describe = describe_get,
                         .fill = copies ? fill_get : NULL,
                         .user = &g,
                         .way = copies ? TDICT_WAY_TENSORS : tdict_way_of(&plan->affine, td->batch_size, &g.pick),
                         .object = index_object};
  status = tdict_map_run(&map, td, out, err);
  tdict_index_plan_reset(&g.plan);
  return status;
}

/* A write under way: from all leaves of a tree to those of another one with the same paths. The plan names elements of the
 * tree that is written, or with `gets` of the one that is read, and then both have the same keys. */
typedef struct writer {
  const tdict_index_plan *plan;
  const tdict_tree *to, *from;
  bool gets;
  tdict_cursor cursor; /* over `from`; a frame's mark is the node that is written to */
  tdict_open_pairs pairs;
} writer;

static tdict_status check_count(const writer *w, const tdict_tree *to, const tdict_tree *from, tdict_error *err) {
  if (!w->gets || tdict_num_keys(to) <= tdict_num_keys(from)) return TDICT_OK;
  return tdict_fail(err, TDICT_ENOTFOUND, "%s: out has %zu keys, the tree %zu", w->plan->what, tdict_num_keys(to),
                    tdict_num_keys(from));
}

/* Finds what stands at a cursor's key in the tree that is written: what stands in the value must be of its kind. */
static tdict_status find(const writer *w, const tdict_cursor *c, tdict_leaf leaf, tdict_leaf *out, tdict_error *err) {
  const tdict_frame *top = &c->frames[c->depth - 1];
  const tdict_tree *to = (const tdict_tree *)top->mark;
  int64_t slot = top->slot - 1;
  if (to->keys != top->node->keys) {
    const tdict_key *key = tdict_cursor_key(c);
    slot = tdict_keys_find_hashed(to->keys, key->name, key->length, key->hash);
    if (slot < 0)
      return tdict_fail(err, TDICT_ENOTFOUND, "%s: the tree that is written has no such key", w->plan->what);
  }
  *out = to->leaves[slot];
  if (tdict_leaf_kind(*out) == tdict_leaf_kind(leaf)) return TDICT_OK;
  char there[TDICT_TEXT_LEAF_BYTES], here[TDICT_TEXT_LEAF_BYTES];
  return tdict_fail(err, TDICT_ETYPE, "%s: %s stands in the tree that is written, and %s in the %s", w->plan->what,
                    tdict_text_leaf(*out, there), tdict_text_leaf(leaf, here), w->gets ? "tree that is read" : "value");
}

/* The layout of a value's tensor, repeated where its batch size is short, for what the index names of `to`. */
static tdict_status describe_value(const writer *w, const tdict_tensor *to, const tdict_tensor *from, tdict_made *made,
                                   tdict_error *err) {
  tdict_made wanted;
  const tdict_index_plan *plan = w->plan;
  tdict_status status = tdict_index_plan_describe(plan, to, &wanted, err);
  if (status != TDICT_OK) return status;
  bool lead = from->ndim == wanted.ndim - (plan->ndim - w->from->batch_ndim);
  return lead && tdict_repeat(from, wanted.ndim, wanted.shape, made)
             ? TDICT_OK
             : tdict_check_shape(plan->what, from, wanted.ndim, wanted.shape, err);
}

static tdict_status get_tensor(const writer *w, const tdict_tensor *to, const tdict_tensor *from, bool dry,
                               tdict_error *err) {
  tdict_made wanted;
  if (!dry) return tdict_index_plan_copy(w->plan, from, to, false, err);
  tdict_status status = tdict_index_plan_describe(w->plan, from, &wanted, err);
  if (status == TDICT_OK) status = tdict_check_shape(w->plan->what, to, wanted.ndim, wanted.shape, err);
  if (status == TDICT_OK) status = tdict_check_kinds(w->plan->what, to, from, err);
  return status == TDICT_OK ? tdict_index_plan_check_came(w->plan, from, err) : status;
}

static tdict_status write_tensor(const writer *w, tdict_tensor *to, const tdict_tensor *from, bool dry,
                                 tdict_error *err) {
  tdict_made made;
  tdict_temp temp;
  const tdict_tree *indexed = w->gets ? w->from : w->to; /* whose batch size the plan is made for */
  const tdict_tensor *tensor = w->gets ? from : to;
  if (dry && !tdict_tensor_begins_with(tensor, indexed->batch_ndim, indexed->batch_size))
    return tdict_batch_mismatch(w->plan->what, indexed, tensor, err);
  if (w->gets) return get_tensor(w, to, from, dry, err);
  tdict_status status = describe_value(w, to, from, &made, err);
  if (status == TDICT_OK && dry) return tdict_check_copy(w->plan->what, to, from, err);
  if (status != TDICT_OK) return status;
  return tdict_index_plan_copy(w->plan, to, tdict_temp_over(&temp, from, &made), true, err);
}

static tdict_status go(writer *w, tdict_cursor *c, const char *above, bool dry, tdict_error *err);

/* Writes an object's tensors to another's. */
static tdict_status write_object(writer *w, const tdict_leaf boxes[2], const char *path, bool dry, tdict_error *err) {
  if (dry) {
    const char *what = w->plan->what;
    const tdict_opening to = {what, TDICT_WAY_TENSORS, false, w->to->batch_ndim, w->to->batch_size, NULL};
    const tdict_opening from = {what, TDICT_WAY_TENSORS, false, w->from->batch_ndim, w->from->batch_size, NULL};
    tdict_status status = tdict_open_pairs_add(&w->pairs, &to, &from, boxes, path, err);
    if (status != TDICT_OK) return status;
  }
  const tdict_open_pair pair = tdict_open_pairs_take(&w->pairs, dry);
  tdict_cursor inner;
  tdict_cursor_init(&inner, pair.from, false);
  inner.frames[0].mark = (size_t)pair.to;
  tdict_status status = check_count(w, pair.to, pair.from, err);
  status = status == TDICT_OK ? go(w, &inner, path, dry, err) : tdict_error_at(err, status, path);
  tdict_cursor_reset(&inner);
  return status;
}

/* Goes through the value, or an object in it, from the cursor's beginning; `dry`: only looks whether all can be
 * written. What flatten gives holds no objects, so this goes one level down at most. */
static tdict_status go(writer *w, tdict_cursor *c, const char *above, bool dry, tdict_error *err) {
  for (tdict_leaf leaf, there = 0; (leaf = tdict_cursor_next(c)) != 0;) {
    char path[PATH_BYTES];
    tdict_tree *tree = tdict_leaf_tree(leaf);
    tdict_tensor *tensor = tdict_leaf_tensor(leaf);
    tdict_status status = find(w, c, leaf, &there, err);
    if (status == TDICT_OK && tensor) status = write_tensor(w, tdict_leaf_tensor(there), tensor, dry, err);
    if (status == TDICT_OK && tree) status = check_count(w, tdict_leaf_tree(there), tree, err);
    if (status != TDICT_OK || (!tree && !tensor)) tdict_cursor_path(c, above, path, sizeof path);
    if (status != TDICT_OK) return tdict_error_at(err, status, path);
    if (!tree && !tensor) status = write_object(w, (const tdict_leaf[]){there, leaf}, path, dry, err);
    if (status != TDICT_OK) return status;
    if (!tree) continue;
    if (!tdict_cursor_enter(c, tree))
      return tdict_fail(err, TDICT_ENOMEM, "%s: no memory to look through the tree", w->plan->what);
    c->frames[c->depth - 1].mark = (size_t)tdict_leaf_tree(there);
  }
  return TDICT_OK;
}

/* The batch size of the value must be the last dimensions of what is written. */
static tdict_status check_value(const tdict_index_plan *plan, const tdict_tree *value, tdict_error *err) {
  int lead = plan->ndim - value->batch_ndim;
  bool fits = lead >= 0;
  for (int i = 0; fits && i < value->batch_ndim; i++) fits = value->batch_size[i] == plan->shape[lead + i];
  if (fits) return TDICT_OK;
  char wanted[96], found[96];
  return tdict_fail(err, TDICT_ESHAPE, "%s: the value's batch size is %s, wanted the last dimensions of %s", plan->what,
                    tdict_text_shape(value->batch_ndim, value->batch_size, found, sizeof found),
                    tdict_text_shape(plan->ndim, plan->shape, wanted, sizeof wanted));
}

static tdict_status describe_zeros(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                   tdict_error *err) {
  (void)entry;
  const tdict_affine *a = map->user;
  tdict_status status = tdict_affine_apply(a, from, map->what, made, err);
  made->fresh = true;
  return status;
}

static tdict_status fill_zeros(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                               tdict_error *err) {
  (void)map, (void)entry, (void)from;
  tdict_memory *m = made->storage->memory;
  size_t bytes = tdict_tensor_nbytes(made);
  if (m && m->ops->fill) return m->ops->fill(m, made->data, 0, bytes, err);
  memset(made->data, 0, bytes);
  return TDICT_OK;
}

/* Zeroed tensors like those of `value`, with the batch size of `td`, as a new tree. */
static tdict_status make_zeros(const tdict_tree *td, const tdict_tree *value, const char *what, tdict_tree **out,
                               tdict_error *err) {
  tdict_affine a = {.ndim_in = value->batch_ndim, .ndim_out = td->batch_ndim, .grows = true};
  for (int i = 0; i < td->batch_ndim; i++) a.axes[i] = (tdict_axis){-1, td->batch_size[i], 0};
  const tdict_map map = {.what = what,
                         .batch_in = value->batch_ndim,
                         .batch_out = td->batch_ndim,
                         .batch_size = td->batch_size,
                         .more_dims = td->batch_ndim > value->batch_ndim ? td->batch_ndim - value->batch_ndim : 0,
                         .unlocked = true,
                         .describe = describe_zeros,
                         .fill = fill_zeros,
                         .user = &a};
  return tdict_map_run(&map, value, out, err);
}

/* Looks at all first, and then writes. */
static tdict_status run(writer *w, tdict_error *err) {
  tdict_cursor_init(&w->cursor, w->from, false);
  tdict_status status = check_count(w, w->to, w->from, err);
  for (int dry = 1; dry >= 0 && status == TDICT_OK; dry--) {
    tdict_cursor_rewind(&w->cursor, w->from);
    w->cursor.frames[0].mark = (size_t)w->to;
    status = go(w, &w->cursor, NULL, dry, err);
  }
  tdict_cursor_reset(&w->cursor);
  tdict_open_pairs_reset(&w->pairs);
  return status;
}

static tdict_status write(tdict_tree *td, const tdict_index_plan *plan, const tdict_tree *value, tdict_error *err) {
  writer w = {.plan = plan, .to = td, .from = value};
  return run(&w, err);
}

static tdict_status check_out(const tdict_index_plan *plan, const tdict_tree *out, tdict_error *err) {
  bool same = out->batch_ndim == plan->ndim;
  for (int i = 0; same && i < plan->ndim; i++) same = out->batch_size[i] == plan->shape[i];
  if (same) return TDICT_OK;
  char wanted[96], found[96];
  return tdict_fail(err, TDICT_ESHAPE, "%s: out has batch size %s, wanted %s", plan->what,
                    tdict_text_shape(out->batch_ndim, out->batch_size, found, sizeof found),
                    tdict_text_shape(plan->ndim, plan->shape, wanted, sizeof wanted));
}

tdict_status tdict_index_get_into(const tdict_tree *td, tdict_indices index, tdict_tree *out, tdict_error *err) {
  tdict_index_plan plan;
  if (!td || !out) return tdict_fail(err, TDICT_EINVAL, "index_get_into: %s is NULL", td ? "out" : "td");
  tdict_status status = plan_for(&plan, "index_get_into", td, &index, err);
  if (status != TDICT_OK) return status;
  writer w = {.plan = &plan, .to = out, .from = td, .gets = true};
  status = check_out(&plan, out, err);
  if (status == TDICT_OK) status = run(&w, err);
  tdict_index_plan_reset(&plan);
  return status;
}

/* Writes to a tree that holds nothing: tensors are made and written first, then they are put into the tree. */
static tdict_status write_new(tdict_tree *td, const tdict_index_plan *plan, const tdict_tree *value, tdict_error *err) {
  tdict_tree *made = NULL;
  if (tdict_node_is_locked(td))
    return tdict_fail(err, TDICT_ELOCKED, "%s: the tree is empty and locked, so no tensors can be made", plan->what);
  tdict_status status = make_zeros(td, value, plan->what, &made, err);
  if (status != TDICT_OK) return status;
  status = write(made, plan, value, err);
  if (status == TDICT_OK && td->has_device) status = tdict_set_device(made, &td->device, err);
  if (status == TDICT_OK) tdict_node_swap(td, made);
  tdict_release(made);
  return status;
}

static tdict_status set(tdict_tree *td, const char *what, const tdict_indices *index, const tdict_tree *value,
                        tdict_error *err) {
  tdict_index_plan plan;
  tdict_status status = plan_for(&plan, what, td, index, err);
  if (status != TDICT_OK) return status;
  status = check_value(&plan, value, err);
  if (status == TDICT_OK)
    status = tdict_num_keys(td) == 0 && tdict_num_keys(value) != 0 ? write_new(td, &plan, value, err)
                                                                   : write(td, &plan, value, err);
  tdict_index_plan_reset(&plan);
  return status;
}

tdict_status tdict_index_set(tdict_tree *td, tdict_indices index, const tdict_tree *value, tdict_error *err) {
  if (!td || !value) return tdict_fail(err, TDICT_EINVAL, "index_set: %s is NULL", td ? "value" : "td");
  return set(td, "index_set", &index, value, err);
}

tdict_status tdict_write_row(tdict_tree *td, int64_t i, const tdict_tree *row, tdict_error *err) {
  if (!td || !row) return tdict_fail(err, TDICT_EINVAL, "write_row: %s is NULL", td ? "row" : "td");
  const tdict_indices index = TDICT_INDEX(TDICT_AT(i));
  return set(td, "write_row", &index, row, err);
}

tdict_status tdict_write_rows(tdict_tree *td, int64_t first, const tdict_tree *rows, tdict_error *err) {
  if (!td || !rows) return tdict_fail(err, TDICT_EINVAL, "write_rows: %s is NULL", td ? "rows" : "td");
  if (td->batch_ndim == 0 || rows->batch_ndim == 0)
    return tdict_fail(err, TDICT_EINVAL, "write_rows: %s has no batch dimension", td->batch_ndim ? "rows" : "the tree");
  int64_t count = rows->batch_size[0];
  if (first < 0 || count > td->batch_size[0] || first > td->batch_size[0] - count)
    return tdict_fail(err, TDICT_EINVAL, "write_rows: %lld rows from row %lld of %lld", (long long)count,
                      (long long)first, (long long)td->batch_size[0]);
  const tdict_indices index = TDICT_INDEX(TDICT_RANGE(first, first + count, 1));
  return set(td, "write_rows", &index, rows, err);
}
