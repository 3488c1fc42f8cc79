/* Declares a function with which tests create a context over their own driver. The program owns the context. Thread
 * rule: safe from any thread. */
#ifndef TDICT_CONTEXT_INTERNAL_H
#define TDICT_CONTEXT_INTERNAL_H

#include "device/driver.h"
#include "tdict/context.h"

/* Creates a context like tdict_context_create(). If `driver` is not NULL, retains this driver and uses no other
 * driver. */
tdict_status tdict_context_create_over(const tdict_context_options *options, tdict_driver *driver, tdict_context **out,
                                       tdict_error *err);

#endif
