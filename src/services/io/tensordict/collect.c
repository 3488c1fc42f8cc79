/* Lists the files of a tree that becomes a memory-mapped directory. See memmap.h for ownership and threads. */
#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/leaves/json.h"
#include "services/io/tensordict/memmap.h"
#include "tdict/unbatched.h"

enum { ALIGNMENT = 64 }; /* of tensors in archives */
static const char tree_class[] = "\"_type\": \"<class 'tensordict._td.TensorDict'>\"";

/* `folder` is the path of the folder that is described: "" or a path that ends with a slash. */
typedef struct collector {
  tdict_td_new_files *out;
  tdict_io_text folder;
} collector;

static tdict_status collect_tree(collector *c, const tdict_listed *tree, tdict_error *err);

/* Adds a file. Its path is the folder followed by `name`. */
static tdict_status add_file(collector *c, const char *name, tdict_zip_new file, tdict_error *err) {
  tdict_td_new_files *out = c->out;
  const size_t length = c->folder.length;
  const bool has_room = TDICT_RESERVE(out->files, out->cap, out->count + 1);
  tdict_io_text_add_string(&c->folder, name);
  if (!has_room || c->folder.has_failed) return tdict_listing_no_memory(&out->list, err);
  tdict_status status =
      tdict_contents_copy_text(&out->list.contents, c->folder.bytes, c->folder.length, &file.name, err);
  tdict_io_text_cut(&c->folder, length);
  if (status == TDICT_OK) out->files[out->count++] = file;
  return status;
}

/* Adds the meta.json of the current folder, which is the folder of `entry`. */
static tdict_status add_meta(collector *c, const tdict_listed *entry, const tdict_io_text *text, tdict_error *err) {
  tdict_zip_new file = {.length = text->length};
  tdict_json_fault fault;
  if (text->has_failed) return tdict_listing_no_memory(&c->out->list, err);
  /* The file must be readable: a JSON value can exceed the maximum number of levels. */
  if (!tdict_json_is_valid(text->bytes, text->length, &fault))
    return tdict_listing_refuse(&c->out->list, entry, fault.why, err);
  if (text->length > TDICT_TD_MAX_JSON)
    return tdict_listing_refuse(&c->out->list, entry, "the meta.json has more than 100,000,000 bytes", err);
  tdict_status status = tdict_contents_copy_text(&c->out->list.contents, text->bytes, text->length, &file.text, err);
  return status == TDICT_OK ? add_file(c, "meta.json", file, err) : status;
}

/* Writes the entry of a tensor, and adds the file of a tensor that has elements. */
static tdict_status add_tensor(collector *c, const tdict_listed *entry, const char *key, const tdict_tensor *tensor,
                               tdict_io_text *meta, tdict_error *err) {
  tdict_io_text name = {0};
  tdict_td_add_string(meta, key);
  tdict_io_text_add_string(meta, ": {\"device\": \"cpu\", \"shape\": ");
  tdict_io_text_add_sizes(meta, ", ", tdict_tensor_ndim(tensor), tdict_tensor_shape(tensor));
  tdict_io_text_format(meta, ", \"dtype\": \"%s\", \"is_nested\": false%s}, ",
                       tdict_torch_name(tdict_tensor_dtype(tensor)),
                       entry->kind == TDICT_ITEM_UNBATCHED ? ", \"tdict\": \"unbatched\"" : "");
  if (tdict_tensor_bytes(tensor) == 0) return TDICT_OK;
  tdict_td_add_name(&name, key);
  tdict_io_text_add_string(&name, ".memmap");
  const tdict_zip_new file = {.tensor = tensor, .tensor_name = entry->path, .alignment = ALIGNMENT};
  tdict_status status =
      name.has_failed ? tdict_listing_no_memory(&c->out->list, err) : add_file(c, name.bytes, file, err);
  tdict_io_text_reset(&name);
  return status;
}

/* Writes the members of a tree's meta.json that follow the entries of the tree. */
static void end_tree(tdict_io_text *meta, const tdict_tree *tree, bool has_keys_of_format[2], const char *mark) {
  tdict_io_text_add_string(meta, "\"shape\": ");
  tdict_io_text_add_sizes(meta, ", ", tdict_batch_ndim(tree), tdict_batch_size(tree));
  tdict_io_text_format(meta, ", \"device\": \"cpu\", %s", tree_class);
  /* Like TensorDict, keep the entry of a key that is named like a member of the format. */
  if (!has_keys_of_format[0]) tdict_io_text_format(meta, ", \"_format_version\": %d", TDICT_TD_FORMAT_VERSION);
  if (!has_keys_of_format[1]) tdict_io_text_add_string(meta, ", \"_class\": \"tensordict:TensorDict\"");
  tdict_io_text_format(meta, "%s}", mark);
}

static tdict_status collect_ragged(collector *c, const tdict_listed *entry, tdict_error *err) {
  tdict_io_text meta = {0};
  tdict_io_text_add(&meta, "{", 1);
  tdict_status status = add_tensor(c, entry, "values", entry->tensor, &meta, err);
  if (status == TDICT_OK) status = add_tensor(c, entry, "offsets", entry->offsets, &meta, err);
  end_tree(&meta, entry->tree, (bool[2]){false, false}, ", \"tdict\": \"ragged\"");
  if (status == TDICT_OK) status = add_meta(c, entry, &meta, err);
  tdict_io_text_reset(&meta);
  return status;
}

/* Writes the values of a column as nested lists. *next is the number of the next value. */
static tdict_status add_list(collector *c, const tdict_listed *entry, int dim, int64_t *next, tdict_io_text *to,
                             tdict_error *err) {
  const int64_t *shape;
  tdict_status status = TDICT_OK;
  if (dim == tdict_nontensor_shape(entry->values, &shape))
    return tdict_listing_add_value(&c->out->list, entry, (*next)++, tdict_td_add_value_json, to, err);
  tdict_io_text_add(to, "[", 1);
  for (int64_t i = 0; i < shape[dim] && status == TDICT_OK; i++) {
    if (i) tdict_io_text_add(to, ",", 1);
    status = add_list(c, entry, dim + 1, next, to, err);
  }
  tdict_io_text_add(to, "]", 1);
  return status;
}

static tdict_status collect_values(collector *c, const tdict_listed *entry, tdict_error *err) {
  tdict_io_text meta = {0};
  int64_t next = 0;
  const bool is_column = tdict_nontensor_shape(entry->values, NULL) > 0;
  tdict_io_text_add_string(
      &meta, is_column ? "{\"_type\":\"<class 'tensordict.tensorclass.NonTensorStack'>\",\"_format_version\":1,"
                         "\"_class\":\"tensordict:NonTensorStack\",\"stack_dim\":0,\"device\":null,\"data\":"
                       : "{\"_type\": \"<class 'tensordict.tensorclass.NonTensorData'>\", \"data\": ");
  tdict_status status = add_list(c, entry, 0, &next, &meta, err);
  tdict_io_text_add_string(&meta, is_column ? "}" : ", \"_metadata\": null, \"_is_non_tensor\": true}");
  if (status == TDICT_OK) status = add_meta(c, entry, &meta, err);
  tdict_io_text_reset(&meta);
  return status;
}

/* Checks that the folder of a key such as `x.memmap` has not the name of the file of a tensor `x`. */
static tdict_status check_folder(collector *c, const tdict_listed *folder, tdict_error *err) {
  static const char end[] = ".memmap";
  tdict_listing *list = &c->out->list;
  const size_t stem = strlen(folder->key) - (sizeof end - 1);
  const char *path;
  tdict_entry other;
  if (strlen(folder->key) < sizeof end || strcmp(folder->key + stem, end) != 0) return TDICT_OK;
  /* In the path, a backslash stands before the dot. */
  tdict_status status =
      tdict_contents_copy_text(&list->contents, folder->path, strlen(folder->path) - sizeof end, &path, err);
  if (status != TDICT_OK) return status;
  const bool exists = tdict_get_entry(list->entries[0].tree, path, &other, NULL) == TDICT_OK &&
                      (other.tensor || other.type == tdict_unbatched_type());
  return exists
             ? tdict_listing_refuse(list, folder, "the folder of the key has the name of the file of another key", err)
             : TDICT_OK;
}

/* Enters the folder of a key and collects the entry, which is a tree, values or a ragged leaf. */
static tdict_status collect_folder(collector *c, const tdict_listed *entry, tdict_error *err) {
  const size_t length = c->folder.length;
  tdict_td_add_name(&c->folder, entry->key);
  if (c->folder.has_failed) return tdict_listing_no_memory(&c->out->list, err);
  const char *name = c->folder.bytes + length;
  if (strcmp(name, "meta.json") == 0 || strcmp(name, ".meta.json.append.tmp") == 0)
    return tdict_listing_refuse(&c->out->list, entry, "a folder cannot be named meta.json or .meta.json.append.tmp",
                                err);
  tdict_status status = check_folder(c, entry, err);
  tdict_io_text_add(&c->folder, "/", 1);
  if (status == TDICT_OK)
    status = entry->kind == TDICT_ITEM_TREE     ? collect_tree(c, entry, err)
             : entry->kind == TDICT_ITEM_VALUES ? collect_values(c, entry, err)
                                                : collect_ragged(c, entry, err);
  tdict_io_text_cut(&c->folder, length);
  return status;
}

/* Collects an entry, and writes the part of the tree's meta.json that describes the entry. */
static tdict_status collect_entry(collector *c, const tdict_listed *entry, tdict_io_text *meta, tdict_error *err) {
  const char *type = "TensorDict", *key = entry->key;
  if (strcmp(key, "shape") == 0 || strcmp(key, "device") == 0 || strcmp(key, "_type") == 0)
    return tdict_listing_refuse(&c->out->list, entry,
                                "TensorDict's directories reserve the keys shape, device and _type", err);
  if (entry->kind == TDICT_ITEM_TENSOR || entry->kind == TDICT_ITEM_UNBATCHED)
    return add_tensor(c, entry, key, entry->tensor, meta, err);
  if (entry->kind == TDICT_ITEM_VALUES)
    type = tdict_nontensor_shape(entry->values, NULL) ? "NonTensorStack" : "NonTensorData";
  tdict_td_add_string(meta, key);
  tdict_io_text_format(meta, ": {\"type\": \"%s\"}, ", type);
  return collect_folder(c, entry, err);
}

/* Collects the entries of a tree. The recursion is limited by TDICT_IO_MAX_DEPTH. */
static tdict_status collect_tree(collector *c, const tdict_listed *tree, tdict_error *err) {
  const tdict_listed *entries = c->out->list.entries;
  bool has_keys_of_format[2] = {false, false};
  tdict_io_text meta = {0};
  tdict_status status = TDICT_OK;
  tdict_io_text_add(&meta, "{", 1);
  for (const tdict_listed *e = tree + 1; e < entries + tree->end && status == TDICT_OK; e = entries + e->end) {
    has_keys_of_format[0] |= strcmp(e->key, "_format_version") == 0;
    has_keys_of_format[1] |= strcmp(e->key, "_class") == 0;
    status = collect_entry(c, e, &meta, err);
  }
  end_tree(&meta, tree->tree, has_keys_of_format, "");
  if (status == TDICT_OK) status = add_meta(c, tree, &meta, err);
  tdict_io_text_reset(&meta);
  return status;
}

/* Orders files: in each folder meta.json, then the other files, then the folders. */
static int compare_files(const void *a, const void *b) {
  const char *x = ((const tdict_zip_new *)a)->name, *y = ((const tdict_zip_new *)b)->name;
  size_t same = 0;
  for (size_t i = 0; x[i] && x[i] == y[i]; i++)
    if (x[i] == '/') same = i + 1;
  const bool x_is_folder = strchr(x + same, '/') != NULL, y_is_folder = strchr(y + same, '/') != NULL;
  if (x_is_folder != y_is_folder) return x_is_folder ? 1 : -1;
  if (x_is_folder) {
    /* Without the slash, since with it "a-b/" would come before "a/": '-' is less than '/'. */
    const size_t m = strcspn(x + same, "/"), n = strcspn(y + same, "/");
    const int order = memcmp(x + same, y + same, m < n ? m : n);
    return order ? order : m < n ? -1 : 1;
  }
  const bool x_is_meta = strcmp(x + same, "meta.json") == 0, y_is_meta = strcmp(y + same, "meta.json") == 0;
  return x_is_meta != y_is_meta ? (x_is_meta ? -1 : 1) : strcmp(x + same, y + same);
}

tdict_status tdict_td_collect(tdict_td_new_files *out, const tdict_save_request *request, tdict_error *err) {
  static const tdict_format_rules rules = {"TensorDict's formats have", tdict_torch_name, false};
  collector c = {.out = out};
  *out = (tdict_td_new_files){.count = 0};
  tdict_status status = tdict_listing_make(&out->list, request, &rules, err);
  if (status == TDICT_OK) status = collect_tree(&c, out->list.entries, err);
  if (status == TDICT_OK) qsort(out->files, out->count, sizeof *out->files, compare_files);
  tdict_io_text_reset(&c.folder);
  return status;
}

void tdict_td_new_files_reset(tdict_td_new_files *files) {
  free(files->files);
  tdict_listing_reset(&files->list);
}
