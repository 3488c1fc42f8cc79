/* Declares functions for the hooks `pin_memory` and `to_device` of a tdict_type, and one that pins an object.
 *
 * A hook may call other functions of the library with the same context. It may wait for other transfers, even if all
 * threads of the context's pool are busy. If it waits for the transfer that runs the hook, the wait returns
 * #TDICT_EDEADLOCK. Thread rule: the tdict_hook belongs to the thread that runs the hook, until the hook returns. */
#ifndef TDICT_HOOK_H
#define TDICT_HOOK_H

#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

/** The argument of a hook. The library fills the struct and owns everything in it. */
struct tdict_hook {
  size_t struct_size;     /**< sizeof(tdict_hook) of the library */
  tdict_context *context; /**< context of the transfer that runs the hook */
  tdict_device device;    /**< target of the object; for `pin_memory`: the cpu */
  tdict_memory *memory;   /**< for the result: pinned memory for `pin_memory`, else memory of `device` */
  /** A stream for work that the hook queues itself. The transfer ends after this work, and `self` lives until then.
   *  tdict_no_stream() if the target of the transfer is the cpu. */
  tdict_stream stream;
  struct tdict_hook_call *call; /**< used by the functions of this header */
};
static inline tdict_hook tdict_hook_default(void) {
  tdict_hook h;
  tdict_init_struct_(h);
  return h;
}

/** @brief Returns true if the transfer has failed or was cancelled. The hook may then return an error early. */
TDICT_API bool tdict_hook_cancelled(const tdict_hook *hook);
/** @brief Copies a tensor to pinned memory, or retains a tensor that is pinned already.
 *  A tensor on a device is retained too, if the object is moved to a device next.
 *  @return The errors of tdict_tensor_clone(); #TDICT_EWRONGDEVICE a tensor on a device, and the object is not moved to
 *          a device; #TDICT_ENODEVICE the context has no device that reads pinned memory. */
TDICT_API TDICT_NODISCARD tdict_status tdict_hook_pin(const tdict_hook *hook, tdict_tensor *tensor, tdict_tensor **out,
                                                      tdict_error *err);
/** @brief Copies a tensor to the hook's device and waits, or retains a tensor that is there already.
 *  @return The errors of tdict_to_device(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_hook_move(const tdict_hook *hook, tdict_tensor *tensor, tdict_tensor **out,
                                                       tdict_error *err);

/** @brief Pins one object outside of hooks, as tdict_pin_memory() pins those of a tree. The caller still owns @p self.
 *  @param[out] out  A new object of the type, owned by the caller, or @p self if `pin_memory` returned @p self. Without
 *                   this hook, @p self if there is no `flatten`, or if all tensors are pinned already.
 *  @return Errors of tdict_pin_memory(); #TDICT_EINVAL tdict_set_object() does not accept the type. */
TDICT_API TDICT_NODISCARD tdict_status tdict_pin_object(tdict_context *context, const tdict_type *type, void *self,
                                                        const tdict_pin_options *options, void **out, tdict_error *err);

TDICT_END_DECLS
#endif
