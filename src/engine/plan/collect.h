/* Collects a tree's leaves into a plan. Thread rule: only the caller and the call's helpers may use the plan. */
#ifndef TDICT_ENGINE_PLAN_COLLECT_H
#define TDICT_ENGINE_PLAN_COLLECT_H

#include "engine/plan/item.h"

/* Reads the tree into collected->plan. Each leaf that must be copied becomes an item. If there is no destination,
 * leaves with the same bytes and the same conversion become one item. Sets the way of each item. If a consolidated tree
 * is copied as a whole, the tree becomes one item. err->path names the entry that caused the error. After a failure,
 * the plan is empty. */
tdict_status tdict_plan_collect(tdict_collected *collected, const tdict_plan_request *request, const tdict_tree *src,
                                tdict_error *err);

#endif
