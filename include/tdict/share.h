/* Declares trees in shared memory: single trees, and rings of trees that carry batches from worker processes to a
 * trainer. Linux only. docs/neighbours.md describes segments, trust, and the life of workers.
 *
 * A shared tree is consolidated, see tdict/clone.h. Its elements and its schema are in a segment, an anonymous file of
 * memfd_create(). All memory of a segment is allocated when the segment is created. The functions for single trees do
 * not order accesses: every process that has the tree may write its elements at any time. A ring orders accesses.
 *
 * A ring has slots. Each slot is a shared tree, and all slots have the same structure. The trainer is the process that
 * created the ring. A worker calls tdict_share_ring_begin(), fills the tree, and calls tdict_share_ring_publish(). The
 * trainer calls tdict_share_ring_take(), uses the tree, and calls tdict_share_ring_give_back(). The batches of one
 * worker arrive in the order in which the worker published them.
 *
 * Start workers before the context is created, or with exec, as posix_spawn() does. In a process that was forked
 * without exec after the context was created, the calls of rings return #TDICT_EFORKED, except
 * tdict_share_ring_destroy().
 *
 * Errors of all functions:
 * - #TDICT_EINVAL: a pointer is NULL, a time or a socket is negative, or the ring belongs to the other side.
 * - #TDICT_ENOMEM: host memory is exhausted, or there is no memory for a segment.
 * - #TDICT_EFORKED: the process is a fork, see above.
 * - #TDICT_EIO: a system call failed, and err->native is the errno.
 *
 * Thread rule: one thread at a time may use a handle of a ring. Functions for single trees are thread-safe. If two
 * threads receive from one socket, either thread may get the next tree. Trees: as in tdict/tree.h. */
#ifndef TDICT_SHARE_H
#define TDICT_SHARE_H

#include "tdict/schema.h"
#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

/** Options of tdict_share_create(). */
typedef struct tdict_share_options {
  size_t struct_size;
  bool is_zero; /**< true: all elements are zero, and the elements of the tree are not read; false (default): all
                     elements are copied */
} tdict_share_options;
static inline tdict_share_options tdict_share_options_default(void) {
  tdict_share_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}
/** @brief Copies a tree into a new segment, or creates a tree of the same structure there.
 *  @param[in]  tree     Borrowed. Its tensors may be on devices.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      New consolidated tree with one reference, without a device. Written on success only.
 *  @return #TDICT_OK; #TDICT_ENOTSUP the tree has an object, such as text or a ragged leaf, and err->path names the
 *          object; #TDICT_EOVERFLOW the tree is too large for a segment; the errors of tdict_schema_from_tree() and
 *          tdict_tensor_copy(), with the path of the tensor.
 *  @note Cost: one copy of all bytes, plus O(keys). */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_create(const tdict_tree *tree, const tdict_share_options *options,
                                                          tdict_tree **out, tdict_error *err);
/** @brief Sends a shared tree to another process. The message has 16 bytes and one descriptor.
 *  @param[in] socket  A connected Unix socket of type SOCK_STREAM or SOCK_SEQPACKET. Borrowed. If the buffer of the
 *                     socket is full, the call waits, unless the socket is non-blocking.
 *  @param[in] tree    From tdict_share_create() or tdict_share_receive(). Borrowed.
 *  @return #TDICT_OK; #TDICT_EINVAL @p tree is not a shared tree, or was unlocked. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_send(int socket, const tdict_tree *tree, tdict_error *err);
/** @brief Receives a tree that tdict_share_send() sent. The tree uses the sender's segment, so no element is copied.
 *
 *  The call reads one message. If the message is wrong, the call closes all descriptors of the message.
 *  @param[in]  socket      A connected Unix socket. Borrowed.
 *  @param[in]  timeout_ns  Maximum time to wait for a message, in nanoseconds. INT64_MAX: no limit.
 *  @param[out] out         New consolidated tree with one reference. Written on success only.
 *  @return #TDICT_OK; #TDICT_ETIMEDOUT no message has arrived; #TDICT_EFORMAT the message, its descriptors or the
 *          segment are invalid, and the error message gives the reason; #TDICT_ENOTSUP the message or the segment has
 *          another version, or the schema has an object; #TDICT_EIO the peer has closed the socket.
 *  @note Cost: O(bytes of the schema * log(keys)). */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_receive(int socket, int64_t timeout_ns, tdict_tree **out,
                                                           tdict_error *err);

/** A ring of shared trees. The trainer and each worker have their own handle of the ring. */
typedef struct tdict_share_ring tdict_share_ring;

#define TDICT_SHARE_MAX_SLOTS 1024   /**< the largest number of slots of a ring */
#define TDICT_SHARE_MAX_WORKERS 1024 /**< the largest number of workers of a ring */

typedef struct tdict_share_ring_options {
  size_t struct_size;
  int32_t num_slots;   /**< 1 to #TDICT_SHARE_MAX_SLOTS; default 8 */
  int32_t max_workers; /**< maximum number of workers at the same time, 1 to #TDICT_SHARE_MAX_WORKERS; default 64 */
} tdict_share_ring_options;
static inline tdict_share_ring_options tdict_share_ring_options_default(void) {
  tdict_share_ring_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.num_slots = 8;
  o.max_workers = 64;
  return o;
}

/** @brief Creates a ring. The calling process becomes the trainer. All slots are empty, and the elements of all slots
 *  are zero.
 *  @param[in]  like     The slots have the keys, batch sizes, dtypes and shapes of this tree. Borrowed for the call;
 *                       its elements are not read.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      New ring, destroyed with tdict_share_ring_destroy(). Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL an option is out of range; the errors of tdict_share_create(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_create(const tdict_tree *like,
                                                               const tdict_share_ring_options *options,
                                                               tdict_share_ring **out, tdict_error *err);
/** @brief Destroys a ring. NULL is allowed.
 *
 *  In the trainer: later calls of tdict_share_ring_begin() in the workers return #TDICT_ECANCELLED, and transfers that
 *  still read a slot keep the segment alive. In a worker: the slots that it was filling become empty, and the trainer
 *  does not report the worker as dead. Do not use trees of the ring after the call, unless the program has retained
 *  them. In a fork of the process, the call changes nothing for other processes. */
TDICT_API void tdict_share_ring_destroy(tdict_share_ring *ring);

/** @brief Trainer: adds a worker, and sends the ring to it.
 *
 *  The call does not wait for the worker. The program may close the socket after the call.
 *  @param[in] socket  A Unix socket whose other end the worker has, as in tdict_share_send(). Borrowed.
 *  @param[in] pid     Process id of the worker. The program must not have reaped the process with waitpid().
 *  @return #TDICT_OK; #TDICT_EINVAL the ring already has `max_workers` workers; #TDICT_ENOTFOUND there is no such
 *          process; #TDICT_ENOTSUP the system has no process descriptors, which Linux 5.3 introduced. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_add_worker(tdict_share_ring *ring, int socket, int32_t pid,
                                                                   tdict_error *err);
/** @brief Trainer: registers all slots as pinned memory with the driver of the default device.
 *
 *  Transfers then copy directly from the slots. Without this call, or if the call fails, transfers copy through the
 *  staging ring. The registration ends when the segment is freed. The ring may outlive the context.
 *  @return #TDICT_OK; #TDICT_EINVAL the ring is already pinned, or a slot that the trainer has taken is not empty yet;
 *          #TDICT_ENODEVICE the default device of the context is the cpu; #TDICT_ENOMEM and #TDICT_EDEVICE the driver
 *          refused to register the memory.
 *  @note Cost: about 40 ms per GB. Other threads cannot queue copies during this time, see tdict_pinned_memory(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_pin(tdict_context *context, tdict_share_ring *ring,
                                                            tdict_error *err);
/** @brief Trainer: waits until a worker has published a slot, and returns the slot.
 *
 *  The trainer may hold several slots at once. If the transfers and the recorded uses of a slot that was given back
 *  have ended, this call makes the slot empty.
 *  @param[in]  timeout_ns  Maximum time to wait, in nanoseconds. 0: does not wait. INT64_MAX: no limit.
 *  @param[out] out         Borrowed from the ring, until the slot is given back. Do not unlock the tree. Written on
 *                          success only.
 *  @return #TDICT_OK; #TDICT_ETIMEDOUT no slot is full; #TDICT_ENOTFOUND no slot is full, and no worker is left;
 *          #TDICT_ELOST a worker has ended without tdict_share_ring_destroy() (err->native is the process id of the
 *          worker; if the worker was filling slots, the message names the first of these slots); #TDICT_EFORMAT a state
 *          word is wrong, and the slot that the message names is empty now.
 *  @note After #TDICT_ELOST and #TDICT_EFORMAT the ring is intact: call the function again. A call that waits notices
 *        the death of a worker within 20 ms. Calls that find a full slot check the workers at most every 20 ms.
 *  @note Cost: O(slots), plus O(workers) if the call checks the workers. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_take(tdict_share_ring *ring, int64_t timeout_ns,
                                                             tdict_tree **out, tdict_error *err);
/** @brief Trainer: gives a slot back. Never waits.
 *
 *  Call this function as soon as the transfer of the slot has been started, even with tdict_to_device_async(). The slot
 *  becomes empty after all transfers from the slot have ended, so no worker can overwrite elements that a transfer
 *  still reads. The slot also waits for uses by streams that a deleter of tdict/dlpack.h or tdict_record_stream() has
 *  recorded. If a transfer or a use has not ended, a later call of tdict_share_ring_take() or of this function makes
 *  the slot empty.
 *
 *  The program's own reads of the slot must have ended: kernels, copies, and reads through pointers. If a transferred
 *  tree contains the slot's tree and also objects with hooks, call tdict_future_wait_source() before this function. A
 *  result that shares tensors of the slot, such as a result on the cpu, later shows the elements of another batch. To
 *  keep the elements, copy the tree with tdict_clone_deep().
 *  @param[in] tree  From tdict_share_ring_take().
 *  @return #TDICT_OK; #TDICT_EINVAL the trainer has not taken @p tree from this ring. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_give_back(tdict_share_ring *ring, tdict_tree *tree,
                                                                  tdict_error *err);

/** @brief Worker: receives a ring that tdict_share_ring_add_worker() sent.
 *  @param[in]  socket      As in tdict_share_receive(). The program may close the socket after the call.
 *  @param[in]  timeout_ns  As in tdict_share_receive().
 *  @param[out] out         New ring, destroyed with tdict_share_ring_destroy(). Written on success only.
 *  @return Errors of tdict_share_receive(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_attach(int socket, int64_t timeout_ns, tdict_share_ring **out,
                                                               tdict_error *err);
/** @brief Worker: waits until a slot is empty, and returns the slot to fill.
 *
 *  The slot still has the elements of an earlier batch, or zeros. The worker may fill several slots at once.
 *  @param[in]  timeout_ns  As in tdict_share_ring_take().
 *  @param[out] out         Borrowed from the ring, until the slot is published. Do not unlock the tree. Written on
 *                          success only.
 *  @return #TDICT_OK; #TDICT_ETIMEDOUT no slot is empty; #TDICT_ECANCELLED the trainer has destroyed the ring or has
 *          ended. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_begin(tdict_share_ring *ring, int64_t timeout_ns,
                                                              tdict_tree **out, tdict_error *err);
/** @brief Worker: passes a filled slot to the trainer. Never waits.
 *
 *  The trainer sees all writes that the worker made before the call. The worker must not write to the slot after the
 *  call.
 *  @param[in] tree  From tdict_share_ring_begin().
 *  @return #TDICT_OK; #TDICT_EINVAL @p tree is not a slot that tdict_share_ring_begin() returned; #TDICT_EFORMAT
 *  another
 *          process has changed the state word of the slot, and the worker no longer has the slot. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_publish(tdict_share_ring *ring, tdict_tree *tree,
                                                                tdict_error *err);

TDICT_END_DECLS
#endif
