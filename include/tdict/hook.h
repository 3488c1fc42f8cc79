/* What a hook of a tdict_type may ask of the engine while it runs. A hook may also call any other function of the
 * library on the same context: on a pool thread such work is done right there, so nothing waits for a thread that is
 * not to be had. Waiting for the transfer that runs the hook is #TDICT_EDEADLOCK.
 * Thread rule: a hook's argument belongs to the thread that runs the hook, until the hook returns. */
#ifndef TDICT_HOOK_H
#define TDICT_HOOK_H

#include "tdict/context.h"
#include "tdict/object.h"

TDICT_BEGIN_DECLS

/** @brief The context whose transfer runs the hook. */
TDICT_API tdict_context *tdict_hook_context(const tdict_hook *hook);
/** @brief Where the object is to go: the cpu for `pin_memory`. */
TDICT_API tdict_device tdict_hook_device(const tdict_hook *hook);
/** @brief Where results come from: pinned memory for `pin_memory`, else memory of the device. Owned by the context. */
TDICT_API tdict_memory *tdict_hook_memory(const tdict_hook *hook);
/** @brief A stream for copies that the hook queues itself; the object that the hook was given lives until they are
 *  done, and the transfer ends after them. handle NULL for the cpu, or when none could be made. */
TDICT_API tdict_stream tdict_hook_stream(const tdict_hook *hook);
/** @brief True when the transfer has failed or was cancelled, so that a long hook may give up. */
TDICT_API bool tdict_hook_cancelled(const tdict_hook *hook);
/** @brief The tensor in pinned memory: itself with a reference more when it is pinned, else a copy.
 *  @return #TDICT_OK; #TDICT_EWRONGDEVICE it is on a device; #TDICT_ENODEVICE; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_hook_pin(const tdict_hook *hook, tdict_tensor *tensor, tdict_tensor **out,
                                                      tdict_error *err);
/** @brief The tensor on the hook's device: itself with a reference more when it is there, else a copy, which is there
 *  on return. Errors of tdict_to_device(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_hook_move(const tdict_hook *hook, tdict_tensor *tensor, tdict_tensor **out,
                                                       tdict_error *err);

TDICT_END_DECLS
#endif
