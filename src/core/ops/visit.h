/* Declares the function that returns the pool of a context, for layers `ops` and `io`. The context owns the pool. Also
 * declares a variant of tdict_visit() for other operations. Thread rule: may be called from any thread. */
#ifndef TDICT_CORE_OPS_VISIT_H
#define TDICT_CORE_OPS_VISIT_H

#include "core/sched/pool.h"
#include "tdict/visit.h"

struct tdict_context;
/* Returns the pool of the context, or NULL in a forked child of the process that created the context. src/context.c
 * implements this function. */
tdict_pool *tdict_context_pool(const struct tdict_context *context);

/* Calls `visit` with `user` for each tensor of the tree, in order. Returns the errors of tdict_visit(), whose messages
 * begin with `what`. Skips objects whose type has no `flatten`. */
tdict_status tdict_visit_in_order(const char *what, const tdict_tree *tree, tdict_leaf_visitor visit, void *user,
                                  tdict_error *err);

#endif
