/* Reads patterns of paths, and finds the entries of a tree that match a pattern. The options `keep` and `conversions`
 * use these patterns. The caller owns the tdict_patterns. Thread rule: a tdict_patterns does not change after its
 * creation, so any thread may read the patterns. */
#ifndef TDICT_TRANSFER_PLAN_PATTERNS_H
#define TDICT_TRANSFER_PLAN_PATTERNS_H

#include "tree/cursor.h"

typedef struct tdict_patterns tdict_patterns;
#define TDICT_NO_PATTERN SIZE_MAX

/* Reads `count` patterns. The texts are borrowed for the call. Returns TDICT_EINVAL if `patterns` or a pattern is NULL,
 * or if a pattern is malformed. For a malformed pattern, err->path is the pattern. Returns TDICT_ENOMEM if host memory
 * is exhausted. `what` names the public call and the option, for example "to_device: options.keep". */
tdict_status tdict_patterns_create(const char *what, const char *const *patterns, size_t count, tdict_patterns **out,
                                   tdict_error *err);
/* Frees the patterns. NULL is allowed. */
void tdict_patterns_destroy(tdict_patterns *patterns);
/* Returns the number of the first pattern that matches the path of the current entry of the cursor, else
 * TDICT_NO_PATTERN. */
size_t tdict_patterns_find(const tdict_patterns *patterns, const tdict_cursor *cursor);

#endif
