/* Makes the list of files of a tree that is written as a memory-mapped directory. See memmap.h for ownership and
 * threads. */
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/leaves/json.h"
#include "services/io/json/value.h"
#include "services/io/tensordict/memmap.h"
#include "tdict/ragged.h"
#include "tdict/unbatched.h"

static const char tree_class[] = "\"_type\": \"<class 'tensordict._td.TensorDict'>\"";
static const char ragged_mark[] = ", \"tdict\": \"ragged\"", unbatched_mark[] = ", \"tdict\": \"unbatched\"";

/* The walk of a tree. `folder` is "" or ends with a slash. `path` is the path in the tree, for messages. */
typedef struct collector {
  tdict_td_new_files *out;
  tdict_io_text folder, path;
  int depth;
} collector;

static tdict_status collect_tree(collector *c, const tdict_tree *tree, tdict_error *err);

static tdict_status fail_memory(const collector *c, tdict_error *err) {
  return tdict_fail_file(err, TDICT_ENOMEM, c->out->contents.path, "%s: no host memory for the keys of the tree",
                         c->out->contents.what);
}

static tdict_status fail_here(const collector *c, const char *why, tdict_error *err) {
  return tdict_fail_file(err, TDICT_ENOTSUP, c->path.bytes ? c->path.bytes : "", "%s: %s", c->out->contents.what, why);
}

static tdict_status add_file(collector *c, const tdict_td_new_file *file, tdict_error *err) {
  tdict_td_new_files *out = c->out;
  if (out->count == out->cap) {
    size_t bytes, cap = out->cap ? 2 * out->cap : 64;
    tdict_td_new_file *grown = tdict_mul_size(cap, sizeof *grown, &bytes) ? realloc(out->files, bytes) : NULL;
    if (!grown) return fail_memory(c, err);
    out->files = grown;
    out->cap = cap;
  }
  out->files[out->count++] = *file;
  return TDICT_OK;
}

/* Adds the meta.json of the current folder. */
static tdict_status add_meta(collector *c, const tdict_io_text *text, tdict_error *err) {
  tdict_td_new_file file = {.length = text->length};
  tdict_json_fault fault;
  const size_t length = c->folder.length;
  if (text->has_failed) return fail_memory(c, err);
  /* The file must be readable: a JSON value can exceed the maximum number of levels. */
  if (!tdict_json_is_valid(text->bytes, text->length, &fault)) return fail_here(c, fault.why, err);
  if (text->length > TDICT_TD_MAX_JSON) return fail_here(c, "the meta.json has more than 100,000,000 bytes", err);
  tdict_io_text_add_string(&c->folder, "meta.json");
  if (c->folder.has_failed) return fail_memory(c, err);
  tdict_status status = tdict_contents_copy_text(&c->out->contents, c->folder.bytes, c->folder.length, &file.path, err);
  tdict_io_text_cut(&c->folder, length);
  if (status == TDICT_OK)
    status = tdict_contents_copy_text(&c->out->contents, text->bytes, text->length, &file.text, err);
  return status == TDICT_OK ? add_file(c, &file, err) : status;
}

/* Writes the entry of a tensor, and adds the file of a tensor that has elements. */
static tdict_status add_tensor(collector *c, const char *key, const tdict_tensor *tensor, const char *mark,
                               tdict_io_text *meta, tdict_error *err) {
  char text[TDICT_DTYPE_TEXT_BYTES], why[96];
  const char *dtype = tdict_torch_name(tdict_tensor_dtype(tensor));
  tdict_td_new_file file = {.tensor = tensor};
  const size_t length = c->folder.length;
  if (!dtype) {
    snprintf(why, sizeof why, "TensorDict's formats have no dtype for %s",
             tdict_dtype_format(tdict_tensor_dtype(tensor), text, sizeof text));
    return fail_here(c, why, err);
  }
  tdict_td_add_string(meta, key);
  tdict_io_text_add_string(meta, ": {\"device\": \"cpu\", \"shape\": ");
  tdict_td_add_sizes(meta, tdict_tensor_ndim(tensor), tdict_tensor_shape(tensor));
  tdict_io_text_format(meta, ", \"dtype\": \"%s\", \"is_nested\": false%s}, ", dtype, mark);
  if (tdict_tensor_bytes(tensor) == 0) return TDICT_OK;
  tdict_td_add_name(&c->folder, key);
  tdict_io_text_add_string(&c->folder, ".memmap");
  if (c->folder.has_failed) return fail_memory(c, err);
  tdict_status status = tdict_contents_copy_text(&c->out->contents, c->folder.bytes, c->folder.length, &file.path, err);
  if (status == TDICT_OK)
    status = tdict_contents_copy_text(&c->out->contents, c->path.bytes, c->path.length, &file.name, err);
  tdict_io_text_cut(&c->folder, length);
  return status == TDICT_OK ? add_file(c, &file, err) : status;
}

/* Writes the members of a tree's meta.json that follow the entries of the tree. */
static void end_tree(tdict_io_text *meta, const tdict_tree *tree, bool has_keys_of_format[2], const char *mark) {
  tdict_io_text_add_string(meta, "\"shape\": ");
  tdict_td_add_sizes(meta, tdict_batch_ndim(tree), tdict_batch_size(tree));
  tdict_io_text_format(meta, ", \"device\": \"cpu\", %s", tree_class);
  /* Like TensorDict, keep the entry of a key that is named like a member of the format. */
  if (!has_keys_of_format[0]) tdict_io_text_format(meta, ", \"_format_version\": %d", TDICT_TD_FORMAT_VERSION);
  if (!has_keys_of_format[1]) tdict_io_text_add_string(meta, ", \"_class\": \"tensordict:TensorDict\"");
  tdict_io_text_format(meta, "%s}", mark);
}

static tdict_status collect_ragged(collector *c, const tdict_tree *tree, const tdict_ragged *ragged, tdict_error *err) {
  tdict_io_text meta = {0};
  tdict_io_text_add(&meta, "{", 1);
  tdict_status status = add_tensor(c, "values", tdict_ragged_get_info(ragged).values, "", &meta, err);
  if (status == TDICT_OK) status = add_tensor(c, "offsets", tdict_ragged_get_info(ragged).offsets, "", &meta, err);
  end_tree(&meta, tree, (bool[2]){false, false}, ragged_mark);
  if (status == TDICT_OK) status = add_meta(c, &meta, err);
  tdict_io_text_reset(&meta);
  return status;
}

static tdict_status add_value(collector *c, const tdict_nontensor *values, int64_t i, tdict_io_text *to,
                              tdict_error *err) {
  tdict_value value;
  const char *why;
  tdict_status status = tdict_nontensor_get(values, i, &value, err);
  if (status != TDICT_OK) return status;
  status = tdict_td_add_value_json(to, &value, &why);
  if (status == TDICT_ENOTSUP) return fail_here(c, why, err);
  return status == TDICT_OK ? TDICT_OK : fail_memory(c, err);
}

/* Writes the values of a column as nested lists. *next is the number of the next value. */
static tdict_status add_list(collector *c, const tdict_nontensor *values, int dim, int64_t *next, tdict_io_text *to,
                             tdict_error *err) {
  const int64_t *shape;
  tdict_status status = TDICT_OK;
  if (dim == tdict_nontensor_shape(values, &shape)) return add_value(c, values, (*next)++, to, err);
  tdict_io_text_add(to, "[", 1);
  for (int64_t i = 0; i < shape[dim] && status == TDICT_OK; i++) {
    if (i) tdict_io_text_add(to, ",", 1);
    status = add_list(c, values, dim + 1, next, to, err);
  }
  tdict_io_text_add(to, "]", 1);
  return status;
}

static tdict_status collect_values(collector *c, const tdict_nontensor *values, tdict_error *err) {
  tdict_io_text meta = {0};
  int64_t next = 0;
  const bool is_column = tdict_nontensor_shape(values, NULL) > 0;
  tdict_io_text_add_string(
      &meta, is_column ? "{\"_type\":\"<class 'tensordict.tensorclass.NonTensorStack'>\",\"_format_version\":1,"
                         "\"_class\":\"tensordict:NonTensorStack\",\"stack_dim\":0,\"device\":null,\"data\":"
                       : "{\"_type\": \"<class 'tensordict.tensorclass.NonTensorData'>\", \"data\": ");
  tdict_status status = add_list(c, values, 0, &next, &meta, err);
  tdict_io_text_add_string(&meta, is_column ? "}" : ", \"_metadata\": null, \"_is_non_tensor\": true}");
  if (status == TDICT_OK) status = add_meta(c, &meta, err);
  tdict_io_text_reset(&meta);
  return status;
}

/* Checks that no tensor of the tree has a file with the name of the folder. The folder of the key `x.memmap` has the
 * name of the file of the tensor `x`. */
static tdict_status check_folder(collector *c, const tdict_tree *tree, const char *key, tdict_error *err) {
  static const char end[] = ".memmap";
  const size_t length = strlen(key), stem = length - (sizeof end - 1);
  tdict_entry entry;
  char *name, *path;
  if (length < sizeof end || strcmp(key + stem, end) != 0) return TDICT_OK;
  name = strndup(key, stem);
  path = malloc(2 * stem + 1);
  const bool has_memory = name && path;
  bool exists = false;
  if (has_memory) {
    tdict_path_escape(name, path, 2 * stem + 1);
    exists =
        tdict_get_entry(tree, path, &entry, NULL) == TDICT_OK && (entry.tensor || entry.type == tdict_unbatched_type());
  }
  free(path);
  free(name);
  if (!has_memory) return fail_memory(c, err);
  return exists ? fail_here(c, "the folder of the key has the name of the file of another key", err) : TDICT_OK;
}

/* Enters the folder of a key and collects the entry, which is a tree, values or a ragged leaf. */
static tdict_status collect_folder(collector *c, const tdict_tree *tree, const tdict_entry *entry, tdict_error *err) {
  const size_t length = c->folder.length;
  tdict_td_add_name(&c->folder, entry->key);
  if (c->folder.has_failed) return fail_memory(c, err);
  const char *name = c->folder.bytes + length;
  if (strcmp(name, "meta.json") == 0 || strcmp(name, ".meta.json.append.tmp") == 0)
    return fail_here(c, "a folder cannot be named meta.json or .meta.json.append.tmp", err);
  tdict_status status = check_folder(c, tree, entry->key, err);
  if (status != TDICT_OK) return status;
  tdict_io_text_add(&c->folder, "/", 1);
  if (c->folder.has_failed) return fail_memory(c, err);
  status = entry->tree                             ? collect_tree(c, entry->tree, err)
           : entry->type == tdict_nontensor_type() ? collect_values(c, entry->object, err)
                                                   : collect_ragged(c, tree, entry->object, err);
  tdict_io_text_cut(&c->folder, length);
  return status;
}

/* Collects the entry at the current path, and writes the part of the tree's meta.json that describes the entry. */
static tdict_status collect_entry(collector *c, const tdict_tree *tree, const tdict_entry *entry, tdict_io_text *meta,
                                  tdict_error *err) {
  const char *type = "TensorDict";
  if (entry->tensor) return add_tensor(c, entry->key, entry->tensor, "", meta, err);
  if (entry->type == tdict_unbatched_type()) {
    tdict_tensor *tensor = NULL;
    tdict_status status = tdict_get_unbatched(tree, entry->path, &tensor, err);
    return status == TDICT_OK ? add_tensor(c, entry->key, tensor, unbatched_mark, meta, err) : status;
  }
  if (entry->object && entry->type != tdict_nontensor_type() && entry->type != tdict_ragged_type()) {
    char why[128];
    snprintf(why, sizeof why, "an object of type %.60s cannot be written", entry->type->name);
    return fail_here(c, why, err);
  }
  if (entry->object && entry->type == tdict_nontensor_type())
    type = tdict_nontensor_shape(entry->object, NULL) ? "NonTensorStack" : "NonTensorData";
  tdict_td_add_string(meta, entry->key);
  tdict_io_text_format(meta, ": {\"type\": \"%s\"}, ", type);
  return collect_folder(c, tree, entry, err);
}

/* Adds the key to the path for messages. Sets *escaped to the start of the escaped key. Returns an error if the key is
 * not UTF-8 or is reserved by TensorDict. */
static tdict_status push_key(collector *c, const char *key, size_t *escaped, tdict_error *err) {
  static const char *const reserved[] = {"shape", "device", "_type"};
  const size_t length = strlen(key), bytes = tdict_path_escape(key, NULL, 0) + 1;
  if (c->path.length) tdict_io_text_add(&c->path, ".", 1);
  *escaped = c->path.length;
  char *to = tdict_io_text_reserve(&c->path, bytes);
  if (!to) return fail_memory(c, err);
  tdict_path_escape(key, to, bytes);
  c->path.length += bytes - 1;
  if (tdict_utf8_length(key, length) != length) return fail_here(c, "the key is not UTF-8", err);
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
    if (strcmp(key, reserved[i]) == 0)
      return fail_here(c, "TensorDict's directories reserve the keys shape, device and _type", err);
  return TDICT_OK;
}

static tdict_status collect_keys(collector *c, const tdict_tree *tree, tdict_io_text *meta, tdict_error *err) {
  const size_t length = c->path.length, count = tdict_num_keys(tree);
  bool has_keys_of_format[2] = {false, false};
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    tdict_entry entry = tdict_get_entry_at(tree, i);
    size_t escaped = 0;
    status = push_key(c, entry.key, &escaped, err);
    if (status != TDICT_OK) return status;
    has_keys_of_format[0] |= strcmp(entry.key, "_format_version") == 0;
    has_keys_of_format[1] |= strcmp(entry.key, "_class") == 0;
    entry.path = c->path.bytes + escaped;
    status = collect_entry(c, tree, &entry, meta, err);
    tdict_io_text_cut(&c->path, length);
  }
  end_tree(meta, tree, has_keys_of_format, "");
  return status;
}

/* Collects the entries of a tree. The recursion is limited by TDICT_IO_MAX_DEPTH. */
static tdict_status collect_tree(collector *c, const tdict_tree *tree, tdict_error *err) {
  tdict_io_text meta = {0};
  if (c->depth == TDICT_IO_MAX_DEPTH) return fail_here(c, "more than 128 nested trees", err);
  tdict_io_text_add(&meta, "{", 1);
  c->depth++;
  tdict_status status = collect_keys(c, tree, &meta, err);
  c->depth--;
  if (status == TDICT_OK) status = add_meta(c, &meta, err);
  tdict_io_text_reset(&meta);
  return status;
}

/* Orders files: in each folder meta.json, then the other files, then the folders. */
static int compare_files(const void *a, const void *b) {
  const char *x = ((const tdict_td_new_file *)a)->path, *y = ((const tdict_td_new_file *)b)->path;
  size_t same = 0;
  for (size_t i = 0; x[i] && x[i] == y[i]; i++)
    if (x[i] == '/') same = i + 1;
  const bool x_is_folder = strchr(x + same, '/') != NULL, y_is_folder = strchr(y + same, '/') != NULL;
  if (x_is_folder != y_is_folder) return x_is_folder ? 1 : -1;
  if (x_is_folder) {
    /* Compare the names without the slash. With the slash, "a-b/" would come before "a/", because '-' is less than '/'.
     */
    const size_t m = strcspn(x + same, "/"), n = strcspn(y + same, "/");
    const int order = memcmp(x + same, y + same, m < n ? m : n);
    return order ? order : m < n ? -1 : 1;
  }
  const bool x_is_meta = strcmp(x + same, "meta.json") == 0, y_is_meta = strcmp(y + same, "meta.json") == 0;
  return x_is_meta != y_is_meta ? (x_is_meta ? -1 : 1) : strcmp(x + same, y + same);
}

tdict_status tdict_td_collect(tdict_td_new_files *out, const tdict_tree *tree, tdict_error *err) {
  collector c = {.out = out};
  tdict_status status = collect_tree(&c, tree, err);
  if (status == TDICT_OK && c.path.has_failed) status = fail_memory(&c, err);
  if (status == TDICT_OK) qsort(out->files, out->count, sizeof *out->files, compare_files);
  tdict_io_text_reset(&c.folder);
  tdict_io_text_reset(&c.path);
  return status;
}

void tdict_td_new_files_reset(tdict_td_new_files *files) {
  free(files->files);
  files->files = NULL;
  files->count = files->cap = 0;
  tdict_contents_close(&files->contents);
}
