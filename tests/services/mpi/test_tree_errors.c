/* Tests communicators over MPI: errors of single ranks, and asynchronous calls. */
#include "services/mpi/job.h"

#include "services/comm/trees.h"
#include "support/take_comm.h"

static tdict_comm *start_comm(int level) {
  tdict_comm_table table = start_job(level, 0);
  return td_made(comm, tdict_comm_create(rig_context(), &table, NULL, &made, err));
}
static void end_comm(tdict_comm *comm) {
  tdict_comm_destroy(comm);
  assert_int_equal(MPI_Finalize(), MPI_SUCCESS);
  rig_end();
}

static tdict_tree *part_of(int rank, uint64_t shape_seed) {
  const tree_plan plan = {.shape_seed = shape_seed,
                          .value_seed = (uint64_t)rank + 1,
                          .batch_ndim = 1,
                          .batch_size = {3},
                          .layout = LAYOUT_SEPARATE};
  return tree_make(&plan);
}

/* A call for which rank `odd` passes a wrong tree, and the other ranks pass good trees. */
typedef tdict_status faulty_call(tdict_comm *comm, int odd, const tdict_tree *tree, tdict_tree **out, tdict_error *err);
static tdict_status broadcast(tdict_comm *comm, int odd, const tdict_tree *tree, tdict_tree **out, tdict_error *err) {
  return td_comm_broadcast(comm, tdict_comm_get_info(comm).rank == odd ? tree : NULL, odd, NULL, out, err);
}
static tdict_status scatter(tdict_comm *comm, int odd, const tdict_tree *tree, tdict_tree **out, tdict_error *err) {
  return td_comm_scatter(comm, tdict_comm_get_info(comm).rank == odd ? tree : NULL, odd, NULL, out, err);
}
static tdict_status gather_to(tdict_comm *comm, int odd, const tdict_tree *tree, tdict_tree **out, tdict_error *err) {
  return td_comm_gather(comm, tree, (odd + 1) % tdict_comm_get_info(comm).world_size, NULL, out, err);
}
static tdict_status all_gather(tdict_comm *comm, int odd, const tdict_tree *tree, tdict_tree **out, tdict_error *err) {
  (void)odd;
  return td_comm_all_gather(comm, tree, NULL, out, err);
}
static tdict_status stack(tdict_comm *comm, int odd, const tdict_tree *tree, tdict_tree **out, tdict_error *err) {
  (void)odd;
  return td_comm_all_gather_stack(comm, tree, NULL, out, err);
}
static faulty_call *const calls[] = {broadcast, scatter, gather_to, all_gather, stack};
enum { NUM_CALLS = sizeof calls / sizeof *calls };

/* Each rank in turn passes a tree with an object, NULL, or a tree of a different shape. All ranks get the error, and
 * the communicator stays usable. */
MPI_CASE(mpi_trees_report_the_errors_of_each_rank) {
  tdict_comm *comm = start_comm(MPI_THREAD_SINGLE);
  const int rank = tdict_comm_get_info(comm).rank, world = tdict_comm_get_info(comm).world_size;
  tdict_tree *good = part_of(rank, 7), *with_text = part_of(rank, 7), *other = part_of(rank, 8);
  td_ok(tdict_set_text(with_text, "name", "a", err));
  for (int odd = 0; odd < world; odd++)
    for (int c = 0; c < NUM_CALLS; c++)
      for (int fault = 0; fault < 3; fault++) {
        const tdict_status wanted[] = {TDICT_ENOTSUP, TDICT_EINVAL, TDICT_ESHAPE};
        const tdict_tree *wrong[] = {with_text, NULL, other};
        scoped_tree got = NULL;
        const char *name = td_text("rank %d", odd);
        if (fault == 2 && (c < 2 || world == 1)) continue; /* the trees of one rank cannot differ */
        const char *text = fault == 2 ? "" : name;
        td_fails(wanted[fault], text, calls[c](comm, odd, rank == odd ? wrong[fault] : good, &got, err));
        if (fault == 0) assert_string_equal(td_last_error.path, "name");
        if (fault == 2) assert_true(td_last_error.path[0] != '\0');
        assert_null(got);
        td_ok(calls[c](comm, odd, good, &got, err));
      }
  td_release(good, with_text, other);
  end_comm(comm);
}

MPI_CASE(mpi_trees_detect_different_calls) {
  tdict_comm *comm = start_comm(MPI_THREAD_SINGLE);
  const int rank = tdict_comm_get_info(comm).rank, world = tdict_comm_get_info(comm).world_size;
  tdict_tree *good = part_of(rank, 7), *got = NULL;
  for (int odd = 0; odd < world && world > 1; odd++)
    for (int c = 0; c < NUM_CALLS; c++) {
      const int mine = rank == odd ? (c + 1) % NUM_CALLS : c;
      td_fails(TDICT_EINVAL, "rank", calls[mine](comm, odd, good, &got, err));
      td_ok(calls[c](comm, odd, good, &got, err));
      tdict_release(got);
    }
  tdict_release(good);
  end_comm(comm);
}

static tdict_tree *wait_for(tdict_future *future) {
  tdict_tree *got = td_made(tree, tdict_future_wait(future, &made, err));
  tdict_future_release(future);
  return got;
}

/* Starts several asynchronous calls before the first wait. The thread of the communicator calls MPI. */
MPI_CASE(mpi_trees_arrive_asynchronously) {
  tdict_comm *comm = start_comm(MPI_THREAD_SERIALIZED);
  const int rank = tdict_comm_get_info(comm).rank, world = tdict_comm_get_info(comm).world_size;
  for (uint64_t round = 0; round < 5; round++) {
    tdict_tree *parts[8], *got[3];
    tdict_future *futures[3];
    for (int r = 0; r < world; r++) parts[r] = part_of(r, round);
    td_ok(tdict_comm_all_gather_async(comm, parts[rank], NULL, &futures[0], err));
    td_ok(tdict_comm_broadcast_async(comm, rank == world - 1 ? parts[rank] : NULL, world - 1, NULL, &futures[1], err));
    td_ok(tdict_comm_all_gather_stack_async(comm, parts[rank], NULL, &futures[2], err));
    for (int i = 0; i < 3; i++) got[i] = wait_for(futures[i]);
    for (int r = 0; r < world; r++) {
      tree_check_part(got[0], parts[r], false, 0, 3 * r);
      tree_check_part(got[2], parts[r], true, 0, r);
    }
    tree_check_equal(got[1], parts[world - 1]);
    for (int i = 0; i < 3; i++) tdict_release(got[i]);
    for (int r = 0; r < world; r++) tdict_release(parts[r]);
  }
  end_comm(comm);
}

/* Checks that below MPI_THREAD_SERIALIZED, an asynchronous call is complete when the function returns. */
static void arrive_at_once(int level) {
  tdict_comm *comm = start_comm(level);
  const int rank = tdict_comm_get_info(comm).rank, world = tdict_comm_get_info(comm).world_size;
  tdict_tree *parts[8], *got = NULL;
  for (int r = 0; r < world; r++) parts[r] = part_of(r, 7);
  tdict_future *futures[2];
  for (int i = 0; i < 2; i++) {
    td_ok(tdict_comm_all_gather_async(comm, parts[rank], NULL, &futures[i], err));
    assert_true(tdict_future_is_ready(futures[i]));
  }
  for (int i = 0; i < 2; i++) {
    got = wait_for(futures[i]);
    for (int r = 0; r < world; r++) tree_check_part(got, parts[r], false, 0, 3 * r);
    tdict_release(got);
  }
  for (int r = 0; r < world; r++) tdict_release(parts[r]);
  end_comm(comm);
}
MPI_CASE(mpi_trees_arrive_on_the_calling_thread_below_serialized) { arrive_at_once(MPI_THREAD_FUNNELED); }
MPI_CASE(mpi_trees_arrive_in_a_program_of_one_thread) { arrive_at_once(MPI_THREAD_SINGLE); }

/* MPI fails on all ranks: the call returns MPI's error text, and the communicator is aborted. */
MPI_CASE(mpi_trees_report_errors_of_mpi) {
  tdict_comm *comm = start_comm(MPI_THREAD_SINGLE);
  tdict_tree *part = part_of(tdict_comm_get_info(comm).rank, 7), *got = NULL;
  fail_mpi_call(0);
  td_fails(TDICT_ENOMEM, "mpi: exchange", td_comm_all_gather(comm, part, NULL, &got, err));
  assert_true(stop_failing());
  td_fails(TDICT_ENOMEM, "aborted", td_comm_all_gather(comm, part, NULL, &got, err));
  assert_null(got);
  tdict_release(part);
  end_comm(comm);
}
