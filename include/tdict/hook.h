/* Declares functions that a hook of a tdict_type may call while the hook runs.
 *
 * A hook may also call any other function of the library on the same context. If the hook runs on a pool thread, the
 * call does its work on the hook's thread. The call therefore never waits for a free thread. If a hook waits for the
 * transfer that runs the hook, the wait returns #TDICT_EDEADLOCK. Thread rule: the tdict_hook belongs to the thread
 * that runs the hook, until the hook returns. */
#ifndef TDICT_HOOK_H
#define TDICT_HOOK_H

#include "tdict/context.h"
#include "tdict/object.h"

TDICT_BEGIN_DECLS

/** @brief Returns the context whose transfer runs the hook. Borrowed. */
TDICT_API tdict_context *tdict_hook_context(const tdict_hook *hook);
/** @brief Returns the device that the object moves to. In a `pin_memory` hook, this device is the cpu. */
TDICT_API tdict_device tdict_hook_device(const tdict_hook *hook);
/** @brief Returns the memory to allocate results from. Owned by the context. A `pin_memory` hook gets pinned memory.
 *  Other hooks get memory of the hook's device. */
TDICT_API tdict_memory *tdict_hook_memory(const tdict_hook *hook);
/** @brief Returns a stream for copies that the hook queues itself.
 *
 *  The library keeps the object that the hook received alive until these copies are done. The transfer does not end
 *  before these copies are done. The handle is NULL if the hook's device is the cpu or no stream could be created. */
TDICT_API tdict_stream tdict_hook_stream(const tdict_hook *hook);
/** @brief Returns true if the transfer has failed or was cancelled. A long hook may then stop early. */
TDICT_API bool tdict_hook_cancelled(const tdict_hook *hook);
/** @brief Returns the tensor in pinned memory. If @p tensor is already pinned, returns @p tensor itself, retained.
 *  Otherwise returns a copy.
 *  @param[out] out  A new reference.
 *  @return #TDICT_OK; #TDICT_EWRONGDEVICE the tensor is on a device; #TDICT_ENODEVICE; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_hook_pin(const tdict_hook *hook, tdict_tensor *tensor, tdict_tensor **out,
                                                      tdict_error *err);
/** @brief Returns the tensor on the hook's device. If @p tensor is already on that device, returns @p tensor itself,
 *  retained. Otherwise returns a copy.
 *
 *  The data of the copy is complete on return.
 *  @param[out] out  A new reference.
 *  @return The errors of tdict_to_device(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_hook_move(const tdict_hook *hook, tdict_tensor *tensor, tdict_tensor **out,
                                                       tdict_error *err);

TDICT_END_DECLS
#endif
