/* Reads patterns, lists of keys and stars in one allocation, and matches paths. See patterns.h for threads. */
#include "engine/options/patterns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/tree/path.h"
#include "core/tree/suggest.h"

typedef enum segment_kind { SEGMENT_KEY, SEGMENT_ANY_KEY, SEGMENT_ANY_KEYS } segment_kind;
/* A segment of a pattern: a key, `*` or `**`. */
typedef struct pattern_segment {
  const char *key; /* points into `text`; unescaped, without a zero byte at the end */
  size_t length;
  segment_kind kind;
} pattern_segment;

typedef struct pattern {
  size_t end;       /* the index in `segments` after the last segment of the pattern */
  const char *text; /* the program's text, borrowed for the call */
  bool is_optional, has_matched;
} pattern;

struct tdict_patterns {
  char what[64];       /* the public call and the option, for messages */
  size_t count;        /* number of patterns */
  int64_t num_matches; /* entries for which tdict_patterns_find() found a pattern */
  pattern *list;
  char *text;                 /* the unescaped keys */
  pattern_segment segments[]; /* the segments of all patterns, one pattern after another */
};

/* Allocates space for the segments of all patterns. A pattern has at most as many segments as bytes. */
static tdict_patterns *new_patterns(const char *const *patterns, size_t count) {
  size_t bytes = 0, segments_bytes, list_bytes, all;
  for (size_t i = 0; i < count; i++)
    if (!tdict_add_size(bytes, strlen(patterns[i]), &bytes)) return NULL;
  if (!tdict_mul_size(bytes, sizeof(pattern_segment), &segments_bytes) ||
      !tdict_mul_size(count, sizeof(pattern), &list_bytes) || !tdict_add_size(bytes, list_bytes, &all) ||
      !tdict_add_size(all, segments_bytes, &all) || !tdict_add_size(all, sizeof(tdict_patterns), &all))
    return NULL;
  tdict_patterns *made = malloc(all);
  if (!made) return NULL;
  made->count = 0;
  made->num_matches = 0;
  made->list = (pattern *)(void *)(made->segments + bytes);
  made->text = (char *)(made->list + count);
  return made;
}

/* Returns true if the escaped key has a star that no backslash escapes. */
static bool has_star(const char *begin, const char *end) {
  for (const char *c = begin; c < end; c++) {
    if (*c == '\\')
      c++;
    else if (*c == '*')
      return true;
  }
  return false;
}

/* Reads the segments of one pattern. Writes the keys to *text and advances *text. */
static tdict_status read_pattern(tdict_patterns *made, size_t first, tdict_path *path, char **text, tdict_error *err) {
  size_t at = first;
  do {
    tdict_status status = tdict_path_next(path, err);
    if (status != TDICT_OK) return status;
    const char *end = path->last ? path->end : path->rest - 1;
    const size_t length = (size_t)(end - path->begin);
    pattern_segment *segment = &made->segments[at++];
    *segment = (pattern_segment){*text, path->name.length, SEGMENT_KEY};
    if (length <= 2 && strncmp(path->begin, "**", length) == 0) {
      segment->kind = length == 1 ? SEGMENT_ANY_KEY : SEGMENT_ANY_KEYS;
      continue;
    }
    if (has_star(path->begin, end))
      return tdict_error_at(
          err, tdict_fail(err, TDICT_EINVAL, "%s: a star is a part of a key: wanted * or ** alone, or \\*", path->what),
          path->whole);
    memcpy(*text, path->name.text, segment->length);
    *text += segment->length;
  } while (!path->last);
  made->list[made->count++].end = at;
  return TDICT_OK;
}

tdict_status tdict_patterns_create(const char *what, const char *const *patterns, size_t count, tdict_patterns **out,
                                   tdict_error *err) {
  if (!patterns) return tdict_fail(err, TDICT_EINVAL, "%s is NULL, wanted %zu patterns", what, count);
  for (size_t i = 0; i < count; i++)
    if (!patterns[i]) return tdict_fail(err, TDICT_EINVAL, "%s[%zu] is NULL", what, i);
  tdict_patterns *made = new_patterns(patterns, count);
  if (!made) return tdict_fail_memory(err, what, NULL, "%zu patterns", count);
  tdict_status status = TDICT_OK;
  char *text = made->text;
  snprintf(made->what, sizeof made->what, "%s", what);
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    char name[64];
    tdict_path path;
    const bool is_optional = patterns[i][0] == '?';
    snprintf(name, sizeof name, "%s[%zu]", what, i);
    made->list[i] = (pattern){.text = patterns[i], .is_optional = is_optional};
    tdict_path_init(&path, patterns[i] + is_optional, name);
    status = read_pattern(made, i ? made->list[i - 1].end : 0, &path, &text, err);
    tdict_path_reset(&path);
  }
  return TDICT_HAND_OVER(status, made, out, free);
}

void tdict_patterns_destroy(tdict_patterns *patterns) { free(patterns); }

static bool segment_matches(const pattern_segment *segment, const tdict_cursor *cursor, size_t level) {
  const tdict_frame *frame = &cursor->frames[level];
  const tdict_key *key = &frame->node->keys->slots[frame->slot - 1];
  if (segment->kind == SEGMENT_ANY_KEY) return true;
  return key->length == segment->length && memcmp(key->name, segment->key, segment->length) == 0;
}

/* Returns true if the pattern matches the cursor's path. Matches segments and keys from the left. If a segment and a
 * key differ, the last `**` covers one more key, and the segments after this `**` are matched again. */
static bool pattern_matches(const pattern_segment *segment, const pattern_segment *end, const tdict_cursor *cursor) {
  const pattern_segment *after_stars = NULL;
  size_t level = 0, retry = 0;
  while (level < cursor->depth) {
    if (segment < end && segment->kind == SEGMENT_ANY_KEYS) {
      after_stars = ++segment;
      retry = level;
    } else if (segment < end && segment_matches(segment, cursor, level)) {
      segment++;
      level++;
    } else if (after_stars) {
      segment = after_stars;
      level = ++retry;
    } else {
      return false;
    }
  }
  while (segment < end && segment->kind == SEGMENT_ANY_KEYS) segment++;
  return segment == end;
}

static bool matches(const tdict_patterns *p, size_t i, const tdict_cursor *cursor) {
  return pattern_matches(p->segments + (i ? p->list[i - 1].end : 0), p->segments + p->list[i].end, cursor);
}

size_t tdict_patterns_find(tdict_patterns *patterns, const tdict_cursor *cursor) {
  for (size_t i = 0; i < patterns->count; i++) {
    if (!matches(patterns, i, cursor)) continue;
    patterns->list[i].has_matched = true;
    patterns->num_matches++;
    return i;
  }
  return TDICT_NO_PATTERN;
}

int64_t tdict_patterns_count_matches(const tdict_patterns *patterns) { return patterns->num_matches; }

/* Returns the first pattern that must match and has matched no entry, or the number of patterns. */
static size_t find_unmatched(const tdict_patterns *p) {
  size_t i = 0;
  while (i < p->count && (p->list[i].has_matched || p->list[i].is_optional)) i++;
  return i;
}

/* Writes why a pattern matches nothing: the keys at its first wrong segment, or the kind of the entry there. */
static void explain(const tdict_patterns *p, size_t i, const tdict_tree *tree, char *buffer, size_t bytes) {
  const pattern_segment *segment = p->segments + (i ? p->list[i - 1].end : 0), *end = p->segments + p->list[i].end;
  buffer[0] = 0;
  for (; segment < end && segment->kind == SEGMENT_KEY; segment++) {
    const tdict_name name = tdict_name_of(segment->key, segment->length);
    const int64_t slot = tdict_keys_find(tree->keys, segment->key, segment->length);
    if (slot < 0) {
      (void)tdict_suggest(tree->keys, &name, buffer, bytes);
      return;
    }
    tree = tdict_leaf_tree(tree->leaves[slot]);
    if (tree) continue;
    if (segment + 1 == end) snprintf(buffer, bytes, "; an object is there, whose tensors match no pattern");
    return;
  }
  if (segment == end) snprintf(buffer, bytes, "; a tree is there: append .** for its tensors");
}

tdict_status tdict_patterns_check(tdict_patterns *p, const tdict_tree *tree, bool tensors_only, tdict_error *err) {
  char why[128];
  if (find_unmatched(p) == p->count) return TDICT_OK;
  /* An earlier pattern or a kept tree can hide the entries of a pattern, so compare the pattern with all entries. */
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, tree, false);
  bool has_memory = true;
  for (tdict_leaf leaf; has_memory && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    for (size_t i = 0; i < p->count && (tdict_leaf_tensor(leaf) || !tensors_only); i++)
      p->list[i].has_matched = p->list[i].has_matched || matches(p, i, &cursor);
    if (tdict_leaf_tree(leaf)) has_memory = tdict_cursor_enter(&cursor, tdict_leaf_tree(leaf));
  }
  tdict_cursor_reset(&cursor);
  if (!has_memory) return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory to walk the tree", p->what);
  const size_t i = find_unmatched(p);
  if (i == p->count) return TDICT_OK;
  explain(p, i, tree, why, sizeof why);
  return tdict_error_at(err,
                        tdict_fail(err, TDICT_ENOTFOUND, "%s[%zu] matches no %s%s; a leading ? would allow this",
                                   p->what, i, tensors_only ? "tensor" : "entry", why),
                        p->list[i].text);
}
