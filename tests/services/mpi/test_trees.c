/* Tests each call of tdict/comm.h over MPI with random trees, which are compared element by element. Every process
 * makes the trees of all ranks, so it can check its result alone. */
#include <signal.h>

#include "services/mpi/job.h"

#include "services/comm/trees.h"
#include "support/take_comm.h"

enum { MPI_RANKS = 4 };

typedef struct tree_job {
  tdict_comm *comm;
  int rank, world;
  rng random; /* equal on all ranks */
} tree_job;

static tree_job start_trees(int level, size_t max_message_bytes) {
  tdict_comm_table table = start_job(level, max_message_bytes);
  tree_job j = {.random = {(uint64_t)table.world_size}};
  td_ok(tdict_comm_create(rig_context(), &table, NULL, &j.comm, err));
  j.rank = tdict_comm_get_info(j.comm).rank;
  j.world = tdict_comm_get_info(j.comm).world_size;
  return j;
}
static void end_trees(tree_job *j) {
  tdict_comm_destroy(j->comm);
  assert_int_equal(MPI_Finalize(), MPI_SUCCESS);
  rig_end();
}
#define scoped_tree_job TD_SCOPED(end_trees, tree_job)

static tree_plan random_plan(tree_job *j) {
  return (tree_plan){.shape_seed = next_random(&j->random),
                     .value_seed = next_random(&j->random),
                     .batch_ndim = 2,
                     .batch_size = {pick(&j->random, 0, 4), pick(&j->random, 1, 3)},
                     .layout = (tree_layout)pick(&j->random, 0, NUM_LAYOUTS - 1)};
}
/* Makes the trees of all ranks. Their shapes differ only in dimension `dim`, or not at all if `dim` is negative. */
static void make_parts(tree_job *j, tdict_tree **parts, int dim) {
  tree_plan plan = random_plan(j);
  for (int r = 0; r < j->world; r++) {
    plan.value_seed = next_random(&j->random);
    plan.layout = (tree_layout)pick(&j->random, 0, NUM_LAYOUTS - 1);
    if (dim >= 0) plan.batch_size[dim] = pick(&j->random, 0, 4);
    parts[r] = tree_make(&plan);
  }
}
static void release_parts(tree_job *j, tdict_tree **parts) {
  for (int r = 0; r < j->world; r++) tdict_release(parts[r]);
}
static void check_joined(tree_job *j, tdict_tree **parts, int dim, const tdict_tree *got) {
  int64_t from = 0;
  for (int r = 0; r < j->world; r++) {
    tree_check_part(got, parts[r], false, dim, from);
    from += tdict_batch_size(parts[r])[dim];
  }
  assert_int_equal(tdict_batch_size(got)[dim], from);
}

static tdict_comm_options options_of(int dim) { return td_with(tdict_comm_options, dim = dim); }

static void do_broadcast(tree_job *j) {
  const tree_plan plan = random_plan(j);
  const int root = (int)pick(&j->random, 0, j->world - 1);
  scoped_tree src = tree_make(&plan), got = NULL;
  td_ok(td_comm_broadcast(j->comm, j->rank == root ? src : NULL, root, NULL, &got, err));
  tree_check_equal(got, src);
}

static void do_broadcast_into(tree_job *j) {
  tdict_tree *parts[MPI_RANKS], *kept = NULL;
  const int root = (int)pick(&j->random, 0, j->world - 1);
  make_parts(j, parts, -1);
  td_ok(tdict_clone_deep(parts[root], NULL, &kept, err));
  td_ok(td_comm_broadcast_into(j->comm, parts[j->rank], root, NULL, err));
  tree_check_equal(parts[j->rank], kept);
  tdict_release(kept);
  release_parts(j, parts);
}

static void do_scatter(tree_job *j) {
  const int root = (int)pick(&j->random, 0, j->world - 1), dim = (int)pick(&j->random, 0, 1);
  const bool even = pick(&j->random, 0, 1);
  int64_t counts[MPI_RANKS], rows = even ? pick(&j->random, 0, 9) : 0, from = 0;
  for (int r = 0; r < j->world; r++) {
    counts[r] = even ? rows / j->world + (r < rows % j->world) : pick(&j->random, 0, 3);
    if (!even) rows += counts[r];
    if (r < j->rank) from += counts[r];
  }
  tree_plan plan = random_plan(j);
  plan.batch_size[dim] = rows;
  scoped_tree src = tree_make(&plan), got = NULL;
  const bool is_root = j->rank == root;
  tdict_comm_options o = options_of(dim);
  if (is_root && !even) o.counts = counts;
  td_ok(td_comm_scatter(j->comm, is_root ? src : NULL, root, &o, &got, err));
  assert_int_equal(tdict_batch_size(got)[dim], counts[j->rank]);
  tree_check_part(src, got, false, dim, from);
}

static void do_gather_to(tree_job *j) {
  tdict_tree *parts[MPI_RANKS], *got = NULL;
  const int root = (int)pick(&j->random, 0, j->world - 1), dim = (int)pick(&j->random, 0, 1);
  make_parts(j, parts, pick(&j->random, 0, 2) ? dim : -1);
  const tdict_comm_options o = options_of(dim);
  td_ok(td_comm_gather(j->comm, parts[j->rank], root, &o, &got, err));
  assert_true((got != NULL) == (j->rank == root));
  if (got) check_joined(j, parts, dim, got);
  tdict_release(got);
  release_parts(j, parts);
}

static void do_all_gather(tree_job *j) {
  tdict_tree *parts[MPI_RANKS], *got = NULL;
  const int dim = (int)pick(&j->random, 0, 1);
  make_parts(j, parts, pick(&j->random, 0, 2) ? dim : -1);
  const tdict_comm_options o = options_of(dim);
  td_ok(td_comm_all_gather(j->comm, parts[j->rank], &o, &got, err));
  check_joined(j, parts, dim, got);
  tdict_release(got);
  release_parts(j, parts);
}

static void do_all_gather_stack(tree_job *j) {
  tdict_tree *parts[MPI_RANKS], *got = NULL;
  make_parts(j, parts, -1);
  td_ok(td_comm_all_gather_stack(j->comm, parts[j->rank], NULL, &got, err));
  assert_int_equal(tdict_batch_size(got)[0], j->world);
  for (int r = 0; r < j->world; r++) tree_check_part(got, parts[r], true, 0, r);
  tdict_release(got);
  release_parts(j, parts);
}

/* Reduces tensors. Element e of tensor i is (e + i) * (rank + 1), so the expected result is known. */
static void do_all_reduce(tree_job *j) {
  static const tdict_dtype dtypes[] = {TDICT_F32, TDICT_F64, TDICT_BF16, TDICT_F16, TDICT_F32};
  const tdict_reduce_op op = (tdict_reduce_op)pick(&j->random, 0, 3);
  const int count = (int)pick(&j->random, 1, 5), n = j->world;
  const int64_t rows = pick(&j->random, 0, 30);
  const double factor[] = {n * (n + 1) / 2.0, (n + 1) / 2.0, 1, n};
  scoped_tree tree = help_tree(0, NULL);
  for (int i = 0; i < count; i++) {
    double numbers[30];
    tdict_tensor *wide = NULL, *t = NULL;
    for (int64_t e = 0; e < rows; e++) numbers[e] = (double)((e + i) * (j->rank + 1));
    const char *key = td_text("k%d", i);
    td_ok(tdict_tensor_from_array(TDICT_F64, COUNTS(rows), numbers, &wide, err));
    td_ok(tdict_tensor_to_dtype(wide, dtypes[i], NULL, &t, err));
    tdict_tensor_release(wide);
    td_put(tree, key, t);
  }
  td_ok(td_comm_all_reduce(j->comm, tree, op, NULL, err));
  for (int i = 0; i < count; i++) {
    const char *key = td_text("k%d", i);
    assert_int_equal(tdict_tensor_dtype(td_leaf(tree, key)), dtypes[i]);
    scoped_tensor wide = td_made(tensor, tdict_tensor_to_dtype(td_leaf(tree, key), TDICT_F64, NULL, &made, err));
    for (int64_t e = 0; e < rows; e++) {
      const double wanted = (double)(e + i) * factor[op], found = ((const double *)tdict_tensor_const_data(wide))[e];
      if (found < wanted * (1 - 0x1p-8) || found > wanted * (1 + 0x1p-8))
        fail_msg("operation %d, %s: found %g, wanted %g", (int)op, key, found, wanted);
    }
  }
}

static void do_send(tree_job *j) {
  const tree_plan plan = random_plan(j);
  const int from = (int)pick(&j->random, 0, j->world - 1), to = (int)pick(&j->random, 0, j->world - 1);
  scoped_tree src = tree_make(&plan);
  if (from != to && j->rank == from) td_ok(td_comm_send(j->comm, src, to, NULL, err));
  if (from != to && j->rank == to) {
    scoped_tree got = td_made(tree, td_comm_receive(j->comm, from, NULL, &made, err));
    tree_check_equal(got, src);
  }
}

static void (*const operations[])(tree_job *j) = {do_broadcast,  do_broadcast_into,   do_scatter,    do_gather_to,
                                                  do_all_gather, do_all_gather_stack, do_all_reduce, do_send};
enum { NUM_OPERATIONS = sizeof operations / sizeof *operations };

MPI_CASE(mpi_trees_arrive_bit_by_bit) {
  scoped_tree_job j = start_trees(MPI_THREAD_SINGLE, 0);
  for (int i = 0; i < 15 * NUM_OPERATIONS; i++) operations[i % NUM_OPERATIONS](&j);
}

/* Messages have at most 1024 bytes, so larger trees are sent in pieces. */
MPI_CASE(mpi_trees_arrive_in_pieces) {
  scoped_tree_job j = start_trees(MPI_THREAD_SINGLE, 1024);
  for (int i = 0; i < 3 * NUM_OPERATIONS; i++) operations[i % NUM_OPERATIONS](&j);
}

#ifdef MPICH_VERSION
enum { PROCESSES_SPIN = 1 }; /* MPICH processes spin while they wait */
#else
enum { PROCESSES_SPIN = 0 };
#endif
/* scripts/test-mpi passes --kill-rank and --kill-round: that rank kills itself with SIGKILL in that round. */
MPI_CASE(mpi_trees_survive_500_rounds) {
  scoped_tree_job j = start_trees(MPI_THREAD_SINGLE, 0);
  const int64_t rank = td_number("--kill-rank", -1), round = td_number("--kill-round", -1);
  const int rounds = PROCESSES_SPIN && j.world > 2 ? 100 : 500; /* fewer if processes may share a processor */
  for (int i = 0; i < rounds; i++) {
    if (j.rank == rank && i == round) raise(SIGKILL);
    operations[pick(&j.random, 0, NUM_OPERATIONS - 1)](&j);
  }
}
