/* Declares the status codes, and the error struct that failing calls fill. docs/learn/errors.md has an example.
 *
 * A function that can fail returns a tdict_status, and takes a `tdict_error *err` as its last argument, which may be
 * NULL. #TDICT_OK is success; the comments list the other codes. `*err` is written only on failure. A call that fails
 * changes nothing, unless its comment says otherwise. For a struct that begins with `struct_size`, a wrong size is
 * #TDICT_EINVAL, and a field that this library does not know is #TDICT_ENOTSUP. A function of the program that the
 * library calls must return, without a C++ exception or longjmp(): see docs/callbacks.md. During a call, no other
 * thread may use the error struct of the call. */
#ifndef TDICT_STATUS_H
#define TDICT_STATUS_H

#include <stdint.h>
#include <stdio.h>

#include "tdict/export.h"

TDICT_BEGIN_DECLS

/** The result of a call. The numbers are part of the ABI and never change. */
typedef enum tdict_status {
  TDICT_OK = 0,
  TDICT_EINVAL = 1,        /**< an argument is invalid */
  TDICT_ENOMEM = 2,        /**< out of memory, or a limit such as `pinned_bytes` of the context is reached */
  TDICT_ENOTFOUND = 3,     /**< there is no such key, entry or process, or no full slot in a ring (tdict/share.h) */
  TDICT_EEXIST = 4,        /**< a key, a path or the name of a file is already in use */
  TDICT_ETYPE = 5,         /**< an entry, a value or an Arrow array has the wrong kind or type */
  TDICT_ESHAPE = 6,        /**< a shape, a batch size or a number of elements does not match */
  TDICT_EDTYPE = 7,        /**< an element type is unknown, or is not the type that the call needs */
  TDICT_EOVERFLOW = 8,     /**< a size or value does not fit its type */
  TDICT_ELOCKED = 9,       /**< the tree, or another tree that the call must change, is locked */
  TDICT_EREADONLY = 10,    /**< the storage must not be written */
  TDICT_EWRONGDEVICE = 11, /**< a tensor, memory or stream belongs to a device that the call cannot use */
  TDICT_ENODEVICE = 12,    /**< the device is absent or cannot be used; the message says why */
  TDICT_EDEVICE = 13,      /**< the device driver returned an error; tdict_error.native has its code */
  TDICT_ELOST = 14,        /**< the device was reset or lost, or a worker of a ring (tdict/share.h) has ended */
  TDICT_ECANCELLED = 15, /**< the transfer was cancelled, or the trainer of a ring (tdict/share.h) has left the ring */
  TDICT_ETIMEDOUT = 16,  /**< the time limit has passed */
  TDICT_EDEADLOCK = 17,  /**< a hook waits for the transfer that runs the hook */
  TDICT_EFORKED = 18,    /**< this process is a fork of the process that created the context, loader or ring */
  TDICT_ECAPTURE = 19,   /**< the stream is being captured into a graph */
  TDICT_ECHANGED = 20,   /**< data changed while a transfer or a loader read the data */
  TDICT_EHOOK = 21,      /**< a callback of the program returned an invalid status or an invalid result */
  TDICT_EIO = 22,        /**< reading or writing a file, a socket or a stream failed, or another system call failed */
  TDICT_EFORMAT = 23,    /**< a file, blob, message, Arrow array or DLPack tensor does not have the expected format */
  TDICT_ENOTSUP = 24     /**< a combination that the message names is not supported */
} tdict_status;

/** Says why a call failed. The struct has 512 bytes in all versions. */
typedef struct tdict_error {
  int32_t status; /**< a tdict_status */
  /** Error code of the driver, an errno, or another number that the comment of the function names. 0: no number. */
  int32_t native;
  /** Path of the entry that caused the error, or name of the file, or "". Long paths are cut in the middle. */
  char path[248];
  char message[256]; /**< the cause, on one line; usually the value that was found and the value that was wanted */
} tdict_error;

/** @brief Returns the name of a status, such as "TDICT_EINVAL", or "TDICT_?". A static string. Thread-safe. */
TDICT_API const char *tdict_status_name(tdict_status status);

/** @brief Fills an error struct, in hooks, datasets and other functions of the program that the library calls.
 *
 *  Example: ``return tdict_error_set(err, TDICT_EIO, file, "cannot read: %s", strerror(errno));`` The function may also
 *  write the members itself. The library keeps them, and sets `status` to the returned status.
 *  @param[out] err  NULL is allowed. `native` becomes 0; the caller may set it afterwards.
 *  @param[in] path  The entry or the file that the error is about; NULL for none. Long paths are cut in the middle.
 *  @param[in] format  The message, as for printf(), on one line, cut at its end. The arguments may point into @p err.
 *  @return @p status. Thread-safe. */
TDICT_API tdict_status tdict_error_set(tdict_error *err, tdict_status status, const char *path, const char *format, ...)
    TDICT_PRINTF(4, 5);

/** @brief Prints an error as one line, with `native` in brackets if it is not 0. Prints nothing for NULL. Thread-safe.
 *  Example: ``TDICT_ENOTFOUND obs.stat: get: 'stat' is not a key of the tree; keys: state, pixels``.
 *  @param[in] file  Borrowed; not flushed. Use ferror() to detect write errors. */
TDICT_API void tdict_error_print(const tdict_error *err, FILE *file);

TDICT_END_DECLS
#endif
