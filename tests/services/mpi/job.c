/* Implements job.h, the helpers of cases under mpirun. */
#include "services/mpi/job.h"

tdict_comm_table make_table(size_t max_message_bytes) {
  tdict_comm_table table = tdict_comm_table_default();
  tdict_mpi_options options = tdict_mpi_options_default();
  if (max_message_bytes) options.max_message_bytes = max_message_bytes;
  td_ok(tdict_mpi_create_table(NULL, &options, &table, err));
  return table;
}

tdict_comm_table start_job(int level, size_t max_message_bytes) {
  int got = -1;
  assert_int_equal(MPI_Init_thread(NULL, NULL, level, &got), MPI_SUCCESS);
  assert_int_equal(got, level);
  return make_table(max_message_bytes);
}

void drop_table(tdict_comm_table *table) {
  table->destroy(table->self);
  memset(table, 0, sizeof *table);
}

void end_job(tdict_comm_table *table) {
  drop_table(table);
  assert_int_equal(MPI_Finalize(), MPI_SUCCESS);
}

unsigned char *make_bytes(size_t count, uint64_t seed, int rank) {
  unsigned char *bytes = td_alloc(count + 1);
  td_fill_random(bytes, count, seed * 64 + (uint64_t)rank);
  return bytes;
}

void check_bytes(const void *found, size_t count, uint64_t seed, int rank) {
  scoped_bytes wanted = make_bytes(count, seed, rank);
  if (memcmp(found, wanted, count) != 0) fail_msg("%zu bytes of rank %d differ (seed %d)", count, rank, (int)seed);
}

/* The MPI functions below can be made to fail. Otherwise, they call MPI's own functions (PMPI_...). */
static int fail_at = -1, calls;
static bool failed;

void fail_mpi_call(int n) {
  fail_at = n;
  calls = 0;
  failed = false;
}

bool stop_failing(void) {
  fail_at = -1;
  return failed;
}

static bool fails_now(void) {
  if (fail_at < 0 || calls++ != fail_at) return false;
  return failed = true;
}

int MPI_Send(const void *buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
  return fails_now() ? MPI_ERR_OTHER : PMPI_Send(buffer, count, type, peer, tag, comm);
}
int MPI_Recv(void *buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Status *status) {
  return fails_now() ? MPI_ERR_OTHER : PMPI_Recv(buffer, count, type, peer, tag, comm, status);
}
int MPI_Sendrecv(const void *sent, int sent_count, MPI_Datatype sent_type, int to, int sent_tag, void *received,
                 int received_count, MPI_Datatype received_type, int from, int received_tag, MPI_Comm comm,
                 MPI_Status *status) {
  if (fails_now()) return MPI_ERR_OTHER;
  return PMPI_Sendrecv(sent, sent_count, sent_type, to, sent_tag, received, received_count, received_type, from,
                       received_tag, comm, status);
}
int MPI_Isend(const void *buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request) {
  return fails_now() ? MPI_ERR_OTHER : PMPI_Isend(buffer, count, type, peer, tag, comm, request);
}
int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request *request) {
  return fails_now() ? MPI_ERR_OTHER : PMPI_Irecv(buffer, count, type, peer, tag, comm, request);
}
int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  return fails_now() ? MPI_ERR_OTHER : PMPI_Bcast(buffer, count, type, root, comm);
}
int MPI_Allgather(const void *sent, int sent_count, MPI_Datatype sent_type, void *received, int received_count,
                  MPI_Datatype received_type, MPI_Comm comm) {
  if (fails_now()) return MPI_ERR_NO_MEM;
  return PMPI_Allgather(sent, sent_count, sent_type, received, received_count, received_type, comm);
}
int MPI_Allreduce(const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return fails_now() ? MPI_ERR_OTHER : PMPI_Allreduce(sent, received, count, type, op, comm);
}
