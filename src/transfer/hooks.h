/* Objects in a transfer: which hook each needs, and running the hooks before the copies begin. A step belongs to its plan;
 * while hooks run each step is one thread's. */
#ifndef TDICT_TRANSFER_HOOKS_H
#define TDICT_TRANSFER_HOOKS_H

#include "transfer/engine.h"

/* The hooks of a transfer's plan are to be run; `context` is theirs to use. TDICT_ENOMEM. */
tdict_status tdict_hooks_prepare(tdict_future *transfer, tdict_context *context, tdict_device device, tdict_error *err);
/* Runs them: on the pool, or here when the transfer works on its caller. When the last has ended the transfer goes on:
 * on the pool it begins (or ends, when nothing travels or a hook failed); here the caller sees to that. */
void tdict_hooks_run(tdict_future *transfer);
/* Puts what the hooks gave into the result. TDICT_ENOMEM. */
tdict_status tdict_hooks_place(tdict_future *transfer, tdict_error *err);
void tdict_hooks_let_go(tdict_future *transfer);
/* True when the calling thread is in a hook of this transfer. */
bool tdict_hooks_is_inside(const tdict_future *transfer);

#endif
