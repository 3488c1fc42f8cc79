/* Reads patterns of paths, and finds the entries of a tree that match a pattern. The options `keep` and `conversions`
 * use these patterns. The caller owns the tdict_patterns. Thread rule: used by one thread at a time. */
#ifndef TDICT_ENGINE_OPTIONS_PATTERNS_H
#define TDICT_ENGINE_OPTIONS_PATTERNS_H

#include "core/tree/cursor.h"

typedef struct tdict_patterns tdict_patterns;
#define TDICT_NO_PATTERN SIZE_MAX

/* Reads `count` patterns. A pattern that begins with `?` is optional. The texts are borrowed until
 * tdict_patterns_destroy(). Returns TDICT_EINVAL if `patterns` or a pattern is NULL, or if a pattern is malformed. For
 * a malformed pattern, err->path is the pattern. Returns TDICT_ENOMEM if host memory is exhausted. `what` names the
 * public call and the option, for example "to_device: options.keep". */
tdict_status tdict_patterns_create(const char *what, const char *const *patterns, size_t count, tdict_patterns **out,
                                   tdict_error *err);
/* Frees the patterns. NULL is allowed. */
void tdict_patterns_destroy(tdict_patterns *patterns);
/* Returns the number of the first pattern that matches the cursor's current entry, and counts the match. Returns
 * TDICT_NO_PATTERN if none matches. */
size_t tdict_patterns_find(tdict_patterns *patterns, const tdict_cursor *cursor);
/* Returns the number of entries for which tdict_patterns_find() has found a pattern. */
int64_t tdict_patterns_count_matches(const tdict_patterns *patterns);
/* Returns TDICT_ENOTFOUND if a pattern that is not optional matches no entry of `tree`, or with `tensors_only` no
 * tensor. err->path is then the pattern. Call it after tdict_patterns_find() for the entries: it walks the tree only if
 * that function has not found every pattern. Returns TDICT_ENOMEM. */
tdict_status tdict_patterns_check(tdict_patterns *patterns, const tdict_tree *tree, bool tensors_only,
                                  tdict_error *err);

#endif
