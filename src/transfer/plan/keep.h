/* Reads the patterns of the option `keep`, and finds the entries of a tree that match a pattern. The caller owns the
 * tdict_keep. Thread rule: a tdict_keep does not change after its creation, so any thread may read the patterns. */
#ifndef TDICT_TRANSFER_PLAN_KEEP_H
#define TDICT_TRANSFER_PLAN_KEEP_H

#include "tree/cursor.h"

typedef struct tdict_keep tdict_keep;

/* Reads `count` patterns. The texts are borrowed for the call. Returns TDICT_EINVAL if `patterns` or a pattern is NULL,
 * or if a pattern is malformed. For a malformed pattern, err->path is the pattern. Returns TDICT_ENOMEM if host memory
 * is exhausted. `what` is the name of the public call. */
tdict_status tdict_keep_create(const char *what, const char *const *patterns, size_t count, tdict_keep **out,
                               tdict_error *err);
/* Frees the patterns. NULL is allowed. */
void tdict_keep_destroy(tdict_keep *keep);
/* Returns true if a pattern matches the path of the current entry of the cursor. */
bool tdict_keep_matches(const tdict_keep *keep, const tdict_cursor *cursor);

#endif
