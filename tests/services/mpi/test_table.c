/* Tests how MPI tables are made and destroyed: arguments, threads, communicators, and calls after `abort`. */
#include <pthread.h>

#include "services/mpi/job.h"

/* Uses a table: all processes exchange their ranks. */
static void use(tdict_comm_table *t) {
  int32_t ranks[8] = {0};
  td_ok(t->exchange(t->self, &t->rank, ranks, sizeof *ranks, LONG_NS, err));
  for (int32_t r = 0; r < t->world_size; r++) assert_int_equal(ranks[r], r);
}

MPI_CASE(mpi_table_describes_itself) {
  scoped_job t = start_job(MPI_THREAD_SINGLE, 0);
  int rank = -1, world = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  assert_int_equal(t.struct_size, sizeof t);
  assert_string_equal(t.name, "mpi");
  assert_int_equal(t.rank, rank);
  assert_int_equal(t.world_size, world);
  assert_true(tdict_device_equal(t.device, tdict_cpu()));
  td_ok(t.finish(t.self, tdict_no_stream(), LONG_NS, err));
  use(&t);
}

MPI_CASE(mpi_table_needs_initialized_mpi) {
  tdict_comm_table t = {.struct_size = sizeof t};
  td_fails(TDICT_EINVAL, "not initialized", tdict_mpi_create_table(NULL, NULL, &t, err));
  t = start_job(MPI_THREAD_SERIALIZED, 0);
  assert_false(t.on_calling_thread);
  tdict_comm_table late = make_table(0);
  end_job(&t);
  late.destroy(late.self); /* MPI has freed the communicator */
  td_fails(TDICT_EINVAL, "finalized", tdict_mpi_create_table(NULL, NULL, &t, err));
}

/* Makes a table of a communicator with renumbered ranks. The program's messages in it do not mix with the table's. */
MPI_CASE(mpi_table_duplicates_the_communicator) {
  scoped_job t = start_job(MPI_THREAD_SINGLE, 0);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, t.rank % 2, -t.rank, &half);
  tdict_comm_table of_half = {.struct_size = sizeof of_half};
  td_ok(tdict_mpi_create_table(&half, NULL, &of_half, err));
  int rank = -1, world = -1;
  MPI_Comm_rank(half, &rank);
  MPI_Comm_size(half, &world);
  assert_int_equal(of_half.rank, rank);
  assert_int_equal(of_half.world_size, world);
  const int next = (rank + 1) % world, previous = (rank + world - 1) % world;
  int number = t.rank, received = -1;
  MPI_Request request;
  MPI_Irecv(&received, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, half, &request);
  if (world > 1) {
    scoped_bytes sent = make_bytes(100, 1, rank), got = make_bytes(100, 2, rank);
    td_ok(of_half.send(of_half.self, sent, 100, next, tdict_no_stream(), LONG_NS, err));
    td_ok(of_half.receive(of_half.self, got, 100, previous, tdict_no_stream(), LONG_NS, err));
    check_bytes(got, 100, 1, previous);
  }
  MPI_Send(&number, 1, MPI_INT, next, 0, half);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_free(&half); /* the table has its own communicator */
  use(&of_half);
  drop_table(&of_half);
  use(&t);
}

/* One rank at a time passes wrong options. All ranks fail, and can then continue. */
MPI_CASE(mpi_table_checks_options_on_all_ranks) {
  scoped_job t = start_job(MPI_THREAD_SINGLE, 0);
  const size_t wrong[] = {0, 63, ((size_t)1 << 30) + 1};
  for (int i = 0; i < 5; i++)
    for (int odd = 0; odd < t.world_size; odd++) {
      tdict_mpi_options options = tdict_mpi_options_default();
      tdict_comm_table out = {.struct_size = sizeof out};
      if (odd == t.rank && i < 3) options.max_message_bytes = wrong[i];
      if (odd == t.rank && i == 3) options.struct_size = 1;
      if (odd == t.rank && i == 4) out.struct_size = 0;
      const char *text = odd != t.rank ? "another rank" : i < 3 ? "max_message_bytes" : "struct_size";
      td_fails(TDICT_EINVAL, text, tdict_mpi_create_table(NULL, &options, &out, err));
      assert_null(out.self);
      td_fails(TDICT_EINVAL, odd == t.rank ? "out is NULL" : "another rank",
               tdict_mpi_create_table(NULL, NULL, odd == t.rank ? NULL : &out, err));
    }
  use(&t);
}

/* The ranks pass different limits. If each rank used its own limit, messages would not match. */
MPI_CASE(mpi_table_uses_the_smallest_limit) {
  scoped_job t = start_job(MPI_THREAD_SINGLE, 0);
  for (int i = 0; i < 2; i++) {
    tdict_mpi_options options = tdict_mpi_options_default();
    if (i == 0 && t.rank == t.world_size - 1) options.max_message_bytes = 200;
    if (i == 1) options.max_message_bytes = 64 + (size_t)t.rank;
    tdict_comm_table mixed = {.struct_size = sizeof mixed};
    td_ok(tdict_mpi_create_table(NULL, &options, &mixed, err));
    const size_t bytes = 1000;
    unsigned char *buffer = make_bytes(bytes, 5, t.rank), *all = malloc(bytes * (size_t)t.world_size);
    td_ok(mixed.broadcast(mixed.self, buffer, bytes, 0, tdict_no_stream(), LONG_NS, err));
    check_bytes(buffer, bytes, 5, 0);
    td_ok(mixed.all_gather(mixed.self, buffer, all, bytes, tdict_no_stream(), LONG_NS, err));
    for (int r = 0; r < t.world_size; r++) check_bytes(all + (size_t)r * bytes, bytes, 5, 0);
    free(buffer);
    free(all);
    drop_table(&mixed);
  }
}

MPI_CASE(mpi_table_refuses_communicators) {
  tdict_comm_table t = start_job(MPI_THREAD_SINGLE, 0), out = {.struct_size = sizeof out};
  MPI_Comm none = MPI_COMM_NULL, half = MPI_COMM_NULL, between = MPI_COMM_NULL;
  td_fails(TDICT_EINVAL, "MPI_COMM_NULL", tdict_mpi_create_table(&none, NULL, &out, err));
  if (t.world_size > 1) {
    MPI_Comm_split(MPI_COMM_WORLD, t.rank == 0, t.rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, t.rank == 0 ? 1 : 0, 3, &between);
    td_fails(TDICT_EINVAL, "inter-communicator", tdict_mpi_create_table(&between, NULL, &out, err));
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
  }
  use(&t);
  end_job(&t);
}

typedef struct attempt {
  tdict_comm_table *table;
  tdict_status exchanged, made;
  tdict_error exchange_error, make_error;
} attempt;

static void *try_on_thread(void *user) {
  attempt *a = user;
  tdict_comm_table *t = a->table, other = {.struct_size = sizeof other};
  int32_t ranks[8];
  a->exchanged = t->exchange(t->self, &t->rank, ranks, sizeof *ranks, LONG_NS, &a->exchange_error);
  a->made = tdict_mpi_create_table(NULL, NULL, &other, &a->make_error);
  if (a->made == TDICT_OK) other.destroy(other.self);
  return NULL;
}

static void check_threads(int level, tdict_status wanted) {
  scoped_job t = start_job(level, 0);
  assert_int_equal(t.on_calling_thread, level < MPI_THREAD_SERIALIZED);
  attempt a = {.table = &t};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, try_on_thread, &a), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(a.exchanged, wanted);
  assert_int_equal(a.made, wanted);
  if (wanted != TDICT_OK) {
    assert_non_null(strstr(a.exchange_error.message, "another thread"));
    assert_non_null(strstr(a.make_error.message, "another thread"));
  }
  use(&t); /* the main thread may still use the table */
}

MPI_CASE(mpi_table_refuses_other_threads_below_serialized) { check_threads(MPI_THREAD_FUNNELED, TDICT_EINVAL); }
MPI_CASE(mpi_table_accepts_other_threads_when_serialized) { check_threads(MPI_THREAD_SERIALIZED, TDICT_OK); }

#define CANCELLED(call) td_fails(TDICT_ECANCELLED, "aborted", call)

MPI_CASE(mpi_table_fails_after_abort) {
  tdict_comm_table t = start_job(MPI_THREAD_SINGLE, 0), other = make_table(0);
  void *self = t.self;
  char a[64] = {0}, b[64 * 8] = {0};
  t.abort(self);
  t.abort(self); /* a second call does nothing */
  CANCELLED(t.exchange(self, a, b, 8, LONG_NS, err));
  CANCELLED(t.send_host(self, a, 8, 0, LONG_NS, err));
  CANCELLED(t.receive_host(self, a, 8, 0, LONG_NS, err));
  CANCELLED(t.broadcast(self, a, 8, 0, tdict_no_stream(), LONG_NS, err));
  CANCELLED(t.all_gather(self, a, b, 8, tdict_no_stream(), LONG_NS, err));
  CANCELLED(t.all_reduce(self, a, 2, TDICT_F32, TDICT_REDUCE_SUM, tdict_no_stream(), LONG_NS, err));
  CANCELLED(t.send(self, a, 8, 0, tdict_no_stream(), LONG_NS, err));
  CANCELLED(t.receive(self, a, 8, 0, tdict_no_stream(), LONG_NS, err));
  CANCELLED(t.group_begin(self, err));
  CANCELLED(t.group_end(self, tdict_no_stream(), LONG_NS, err));
  use(&other);
  drop_table(&t);
  use(&other);
  end_job(&other);
}
