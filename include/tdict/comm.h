/* Declares communicators, which send trees between processes, called ranks, also on different machines. They use a
 * table of byte operations (tdict/comm_table.h). docs/scale.md describes threads, messages, locked trees and failures.
 *
 * An `_async` function starts a call and returns a new future. tdict_future_take() waits for the future and releases
 * it. NULL options are the defaults. Until the future has ended, the program must not write the elements of a source,
 * or use a tree that is written in place. A communicator makes its calls one after another, in the order of their
 * starts, and each call waits for earlier transfers of its trees. To stop a call, use tdict_comm_abort(), not
 * tdict_future_cancel(). All calls except send and receive are collective: every rank starts them in the same order.
 *
 * Trees may have any keys, dtypes and strides, but no objects (tdict/object.h). Sources are borrowed, may be on any
 * device of the context, and do not change. Trees that are written in place must be on the device of the communicator.
 * A new tree is on this device, is not locked, and has no device of its own (tdict_get_device()).
 *
 * Errors of all functions, which then start no call: #TDICT_EINVAL `comm` or `out` is NULL; #TDICT_EIO no thread can be
 * started; #TDICT_ENOMEM. In a fork of the creator of the context: #TDICT_EFORKED. Errors of their futures:
 * - #TDICT_EINVAL: a tree is NULL, a rank does not exist, a tensor has lost bytes, or an option is invalid or unused.
 * - #TDICT_EINVAL on every rank: the ranks call different functions, or pass different arguments.
 * - #TDICT_ESHAPE: the trees of the ranks differ, and err->path is the first key that differs.
 * - #TDICT_ENOTSUP: a tree has an object, and err->path names the object.
 * - #TDICT_EWRONGDEVICE: a tensor, memory or stream is on a device that the call cannot use.
 * - #TDICT_EREADONLY: a tensor to write is read-only.
 * - #TDICT_ETIMEDOUT: another rank did not answer within the time limit.
 * - #TDICT_ELOST: another rank has ended or failed, or the device is lost. #TDICT_ECANCELLED: after tdict_comm_abort().
 * - #TDICT_EFORMAT: another rank sent malformed data, or uses another version of the protocol.
 * - #TDICT_ENOMEM, #TDICT_EDEVICE, errors of the table, and errors of tdict_schema_from_tree().
 * If arguments or trees are wrong, no element is sent. A failure after the ranks agree aborts the communicator. Ranks
 * must trust each other: the library checks their data only to keep memory accesses valid.
 *
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
  tdict_init_struct_(o);
  o.timeout_ns = tdict_cast_(int64_t, 60) * 1000000000;
  return o;
}

/** @brief Creates a communicator. Sends nothing to other ranks.
 *  @param[in]  context  Must have the table's device, and must outlive the communicator.
 *  @param[in]  table    Copied. On success only, the communicator takes over table->self.
 *  @param[out] out      New communicator, destroyed with tdict_comm_destroy(). Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a wrong rank or time limit, or an argument or a function of the table is NULL;
 *          #TDICT_ENODEVICE; #TDICT_ENOTSUP an unknown field is not zero; #TDICT_EDEVICE; #TDICT_ELOST. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_create(tdict_context *context, const tdict_comm_table *table,
                                                         const tdict_comm_create_options *options, tdict_comm **out,
                                                         tdict_error *err);
/** @brief Waits for this rank's calls, and destroys the communicator. NULL is allowed. Every rank must call it, unless
 *  the communicator was aborted. */
TDICT_API void tdict_comm_destroy(tdict_comm *comm);
/** @brief Aborts the communicator: calls of this rank end with #TDICT_ECANCELLED soon, and later calls at once.
 *  Waits for no other rank, and frees nothing. NULL is allowed. A second abort has no effect. */
TDICT_API void tdict_comm_abort(tdict_comm *comm);
/** What a communicator connects. */
typedef struct tdict_comm_info {
  int32_t rank;        /**< the number of this rank, from 0 to world_size - 1 */
  int32_t world_size;  /**< the number of ranks */
  tdict_device device; /**< the device on which the communicator sends and receives */
} tdict_comm_info;
/** @brief Returns the rank, the number of ranks and the device: `tdict_comm_get_info(comm).rank`. */
TDICT_API tdict_comm_info tdict_comm_get_info(const tdict_comm *comm);

/** Options of calls. Ranks may pass different options, except `dim`. */
typedef struct tdict_comm_options {
  size_t struct_size;
  int64_t timeout_ns; /**< longest wait for other ranks at each step, in nanoseconds; 0 (default): the communicator's */
  /** A stream of the communicator's device. The call reads and writes elements after the work that is queued on it.
   *  None (default): the legacy stream. Must be none if the device is the cpu. */
  tdict_stream after;
  tdict_memory *memory; /**< of the communicator's device, for a new tree only; NULL (default): the context's memory */
  /** The batch dimension that scatter cuts, and gather and all_gather join; the same on all ranks. Negative values
   *  count from the end. Default 0, which other calls need. */
  int32_t dim;
  /** For scatter on the root, copied: the size of each rank's part, which may be 0. NULL (default): sizes that differ
   *  by at most 1, the larger first. Other calls need NULL. */
  const int64_t *counts;
} tdict_comm_options;
static inline tdict_comm_options tdict_comm_options_default(void) {
  tdict_comm_options o;
  tdict_init_struct_(o);
  return o;
}

/** @brief Sends a tree from rank @p root to all ranks. Collective.
 *  @param[in]  src      On @p root: the tree. On other ranks: must be NULL.
 *  @param[out] out      The result of the future is a new tree, and @p src itself on @p root. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_broadcast_async(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                                                  const tdict_comm_options *options, tdict_future **out,
                                                                  tdict_error *err);
/** @brief Copies the elements of the tree of rank @p root into the trees of all other ranks. Collective.
 *
 *  The trees must have equal schemas (tdict/schema.h). Addresses and locks do not change. Two tensors may share bytes
 *  if the tensors of @p root share bytes in the same way.
 *  @param[in,out] tree  Only read on @p root. It is the result of the future. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_broadcast_into_async(tdict_comm *comm, tdict_tree *tree, int32_t root,
                                                                       const tdict_comm_options *options,
                                                                       tdict_future **out, tdict_error *err);
/** @brief Cuts the tree of rank @p root along a batch dimension, and sends one part to each rank. Collective.
 *  @param[in]  src  The tree on @p root, and NULL on other ranks.
 *  @param[out] out  The result of the future is the part of this rank, a new tree.
 *  @return #TDICT_EINVAL `dim` does not exist, or a count is negative; #TDICT_ESHAPE the sum of `counts` is not the
 *          size of the dimension. Both are errors of the future. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_scatter_async(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                                                const tdict_comm_options *options, tdict_future **out,
                                                                tdict_error *err);
/** @brief Joins the trees of all ranks along a batch dimension, in the order of the ranks, on rank @p root. Collective.
 *  The schemas of the trees may differ only in the size of this dimension. A part may be empty.
 *  @param[out] out  The result of the future is a new tree on @p root, and NULL on other ranks.
 *  @return Errors of the future: #TDICT_EINVAL no such `dim`; #TDICT_EOVERFLOW the sum of the sizes is too large. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_gather_async(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                                               const tdict_comm_options *options, tdict_future **out,
                                                               tdict_error *err);
/** @brief Joins the trees of all ranks as tdict_comm_gather_async() does, but on every rank. Collective. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_all_gather_async(tdict_comm *comm, const tdict_tree *src,
                                                                   const tdict_comm_options *options,
                                                                   tdict_future **out, tdict_error *err);
/** @brief Joins the trees of all ranks along a new first batch dimension, one element for each rank. Collective.
 *
 *  The trees must have equal schemas. The tensors of the result share one storage. They are usually strided: only the
 *  elements of one rank are contiguous, see tdict_contiguous().
 *  @param[out] out  The result of the future is a new tree.
 *  @return #TDICT_EINVAL of the future: a tensor or tree of the result would have too many dimensions. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_all_gather_stack_async(tdict_comm *comm, const tdict_tree *src,
                                                                         const tdict_comm_options *options,
                                                                         tdict_future **out, tdict_error *err);
/** @brief Combines the elements of the trees of all ranks, and writes the result into each tree. Collective.
 *
 *  The trees must have equal schemas. Addresses and locks do not change. Two tensors may share bytes if the tensors of
 *  all ranks do so in the same way. The unused bytes between the tensors of tdict_create_from() may change. The parts
 *  of complex numbers are summed like floating-point numbers.
 *  @param[in,out] tree  The elements of this rank, which the call replaces. It is the result of the future.
 *  @return Errors of the future: #TDICT_EINVAL @p op is not a tdict_reduce_op; #TDICT_ENOTSUP the table cannot combine
 *          a dtype with @p op, and err->path names the tensor. #TDICT_REDUCE_MEAN needs floating-point dtypes. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_all_reduce_async(tdict_comm *comm, tdict_tree *tree,
                                                                   tdict_reduce_op op,
                                                                   const tdict_comm_options *options,
                                                                   tdict_future **out, tdict_error *err);
/** @brief Sends a tree to another rank, @p peer, which must call tdict_comm_receive_async().
 *
 *  The future ends after the tree was received. If two ranks wait for a send to each other, both get #TDICT_EINVAL or
 *  #TDICT_ETIMEDOUT. If either call fails before the elements are sent, both fail with the same error.
 *  @param[out] out   The result of the future is @p src. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_send_async(tdict_comm *comm, const tdict_tree *src, int32_t peer,
                                                             const tdict_comm_options *options, tdict_future **out,
                                                             tdict_error *err);
/** @brief Receives a tree from rank @p peer, which must call tdict_comm_send_async().
 *  @param[out] out  The result of the future is a new tree. */
TDICT_API TDICT_NODISCARD tdict_status tdict_comm_receive_async(tdict_comm *comm, int32_t peer,
                                                                const tdict_comm_options *options, tdict_future **out,
                                                                tdict_error *err);

TDICT_END_DECLS
#endif
