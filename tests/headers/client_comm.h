/* The part of client.c that uses tdict/comm.h, with a communicator of one rank. */
static tdict_status one_exchange(void *self, const void *src, void *dst, size_t num_bytes, int64_t timeout_ns,
                                 tdict_error *err) {
  (void)self, (void)timeout_ns, (void)err;
  memcpy(dst, src, num_bytes);
  return TDICT_OK;
}
static tdict_status one_send_host(void *self, const void *src, size_t num_bytes, int32_t peer, int64_t timeout_ns,
                                  tdict_error *err) {
  (void)self, (void)src, (void)num_bytes, (void)peer, (void)timeout_ns, (void)err;
  return TDICT_ELOST;
}
static tdict_status one_receive_host(void *self, void *dst, size_t num_bytes, int32_t peer, int64_t timeout_ns,
                                     tdict_error *err) {
  (void)self, (void)dst, (void)num_bytes, (void)peer, (void)timeout_ns, (void)err;
  return TDICT_ELOST;
}
static tdict_status one_broadcast(void *self, void *buffer, size_t num_bytes, int32_t root, tdict_stream stream,
                                  int64_t timeout_ns, tdict_error *err) {
  (void)self, (void)buffer, (void)num_bytes, (void)root, (void)stream, (void)timeout_ns, (void)err;
  return TDICT_OK;
}
static tdict_status one_all_gather(void *self, const void *src, void *dst, size_t num_bytes, tdict_stream stream,
                                   int64_t timeout_ns, tdict_error *err) {
  (void)self, (void)stream, (void)timeout_ns, (void)err;
  memmove(dst, src, num_bytes);
  return TDICT_OK;
}
static bool one_can_reduce(void *self, tdict_dtype dtype, tdict_reduce_op op) {
  (void)self, (void)dtype, (void)op;
  return true;
}
static tdict_status one_all_reduce(void *self, void *buffer, size_t num_elements, tdict_dtype dtype, tdict_reduce_op op,
                                   tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  (void)self, (void)buffer, (void)num_elements, (void)dtype, (void)op, (void)stream, (void)timeout_ns, (void)err;
  return TDICT_OK;
}
static tdict_status one_send(void *self, const void *src, size_t num_bytes, int32_t peer, tdict_stream stream,
                             int64_t timeout_ns, tdict_error *err) {
  (void)stream;
  return one_send_host(self, src, num_bytes, peer, timeout_ns, err);
}
static tdict_status one_receive(void *self, void *dst, size_t num_bytes, int32_t peer, tdict_stream stream,
                                int64_t timeout_ns, tdict_error *err) {
  (void)stream;
  return one_receive_host(self, dst, num_bytes, peer, timeout_ns, err);
}
static tdict_status one_group_begin(void *self, tdict_error *err) {
  (void)self, (void)err;
  return TDICT_OK;
}
static tdict_status one_finish(void *self, tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  (void)self, (void)stream, (void)timeout_ns, (void)err;
  return TDICT_OK;
}
static void one_end(void *self) { (void)self; }

static tdict_comm_table table_of_one(void) {
  tdict_comm_table t = tdict_comm_table_default();
  t.name = "one";
  t.world_size = 1;
  t.device = tdict_cpu();
  t.exchange = one_exchange, t.send_host = one_send_host, t.receive_host = one_receive_host;
  t.broadcast = one_broadcast, t.all_gather = one_all_gather;
  t.can_reduce = one_can_reduce, t.all_reduce = one_all_reduce;
  t.send = one_send, t.receive = one_receive;
  t.group_begin = one_group_begin, t.group_end = one_finish, t.finish = one_finish;
  t.abort = one_end, t.destroy = one_end;
  return t;
}

static tdict_tree *take_comm(tdict_future *future) {
  tdict_tree *result = NULL;
  OK(tdict_future_take(future, &result, &last_error));
  return result;
}

static void make_calls(tdict_comm *comm, tdict_tree *td) {
  const tdict_comm_options options = tdict_comm_options_default();
  tdict_future *future = NULL;
  tdict_tree *stacked;
  OK(tdict_comm_broadcast_async(comm, td, 0, &options, &future, &last_error)), tdict_release(take_comm(future));
  OK(tdict_comm_broadcast_into_async(comm, td, 0, NULL, &future, &last_error)), tdict_release(take_comm(future));
  OK(tdict_comm_scatter_async(comm, td, 0, NULL, &future, &last_error)), tdict_release(take_comm(future));
  OK(tdict_comm_gather_async(comm, td, 0, NULL, &future, &last_error)), tdict_release(take_comm(future));
  OK(tdict_comm_all_gather_async(comm, td, NULL, &future, &last_error)), tdict_release(take_comm(future));
  OK(tdict_comm_all_gather_stack_async(comm, td, NULL, &future, &last_error));
  stacked = take_comm(future);
  TRUE(tdict_batch_ndim(stacked) == 2);
  tdict_release(stacked);
  OK(tdict_comm_all_reduce_async(comm, td, TDICT_REDUCE_SUM, NULL, &future, &last_error));
  tdict_release(take_comm(future));
  OK(tdict_comm_all_reduce_async(comm, td, TDICT_REDUCE_MEAN, NULL, &future, &last_error));
  tdict_release(take_comm(future));
  OK(tdict_comm_send_async(comm, td, 0, NULL, &future, &last_error));
  TRUE(tdict_future_take(future, NULL, &last_error) == TDICT_EINVAL); /* refused, because there is no other rank */
  OK(tdict_comm_receive_async(comm, 0, NULL, &future, &last_error));
  TRUE(tdict_future_take(future, NULL, &last_error) == TDICT_EINVAL);
}

static void use_comm(tdict_context *context) {
  static const int64_t rows[] = {4};
  const tdict_comm_table table = table_of_one();
  tdict_comm_create_options create = tdict_comm_create_options_default();
  tdict_comm *comm = NULL;
  tdict_tree *td = NULL;
  OK(tdict_create(1, rows, &td, &last_error));
  OK(tdict_comm_create(context, &table, &create, &comm, &last_error));
  TRUE(tdict_comm_get_info(comm).rank == 0 && tdict_comm_get_info(comm).world_size == 1);
  TRUE(tdict_device_equal(tdict_comm_get_info(comm).device, tdict_cpu()));
  TRUE(TDICT_REDUCE_MIN != TDICT_REDUCE_MAX);
  make_calls(comm, td);
  tdict_comm_abort(comm);
  tdict_comm_destroy(comm);
  tdict_release(td);
}
