/* Destinations of one copy_into that have bytes in common. Functions of their arguments; one thread. */
#ifndef TDICT_TRANSFER_PLAN_OVERLAP_H
#define TDICT_TRANSFER_PLAN_OVERLAP_H

#include "transfer/plan/plan.h"

/* Refuses a plan that writes some bytes from two sources. TDICT_EINVAL: err->path is the leaf of `mirror` that comes
 * later, and the message names the other. TDICT_ENOMEM. Tensors whose strides do not follow one pitch may overlap unseen. */
tdict_status tdict_overlap_check(const tdict_plan *plan, const tdict_tree *mirror, tdict_error *err);

#endif
