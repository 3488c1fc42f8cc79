/* Collects a tree's leaves into a plan. Thread rule: only the caller and the call's helpers may use the plan. */
#ifndef TDICT_ENGINE_PLAN_COLLECT_H
#define TDICT_ENGINE_PLAN_COLLECT_H

#include "engine/plan/item.h"

/* Reads the tree into collected->plan. Leaves to copy become items with a way. Without a destination, leaves with the
 * same bytes and conversion become one item, and so does a consolidated tree that is copied as a whole. err->path names
 * the wrong entry. After a failure, the plan is empty. */
tdict_status tdict_plan_collect(tdict_collected *collected, const tdict_plan_request *request, const tdict_tree *src,
                                tdict_error *err);

#endif
