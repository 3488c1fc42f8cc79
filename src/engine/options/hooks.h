/* Runs the hooks of objects before the copies begin. A tdict_object_step of the plan says which hooks run, and one
 * thread at a time accesses it. Thread rule: the starting thread calls tdict_hooks_prepare() and tdict_hooks_run().
 * Hooks run on pool threads, or with on_caller on the starting thread. */
#ifndef TDICT_ENGINE_OPTIONS_HOOKS_H
#define TDICT_ENGINE_OPTIONS_HOOKS_H

#include "engine/transfer.h"
#include "tdict/hook.h"

/* The hooks of one step. The member `call` of a tdict_hook points to this struct while the hooks run. */
typedef struct tdict_hook_call {
  tdict_transfer *transfer;
  bool pins;              /* true while pin_memory runs */
  tdict_gpu *gpu;         /* device of `stream`; NULL: the target is the cpu */
  tdict_cu_stream stream; /* the stream of the step's hooks; NULL: no hook has been called */
} tdict_hook_call;

/* The type of tdict_to_device(). A parameter, because this file is below the code that starts transfers. */
typedef tdict_status (*tdict_move_fn)(tdict_context *context, const tdict_tree *src, tdict_device device,
                                      const tdict_transfer_options *options, tdict_tree **out, tdict_error *err);
/* Prepares a task for each step of the plan that runs hooks. The hooks receive `context` and `device` in their
 * argument. `memory` is the memory of a result on a device; borrowed until the transfer has ended. `move` moves the
 * tensors of an object that has no hook to_device. Errors: TDICT_ENOMEM. */
tdict_status tdict_hooks_prepare(tdict_transfer *transfer, tdict_context *context, tdict_device device,
                                 tdict_memory *memory, tdict_move_fn move, tdict_error *err);
/* Runs the hooks. If on_caller is set, the calling thread runs them, and must then call tdict_hooks_begin_copies().
 * Otherwise pool threads run them, and the thread of the last hook begins the copies. */
void tdict_hooks_run(tdict_transfer *transfer);
/* Puts the objects that the hooks returned into the result and begins the copies. If there is nothing to copy, a hook
 * has failed, or the copies cannot begin, ends the transfer and returns false. */
bool tdict_hooks_begin_copies(tdict_transfer *transfer);
/* Returns true if the calling thread is running a hook of this future, which is a transfer. */
bool tdict_hooks_is_inside(const tdict_future *future);

#endif
