/* Declares functions for the hooks `pin_memory` and `to_device` of a tdict_type.
 *
 * A hook may also call other functions of the library with the same context, and may wait for other transfers. Such a
 * wait ends even if all threads of the context's pool are busy. If a hook waits for the transfer that runs the hook,
 * the wait returns #TDICT_EDEADLOCK. Thread rule: the tdict_hook belongs to the thread that runs the hook, until the
 * hook returns. */
#ifndef TDICT_HOOK_H
#define TDICT_HOOK_H

#include "tdict/context.h"
#include "tdict/object.h"

TDICT_BEGIN_DECLS

/** @brief Returns the context of the transfer that runs the hook. Borrowed. */
TDICT_API tdict_context *tdict_hook_context(const tdict_hook *hook);
/** @brief Returns the device to which the hook must move the object. For a `pin_memory` hook, the device is the cpu. */
TDICT_API tdict_device tdict_hook_device(const tdict_hook *hook);
/** @brief Returns the memory in which the hook should allocate its result. The context owns the memory. A `pin_memory`
 *  hook gets pinned memory, and a `to_device` hook gets memory of the hook's device. */
TDICT_API tdict_memory *tdict_hook_memory(const tdict_hook *hook);
/** @brief Returns a stream for copies that the hook queues itself.
 *
 *  After the hook returns, the library waits for the work on the stream before the transfer ends. The object that the
 *  hook received lives until this work is done. The member `handle` of the result is NULL if the target of the transfer
 *  is the cpu, or if no stream could be created. */
TDICT_API tdict_stream tdict_hook_stream(const tdict_hook *hook);
/** @brief Returns true if the transfer has failed or was cancelled. The hook may then return an error early. */
TDICT_API bool tdict_hook_cancelled(const tdict_hook *hook);
/** @brief Copies a tensor to pinned memory. If @p tensor is already pinned, the result is @p tensor itself, retained.
 *
 *  If @p tensor is on a device, and the object is moved to a device next, the result is @p tensor itself too.
 *  @param[out] out  The result; a new reference.
 *  @return #TDICT_OK; #TDICT_EINVAL a pointer is NULL; #TDICT_EWRONGDEVICE the tensor is on a device, and the object is
 *          not moved to a device; #TDICT_ENODEVICE
 *          the context has no device that reads pinned memory; the errors of tdict_tensor_clone(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_hook_pin(const tdict_hook *hook, tdict_tensor *tensor, tdict_tensor **out,
                                                      tdict_error *err);
/** @brief Copies a tensor to the hook's device. If @p tensor is already on that device, the result is @p tensor itself,
 *  retained.
 *
 *  The copy is complete when the function returns.
 *  @param[out] out  The result; a new reference.
 *  @return The errors of tdict_to_device(); #TDICT_EINVAL also if @p tensor is NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_hook_move(const tdict_hook *hook, tdict_tensor *tensor, tdict_tensor **out,
                                                       tdict_error *err);

TDICT_END_DECLS
#endif
