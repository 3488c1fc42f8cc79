/* Tests the MPI table with failing MPI calls, wrong calls and failing allocations. */
#include "services/mpi/job.h"

/* Runs one operation. All ranks must call this. */
static tdict_status run_operation(tdict_comm_table *t, int operation, char *a, char *b, tdict_error *err) {
  const int next = (t->rank + 1) % t->world_size, previous = (t->rank + t->world_size - 1) % t->world_size;
  tdict_status status = TDICT_OK;
  switch (operation) {
  case 0:
    return t->exchange(t->self, a, b, 8, LONG_NS, err);
  case 1:
    return t->all_gather(t->self, a, b, 100, tdict_no_stream(), LONG_NS, err);
  case 2:
    return t->broadcast(t->self, a, 100, 0, tdict_no_stream(), LONG_NS, err);
  case 3:
    return t->all_reduce(t->self, a, 50, TDICT_BF16, TDICT_REDUCE_MAX, tdict_no_stream(), LONG_NS, err);
  case 4:
    return t->all_reduce(t->self, a, 50, TDICT_U16, TDICT_REDUCE_SUM, tdict_no_stream(), LONG_NS, err);
  case 5:
    status = t->send_host(t->self, a, 100, next, LONG_NS, err);
    return status == TDICT_OK ? t->receive_host(t->self, b, 100, previous, LONG_NS, err) : status;
  case 6:
    status = t->send(t->self, a, 100, next, tdict_no_stream(), LONG_NS, err);
    return status == TDICT_OK ? t->receive(t->self, b, 100, previous, tdict_no_stream(), LONG_NS, err) : status;
  default:
    if (t->group_begin(t->self, err) != TDICT_OK) return TDICT_EINVAL;
    status = t->receive(t->self, b, 100, previous, tdict_no_stream(), LONG_NS, err);
    if (status == TDICT_OK) status = t->broadcast(t->self, a, 100, 0, tdict_no_stream(), LONG_NS, err);
    if (status == TDICT_OK) status = t->send(t->self, a, 100, next, tdict_no_stream(), LONG_NS, err);
    const tdict_status ended = t->group_end(t->self, tdict_no_stream(), LONG_NS, status == TDICT_OK ? err : NULL);
    return status == TDICT_OK ? ended : status;
  }
}

/* Each MPI call in turn fails on all ranks. */
MPI_CASE(mpi_table_returns_errors_of_mpi) {
  static const char *const names[] = {"exchange",   "all_gather", "broadcast", "all_reduce",
                                      "all_reduce", "se",         "se",        "group_end"};
  scoped_job t = start_job(MPI_THREAD_SINGLE, 64);
  for (int operation = 0; operation < 8; operation++) {
    if (t.world_size == 1 && (operation == 5 || operation == 6)) continue; /* a send to itself may never return */
    for (int n = 0;; n++) {
      tdict_comm_table used = make_table(64);
      char a[100] = {0}, b[400] = {0};
      tdict_error error = {0};
      fail_mpi_call(n);
      const tdict_status status = run_operation(&used, operation, a, b, &error);
      const bool failed = stop_failing();
      if (failed) used.abort(used.self); /* messages may still arrive, so the communicator is kept */
      drop_table(&used);
      if (!failed) {
        assert_int_equal(status, TDICT_OK);
        assert_true(n > 0 || (t.world_size == 1 && operation == 1)); /* a single rank gathers with a plain copy */
        break;
      }
      const bool no_memory = error.native == MPI_ERR_NO_MEM;
      assert_int_equal(status, no_memory ? TDICT_ENOMEM : TDICT_EIO);
      assert_int_equal(error.status, status);
      assert_true(no_memory || error.native == MPI_ERR_OTHER);
      assert_non_null(strstr(error.message, "mpi: "));
      assert_true(strstr(error.message, names[operation]) || strstr(error.message, "receive") ||
                  strstr(error.message, "broadcast"));
      assert_null(strchr(error.message, '\n'));
      assert_true(strlen(error.message) > strlen("mpi: all_gather: ")); /* the text of MPI */
    }
  }
}

/* After a group has failed, MPI must not write to the group's receive buffers. */
MPI_CASE(mpi_table_cancels_the_receives_of_a_failed_group) {
  scoped_job t = start_job(MPI_THREAD_SINGLE, 0);
  scoped_bytes a = make_bytes(100, 1, t.rank), b = make_bytes(100, 2, t.rank), c = make_bytes(100, 3, t.rank);
  const int next = (t.rank + 1) % t.world_size, previous = (t.rank + t.world_size - 1) % t.world_size;
  td_ok(t.group_begin(t.self, err));
  td_ok(t.receive(t.self, b, 100, previous, tdict_no_stream(), LONG_NS, err));
  td_ok(t.send(t.self, a, 100, next, tdict_no_stream(), LONG_NS, err));
  fail_mpi_call(1);
  td_fails(TDICT_EIO, "group_end", t.group_end(t.self, tdict_no_stream(), LONG_NS, err));
  assert_true(stop_failing());
  MPI_Barrier(MPI_COMM_WORLD); /* otherwise, a message could arrive before the receive is cancelled */
  td_ok(t.group_begin(t.self, err));
  td_ok(t.receive(t.self, c, 100, previous, tdict_no_stream(), LONG_NS, err));
  td_ok(t.send(t.self, a, 100, next, tdict_no_stream(), LONG_NS, err));
  td_ok(t.group_end(t.self, tdict_no_stream(), LONG_NS, err));
  check_bytes(c, 100, 1, previous);
  check_bytes(b, 100, 2, t.rank);
}

/* Rank 0 sends more or fewer bytes than rank 1 expects. */
MPI_CASE(mpi_table_detects_messages_of_another_length) {
  scoped_job t = start_job(MPI_THREAD_SINGLE, 0);
  char bytes[200] = {0};
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* see comm_mpi.h */
  for (int i = 0; i < 4 && t.world_size > 1; i++) {
    const bool in_group = i & 1;
    const size_t wanted = i & 2 ? 60 : 140;
    tdict_comm_table used = make_table(0);
    if (t.rank == 0) {
      td_ok(used.send(used.self, bytes, 100, 1, tdict_no_stream(), LONG_NS, err));
    } else if (t.rank == 1 && in_group) {
      td_ok(used.group_begin(used.self, err));
      td_ok(used.receive(used.self, bytes, wanted, 0, tdict_no_stream(), LONG_NS, err));
      td_fails(TDICT_EIO, "mpi: ", used.group_end(used.self, tdict_no_stream(), LONG_NS, err));
    } else if (t.rank == 1) {
      td_fails(TDICT_EIO, "mpi: receive", used.receive(used.self, bytes, wanted, 0, tdict_no_stream(), LONG_NS, err));
      if (wanted > 100) assert_non_null(strstr(td_last_error.message, "100 bytes, wanted 140"));
    }
    drop_table(&used);
  }
}

MPI_CASE(mpi_table_refuses_wrong_calls) {
  scoped_job t = start_job(MPI_THREAD_SINGLE, 0);
  char bytes[8];
  const int32_t wrong[] = {-1, -2, INT32_MIN, t.world_size, INT32_MAX};
  for (int i = 0; i < 5; i++) {
    td_fails(TDICT_EINVAL, "send_host", t.send_host(t.self, bytes, 8, wrong[i], LONG_NS, err));
    td_fails(TDICT_EINVAL, "receive_host", t.receive_host(t.self, bytes, 8, wrong[i], LONG_NS, err));
    td_fails(TDICT_EINVAL, "send", t.send(t.self, bytes, 8, wrong[i], tdict_no_stream(), LONG_NS, err));
    td_fails(TDICT_EINVAL, "receive", t.receive(t.self, bytes, 8, wrong[i], tdict_no_stream(), LONG_NS, err));
    td_fails(TDICT_EINVAL, "broadcast", t.broadcast(t.self, bytes, 8, wrong[i], tdict_no_stream(), LONG_NS, err));
  }
  td_fails(TDICT_EINVAL, "no group", t.group_end(t.self, tdict_no_stream(), LONG_NS, err));
  td_ok(t.group_begin(t.self, err));
  td_fails(TDICT_EINVAL, "has not ended", t.group_begin(t.self, err));
  td_ok(t.group_end(t.self, tdict_no_stream(), LONG_NS, err));
}

/* On all ranks, the table's allocations fail, but those of MPI do not. */
MPI_CASE(mpi_table_survives_enomem) {
  tdict_comm_table t = start_job(MPI_THREAD_SINGLE, 0), out = {.struct_size = sizeof out};
  TD_WITHOUT_MEMORY(tdict_mpi_create_table(NULL, NULL, &out, err));
  drop_table(&out);
  char a[100] = {0}, b[400] = {0};
  TD_WITHOUT_MEMORY(run_operation(&t, 7, a, b, err));
  end_job(&t);
}
