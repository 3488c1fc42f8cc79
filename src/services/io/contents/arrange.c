/* Reads options, turns names into paths, selects items and renames items. See contents.h for ownership and threads. */
#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/tree/path.h"
#include "core/tree/suggest.h"
#include "services/io/contents/contents.h"
#include "tdict/path.h"

/* Checks a prefix: a path, or if `is_flat` any text that does not end with a dot. NULL and "" stand for no prefix. */
static tdict_status check_prefix(const char *what, const char *option, const char *prefix, bool is_flat,
                                 tdict_error *err) {
  char name[128];
  tdict_path path;
  if (!prefix || !prefix[0]) return TDICT_OK;
  const size_t length = strlen(prefix);
  size_t kept = length;
  while (kept && prefix[kept - 1] == '.') kept--;
  snprintf(name, sizeof name, "%s: %s '%.60s' is not a path", what, option, prefix);
  tdict_path_init(&path, prefix, name);
  /* A path may end with an escaped dot. */
  if (is_flat ? kept == length : tdict_path_check_rest(&path, NULL) == TDICT_OK) return TDICT_OK;
  if (kept == length || kept == 0) return tdict_path_check_rest(&path, err);
  return tdict_fail(err, TDICT_EINVAL, "%s: %s '%.60s' ends with a dot: write '%.*s'", what, option, prefix,
                    (int)(kept < 60 ? kept : 60), prefix);
}

tdict_status tdict_contents_options(const char *what, const tdict_open_options *given, tdict_open_options *out,
                                    tdict_error *err) {
  *out = tdict_open_options_default();
  tdict_status status = tdict_options_read(out, sizeof *out, given, "open_options", err);
  if (status == TDICT_OK && !out->keys && out->num_keys)
    return tdict_fail(err, TDICT_EINVAL, "%s: num_keys is %zu, but keys is NULL", what, out->num_keys);
  if (status == TDICT_OK) status = check_prefix(what, "strip_prefix", out->strip_prefix, out->flat, err);
  return status == TDICT_OK ? check_prefix(what, "add_prefix", out->add_prefix, out->flat, err) : status;
}

static bool is_at_or_below(const char *path, const char *prefix) {
  const size_t length = strlen(prefix);
  return strncmp(path, prefix, length) == 0 && (path[length] == 0 || path[length] == '.');
}

static size_t first_key_length(const char *path) {
  const char *at = path;
  while (*at && *at != '.') at += *at == '\\' && at[1] ? 2 : 1;
  return (size_t)(at - path);
}

/* Returns true if an item is at or below the first `length` bytes of `path`. */
static bool has_item(const tdict_contents *c, const char *path, size_t length) {
  for (size_t i = 0; i < c->num_items; i++) {
    const char *found = c->items[i].path;
    if (strncmp(found, path, length) == 0 && (found[length] == 0 || found[length] == '.')) return true;
  }
  return false;
}

/* Returns a table of the keys that the items have after the first `above` bytes of `path`, or NULL without memory. */
static tdict_keys *list_keys(const tdict_contents *c, const char *path, size_t above) {
  tdict_keys *keys = tdict_keys_create();
  for (size_t i = 0; keys && i < c->num_items; i++) {
    if (strncmp(c->items[i].path, path, above) != 0) continue;
    const char *key = c->items[i].path + above;
    const tdict_name name = tdict_name_of(key, first_key_length(key));
    if (name.length && tdict_keys_find(keys, key, name.length) < 0 && tdict_keys_append(keys, &name) < 0) break;
  }
  return keys;
}

/* Fails with TDICT_ENOTFOUND for a path that no item has. `before` and `after` are the words around the path. */
static tdict_status fail_missing(const tdict_contents *c, const char *before, const char *path, const char *after,
                                 tdict_error *err) {
  char level[96] = "", similar[112] = "";
  size_t above = 0, end = first_key_length(path);
  while (path[end] && has_item(c, path, end)) {
    above = end + 1;
    end = above + first_key_length(path + above);
  }
  const tdict_name missing = tdict_name_of(path + above, end - above);
  if (above)
    snprintf(level, sizeof level, ": '%.*s' is not a key of '%.*s'", (int)(missing.length < 30 ? missing.length : 30),
             missing.text, (int)(above < 31 ? above - 1 : 30), path);
  tdict_keys *keys = list_keys(c, path, above);
  if (keys && keys->num_live) tdict_suggest(keys, &missing, similar, sizeof similar);
  tdict_keys_release(keys);
  return tdict_fail_at(err, TDICT_ENOTFOUND, c->path, "%s: %s '%.60s'%s%s%s", c->what, before, path, after, level,
                       similar);
}

/* Orders names so that the names below a name follow this name: a dot comes before all other characters. */
static int compare_names(const void *a, const void *b) {
  const char *x = (*(const tdict_item *const *)a)->path, *y = (*(const tdict_item *const *)b)->path;
  for (; *x && *x == *y; x++) y++;
  const int left = !*x ? 0 : *x == '.' ? 1 : 2 + (unsigned char)*x;
  const int right = !*y ? 0 : *y == '.' ? 1 : 2 + (unsigned char)*y;
  return left - right;
}

/* Returns true if no key between the dots of the name is empty, and the name has at most TDICT_IO_MAX_DEPTH keys. */
static bool has_keys(const char *name) {
  int depth = 1;
  for (const char *at = name; *at; at++) {
    if (*at != '.') continue;
    if (at == name || at[1] == '.' || !at[1]) return false;
    depth++;
  }
  return depth <= TDICT_IO_MAX_DEPTH;
}

/* Turns a name into a path: one key if `is_whole` is true, else the keys between the dots. */
static tdict_status set_path(tdict_contents *c, tdict_item *item, bool is_whole, tdict_error *err) {
  const char *name = item->path;
  void *path = NULL;
  if (!strpbrk(name, is_whole ? ".\\" : "\\")) return TDICT_OK;
  tdict_status status = tdict_contents_alloc(c, 2 * strlen(name) + 1, &path, err);
  if (status != TDICT_OK) return status;
  char *to = path;
  for (const char *at = name; *at; at++) {
    if (*at == '\\' || (is_whole && *at == '.')) *to++ = '\\';
    *to++ = *at;
  }
  *to = 0;
  item->path = path;
  return TDICT_OK;
}

tdict_status tdict_contents_nest(tdict_contents *contents, tdict_error *err) {
  const size_t count = contents->num_items;
  const char *above = NULL; /* the tensor whose name begins the next names */
  tdict_status status = TDICT_OK;
  tdict_item **sorted = tdict_array_sorted(contents->items, count, sizeof *contents->items, compare_names);
  if (!sorted) return tdict_fail_memory(err, contents->what, contents->path, "%zu keys", count);
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    const char *name = sorted[i]->path;
    const bool is_below = above && is_at_or_below(name, above);
    if (!name[0])
      status = tdict_fail_at(err, TDICT_EFORMAT, contents->files[sorted[i]->span.file].path,
                             "%s: the name of a tensor is empty; the options `flat` and `add_prefix` accept the name",
                             contents->what);
    else
      status = set_path(contents, sorted[i], is_below || !has_keys(name), err);
    if (!is_below) above = name;
  }
  free((void *)sorted);
  return status;
}

/* Returns true if a selected key is at or above the item. Also returns true for the root, and for a tree above a
 * selected key. Sets matched[k] to true if key k is at or above the item. */
static bool is_selected(const tdict_item *item, const tdict_open_options *o, bool *matched) {
  bool selected = item->kind == TDICT_ITEM_TREE && !item->path[0];
  for (size_t k = 0; k < o->num_keys; k++) {
    if (is_at_or_below(item->path, o->keys[k])) {
      selected = matched[k] = true;
    } else if (item->kind == TDICT_ITEM_TREE && is_at_or_below(o->keys[k], item->path)) {
      selected = true;
    }
  }
  return selected;
}

static tdict_status select_items(tdict_contents *c, const tdict_open_options *o, tdict_error *err) {
  void *matched = NULL;
  size_t kept = 0;
  if (!o->keys) return TDICT_OK;
  for (size_t k = 0; k < o->num_keys; k++)
    if (!o->keys[k]) return tdict_fail_at(err, TDICT_EINVAL, c->path, "%s: keys[%zu] is NULL", c->what, k);
  tdict_status status = tdict_contents_alloc(c, o->num_keys + 1, &matched, err);
  if (status != TDICT_OK) return status;
  memset(matched, 0, o->num_keys + 1);
  for (size_t i = 0; i < c->num_items; i++) {
    if (!is_selected(&c->items[i], o, matched)) continue;
    const tdict_item selected = c->items[i];
    c->items[i] = c->items[kept]; /* an error lists all items */
    c->items[kept++] = selected;
  }
  for (size_t k = 0; k < o->num_keys; k++)
    if (!((bool *)matched)[k]) return fail_missing(c, "the file has no key", o->keys[k], "", err);
  c->num_items = kept;
  return TDICT_OK;
}

/* Puts the option add_prefix, if set, and a dot before `rest`. With the option `flat`, the result is one key. */
static tdict_status join(tdict_contents *c, const tdict_open_options *o, const char *rest, const char **out,
                         tdict_error *err) {
  const char *prefix = o->add_prefix ? o->add_prefix : "", *joined;
  tdict_status status = tdict_contents_format(c, &joined, err, "%s%s%s", prefix, *prefix ? "." : "", rest);
  if (status != TDICT_OK) return status;
  *out = joined;
  if (!o->flat) return TDICT_OK;
  void *key = NULL;
  const size_t bytes = tdict_path_escape(joined, NULL, 0) + 1;
  status = tdict_contents_alloc(c, bytes, &key, err);
  if (status == TDICT_OK) tdict_path_escape(joined, key, bytes);
  *out = key;
  return status;
}

/* Returns true if the tree of item `i` has a leaf outside the prefix. The leaves of a tree come after the tree. */
static bool has_other_leaf(const tdict_contents *c, size_t i, const char *strip) {
  const char *tree = c->items[i].path;
  for (size_t k = i + 1; k < c->num_items; k++) {
    const tdict_item *item = &c->items[k];
    if (item->kind != TDICT_ITEM_TREE && is_at_or_below(item->path, tree) && !is_at_or_below(item->path, strip))
      return true;
  }
  return false;
}

static tdict_status rename_items(tdict_contents *c, const tdict_open_options *o, tdict_error *err) {
  const char *strip = o->strip_prefix ? o->strip_prefix : "";
  const size_t length = strlen(strip);
  size_t kept = 0;
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < c->num_items && status == TDICT_OK; i++) {
    tdict_item item = c->items[i];
    const bool is_root = item.kind == TDICT_ITEM_TREE && !item.path[0];
    if (length && !is_root && is_at_or_below(item.path, strip)) {
      /* The entries of a tree at the prefix move to the root, so the tree itself is dropped. A leaf keeps its path. */
      if (item.path[length])
        item.path += length + 1;
      else if (item.kind == TDICT_ITEM_TREE)
        continue;
    } else if (length && !is_root && item.kind == TDICT_ITEM_TREE && is_at_or_below(strip, item.path) &&
               !has_other_leaf(c, i, strip)) {
      continue; /* all leaves of a tree above the prefix move to the root */
    }
    if (o->flat && !is_root && !item.path[0] && !(o->add_prefix && o->add_prefix[0]))
      return tdict_fail_at(err, TDICT_EFORMAT, c->files[item.span.file].path,
                           "%s: the name '%.80s' gives an empty key; the option `add_prefix` accepts the name", c->what,
                           c->items[i].path);
    if (!is_root) status = join(c, o, item.path, &item.path, err);
    c->items[kept++] = item;
  }
  c->num_items = kept;
  return status;
}

tdict_status tdict_contents_arrange(tdict_contents *contents, const tdict_open_options *options, tdict_error *err) {
  const char *strip = options->strip_prefix ? options->strip_prefix : "";
  const bool renames = options->flat || strip[0] || (options->add_prefix && options->add_prefix[0]);
  /* The file must have the prefix, but the selected part need not. */
  if (strip[0] && !has_item(contents, strip, strlen(strip)))
    return fail_missing(contents, "strip_prefix", strip, " matches no key", err);
  tdict_status status = select_items(contents, options, err);
  return status == TDICT_OK && renames ? rename_items(contents, options, err) : status;
}
