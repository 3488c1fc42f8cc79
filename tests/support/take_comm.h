/* Blocking forms of a communicator's asynchronous calls. Each calls tdict_comm_..._async(), then tdict_future_take().
 */
#ifndef TDICT_TESTS_SUPPORT_TAKE_COMM_H
#define TDICT_TESTS_SUPPORT_TAKE_COMM_H

#include "tdict/comm.h"

static inline tdict_status td_comm_broadcast(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                             const tdict_comm_options *options, tdict_tree **out, tdict_error *err) {
  tdict_future *future = NULL;
  const tdict_status status = tdict_comm_broadcast_async(comm, src, root, options, &future, err);
  return status == TDICT_OK ? tdict_future_take(future, out, err) : status;
}

static inline tdict_status td_comm_broadcast_into(tdict_comm *comm, tdict_tree *tree, int32_t root,
                                                  const tdict_comm_options *options, tdict_error *err) {
  tdict_future *future = NULL;
  const tdict_status status = tdict_comm_broadcast_into_async(comm, tree, root, options, &future, err);
  return status == TDICT_OK ? tdict_future_take(future, NULL, err) : status;
}

static inline tdict_status td_comm_scatter(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                           const tdict_comm_options *options, tdict_tree **out, tdict_error *err) {
  tdict_future *future = NULL;
  const tdict_status status = tdict_comm_scatter_async(comm, src, root, options, &future, err);
  return status == TDICT_OK ? tdict_future_take(future, out, err) : status;
}

static inline tdict_status td_comm_gather(tdict_comm *comm, const tdict_tree *src, int32_t root,
                                          const tdict_comm_options *options, tdict_tree **out, tdict_error *err) {
  tdict_future *future = NULL;
  const tdict_status status = tdict_comm_gather_async(comm, src, root, options, &future, err);
  return status == TDICT_OK ? tdict_future_take(future, out, err) : status;
}

static inline tdict_status td_comm_all_gather(tdict_comm *comm, const tdict_tree *src,
                                              const tdict_comm_options *options, tdict_tree **out, tdict_error *err) {
  tdict_future *future = NULL;
  const tdict_status status = tdict_comm_all_gather_async(comm, src, options, &future, err);
  return status == TDICT_OK ? tdict_future_take(future, out, err) : status;
}

static inline tdict_status td_comm_all_gather_stack(tdict_comm *comm, const tdict_tree *src,
                                                    const tdict_comm_options *options, tdict_tree **out,
                                                    tdict_error *err) {
  tdict_future *future = NULL;
  const tdict_status status = tdict_comm_all_gather_stack_async(comm, src, options, &future, err);
  return status == TDICT_OK ? tdict_future_take(future, out, err) : status;
}

static inline tdict_status td_comm_all_reduce(tdict_comm *comm, tdict_tree *tree, tdict_reduce_op op,
                                              const tdict_comm_options *options, tdict_error *err) {
  tdict_future *future = NULL;
  const tdict_status status = tdict_comm_all_reduce_async(comm, tree, op, options, &future, err);
  return status == TDICT_OK ? tdict_future_take(future, NULL, err) : status;
}

static inline tdict_status td_comm_send(tdict_comm *comm, const tdict_tree *src, int32_t peer,
                                        const tdict_comm_options *options, tdict_error *err) {
  tdict_future *future = NULL;
  const tdict_status status = tdict_comm_send_async(comm, src, peer, options, &future, err);
  return status == TDICT_OK ? tdict_future_take(future, NULL, err) : status;
}

static inline tdict_status td_comm_receive(tdict_comm *comm, int32_t peer, const tdict_comm_options *options,
                                           tdict_tree **out, tdict_error *err) {
  tdict_future *future = NULL;
  const tdict_status status = tdict_comm_receive_async(comm, peer, options, &future, err);
  return status == TDICT_OK ? tdict_future_take(future, out, err) : status;
}

#endif
