/* Status codes and the error struct that calls fill in.
 *
 * Every call that can fail returns a tdict_status and takes a `tdict_error *err` last. `err` may be NULL; it is written
 * on failure only, and on failure nothing that the call works on has changed unless its own comment says otherwise.
 * Thread rule: an error belongs to the thread that passes it. */
#ifndef TDICT_STATUS_H
#define TDICT_STATUS_H

#include <stdint.h>
#include <stdio.h>

#include "tdict/export.h"

TDICT_BEGIN_DECLS

/** What a call answers. The numbers are part of the ABI and never change. */
typedef enum tdict_status {
  TDICT_OK = 0,
  TDICT_EINVAL = 1,        /**< an argument is wrong in itself */
  TDICT_ENOMEM = 2,        /**< memory of some kind (the message says which) is short */
  TDICT_ENOTFOUND = 3,     /**< no such key */
  TDICT_EEXIST = 4,        /**< the key is there already */
  TDICT_ETYPE = 5,         /**< a tensor, tree or object where another of them was wanted */
  TDICT_ESHAPE = 6,        /**< shapes or batch sizes do not agree */
  TDICT_EDTYPE = 7,        /**< element types do not agree, or one is unknown */
  TDICT_EOVERFLOW = 8,     /**< a product or sum does not fit its type */
  TDICT_ELOCKED = 9,       /**< the tree is locked */
  TDICT_EREADONLY = 10,    /**< the storage may not be written */
  TDICT_EWRONGDEVICE = 11, /**< a tensor lives on another device than the call can use */
  TDICT_ENODEVICE = 12,    /**< the device is absent; the message says why */
  TDICT_EDEVICE = 13,      /**< the driver refused; tdict_error.native has its code */
  TDICT_ELOST = 14,        /**< the device was reset or lost */
  TDICT_ECANCELLED = 15,   /**< the transfer was cancelled */
  TDICT_ETIMEDOUT = 16,    /**< not finished within the time given */
  TDICT_EDEADLOCK = 17,    /**< the call would wait for itself */
  TDICT_EFORKED = 18,      /**< the process is a fork of the one that made the context */
  TDICT_ECAPTURE = 19,     /**< the stream is being captured into a graph */
  TDICT_ECHANGED = 20,     /**< a source was changed while it was being read */
  TDICT_EHOOK = 21,        /**< a user's callback failed, or returned a number that is not a tdict_status */
  TDICT_EIO = 22,          /**< a file could not be read or written */
  TDICT_EFORMAT = 23,      /**< a file is not what its format demands */
  TDICT_ENOTSUP = 24       /**< this combination is not supported; the message names it */
} tdict_status;

/** Why a call failed: 512 bytes, for ever. */
typedef struct tdict_error {
  int32_t status; /**< a tdict_status */
  int32_t native; /**< the code of the driver or of errno that lies behind it, or 0 */
  /** The leaf or key that it is about, or ""; long paths are cut in the middle. */
  char path[248];
  char message[256]; /**< one sentence: what was wanted and what was found */
} tdict_error;

/** @brief The name of a status, such as "TDICT_EINVAL"; "TDICT_?" for a number that is none.
 *  @return a string that lives for ever. Thread-safe. */
TDICT_API const char *tdict_status_name(tdict_status status);

/** @brief Prints an error as one line, such as
 *         `TDICT_ENOTFOUND obs.stat: get: 'stat' is no key there; keys: state, pixels`.
 *  @param[in] err   Borrowed. Its native code follows in brackets if it is not 0. NULL prints nothing.
 *  @param[in] file  Borrowed, and not flushed. If it cannot be written, ferror() says so.
 *  @note Thread-safe. tdict/try.h has macros that call it. */
TDICT_API void tdict_error_print(const tdict_error *err, FILE *file);

TDICT_END_DECLS
#endif
