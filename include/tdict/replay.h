/* Declares replay buffers. A replay buffer holds a tree with a fixed number of rows, the capacity. A program fills and
 * rewrites the rows while a loader draws batches from them. A row is an element of the first batch dimension. Appends
 * fill the rows in order, and continue with row 0 after the last row. A lock protects the rows, so a batch shows each
 * write entirely or not at all. See docs/loader.md for epochs, and for how to save a buffer.
 *
 * Errors of all functions: #TDICT_EINVAL an argument is NULL, or struct_size is wrong; #TDICT_ENOMEM. If a function
 * fails, nothing changes. err->path names a wrong entry.
 * Ownership: reference counted. Thread rule: any thread, but not a forked process, may call any function. */
#ifndef TDICT_REPLAY_H
#define TDICT_REPLAY_H

#include "tdict/dataset.h"

TDICT_BEGIN_DECLS

typedef struct tdict_replay tdict_replay;

/** @brief Creates a replay buffer over the rows of a tree, whose tensors it retains; see tdict_create_from().
 *  @param[in]  num_filled  rows 0 to @p num_filled - 1 are filled.
 *  @param[out] out         a new reference; release it with tdict_replay_release().
 *  @return #TDICT_EINVAL the tree has no batch dimension, row or tensor, or @p num_filled is not between 0 and the
 *          capacity; #TDICT_ENOTSUP an object; errors of tdict_dataset_from_tree(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_replay_create(const tdict_tree *tree, int64_t num_filled,
                                                           tdict_replay **out, tdict_error *err);
/** @brief Adds a reference and returns @p replay, which must not be NULL. */
TDICT_API tdict_replay *tdict_replay_retain(const tdict_replay *replay);
/** @brief Releases a reference. NULL is allowed. */
TDICT_API void tdict_replay_release(tdict_replay *replay);

/** @brief Appends rows, which replace the oldest rows if the buffer is full.
 *  @param[in] rows  a tree in host memory with exactly the keys, dtypes and shapes of the buffer, and at most as many
 *                   rows. Borrowed for the call. The tensors must not share bytes with the buffer.
 *  @return #TDICT_EINVAL too many rows, or a transfer into @p rows failed; #TDICT_ENOTFOUND, #TDICT_EDTYPE and
 *          #TDICT_ESHAPE keys, dtypes and shapes differ; #TDICT_ETYPE an entry is not a tensor; #TDICT_ENOTSUP an
 *          object; #TDICT_EREADONLY a tensor of the buffer; #TDICT_EWRONGDEVICE a tensor is not in host memory.
 *  @note Waits for transfers that write @p rows, then for fetches and other writers. */
TDICT_API TDICT_NODISCARD tdict_status tdict_replay_append(tdict_replay *replay, const tdict_tree *rows,
                                                           tdict_error *err);
/** @brief Rewrites filled rows, beginning with row @p first.
 *  @return Errors of tdict_replay_append(); #TDICT_EINVAL a row to rewrite is not filled. */
TDICT_API TDICT_NODISCARD tdict_status tdict_replay_write(tdict_replay *replay, int64_t first, const tdict_tree *rows,
                                                          tdict_error *err);
/** @brief Makes the buffer empty, and the next row that is appended row 0. NULL is allowed.
 *  @note Batches of a running epoch can then fail with #TDICT_ECHANGED. Call tdict_loader_restart() first. */
TDICT_API void tdict_replay_clear(tdict_replay *replay);

/** The counts, to be saved beside the rows. The bytes are valid for one byte order and version, the numbers always. */
typedef struct tdict_replay_state {
  size_t struct_size;
  int64_t capacity;   /**< the number of rows of the tree, whether they are filled or not */
  int64_t num_filled; /**< the number of filled rows */
  int64_t next_row;   /**< the row that the next append writes first; if all rows are filled, the oldest row */
  int64_t total;      /**< the number of rows that all calls of tdict_replay_append() together have appended */
} tdict_replay_state;
static inline tdict_replay_state tdict_replay_state_default(void) {
  tdict_replay_state s;
  tdict_init_struct_(s);
  return s;
}
/** @brief Reads the counts at one moment, also under the lock of the rows. Writes at most `out->struct_size` bytes. */
TDICT_API TDICT_NODISCARD tdict_status tdict_replay_get_state(const tdict_replay *replay, tdict_replay_state *out,
                                                              tdict_error *err);
/** @brief Sets the counts, but not the rows. Waits for fetches and writers.
 *  @return #TDICT_EINVAL another version saved the state, the capacity differs, or the counts contradict each other.
 *  @note If fewer rows are filled than before, epochs can fail as after tdict_replay_clear(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_replay_set_state(tdict_replay *replay, const tdict_replay_state *state,
                                                              tdict_error *err);

/** @brief Takes the lock of the rows, so the thread may write the tensors of the tree. Waits for fetches and writers.
 *  @note Until tdict_replay_unlock(), no batch is fetched. The thread must call no other function of the buffer except
 *  tdict_replay_get_state(), and of its loaders none that fetches, restarts, moves or destroys. */
TDICT_API void tdict_replay_lock(tdict_replay *replay);
/** @brief Releases the lock of the rows, on the thread that called tdict_replay_lock(). */
TDICT_API void tdict_replay_unlock(tdict_replay *replay);

/** @brief Creates a dataset of the filled rows, with `length_varies`. Several datasets may retain one buffer. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dataset_from_replay(tdict_replay *replay, tdict_dataset **out,
                                                                 tdict_error *err);

TDICT_END_DECLS
#endif
