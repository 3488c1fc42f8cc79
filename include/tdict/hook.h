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

/** The argument of a hook. The library fills the struct and owns everything in it. */
struct tdict_hook {
  size_t struct_size;     /**< sizeof(tdict_hook) of the library */
  tdict_context *context; /**< context of the transfer that runs the hook */
  tdict_device device;    /**< device to which the hook must move the object; for `pin_memory`: the cpu */
  tdict_memory *memory;   /**< memory in which the hook should allocate its result: pinned memory for `pin_memory`, else
                               memory of `device` */
  /** A stream for work that the hook queues itself. The transfer ends after this work, and the object that the hook
   *  received lives until then. tdict_no_stream() if the target of the transfer is the cpu. */
  tdict_stream stream;
  struct tdict_hook_call *call; /**< used by the functions of this header */
};

/** @brief Returns true if the transfer has failed or was cancelled. The hook may then return an error early. */
TDICT_API bool tdict_hook_cancelled(const tdict_hook *hook);
/** @brief Copies a tensor to pinned memory. If @p tensor is already pinned, the result is @p tensor itself, retained.
 *
 *  If @p tensor is on a device, and the object is moved to a device next, the result is @p tensor itself too.
 *  @param[out] out  The result; a new reference.
 *  @return #TDICT_OK; #TDICT_EINVAL a pointer is NULL; #TDICT_EWRONGDEVICE the tensor is on a device, and the object is
 *          not moved to a device; #TDICT_ENODEVICE the context has no device that reads pinned memory; the errors of
 *          tdict_tensor_clone(). */
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
