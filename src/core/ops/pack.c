/* Joins sequences into one row, with the offsets that attention kernels need. Thread rule: as in tdict/combine.h. */
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/memory/run.h"
#include "core/ops/align.h"
#include "core/ops/pad.h"
#include "core/tensor/affine.h"
#include "core/tensor/element.h"
#include "core/tensor/layout.h"
#include "core/tree/create_from.h"
#include "tdict/combine.h"

static const char what[] = "pack_sequence";
enum { MAX_NEW_LEAVES = 3, FIELD_NDIM = sizeof((tdict_field *)NULL)->shape / sizeof(int64_t) };

/* A tensor of the result that is made from one tensor of each tree. */
typedef struct packed_leaf {
  const tdict_leaf *parts; /* borrowed: the tensors of all trees */
  bool is_stacked;
} packed_leaf;

typedef struct packer {
  const tdict_tree *const *items;
  size_t count;
  tdict_pack_options o;
  tdict_memory *memory; /* host memory of the result; NULL: plain host memory */
  tdict_aligned aligned;
  size_t num_leaves, num_fields; /* num_fields: num_leaves plus the number of new leaves */
  packed_leaf *leaves;
  tdict_field *fields; /* the packer owns the paths of the first num_leaves fields */
  size_t next_entry;
  const tdict_leaf *measured; /* the tensors that give the lengths; NULL: not found yet */
  int64_t total, longest, num_tokens, num_sequences;
} packer;

static int64_t get_length(const packer *p, size_t item) { return tdict_leaf_tensor(p->measured[item])->dims[0]; }

static void release_packer(packer *p) {
  for (size_t i = 0; i < p->num_leaves && p->fields; i++) free((char *)p->fields[i].path);
  free(p->fields);
  free(p->leaves);
  tdict_aligned_reset(&p->aligned);
}

/* Returns true if `path` is one of the first `count` paths of the option `stack_paths`. */
static bool is_stack_path(const tdict_pack_options *o, size_t count, const char *path) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(o->stack_paths[i], path) == 0) return true;
  return false;
}

/* Computes the sum and the maximum of the lengths, and the length of the joined row. */
static tdict_status measure_lengths(packer *p, tdict_error *err) {
  for (size_t i = 0; i < p->count; i++) {
    int64_t length = get_length(p, i);
    if (!tdict_add_i64(p->total, length, &p->total)) p->total = INT64_MAX;
    if (length > p->longest) p->longest = length;
  }
  if (p->total > INT32_MAX || p->o.num_tokens > INT32_MAX)
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: a row of %lld elements, wanted at most 2^31 - 1", what,
                      (long long)(p->total > INT32_MAX ? p->total : p->o.num_tokens));
  p->num_tokens = p->o.num_tokens ? p->o.num_tokens : p->total;
  if (p->total <= p->num_tokens) return TDICT_OK;
  return tdict_fail(err, TDICT_ESHAPE, "%s: %zu trees with %lld elements in total, but num_tokens is %lld", what,
                    p->count, (long long)p->total, (long long)p->num_tokens);
}

/* Checks that every tensor of an entry has the length of its tree. */
static tdict_status check_lengths(const packer *p, const tdict_leaf *parts, tdict_error *err) {
  for (size_t i = 0; i < p->count; i++) {
    const tdict_tensor *t = tdict_leaf_tensor(parts[i]);
    if (t->dims[0] != get_length(p, i))
      return tdict_fail(err, TDICT_ESHAPE, "%s: the tensor has length %lld in tree %zu, but an earlier one has %lld",
                        what, (long long)t->dims[0], i, (long long)get_length(p, i));
  }
  return TDICT_OK;
}

static bool sizes_match(const tdict_tensor *a, const tdict_tensor *b, int first_dim) {
  return a->ndim == b->ndim && tdict_sizes_equal(a->dims + first_dim, b->dims + first_dim, a->ndim - first_dim);
}

static tdict_status check_tensors(const packer *p, const packed_leaf *leaf, tdict_error *err) {
  const tdict_tensor *first = tdict_leaf_tensor(leaf->parts[0]);
  tdict_status status = TDICT_OK;
  for (size_t i = 1; i < p->count && status == TDICT_OK; i++) {
    const tdict_tensor *t = tdict_leaf_tensor(leaf->parts[i]);
    status = tdict_check_part(what, t, i, first, sizes_match(t, first, leaf->is_stacked ? 0 : 1), err);
  }
  return status;
}

/* Checks the tensors at one path, and decides whether the tensors are joined or stacked. */
static tdict_status check_parts(packer *p, const tdict_entry *entry, packed_leaf *leaf, tdict_error *err) {
  const tdict_tensor *t = entry->tensor;
  unsigned char element[TDICT_ELEMENT_ROOM];
  leaf->is_stacked = t->ndim == 0 || is_stack_path(&p->o, p->o.num_stack_paths, entry->path);
  if (!tdict_is_on_host(t))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the tensor is on %s, wanted host memory", what,
                      TDICT_DEVICE_TEXT(tdict_tensor_device(t)));
  if (t->ndim + leaf->is_stacked > FIELD_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: the result would have %d dimensions, wanted at most %d", what,
                      t->ndim + leaf->is_stacked, FIELD_NDIM);
  tdict_status status = check_tensors(p, leaf, err);
  if (status == TDICT_OK) status = tdict_element_from_double(what, t->dtype, p->o.pad_value, element, err);
  if (status != TDICT_OK || leaf->is_stacked) return status;
  if (p->measured) return check_lengths(p, leaf->parts, err);
  p->measured = leaf->parts;
  return measure_lengths(p, err);
}

/* Adds a tensor of the first tree. tdict_walk() has the order of the aligned table. First sizes are set later. */
static tdict_status add_leaf(void *user, const tdict_entry *entry, tdict_error *err) {
  packer *p = user;
  size_t e = p->next_entry++;
  if (entry->tree) return TDICT_OK;
  if (!entry->tensor) return tdict_fail(err, TDICT_ENOTSUP, "%s: an object, wanted tensors", what);
  packed_leaf *leaf = &p->leaves[p->num_leaves];
  leaf->parts = p->aligned.leaves + e * p->count;
  tdict_status status = check_parts(p, entry, leaf, err);
  if (status != TDICT_OK) return status;
  char *path = strdup(entry->path);
  if (!path) return tdict_fail_memory(err, what, NULL, "a path");
  const tdict_tensor *t = entry->tensor;
  tdict_field *field = &p->fields[p->num_leaves++];
  *field = (tdict_field){.path = path, .dtype = t->dtype, .ndim = t->ndim + leaf->is_stacked};
  int first = leaf->is_stacked ? 0 : 1;
  for (int d = first; d < t->ndim; d++) field->shape[d + 1 - first] = t->dims[d];
  return TDICT_OK;
}

static tdict_status add_new_field(packer *p, const char *path, int ndim, int64_t count, tdict_error *err) {
  if (tdict_has(p->items[0], path))
    return tdict_fail_at(err, TDICT_EEXIST, path, "%s: the trees have an entry at the path of a new tensor", what);
  p->fields[p->num_fields++] = (tdict_field){.path = path, .dtype = TDICT_I32, .ndim = ndim, .shape = {count}};
  return TDICT_OK;
}

/* Checks that a tensor is at each path of the option `stack_paths`. */
static tdict_status check_stack_paths(const packer *p, tdict_error *err) {
  for (size_t i = 0; i < p->o.num_stack_paths; i++) {
    size_t k = 0;
    while (k < p->num_leaves && strcmp(p->fields[k].path, p->o.stack_paths[i]) != 0) k++;
    if (k < p->num_leaves) continue;
    return tdict_fail_at(err, TDICT_ENOTFOUND, p->o.stack_paths[i], "%s: stack_paths[%zu] names no tensor of the trees",
                         what, i);
  }
  return TDICT_OK;
}

/* Sets the first dimension of all fields, and adds the fields of the new tensors. */
static tdict_status complete_fields(packer *p, tdict_error *err) {
  if (!p->measured) return tdict_fail(err, TDICT_EINVAL, "%s: no tensor of the trees has a dimension to join", what);
  tdict_status status = check_stack_paths(p, err);
  if (status != TDICT_OK) return status;
  for (size_t i = 0; i < p->num_leaves; i++)
    p->fields[i].shape[0] = p->leaves[i].is_stacked ? p->num_sequences : p->num_tokens;
  p->num_fields = p->num_leaves;
  status = add_new_field(p, p->o.cu_seqlens, 1, p->num_sequences + 1, err);
  if (status == TDICT_OK) status = add_new_field(p, p->o.max_seqlen, 0, 0, err);
  if (status == TDICT_OK && p->o.position_ids) status = add_new_field(p, p->o.position_ids, 1, p->num_tokens, err);
  return status;
}

/* Fills a tensor with the padding value, from index `from` of the first dimension on. */
static tdict_status fill_tail(const packer *p, const tdict_tensor *made, int64_t from, tdict_error *err) {
  unsigned char element[TDICT_ELEMENT_ROOM];
  tdict_made tail;
  tdict_temp temp;
  if (from == made->dims[0]) return TDICT_OK;
  tdict_status status = tdict_element_from_double(what, made->dtype, p->o.pad_value, element, err);
  if (status != TDICT_OK) return status;
  tdict_made_of(made, &tail);
  tdict_made_narrow(&tail, 0, from, made->dims[0] - from, tdict_dtype_bytes(made->dtype));
  return tdict_element_fill(tdict_temp_over(&temp, made, &tail), element, err);
}

/* Copies the tensors of all trees to one tensor of the result. */
static tdict_status fill_leaf(const packer *p, const packed_leaf *leaf, const tdict_tensor *made, tdict_error *err) {
  const size_t item = tdict_dtype_bytes(made->dtype);
  int64_t at = 0;
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < p->count && status == TDICT_OK; i++) {
    tdict_made part;
    tdict_temp temp;
    tdict_made_of(made, &part);
    if (leaf->is_stacked)
      tdict_made_select(&part, 0, at++, item);
    else
      tdict_made_narrow(&part, 0, at, get_length(p, i), item);
    if (!leaf->is_stacked) at += get_length(p, i);
    status = tdict_tensor_copy(tdict_temp_over(&temp, made, &part), tdict_leaf_tensor(leaf->parts[i]), err);
  }
  return status == TDICT_OK ? fill_tail(p, made, at, err) : status;
}

static void fill_new_leaves(const packer *p, tdict_tree *made) {
  int32_t *offsets = tdict_data(made, p->o.cu_seqlens), sum = 0;
  offsets[0] = 0;
  for (int64_t i = 0; i < p->num_sequences; i++) {
    if (i < (int64_t)p->count) sum += (int32_t)get_length(p, (size_t)i);
    offsets[i + 1] = sum;
  }
  *(int32_t *)tdict_data(made, p->o.max_seqlen) = (int32_t)p->longest;
  if (!p->o.position_ids) return;
  int32_t *position = tdict_data(made, p->o.position_ids);
  for (size_t i = 0; i < p->count; i++)
    for (int32_t k = 0; k < (int32_t)get_length(p, i); k++) *position++ = k;
  if (p->num_tokens > p->total) memset(position, 0, (size_t)(p->num_tokens - p->total) * sizeof *position);
}

/* Makes the tree of the result, and writes the elements of all tensors. */
static tdict_status make_packed(packer *p, tdict_tree **out, tdict_error *err) {
  const tdict_fields list = {p->fields, p->num_fields};
  tdict_tree *made;
  tdict_status status = tdict_create_unset(&list, 0, NULL, p->memory, &made, err);
  if (status != TDICT_OK) return status;
  for (size_t i = 0; i < p->num_leaves && status == TDICT_OK; i++) {
    tdict_tensor *to = NULL;
    status = tdict_get(made, p->fields[i].path, &to, err);
    if (status == TDICT_OK) status = fill_leaf(p, &p->leaves[i], to, err);
    if (status != TDICT_OK) tdict_error_at(err, status, p->fields[i].path);
  }
  if (status != TDICT_OK) {
    tdict_release(made);
    return status;
  }
  fill_new_leaves(p, made);
  *out = made;
  return TDICT_OK;
}

static tdict_status check_path_list(const tdict_pack_options *o, tdict_error *err) {
  if (o->num_stack_paths && !o->stack_paths) return tdict_fail_null(err, what, "stack_paths");
  for (size_t i = 0; i < o->num_stack_paths; i++) {
    if (!o->stack_paths[i]) return tdict_fail(err, TDICT_EINVAL, "%s: stack_paths[%zu] is NULL", what, i);
    if (!is_stack_path(o, i, o->stack_paths[i])) continue;
    return tdict_fail_at(err, TDICT_EINVAL, o->stack_paths[i],
                         "%s: stack_paths[%zu] is the same path as an earlier one", what, i);
  }
  return TDICT_OK;
}

static tdict_status check_pack_options(const packer *p, tdict_error *err) {
  const tdict_pack_options *o = &p->o;
  if (!o->cu_seqlens || !o->max_seqlen) return tdict_fail_null(err, what, o->cu_seqlens ? "max_seqlen" : "cu_seqlens");
  tdict_status status = check_path_list(o, err);
  if (status != TDICT_OK) return status;
  if (o->num_tokens < 0 || o->num_sequences < 0 || o->num_sequences > INT32_MAX)
    return tdict_fail(err, TDICT_EINVAL, "%s: num_tokens is %lld and num_sequences %lld, wanted 0 to 2^31 - 1", what,
                      (long long)o->num_tokens, (long long)o->num_sequences);
  if (o->num_sequences && (size_t)o->num_sequences < p->count)
    return tdict_fail(err, TDICT_ESHAPE, "%s: %zu trees, but num_sequences is %lld", what, p->count,
                      (long long)o->num_sequences);
  if (!p->memory || p->memory->device.type == TDICT_DEVICE_CPU) return TDICT_OK;
  return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the memory is on %s, wanted host memory", what,
                    TDICT_DEVICE_TEXT(p->memory->device));
}

tdict_status tdict_pack_sequence(const tdict_tree *const *items, size_t count, const tdict_pack_options *options,
                                 const tdict_run *run, tdict_tree **out, tdict_error *err) {
  tdict_run r;
  packer p = {.items = items, .count = count, .o = tdict_pack_options_default()};
  if (!out) return tdict_fail_null(err, what, "out");
  tdict_status status = tdict_options_read(&p.o, sizeof p.o, options, "pack options", err);
  if (status == TDICT_OK) status = tdict_run_read(&r, run, TDICT_USES_MEMORY, what, err);
  if (status != TDICT_OK) return status;
  p.memory = r.memory;
  status = check_pack_options(&p, err);
  if (status == TDICT_OK) status = tdict_align_trees(what, items, count, false, &p.aligned, err);
  if (status != TDICT_OK) return status;
  p.num_sequences = p.o.num_sequences ? p.o.num_sequences : (int64_t)count;

  /* Describe the tensors of the result, then make them. */
  p.leaves = calloc(p.aligned.num_entries + 1, sizeof *p.leaves);
  p.fields = calloc(p.aligned.num_entries + MAX_NEW_LEAVES, sizeof *p.fields);
  status = p.leaves && p.fields ? tdict_walk(items[0], add_leaf, &p, err)
                                : tdict_fail_memory(err, what, NULL, "a table of tensors");
  if (status == TDICT_OK) status = complete_fields(&p, err);
  if (status == TDICT_OK) status = make_packed(&p, out, err);
  release_packer(&p);
  return status;
}
