/* Reads options, turns names into paths, selects items and renames items. See contents.h for ownership and threads. */
#include <string.h>

#include "base/error.h"
#include "base/options.h"
#include "io/contents.h"

tdict_status tdict_contents_options(const char *what, const tdict_open_options *given, tdict_open_options *out,
                                    tdict_error *err) {
  *out = tdict_open_options_default();
  tdict_status status = tdict_options_read(out, sizeof *out, given, "open_options", err);
  if (status == TDICT_OK && !out->keys && out->num_keys)
    return tdict_fail(err, TDICT_EINVAL, "%s: num_keys is %zu, but keys is NULL", what, out->num_keys);
  return status;
}

/* Returns true if `path` is `prefix` or begins with `prefix` and a dot. */
static bool is_at_or_below(const char *path, const char *prefix) {
  const size_t length = strlen(prefix);
  return strncmp(path, prefix, length) == 0 && (path[length] == 0 || path[length] == '.');
}

/* Checks the keys of a name, and counts the backslashes. */
static tdict_status check_name(const tdict_contents *c, const tdict_item *item, size_t *backslashes, tdict_error *err) {
  size_t depth = 1, length = 0;
  bool is_bad = false;
  for (const char *at = item->path; *at && !is_bad; at++) {
    *backslashes += *at == '\\';
    if (*at != '.') {
      length++;
      continue;
    }
    is_bad = length == 0 || at[1] == 0;
    depth++;
    length = 0;
  }
  const char *file = c->files[item->span.file].path;
  if (is_bad || !item->path[0])
    return tdict_fail_file(err, TDICT_EFORMAT, file,
                           "%s: the name '%.80s' has an empty key; the option `flat` accepts all names except ''",
                           c->what, item->path);
  if (depth <= TDICT_IO_MAX_DEPTH) return TDICT_OK;
  return tdict_fail_file(err, TDICT_EFORMAT, file,
                         "%s: the name '%.60s' has %zu keys, wanted at most %d; the option `flat` accepts the name",
                         c->what, item->path, depth, TDICT_IO_MAX_DEPTH);
}

tdict_status tdict_contents_nest(tdict_contents *contents, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < contents->num_items && status == TDICT_OK; i++) {
    tdict_item *item = &contents->items[i];
    size_t backslashes = 0;
    void *path = NULL;
    status = check_name(contents, item, &backslashes, err);
    if (status != TDICT_OK || !backslashes) continue;
    status = tdict_contents_alloc(contents, strlen(item->path) + backslashes + 1, &path, err);
    if (status != TDICT_OK) continue;
    char *to = path;
    for (const char *at = item->path; *at; at++) {
      if (*at == '\\') *to++ = '\\';
      *to++ = *at;
    }
    *to = 0;
    item->path = path;
  }
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
    if (!o->keys[k]) return tdict_fail_file(err, TDICT_EINVAL, c->path, "%s: keys[%zu] is NULL", c->what, k);
  tdict_status status = tdict_contents_alloc(c, o->num_keys + 1, &matched, err);
  if (status != TDICT_OK) return status;
  memset(matched, 0, o->num_keys + 1);
  for (size_t i = 0; i < c->num_items; i++)
    if (is_selected(&c->items[i], o, matched)) c->items[kept++] = c->items[i];
  c->num_items = kept;
  for (size_t k = 0; k < o->num_keys; k++)
    if (!((bool *)matched)[k])
      return tdict_fail_file(err, TDICT_ENOTFOUND, c->path, "%s: the file has no key '%.150s'", c->what, o->keys[k]);
  return TDICT_OK;
}

/* Puts the option add_prefix, if set, and a dot before `rest`. If the option `flat` is true, escapes the result as one
 * key. */
static tdict_status join(tdict_contents *c, const tdict_open_options *o, const char *rest, const char **out,
                         tdict_error *err) {
  const char *prefix = o->add_prefix ? o->add_prefix : "";
  void *joined = NULL;
  const size_t length = strlen(prefix) + strlen(rest) + 2;
  tdict_status status = tdict_contents_alloc(c, length, &joined, err);
  if (status != TDICT_OK) return status;
  snprintf(joined, length, "%s%s%s", prefix, *prefix ? "." : "", rest);
  *out = joined;
  if (!o->flat) return TDICT_OK;
  void *key = NULL;
  const size_t bytes = tdict_path_escape(joined, NULL, 0) + 1;
  status = tdict_contents_alloc(c, bytes, &key, err);
  if (status == TDICT_OK) tdict_path_escape(joined, key, bytes);
  *out = key;
  return status;
}

/* Returns true if the tree of item `i` has a leaf that is not at or below the prefix. In the list of items, the leaves
 * of a tree come after the tree. */
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
      return tdict_fail_file(err, TDICT_EFORMAT, c->files[item.span.file].path,
                             "%s: the name '%.80s' gives an empty key; the option `add_prefix` accepts the name",
                             c->what, c->items[i].path);
    if (!is_root) status = join(c, o, item.path, &item.path, err);
    c->items[kept++] = item;
  }
  c->num_items = kept;
  return status;
}

tdict_status tdict_contents_arrange(tdict_contents *contents, const tdict_open_options *options, tdict_error *err) {
  tdict_status status = select_items(contents, options, err);
  const bool renames = options->flat || (options->strip_prefix && options->strip_prefix[0]) ||
                       (options->add_prefix && options->add_prefix[0]);
  return status == TDICT_OK && renames ? rename_items(contents, options, err) : status;
}
