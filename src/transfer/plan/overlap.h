/* Finds destinations of a transfer_into that share bytes. Pure functions. Thread rule: one thread for each plan. */
#ifndef TDICT_TRANSFER_PLAN_OVERLAP_H
#define TDICT_TRANSFER_PLAN_OVERLAP_H

#include "transfer/plan/plan.h"

/* Returns TDICT_EINVAL if the plan writes a byte from two sources. err->path is then the path of the later leaf in
 * `mirror`. The message names the earlier leaf. TDICT_ENOMEM. Overlaps of tensors whose strides differ may not be
 * found. */
tdict_status tdict_overlap_check(const tdict_plan *plan, const tdict_tree *mirror, tdict_error *err);

#endif
