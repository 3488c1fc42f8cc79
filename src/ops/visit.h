/* What visitors need of a context; src/context.c defines it. Thread rule: safe from any thread. */
#ifndef TDICT_OPS_VISIT_H
#define TDICT_OPS_VISIT_H

#include "sched/pool.h"

struct tdict_context;
/* NULL in a fork of the process that made the context. */
tdict_pool *tdict_context_pool(const struct tdict_context *context);

#endif
