/* Declares the function that returns the pool of a context, for layers `ops` and `io`. The context owns the pool. Also
 * declares a variant of tdict_visit() for other operations. Thread rule: may be called from any thread. */
#ifndef TDICT_CORE_OPS_VISIT_H
#define TDICT_CORE_OPS_VISIT_H

#include "core/sched/pool.h"
#include "tdict/visit.h"

struct tdict_context;
/* Returns the context's pool, or NULL in a forked child of its process. src/context.c implements this function. */
tdict_pool *tdict_context_pool(const struct tdict_context *context);

/* Calls `visit` for each tensor in order, but not in objects without `flatten`. `what` begins messages of errors. */
tdict_status tdict_visit_in_order(const char *what, const tdict_tree *tree, tdict_leaf_visitor visit, void *user,
                                  tdict_error *err);

#endif
