/* Implements tdict_comm_all_reduce_async(). The tensors of one dtype lie one after another, in the tree itself or in a
 * copy, and one operation of the table combines them. Thread rule: as in tdict/comm.h. */
#include <stdlib.h>

#include "core/base/checked.h"
#include "core/ops/map.h"
#include "core/schema/create.h"
#include "core/schema/schema.h"
#include "services/comm/agree.h"
#include "services/comm/table.h"
#include "tdict/write.h"

enum { LEAF_ALIGNMENT = 256, CODE_FLOAT = 2, CODE_BFLOAT = 4, CODE_COMPLEX = 5, CODE_F8E4M3 = 10, CODE_F8E5M2 = 12 };

typedef struct dtype_group {
  tdict_dtype dtype; /* as the table combines it: one lane */
  size_t begin, end; /* offsets in the block or copy */
} dtype_group;

typedef struct reduction {
  const tdict_schema *schema; /* of the tree */
  dtype_group *groups;        /* at most one for each entry */
  size_t num_groups;
  size_t *offsets;  /* offset of each entry of the schema in the copy, unused for trees; NULL: there is no copy */
  tdict_tree *copy; /* retained; NULL: the block is combined in place */
  char *data;       /* start of the block or copy */
} reduction;

/* Returns the dtype with which the table combines elements: a float for each part of a complex number, and one lane. */
static tdict_dtype combined_dtype(tdict_dtype dtype, int32_t op) {
  const unsigned code = dtype & 0xffu, bits = dtype >> 8 & 0xffu;
  if (code == CODE_COMPLEX && op == TDICT_REDUCE_SUM) return TDICT_DTYPE(CODE_FLOAT, bits / 2, 1);
  return TDICT_DTYPE(code, bits, 1);
}

static bool is_float(tdict_dtype dtype) {
  const unsigned code = dtype & 0xffu;
  return code == CODE_FLOAT || code == CODE_BFLOAT || code == CODE_F8E4M3 || code == CODE_F8E5M2;
}

static bool can_combine(const tdict_comm_call *call, tdict_dtype of_tensor) {
  const tdict_comm_table *t = &call->comm->table;
  const tdict_dtype dtype = combined_dtype(of_tensor, call->reduce);
  return (call->reduce != TDICT_REDUCE_MEAN || is_float(dtype)) &&
         t->can_reduce(t->self, dtype, (tdict_reduce_op)call->reduce);
}

static tdict_status check_dtypes(const tdict_comm_call *call, const tdict_schema *schema, tdict_error *err) {
  static const char *const names[] = {"sum", "mean", "minimum", "maximum"};
  char path[TDICT_SCHEMA_PATH_BYTES];
  tdict_dtype checked = 0;
  if (schema->size.dtype && can_combine(call, schema->size.dtype)) return TDICT_OK;
  for (size_t i = 0; i < schema->num_entries; i++) {
    const tdict_schema_entry *e = &schema->entries[i];
    if (e->kind != TDICT_SCHEMA_TENSOR || e->dtype == checked) continue;
    checked = e->dtype;
    if (can_combine(call, e->dtype)) continue;
    return tdict_fail_at(err, TDICT_ENOTSUP, tdict_schema_cut_path(schema, i, path),
                         "all_reduce: %s cannot compute the %s of %s", call->comm->table.name, names[call->reduce],
                         TDICT_DTYPE_TEXT(e->dtype));
  }
  return TDICT_OK;
}

/* Finds the groups, in the order of their first tensors. */
static void list_groups(const tdict_comm_call *call, reduction *red) {
  if (red->schema->size.dtype) {
    red->groups[red->num_groups++].dtype = combined_dtype(red->schema->size.dtype, call->reduce);
    return;
  }
  for (size_t i = 0; i < red->schema->num_entries; i++) {
    const tdict_schema_entry *e = &red->schema->entries[i];
    const tdict_dtype dtype = e->kind == TDICT_SCHEMA_TENSOR ? combined_dtype(e->dtype, call->reduce) : 0;
    size_t g = 0;
    while (g < red->num_groups && red->groups[g].dtype != dtype) g++;
    if (dtype && g == red->num_groups) red->groups[red->num_groups++] = (dtype_group){.dtype = dtype};
  }
}

static size_t bytes_of(const tdict_schema_entry *tensor) {
  size_t bytes = tdict_dtype_bytes(tensor->dtype);
  for (int d = 0; d < tensor->batch_ndim; d++) bytes *= (size_t)tensor->batch_size[d];
  for (int d = 0; d < tensor->ndim; d++) bytes *= (size_t)tensor->shape[d];
  return bytes;
}

/* Gives each tensor its offset: the groups one after another, and in a group the order of the tree. */
static void place_tensors(const tdict_comm_call *call, reduction *red) {
  size_t at = 0;
  for (size_t g = 0; g < red->num_groups; g++) {
    dtype_group *group = &red->groups[g];
    group->begin = group->end = at;
    for (size_t i = 0; i < red->schema->num_entries; i++) {
      const tdict_schema_entry *e = &red->schema->entries[i];
      if (e->kind != TDICT_SCHEMA_TENSOR || combined_dtype(e->dtype, call->reduce) != group->dtype) continue;
      red->offsets[i] = at;
      const size_t bytes = bytes_of(e);
      if (bytes) group->end = at + bytes;
      at += tdict_align(bytes, LEAF_ALIGNMENT);
    }
  }
}

static tdict_status describe_placed(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                    tdict_error *err) {
  const reduction *red = map->user;
  (void)err;
  tdict_made_of(from, made);
  if (from->numel) made->data = (char *)from->storage->data + red->offsets[entry];
  return TDICT_OK;
}

static tdict_status allocate_copy(const tdict_comm_call *call, reduction *red, tdict_error *err) {
  tdict_storage *storage;
  tdict_tree *first = NULL;
  size_t bytes;
  tdict_status status = tdict_schema_measure(red->schema, &bytes, err);
  if (status == TDICT_OK) status = tdict_storage_create(tdict_comm_memory(call->comm), bytes, false, &storage, err);
  if (status != TDICT_OK) return status;
  status = tdict_schema_create_over(red->schema, storage, &first, err);
  if (status == TDICT_OK) {
    const tdict_map map = {.what = "all_reduce",
                           .batch_in = first->batch_ndim,
                           .batch_out = first->batch_ndim,
                           .batch_size = first->batch_size,
                           .describe = describe_placed,
                           .user = red};
    red->data = storage->data;
    status = tdict_map_run(&map, first, &red->copy, err);
  }
  tdict_release(first);
  tdict_storage_release(storage); /* the tensors of the copy keep the storage */
  return status;
}

static tdict_status prepare(tdict_comm_call *call, reduction *red, tdict_error *err) {
  if (call->reduce < TDICT_REDUCE_SUM || call->reduce > TDICT_REDUCE_MAX)
    return tdict_fail(err, TDICT_EINVAL, "all_reduce: op is %d, wanted a tdict_reduce_op", (int)call->reduce);
  tdict_status status = check_dtypes(call, red->schema, err);
  if (status == TDICT_OK) status = tdict_message_find(call, err);
  if (status != TDICT_OK) return status;
  const size_t count = red->schema->num_entries + 1, most_groups = red->schema->size.dtype ? 1 : count;
  red->groups = calloc(most_groups, sizeof *red->groups);
  if (!red->groups) return tdict_fail_memory(err, "all_reduce", NULL, "%zu entries", count);
  list_groups(call, red);
  if (call->message.packed && red->num_groups <= 1) { /* the block has the layout of a copy */
    red->groups[0].end = call->message.bytes;
    red->data = call->message.data;
    return TDICT_OK;
  }
  red->offsets = calloc(count, sizeof *red->offsets);
  if (!red->offsets) return tdict_fail_memory(err, "all_reduce", NULL, "%zu entries", count);
  place_tensors(call, red);
  return allocate_copy(call, red, err);
}

static tdict_status combine(tdict_comm_call *call, const reduction *red, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (size_t g = 0; g < red->num_groups && status == TDICT_OK; g++) {
    const dtype_group *group = &red->groups[g];
    const size_t count = (group->end - group->begin) / tdict_dtype_bytes(group->dtype);
    if (count) status = tdict_table_all_reduce(call, red->data + group->begin, count, group->dtype, err);
  }
  return status == TDICT_OK ? tdict_table_finish(call, err) : status;
}

/* Combines the block in place, or a copy of the tree. */
static tdict_status combine_tree(tdict_comm_call *call, reduction *red, tdict_error *err) {
  tdict_status status = tdict_comm_await_stream(call, err);
  if (status != TDICT_OK) return status;
  if (!red->copy) {
    tdict_message_await(&call->message);
    status = combine(call, red, err);
    if (status != TDICT_OK) tdict_comm_lose(call->tree);
    return status;
  }
  status = tdict_copy(red->copy, call->tree, NULL, err);
  if (status == TDICT_OK) status = combine(call, red, err);
  if (status != TDICT_OK) return status;
  status = tdict_copy(call->tree, red->copy, NULL, err);
  if (status != TDICT_OK) tdict_comm_lose(call->tree);
  return status;
}

static tdict_status run_all_reduce(tdict_comm_call *call, tdict_tree **out, tdict_error *err) {
  reduction red = {0};
  (void)out;
  tdict_comm_check_source(call, call->tree, TDICT_COMM_READS | TDICT_COMM_WRITES);
  red.schema = call->source.schema;
  TDICT_COMM_ALONE(call, prepare(call, &red, &call->local));
  tdict_status status = tdict_comm_agree(call, true, err);
  if (status == TDICT_OK) status = combine_tree(call, &red, err);
  tdict_release(red.copy);
  free(red.groups);
  free(red.offsets);
  return status;
}

tdict_status tdict_comm_all_reduce_async(tdict_comm *comm, tdict_tree *tree, tdict_reduce_op op,
                                         const tdict_comm_options *options, tdict_future **out, tdict_error *err) {
  const tdict_comm_call call = {
      .comm = comm, .op = TDICT_COMM_ALL_REDUCE, .run = run_all_reduce, .tree = tree, .reduce = (int32_t)op};
  return tdict_comm_start(&call, options, out, err);
}
