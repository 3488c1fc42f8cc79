/* Declares replay buffers. A replay buffer holds a tree with a fixed number of rows. A program fills and rewrites the
 * rows while a loader draws batches from the buffer.
 *
 * A row is an element of the first batch dimension of the tree. The number of rows is the capacity.
 * tdict_replay_append() fills the rows in order. After the last row, tdict_replay_append() continues with row 0 and
 * overwrites the oldest rows. tdict_replay_write() rewrites filled rows.
 *
 * tdict_dataset_from_replay() makes a dataset whose samples are the filled rows. Sample i is row i of the tree. The
 * order in which the rows were appended does not matter. When an epoch begins, the loader reads the number of filled
 * rows. The epoch draws only from these rows. An epoch begins with the call of tdict_loader_next() that returns its
 * first batch. No batch of the epoch is fetched before this call. A program can therefore append or rewrite rows after
 * tdict_loader_next() has returned NULL. The next epoch then reads the rows only after these writes. To begin a new
 * epoch earlier, call tdict_loader_restart().
 *
 * A lock protects the rows. Several fetches can hold the lock at the same time. Each fetch holds the lock while the
 * fetch copies the rows of one batch. tdict_replay_append() and tdict_replay_write() hold the lock exclusively while
 * they write. All rows of a batch are therefore read before such a call begins to write, or after the call has written
 * all of its rows. If a write comes between two fetches of an epoch, only the later batch can contain the new elements.
 * A batch may be fetched up to `prefetch` batches before delivery. If the loader's option `collate`, `pad` or `pack` is
 * set, each fetch holds the lock for one sample only. In this case, a write can come between two samples of one batch.
 *
 * A program may write the tensors of the tree directly between tdict_replay_lock() and tdict_replay_unlock(). While a
 * loader uses the buffer, any other write to the tensors is a data race. The library calls no function of the program
 * while the library holds the lock. If a writer waits for the lock, fetches that start later wait until the writer has
 * released the lock. Fetches therefore cannot delay a writer forever.
 *
 * Ownership: reference counted. Thread rule: any thread may call any function, and several threads may write. A forked
 * process must not use the buffers of its parent process. */
#ifndef TDICT_REPLAY_H
#define TDICT_REPLAY_H

#include "tdict/dataset.h"

TDICT_BEGIN_DECLS

typedef struct tdict_replay tdict_replay;

/** @brief Creates a replay buffer over the rows of a tree. tdict_create_from() makes a tree from a table of fields.
 *  @param[in]  tree        the rows; the size of the first batch dimension is the capacity. The buffer retains the
 *                          tensors. If the program later sets or deletes keys of @p tree, the buffer does not change.
 *  @param[in]  num_filled  number of filled rows: rows 0 to @p num_filled - 1 are filled. 0 for an empty buffer.
 *                          To restore a saved buffer, see tdict_replay_set_state().
 *  @param[out] out         a new reference; release it with tdict_replay_release(). Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, the tree has no batch dimension, no row or no tensor, or @p
 *          num_filled is below 0 or above the capacity; #TDICT_ENOTSUP the tree has an object; the errors of
 *          tdict_dataset_from_tree() (err->path names the entry); #TDICT_ENOMEM host memory is exhausted. */
TDICT_API TDICT_NODISCARD tdict_status tdict_replay_create(const tdict_tree *tree, int64_t num_filled,
                                                           tdict_replay **out, tdict_error *err);
/** @brief Adds a reference and returns @p replay, which must not be NULL. */
TDICT_API tdict_replay *tdict_replay_retain(const tdict_replay *replay);
/** @brief Releases a reference. NULL is allowed. */
TDICT_API void tdict_replay_release(tdict_replay *replay);

/** @brief Appends rows. If the buffer is full, the new rows replace the oldest rows.
 *
 *  The call first waits for transfers that write @p rows. Then the call waits until no fetch and no other writer holds
 *  the lock.
 *  @param[in] rows  a tree in host memory with exactly the keys of the buffer. A row must have the dtypes and the
 *                   shapes of a row of the buffer. The number of rows must not exceed the capacity. Borrowed for the
 *                   call. The tensors must not share bytes with the buffer.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, @p rows has more rows than the capacity, or a transfer into @p
 *          rows failed or was cancelled; #TDICT_ESHAPE @p rows has another number of batch dimensions, or a shape
 *          differs; #TDICT_ENOTFOUND @p rows lacks a key of the buffer, or has a key that the buffer lacks;
 *          #TDICT_ETYPE an entry is not a tensor; #TDICT_ENOTSUP @p rows has an object; #TDICT_EDTYPE a dtype differs;
 *          #TDICT_EREADONLY a tensor of the buffer is read-only; #TDICT_EWRONGDEVICE a tensor is not in host memory;
 *          #TDICT_ENOMEM host memory is exhausted. If the error is about a tensor, err->path names the tensor. On
 *          failure nothing changes.
 *  @note Cost: O(tensors), plus one copy of the rows. If the call writes the last row of the buffer and continues with
 *        row 0, each row of each tensor is copied separately. */
TDICT_API TDICT_NODISCARD tdict_status tdict_replay_append(tdict_replay *replay, const tdict_tree *rows,
                                                           tdict_error *err);
/** @brief Rewrites filled rows, beginning with row @p first. The number of filled rows does not change.
 *  @param[in] first  0 or more. The sum of @p first and the number of rows in @p rows must not exceed the number of
 *          filled rows.
 *  @param[in] rows   as for tdict_replay_append().
 *  @return The same errors as tdict_replay_append(); #TDICT_EINVAL also if a row to rewrite is not filled. */
TDICT_API TDICT_NODISCARD tdict_status tdict_replay_write(tdict_replay *replay, int64_t first, const tdict_tree *rows,
                                                          tdict_error *err);
/** @brief Makes the buffer empty. The next row that is appended is row 0. NULL is allowed.
 *
 *  If a running epoch later fetches a row that is no longer filled, the fetch fails with #TDICT_ECHANGED. To avoid the
 *  error, call tdict_loader_restart() before the next call of tdict_loader_next(). */
TDICT_API void tdict_replay_clear(tdict_replay *replay);

/** The counts of a replay buffer. All fields are numbers, so a program may save the struct in any format. The rows are
 *  not part of the state, so save the tree, too. The bytes of the struct are valid in all processes with the same byte
 *  order and the same version of the library.
 *
 *  To save a buffer that other threads write, call tdict_replay_lock() first. Read the state and copy the rows, and
 *  then call tdict_replay_unlock(). To restore the buffer, load the tree, create a buffer of the tree with `num_filled`
 *  0, and call tdict_replay_set_state(). */
typedef struct tdict_replay_state {
  size_t struct_size;
  int64_t capacity;   /**< the number of rows of the tree, whether they are filled or not */
  int64_t num_filled; /**< the number of filled rows */
  int64_t next_row;   /**< the row that the next append writes first; if all rows are filled, the oldest row */
  int64_t total;      /**< the number of rows that all calls of tdict_replay_append() together have appended */
} tdict_replay_state;
static inline tdict_replay_state tdict_replay_state_default(void) {
  tdict_replay_state s;
  memset(&s, 0, sizeof s);
  s.struct_size = sizeof s;
  return s;
}
/** @brief Reads the counts of the buffer, all at one moment. A thread that holds the lock of the rows may call the
 *  function.
 *  @param[in,out] out  from tdict_replay_state_default(). At most `out->struct_size` bytes are written.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or struct_size is wrong. */
TDICT_API TDICT_NODISCARD tdict_status tdict_replay_get_state(const tdict_replay *replay, tdict_replay_state *out,
                                                              tdict_error *err);
/** @brief Sets the counts of the buffer. The rows do not change. The next append writes to the row to which the next
 *  append of the saved buffer would have written.
 *
 *  The call first waits until no fetch and no other writer holds the lock. If fewer rows are filled than before, epochs
 *  that have begun can fail as after tdict_replay_clear().
 *  @param[in] state  from tdict_replay_get_state().
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or another version saved the state; #TDICT_EINVAL also if
 *          struct_size is damaged (no byte after struct_size is then read); #TDICT_EINVAL also if the capacity differs,
 *          or the other counts contradict each other. On failure nothing changes. */
TDICT_API TDICT_NODISCARD tdict_status tdict_replay_set_state(tdict_replay *replay, const tdict_replay_state *state,
                                                              tdict_error *err);

/** @brief Takes the lock of the rows. Until tdict_replay_unlock(), no batch is fetched, and the calling thread may
 *  write the tensors of the tree.
 *
 *  The call first waits until no fetch and no other writer holds the lock. Until the thread calls
 *  tdict_replay_unlock(), the thread must not call tdict_replay_lock(), tdict_replay_append(),
 *  tdict_replay_write(), tdict_replay_clear() or tdict_replay_set_state() for this buffer. The thread must also not
 *  call tdict_loader_next(), tdict_loader_restart(), tdict_loader_set_state() or tdict_loader_destroy() for a
 *  loader of the buffer. The thread may call tdict_replay_get_state(). */
TDICT_API void tdict_replay_lock(tdict_replay *replay);
/** @brief Releases the lock of the rows. Only the thread that called tdict_replay_lock() may call
 *  tdict_replay_unlock(). */
TDICT_API void tdict_replay_unlock(tdict_replay *replay);

/** @brief Creates a dataset of the filled rows. `length_varies` of the dataset is true. Several datasets may
 *  use one buffer.
 *
 *  If the loader has no sampler, an epoch draws each filled row once. To draw another number of rows, pass a
 *  WITH_REPLACEMENT sampler with `num_samples` as the option `sampler` of the loader.
 *  @param[out] out  a new reference; written on success only. The dataset retains the buffer.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL; #TDICT_ENOMEM host memory is exhausted. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dataset_from_replay(tdict_replay *replay, tdict_dataset **out,
                                                                 tdict_error *err);

TDICT_END_DECLS
#endif
