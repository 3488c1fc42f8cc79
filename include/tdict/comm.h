/* Declares communicators. A communicator sends whole trees between processes, called ranks. The ranks may be on
 * different machines. tdict_comm_create() makes a communicator over a table of byte operations (tdict/comm_table.h).
 *
 * **Collective calls.** tdict_broadcast(), tdict_broadcast_into(), tdict_scatter(), tdict_gather_to(),
 * tdict_all_gather(), tdict_all_gather_stack() and tdict_all_reduce() are collective: every rank must make the call, in
 * the same order as its other collective calls. A call begins with one exchange of a short header among all ranks. If
 * the ranks call different functions, or pass different roots, dimensions or operations, the call returns
 * #TDICT_EINVAL on every rank. If the trees must match and differ, the call returns #TDICT_ESHAPE on every rank, and
 * err->path names the first key that differs. If the arguments of one rank are invalid, the call returns the error of
 * this rank on every rank, and the message begins with the number of the rank. In all of these cases, no element is
 * sent, and the communicator stays usable.
 * **Messages.** The elements of a tree travel in one message between two ranks. Only tdict_all_reduce() needs one
 * message for each dtype. If the tensors of a tree are in one storage, in the layout of tdict_create_from(), this
 * storage is sent without a copy. Otherwise the tensors are first copied into one new storage on the device of the
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
 * the work that is queued on the option `after`. All elements are sent and received when the call returns. The calls on
 * one communicator run one after another, in the order in which the program makes the calls.
 * **Failure.** If a rank fails after the headers agree, or another rank does not answer within the time limit, the call
 * aborts the communicator, as tdict_comm_abort() does. The other ranks then return an error too, at the latest after
 * their own time limits. An abort does not free the communicator. Later calls on an aborted communicator return the
 * status of the first error. If a failed call may have written a part of a tree in place, the elements of this tree are
 * lost (tdict/transfer.h).
 *
 * **Errors of all calls that send trees.**
 * - #TDICT_EINVAL: a pointer is NULL, an option is invalid, a rank does not exist, or a tensor has lost bytes.
 * - #TDICT_EINVAL also: the ranks call different functions, or pass different arguments.
 * - #TDICT_ESHAPE: the trees of the ranks differ.
 * - #TDICT_ENOTSUP: a tree has an object, and err->path names the object.
 * - #TDICT_EWRONGDEVICE: a tensor, memory or stream is on a device that the call cannot use.
 * - #TDICT_EREADONLY: a tensor to write is read-only.
 * - #TDICT_ETIMEDOUT: another rank did not answer within the time limit.
 * - #TDICT_ELOST: another rank has ended or failed, or the device is lost.
 * - #TDICT_ECANCELLED: tdict_comm_abort() was called.
 * - #TDICT_EFORMAT: another rank sent malformed data, or uses another version of the protocol.
 * - #TDICT_EFORKED: this process is a fork of the process that created the context.
 * - #TDICT_ENOMEM, #TDICT_EDEVICE, errors of the table, and errors of tdict_schema_from_tree().
 *
 * **Asynchronous calls.** Each call that sends trees has a form with the suffix `_async`. This form returns a future
 * before the elements are sent. Keys and shapes of the trees are read before the _async call returns. The future ends
 * with the result or the error of the blocking call. Until then, the program must not write the elements of a source,
 * and must not use the elements of a tree that is written in place. The communicator starts one thread at the first
 * _async call, which runs all asynchronous calls. tdict_future_cancel() does not stop a call: use tdict_comm_abort().
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
 *  @return #TDICT_OK; #TDICT_EINVAL an argument or a function of the table is NULL, the rank is not below `world`, or
 *          the time limit is not positive; #TDICT_ENODEVICE the context does not have the device; #TDICT_ENOTSUP an
 *          unknown field is not zero; #TDICT_EDEVICE; #TDICT_ELOST; #TDICT_EFORKED; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_create(tdict_context *context, const tdict_comm_table *table,
                                                         const tdict_comm_create_options *options, tdict_comm **out,
                                                         tdict_error *err);
/** @brief Waits for the asynchronous calls of this rank, and destroys the communicator. If the communicator was not
 *  aborted, every rank must call this function. NULL is allowed. */
TDICT_API void tdict_comm_destroy(tdict_comm *comm);
/** @brief Aborts the communicator. Calls that run on this rank return #TDICT_ECANCELLED soon, and later calls return
 *  #TDICT_ECANCELLED at once. Waits for no other rank. NULL is allowed. A second abort has no effect. */
TDICT_API void tdict_comm_abort(tdict_comm *comm);
/** @brief Returns the number of this rank, from 0 to tdict_comm_world() - 1. */
TDICT_API int32_t tdict_comm_rank(const tdict_comm *comm);
/** @brief Returns the number of ranks. */
TDICT_API int32_t tdict_comm_world(const tdict_comm *comm);
/** @brief Returns the device on which the communicator sends and receives. */
TDICT_API tdict_device tdict_comm_device(const tdict_comm *comm);

/** Options of the calls that send trees. Ranks may pass different options, except `dim`. */
typedef struct tdict_comm_options {
  size_t struct_size;
  /** How long the call waits for other ranks at each step, in nanoseconds. 0 (default): the limit of the communicator.
   *  A table such as MPI's may be unable to give up, see tdict/comm_table.h. */
  int64_t timeout_ns;
  /** A stream of the device of the communicator. The call reads and writes elements after the work that is queued on
   *  the stream at the time of the call. NULL (default): the legacy stream. Ignored if the device is the cpu. */
  const tdict_stream *after;
  tdict_memory *memory; /**< allocates the result; must be of the device of the communicator. NULL (default): the
                             context's memory of this device */
  /** The batch dimension along which tdict_scatter() cuts, and tdict_gather_to() and tdict_all_gather() join. Negative
   *  values count from the end. All ranks must pass the same number. Default 0. */
  int32_t dim;
  /** For tdict_scatter() on the root: the size of each rank's part along `dim`, one number for each rank. A part may be
   *  empty. NULL (default): the sizes differ by at most 1, and lower ranks have the larger parts. Borrowed for the
   *  call. */
  const int64_t *counts;
} tdict_comm_options;
static inline tdict_comm_options tdict_comm_options_default(void) {
  tdict_comm_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

/** @brief Sends a tree from rank @p root to all ranks. Collective.
 *  @param[in]  src  On @p root: the tree, borrowed. On other ranks: must be NULL.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out  A tree with one reference: a new tree on other ranks, and @p src itself, retained, on @p root.
 *                   Written on success only.
 *  @return #TDICT_OK, and the errors that the top of this header lists. */
TDICT_API TDICT_NODISCARD tdict_status tdict_broadcast(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                                       const tdict_comm_options *options, tdict_tree **out,
                                                       tdict_error *err);
/** @brief Copies the elements of the tree of rank @p root into the trees of all other ranks. Collective.
 *
 *  The trees must have equal schemas (tdict/schema.h). Addresses and locks do not change. Two tensors of a tree may
 *  share bytes if the tensors of @p root share bytes in the same way.
 *  @param[in,out] tree  On @p root, the tree is only read.
 *  @return #TDICT_OK, and the errors that the top of this header lists. */
TDICT_API TDICT_NODISCARD tdict_status tdict_broadcast_into(tdict_comm *comm, tdict_tree *tree, int32_t root,
                                                            const tdict_comm_options *options, tdict_error *err);
/** @brief Cuts the tree of rank @p root along a batch dimension, and sends one part to each rank. Collective.
 *  @param[in]  src  On @p root: the tree, borrowed. On other ranks: must be NULL.
 *  @param[in]  options  `dim` and `counts` say how the tree is cut. NULL for the defaults.
 *  @param[out] out  The part of this rank, a new tree with one reference. Written on success only.
 *  @return #TDICT_OK, and the errors that the top of this header lists; #TDICT_EINVAL also if `dim` does not exist or
 *          a count is negative; #TDICT_ESHAPE also if the sum of `counts` is not the size of the dimension. */
TDICT_API TDICT_NODISCARD tdict_status tdict_scatter(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                                     const tdict_comm_options *options, tdict_tree **out,
                                                     tdict_error *err);
/** @brief Joins the trees of all ranks along a batch dimension, in the order of the ranks, on rank @p root. Collective.
 *
 *  The schemas of the trees may differ only in the size of this dimension. A part may be empty.
 *  @param[in]  src  The part of this rank, borrowed.
 *  @param[out] out  On @p root: a new tree with one reference. On other ranks: NULL. Written on success only.
 *  @return #TDICT_OK, and the errors that the top of this header lists; #TDICT_EINVAL also if `dim` does not exist;
 *          #TDICT_EOVERFLOW the sum of the sizes is too large. */
TDICT_API TDICT_NODISCARD tdict_status tdict_gather_to(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                                       const tdict_comm_options *options, tdict_tree **out,
                                                       tdict_error *err);
/** @brief Joins the trees of all ranks along a batch dimension, like tdict_gather_to(), on every rank. Collective.
 *  @return Errors of tdict_gather_to(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_all_gather(tdict_comm *comm, const tdict_tree *src,
                                                        const tdict_comm_options *options, tdict_tree **out,
                                                        tdict_error *err);
/** @brief Joins the trees of all ranks along a new first batch dimension. Collective.
 *
 *  The size of the new dimension is the number of ranks. The trees must have equal schemas. The tensors of the result
 *  share one storage, and are usually strided: the elements of one rank are contiguous, and the elements of two ranks
 *  are far apart. tdict_contiguous() makes contiguous tensors.
 *  @param[in]  src  The tree of this rank, borrowed.
 *  @param[out] out  New tree with one reference. Written on success only.
 *  @return #TDICT_OK, and the errors that the top of this header lists; #TDICT_EINVAL also if a tensor or tree of the
 *          result would have too many dimensions. */
TDICT_API TDICT_NODISCARD tdict_status tdict_all_gather_stack(tdict_comm *comm, const tdict_tree *src,
                                                              const tdict_comm_options *options, tdict_tree **out,
                                                              tdict_error *err);
/** @brief Combines the elements of the trees of all ranks, and writes the result into the tree of each rank.
 *  Collective.
 *
 *  The trees must have equal schemas. Addresses and locks do not change. Two tensors of a tree may share bytes if the
 *  tensors of all ranks share bytes in the same way. The unused bytes between the tensors of tdict_create_from() may
 *  change. The parts of complex numbers are summed like floating-point numbers.
 *  @param[in,out] tree  The elements of this rank, which the call replaces by the result.
 *  @return #TDICT_OK, and the errors that the top of this header lists; #TDICT_ENOTSUP also if the table cannot combine
 *          a dtype with @p op, or @p op is #TDICT_REDUCE_MEAN and a dtype is not a floating-point type. err->path names
 *          the first such tensor. #TDICT_EINVAL also if @p op is not a tdict_reduce_op. */
TDICT_API TDICT_NODISCARD tdict_status tdict_all_reduce(tdict_comm *comm, tdict_tree *tree, tdict_reduce_op op,
                                                        const tdict_comm_options *options, tdict_error *err);
/** @brief Sends a tree to rank @p peer, which must call tdict_receive(). Returns after the tree was received.
 *
 *  Two ranks that both send to each other at the same time return #TDICT_EINVAL or #TDICT_ETIMEDOUT. If the receiving
 *  call fails before the elements are sent, tdict_send() returns the error of that call.
 *  @param[in] src   Borrowed.
 *  @param[in] peer  Another rank than this rank.
 *  @return #TDICT_OK, and the errors that the top of this header lists. */
TDICT_API TDICT_NODISCARD tdict_status tdict_send(tdict_comm *comm, const tdict_tree *src, int32_t peer,
                                                  const tdict_comm_options *options, tdict_error *err);
/** @brief Receives a tree from rank @p peer, which must call tdict_send().
 *
 *  If the sending call fails before the elements are sent, tdict_receive() returns the error of that call.
 *  @param[out] out  New tree with one reference. Written on success only.
 *  @return #TDICT_OK, and the errors that the top of this header lists. */
TDICT_API TDICT_NODISCARD tdict_status tdict_receive(tdict_comm *comm, int32_t peer, const tdict_comm_options *options,
                                                     tdict_tree **out, tdict_error *err);

/** @brief Starts tdict_broadcast() and returns a future, whose result is the tree that tdict_broadcast() writes to
 *  *@p out. The top of this header describes asynchronous calls.
 *  @param[out] out  New future, released with tdict_future_release(). Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL @p comm or @p out is NULL; #TDICT_EIO no thread can be started; #TDICT_EFORKED;
 *          #TDICT_ENOMEM. After an error, this rank takes no part in the call. tdict_future_wait() returns all other
 *          errors. The next functions return the same errors. */
TDICT_API TDICT_NODISCARD tdict_status tdict_broadcast_async(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                                             const tdict_comm_options *options, tdict_future **out,
                                                             tdict_error *err);
/** @brief Starts tdict_broadcast_into(). The result of the future is @p tree.
 *  @return Errors of tdict_broadcast_async(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_broadcast_into_async(tdict_comm *comm, tdict_tree *tree, int32_t root,
                                                                  const tdict_comm_options *options, tdict_future **out,
                                                                  tdict_error *err);
/** @brief Starts tdict_scatter(). The result of the future is the part of this rank. The counts are copied.
 *  @return Errors of tdict_broadcast_async(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_scatter_async(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                                           const tdict_comm_options *options, tdict_future **out,
                                                           tdict_error *err);
/** @brief Starts tdict_gather_to(). The result of the future is the joined tree on @p root, and NULL on other ranks.
 *  @return Errors of tdict_broadcast_async(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_gather_to_async(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                                             const tdict_comm_options *options, tdict_future **out,
                                                             tdict_error *err);
/** @brief Starts tdict_all_gather(). The result of the future is the joined tree.
 *  @return Errors of tdict_broadcast_async(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_all_gather_async(tdict_comm *comm, const tdict_tree *src,
                                                              const tdict_comm_options *options, tdict_future **out,
                                                              tdict_error *err);
/** @brief Starts tdict_all_gather_stack(). The result of the future is the stacked tree.
 *  @return Errors of tdict_broadcast_async(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_all_gather_stack_async(tdict_comm *comm, const tdict_tree *src,
                                                                    const tdict_comm_options *options,
                                                                    tdict_future **out, tdict_error *err);
/** @brief Starts tdict_all_reduce(). The result of the future is @p tree.
 *  @return Errors of tdict_broadcast_async(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_all_reduce_async(tdict_comm *comm, tdict_tree *tree, tdict_reduce_op op,
                                                              const tdict_comm_options *options, tdict_future **out,
                                                              tdict_error *err);
/** @brief Starts tdict_send(). The result of the future is @p src.
 *  @return Errors of tdict_broadcast_async(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_send_async(tdict_comm *comm, const tdict_tree *src, int32_t peer,
                                                        const tdict_comm_options *options, tdict_future **out,
                                                        tdict_error *err);
/** @brief Starts tdict_receive(). The result of the future is the new tree.
 *  @return Errors of tdict_broadcast_async(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_receive_async(tdict_comm *comm, int32_t peer,
                                                           const tdict_comm_options *options, tdict_future **out,
                                                           tdict_error *err);

TDICT_END_DECLS
#endif
