/* Objects in a transfer: running the hooks of their types before the copies begin. A step belongs to its plan; while hooks
 * run each step is one thread's.
 * Thread rule: the starting thread prepares and runs; hooks run on the pool, or on the starting thread if it works itself. */
#ifndef TDICT_TRANSFER_HOOKS_H
#define TDICT_TRANSFER_HOOKS_H

#include "tdict/hook.h"
#include "transfer/job.h"

/* What a hook is given; lives while its step runs. */
struct tdict_hook {
  tdict_future *transfer;
  tdict_context *context;
  tdict_device device;    /* the cpu while pinning */
  bool pins;              /* pin_memory runs */
  tdict_gpu *gpu;         /* whose streams; NULL: none */
  tdict_cu_stream stream; /* taken when it is first asked for */
};

/* Finds the hooks of the transfer's plan that are to run; `context` is theirs to use. TDICT_ENOMEM. */
tdict_status tdict_hooks_prepare(tdict_future *transfer, tdict_context *context, tdict_device device, tdict_error *err);
/* Begins a transfer with hooks: runs them on the pool, where the last one begins the copies; or on the calling thread if the
 * transfer works on its caller, who then begins the copies. */
void tdict_hooks_run(tdict_future *transfer);
/* All hooks have ended: puts their objects into the result and begins the copies. If there are none, or a hook has failed,
 * it ends the transfer and returns false. */
bool tdict_hooks_begin_copies(tdict_future *transfer);
/* True when the calling thread is in a hook of this transfer. */
bool tdict_hooks_is_inside(const tdict_future *transfer);

#endif
