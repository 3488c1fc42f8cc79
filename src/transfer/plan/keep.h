/* Reads the patterns of the option `keep`, and finds the entries of a tree that they match. The caller owns the patterns.
 * Thread rule: the patterns are only read after they are made. */
#ifndef TDICT_TRANSFER_PLAN_KEEP_H
#define TDICT_TRANSFER_PLAN_KEEP_H

#include "tree/cursor.h"

typedef struct tdict_keep tdict_keep;

/* Reads `count` patterns. The texts are borrowed until tdict_keep_destroy(). Returns TDICT_EINVAL with the pattern as
 * err->path if a pattern is malformed, and TDICT_ENOMEM. `what` is the name of the public call. */
tdict_status tdict_keep_create(const char *what, const char *const *patterns, size_t count, tdict_keep **out,
                               tdict_error *err);
/* NULL is allowed. */
void tdict_keep_destroy(tdict_keep *keep);
/* Returns true if a pattern matches the path of the current entry of the cursor. */
bool tdict_keep_matches(const tdict_keep *keep, const tdict_cursor *cursor);

#endif
