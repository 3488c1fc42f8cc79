/* Makes the tree of the option --batch, see batch.h. Owns no data. Thread rule: one thread. */
#include "batch.h"

#include <string.h>
#include <unistd.h>

#include "support/tree_text.h"
#include "tdict/io.h"

/* Adds a new leaf to the tree. */
static tdict_status add_leaf(tdict_tree *tree, const char *path, tdict_tensor *leaf, tdict_error *err) {
  const tdict_status status = tdict_set(tree, path, leaf, err);
  tdict_tensor_release(leaf);
  return status;
}

/* Returns the dtype of a name such as "float32", or 0. */
static tdict_dtype dtype_named(const char *name) {
  static const tdict_dtype all[] = {TDICT_BOOL, TDICT_I8,  TDICT_I16,  TDICT_I32,    TDICT_I64,   TDICT_U8,
                                    TDICT_U16,  TDICT_U32, TDICT_U64,  TDICT_F16,    TDICT_BF16,  TDICT_F32,
                                    TDICT_F64,  TDICT_C64, TDICT_C128, TDICT_F8E4M3, TDICT_F8E5M2};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (strcmp(name, tdict_dtype_name(all[i])) == 0) return all[i];
  return 0;
}

/* Adds the leaf that an object {"path": ..., "dtype": ..., "shape": [...]} describes. Other entries, such as trees, are
 * left out. */
static bool add_described(tdict_tree *tree, json_t *entry, const char *file) {
  const char *path = NULL, *dtype = NULL, *kind = "tensor";
  json_t *shape = NULL, *size;
  int64_t sizes[TDICT_MAX_NDIM];
  size_t d;
  tdict_tensor *leaf = NULL;
  json_unpack(entry, "{s?s, s?s, s?s, s?o}", "path", &path, "dtype", &dtype, "kind", &kind, "shape", &shape);
  if (strcmp(kind, "tensor") != 0) return true;
  if (!path || !dtype || !dtype_named(dtype) || !json_is_array(shape) || json_array_size(shape) > TDICT_MAX_NDIM) {
    bench_print_error("%s: the entry '%s' has no path, known dtype or shape", file, path ? path : "?");
    return false;
  }
  json_array_foreach(shape, d, size) sizes[d] = json_integer_value(size);
  return bench_ok(path, tdict_tensor_empty(dtype_named(dtype), (int)d, sizes, NULL, &leaf, err)) &&
         bench_ok(path, add_leaf(tree, path, leaf, err));
}

static bool read_json(const char *file, tdict_tree *tree) {
  json_error_t cause;
  json_t *all = json_load_file(file, 0, &cause), *entries = json_object_get(all, "entries"), *entry;
  bool good = json_is_array(entries);
  size_t i;
  if (!all)
    bench_print_error("%s: line %d: %s", file, cause.line, cause.text);
  else if (!good)
    bench_print_error("%s: has no list \"entries\", as tdict inspect --json prints", file);
  json_array_foreach(entries, i, entry) good = good && add_described(tree, entry, file);
  json_decref(all);
  return good;
}

static tdict_status add_copy(void *user, const tdict_entry *entry, tdict_error *err) {
  tdict_tensor *leaf = NULL;
  if (!entry->tensor) return TDICT_OK;
  const tdict_status status = tdict_tensor_clone(entry->tensor, NULL, &leaf, err);
  return status == TDICT_OK ? add_leaf(user, entry->path, leaf, err) : status;
}

static bool read_file(const char *file, tdict_tree *tree) {
  scoped_tree opened = NULL;
  return bench_ok("--batch", tdict_open(file, NULL, &opened, err)) &&
         bench_ok(file, tdict_walk(opened, add_copy, tree, err));
}

bool batch_make(check_source *s, const char *text, int64_t most) {
  const size_t length = strlen(text);
  const bool is_json = length > 5 && strcmp(text + length - 5, ".json") == 0;
  const bool is_file = access(text, F_OK) == 0 || is_json || !strchr(text, ':');
  tdict_tree *tree = NULL;
  bool good = is_file ? bench_ok("--batch", tdict_create(0, NULL, &tree, err))
                      : bench_ok("--batch", tree_from_text(text, NULL, &tree, err));
  if (good && is_file)
    good = is_json && !strstr(text, ".safetensors.index.json") ? read_json(text, tree) : read_file(text, tree);
  if (!good) {
    tdict_release(tree);
    return false;
  }
  if (!check_source_adopt(s, tree, most)) return false;
  s->keeps_elements = is_file && !is_json;
  if (s->total_bytes > 0) return true;
  bench_print_error("--batch: '%s' has no tensor with elements", text);
  check_source_free(s);
  return false;
}
