/* Lists the entries of a tree. See leaves.h. Owns the lists' memory. Thread rule: one thread per list. */
#include "tdict/unbatched.h"

#include "leaves.h"

#include <stdlib.h>
#include <string.h>

static tdict_status fail_memory(tdict_error *err) {
  *err = (tdict_error){.status = TDICT_ENOMEM, .message = "out of memory"};
  return TDICT_ENOMEM;
}

static tdict_status describe_object(const tdict_tree *tree, const tdict_entry *entry, leaf *out, tdict_error *err) {
  if (entry->type == tdict_unbatched_type()) {
    out->kind = LEAF_UNBATCHED;
    return tdict_get_unbatched(tree, entry->path, &out->tensor, err);
  }
  if (entry->type == tdict_nontensor_type()) {
    out->values = entry->object;
    out->kind = tdict_nontensor_shape(out->values, NULL) ? LEAF_VALUES : LEAF_VALUE;
  } else if (entry->type == tdict_ragged_type()) {
    out->kind = LEAF_RAGGED;
    out->ragged = entry->object;
    out->tensor = tdict_ragged_get_info(out->ragged).values;
  } else {
    *err = (tdict_error){.status = TDICT_ENOTSUP, .message = "an object of an unknown type"};
    return TDICT_ENOTSUP;
  }
  if (entry->type->bytes) out->bytes = entry->type->bytes(entry->object);
  return TDICT_OK;
}

tdict_status leaf_describe(const tdict_tree *tree, const tdict_entry *entry, leaf *out, tdict_error *err) {
  tdict_status status = TDICT_OK;
  *out = (leaf){.kind = LEAF_TREE, .depth = entry->depth, .path = entry->path, .key = entry->key, .tree = entry->tree};
  if (entry->object) {
    status = describe_object(tree, entry, out, err);
  } else if (entry->tensor) {
    out->kind = LEAF_TENSOR;
    out->tensor = entry->tensor;
  }
  if (status == TDICT_OK && out->tensor && !out->bytes) out->bytes = tdict_tensor_bytes(out->tensor);
  return status;
}

typedef struct collector {
  const tdict_tree *tree;
  leaf_list *list;
} collector;

static tdict_status add_entry(void *user, const tdict_entry *entry, tdict_error *err) {
  const collector *c = user;
  leaf_list *list = c->list;
  leaf found;
  tdict_status status = leaf_describe(c->tree, entry, &found, err);
  if (status != TDICT_OK) return status;
  if (list->count == list->capacity) {
    const size_t capacity = list->capacity ? list->capacity * 2 : 64;
    leaf *items = realloc(list->items, capacity * sizeof *items);
    if (!items) return fail_memory(err);
    list->items = items;
    list->capacity = capacity;
  }
  found.path = strdup(entry->path);
  if (!found.path) return fail_memory(err);
  list->items[list->count++] = found;
  return TDICT_OK;
}

tdict_status leaves_collect(const tdict_tree *tree, leaf_list *list, tdict_error *err) {
  collector c = {tree, list};
  return tdict_walk(tree, add_entry, &c, err);
}

void leaves_free(leaf_list *list) {
  for (size_t i = 0; i < list->count; i++) free((char *)list->items[i].path);
  free(list->items);
}

const char *leaf_kind_name(leaf_kind kind) {
  static const char *const names[] = {"tree", "tensor", "unbatched", "ragged", "value", "values"};
  return names[kind];
}

static const char *value_kind_name(int32_t kind) {
  static const char *const names[] = {"null", "bool", "integer", "real", "text", "json"};
  return kind >= 0 && kind <= TDICT_VALUE_JSON ? names[kind] : "value";
}

void leaf_dtype_text(const leaf *l, char *text, size_t bytes) {
  tdict_value value;
  if (l->tensor)
    tdict_dtype_format(tdict_tensor_dtype(l->tensor), text, bytes);
  else if (l->kind == LEAF_VALUE && tdict_nontensor_get(l->values, 0, &value, NULL) == TDICT_OK)
    snprintf(text, bytes, "%s", value_kind_name(value.kind));
  else
    snprintf(text, bytes, "%s", leaf_kind_name(l->kind));
}

void shape_text(int ndim, const int64_t *shape, char *text, size_t bytes) {
  size_t length = (size_t)snprintf(text, bytes, "[");
  for (int i = 0; i < ndim && length < bytes; i++)
    length += (size_t)snprintf(text + length, bytes - length, i ? ", %lld" : "%lld", (long long)shape[i]);
  if (length < bytes) snprintf(text + length, bytes - length, "]");
}

void leaf_shape_text(const leaf *l, char *text, size_t bytes) {
  const int64_t *shape = NULL;
  text[0] = 0;
  if (l->kind == LEAF_TREE) {
    shape_text(tdict_batch_ndim(l->tree), tdict_batch_size(l->tree), text, bytes);
  } else if (l->kind == LEAF_RAGGED) {
    char inner[SHAPE_TEXT_BYTES];
    shape_text(tdict_tensor_ndim(l->tensor) - 1, tdict_tensor_shape(l->tensor) + 1, inner, sizeof inner);
    snprintf(text, bytes, "[%lld, *%s%s", (long long)tdict_ragged_get_info(l->ragged).num_rows,
             inner[1] == ']' ? "" : ", ", inner + 1);
  } else if (l->tensor) {
    shape_text(tdict_tensor_ndim(l->tensor), tdict_tensor_shape(l->tensor), text, bytes);
  } else if (l->kind == LEAF_VALUES) {
    const int ndim = tdict_nontensor_shape(l->values, &shape);
    shape_text(ndim, shape, text, bytes);
  }
}
