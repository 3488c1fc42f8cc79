/* Detects a fork. A fork mark shows whether the calling process is a child that was forked after the mark was created.
 * The mark of a context also keeps the context's log, because everything that can outlive the context holds the mark.
 * Marks are reference-counted. Thread rule: safe from any thread. */
#ifndef TDICT_CORE_BASE_FORKMARK_H
#define TDICT_CORE_BASE_FORKMARK_H

#include <stdbool.h>

#include "core/base/log.h"
#include "tdict/status.h"

/* An opaque mark. Every function that takes a mark accepts NULL. For NULL, the functions report no fork. */
typedef struct tdict_forkmark tdict_forkmark;
/* Creates a mark with one reference. Returns TDICT_ENOMEM if host memory is exhausted. */
tdict_status tdict_forkmark_create(tdict_forkmark **out, tdict_error *err);
tdict_forkmark *tdict_forkmark_retain(tdict_forkmark *mark);
void tdict_forkmark_release(tdict_forkmark *mark); /* NULL is allowed */
/* Makes the mark keep a log, and retains the log. Call once, before other threads use the mark. */
void tdict_forkmark_keep_log(tdict_forkmark *mark, tdict_log *log);
/* Returns the log of the context, which the caller borrows. NULL: the mark keeps no log. */
tdict_log *tdict_forkmark_log(const tdict_forkmark *mark);
bool tdict_forkmark_forked(const tdict_forkmark *mark);
/* Returns TDICT_EFORKED in a process that was forked after the mark was made. The message begins with `what`. */
tdict_status tdict_forkmark_check(const tdict_forkmark *mark, const char *what, tdict_error *err);

#endif
