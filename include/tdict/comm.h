/* Declares communicators. A communicator sends whole trees between processes, called ranks. The ranks may be on
 * different machines. tdict_comm_create() makes a communicator over a table of byte operations (tdict/comm_table.h).
 *
 * **Calls.** Each function whose name ends in `_async` starts a call, and returns a future. Keys and shapes of the
 * trees are read before the function returns. Until the future has ended, the program must not write the elements of a
 * source. It must not use the elements of a tree that is written in place. tdict_future_take() waits and releases the
 * future. The calls of a communicator are made one after another, in the order in which the program starts them. The
 * communicator starts one thread at the first call. This thread makes the calls, or a thread that waits for a future.
 * If a table permits operations on the calling thread only (`on_calling_thread`), such as MPI's below
 * MPI_THREAD_SERIALIZED, the function makes the whole call before it returns. The future has then ended.
 * tdict_future_cancel() does not stop a call: use tdict_comm_abort().
 * **Collective calls.** All calls except send and receive are collective: every rank must start the call, in the same
 * order as its other collective calls. A call begins with one exchange of a short header among all ranks. If the ranks
 * call different functions, or pass different roots, dimensions or operations, the call fails with #TDICT_EINVAL on
 * every rank. If the trees must match and differ, the call fails with #TDICT_ESHAPE on every rank, and err->path names
 * the first key that differs. If the arguments of one rank are invalid, the call fails with the error of this rank on
 * every rank, and the message begins with the number of the rank. In all of these cases, no element is sent, and the
 * communicator stays usable.
 * **Messages.** The elements of a tree travel in one message between two ranks. Only tdict_comm_all_reduce_async()
 * needs one message for each dtype. If the tensors of a tree are in one storage, in the layout of tdict_create_from(),
 * this storage is sent without a copy. Otherwise the tensors are first copied into one new storage on the device of the
 * communicator. A rank that needs a schema receives the schema only once. The communicator then keeps the schema while
 * it is one of the 64 schemas that were used last.
 * **Locked trees.** If all tensors of a locked tree (tdict_lock()) are in one storage, the first call checks the tree.
 * Later calls with this tree do not read its tensors again, until the tree is unlocked. Lock the trees that the program
 * sends again and again. Locking a tree above it does not have this effect.
 * **Trees.** Trees may have any keys, dtypes and strides, but no objects (tdict/object.h), such as text or ragged
 * leaves. The tensors of a source tree may be on any device of the context. The tensors of a tree that a call writes in
 * place must be on the device of the communicator. A new tree is on the device of the communicator, is not locked, and
 * has no device of its own (tdict_get_device()). Sources are not changed.
 * **Order.** A call first waits for all earlier transfers that use the elements of its trees. The call also waits for
 * the work that is queued on the option `after`. All elements are sent and received when the future has ended.
 * **Failure.** If a rank fails after the headers agree, or another rank does not answer within the time limit, the call
 * aborts the communicator, as tdict_comm_abort() does. The other ranks then get an error too, at the latest after
 * their own time limits. An abort does not free the communicator. Later calls on an aborted communicator fail with the
 * status of the first error. If a failed call may have written a part of a tree in place, the elements of this tree are
 * lost (tdict/transfer.h).
 *
 * **Errors.** These errors are returned by the function, and this rank then takes no part in the call:
 * - #TDICT_EINVAL: `comm` or `out` is NULL.
 * - #TDICT_EFORKED: this process is a fork of the process that created the context.
 * - #TDICT_EIO: no thread can be started; #TDICT_ENOMEM.
 *
 * All other errors are errors of the future:
 * - #TDICT_EINVAL: a tree is NULL, a rank does not exist, or a tensor has lost bytes.
 * - #TDICT_EINVAL also: an option is invalid or not used by the call, and the message names the option.
 * - #TDICT_EINVAL also: the ranks call different functions, or pass different arguments.
 * - #TDICT_ESHAPE: the trees of the ranks differ.
 * - #TDICT_ENOTSUP: a tree has an object, and err->path names the object.
 * - #TDICT_EWRONGDEVICE: a tensor, memory or stream is on a device that the call cannot use.
 * - #TDICT_EREADONLY: a tensor to write is read-only.
 * - #TDICT_ETIMEDOUT: another rank did not answer within the time limit.
 * - #TDICT_ELOST: another rank has ended or failed, or the device is lost.
 * - #TDICT_ECANCELLED: tdict_comm_abort() was called.
 * - #TDICT_EFORMAT: another rank sent malformed data, or uses another version of the protocol.
 * - #TDICT_ENOMEM, #TDICT_EDEVICE, errors of the table, and errors of tdict_schema_from_tree().
 *
 * **Trust.** All ranks must trust each other. Data from another rank is checked only as far as the library must check
 * it to keep memory accesses valid.
 * Thread rule: any thread may call any function. Threads that make collective calls must agree on one order for all
 * ranks. Trees: as in tdict/tree.h. tdict_comm_destroy() must be the last call on a communicator. */
#ifndef TDICT_COMM_H
#define TDICT_COMM_H

#include "tdict/comm_table.h"
#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

typedef struct tdict_comm tdict_comm;

/** Options of tdict_comm_create(). */
typedef struct tdict_comm_create_options {
  size_t struct_size;
  int64_t timeout_ns; /**< time limit in nanoseconds of calls that do not set their own; default 60 seconds */
} tdict_comm_create_options;
static inline tdict_comm_create_options tdict_comm_create_options_default(void) {
  tdict_comm_create_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.timeout_ns = tdict_cast_(int64_t, 60) * 1000000000;
  return o;
}

/** @brief Creates a communicator. Sends nothing to other ranks.
 *  @param[in]  context  Must have the table's device, and must outlive the communicator.
 *  @param[in]  table    Copied. On success, the communicator takes over table->self. On failure, the caller still owns
 *                       table->self.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      New communicator, destroyed with tdict_comm_destroy(). Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument or a function of the table is NULL, the rank is not below
 *          `world_size`, or the time limit is not positive; #TDICT_ENODEVICE the context does not have the device;
 *          #TDICT_ENOTSUP an unknown field is not zero; #TDICT_EDEVICE; #TDICT_ELOST; #TDICT_EFORKED; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_create(tdict_context *context, const tdict_comm_table *table,
                                                         const tdict_comm_create_options *options, tdict_comm **out,
                                                         tdict_error *err);
/** @brief Waits for the calls of this rank, and destroys the communicator. If the communicator was not aborted, every
 *  rank must call this function. NULL is allowed. */
TDICT_API void tdict_comm_destroy(tdict_comm *comm);
/** @brief Aborts the communicator. Calls of this rank end with #TDICT_ECANCELLED soon, and later calls at once. Waits
 *  for no other rank. NULL is allowed. A second abort has no effect. */
TDICT_API void tdict_comm_abort(tdict_comm *comm);
/** @brief Returns the number of this rank, from 0 to tdict_comm_world_size() - 1. */
TDICT_API int32_t tdict_comm_rank(const tdict_comm *comm);
/** @brief Returns the number of ranks. */
TDICT_API int32_t tdict_comm_world_size(const tdict_comm *comm);
/** @brief Returns the device on which the communicator sends and receives. */
TDICT_API tdict_device tdict_comm_device(const tdict_comm *comm);

/** Options of calls. Ranks may pass different options, except `dim`. */
typedef struct tdict_comm_options {
  size_t struct_size;
  /** How long the call waits for other ranks at each step, in nanoseconds. 0 (default): the limit of the communicator.
   *  A table such as MPI's may be unable to give up, see tdict/comm_table.h. */
  int64_t timeout_ns;
  /** A stream of the device of the communicator. The call reads and writes elements after the work that is queued on
   *  the stream when the call is started. None (default): the legacy stream. Must be none if the device is the cpu. */
  tdict_stream after;
  /** Allocates the result; must be of the device of the communicator. NULL (default): the context's memory of this
   *  device. Only for calls that make a tree. */
  tdict_memory *memory;
  /** The batch dimension along which scatter cuts, and gather and all_gather join. Negative values count from the end.
   *  All ranks must pass the same number. Default 0, which other calls need. */
  int32_t dim;
  /** For scatter on the root: the size of each rank's part along `dim`, one number for each rank. A part may be empty.
   *  NULL (default): the sizes differ by at most 1, and lower ranks have the larger parts. Copied. Other calls need
   *  NULL. */
  const int64_t *counts;
} tdict_comm_options;
static inline tdict_comm_options tdict_comm_options_default(void) {
  tdict_comm_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

/** @brief Sends a tree from rank @p root to all ranks. Collective.
 *  @param[in]  src      On @p root: the tree, borrowed. On other ranks: must be NULL.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      A new future, released with tdict_future_release(). Its result is a new tree on other ranks,
 *                       and @p src itself on @p root.
 *  @return See the errors at the top of this header. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_broadcast_async(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                                                  const tdict_comm_options *options, tdict_future **out,
                                                                  tdict_error *err);
/** @brief Copies the elements of the tree of rank @p root into the trees of all other ranks. Collective.
 *
 *  The trees must have equal schemas (tdict/schema.h). Addresses and locks do not change. Two tensors of a tree may
 *  share bytes if the tensors of @p root share bytes in the same way.
 *  @param[in,out] tree  On @p root, the tree is only read. It is the result of the future.
 *  @return See the errors at the top of this header. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_broadcast_into_async(tdict_comm *comm, tdict_tree *tree, int32_t root,
                                                                       const tdict_comm_options *options,
                                                                       tdict_future **out, tdict_error *err);
/** @brief Cuts the tree of rank @p root along a batch dimension, and sends one part to each rank. Collective.
 *  @param[in]  src      On @p root: the tree, borrowed. On other ranks: must be NULL.
 *  @param[in]  options  `dim` and `counts` say how the tree is cut. NULL for the defaults.
 *  @param[out] out      The result of the future is the part of this rank, a new tree.
 *  @return See the errors at the top of this header. The future also fails with #TDICT_EINVAL if `dim` does not exist
 *          or a count is negative, and with #TDICT_ESHAPE if the sum of `counts` is not the size of the dimension. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_scatter_async(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                                                const tdict_comm_options *options, tdict_future **out,
                                                                tdict_error *err);
/** @brief Joins the trees of all ranks along a batch dimension, in the order of the ranks, on rank @p root. Collective.
 *
 *  The schemas of the trees may differ only in the size of this dimension. A part may be empty.
 *  @param[in]  src  The part of this rank, borrowed.
 *  @param[out] out  The result of the future is a new tree on @p root, and NULL on other ranks.
 *  @return See the errors at the top of this header. The future also fails with #TDICT_EINVAL if `dim` does not exist,
 *          and with #TDICT_EOVERFLOW if the sum of the sizes is too large. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_gather_async(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                                               const tdict_comm_options *options, tdict_future **out,
                                                               tdict_error *err);
/** @brief Joins the trees of all ranks along a batch dimension, like tdict_comm_gather_async(), on every rank.
 *         Collective.
 *  @return Errors of tdict_comm_gather_async(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_all_gather_async(tdict_comm *comm, const tdict_tree *src,
                                                                   const tdict_comm_options *options,
                                                                   tdict_future **out, tdict_error *err);
/** @brief Joins the trees of all ranks along a new first batch dimension. Collective.
 *
 *  The size of the new dimension is the number of ranks. The trees must have equal schemas. The tensors of the result
 *  share one storage, and are usually strided: the elements of one rank are contiguous, and the elements of two ranks
 *  are far apart. tdict_contiguous() makes contiguous tensors.
 *  @param[in]  src  The tree of this rank, borrowed.
 *  @param[out] out  The result of the future is a new tree.
 *  @return See the errors at the top of this header. The future also fails with #TDICT_EINVAL if a tensor or tree of
 *          the result would have too many dimensions. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_all_gather_stack_async(tdict_comm *comm, const tdict_tree *src,
                                                                         const tdict_comm_options *options,
                                                                         tdict_future **out, tdict_error *err);
/** @brief Combines the elements of the trees of all ranks, and writes the result into the tree of each rank.
 *  Collective.
 *
 *  The trees must have equal schemas. Addresses and locks do not change. Two tensors of a tree may share bytes if the
 *  tensors of all ranks share bytes in the same way. The unused bytes between the tensors of tdict_create_from() may
 *  change. The parts of complex numbers are summed like floating-point numbers.
 *  @param[in,out] tree  The elements of this rank, which the call replaces. It is the result of the future.
 *  @return See the errors at the top of this header. The future also fails with #TDICT_EINVAL if @p op is not a
 *          tdict_reduce_op, and with #TDICT_ENOTSUP if the table cannot combine a dtype with @p op. #TDICT_REDUCE_MEAN
 *          needs floating-point dtypes. err->path names the first such tensor. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_all_reduce_async(tdict_comm *comm, tdict_tree *tree,
                                                                   tdict_reduce_op op,
                                                                   const tdict_comm_options *options,
                                                                   tdict_future **out, tdict_error *err);
/** @brief Sends a tree to rank @p peer, which must call tdict_comm_receive_async(). The future ends after the tree was
 *         received.
 *
 *  If two ranks wait for a send to each other at the same time, both get #TDICT_EINVAL or #TDICT_ETIMEDOUT. If the
 *  receiving call fails before the elements are sent, this call fails with the same error.
 *  @param[in]  src   Borrowed.
 *  @param[in]  peer  Another rank than this rank.
 *  @param[out] out   The result of the future is @p src.
 *  @return See the errors at the top of this header. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_send_async(tdict_comm *comm, const tdict_tree *src, int32_t peer,
                                                             const tdict_comm_options *options, tdict_future **out,
                                                             tdict_error *err);
/** @brief Receives a tree from rank @p peer, which must call tdict_comm_send_async().
 *
 *  If the sending call fails before the elements are sent, this call fails with the same error.
 *  @param[out] out  The result of the future is a new tree.
 *  @return See the errors at the top of this header. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_receive_async(tdict_comm *comm, int32_t peer,
                                                                const tdict_comm_options *options, tdict_future **out,
                                                                tdict_error *err);

TDICT_END_DECLS
#endif
