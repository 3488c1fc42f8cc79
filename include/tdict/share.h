/* Declares trees in shared memory, and rings of them that carry batches from workers to a trainer. Linux only. The
 * trainer is the process that created the ring. The slots of a ring are shared trees of one structure. A shared
 * tree is consolidated (tdict/clone.h). Its elements and its schema are in a segment of shared memory. See
 * docs/neighbours.md for segments, order, trust and costs, and for how workers start and end.
 *
 * Errors of all functions:
 * - #TDICT_EINVAL: a pointer is NULL, a time or a socket is negative, or the ring belongs to the other side.
 * - #TDICT_ENOMEM: host memory is exhausted, or there is no memory for a segment.
 * - #TDICT_EFORKED: this process is a fork without exec of the process that has the ring.
 * - #TDICT_EIO: a system call failed, and err->native is the errno.
 *
 * Results are written on success only. A `timeout_ns` is the longest time to wait, in nanoseconds; INT64_MAX: no limit.
 * Thread rule: one thread at a time may use a handle of a ring. Functions for single trees are thread-safe. */
#ifndef TDICT_SHARE_H
#define TDICT_SHARE_H

#include "tdict/schema.h"
#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

typedef struct tdict_share_options {
  size_t struct_size;
  bool is_zero; /**< true: all elements are zero, and those of the tree are not read; false (default): copies */
} tdict_share_options;
static inline tdict_share_options tdict_share_options_default(void) {
  tdict_share_options o;
  tdict_init_struct_(o);
  return o;
}
/** @brief Copies a tree, whose tensors may be on devices, into a new segment. The new tree has no device.
 *  @return #TDICT_ENOTSUP the tree has an object, such as text or a ragged leaf; #TDICT_EOVERFLOW the tree is too large
 *          for a segment; the errors of tdict_schema_from_tree() and tdict_tensor_copy(). err->path names the entry. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_create(const tdict_tree *tree, const tdict_share_options *options,
                                                          tdict_tree **out, tdict_error *err);
/** @brief Sends a shared tree to another process, by a message of 16 bytes and one descriptor.
 *  @param[in] socket  A connected Unix socket of type SOCK_STREAM or SOCK_SEQPACKET. Borrowed. If it is full and
 *                     blocking, the call waits.
 *  @return #TDICT_EINVAL @p tree is not a shared tree, or was unlocked. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_send(int socket, const tdict_tree *tree, tdict_error *err);
/** @brief Receives a tree that tdict_share_send() sent, in the sender's segment. No element is copied.
 *  @return #TDICT_ETIMEDOUT no message has arrived; #TDICT_EFORMAT the message, its descriptors or the segment are
 *          invalid, and the descriptors are closed; #TDICT_ENOTSUP the message or the segment has another version, or
 *          the schema has an object; #TDICT_EIO also if the peer has closed the socket. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_receive(int socket, int64_t timeout_ns, tdict_tree **out,
                                                           tdict_error *err);

typedef struct tdict_share_ring tdict_share_ring; /**< a ring; the trainer and each worker have their own handle */

#define TDICT_SHARE_MAX_SLOTS 1024   /**< the largest number of slots of a ring */
#define TDICT_SHARE_MAX_WORKERS 1024 /**< the largest number of workers of a ring */

typedef struct tdict_share_ring_options {
  size_t struct_size;
  int32_t num_slots;   /**< 1 to #TDICT_SHARE_MAX_SLOTS; default 8 */
  int32_t max_workers; /**< maximum number of workers at the same time, 1 to #TDICT_SHARE_MAX_WORKERS; default 64 */
} tdict_share_ring_options;
static inline tdict_share_ring_options tdict_share_ring_options_default(void) {
  tdict_share_ring_options o;
  tdict_init_struct_(o);
  o.num_slots = 8;
  o.max_workers = 64;
  return o;
}

/** @brief Creates a ring, whose trainer is the calling process. All slots are empty, and their elements are zero.
 *  @param[in] like  The slots have the keys, batch sizes, dtypes and shapes of this tree. Its elements are not read.
 *  @return The errors of tdict_share_create(); #TDICT_EINVAL an option is out of range. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_create(const tdict_tree *like,
                                                               const tdict_share_ring_options *options,
                                                               tdict_share_ring **out, tdict_error *err);
/** @brief Destroys a ring, and ends the part of this process in it. NULL is allowed.
 *  @note Trees end unless retained. After the trainer's call, tdict_share_ring_begin() returns #TDICT_ECANCELLED. */
TDICT_API void tdict_share_ring_destroy(tdict_share_ring *ring);

/** @brief Trainer: adds a worker, and sends the ring to it. The call does not wait for the worker.
 *  @param[in] socket  As in tdict_share_send(). The program may close the socket after the call.
 *  @param[in] pid     The worker, not yet reaped with waitpid().
 *  @return #TDICT_EINVAL the ring already has `max_workers` workers; #TDICT_ENOTFOUND there is no such process;
 *          #TDICT_EIO the worker has died before it attached, so start another; #TDICT_ENOTSUP the system has no
 *          process descriptors, which Linux 5.3 introduced. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_add_worker(tdict_share_ring *ring, int socket, int32_t pid,
                                                                   tdict_error *err);
/** @brief Trainer: pins all slots for the default device, so transfers copy directly from them. Takes 40 ms per GB.
 *  @return #TDICT_EINVAL the ring is already pinned, or a slot that the trainer has taken is not empty yet;
 *          #TDICT_ENODEVICE the default device of the context is the cpu; #TDICT_ENOMEM and #TDICT_EDEVICE the driver
 *          refused to register the memory. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_pin(tdict_context *context, tdict_share_ring *ring,
                                                            tdict_error *err);
/** @brief Trainer: waits until a worker has published a slot, and returns the slot, borrowed until it is given back.
 *  @note Several slots may be held at once. Do not unlock the trees. After #TDICT_ELOST and #TDICT_EFORMAT, call again:
 *        #TDICT_ELOST may come before batches that the dead worker has published, and these follow.
 *  @return #TDICT_ETIMEDOUT no slot is full; #TDICT_ENOTFOUND no slot is full, and no worker is left; #TDICT_ELOST a
 *          worker, err->native, has ended without tdict_share_ring_destroy(); #TDICT_EFORMAT a state word is wrong, and
 *          the slot that the message names is empty now. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_take(tdict_share_ring *ring, int64_t timeout_ns,
                                                             tdict_tree **out, tdict_error *err);
/** @brief Trainer: gives a slot back, as soon as its transfer has been started. Never waits.
 *  @return #TDICT_EINVAL the trainer has not taken @p tree from this ring.
 *  @note The program's own reads must have ended. docs/neighbours.md says when to wait or to copy first. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_give_back(tdict_share_ring *ring, tdict_tree *tree,
                                                                  tdict_error *err);

/** @brief Worker: receives a ring that tdict_share_ring_add_worker() sent. Errors: as tdict_share_receive().
 *  @param[in] socket  As in tdict_share_receive(). The program may close the socket after the call. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_attach(int socket, int64_t timeout_ns, tdict_share_ring **out,
                                                               tdict_error *err);
/** @brief Worker: waits until a slot is empty, and returns the slot to fill, borrowed until it is published.
 *  @note The slot has old elements, or zeros. Several slots may be filled at once. Do not unlock the trees.
 *  @return #TDICT_ETIMEDOUT no slot is empty; #TDICT_ECANCELLED the trainer has destroyed the ring or has ended. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_begin(tdict_share_ring *ring, int64_t timeout_ns,
                                                              tdict_tree **out, tdict_error *err);
/** @brief Worker: passes a filled slot to the trainer, which sees all earlier writes. Do not write again. Never waits.
 *  @return #TDICT_EINVAL @p tree is not a slot of tdict_share_ring_begin(); #TDICT_EFORMAT another process has changed
 *          the state word, and the worker has lost the slot. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_publish(tdict_share_ring *ring, tdict_tree *tree,
                                                                tdict_error *err);

TDICT_END_DECLS
#endif
