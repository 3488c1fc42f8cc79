/* Declares the function by which tdict_visit() and tdict_apply() get the pool of a context. The context owns the pool.
 * Implemented in src/context.c.
 * Thread rule: may be called from any thread. */
#ifndef TDICT_OPS_VISIT_H
#define TDICT_OPS_VISIT_H

#include "sched/pool.h"

struct tdict_context;
/* Returns the pool of the context, or NULL in a forked child of the process that created the context. */
tdict_pool *tdict_context_pool(const struct tdict_context *context);

#endif
