/* Exports trees as Arrow arrays. The arrays retain the tensors. See tdict/arrow.h for ownership and threads. */
#include "services/interop/arrow/export.h"

#include <stdio.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/leaves/nontensor.h"
#include "core/leaves/ragged.h"
#include "core/tree/cursor.h"

/* Packs `count` bools, one byte each, into bits. */
static void pack_bits(uint8_t *bits, const uint8_t *bools, int64_t count) {
  for (int64_t i = 0; i < count; i += 8) {
    unsigned byte = 0;
    for (int64_t k = i; k < i + 8 && k < count; k++) byte |= (unsigned)(bools[k] != 0) << (k - i);
    bits[i / 8] = (uint8_t)byte;
  }
}

/* Checks device and dtype of a tensor, waits for transfers that write it, and checks that no bytes are lost. */
static tdict_status check_tensor(const tdict_arrow_exporter *e, const tdict_tensor *t, tdict_error *err) {
  if (!e->any_device && t->storage->device.type != TDICT_DEVICE_CPU)
    return tdict_fail(err, TDICT_EWRONGDEVICE,
                      "%s: the tensor is on %s, wanted the cpu; tdict_arrow_export_device() accepts devices", e->what,
                      TDICT_DEVICE_TEXT(t->storage->device));
  if (!tdict_device_equal(t->storage->device, e->device))
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the tensor is on %s, but the first tensor is on %s", e->what,
                      TDICT_DEVICE_TEXT(t->storage->device), TDICT_DEVICE_TEXT(e->device));
  if (!tdict_arrow_format(t->dtype))
    return tdict_fail(err, TDICT_ENOTSUP, "%s: Arrow has no type for %s", e->what, TDICT_DTYPE_TEXT(t->dtype));
  tdict_tensor_await(t, false);
  if (!tdict_tensor_is_lost(t)) return TDICT_OK;
  return tdict_tensor_refuse_lost(e->what, "the bytes", t, err);
}

/* Sets the buffer of numbers. Shares a contiguous tensor, and copies any other tensor. */
static tdict_status set_numbers(tdict_arrow_exporter *e, const tdict_arrow_node *node, const tdict_tensor *t,
                                tdict_error *err) {
  tdict_tensor *tensor;
  tdict_memory *memory;
  tdict_status status = TDICT_OK;
  if (tdict_tensor_is_contiguous(t)) {
    tensor = tdict_tensor_retain(t);
  } else {
    status = tdict_tensor_choose_memory(e->what, t, NULL, &memory, err);
    if (status == TDICT_OK) status = tdict_tensor_clone(t, memory, &tensor, err);
  }
  if (status == TDICT_OK) tdict_arrow_export_buffer(e, node, 1, tensor);
  return status;
}

/* Sets the buffer of bools. Always copies the bools, because Arrow packs bools into bits. */
static tdict_status set_bools(tdict_arrow_exporter *e, const tdict_arrow_node *node, const tdict_tensor *t,
                              tdict_error *err) {
  tdict_tensor *bools, *bits;
  tdict_status status = tdict_tensor_clone(t, NULL, &bools, err);
  if (status != TDICT_OK) return status;
  status = tdict_arrow_make_bits(t->numel, &bits, err);
  if (status == TDICT_OK) pack_bits(bits->data, bools->data, t->numel);
  tdict_tensor_release(bools);
  return status == TDICT_OK ? tdict_arrow_export_place(e, node, 1, bits, err) : status;
}

/* Exports a tensor with at least one dimension. Each dimension after the first becomes a fixed-size list. */
static tdict_status export_tensor(tdict_arrow_exporter *e, const tdict_tensor *t, const char *name,
                                  tdict_arrow_node node, tdict_error *err) {
  char format[32];
  tdict_status status = check_tensor(e, t, err);
  int64_t length = t->dims[0];
  for (int i = 1; i < t->ndim && status == TDICT_OK; i++) {
    if (t->dims[i] > INT32_MAX)
      return tdict_fail(err, TDICT_EOVERFLOW, "%s: dimension %d has %lld elements, a fixed-size list at most 2^31 - 1",
                        e->what, i, (long long)t->dims[i]);
    snprintf(format, sizeof format, "+w:%lld", (long long)t->dims[i]);
    const tdict_arrow_field list = {format, name, length, 0, 1, 1};
    status = tdict_arrow_node_make(&node, &list, err);
    if (status != TDICT_OK) break;
    node = tdict_arrow_node_child(&node, 0);
    name = "item";
    if (!tdict_mul_i64(length, t->dims[i], &length))
      return tdict_fail(err, TDICT_EOVERFLOW, "%s: the lengths of the lists do not fit 63 bits", e->what);
  }
  if (status != TDICT_OK) return status;
  const tdict_arrow_field field = {tdict_arrow_format(t->dtype), name, length, 0, 2, 0};
  status = tdict_arrow_node_make(&node, &field, err);
  if (status != TDICT_OK) return status;
  return t->dtype == TDICT_BOOL ? set_bools(e, &node, t, err) : set_numbers(e, &node, t, err);
}

static tdict_status export_ragged(tdict_arrow_exporter *e, const tdict_ragged *r, const char *name,
                                  const tdict_arrow_node *node, tdict_error *err) {
  const tdict_arrow_field field = {r->offsets->dtype == TDICT_I32 ? "+l" : "+L", name, r->num_rows, 0, 2, 1};
  if (r->num_rows != e->num_rows)
    return tdict_fail(err, TDICT_ESHAPE, "%s: the ragged leaf has %lld rows, the tree has %lld", e->what,
                      (long long)r->num_rows, (long long)e->num_rows);
  tdict_status status = tdict_arrow_node_make(node, &field, err);
  if (status == TDICT_OK) status = check_tensor(e, r->offsets, err);
  if (status == TDICT_OK) status = set_numbers(e, node, r->offsets, err);
  return status == TDICT_OK ? export_tensor(e, r->values, "item", tdict_arrow_node_child(node, 0), err) : status;
}

static tdict_status export_object(tdict_arrow_exporter *e, const tdict_box *box, const char *name,
                                  const tdict_arrow_node *node, tdict_error *err) {
  if (box->type == tdict_ragged_type()) return export_ragged(e, box->self, name, node, err);
  if (box->type == tdict_nontensor_type()) return tdict_arrow_export_values(e, box->self, name, node, err);
  return tdict_fail(err, TDICT_ENOTSUP, "%s: an object of type %.80s has no counterpart in Arrow", e->what,
                    box->type->name);
}

static tdict_status fail_walk(const tdict_arrow_exporter *e, tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory to go through the tree", e->what);
}

static tdict_status export_leaf(tdict_arrow_exporter *e, tdict_leaf leaf, const char *key, const tdict_arrow_node *node,
                                tdict_error *err) {
  const tdict_tensor *t = tdict_leaf_tensor(leaf);
  if (!t) return export_object(e, tdict_leaf_box(leaf), key, node, err);
  if (t->ndim > 0 && t->dims[0] == e->num_rows) return export_tensor(e, t, key, *node, err);
  return tdict_fail(err, TDICT_ESHAPE, "%s: the tensor has shape %s, but the tree has %lld rows", e->what,
                    TDICT_SHAPE_TEXT(t->ndim, t->dims), (long long)e->num_rows);
}

/* Makes the struct of a tree. The caller exports the entries. */
static tdict_status make_struct(const tdict_arrow_exporter *e, const tdict_tree *tree, const char *name,
                                const tdict_arrow_node *node, tdict_error *err) {
  const tdict_arrow_field field = {"+s", name, e->num_rows, 0, 1, (int64_t)tdict_num_keys(tree)};
  return tdict_arrow_node_make(node, &field, err);
}

/* Exports a tree and the trees below it as structs. */
static tdict_status export_structs(tdict_arrow_exporter *e, const tdict_tree *tree, const tdict_arrow_node *root,
                                   tdict_error *err) {
  tdict_arrow_node nodes[TDICT_ARROW_MOST_DEPTH] = {*root}; /* of the frames of the cursor */
  tdict_cursor cursor;
  tdict_status status = make_struct(e, tree, "", root, err);
  tdict_cursor_init(&cursor, tree, false);
  for (tdict_leaf leaf; status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    const char *key = tdict_cursor_key(&cursor)->name;
    /* the mark of a frame is the number of its entries before this one */
    const size_t level = cursor.depth - 1;
    const tdict_arrow_node node = tdict_arrow_node_child(&nodes[level], (int64_t)cursor.frames[level].mark++);
    tdict_tree *child = tdict_leaf_tree(leaf);
    if (!child)
      status = export_leaf(e, leaf, key, &node, err);
    else if (cursor.depth == TDICT_ARROW_MOST_DEPTH)
      status = tdict_fail(err, TDICT_ENOTSUP, "%s: the tree has more than %d levels", e->what, TDICT_ARROW_MOST_DEPTH);
    else
      status = make_struct(e, child, key, &node, err);
    if (status != TDICT_OK) {
      status = tdict_cursor_fail(&cursor, NULL, status, err);
    } else if (child) {
      nodes[cursor.depth] = node;
      if (!tdict_cursor_enter(&cursor, child)) status = fail_walk(e, err);
    }
  }
  tdict_cursor_reset(&cursor);
  return status;
}

/* Finds the device and the memory of the first leaf. New tensors are made there unless it is the cpu. */
static tdict_status find_device(tdict_arrow_exporter *e, const tdict_tree *tree, tdict_error *err) {
  tdict_cursor cursor;
  tdict_leaf leaf;
  tdict_status status = TDICT_OK;
  tdict_cursor_init(&cursor, tree, true);
  while (!e->found && status == TDICT_OK && (leaf = tdict_cursor_next(&cursor)) != 0) {
    const tdict_tensor *t = tdict_leaf_tensor(leaf);
    const tdict_box *box = tdict_leaf_box(leaf);
    tdict_tree *child = tdict_leaf_tree(leaf);
    if (box && box->type == tdict_ragged_type()) t = ((const tdict_ragged *)box->self)->values;
    if (t) {
      e->found = true;
      e->device = t->storage->device;
      e->memory = t->storage->memory;
    }
    if (child && !tdict_cursor_enter(&cursor, child)) status = fail_walk(e, err);
  }
  tdict_cursor_reset(&cursor);
  return status;
}

tdict_status tdict_arrow_export_tree(tdict_arrow_exporter *e, const tdict_tree *tree, const tdict_arrow_node *node,
                                     tdict_error *err) {
  struct ArrowSchema schema = {0};
  struct ArrowArray array = {0};
  const tdict_arrow_node made = {&schema, &array};
  if (tree->batch_ndim != 1)
    return tdict_fail(err, TDICT_ESHAPE, "%s: the batch size is %s, wanted one dimension; see tdict_reshape()", e->what,
                      TDICT_SHAPE_TEXT(tree->batch_ndim, tree->batch_size));
  e->num_rows = tree->batch_size[0];
  e->device = tdict_cpu();
  e->is_pinned = true;
  tdict_status status = find_device(e, tree, err);
  if (status == TDICT_OK) status = export_structs(e, tree, &made, err);
  if (status != TDICT_OK) {
    tdict_arrow_node_release(&made);
    return status;
  }
  *node->schema = schema;
  *node->array = array;
  return TDICT_OK;
}

tdict_status tdict_arrow_export(const tdict_tree *tree, struct ArrowSchema *schema, struct ArrowArray *array,
                                tdict_error *err) {
  static const char what[] = "arrow_export";
  if (!tree || !schema || !array) return tdict_fail_null(err, what, !tree ? "tree" : schema ? "array" : "schema");
  tdict_arrow_exporter e = {.what = what};
  const tdict_arrow_node node = {schema, array};
  return tdict_arrow_export_tree(&e, tree, &node, err);
}

tdict_status tdict_arrow_export_device(const tdict_tree *tree, struct ArrowSchema *schema,
                                       struct ArrowDeviceArray *array, tdict_error *err) {
  static const char what[] = "arrow_export_device";
  if (!tree || !schema || !array) return tdict_fail_null(err, what, !tree ? "tree" : schema ? "array" : "schema");
  struct ArrowDeviceArray made = {0};
  tdict_arrow_exporter e = {.what = what, .any_device = true};
  const tdict_arrow_node node = {schema, &made.array};
  tdict_status status = tdict_arrow_export_tree(&e, tree, &node, err);
  if (status != TDICT_OK) return status;
  /* Arrow, DLPack and tdict use the same numbers for device types. Arrow gives the cpu the id -1. */
  made.device_type = e.device.type;
  made.device_id = e.device.index;
  if (e.device.type == TDICT_DEVICE_CPU) {
    const bool is_pinned = e.has_buffers && e.is_pinned;
    made.device_type = is_pinned ? ARROW_DEVICE_CUDA_HOST : ARROW_DEVICE_CPU;
    made.device_id = is_pinned ? 0 : -1;
  }
  *array = made;
  return TDICT_OK;
}
