/* Lists the entries of a tree that is saved. See listing.h for ownership and threads. */
#include "services/io/listing.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/leaves/json.h"
#include "tdict/ragged.h"
#include "tdict/unbatched.h"

typedef struct lister {
  tdict_listing *out;
  const tdict_tree *root;
  const tdict_format_rules *rules;
  size_t last;   /* number of the entry of the tree that was entered last */
  int32_t depth; /* of the entries of this tree */
} lister;

tdict_status tdict_listing_refuse(const tdict_listing *listing, const tdict_listed *entry, const char *why,
                                  tdict_error *err) {
  return tdict_fail_at(err, TDICT_ENOTSUP, entry->path, "%s: %s", listing->contents.what, why);
}

tdict_status tdict_listing_no_memory(const tdict_listing *listing, tdict_error *err) {
  return tdict_fail_memory(err, listing->contents.what, listing->contents.path, "the keys of the tree");
}

tdict_status tdict_listing_add_value(const tdict_listing *listing, const tdict_listed *entry, int64_t i,
                                     tdict_value_writer write, tdict_io_text *to, tdict_error *err) {
  tdict_value value;
  const char *why;
  tdict_status status = tdict_nontensor_get(entry->values, i, &value, err);
  if (status != TDICT_OK) return status;
  status = write(to, &value, &why);
  if (status == TDICT_ENOTSUP) return tdict_listing_refuse(listing, entry, why, err);
  return status == TDICT_OK ? TDICT_OK : tdict_listing_no_memory(listing, err);
}

static tdict_status read_object(const lister *l, const tdict_entry *entry, tdict_listed *made, tdict_error *err) {
  char why[128];
  if (entry->type == tdict_unbatched_type()) {
    tdict_tensor *tensor = NULL;
    tdict_status status = tdict_get_unbatched(l->root, entry->path, &tensor, err);
    made->kind = TDICT_ITEM_UNBATCHED;
    made->tensor = tensor;
    return status;
  }
  made->kind = entry->type == tdict_ragged_type() ? TDICT_ITEM_RAGGED_VALUES : TDICT_ITEM_VALUES;
  if (l->rules->has_tensors_only || (entry->type != tdict_ragged_type() && entry->type != tdict_nontensor_type())) {
    snprintf(why, sizeof why,
             l->rules->has_tensors_only ? "NumPy's files hold tensors only, found an object of type %.60s"
                                        : "an object of type %.60s cannot be written",
             entry->type->name);
    return tdict_listing_refuse(l->out, made, why, err);
  }
  if (made->kind == TDICT_ITEM_VALUES) {
    made->values = entry->object;
  } else {
    made->tensor = tdict_ragged_get_info(entry->object).values;
    made->offsets = tdict_ragged_get_info(entry->object).offsets;
  }
  return TDICT_OK;
}

static tdict_status check_dtype(const lister *l, const tdict_listed *entry, const tdict_tensor *tensor,
                                tdict_error *err) {
  char why[96];
  if (!tensor || l->rules->name_of_dtype(tdict_tensor_dtype(tensor))) return TDICT_OK;
  snprintf(why, sizeof why, "%s no dtype for %s", l->rules->dtypes, TDICT_DTYPE_TEXT(tdict_tensor_dtype(tensor)));
  return tdict_listing_refuse(l->out, entry, why, err);
}

/* Checks that the format can hold the entry, and sets its parts. */
static tdict_status read_entry(const lister *l, const tdict_entry *entry, tdict_listed *made, tdict_error *err) {
  tdict_status status = TDICT_OK;
  if (tdict_utf8_length(entry->key, strlen(entry->key)) != strlen(entry->key))
    return tdict_listing_refuse(l->out, made, "the key is not UTF-8", err);
  if (entry->object) status = read_object(l, entry, made, err);
  if (status == TDICT_OK) status = check_dtype(l, made, made->tensor, err);
  if (status == TDICT_OK) status = check_dtype(l, made, made->offsets, err);
  if (status != TDICT_OK || !entry->tree) return status;
  if (l->rules->has_tensors_only)
    return tdict_num_keys(entry->tree) ? TDICT_OK
                                       : tdict_listing_refuse(l->out, made, "NumPy's files hold no empty tree", err);
  return entry->depth + 1 < TDICT_IO_MAX_DEPTH ? TDICT_OK
                                               : tdict_listing_refuse(l->out, made, "more than 128 nested trees", err);
}

/* Turns an escaped path into the keys with dots between them. */
static tdict_status make_name(tdict_contents *c, const char *path, const char **out, tdict_error *err) {
  void *name = NULL;
  *out = path;
  if (!strchr(path, '\\')) return TDICT_OK;
  tdict_status status = tdict_contents_alloc(c, strlen(path) + 1, &name, err);
  if (status != TDICT_OK) return status;
  *out = name;
  char *to = name;
  for (const char *at = path; *at; at++) {
    if (*at == '\\' && at[1]) at++;
    *to++ = *at;
  }
  *to = 0;
  return TDICT_OK;
}

static tdict_status add(tdict_listing *list, const tdict_listed *entry, tdict_error *err) {
  if (!TDICT_RESERVE(list->entries, list->cap, list->count + 1)) return tdict_listing_no_memory(list, err);
  list->entries[list->count++] = *entry;
  list->num_tensors += entry->offsets ? 2 : entry->tensor ? 1 : 0;
  return TDICT_OK;
}

static tdict_status visit(void *user, const tdict_entry *entry, tdict_error *err) {
  lister *l = user;
  tdict_listing *list = l->out;
  for (; l->depth > entry->depth; l->depth--) l->last = list->entries[l->last].parent;
  tdict_listed made = {.kind = entry->tree ? TDICT_ITEM_TREE : TDICT_ITEM_TENSOR,
                       .key = entry->key,
                       .tree = entry->tree ? entry->tree : list->entries[l->last].tree,
                       .tensor = entry->tensor,
                       .parent = l->last,
                       .end = list->count + 1,
                       .tensors = list->num_tensors};
  tdict_status status = tdict_contents_copy_text(&list->contents, entry->path, strlen(entry->path), &made.path, err);
  if (status == TDICT_OK) status = read_entry(l, entry, &made, err);
  if (status == TDICT_OK) status = make_name(&list->contents, made.path, &made.name, err);
  if (status == TDICT_OK) status = add(list, &made, err);
  if (status != TDICT_OK || !entry->tree) return status;
  l->last = list->count - 1;
  l->depth = entry->depth + 1;
  return TDICT_OK;
}

tdict_status tdict_listing_make(tdict_listing *out, const tdict_save_request *request, const tdict_format_rules *rules,
                                tdict_error *err) {
  lister l = {.out = out, .root = request->tree, .rules = rules};
  const tdict_listed root = {
      .kind = TDICT_ITEM_TREE, .key = "", .path = "", .name = "", .tree = request->tree, .end = 1};
  *out = (tdict_listing){.count = 0};
  tdict_contents_init(&out->contents, request->what, request->path);
  tdict_status status = add(out, &root, err);
  if (status == TDICT_OK) status = tdict_walk(request->tree, visit, &l, err);
  for (size_t i = out->count; i-- > 1;) {
    tdict_listed *parent = &out->entries[out->entries[i].parent];
    if (parent->end < out->entries[i].end) parent->end = out->entries[i].end;
  }
  return status;
}

void tdict_listing_reset(tdict_listing *listing) {
  free(listing->entries);
  tdict_contents_close(&listing->contents);
}
