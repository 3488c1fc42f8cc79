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
  if (memory->device.type != TDICT_DEVICE_CPU)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the memory is on %s, wanted host memory", call->what,
                      TDICT_DEVICE_TEXT(memory->device));
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

/* Checks the lists that no launch has checked. `status` is the result of the moves. If they have found a bad position,
 * checks the lists again for an error that names the position. */
static tdict_status check_lists_after(const tdict_index_plan *plan, tdict_status status, tdict_error *err) {
  if (status == TDICT_OK && !plan->moves->has_checked_lists) status = tdict_index_plan_check_lists(plan, err);
  if (!plan->moves->found_bad_position) return status;
  const tdict_status found = tdict_index_plan_check_lists(plan, err);
  return found == TDICT_OK ? status : found;
}

/* Makes the result, and makes sure that the lists are checked. */
static tdict_status get_checked(getter *g, const tdict_map *map, const tdict_tree *tree, tdict_tree **out,
                                tdict_error *err) {
  tdict_tree *made = NULL;
  tdict_status status = tdict_map_run(map, tree, &made, err);
  status = check_lists_after(&g->plan, status, err);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}

/* Returns the name of the first argument that is NULL, or NULL if no argument is NULL. */
static const char *find_null(const void *first, const char *first_name, const void *second, const char *second_name,
                             const tdict_indices *index) {
  return !first ? first_name : !second ? second_name : !index ? "index" : NULL;
}

tdict_status tdict_index_get(tdict_context *context, const tdict_tree *tree, const tdict_indices *index,
                             const tdict_run *run, tdict_tree **out, tdict_error *err) {
  getter g;
  tdict_pick found;
  const char *null = find_null(tree, "tree", out, "out", index);
  if (null) return tdict_fail_null(err, "index", null);
  g.call = (index_call){.what = "index"};
  tdict_status status = read_get_options(&g.call, context, run, err);
  const tdict_stream *stream = tdict_run_stream(&g.call.run);
  g.moves = (tdict_moves){.what = "index", .stream = stream};
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
                         .repeats_views = !g.copies,
                         .user = &g,
                         .moves = &g.moves,
                         .way = tdict_pick_method(pick),
                         .pick = pick};
  if (status == TDICT_OK) status = get_checked(&g, &map, tree, out, err);
  tdict_index_plan_reset(&g.plan);
  return status;
}

/* A write from one tree to another. If write.objects.picked is 0, the plan selects elements of write.to. Otherwise the
 * plan selects elements of write.from, and both trees must have the same keys. */
typedef struct writer {
  tdict_tree_write write;
  tdict_index_plan *plan;
  const tdict_index_helpers *helpers; /* NULL: none */
  /* The last tensors whose shapes and devices have passed the checks of a read. NULL: none */
  const tdict_tensor *checked_to, *checked_from;
} writer;

/* Describes the value's tensor as a view with the shape of the elements that the plan selects in `to`. A value with
 * fewer batch dimensions is repeated. */
static tdict_status describe_value(const writer *w, const tdict_tensor *to, const tdict_tensor *from, tdict_made *made,
                                   tdict_error *err) {
  tdict_made wanted;
  /* A value may lack leading batch dimensions. Its tensors must have every dimension that is not a batch dimension. */
  const tdict_index_plan *plan = w->plan;
  tdict_status status = tdict_index_plan_describe(plan, to, &wanted, err);
  if (status != TDICT_OK) return status;
  bool is_valid_rank = from->ndim == wanted.ndim - (plan->ndim - w->write.from->batch_ndim);
  return is_valid_rank && tdict_repeat_leading(from, wanted.ndim, wanted.shape, made)
             ? TDICT_OK
             : tdict_check_shape(plan->what, from, wanted.ndim, wanted.shape, err);
}

/* Returns true if two tensors have equal dtypes and shapes, and storages of one memory with equal flags. */
static bool is_alike(const tdict_tensor *a, const tdict_tensor *b) {
  const tdict_storage *s = a->storage, *other = b->storage;
  return a->dtype == b->dtype && s->memory && s->memory == other->memory && s->flags == other->flags &&
         tdict_shapes_equal(a->ndim, a->dims, b->ndim, b->dims);
}

/* Checks shapes and devices for a read of the selected elements of `from` to `to`. */
static tdict_status check_read(writer *w, const tdict_tensor *to, const tdict_tensor *from, tdict_error *err) {
  tdict_made wanted;
  if (w->checked_to && is_alike(to, w->checked_to) && is_alike(from, w->checked_from)) return TDICT_OK;
  tdict_status status = tdict_index_plan_describe(w->plan, from, &wanted, err);
  if (status == TDICT_OK) status = tdict_check_shape(w->plan->what, to, wanted.ndim, wanted.shape, err);
  if (status == TDICT_OK) status = tdict_moves_check_devices(w->plan->moves, w->plan->what, to, from, err);
  if (status == TDICT_OK) {
    w->checked_to = to;
    w->checked_from = from;
  }
  return status;
}

/* Copies the selected elements of `from` to `to`. If `checks_only` is true, only checks whether the elements can be
 * copied. */
static tdict_status read_indexed_tensor(writer *w, const tdict_tensor *to, const tdict_tensor *from, bool checks_only,
                                        tdict_error *err) {
  if (!checks_only) return tdict_index_plan_copy(w->plan, w->helpers, from, to, false, err);
  tdict_status status = check_read(w, to, from, err);
  return status == TDICT_OK ? tdict_index_plan_check_not_lost(w->plan, from, err) : status;
}

/* Writes to the selected elements of `to`, or copies the selected elements of `from` to `to`. If `checks_only` is true,
 * only checks whether the elements can be copied. */
static tdict_status write_tensor(const tdict_tree_write *write, tdict_tensor *to, const tdict_tensor *from,
                                 bool checks_only, tdict_error *err) {
  writer *w = write->user;
  tdict_made made;
  tdict_temp temp;
  const int picked = write->objects.picked;
  const tdict_tree *indexed = write->objects.trees[picked]; /* the tree whose batch size the plan was made for */
  const tdict_tensor *tensor = picked ? from : to;
  if (checks_only && !tdict_tensor_begins_with(tensor, indexed->batch_ndim, indexed->batch_size))
    return tdict_batch_mismatch(w->plan->what, indexed, tensor, err);
  if (picked) return read_indexed_tensor(w, to, from, checks_only, err);
  tdict_status status = describe_value(w, to, from, &made, err);
  if (status == TDICT_OK && checks_only) return tdict_moves_check_copy(w->plan->moves, w->plan->what, to, from, err);
  if (status != TDICT_OK) return status;
  return tdict_index_plan_copy(w->plan, w->helpers, to, tdict_temp_over(&temp, from, &made), true, err);
}

/* Checks that the batch size of the value equals the last dimensions of the batch size that the index selects. */
static tdict_status check_value_batch_size(const tdict_index_plan *plan, const tdict_tree *value, tdict_error *err) {
  int num_repeated = plan->ndim - value->batch_ndim;
  if (num_repeated >= 0 && tdict_sizes_equal(value->batch_size, plan->shape + num_repeated, value->batch_ndim))
    return TDICT_OK;
  return tdict_fail(err, TDICT_ESHAPE, "%s: the value's batch size is %s, wanted the last dimensions of %s", plan->what,
                    TDICT_SHAPE_TEXT(value->batch_ndim, value->batch_size), TDICT_SHAPE_TEXT(plan->ndim, plan->shape));
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

/* Writes `from` to `to`. The plan is for the batch size of `from` if `reads_index` is true, else of `to`. Checks every
 * tensor before the first element is written. */
static tdict_status write_value(tdict_tree *to, tdict_index_plan *plan, const tdict_index_helpers *helpers,
                                const tdict_tree *from, bool reads_index, tdict_error *err) {
  tdict_pick pick;
  if (tdict_index_plan_has_unread_lists(plan) && tdict_num_objects(from)) {
    tdict_status read = tdict_index_plan_read_lists(plan, err);
    if (read != TDICT_OK) return read;
  }
  const tdict_tree *indexed = reads_index ? from : to;
  writer w = {.write = {.to = to,
                        .from = from,
                        .to_name = "dst",
                        .from_name = reads_index ? "the tree" : "the value",
                        .needs_same_keys = reads_index,
                        .objects = {.what = plan->what, .picked = reads_index, .trees = {to, from}},
                        .moves = plan->moves,
                        .tensor = write_tensor},
              .plan = plan,
              .helpers = helpers};
  w.write.user = &w;
  if (find_pick(plan, indexed->batch_size, &pick)) w.write.objects.pick = &pick;
  tdict_status status = tdict_tree_write_run(&w.write, err);
  return check_lists_after(plan, status, err);
}

tdict_status tdict_index_into(tdict_context *context, tdict_tree *dst, const tdict_tree *src,
                              const tdict_indices *index, const tdict_run *run, tdict_error *err) {
  tdict_index_plan plan;
  index_call call = {.what = "index_into"};
  const char *null = find_null(src, "src", dst, "dst", index);
  if (null) return tdict_fail_null(err, "index_into", null);
  tdict_status status = read_write_options(&call, context, run, err);
  tdict_moves moves = {.what = call.what, .stream = tdict_run_stream(&call.run), .checks_first = true};
  if (status == TDICT_OK) status = plan_batch_index(&plan, &moves, src, index, err);
  if (status != TDICT_OK) return status;
  status = tdict_check_batch_size(plan.what, dst, plan.ndim, plan.shape, err);
  if (status == TDICT_OK) status = write_value(dst, &plan, &call.helpers, src, true, err);
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
  status = write_value(made, plan, helpers, value, false, err);
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
  tdict_moves moves = {.what = call->what, .stream = tdict_run_stream(&call->run), .checks_first = true};
  tdict_status status = plan_batch_index(&plan, &moves, td, index, err);
  if (status != TDICT_OK) return status;
  status = check_value_batch_size(&plan, value, err);
  if (status == TDICT_OK && helpers->count &&
      tdict_bytes(value) > TDICT_INDEX_BYTES_PER_THREAD / TDICT_INDEX_POSITION_BYTES)
    status = tdict_index_plan_find_distinct(&plan, err);
  if (status == TDICT_OK)
    status = tdict_num_keys(td) == 0 && tdict_num_keys(value) != 0 ? write_to_empty_tree(td, &plan, helpers, value, err)
                                                                   : write_value(td, &plan, helpers, value, false, err);
  tdict_index_plan_reset(&plan);
  return status;
}

tdict_status tdict_index_set(tdict_context *context, tdict_tree *tree, const tdict_indices *index,
                             const tdict_tree *value, const tdict_run *run, tdict_error *err) {
  index_call call = {.what = "index_set"};
  const char *null = find_null(tree, "tree", value, "value", index);
  if (null) return tdict_fail_null(err, "index_set", null);
  tdict_status status = read_write_options(&call, context, run, err);
  return status == TDICT_OK ? set_indexed(tree, &call, index, value, err) : status;
}

tdict_status tdict_write_rows(tdict_tree *tree, int64_t first, const tdict_tree *rows, tdict_error *err) {
  if (!tree || !rows) return tdict_fail_null(err, "write_rows", tree ? "rows" : "tree");
  if (tree->batch_ndim == 0) return tdict_fail(err, TDICT_EINVAL, "write_rows: the tree has no batch dimension");
  const index_call call = {.what = "write_rows"};
  if (rows->batch_ndim < tree->batch_ndim) return set_indexed(tree, &call, TDICT_INDEX(TDICT_AT(first)), rows, err);
  const int64_t count = rows->batch_size[0], size = tree->batch_size[0], at = first < 0 ? first + size : first;
  if (at < 0 || count > size || at > size - count)
    return tdict_fail(err, TDICT_EINVAL, "write_rows: %lld rows from row %lld of %lld", (long long)count,
                      (long long)first, (long long)size);
  return set_indexed(tree, &call, TDICT_INDEX(TDICT_RANGE(at, at + count, 1)), rows, err);
}
