/* Declares saves that run in the background. See tdict/io.h for files. The header tdict.h
 * does not include this header.
 *
 * Snapshot. tdict_save_async() first copies the tensors to other memory. The copy is called snapshot. A thread of the
 * library then writes the snapshot to the file. The program therefore waits only for the snapshot, and may change the
 * tree while the file is written. The option `snapshot` says where the snapshot is:
 * - On the device. The snapshot needs as much free device memory as the tree has bytes. The copies take milliseconds.
 * - In pinned host memory of the context. The first snapshot also allocates this memory, which takes longer. In a
 *   context without devices, the snapshot is in ordinary host memory, which the context does not keep.
 * When the file is written, the context keeps the memory of the snapshot for the next save and for transfers. To free
 * this memory, call tdict_context_trim() for the device, or for tdict_cpu().
 *
 * Order. The saves of a context write one after another, in the order of their calls. Each save has a snapshot of its
 * own. If memory is short, wait until an earlier save has ended before you start another save.
 * Threads. A save writes on one thread of its own, and uses no thread of the context's pool for writing. Device bytes
 * go through a few slots of the staging ring, so transfers of the program continue.
 * Context. tdict_context_destroy() waits until all saves of the context have ended. A program that exits without
 * waiting stops the save, and the old file stays.
 * Thread rule: any thread may call any function of this header. */
#ifndef TDICT_SAVING_H
#define TDICT_SAVING_H

#include "tdict/io.h"
#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

/** A save in the background. */
typedef struct tdict_saving tdict_saving;

/** @brief Starts to save a tree, as tdict_save() does, and returns before the file is written.
 *
 *  The call reads the keys of the tree. After the call, the program may change and release @p tree, but the elements of
 *  its tensors must not change until the snapshot is complete. For tensors in host memory, wait with
 *  tdict_saving_wait_source(). For tensors on a device, tdict_saving_wait_on_stream() is sufficient. Accessors of host
 *  tensors, such as tdict_tensor_data(), and later transfers wait for the snapshot.
 *  @param[in]  context  Makes the snapshot. Must not be NULL.
 *  @param[in]  path     Copied.
 *  @param[in]  tree     Borrowed for the call. The snapshot waits for earlier transfers that write the tensors. If work
 *                       on a stream writes the tensors, set the option `after`, as for tdict_to_device_async().
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      New handle, released with tdict_saving_release(), written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer, a wrong option, or the option TDICT_SNAPSHOT_DEVICE for a tree
 *          without tensors, or with tensors that are not all on one device; errors of tdict_to_device_async(), for
 *          example #TDICT_ENOMEM if the context's limit of pinned bytes is too low for the snapshot.
 *          tdict_saving_wait() returns all other errors of tdict_save().
 *  @note Cost: O(keys), plus the memory of the snapshot. If the system cannot start a thread, the call saves the tree
 *        before it returns. */
TDICT_API TDICT_NODISCARD tdict_status tdict_save_async(tdict_context *context, const char *path,
                                                        const tdict_tree *tree, const tdict_save_options *options,
                                                        tdict_saving **out, tdict_error *err);
/** @brief Waits until the snapshot is complete. The program may then write and free the memory of the tensors.
 *  @return #TDICT_OK; the error of the snapshot (the program may then write the memory, too); #TDICT_ECANCELLED;
 *          #TDICT_EFORKED the process is a fork, and the snapshot was not complete; #TDICT_EINVAL @p saving is NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_saving_wait_source(tdict_saving *saving, tdict_error *err);
/** @brief Makes a stream wait until the snapshot is complete. Work that is queued on the stream later may then write
 *         the tensors. The call waits only until the copies of the snapshot are queued.
 *  @return Errors of tdict_saving_wait_source() and of tdict_future_wait_on_stream(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_saving_wait_on_stream(tdict_saving *saving, tdict_stream stream,
                                                                   tdict_error *err);
/** @brief Waits until the save has ended. A program may call tdict_saving_wait() several times.
 *  @return #TDICT_OK the tree is in the file; the error of the save, on every call (the old file is then unchanged,
 *          with the exceptions that tdict_save() names); #TDICT_ECANCELLED; #TDICT_EFORKED the process is a fork, and
 *          the save had not ended; #TDICT_EINVAL @p saving is NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_saving_wait(tdict_saving *saving, tdict_error *err);
/** @brief Returns true if the save has ended, with success or failure. Never waits. */
TDICT_API bool tdict_saving_is_done(const tdict_saving *saving);
/** @brief Asks the save to stop, and returns immediately. The save then removes its temporary file and ends with
 *         #TDICT_ECANCELLED. If the new file is in place already, the save succeeds. NULL is allowed. */
TDICT_API void tdict_saving_cancel(tdict_saving *saving);
/** @brief Drops the handle. A running save continues. If no call has written the error of a failed save to a
 *         tdict_error, the error is written to the context's log. NULL is allowed. */
TDICT_API void tdict_saving_release(tdict_saving *saving);

TDICT_END_DECLS
#endif
