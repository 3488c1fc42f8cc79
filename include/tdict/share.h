/* Declares trees in shared memory: single trees, and rings of trees that carry batches from worker processes to a
 * trainer. Linux only.
 *
 * **Segments.** A shared tree is consolidated, see tdict/clone.h. Its bytes and its schema lie in a segment. A segment
 * is an anonymous file of memfd_create(), so nothing remains in /dev/shm. Each process that has the tree holds one
 * mapping and one descriptor of the segment. Releasing the tree, and all tensors of the tree, frees both. The segment
 * is sealed: its size cannot change. All memory of a segment is allocated when the segment is created, so that a
 * shortage is an error of that call.
 *
 * **Order.** The functions for single trees do not order accesses. Every process that has the tree may write its
 * elements at any time. A ring orders accesses.
 *
 * **Trust.** A received segment is checked before it is mapped, and its schema is parsed as untrusted bytes. Words of
 * the segment are checked whenever they are read. Another process can therefore write wrong elements, but it cannot
 * make this process access memory outside of the segment. Programs that use elements as indices must check them.
 *
 * **A ring** has slots. Each slot is a shared tree, and all slots have one structure. A worker calls
 * tdict_share_ring_begin(), fills the tree, and calls tdict_share_ring_publish(). The trainer calls
 * tdict_share_ring_take(), uses the tree, and calls tdict_share_ring_give_back(). The trainer is the process that
 * created the ring. The trainer receives the batches of one worker in the order in which the worker published them.
 * Batches of different workers that are published at about the same time may arrive in any order.
 *
 * **Starting workers.** Start workers before the context is created, or start them with exec, as posix_spawn() does. A
 * process that was forked without exec has copies of the trainer's locks, but not its threads. The CUDA driver does not
 * work in such a process at all. There, every call that needs threads or a driver returns #TDICT_EFORKED. The calls on
 * the trainer's ring do so too. A worker started with exec has none of these problems, and may have a context itself.
 *
 * **Death of a worker.** The trainer holds a process descriptor of each worker. If a worker ends without
 * tdict_share_ring_destroy(), tdict_share_ring_take() reports the worker once. The slots that the worker was filling
 * are empty again. Batches that the worker published before are still delivered. The ring goes on with the other
 * workers. If the trainer ends, the workers' next call of tdict_share_ring_begin() returns #TDICT_ECANCELLED.
 *
 * Thread rule: one thread at a time uses a ring. Functions for single trees are thread-safe, but two threads that
 * receive from one socket get the trees in any order. Trees: as in tdict/tree.h. */
#ifndef TDICT_SHARE_H
#define TDICT_SHARE_H

#include "tdict/schema.h"
#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

/** @brief Copies a tree into a new segment.
 *  @param[in]  tree  Borrowed. Its tensors may be on devices.
 *  @param[out] out   New consolidated tree with one reference, without a device. Written on success only.
 *  @return #TDICT_OK; #TDICT_ENOTSUP an object, such as text or a ragged leaf, and err->path names it; #TDICT_EINVAL a
 *          NULL pointer; #TDICT_ENOMEM; #TDICT_EIO the system refused the segment, and err->native is the errno; the
 *          errors of tdict_tree_schema_export() and tdict_tensor_copy(), with the path of the tensor.
 *  @note Cost: one copy of all bytes, plus O(keys). */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_create(const tdict_tree *tree, tdict_tree **out, tdict_error *err);
/** @brief Creates a tree in a new segment, as a schema describes the tree. All elements are zero.
 *  @param[out] out  New consolidated tree with one reference, without a device. Written on success only.
 *  @return Errors of tdict_share_create(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_create_from(const tdict_tree_schema *schema, tdict_tree **out,
                                                               tdict_error *err);
/** @brief Sends a shared tree to another process. The message has 16 bytes and one descriptor.
 *  @param[in] socket  A connected Unix socket of type SOCK_STREAM or SOCK_SEQPACKET. Borrowed. If the socket is full,
 *                     the call waits, unless the socket is non-blocking.
 *  @param[in] tree    From tdict_share_create(), tdict_share_create_from() or tdict_share_receive(). Borrowed.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer, or @p tree is no shared tree or was unlocked; #TDICT_EIO the socket
 *          refused the message, and err->native is the errno. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_send(int socket, const tdict_tree *tree, tdict_error *err);
/** @brief Receives a tree that tdict_share_send() sent. The tree uses the sender's segment; no element is copied.
 *
 *  The call reads one message. If the message is wrong, the call closes all its descriptors.
 *  @param[in]  socket      A connected Unix socket. Borrowed.
 *  @param[in]  timeout_ns  Maximum time to wait for a message. INT64_MAX: no limit.
 *  @param[out] out         New consolidated tree with one reference. Written on success only.
 *  @return #TDICT_OK; #TDICT_ETIMEDOUT no message has arrived; #TDICT_EFORMAT the message, its descriptors or the
 *          segment are not as tdict_share_send() sends them, and the message says what was found; #TDICT_ENOTSUP the
 *          segment has a later version; #TDICT_EIO the peer has closed the socket, or a system call failed, and
 *          err->native is the errno; #TDICT_EINVAL a NULL pointer, or a negative time or socket; #TDICT_ENOMEM.
 *  @note Cost: O(bytes of the schema * log(keys)). */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_receive(int socket, int64_t timeout_ns, tdict_tree **out,
                                                           tdict_error *err);

typedef struct tdict_share_ring tdict_share_ring;

/** The largest number of slots of a ring, and of workers of a ring. */
#define TDICT_SHARE_MAX_SLOTS 1024
#define TDICT_SHARE_MAX_WORKERS 1024

typedef struct tdict_share_ring_options {
  size_t struct_size;
  int32_t num_slots;   /**< 1 to #TDICT_SHARE_MAX_SLOTS; default 8 */
  int32_t max_workers; /**< workers at the same time, 1 to #TDICT_SHARE_MAX_WORKERS; default 64 */
} tdict_share_ring_options;
static inline tdict_share_ring_options tdict_share_ring_options_default(void) {
  tdict_share_ring_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.num_slots = 8;
  o.max_workers = 64;
  return o;
}

/** @brief Creates a ring, whose owner is the trainer. All slots are empty, and their elements are zero.
 *  @param[in]  like     The slots have the keys, batch sizes, dtypes and shapes of this tree. No element of the tree is
 *                       read. Borrowed for the call.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      New ring, destroyed with tdict_share_ring_destroy(). Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer, or an option is out of range; the errors of
 *          tdict_share_create(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_create(const tdict_tree *like,
                                                               const tdict_share_ring_options *options,
                                                               tdict_share_ring **out, tdict_error *err);
/** @brief Destroys a ring. NULL is allowed.
 *
 *  In the trainer, later calls of the workers return #TDICT_ECANCELLED. Transfers that still read a slot keep the
 *  segment. In a worker, the slots that the worker was filling become empty, and the trainer does not report the worker
 *  when it ends. Trees of the ring must not be used afterwards, unless they were retained. In a fork of the process,
 *  the call changes nothing for other processes. */
TDICT_API void tdict_share_ring_destroy(tdict_share_ring *ring);

/** @brief Adds a worker: opens a descriptor of its process, and sends the ring to the worker. The trainer calls this.
 *
 *  The call does not wait for the worker. The program keeps the socket, and may close the socket after the call.
 *  @param[in] socket  A Unix socket whose other end the worker has, as in tdict_share_send(). Borrowed.
 *  @param[in] pid     Process id of the worker. The program must not have waited for the process with waitpid().
 *  @return #TDICT_OK; #TDICT_EINVAL @p ring is NULL or belongs to a worker, or all `max_workers` workers live;
 *          #TDICT_ENOTFOUND there is no such process; #TDICT_ENOTSUP the system has no process descriptors, which Linux
 *          5.3 introduced; #TDICT_EIO a system call failed, and err->native is the errno; #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_add_worker(tdict_share_ring *ring, int socket, int32_t pid,
                                                                   tdict_error *err);
/** @brief Registers all slots as pinned memory with the driver of the default device. The trainer calls this.
 *
 *  Transfers then copy directly from the slots. Without this call, or if the call fails, transfers copy through the
 *  staging ring. The registration ends when the segment is freed. The ring may outlive the context.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer, the ring belongs to a worker, the ring is pinned, or a slot is in
 *          use; #TDICT_ENODEVICE the default device of the context cannot read pinned memory; #TDICT_ENOMEM and
 *          #TDICT_EDEVICE the driver refused to register the memory; #TDICT_EFORKED.
 *  @note Cost: about 40 ms per GB. Other threads cannot queue copies meanwhile, see tdict_pinned_memory(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_pin(tdict_share_ring *ring, tdict_context *context,
                                                            tdict_error *err);
/** @brief Returns the next full slot. The trainer calls this. Waits until a worker has published a slot.
 *
 *  Several slots may be taken at once. The call also makes slots empty that were given back, if their transfers have
 *  ended.
 *  @param[in]  timeout_ns  Maximum time to wait. 0: does not wait. INT64_MAX: no limit.
 *  @param[out] out         Borrowed from the ring, until the slot is given back. Do not unlock the tree. Written on
 *                          success only.
 *  @return #TDICT_OK; #TDICT_ETIMEDOUT no slot is full; #TDICT_ENOTFOUND no slot is full, and no worker is left;
 *          #TDICT_ELOST a worker has ended without tdict_share_ring_destroy(): the message names its process id and the
 *          slot that it was filling, and err->native is the process id; #TDICT_EFORMAT a word of the segment is wrong,
 *          and the slot that the message names is empty now; #TDICT_EINVAL a NULL pointer, a negative time, or the ring
 *          belongs to a worker; #TDICT_EFORKED.
 *  @note After #TDICT_ELOST and #TDICT_EFORMAT the ring is intact: call again. The death of a worker is noticed within
 *        20 ms while the call waits, and else by the next call.
 *  @note Cost: O(slots), plus O(workers) at most every 20 ms unless the call waits. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_take(tdict_share_ring *ring, int64_t timeout_ns,
                                                             tdict_tree **out, tdict_error *err);
/** @brief Gives a slot back. The trainer calls this. Never waits.
 *
 *  Call this function as soon as the transfer of the slot has been started, even with tdict_to_device_async(). The
 *  slot becomes empty after all transfers that were started from the slot have read it. If they are still reading, a
 *  later call of tdict_share_ring_take() or of this function makes the slot empty.
 *
 *  The program's own reads of the slot must have ended: kernels, copies, and reads through pointers. If the program has
 *  put the slot's tree into a tree that also has objects with hooks, call tdict_future_wait_source() first. A result
 *  that shares tensors of the slot, such as a result on the cpu, shows the next batch later. Use tdict_clone_deep() for
 *  a copy.
 *  @param[in] tree  From tdict_share_ring_take().
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer, or @p tree is no slot that was taken from this ring;
 *          #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_give_back(tdict_share_ring *ring, tdict_tree *tree,
                                                                  tdict_error *err);

/** @brief Receives a ring that tdict_share_ring_add_worker() sent. A worker calls this.
 *  @param[in]  socket      As in tdict_share_receive(). The program may close the socket after the call.
 *  @param[out] out         New ring, destroyed with tdict_share_ring_destroy(). Written on success only.
 *  @return Errors of tdict_share_receive(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_attach(int socket, int64_t timeout_ns, tdict_share_ring **out,
                                                               tdict_error *err);
/** @brief Returns an empty slot, which the worker then fills. A worker calls this. Waits until a slot is empty.
 *
 *  The elements are those of an earlier batch, or zero. Several slots may be filled at once.
 *  @param[in]  timeout_ns  As in tdict_share_ring_take().
 *  @param[out] out         Borrowed from the ring, until the slot is published. Do not unlock the tree. Written on
 *                          success only.
 *  @return #TDICT_OK; #TDICT_ETIMEDOUT no slot is empty; #TDICT_ECANCELLED the trainer has destroyed the ring or has
 *          ended; #TDICT_EINVAL a NULL pointer, a negative time, or the ring belongs to the trainer; #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_begin(tdict_share_ring *ring, int64_t timeout_ns,
                                                              tdict_tree **out, tdict_error *err);
/** @brief Passes a filled slot to the trainer. A worker calls this. Never waits.
 *
 *  The trainer sees all writes that the worker made before the call. The worker must not write the slot afterwards.
 *  @param[in] tree  From tdict_share_ring_begin().
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer, or @p tree is no slot that was begun in this ring; #TDICT_EFORMAT
 *          another process has changed the word of the slot, and the slot is no longer the worker's;
 *          #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_share_ring_publish(tdict_share_ring *ring, tdict_tree *tree,
                                                                tdict_error *err);

TDICT_END_DECLS
#endif
