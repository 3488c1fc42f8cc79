/* Reads and writes the elements that an index selects. The caller owns the results. Thread rule: as in
 * tdict/index.h. */
#include "tdict/index.h"

#include <string.h>

#include "core/base/error.h"
#include "core/memory/run.h"
#include "core/ops/check_copy.h"
#include "core/ops/index/index_plan.h"
#include "core/ops/map.h"
#include "core/ops/visit.h"
#include "core/ops/write.h"
#include "core/tree/agree.h"
#include "core/tree/text.h"

enum { PATH_BYTES = sizeof((tdict_error *)NULL)->path };

/* Makes the plan of an index for the batch dimensions of `td`. The caller resets the plan on success. */
static tdict_status plan_batch_index(tdict_index_plan *plan, tdict_moves *moves, const tdict_tree *td,
                                     const tdict_indices *index, tdict_error *err) {
  const char *what = moves->what;
  tdict_status status = tdict_index_plan_init(plan, moves, td->batch_ndim, td->batch_size, index, err);
  if (status == TDICT_OK && plan->ndim > TDICT_MAX_BATCH_NDIM) {
    tdict_index_plan_reset(plan);
    return tdict_fail(err, TDICT_EINVAL, "%s: the result would have %d batch dimensions, wanted at most %d", what,
                      plan->ndim, TDICT_MAX_BATCH_NDIM);
  }
  return status;
}

/* The name and the options of a call. */
typedef struct index_call {
  const char *what;
  tdict_index_helpers helpers;
  tdict_run run;
} index_call;

/* Finds the threads that may help the calling thread. Returns TDICT_EINVAL if num_threads is out of range. */
static tdict_status find_helpers(index_call *call, tdict_context *context, tdict_error *err) {
  tdict_pool *pool = context ? tdict_context_pool(context) : NULL;
  tdict_status status = tdict_run_check_threads(&call->run, context, pool, call->what, err);
  if (status != TDICT_OK || !pool) return status;
  const int wanted = call->run.num_threads < 0 ? tdict_pool_num_cpus(pool) - 1 : call->run.num_threads,
            most = tdict_pool_size(pool);
  call->helpers = (tdict_index_helpers){pool, wanted < most ? wanted : most};
  return TDICT_OK;
}

/* Reads and checks the options of a call that makes a tree. */
static tdict_status read_get_options(index_call *call, tdict_context *context, const tdict_run *run, tdict_error *err) {
  tdict_status status =
      tdict_run_read(&call->run, run, TDICT_USES_THREADS | TDICT_USES_STREAM | TDICT_USES_MEMORY, call->what, err);
  if (status == TDICT_OK) status = find_helpers(call, context, err);
  const tdict_memory *memory = call->run.memory;
  if (status != TDICT_OK || !memory) return status;
  if (memory->device.type != TDICT_DEVICE_CPU) {
    char device[32];
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the memory is on %s, wanted host memory", call->what,
                      tdict_device_format(memory->device, device, sizeof device));
  }
  if (!tdict_run_stream(&call->run)) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: the options memory and stream are set, wanted at most one of them",
                    call->what);
}

/* Reads and checks the options of a call that writes to an existing tree. */
static tdict_status read_write_options(index_call *call, tdict_context *context, const tdict_run *run,
                                       tdict_error *err) {
  tdict_status status = tdict_run_read(&call->run, run, TDICT_USES_THREADS | TDICT_USES_STREAM, call->what, err);
  return status == TDICT_OK ? find_helpers(call, context, err) : status;
}

typedef struct getter {
  tdict_index_plan plan;
  tdict_moves moves;
  index_call call;
  bool copies; /* true: all tensors of the result are new */
} getter;

static tdict_status describe_indexed(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                     tdict_error *err) {
  const getter *g = map->user;
  (void)entry;
  tdict_status status = tdict_index_plan_describe(&g->plan, from, made, err);
  made->fresh = g->copies;
  return status;
}

static tdict_status copy_indexed(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                                 tdict_error *err) {
  getter *g = map->user;
  (void)entry;
  return tdict_index_plan_copy(&g->plan, &g->call.helpers, from, made, false, err);
}

/* Writes the pick for the elements that the plan selects. Returns false if a pick cannot describe these elements. */
static bool find_pick(const tdict_index_plan *plan, const int64_t *shape, tdict_pick *pick) {
  if (!tdict_pick_of(&plan->affine, shape, pick)) return false;
  if (plan->num_gathers == 0) return true;
  const tdict_index_gather *g = &plan->gathers[0];
  if (plan->num_gathers > 1 || g->axis != 0 || g->dims != 1 || pick->selects) return false;
  pick->selects = true;
  pick->count = g->count;
  pick->positions = g->positions;
  return true;
}

/* Makes the result. Then checks the lists that no launch has checked. If a launch has found a bad position, checks the
 * lists again for an error that names the position. */
static tdict_status get_checked(getter *g, const tdict_map *map, const tdict_tree *tree, tdict_tree **out,
                                tdict_error *err) {
  tdict_tree *made = NULL;
  tdict_status status = tdict_map_run(map, tree, &made, err);
  if (status == TDICT_OK && !g->moves.has_checked_lists) status = tdict_index_plan_check_lists(&g->plan, err);
  if (g->moves.found_bad_position) {
    const tdict_status found = tdict_index_plan_check_lists(&g->plan, err);
    if (found != TDICT_OK) status = found;
  }
  if (status == TDICT_OK)
    *out = made;
  else
    tdict_release(made);
  return status;
}

/* Returns the name of the first argument that is NULL, or NULL if no argument is NULL. */
static const char *find_null(const void *first, const char *first_name, const void *second, const char *second_name,
                             const tdict_indices *index) {
  return !first ? first_name : !second ? second_name : !index ? "index" : NULL;
}

tdict_status tdict_index_get(tdict_context *context, const tdict_tree *tree, const tdict_indices *index,
                             const tdict_run *run, tdict_tree **out, tdict_error *err) {
  getter g = {.call.what = "index"};
  tdict_pick found;
  const char *null = find_null(tree, "tree", out, "out", index);
  if (null) return tdict_fail(err, TDICT_EINVAL, "index: %s is NULL", null);
  tdict_status status = read_get_options(&g.call, context, run, err);
  const tdict_stream *stream = tdict_run_stream(&g.call.run);
  g.moves = (tdict_moves){.what = "index", .stream = stream, .defers_checks = !stream};
  if (status == TDICT_OK) status = plan_batch_index(&g.plan, &g.moves, tree, index, err);
  if (status != TDICT_OK) return status;
  if (tdict_index_plan_has_unread_lists(&g.plan) && tdict_num_objects(tree))
    status = tdict_index_plan_read_lists(&g.plan, err);
  const tdict_index_plan *plan = &g.plan;
  const tdict_pick *pick = find_pick(plan, tree->batch_size, &found) ? &found : NULL;
  g.copies = plan->num_gathers != 0 || g.call.run.memory;
  const tdict_map map = {.what = "index",
                         .batch_in = tree->batch_ndim,
                         .batch_out = plan->ndim,
                         .batch_size = plan->shape,
                         .more_dims = plan->ndim > tree->batch_ndim ? plan->ndim - tree->batch_ndim : 0,
                         .drops_locks = true,
                         .memory = g.call.run.memory,
                         .describe = describe_indexed,
                         .fill = g.copies ? copy_indexed : NULL,
                         .describes_shapes = g.copies,
                         .user = &g,
                         .moves = &g.moves,
                         .way = tdict_pick_method(pick),
                         .pick = pick};
  if (status == TDICT_OK) status = tdict_moves_check_objects(&g.moves, tree, err);
  if (status == TDICT_OK) status = get_checked(&g, &map, tree, out, err);
  tdict_moves_reset(&g.moves);
  tdict_index_plan_reset(&g.plan);
  return status;
}

/* The state of a write from all leaves of one tree to the leaves at the same paths of another tree. If
 * `reads_index` is false, the plan selects elements of `to`. If `reads_index` is true, the plan selects elements of
 * `from` instead, and both trees must have the same keys. */
typedef struct writer {
  tdict_index_plan *plan;
  const tdict_pick *pick; /* the plan's selection, for objects of built-in types; NULL: a pick cannot describe this
                           * selection */
  const tdict_index_helpers *helpers; /* NULL: none */
  const tdict_tree *to, *from;
  bool reads_index;
  tdict_cursor cursor; /* walks `from`; a frame's mark is the node of `to` at the same path */
  tdict_flat_pairs pairs;
} writer;

/* Returns TDICT_ENOTFOUND if both trees must have the same keys, but `to` has more keys than `from`. */
static tdict_status check_extra_keys(const writer *w, const tdict_tree *to, const tdict_tree *from, tdict_error *err) {
  if (!w->reads_index || tdict_num_keys(to) <= tdict_num_keys(from)) return TDICT_OK;
  return tdict_fail(err, TDICT_ENOTFOUND, "%s: dst has %zu keys, but the tree has %zu", w->plan->what,
                    tdict_num_keys(to), tdict_num_keys(from));
}

/* Returns the object of a built-in type whose elements the plan selects, or NULL if the indexed leaf is not such an
 * object. Other objects of built-in types have no elements that can be written, or belong to all elements of the
 * tree. */
static tdict_box *get_indexed_builtin(const writer *w, tdict_leaf to, tdict_leaf from) {
  tdict_box *box = tdict_leaf_box(w->reads_index ? from : to);
  const tdict_builtin *builtin = box ? tdict_builtin_of(box->type) : NULL;
  const int64_t *sizes;
  return builtin && builtin->elements && builtin->batch(box->self, &sizes) > 0 ? box : NULL;
}

/* Returns true if both entries have the same kind. A tensor in a tree without batch dimensions also matches an object
 * of a built-in type, as one element of the object. */
static bool kinds_match(const writer *w, tdict_leaf to, tdict_leaf from) {
  if (tdict_leaf_kind(to) == tdict_leaf_kind(from)) return true;
  const tdict_leaf other = w->reads_index ? to : from;
  const tdict_tree *other_root = w->reads_index ? w->to : w->from;
  return get_indexed_builtin(w, to, from) && tdict_leaf_tensor(other) && other_root->batch_ndim == 0;
}

/* Finds the entry of `to` at the cursor's key. Returns TDICT_ENOTFOUND if the key is missing, TDICT_ETYPE if the
 * entry differs in kind from `leaf`. */
static tdict_status find_written_leaf(const writer *w, const tdict_cursor *c, tdict_leaf leaf, tdict_leaf *out,
                                      tdict_error *err) {
  const tdict_frame *top = &c->frames[c->depth - 1];
  const tdict_tree *to = (const tdict_tree *)top->mark;
  int64_t slot = top->slot - 1;
  if (to->keys != top->node->keys) {
    const tdict_key *key = tdict_cursor_key(c);
    slot = tdict_keys_find_hashed(to->keys, key->name, key->length, key->hash);
    if (slot < 0) return tdict_fail(err, TDICT_ENOTFOUND, "%s: the destination has no such key", w->plan->what);
  }
  *out = to->leaves[slot];
  if (kinds_match(w, *out, leaf)) return TDICT_OK;
  char to_text[TDICT_TEXT_LEAF_BYTES], from_text[TDICT_TEXT_LEAF_BYTES];
  return tdict_fail(err, TDICT_ETYPE, "%s: the key holds %s in the destination, but %s in the %s", w->plan->what,
                    tdict_text_leaf(*out, to_text), tdict_text_leaf(leaf, from_text),
                    w->reads_index ? "source" : "value");
}

/* Describes the value's tensor as a view with the shape of the elements that the plan selects in `to`. A value with
 * fewer batch dimensions is repeated. */
static tdict_status describe_value(const writer *w, const tdict_tensor *to, const tdict_tensor *from, tdict_made *made,
                                   tdict_error *err) {
  tdict_made wanted;
  /* A value may lack leading batch dimensions. Its tensors must have every dimension that is not a batch dimension. */
  const tdict_index_plan *plan = w->plan;
  tdict_status status = tdict_index_plan_describe(plan, to, &wanted, err);
  if (status != TDICT_OK) return status;
  bool is_valid_rank = from->ndim == wanted.ndim - (plan->ndim - w->from->batch_ndim);
  return is_valid_rank && tdict_repeat_leading(from, wanted.ndim, wanted.shape, made)
             ? TDICT_OK
             : tdict_check_shape(plan->what, from, wanted.ndim, wanted.shape, err);
}

/* Copies the selected elements of `from` to `to`. If `checks_only` is true, only checks whether the elements can be
 * copied. */
static tdict_status read_indexed_tensor(const writer *w, const tdict_tensor *to, const tdict_tensor *from,
                                        bool checks_only, tdict_error *err) {
  tdict_made wanted;
  if (!checks_only) return tdict_index_plan_copy(w->plan, w->helpers, from, to, false, err);
  tdict_status status = tdict_index_plan_describe(w->plan, from, &wanted, err);
  if (status == TDICT_OK) status = tdict_check_shape(w->plan->what, to, wanted.ndim, wanted.shape, err);
  if (status == TDICT_OK) status = tdict_moves_check_devices(w->plan->moves, w->plan->what, to, from, err);
  return status == TDICT_OK ? tdict_index_plan_check_not_lost(w->plan, from, err) : status;
}

/* Writes to the selected elements of `to`, or copies the selected elements of `from` if w->reads_index is true. If
 * `checks_only` is true, only checks whether the elements can be copied. */
static tdict_status write_tensor(const writer *w, tdict_tensor *to, const tdict_tensor *from, bool checks_only,
                                 tdict_error *err) {
  tdict_made made;
  tdict_temp temp;
  const tdict_tree *indexed = w->reads_index ? w->from : w->to; /* the tree whose batch size the plan was made for */
  const tdict_tensor *tensor = w->reads_index ? from : to;
  if (checks_only && !tdict_tensor_begins_with(tensor, indexed->batch_ndim, indexed->batch_size))
    return tdict_batch_mismatch(w->plan->what, indexed, tensor, err);
  if (w->reads_index) return read_indexed_tensor(w, to, from, checks_only, err);
  tdict_status status = describe_value(w, to, from, &made, err);
  if (status == TDICT_OK && checks_only) return tdict_moves_check_copy(w->plan->moves, w->plan->what, to, from, err);
  if (status != TDICT_OK) return status;
  return tdict_index_plan_copy(w->plan, w->helpers, to, tdict_temp_over(&temp, from, &made), true, err);
}

static tdict_status write_leaves(writer *w, tdict_cursor *c, const char *parent_path, bool checks_only,
                                 tdict_error *err);

/* Writes the tensors of one object to the tensors of another object. The check pass flattens both objects; the write
 * pass uses the flattened pairs again, in the same order. */
static tdict_status write_object(writer *w, const tdict_leaf boxes[2], const char *path, bool checks_only,
                                 tdict_error *err) {
  if (tdict_builtin_of(tdict_leaf_box(boxes[1])->type)) {
    tdict_status status = tdict_box_keep(w->plan->what, boxes[0], tdict_leaf_box(boxes[1]), false, err);
    return status == TDICT_OK ? status : tdict_error_at(err, status, path);
  }
  if (checks_only) {
    const char *what = w->plan->what;
    const tdict_flatten_rule to = {what, TDICT_OBJECT_AS_TENSORS, false, w->to->batch_ndim, w->to->batch_size, NULL,
                                   false};
    const tdict_flatten_rule from = {
        what, TDICT_OBJECT_AS_TENSORS, false, w->from->batch_ndim, w->from->batch_size, NULL, false};
    tdict_status status = tdict_flat_pairs_add(&w->pairs, &to, &from, boxes, path, err);
    if (status != TDICT_OK) return status;
  }
  const tdict_flat_pair pair = tdict_flat_pairs_take(&w->pairs, checks_only);
  tdict_cursor inner;
  tdict_cursor_init(&inner, pair.from, false);
  inner.frames[0].mark = (size_t)pair.to;
  tdict_status status = check_extra_keys(w, pair.to, pair.from, err);
  status = status == TDICT_OK ? write_leaves(w, &inner, path, checks_only, err) : tdict_error_at(err, status, path);
  tdict_cursor_reset(&inner);
  return status;
}

/* Writes the selected elements of an object of a built-in type. If w->reads_index is true, reads the selected elements
 * instead. The check pass pairs the elements; the write pass uses the pairs again, in the same order. */
static tdict_status write_builtin(writer *w, tdict_leaf to, tdict_leaf from, const char *path, bool checks_only,
                                  tdict_error *err) {
  const char *what = w->plan->what;
  const tdict_tree *indexed = w->reads_index ? w->from : w->to;
  const tdict_box *box = get_indexed_builtin(w, to, from);
  if (checks_only) {
    const tdict_flatten_rule rule = {.what = what, .above = path};
    const tdict_leaf leaves[2] = {w->reads_index ? from : to, w->reads_index ? to : from};
    if (!tdict_box_begins_with(box, indexed->batch_ndim, indexed->batch_size))
      return tdict_error_at(err, tdict_box_mismatch(what, indexed, box, err), path);
    tdict_status status = tdict_flat_pairs_add_builtin(&w->pairs, &rule, leaves, w->pick, err);
    if (status != TDICT_OK) return status;
  }
  tdict_flat_pair pair = tdict_flat_pairs_take(&w->pairs, checks_only);
  if (w->reads_index) pair = (tdict_flat_pair){pair.from, pair.to};
  return tdict_write_pair(what, &pair, path, checks_only, err);
}

/* Writes all leaves that the cursor reaches. If `checks_only` is true, only checks whether the leaves can be written.
 * Flattened objects contain no objects, so the recursion is one level deep. */
static tdict_status write_leaves(writer *w, tdict_cursor *c, const char *parent_path, bool checks_only,
                                 tdict_error *err) {
  for (tdict_leaf leaf, to_leaf = 0; (leaf = tdict_cursor_next(c)) != 0;) {
    char path[PATH_BYTES];
    tdict_tree *tree = tdict_leaf_tree(leaf);
    tdict_tensor *tensor = tdict_leaf_tensor(leaf);
    tdict_status status = find_written_leaf(w, c, leaf, &to_leaf, err);
    const bool is_builtin = status == TDICT_OK && get_indexed_builtin(w, to_leaf, leaf);
    if (status == TDICT_OK && tensor && !is_builtin)
      status = write_tensor(w, tdict_leaf_tensor(to_leaf), tensor, checks_only, err);
    if (status == TDICT_OK && tree) status = check_extra_keys(w, tdict_leaf_tree(to_leaf), tree, err);
    if (status != TDICT_OK || is_builtin || (!tree && !tensor)) tdict_cursor_path(c, parent_path, path, sizeof path);
    if (status != TDICT_OK) return tdict_error_at(err, status, path);
    if (is_builtin)
      status = write_builtin(w, to_leaf, leaf, path, checks_only, err);
    else if (!tree && !tensor)
      status = write_object(w, (const tdict_leaf[]){to_leaf, leaf}, path, checks_only, err);
    if (status != TDICT_OK) return status;
    if (!tree) continue;
    if (!tdict_cursor_enter(c, tree))
      return tdict_fail(err, TDICT_ENOMEM, "%s: no memory to look through the tree", w->plan->what);
    c->frames[c->depth - 1].mark = (size_t)tdict_leaf_tree(to_leaf);
  }
  return TDICT_OK;
}

/* Checks that the batch size of the value equals the last dimensions of the batch size that the index selects. */
static tdict_status check_value_batch_size(const tdict_index_plan *plan, const tdict_tree *value, tdict_error *err) {
  int num_repeated = plan->ndim - value->batch_ndim;
  bool fits = num_repeated >= 0;
  for (int i = 0; fits && i < value->batch_ndim; i++) fits = value->batch_size[i] == plan->shape[num_repeated + i];
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
  /* The host cannot write device memory, so use the `fill` function of the memory if the memory has this function. */
  if (m && m->ops->fill) return m->ops->fill(m, made->data, 0, bytes, err);
  memset(made->data, 0, bytes);
  return TDICT_OK;
}

/* Makes a new tree of zeroed tensors like the tensors of `value`, but with the batch size of `td`. */
static tdict_status make_zeros(const tdict_tree *td, const tdict_tree *value, const char *what, tdict_tree **out,
                               tdict_error *err) {
  tdict_affine a = {.ndim_in = value->batch_ndim, .ndim_out = td->batch_ndim, .grows = true};
  for (int i = 0; i < td->batch_ndim; i++) a.axes[i] = (tdict_axis){-1, td->batch_size[i], 0};
  const tdict_map map = {.what = what,
                         .batch_in = value->batch_ndim,
                         .batch_out = td->batch_ndim,
                         .batch_size = td->batch_size,
                         .more_dims = td->batch_ndim > value->batch_ndim ? td->batch_ndim - value->batch_ndim : 0,
                         .drops_locks = true,
                         .describe = describe_zeros,
                         .fill = fill_zeros,
                         .user = &a};
  return tdict_map_run(&map, value, out, err);
}

/* Makes one pass over the leaves: a check pass or a write pass. */
static tdict_status write_from_start(writer *w, bool checks_only, tdict_error *err) {
  tdict_cursor_rewind(&w->cursor, w->from);
  w->cursor.frames[0].mark = (size_t)w->to;
  return write_leaves(w, &w->cursor, NULL, checks_only, err);
}

/* Checks every tensor before the first element is written. The writes on devices are collected in w->plan->moves, and
 * made after all other writes. */
static tdict_status check_then_write(writer *w, tdict_error *err) {
  tdict_pick pick;
  const tdict_tree *indexed = w->reads_index ? w->from : w->to;
  if (tdict_num_objects(w->from)) {
    tdict_status read = tdict_index_plan_read_lists(w->plan, err);
    if (read != TDICT_OK) return read;
  }
  w->pick = find_pick(w->plan, indexed->batch_size, &pick) ? &pick : NULL;
  tdict_cursor_init(&w->cursor, w->from, false);
  tdict_status status = tdict_moves_check_objects(w->plan->moves, w->from, err);
  if (status == TDICT_OK) status = check_extra_keys(w, w->to, w->from, err);
  if (status == TDICT_OK) status = write_from_start(w, true, err);
  if (status == TDICT_OK) status = write_from_start(w, false, err);
  if (status == TDICT_OK) status = tdict_moves_run(w->plan->moves, err);
  tdict_cursor_reset(&w->cursor);
  tdict_flat_pairs_reset(&w->pairs);
  return status;
}

static tdict_status write_value(tdict_tree *td, tdict_index_plan *plan, const tdict_index_helpers *helpers,
                                const tdict_tree *value, tdict_error *err) {
  writer w = {.plan = plan, .helpers = helpers, .to = td, .from = value};
  return check_then_write(&w, err);
}

static tdict_status check_out_batch_size(const tdict_index_plan *plan, const tdict_tree *out, tdict_error *err) {
  bool is_equal = out->batch_ndim == plan->ndim;
  for (int i = 0; is_equal && i < plan->ndim; i++) is_equal = out->batch_size[i] == plan->shape[i];
  if (is_equal) return TDICT_OK;
  char wanted[96], found[96];
  return tdict_fail(err, TDICT_ESHAPE, "%s: dst has batch size %s, wanted %s", plan->what,
                    tdict_text_shape(out->batch_ndim, out->batch_size, found, sizeof found),
                    tdict_text_shape(plan->ndim, plan->shape, wanted, sizeof wanted));
}

tdict_status tdict_index_into(tdict_context *context, tdict_tree *dst, const tdict_tree *src,
                              const tdict_indices *index, const tdict_run *run, tdict_error *err) {
  tdict_index_plan plan;
  index_call call = {.what = "index_into"};
  const char *null = find_null(src, "src", dst, "dst", index);
  if (null) return tdict_fail(err, TDICT_EINVAL, "index_into: %s is NULL", null);
  tdict_status status = read_write_options(&call, context, run, err);
  tdict_moves moves = {.what = call.what, .stream = tdict_run_stream(&call.run)};
  if (status == TDICT_OK) status = plan_batch_index(&plan, &moves, src, index, err);
  if (status != TDICT_OK) return status;
  writer w = {.plan = &plan, .helpers = &call.helpers, .to = dst, .from = src, .reads_index = true};
  status = check_out_batch_size(&plan, dst, err);
  if (status == TDICT_OK) status = check_then_write(&w, err);
  tdict_moves_reset(&moves);
  tdict_index_plan_reset(&plan);
  return status;
}

/* Creates the tensors of a tree without keys. Writes into a new tree first, so that a failure leaves `td` unchanged. */
static tdict_status write_to_empty_tree(tdict_tree *td, tdict_index_plan *plan, const tdict_index_helpers *helpers,
                                        const tdict_tree *value, tdict_error *err) {
  tdict_tree *made = NULL;
  if (tdict_node_is_locked(td))
    return tdict_fail(err, TDICT_ELOCKED, "%s: the tree is empty and locked, so no tensors can be made", plan->what);
  tdict_status status = make_zeros(td, value, plan->what, &made, err);
  if (status != TDICT_OK) return status;
  status = write_value(made, plan, helpers, value, err);
  if (status == TDICT_OK && td->has_device) status = tdict_set_device(made, &td->device, err);
  if (status == TDICT_OK) tdict_node_swap(td, made);
  tdict_release(made);
  return status;
}

/* Implements tdict_index_set() and the functions that write rows. */
static tdict_status set_indexed(tdict_tree *td, const index_call *call, const tdict_indices *index,
                                const tdict_tree *value, tdict_error *err) {
  tdict_index_plan plan;
  const tdict_index_helpers *helpers = &call->helpers;
  tdict_moves moves = {.what = call->what, .stream = tdict_run_stream(&call->run)};
  tdict_status status = plan_batch_index(&plan, &moves, td, index, err);
  if (status != TDICT_OK) return status;
  status = check_value_batch_size(&plan, value, err);
  if (status == TDICT_OK && helpers->count &&
      tdict_bytes(value) > TDICT_INDEX_BYTES_PER_THREAD / TDICT_INDEX_POSITION_BYTES)
    status = tdict_index_plan_find_distinct(&plan, err);
  if (status == TDICT_OK)
    status = tdict_num_keys(td) == 0 && tdict_num_keys(value) != 0 ? write_to_empty_tree(td, &plan, helpers, value, err)
                                                                   : write_value(td, &plan, helpers, value, err);
  tdict_moves_reset(&moves);
  tdict_index_plan_reset(&plan);
  return status;
}

tdict_status tdict_index_set(tdict_context *context, tdict_tree *tree, const tdict_indices *index,
                             const tdict_tree *value, const tdict_run *run, tdict_error *err) {
  index_call call = {.what = "index_set"};
  const char *null = find_null(tree, "tree", value, "value", index);
  if (null) return tdict_fail(err, TDICT_EINVAL, "index_set: %s is NULL", null);
  tdict_status status = read_write_options(&call, context, run, err);
  return status == TDICT_OK ? set_indexed(tree, &call, index, value, err) : status;
}

tdict_status tdict_write_rows(tdict_tree *tree, int64_t first, const tdict_tree *rows, tdict_error *err) {
  if (!tree || !rows) return tdict_fail(err, TDICT_EINVAL, "write_rows: %s is NULL", tree ? "rows" : "tree");
  if (tree->batch_ndim == 0) return tdict_fail(err, TDICT_EINVAL, "write_rows: the tree has no batch dimension");
  const index_call call = {.what = "write_rows"};
  if (rows->batch_ndim < tree->batch_ndim) return set_indexed(tree, &call, TDICT_INDEX(TDICT_AT(first)), rows, err);
  const int64_t count = rows->batch_size[0], size = tree->batch_size[0], at = first < 0 ? first + size : first;
  if (at < 0 || count > size || at > size - count)
    return tdict_fail(err, TDICT_EINVAL, "write_rows: %lld rows from row %lld of %lld", (long long)count,
                      (long long)first, (long long)size);
  return set_indexed(tree, &call, TDICT_INDEX(TDICT_RANGE(at, at + count, 1)), rows, err);
}
