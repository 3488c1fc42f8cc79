/* A mark that a fork wipes: a child of fork sees that it is one. Counted. Thread rule: safe from any thread. */
#ifndef TDICT_BASE_FORKMARK_H
#define TDICT_BASE_FORKMARK_H

#include <stdbool.h>

#include "tdict/status.h"

/* NULL is a mark that is never wiped. */
typedef struct tdict_forkmark tdict_forkmark;
tdict_status tdict_forkmark_create(tdict_forkmark **out, tdict_error *err); /* TDICT_ENOMEM */
tdict_forkmark *tdict_forkmark_retain(tdict_forkmark *mark);
void tdict_forkmark_release(tdict_forkmark *mark); /* NULL is allowed */
/* True in a process that was forked after the mark was made. */
bool tdict_forkmark_forked(const tdict_forkmark *mark);
/* TDICT_EFORKED there; `what` begins the message. */
tdict_status tdict_forkmark_check(const tdict_forkmark *mark, const char *what, tdict_error *err);

#endif
