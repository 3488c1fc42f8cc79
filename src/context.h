/* The composition root, for tests: a context over a driver of their own. */
#ifndef TDICT_CONTEXT_INTERNAL_H
#define TDICT_CONTEXT_INTERNAL_H

#include "device/driver.h"
#include "tdict/context.h"

/* As tdict_context_create(), over `driver` (retained) alone instead of those that options would open. */
tdict_status tdict_context_create_over(const tdict_context_options *options, tdict_driver *driver, tdict_context **out,
                                       tdict_error *err);

#endif
