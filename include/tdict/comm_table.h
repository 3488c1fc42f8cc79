/* Declares the table of operations of a communicator, which moves bytes. tdict_nccl_create_table()
 * (tdict/comm_nccl.h) and tdict_mpi_create_table() (tdict/comm_mpi.h) make a table. A program may pass its own table
 * to tdict_comm_create(). Begin with tdict_comm_table_default(), and set `world_size`, `device` and all functions.
 *
 * Every rank calls an operation, with the same sizes and in the same order, except `send` and `receive` of both kinds.
 * Memory. The buffers of `exchange`, `send_host` and `receive_host` are in host memory, all others on the table's
 * device. A size may be 0, and exceed INT_MAX.
 * Streams. An operation queues its work on `stream`, a stream of the device, and returns. On host memory, operations
 * return after their buffers are complete. For the cpu, `stream` is tdict_no_stream().
 * Errors. After a failed operation, other ranks may still wait. The library calls `abort`, and then only `destroy`. A
 * rank that waits longer than `timeout_ns` returns #TDICT_ETIMEDOUT. A table that cannot give up ignores the limit.
 * The operations must return, and must not throw: see docs/callbacks.md.
 * Thread rule: the library calls one operation of a table at a time, from any thread unless `on_calling_thread` is
 * true. `abort` may be called by any thread while another operation runs. */
#ifndef TDICT_COMM_TABLE_H
#define TDICT_COMM_TABLE_H

#include "tdict/values.h"

TDICT_BEGIN_DECLS

/** An operation of tdict_comm_all_reduce_async(). */
typedef enum tdict_reduce_op {
  TDICT_REDUCE_SUM,  /**< the sum of all ranks' elements */
  TDICT_REDUCE_MEAN, /**< the sum divided by the number of ranks; for floating-point dtypes only */
  TDICT_REDUCE_MIN,
  TDICT_REDUCE_MAX
} tdict_reduce_op;

/** The operations of a communicator, called with `self` of the table. They return #TDICT_OK or fill in *err. */
typedef struct tdict_comm_table {
  size_t struct_size;  /**< sizeof(tdict_comm_table) */
  void *self;          /**< passed to all functions */
  const char *name;    /**< such as "nccl", for messages. Must stay valid until `destroy` */
  int32_t rank;        /**< this process, from 0 to world_size - 1 */
  int32_t world_size;  /**< number of ranks, at least 1 */
  tdict_device device; /**< the device of the buffers; tdict_cpu() for host memory */
  /** true: operations must run on the thread on which the program calls a function of tdict/comm.h. This function then
   *  makes the whole call before it returns. false: operations may run on any thread. */
  bool on_calling_thread;

  /** Copies `num_bytes` bytes of every rank to all ranks: the bytes of rank r go to dst + r * num_bytes. */
  tdict_status (*exchange)(void *self, const void *src, void *dst, size_t num_bytes, int64_t timeout_ns,
                           tdict_error *err);
  tdict_status (*send_host)(void *self, const void *src, size_t num_bytes, int32_t peer, int64_t timeout_ns,
                            tdict_error *err);
  tdict_status (*receive_host)(void *self, void *dst, size_t num_bytes, int32_t peer, int64_t timeout_ns,
                               tdict_error *err);

  /** Copies the buffer of rank `root` to the buffers of all other ranks. */
  tdict_status (*broadcast)(void *self, void *buffer, size_t num_bytes, int32_t root, tdict_stream stream,
                            int64_t timeout_ns, tdict_error *err);
  /** Copies `num_bytes` bytes of every rank to all ranks, as `exchange` does. `src` may be dst + rank * num_bytes. */
  tdict_status (*all_gather)(void *self, const void *src, void *dst, size_t num_bytes, tdict_stream stream,
                             int64_t timeout_ns, tdict_error *err);
  /** Returns true if `all_reduce` supports the dtype and the operation. */
  bool (*can_reduce)(void *self, tdict_dtype dtype, tdict_reduce_op op);
  /** Reduces the elements of all ranks, in place. */
  tdict_status (*all_reduce)(void *self, void *buffer, size_t num_elements, tdict_dtype dtype, tdict_reduce_op op,
                             tdict_stream stream, int64_t timeout_ns, tdict_error *err);
  tdict_status (*send)(void *self, const void *src, size_t num_bytes, int32_t peer, tdict_stream stream,
                       int64_t timeout_ns, tdict_error *err);
  tdict_status (*receive)(void *self, void *dst, size_t num_bytes, int32_t peer, tdict_stream stream,
                          int64_t timeout_ns, tdict_error *err);
  /** Between `group_begin` and `group_end`, calls of `send`, `receive` and `broadcast` only collect their work. Then
   *  `group_end` does this work together, in no particular order. Groups are not nested. */
  tdict_status (*group_begin)(void *self, tdict_error *err);
  tdict_status (*group_end)(void *self, tdict_stream stream, int64_t timeout_ns, tdict_error *err);

  /** Waits until the work queued on `stream` is done on this rank. Returns #TDICT_ETIMEDOUT after `timeout_ns`, and an
   *  error as soon as the table knows that another rank has failed. Does nothing if the device is the cpu. */
  tdict_status (*finish)(void *self, tdict_stream stream, int64_t timeout_ns, tdict_error *err);
  /** Gives up: operations that run on this rank return an error soon. Waits for no other rank. */
  void (*abort)(void *self);
  /** Frees `self`. Called once, also after `abort`. Without `abort`, every rank calls this function. */
  void (*destroy)(void *self);
} tdict_comm_table;
static inline tdict_comm_table tdict_comm_table_default(void) {
  tdict_comm_table t;
  tdict_init_struct_(t);
  return t;
}

TDICT_END_DECLS
#endif
