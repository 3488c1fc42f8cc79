/* The operations that tdict-costs runs. callgrind finds their functions by name, so the compiler must not inline or
 * clone them. Each operation releases the objects that it makes. main() owns the data. Thread rule: one thread. */
#include <stdio.h>

#include "tdict/clone.h"
#include "tdict/combine.h"
#include "tdict/convert.h"
#include "tdict/debug.h"
#include "tdict/dlpack.h"
#include "tdict/keysets.h"
#include "tdict/shape.h"
#include "tdict/view.h"
#include "tdict/write.h"

#include "costs.h"

#if defined(__clang__)
#define COST(name) __attribute__((noinline, used)) static tdict_status cost_##name(cost_job *job)
#else
#define COST(name) __attribute__((noinline, noclone, used)) static tdict_status cost_##name(cost_job *job)
#endif
/* Defines an operation whose call makes one tree, `out`. */
#define MAKES(name, call)             \
  COST(name) {                        \
    tdict_tree *out = NULL;           \
    const tdict_status status = call; \
    tdict_release(out);               \
    return status;                    \
  }
/* Defines an operation whose call makes up to `room` trees in job->out and sets `count`. */
#define MAKES_MANY(name, room, call)                                                     \
  COST(name) {                                                                           \
    size_t count = (size_t)(room);                                                       \
    const tdict_status status = call;                                                    \
    for (size_t i = 0; i < count && status == TDICT_OK; i++) tdict_release(job->out[i]); \
    return status;                                                                       \
  }
/* Defines an operation whose call makes nothing that must be released. */
#define DOES(name, call) \
  COST(name) { return call; }
/* Defines an operation that evaluates `call` for each i from 0 to count - 1. */
#define REPEATS(name, count, call)                                                          \
  COST(name) {                                                                              \
    tdict_status status = TDICT_OK;                                                         \
    for (int64_t i = 0, many = (count); i < many && status == TDICT_OK; i++) status = call; \
    return status;                                                                          \
  }

#define ERR &job->err
#define ITEMS(array) (const tdict_tree *const *)(array), (size_t)job->items
#define WIDES (const tdict_tree *const[]){job->wide, job->other}, 2
#define PICKED TDICT_LIST(job->positions, job->picked)

static tdict_status fail_operation(cost_job *job, const char *text) {
  snprintf(job->err.message, sizeof job->err.message, "%s", text);
  return TDICT_EINVAL;
}

COST(dlpack_export) {
  tdict_dlpack_entry *entries = NULL;
  size_t count = 0;
  const tdict_status status = tdict_dlpack_export_tree(NULL, job->wide, NULL, &entries, &count, ERR);
  tdict_dlpack_release_entries(entries, count);
  return status;
}
/* The instruction count includes the export, which makes the entries to import. */
COST(dlpack_import) {
  tdict_dlpack_entry *entries = NULL;
  tdict_tree *tree = NULL;
  size_t count = 0;
  tdict_status status = tdict_dlpack_export_tree(NULL, job->wide, NULL, &entries, &count, ERR);
  if (status == TDICT_OK) status = tdict_dlpack_import_tree(NULL, entries, count, NULL, &tree, ERR);
  tdict_release(tree);
  tdict_dlpack_release_entries(entries, count);
  return status;
}
COST(build) {
  scoped_tree td = NULL;
  tdict_status status = tdict_create(0, NULL, &td, ERR);
  for (int64_t i = 0; i < job->leaves && status == TDICT_OK; i++)
    status = tdict_set(td, job->keys[i], job->tensors[i], ERR);
  return status;
}
static tdict_status get_one(cost_job *job, const tdict_tree *td, const char *path) {
  tdict_tensor *leaf;
  return tdict_get(td, path, &leaf, ERR);
}
REPEATS(get, job->leaves, get_one(job, job->wide, job->keys[i]))
REPEATS(get_deep, job->leaves, get_one(job, job->deep, "next.obs.pixels"))
REPEATS(has, job->leaves, tdict_has(job->wide, job->keys[i]) ? TDICT_OK : fail_operation(job, "a key is not there"))
REPEATS(set_again, job->leaves, tdict_set(job->wide, job->keys[i], job->tensors[i], ERR))
COST(rename) {
  tdict_status status = TDICT_OK;
  for (int64_t i = 0; i < job->leaves && status == TDICT_OK; i++) {
    status = tdict_rename(job->wide, job->keys[i], "other", true, ERR);
    if (status == TDICT_OK) status = tdict_rename(job->wide, "other", job->keys[i], true, ERR);
  }
  return status;
}
COST(pop) {
  tdict_status status = TDICT_OK;
  for (int64_t i = 0; i < job->leaves && status == TDICT_OK; i++) {
    scoped_tensor leaf = NULL;
    status = tdict_pop(job->other, job->keys[i], &leaf, ERR);
    if (status == TDICT_OK) status = tdict_set(job->other, job->keys[i], leaf, ERR);
  }
  return status;
}

static tdict_status count_entry(void *user, const tdict_entry *entry, tdict_error *err) {
  (void)err;
  *(int64_t *)user += entry->tensor != NULL;
  return TDICT_OK;
}
COST(walk) {
  int64_t count = 0;
  tdict_status status = tdict_walk(job->wide, count_entry, &count, ERR);
  return status == TDICT_OK && count != job->leaves ? fail_operation(job, "a walk did not visit all leaves") : status;
}
static tdict_status visit_leaf(void *user, const tdict_leaves *at, tdict_error *err) {
  (void)user, (void)at, (void)err;
  return TDICT_OK;
}
static tdict_status keep_first(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)user, (void)err;
  *out = tdict_tensor_retain(at->tensors[0]);
  return TDICT_OK;
}
static bool keep_all(void *user, const tdict_leaves *at) {
  (void)user, (void)at;
  return true;
}
MAKES(create_from, tdict_create_from(job->fields, (size_t)job->leaves, 0, NULL, NULL, &out, ERR))
COST(split_keys) {
  const tdict_key_set half = {job->paths, (size_t)job->leaves / 2};
  tdict_status status = tdict_split_keys(job->nested, &half, 1, job->out, &(size_t){2}, ERR);
  for (int i = 0; i < 2 && status == TDICT_OK; i++) tdict_release(job->out[i]);
  return status;
}
DOES(visit, tdict_visit(NULL, WIDES, visit_leaf, NULL, NULL, ERR))
MAKES(apply, tdict_apply(NULL, WIDES, keep_first, NULL, NULL, &out, ERR))
MAKES(filter, tdict_filter(job->nested, keep_all, NULL, &out, ERR))
MAKES(clone, tdict_clone(job->nested, &out, ERR))
MAKES(clone_deep, tdict_clone_deep(job->wide, NULL, &out, ERR))
MAKES(to_dtype, tdict_to_dtype(job->wide, TDICT_F64, NULL, NULL, &out, ERR))
MAKES(consolidate, tdict_consolidate(job->wide, NULL, &out, ERR))
DOES(equal, tdict_equal(job->wide, job->other) ? TDICT_OK : fail_operation(job, "equal trees are not"))
DOES(bytes, tdict_bytes(job->nested) ? TDICT_OK : fail_operation(job, "no bytes"))
COST(unique_bytes) {
  size_t bytes;
  return tdict_unique_bytes(job->nested, &bytes, ERR);
}
COST(format) {
  char text[256];
  return tdict_format(job->nested, text, sizeof text) ? TDICT_OK : fail_operation(job, "no text");
}
COST(lock) {
  tdict_lock(job->nested);
  return tdict_unlock(job->nested, ERR);
}
MAKES(select, tdict_select(job->nested, job->paths, (size_t)job->leaves, true, &out, ERR))
MAKES(exclude, tdict_exclude(job->nested, job->paths, (size_t)job->leaves / 2, &out, ERR))
MAKES(flatten_keys, tdict_flatten_keys(job->nested, NULL, &out, ERR))
MAKES(unflatten_keys, tdict_unflatten_keys(job->dotted, "/", &out, ERR))
DOES(update, tdict_update(job->other, job->wide, NULL, 0, ERR))
DOES(update_in_place, tdict_update_in_place(job->other, job->wide, NULL, 0, ERR))
DOES(copy, tdict_copy(job->other, job->wide, NULL, ERR))
REPEATS(write, job->leaves, tdict_write(job->other, job->keys[i], NULL, job->tensors[i], ERR))
DOES(fill, tdict_fill(job->other, NULL, 1, NULL, ERR))
DOES(batch_size, tdict_set_batch_size(job->other, 1, (const int64_t[]){2}, ERR))

MAKES(at, tdict_index_get(NULL, job->wide, TDICT_INDEX(TDICT_AT(1)), NULL, &out, ERR))
MAKES(range, tdict_index_get(NULL, job->wide, TDICT_INDEX(TDICT_RANGE(0, 1, 1)), NULL, &out, ERR))
MAKES(new_axis, tdict_index_get(NULL, job->wide, TDICT_INDEX(TDICT_NEW_AXIS), NULL, &out, ERR))
MAKES(list, tdict_index_get(NULL, job->table, TDICT_INDEX(PICKED), NULL, &out, ERR))
MAKES(mask, tdict_index_get(NULL, job->table, TDICT_INDEX(TDICT_MASK(job->mask)), NULL, &out, ERR))
MAKES(lists, tdict_index_get(NULL, job->square,
                             TDICT_INDEX(TDICT_LIST(job->zeros, job->picked), TDICT_LIST(job->zeros, job->picked)),
                             NULL, &out, ERR))
DOES(set_list, tdict_index_set(NULL, job->table, TDICT_INDEX(PICKED), job->part, NULL, ERR))
DOES(set_mask, tdict_index_set(NULL, job->table, TDICT_INDEX(TDICT_MASK(job->mask)), job->part, NULL, ERR))
DOES(set_column, tdict_index_set(NULL, job->square, TDICT_INDEX(TDICT_ALL, TDICT_AT(3)), job->step, NULL, ERR))
DOES(write_rows, tdict_write_rows(job->table, 5, job->part, ERR))
REPEATS(write_row, job->items, tdict_write_rows(job->stacked, i, job->samples[i], ERR))
DOES(write_at, tdict_write(job->table, "c", TDICT_INDEX(PICKED), job->column, ERR))

MAKES(view, tdict_reshape_view(job->wide, 2, (const int64_t[]){1, 2}, &out, ERR))
MAKES(split_dim, tdict_split_dim(job->wide, 0, 2, (const int64_t[]){1, 2}, &out, ERR))
MAKES(merge_dims, tdict_merge_dims(job->square, 0, 1, &out, ERR))
MAKES(unsqueeze, tdict_unsqueeze(job->wide, 0, &out, ERR))
MAKES(squeeze, tdict_squeeze(job->wide, 0, &out, ERR))
MAKES(expand, tdict_expand(job->wide, 2, (const int64_t[]){3, 2}, &out, ERR))
MAKES(permute, tdict_permute(job->wide, 1, (const int[]){0}, &out, ERR))
MAKES(transpose, tdict_transpose(job->square, 0, 1, &out, ERR))
COST(reshape) { /* copies the bytes */
  tdict_tree *turned = NULL, *out = NULL;
  tdict_status status = tdict_transpose(job->square, 0, 1, &turned, ERR);
  if (status == TDICT_OK) status = tdict_merge_dims(turned, 0, 1, &out, ERR);
  tdict_release(out);
  tdict_release(turned);
  return status;
}
MAKES_MANY(split, job->items, tdict_split(job->stacked, 0, job->ones, job->out, &(size_t){count}, ERR))
MAKES_MANY(split_every, job->items, tdict_split_every(job->stacked, 0, 1, job->out, &count, ERR))
MAKES_MANY(unbind, job->items, tdict_unbind(job->stacked, 0, job->out, &count, ERR))
MAKES(stack, tdict_stack(ITEMS(job->samples), NULL, NULL, &out, ERR))
DOES(stack_into, tdict_stack_into(job->stacked, ITEMS(job->samples), NULL, NULL, ERR))
MAKES(cat, tdict_cat(ITEMS(job->pieces), NULL, NULL, &out, ERR))
DOES(cat_into, tdict_cat_into(job->joined, ITEMS(job->pieces), NULL, NULL, ERR))
MAKES(pad, tdict_pad_sequence(ITEMS(job->pieces), NULL, NULL, &out, ERR))

#define ROWS tdict_dataset_get_table(job->dataset)
DOES(fetch, ROWS->fetch_batch(ROWS->self, NULL, job->positions, job->picked, job->part, ERR))
COST(fetch_sample) {
  tdict_status status = TDICT_OK;
  for (int64_t i = 0; i < job->picked && status == TDICT_OK; i++) {
    scoped_tree out = NULL;
    status = ROWS->fetch_sample(ROWS->self, NULL, i, &out, ERR);
  }
  return status;
}
COST(numbers) {
  scoped_tensor counted = NULL, full = NULL;
  const int64_t count = job->leaves;
  const float one = 1;
  tdict_status status = tdict_tensor_arange(TDICT_F32, 0, 1, count, &counted, ERR);
  if (status == TDICT_OK) status = tdict_tensor_full(TDICT_F32, 1, &count, &one, &full, ERR);
  return status;
}
static tdict_status make_contiguous(cost_job *job, const tdict_tensor *t) {
  scoped_tensor out = NULL;
  tdict_status status = tdict_tensor_contiguous(t, &out, ERR);
  return status;
}
DOES(contiguous, make_contiguous(job, job->strip))
COST(tensors) {
  tdict_status status = TDICT_OK;
  for (int64_t i = 0; i < job->leaves && status == TDICT_OK; i++) {
    scoped_tensor made = NULL, cut = NULL;
    const tdict_tensor_range range = {.dim = 0, .start = 0, .count = 1, .step = 1};
    status = tdict_tensor_zeros(TDICT_F32, 2, tdict_tensor_shape(job->tensors[i]), NULL, &made, ERR);
    if (status == TDICT_OK) status = tdict_tensor_copy(made, job->tensors[i], ERR);
    if (status == TDICT_OK) status = tdict_tensor_slice(made, &range, &cut, ERR);
    if (status == TDICT_OK && (!tdict_tensor_data(made) || !tdict_tensor_const_data(cut)))
      status = fail_operation(job, "no data");
  }
  return status;
}

#define OP(name, what, unit, count) \
  { "cost_" #name, what, cost_##name, unit, count }
const cost_op cost_ops[] = {
    OP(build, "create a tree, set each key, release", "key", COST_LEAVES),
    OP(create_from, "create_from a list of fields", "field", COST_LEAVES),
    OP(get, "get a key", "key", COST_LEAVES),
    OP(get_deep, "get a path of three keys", "path", COST_LEAVES),
    OP(has, "has a key", "key", COST_LEAVES),
    OP(set_again, "set an existing key", "key", COST_LEAVES),
    OP(rename, "rename a key, and back", "key", COST_LEAVES),
    OP(pop, "pop a key, and set it again", "key", COST_LEAVES),
    OP(walk, "walk", "leaf", COST_LEAVES),
    OP(visit, "visit two trees", "leaf", COST_LEAVES),
    OP(apply, "apply to two trees", "leaf", COST_LEAVES),
    OP(filter, "filter", "leaf", COST_LEAVES),
    OP(dlpack_export, "dlpack_export_tree", "leaf", COST_LEAVES),
    OP(dlpack_import, "dlpack_export_tree, dlpack_import_tree", "leaf", COST_LEAVES),
    OP(clone, "clone, leaves in trees of 8", "leaf", COST_LEAVES),
    OP(clone_deep, "clone_deep", "leaf", COST_LEAVES),
    OP(to_dtype, "to_dtype, to float64", "leaf", COST_LEAVES),
    OP(consolidate, "consolidate", "leaf", COST_LEAVES),
    OP(equal, "equal", "leaf", COST_LEAVES),
    OP(bytes, "bytes", "leaf", COST_LEAVES),
    OP(unique_bytes, "unique_bytes", "leaf", COST_LEAVES),
    OP(format, "format to 256 bytes", "leaf", COST_LEAVES),
    OP(lock, "lock and unlock", "leaf", COST_LEAVES),
    OP(select, "select all paths", "leaf", COST_LEAVES),
    OP(exclude, "exclude half of the paths", "leaf", COST_LEAVES),
    OP(split_keys, "split_keys in two", "leaf", COST_LEAVES),
    OP(flatten_keys, "flatten_keys", "leaf", COST_LEAVES),
    OP(unflatten_keys, "unflatten_keys", "leaf", COST_LEAVES),
    OP(update_in_place, "update_in_place", "leaf", COST_LEAVES),
    OP(copy, "copy", "leaf", COST_LEAVES),
    OP(write, "write at a key", "leaf", COST_LEAVES),
    OP(fill, "fill", "leaf", COST_LEAVES),
    OP(update, "update", "leaf", COST_LEAVES),
    OP(batch_size, "set_batch_size", "leaf", COST_LEAVES),
    OP(at, "index_get [1]", "leaf", COST_LEAVES),
    OP(range, "index_get [0:1]", "leaf", COST_LEAVES),
    OP(new_axis, "index_get [new axis]", "leaf", COST_LEAVES),
    OP(list, "index_get [list], 5 tensors", "row", COST_PICKED),
    OP(mask, "index_get [mask of 8192], 5 tensors", "row", COST_PICKED),
    OP(lists, "index_get [list, list], 5 tensors", "row", COST_PICKED),
    OP(set_list, "index_set [list], 5 tensors", "row", COST_PICKED),
    OP(set_mask, "index_set [mask of 8192], 5 tensors", "row", COST_PICKED),
    OP(set_column, "index_set [:, 3], 5 tensors", "row", COST_PICKED),
    OP(write_rows, "write_rows, 5 tensors", "row", COST_PICKED),
    OP(write_row, "write_row, 5 tensors", "row", COST_ITEMS),
    OP(write_at, "write [list], one tensor", "row", COST_PICKED),
    OP(view, "view", "leaf", COST_LEAVES),
    OP(split_dim, "split_dim", "leaf", COST_LEAVES),
    OP(merge_dims, "merge_dims, 5 tensors", "row", COST_PICKED),
    OP(unsqueeze, "unsqueeze", "leaf", COST_LEAVES),
    OP(squeeze, "squeeze", "leaf", COST_LEAVES),
    OP(expand, "expand", "leaf", COST_LEAVES),
    OP(permute, "permute", "leaf", COST_LEAVES),
    OP(transpose, "transpose, 5 tensors", "row", COST_PICKED),
    OP(reshape, "reshape with copies, 5 tensors", "row of 8", COST_PICKED),
    OP(split, "split, 5 tensors", "piece", COST_ITEMS),
    OP(split_every, "split_every, 5 tensors", "piece", COST_ITEMS),
    OP(unbind, "unbind, 5 tensors", "piece", COST_ITEMS),
    OP(stack, "stack, 5 tensors", "tree", COST_ITEMS),
    OP(stack_into, "stack_into, 5 tensors", "tree", COST_ITEMS),
    OP(cat, "cat, 5 tensors", "tree", COST_ITEMS),
    OP(cat_into, "cat_into, 5 tensors", "tree", COST_ITEMS),
    OP(pad, "pad_sequence, 5 tensors", "tree", COST_ITEMS),
    OP(fetch, "dataset_from_tree, fetch_batch, 5 tensors", "row", COST_PICKED),
    OP(fetch_sample, "dataset_from_tree, fetch_sample, 5 tensors", "row", COST_PICKED),
    OP(contiguous, "tensor_contiguous of a transposed one", "row of 16", COST_PICKED),
    OP(numbers, "tensor arange and full", "element", COST_LEAVES),
    OP(tensors, "tensor zeros, copy, slice, data", "tensor", COST_LEAVES),
};
const int cost_num_ops = (int)(sizeof cost_ops / sizeof *cost_ops);
