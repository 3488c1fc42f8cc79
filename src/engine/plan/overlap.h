/* Finds shared bytes in destinations of a transfer_into. Thread rule: no thread changes the plan meanwhile. */
#ifndef TDICT_ENGINE_PLAN_OVERLAP_H
#define TDICT_ENGINE_PLAN_OVERLAP_H

#include "engine/plan/plan.h"

/* Returns TDICT_EINVAL if the plan writes a byte from two different sources. err->path is then the path of the later
 * leaf in `mirror`. The message names the earlier leaf. Returns TDICT_ENOMEM if host memory is exhausted. Some overlaps
 * of tensors with gaps are not found. Call only if `may_overlap` of tdict_collected is true. */
tdict_status tdict_overlap_check(const tdict_plan *plan, const tdict_tree *mirror, tdict_error *err);

#endif
