/* Declares replay buffers. A replay buffer is a tree of a fixed number of rows, which a program fills and rewrites
 * while a loader draws batches from it.
 *
 * A row is an element of the first batch dimension. The number of rows is the capacity. tdict_replay_append() fills the
 * rows in order. After the last row, tdict_replay_append() continues with row 0 and overwrites the oldest rows.
 * tdict_replay_write() rewrites filled rows.
 *
 * tdict_replay_dataset() makes a dataset whose samples are the filled rows. Sample i is row i of the tree, whatever its
 * age. The loader reads the number of filled rows when an epoch begins, and the epoch draws from these rows. An epoch
 * begins with the call of tdict_loader_next() that returns its first batch. No batch of the epoch is fetched before
 * this call. After tdict_loader_next() has returned NULL, a program may therefore append or rewrite rows, and the next
 * epoch has only the new contents. In the middle of an epoch, call tdict_loader_restart() for the same effect.
 *
 * A lock protects the rows. A fetch holds the lock while it copies the rows of one batch. A call that writes holds the
 * lock alone until all its rows are written. Each batch therefore shows each write entirely or not at all. Two batches
 * of an epoch may show different contents: a row is read when its batch is fetched, which may be `prefetch` batches
 * before delivery. If the loader's option `collate` or `pad` is set, each sample instead of each batch shows a write
 * entirely or not at all.
 *
 * A program may write the tensors of the tree itself between tdict_replay_lock() and tdict_replay_unlock(). Any other
 * write to the tensors is a data race while a loader uses the buffer. No function of the program is called under the
 * lock. A waiting writer goes before later fetches, so fetches cannot delay a writer for ever.
 *
 * Ownership: reference counted. Thread rule: any thread may call any function, and several threads may write. A process
 * that was forked must not use the buffers of its parent. */
#ifndef TDICT_REPLAY_H
#define TDICT_REPLAY_H

#include "tdict/dataset.h"

TDICT_BEGIN_DECLS

typedef struct tdict_replay tdict_replay;

/** @brief Creates a replay buffer over the rows of a tree. tdict_create_from() makes a tree from a table of fields.
 *  @param[in]  tree        the rows; the first batch dimension is the capacity. The buffer retains the tensors, and
 *                          ignores keys that are set or deleted later.
 *  @param[in]  num_filled  rows 0 to @p num_filled - 1 count as filled; 0 for an empty buffer.
 *  @param[out] out         a new reference; release it with tdict_replay_release(). Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, the tree has no batch dimension, no row or no tensor, or @p
 *          num_filled is below 0 or above the capacity; the errors of tdict_dataset_from_tree() (err->path names the
 *          entry); #TDICT_ENOMEM host memory is exhausted. */
TDICT_API TDICT_NODISCARD tdict_status tdict_replay_create(const tdict_tree *tree, int64_t num_filled,
                                                           tdict_replay **out, tdict_error *err);
/** @brief Adds a reference and returns @p replay, which must not be NULL. */
TDICT_API tdict_replay *tdict_replay_retain(const tdict_replay *replay);
/** @brief Releases a reference. NULL is allowed. */
TDICT_API void tdict_replay_release(tdict_replay *replay);

/** @brief Appends rows. If the buffer is full, the rows replace the oldest rows.
 *
 *  Waits for transfers that write @p rows, and then until running fetches of single batches have ended.
 *  @param[in] rows  a tree in host memory with all tensors of the buffer and no others. It has the dtypes and shapes of
 *                   the buffer's tensors, with any number of rows up to the capacity. Borrowed for the call. Must not
 *                   share bytes with the buffer.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, @p rows has more rows than the capacity, or a transfer into
 *          @p rows has failed; #TDICT_ESHAPE @p rows has another number of batch dimensions, or a shape differs;
 *          #TDICT_ENOTFOUND a tensor is missing or unknown; #TDICT_ETYPE an entry is no tensor; #TDICT_ENOTSUP @p rows
 *          has an object; #TDICT_EDTYPE a dtype differs; #TDICT_EREADONLY a tensor of the buffer is read-only;
 *          #TDICT_EWRONGDEVICE a tensor is not in host memory; #TDICT_ENOMEM host memory is exhausted. If a tensor is
 *          wrong, err->path names it. On failure nothing has changed.
 *  @note Cost: O(tensors), plus one copy of the rows. If the rows continue at row 0, O(rows) copies per tensor. */
TDICT_API TDICT_NODISCARD tdict_status tdict_replay_append(tdict_replay *replay, const tdict_tree *rows,
                                                           tdict_error *err);
/** @brief Rewrites filled rows, beginning with row @p first. The length does not change.
 *  @param[in] first  0 or more; @p first plus the number of @p rows is at most the length.
 *  @param[in] rows   as for tdict_replay_append().
 *  @return The same errors as tdict_replay_append(); #TDICT_EINVAL also if the rows are not all filled. */
TDICT_API TDICT_NODISCARD tdict_status tdict_replay_write(tdict_replay *replay, int64_t first, const tdict_tree *rows,
                                                          tdict_error *err);
/** @brief Makes the buffer empty. The next row that is appended is row 0. NULL is allowed.
 *
 *  If an epoch is running, later fetches of rows that are no longer filled fail with #TDICT_ECHANGED. Call
 *  tdict_loader_restart() before the next batch to avoid the error. */
TDICT_API void tdict_replay_clear(tdict_replay *replay);

/** @brief Returns the number of filled rows. */
TDICT_API int64_t tdict_replay_length(const tdict_replay *replay);
/** @brief Returns the number of rows of the tree. */
TDICT_API int64_t tdict_replay_capacity(const tdict_replay *replay);
/** @brief Returns the number of rows that were ever appended, without the rows that were filled at creation. */
TDICT_API int64_t tdict_replay_total(const tdict_replay *replay);

/** @brief Takes the lock of the rows. Until tdict_replay_unlock(), no batch is fetched, and the calling thread may
 *  write the tensors of the tree.
 *
 *  Waits until running fetches of single batches and other writers have ended. Until it unlocks, the thread must not
 *  lock again, append, write or clear. It must not call tdict_loader_next(), tdict_loader_restart(),
 *  tdict_loader_set_state() or tdict_loader_destroy() for a loader of the buffer. The thread may call the functions
 *  that return a number. */
TDICT_API void tdict_replay_lock(tdict_replay *replay);
/** @brief Releases the lock. Only the thread that called tdict_replay_lock() may call this function. */
TDICT_API void tdict_replay_unlock(tdict_replay *replay);

/** @brief Creates a dataset of the filled rows. Its `length_varies` is true. Several datasets may use one buffer.
 *
 *  Without a sampler, an epoch draws each filled row once. To draw any number of rows, set the option `sampler` of the
 *  loader to a WITH_REPLACEMENT sampler with `num_samples`.
 *  @param[out] out  a dataset owned by the caller, which retains the buffer; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_replay_dataset(tdict_replay *replay, tdict_dataset *out, tdict_error *err);

TDICT_END_DECLS
#endif
