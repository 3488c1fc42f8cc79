/* Declares how tests create a context, which they own, over their own driver. Thread rule: safe from any thread. */
#ifndef TDICT_CONTEXT_INTERNAL_H
#define TDICT_CONTEXT_INTERNAL_H

#include "device/driver.h"
#include "tdict/context.h"

/* Creates a context like tdict_context_create(), over this driver only, unless NULL, and retains the driver. */
tdict_status tdict_context_create_over(const tdict_context_options *options, tdict_driver *driver, tdict_context **out,
                                       tdict_error *err);

#endif
