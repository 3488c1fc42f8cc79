/* Reads the values of a NonTensorStack of a consolidated file. See tensordict.h for ownership and threads.
 *
 * A stack is a node whose members are the values and the nodes "0", "1" and so on. A value is [data, batch size,
 * device] and stands for each element of its batch size. The member `stack_dim` of `cls_metadata` is the dimension of
 * the members. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "services/io/json/document.h"
#include "services/io/json/read.h"
#include "services/io/tensordict/tensordict.h"

/* A value takes 2 bytes or more of a meta.json. */
enum { MOST_VALUES = TDICT_TD_MAX_JSON / 2 };

/* The values of a stack in C order. The values are positions in the JSON of the file. */
typedef struct stack {
  tdict_sizes shape;
  size_t count;
  tdict_json *values; /* owned */
} stack;

typedef struct stack_node {
  const tdict_reader *reader;
  tdict_json_table values, nodes; /* the members */
  size_t count;                   /* number of members */
  int dim;                        /* the dimension of the members */
  int depth;                      /* number of stacks that hold the node */
} stack_node;

static tdict_status read_stack(const tdict_reader *r, tdict_json node, int depth, stack *out, tdict_error *err);

static tdict_status fail_memory(const tdict_reader *r, tdict_error *err) {
  return tdict_fail_memory(err, r->contents->what, r->place.file, "values");
}

static tdict_status count_elements(const tdict_reader *r, const tdict_sizes *shape, size_t *out, tdict_error *err) {
  *out = 1;
  for (int d = 0; d < shape->count; d++) /* check for 0 first: the product of the other sizes may overflow */
    if (shape->at[d] == 0) *out = 0;
  for (int d = 0; d < shape->count && *out; d++) {
    if ((uint64_t)shape->at[d] > MOST_VALUES / *out)
      return tdict_json_refuse(&r->place, err, "a NonTensorStack of more than 50,000,000 values cannot be read");
    *out *= (size_t)shape->at[d];
  }
  return TDICT_OK;
}

static tdict_status make_values(const tdict_reader *r, stack *s, tdict_error *err) {
  tdict_status status = count_elements(r, &s->shape, &s->count, err);
  if (status != TDICT_OK) return status;
  s->values = malloc((s->count + 1) * sizeof *s->values);
  return s->values ? TDICT_OK : fail_memory(r, err);
}

/* Repeats a value for each element of its batch size. */
static tdict_status read_value(const tdict_reader *r, tdict_json value, stack *out, tdict_error *err) {
  tdict_status status = tdict_json_sizes(&r->place, "batch size of a value", tdict_json_at(value, 1),
                                         TDICT_MAX_BATCH_NDIM, &out->shape, err);
  if (status == TDICT_OK) status = make_values(r, out, err);
  for (size_t i = 0; i < out->count && status == TDICT_OK; i++) out->values[i] = tdict_json_at(value, 0);
  return status;
}

/* Finds member `i`: a value, or a node. Returns false if the stack has fewer members. */
static bool find_member(const stack_node *n, size_t i, tdict_json *value, tdict_json *node) {
  char name[24];
  snprintf(name, sizeof name, "%zu", i);
  *value = tdict_json_table_find(&n->values, name);
  *node = tdict_json_table_find(&n->nodes, name);
  return tdict_json_exists(*value) || tdict_json_exists(*node);
}

/* Sets the shape of a stack from the shape of its first member. */
static tdict_status begin_stack(const stack_node *n, const tdict_sizes *member, stack *out, tdict_error *err) {
  if (n->dim > member->count)
    return tdict_json_fail(&n->reader->place, err, "stack_dim is %d, but the members have %d batch dimensions", n->dim,
                           (int)member->count);
  if (member->count == TDICT_MAX_BATCH_NDIM)
    return tdict_json_fail(&n->reader->place, err, "a NonTensorStack of more than %d dimensions", TDICT_MAX_BATCH_NDIM);
  for (int d = 0; d <= member->count; d++)
    out->shape.at[d] = d == n->dim ? (int64_t)n->count : member->at[d - (d > n->dim)];
  out->shape.count = member->count + 1;
  return make_values(n->reader, out, err);
}

/* Copies the values of member `i` to their places. */
static tdict_status put_member(const stack_node *n, size_t i, const stack *member, stack *out, tdict_error *err) {
  size_t outer = 1;
  for (int d = 0; d < n->dim; d++) outer *= (size_t)member->shape.at[d];
  const size_t inner = member->count ? member->count / outer : 0;
  for (int d = 0; d <= member->shape.count; d++)
    if (out->shape.count != member->shape.count + 1 ||
        out->shape.at[d] != (d == n->dim ? (int64_t)n->count : member->shape.at[d - (d > n->dim)]))
      return tdict_json_refuse(&n->reader->place, err,
                               "a NonTensorStack whose members have different batch sizes cannot be read");
  for (size_t o = 0; o < outer && inner; o++)
    memcpy(out->values + (o * n->count + i) * inner, member->values + o * inner, inner * sizeof *out->values);
  return TDICT_OK;
}

static tdict_status read_members(const stack_node *n, stack *out, tdict_error *err) {
  tdict_status status = TDICT_OK;
  tdict_json value, node;
  for (size_t i = 0; status == TDICT_OK && find_member(n, i, &value, &node); i++) {
    stack member = {0};
    status = tdict_json_exists(value) ? read_value(n->reader, value, &member, err)
                                      : read_stack(n->reader, node, n->depth + 1, &member, err);
    if (status == TDICT_OK && i == 0) status = begin_stack(n, &member.shape, out, err);
    if (status == TDICT_OK) status = put_member(n, i, &member, out, err);
    free(member.values);
  }
  return status;
}

/* Reads a node. The recursion is limited by TDICT_MAX_BATCH_NDIM. The caller frees the values, also on failure. */
static tdict_status read_stack(const tdict_reader *r, tdict_json node, int depth, stack *out, tdict_error *err) {
  stack_node n = {.reader = r, .depth = depth};
  tdict_json value, child;
  if (depth == TDICT_MAX_BATCH_NDIM)
    return tdict_json_fail(&r->place, err, "a NonTensorStack of more than %d levels", TDICT_MAX_BATCH_NDIM);
  tdict_status status = tdict_reader_read_dim(r, tdict_json_get(tdict_json_get(node, "cls_metadata"), "stack_dim"),
                                              TDICT_MAX_BATCH_NDIM - 1, &n.dim, err);
  if (status != TDICT_OK) return status;
  status = tdict_json_table_make(tdict_json_get(node, "non_tensors"), &n.values);
  if (status == TDICT_OK) status = tdict_json_table_make(node, &n.nodes);
  if (status == TDICT_OK) {
    while (find_member(&n, n.count, &value, &child)) n.count++;
    out->shape = (tdict_sizes){.count = 1}; /* of a stack without members */
    status = read_members(&n, out, err);
  } else {
    status = fail_memory(r, err);
  }
  free(n.values.members);
  free(n.nodes.members);
  return status;
}

/* Writes the values of dimension `dim` and higher as nested lists, and moves *next to the value after them. */
static void write_list(tdict_io_text *to, const tdict_sizes *shape, int dim, const tdict_json **next) {
  if (dim == shape->count) {
    tdict_json_write(to, *(*next)++);
    return;
  }
  tdict_io_text_add(to, "[", 1);
  for (int64_t i = 0; i < shape->at[dim]; i++) {
    if (i) tdict_io_text_add(to, ",", 1);
    write_list(to, shape, dim + 1, next);
  }
  tdict_io_text_add(to, "]", 1);
}

/* Makes a value of the elements of dimension `dim` and higher. */
static tdict_status make_value(const tdict_reader *r, const tdict_sizes *shape, int dim, const tdict_json **next,
                               tdict_value *out, tdict_error *err) {
  tdict_io_text text = {0};
  if (dim == shape->count) return tdict_value_from_json(r->contents, *(*next)++, out, err);
  write_list(&text, shape, dim, next);
  *out = (tdict_value){.kind = TDICT_VALUE_JSON, .length = text.length};
  tdict_status status = text.has_failed
                            ? fail_memory(r, err)
                            : tdict_contents_copy_text(r->contents, text.bytes, text.length, &out->text, err);
  tdict_io_text_reset(&text);
  return status;
}

/* Returns true if the shape begins with the batch size. A stack without members has no sizes after a 0. */
static bool begins_with(const tdict_sizes *shape, const tdict_sizes *batch) {
  for (int d = 0; d < batch->count; d++) {
    if (d == shape->count || shape->at[d] != batch->at[d]) return false;
    if (batch->at[d] == 0) return true;
  }
  return true;
}

static tdict_status add_stack(tdict_reader *r, const stack *s, tdict_error *err) {
  const tdict_item *tree = &r->contents->items[r->trees[r->depth - 1].item];
  tdict_sizes batch = {.count = tree->ndim};
  size_t count;
  void *values = NULL;
  if (tree->ndim) memcpy(batch.at, tree->shape, (size_t)tree->ndim * sizeof *batch.at);
  if (!begins_with(&s->shape, &batch)) batch.count = 0;
  tdict_status status = count_elements(r, &batch, &count, err);
  if (status == TDICT_OK) status = tdict_contents_alloc(r->contents, count * sizeof(tdict_value), &values, err);
  const tdict_json *next = s->values;
  for (size_t i = 0; i < count && status == TDICT_OK; i++)
    status = make_value(r, &s->shape, batch.count, &next, (tdict_value *)values + i, err);
  return status == TDICT_OK ? tdict_reader_add_values(r, values, count, &batch, err) : status;
}

tdict_status tdict_td_add_stack(tdict_reader *reader, tdict_json node, tdict_error *err) {
  stack s = {0};
  if (reader->depth == 0) return tdict_json_fail(&reader->place, err, "the root is a value, wanted a tree");
  if (reader->flat) return TDICT_OK;
  tdict_status status = read_stack(reader, node, 0, &s, err);
  if (status == TDICT_OK) status = add_stack(reader, &s, err);
  free(s.values);
  return status;
}
